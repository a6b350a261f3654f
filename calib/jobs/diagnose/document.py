"""``diagnosis.json`` and ``diagnosis_tensors.csv``."""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from calib import __version__
from calib.core.difference import Difference
from calib.jobs.diagnose.climb import Climb
from calib.jobs.diagnose.parts import Part
from calib.jobs.diagnose.verdict import Verdict
from calib.stages.diagnose.cachecheck import CacheCheck
from calib.stages.diagnose.examine import Examination
from calib.stages.diagnose.ladder import Standing, falls
from calib.stages.diagnose.oracles import Disagreement
from calib.stages.diagnose.profile import TensorError
from calib.stages.diagnose.quantizers import Meter
from calib.types.data import Dataset
from calib.types.diagnosis import Cause

SCHEMA = 1
Json = dict[str, Any]
COLUMNS = (
    "depth", "tensor", "reference", "node", "operator", "matched_by", "born_relative", "born_sqnr_db",
    "total_relative", "total_sqnr_db", "int8_relative", "int8_sqnr_db", "cosine", "max_error", "reference_amax",
    "beyond_float16", "vanish_in_float16",
)  # fmt: skip


def make_document(
    verdict: Verdict,
    parts: tuple[Part, Part],
    dataset: Dataset,
    climb: Climb,
    found: Examination | None,
    remarks: Sequence[Cause],
    causes: Sequence[Cause],
    tensors: Sequence[TensorError],
    cache: CacheCheck | None,
    oracles: Sequence[Disagreement],
    notes: Sequence[str],
) -> Json:
    """Put ``diagnosis.json`` together."""
    by_name = {item.rung.name: item for item in climb.standings}
    return {
        "schema": SCHEMA,
        "verdict": {
            "fault": verdict.fault,
            "stage": verdict.stage,
            "words": verdict.words,
            "cause": None if verdict.cause is None else describe_cause(verdict.cause),
        },
        "causes": [describe_cause(cause) for cause in causes],
        "remarks": [describe_cause(cause) for cause in remarks],
        "ladder": [describe_standing(item, by_name.get(item.rung.below or "")) for item in climb.standings],
        "parts": {part.role: _part(part) for part in parts},
        "data": {
            "name": dataset.name,
            "split": dataset.split,
            "manifest_sha256": dataset.manifest_sha256,
            "images": [record.key for record in dataset.records],
            "labelled": bool(climb.images),
            "examined": climb.worst,
        },
        "alignment": None if found is None else _alignment(found),
        "float16": None if found is None or found.half is None else _half(found),
        "quantizers": [] if found is None else [_meter(item) for item in found.meters.values() if item.elements],
        "cache": None if cache is None else _cache(cache),
        "oracles": [vars(item) | {"words": item.words} for item in oracles],
        "tensors": len(tensors),
        "notes": list(notes),
        "version": __version__,
    }


def describe_cause(cause: Cause) -> Json:
    """A cause as JSON values."""
    return {**{key: value for key, value in vars(cause).items() if key != "details"}, "details": dict(cause.details)}


def describe_standing(item: Standing, below: Standing | None) -> Json:
    """A rung as JSON values."""
    shift = item.shift
    return {
        "name": item.rung.name,
        "title": item.rung.title,
        "stage": item.rung.stage,
        "below": item.rung.below,
        "skipped": item.rung.skipped or None,
        "output": describe_difference(item.output),
        "step": describe_difference(item.step),
        "flips": item.flips,
        "step_flips": item.step_flips,
        "falls": falls(item, below),
        "shift": None
        if shift is None
        else {"rows": shift.rows, "columns": shift.columns, "explained": shift.explained},
        "sizes": None if item.sizes is None else {"own": item.sizes[0], "reference": item.sizes[1]},
        "accuracy": None if item.accuracy is None else _accuracy(item.accuracy),
        "images": dict(item.images),
    }


def _accuracy(found: Mapping[str, Any]) -> Json:
    """The part of an evaluation that a ladder needs."""
    against = found["vs_reference"]
    return {
        "miou": found["miou"],
        "per_class": found["per_class"],
        "delta": None if against is None else against["miou"]["delta"],
        "ci95": None if against is None else against["miou"]["ci95"],
        "slices": {
            name: {
                "miou": part["miou"],
                "images": part["images"],
                "delta": None if against is None else (against["slices"].get(name) or {}).get("delta"),
            }
            for name, part in found["slices"].items()
        },
    }


def describe_difference(found: Difference | None) -> Json | None:
    """A difference as JSON values."""
    if found is None:
        return None
    return {
        "relative": found.relative,
        "sqnr_db": found.sqnr_db,
        "cosine": found.cosine,
        "max_error": found.maximum,
        "non_finite": found.non_finite,
    }


def _part(part: Part) -> Json:
    preprocess = part.preprocess
    return {
        "address": part.address,
        "kind": part.kind,
        "files": dict(part.files),
        "preprocess": {
            key: list(value) if isinstance(value, tuple) else value for key, value in vars(preprocess).items()
        },
    }


def _alignment(found: Examination) -> Json:
    matches = found.comparison.alignment.matches
    made = {name for step in found.candidate.steps for name in step.outputs}
    return {
        "tensors": len(made | matches.keys()),
        "matched": len(matches),
        "by": dict(sorted(Counter(match.how for match in matches.values()).items())),
        "lost": list(found.comparison.alignment.lost),
        "fails_to_run": found.candidate.failure or None,
    }


def _half(found: Examination) -> Json:
    half = found.half
    if half is None:
        return {}
    return {
        "nodes": half.nodes,
        "failure": half.failure or None,
        "output": describe_difference(half.output),
        "overflows": [vars(item) for item in half.overflows],
    }


def _meter(item: Meter) -> Json:
    own = item.quantizer
    return {
        "tensor": own.tensor,
        "node": own.node,
        "readers": list(own.readers),
        "weights": own.constant is not None,
        "scales": int(own.scale.size),
        "scale": float(own.scale.max()),
        "zero_point": float(own.zero.flat[0]),
        "low": item.low,
        "high": item.high,
        "clipped_share": item.clipped_share,
        "levels": item.levels,
        "sqnr_db": item.sqnr_db,
        "excess_db": item.excess_db,
    }


def _cache(check: CacheCheck) -> Json:
    return {
        "compared": check.compared,
        "far": dict(list(check.far.items())[:20]),
        "stale": check.stale,
        "missing": list(check.missing[:20]),
        "foreign": list(check.foreign[:20]),
        "digests": None if check.digest_differs is None else list(check.digest_differs),
    }


def tensor_table(tensors: Iterable[TensorError]) -> bytes:
    """The CSV of tensors, in network order."""
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(COLUMNS)
    for item in tensors:
        last = item.quantized or item.total
        writer.writerow(
            [
                item.depth, item.tensor, item.reference, item.node, item.kind, item.how, *_errors(item.born),
                *_errors(item.total), *_errors(item.quantized), _text(None if last is None else last.cosine),
                _text(None if last is None else last.maximum), _text(item.amax), item.overflows, item.vanishes,
            ]
        )  # fmt: skip
    return sink.getvalue().encode()


def _errors(found: Difference | None) -> tuple[str, str]:
    return ("", "") if found is None else (_text(found.relative), _text(found.sqnr_db))


def _text(value: float | None) -> str:
    if value is None or math.isnan(value):
        return ""
    return f"{value:.6g}"
