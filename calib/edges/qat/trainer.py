"""The training loop: steps, validation, early stop, checkpoints; on one process or several."""

from __future__ import annotations

import contextlib
import math
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from calib.edges.qat.checkpoint import (
    load_arrays,
    optimizer_arrays,
    restore_optimizer,
    save_arrays,
    to_arrays,
    with_prefix,
)
from calib.edges.qat.data import Order, prefetch
from calib.edges.qat.interrupts import stop_requests
from calib.edges.qat.module import OnnxModule
from calib.edges.qat.parameters import blend, copy_of, load, make_optimizer, refuse_broken
from calib.edges.qat.settings import TrainSettings, average_decay, schedule
from calib.edges.qat.state import Material, Point, State
from calib.edges.qat.task import Batch
from calib.edges.qat.validate import autocast, measure
from calib.edges.qat.world import World
from calib.errors import StatisticsError
from calib.types.progress import Progress
from calib.types.progress import Task as Shown

Tensor = Any
PARTS = 1000
"""Steps of the progress display."""


class Trainer:
    """Trains one network.

    Args:
        network: is trained in place; its answer is the tensor of the task. Parameters of scales are called
            ``quantizers.…``.
        teacher: the float network to distil from, or None.
        material: task and images.
        settings: how.
        world: processes and device.
        checkpoint: file of the checkpoint; an existing one is gone on from.
        label: names the training in progress and errors.
    """

    def __init__(
        self,
        network: nn.Module,
        teacher: nn.Module | None,
        material: Material,
        settings: TrainSettings,
        world: World,
        checkpoint: Path,
        label: str,
    ) -> None:
        self.network, self.material, self.settings, self.world = network, material, settings, world
        self._checkpoint, self._label = checkpoint, label
        self._channels_last = world.device.type == "cuda"
        self._place(network)
        self._teacher = None if teacher is None or not settings.distill else self._place(teacher).eval()
        self._parameters = {name: item for name, item in network.named_parameters() if item.requires_grad}
        self._average = copy_of(self._parameters) if settings.ema else None
        self._kept: dict[str, Tensor] = copy_of(self._parameters)
        self._optimizer = make_optimizer(self._parameters, settings)
        self._scaler = torch.amp.GradScaler(world.device.type, enabled=settings.precision == "fp16")
        self._shared = self._share(network)
        self._order = Order(
            images=len(material.train.keys),
            batch=settings.batch_size * world.size,
            seed=settings.seed,
            augment=settings.augment,
            crop=material.train.may_crop,
        )
        self.state = State()
        self._sum = torch.zeros(2, dtype=torch.float64, device=world.device)
        self._saved = 0.0

    def _place(self, network: nn.Module) -> nn.Module:
        network.to(self.world.device)
        if self._channels_last:
            network.to(memory_format=torch.channels_last)
        return network

    def _share(self, network: nn.Module) -> nn.Module:
        """Wrap the network so that processes average their gradients."""
        if self.world.size == 1:
            return network
        devices = [self.world.device.index] if self.world.device.type == "cuda" else None
        with warnings.catch_warnings():  # PyTorch 2.13 renames the argument that earlier versions know alone
            warnings.simplefilter("ignore", FutureWarning)
            return nn.parallel.DistributedDataParallel(network, device_ids=devices, broadcast_buffers=False)

    def train(self, progress: Progress, workers: int) -> State:
        """Train to the end, or go on from the checkpoint.

        Args:
            progress: is shown the share that is done, with the time left.
            workers: threads that read images.

        Returns:
            how it went; the network holds the parameters that are kept.

        Raises:
            KeyboardInterrupt: asked to stop; the checkpoint is written.
            StatisticsError: the loss is not finite any more.
        """
        self._resume(progress)
        if not self.state.finished:
            with stop_requests() as asked, progress.task(self._label, PARTS) as shown:
                self._loop(shown, workers, asked)
            self._tell_labels(progress)
        refuse_broken(self._kept, self._label)
        load(self._parameters, self._kept)
        return self.state

    def _tell_labels(self, progress: Progress) -> None:
        """Say what of the labels did not count; every process has read its share of them."""
        for parts, words in ((self.material.train, "learn from"), (self.material.valid, "measure mIoU on")):
            seen = torch.tensor(parts.labelled, dtype=torch.int64, device=self.world.device)
            if not int(self.world.total(seen)):
                progress.warn(f"{self._label}: no labelled pixel to {words}: all are void or outside the class table")
        foreign = {**self.material.valid.foreign, **self.material.train.foreign}
        if foreign:
            listed = ", ".join(f"{value} ({pixels} pixels)" for value, pixels in sorted(foreign.items())[:8])
            progress.warn(f"label values outside the class table do not count: {listed}")

    def _loop(self, shown: Shown, workers: int, asked: Callable[[], bool]) -> None:
        started, before = time.monotonic(), self.state.seconds
        told = self._tell(shown, 0)
        if not self.state.points:
            self._validate(workers)
        self._saved = started
        batches = prefetch(self._make_batch, self.state.step, workers, self.settings.steps)
        with contextlib.closing(batches):  # type: ignore[type-var]
            for batch in batches:
                fraction = self._fraction()
                self._step(batch, fraction)
                self.state.step += 1
                self.state.seconds = before + time.monotonic() - started
                ended = self._fraction() >= 1
                if ended or self.state.step % self.settings.validate_every == 0:
                    self._validate(workers)
                    self.state.seconds = before + time.monotonic() - started
                if ended or self._exhausted():
                    self.state.finished = "finished" if ended else "no improvement any more"
                    break
                told = self._tell(shown, told)
                self._maybe_save(asked)
        self._keep_last()
        self._save()
        self._tell(shown, told)

    def _fraction(self) -> float:
        """Share of the training that is done, by steps or by time, whichever is further."""
        by_steps = self.state.step / self.settings.steps
        if self.settings.max_seconds is None:
            return by_steps
        return self.world.agree(min(1.0, max(by_steps, self.state.seconds / self.settings.max_seconds)))

    def _tell(self, shown: Shown, told: int) -> int:
        done = PARTS if self.state.finished else min(PARTS, int(self._fraction() * PARTS))
        if done > told:
            shown.advance(done - told)
        return max(done, told)

    def _make_batch(self, step: int) -> Batch:
        train = self.material.train
        wanted = self._order.step(step, self.world.rank, self.world.size)
        return train.batch([(train.keys[index], augmentation) for index, augmentation in wanted])

    def _step(self, batch: Batch, fraction: float) -> None:
        settings, rate = self.settings, schedule(fraction, self.settings)
        for group in self._optimizer.param_groups:
            group["lr"] = group["peak"] * rate
        batch = batch.to(self.world.device, self._channels_last)
        self._shared.train()
        with autocast(self.settings, self.world):
            answer = self._shared(*batch.inputs)
        loss = self._loss(answer, batch)
        self._optimizer.zero_grad(set_to_none=True)
        self._scaler.scale(loss).backward()
        self._scaler.unscale_(self._optimizer)
        if settings.clip:
            nn.utils.clip_grad_norm_(self._parameters.values(), settings.clip)
        self._scaler.step(self._optimizer)
        self._scaler.update()
        self._sum += torch.stack([loss.detach().double(), torch.ones((), dtype=torch.float64, device=loss.device)])
        if self._average is not None:
            blend(self._average, self._parameters, average_decay(self.state.step, settings))

    def _loss(self, answer: Tensor, batch: Batch) -> Tensor:
        """Cross-entropy over all labelled pixels of all processes, and distillation, by their weights."""
        task, share = self.material.task, self.settings.distill if self._teacher is not None else 0.0
        scores = task.scores(answer)
        loss = scores.new_zeros(())
        if share < 1:
            summed, count = task.cross_entropy(scores, batch)
            every = self.world.total(count.detach().clone()) / self.world.size
            loss = loss + (1 - share) * summed / every.clamp_min(1)
        if self._teacher is not None:
            with torch.no_grad(), autocast(self.settings, self.world):
                wanted = task.scores(self._teacher(*batch.inputs))
            loss = loss + share * task.distillation(scores, wanted, self.settings.temperature)
        return loss

    def _validate(self, workers: int) -> None:
        """Measure mIoU with the averaged parameters, and keep them if they are the best so far."""
        current = None
        if self._average is not None:
            current = copy_of(self._parameters)
            load(self._parameters, self._average)
        miou = measure(self.network, self.material, self.settings, self.world, workers)
        state, total = self.state, self.world.total(self._sum.clone())
        loss = float(total[0] / total[1]) if total[1] else None
        self._sum.zero_()
        if loss is not None and not math.isfinite(loss):
            raise self._diverged(loss)
        rate = self._optimizer.param_groups[0]["lr"] if state.step else 0.0
        images = state.step * self._order.batch
        state.points.append(Point(state.step, images, state.seconds, loss, float(rate), miou))
        if miou > state.points[state.best].miou or len(state.points) == 1:
            state.best = len(state.points) - 1
            self._kept = copy_of(self._parameters)
        if current is not None:
            load(self._parameters, current)

    def _diverged(self, loss: float) -> StatisticsError:
        return StatisticsError(
            self._label,
            expected="a finite loss",
            got=f"{loss} after {self.state.step} steps",
            remedy="lower --lr, or use --precision fp32",
        )

    def _exhausted(self) -> bool:
        patience, state = self.settings.patience, self.state
        return bool(patience) and len(state.points) - 1 - state.best >= patience

    def _keep_last(self) -> None:
        if self.settings.keep == "last":
            self._kept = copy_of(self._average if self._average is not None else self._parameters)

    def _maybe_save(self, asked: Callable[[], bool]) -> None:
        stop = self.world.any(asked())
        due = self.world.agree(time.monotonic() - self._saved) >= self.settings.checkpoint_seconds
        if stop or due:
            self._save()
        if stop:
            raise KeyboardInterrupt

    def _save(self) -> None:
        """Write the checkpoint; every process holds the same, the first writes it."""
        self._saved = time.monotonic()
        if not self.world.first:
            return
        arrays = {
            **to_arrays("parameters", self._parameters),
            **to_arrays("kept", self._kept),
            **(to_arrays("average", self._average) if self._average is not None else {}),
            **optimizer_arrays(self._optimizer),
            "sum": self._sum.cpu().numpy(),
        }
        about = {"state": self.state.as_json(), "scaler": self._scaler.state_dict()}
        save_arrays(self._checkpoint, arrays, about)

    def _resume(self, progress: Progress) -> None:
        found = load_arrays(self._checkpoint)
        if found is None:
            return
        arrays, about = found
        self.state = State.of_json(about["state"])
        load(self._parameters, with_prefix("parameters", arrays))
        load(self._kept, with_prefix("kept", arrays))
        if self._average is not None:
            load(self._average, with_prefix("average", arrays))
        restore_optimizer(self._optimizer, arrays)
        if about["scaler"]:
            self._scaler.load_state_dict(about["scaler"])
        self._sum += torch.from_numpy(arrays["sum"]).to(self._sum.device)
        if not self.state.finished:
            progress.note(f"{self._label}: going on at step {self.state.step}")


def teacher_of(network: OnnxModule) -> OnnxModule:
    """Make the float network that a network under training started from."""
    return frozen(OnnxModule(network.model, network=network.network, outputs=network.output_names))


def frozen(network: OnnxModule) -> OnnxModule:
    """Ask for no gradient of a network's parameters: a teacher is not trained."""
    for parameter in network.parameters():
        parameter.requires_grad_(False)
    return network
