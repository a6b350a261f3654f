"""What a build was asked to do, and the fingerprints that tell whether finished work still answers it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from calib.core.plan import Target
from calib.core.trtcache import render
from calib.edges.runners.session import Provider
from calib.errors import UsageError
from calib.stages.collect import NonFinite
from calib.types.data import Dataset

DEFAULT_IMAGES = 128
DEFAULT_TRT_VERSION = "10.14.1"
DEFAULT_SAMPLER = "stratified"


@dataclass(frozen=True)
class BuildRequest:
    """The arguments of a build.

    Attributes:
        model: ONNX file of the float network.
        data: manifest, list file or name of a shipped manifest.
        output: build folder.
        split: split to choose calibration images from; None where the manifest has only one.
        samplers: sampler specs; several share the number evenly.
        num_images: how many images, or ``auto``: until the ranges settle.
        calibrators: calibrator specs; empty for all built-in ones.
        evaluation_split: split whose images must not be calibrated on; None for none.
        evaluate: split on which every variant is measured, the best becoming the release; None for the first
            calibrator's. Its images must not be calibrated on either.
        output_name: output that ``evaluate`` scores, where the network has several.
        seed: of every random choice.
        root: overrides the manifest's root.
        preprocess: overrides the manifest's preprocessing.
        workers: images in flight; None for one a core.
        provider: where the network runs.
        batch_size: images a run, where the network leaves it open.
        non_finite: ``stop`` at NaN and infinity or ``skip`` such values.
        trt_version: TensorRT version the caches are headed for.
        cache_algorithm: calibrator class named in the cache header.
        target: whose Q/DQ placement rules apply.
        keep_float: patterns of nodes, or of tensors they make, that stay in float.
    """

    model: Path
    data: str
    output: Path
    split: str | None = None
    samplers: Sequence[str] = (DEFAULT_SAMPLER,)
    num_images: int | Literal["auto"] = DEFAULT_IMAGES
    calibrators: Sequence[str] = ()
    evaluation_split: str | None = None
    evaluate: str | None = None
    output_name: str | None = None
    seed: int = 0
    root: str | None = None
    preprocess: str | None = None
    workers: int | None = None
    provider: Provider = "cpu"
    batch_size: int = 1
    non_finite: NonFinite = "stop"
    trt_version: str = DEFAULT_TRT_VERSION
    cache_algorithm: str = "EntropyCalibration2"
    target: Target = "trt10"
    keep_float: Sequence[str] = ()


def check_request(request: BuildRequest) -> None:
    """Refuse what could only fail after hours of work.

    Raises:
        UsageError: a number below 1, a TensorRT version or calibrator class that no cache can be written for, or an
            output to score that nothing is to be scored by.
    """
    if request.output_name is not None and request.evaluate is None:
        raise UsageError(
            f"--output-name {request.output_name}",
            expected="--evaluate SPLIT, which scores the output",
            got="none",
            remedy="name the split to evaluate on, or leave --output-name out",
        )
    render((), request.trt_version, request.cache_algorithm)
    numbers = {"--num-images": request.num_images, "--batch-size": request.batch_size, "--workers": request.workers}
    for flag, number in numbers.items():
        if isinstance(number, int) and number < 1:
            raise UsageError(flag, expected="at least 1", got=str(number), remedy="give a larger number")


def collection_fingerprint(
    request: BuildRequest, dataset: Dataset, model: Mapping[str, str], versions: Mapping[str, str]
) -> dict[str, Any]:
    """Everything the statistics depend on besides the images' bytes, which are hashed one by one."""
    return {
        "model": dict(model),
        "manifest": dataset.manifest_sha256,
        "split": dataset.split,
        "samplers": list(request.samplers),
        "num_images": request.num_images,
        "evaluation_split": request.evaluation_split,
        "seed": request.seed,
        **describe_inputs(dataset),
        "provider": request.provider,
        "batch_size": request.batch_size,
        "non_finite": request.non_finite,
        "versions": dict(versions),
    }


def describe_inputs(dataset: Dataset) -> dict[str, Any]:
    """How pixels become network inputs, as JSON values: ``preprocess`` and ``inputs``."""
    return {
        "preprocess": None if dataset.preprocess is None else _plain(dataset.preprocess),
        "inputs": {name: _plain(item) for name, item in dataset.inputs.items()},
    }


def build_fingerprint(request: BuildRequest, collection: Mapping[str, Any]) -> dict[str, Any]:
    """Everything the build folder's files depend on."""
    return {
        **collection,
        "calibrators": list(request.calibrators),
        "evaluate": request.evaluate,
        "output_name": request.output_name,
        "trt_version": request.trt_version,
        "cache_algorithm": request.cache_algorithm,
        "target": request.target,
        "keep_float": list(request.keep_float),
    }


def _plain(value: Any) -> Any:
    """A dataclass or number as JSON has it: tuples as lists."""
    if not hasattr(value, "__dataclass_fields__"):
        return value
    return {key: list(item) if isinstance(item, tuple) else item for key, item in asdict(value).items()}


def parse_count(text: str) -> int | Literal["auto"]:
    """Read ``--num-images``.

    Raises:
        UsageError: neither ``auto`` nor a whole number of at least 1.
    """
    if text == "auto":
        return "auto"
    if text.isdecimal() and int(text):
        return int(text)
    raise UsageError(
        "--num-images",
        expected="a whole number of at least 1, or auto",
        got=repr(text),
        remedy="give a number (128 is a good start), or auto to add images until the ranges settle",
    )


def parse_choice(flag: str, text: str, choices: tuple[str, ...]) -> Any:
    """Check the value of a flag that takes one of a few words.

    Raises:
        UsageError: it is none of them.
    """
    if text in choices:
        return text
    raise UsageError(flag, expected=f"one of {', '.join(choices)}", got=repr(text), remedy="pick one of these")
