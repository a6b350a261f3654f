"""What a scan knows of each image, and what a sampler answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class ScoreTable:
    """Scores of the images of one split, one row an image, rows sorted by key.

    Attributes:
        keys: image keys, unique, ascending.
        columns: name to array of length N (or ``[N, K]`` for per-class columns); see ``docs/scores.md``.
        class_names: names of the K classes, empty without labels.
        thresholds: name to value of every threshold that entered a column.
    """

    keys: tuple[str, ...]
    columns: Mapping[str, NDArray[Any]]
    class_names: tuple[str, ...]
    thresholds: Mapping[str, float]

    def __len__(self) -> int:
        """Count the images."""
        return len(self.keys)


@dataclass(frozen=True)
class Selection:
    """The images a sampler chose, best first.

    Attributes:
        rows: row numbers in the score table, int64, unique.
        scores: the score each was chosen by, float64, higher is more wanted.
        samplers: the sampler that chose each (they differ under ``mix``).
        notes: what the sampler has to say: shortages with count and threshold, dropped duplicates.
    """

    rows: NDArray[np.int64]
    scores: NDArray[np.float64]
    samplers: tuple[str, ...]
    notes: tuple[str, ...] = ()


Sampler = Callable[..., Selection]
"""``(table: ScoreTable, n: int, rng: numpy.random.Generator, **parameters) -> Selection``."""
