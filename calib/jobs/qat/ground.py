"""What both trainings stand on: the float network, the ranges, the plan. One process makes it, the others read it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import onnx

from calib.core.plan import QuantizationPlan
from calib.edges.builddir import BuildFolder
from calib.edges.files import write_atomic
from calib.edges.written import json_bytes
from calib.errors import UsageError
from calib.jobs.qat.backends import Placement, choose_placement
from calib.jobs.qat.network import FloatNetwork, Origin, load_float
from calib.jobs.qat.preparing import missing_ranges, plan_model
from calib.jobs.qat.request import QatRequest
from calib.jobs.qat.scoring import refuse_untrainable
from calib.jobs.qat.splits import Splits
from calib.jobs.qat.start import StartRanges, read_start
from calib.types.gate import few
from calib.types.progress import Progress

START, FLOAT, PTQ = "start.json", "float.onnx", "ptq"
"""Files in ``.partial``; and the folder of the calibration that a training without ``--init`` begins with."""


@dataclass(frozen=True)
class Ground:
    """What is trained.

    Attributes:
        network: the float network.
        start: ranges to start from.
        model: the float network with its operator set raised as the Q/DQ writer raises it.
        plan: where fake quantization goes, made from ``model``.
        placement: which layers are quantized, for whom.
    """

    network: FloatNetwork
    start: StartRanges
    model: onnx.ModelProto
    plan: QuantizationPlan
    placement: Placement


def prepare_ground(
    request: QatRequest, origin: Origin, splits: Splits, folder: BuildFolder, world: Any, progress: Progress
) -> Ground:
    """Export the network, find ranges and plan; the first process does it, the others wait and read.

    Raises:
        CalibError: the network, or what ``--init`` names, cannot be used.
    """
    if world.first:
        network = load_float(origin, request, splits.train, folder.partial / FLOAT)
        kept = folder.partial / START
        if not kept.exists():
            refuse_untrainable(request, network, splits, progress)
            choose_placement(request, origin, network)
            write_atomic(kept, _as_json(_find_start(request, network, splits, folder, progress)))
    world.wait()
    network = load_float(origin, request, splits.train, folder.partial / FLOAT)
    start = _of_json((folder.partial / START).read_bytes())
    placement = choose_placement(request, origin, network, start.float_nodes)
    if world.first:
        placement.tell(progress)
    model, plan = plan_model(network.model, start.amax, request.target, placement.options)
    return Ground(network, start, model, plan, placement)


def _find_start(
    request: QatRequest, network: FloatNetwork, splits: Splits, folder: BuildFolder, progress: Progress
) -> StartRanges:
    if request.init is None:
        return _calibrate(request, network, splits, folder, progress)
    start = read_start(request.init, request.calibrator, network)
    lacking = missing_ranges(network.model, start.amax, request.target)
    _refuse_foreign(start, lacking, network, request)
    if start.moved:
        progress.warn(
            f"{start.source} was calibrated with other weights: {len(start.moved)} differ ({few(start.moved)}). Its "
            "ranges may not fit; calibrate this network, or leave --init out"
        )
    if start.unmatched:
        progress.warn(f"{start.source}: {len(start.unmatched)} tensors are not in the network: {few(start.unmatched)}")
    if not lacking:
        return start
    progress.warn(f"{start.source} has no range for {len(lacking)} tensors, calibrated now: {few(lacking)}")
    own = _calibrate(replace(request, calibrator=start.calibrator or None), network, splits, folder, progress)
    return replace(start, amax={**own.amax, **start.amax}, calibrated=lacking)


def _refuse_foreign(start: StartRanges, lacking: Collection[str], network: FloatNetwork, request: QatRequest) -> None:
    """Refuse a build of another network: it has ranges of every tensor, so most would be of this one's, too."""
    if start.folder is None:
        return
    wanted = len(missing_ranges(network.model, {}, request.target))
    held = len(start.amax) + len(start.unmatched)
    if len(lacking) * 2 > wanted or len(start.unmatched) * 3 > held * 2:
        raise UsageError(
            f"--init {request.init}",
            expected=f"a build of {network.place}",
            got=f"one of another network: {len(start.unmatched)} of its {held} tensors are unknown, and "
            f"{len(lacking)} of the {wanted} to quantize have no range",
            remedy="make one of this network with `calib build`, or leave --init out to calibrate first",
        )


def _calibrate(
    request: QatRequest, network: FloatNetwork, splits: Splits, folder: BuildFolder, progress: Progress
) -> StartRanges:
    """Build on the training split, so that PTQ variants are there to start from and to compare with."""
    from calib.jobs.build import BuildRequest, build

    if request.calibrator is not None and ":" in request.calibrator:
        raise UsageError(
            f"--calibrator {request.calibrator}", expected="the name of a calibrator", got="one with arguments",
            remedy="build with it first (calib build --calibrator …) and pass the folder with --init",
        )  # fmt: skip
    built = build(
        BuildRequest(
            model=folder.partial / FLOAT,
            data=request.data,
            output=folder.path / PTQ,
            split=splits.train.split if _is_named(request) else None,
            evaluation_split=request.val_split,
            seed=request.seed,
            root=request.root,
            preprocess=request.preprocess,
            workers=request.workers,
            trt_version=request.trt_version,
            cache_algorithm=request.cache_algorithm,
            target=request.target,
            keep_float=request.keep_float,
        ),
        progress,
    )
    return read_start(str(built.folder), request.calibrator, network)


def _is_named(request: QatRequest) -> bool:
    """Whether the data has splits to name; a list of images has none."""
    from calib.edges.manifest import list_splits

    return request.split is not None or len(list_splits(request.data)) > 1


def _as_json(start: StartRanges) -> bytes:
    return json_bytes({**asdict(start), "folder": None if start.folder is None else str(start.folder)})


def _of_json(data: bytes) -> StartRanges:
    found: Mapping[str, Any] = json.loads(data)
    folder = None if found["folder"] is None else Path(found["folder"])
    return StartRanges(
        found["amax"], found["source"], found["calibrator"], tuple(found["unmatched"]), folder,
        tuple(found["calibrated"]), tuple(found["moved"]), tuple(found["float_nodes"]),
    )  # fmt: skip
