"""The chart kit as a browser draws it: readable in every tint and scheme, nothing outside its box."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from calib.edges.report import svg
from calib.edges.report.page import STYLES, bundle

pytestmark = pytest.mark.browser

TOO_FAINT = Path(__file__).with_name("contrast.js").read_text(encoding="utf-8")
OUTSIDE = """() => [...document.querySelectorAll("svg.chart")].flatMap((chart) => {
  const box = chart.getBoundingClientRect();
  return [...chart.querySelectorAll("text")].filter((text) => {
    const own = text.getBoundingClientRect();
    return own.left < box.left - 1 || own.right > box.right + 1 || own.top < box.top - 2 || own.bottom > box.bottom + 2;
  }).map((text) => text.textContent);
})"""


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    """A page with the evaluator's charts: long names, many steps of tint, wide intervals."""
    names = [f"a class with quite a long name {index}" for index in range(9)]
    heat = svg.HeatTable("points", "class", names[:2], names, [[index - 4.0, 4.0 - index] for index in range(9)])
    bars = [svg.IntervalBar(name, index - 4.0, index - 9.0, index + 1.0, index) for index, name in enumerate(names)]
    points = [svg.Point(index / 10, index / 9, name, index) for index, name in enumerate(names)]
    charts = [
        svg.interval_bars(bars, about=svg.About("b", "t", "d"), caption="difference in mIoU, points, 95 % interval"),
        svg.scatter(points, about=svg.About("s", "t", "d"), x_caption="FP32", y_caption="INT8", diagonal=True),
        svg.paired_dots(names, [0.1] * 9, [0.2] * 9, about=svg.About("p", "t", "d"), caption="share"),
    ]
    cards = "".join(f'<div class="card" style="width:360px">{chart}</div>' for chart in charts)
    path = tmp_path / "kit.html"
    path.write_text(
        f'<!doctype html><html lang="en"><meta charset="utf-8"><link rel="icon" href="data:,"><title>kit</title>'
        f"<style>{bundle(STYLES)}</style>{svg.heat_table(heat)}{cards}",
        encoding="utf-8",
    )
    return path


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_charts_are_readable_and_stay_in_their_box(open_report: Any, kit: Path, scheme: str) -> None:
    page = open_report(kit, color_scheme=scheme)
    assert page.locator("td.h-4").count() == 2
    assert page.locator("td.h4").count() == 2
    assert page.evaluate(TOO_FAINT) == []
    assert page.evaluate(OUTSIDE) == []


def test_contrast_check_can_fail(open_report: Any, kit: Path) -> None:
    page = open_report(kit)
    page.evaluate("document.querySelector('td.h4').style.color = '#8899aa'")
    assert len(page.evaluate(TOO_FAINT)) == 1


def test_labels_of_the_report_stay_in_their_charts(open_report: Any) -> None:
    page = open_report()
    page.locator(".open").first.click()
    assert page.evaluate(OUTSIDE) == []


@pytest.mark.parametrize("width", [1440, 390])
def test_text_and_bars_keep_their_size_whatever_the_count(open_report: Any, tmp_path: Path, width: int) -> None:
    """One bar in a wide place is drawn as large as one of sixty."""
    cards = "".join(
        f'<div class="card">{chart}</div>'
        for count in (1, 2, 60)
        for bars in [[svg.IntervalBar(f"v{index}", index - 1.0) for index in range(count)]]
        for chart in [svg.interval_bars(bars, about=svg.About(f"b{count}", "t", "d"), caption="points")]
    )
    path = tmp_path / "sizes.html"
    path.write_text(
        f'<!doctype html><html lang="en"><meta charset="utf-8"><link rel="icon" href="data:,"><title>sizes</title>'
        f"<style>{bundle(STYLES)}</style>{cards}",
        encoding="utf-8",
    )
    page = open_report(path, viewport={"width": width, "height": 900})
    heights = page.evaluate(
        """() => [...document.querySelectorAll("svg.chart")].map((chart) =>
             [...chart.querySelectorAll("rect.bar")].map((bar) => bar.getBoundingClientRect().height))"""
    )
    assert [len(item) for item in heights] == [1, 2, 60]
    sizes = [height for item in heights for height in item]
    assert max(sizes) - min(sizes) < 0.1
    assert 9 < max(sizes) < 15.5
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
