"""``calib engine``: build where TensorRT is, otherwise say why not and print the trtexec command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.core.engine.audit import Audit, audit_engine, read_profile
from calib.core.engine.layerinfo import parse_layer_info
from calib.core.engine.trtexec import EngineFiles, TrtexecCommand, command_for_10, command_for_11
from calib.edges.files import make_output_folder, write_atomic
from calib.edges.models import save_model
from calib.edges.tensorrt.buffers import CudaMemory, DeviceMemory
from calib.edges.tensorrt.building import BuiltEngine
from calib.edges.tensorrt.calibration import CacheRun, CalibrationRun
from calib.edges.tensorrt.explicit import build_explicit
from calib.edges.tensorrt.implicit import build_implicit
from calib.edges.tensorrt.library import load_tensorrt
from calib.edges.tensorrt.runner import EngineRunner
from calib.edges.written import json_bytes
from calib.errors import MissingLibraryError, UsageError
from calib.jobs.engine.native import ImageStream, open_stream
from calib.jobs.engine.request import MAJORS, EngineRequest
from calib.jobs.engine.source import EngineSource, read_source
from calib.types.progress import Progress

SCHEMA = 1


@dataclass(frozen=True)
class EngineResult:
    """What an engine build gave.

    Attributes:
        command: the trtexec command that does the same, as far as trtexec can.
        missing: why nothing was built; None where something was, or was not to be.
        files: what was written, by role.
        audit: what became of the plan; None where nothing was built.
        notes: what the user should know.
    """

    command: TrtexecCommand
    missing: MissingLibraryError | None
    files: Mapping[str, Path]
    audit: Audit | None
    notes: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """The result as JSON values."""
        missing = self.missing
        return {
            "schema": SCHEMA,
            "built": self.audit is not None,
            "reason": None if missing is None else f"{missing.place}: {missing.got}",
            "remedy": None if missing is None else missing.remedy,
            "trtexec": {"command": self.command.text, "words": list(self.command.words), "notes": self.command.notes},
            "files": {role: str(path) for role, path in self.files.items()},
            "audit": None if self.audit is None else self.audit.document(),
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class _Paths:
    """Files beside an engine."""

    engine: Path
    timing_cache: Path

    def beside(self, ending: str) -> Path:
        """A file that belongs to the engine."""
        return self.engine.with_name(f"{self.engine.name}.{ending}")


def build_engine(request: EngineRequest, progress: Progress, memory: DeviceMemory | None = None) -> EngineResult:
    """Build an engine from a build folder.

    Args:
        request: what to build.
        progress: shows native calibration.
        memory: device memory; None for the first GPU's, through cuda-core.

    Raises:
        CalibError: something given cannot be used, or the build failed. A missing TensorRT is no error: the result says
            so and holds the command.
    """
    if request.native and request.target != "trt10":
        raise UsageError(
            "--native-calibration",
            expected="--target trt10",
            got=f"--target {request.target}, which takes its ranges from the Q/DQ network",
            remedy="leave it out",
        )
    source = read_source(request)
    paths = _paths(request, source)
    network = _network_file(source, paths)
    command = _command(request, source, paths, network)
    notes = [*source.notes, *([_native_note()] if request.native else [])]
    if request.print_only:
        return EngineResult(command, None, _written_network(source, network), None, tuple(notes))
    try:
        load_tensorrt(MAJORS[request.target])
        device = memory or CudaMemory()
    except MissingLibraryError as error:
        return EngineResult(command, error, _written_network(source, network), None, tuple(notes))
    for path in (paths.engine, paths.timing_cache):  # before the build, which takes minutes
        make_output_folder(path.parent)
    built, found = _build(request, source, paths, device, progress)
    notes += found
    return _write(source, paths, built, device, command, notes, _written_network(source, network))


def _paths(request: EngineRequest, source: EngineSource) -> _Paths:
    engine = request.output or request.folder / f"{source.label}.{request.target}.engine"
    for flag, path in (("-o", engine), ("--timing-cache", request.timing_cache)):
        if path is not None and path.is_dir():
            raise UsageError(f"{flag} {path}", expected="a file", got="a folder", remedy="name the file to write in it")
    return _Paths(engine, request.timing_cache or engine.with_name("timing.cache"))


def _network_file(source: EngineSource, paths: _Paths) -> Path:
    """The network that trtexec would read; a cast one is written beside the engine."""
    if not source.cast:
        return source.place
    path = make_output_folder(paths.engine.parent) / f"{source.label}.fp16.onnx"
    save_model(source.model, path)
    return path


def _written_network(source: EngineSource, network: Path) -> dict[str, Path]:
    return {} if network == source.place else {"network": network}


def _native_note() -> str:
    return "trtexec cannot calibrate on images: its command reads the cache in place of --native-calibration"


def _command(request: EngineRequest, source: EngineSource, paths: _Paths, network: Path) -> TrtexecCommand:
    files = EngineFiles(
        model=str(network),
        engine=str(paths.engine),
        layer_info=str(paths.beside("layers.json")),
        profile=str(paths.beside("profile.json")),
        timing_cache=str(paths.timing_cache),
        cache=None if source.cache_file is None else str(source.cache_file),
    )
    if request.target == "trt11":
        return command_for_11(files, source.shapes)
    return command_for_10(files, source.shapes, source.pinned(request.fp16), fp16=request.fp16)


def _build(
    request: EngineRequest, source: EngineSource, paths: _Paths, memory: DeviceMemory, progress: Progress
) -> tuple[BuiltEngine, list[str]]:
    timing = paths.timing_cache.read_bytes() if paths.timing_cache.is_file() else None
    model = source.model.SerializeToString()
    if request.target == "trt11":
        return build_explicit(model, source.place, source.shapes, timing), []
    stream = open_stream(request, source, progress) if request.native else None
    run = _run(source, stream, memory)
    pinned = source.pinned(request.fp16)
    built, found = build_implicit(
        model,
        source.place,
        source.shapes,
        timing,
        run,
        source.provenance["request"]["cache_algorithm"],
        pinned,
        fp16=request.fp16,
        calibration_shapes=stream.shapes if stream is not None and source.shapes else None,
    )
    return built, _notes(built, pinned, found)


def _run(source: EngineSource, stream: ImageStream | None, memory: DeviceMemory) -> CalibrationRun | CacheRun:
    if stream is not None:
        return CalibrationRun(stream.inputs, stream, len(stream.keys), memory)
    if source.cache is None:
        raise AssertionError(source.place)
    return CacheRun(source.cache.render())


def _notes(built: BuiltEngine, pinned: Mapping[str, str], found: frozenset[str]) -> list[str]:
    notes = []
    lost = sorted(set(pinned) - found)
    if lost:
        notes.append(
            f"{len(lost)} layers to keep in float are not in TensorRT's network by name: {', '.join(lost[:4])}"
        )
    missing = built.log.missing_scales
    if missing:
        notes.append(f"TensorRT found no scale for {len(missing)} tensors: {', '.join(missing[:4])}")
    return notes


def _write(
    source: EngineSource,
    paths: _Paths,
    built: BuiltEngine,
    memory: DeviceMemory,
    command: TrtexecCommand,
    notes: Sequence[str],
    files: Mapping[str, Path],
) -> EngineResult:
    """Profile and audit the engine, then write everything; the engine itself last."""
    runner = EngineRunner(built.plan, str(paths.engine), memory)
    profile = runner.profile(sample_feeds(runner, source))
    audit = audit_engine(parse_layer_info(built.layer_info), source.decisions, read_profile(profile))
    wanted = {
        "layers": (paths.beside("layers.json"), built.layer_info.encode()),
        "profile": (paths.beside("profile.json"), profile.encode()),
        "audit": (paths.beside("audit.json"), json_bytes(audit.document())),
        "timing_cache": (paths.timing_cache, built.timing_cache),
        "engine": (paths.engine, built.plan),
    }
    if built.calibration_cache is not None:
        wanted = {"native_cache": (paths.beside("native.cache"), built.calibration_cache), **wanted}
    for path, data in wanted.values():
        write_atomic(path, data)
    written = {**files, **{role: path for role, (path, _) in wanted.items()}}
    return EngineResult(command, None, written, audit, tuple(notes))


def sample_feeds(runner: EngineRunner, source: EngineSource) -> dict[str, NDArray[Any]]:
    """Zeros in the usual shape of every input; layer times do not depend on values."""
    feeds = {}
    for item in runner.inputs:
        ranged = source.shapes.get(item.name)
        shape = ranged.opt if ranged is not None else tuple(length or 1 for length in item.shape or ())
        feeds[item.name] = np.zeros(shape, item.elem_type or "float32")
    return feeds
