"""Train the quantized network and, as a control, the float one, alike."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from calib.core.scoresource import ScoreSource
from calib.edges.feeds import bind_dataset
from calib.jobs.qat.ground import Ground
from calib.jobs.qat.network import Origin
from calib.jobs.qat.request import QatRequest
from calib.jobs.qat.scoring import class_count, source_of
from calib.jobs.qat.splits import Splits
from calib.jobs.qat.students import TrainedNetwork, make_control, make_student, make_teacher
from calib.types.progress import Progress

VOID = -1
"""Label value of pixels that do not count; outside any class table."""
VALIDATIONS = 20
"""Validations over a training, where epochs are not longer apart."""
PATIENCE = 10
UNLIMITED = 10**9


@dataclass(frozen=True)
class Trained:
    """A finished training.

    Attributes:
        network: weights and ranges as trained.
        state: how it went.
        settings: with what numbers.
        device: what it was trained on, for people.
        processes: how many trained together.
    """

    network: TrainedNetwork
    state: Any
    settings: Any
    device: str
    processes: int


def make_settings(request: QatRequest, splits: Splits, world: int) -> Any:
    """The numbers of the training: steps from epochs, and what the request leaves open."""
    from calib.edges.qat.settings import TrainSettings

    each = max(1, -(-len(splits.train.records) // (request.batch_size * world)))
    steps = request.steps or request.epochs * each
    if request.max_minutes is not None and request.steps is None:
        steps = UNLIMITED
    keep = request.keep or ("last" if splits.held_out else "best")
    patience = request.patience if request.patience is not None else (0 if splits.held_out else PATIENCE)
    return TrainSettings(
        steps=steps,
        max_seconds=None if request.max_minutes is None else request.max_minutes * 60,
        batch_size=request.batch_size,
        lr=request.lr,
        scale_lr=request.scale_lr,
        optimizer=request.optimizer,
        weight_decay=request.weight_decay,
        clip=request.clip,
        precision=request.precision or ("fp16" if request.device == "cuda" else "fp32"),
        ema=request.ema,
        distill=request.distill,
        temperature=request.temperature,
        seed=request.seed,
        augment=request.augment,
        validate_every=max(each, steps // VALIDATIONS) if steps < UNLIMITED else each,
        patience=patience,
        keep=keep,
        checkpoint_seconds=request.checkpoint_seconds,
    )


@dataclass(frozen=True)
class Coach:
    """Trains networks on the same material.

    Attributes:
        request: what was asked for.
        ground: the network and its ranges.
        origin: what the network comes from.
        splits: images.
        world: processes and device.
        folder: where checkpoints go.
        progress: is shown how far it is.
    """

    request: QatRequest
    ground: Ground
    origin: Origin
    splits: Splits
    world: Any
    folder: Path
    progress: Progress

    def train(self, name: str, settings: Any, *, quantized: bool = True) -> Trained:
        """Train the network: with fake quantization where the plan says, or without.

        Args:
            name: names the checkpoint.
            settings: a ``TrainSettings``.
            quantized: whether with fake quantization.
        """
        from calib.edges.qat.trainer import Trainer

        source = source_of(self.request, self.ground.network, self.splits)
        make = make_student if quantized else make_control
        student = make(self.request, self.ground, self.origin, self.splits.train, source.tensor)
        teacher = make_teacher(self.ground, source.tensor) if settings.distill else None
        file = self.folder / f"{name}.checkpoint"
        trainer = Trainer(student.network, teacher, self._material(source), settings, self.world, file, name)
        workers = self.request.workers or os.cpu_count() or 1
        state = trainer.train(self.progress, workers)
        student.network.cpu()
        return Trained(student.finish(), state, settings, device_name(self.world.device), self.world.size)

    def _material(self, source: ScoreSource) -> Any:
        from calib.edges.qat.data import Examples
        from calib.edges.qat.state import Material
        from calib.edges.qat.task import Task

        parts, network = [], self.ground.network
        for dataset in (self.splits.train, self.splits.valid):
            bindings = bind_dataset(network.network, dataset, network.place)
            parts.append(Examples(dataset, bindings, VOID))
        return Material(Task(source, class_count(self.splits), VOID), parts[0], parts[1])


def control_settings(trained: Trained) -> Any:
    """The control's numbers: as many steps as the quantized network took, on the same schedule, no early stop."""
    return replace(trained.settings, steps=trained.state.step, max_seconds=None, patience=0)


def device_name(device: Any) -> str:
    """Name a device for people."""
    import torch

    return str(torch.cuda.get_device_name(device)) if device.type == "cuda" else "CPU"
