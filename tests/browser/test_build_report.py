from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from calib.edges.report.page import render_build_report
from tests.edges.report.test_page import hostile_report

pytestmark = pytest.mark.browser

PHONE = {"viewport": {"width": 390, "height": 844}}
VISIBLE_ENTRIES = "[data-table]:has(.tensors) .entry:not([hidden])"
TOO_FAINT = Path(__file__).with_name("contrast.js").read_text(encoding="utf-8")


def names(page: Any) -> list[str]:
    return page.locator(f"{VISIBLE_ENTRIES} .row .tensor-name").all_text_contents()


def values(page: Any, key: str) -> list[float]:
    return page.eval_on_selector_all(VISIBLE_ENTRIES, f"all => all.map((item) => Number(item.dataset.{key}))")


def thumbs(page: Any) -> list[str]:
    return page.locator(".thumb:not([hidden]) .rank").all_text_contents()


def test_sorting_by_header_and_by_list(open_report: Any) -> None:
    page = open_report()
    page.get_by_role("button", name="Spread", exact=True).click()
    found = values(page, "spread")
    assert found == sorted(found, reverse=True)
    assert found[0] > 3
    assert page.locator(".tensors th[aria-sort=descending]").count() == 1
    page.get_by_role("button", name="Spread", exact=True).click()
    assert values(page, "spread") == sorted(values(page, "spread"))
    page.get_by_role("button", name="minmax").click()
    assert values(page, "c1")[0] == max(values(page, "c1"))
    page.get_by_label("Sort").select_option("network order")
    assert values(page, "order") == list(range(50))


def test_entries_without_a_value_sort_last_both_ways(open_report: Any) -> None:
    page = open_report()
    page.locator("[data-more]").first.click()
    header = page.get_by_role("button", name="entropy")
    for _ in range(2):
        header.click()
        assert names(page)[-1] == "/aux/Sigmoid_output_0"


def test_search_and_flag_filter(open_report: Any) -> None:
    page = open_report()
    page.get_by_placeholder("Search name or operator").fill("features.3/ CONV")
    assert names(page)
    assert all("features.3/" in name and "Conv" in name for name in names(page))
    assert page.locator("[data-shown]").first.text_content() == f"{len(names(page))} of 240 tensors"
    page.get_by_placeholder("Search name or operator").fill("no such tensor")
    assert names(page) == []
    assert page.get_by_text("No tensor matches.").is_visible()
    page.get_by_placeholder("Search name or operator").fill("")
    page.get_by_label("Flag").select_option("dead")
    assert names(page) == ["/aspp/convs.4/Relu_output_0"]


def test_long_tables_start_short_and_unfold_in_full(open_report: Any) -> None:
    page = open_report()
    assert len(names(page)) == 50
    page.locator("[data-more]").first.click()
    assert len(names(page)) == 240
    assert page.locator("[data-more]").first.is_hidden()


def test_rows_unfold_by_keyboard_and_show_the_histogram(open_report: Any) -> None:
    page = open_report()
    button = page.locator(".open").first
    button.focus()
    page.keyboard.press("Enter")
    assert button.get_attribute("aria-expanded") == "true"
    assert page.locator("#d0 svg.histogram").is_visible()
    page.keyboard.press("Space")
    assert page.locator("#d0").is_hidden()


def test_links_reveal_a_tensor_that_is_folded_away(open_report: Any) -> None:
    page = open_report()
    page.get_by_label("Flag").select_option("dead")
    link = page.locator(".gallery a").last
    target = link.get_attribute("href")
    link.click()
    assert page.locator(f"{target} svg.histogram").is_visible()
    assert page.evaluate(f"document.querySelector('{target}').getBoundingClientRect().top") < 900


def test_contact_sheet_pages_by_keyboard_and_button(open_report: Any) -> None:
    page = open_report()
    assert thumbs(page) == [str(rank) for rank in range(1, 25)]
    page.locator(".sheet").focus()
    page.keyboard.press("ArrowRight")
    assert thumbs(page) == [str(rank) for rank in range(25, 49)]
    page.keyboard.press("End")
    assert thumbs(page) == ["97", "98", "99", "100"]
    page.keyboard.press("PageDown")
    assert page.locator("[data-range]").text_content() == "97–100 of 100 images"
    assert page.get_by_role("button", name="Next").get_attribute("aria-disabled") == "true"
    page.keyboard.press("Home")
    page.get_by_role("button", name="Next").click()
    assert thumbs(page)[0] == "25"
    page.get_by_label("Sampler").select_option("random")
    assert thumbs(page)[0] == "51"


@pytest.mark.parametrize("width", [320, 390, 768, 1000, 1120, 1440, 2560])
def test_page_never_scrolls_sideways(open_report: Any, width: int) -> None:
    page = open_report(viewport={"width": width, "height": 900})
    page.locator(".open").first.click()
    for summary in page.locator("details").all():
        summary.evaluate("node => (node.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_contrast(open_report: Any, scheme: str) -> None:
    page = open_report(color_scheme=scheme)
    page.locator(".open").first.click()
    for summary in page.locator("details").all():
        summary.evaluate("node => (node.open = true)")
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(245, 246, 248)" if scheme == "light" else "rgb(14, 17, 22)")
    assert page.evaluate(TOO_FAINT) == []


def test_phone_shows_rows_as_cards_with_numbers_on_unfolding(open_report: Any) -> None:
    page = open_report(**PHONE)
    page.locator(".open").first.click()
    box = page.locator("#d0 svg.histogram").bounding_box()
    assert box is not None
    assert 280 < box["width"] <= 390
    assert page.locator("#d0 td").nth(1).is_visible()


def test_touch_targets_are_large_enough(open_report: Any) -> None:
    page = open_report(**PHONE, has_touch=True)
    for control in page.locator(".toolbar button, .toolbar select, .toolbar input").all():
        if control.is_visible():
            assert control.bounding_box()["height"] >= 36


def test_without_script_everything_is_shown(open_report: Any) -> None:
    page = open_report(java_script_enabled=False)
    assert page.locator(".thumb").last.is_visible()
    assert page.locator(".tensors .entry").last.is_visible()
    assert page.locator(".detail svg.histogram").last.is_visible()
    assert page.get_by_placeholder("Search name or operator").is_hidden()


def test_printing_shows_all_rows_and_thumbnails(open_report: Any) -> None:
    page = open_report()
    page.emulate_media(media="print")
    assert page.locator(".thumb").last.is_visible()
    assert page.locator(".tensors .entry").last.is_visible()
    assert page.locator(".toolbar").first.is_hidden()
    assert page.pdf()[:5] == b"%PDF-"


def test_contents_follow_the_reader(open_report: Any) -> None:
    page = open_report()
    page.get_by_role("navigation").get_by_text("Placement").click()
    page.wait_for_function("document.querySelector('.contents [aria-current]').textContent === 'Placement'")
    assert page.locator(".contents [aria-current]").count() == 1


def test_every_control_has_a_name(open_report: Any) -> None:
    page = open_report()
    nameless = """all => all.filter((node) => !node.labels?.[0]?.textContent.trim() && !node.textContent.trim())
      .map((node) => node.outerHTML)"""
    assert page.locator("button, input, select").count() > 250
    assert page.eval_on_selector_all("button, input, select", nameless) == []


def test_copy_button_copies_the_command(open_report: Any) -> None:
    page = open_report(permissions=["clipboard-read", "clipboard-write"])
    page.locator("[data-copy]").nth(1).click()
    page.get_by_text("Copied").wait_for()
    assert (
        page.evaluate("navigator.clipboard.readText()")
        == "trtexec --onnx=out/entropy.qdq.onnx --saveEngine=deeplab.engine"
    )


def test_hostile_names_run_nothing(open_report: Any, tmp_path: Path) -> None:
    path = tmp_path / "hostile.html"
    path.write_bytes(render_build_report(hostile_report()))
    page = open_report(path, viewport={"width": 390, "height": 844})
    assert page.locator("img").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.locator(".open").first.click()
    assert page.locator(".detail").first.is_visible()
