"""Parameters by name: copying, averaging, and the optimizer that moves them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from calib.edges.qat.settings import TrainSettings
from calib.errors import StatisticsError
from calib.types.gate import few

Tensor = Any


def make_optimizer(parameters: Mapping[str, Tensor], settings: TrainSettings) -> Any:
    """Make the optimizer: weights decay, biases do not, scales have a rate of their own."""
    scales = [item for name, item in parameters.items() if name.startswith("quantizers.")]
    others = {name: item for name, item in parameters.items() if not name.startswith("quantizers.")}
    groups = [
        {"params": [item for item in others.values() if item.ndim > 1], "peak": settings.lr,
         "weight_decay": settings.weight_decay},
        {"params": [item for item in others.values() if item.ndim <= 1], "peak": settings.lr, "weight_decay": 0.0},
        {"params": scales, "peak": settings.scale_lr, "weight_decay": 0.0},
    ]  # fmt: skip
    groups = [{**group, "lr": group["peak"]} for group in groups if group["params"]]
    if settings.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=settings.lr, momentum=0.9)
    return torch.optim.AdamW(groups, lr=settings.lr)


def copy_of(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copy tensors."""
    return {name: item.detach().clone() for name, item in tensors.items()}


@torch.no_grad()
def load(into: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Overwrite tensors in place."""
    for name, item in into.items():
        item.copy_(values[name])


@torch.no_grad()
def blend(average: Mapping[str, Tensor], values: Mapping[str, Tensor], decay: float) -> None:
    """Move an average towards values."""
    for name, item in average.items():
        item.lerp_(values[name].detach(), 1 - decay)


def refuse_broken(tensors: Mapping[str, Tensor], label: str = "the trained network") -> None:
    """Refuse parameters that training made infinite or NaN.

    Args:
        tensors: by name.
        label: names the training in the error.

    Raises:
        StatisticsError: naming them.
    """
    broken = [name for name, tensor in tensors.items() if not bool(torch.isfinite(tensor).all())]
    if broken:
        raise StatisticsError(
            label, expected="finite weights and scales", got=f"NaN or infinity in {few(broken)}",
            remedy="the training diverged: lower the learning rate, clip gradients, go back to an earlier state",
        )  # fmt: skip
