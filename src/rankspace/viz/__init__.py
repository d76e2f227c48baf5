"""Pictures of grammars. matplotlib is imported when something is drawn, not before."""

from rankspace.viz.rules import draw_rules

__all__ = ["draw_rules"]
