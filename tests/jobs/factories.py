"""Factories that ``module:factory`` tests name."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from tests.evalsets import MEAN, STD, colour_network, colours

CALLS: list[tuple[int, ...]] = []


def distances(picture: np.ndarray) -> np.ndarray:
    """Logits by distance from the class colours, ``[N, 5, H, W]``."""
    CALLS.append(picture.shape)
    centres = ((colours(5) / 255 - MEAN) / STD).astype(np.float32)
    return -((picture[:, None] - centres[None, :, :, None, None]) ** 2).sum(axis=2)


def function() -> Any:
    return distances


def mapping() -> Any:
    return lambda picture: {"aux": distances(picture) * 0, "out": distances(picture)}


def model() -> onnx.ModelProto:
    return colour_network(5)


def broken() -> Any:
    raise RuntimeError("no weights at hand")


def number() -> Any:
    return 7


def words() -> Any:
    return lambda picture: "words"


def failing() -> Any:
    return lambda picture: picture @ np.zeros((7, 7), np.float32)


def module() -> Any:
    """A torch module of the same arithmetic."""
    import torch

    class Distances(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            centres = ((colours(5) / 255 - MEAN) / STD).astype(np.float32)
            self.centres = torch.nn.Parameter(torch.from_numpy(centres))

        def forward(self, picture: Any) -> Any:
            assert not self.training
            return {"out": -((picture[:, None] - self.centres[None, :, :, None, None]) ** 2).sum(dim=2)}

    return Distances()
