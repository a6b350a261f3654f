"""The report of ``calib diagnose``: the verdict, the ladder, the error along the network, pairs, the worst image."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calib.edges.report import svg
from calib.edges.report.evaluation import Overlay
from calib.edges.report.figures import DataTable, Figure
from calib.edges.report.formatting import share
from calib.edges.report.page import render_page

Json = Mapping[str, Any]
TITLES = {
    "ladder": "The ladder",
    "causes": "Causes",
    "depth": "Error along the network",
    "pairs": "Q/DQ pairs",
    "images": "The image that was examined",
    "remarks": "Remarks",
    "method": "What was compared",
}
TOP_DB = 120.0
"""SQNR drawn at most: beyond it two tensors are the same up to rounding."""
LISTED = 40


@dataclass(frozen=True)
class DepthPoint:
    """A tensor on the depth chart: place, name, and errors in decibels (not finite where there is none)."""

    depth: int
    tensor: str
    node: str
    born: float
    total: float
    quantized: float


@dataclass(frozen=True)
class DiagnosisReport:
    """What the report is made from.

    Attributes:
        document: what ``diagnosis.json`` holds.
        depth: tensors along the network.
        overlays: pictures of the image that was examined.
    """

    document: Json
    depth: Sequence[DepthPoint] = ()
    overlays: Sequence[Overlay] = ()


@dataclass(frozen=True)
class PageSubject:
    """What the page's frame names."""

    version: str


def render_diagnosis_report(report: DiagnosisReport) -> bytes:
    """Render the report: UTF-8 HTML, complete in itself, the same bytes for the same results."""
    document = report.document
    verdict = document["verdict"]
    context: dict[str, Any] = {
        "subject": PageSubject(document["version"]),
        "document": document,
        "verdict": verdict,
        "level": "error" if verdict["fault"] else "fine",
        "ladder": ladder_figure(document["ladder"]),
        "rungs": [_rung(item) for item in document["ladder"]],
        "causes": document["causes"],
        "depth": depth_figure(report.depth, verdict) if report.depth else None,
        "pairs": pair_rows(document["quantizers"]),
        "images": report.overlays,
        "remarks": [*(_remark(item) for item in document["remarks"]), *document["notes"]],
        "method": document["parts"],
    }
    present = [name for name in TITLES if context.get(name)]
    return render_page("diagnosis.html.j2", context, present, TITLES)


def decibels(value: object) -> str:
    """SQNR for people; equal tensors have none."""
    if value in (None, ""):
        return "–"
    number = float(str(value))
    return "equal" if number == math.inf else "none" if number == -math.inf else f"{number:.1f} dB".replace("-", "−")


def _rung(item: Json) -> dict[str, str]:
    accuracy, output = item["accuracy"], item["output"] or {}
    shift = item["shift"]
    moved = shift is not None and shift["explained"] > 0.3 and max(abs(shift["rows"]), abs(shift["columns"])) > 0.1
    return {
        "title": item["title"],
        "stage": item["stage"] or "",
        "skipped": item["skipped"] or "",
        "sqnr": decibels(output.get("sqnr_db")),
        "cosine": "" if output.get("cosine") is None else f"{output['cosine']:.6f}",
        "maximum": "" if not output else f"{float(str(output['max_error'])):.3g}",
        "flips": "" if item["flips"] is None else share(item["flips"]),
        "miou": "" if accuracy is None or accuracy["miou"] is None else f"{100 * accuracy['miou']:.2f}",
        "delta": "" if accuracy is None or accuracy["delta"] is None else f"{accuracy['delta']:+.2f}",
        "shift": f"{shift['rows']:+.1f}, {shift['columns']:+.1f}" if moved else "",
        "falls": "falls" if item["falls"] else "",
    }


def ladder_figure(rungs: Sequence[Json]) -> Figure:
    """Draw the SQNR of every rung's output against the reference."""
    run = [item for item in rungs if not item["skipped"] and item["below"] is not None]
    bars = [
        svg.IntervalBar(item["name"], _height(item["output"]["sqnr_db"]), text=decibels(item["output"]["sqnr_db"]))
        for item in run
    ]
    words = "; ".join(f"{item['name']} {decibels(item['output']['sqnr_db'])}" for item in run)
    title = "SQNR of the output against the reference"
    wide, narrow = (
        svg.interval_bars(
            bars, about=svg.About(f"ladder-chart{key}", title, words), caption=f"{title}, dB", width=width
        )
        for key, width in (("", 640.0), ("-narrow", 360.0))
    )
    columns = ("rung", "SQNR", "flipped", "mIoU", "against the reference")
    rows = tuple(
        (item["name"], found["sqnr"], found["flips"] or "–", found["miou"] or "–", found["delta"] or "–")
        for item, found in ((item, _rung(item)) for item in run)
    )
    note = f"Longer is closer to the reference; {TOP_DB:.0f} dB and more is the same up to rounding."
    table = DataTable("The ladder", columns, rows)
    return Figure("Every rung against the reference", wide, table, (), note, narrow)


def _height(value: object) -> float:
    """Length of a bar; NaN where there is no number."""
    number = math.nan if value is None else float(str(value))
    return number if math.isnan(number) else max(0.0, min(number, TOP_DB))


def depth_figure(points: Sequence[DepthPoint], verdict: Json) -> Figure:
    """Draw the error of every tensor along the network: its own, and what it carries."""
    cause = verdict["cause"] or {}
    place = next((point.depth for point in points if point.tensor == cause.get("tensor")), None)
    curves = [
        svg.Line("made by the step itself", [_shown(point.born) for point in points], 1),
        svg.Line("with what it carries", [_shown(point.total) for point in points], 2),
    ]
    legend = [("ln s1", "made by the step itself"), ("ln s2", "float candidate as a whole")]
    if any(math.isfinite(point.quantized) for point in points):
        curves.append(svg.Line("Q/DQ", [_shown(point.quantized) for point in points], 3))
        legend.append(("ln s3", "Q/DQ candidate as a whole"))
    wide, narrow = (_depth_chart(key, width, points, curves, place) for key, width in (("", 760.0), ("-narrow", 360.0)))
    worst = sorted(points, key=lambda point: (_shown(point.born), point.depth))[:LISTED]
    rows = tuple((point.tensor, point.node, decibels(point.born), decibels(point.total)) for point in worst)
    table = DataTable("Tensors whose own step errs most", ("tensor", "node", "own", "carried"), rows)
    note = "A dip of the first curve is where error is born; a low second curve alone is error from further up."
    return Figure("SQNR of every tensor", wide, table, tuple(legend), note, narrow)


def _depth_chart(
    key: str, width: float, points: Sequence[DepthPoint], curves: Sequence[svg.Line], place: int | None
) -> str:
    return svg.lines(
        [float(point.depth) for point in points],
        curves,
        about=svg.About(f"depth-chart{key}", "SQNR of every tensor along the network", _depth_words(points)),
        x_caption="place along the network",
        y_caption="SQNR, dB",
        frame=svg.Frame(width, 300 if width > 400 else 220, top=22, bottom=36, left=48),
        mark=None if place is None else float(place),
        mark_name="first departure",
        dots=False,
    )


def _shown(value: float) -> float:
    if math.isnan(value):
        return math.nan
    return max(-20.0, min(value, TOP_DB))


def _depth_words(points: Sequence[DepthPoint]) -> str:
    lowest = min(points, key=lambda point: (_shown(point.born), point.depth))
    return f"{len(points)} tensors; the step that errs most makes {lowest.tensor}, {decibels(lowest.born)}"


def pair_rows(quantizers: Sequence[Json]) -> list[dict[str, str]]:
    """Rows of the table of Q/DQ pairs, the largest excess first."""
    ordered = sorted(quantizers, key=lambda item: (-float(str(item["excess_db"])), item["tensor"]))
    return [
        {
            "tensor": item["tensor"],
            "kind": "weights" if item["weights"] else "activation",
            "range": f"{float(str(item['low'])):.4g} to {float(str(item['high'])):.4g}",
            "scale": f"{float(str(item['scale'])):.4g}",
            "clipped": share(item["clipped_share"]),
            "sqnr": decibels(item["sqnr_db"]),
            "excess": f"{float(str(item['excess_db'])):+.1f}",
        }
        for item in ordered[: 2 * LISTED]
    ]


def _remark(item: Json) -> str:
    return f"{item['title']}. {' '.join(item['evidence'])}"
