"""Charts of the evaluation report: differences with intervals, and every image under reference and network."""

from __future__ import annotations

import math
from collections.abc import Sequence

from calib.edges.report import svg
from calib.edges.report.evaluation_words import Json, candidates, interval, percent, points
from calib.edges.report.figures import DataTable, Figure

POINTS_DRAWN = 1500
"""Points a scatter holds at most; of larger splits those are drawn that changed most, and an even share of the rest."""
ROWS_LISTED = 20


def difference_figure(document: Json) -> Figure:
    """Draw every network's difference of mIoU with its interval."""
    others = candidates(document)
    bars = []
    for model in others:
        entry = model["vs_reference"]["miou"]
        low, high = entry["ci95"] or (None, None)
        delta = math.nan if entry["delta"] is None else entry["delta"]
        bars.append(svg.IntervalBar(model["name"], delta, low, high, int(delta < 0)))
    title = f"mIoU against {document['reference']}"
    words = "; ".join(f"{m['name']} {points(m['vs_reference']['miou']['delta'])}" for m in others)
    drawn = svg.interval_bars(bars, about=svg.About("differences", title, words), caption="points of mIoU")
    rows = tuple(
        (
            model["name"],
            points(model["vs_reference"]["miou"]["delta"], 3),
            interval(model["vs_reference"]["miou"]["ci95"]),
            "yes" if model["vs_reference"]["miou"]["significant"] else "no",
            _needed(model["vs_reference"]["miou"]["images_to_see_0.1_points"]),
        )
        for model in others
    )
    columns = ("network", "points", "95 % interval", "significant", "images to see 0.1 points")
    note = "Bars are differences of the mIoU over the data set; whiskers are 95 % intervals of the paired difference."
    return Figure(title, drawn, DataTable(title, columns, rows), (), note)


def image_figures(document: Json, images: Sequence[Json]) -> list[Figure]:
    """Draw every image's own mIoU under the reference and under each network."""
    return [
        _scatter(place, model["name"], str(document["reference"]), images)
        for place, model in enumerate(candidates(document))
    ]


def _scatter(place: int, name: str, reference: str, images: Sequence[Json]) -> Figure:
    pairs = [
        (image["models"][reference]["miou"], image["models"][name]["miou"], image["image"])
        for image in images
        if image["models"][reference]["miou"] is not None
    ]
    worse = sum(after < before for before, after, _ in pairs)
    better = sum(after > before for before, after, _ in pairs)
    words = f"{worse} of {len(pairs)} images score lower than under {reference}, {better} higher"
    marks = [
        svg.Point(100 * before, 100 * after, f"{key}: {points(100 * (after - before))}", int(after < before))
        for before, after, key in _drawn(pairs)
    ]
    drawn = svg.scatter(
        marks,
        about=svg.About(f"images-{place}", f"{name}: mIoU of each image", words),
        x_caption=f"{reference}, % mIoU of the image",
        y_caption=f"{name}, %",
        diagonal=True,
        frame=svg.Frame(width=360, height=330, top=22, right=14, bottom=38, left=40),
    )
    ordered = sorted(pairs, key=lambda pair: (pair[1] - pair[0], pair[2]))[:ROWS_LISTED]
    rows = tuple(
        (key, percent(before), percent(after), points(100 * (after - before))) for before, after, key in ordered
    )
    table = DataTable(f"{name}: the {len(rows)} images that lose most", ("image", reference, name, "points"), rows)
    legend = (("pt s1", "same or better"), ("pt s2", "worse"))
    return Figure(name, drawn, table, legend, f"{words}. Below the line the network is worse.")


def _drawn(pairs: Sequence[tuple[float, float, str]]) -> Sequence[tuple[float, float, str]]:
    if len(pairs) <= POINTS_DRAWN:
        return pairs
    ordered = sorted(pairs, key=lambda pair: (-abs(pair[1] - pair[0]), pair[2]))
    half = POINTS_DRAWN // 2
    rest = ordered[half:]
    return [*ordered[:half], *rest[:: max(1, -(-len(rest) // half))]]


def _needed(images: int | None) -> str:
    return "too few images to tell" if images is None else f"{images:,}".replace(",", "\u202f")
