from __future__ import annotations

import base64
import dataclasses
import hashlib
import math
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest

from calib.edges.report import formatting
from calib.edges.report.model import (
    AmountSection,
    BuildReport,
    Command,
    Decision,
    Distribution,
    ImagesSection,
    Notice,
    OutputFile,
    PlacementSection,
    ProvenanceSection,
    RangeCell,
    Subject,
    TensorRow,
    Thumbnail,
)
from calib.edges.report.page import render_build_report
from calib.edges.report.thumbnails import thumbnail_jpeg
from calib.types.statistics import DynamicRange, TensorStatistics
from tests.edges.report.realistic import CALIBRATORS, realistic_report, realistic_tensors

HOSTILE = "<img src=x onerror=alert(1)> \"q\" 's' & </script><script>alert(2)</script> {{ 7*7 }} \x00\u202e\ud800"
SHOWN = "<img src=x onerror=alert(1)> \"q\" 's' & </script><script>alert(2)</script> {{ 7*7 }} \\u0000\\u202e\\ud800"
CELLS = {"th", "td", "dt", "dd", "p", "li"}
VOID = {"meta", "link", "img", "input", "br", "wbr"}


class Page(HTMLParser):
    """Counts tags, collects text by element id, and checks that every element is closed in order."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(data.decode("utf-8"))
        assert self.stack == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag
        if tag in CELLS:
            self.text += " "

    def handle_data(self, data: str) -> None:
        if self.stack[-1:] not in (["style"], ["script"]):
            self.text += data

    def having(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for _, attributes in self.tags if name in attributes]


def subject(**changes: object) -> Subject:
    plain = Subject("m.onnx", "data", "train", (), 1, 2, ("minmax", "mse"), "", "0.1.0", "")
    return dataclasses.replace(plain, **changes)  # type: ignore[arg-type]


def row(name: str, **changes: object) -> TensorRow:
    cells = {"minmax": RangeCell(4.0, 0.0), "mse": RangeCell(1.0, 0.125)}
    plain = TensorRow(name, "Conv", 8, -4.0, 3.0, np.array([4, 2, 1, 1]), 0, cells)
    return dataclasses.replace(plain, **changes)  # type: ignore[arg-type]


def hostile_report() -> BuildReport:
    return BuildReport(
        subject(
            model=HOSTILE, data=HOSTILE, split=HOSTILE, samplers=(HOSTILE,), calibrators=(HOSTILE,), artifact=HOSTILE
        ),
        (Notice("error", HOSTILE, HOSTILE, "ranges"),),
        ImagesSection(
            (Distribution(HOSTILE, (1.0,), (2.0,), (), (HOSTILE,), HOSTILE, HOSTILE),),
            (Thumbnail(HOSTILE, b"", 1, HOSTILE, 0.5, {HOSTILE: 1.0}), Thumbnail("b", b"", 2, "other")),
            (HOSTILE,),
        ),
        (row(HOSTILE, op=HOSTILE, flags=(HOSTILE,), note=HOSTILE, ranges={HOSTILE: RangeCell(2.0, 0.1)}),),
        PlacementSection(
            (Decision(HOSTILE, HOSTILE, "float", HOSTILE, HOSTILE),),
            HOSTILE,
            covered=1,
            missing={HOSTILE: HOSTILE},
            exempt={HOSTILE: HOSTILE},
        ),
        AmountSection((1, 2), {HOSTILE: (2.0, 1.0)}, 0.5, 2, HOSTILE, HOSTILE),
        ProvenanceSection(
            {HOSTILE: {HOSTILE: HOSTILE}},
            (OutputFile(HOSTILE, 1, HOSTILE, HOSTILE),),
            (Command(HOSTILE, HOSTILE, HOSTILE),),
        ),
    )


@pytest.fixture(scope="module")
def realistic() -> bytes:
    return render_build_report(realistic_report())


def test_elements_are_balanced_and_ids_unique(realistic: bytes) -> None:
    page = Page(realistic)
    ids = [attributes["id"] for attributes in page.having("id")]
    assert len(ids) == len(set(ids))
    for name in ("aria-labelledby", "aria-controls", "aria-describedby"):
        for attributes in page.having(name):
            assert set((attributes[name] or "").split()) <= set(ids)
    links = {attributes["href"] for attributes in page.having("href") if (attributes["href"] or "").startswith("#")}
    assert {link[1:] for link in links if link} <= set(ids)  # type: ignore[index]


def test_every_inline_chart_is_xml(realistic: bytes) -> None:
    charts = re.findall(r"<svg.*?</svg>", realistic.decode(), re.DOTALL)
    assert len(charts) > 480
    for markup in charts:
        ElementTree.fromstring(markup)


def test_same_report_same_bytes(realistic: bytes) -> None:
    assert render_build_report(realistic_report()) == realistic


def test_300_tensors_and_100_thumbnails_stay_under_5_megabytes() -> None:
    assert len(render_build_report(realistic_report(tensors=300))) < 5_000_000


def test_huge_networks_get_fewer_charts_and_say_so() -> None:
    tensors = [
        dataclasses.replace(item, name=f"{item.name}:{turn}") for turn in range(7) for item in realistic_tensors(200)
    ]
    page = render_build_report(BuildReport(subject(calibrators=CALIBRATORS), tensors=tuple(tensors)))
    assert len(page) < 10_000_000
    assert page.count(b'class="chart histogram"') == 400 + 6
    assert b"drawn small only" in page


def test_asks_the_network_for_nothing(realistic: bytes) -> None:
    page = Page(realistic)
    addresses = [value or "" for name in ("src", "href") for item in page.having(name) for value in [item[name]]]
    assert all(value.startswith(("data:", "#")) for value in addresses)
    assert not re.search(r"url\(|@import|fetch\(|XMLHttpRequest", realistic.decode())


def test_policy_allows_exactly_the_embedded_script(realistic: bytes) -> None:
    script = re.findall(rb"<script>(.*?)</script>", realistic, re.DOTALL)
    policy = next(item["content"] for item in Page(realistic).having("http-equiv"))
    assert len(script) == 1
    digest = base64.b64encode(hashlib.sha256(script[0]).digest()).decode()
    assert policy is not None
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")


def test_hostile_text_is_shown_and_never_markup() -> None:
    plain = Page(render_build_report(dataclasses.replace(hostile_report(), notices=())))
    page = Page(render_build_report(hostile_report()))
    assert page.text.count(SHOWN) >= 30
    assert "49" not in re.findall(r"\b49\b", page.text)
    assert sum(tag == "script" for tag, _ in page.tags) == 1
    assert not page.having("onerror")
    assert {tag for tag, _ in page.tags} == {tag for tag, _ in plain.tags}


def test_every_section_may_be_absent() -> None:
    page = Page(render_build_report(BuildReport(subject())))
    assert "No release artifact was written." in page.text
    assert [item["href"] for item in page.having("href")][2:] == ["#top"]


@pytest.mark.parametrize("kept", ["images", "tensors", "placement", "amount", "provenance"])
def test_any_section_may_stand_alone_and_is_number_one(kept: str) -> None:
    whole = hostile_report()
    page = Page(render_build_report(BuildReport(subject(), **{kept: getattr(whole, kept)})))
    assert sum(tag == "section" for tag, _ in page.tags) == 1
    assert sum(tag == "h2" for tag, _ in page.tags) == 1


def test_empty_sections_do_not_fail() -> None:
    report = BuildReport(
        subject(), (), ImagesSection(), (), PlacementSection(), AmountSection((), {}), ProvenanceSection()
    )
    assert "How many images are enough" in Page(render_build_report(report)).text


def entries(data: bytes) -> list[dict[str, str | None]]:
    return [item for item in Page(data).having("data-order") if item.get("id")]


def test_numbers_shown_equal_those_given(realistic: bytes) -> None:
    report = realistic_report()
    found = entries(realistic)
    assert report.tensors is not None
    assert len(found) == len(report.tensors)
    for item, given in zip(found, report.tensors, strict=True):
        for place, name in enumerate(CALIBRATORS):
            text = item.get(f"data-c{place}")
            assert (float(text) if text else None) == (given.ranges[name].amax if name in given.ranges else None)
        assert float(item["data-amax"] or "") == given.amax


def test_cells_show_amax_bits_and_clipped_share() -> None:
    page = Page(render_build_report(BuildReport(subject(), tensors=(row("a"), row("b")))))
    text = re.sub(r"\s+", " ", page.text)
    assert "4 0 bit 0 % clipped" in text
    assert "1 +2.00 bit 12.5 % clipped" in text
    assert text.count("spread 2.00 bits") == 2
    assert "8 values. |x| is below 1 for 50 %, 4 for 99 %, 4 for 99.99 % of them." in text


def test_never_observed_and_dead_tensors_are_flagged_and_warned_of() -> None:
    empty = np.zeros(0, np.float32)
    nothing = TensorStatistics(
        "n", 0, 0, math.inf, -math.inf, 0, np.zeros(4, np.int64), np.zeros(4, np.int64), None, empty, empty
    )
    zeros = dataclasses.replace(nothing, name="z", count=9, minimum=0.0, maximum=0.0, positive=np.array([9, 0, 0, 0]))
    rows = tuple(TensorRow.from_statistics(item, "Relu", {"mse": DynamicRange(1e-6)}) for item in (nothing, zeros))
    assert [item.flags for item in rows] == [("never observed",), ("dead",)]
    page = Page(render_build_report(BuildReport(subject(), tensors=rows)))
    assert "Built, with 2 warnings" in page.text
    assert "1 tensor was never observed" in page.text
    assert "1 tensor is dead: zero on every image" in page.text
    assert "inf" not in re.findall(r"\binf\b|\bnan\b", page.text)


def test_statistics_fill_a_row() -> None:
    statistics = TensorStatistics(
        "t",
        6,
        2,
        -1.5,
        3.0,
        0,
        np.array([1, 1, 0, 0]),
        np.array([2, 1, 0, 1]),
        None,
        np.zeros(0, np.float32),
        np.zeros(0, np.float32),
    )
    filled = TensorRow.from_statistics(
        statistics, "Add", {"mse": DynamicRange(2.5, 0.25)}, ("derived",), "from its input"
    )
    assert filled.bins.tolist() == [3, 2, 0, 1]
    assert filled.ranges["mse"] == RangeCell(2.5, 0.25)
    assert filled.flags == ("derived",)
    assert (filled.amax, filled.nonfinite) == (3.0, 2)
    assert (
        "2 non-finite values skipped in 1 tensor"
        in Page(render_build_report(BuildReport(subject(), tensors=(filled,)))).text
    )


def test_placement_counts_and_reasons(realistic: bytes) -> None:
    text = re.sub(r"\s+", " ", Page(realistic).text)
    assert "INT8 74 Conv 74" in text
    assert "fused into an INT8 layer 52 Relu 52" in text
    assert "much to lose 22 GlobalAveragePool 11, Mul 11" in text
    assert "28 of 160 operators left float" in text
    assert "Operators in INT8 126 of 160" in text
    assert "Cache covers 238 of 240" in text
    assert "2.8 14.4 2.36" in text
    assert "0 14.4 dead" in text
    assert "encoder.features.7.conv.weight 3 3, 17, 80" in text
    assert "shape arithmetic 14 tensors" in text
    assert "2 float tensors without an entry in the cache" in text


def test_distribution_table_gives_shares_and_ratios() -> None:
    shown = Distribution("Classes", (30.0, 10.0, 0.0), (1.0, 1.0, 0.0), (), ("road", "pole", "train"), "pixels")
    text = re.sub(r"\s+", " ", Page(render_build_report(BuildReport(subject(), images=ImagesSection((shown,))))).text)
    assert "road 75 % 50 % ×0.667" in text
    assert "pole 25 % 50 % ×2" in text
    assert "train 0 % 0 % –" in text


def test_many_classes_are_drawn_in_part_and_tabulated_in_full() -> None:
    names = tuple(f"class {index}" for index in range(171))
    shown = Distribution("Classes", (1.0,) * 171, tuple(float(index + 1) for index in range(171)), (), names)
    data = render_build_report(BuildReport(subject(), images=ImagesSection((shown,)))).decode()
    assert data.count('class="disc"') == 24 + 1
    assert "147 more are among the numbers" in data
    assert all(f'<th scope="row">{name}</th>' in data for name in names)


@pytest.mark.parametrize("sizes", [((1.0,), (1.0, 2.0)), ((1.0, 2.0), (1.0, 2.0))])
def test_distribution_of_unequal_lengths_is_refused(sizes: tuple[tuple[float, ...], tuple[float, ...]]) -> None:
    with pytest.raises(ValueError, match="1 bins"):
        Distribution("Light", *sizes, edges=(0.0, 1.0))


def test_worst_notice_comes_first_and_given_notes_are_not_repeated() -> None:
    images = ImagesSection(notes=("3 dark images only", "dropped 2"))
    notices = (Notice("info", "told"), Notice("warning", "3 dark images only"), Notice("error", "bad"))
    page = render_build_report(BuildReport(subject(), notices, images)).decode()
    titles = re.findall(r'class="badge">(\w+)</span> (.*?)</p>', page)
    assert titles == [("Error", "bad"), ("Warning", "3 dark images only"), ("Note", "told"), ("Note", "dropped 2")]
    assert "Not usable as it is: 1 error" in page


def test_thumbnails_are_embedded_and_sized() -> None:
    pixels = np.zeros((300, 600, 3), np.uint8)
    pixels[..., 0] = 255
    picture = thumbnail_jpeg(pixels, longest=120)
    import cv2

    decoded = cv2.imdecode(np.frombuffer(picture, np.uint8), cv2.IMREAD_COLOR)
    assert decoded is not None
    assert decoded.shape == (60, 120, 3)
    assert decoded[30, 60].tolist() == pytest.approx([0, 0, 254], abs=4)
    images = ImagesSection(thumbnails=(Thumbnail("a", picture, 1),))
    page = render_build_report(BuildReport(subject(), images=images))
    assert b"data:image/jpeg;base64," + base64.b64encode(picture) in page


def test_a_thumbnail_that_is_no_picture_is_refused() -> None:
    images = ImagesSection(thumbnails=(Thumbnail("a", b"GIF89a", 1),))
    with pytest.raises(ValueError, match="no JPEG, PNG or WebP"):
        render_build_report(BuildReport(subject(), images=images))


def test_amount_table_has_every_point() -> None:
    amount = AmountSection((8, 16), {"mse": (0.5, 0.25), "entropy": (0.125, 0.0625)}, 0.1, 16)
    text = re.sub(r"\s+", " ", Page(render_build_report(BuildReport(subject(), amount=amount))).text)
    assert "8 0.5 0.125" in text
    assert "16 0.25 0.0625" in text
    assert formatting.number(0.1) in text


def test_a_notice_of_the_same_kind_replaces_the_derived_one() -> None:
    dead = row("a", minimum=0.0, maximum=0.0, bins=np.array([8]), flags=("dead",))
    own = Notice("error", "dead branch", about="dead")
    page = render_build_report(BuildReport(subject(), (own,), tensors=(dead,))).decode()
    assert re.findall(r'class="badge">\w+</span> (.*?)</p>', page) == ["dead branch"]


def test_bins_that_grow_by_a_factor_get_equal_widths() -> None:
    shown = Distribution("Scale", (1.0, 1.0, 1.0, 1.0), (1.0,) * 4, (1.0, 2.0, 4.0, 8.0, 16.0))
    data = render_build_report(BuildReport(subject(), images=ImagesSection((shown,)))).decode()
    widths = re.findall(r'<rect x="[\d.]+" y="[\d.]+" width="([\d.]+)" height="[\d.]+" class="pop"/>', data)[-4:]
    assert len(widths) == 4
    assert len(set(widths)) == 1


def test_charts_of_two_columns_come_in_two_widths() -> None:
    shown = Distribution("Light", (1.0, 1.0), (1.0, 2.0), (0.0, 0.5, 1.0))
    data = render_build_report(BuildReport(subject(), images=ImagesSection((shown, shown)))).decode()
    assert data.count('viewBox="0 0 520 252"') == data.count('viewBox="0 0 360 252"') == 2


def test_distribution_without_classes_does_not_fail() -> None:
    shown = Distribution("Classes", (), ())
    assert b"Classes" in render_build_report(BuildReport(subject(), images=ImagesSection((shown,))))
