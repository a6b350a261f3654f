"""What a build report shows: plain frozen values, every section optional.

A job fills a :class:`BuildReport` from what its stages answered; :func:`calib.edges.report.page.render_build_report`
turns it into one HTML file. Nothing here opens a file or computes a statistic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from calib.types.statistics import DynamicRange, TensorStatistics

Level = Literal["error", "warning", "info"]
Status = Literal["int8", "fused", "follows", "float"]

DEAD = "dead"
NEVER_OBSERVED = "never observed"
DERIVED = "derived"
CONSTANT = "constant"
FLOORED = "floored"
PLAIN_FLAGS = frozenset({DERIVED})
"""Flags that state where a range comes from and are no reason to worry."""


@dataclass(frozen=True)
class Notice:
    """Something the reader must know before relying on the result.

    Attributes:
        level: ``error`` where the result must not be used as it is, ``warning`` to look at, ``info`` to know.
        title: one line.
        detail: what it means and what to do; may be empty.
        section: id of the section with the evidence (``images``, ``ranges``, ``placement``, ``amount``,
            ``provenance``), or empty.
        about: what kind of finding it is. The report derives notices of the kinds ``dead``, ``never observed``,
            ``constant``, ``non-finite``, ``missing``, ``concat``, ``dead channels``, ``float`` and ``opset`` from its
            sections; a notice given with one of these replaces the derived one.
    """

    level: Level
    title: str
    detail: str = ""
    section: str = ""
    about: str = ""


@dataclass(frozen=True)
class Subject:
    """What was built, for the header.

    Attributes:
        model: file name of the network.
        data: name of the manifest.
        split: split the images came from.
        samplers: sampler specs as given, empty when every image was taken.
        images: number of images calibrated on.
        population: number of images in the split.
        calibrators: names in the order of the report; the first is the release artifact's.
        tensorrt: version the cache is headed for, for example ``10.14.1``; empty without a cache.
        version: version of calib.
        artifact: file name of the release artifact; empty when none was written.
    """

    model: str
    data: str
    split: str
    samplers: tuple[str, ...]
    images: int
    population: int
    calibrators: tuple[str, ...]
    tensorrt: str
    version: str
    artifact: str


@dataclass(frozen=True)
class Distribution:
    """How the chosen set and the population spread over one score.

    Attributes:
        name: what is measured, for people (``Light: mean luma``).
        population: amount in each bin or class (a count or a share; shown as share of its sum).
        selection: the same for the chosen images.
        edges: bin edges, one more than bins, ascending; empty for named classes.
        labels: names of the bins; empty for numeric bins.
        unit: unit of the edges, or what a share is a share of.
        note: one sentence on how to read it.
    """

    name: str
    population: tuple[float, ...]
    selection: tuple[float, ...]
    edges: tuple[float, ...] = ()
    labels: tuple[str, ...] = ()
    unit: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        """Check that the lengths agree.

        Raises:
            ValueError: they do not.
        """
        bins = len(self.edges) - 1 if self.edges else len(self.labels)
        if not len(self.population) == len(self.selection) == bins:
            raise ValueError(
                f"distribution {self.name!r}: {bins} bins, {len(self.population)} population values, "
                f"{len(self.selection)} selection values"
            )


@dataclass(frozen=True)
class Thumbnail:
    """One image of the calibration set.

    Attributes:
        key: the image's key in the manifest.
        picture: an encoded JPEG, PNG or WebP, or empty when none is to be shown.
        rank: place in the selection, from 1.
        sampler: the sampler that chose it.
        score: the score it was chosen by.
        scores: further scores to show, by short name (``luma``, ``small objects``).
    """

    key: str
    picture: bytes
    rank: int
    sampler: str = ""
    score: float | None = None
    scores: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ImagesSection:
    """What was calibrated on.

    Attributes:
        distributions: light, scale, classes, in this order by custom.
        thumbnails: pictures of the chosen images; may be fewer than were chosen.
        notes: what the samplers had to say (shortages, dropped duplicates).
    """

    distributions: tuple[Distribution, ...] = ()
    thumbnails: tuple[Thumbnail, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class RangeCell:
    """One calibrator's answer for one tensor: half-width ``amax`` and the share of values beyond it, 0..1."""

    amax: float
    clipped: float


@dataclass(frozen=True)
class TensorRow:
    """A tensor of the network with its statistics and every calibrator's range.

    Attributes:
        name: tensor name in the ONNX graph; any text.
        op: operator that makes it, or ``input``.
        count: finite values seen; 0 means never observed.
        minimum: smallest value; not finite when never observed.
        maximum: largest value; not finite when never observed.
        bins: int64 counts of ``|x|``, bin ``k`` is ``[k * 2**exponent, (k+1) * 2**exponent)``; may be empty.
        exponent: log2 of the bin width.
        ranges: calibrator name to its range; a calibrator may be missing.
        flags: ``dead``, ``never observed``, ``derived``, ``constant``, ``floored``, or any other short word.
        nonfinite: NaN and infinite values that were skipped.
        note: one sentence for the detail view, for example what a derived range derives from.
    """

    name: str
    op: str
    count: int
    minimum: float
    maximum: float
    bins: NDArray[np.int64]
    exponent: int
    ranges: Mapping[str, RangeCell]
    flags: tuple[str, ...] = ()
    nonfinite: int = 0
    note: str = ""

    @classmethod
    def from_statistics(
        cls,
        statistics: TensorStatistics,
        op: str,
        ranges: Mapping[str, DynamicRange],
        flags: tuple[str, ...] = (),
        note: str = "",
    ) -> TensorRow:
        """Fill a row from a tensor's statistics; ``dead`` and ``never observed`` follow from them."""
        own = () if statistics.amax else (DEAD if statistics.count else NEVER_OBSERVED,)
        return cls(
            name=statistics.name,
            op=op,
            count=statistics.count,
            minimum=statistics.minimum,
            maximum=statistics.maximum,
            bins=statistics.magnitude,
            exponent=statistics.exponent,
            ranges={name: RangeCell(found.amax, found.clipped) for name, found in ranges.items()},
            flags=tuple(dict.fromkeys((*own, *flags))),
            nonfinite=statistics.nonfinite,
            note=note,
        )

    @property
    def amax(self) -> float:
        """Largest magnitude seen, 0.0 when never observed."""
        return max(abs(self.minimum), abs(self.maximum)) if self.count else 0.0


@dataclass(frozen=True)
class Decision:
    """What the Q/DQ writer did with one operator.

    Attributes:
        node: node name, or its first output where the node has none.
        op: operator type.
        status: ``int8``, ``fused`` into an INT8 layer, ``follows`` its neighbours, or ``float``.
        reason: why; equal reasons are counted together.
        detail: the tensor or node the reason is about; may be empty.
    """

    node: str
    op: str
    status: Status
    reason: str = ""
    detail: str = ""


@dataclass(frozen=True)
class ConcatLoss:
    """What one input of a Concat would lose by sharing one scale with the others.

    Attributes:
        node: the Concat.
        tensor: its input.
        amax: the input's own range.
        shared: range of the concatenation.
        bits: ``log2(shared / amax)``; infinite for a dead input.
    """

    node: str
    tensor: str
    amax: float
    shared: float
    bits: float


@dataclass(frozen=True)
class DeadChannels:
    """Channels of a weight that are all zero, whose scales were set to a floor."""

    tensor: str
    channels: tuple[int, ...]


@dataclass(frozen=True)
class PlacementSection:
    """Where Q/DQ went, and what the cache covers.

    Attributes:
        decisions: one an operator, in network order.
        target: what the placement rules aim at (``trt10``, ``trt11``, ``ort``).
        opset: opset before and after, equal when it was left alone; None when no Q/DQ model was written.
        concats: Concat inputs that one shared scale would cost bits.
        dead_channels: weights with floored scales.
        covered: how many float activation tensors have an entry in the cache; None when no cache was written.
        missing: float activation tensors without entry, and why.
        exempt: tensors that need none, and why.
    """

    decisions: tuple[Decision, ...] = ()
    target: str = ""
    opset: tuple[int, int] | None = None
    concats: tuple[ConcatLoss, ...] = ()
    dead_channels: tuple[DeadChannels, ...] = ()
    covered: int | None = None
    missing: Mapping[str, str] = field(default_factory=dict)
    exempt: Mapping[str, str] = field(default_factory=dict)

    @property
    def tensors(self) -> int | None:
        """Float activation tensors of the network; None when no cache was written."""
        return None if self.covered is None else self.covered + len(self.missing)


@dataclass(frozen=True)
class AmountSection:
    """How the ranges settled while images were added.

    Attributes:
        images: image counts, ascending.
        change: series name to the range change at each count, in ``unit``; nan where there is none.
        tolerance: change below which the ranges count as settled, or None.
        chosen: image count that was taken, or None.
        unit: what a change of 1 is.
        note: one sentence on the outcome.
    """

    images: tuple[int, ...]
    change: Mapping[str, tuple[float, ...]]
    tolerance: float | None = None
    chosen: int | None = None
    unit: str = "bits"
    note: str = ""


@dataclass(frozen=True)
class OutputFile:
    """A file of the build folder: name, size in bytes, sha256 as hex (may be empty), and what it is for."""

    name: str
    size: int
    purpose: str
    sha256: str = ""


@dataclass(frozen=True)
class Command:
    """A command to run next: what it does, and its text exactly as a shell takes it."""

    title: str
    text: str
    note: str = ""


@dataclass(frozen=True)
class ProvenanceSection:
    """Where everything came from: key-values by group, files, next commands.

    Times belong here only where the report need not be byte-identical between runs.
    """

    groups: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    files: tuple[OutputFile, ...] = ()
    commands: tuple[Command, ...] = ()


@dataclass(frozen=True)
class BuildReport:
    """The whole report of ``calib build``; a section left None is left out."""

    subject: Subject
    notices: tuple[Notice, ...] = ()
    images: ImagesSection | None = None
    tensors: tuple[TensorRow, ...] | None = None
    placement: PlacementSection | None = None
    amount: AmountSection | None = None
    provenance: ProvenanceSection | None = None
