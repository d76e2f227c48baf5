"""Neural parameterisations: modules that turn their weights into a distribution, by name."""

from rankspace.models.contract import Model, Posed
from rankspace.models.registry import MODELS, Description, create, describe

__all__ = ["MODELS", "Description", "Model", "Posed", "create", "describe"]
