"""``calib diagnose`` from files to files, on a small network."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from calib.cli.app import run
from calib.errors import CalibError, ModelError, UsageError
from calib.jobs.diagnose import diagnose
from tests.diagnose import edits
from tests.smallbuild import make_build

Change = Callable[[onnx.ModelProto], onnx.ModelProto]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("diagnose")
    make_build(folder)
    return folder


def changed(place: Path, name: str, change: Change) -> Path:
    path = place / f"{name}.onnx"
    onnx.save(change(onnx.load(place / "net.onnx")), path)
    return path


def ask(place: Path, candidate: str | Path, output: str, **options: Any) -> dict[str, Any]:
    reference = options.pop("reference", place / "net.onnx")
    data = options.pop("data", place / "set.yaml")
    return diagnose(reference, candidate, data, output=place / output, split="val", **options)


def test_the_network_against_itself_has_no_fault(place: Path) -> None:
    found = ask(place, place / "net.onnx", "same")
    assert found["verdict"] == {
        "fault": False,
        "stage": None,
        "words": "no fault: the candidate answers as the reference does",
        "cause": None,
    }
    ladder = {item["name"]: item for item in found["ladder"]}
    assert ladder["float"]["output"]["sqnr_db"] == "inf"
    assert "not installed" in ladder["tensorrt"]["skipped"] or "no engine" in ladder["tensorrt"]["skipped"]
    assert ladder["float"]["accuracy"]["delta"] == 0
    assert ladder["float"]["accuracy"]["slices"]


def test_a_build_folder_and_one_of_its_calibrators(place: Path) -> None:
    for candidate in (str(place / "out"), f"{place / 'out'}:minmax", f"{place / 'out'}:per-channel"):
        found = ask(place, candidate, "built")
        assert not found["verdict"]["fault"], found["verdict"]
        assert found["parts"]["candidate"]["kind"] == "qdq"
        assert found["cache"]["compared"] > 0
        assert not found["cache"]["stale"]
        assert found["quantizers"]
        names = [item["name"] for item in found["ladder"] if not item["skipped"]]
        assert names == ["reference", "float", "optimized", "fp16", "fake-quant", "int8"]


def test_files_say_what_the_document_says(place: Path) -> None:
    candidate = changed(place, "clipped", lambda model: edits.dropped_activation(model, 0.0).model)
    found = ask(place, candidate, "files")
    folder = place / "files"
    assert json.loads((folder / "diagnosis.json").read_text()) == found
    rows = list(csv.DictReader((folder / "diagnosis_tensors.csv").read_text().splitlines()))
    assert len(rows) == found["tensors"] > 5
    assert rows[0]["depth"] == "1"
    page = (folder / "diagnosis.html").read_text()
    assert "Fault found: export" in page
    assert found["verdict"]["cause"]["kind"] == "operator-dropped"
    assert not (folder / ".diagnosis").exists()


def test_worker_counts_give_the_same_bytes(place: Path) -> None:
    candidate = changed(place, "zeroed", lambda model: edits.weights(model, 0.5, "zero").model)
    for workers in (1, 3):
        ask(place, candidate, f"workers{workers}", workers=workers)
    for name in ("diagnosis.json", "diagnosis_tensors.csv", "diagnosis.html"):
        assert (place / "workers1" / name).read_bytes() == (place / "workers3" / name).read_bytes(), name


@pytest.mark.parametrize(
    ("spec", "kind"),
    [("colour=bgr", "channel-order"), ("scale=1", "input-scale"), ("mean=0:0:0,std=1:1:1", "mean-std")],
)
def test_other_preprocessing_is_named(place: Path, spec: str, kind: str) -> None:
    found = ask(place, place / "net.onnx", "fed", candidate_preprocess=spec)
    assert (found["verdict"]["stage"], found["verdict"]["cause"]["kind"]) == ("preprocessing", kind)
    assert len(found["causes"]) == 1


def test_an_export_fault_comes_before_quantization(place: Path) -> None:
    build = onnx.load(place / "out" / "minmax.qdq.onnx")
    faulty = edits.pair_scale(edits.dropped_activation(build, 0.0).model, 0.5, 0.05).model
    onnx.save(faulty, place / "both.onnx")
    found = ask(place, place / "both.onnx", "both")
    assert found["verdict"]["stage"] == "export"
    assert {cause["stage"] for cause in found["causes"]} >= {"export"}


def test_a_stale_cache_is_named(place: Path) -> None:
    candidate = changed(
        place, "retrained", lambda model: edits.change_weight(model, 0, 1, lambda weight: weight * np.float32(16))
    )
    cache = str(place / "out" / "calibration.cache")
    found = ask(place, candidate, "stale", reference=candidate, cache=cache)
    assert found["verdict"]["cause"]["kind"] == "stale-cache"
    assert found["cache"]["stale"]
    assert found["cache"]["digests"] is not None
    fresh = ask(place, place / "net.onnx", "fresh", cache=cache)
    assert not fresh["verdict"]["fault"]


def test_a_candidate_that_does_not_run_is_diagnosed_all_the_same(place: Path) -> None:
    def narrow(model: onnx.ModelProto) -> onnx.ModelProto:
        return edits.reset(model, 2, "pads", [0, 0, 0, 0])

    found = ask(place, changed(place, "narrow", narrow), "narrow")
    ladder = {item["name"]: item for item in found["ladder"]}
    assert ladder["float"]["skipped"]
    assert (found["verdict"]["stage"], found["verdict"]["cause"]["kind"]) == ("export", "padding")


def test_images_without_labels_serve(place: Path) -> None:
    listed = place / "list.csv"
    keys = sorted(str(path.relative_to(place)) for path in (place / "data/images/val").glob("*.png"))
    listed.write_text("image\n" + "".join(f"{key}\n" for key in keys))
    candidate = changed(place, "bias", lambda model: edits.bias_lost(model, 0.0).model)
    found = diagnose(
        place / "net.onnx", candidate, listed, output=place / "unlabelled",
        preprocess="colour=rgb,size=24x32,scale=1/255,mean=0.5,std=0.25",
    )  # fmt: skip
    assert not found["data"]["labelled"]
    assert found["verdict"]["cause"]["kind"] == "bias-missing"
    assert found["ladder"][1]["flips"] is not None
    assert found["ladder"][1]["accuracy"] is None


@pytest.mark.parametrize(
    ("candidate", "options", "kind", "words"),
    [
        ("nowhere.onnx", {}, ModelError, "no such file"),
        ("out:nothing", {}, ModelError, "minmax"),
        ("set.yaml", {}, ModelError, "ONNX"),
        ("net.onnx", {"candidate_weights": Path("w.pt")}, UsageError, "PyTorch"),
        ("net.onnx", {"candidate_preprocess": "colour=purple"}, CalibError, "colour"),
        ("net.onnx", {"cache": "net.onnx"}, CalibError, ""),
        ("net.onnx", {"data": "nothing.yaml"}, CalibError, "nothing.yaml"),
    ],
)
def test_what_cannot_be_used_is_refused(
    place: Path, candidate: str, options: dict[str, Any], kind: type[CalibError], words: str
) -> None:
    options = {key: str(place / value) if key in {"cache", "data"} else value for key, value in options.items()}
    with pytest.raises(kind) as caught:
        ask(place, str(place / candidate), "refused", **options)
    assert words in str(caught.value)
    assert caught.value.remedy


def test_the_command_says_the_verdict_first(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    candidate = changed(place, "swapped", lambda model: edits.weights(model, 0.99, "swap").model)
    arguments = ["diagnose", str(place / "net.onnx"), str(candidate), "--data", str(place / "set.yaml")]
    arguments += ["--split", "val", "-o", str(place / "cli"), "-q"]
    assert run(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("FAULT  export")
    assert "weights-permuted" in "\n".join(lines[:8])
    assert any(line.startswith("  remedy  ") for line in lines)
    assert run([*arguments, "--fail-on-fault"]) == 1
    capsys.readouterr()
    assert run([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"]["fault"]
    sound = [*arguments[:2], str(place / "net.onnx"), *arguments[3:], "--fail-on-fault"]
    assert run(sound) == 0


def test_the_document_is_plain_json(place: Path) -> None:
    found = ask(place, place / "net.onnx", "plain")
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_quantizers_are_ranked_beside_the_diagnosis(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["diagnose", str(place / "net.onnx"), f"{place / 'out'}:minmax", "--data", str(place / "set.yaml")]
    arguments += ["--split", "val", "-o", str(place / "ranked"), "-q", "--sensitivity"]
    assert run([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    layers = {unit["name"] for unit in found["sensitivity"]["units"]}
    assert layers
    assert json.loads((place / "ranked/sensitivity/sensitivity.json").read_text())["units"]
    assert run(arguments) == 0
    assert str(place / "ranked/sensitivity/sensitivity.html") in capsys.readouterr().out
    plain = [*arguments[:2], str(place / "net.onnx"), *arguments[3:]]
    assert run(plain) == 2
    assert "--sensitivity" in capsys.readouterr().err


@pytest.mark.parametrize("options", [{"per_channel": False}, {"per_channel": True, "symmetric": True}])
def test_networks_of_another_quantizer_are_taken_apart(place: Path, options: dict[str, bool]) -> None:
    """Integers for weights, biases in INT32, and a ReLU that the zero point stands for."""
    from onnxruntime import quantization

    rng = np.random.default_rng(0)

    class Pictures(quantization.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = [{"image": rng.normal(0, 1, (1, 3, 24, 32)).astype(np.float32)} for _ in range(3)]

        def get_next(self) -> dict[str, np.ndarray] | None:
            return self.left.pop() if self.left else None

    path = place / "foreign.onnx"
    kinds = quantization.QuantType
    symmetric = options.get("symmetric", False)
    quantization.quantize_static(
        str(place / "net.onnx"), str(path), Pictures(), quant_format=quantization.QuantFormat.QDQ,
        per_channel=options["per_channel"], activation_type=kinds.QInt8 if symmetric else kinds.QUInt8,
        weight_type=kinds.QInt8, extra_options={"ActivationSymmetric": symmetric},
    )  # fmt: skip
    found = ask(place, path, "foreign")
    assert {cause["stage"] for cause in found["causes"]} <= {"quantization"}
    ladder = {item["name"]: item for item in found["ladder"]}
    assert float(ladder["float"]["output"]["sqnr_db"]) > 60
    assert ladder["fake-quant"]["output"]["sqnr_db"] < 60


def test_no_more_tensors_are_aligned_than_there_are(place: Path) -> None:
    found = ask(place, place / "net.onnx", "aligned")
    assert found["alignment"]["matched"] == found["alignment"]["tensors"]
