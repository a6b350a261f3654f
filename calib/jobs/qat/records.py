"""What a training leaves for others to check: curves, cost and changes, images with their hashes, provenance."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from calib.core.gate.provenance import SCHEMA
from calib.edges.files import sha256_file
from calib.edges.provenance import host
from calib.errors import CalibError
from calib.jobs.qat.artifacts import NAME, Product
from calib.jobs.qat.changes import range_changes, weight_changes
from calib.jobs.qat.ground import Ground
from calib.jobs.qat.request import QatRequest
from calib.jobs.qat.splits import Splits
from calib.jobs.qat.training import Trained, control_settings
from calib.types.data import Dataset
from calib.types.progress import Progress

TRAINED, VALIDATED = "training", "validation"
UNREADABLE = b"unreadable"


def training_document(
    request: QatRequest, ground: Ground, splits: Splits, product: Product, trained: Trained, control: Trained | None
) -> dict[str, Any]:
    """Describe the training: how, how long, how it went, what it changed."""
    return {
        "schema": 1,
        "network": request.model,
        "backend": request.backend,
        "data": {
            "manifest": splits.train.name,
            "train": {"split": splits.train.split, "images": len(splits.train.records)},
            "validation": {
                "split": splits.valid.split,
                "images": len(splits.valid.records),
                "held_out": splits.held_out,
                "words": splits.words,
            },
        },
        "start": {
            "source": ground.start.source,
            "calibrator": ground.start.calibrator,
            "unmatched": list(ground.start.unmatched),
            "calibrated": list(ground.start.calibrated),
        },
        "quantized": {"activations": len(ground.plan.activations), "weights": len(ground.plan.weights)},
        "qat": describe_training(trained),
        "control": None if control is None else describe_training(control),
        "ranges": range_changes(ground.start.amax, product.learnt),
        "weights": weight_changes(ground.network.model, product.weights),
    }


def describe_training(trained: Trained) -> dict[str, Any]:
    """Settings, cost and curve of one training."""
    state = trained.state
    best = state.points[state.best]
    return {
        "settings": asdict(trained.settings),
        "cost": {
            "steps": state.step,
            "images": state.points[-1].images,
            "seconds": state.seconds,
            "device": trained.device,
            "processes": trained.processes,
        },
        "ended": state.finished,
        "kept": {"which": trained.settings.keep, "step": best.step if trained.settings.keep == "best" else state.step},
        "curve": [asdict(point) for point in state.points],
    }


def hash_files(splits: Splits, workers: int, progress: Progress) -> dict[str, bytes]:
    """Sha256 of every image and label file, by path; what cannot be read is reported by whoever reads it next.

    Args:
        splits: the images.
        workers: files read at once.
        progress: is shown how many are read.
    """
    records = (*splits.train.records, *splits.valid.records)
    paths = sorted({path for record in records for path in (record.path, record.label) if path is not None})
    with ThreadPoolExecutor(workers) as pool, progress.task("reading files", len(paths)) as shown:
        found = {}
        for path, content in zip(paths, pool.map(_content, paths), strict=True):
            found[path] = content
            shown.advance(1)
    return found


def _content(path: str) -> bytes:
    try:
        return bytes.fromhex(sha256_file(Path(path)))
    except (OSError, CalibError):
        return UNREADABLE


def content_digest(files: Mapping[str, bytes]) -> str:
    """Fingerprint of what :func:`hash_files` found."""
    return hashlib.sha256(b"".join(files[path] for path in sorted(files))).hexdigest()


def hash_images(splits: Splits, files: Mapping[str, bytes], *, validated: bool) -> dict[str, tuple[str, str]]:
    """Sha256 and use of every image that the result depends on.

    Args:
        splits: the images.
        files: what :func:`hash_files` found before they were trained on.
        validated: whether the validation images chose anything.
    """
    found = _purposed(splits.train, TRAINED, files)
    return {**_purposed(splits.valid, VALIDATED, files), **found} if validated or splits.held_out else found


def _purposed(dataset: Dataset, purpose: str, files: Mapping[str, bytes]) -> dict[str, tuple[str, str]]:
    return {record.key: (files[record.path].hex(), purpose) for record in dataset.records}


def provenance(
    fingerprint: Mapping[str, Any],
    ground: Ground,
    trained: Trained,
    images: Mapping[str, tuple[str, str]],
    control: Trained | None,
) -> dict[str, Any]:
    """Describe the folder as a build's, with the training beside it."""
    settings = asdict(trained.settings)
    return {
        "schema": SCHEMA,
        "request": dict(fingerprint),
        "calibrators": [{"name": NAME, "spec": NAME, "parameters": settings}],
        "evaluation": None,
        "samplers": [],
        "seed": fingerprint["seed"],
        "preprocess": fingerprint["preprocess"],
        "images": {key: digest for key, (digest, _) in sorted(images.items())},
        "host": host(),
        "training": {
            "start": ground.start.source,
            "network": dict(ground.network.digests),
            "float_nodes": sorted(ground.placement.options.float_nodes),
            "steps": trained.state.step,
            "control": None if control is None else asdict(control_settings(trained)),
        },
    }


def cost_words(document: Mapping[str, Any]) -> Iterable[str]:
    """Say for people what a training cost and how it went."""
    for name in ("qat", "control"):
        found = document[name]
        if found is not None:
            cost, curve = found["cost"], found["curve"]
            yield (
                f"{name}: {cost['steps']} steps, {cost['images']} images, {cost['seconds'] / 60:.1f} minutes on "
                f"{cost['device']}; validation mIoU {curve[0]['miou']:.4f} → {curve[-1]['miou']:.4f}"
            )
