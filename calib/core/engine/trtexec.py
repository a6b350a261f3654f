"""The trtexec command that builds what ``calib engine`` would, for TensorRT 10 and 11."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from calib.core.engine.shapes import ShapeRange, text_of

UNSPEAKABLE = frozenset(",'")
"""Characters of names that trtexec's option syntax cannot carry."""


@dataclass(frozen=True)
class EngineFiles:
    """Files of an engine build, as paths.

    Attributes:
        model: float network for TensorRT 10, Q/DQ network for TensorRT 11.
        engine: what is built.
        layer_info: JSON of the engine's layers.
        profile: JSON of their times.
        timing_cache: kept from build to build; None for none.
        cache: calibration cache; None for TensorRT 11.
    """

    model: str
    engine: str
    layer_info: str
    profile: str
    timing_cache: str | None = None
    cache: str | None = None


@dataclass(frozen=True)
class TrtexecCommand:
    """A command line and what it cannot do.

    Attributes:
        major: TensorRT's major version.
        words: the command, a word an item.
        notes: what differs from what calib would do.
    """

    major: int
    words: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The command, quoted for a shell."""
        return shlex.join(self.words)

    @property
    def options(self) -> list[str]:
        """Names of the options it uses."""
        return [word.partition("=")[0] for word in self.words if word.startswith("--")]


def command_for_10(
    files: EngineFiles, shapes: Mapping[str, ShapeRange], precisions: Mapping[str, str], *, fp16: bool
) -> TrtexecCommand:
    """Build from the float network and a calibration cache.

    Args:
        files: with a cache.
        shapes: of the inputs that leave lengths open.
        precisions: layers to keep in float, to ``fp16`` or ``fp32``.
        fp16: whether the other float layers may run in FP16.
    """
    sayable = {name: kind for name, kind in precisions.items() if not UNSPEAKABLE & set(name)}
    words = [f"--onnx={files.model}", "--int8", *(["--fp16"] if fp16 else []), f"--calib={files.cache}"]
    if sayable:
        pairs = ",".join(f"{name}:{kind}" for name, kind in sayable.items())
        words += ["--precisionConstraints=obey", f"--layerPrecisions={pairs}"]
    notes = []
    left = sorted(set(precisions) - set(sayable))
    if left:
        notes.append(f"trtexec's syntax cannot name these layers, which should stay in float: {', '.join(left)}")
    notes.append("trtexec calibrates on noise, without a word, where the cache is missing or its header does not match")
    notes += _unsayable(shapes)
    return TrtexecCommand(10, ("trtexec", *words, *_shape_words(shapes), *_common(files)), tuple(notes))


def command_for_11(files: EngineFiles, shapes: Mapping[str, ShapeRange]) -> TrtexecCommand:
    """Build from the Q/DQ network, whose types are the engine's."""
    words = ("trtexec", f"--onnx={files.model}", *_shape_words(shapes), *_common(files))
    return TrtexecCommand(11, words, tuple(_unsayable(shapes)))


def _unsayable(shapes: Mapping[str, ShapeRange]) -> list[str]:
    names = [name for name in shapes if UNSPEAKABLE & set(name)]
    return (
        [f"trtexec's syntax cannot name these inputs: {', '.join(names)}; rename them in the network"] if names else []
    )


def _shape_words(shapes: Mapping[str, ShapeRange]) -> list[str]:
    if not shapes:
        return []
    sides = {
        "--minShapes": {name: item.low for name, item in shapes.items()},
        "--optShapes": {name: item.opt for name, item in shapes.items()},
        "--maxShapes": {name: item.high for name, item in shapes.items()},
    }
    return [
        f"{flag}=" + ",".join(f"{name}:{text_of(shape)}" for name, shape in side.items())
        for flag, side in sides.items()
    ]


def _common(files: EngineFiles) -> list[str]:
    timing = [] if files.timing_cache is None else [f"--timingCacheFile={files.timing_cache}"]
    return [
        *timing,
        "--profilingVerbosity=detailed",
        f"--exportLayerInfo={files.layer_info}",
        f"--exportProfile={files.profile}",
        f"--saveEngine={files.engine}",
    ]
