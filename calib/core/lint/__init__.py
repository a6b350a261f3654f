"""Lint: what in a network will hurt, why, and what to do about it; a rule a module in :mod:`calib.core.lint.rules`."""
