"""``calib qat``: float network → ranges → fine-tuning with fake quantization → Q/DQ network, cache, records."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from calib.core.attestation import make_statement
from calib.edges.builddir import PROVENANCE, RELEASE, REPORT, STATEMENT, TRAINING, BuildFolder
from calib.edges.files import sha256_file, write_atomic
from calib.edges.patterns import read_patterns
from calib.edges.progress import SilentProgress
from calib.edges.provenance import library_versions, now, sha256_bytes
from calib.edges.written import Written, describe_file, json_bytes
from calib.errors import MissingLibraryError, UsageError
from calib.jobs.qat.artifacts import (
    QDQ_NAME,
    Product,
    make_product,
    planned_names,
    ranges_of_training,
    write_networks,
    write_records,
)
from calib.jobs.qat.backends import backend_versions, require_backend, settle_backend
from calib.jobs.qat.ground import FLOAT, Ground, prepare_ground
from calib.jobs.qat.network import Origin, find_origin
from calib.jobs.qat.records import (
    content_digest,
    cost_words,
    hash_files,
    hash_images,
    provenance,
    training_document,
)
from calib.jobs.qat.reporting import fell, render_training_report
from calib.jobs.qat.request import QatRequest, check_request, fingerprint
from calib.jobs.qat.splits import Splits, choose_splits
from calib.jobs.qat.start import RANGES, layers_in_float
from calib.jobs.qat.training import Coach, Trained, control_settings, make_settings
from calib.types.progress import Progress


@dataclass(frozen=True)
class QatResult:
    """What a training made.

    Attributes:
        folder: its folder.
        document: what ``training.json`` holds; empty in processes that write nothing.
        reused: whether a finished training of the same request was found and nothing was done.
    """

    folder: Path
    document: Mapping[str, Any]
    reused: bool = False

    def summary(self) -> Iterator[tuple[str, str]]:
        """What to tell people, as name and text."""
        yield "qat", f"{self.folder}{' (finished before; nothing was done)' if self.reused else ''}"
        for line in cost_words(self.document):
            yield tuple(line.split(": ", 1))  # type: ignore[misc]
        yield "network", f"{self.folder / QDQ_NAME}, for TensorRT >= 10; {RELEASE} for TensorRT <= 10"
        yield "report", str(self.folder / REPORT)


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
    started = now()
    check_request(request)
    request = replace(settle_backend(request), keep_float=read_patterns(request.keep_float))
    require_torch()
    require_backend(request)
    from calib.edges.qat.world import join_world, leave_world, together

    splits = choose_splits(request)
    origin = find_origin(request)
    world = join_world(request.device)
    try:
        shown = progress if world.first else SilentProgress()
        with together(world):
            return _Job(request, splits, origin, world, shown, started).run()
    finally:
        leave_world()


@dataclass(frozen=True)
class _Job:
    """A training under way."""

    request: QatRequest
    splits: Splits
    origin: Origin
    world: Any
    progress: Progress
    started: str

    def run(self) -> QatResult:
        """Train both networks and write the folder; the first process keeps others out of it."""
        folder = BuildFolder(self.request.output)
        with folder.locked() if self.world.first else contextlib.nullcontext():
            return self._run(folder)

    def _run(self, folder: BuildFolder) -> QatResult:
        key = self._fingerprint() if self.world.first else {}
        finished = self._finished(folder, key) if self.world.first else None
        if self.world.agree(float(finished is not None)):
            return finished or QatResult(folder.path, {}, reused=True)
        if self.world.first:
            _refuse_start(folder, self.request.init)
            names = list(planned_names(control=self.request.control))
            folder.refuse_foreign(names)
            if folder.begin(key, names):
                self.progress.note(f"going on with the training that was interrupted in {folder.path}")
        self.world.wait()
        for note in (*self.origin.notes, self.splits.words):
            self.progress.note(note)
        ground = prepare_ground(self.request, self.origin, self.splits, folder, self.world, self.progress)
        coach = Coach(self.request, ground, self.origin, self.splits, self.world, folder.partial, self.progress)
        trained = coach.train("qat", make_settings(self.request, self.splits, self.world.size))
        control = coach.train("control", control_settings(trained), quantized=False) if self.request.control else None
        if not self.world.first:
            return QatResult(folder.path, {})
        return QatResult(folder.path, self._write(folder, key, ground, trained, control))

    def _fingerprint(self) -> dict[str, Any]:
        versions = {**library_versions(), "torch": _torch_version(), **backend_versions(self.request)}
        splits, start = self.splits, _start_digest(self.request.init)
        start = " ".join([start, *(f"--keep-float {pattern}" for pattern in layers_in_float(self.request.init))])
        asked = fingerprint(
            self.request, splits.train, splits.valid, self.origin.digest, versions, start, self.world.size
        )
        return {**asked, "content": content_digest(self._files)}

    @cached_property
    def _files(self) -> dict[str, bytes]:
        """Sha256 of the files that are trained and validated on, as they are before the work."""
        return hash_files(self.splits, self.request.workers or os.cpu_count() or 1, self.progress)

    def _finished(self, folder: BuildFolder, key: Mapping[str, Any]) -> QatResult | None:
        """A finished training of the same request; its file of curves is what was written then."""
        found = folder.finished({**key, "origin": dict(self.origin.digest), "model": self._model_of(folder)})
        if found is None:
            return None
        return QatResult(folder.path, json.loads((folder.path / TRAINING).read_bytes()), reused=True)

    def _model_of(self, folder: BuildFolder) -> Any:
        """Digests that a finished training recorded of its float network, which a factory's is exported for."""
        return (folder.provenance() or {}).get("request", {}).get("model")

    def _write(
        self,
        folder: BuildFolder,
        key: Mapping[str, Any],
        ground: Ground,
        trained: Trained,
        control: Trained | None,
    ) -> dict[str, Any]:
        """Bring the folder up to date; the provenance, which vouches for the rest, is written last."""
        request = self.request
        product = make_product(request, ground, trained, control)
        training = training_document(request, ground, self.splits, product, trained, control)
        images = hash_images(self.splits, self._files, validated=chooses(trained))
        folder.remove_outdated()
        written = list(write_networks(folder.path, folder.partial / FLOAT, product))
        ranges = ranges_of_training(ground.network.network, ground.start.amax, product)
        written += write_records(folder.path, ranges, training, images)
        recorded = {**key, "origin": dict(self.origin.digest), "model": dict(ground.network.digests)}
        document = provenance(recorded, ground, trained, images, control)
        self._report(folder, document, training, product, written)
        if fell(training):
            self.progress.warn(
                "the network ended below its start on the validation images: lower --lr, or train longer"
            )
        document["outputs"] = {item.name: item.sha256 for item in written}
        document["times"] = {"started": self.started, "finished": now()}
        data = json_bytes(document)
        write_atomic(folder.path / STATEMENT, json_bytes(make_statement(document, {PROVENANCE: sha256_bytes(data)})))
        write_atomic(folder.path / PROVENANCE, data)
        folder.end()
        return training

    def _report(
        self,
        folder: BuildFolder,
        document: Mapping[str, Any],
        training: Mapping[str, Any],
        product: Product,
        written: list[Written],
    ) -> None:
        page = render_training_report(self.request, training, product, document, written)
        write_atomic(folder.path / REPORT, page)
        written.append(describe_file(folder.path / REPORT, "the report to look at"))


def _refuse_start(folder: BuildFolder, init: str | None) -> None:
    """Refuse to write over what the training starts from, or over any other build.

    Raises:
        UsageError: the output is such a folder.
    """
    if init is not None and Path(init).exists() and Path(init).resolve() == folder.path.resolve():
        raise UsageError(
            f"-o {folder.path}",
            expected="a folder of its own for the training",
            got="the folder that --init names",
            remedy="choose another folder with -o",
        )
    folder.refuse_other_kind(training=True)


def chooses(trained: Trained) -> bool:
    """Whether the validation images decided anything: which step is kept, or when training stopped."""
    return trained.settings.keep == "best" or bool(trained.settings.patience)


def _start_digest(init: str | None) -> str:
    """Fingerprint of the ranges to start from."""
    if init is None:
        return ""
    path = Path(init)
    file = path / RANGES if path.is_dir() else path
    return sha256_file(file) if file.is_file() else ""


def _torch_version() -> str:
    import torch

    return str(torch.__version__)
