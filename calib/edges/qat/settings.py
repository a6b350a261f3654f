"""How a network is trained: the numbers, and the learning rate they give at each step."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class TrainSettings:
    """How to train.

    Attributes:
        steps: optimizer steps at most; the schedule ends there.
        max_seconds: time at most, validation included; None for no limit. The schedule ends by whichever comes first.
        batch_size: images a step and process.
        lr: learning rate of the weights at its highest.
        scale_lr: learning rate of the scales (of their logarithms) at its highest.
        optimizer: ``adamw`` or ``sgd`` (momentum 0.9).
        weight_decay: of weights; biases and scales have none.
        warmup: share of the schedule over which the rate rises from 0.
        final: share of the highest rate that is left at the end.
        clip: largest norm of the gradient of all parameters; 0 for no limit.
        precision: what convolutions compute in, ``fp32``, ``fp16`` or ``bf16``; fake quantization is always float32.
        ema: decay of the moving average of the parameters that is validated and kept; 0 for none.
        distill: weight of the distillation loss, 0..1; the rest is that of cross-entropy.
        temperature: of the distillation.
        seed: of the order of the images and of their augmentation.
        augment: whether images are flipped and cropped at random.
        validate_every: steps between validations.
        patience: validations without improvement after which training stops; 0 for no early stop.
        keep: ``best`` keeps the parameters with the highest validation mIoU, ``last`` those at the end.
        checkpoint_seconds: time between checkpoints.
    """

    steps: int
    max_seconds: float | None = None
    batch_size: int = 8
    lr: float = 5e-5
    scale_lr: float = 1e-3
    optimizer: str = "adamw"
    weight_decay: float = 1e-4
    warmup: float = 0.05
    final: float = 0.01
    clip: float = 1.0
    precision: str = "fp32"
    ema: float = 0.998
    distill: float = 0.8
    temperature: float = 2.0
    seed: int = 0
    augment: bool = True
    validate_every: int = 100
    patience: int = 0
    keep: str = "last"
    checkpoint_seconds: float = 60.0


def schedule(fraction: float, settings: TrainSettings) -> float:
    """Share of the highest learning rate: a linear rise, then half a cosine (Loshchilov and Hutter 2017).

    Args:
        fraction: how much of the training is done, 0..1.
        settings: warm-up and final share.
    """
    if fraction < settings.warmup:
        return max(fraction / settings.warmup, 1e-3)
    rest = (fraction - settings.warmup) / max(1e-9, 1 - settings.warmup)
    return settings.final + (1 - settings.final) * 0.5 * (1 + math.cos(math.pi * min(1.0, rest)))


def average_decay(step: int, settings: TrainSettings) -> float:
    """Decay of the moving average at a step: shorter at first, so that the start does not linger."""
    return min(settings.ema, (1 + step) / (10 + step))
