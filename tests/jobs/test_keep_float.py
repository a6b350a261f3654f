"""Layers that a build keeps in float as asked: in its Q/DQ networks, its records, its gate and its engine."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from calib.edges.patterns import read_patterns
from calib.edges.progress import SilentProgress
from calib.errors import FormatError, UsageError
from calib.jobs.build import BuildRequest, build
from calib.jobs.cache.convert import ConvertRequest, convert
from calib.jobs.engine import EngineRequest
from calib.jobs.engine.source import read_source
from calib.jobs.sensitivity.request import SensitivityRequest
from calib.jobs.sensitivity.run import measure_sensitivity
from calib.jobs.verify import VerifyRequest, verify
from tests.smallbuild import make_build, write_data, write_network

CALIBRATORS = ("minmax", "per-channel:equalize=true")


def quantized_inputs(path: Path) -> set[str]:
    """The convolutions, by what they make, that read Q/DQ pairs."""
    graph = onnx.load(path).graph
    made = {name: node for node in graph.node for name in node.output}
    return {
        node.output[0]
        for node in graph.node
        if node.op_type == "Conv" and made.get(node.input[0], node).op_type == "DequantizeLinear"
    }


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kept")
    file = folder / "keep.txt"
    file.write_text("# the second layer\nConv(b)\n")
    make_build(folder, CALIBRATORS, keep_float=(f"@{file}",))
    return folder


def test_every_variant_keeps_it_and_the_cache_has_it_all(place: Path, tmp_path: Path) -> None:
    usual = make_build(tmp_path, CALIBRATORS)
    for name in ("minmax", "per-channel"):
        before, after = (quantized_inputs(folder / f"{name}.qdq.onnx") for folder in (usual, place / "out"))
        assert before - after == {"b"}
        assert (usual / f"{name}.cache").read_bytes() == (place / "out" / f"{name}.cache").read_bytes()


def test_the_records_say_so(place: Path) -> None:
    provenance = json.loads((place / "out" / "provenance.json").read_bytes())
    assert provenance["request"]["keep_float"] == ["Conv(b)"]
    report = (place / "out" / "report.html").read_text()
    assert "kept in float as asked" in report


def test_the_gate_passes_it_and_refuses_another_record(place: Path) -> None:
    request = VerifyRequest(place / "out", place / "net.onnx", workers=1)
    first = verify(request, SilentProgress())
    assert first.passed, [item for item in first.checks if item.status == "fail"]
    record = place / "out" / "provenance.json"
    kept = record.read_bytes()
    document = json.loads(kept)
    for other in ([], ["Conv(a)"], ["nothing"], "Conv(b)", [3]):
        document["request"]["keep_float"] = other
        record.write_text(json.dumps(document))
        found = verify(request, SilentProgress())
        assert not found.passed, other
    record.write_bytes(kept)


def test_only_what_follows_from_the_layers_is_made_again(place: Path, tmp_path: Path) -> None:
    folder = make_build(tmp_path, ("minmax",))
    statistics = (folder / "statistics.npz").stat()
    again = make_build(tmp_path, ("minmax",), keep_float=["Conv(b)"])
    assert quantized_inputs(again / "minmax.qdq.onnx") == quantized_inputs(place / "out" / "minmax.qdq.onnx")
    assert (again / "statistics.npz").read_bytes() == (place / "out" / "statistics.npz").read_bytes()
    assert statistics.st_size == (again / "statistics.npz").stat().st_size


def test_the_cache_and_the_same_layers_give_the_same_network(place: Path, tmp_path: Path) -> None:
    target = tmp_path / "again.onnx"
    source = str(place / "out" / "minmax.cache")
    convert(ConvertRequest(source, target, model=place / "net.onnx", target="trt10", keep_float=("b",)))
    assert target.read_bytes() == (place / "out" / "minmax.qdq.onnx").read_bytes()
    with pytest.raises(UsageError, match="keep-float"):
        convert(ConvertRequest(source, tmp_path / "again.cache", model=place / "net.onnx", keep_float=("b",)))


def test_a_conversion_without_a_layer_in_int8_is_refused_for_what_was_asked(place: Path, tmp_path: Path) -> None:
    source = str(place / "out" / "minmax.cache")
    with pytest.raises(FormatError, match="keep fewer layers"):
        convert(ConvertRequest(source, tmp_path / "all.onnx", model=place / "net.onnx", keep_float=("*",)))


def test_an_engine_from_the_cache_pins_it(place: Path, tmp_path: Path) -> None:
    request = EngineRequest(place / "out", model=place / "net.onnx", target="trt10")
    assert "node_of_b" in read_source(request).pinned(fp16=True)


def test_a_pattern_that_names_nothing_ends_the_build_before_it_begins(place: Path, tmp_path: Path) -> None:
    request = BuildRequest(
        place / "net.onnx", str(place / "set.yaml"), tmp_path / "out", split="train", keep_float=["decoder.*"]
    )
    with pytest.raises(UsageError, match="decoder") as error:
        build(request, SilentProgress())
    assert "Conv(a)" in error.value.remedy
    assert not (tmp_path / "out" / "provenance.json").exists()


def test_a_layer_named_by_its_normalisation_is_kept_in_the_equalized_network_too(tmp_path: Path) -> None:
    model = write_network(tmp_path / "net.onnx")
    network = onnx.load(model)
    first = network.graph.node[0]
    first.output[0] = "before"
    parameters = {"one": np.full(8, 1.5, np.float32), "zero": np.zeros(8, np.float32)}
    network.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in parameters.items())
    norm = onnx.helper.make_node("BatchNormalization", ["before", "one", "zero", "zero", "one"], ["a"], name="norm")
    network.graph.node.insert(1, norm)
    onnx.save(network, model)
    request = BuildRequest(
        model, str(write_data(tmp_path)), tmp_path / "out", split="train", samplers=("random",), num_images=4,
        calibrators=CALIBRATORS, keep_float=("norm",),
    )  # fmt: skip
    build(request, SilentProgress())
    for name in ("minmax", "per-channel"):
        assert quantized_inputs(tmp_path / "out" / f"{name}.qdq.onnx") == {"b", "d"}
        source = read_source(EngineRequest(tmp_path / "out", "trt10", model=model, variant=name))
        assert [item.op_type for item in source.decisions if item.reason == "excluded"] == ["Conv"]
    assert verify(VerifyRequest(tmp_path / "out", model, workers=1), SilentProgress()).passed


def test_an_engine_from_the_cache_quantizes_below_the_operator_set_of_pairs(tmp_path: Path) -> None:
    folder = make_build(tmp_path, ("minmax",))
    newer = read_source(EngineRequest(folder, "trt10", model=tmp_path / "net.onnx"))
    old = tmp_path / "old"
    old.mkdir()
    network = onnx.load(tmp_path / "net.onnx")
    network.opset_import[0].version = 9
    onnx.save(network, old / "net.onnx")
    request = BuildRequest(
        old / "net.onnx", str(write_data(old)), old / "out", split="train", samplers=("random",), num_images=4,
        calibrators=("minmax",), keep_float=("b",),
    )  # fmt: skip
    build(request, SilentProgress())
    assert quantized_inputs(old / "out" / "minmax.qdq.onnx") == {"a", "d"}
    older = read_source(EngineRequest(old / "out", "trt10", model=old / "net.onnx"))
    before, after = ({item.label: item.status for item in source.decisions} for source in (newer, older))
    assert {name for name in before if before[name] != after[name]} >= {"Conv(b)"}
    assert after["Conv(a)"] == after["Conv(d)"] == "int8"
    assert set(older.pinned(fp16=True)) == {*newer.pinned(fp16=True), "node_of_b"}


def test_the_list_of_the_next_measurement_has_it_still(place: Path, tmp_path: Path) -> None:
    request = SensitivityRequest(
        str(place / "out"), str(place / "set.yaml"), tmp_path, split="val", calibrator="minmax", workers=1
    )
    document = measure_sensitivity(request, SilentProgress()).document
    assert "Conv(b)" not in {unit["name"] for unit in document["units"]}
    assert document["network"]["kept_in_float"] == ["Conv(b)"]
    assert "Conv(b)" in read_patterns([f"@{tmp_path / 'keep-float.txt'}"])
