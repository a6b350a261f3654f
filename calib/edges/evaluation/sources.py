"""What the MODEL arguments of ``calib evaluate`` mean: ONNX files, build folders, engines, Python factories."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from calib.core.printable import printable
from calib.edges.builddir import PROVENANCE
from calib.errors import FormatError, ModelError, UsageError

Kind = Literal["onnx", "engine", "factory"]
QDQ = ".qdq.onnx"
ENGINES = frozenset({".engine", ".plan", ".trt"})
ENGINE_MAGIC = (b"ptrt", b"ftrt")
SELECTION = "selection.jsonl"
TRAINED = "training"
"""Key of a provenance that only ``calib qat`` writes."""
CONTROL = "control.onnx"
"""Files that only ``calib qat`` writes: its record, and the float network fine-tuned to compare with."""
_FACTORY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


@dataclass(frozen=True)
class Source:
    """A network to evaluate.

    Attributes:
        name: unique among the networks of an evaluation.
        address: as given, or the file inside the build folder.
        kind: ``onnx``, ``engine`` or ``factory``.
        folder: the build folder it belongs to, or None.
    """

    name: str
    address: str
    kind: Kind
    folder: Path | None = None


@dataclass(frozen=True)
class Calibration:
    """What a build folder was calibrated on.

    Attributes:
        folder: the build folder.
        images: key to sha256.
        network: sha256 of the float network, by file name.
        provenance: what ``provenance.json`` holds.
    """

    folder: Path
    images: dict[str, str]
    network: dict[str, str]
    provenance: dict[str, Any]


def find_sources(models: Sequence[str], reference: str | None) -> tuple[Source, ...]:
    """Resolve the MODEL arguments; the reference, if there is one, comes first.

    A network that is named twice is evaluated once, except that two files of the same content are two networks.

    Raises:
        UsageError: nothing is given, or the reference means several networks.
        ModelError: a file is missing, or a folder is no build folder.
    """
    found = [source for text in models for source in _resolve(text)]
    if reference is not None:
        first = _resolve(reference)
        if len(first) != 1:
            raise UsageError(
                f"--reference {reference}", expected="one network", got=f"a folder with {len(first)}",
                remedy="name one of its .qdq.onnx files, or the float network",
            )  # fmt: skip
        found = [*first, *(source for source in found if _same(source) != _same(first[0]))]
    if not found:
        raise UsageError("MODEL", expected="at least one network", got="none", remedy="name an ONNX file or a folder")
    unique: dict[str, Source] = {}
    for source in found:
        unique.setdefault(_same(source), source)
    return _named(unique.values())


def read_calibration(folder: Path) -> Calibration:
    """Read what a build folder was calibrated on.

    Raises:
        FormatError: its selection or provenance cannot be read.
    """
    try:
        provenance = json.loads((folder / PROVENANCE).read_bytes())
        lines = (folder / SELECTION).read_bytes().splitlines()
        images = {entry["image"]: entry["sha256"] for entry in map(json.loads, filter(None, lines))}
        network = dict(provenance.get("request", {}).get("model", {}))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(
            str(folder),
            expected=f"{PROVENANCE} and {SELECTION} as `calib build` wrote them",
            got=f"{type(error).__name__}: {error}",
            remedy="build again; without them nobody can tell what was calibrated on",
        ) from error
    return Calibration(folder, images, network, provenance)


def _resolve(text: str) -> list[Source]:
    path = Path(text)
    if path.is_dir():
        return _variants(path)
    if not path.exists() and _FACTORY.fullmatch(text):
        return [Source(".".join(text.rpartition(".")[2].split(":")), text, "factory")]
    if path.suffix.lower() in ENGINES or _starts_as_engine(path):
        return [Source(path.stem, text, "engine")]
    if not path.exists():
        raise ModelError(
            text,
            expected="an ONNX file, a build folder, a TensorRT engine or module:factory",
            got="no such file or folder",
            remedy="check the path; a factory is written package.module:function",
        )
    of_folder = path.name.endswith(QDQ) or path.name == CONTROL
    folder = path.parent if of_folder and (path.parent / PROVENANCE).is_file() else None
    return [Source(_stem(path), text, "onnx", folder)]


def _variants(folder: Path) -> list[Source]:
    """Every Q/DQ network of a build folder, in the order of its calibrators; then the control of a training."""
    files = sorted(folder.glob(f"*{QDQ}"))
    if not files:
        raise ModelError(
            str(folder), expected=f"a build folder with *{QDQ} files", got="none in it",
            remedy="make it with `calib build`, or name an ONNX file",
        )  # fmt: skip
    if not (folder / PROVENANCE).is_file():
        return [Source(_stem(path), str(path), "onnx") for path in files]
    provenance = read_calibration(folder).provenance
    order = [item.get("name") for item in provenance.get("calibrators", [])]
    ranked = sorted(files, key=lambda path: (order.index(_stem(path)) if _stem(path) in order else len(order), path))
    control = folder / CONTROL
    ranked += [control] if TRAINED in provenance and control.is_file() else []
    return [Source(_stem(path), str(path), "onnx", folder) for path in ranked]


def _stem(path: Path) -> str:
    name = path.name
    return name[: -len(QDQ)] if name.endswith(QDQ) else path.stem


def _starts_as_engine(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(4) in ENGINE_MAGIC
    except OSError:
        return False


def _same(source: Source) -> str:
    return source.address if source.kind == "factory" else str(Path(source.address).resolve())


def _named(sources: Iterable[Source]) -> tuple[Source, ...]:
    """Make names unique: by the whole file name, by the folder where that tells them apart, else by numbers.

    A calibrator's network keeps the calibrator's name beside a ``minmax.onnx`` of another kind.
    """
    listed = [replace(source, name=printable(source.name)) for source in sources]
    for renamed in (_by_file, _by_folder):
        counts = Counter(source.name for source in listed)
        listed = [renamed(source) if counts[source.name] > 1 else source for source in listed]
    taken: Counter[str] = Counter()
    for place, source in enumerate(listed):
        taken[source.name] += 1
        if taken[source.name] > 1:
            listed[place] = replace(source, name=f"{source.name}-{taken[source.name]}")
    return tuple(listed)


def _by_file(source: Source) -> Source:
    name = printable(Path(source.address).name)
    return source if source.kind == "factory" or name.endswith(QDQ) else replace(source, name=name)


def _by_folder(source: Source) -> Source:
    if source.kind == "factory":
        return source
    return replace(source, name=f"{printable(Path(source.address).resolve().parent.name)}/{source.name}")
