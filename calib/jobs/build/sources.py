"""The float networks a build calibrates: the one given, and its equalized twin where a calibrator asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import onnx

from calib.core.graph import Network, analyse
from calib.core.plan import PlacementOptions, Target
from calib.stages.equalize import equalize
from calib.stages.floatlayers import FLAG, find_float_layers
from calib.stages.foldnorms import fold_norms
from calib.stages.placement import DEFAULTS
from calib.stages.ranges import BoundCalibrator
from calib.types.progress import Progress

EQUALIZED = "equalized"


@dataclass(frozen=True)
class Source:
    """A float network and the calibrators that work on it.

    Attributes:
        tag: empty for the network as given, ``equalized`` for its twin.
        model: the network.
        network: its analysis.
        calibrators: at least one.
        placement: where its Q/DQ pairs may go.
    """

    tag: str
    model: onnx.ModelProto
    network: Network
    calibrators: tuple[BoundCalibrator, ...]
    placement: PlacementOptions = DEFAULTS

    @property
    def file_name(self) -> str | None:
        """Name under which the network is written to the build folder; None for the user's own."""
        return f"{self.tag}.float.onnx" if self.tag else None


def make_sources(
    model: onnx.ModelProto, network: Network, calibrators: Sequence[BoundCalibrator], progress: Progress
) -> tuple[Source, ...]:
    """Group the calibrators by the network they work on, the network as given first.

    An equalized network computes what the original does, on channels of more equal range. It is calibrated by a pass of
    its own, because no statistics of the original say how the rescaled values are distributed. Batch normalisation is
    folded into the layers first: it would stand between them.

    Args:
        model: the float network.
        network: its analysis.
        calibrators: those with ``equalize=true`` work on the twin.
        progress: is told what was equalized.

    Raises:
        ModelError: a weight holds NaN or infinity.
    """
    plain = tuple(item for item in calibrators if not item.arguments.get("equalize"))
    twins = tuple(item for item in calibrators if item.arguments.get("equalize"))
    sources = [Source("", model, network, plain)] if plain else []
    if twins:
        result = equalize(fold_norms(model).model)
        progress.note(f"equalized {len(result.pairs)} pairs of layers; {len(result.skipped)} layers have no such pair")
        sources.append(Source(EQUALIZED, result.model, analyse(result.model), twins))
    return tuple(sources)


def keep_float(
    sources: Sequence[Source], patterns: Sequence[str], target: Target, progress: Progress
) -> tuple[Source, ...]:
    """Keep layers in float, by patterns of their names.

    Args:
        sources: the networks.
        patterns: as :func:`calib.stages.floatlayers.find_float_layers` takes them.
        target: whose placement rules apply.
        progress: is told which patterns change nothing.

    Raises:
        UsageError: a pattern names nothing.
    """
    found = [find_float_layers(source.model, patterns, target) for source in sources]
    for pattern in found[0].idle:
        progress.note(f"{FLAG} {pattern}: in float anyway")
    return tuple(replace(source, placement=item.options()) for source, item in zip(sources, found, strict=True))
