"""The sensitivity job: exact losses, a race that finds the worst, the same bytes however it is run, clear refusals."""

from __future__ import annotations

import csv
import json
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from calib.core.plan import PlacementOptions
from calib.core.sensitivity.units import find_units, switched
from calib.edges.progress import SilentProgress
from calib.errors import CalibError, LeakError, ModelError, UsageError
from calib.jobs.cache.convert import ConvertRequest, convert
from calib.jobs.evaluate import evaluate
from calib.jobs.sensitivity import SensitivityRequest, measure_sensitivity, sensitivity
from calib.jobs.sensitivity.counting import Race
from calib.stages.qdq import quantize_model
from tests.evalsets import colour_network, make_set, save
from tests.smallbuild import make_build

LAYERS = 9
RUINED = {"t2": 0.55, "t5": 0.8, "t7": 0.35}
"""Ranges so narrow that the network loses accuracy."""


def layered(classes: int) -> onnx.ModelProto:
    """Identity convolutions one after the other, then the network that knows the colours."""
    model = colour_network(classes)
    nodes, source = [], "image"
    for place in range(LAYERS):
        nodes.append(helper.make_node("Conv", [source, f"eye{place}"], [f"t{place}"], name=f"layer{place}"))
        source = f"t{place}"
        weight = np.eye(3, dtype=np.float32)[:, :, None, None]
        model.graph.initializer.append(numpy_helper.from_array(weight, f"eye{place}"))
    model.graph.node[0].input[0] = source
    model.graph.node[0].name = "colours"
    kept = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend([*nodes, *kept])
    return model


def ranges(ruined: Mapping[str, float]) -> dict[str, float]:
    return {"image": 2.7, **{f"t{place}": 2.7 for place in range(LAYERS)}, **ruined}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory):
    return make_set(tmp_path_factory.mktemp("set"), images=24, noise=25.0)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory, data) -> Path:
    made = quantize_model(layered(data.classes), ranges(RUINED), options=PlacementOptions(logits=True)).model
    return save(made, tmp_path_factory.mktemp("net") / "net.qdq.onnx")


@pytest.fixture(scope="module")
def exhaustive(tmp_path_factory: pytest.TempPathFactory, network: Path, data) -> dict:
    return sensitivity(network, data.manifest, output=tmp_path_factory.mktemp("all"), exhaustive=True, top=3)


def test_losses_and_flips_are_those_of_evaluating_the_network_with_only_these_pairs(
    network: Path, data, exhaustive: dict, tmp_path: Path
):
    subject = find_units(onnx.load(network))
    reference = save(switched(subject, ()), tmp_path / "float.onnx")
    chosen = ["layer3", "layer6", "colours"]
    files = [
        save(switched(subject, [unit]), tmp_path / f"{unit.name}.onnx") for unit in subject.units if unit.name in chosen
    ]
    document = evaluate(files, data.manifest, output=tmp_path / "out", reference=str(reference), pictures=0)
    units = {unit["name"]: unit for unit in exhaustive["units"]}
    for model in document["models"][1:]:
        against, own = model["vs_reference"], units[model["name"]]
        assert own["flips"]["pixels"] == against["flips"]["pixels"]
        assert own["loss"]["miou"]["loss"] == pytest.approx(-against["miou"]["delta"], abs=1e-9)
        assert own["loss"]["miou"]["ci95"] == pytest.approx([-end for end in against["miou"]["ci95"]][::-1], abs=1e-9)
        for name, entry in against["per_class"].items():
            assert own["loss"]["per_class"][name]["loss"] == pytest.approx(-entry["delta"], abs=1e-9)
        for name, entry in own["loss"]["slices"].items():
            assert entry["loss"] == pytest.approx(-against["slices"][name]["delta"], abs=1e-9)
            assert entry["images"] == document["slices"][name]["images"]


def test_the_worst_come_first_and_the_work_is_counted(exhaustive: dict):
    units = exhaustive["units"]
    assert [unit["rank"] for unit in units] == list(range(1, LAYERS + 2))
    assert [unit["name"] for unit in units[:3]] == ["layer8", "layer3", "layer6"]
    assert all(unit["loss"]["miou"]["significant"] for unit in units[:3])
    assert units[0]["loss"]["miou"]["loss"] > units[1]["loss"]["miou"]["loss"] > units[2]["loss"]["miou"]["loss"] > 0.1
    assert sum(unit["macs_share"] for unit in units) == pytest.approx(1.0)
    for unit in units:
        assert unit["images"] == 24
        assert unit["settled"] == "all"
        assert unit["loss_per_percent_of_macs"] == pytest.approx(
            unit["loss"]["miou"]["loss"] / (100 * unit["macs_share"])
        )
    assert exhaustive["together"]["loss"]["miou"]["loss"] > units[0]["loss"]["miou"]["loss"]
    assert exhaustive["ranking"]["runs"] == exhaustive["ranking"]["runs_of_all"] == 24 * len(units)


def test_layers_that_cost_much_are_listed_and_kept_in_float_cost_nothing(
    network: Path, data, exhaustive: dict, tmp_path: Path
):
    found = sensitivity(network, data.manifest, output=tmp_path / "found", top=3)
    assert set(found["costly"]) == set(exhaustive["costly"]) == {"layer8", "layer3", "layer6"}
    listed = tmp_path / "found" / "keep-float.txt"
    lines = listed.read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == found["costly"]
    plain = save(layered(data.classes), tmp_path / "net.onnx")
    table = tmp_path / "net.cache"
    entries = [(name, amax / 127) for name, amax in ranges(RUINED).items()]
    text = "".join(f"{name}: {struct.pack('>f', scale).hex()}\n" for name, scale in entries)
    table.write_text("TRT-101401-EntropyCalibration2\n" + text)
    request = ConvertRequest(str(table), tmp_path / "kept.qdq.onnx", model=plain, keep_float=(f"@{listed}",))
    convert(request)
    after = sensitivity(tmp_path / "kept.qdq.onnx", data.manifest, output=tmp_path / "after", top=3)
    assert after["costly"] == []
    assert after["together"]["loss"]["miou"]["loss"] < 0.1 < exhaustive["together"]["loss"]["miou"]["loss"]
    names = {unit["name"] for unit in after["units"]}
    assert names.isdisjoint(found["costly"])
    assert "layer2" in names


def test_without_a_layer_its_gain_makes_it_costly(network: Path, data, tmp_path: Path):
    found = sensitivity(network, data.manifest, output=tmp_path, mode="without", exhaustive=True, top=3)
    gains = {unit["name"]: unit["loss"]["miou"] for unit in found["units"]}
    assert found["costly"]
    for name in found["costly"]:
        assert gains[name]["significant"]
        assert gains[name]["loss"] <= -0.1


def test_racing_agrees_on_the_top_with_fewer_runs(network: Path, data, exhaustive: dict, tmp_path: Path):
    raced = sensitivity(network, data.manifest, output=tmp_path, top=3)
    assert [unit["name"] for unit in raced["units"][:3]] == [unit["name"] for unit in exhaustive["units"][:3]]
    assert raced["ranking"]["runs"] < 0.7 * raced["ranking"]["runs_of_all"]
    reasons = {unit["name"]: unit["settled"] for unit in raced["units"]}
    assert "resolution" in reasons.values()
    for unit in raced["units"]:
        if unit["settled"] == "resolution":
            assert unit["loss"]["miou"]["ci95"][1] < 0.1
            assert unit["images"] < 24


def test_any_worker_count_and_any_interruption_give_the_same_bytes(network: Path, data, tmp_path: Path, monkeypatch):
    class Killed(BaseException):
        pass

    outputs = []
    for name, workers in (("one", 1), ("two", 2)):
        sensitivity(network, data.manifest, output=tmp_path / name, workers=workers, num_images=14)
        outputs.append(contents(tmp_path / name))
    kept = Race._finish
    seen: list[int] = []

    def finish(self, pending, task):
        kept(self, pending, task)
        seen.append(1)
        if len(seen) == 4:
            raise Killed

    monkeypatch.setattr(Race, "_finish", finish)
    request = SensitivityRequest(str(network), str(data.manifest), tmp_path / "killed", num_images=14)
    with pytest.raises(Killed):
        measure_sensitivity(request, SilentProgress())
    result = measure_sensitivity(request, SilentProgress())
    assert result.reused == 4 * (LAYERS + 1)
    outputs.append(contents(tmp_path / "killed"))
    assert outputs[0] == outputs[1] == outputs[2]
    assert not (tmp_path / "killed" / ".sensitivity").exists()


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def test_a_finished_measurement_serves_another_ranking_without_a_run(network: Path, data, tmp_path: Path):
    first = SensitivityRequest(str(network), str(data.manifest), tmp_path, exhaustive=True)
    measure_sensitivity(first, SilentProgress())
    again = SensitivityRequest(str(network), str(data.manifest), tmp_path, rank_by="class:c1", top=2)
    result = measure_sensitivity(again, SilentProgress())
    assert result.reused == result.document["ranking"]["runs"]
    assert result.document["ranking"]["by"] == "class:c1"


def test_ranking_by_a_slice_takes_its_images_first(network: Path, data, tmp_path: Path):
    found = sensitivity(
        network, data.manifest, output=tmp_path, rank_by="slice:sequence=b", num_images=8, exhaustive=True
    )
    assert all("/b_" in key for key in found["data"]["images"])
    assert len(found["data"]["images"]) == 8


def test_one_off_in_the_quantized_network(network: Path, data, exhaustive: dict, tmp_path: Path):
    found = sensitivity(network, data.manifest, output=tmp_path, mode="without", exhaustive=True)
    best = min(found["units"], key=lambda unit: unit["loss"]["miou"]["loss"])
    assert best["name"] == "layer8"  # without the narrowest range the quantized network gains most
    assert best["loss"]["miou"]["loss"] < 0
    whole = exhaustive["together"]["loss"]["miou"]["loss"]
    assert found["together"]["loss"]["miou"]["loss"] == pytest.approx(-whole, abs=1e-6)


def test_single_tensors(network: Path, data, tmp_path: Path):
    found = sensitivity(network, data.manifest, output=tmp_path, unit="tensor", exhaustive=True)
    assert len(found["units"]) == 2 * (LAYERS + 1)
    assert found["units"][0]["name"] == "t7"
    assert found["units"][0]["activations"] == ["t7"]
    assert found["units"][0]["weights"] == []


def test_without_labels_units_are_ranked_by_flips(network: Path, data, tmp_path: Path):
    text = data.manifest.read_text().replace("labels:", "unused:")
    lines = [line for line in text.splitlines() if "unused" not in line]
    bare = data.manifest.with_name("bare.yaml")
    bare.write_text("\n".join(lines))
    found = sensitivity(network, bare, output=tmp_path, num_images=6)
    assert found["data"]["labelled"] is False
    assert found["base"] is None
    shares = [unit["flips"]["share"] for unit in found["units"]]
    assert shares == sorted(shares, reverse=True)
    assert all(unit["loss"] is None and unit["images"] == 6 for unit in found["units"])
    assert any("no labels" in note for note in found["notes"])


def test_files_agree(network: Path, data, tmp_path: Path):
    found = sensitivity(network, data.manifest, output=tmp_path, num_images=8)
    assert json.loads((tmp_path / "sensitivity.json").read_text()) == found
    with (tmp_path / "sensitivity.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["name"] for row in rows] == [unit["name"] for unit in found["units"]]
    for row, unit in zip(rows, found["units"], strict=True):
        assert float(row["loss"]) == unit["loss"]["miou"]["loss"]
        assert float(row["class:c2"]) == unit["loss"]["per_class"]["c2"]["loss"]
        assert float(row["slice:dark"]) == unit["loss"]["slices"]["dark"]["loss"]
    page = (tmp_path / "sensitivity.html").read_text()
    assert 'http-equiv="Content-Security-Policy"' in page
    assert page.count("<svg xmlns") >= 4
    for unit in found["units"]:
        assert unit["name"] in page


def test_a_build_folder_leaves_its_own_images_out_and_ranges_give_the_same(tmp_path: Path):
    build = make_build(tmp_path)
    own = sensitivity(build, tmp_path / "set.yaml", output=tmp_path / "a", split="val", calibrator="minmax")
    cache = sensitivity(
        tmp_path / "net.onnx", tmp_path / "set.yaml", output=tmp_path / "b", split="val",
        ranges=str(build / "minmax.cache"),
    )  # fmt: skip
    assert [without_path(unit) for unit in own["units"]] == [without_path(unit) for unit in cache["units"]]
    trained = sensitivity(build, tmp_path / "set.yaml", output=tmp_path / "c", split="train")
    assert len(trained["data"]["images"]) == 4
    assert any("6 images that the network was calibrated on" in note for note in trained["notes"])


def without_path(unit: Mapping[str, object]) -> dict[str, object]:
    return dict(unit)


def refused(error: type[CalibError], **changes: object) -> str:
    with pytest.raises(error) as caught:
        measure_sensitivity(SensitivityRequest(**changes), SilentProgress())  # type: ignore[arg-type]
    return str(caught.value)


def test_bad_requests_are_refused(network: Path, data, tmp_path: Path):
    common = {"network": str(network), "data": str(data.manifest), "output": tmp_path / "out"}
    plain = save(layered(data.classes), tmp_path / "float.onnx")
    assert "without ranges" in refused(UsageError, **{**common, "network": str(plain)})
    (tmp_path / "none.json").write_text('{"tensor_scales": {"other": 1.0}}')
    assert "none that it has" in refused(
        UsageError, **{**common, "network": str(plain), "ranges": str(tmp_path / "none.json")}
    )
    assert "pairs of its own" in refused(UsageError, **common, ranges=str(network))
    assert "a build folder" in refused(UsageError, **common, calibrator="minmax")
    assert "c0, c1" in refused(UsageError, **common, rank_by="class:nobody")
    assert "sequence=a" in refused(UsageError, **common, rank_by="slice:nowhere")
    for wrong in ("loss", "class:", "slice", "miou:x"):
        assert "class:NAME" in refused(UsageError, **common, rank_by=wrong)
    assert "--resolution" in refused(UsageError, **common, resolution=float("nan"))
    assert "--top" in refused(UsageError, **common, top=0)
    assert "--bootstrap-by" in refused(UsageError, **common, bootstrap_by="weather")
    assert "no such file" in refused(ModelError, **{**common, "network": str(tmp_path / "gone.onnx")})
    assert not (tmp_path / "out" / "sensitivity.json").exists()


def test_a_split_that_was_all_calibrated_on_is_refused(tmp_path: Path):
    build = make_build(tmp_path, calibrators=("minmax",))
    lines = [json.loads(line) for line in (build / "selection.jsonl").read_text().splitlines()]
    stems = [Path(line["image"]).stem for line in lines]
    kept = "\n".join(f"images/train/{stem}.png,labels/train/{stem}.png" for stem in stems)
    (tmp_path / "data" / "own.csv").write_text(f"image,label\n{kept}\n")
    text = (
        (tmp_path / "set.yaml")
        .read_text()
        .replace('train: {images: "images/train/*.png", labels: "labels/train/{stem}.png"}', "train: {list: own.csv}")
    )
    (tmp_path / "own.yaml").write_text(text)
    assert "calibrated" in refused(
        LeakError, network=str(build), data=str(tmp_path / "own.yaml"), output=tmp_path / "o", split="train"
    )


def test_groups_are_drawn_as_a_whole(network: Path, data, tmp_path: Path):
    found = sensitivity(network, data.manifest, output=tmp_path, bootstrap_by="sequence", num_images=10)
    assert "sequence" in found["intervals"]["method"]
    assert all(unit["loss"]["miou"]["ci95"] is None for unit in found["units"])  # two sequences tell nothing
    assert all(unit["images"] == 10 for unit in found["units"])
