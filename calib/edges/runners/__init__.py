"""Runtimes behind the :class:`calib.types.runner.Runner` protocol."""
