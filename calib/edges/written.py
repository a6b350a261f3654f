"""Files of a result folder, as its report and its provenance list them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from calib.edges.files import sha256_file
from calib.edges.models import save_model


@dataclass(frozen=True)
class Written:
    """A file of a result folder: name, sha256 as hex, size in bytes, what it is for."""

    name: str
    sha256: str
    size: int
    purpose: str


def json_bytes(document: Any) -> bytes:
    """Indented JSON with a final newline, the same bytes for the same document."""
    return (json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def describe_file(path: Path, purpose: str) -> Written:
    """Hash a written file."""
    return Written(path.name, sha256_file(path), path.stat().st_size, purpose)


def save_described(path: Path, model: onnx.ModelProto, purpose: str) -> Iterator[Written]:
    """Write a network, and describe its file and that of its weights, where they are too large for one."""
    save_model(model, path)
    yield describe_file(path, purpose)
    weights = path.with_name(f"{path.name}.data")
    if weights.exists():
        yield describe_file(weights, f"weights of {path.name}")
