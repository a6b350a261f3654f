"""PTQ or QAT: a trained network beside its control and the best of the calibrated ones, with what the training cost."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from calib.core.slices import Slice
from calib.edges.builddir import TRAINING
from calib.edges.evaluation.loading import Loaded
from calib.edges.evaluation.sources import CONTROL, TRAINED, Calibration
from calib.edges.files import read_bytes
from calib.errors import CalibError
from calib.stages.compare import Sampling
from calib.stages.describe import Networks
from calib.stages.pairs import compare_pair
from calib.types.progress import Progress

Json = dict[str, Any]
MOST_MOVED = 10
"""Ranges and weights listed at most; the training's own report has all."""


def compare_trainings(
    loaded: Sequence[Loaded],
    calibrations: Sequence[Calibration],
    networks: Networks,
    slices: Sequence[Slice],
    sampling: Sampling,
    reference: int | None,
    progress: Progress,
) -> list[Json]:
    """Compare every trained network of the evaluation with the float one, its control, and the best PTQ.

    The best PTQ is the one with the highest mIoU on this very split, which favours it.

    Returns:
        one object a folder of ``calib qat``; empty where there is none.
    """
    trained = [item.folder for item in calibrations if TRAINED in item.provenance]
    found = []
    for folder in trained:
        places = {Path(item.source.address).name: place for place, item in enumerate(loaded) if _in(item, folder)}
        own, control = places.get("qat.qdq.onnx"), places.get(CONTROL)
        if own is None:
            continue
        ptq = _best_ptq(loaded, trained, networks)
        pairs = _pairs(own, control, ptq, reference)
        found.append(
            {
                "folder": str(folder),
                "model": networks.names[own],
                "control": None if control is None else networks.names[control],
                "best_ptq": None if ptq is None else networks.names[ptq],
                "pairs": [
                    {"role": role, **compare_pair(networks, one, other, slices, sampling, progress)}
                    for role, one, other in pairs
                ],
                **_cost(folder),
            }
        )
    return found


def _in(item: Loaded, folder: Path) -> bool:
    return item.source.folder == folder


def _best_ptq(loaded: Sequence[Loaded], trained: Sequence[Path], networks: Networks) -> int | None:
    """Place of the calibrated network with the highest mIoU."""
    from calib.core import metrics
    from calib.core.tally import matrix_counts

    scores: dict[int, float] = {}
    for place, item in enumerate(loaded):
        if item.quantized and item.source.folder not in trained:
            counts = matrix_counts(networks.counts[place], networks.layout, "confusion")
            sums = (part.sum(axis=0) for part in (counts.right, counts.labelled, counts.predicted))
            scores[place] = float(metrics.mean_iou(metrics.class_iou(*sums)))
    return max(scores, key=lambda place: scores[place], default=None)


def _pairs(own: int, control: int | None, ptq: int | None, reference: int | None) -> Iterator[tuple[str, int, int]]:
    """What is held against what: role, network, the other."""
    wanted = (
        ("QAT against the float network", own, reference),
        ("QAT against the control", own, control),
        ("QAT against the best PTQ", own, ptq),
        ("control against the float network", control, reference),
        ("best PTQ against the float network", ptq, reference),
    )
    for role, one, other in wanted:
        if one is not None and other is not None and one != other:
            yield role, one, other


def _cost(folder: Path) -> Json:
    """What the training cost and changed, from its own record; nothing where that cannot be read."""
    try:
        found: Mapping[str, Any] = json.loads(read_bytes(str(folder / TRAINING)))
        return {
            "cost": {name: None if found[name] is None else found[name]["cost"] for name in ("qat", "control")},
            "start": found["start"]["source"],
            "validation": found["data"]["validation"]["words"],
            "ranges": _most(found["ranges"], "bits"),
            "weights": _most(found["weights"], "change"),
        }
    except (CalibError, ValueError, KeyError, TypeError):
        return {"cost": None, "start": None, "validation": None, "ranges": [], "weights": []}


def _most(items: Sequence[Mapping[str, Any]], key: str) -> list[Mapping[str, Any]]:
    """Those that moved most."""
    return sorted(items, key=lambda item: -abs(item[key] or 0.0))[:MOST_MOVED]
