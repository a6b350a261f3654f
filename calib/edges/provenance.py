"""Where a build came from: hashes, parameters, versions, host."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import onnx

from calib import __version__
from calib.core.graph.structure import all_tensors
from calib.edges.files import sha256_file

LIBRARIES = ("numpy", "onnx", "onnx-ir", "onnxruntime", "onnxruntime-gpu", "opencv-python-headless", "numba")


def model_digest(path: Path) -> dict[str, str]:
    """Sha256 of a model file and of every external data file it names, by file name."""
    model = onnx.load_model(path, format="protobuf", load_external_data=False)
    names = {path.name: path}
    for tensor in _external_tensors(model):
        location = next((entry.value for entry in tensor.external_data if entry.key == "location"), None)
        if location:
            names[location] = path.parent / location
    return {name: sha256_file(file) for name, file in sorted(names.items())}


def _external_tensors(model: onnx.ModelProto) -> Iterable[onnx.TensorProto]:
    return (tensor for tensor in all_tensors(model) if tensor.data_location == onnx.TensorProto.EXTERNAL)


def sha256_bytes(data: bytes) -> str:
    """Hash bytes; hex digest."""
    return hashlib.sha256(data).hexdigest()


def library_versions() -> dict[str, str]:
    """Versions of Python, this project and what it computes with."""
    found = {"python": platform.python_version(), "calib": __version__}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def host() -> dict[str, Any]:
    """The machine a build ran on."""
    return {"system": platform.platform(), "machine": platform.machine(), "cores": os.cpu_count()}


def now() -> str:
    """The time, ISO 8601, UTC, whole seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")
