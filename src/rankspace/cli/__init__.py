"""The `rankspace` command."""

from rankspace.cli.app import main

__all__ = ["main"]
