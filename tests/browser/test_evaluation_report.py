"""The evaluation report in headless Chromium: it sorts, pages, fits a phone, and asks for nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from calib.jobs.evaluate import evaluate
from tests.evalsets import colour_network, make_set, save

pytestmark = pytest.mark.browser

PHONE = {"viewport": {"width": 390, "height": 844}}
TOO_FAINT = Path(__file__).with_name("contrast.js").read_text(encoding="utf-8")
HOSTILE = "<img src=x onerror=alert(1)>"
UNBREAKABLE = "unbreakable" * 8


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evaluation")
    data = make_set(folder / "set", images=12)
    data.manifest.write_text(
        data.manifest.read_text().replace("- c3", f"- '{HOSTILE}'").replace("- c4", f"- {UNBREAKABLE}")
    )
    networks = [
        save(colour_network(5, spoil=spoil, seed=seed), folder / f"{name}.onnx")
        for name, spoil, seed in (
            ("float", 0.0, 0),
            ("slightly", 0.05, 1),
            ("badly", 0.4, 2),
            ("a_" * 30, 0.2, 3),
            (UNBREAKABLE, 0.1, 4),
        )
    ]
    evaluate(networks, data.manifest, output=folder, resamples=200, pictures=3, max_drop="miou=0.5,class:c1=99")
    return folder / "evaluation.html"


def column(page: Any, table: str, place: int) -> list[float]:
    cells = page.locator(f"#{table} tbody tr td:nth-of-type({place})")
    return [float(value) for value in cells.evaluate_all("all => all.map((cell) => cell.dataset.value)")]


def row_names(page: Any, table: str) -> list[str]:
    return page.locator(f"#{table} tbody .row-name").all_text_contents()


def test_the_verdict_stands_on_top(open_report: Any, report: Path) -> None:
    page = open_report(report)
    verdict = page.locator("header .verdict .status")
    assert verdict.text_content().startswith("Gate failed: ")
    assert verdict.bounding_box()["y"] < 400
    first = page.locator("section[aria-labelledby=gate] tbody tr").first
    assert "broken" in first.text_content()


def test_tables_sort_both_ways_by_any_column(open_report: Any, report: Path) -> None:
    page = open_report(report)
    natural = row_names(page, "classes-table")
    assert natural[0] == "all classes"
    badly = page.locator("#classes-table thead button", has_text="badly")
    badly.click()
    assert column(page, "classes-table", 3) == sorted(column(page, "classes-table", 3))
    assert badly.locator("xpath=..").get_attribute("aria-sort") == "ascending"
    badly.press("Enter")
    assert column(page, "classes-table", 3) == sorted(column(page, "classes-table", 3), reverse=True)
    page.locator("#classes-table thead button", has_text="Class").click()
    assert row_names(page, "classes-table") != natural
    assert sorted(row_names(page, "classes-table")) == sorted(natural)


def test_long_names_do_not_widen_tables(open_report: Any, report: Path) -> None:
    page = open_report(report, viewport={"width": 1440, "height": 900})
    frames = page.locator(".sort-frame .scroll:visible")
    assert frames.count() >= 5
    assert (
        frames.evaluate_all("all => all.map((frame) => frame.scrollWidth - frame.clientWidth)") == [0] * frames.count()
    )


def test_rare_slices_unfold(open_report: Any, report: Path) -> None:
    page = open_report(report)
    hidden = page.locator("#slices-table [data-more-row]")
    assert hidden.count() == 5
    assert not hidden.first.is_visible()
    page.get_by_role("button", name="Show 5 more").click()
    assert hidden.first.is_visible()


def test_worst_images_page_by_keyboard_and_filter_by_network(open_report: Any, report: Path) -> None:
    page = open_report(report)
    shown = page.locator(".slide:not([hidden])")
    range_ = page.locator(".worst [data-range]")
    total = page.locator(".slide").count()
    assert shown.count() == 1
    assert range_.text_content() == f"1 of {total}"
    first = shown.text_content()
    page.locator(".worst").focus()
    page.keyboard.press("ArrowRight")
    assert shown.count() == 1
    assert shown.text_content() != first
    page.keyboard.press("End")
    assert range_.text_content() == f"{total} of {total}"
    page.keyboard.press("Home")
    assert shown.text_content() == first
    page.locator(".worst select").select_option("badly")
    assert range_.text_content() == "1 of 3"
    assert "badly, rank 1" in shown.text_content()
    captions = shown.locator("figcaption").all_text_contents()
    assert captions == ["image", "label", "float", "badly", "flipped pixels"]
    loaded = shown.locator("img").evaluate_all("all => all.map((image) => image.naturalWidth)")
    assert loaded == [56] * 5


@pytest.mark.parametrize("width", [390, 768, 1440])
def test_the_page_never_scrolls_sideways(open_report: Any, report: Path, width: int) -> None:
    page = open_report(report, viewport={"width": width, "height": 844})
    page.locator("details").evaluate_all("all => all.forEach((item) => (item.open = true))")
    page.locator(".worst select").select_option(UNBREAKABLE)
    assert page.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_contrast(open_report: Any, report: Path, scheme: str) -> None:
    page = open_report(report, color_scheme=scheme)
    assert page.evaluate(TOO_FAINT) == []


def test_hostile_names_stay_text(open_report: Any, report: Path) -> None:
    page = open_report(report)
    assert HOSTILE in row_names(page, "classes-table")
    assert page.locator("img[src=x]").count() == 0


def test_it_reads_without_scripts_and_in_print(open_report: Any, report: Path) -> None:
    page = open_report(report, java_script_enabled=False)
    assert page.locator(".slide").nth(2).is_visible()
    assert page.locator("#slices-table [data-more-row]").first.is_visible()
    page.emulate_media(media="print")
    drawn = page.locator(".overlays img").evaluate_all("all => all.map((image) => [image.naturalWidth, image.width])")
    assert len(drawn) > 5
    assert all(natural == 56 and shown > 0 for natural, shown in drawn)
    assert page.locator("#classes-table").is_visible()
    assert not page.locator(".contents").is_visible()
