"""The build folder and the network under verification, as far as they can be read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import onnx

from calib.core.gate.provenance import EDITED, REBUILD, check_agreement, check_shape, is_plain_name
from calib.core.graph import Network, analyse
from calib.edges.builddir import PROVENANCE
from calib.edges.files import sha256_file
from calib.edges.models import load_model
from calib.edges.provenance import model_digest
from calib.errors import UsageError
from calib.jobs.verify.request import VerifyRequest
from calib.types.gate import Check, few

LARGEST_PROVENANCE = 256 << 20


@dataclass(frozen=True)
class Subject:
    """A build folder with readable provenance, and the network it is held against.

    Attributes:
        folder: the build folder.
        provenance: of the right shape.
        model: the float network.
        digests: sha256 of the network's files by name.
    """

    folder: Path
    provenance: Mapping[str, Any]
    model: onnx.ModelProto
    digests: Mapping[str, str]

    @property
    def request(self) -> Mapping[str, Any]:
        """What the build was asked to do."""
        found: Mapping[str, Any] = self.provenance["request"]
        return found

    @property
    def labels(self) -> list[str]:
        """Names of the calibrators, the release artifact's first."""
        return [item["name"] for item in self.provenance["calibrators"]]

    @property
    def evaluation_split(self) -> str | None:
        """Split that the build was measured on, or kept apart for that."""
        return self.request.get("evaluate") or self.request.get("evaluation_split")

    @property
    def same_model(self) -> bool:
        """Whether the network is, byte for byte, the one that was calibrated; its file may have another name."""
        return sorted(self.digests.values()) == sorted(self.request["model"].values())

    @cached_property
    def network(self) -> Network:
        """The network's analysis."""
        return analyse(self.model)


def read_subject(request: VerifyRequest) -> tuple[Subject | None, list[Check]]:
    """Read provenance and network.

    Returns:
        the subject, or None where the provenance cannot be used; and what was checked of the provenance.

    Raises:
        UsageError: the folder is no build folder.
        ModelError: the network cannot be read.
    """
    file = request.folder / PROVENANCE
    if not file.is_file():
        got = "no such folder" if not request.folder.exists() else f"no {PROVENANCE} in it"
        raise UsageError(
            str(request.folder),
            expected="a build folder",
            got=got,
            remedy="name the folder that `calib build -o` wrote",
        )
    model = load_model(request.model)
    document = _parse(file)
    if document is None:
        return None, [Check("provenance", "fail", f"{PROVENANCE} is cut short or no JSON", REBUILD)]
    shape = check_shape(document)
    if shape.status != "pass":
        return None, [shape]
    subject = Subject(request.folder, document, model, model_digest(request.model))
    return subject, [shape, *check_agreement(document)]


def _parse(file: Path) -> Any:
    if file.stat().st_size > LARGEST_PROVENANCE:
        return None
    try:
        return json.loads(file.read_bytes())
    except (ValueError, RecursionError, OSError):
        return None


def check_files(subject: Subject) -> list[Check]:
    """Compare every output's hash with the recorded one."""
    outputs = subject.provenance["outputs"]
    checks = [found for name, digest in outputs.items() if (found := _check_file(subject.folder, name, digest))]
    if not checks:
        checks.append(Check("files", "pass", f"{len(outputs)} files as they were built"))
    checks += _check_evaluation(subject)
    strangers = _strangers(subject.folder, outputs)
    if strangers:
        detail = f"not of this build, and not vouched for: {few(strangers)}"
        checks.append(Check("files", "note", detail, "release only files that provenance.json lists"))
    return checks


def _check_evaluation(subject: Subject) -> list[Check]:
    """Compare the evaluation that the release was chosen by, where there was one, with its recorded hash."""
    record = subject.provenance.get("evaluation")
    if record is None:
        return []
    path = subject.folder / record["file"]
    inside = path.resolve().is_relative_to(subject.folder.resolve())
    if inside and path.is_file() and sha256_file(path) == record["sha256"]:
        return [Check("evaluation", "pass", f"{record['file']} as it was when the release was chosen by it")]
    detail = f"{record['file']}, which the release was chosen by, was changed or is missing"
    return [Check("evaluation", "fail", detail, f"write further evaluations elsewhere; {REBUILD}")]


def _check_file(folder: Path, name: str, digest: str) -> Check | None:
    if not is_plain_name(name):
        return Check(f"file {name!r}", "fail", "lies outside the folder", EDITED)
    path = folder / name
    try:
        if path.is_symlink() or not path.is_file():
            found = "is a link" if path.is_symlink() else "is a folder" if path.is_dir() else "is missing"
            return Check(f"file {name}", "fail", found, REBUILD)
        if sha256_file(path) != digest:
            return Check(
                f"file {name}", "fail", "was changed after the build: its sha256 is not the recorded one", REBUILD
            )
    except OSError as error:
        return Check(f"file {name}", "fail", f"cannot be read: {error.strerror}", "check its permissions")
    return None


def _strangers(folder: Path, outputs: Mapping[str, str]) -> Sequence[str]:
    endings = (".cache", ".qdq.onnx")
    return sorted(item.name for item in folder.iterdir() if item.name.endswith(endings) and item.name not in outputs)


def check_model(subject: Subject) -> Check:
    """Compare the network with the one that was calibrated."""
    if subject.same_model:
        return Check("model", "pass", "the network that was calibrated, byte for byte")
    recorded, given = subject.request["model"], subject.digests
    changed = [name for name, digest in given.items() if digest not in recorded.values()]
    detail = f"not the network that was calibrated: {few(changed)} differs" if changed else "files of it are missing"
    return Check(
        "model",
        "fail",
        f"{detail}; a cache holds ranges of one set of weights only",
        "build again with this network, or release the one the folder was built from",
    )
