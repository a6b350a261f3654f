"""Layer 5: the command line, one module a verb."""

from calib.cli.app import main

__all__ = ["main"]
