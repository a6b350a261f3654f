"""A build folder: its files, what is unfinished in it, and how it is brought up to date, never half-written."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from calib.core.gate.provenance import is_training
from calib.core.statfile import pack, unpack
from calib.edges.files import make_output_folder, output_errors, sha256_file, write_atomic
from calib.edges.folderlock import LOCK, sole_writer
from calib.errors import FormatError, OutputError, UsageError
from calib.stages.collect import Collected

PARTIAL = ".partial"
PROVENANCE = "provenance.json"
STATEMENT = "provenance.intoto.json"
ENVELOPE = "provenance.dsse.json"
VOUCHERS = (PROVENANCE, STATEMENT, ENVELOPE)
"""Files that vouch for the others and so are not listed among the outputs."""
EVALUATION = "evaluation.json"
TRAINING = "training.json"
RELEASE = "calibration.cache"
REPORT = "report.html"
STATISTICS = "statistics.npz"
REQUEST = "request.json"
SUFFIXES = frozenset({".cache", ".data", ".html", ".json", ".jsonl", ".npz", ".onnx"})
"""Of the files that builds write."""


def is_output(folder: Path, address: str) -> bool:
    """Whether a file is one that builds write into a folder, by its place and suffix."""
    path = Path(address)
    return path.suffix in SUFFIXES and path.parent.resolve() == folder.resolve()


class BuildFolder:
    """The output folder of a build.

    Finished files lie in the folder; what an interrupted build needs to go on lies in ``.partial``, together with the
    request it belongs to.

    Args:
        path: the folder; created if it is missing.

    Raises:
        OutputError: it cannot be created or written.
    """

    def __init__(self, path: Path) -> None:
        self.path = make_output_folder(path)
        self.partial = path / PARTIAL

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Keep other builds out of the folder while the block runs; a process that dies lets go.

        Raises:
            OutputError: another build is at work in it.
        """
        return sole_writer(self.partial)

    def refuse_foreign(self, names: Iterable[str]) -> None:
        """Refuse to overwrite files that no build wrote.

        Args:
            names: files that are going to be written.

        Raises:
            OutputError: one of them is there, and neither a finished nor an interrupted build accounts for it.
        """
        ours = {*self._outputs(), *self._interrupted().get("writes", [])}
        foreign = [name for name in names if name not in ours and (self.path / name).exists()]
        if foreign:
            raise OutputError(
                str(self.path / foreign[0]),
                expected="a folder without files of other origin under the names of a build's",
                got=f"{len(foreign)} that no build accounts for: {', '.join(foreign[:3])}",
                remedy="choose another folder with -o, or move them away",
            )

    def refuse_other_kind(self, *, training: bool) -> None:
        """Refuse to bring a build up to date as a training, or a training as a build, which would remove its files.

        Args:
            training: whether a training is to be written.

        Raises:
            UsageError: the folder holds the other kind, finished or interrupted.
        """
        found, begun = self.provenance(), self._interrupted().get("writes", [])
        kinds = {is_training(found)} if found is not None else set()
        kinds |= {TRAINING in begun} if begun else set()
        if (not training) in kinds:
            raise UsageError(
                f"-o {self.path}",
                expected=f"a folder of its own for the {'training' if training else 'build'}",
                got=f"the folder of a {'build' if training else 'training'}, whose files would be removed",
                remedy="choose another folder with -o",
            )

    def finished(self, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """The provenance of a finished build of the same request whose files are all as they were written, or None.

        The statement beside the provenance must be there; it may have been written anew by ``calib sign``.
        """
        provenance = self.provenance()
        if provenance is None or provenance.get("request") != request or not (self.path / STATEMENT).is_file():
            return None
        for name, digest in provenance.get("outputs", {}).items():
            file = self.path / name
            if not file.is_file() or sha256_file(file) != digest:
                return None
        return provenance

    def provenance(self) -> dict[str, Any] | None:
        """What ``provenance.json`` holds, or None where there is none or it is damaged."""
        try:
            found = json.loads((self.path / PROVENANCE).read_bytes())
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def begin(self, request: Mapping[str, Any], names: Iterable[str]) -> bool:
        """Prepare ``.partial`` for a request.

        Args:
            request: everything that unfinished work depends on.
            names: files that are going to be written.

        Returns:
            whether an interrupted build of the same request is there to go on from. What one of another request left
            unfinished is removed.
        """
        before = self._interrupted()
        resumable = before.get("request") == request
        for path in () if resumable else self.partial.iterdir():
            if path.name not in (LOCK, REQUEST):  # the request goes last: it accounts for what was written already
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        document = {"request": request, "writes": sorted({*names, *before.get("writes", [])})}
        write_atomic(self.partial / REQUEST, json.dumps(document, indent=2, sort_keys=True).encode())
        return resumable

    def _interrupted(self) -> dict[str, Any]:
        """What the interrupted build in this folder noted at its begin; empty where there is none."""
        try:
            found = json.loads((self.partial / REQUEST).read_bytes())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def save_statistics(self, collected: Collected, digests: Mapping[str, str], step: str) -> None:
        """Keep a checkpoint of the collection.

        Args:
            collected: what is counted so far.
            digests: sha256 of each image.
            step: names this step of the collection.
        """
        images = {key: digests[key] for key in sorted(collected.images)}
        write_atomic(self._checkpoint(step), pack(collected.statistics, {"images": images}))

    def load_statistics(self, digests: Mapping[str, str], step: str) -> Collected | None:
        """The checkpoint of a step, or None where there is none, or it counts an image that is not wanted any more.

        Args:
            digests: sha256 of each wanted image.
            step: as it was saved.
        """
        file = self._checkpoint(step)
        try:
            statistics, about = unpack(file.read_bytes(), str(file))
        except (OSError, FormatError):
            return None
        images = about.get("images", {})
        if any(digests.get(key) != digest for key, digest in images.items()):
            return None
        return Collected(frozenset(images), statistics)

    def finished_statistics(self, collection: Mapping[str, Any], digests: Mapping[str, str]) -> Collected | None:
        """Statistics of a finished build that counted exactly the wanted images in the same way, or None.

        Args:
            collection: everything that the statistics depend on besides the images.
            digests: sha256 of each wanted image.
        """
        provenance = self.provenance() or {}
        request, file = provenance.get("request", {}), self.path / STATISTICS
        same = all(request.get(key) == value for key, value in collection.items())
        if not same or provenance.get("images") != dict(digests) or not file.is_file():
            return None
        if sha256_file(file) != provenance.get("outputs", {}).get(STATISTICS):
            return None
        statistics, _ = unpack(file.read_bytes(), str(file))
        return Collected(frozenset(digests), statistics)

    def _checkpoint(self, step: str) -> Path:
        return self.partial / f"statistics-{step}.npz"

    def remove_outdated(self) -> None:
        """Remove what earlier builds wrote, the provenance first, so that two builds are never mixed up."""
        for name in (*VOUCHERS, *self._outputs(), *self._interrupted().get("writes", [])):
            with output_errors(self.path / name):
                (self.path / name).unlink(missing_ok=True)

    def _outputs(self) -> list[str]:
        """Files of the finished build that is here."""
        found = self.provenance()
        names = [] if found is None else [*VOUCHERS, *found.get("outputs", {})]
        return [name for name in names if Path(name).name == name]

    def end(self) -> None:
        """Remove what only an unfinished build needs."""
        shutil.rmtree(self.partial, ignore_errors=True)
