"""The ranges section: what each tensor's row, chart and summary show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from calib.edges.report import formatting, svg
from calib.edges.report.figures import DataTable, Figure
from calib.edges.report.model import PLAIN_FLAGS, RangeCell, TensorRow

CHARTS = 400
"""Charts drawn at most, those of the tensors whose calibrators disagree most: keeps pages of huge networks light."""
GALLERY = 6
QUANTILES = (0.5, 0.99, 0.9999)
LEVELS = 127
"""Positive levels of a symmetric INT8 range: scale = amax / 127."""


@dataclass(frozen=True)
class CellView:
    """One calibrator's answer as shown; ``gain`` is log2(largest |x| seen / amax), or None."""

    calibrator: str
    style: int
    cell: RangeCell | None
    gain: float | None

    @property
    def amax(self) -> str:
        """The threshold, short."""
        return formatting.number(self.cell.amax if self.cell else None)

    @property
    def exact(self) -> str:
        """The threshold with the nine digits that identify a float32."""
        return formatting.number(self.cell.amax if self.cell else None, 9)

    @property
    def scale(self) -> str:
        """The quantization step."""
        return formatting.number(self.cell.amax / LEVELS if self.cell else None, 6)

    @property
    def clipped(self) -> str:
        """The share of values beyond the threshold."""
        return formatting.share(self.cell.clipped if self.cell else None)


@dataclass(frozen=True)
class TensorView:
    """One row of the table.

    Attributes:
        index: place in the network, from 0.
        row: what was given.
        cells: one a calibrator, in report order.
        spread: log2(largest amax / smallest amax) over the calibrators, 0.0 with fewer than two above zero.
        spark: decoration for the row.
        chart: the histogram, empty where none is drawn.
        quantiles: share and magnitude below which it lies.
    """

    index: int
    row: TensorRow
    cells: tuple[CellView, ...]
    spread: float
    spark: str
    chart: str
    quantiles: tuple[tuple[str, str], ...]

    @property
    def worrying(self) -> tuple[str, ...]:
        """The flags that are reasons to look."""
        return tuple(flag for flag in self.row.flags if flag not in PLAIN_FLAGS)

    @property
    def clipped(self) -> float:
        """Largest clipped share of any calibrator."""
        return max((view.cell.clipped for view in self.cells if view.cell), default=0.0)

    @property
    def spread_text(self) -> str:
        """The spread, without sign."""
        return formatting.bits(self.spread).lstrip("+")


@dataclass(frozen=True)
class CalibratorSummary:
    """A calibrator over all tensors: median and largest gain, median and largest clipped share, and where."""

    calibrator: str
    style: int
    median_gain: str
    most_gain: str
    most_gain_at: TensorView | None
    median_clipped: str
    most_clipped: str
    most_clipped_at: TensorView | None


@dataclass(frozen=True)
class RangesView:
    """The whole section.

    Attributes:
        tensors: in network order.
        gallery: the tensors whose calibrators disagree most, each with a chart.
        summaries: one a calibrator.
        profile: resolution gained through the network.
        calibrators: names in the order of columns.
        flags: every flag that occurs.
        undrawn: tensors with a histogram too many to draw in full.
    """

    tensors: tuple[TensorView, ...]
    gallery: tuple[tuple[TensorView, str], ...]
    summaries: tuple[CalibratorSummary, ...]
    profile: Figure
    calibrators: tuple[str, ...]
    flags: tuple[str, ...]
    undrawn: int


def ranges_view(tensors: Sequence[TensorRow], calibrators: Sequence[str]) -> RangesView:
    """Prepare the section; ``calibrators`` in the order of columns, rows in network order."""
    drawn = set(_by_spread(tensors)[:CHARTS])
    views = tuple(_tensor_view(index, row, calibrators, index in drawn) for index, row in enumerate(tensors))
    order = [views[index] for index in _by_spread(tensors) if views[index].chart and views[index].spread > 0]
    return RangesView(
        tensors=views,
        gallery=tuple(
            (view, _histogram(f"g{view.index}", view.row, _thresholds(view.cells))) for view in order[:GALLERY]
        ),
        summaries=tuple(_summary(views, place, name) for place, name in enumerate(calibrators)),
        profile=_profile(views, calibrators),
        calibrators=tuple(calibrators),
        flags=tuple(sorted({flag for row in tensors for flag in row.flags})),
        undrawn=sum(1 for view in views if view.row.bins.any() and not view.chart),
    )


def spread(row: TensorRow) -> float:
    """Bits by which the calibrators disagree: log2(largest amax / smallest amax), zeros left out."""
    amaxes = [cell.amax for cell in row.ranges.values() if _positive(cell.amax)]
    return math.log2(max(amaxes) / min(amaxes)) if len(amaxes) > 1 else 0.0


def gain(row: TensorRow, cell: RangeCell | None) -> float | None:
    """Bits of resolution gained over the full observed range: log2(observed amax / amax); None where undefined."""
    if cell is None or not (_positive(cell.amax) and _positive(row.amax)):
        return None
    return math.log2(row.amax / cell.amax)


def quantiles(row: TensorRow) -> tuple[tuple[float, float], ...]:
    """Find the smallest bin edges that bound the shares of :data:`QUANTILES` of the magnitudes."""
    total = int(row.bins.sum())
    if not total:
        return ()
    below = np.cumsum(row.bins)
    edges = [int(np.searchsorted(below, math.ceil(part * total))) + 1 for part in QUANTILES]
    return tuple((part, edge * 2.0**row.exponent) for part, edge in zip(QUANTILES, edges, strict=True))


def _positive(value: float) -> bool:
    return value > 0 and math.isfinite(value)


def _by_spread(tensors: Sequence[TensorRow]) -> list[int]:
    return sorted(range(len(tensors)), key=lambda index: (-spread(tensors[index]), index))


def _tensor_view(index: int, row: TensorRow, calibrators: Sequence[str], draw: bool) -> TensorView:
    cells = tuple(
        CellView(name, style, row.ranges.get(name), gain(row, row.ranges.get(name)))
        for style, name in enumerate(calibrators)
    )
    lines = _thresholds(cells)
    filled = bool(row.bins.any())
    return TensorView(
        index=index,
        row=row,
        cells=cells,
        spread=spread(row),
        spark=svg.sparkline(row.bins, 2.0**row.exponent, lines) if filled else "",
        chart=_histogram(f"h{index}", row, lines) if filled and draw else "",
        quantiles=tuple((formatting.share(part), formatting.number(edge)) for part, edge in quantiles(row)),
    )


def _thresholds(cells: Sequence[CellView]) -> list[svg.Threshold]:
    return [
        svg.Threshold(view.calibrator, view.cell.amax, _label(view.cell), view.style)
        for view in cells
        if view.cell and _positive(view.cell.amax)
    ]


def _label(cell: RangeCell) -> str:
    """Short, so that five labels find room; the table beside has every digit."""
    return f"{formatting.number(cell.amax, 3)} · {formatting.share(cell.clipped, 2)}"


def _histogram(key: str, row: TensorRow, lines: Sequence[svg.Threshold]) -> str:
    words = "; ".join(f"{line.caption} clipped" for line in lines) or "no calibrator gave a range"
    about = svg.About(key, f"Magnitudes of {row.name}", f"{formatting.count(row.count)} values. {words}.")
    return svg.histogram(row.bins, 2.0**row.exponent, lines, about=about)


def _summary(views: Sequence[TensorView], place: int, name: str) -> CalibratorSummary:
    gains = [(cell.gain, view) for view in views if (cell := view.cells[place]).gain is not None]
    clips = [(cell.cell.clipped, view) for view in views if (cell := view.cells[place]).cell is not None]
    widest = max(gains, key=lambda item: (item[0], -item[1].index), default=(None, None))
    hardest = max(clips, key=lambda item: (item[0], -item[1].index), default=(None, None))
    return CalibratorSummary(
        calibrator=name,
        style=place,
        median_gain=formatting.bits(median(item[0] for item in gains) if gains else None),
        most_gain=formatting.bits(widest[0]),
        most_gain_at=widest[1] if widest[0] else None,
        median_clipped=formatting.share(median(item[0] for item in clips) if clips else None),
        most_clipped=formatting.share(hardest[0]),
        most_clipped_at=hardest[1] if hardest[0] else None,
    )


def _profile(views: Sequence[TensorView], calibrators: Sequence[str]) -> Figure:
    curves = [
        svg.Line(name, [_or_gap(view.cells[place].gain) for view in views], place)
        for place, name in enumerate(calibrators)
    ]
    title = "Resolution gained over the full range, through the network"
    words = f"{formatting.plural(len(views), 'tensor')} in network order; the table of tensors has the numbers."
    wide, narrow = (
        svg.stems(
            len(views),
            curves,
            about=svg.About(f"profile-{name}", title, words),
            frame=svg.Frame(width, 230, 24, 12, 38, 44),
            x_caption="tensor, in network order",
            y_caption="bits",
        )
        for name, width in (("wide", 1040.0), ("narrow", 360.0))
    )
    legend = tuple((f"tick s{place % 8 + 1}", name) for place, name in enumerate(calibrators))
    return Figure(title, wide, DataTable("", (), ()), legend, narrow=narrow)


def _or_gap(value: float | None) -> float:
    return math.nan if value is None else value
