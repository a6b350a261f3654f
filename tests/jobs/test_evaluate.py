"""``calib evaluate`` from files to files, against computations of its own."""

from __future__ import annotations

import csv
import hashlib
import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from sklearn.metrics import confusion_matrix

from calib.core.slices import DARK_PIXELS
from calib.edges.evaluation.matrices import load_matrices
from calib.edges.evaluation.tables import DOCUMENT
from calib.edges.progress import SilentProgress
from calib.errors import ImageError, LeakError, ManifestError, ModelError, UsageError
from calib.jobs.evaluate import EvaluateRequest, counting, evaluate, run_evaluation
from calib.jobs.evaluate.counting import JOURNAL, SCRATCH
from tests.core.test_upsample import resize
from tests.evalsets import Evalset, colour_network, make_set, prepare, save

QUICK: dict[str, Any] = {"resamples": 200, "pictures": 0}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Evalset:
    return make_set(tmp_path_factory.mktemp("set"))


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("networks")
    spoiled = colour_network(5, spoil=0.2, stride=4)
    return save(colour_network(5, stride=2), folder / "float.onnx"), save(spoiled, folder / "spoiled.onnx")


def session(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def independent(path: Path, data: Evalset, key: str) -> tuple[np.ndarray, np.ndarray]:
    """Label and prediction of the scored pixels: own preprocessing, own resize, argmax."""
    label = data.label(key).astype(int)
    logits = session(path).run(None, {"image": prepare(data.pixels(key))})[0][0]
    predicted = resize(logits.astype(np.float64), *label.shape).argmax(0)
    return label, predicted


def ious(matrix: np.ndarray) -> list[float | None]:
    right = np.diag(matrix)
    union = matrix.sum(0) + matrix.sum(1) - right
    return [float(r / u) if n else None for r, u, n in zip(right, union, matrix.sum(1), strict=True)]


def assert_equal(found: dict[str, float | None], expected: list[float | None]) -> None:
    for own, other in zip(found.values(), expected, strict=True):
        assert own == other if other is None else own == pytest.approx(other, abs=1e-9)


def test_equals_scikit_learn_in_every_class_and_slice(
    data: Evalset, networks: tuple[Path, Path], tmp_path: Path
) -> None:
    document = evaluate(networks, data.manifest, output=tmp_path, slices=["night=luma_mean<70"], **QUICK)
    luma = {key: data.pixels(key) @ [0.299, 0.587, 0.114] for key in data.keys}
    members = slice_members(tmp_path)
    assert {"dark", "small-objects", "edges", "rare:c0", "sequence=a", "sequence=b", "night"} <= set(members)
    for path, model in zip(networks, document["models"], strict=True):
        pairs = {key: independent(path, data, key) for key in data.keys}

        def matrix(keys: list[str], dark: bool = False, pairs: Any = pairs) -> np.ndarray:
            total = np.zeros((5, 5), np.int64)
            for key in keys:
                label, predicted = pairs[key]
                kept = (label != 255) & ((luma[key].round() < 32) if dark else True)
                total += confusion_matrix(label[kept], predicted[kept], labels=range(5))
            return total

        whole = matrix(list(data.keys))
        assert (np.array(model["confusion"])[:, :-1] == whole).all()
        assert_equal(model["per_class"], ious(whole))
        assert model["miou"] == pytest.approx(np.mean(ious(whole)), abs=1e-9)
        assert model["pixel_accuracy"] == pytest.approx(np.trace(whole) / whole.sum(), abs=1e-9)
        frequency = whole.sum(1) / whole.sum()
        assert model["frequency_weighted_iou"] == pytest.approx(frequency @ np.array(ious(whole)), abs=1e-9)
        each = [np.nanmean([np.nan if v is None else v for v in ious(matrix([key]))]) for key in data.keys]
        assert model["mean_of_images_miou"] == pytest.approx(np.mean(each), abs=1e-9)
        for name, keys in members.items():
            expected = ious(matrix(keys, dark=name == DARK_PIXELS))
            assert_equal(model["slices"][name]["per_class"], expected)
            assert model["slices"][name]["miou"] == pytest.approx(
                np.mean([v for v in expected if v is not None]), abs=1e-9
            )
            assert model["slices"][name]["images"] == len(keys)


def slice_members(folder: Path) -> dict[str, list[str]]:
    """Images of each slice, from the CSV."""
    members: dict[str, list[str]] = {}
    with (folder / "evaluation_images.csv").open(newline="") as stream:
        for line in csv.DictReader(stream):
            for column, value in line.items():
                name = column.removeprefix("slice:")
                if column != name and line["model"] == "float":
                    members.setdefault(name, []).extend([line["image"]] if value == "1" else [])
    return members


def test_the_documented_keys_are_there(data: Evalset, networks: tuple[Path, Path], tmp_path: Path) -> None:
    document = evaluate(networks, data.manifest, output=tmp_path, **QUICK)
    assert json.loads((tmp_path / DOCUMENT).read_text()) == document
    assert document["schema"] == 1
    assert document["reference"] == "float"
    spoiled = document["models"][1]
    assert {"name", "path", "miou", "per_class", "pixel_accuracy", "slices", "vs_reference"} <= set(spoiled)
    assert {"miou", "per_class", "images"} <= set(spoiled["slices"]["dark"])
    difference = spoiled["vs_reference"]["miou"]
    assert difference["delta"] == pytest.approx(100 * (spoiled["miou"] - document["models"][0]["miou"]))
    assert difference["delta"] < 0
    assert difference["ci95"][0] <= difference["delta"] <= difference["ci95"][1] < 0
    assert difference["significant"]
    assert set(spoiled["vs_reference"]["per_class"]) == set(spoiled["per_class"])
    assert set(spoiled["vs_reference"]["slices"]) == set(spoiled["slices"])
    flips = spoiled["vs_reference"]["flips"]
    pairs = [(independent(networks[0], data, key)[1], independent(networks[1], data, key)[1]) for key in data.keys]
    assert flips["pixels"] == sum(int((a != b).sum()) for a, b in pairs)


def test_two_copies_of_one_network_differ_by_nothing(
    data: Evalset, networks: tuple[Path, Path], tmp_path: Path
) -> None:
    copy = tmp_path / "copy.onnx"
    copy.write_bytes(networks[0].read_bytes())
    document = evaluate([networks[0], copy], data.manifest, output=tmp_path / "out", **QUICK)
    first, second = document["models"]
    assert second["per_class"] == first["per_class"]
    against = second["vs_reference"]
    assert against["miou"] | {"images_to_see_0.1_points": None} == {
        "delta": 0.0, "ci95": [0.0, 0.0], "significant": False, "images_to_see_0.1_points": None,
    }  # fmt: skip
    assert against["flips"]["pixels"] == 0
    entries = [*against["per_class"].values(), *against["slices"].values()]
    assert {entry["delta"] for entry in entries if entry} == {0.0}


def test_workers_and_order_and_interruption_do_not_matter(
    data: Evalset, networks: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A4-11: whatever the batch. Killed after some images, the next run goes on, and the bytes are the same."""
    outputs = {}
    for name, workers in (("one", 1), ("three", 3)):
        evaluate(networks, data.manifest, output=tmp_path / name, workers=workers, **QUICK)
        outputs[name] = folder_bytes(tmp_path / name)
    killed = tmp_path / "killed"

    def stop_after_five(*arguments: Any) -> Any:
        for place, tally in enumerate(original(*arguments)):
            if place == 5:
                raise KeyboardInterrupt
            yield tally

    original = counting.score_all
    monkeypatch.setattr(counting, "score_all", stop_after_five)
    with pytest.raises(KeyboardInterrupt):
        evaluate(networks, data.manifest, output=killed, **QUICK)
    journal = killed / SCRATCH / JOURNAL
    journal.write_bytes(journal.read_bytes()[:-3])  # the last record was cut short
    monkeypatch.setattr(counting, "score_all", original)
    request = EvaluateRequest([str(path) for path in networks], str(data.manifest), killed, **QUICK)
    result = run_evaluation(request, SilentProgress())
    assert result.reused == 4
    outputs["killed"] = folder_bytes(killed)
    assert outputs["one"] == outputs["three"] == outputs["killed"]
    assert not (killed / SCRATCH).exists()


def folder_bytes(folder: Path) -> dict[str, bytes]:
    """The files but the index, which holds times of change."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.suffix != ".parquet"}


def test_a_new_question_needs_no_forward_pass(
    data: Evalset, networks: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = evaluate(networks, data.manifest, output=tmp_path, **QUICK)
    monkeypatch.setattr("calib.edges.runners.ort.OrtRunner.run", None)
    again = evaluate(networks, data.manifest, output=tmp_path, slices=["bright=luma_mean>100"], seed=3, **QUICK)
    assert "bright" in again["models"][0]["slices"]
    assert [model["per_class"] for model in again["models"]] == [model["per_class"] for model in first["models"]]


def test_changed_labels_are_counted_anew(networks: tuple[Path, Path], tmp_path: Path) -> None:
    data = make_set(tmp_path / "set", images=6)
    first = evaluate(networks[0], data.manifest, output=tmp_path / "out", **QUICK)
    label = data.label(data.keys[0])
    label[label == 1] = 2
    data.change_label(data.keys[0], label)
    assert evaluate(networks[0], data.manifest, output=tmp_path / "out", **QUICK)["models"] != first["models"]


def test_matrices_of_images_can_be_read(data: Evalset, networks: tuple[Path, Path], tmp_path: Path) -> None:
    evaluate(networks, data.manifest, output=tmp_path, **QUICK)
    matrices = load_matrices(tmp_path / "matrices.npz")
    for key in data.keys[:3]:
        label, predicted = independent(networks[1], data, key)
        expected = confusion_matrix(label[label != 255], predicted[label != 255], labels=range(5))
        assert (matrices.confusion("spoiled", key)[:, :-1] == expected).all()
    with pytest.raises(KeyError):
        matrices.confusion("spoiled", "no such image")


@pytest.mark.parametrize("classes", [2, 11, 19, 150, 256])
def test_class_counts(classes: int, tmp_path: Path) -> None:
    data = make_set(tmp_path / "set", classes=classes, images=5, ignore=None, noise=5.0)
    network = save(colour_network(classes, batch=1), tmp_path / "n.onnx")
    model = evaluate(network, data.manifest, output=tmp_path / "out", **QUICK)["models"][0]
    total = sum(
        confusion_matrix(*(part.ravel() for part in independent(network, data, key)), labels=range(classes))
        for key in data.keys
    )
    assert_equal(model["per_class"], ious(total))
    assert model["absent"] == [f"c{place}" for place in np.flatnonzero(total.sum(1) == 0)]


@pytest.mark.parametrize("ignore", [255, 7, -1, 1000, None])
def test_ignore_index_inside_and_outside_0_to_255(ignore: int | None, tmp_path: Path) -> None:
    """A4-8: the ignore index is no class, wherever it lies."""
    data = make_set(tmp_path / "set", images=4, ignore=ignore)
    network = save(colour_network(5), tmp_path / "n.onnx")
    model = evaluate(network, data.manifest, output=tmp_path / "out", **QUICK)["models"][0]
    pixels = sum(int(data.label(key).size) for key in data.keys)
    void = 4 * 3 * 56 if ignore in (255, 7) else 0
    assert model["scored_pixels"] == pixels - void


def test_a_real_class_as_ignore_index_is_warned_of(tmp_path: Path) -> None:
    """A4-9."""
    data = make_set(tmp_path / "set", images=4, ignore=0)
    network = save(colour_network(5), tmp_path / "n.onnx")
    document = evaluate(network, data.manifest, output=tmp_path / "out", **QUICK)
    assert any("ignore_index 0 is the class c0" in note for note in document["notes"])
    assert document["models"][0]["per_class"]["c0"] is None
    assert "c0" in document["models"][0]["absent"]


def test_labels_outside_the_classes_stop_with_file_and_value(tmp_path: Path) -> None:
    """A4-3: one label pixel equals the number of classes."""
    data = make_set(tmp_path / "set", images=4)
    network = save(colour_network(5), tmp_path / "n.onnx")
    label = data.label(data.keys[2])
    label[20, 20:23] = 5
    label[21, 20] = 200
    data.change_label(data.keys[2], label)
    with pytest.raises(ImageError) as caught:
        evaluate(network, data.manifest, output=tmp_path / "out", **QUICK)
    message = str(caught.value)
    assert Path(data.keys[2]).name in message
    assert "value 5 (3 pixels), value 200 (1 pixels)" in message
    assert "label_map" in message
    document = evaluate(network, data.manifest, output=tmp_path / "out", foreign="void", **QUICK)
    assert any("1 labels hold values outside the class table" in note for note in document["notes"])
    assert document["models"][0]["scored_pixels"] == 4 * (40 - 3) * 56 - 4


def test_a_class_absent_from_labels_predictions_or_both(tmp_path: Path) -> None:
    """A4-5 and A4-6: class 4 nowhere, class 3 only in predictions, class 2 only in labels."""
    data = make_set(tmp_path / "set", images=4)
    for key in data.keys:
        label = data.label(key)
        label[np.isin(label, [3, 4])] = 2
        data.change_label(key, label)
    model = colour_network(5)
    bias = numpy_helper.to_array(model.graph.initializer[1]).copy()
    bias[[2, 4]] = -1e6  # never predicted
    model.graph.initializer[1].CopyFrom(numpy_helper.from_array(bias, "bias"))
    found = evaluate(save(model, tmp_path / "n.onnx"), data.manifest, output=tmp_path / "out", **QUICK)["models"][0]
    assert found["per_class"]["c2"] == 0.0
    assert found["per_class"]["c3"] is None
    assert found["per_class"]["c4"] is None
    assert found["absent"] == ["c3", "c4"]
    assert list(found["only_predicted"]) == ["c3"]
    present = [found["per_class"][name] for name in ("c0", "c1", "c2")]
    assert found["miou"] == pytest.approx(np.mean(present))
    assert found["miou_counting_only_predicted"] == pytest.approx(sum(present) / 4)


def test_labels_are_never_resized(tmp_path: Path) -> None:
    """A4-12: poles of one pixel count in full, whatever the network's resolution."""
    data = make_set(tmp_path / "set", classes=2, images=4, size=(96, 144), ignore=None)
    for key in data.keys:
        label = np.zeros((96, 144), np.uint8)
        label[:, ::16] = 1
        data.change_label(key, label)
    network = save(colour_network(2, stride=4), tmp_path / "n.onnx")
    model = evaluate(network, data.manifest, output=tmp_path / "out", **QUICK)["models"][0]
    matrix = np.array(model["confusion"])
    assert matrix.sum(1).tolist() == [4 * 96 * 135, 4 * 96 * 9]
    assert model["objects"]["small_per_class"]["c1"]["objects"] == 36


def test_ties_are_counted_and_go_to_the_first_class(tmp_path: Path) -> None:
    """A4-17: logits of [5, 5, 1] everywhere."""
    data = make_set(tmp_path / "set", classes=3, images=5)
    nodes = [
        helper.make_node("Mul", ["logits", "zero"], ["flat"]),
        helper.make_node("Add", ["flat", "constant"], ["tied"]),
    ]
    model = colour_network(3, tail=nodes, output="tied")
    model.graph.initializer.extend(
        [
            numpy_helper.from_array(np.float32(0), "zero"),
            numpy_helper.from_array(np.array([5, 5, 1], np.float32).reshape(1, 3, 1, 1), "constant"),
        ]
    )
    found = evaluate(save(model, tmp_path / "n.onnx"), data.manifest, output=tmp_path / "out", **QUICK)
    ties = found["models"][0]["ties"]
    assert ties["rate"] == 1.0
    assert ties["rule"] == "the first of equal classes wins"
    assert any("100.00% of the pixels are ties" in note for note in found["notes"])
    matrix = np.array(found["models"][0]["confusion"])
    assert matrix[:, 0].sum() == matrix.sum()


OUTPUTS = {
    "softmax": ([helper.make_node("Softmax", ["logits"], ["o"], axis=1)], onnx.TensorProto.FLOAT),
    "channels last": ([helper.make_node("Transpose", ["logits"], ["o"], perm=[0, 2, 3, 1])], onnx.TensorProto.FLOAT),
    "argmax": ([helper.make_node("ArgMax", ["logits"], ["o"], axis=1, keepdims=0)], onnx.TensorProto.INT64),
    "argmax, cast": (
        [
            helper.make_node("ArgMax", ["logits"], ["a"], axis=1, keepdims=1),
            helper.make_node("Cast", ["a"], ["o"], to=onnx.TensorProto.FLOAT),
        ],
        onnx.TensorProto.FLOAT,
    ),
}


@pytest.mark.parametrize("kind", list(OUTPUTS))
def test_every_kind_of_output_scores_alike_at_the_labels_size(kind: str, tmp_path: Path) -> None:
    tail, output_type = OUTPUTS[kind]
    size = {"size": [40, 56]}
    data = make_set(tmp_path / "set", images=5, size=(40, 56), preprocess=size)
    plain = save(colour_network(5), tmp_path / "plain.onnx")
    other = save(colour_network(5, tail=tail, output="o", output_type=output_type), tmp_path / "other.onnx")
    document = evaluate([plain, other], data.manifest, output=tmp_path / "out", **QUICK)
    first, second = document["models"]
    assert second["confusion"] == first["confusion"]
    assert (second["ties"] is None) == kind.startswith("argmax")


@pytest.mark.parametrize("sigmoid", [True, False])
def test_one_channel_for_two_classes(sigmoid: bool, tmp_path: Path) -> None:
    data = make_set(tmp_path / "set", classes=2, images=5, size=(40, 56), preprocess={"size": [40, 56]})
    both = colour_network(2)
    tail = [
        helper.make_node("Split", ["logits"], ["low", "high"], axis=1),
        helper.make_node("Sub", ["high", "low"], ["d"]),
    ]
    tail += [helper.make_node("Sigmoid", ["d"], ["o"])] if sigmoid else [helper.make_node("Identity", ["d"], ["o"])]
    one = colour_network(2, tail=tail, output="o")
    paths = save(both, tmp_path / "both.onnx"), save(one, tmp_path / "one.onnx")
    first, second = evaluate(paths, data.manifest, output=tmp_path / "out", **QUICK)["models"]
    assert second["confusion"] == first["confusion"]
    assert ("Sigmoid" in second["output"]) == sigmoid


def test_predictions_outside_the_classes_are_listed_and_totals_hold(tmp_path: Path) -> None:
    """A4-2: the network answers with ids 255 and 34."""
    data = make_set(tmp_path / "set", images=5)
    nodes = [
        helper.make_node("ArgMax", ["logits"], ["a"], axis=1, keepdims=0),
        helper.make_node("Gather", ["table", "a"], ["o"]),
    ]
    model = colour_network(5, tail=nodes, output="o", output_type=onnx.TensorProto.INT64)
    model.graph.initializer.append(numpy_helper.from_array(np.array([0, 1, 255, 3, 34]), "table"))
    document = evaluate(save(model, tmp_path / "n.onnx"), data.manifest, output=tmp_path / "out", **QUICK)
    found = document["models"][0]
    outside = found["predictions_outside_classes"]
    assert set(outside["ids"]) == {"34", "255"}
    assert outside["scored_pixels"] > 0
    assert np.array(found["confusion"]).sum() == found["scored_pixels"]
    assert any("predicts values outside the class table" in note for note in document["notes"])


def test_networks_with_channels_last_inputs_and_fixed_batches_run_beside_others(data: Evalset, tmp_path: Path) -> None:
    plain = save(colour_network(5, batch=1), tmp_path / "plain.onnx")
    batched = save(colour_network(5, batch=3), tmp_path / "batched.onnx")
    document = evaluate([plain, batched], data.manifest, output=tmp_path / "out", **QUICK)
    assert document["models"][1]["confusion"] == document["models"][0]["confusion"]


@pytest.mark.parametrize("fit", ["letterbox", "crop"])
def test_padded_and_cropped_pictures_are_scored_where_they_were_seen(fit: str, tmp_path: Path) -> None:
    data = make_set(tmp_path / "set", images=5, size=(40, 80), ignore=None, preprocess={"size": [40, 48], "fit": fit})
    network = save(colour_network(5), tmp_path / "n.onnx")
    document = evaluate(network, data.manifest, output=tmp_path / "out", **QUICK)
    seen = 40 * 80 if fit == "letterbox" else 40 * 48
    assert document["data"]["pixels"]["seen"] == 5 * seen
    assert document["data"]["pixels"]["cropped"] == 5 * (40 * 80 - seen)
    assert document["models"][0]["scored_pixels"] == 5 * seen
    # patches of 7 pixels under heavy noise: what is scored elsewhere than it was seen would drop to chance
    assert document["models"][0]["pixel_accuracy"] > 0.5


def test_a_size_the_export_rounded_is_noted(data: Evalset, tmp_path: Path) -> None:
    cut = [helper.make_node("Slice", ["logits", "start", "stop", "axis"], ["o"])]
    model = colour_network(5, tail=cut, output="o")
    for name, value in (("start", 0), ("stop", 31), ("axis", 2)):
        model.graph.initializer.append(numpy_helper.from_array(np.array([value]), name))
    document = evaluate(save(model, tmp_path / "n.onnx"), data.manifest, output=tmp_path / "out", **QUICK)
    assert any("31 x 48 for an input of 32 x 48" in note for note in document["notes"])


def test_images_without_labels_and_manifests_without_classes_are_refused(
    networks: tuple[Path, Path], tmp_path: Path
) -> None:
    data = make_set(tmp_path / "set", images=3)
    text = data.manifest.read_text()
    data.manifest.write_text(text.replace("labels: labels/val/{stem}.png", ""))
    with pytest.raises(ManifestError, match="a label for every image"):
        evaluate(networks[0], data.manifest, output=tmp_path / "out", **QUICK)


def test_a_network_of_other_classes_is_refused(data: Evalset, tmp_path: Path) -> None:
    network = save(colour_network(4), tmp_path / "n.onnx")
    with pytest.raises(ModelError, match="5 channels"):
        evaluate(network, data.manifest, output=tmp_path / "out", **QUICK)


def test_the_bootstrap_may_draw_groups(data: Evalset, networks: tuple[Path, Path], tmp_path: Path) -> None:
    document = evaluate(networks, data.manifest, output=tmp_path, bootstrap_by="sequence", **QUICK)
    assert document["models"][1]["vs_reference"]["miou"]["ci95"] is None  # two sequences tell nothing
    assert "groups of equal sequence" in document["intervals"]["method"]
    with pytest.raises(UsageError, match="columns sequence"):
        evaluate(networks, data.manifest, output=tmp_path, bootstrap_by="weather", **QUICK)


def test_a_gate_needs_a_reference_and_known_names(data: Evalset, networks: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--reference"):
        evaluate(networks[0], data.manifest, output=tmp_path, max_drop="miou=1", **QUICK)
    with pytest.raises(UsageError, match="did you mean 'dark'"):
        evaluate(networks, data.manifest, output=tmp_path, max_drop="slice:darkk=1", **QUICK)


def test_the_gate_orders_failing_limits_first(data: Evalset, networks: tuple[Path, Path], tmp_path: Path) -> None:
    document = evaluate(
        networks, data.manifest, output=tmp_path, max_drop="miou=99,class:c1=0.001,slice:dark=99", **QUICK
    )
    assert [(item["limit"], item["passed"]) for item in document["gate"]] == [
        ("class:c1=0.001", False), ("miou=99", True), ("slice:dark=99", True),
    ]  # fmt: skip


def test_calibration_images_in_the_split_are_a_leak(networks: tuple[Path, Path], tmp_path: Path) -> None:
    data = make_set(tmp_path / "set", images=6, splits=("train", "val"))
    folder = tmp_path / "build"
    folder.mkdir()

    def build(split: str, keys: list[str]) -> None:
        digests = {key: hashlib.sha256((data.manifest.parent / key).read_bytes()).hexdigest() for key in keys}
        lines = [json.dumps({"image": key, "sha256": digest}) for key, digest in digests.items()]
        (folder / "selection.jsonl").write_text("\n".join(lines))
        provenance = {"request": {"model": {}, "split": split}, "calibrators": [{"name": "b"}, {"name": "a"}]}
        (folder / "provenance.json").write_text(json.dumps(provenance))

    for name in "ab":
        (folder / f"{name}.qdq.onnx").write_bytes(networks[1].read_bytes())
    train = [key for key in data.keys if "train" in key]
    build("train", train)
    arguments: dict[str, Any] = {"split": "val", "reference": str(networks[0]), **QUICK}
    document = evaluate(folder, data.manifest, output=tmp_path / "out", **arguments)
    assert [model["name"] for model in document["models"]] == ["float", "b", "a"]
    assert document["calibrated_on"][0]["images"] == 6
    build("val", [key for key in data.keys if "val" in key][:2])
    with pytest.raises(LeakError, match="2 shared"):
        evaluate(folder, data.manifest, output=tmp_path / "out", **arguments)
    # a copy with other bytes: slightly brighter
    source = cv2.imread(str(data.manifest.parent / next(key for key in data.keys if "val" in key)))
    cv2.imwrite(str(data.manifest.parent / train[0]), cv2.add(source, np.full_like(source, 3)))
    build("train", train)
    with pytest.raises(LeakError, match="copy"):
        evaluate(folder, data.manifest, output=tmp_path / "out", **arguments)
