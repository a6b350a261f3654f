"""Plugin parameters: what a signature says of them, for validation and help."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Parameter:
    """Bounds and help of a plugin parameter, given as ``Annotated[float, Parameter("...", 0, 1)]``.

    Attributes:
        help: one line for people.
        minimum: smallest accepted value, or None.
        maximum: largest accepted value, or None.
        choices: accepted values of a string parameter, empty for any.
    """

    help: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class PluginSpec:
    """``NAME:key=value,key=value`` taken apart; values are still text."""

    name: str
    arguments: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        """Render as the command line takes it."""
        joined = ",".join(f"{key}={value}" for key, value in self.arguments)
        return f"{self.name}:{joined}" if joined else self.name
