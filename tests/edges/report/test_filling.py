"""Filling a report from what the stages answer on a real, small network."""

from __future__ import annotations

import math

import numpy as np
import pytest

from calib.core.graph import analyse
from calib.core.histogram import collect_statistics
from calib.edges.report.filling import amount_section, distributions_of, placement_section, tensor_rows
from calib.edges.report.model import BuildReport, ImagesSection, Subject
from calib.edges.report.page import render_build_report
from calib.stages.amount import Settling
from calib.stages.cachefile import cache_entries
from calib.stages.qdq import quantize_model
from calib.types.statistics import DynamicRange
from tests.graphs import activations, feeds, model, node, weight


@pytest.fixture(scope="module")
def network():
    """Two convolutions of very different range into one Concat, with a dead channel and a shape computation."""
    wide, narrow = weight(8, 3, 3, 3, seed=1) * 40, weight(8, 3, 3, 3, seed=2)
    wide[5] = 0
    nodes = [
        node("Conv", "x,wide", "a", pads=[1, 1, 1, 1]),
        node("Relu", "a", "ra"),
        node("Conv", "x,narrow", "b", pads=[1, 1, 1, 1]),
        node("Concat", "ra,b", "c", axis=1),
        node("Shape", "c", "s"),
        node("Conv", "c,head", "y"),
    ]
    weights = {"wide": wide, "narrow": narrow, "head": weight(4, 16, 1, 1, seed=3)}
    return model(nodes, {"x": (1, 3, 8, 8)}, ["y"], weights)


@pytest.fixture(scope="module")
def filled(network):
    """Statistics, ranges, cache coverage and Q/DQ result of it."""
    found = analyse(network)
    values = activations(network, feeds(network))
    statistics = {
        item.name: collect_statistics(item.name, [values[item.name]], item.channel_axis) for item in found.activations
    }
    ranges = {name: DynamicRange(item.amax) for name, item in statistics.items()}
    entries, coverage = cache_entries(found, ranges)
    assert entries
    result = quantize_model(network, {name: item.amax for name, item in ranges.items()}, "trt10")
    return found, statistics, {"minmax": ranges}, coverage, result


def test_rows_follow_the_network_and_say_what_is_derived(filled) -> None:
    found, statistics, ranges, coverage, _ = filled
    rows = tensor_rows(found, statistics, ranges, coverage)
    assert [row.name for row in rows] == [item.name for item in found.activations]
    relu = next(row for row in rows if row.name == "ra")
    assert relu.flags == ("derived",)
    assert relu.note == "Derived exactly: a clipped to [0, inf]."
    assert all(row.ranges["minmax"].amax == statistics[row.name].amax for row in rows)


def test_placement_accounts_for_every_decision(filled) -> None:
    _, _, _, coverage, result = filled
    section = placement_section(result, coverage)
    assert [(item.node, item.status) for item in section.decisions] == [
        (item.label, item.status) for item in result.plan.decisions
    ]
    assert {item.status for item in section.decisions} >= {"int8", "float"}
    assert section.dead_channels[0].tensor == "wide"
    assert section.dead_channels[0].channels == (5,)
    assert [item.tensor for item in section.concats] == ["b"]
    assert section.concats[0].bits == math.log2(section.concats[0].shared / section.concats[0].amax)
    assert (section.covered, section.tensors) == (6, 6)
    assert section.exempt["s"] == "integer"


def test_never_observed_tensors_are_missing(filled) -> None:
    found, _, ranges, _, result = filled
    left = {name: item for name, item in ranges["minmax"].items() if name != "b"}
    _, coverage = cache_entries(found, left)
    section = placement_section(result, coverage)
    assert dict(section.missing) == {"b": "never observed"}
    assert (section.covered, section.tensors) == (5, 6)


def test_placement_without_a_qdq_model_or_without_a_cache(filled) -> None:
    _, _, _, coverage, result = filled
    assert placement_section(None, coverage).decisions == ()
    assert placement_section(result, None).tensors is None
    assert placement_section(None, None).covered is None


def test_the_filled_report_renders(filled) -> None:
    found, statistics, ranges, coverage, result = filled
    subject = Subject("m.onnx", "d", "train", (), 1, 1, ("minmax",), "10.14.1", "0.1.0", "calibration.cache")
    page = render_build_report(
        BuildReport(
            subject,
            (),
            None,
            tensor_rows(found, statistics, ranges, coverage),
            placement_section(result, coverage),
            amount_section(Settling((16, 24), {"minmax": (math.nan, 0.01)}, True), 24),
        )
    ).decode()
    assert page.count('class="entry" id="t') == 6
    assert "Every calibrator stayed within 0.05 bits" in page


def test_unsettled_ranges_are_told() -> None:
    section = amount_section(Settling((16, 24), {"mse": (math.nan, 0.2)}, False), 24)
    assert "still moving" in section.note
    assert (section.tolerance, section.chosen) == (0.05, 24)


def test_distributions_take_numeric_and_named_bins() -> None:
    sets = {"population": [1, 1, 1], "selection": [0, 1, 2]}
    light, classes, other, scale = distributions_of(
        {
            "light": {"edges": np.array([0, 0.5, 1]), "population": np.array([3, 1]), "selection": [1, 1]},
            "classes": {"names": ["road", "pole"], "population": [0.9, 0.1], "selection": [0.5, 0.5]},
            "edge_density": {"edges": [0, 1], "population": [1], "selection": [1]},
            "scale": {"name": "Objects", "unit": "px", "edges": [1, 2, 4, 8], "labels": [], **sets},
        }
    )
    assert (light.name, light.edges, light.population) == ("Light", (0.0, 0.5, 1.0), (3.0, 1.0))
    assert (classes.labels, classes.edges) == (("road", "pole"), ())
    assert other.name == "Edge density"
    assert (scale.name, scale.unit, scale.labels) == ("Objects", "px", ())
    subject = Subject("m", "d", "s", (), 1, 1, (), "", "0", "")
    assert b"Edge density" in render_build_report(BuildReport(subject, images=ImagesSection((light, classes, other))))
