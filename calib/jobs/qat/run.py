"""``calib qat``: float network → ranges → fine-tuning with fake quantization → Q/DQ network, cache, records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from calib.core.graph import analyse
from calib.core.plan import QuantizationPlan
from calib.edges.builddir import BuildFolder
from calib.edges.provenance import library_versions
from calib.errors import MissingLibraryError
from calib.jobs.qat.artifacts import write_outputs
from calib.jobs.qat.network import load_float
from calib.jobs.qat.request import QatRequest, check_request, fingerprint
from calib.jobs.qat.splits import choose_splits
from calib.jobs.qat.start import StartRanges, read_start
from calib.jobs.qat.training import Coach, control_settings, make_settings, source_of
from calib.stages.placement import DEFAULTS, plan_quantization
from calib.stages.qdq import raise_opset, unreadable_weights
from calib.types.progress import Progress


@dataclass(frozen=True)
class QatResult:
    """What a training made.

    Attributes:
        folder: its folder.
        document: what ``training.json`` holds.
    """

    folder: Path
    document: Mapping[str, Any]


def require_torch() -> None:
    """Refuse to begin without PyTorch.

    Raises:
        MissingLibraryError: it is not installed.
    """
    try:
        import torch  # noqa: F401 - only whether it is there
    except ImportError as error:
        raise MissingLibraryError(
            "calib qat", expected="PyTorch", got="not installed", remedy="pip install 'calib-workbench[qat]'"
        ) from error


def run_qat(request: QatRequest, progress: Progress) -> QatResult:
    """Train; killed at any point, the same request goes on where it stopped.

    Raises:
        CalibError: something given cannot be used; see the subclasses.
        KeyboardInterrupt: asked to stop; the checkpoint is written.
    """
    check_request(request)
    require_torch()
    from calib.edges.qat.world import join_world, leave_world

    splits = choose_splits(request)
    network = load_float(request, splits.train)
    source_of(request, network, splits)
    world = join_world(request.device)
    try:
        folder = BuildFolder(request.output)
        key = fingerprint(request, splits.train, splits.valid, network.digests, library_versions())
        folder.begin(key)
        progress.note(splits.words)
        start = read_start(request.init or "", request.calibrator, network)
        raised, plan = plan_model(network.model, start, request)
        coach = Coach(request, network, raised, splits, world, folder.partial, progress)
        settings = make_settings(request, splits, world.size)
        trained = coach.train("qat", plan, settings)
        control = coach.train("control", None, control_settings(trained)) if request.control else None
        if not world.first:
            return QatResult(folder.path, {})
        document = write_outputs(folder, request, network, start, plan, trained, control)
    finally:
        leave_world()
    return QatResult(folder.path, document)


def plan_model(
    model: onnx.ModelProto, start: StartRanges, request: QatRequest
) -> tuple[onnx.ModelProto, QuantizationPlan]:
    """Decide where fake quantization goes, exactly as the Q/DQ writer decides where its pairs go."""
    raised, _ = raise_opset(model, DEFAULTS)
    network = analyse(raised)
    unreadable = unreadable_weights(raised, network)
    return raised, plan_quantization(network, start.amax, request.target, DEFAULTS, unreadable)
