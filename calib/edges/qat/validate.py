"""Validation: mean IoU of a network, shared among the processes."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import nn

from calib.edges.qat.data import UNCHANGED, prefetch
from calib.edges.qat.settings import TrainSettings
from calib.edges.qat.state import Material
from calib.edges.qat.task import Batch, mean_iou
from calib.edges.qat.world import World

TYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


def autocast(settings: TrainSettings, world: World) -> Any:
    """Let convolutions compute in the precision asked for."""
    kind = TYPES.get(settings.precision)
    return torch.autocast(world.device.type, dtype=kind, enabled=kind is not None)


def measure(network: nn.Module, material: Material, settings: TrainSettings, world: World, workers: int) -> float:
    """Mean IoU on the validation images, 0..1, shared among the processes."""
    valid, task = material.valid, material.task
    places = list(range(world.rank, len(valid.keys), world.size))
    groups = [places[start : start + settings.batch_size] for start in range(0, len(places), settings.batch_size)]
    network.eval()

    def make(number: int) -> Batch:
        return valid.batch([(valid.keys[place], UNCHANGED) for place in groups[number]])

    table = torch.zeros(task.classes, task.classes, dtype=torch.int64, device=world.device)
    batches = prefetch(make, 0, workers, len(groups))
    with torch.no_grad(), contextlib.closing(batches):  # type: ignore[type-var]
        for batch in batches:
            moved = batch.to(world.device, world.device.type == "cuda")
            with autocast(settings, world):
                answer = network(*moved.inputs)
            table += task.confusion(task.scores(answer), moved)
    return mean_iou(world.total(table))
