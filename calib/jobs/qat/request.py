"""What a training was asked to do, and the fingerprint that tells whether a checkpoint answers it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from calib.core.plan import TARGETS, Target
from calib.core.trtcache import render
from calib.errors import UsageError
from calib.types.data import Dataset

DEFAULT_EPOCHS = 10
BACKENDS = ("calib", "modelopt")
"""Whose fake quantization is trained with: this package's, on the exported graph, or ModelOpt's, on the module."""
DISTILL = 0.8
"""Weight of the distillation. Labels train the network on, away from what was released, for better or worse: with a
weight of 0.5 two float networks moved by +0.85 and -0.29 points on CamVid, more than INT8 costs them, with 0.8 by +0.45
and +0.01 (docs/qat.md)."""
RESUMABLE = frozenset({"output", "workers", "root", "checkpoint_seconds"})
"""What may change between the runs of one training: it does not change the result."""
CHOICES: Mapping[str, tuple[str, ...]] = {
    "optimizer": ("adamw", "sgd"), "keep": ("best", "last"), "precision": ("fp32", "fp16", "bf16"),
    "exporter": ("torchscript", "dynamo"), "backend": BACKENDS, "device": ("cpu", "cuda"), "target": TARGETS,
}  # fmt: skip
"""The words that a field may hold."""


@dataclass(frozen=True)
class QatRequest:
    """The arguments of a training.

    Attributes:
        model: ONNX file of the float network, or ``module:factory``.
        data: manifest, list file or name of a shipped manifest.
        output: folder of the results.
        weights: file of weights for the factory's network.
        split: split to train on; None for ``train``, or the only one.
        val_split: split to validate on; None to hold a part of the training split out.
        init: build folder, or file of ranges, to start from; None to calibrate first.
        calibrator: whose ranges of the build to take; None for the release's.
        epochs: passes over the training images.
        steps: optimizer steps, instead of epochs; None for epochs.
        max_minutes: time at most for each of the two trainings; None for no limit.
        batch_size: images a step and process.
        lr: learning rate of the weights.
        scale_lr: learning rate of the scales' logarithms.
        optimizer: ``adamw`` or ``sgd``.
        weight_decay: of weights.
        clip: largest norm of the gradient; 0 for no limit.
        ema: decay of the parameters' moving average; 0 for none.
        distill: weight of the distillation from the float network, 0..1; 0 for none.
        temperature: of the distillation.
        backend: ``calib`` or ``modelopt``.
        learn_scales: whether the activations' scales are learnt; None for yes where the backend can.
        learn_weight_scales: whether the weights' scales are learnt; else they follow the weights.
        freeze: patterns of the weights that stay as they are, by their names or by those of the nodes that read them.
        scale_bits: significant bits that scales keep, 24 for all; None for 5, or 24 with ModelOpt.
        control: whether a float network is fine-tuned in the same way, to compare with.
        augment: whether images are flipped and cropped at random.
        keep: ``best``, ``last``, or None: best on a split of its own, last on held-out training images.
        patience: validations without improvement after which training stops; None for 10 on a split of its own.
        precision: ``fp32``, ``fp16``, ``bf16``, or None: fp16 on a GPU, else fp32.
        output_name: which output is trained, where a network has several.
        exporter: ``torchscript`` or ``dynamo``, for a factory.
        opset: of the export, 13 to 20; None for the exporter's usual one (17, dynamo 18).
        dynamic_size: whether height and width stay open in the export.
        fixed_batch: whether the export's batch is fixed at one image.
        seed: of every random choice.
        root: overrides the manifest's root.
        preprocess: overrides the manifest's preprocessing.
        workers: threads that read images; None for one a core.
        device: ``cpu`` or ``cuda``.
        checkpoint_seconds: time between checkpoints.
        trt_version: TensorRT version the cache is headed for.
        cache_algorithm: calibrator class named in the cache header.
        target: whose Q/DQ placement rules apply.
        keep_float: patterns of nodes, or of tensors they make, that stay in float, beside those that the build of
            ``init`` keeps.
    """

    model: str
    data: str
    output: Path
    weights: Path | None = None
    split: str | None = None
    val_split: str | None = None
    init: str | None = None
    calibrator: str | None = None
    epochs: int = DEFAULT_EPOCHS
    steps: int | None = None
    max_minutes: float | None = None
    batch_size: int = 8
    lr: float = 5e-5
    scale_lr: float = 1e-3
    optimizer: str = "adamw"
    weight_decay: float = 1e-4
    clip: float = 1.0
    ema: float = 0.998
    distill: float = DISTILL
    temperature: float = 2.0
    backend: str = "calib"
    learn_scales: bool | None = None
    learn_weight_scales: bool = False
    freeze: tuple[str, ...] = ()
    scale_bits: int | None = None
    control: bool = True
    augment: bool = True
    keep: str | None = None
    patience: int | None = None
    precision: str | None = None
    output_name: str | None = None
    exporter: str = "torchscript"
    opset: int | None = None
    dynamic_size: bool = False
    fixed_batch: bool = False
    seed: int = 0
    root: str | None = None
    preprocess: str | None = None
    workers: int | None = None
    device: str = "cpu"
    checkpoint_seconds: float = 60.0
    trt_version: str = "10.14.1"
    cache_algorithm: str = "EntropyCalibration2"
    target: Target = "trt10"
    keep_float: tuple[str, ...] = ()


def check_request(request: QatRequest) -> None:
    """Refuse what could only fail after hours of work.

    Raises:
        UsageError: a word or number out of its bounds, or a cache that no TensorRT would read.
    """
    render((), request.trt_version, request.cache_algorithm)
    for flag, choices in CHOICES.items():
        value = getattr(request, flag)
        if value is not None and value not in choices:
            raise UsageError(
                f"--{flag}", expected=f"one of {', '.join(choices)}", got=repr(value), remedy="pick one of these"
            )
    _check_numbers(request)
    if request.val_split is not None and request.val_split == request.split:
        raise UsageError(
            f"--val-split {request.val_split}",
            expected="another split than the one trained on",
            got=f"--split {request.split}",
            remedy="leave --val-split out to hold a part of the training split out",
        )


def _check_numbers(request: QatRequest) -> None:
    bounds: Mapping[str, tuple[float | None, float, float]] = {
        "--epochs": (request.epochs, 1, 1e6),
        "--steps": (request.steps, 1, 1e9),
        "--max-minutes": (request.max_minutes, 1e-3, 1e6),
        "--batch-size": (request.batch_size, 1, 65536),
        "--lr": (request.lr, 1e-12, 10),
        "--scale-lr": (request.scale_lr, 0, 10),
        "--weight-decay": (request.weight_decay, 0, 10),
        "--clip": (request.clip, 0, 1e9),
        "--ema": (request.ema, 0, 0.999999),
        "--distill-weight": (request.distill, 0, 1),
        "--temperature": (request.temperature, 0.01, 100),
        "--scale-bits": (request.scale_bits, 2, 24),
        "--opset": (request.opset, 13, 20),
        "--workers": (request.workers, 1, 4096),
    }
    for flag, (value, low, high) in bounds.items():
        if value is not None and not low <= value <= high:
            raise UsageError(
                flag, expected=f"{low:g} to {high:g}", got=f"{value:g}", remedy="give a number in these bounds"
            )


def fingerprint(
    request: QatRequest,
    train: Dataset,
    valid: Dataset,
    origin: Mapping[str, str],
    versions: Mapping[str, str],
    start: str,
    processes: int,
) -> dict[str, Any]:
    """Everything the result depends on besides the images' bytes, in the shape of a build's request.

    Args:
        request: what was asked for.
        train: images to train on.
        valid: images to validate on.
        origin: fingerprint of the float network.
        versions: of Python and the libraries.
        start: fingerprint of the ranges to start from; empty where they are calibrated first.
        processes: how many train together.
    """
    own = {item.name: getattr(request, item.name) for item in fields(request) if item.name not in RESUMABLE}
    plain = {key: str(value) if isinstance(value, Path) else value for key, value in own.items()}
    return {
        **plain,
        "network": request.model,
        "model": dict(origin),
        "start": start,
        "processes": processes,
        "freeze": list(request.freeze),
        "keep_float": list(request.keep_float),
        "manifest": train.manifest_sha256,
        "split": train.split,
        "train_images": [record.key for record in train.records],
        "val_images": [f"{valid.split}: {record.key}" for record in valid.records],
        **describe_inputs(train),
        "versions": dict(versions),
        "samplers": [],
        "calibrators": ["qat"],
        "num_images": "auto",
    }


def describe_inputs(dataset: Dataset) -> dict[str, Any]:
    """How pixels become network inputs, as JSON values: ``preprocess`` and ``inputs``, as a build records them."""
    return {
        "preprocess": None if dataset.preprocess is None else _plain(dataset.preprocess),
        "inputs": {name: _plain(item) for name, item in dataset.inputs.items()},
    }


def _plain(value: Any) -> Any:
    if not hasattr(value, "__dataclass_fields__"):
        return value
    return {key: list(item) if isinstance(item, tuple) else item for key, item in asdict(value).items()}
