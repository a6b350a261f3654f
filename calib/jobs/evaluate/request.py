"""What an evaluation was asked to do, and the fingerprint that tells whether counted images still answer it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from calib.core.bootstrap import RESAMPLES
from calib.core.checkup.hardware import INTERESTING, WITH_DOT_PRODUCT
from calib.core.scoremap import OutputReading
from calib.edges.evaluation.loading import Loaded, Numerics
from calib.edges.provenance import library_versions
from calib.edges.runners.ort import Provider
from calib.errors import UsageError
from calib.types.data import Dataset, Preprocess
from calib.types.machine import Cpu
from calib.types.scores import ScoreTable

COUNTING = 2
"""Raised whenever what is counted of an image changes, so that older matrices are not reused."""


CHOICES: Mapping[str, tuple[str, ...]] = {
    "gate_by": ("value", "interval"),
    "numerics": ("fake-quant", "int8"),
    "foreign": ("stop", "void"),
    "provider": ("cpu", "cuda"),
}
LEAST: Mapping[str, int] = {"resamples": 100, "pictures": 0, "seed": 0, "workers": 1}


@dataclass(frozen=True)
class EvaluateRequest:
    """The arguments of an evaluation.

    Attributes:
        models: ONNX files, build folders, ``module:factory``.
        data: manifest, list file or name of a shipped manifest.
        output: folder of the results.
        split: split to evaluate on; None where the manifest has only one.
        reference: network the others are compared with; None for the first, if it is a float network.
        max_drop: the gate's limits, empty for no gate.
        gate_by: ``value`` judges the measured loss, ``interval`` the far end of its interval.
        slices: further slices, ``NAME=EXPRESSION`` over the scan index.
        numerics: ``fake-quant`` computes Q/DQ in float, ``int8`` uses the runtime's integer kernels.
        output_name: which output is scored, where a network has several.
        threshold: of a one-channel output; None to take it from the network.
        bootstrap_by: manifest column whose images are drawn together; None to draw images.
        resamples: bootstrap resamples.
        foreign: label values outside the class table: ``stop``, or count them as ``void``.
        pictures: worst images shown for each network.
        mlflow: tracking URI to log to, or None.
        seed: of the bootstrap.
        root: overrides the manifest's root.
        preprocess: overrides the manifest's preprocessing.
        workers: images in flight; None for one a core.
        provider: where the networks run.
    """

    models: Sequence[str]
    data: str
    output: Path
    split: str | None = None
    reference: str | None = None
    max_drop: str = ""
    gate_by: Literal["value", "interval"] = "value"
    slices: Sequence[str] = ()
    numerics: Numerics = "fake-quant"
    output_name: str | None = None
    threshold: float | None = None
    bootstrap_by: str | None = None
    resamples: int = RESAMPLES
    foreign: Literal["stop", "void"] = "stop"
    pictures: int = 8
    mlflow: str | None = None
    seed: int = 0
    root: str | None = None
    preprocess: str | None = None
    workers: int | None = None
    provider: Provider = "cpu"

    def __post_init__(self) -> None:
        """Check what a caller from Python may have got wrong.

        Raises:
            UsageError: an argument is none of its choices, or out of range.
        """
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise _refused(name, f"one of {', '.join(choices)}", getattr(self, name))
        for name, least in LEAST.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise _refused(name, f"{least} or more", value)
        if self.threshold is not None and not math.isfinite(self.threshold):
            raise _refused("threshold", "a finite number", self.threshold)


def _refused(name: str, expected: str, got: object) -> UsageError:
    flag = f"--{name.replace('_', '-')}"
    return UsageError(flag, expected=expected, got=repr(got), remedy="`calib evaluate --help` shows its options")


def fingerprint(
    request: EvaluateRequest,
    dataset: Dataset,
    table: ScoreTable,
    labels: str,
    loaded: Sequence[tuple[Loaded, OutputReading]],
    reference: int | None,
) -> dict[str, Any]:
    """Everything the counts depend on, as JSON values.

    Args:
        request: numerics, provider, treatment of foreign labels.
        dataset: classes and preprocessing.
        table: the images' hashes.
        labels: digest of the labels.
        loaded: every network with the reading of its output.
        reference: which of them is the reference, for flips.
    """
    classes = dataset.classes
    images = "".join(f"{key}\0{digest}\n" for key, digest in zip(table.keys, table.columns["sha256"], strict=True))
    facts = {
        "counting": COUNTING,
        "networks": [
            {"name": item.source.name, "sha256": item.digest, "reading": asdict(reading)} for item, reading in loaded
        ],
        "reference": reference,
        "images": hashlib.sha256(images.encode()).hexdigest(),
        "labels": labels,
        "classes": list(classes.names) if classes else [],
        "ignore_index": classes.ignore_index if classes else None,
        "label_format": dataset.label_format,
        "label_map": dict(sorted(dataset.label_map.items())),
        "preprocess": _plain(dataset.preprocess),
        "inputs": {name: _plain(item) for name, item in sorted(dataset.inputs.items())},
        "dark_luma": table.thresholds["dark_luma"],
        "numerics": request.numerics,
        "provider": request.provider,
        "versions": library_versions(),
    }
    found: dict[str, Any] = json.loads(json.dumps(facts))
    return found


def is_reusable(facts: Mapping[str, Any]) -> bool:
    """Whether counts may be reused: every network has a fingerprint."""
    return all(item["sha256"] for item in facts["networks"])


def describe_numerics(request: EvaluateRequest, cpu: Cpu) -> dict[str, Any]:
    """Say how Q/DQ was computed, and which instruction sets of this machine that depended on."""
    flags = cpu.flags or frozenset()
    x86 = cpu.architecture.lower() in ("x86_64", "amd64")
    sets = [name for name in INTERESTING if name in flags]
    described = {"numerics": request.numerics, "provider": request.provider}
    if request.numerics == "fake-quant":
        words = (
            "Q/DQ computed literally in float32, all graph optimizations off; the same on every machine up to rounding"
        )
        return {**described, "words": words, "instruction_sets": None, "saturates": False}
    if request.provider != "cpu":
        words = "integer kernels where ONNX Runtime has them for this provider"
        return {**described, "words": words, "instruction_sets": None, "saturates": None}
    words = f"integer kernels of ONNX Runtime on {cpu.architecture} with {', '.join(sets) or 'no dot-product set'}"
    saturates = x86 and WITH_DOT_PRODUCT.isdisjoint(flags) if cpu.flags is not None else None
    if saturates:
        words += "; without VNNI, sums of pairs of 8-bit products saturate in 16 bits (U8S8), so results may be lower"
    return {**described, "words": words, "instruction_sets": sets, "saturates": saturates}


def _plain(value: Preprocess | float | None) -> Any:
    return asdict(value) if isinstance(value, Preprocess) else value
