"""How a stage reports progress without knowing whether anyone watches."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol


class Task(Protocol):
    """A piece of long work with a known number of steps."""

    def advance(self, steps: int = 1) -> None:
        """Count finished steps; safe to call from several threads."""


class Progress(Protocol):
    """Shows tasks with the time left, and notes."""

    def task(self, label: str, total: int) -> AbstractContextManager[Task]:
        """Open a task of ``total`` steps."""

    def note(self, text: str) -> None:
        """Show one line of information."""

    def warn(self, text: str) -> None:
        """Show one line of warning."""
