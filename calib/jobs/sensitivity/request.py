"""What a measurement of sensitivity was asked to do, and the facts that decide whether its counts can be reused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from calib.core.bootstrap import RESAMPLES
from calib.core.plan import Target
from calib.core.scoremap import OutputReading
from calib.core.sensitivity.units import GRAINS, MODES, Grain, Mode
from calib.edges.provenance import library_versions
from calib.edges.runners.session import Provider
from calib.errors import UsageError
from calib.jobs.build.request import describe_inputs
from calib.stages.sensitivity_table import Measure
from calib.types.data import Dataset
from calib.types.scores import ScoreTable

COUNTING = 1
"""Raised whenever what is counted of an image changes, so that older counts are not reused."""
DEFAULT_IMAGES = 64
DEFAULT_TOP = 10
DEFAULT_RESOLUTION = 0.1
MEASURES = "miou, class:NAME, slice:NAME"


@dataclass(frozen=True)
class SensitivityRequest:
    """The arguments of a measurement.

    Attributes:
        network: a build folder, a Q/DQ ONNX file, or a float ONNX file with ``ranges``.
        data: manifest, list file or name of a shipped manifest.
        output: folder of the results.
        split: split to measure on; None where the manifest has only one.
        calibrator: which variant of a build folder; None for the first, the one released.
        ranges: file of ranges for a float network, in any format that ``calib cache show`` reads; or None.
        target: whose placement rules turn ranges into pairs.
        mode: ``alone`` switches one unit on in the float network; ``without`` switches one off in the quantized one.
        unit: ``layer``, with all pairs on its operands, or ``tensor``.
        num_images: images at most; None for the whole split.
        exhaustive: every unit sees every image.
        top: places of the ranking that racing keeps right.
        resolution: smallest loss that matters, in points.
        rank_by: ``miou``, ``class:NAME`` or ``slice:NAME``.
        slices: further slices, ``NAME=EXPRESSION`` over the scan index.
        output_name: which output is scored, where a network has several.
        threshold: of a one-channel output; None to take it from the network.
        bootstrap_by: manifest column whose images are drawn together; None to draw images.
        resamples: bootstrap resamples.
        foreign: label values outside the class table: ``stop``, or count them as ``void``.
        seed: of the order of the images and of the bootstrap.
        root: overrides the manifest's root.
        preprocess: overrides the manifest's preprocessing.
        workers: images in flight; None for one a core.
        provider: where the network runs.
    """

    network: str
    data: str
    output: Path
    split: str | None = None
    calibrator: str | None = None
    ranges: str | None = None
    target: Target = "trt10"
    mode: Mode = "alone"
    unit: Grain = "layer"
    num_images: int | None = DEFAULT_IMAGES
    exhaustive: bool = False
    top: int = DEFAULT_TOP
    resolution: float = DEFAULT_RESOLUTION
    rank_by: str = "miou"
    slices: Sequence[str] = ()
    output_name: str | None = None
    threshold: float | None = None
    bootstrap_by: str | None = None
    resamples: int = RESAMPLES
    foreign: Literal["stop", "void"] = "stop"
    seed: int = 0
    root: str | None = None
    preprocess: str | None = None
    workers: int | None = None
    provider: Provider = "cpu"


def check_request(request: SensitivityRequest) -> Measure:
    """Refuse what could only fail after work, and read what is ranked by.

    Raises:
        UsageError: a number too small, or a word that is no choice.
    """
    numbers = {"--num-images": request.num_images, "--top": request.top, "--workers": request.workers}
    for flag, value in numbers.items():
        if value is not None and value < 1:
            raise UsageError(flag, expected="at least 1", got=str(value), remedy="give a larger number")
    if not request.resolution > 0:
        raise UsageError(
            "--resolution", expected="points above 0", got=f"{request.resolution:g}",
            remedy="give the smallest loss that matters, such as 0.1; --exhaustive shows every image to every unit",
        )  # fmt: skip
    for flag, word, choices in (("--mode", request.mode, MODES), ("--unit", request.unit, GRAINS)):
        if word not in choices:
            raise UsageError(flag, expected=f"one of {', '.join(choices)}", got=repr(word), remedy="pick one of these")
    return parse_measure(request.rank_by)


def parse_measure(text: str) -> Measure:
    """Read ``--rank-by``.

    Raises:
        UsageError: it is none of the measures.
    """
    kind, _, name = text.partition(":")
    if (kind == "miou" and not name and ":" not in text) or (kind in ("class", "slice") and name):
        return Measure(kind, name)
    raise UsageError(
        "--rank-by", expected=f"one of {MEASURES}", got=repr(text), remedy="for example --rank-by class:Pedestrian"
    )


def counting_facts(
    request: SensitivityRequest, network: str, dataset: Dataset, table: ScoreTable, labels: str, reading: OutputReading
) -> dict[str, Any]:
    """Everything the counts of an image depend on, as JSON values; not which images are seen, nor how they are ranked.

    Args:
        request: mode, unit, provider, treatment of foreign labels.
        network: digest of the Q/DQ network.
        dataset: classes and preprocessing.
        table: the images' hashes.
        labels: digest of the labels.
        reading: how the output is read.
    """
    classes = dataset.classes
    images = "".join(f"{key}\0{digest}\n" for key, digest in zip(table.keys, table.columns["sha256"], strict=True))
    facts = {
        "counting": COUNTING,
        "network": network,
        "mode": request.mode,
        "unit": request.unit,
        "reading": asdict(reading),
        "images": hashlib.sha256(images.encode()).hexdigest(),
        "labels": labels,
        "classes": list(classes.names) if classes else [],
        "ignore_index": classes.ignore_index if classes else None,
        "label_format": dataset.label_format,
        "label_map": dict(sorted(dataset.label_map.items())),
        **describe_inputs(dataset),
        "dark_luma": table.thresholds["dark_luma"],
        "provider": request.provider,
        "versions": library_versions(),
    }
    found: dict[str, Any] = json.loads(json.dumps(facts))
    return found
