"""What users give ``calib evaluate`` by mistake: each is told, and nothing passes unmeasured."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from calib.edges.runners.ort import OrtRunner
from calib.errors import ModelError, UsageError
from calib.jobs.evaluate import evaluate, run
from tests.evalsets import Evalset, colour_network, make_set, save

QUICK: dict[str, Any] = {"resamples": 100, "pictures": 0}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Evalset:
    return make_set(tmp_path_factory.mktemp("set"), images=6)


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("networks")
    return save(colour_network(5), folder / "float.onnx"), save(colour_network(5, spoil=0.3), folder / "worse.onnx")


def spoiled_by(value: float, classes: int = 5) -> onnx.ModelProto:
    """A network whose logits of all classes are a NaN or an infinity."""
    model = colour_network(classes)
    bias = np.full(classes, value, np.float32)
    model.graph.initializer[1].CopyFrom(numpy_helper.from_array(bias, "bias"))
    return model


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("numerics", "int4", "one of fake-quant, int8"),
        ("gate_by", "luck", "one of value, interval"),
        ("foreign", "ignore", "one of stop, void"),
        ("provider", "tpu", "one of cpu, cuda"),
        ("resamples", 0, "100 or more"),
        ("pictures", -1, "0 or more"),
        ("workers", 0, "1 or more"),
        ("seed", -1, "0 or more"),
        ("threshold", float("nan"), "a finite number"),
    ],
)
def test_options_from_python_are_checked_like_those_of_the_command(
    data: Evalset, networks: tuple[Path, Path], tmp_path: Path, option: str, value: Any, words: str
) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        evaluate(networks, data.manifest, output=tmp_path / "out", **{option: value})
    assert f"--{option.replace('_', '-')}" in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_one_slice_may_be_given_as_text(data: Evalset, networks: tuple[Path, Path], tmp_path: Path) -> None:
    document = evaluate(networks[0], data.manifest, output=tmp_path, slices="bright=luma_mean>1", **QUICK)
    assert document["slices"]["bright"]["images"] == 6


@pytest.mark.parametrize("texts", [["x=luma_mean<60", "x=luma_mean>60"], ["dark=luma_mean<5"]])
def test_two_slices_of_one_name_are_refused(
    data: Evalset, networks: tuple[Path, Path], tmp_path: Path, texts: list[str]
) -> None:
    with pytest.raises(UsageError, match="a name that is not taken"):
        evaluate(networks, data.manifest, output=tmp_path / "out", slices=texts, **QUICK)
    assert not (tmp_path / "out").exists()


def test_a_gate_that_has_nothing_to_judge_does_not_open(
    data: Evalset, networks: tuple[Path, Path], tmp_path: Path
) -> None:
    arguments: dict[str, Any] = {"reference": str(networks[0]), "max_drop": "miou=1", **QUICK}
    with pytest.raises(UsageError, match="a network to judge against the reference"):
        evaluate(networks[0], data.manifest, output=tmp_path, **arguments)


def test_an_unknown_class_in_the_gate_is_told_before_a_network_is_loaded(
    data: Evalset, networks: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "load_network", None)
    with pytest.raises(UsageError, match="c0, c1, c2, c3, c4"):
        evaluate(networks, data.manifest, output=tmp_path, max_drop="class:c9=1", **QUICK)


@pytest.mark.parametrize("broken", ["reference", "candidate"])
def test_networks_that_answer_nan_fail_the_gate(
    data: Evalset, networks: tuple[Path, Path], tmp_path: Path, broken: str
) -> None:
    other = save(spoiled_by(np.nan), tmp_path / "nan.onnx")
    models = [other, networks[0]] if broken == "reference" else [networks[0], other]
    document = evaluate(models, data.manifest, output=tmp_path / "out", max_drop="miou=0.5,class:c1=99.9", **QUICK)
    assert any("nan answers NaN on 13440 pixels" in note for note in document["notes"])
    assert document["models"][models.index(other)]["miou"] == 0.0
    assert not document["gate"][0]["passed"]
    if broken == "reference":
        assert {item["passed"] for item in document["gate"]} == {False}
        assert "the reference answers NaN on 13440 pixels" in document["gate"][0]["reason"]


def test_infinite_logits_are_ties(data: Evalset, tmp_path: Path) -> None:
    network = save(spoiled_by(np.inf), tmp_path / "inf.onnx")
    model = evaluate(network, data.manifest, output=tmp_path / "out", **QUICK)["models"][0]
    assert model["ties"]["rate"] == 1.0
    assert model["pixels_without_prediction"] == 0


def test_a_threshold_needs_an_output_of_one_channel(data: Evalset, networks: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a network with one channel for two classes"):
        evaluate(networks, data.manifest, output=tmp_path, threshold=0.3, **QUICK)


def test_a_classifier_is_refused(data: Evalset, tmp_path: Path) -> None:
    pooled = [helper.make_node("GlobalAveragePool", ["logits"], ["o"])]
    network = save(colour_network(5, tail=pooled, output="o"), tmp_path / "n.onnx")
    with pytest.raises(ModelError, match="one cell for an input of 32 x 48, as a classifier answers"):
        evaluate(network, data.manifest, output=tmp_path / "out", **QUICK)


def test_more_channels_than_classes_are_remarked_on_in_every_run(data: Evalset, tmp_path: Path) -> None:
    network = save(colour_network(9), tmp_path / "nine.onnx")
    first = evaluate(network, data.manifest, output=tmp_path / "out", **QUICK)
    assert any(note.startswith("nine: 9 channels for 5 classes") for note in first["notes"])
    again = evaluate(network, data.manifest, output=tmp_path / "out", **QUICK)  # from the counts of the first run
    assert again == first


@pytest.mark.parametrize("name", ["notes.yaml", "model.json", "model.textproto"])
def test_a_file_that_is_no_network_is_told_whatever_its_name(data: Evalset, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("name: none of this is a network\n")
    with pytest.raises(ModelError, match="a text file"):
        evaluate(tmp_path / name, data.manifest, output=tmp_path / "out", **QUICK)


def test_a_network_of_any_name_is_read(data: Evalset, networks: tuple[Path, Path], tmp_path: Path) -> None:
    odd = tmp_path / "network.json"
    odd.write_bytes(networks[0].read_bytes())
    document = evaluate([networks[0], odd], data.manifest, output=tmp_path / "out", **QUICK)
    assert document["models"][1]["sha256"] == document["models"][0]["sha256"]


def test_a_column_that_names_images_makes_no_slices(networks: tuple[Path, Path], tmp_path: Path) -> None:
    data = make_set(tmp_path / "set", images=6)
    text = data.manifest.read_text().replace(r"sequence: ([^/_]+)_[^/]*$", r"frame: ([^/]+)\.png$")
    data.manifest.write_text(text)
    document = evaluate(networks, data.manifest, output=tmp_path / "out", bootstrap_by="frame", **QUICK)
    assert not any(name.startswith("frame=") for name in document["slices"])
    assert any("manifest column frame: 6 values, no slices of it" in note for note in document["notes"])


@pytest.mark.parametrize("reference", [True, False])
def test_pictures_need_no_further_forward_pass_and_are_those_of_one(
    data: Evalset, networks: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: bool
) -> None:
    """The maps kept while counting give the same report as a second run, which has the counts and no maps."""
    models = (
        [*networks, save(colour_network(5, spoil=0.5, seed=3), tmp_path / "worst.onnx")] if reference else networks[1:]
    )
    passes = []
    original = OrtRunner.run
    monkeypatch.setattr(OrtRunner, "run", lambda *arguments: passes.append(1) or original(*arguments))
    evaluate(models, data.manifest, output=tmp_path / "out", resamples=100, pictures=2)
    assert len(passes) == 6 * len(models)
    first = (tmp_path / "out" / "evaluation.html").read_bytes()
    assert first.count(b'class="slide"') == (4 if reference else 2)
    evaluate(models, data.manifest, output=tmp_path / "out", resamples=100, pictures=2)
    assert len(passes) > 6 * len(models)
    assert (tmp_path / "out" / "evaluation.html").read_bytes() == first


def test_odd_file_names_of_networks_are_shown_escaped(
    data: Evalset, networks: tuple[Path, Path], tmp_path: Path
) -> None:
    odd = tmp_path / os.fsdecode(b"two\nlines\xff\x1b[31m.onnx")
    try:
        odd.write_bytes(networks[1].read_bytes())
    except OSError:
        pytest.skip("this file system takes UTF-8 names alone")
    document = evaluate([networks[0], odd], data.manifest, output=tmp_path / "out", resamples=100, pictures=1)
    assert document["models"][1]["name"] == r"two\nlines\xff\x1b[31m"
    assert json.loads((tmp_path / "out" / "evaluation.json").read_text(encoding="utf-8")) == document
    assert r"two\nlines\xff" in (tmp_path / "out" / "evaluation.html").read_text(encoding="utf-8")
