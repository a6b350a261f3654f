"""INT8 calibration and quantization workbench for segmentation networks on TensorRT."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_API = {
    "BuildRequest": "calib.jobs.build",
    "EvaluateRequest": "calib.jobs.evaluate",
    "build": "calib.jobs.build",
    "evaluate": "calib.jobs.evaluate",
    "scan": "calib.jobs.scan",
    "sample": "calib.jobs.sample",
}
"""Public names and where they live; imported on first use, so that ``import calib`` costs nothing."""

__all__ = ["BuildRequest", "EvaluateRequest", "__version__", "build", "evaluate", "sample", "scan"]


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in _API:
        raise AttributeError(f"module 'calib' has no attribute {name!r}")
    return getattr(import_module(_API[name]), name)
