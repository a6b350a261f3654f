"""Which Q/DQ network is taken apart: that of a build folder, a file, or one made from a float network and ranges."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from calib.core.gate.provenance import kept_in_float
from calib.edges.evaluation.loading import is_quantized
from calib.edges.evaluation.sources import QDQ, Source, find_sources, read_calibration
from calib.edges.models import load_model
from calib.edges.tables import load_table
from calib.errors import ModelError, UsageError
from calib.jobs.sensitivity.request import SensitivityRequest
from calib.stages.qdq import quantize_model


@dataclass(frozen=True)
class Quantized:
    """The network under measurement.

    Attributes:
        model: with its Q/DQ pairs.
        name: to call it by.
        path: the file it came from.
        digest: of its content.
        calibrated_on: sha256 of the images it was calibrated on; empty where nobody knows.
        kept: patterns of the layers that its build keeps in float.
    """

    model: onnx.ModelProto
    name: str
    path: str
    digest: str
    calibrated_on: frozenset[str] = frozenset()
    kept: tuple[str, ...] = ()


def load_quantized(request: SensitivityRequest) -> Quantized:
    """Load the network, or make it.

    Raises:
        UsageError: ranges are missing or given in vain, or the build has no such calibrator.
        ModelError: it cannot be loaded, or is no network whose units can be switched.
        FormatError: the ranges cannot be read.
    """
    source = _choose(request)
    model = load_model(source.address)
    build = read_calibration(source.folder) if source.folder is not None else None
    images = frozenset(build.images.values()) if build is not None else frozenset()
    if is_quantized(model):
        if request.ranges is not None:
            raise UsageError(
                f"--ranges {request.ranges}", expected="a float network to put them into",
                got=f"{source.address} with Q/DQ pairs of its own",
                remedy="name the float network, or leave --ranges out",
            )  # fmt: skip
        kept = kept_in_float(build.provenance) if build is not None else ()
        return Quantized(model, source.name, source.address, _digest(model), images, kept)
    return _made(request, source, model)


def _choose(request: SensitivityRequest) -> Source:
    found = find_sources([request.network], None)
    unfit = next((item for item in found if item.kind != "onnx"), None)
    if unfit is not None:
        raise ModelError(
            request.network, expected="a build folder or an ONNX file", got=f"a {unfit.kind}",
            remedy="name the *.qdq.onnx that it was made from",
        )  # fmt: skip
    return found[0] if request.calibrator is None else _named(found, request.network, request.calibrator)


def _named(found: Sequence[Source], network: str, calibrator: str) -> Source:
    """The variant of a build folder that a calibrator made."""
    if not Path(network).is_dir():
        raise UsageError(
            f"--calibrator {calibrator}", expected="a build folder", got=network,
            remedy="leave it out: a file holds one set of ranges",
        )  # fmt: skip
    for item in found:
        if Path(item.address).name == f"{calibrator}{QDQ}":
            return item
    raise UsageError(
        f"--calibrator {calibrator}", expected="one of " + ", ".join(item.name for item in found),
        got=repr(calibrator), remedy="name a calibrator that the folder was built with",
    )  # fmt: skip


def _made(request: SensitivityRequest, source: Source, model: onnx.ModelProto) -> Quantized:
    """Put pairs into a float network."""
    if request.ranges is None:
        raise UsageError(
            source.address, expected="quantizers to switch", got="a float network without ranges",
            remedy="name a build folder or a *.qdq.onnx, or give --ranges FILE: a calibration cache, a table "
            "of ranges, a Q/DQ network",
        )  # fmt: skip
    table = load_table(request.ranges)
    weights = {item.name: item for item in table.weights}
    result = quantize_model(model, {item.name: item.amax for item in table}, request.target, weights=weights)
    if not result.plan.activations and not result.plan.weights:
        raise UsageError(
            f"--ranges {request.ranges}", expected=f"ranges of tensors of {source.address}", got="none that it has",
            remedy="`calib cache retarget` carries ranges over to another export of the network",
        )  # fmt: skip
    return Quantized(result.model, source.name, source.address, _digest(result.model))


def _digest(model: onnx.ModelProto) -> str:
    return hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest()
