"""Charts as inline SVG: pure functions from numbers to text.

Every chart is an ``<svg role="img">`` with a title and a description, scales with its container, takes its colours
from the classes of ``assets/charts.css`` (light, dark and print), and tells series apart by dash or shape as well
as by colour.
"""

from calib.edges.report.svg.bars import IntervalBar, interval_bars, paired_bars, paired_dots
from calib.edges.report.svg.canvas import About, Frame
from calib.edges.report.svg.heat import HeatTable, heat_table
from calib.edges.report.svg.histogram import Threshold, histogram, sparkline
from calib.edges.report.svg.lines import Line, lines
from calib.edges.report.svg.scatter import Point, scatter
from calib.edges.report.svg.shares import Part, stacked_shares
from calib.edges.report.svg.stems import stems

__all__ = [
    "About",
    "Frame",
    "HeatTable",
    "IntervalBar",
    "Line",
    "Part",
    "Point",
    "Threshold",
    "heat_table",
    "histogram",
    "interval_bars",
    "lines",
    "paired_bars",
    "paired_dots",
    "scatter",
    "sparkline",
    "stacked_shares",
    "stems",
]
