"""``evaluation.json``: the models' results with what they were measured on and how, and the gate's verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from calib import __version__
from calib.core.bestvariant import Choice, VariantScore, choose_variant
from calib.core.bootstrap import FEWEST, LEVEL
from calib.core.maxdrop import Limit, Verdict, judge, order_verdicts
from calib.core.printable import printable
from calib.core.slices import Slice
from calib.edges.evaluation.loading import Loaded
from calib.edges.evaluation.sources import Calibration
from calib.edges.hardware import read_cpu
from calib.jobs.evaluate.counting import Counting
from calib.jobs.evaluate.request import EvaluateRequest, describe_numerics

SCHEMA = 1
SEEN_TIES = 0.001
"""A tie rate from which the tie rule is worth a remark."""
Json = dict[str, Any]


def judge_all(
    models: Sequence[Json], limits: Sequence[Limit], reference: int | None, request: EvaluateRequest
) -> tuple[Verdict, ...]:
    """Judge every network but the reference by every limit; failing ones first.

    Against a reference that answers NaN nothing passes: who loses nothing against it may be as broken.
    """
    by_interval = request.gate_by == "interval"
    verdicts = [
        judge(model["name"], limit, *_delta(model["vs_reference"], limit), by_interval=by_interval)
        for place, model in enumerate(models)
        for limit in limits
        if place != reference
    ]
    lost = 0 if reference is None else models[reference]["pixels_without_prediction"]
    if lost:
        reason = f"the reference answers NaN on {lost} pixels: a loss against it says nothing"
        verdicts = [replace(verdict, passed=False, reason=reason) for verdict in verdicts]
    return order_verdicts(verdicts)


def make_document(
    counting: Counting,
    models: Sequence[Json],
    slices: Sequence[Slice],
    facts: Json,
    verdicts: Sequence[Verdict],
    calibrations: Sequence[Calibration],
    notes: Sequence[str],
) -> Json:
    """Put ``evaluation.json`` together."""
    request, dataset = counting.request, counting.dataset
    named = [_head(item, reading.words) | model for item, reading, model in zip_models(counting, models)]
    reference = None if counting.reference is None else named[counting.reference]["name"]
    choice = choose_among(named, reference)
    return {
        "schema": SCHEMA,
        "reference": reference,
        "models": named,
        "data": {
            "name": dataset.name,
            "split": dataset.split,
            "manifest_sha256": dataset.manifest_sha256,
            "images": len(dataset.records),
            "classes": list(counting.classes),
            "ignore_index": dataset.classes.ignore_index if dataset.classes else None,
            "pixels": facts,
        },
        "slices": {part.name: {"rule": part.rule, "images": int(part.mask.sum())} for part in slices},
        "numerics": describe_numerics(request, read_cpu()),
        "intervals": {
            "method": "paired bootstrap over "
            + (f"groups of equal {request.bootstrap_by}" if request.bootstrap_by else "images"),
            "level": LEVEL,
            "resamples": request.resamples,
            "seed": request.seed,
            "fewest": FEWEST,
        },
        "gate": None if not verdicts else [_verdict(item) for item in verdicts],
        "best_variant": None if choice is None else describe_choice(choice),
        "calibrated_on": [_calibrated(item) for item in calibrations],
        "notes": [*notes, *_findings(named)],
        "version": __version__,
    }


def zip_models(counting: Counting, models: Sequence[Json]) -> Iterator[tuple[Loaded, Any, Json]]:
    """Networks, readings and results side by side."""
    yield from zip(counting.loaded, counting.readings, models, strict=True)


def choose_among(models: Sequence[Json], reference: str | None) -> Choice | None:
    """Choose the best of the quantized variants, where there are several and a reference."""
    scores = [
        VariantScore(
            model["name"],
            model["vs_reference"]["miou"]["delta"],
            _pair(model["vs_reference"]["miou"]["ci95"]),
            {name: entry["delta"] for name, entry in model["vs_reference"]["slices"].items()},
        )
        for model in models
        if reference is not None and model["name"] != reference and model["kind"] == "qdq"
    ]
    if len(scores) < 2 or any(score.delta is None for score in scores):
        return None
    return choose_variant(scores)


def describe_choice(choice: Choice) -> Json:
    """A choice with its rule and numbers, as JSON values."""
    return {
        "name": choice.name,
        "rule": choice.rule,
        "words": choice.words,
        "best_miou": choice.best,
        "variants": [
            {
                "name": item.score.name,
                "delta": item.score.delta,
                "ci95": None if item.score.ci95 is None else list(item.score.ci95),
                "overlaps_best": item.contender,
                "worst_slice": item.worst_slice,
                "worst_delta": item.worst_delta,
            }
            for item in choice.judged
        ],
    }


def _head(item: Loaded, reading: str) -> Json:
    kinds = {True: "qdq", False: "float", None: "python"}
    kind = "engine" if item.source.kind == "engine" else kinds[item.quantized]
    return {
        "name": item.source.name,
        "path": printable(item.source.address),
        "kind": kind,
        "sha256": item.digest or None,
        "output": reading,
    }


def _delta(against: Mapping[str, Any], limit: Limit) -> tuple[float | None, tuple[float, float] | None]:
    """A clause's difference and interval."""
    if limit.kind == "miou":
        entry = against["miou"]
    else:
        entry = against["per_class" if limit.kind == "class" else "slices"].get(limit.name)
    return (None, None) if entry is None else (entry["delta"], _pair(entry["ci95"]))


def _pair(interval: Sequence[float] | None) -> tuple[float, float] | None:
    return None if interval is None else (interval[0], interval[1])


def _verdict(item: Verdict) -> Json:
    return {
        "model": item.model,
        "limit": str(item.limit),
        "drop": item.drop,
        "ci95": None if item.ci95 is None else list(item.ci95),
        "passed": item.passed,
        "reason": item.reason,
    }


def _calibrated(item: Calibration) -> Json:
    provenance = item.provenance
    return {
        "folder": printable(str(item.folder)),
        "images": len(item.images),
        "split": provenance.get("request", {}).get("split"),
        "samplers": [sampler.get("spec") for sampler in provenance.get("samplers", [])],
        "calibrators": {entry.get("name"): entry.get("spec") for entry in provenance.get("calibrators", [])},
        "network": item.network,
    }


def _findings(models: Sequence[Json]) -> Iterator[str]:
    """What a reader must not miss in the results."""
    absent = models[0]["absent"]
    if absent:
        yield f"{len(absent)} classes have no labelled pixel in this split and no IoU: {', '.join(absent)}"
    for model in models:
        name, outside = model["name"], model["predictions_outside_classes"]
        if outside["scored_pixels"]:
            ids = ", ".join(f"{value} ({count} pixels)" for value, count in list(outside["ids"].items())[:8])
            yield f"{name} predicts values outside the class table, counted as wrong: {ids or 'no class at all'}"
        if model["pixels_without_prediction"]:
            yield f"{name} answers NaN on {model['pixels_without_prediction']} pixels, counted as wrong"
        if model["ties"] and model["ties"]["rate"] >= SEEN_TIES:
            yield f"{name}: {model['ties']['rate']:.2%} of the pixels are ties, decided for the first class"
        if model["only_predicted"]:
            listed = ", ".join(f"{key} ({count} pixels)" for key, count in model["only_predicted"].items())
            yield f"{name} predicts classes that no label holds: {listed}"
