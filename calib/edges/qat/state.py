"""What a training works on, and where it stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from calib.edges.qat.data import Examples
from calib.edges.qat.task import Task


@dataclass(frozen=True)
class Point:
    """What was measured at a validation.

    Attributes:
        step: optimizer steps done.
        images: images seen.
        seconds: time spent so far, over all runs of the command.
        loss: mean loss since the last point; None at the start.
        lr: learning rate of the weights at that step.
        miou: on the validation images, 0..1.
    """

    step: int
    images: int
    seconds: float
    loss: float | None
    lr: float
    miou: float


@dataclass
class State:
    """Where a training stands.

    Attributes:
        step: optimizer steps done.
        seconds: time spent.
        points: validations so far.
        best: place of the best among them.
        finished: why training ended; empty while it goes on.
    """

    step: int = 0
    seconds: float = 0.0
    points: list[Point] = field(default_factory=list)
    best: int = 0
    finished: str = ""

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> State:
        """Read what :meth:`as_json` wrote."""
        points = [Point(**point) for point in found["points"]]
        return cls(found["step"], found["seconds"], points, found["best"], found["finished"])


@dataclass(frozen=True)
class Material:
    """What a network is trained and validated on.

    Attributes:
        task: the loss.
        train: images to train on.
        valid: images to validate on.
    """

    task: Task
    train: Examples
    valid: Examples
