"""The page of a measurement of sensitivity: complete in itself, and safe with whatever a network's names hold."""

from __future__ import annotations

import pytest

from calib.edges.report.sensitivity import BARS, render_sensitivity_report, short_name, verdict_of

CLASSES = ("road", "pole")


def loss(value: float | None, ci95: list[float] | None = None) -> dict:
    return {"loss": value, "ci95": ci95, "significant": bool(ci95 and not ci95[0] <= 0 <= ci95[1])}


def unit(rank: int, name: str, value: float | None, *, labelled: bool = True) -> dict:
    whole = None
    if labelled:
        interval = None if value is None else [value - 0.1, value + 0.1]
        whole = {
            "miou": loss(value, interval),
            "per_class": {"road": loss(value, interval), "pole": None},
            "slices": {"dark": loss(value) | {"images": 2, "per_class": {"road": value, "pole": None}}},
        }
    return {
        "rank": rank, "name": name, "op": "Conv", "place": rank, "activations": ["a"], "weights": ["w"], "images": 5,
        "settled": "top", "loss": whole, "flips": {"share": 0.01 / rank, "harmed": 0.0, "helped": 0.0}, "sqnr_db": None,
        "macs": 0, "macs_share": None, "loss_per_percent_of_macs": None,
    }  # fmt: skip


def _costs(item: dict) -> bool:
    entry = item["loss"] and item["loss"]["miou"]
    return bool(entry and entry["significant"] and entry["loss"] >= 0.1)


def document(*units: dict, labelled: bool = True, by: str = "miou") -> dict:
    return {
        "schema": 1, "version": "1",
        "network": {
            "name": "net", "path": "net.onnx", "sha256": "0", "mode": "alone", "unit": "layer", "output": "x",
            "macs": 0, "kept_in_float": [],
        },
        "data": {"name": "set", "split": "val", "images": ["a"], "labelled": labelled, "classes": list(CLASSES)},
        "slices": {"dark": {"rule": "dark ones", "images": 2}},
        "base": {"miou": 0.5, "per_class": {}} if labelled else None,
        "together": unit(1, "all", 3.0, labelled=labelled),
        "ranking": {
            "by": by, "resolution": 0.1, "rule": "by loss", "top": 10, "rounds": [5], "runs": 1, "runs_of_all": 2,
        },
        "intervals": {"method": "bootstrap", "level": 0.95, "resamples": 10, "seed": 0, "fewest": 5},
        "units": list(units), "costly": [item["name"] for item in units if _costs(item)], "notes": ["a note"],
    }  # fmt: skip


def test_names_are_escaped_and_every_unit_is_in_the_table():
    units = [unit(n, f"<script>{n}</script>\u202e", 0.5 / n) for n in range(1, BARS + 8)]
    page = render_sensitivity_report(document(*units)).decode()
    assert "<script>1" not in page
    assert "\u202e" not in page
    for item in units:
        assert f"{item['rank']}. " in page
    assert page.count('class="sortable') == 3


@pytest.mark.parametrize("by", ["miou", "class:pole", "slice:dark"])
def test_missing_values_do_not_stop_it(by: str):
    page = render_sensitivity_report(document(unit(1, "one", None), unit(2, "two", 0.2), by=by)).decode()
    assert "sensitivity report" in page


def test_without_labels_there_are_no_losses():
    page = render_sensitivity_report(document(unit(1, "one", None, labelled=False), labelled=False)).decode()
    assert "By class" not in page
    assert "% of the pixels flipped" in page


def test_the_verdict():
    level, words, detail = verdict_of(document(unit(1, "one", 0.5), unit(2, "two", 0.05)))
    assert (level, words) == ("warning", "1 quantizer alone cost 0.1 points or more")
    assert "--keep-float @keep-float.txt" in detail
    assert verdict_of(document(unit(1, "one", 0.05)))[0] is None


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("/backbone/high/high.7/body/body.0/body.0.0/Conv", "high.7/body.0.0"),
        ("/low/low.0/Conv", "low.0"),
        ("Conv_12", "Conv_12"),
        ("n", "n"),
        ("model_1/decoder/very_long_module_name/out", "…module_name/out"),
    ],
)
def test_short_names(name: str, short: str):
    assert short_name(name, "Conv") == short
