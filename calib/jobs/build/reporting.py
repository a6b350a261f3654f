"""What a build did, as its report shows it."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calib import __version__
from calib.core.graph import Network
from calib.core.plan import REASONS
from calib.core.scoretable import full_column
from calib.edges.builddir import RELEASE
from calib.edges.images import read_picture
from calib.edges.report.filling import amount_section, distributions_of, placement_section, tensor_rows
from calib.edges.report.formatting import listed, plural
from calib.edges.report.model import (
    BuildReport,
    Command,
    ImagesSection,
    Notice,
    OutputFile,
    ProvenanceSection,
    Subject,
    Thumbnail,
)
from calib.edges.report.thumbnails import thumbnail_jpeg
from calib.edges.written import Written
from calib.errors import ImageError
from calib.jobs.build.artifacts import Calibrated, Variant
from calib.jobs.build.choose import Choice
from calib.jobs.build.measuring import FOLDER, Measured
from calib.jobs.build.request import BuildRequest
from calib.stages.amount import Settling
from calib.stages.sample import distribution
from calib.types.data import Dataset

SERIOUS = frozenset({"per_tensor_fallback", "hidden_layers"})
"""Findings of the Q/DQ writer that the header of the report shows."""

MOST_THUMBNAILS = 200
"""Pictures a report shows at most; each takes about 8 KB."""

HEAVY_CLIPPING = 0.05
"""A calibrator that clips more than this share of a tensor is worth a look."""


@dataclass(frozen=True)
class BuildFacts:
    """Everything a report is made from."""

    request: BuildRequest
    dataset: Dataset
    calibrated: Sequence[Calibrated]
    variants: Sequence[Variant]
    choice: Choice
    settling: Settling | None
    measured: Measured | None
    files: Sequence[Written]
    provenance: Mapping[str, Mapping[str, str]]


def make_report(facts: BuildFacts) -> BuildReport:
    """Fill the report."""
    first = facts.variants[0]
    shown = facts.calibrated[0]
    chosen = len(facts.choice.selection.rows)
    return BuildReport(
        subject=_subject(facts),
        notices=tuple(notices(facts)),
        images=_images(facts),
        tensors=tensor_rows(shown.source.network, shown.collected.statistics, shown.ranges, first.coverage),
        placement=placement_section(first.quantized, first.coverage),
        amount=None if facts.settling is None else amount_section(facts.settling, chosen),
        provenance=ProvenanceSection(
            facts.provenance,
            tuple(OutputFile(item.name, item.size, item.purpose, item.sha256) for item in facts.files),
            tuple(_commands(facts)),
        ),
    )


def _images(facts: BuildFacts) -> ImagesSection:
    choice = facts.choice
    spread = distribution(choice.table, choice.selection.rows)
    return ImagesSection(distributions_of(spread), tuple(_thumbnails(choice)), choice.notes)


def _thumbnails(choice: Choice) -> Iterator[Thumbnail]:
    table, paths = choice.table, choice.table.columns["path"]
    names = {"luma": "luma_mean", "dark": "dark_share", "small objects": "small_count"}
    columns = {label: full_column(table, name) for label, name in names.items() if name in table.columns}
    rows = choice.selection.rows.tolist()[:MOST_THUMBNAILS]
    for rank, row in enumerate(rows, 1):
        scores = {label: float(column[row]) for label, column in columns.items() if np.isfinite(column[row])}
        yield Thumbnail(
            key=table.keys[row],
            picture=_picture(str(paths[row])),
            rank=rank,
            sampler=choice.selection.samplers[rank - 1],
            score=float(choice.selection.scores[rank - 1]),
            scores=scores,
        )


def _picture(address: str) -> bytes:
    """A thumbnail, or nothing if the image is not there any more."""
    try:
        return thumbnail_jpeg(read_picture(address).pixels)
    except ImageError:
        return b""


def _subject(facts: BuildFacts) -> Subject:
    request = facts.request
    return Subject(
        model=request.model.name,
        data=facts.dataset.name,
        split=facts.dataset.split,
        samplers=tuple(request.samplers),
        images=len(facts.choice.selection.rows),
        population=len(facts.dataset.records),
        calibrators=tuple(variant.calibrator.label for variant in facts.variants),
        tensorrt=request.trt_version,
        version=__version__,
        artifact=RELEASE,
    )


def notices(facts: BuildFacts) -> Iterator[Notice]:
    """What the reader must know before relying on the result, besides what the report's sections tell by themselves."""
    if facts.measured is not None:
        yield _measured(facts.measured)
    yield from _clipping(facts)
    for item in facts.calibrated:
        if item.source.file_name:
            labels = ", ".join(calibrator.label for calibrator in item.source.calibrators)
            title = f"the caches of {labels} belong to {item.source.file_name}, not to {facts.request.model.name}"
            yield Notice("warning", title, "Its weights are rescaled; it computes the same.", "provenance")
    for finding in facts.variants[0].quantized.notes:
        if finding.code in SERIOUS:
            yield Notice("warning", finding.text, section="placement")


def _measured(measured: Measured) -> Notice:
    """How the release was chosen, with every variant's numbers."""
    choice = measured.record["choice"]
    numbers = [
        f"{item['name']} {item['delta']:+.2f} points{_at_worst(item)}" for item in (choice or {}).get("variants", ())
    ]
    rule = f"Rule: {choice['rule']}. " if choice else ""
    detail = f"{rule}{'; '.join(numbers)}. More in {FOLDER}/evaluation.html."
    return Notice("info", f"Measured on {measured.record['split']}. {measured.words}", detail, "provenance")


def _at_worst(item: Mapping[str, Any]) -> str:
    """The slice that a variant loses most on; a small split may have none."""
    return "" if item["worst_slice"] is None else f", at worst {item['worst_delta']:+.2f} ({item['worst_slice']})"


def _clipping(facts: BuildFacts) -> Iterator[Notice]:
    for variant in facts.variants:
        heavy = [name for name, item in variant.ranges.items() if item.clipped > HEAVY_CLIPPING]
        if heavy:
            title = f"{variant.calibrator.label} clips more than {HEAVY_CLIPPING:.0%} of {plural(len(heavy), 'tensor')}"
            yield Notice("warning", f"{title}: {listed(heavy)}", "Compare it with the others on data.", "ranges")


def _commands(facts: BuildFacts) -> Iterator[Command]:
    source, first = facts.calibrated[0].source, facts.variants[0].calibrator.label
    model = source.file_name or facts.request.model.name
    shapes = shape_flag(source.network, facts.dataset)
    yield Command(
        f"TensorRT {facts.request.trt_version}: engine from the float network and the cache",
        f"trtexec --onnx={shlex.quote(model)} --int8 --fp16 --calib={RELEASE}{shapes} --saveEngine=model.engine",
        "Run it beside the float network; the cache holds ranges only.",
    )
    yield Command(
        "TensorRT 11: engine from the Q/DQ network",
        f"trtexec --onnx={shlex.quote(f'{first}.qdq.onnx')}{shapes} --saveEngine=model.engine",
        "TensorRT 11 reads no caches; the layers without Q/DQ run in the type the network gives them.",
    )


def shape_flag(network: Network, dataset: Dataset) -> str:
    """``--shapes`` for trtexec where the network leaves lengths open: batch 1 at the size of the preprocessing."""
    flags = [
        f"{tensor.name}:" + "x".join(map(str, _concrete(tensor.shape, dataset)))
        for tensor in network.inputs
        if tensor.shape and None in tensor.shape
    ]
    return f" --shapes={','.join(flags)}" if flags else ""


def _concrete(shape: tuple[int | None, ...], dataset: Dataset) -> list[int | str]:
    spec = dataset.preprocess
    size: list[int | str] = ["H", "W"] if spec is None or spec.size is None else [*spec.size]
    channels = 1 if spec is not None and spec.colour == "gray" else 3
    nhwc = spec is not None and spec.layout == "nhwc"
    usual: list[int | str] = [1, *size, channels] if nhwc else [1, channels, *size]
    return [length or (usual[axis] if len(shape) == 4 else 1) for axis, length in enumerate(shape)]


def placement_summary(variant: Variant) -> str:
    """One line: how many layers run in INT8, and why the others do not."""
    plan = variant.quantized.plan
    counts = Counter(item.status for item in plan.decisions)
    reasons = Counter(item.reason for item in plan.with_status("float"))
    first = [("excluded", reasons.pop("excluded"))] if reasons["excluded"] else []
    why = ", ".join(f"{count} {REASONS[reason]}" for reason, count in [*first, *reasons.most_common(3)])
    return f"{counts['int8']} operators in INT8, {counts['fused']} fused into them, {counts['float']} in float ({why})"


def provenance_groups(document: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The parts of ``provenance.json`` that people read, by group."""
    request = document["request"]
    return {
        "Input": {
            **{f"sha256 of {name}": digest for name, digest in request["model"].items()},
            "sha256 of the manifest": request["manifest"],
            "split": request["split"],
        },
        "Parameters": {
            "samplers": ", ".join(request["samplers"]),
            "images": str(request["num_images"]),
            "calibrators": ", ".join(item["spec"] for item in document["calibrators"]),
            "kept in float": ", ".join(request["keep_float"]) or "nothing beyond the placement rules",
            "preprocessing": _pairs(request["preprocess"] or {}),
            "seed": str(request["seed"]),
            "non-finite values": request["non_finite"],
            "provider": request["provider"],
            "TensorRT": request["trt_version"],
            "placement target": request["target"],
        },
        "Versions": dict(request["versions"]),
    }


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in values.items())
