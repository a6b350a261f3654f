"""What the gate was asked to check."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class VerifyRequest:
    """The arguments of a verification.

    Attributes:
        folder: build folder.
        model: ONNX file of the float network that is to be released.
        data: manifest, list file or name of a shipped manifest; None leaves images and preprocessing unchecked.
        split: split that was calibrated on; None for the recorded one.
        evaluation_split: split that accuracy is measured on; None for the recorded one.
        root: overrides the manifest's root.
        preprocess: overrides the manifest's preprocessing.
        max_drop: the gate's limits in IoU points; empty for no accuracy check.
        gate_by: ``value`` judges the measured loss, ``interval`` the far end of its interval.
        evaluation: stored evaluation; None for ``evaluation.json`` in or below the folder.
        fresh: evaluate now instead of reading a stored evaluation.
        variant: calibrator whose accuracy is judged; None for the release artifact's.
        key: public key that the build must be signed with; None for none.
        trt_version: TensorRT version the build is to be used with; None for the installed one, if any.
        max_age: days that a build may be old; None for any age.
        replay: calibration images to run through the network again, or ``all``: their values are held against the
            recorded ones.
        workers: images in flight; None for one a core.
    """

    folder: Path
    model: Path
    data: str | None = None
    split: str | None = None
    evaluation_split: str | None = None
    root: str | None = None
    preprocess: str | None = None
    max_drop: str = ""
    gate_by: Literal["value", "interval"] = "value"
    evaluation: Path | None = None
    fresh: bool = False
    variant: str | None = None
    key: Path | None = None
    trt_version: str | None = None
    max_age: float | None = None
    replay: int | Literal["all"] = 2
    workers: int | None = None
