from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calib.edges.report import svg
from calib.edges.report.svg.canvas import Axis, nice_ticks, text_of
from calib.edges.report.svg.heat import tint
from calib.edges.report.svg.histogram import coarsen

NS = {"s": "http://www.w3.org/2000/svg"}
HOSTILE = "a <b> & \"c\" 'd' \x00\x07\u202e\ud800 ]]> </svg><script>alert(1)</script>"
ABOUT = svg.About("key", HOSTILE, HOSTILE)


def charts() -> dict[str, str]:
    bins = np.array([900, 40, 0, 3, 1])
    lines = [svg.Threshold(HOSTILE, 2.0, HOSTILE, 0), svg.Threshold("b", 4.9, "", 9)]
    curve = [svg.Line("a", [1.0, math.nan, 3.0], 0)]
    bar = [svg.IntervalBar(HOSTILE, -1.5, -2.0, -1.0), svg.IntervalBar("b", 0.5)]
    return {
        "histogram": svg.histogram(bins, 1.0, lines, about=ABOUT, caption=HOSTILE),
        "sparkline": svg.sparkline(bins, 1.0, lines),
        "paired_bars": svg.paired_bars([0, 1, 2], [0.5, 0.5], [1.0, 0.0], about=ABOUT, caption=HOSTILE),
        "paired_dots": svg.paired_dots([HOSTILE, "b"], [0.9, 0.0], [0.5, 0.5], about=ABOUT, caption=HOSTILE),
        "interval_bars": svg.interval_bars(bar, about=ABOUT, caption=HOSTILE),
        "lines": svg.lines([1, 2, 3], curve, about=ABOUT, level=2, level_name=HOSTILE, mark=2, mark_name=HOSTILE),
        "stems": svg.stems(3, curve, about=ABOUT, x_caption=HOSTILE),
        "scatter": svg.scatter([svg.Point(1, 2, HOSTILE), svg.Point(3, 4, "b", 7)], about=ABOUT, diagonal=True),
        "stacked_shares": svg.stacked_shares([svg.Part(HOSTILE, 3, "q"), svg.Part("z", 0, "f1")], about=ABOUT),
    }


def empty_charts() -> dict[str, str]:
    about = svg.About("key", "t", "d")
    return {
        "histogram": svg.histogram(np.zeros(0, np.int64), 0.5, [], about=about),
        "sparkline": svg.sparkline(np.zeros(4, np.int64), 0.5, []),
        "paired_bars": svg.paired_bars([0, 1], [0.0], [0.0], about=about),
        "paired_dots": svg.paired_dots([], [], [], about=about),
        "interval_bars": svg.interval_bars([], about=about),
        "lines": svg.lines([], [], about=about),
        "lines_log": svg.lines([1.0], [svg.Line("a", [0.0], 0)], about=about, log=True),
        "stems": svg.stems(0, [], about=about),
        "scatter": svg.scatter([], about=about),
        "stacked_shares": svg.stacked_shares([], about=about),
    }


@pytest.mark.parametrize("name", charts())
def test_chart_is_xml_and_holds_hostile_text_as_text(name: str) -> None:
    root = ElementTree.fromstring(charts()[name])
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert not root.findall(".//{*}script")
    assert all(re.fullmatch(r"[a-zA-Z]+", child.tag.split("}")[1]) for child in root.iter())


@pytest.mark.parametrize("name", [name for name in charts() if name != "sparkline"])
def test_chart_names_and_describes_itself(name: str) -> None:
    root = ElementTree.fromstring(charts()[name])
    title, desc = root.find("s:title", NS), root.find("s:desc", NS)
    assert title is not None
    assert desc is not None
    assert root.get("role") == "img"
    assert root.get("aria-labelledby") == f"{title.get('id')} {desc.get('id')}"
    assert title.text == "a <b> & \"c\" 'd' \\u0000\\u0007\\u202e\\ud800 ]]> </svg><script>alert(1)</script>"


@pytest.mark.parametrize("name", empty_charts())
def test_chart_of_nothing_is_still_xml(name: str) -> None:
    markup = empty_charts()[name]
    ElementTree.fromstring(markup)
    assert not re.search(r'="[^"]*\b(nan|inf)\b', markup)


def test_decoration_is_hidden_from_assistive_technology() -> None:
    assert ElementTree.fromstring(charts()["sparkline"]).get("aria-hidden") == "true"


def test_infinite_coordinate_is_refused() -> None:
    with pytest.raises(ValueError, match="given inf to place"):
        svg.scatter([svg.Point(1.0, math.inf, "a")], about=svg.About("k", "t", "d"))


@given(st.lists(st.integers(0, 10**12), max_size=700), st.integers(1, 200))
def test_coarsening_keeps_every_count_and_its_place(values: list[int], most: int) -> None:
    bins = np.array(values, np.int64)
    counts, factor = coarsen(bins, most)
    assert counts.sum() == bins.sum()
    assert len(counts) <= most
    assert factor & (factor - 1) == 0
    for index, value in enumerate(counts.tolist()):
        assert value == bins[index * factor : (index + 1) * factor].sum()


def test_coarsening_merges_no_more_than_needed() -> None:
    counts, factor = coarsen(np.ones(129, np.int64), 128)
    assert (len(counts), factor) == (65, 2)


def plot_span(root: ElementTree.Element) -> tuple[float, float]:
    axis = next(line for line in root.findall("s:line", NS) if line.get("class") == "ax")
    return float(axis.get("x1", "")), float(axis.get("x2", ""))


def test_histogram_places_thresholds_in_proportion() -> None:
    lines = [svg.Threshold("half", 4.0, "", 0), svg.Threshold("all", 8.0, "", 1)]
    root = ElementTree.fromstring(svg.histogram(np.ones(8, np.int64), 1.0, lines, about=svg.About("k", "t", "d")))
    left, right = plot_span(root)
    marks = {line.get("class"): float(line.get("x1", "")) for line in root.findall("s:line", NS)}
    assert marks["th s1"] == pytest.approx((left + right) / 2, abs=0.1)
    assert marks["th s2"] == pytest.approx(right, abs=0.1)


def test_histogram_heights_are_logarithmic() -> None:
    root = ElementTree.fromstring(svg.histogram(np.array([1000, 10, 0]), 1.0, [], about=svg.About("k", "t", "d")))
    area = next(item for item in root.findall("s:path", NS) if item.get("class") == "area")
    heights = [float(value) for value in re.findall(r"V([\d.]+)", area.get("d", ""))]
    base = float(re.match(r"M\S+ (\S+?)V", area.get("d", ""))[1])  # type: ignore[index]
    assert (base - heights[0]) / (base - heights[1]) == pytest.approx(math.log10(2000) / math.log10(20), rel=0.01)


@pytest.mark.parametrize(
    "values",
    [
        (0.1, 0.11, 0.12, 0.13, 0.14),
        (9.9, 9.91, 9.92, 9.93, 10.0),
        (0.1, 3.0, 9.9, 9.9, 9.9),
        (4.0, 4.5, 5.0, 5.5, 6.0),
    ],
)
def test_histogram_labels_do_not_overlap_and_stay_inside(values: tuple[float, ...]) -> None:
    lines = [
        svg.Threshold(f"calibrator-{index}", value, "0.0123 % clipped", index) for index, value in enumerate(values)
    ]
    root = ElementTree.fromstring(svg.histogram(np.ones(10, np.int64), 1.0, lines, about=svg.About("k", "t", "d")))
    labels = [item for item in root.findall("s:text", NS) if "halo" in item.get("class", "")]
    rows = [float(item.get("y", "")) for item in labels]
    assert len(labels) == 5
    assert min(abs(a - b) for i, a in enumerate(rows) for b in rows[i + 1 :]) >= 14
    for item in labels:
        x, wide = float(item.get("x", "")), len(item.text or "") * 6.8
        start = x - wide * {"start": 0, "middle": 0.5, "end": 1}[item.get("text-anchor", "")]
        assert start >= -1
        assert start + wide <= 362


def test_bars_have_heights_in_proportion_and_interval_ends_in_place() -> None:
    root = ElementTree.fromstring(
        svg.interval_bars([svg.IntervalBar("a", -2.0, -3.0, -1.0)], about=svg.About("k", "t", "d"))
    )
    bar = next(item for item in root.findall("s:rect", NS))
    left, wide = float(bar.get("x", "")), float(bar.get("width", ""))
    whisker = next(item for item in root.findall("s:line", NS) if item.get("class") == "whisker")
    assert float(whisker.get("x1", "")) == pytest.approx(left - wide / 2, abs=0.2)
    assert float(whisker.get("x2", "")) == pytest.approx(left + wide / 2, abs=0.2)


def test_scatter_diagonal_gives_both_axes_one_scale() -> None:
    points = [svg.Point(0.0, 0.0, "a"), svg.Point(1.0, 1.0, "b"), svg.Point(0.5, 0.25, "c")]
    root = ElementTree.fromstring(svg.scatter(points, about=svg.About("k", "t", "d"), diagonal=True))
    line = next(item for item in root.findall("s:line", NS) if item.get("class") == "level")
    x0, y0, x1, y1 = (float(line.get(key, "")) for key in ("x1", "y1", "x2", "y2"))
    for point in root.findall("s:path", NS)[:2]:
        x, y = map(float, re.findall(r"[\d.]+", point.get("transform", "")))
        assert (x - x0) / (x1 - x0) == pytest.approx((y - y0) / (y1 - y0), abs=0.01)


def test_stems_leave_gaps_where_there_is_no_value() -> None:
    root = ElementTree.fromstring(charts()["stems"])
    tick = next(item for item in root.findall("s:path", NS) if item.get("class", "").startswith("tick"))
    assert tick.get("d", "").count("h") == 2


def test_shares_divide_the_width_by_amount() -> None:
    parts = [svg.Part("a", 3, "q"), svg.Part("none", 0, "f1"), svg.Part("b", 1, "f2")]
    root = ElementTree.fromstring(svg.stacked_shares(parts, about=svg.About("k", "t", "d"), width=400))
    starts = [float(item.get("x", "")) for item in root.findall("s:rect", NS)]
    assert starts == [0.0, 300.0]


def test_heat_table_writes_every_number_and_tints_by_size() -> None:
    table = svg.HeatTable(HOSTILE, "class", ["v1", HOSTILE], ["road", "pole"], [[0.0, -4.0], [None, 2.0]])
    root = ElementTree.fromstring(svg.heat_table(table))
    cells = [(cell.text, cell.get("class")) for cell in root.findall(".//td")]
    assert cells == [("+0.00", "h0"), ("-4.00", "h-4"), ("–", "h0"), ("+2.00", "h2")]


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_tint_stays_within_its_steps_and_keeps_the_sign(value: float, reach: float) -> None:
    step = tint(value, reach)
    assert -4 <= step <= 4
    assert step * value >= 0


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9), st.integers(2, 8))
def test_ticks_lie_within_bounds_and_are_few(low: float, span: float, most: int) -> None:
    ticks = nice_ticks(low, low + span, most)
    room = span * 1e-6 + abs(low) * 1e-9
    assert len(ticks) <= most + 1
    assert all(low - room <= tick <= low + span + room for tick in ticks)


def test_axis_clamps_and_survives_an_empty_domain() -> None:
    assert Axis(0, 10, 100, 200)(20) == 200
    assert Axis(3, 3, 100, 200)(3) == 150
    assert Axis(1, 100, 0, 2, log=True)(0.0) == 0
    assert Axis(1, 100, 0, 2, log=True)(10) == pytest.approx(1)


@given(st.text())
def test_any_text_becomes_xml(text: str) -> None:
    ElementTree.fromstring(f'<a b="{text_of(text)}">{text_of(text)}</a>')


ODD = {
    "none": [],
    "one": [3.0],
    "two": [3.0, -2.0],
    "sixty": [math.sin(index) for index in range(60)],
    "zero": [0.0] * 4,
    "negative": [-3.0, -5.0, -1.0],
    "missing": [math.nan, math.inf, -math.inf],
    "large": [12345678.9, -0.001],
    "tiny": [-1e-9, 2e-7],
}


@pytest.mark.parametrize("values", ODD.values(), ids=ODD.keys())
@pytest.mark.parametrize("name", ["x", "a/very/long/" * 12])
def test_charts_of_any_count_and_value(values, name):
    bars = [svg.IntervalBar(name, value, value - 1, value + 1) for value in values]
    curve = svg.Line(name, values, 0)
    drawn = [
        svg.interval_bars(bars, about=ABOUT, width=width) for width in (360, 760)
    ] + [
        svg.stems(len(values), [curve], about=ABOUT),
        svg.lines([float(place) for place in range(len(values))], [curve], about=ABOUT),
        svg.scatter([svg.Point(value, value, name) for value in values if math.isfinite(value)], about=ABOUT),
    ]  # fmt: skip
    for chart in drawn:
        root = ElementTree.fromstring(chart)
        assert not re.search(r"nan|inf", " ".join(item for node in root.iter() for item in node.attrib.values()))
        width = float(root.attrib["viewBox"].split()[2])
        widest = re.fullmatch(r"max-width:([\d.]+)px", root.attrib["style"])
        assert widest is not None
        assert float(widest[1]) == pytest.approx(1.25 * width, abs=0.1)


def test_a_bar_is_as_thick_among_sixty_as_alone():
    for count in (1, 2, 60):
        bars = [svg.IntervalBar("v", 1.0)] * count
        root = ElementTree.fromstring(svg.interval_bars(bars, about=ABOUT))
        assert {item.attrib["height"] for item in root.iter("{http://www.w3.org/2000/svg}rect")} == {"12"}


def test_what_is_not_there_has_no_bar_and_is_no_zero():
    bars = [
        svg.IntervalBar("a", math.nan),
        svg.IntervalBar("b", 1.0, None, math.nan),
        svg.IntervalBar("c", 2, text="equal"),
    ]
    root = ElementTree.fromstring(svg.interval_bars(bars, about=ABOUT))
    texts = [item.text for item in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "–" in texts
    assert "equal" in texts
    assert "+0.00" not in texts
    assert len(root.findall("s:rect", NS)) == 2


def test_a_tick_of_a_lone_place_is_no_beam_and_places_are_whole():
    root = ElementTree.fromstring(svg.stems(2, [svg.Line("a", [1.0, -2.0], 0)], about=ABOUT))
    ticks = next(item for item in root.findall("s:path", NS) if "tick" in item.attrib["class"])
    assert max(float(item) for item in re.findall(r"h([\d.]+)", ticks.attrib["d"])) <= 18
    labels = [item.text for item in root.findall("s:text", NS)]
    assert "1.5" not in labels
    assert len(root.findall("s:line[@class='zero']", NS)) == 1


def test_wide_tick_labels_get_room():
    root = ElementTree.fromstring(svg.lines([1, 2], [svg.Line("a", [-0.000123, 0.000456], 0)], about=ABOUT))
    for item in root.findall("s:text", NS):
        if (
            item.attrib["text-anchor"] == "end"
            and item.text is not None
            and item.text.startswith(("0.", "−", "1", "2"))
        ):
            assert float(item.attrib["x"]) >= 6.0 * len(item.text)
