"""What an engine build was asked to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

EngineTarget = Literal["trt10", "trt11"]
MAJORS: dict[EngineTarget, int] = {"trt10": 10, "trt11": 11}


@dataclass(frozen=True)
class EngineRequest:
    """The arguments of an engine build.

    Attributes:
        folder: build folder.
        target: ``trt10`` builds from the float network and the cache, ``trt11`` from the Q/DQ network.
        model: float network; needed for ``trt10``, unless the variant has an equalized one of its own.
        output: engine file; None for one in the folder.
        variant: calibrator; None for the release artifact's.
        native: let TensorRT 10 calibrate on the build's images in place of reading the cache.
        data: manifest of the images, for ``native``.
        root: overrides the manifest's root.
        preprocess: overrides the manifest's preprocessing.
        shapes: ``NAME:1x3x352x480`` or ``NAME:MIN/OPT/MAX`` for inputs that leave lengths open.
        fp16: whether layers that are not INT8 run in FP16.
        timing_cache: kept from build to build; None for one beside the engine.
        print_only: print the trtexec command and build nothing.
    """

    folder: Path
    target: EngineTarget
    model: Path | None = None
    output: Path | None = None
    variant: str | None = None
    native: bool = False
    data: str | None = None
    root: str | None = None
    preprocess: str | None = None
    shapes: Sequence[str] = ()
    fp16: bool = True
    timing_cache: Path | None = None
    print_only: bool = False
