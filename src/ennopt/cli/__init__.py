"""The command line."""

from ennopt.cli.main import main

__all__ = ["main"]
