"""``sensitivity.json``: every unit's losses and work in the order of rank, with what they were measured on and how."""

from __future__ import annotations

from collections.abc import Sequence

from calib import __version__
from calib.core.bootstrap import FEWEST, LEVEL
from calib.core.sensitivity.counts import TOGETHER
from calib.core.sensitivity.racing import rank
from calib.jobs.sensitivity.counting import Race, Raced
from calib.jobs.sensitivity.subject import Quantized
from calib.stages.sensitivity_table import Evidence, Json, Measure

SCHEMA = 1


def make_document(race: Race, raced: Raced, quantized: Quantized) -> Json:
    """Put ``sensitivity.json`` together."""
    request, images, course = race.request, race.images, race.course
    seen = raced.ends[-1]
    evidence = race.evidence(seen)
    units = _ranked(race, raced, evidence)
    return {
        "schema": SCHEMA,
        "network": {
            "name": quantized.name,
            "path": quantized.path,
            "sha256": quantized.digest,
            "mode": request.mode,
            "unit": request.unit,
            "kept_in_float": list(quantized.kept),
            "output": course.reading.words,
            "macs": course.all_macs,
        },
        "data": {
            "name": images.dataset.name,
            "split": images.dataset.split,
            "manifest_sha256": images.dataset.manifest_sha256,
            "images": list(images.keys[:seen]),
            "labelled": images.labelled,
            "classes": list(course.classes),
        },
        "slices": {part.name: {"rule": part.rule, "images": int(part.mask[:seen].sum())} for part in images.slices},
        "base": evidence.miou(seen) if images.labelled else None,
        "together": _measured(evidence, TOGETHER, raced.ends[0], labelled=images.labelled),
        "ranking": {
            "by": str(race.measure) if images.labelled else "flips",
            "resolution": request.resolution,
            "rule": _rule(race),
            "top": request.top,
            "exhaustive": request.exhaustive or not images.labelled,
            "rounds": list(raced.ends),
            "runs": raced.runs,
            "runs_of_all": len(units) * len(images.keys),
        },
        "intervals": {
            "method": "paired bootstrap over "
            + (f"groups of equal {request.bootstrap_by}" if request.bootstrap_by else "images"),
            "level": LEVEL,
            "resamples": request.resamples,
            "seed": request.seed,
            "fewest": FEWEST,
        },
        "units": units,
        "costly": [unit["name"] for unit in units if costs_much(unit, race)],
        "notes": [*images.notes, *_findings(race, units)],
        "version": __version__,
    }


def loss_of(unit: Json, measure: Measure) -> Json | None:
    """What a unit loses in the measure that is ranked by: ``loss`` and ``ci95``."""
    if unit["loss"] is None:
        return None
    if measure.kind == "miou":
        found: Json | None = unit["loss"]["miou"]
    else:
        found = unit["loss"]["per_class" if measure.kind == "class" else "slices"].get(measure.name)
    return found


def costs_much(unit: Json, race: Race) -> bool:
    """Whether a unit surely loses something, and the resolution or more, in the measure that is ranked by."""
    found = loss_of(unit, race.measure)
    if found is None or found["loss"] is None or not found["significant"]:
        return False
    lost = found["loss"] if race.request.mode == "alone" else -found["loss"]
    return bool(lost >= race.request.resolution)


def _ranked(race: Race, raced: Raced, evidence: Evidence) -> list[Json]:
    """Describe the units in the order of rank."""
    units = [_unit(race, raced, evidence, number) for number in race.course.relay.reachable]
    losses = [loss_of(unit, race.measure) for unit in units]
    order = rank(
        [None if item is None else item["loss"] for item in losses],
        [None if item is None or item["ci95"] is None else item["ci95"][1] for item in losses],
        [unit["flips"]["share"] for unit in units],
        race.request.resolution,
    )
    return [{"rank": place, **units[number]} for place, number in enumerate(order, 1)]


def _unit(race: Race, raced: Raced, evidence: Evidence, number: int) -> Json:
    unit, course = race.course.subject.units[number], race.course
    images = raced.images[number]
    found = _measured(evidence, number, images, labelled=race.images.labelled)
    share = course.macs[number] / course.all_macs if course.all_macs else None
    measured = loss_of(found, race.measure)
    loss = None if measured is None else measured["loss"]
    return {
        "name": unit.name,
        "op": unit.op_type,
        "place": number + 1,
        "activations": list(unit.activations),
        "weights": list(unit.weights),
        "settled": raced.reasons[number],
        **found,
        "macs": course.macs[number],
        "macs_share": share,
        "loss_per_percent_of_macs": loss / (100 * share) if share and loss is not None else None,
    }


def _measured(evidence: Evidence, number: int, images: int, *, labelled: bool) -> Json:
    return {
        "images": images,
        "loss": evidence.loss(number, images) if labelled else None,
        "flips": evidence.flips(number, images),
        "sqnr_db": evidence.sqnr(number, images),
    }


def _rule(race: Race) -> str:
    """Say in a sentence how units are ranked and when they leave the race."""
    request = race.request
    if not race.images.labelled:
        return "by the share of pixels whose class changes"
    words = (
        f"first the quantizers that may lose {request.resolution:g} points or more of {race.measure.words}, by their "
        "loss; "
        "then those that lose less, by the share of pixels whose class changes"
    )
    if request.exhaustive:
        return f"{words}; every quantizer saw every image"
    return (
        f"{words}; after each round a quantizer leaves if the far end of its interval is below {request.resolution:g} "
        f"points, or if it loses less than the quantizer in place {request.top}, beyond chance on the same images"
    )


def _findings(race: Race, units: Sequence[Json]) -> list[str]:
    """What a reader must not miss."""
    found = []
    stored = race.course.subject.stored
    if stored:
        found.append(
            f"{len(stored)} weights are stored as integers only and cannot be unquantized: their layers' weights are "
            "quantized in every run; name the float network with --ranges to measure them too"
        )
    lost = len(race.course.subject.units) - len(units)
    if lost:
        found.append(f"{lost} quantizers do not reach the output that is scored and are left out")
    small = [unit for unit in units if unit["settled"] == "resolution"]
    if len(small) == len(units) and units:
        found.append(
            f"no quantizer alone loses {race.request.resolution:g} points, so they are ordered by the pixels they flip"
        )
    return found
