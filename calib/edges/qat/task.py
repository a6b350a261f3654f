"""The training task: losses and validation of a segmentation network, on labels that are never resized."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own convention

from calib.core.preprocess import Geometry
from calib.core.scoresource import ScoreSource

Tensor = Any
TINY = 1e-7
"""Smallest probability whose logarithm is taken."""


@dataclass(frozen=True)
class Batch:
    """Images of one step.

    Attributes:
        inputs: one tensor for each network input.
        labels: int64 ``[h, w]`` train ids of each image, ``void`` where it does not count.
        geometry: where each picture lies in the network input, and in its label.
    """

    inputs: tuple[Tensor, ...]
    labels: Sequence[Tensor]
    geometry: Sequence[Geometry]

    def to(self, device: Any, channels_last: bool) -> Batch:
        """Move everything to a device."""
        inputs = tuple(_moved(item, device, channels_last) for item in self.inputs)
        return Batch(inputs, [item.to(device, non_blocking=True) for item in self.labels], self.geometry)


def _moved(tensor: Tensor, device: Any, channels_last: bool) -> Tensor:
    if channels_last and tensor.ndim == 4:
        return tensor.to(device, non_blocking=True, memory_format=torch.channels_last)
    return tensor.to(device, non_blocking=True)


@dataclass(frozen=True)
class Task:
    """What a network is trained for.

    Attributes:
        source: the tensor the loss is put on.
        classes: number of classes.
        void: label value that does not count.
    """

    source: ScoreSource
    classes: int
    void: int

    def scores(self, answer: Tensor) -> Tensor:
        """Bring a network's answer to unnormalised log-probabilities, float32 ``[N, C, h, w]``; C is 2 if binary."""
        planes = answer.float()
        if self.source.meaning.startswith("binary"):
            planes = planes.reshape(planes.shape[0], *[side for side in planes.shape[1:] if side != 1][-2:])
            if self.source.meaning == "binary-probabilities":
                planes = torch.logit(planes, eps=TINY)
            return torch.stack([torch.zeros_like(planes), planes], 1)
        planes = planes if self.source.class_axis == 1 else planes.movedim(-1, 1)
        if self.source.meaning == "probabilities":
            planes = planes.clamp_min(TINY).log()
        return planes[:, : self.classes] if planes.shape[1] > self.classes else planes

    def cross_entropy(self, scores: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Sum the cross-entropy over every labelled pixel, logits resized to the label's size.

        Returns:
            the sum, and the number of pixels that count.
        """
        loss, count = scores.new_zeros(()), scores.new_zeros(())
        for resized, labels in resized_groups(scores, batch):
            loss = loss + F.cross_entropy(resized, labels, ignore_index=self.void, reduction="sum")
            count = count + (labels != self.void).sum()
        return loss, count

    def distillation(self, scores: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        """Average the Kullback-Leibler divergence from the float network's answer over the pixels (Hinton et al. 2015).

        It is multiplied by the square of the temperature, so that its gradients weigh the same at any temperature.
        """
        wanted = F.log_softmax(teacher / temperature, 1)
        given = F.log_softmax(scores / temperature, 1)
        summed = F.kl_div(given, wanted, reduction="sum", log_target=True)
        return summed * temperature**2 / (scores.numel() / scores.shape[1])

    def confusion(self, scores: Tensor, batch: Batch) -> Tensor:
        """Count label class against predicted class, int64 ``[C, C]``."""
        table = torch.zeros(self.classes**2, dtype=torch.int64, device=scores.device)
        for resized, labels in resized_groups(scores, batch):
            valid = labels != self.void
            codes = labels[valid] * self.classes + resized.argmax(1)[valid]
            table += torch.bincount(codes, minlength=self.classes**2)
        return table.reshape(self.classes, self.classes)


def resized_groups(scores: Tensor, batch: Batch) -> Iterator[tuple[Tensor, Tensor]]:
    """Bring scores to the size of the labels; images whose labels have one size go together."""
    groups: dict[Any, list[int]] = {}
    for place, (label, plan) in enumerate(zip(batch.labels, batch.geometry, strict=True)):
        groups.setdefault((tuple(label.shape), plan.source, plan.content, plan.covered), []).append(place)
    for places in groups.values():
        plan, labels = batch.geometry[places[0]], torch.stack([batch.labels[place] for place in places])
        covered = _covered(labels, plan)
        chosen = scores if len(places) == scores.shape[0] else scores[places]
        yield resize_scores(chosen, plan, tuple(covered.shape[1:])), covered


def _covered(labels: Tensor, plan: Geometry) -> Tensor:
    """Cut out the part of the labels that the network saw; they may have another size than the picture."""
    height, width = labels.shape[1:]
    if plan.covered.size == plan.source:
        return labels
    rows, columns = height / plan.source[0], width / plan.source[1]
    box = plan.covered
    top, bottom = round(box.top * rows), max(round(box.top * rows) + 1, round(box.bottom * rows))
    left, right = round(box.left * columns), max(round(box.left * columns) + 1, round(box.right * columns))
    return labels[:, top:bottom, left:right]


def resize_scores(scores: Tensor, plan: Geometry, size: tuple[int, int]) -> Tensor:
    """Resize scores to a label's size as the evaluation does: bilinear between pixel centres.

    Args:
        scores: ``[N, C, h, w]`` over the whole network input.
        plan: where the picture lies in it.
        size: ``(height, width)`` of the part of the label that the network saw.
    """
    if plan.content.size == plan.network:
        return F.interpolate(scores, size, mode="bilinear", align_corners=False)
    from calib.core.upsample import sampling

    box, net = plan.content, plan.network
    rows = sampling(size[0], scores.shape[2], net[0], box.top, box.bottom - box.top)
    columns = sampling(size[1], scores.shape[3], net[1], box.left, box.right - box.left)
    for axis, along in ((2, rows), (3, columns)):
        low, high = (torch.from_numpy(item).to(scores.device) for item in (along.low, along.high))
        shape = [-1 if place == axis else 1 for place in range(4)]
        weight = torch.from_numpy(along.weight).to(scores.device, scores.dtype).reshape(shape)
        scores = scores.index_select(axis, low) * (1 - weight) + scores.index_select(axis, high) * weight
    return scores


def mean_iou(confusion: Tensor) -> float:
    """Mean IoU over the classes that labels or predictions hold, 0..1; 0 where there is none."""
    table = confusion.double()
    inter, union = table.diagonal(), table.sum(0) + table.sum(1) - table.diagonal()
    seen = table.sum(1) > 0
    return float((inter[seen] / union[seen]).mean()) if bool(seen.any()) else 0.0
