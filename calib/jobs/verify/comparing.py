"""Compare the files of a folder with what they must be: caches, networks, images, the release."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx

from calib.core.gate.consistency import cache_difference, image_disagreements
from calib.core.gate.provenance import REBUILD
from calib.core.trtcache import CalibrationCache, parse
from calib.edges.builddir import RELEASE
from calib.edges.models import load_model
from calib.errors import CalibError, FormatError
from calib.jobs.build.artifacts import SELECTION
from calib.jobs.sample import read_selection
from calib.jobs.verify.subject import Subject
from calib.stages.cachefile import Coverage
from calib.stages.qdq import activation_ranges
from calib.types.gate import Check, few

UNREADABLE = (OSError, ValueError, RecursionError)


def check_cache(path: Path, expected: CalibrationCache) -> Check:
    """Compare a stored cache with the one that it must be."""
    try:
        stored = parse(path.read_bytes(), path.name)
    except (FormatError, OSError) as error:
        return Check(path.name, "fail", f"cannot be read: {reason(error)}", REBUILD)
    return compared(path.name, cache_difference(stored, expected), f"{len(expected.entries)} scales")


def check_coverage(coverage: Coverage) -> Check:
    """Say which float activations of the network have no scale; TensorRT runs the layers around these in float."""
    missing = coverage.never_observed
    if missing:
        detail = f"{len(missing)} tensors were never observed and have no scale: {few(missing)}"
        return Check("coverage", "note", detail, "calibrate on images that reach these branches, or accept float there")
    return Check("coverage", "pass", f"all {len(coverage.covered)} float tensors of the network have a scale")


def check_network(path: Path, expected: onnx.ModelProto, what: str) -> Check:
    """Compare a stored network with the one that it must be, wherever its weights are stored."""
    try:
        stored = load_model(path)
    except CalibError as error:
        return Check(path.name, "fail", f"cannot be read: {error.got}", REBUILD)
    if _parts(stored) == _parts(expected):
        return Check(path.name, "pass", f"{what}, as ranges and weights give it")
    detail = f"not what ranges and weights give: {_network_difference(stored, expected)}"
    return Check(path.name, "fail", detail, REBUILD)


def _parts(model: onnx.ModelProto) -> list[bytes]:
    """A network's content in comparable form, wherever its weights were stored."""
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    for tensor in bare.graph.initializer:
        tensor.ClearField("data_location")
    weights = [tensor.SerializeToString(deterministic=True) for tensor in bare.graph.initializer]
    del bare.graph.initializer[:]
    return [bare.SerializeToString(deterministic=True), *weights]


def _network_difference(stored: onnx.ModelProto, expected: onnx.ModelProto) -> str:
    ours, theirs = _scales(expected), _scales(stored)
    scales = sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
    if scales:
        return f"other scales for {few(scales)}"
    before, after = _weights(expected), _weights(stored)
    weights = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return f"other weights: {few(weights)}" if weights else "other nodes or attributes"


def _weights(model: onnx.ModelProto) -> dict[str, bytes]:
    return {item.name: item.SerializeToString(deterministic=True) for item in model.graph.initializer}


def _scales(model: onnx.ModelProto) -> dict[str, float]:
    try:
        return activation_ranges(model)
    except (CalibError, ValueError, TypeError, IndexError, KeyError, RecursionError):  # a damaged network
        return {}


def check_images(subject: Subject) -> Check:
    """Compare the images that the selection names with those of the provenance."""
    images = subject.provenance["images"]
    try:
        listed = [(item.image, item.sha256) for item in read_selection(subject.folder / SELECTION)]
    except (CalibError, *UNREADABLE) as error:
        return Check(SELECTION, "fail", f"cannot be read: {reason(error)}", REBUILD)
    return compared(SELECTION, image_disagreements(images, {SELECTION: listed}), f"{len(images)} images")


def check_release(subject: Subject) -> Check:
    """See that the release artifact is the first variant's cache."""
    first = subject.folder / f"{subject.labels[0]}.cache"
    try:
        same = (subject.folder / RELEASE).read_bytes() == first.read_bytes()
    except OSError as error:
        return Check(RELEASE, "fail", f"cannot be read: {reason(error)}", REBUILD)
    differs = [] if same else [f"not the cache of {subject.labels[0]}"]
    return compared(RELEASE, differs, f"the cache of {subject.labels[0]}")


def compared(name: str, differences: Sequence[str], agreed: str) -> Check:
    """Make the check of a comparison: passed where nothing differs."""
    if not differences:
        return Check(name, "pass", agreed)
    return Check(name, "fail", "; ".join(differences[:3]) + (" and more" if len(differences) > 3 else ""), REBUILD)


def reason(error: Any) -> str:
    """Say in short what an error says."""
    if isinstance(error, CalibError):
        return f"{error.place}: {error.got}"
    return str(getattr(error, "strerror", None) or error or type(error).__name__).lower()
