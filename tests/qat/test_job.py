"""``calib qat`` from end to end: the folder, what reads it, interruptions, bad input."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from calib.cli.app import run  # noqa: E402
from calib.core.graph import analyse  # noqa: E402
from calib.core.trtcache import parse  # noqa: E402
from calib.edges.models import load_model  # noqa: E402
from calib.edges.progress import SilentProgress  # noqa: E402
from calib.errors import LeakError, ManifestError, ModelError, UsageError  # noqa: E402
from calib.jobs.evaluate import evaluate  # noqa: E402
from calib.jobs.qat import QatRequest, run_qat  # noqa: E402
from calib.jobs.verify.request import VerifyRequest  # noqa: E402
from calib.jobs.verify.run import verify  # noqa: E402
from calib.stages.qdq import activation_ranges  # noqa: E402
from tests.evalsets import Evalset  # noqa: E402

FACTORY = "tests.qat.networks:Small"


def request(data: Evalset, weights: Path, output: Path, **changes: Any) -> QatRequest:
    base = QatRequest(
        model=FACTORY, data=str(data.manifest), output=output, weights=weights, steps=4, batch_size=4, lr=1e-3,
        distill=0.5, val_split="val", workers=2,
    )  # fmt: skip
    return replace(base, **changes)


@pytest.fixture(scope="module")
def finished(data: Evalset, weights: Path, build: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished training from the build's ranges."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("qat")
    run_qat(request(data, weights, folder, init=str(build)), SilentProgress())
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def test_the_folder_holds_what_the_page_says(finished: Path, repository: Path) -> None:
    page = (repository / "docs" / "qat.md").read_text(encoding="utf-8")
    table = page.split("## What is in the folder")[1].split("##")[0]
    told = {
        name
        for line in table.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`([^`]+)`", line.split("|")[1])
    }
    assert told - {"ptq/"} == {path.name for path in finished.iterdir()}


def test_networks_cache_and_ranges_agree(finished: Path) -> None:
    quantized, twin = load_model(finished / "qat.qdq.onnx"), load_model(finished / "qat.float.onnx")
    ranges = activation_ranges(quantized)
    scales = parse((finished / "calibration.cache").read_bytes()).scales
    assert {name: np.float32(scales[name]) for name in ranges} == {
        name: np.float32(amax / 127) for name, amax in ranges.items()
    }
    recorded = {item["name"]: item for item in json.loads((finished / "ranges.json").read_bytes())["tensors"]}
    assert {name for name, item in recorded.items() if item["quantized"]} == set(ranges)
    assert all(recorded[name]["ranges"]["qat"]["amax"] == amax for name, amax in ranges.items())
    assert set(scales) == {item.name for item in analyse(twin).activations}
    assert any(recorded[name]["ranges"]["start"]["amax"] != amax for name, amax in ranges.items())


def test_the_control_took_the_same_steps_and_has_no_pairs(finished: Path) -> None:
    document = json.loads((finished / "training.json").read_bytes())
    assert document["control"]["cost"]["steps"] == document["qat"]["cost"]["steps"] == 4
    assert document["control"]["settings"]["lr"] == document["qat"]["settings"]["lr"]
    control, start = load_model(finished / "control.onnx"), load_model(finished / "float.onnx")
    assert [node.op_type for node in control.graph.node] == [node.op_type for node in start.graph.node]
    assert control.SerializeToString() != start.SerializeToString()
    assert document["start"]["calibrator"] == "percentile"
    assert {item["tensor"] for item in document["weights"]} >= {"head.weight", "head.bias"}
    assert len(document["qat"]["curve"]) >= 2


def test_the_same_request_again_does_nothing_and_another_one_starts_anew(
    finished: Path, data: Evalset, weights: Path, build: Path, tmp_path: Path
) -> None:
    before = content(finished)
    again = run_qat(request(data, weights, finished, init=str(build)), SilentProgress())
    assert again.reused
    assert content(finished) == before
    other = run_qat(request(data, weights, tmp_path, init=str(build)), SilentProgress())
    assert not other.reused
    timed = {"training.json", "report.html", "provenance.json", "provenance.intoto.json"}
    after = content(tmp_path)
    assert {name for name in before if before[name] != after[name]} <= timed
    changed = run_qat(request(data, weights, tmp_path, init=str(build), seed=1, control=False), SilentProgress())
    assert not changed.reused
    assert not (tmp_path / "control.onnx").exists()


def test_evaluation_takes_the_folder_and_compares_ptq_and_qat(
    finished: Path, data: Evalset, build: Path, tmp_path: Path
) -> None:
    models = [finished / "float.onnx", build, finished]
    document = evaluate(models, data.manifest, output=tmp_path, split="test", resamples=200, pictures=0)
    names = [model["name"] for model in document["models"]]
    assert names == ["float", "percentile", "minmax", "per-channel", "qat", "control"]
    (found,) = document["trainings"]
    assert (found["model"], found["control"]) == ("qat", "control")
    assert found["best_ptq"] in {"percentile", "minmax", "per-channel"}
    roles = {pair["role"]: pair for pair in found["pairs"]}
    against = roles["QAT against the control"]
    by_name = {model["name"]: model for model in document["models"]}
    wanted = 100 * (by_name["qat"]["miou"] - by_name["control"]["miou"])
    assert against["miou"]["delta"] == pytest.approx(wanted)
    low, high = against["miou"]["ci95"]
    assert low <= wanted <= high
    plain = roles["QAT against the float network"]
    assert plain["miou"] == {**by_name["qat"]["vs_reference"]["miou"]}
    assert set(plain["slices"]) == set(document["slices"])
    assert found["cost"]["qat"]["steps"] == 4
    page = (tmp_path / "evaluation.html").read_text(encoding="utf-8")
    assert "PTQ or QAT" in page
    assert "QAT against the control" in page


def test_images_that_were_trained_on_or_chose_the_result_are_refused(
    finished: Path, data: Evalset, tmp_path: Path
) -> None:
    for split in ("train", "val"):
        with pytest.raises(LeakError, match="training images"):
            evaluate([finished], data.manifest, output=tmp_path, split=split, resamples=100, pictures=0)


def test_the_gate_holds_the_folder_against_itself(finished: Path, data: Evalset, tmp_path: Path) -> None:
    asked = VerifyRequest(
        folder=finished, model=finished / "float.onnx", data=str(data.manifest), evaluation_split="test"
    )
    found = verify(asked, SilentProgress())
    assert found.passed, [check for check in found.checks if check.status == "fail"]
    names = {check.name for check in found.checks if check.status == "pass"}
    assert {"qat.qdq.onnx", "qat.cache", "qat.float.onnx", "images", "overlap"} <= names


@pytest.mark.parametrize("victim", ["qat.cache", "qat.qdq.onnx", "qat.float.onnx"])
def test_the_gate_finds_a_change_even_where_the_hashes_were_changed_along(
    victim: str, finished: Path, tmp_path: Path
) -> None:
    import hashlib
    import shutil

    shutil.copytree(finished, tmp_path / "qat")
    folder = tmp_path / "qat"
    if victim == "qat.cache":
        text = (folder / victim).read_text()
        (folder / victim).write_text(re.sub(r": 3[0-9a-f]{7}", ": 3c010a14", text, count=1))
        shutil.copy(folder / victim, folder / "calibration.cache")
    else:
        model = load_model(folder / victim)
        changed = next(
            item for item in model.graph.initializer if item.data_type == onnx.TensorProto.FLOAT and len(item.dims) == 4
        )
        values = onnx.numpy_helper.to_array(changed) * np.float32(1.5)
        changed.CopyFrom(onnx.numpy_helper.from_array(values, changed.name))
        onnx.save(model, folder / victim)
    document = json.loads((folder / "provenance.json").read_bytes())
    for name in document["outputs"]:
        document["outputs"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    (folder / "provenance.json").write_text(json.dumps(document))
    found = verify(VerifyRequest(folder=folder, model=folder / "float.onnx"), SilentProgress())
    failed = {check.name for check in found.checks if check.status == "fail"}
    assert failed & {"qat.qdq.onnx", "qat.cache"}


def test_without_a_build_the_training_split_is_calibrated_first(data: Evalset, weights: Path, tmp_path: Path) -> None:
    run_qat(request(data, weights, tmp_path, val_split=None, control=False, calibrator="minmax"), SilentProgress())
    assert (tmp_path / "ptq" / "minmax.qdq.onnx").is_file()
    document = json.loads((tmp_path / "training.json").read_bytes())
    assert document["start"]["calibrator"] == "minmax"
    assert document["data"]["validation"]["held_out"]
    assert document["data"]["train"]["images"] + document["data"]["validation"]["images"] == 12
    assert document["qat"]["kept"]["which"] == "last"
    plain = verify(VerifyRequest(folder=tmp_path / "ptq", model=tmp_path / "float.onnx"), SilentProgress())
    assert plain.passed


def test_an_onnx_file_is_trained_as_it_is(data: Evalset, exported: Path, build: Path, tmp_path: Path) -> None:
    result = run_qat(
        request(data, None, tmp_path, model=str(exported), init=str(build), control=False), SilentProgress()
    )  # type: ignore[arg-type]
    assert result.document["start"]["unmatched"] == []
    given, kept = load_model(exported), load_model(tmp_path / "float.onnx")
    assert given.SerializeToString(deterministic=True) == kept.SerializeToString(deterministic=True)
    assert verify(VerifyRequest(folder=tmp_path, model=tmp_path / "float.onnx"), SilentProgress()).passed


def test_what_the_build_has_no_range_for_is_calibrated_and_named(
    data: Evalset, exported: Path, build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (build / "calibration.cache").read_text().splitlines()
    gone = next(line.rsplit(":", 1)[0] for line in lines[1:] if "down" in line and "Relu" in line)
    (tmp_path / "part.cache").write_text("\n".join(line for line in lines if not line.startswith(gone)) + "\n")
    folder = tmp_path / "out"
    asked = request(data, None, folder, model=str(exported), init=str(tmp_path / "part.cache"), control=False)  # type: ignore[arg-type]
    result = run_qat(asked, SilentProgress())
    assert result.document["start"]["calibrated"] == [gone]
    assert f"has no range for 1 tensors, calibrated now: {gone}" in capsys.readouterr().err
    assert gone in activation_ranges(load_model(folder / "qat.qdq.onnx"))


def test_learnt_weight_scales_pass_the_gate(data: Evalset, weights: Path, build: Path, tmp_path: Path) -> None:
    asked = request(data, weights, tmp_path, init=str(build), control=False, learn_weight_scales=True)
    run_qat(asked, SilentProgress())
    found = verify(VerifyRequest(folder=tmp_path, model=tmp_path / "float.onnx"), SilentProgress())
    assert found.passed, [check for check in found.checks if check.status == "fail"]


def test_frozen_weights_stay_to_the_bit(data: Evalset, weights: Path, build: Path, tmp_path: Path) -> None:
    asked = request(
        data, weights, tmp_path, init=str(build), control=False, scale_bits=24, freeze=("head.*", "/stem/*")
    )
    run_qat(asked, SilentProgress())
    changes = json.loads((tmp_path / "training.json").read_bytes())["weights"]
    still = {item["tensor"] for item in changes if item["change"] == 0}
    start = load_model(tmp_path / "float.onnx")
    stem = next(node for node in start.graph.node if node.name == "/stem/stem.0/Conv")
    assert still == {"head.weight", "head.bias", *stem.input[1:]}
    with pytest.raises(UsageError, match="expected a pattern of weights or nodes, got none that it names"):
        run_qat(replace(asked, freeze=("tail.*",)), SilentProgress())


def test_images_without_label_are_refused_before_any_work(data: Evalset, exported: Path, tmp_path: Path) -> None:
    import yaml

    manifest = yaml.safe_load(data.manifest.read_text())
    del manifest["splits"]["train"]["labels"]
    manifest["root"] = str(data.manifest.parent)
    (tmp_path / "set.yaml").write_text(yaml.safe_dump(manifest))
    asked = request(data, None, tmp_path / "out", model=str(exported))  # type: ignore[arg-type]
    with pytest.raises(ManifestError, match="a label for every image, got 12 of 12 without"):
        run_qat(replace(asked, data=str(tmp_path / "set.yaml")), SilentProgress())


def test_functions_of_an_export_are_inlined(data: Evalset, tmp_path: Path) -> None:
    parsed = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17, "own" : 1]>
        net (float[N,3,H,W] image) => (float[N,5,H,W] logits)
        { a = own.twice (image)  b = Conv (a, w)  c = Relu (b)  logits = Conv (c, v) }
        <domain: "own", opset_import: ["" : 17]>
        twice (x) => (y) { y = Add (x, x) }
    """)
    rng = np.random.default_rng(0)
    for name, shape in (("w", (6, 3, 1, 1)), ("v", (5, 6, 1, 1))):
        parsed.graph.initializer.append(onnx.numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name))
    onnx.save(parsed, tmp_path / "net.onnx")
    asked = request(data, None, tmp_path / "out", model=str(tmp_path / "net.onnx"), control=False)  # type: ignore[arg-type]
    run_qat(asked, SilentProgress())
    written = load_model(tmp_path / "out" / "float.onnx")
    assert [node.op_type for node in written.graph.node] == ["Add", "Conv", "Relu", "Conv"]
    assert not written.functions
    assert len(activation_ranges(load_model(tmp_path / "out" / "qat.qdq.onnx"))) == 1


def test_the_report_shows_curves_changes_and_next_steps(finished: Path) -> None:
    page = (finished / "report.html").read_text(encoding="utf-8")
    for words in ("How the training went", "What changed in the ranges", "What changed in the weights", "Placement",
                  "control, without", "calib evaluate float.onnx", "trtexec --onnx=qat.qdq.onnx"):  # fmt: skip
        assert words in page
    assert 'http-equiv="Content-Security-Policy"' in page
    assert not re.search(r"[>\s\"]nan[<\s\"]", page)


def arguments(data: Evalset, weights: Path, build: Path, output: Path, *more: str) -> list[str]:
    return ["qat", FACTORY, "--weights", str(weights), "--data", str(data.manifest), "--init", str(build),
            "--val-split", "val", "--batch-size", "4", "-o", str(output), *more]  # fmt: skip


def test_json_is_one_document(data: Evalset, weights: Path, build: Path, tmp_path: Path, capsys: Any) -> None:
    assert run(arguments(data, weights, build, tmp_path, "--steps", "2", "--no-control", "--json")) == 0
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert document["qat"]["cost"]["steps"] == 2
    assert document["control"] is None
    assert "qat: 1000/1000" in captured.err


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--steps", "0"], "--steps"),
        (["--lr", "-1"], "--lr: expected 1e-12 to 10, got -1"),
        (["--precision", "int4"], "--precision: expected one of fp32, fp16, bf16"),
        (["--optimizer", "adam"], "--optimizer: expected one of adamw, sgd"),
        (["--calibrator", "entropy"], "one of the build's: percentile, minmax, per-channel"),
        (["--split", "val"], "another split than the one trained on"),
        (["--init", "nowhere"], "a readable calibration cache"),
        (["--output-name", "other"], "one of logits"),
        (["--opset", "12"], "--opset"),
        (["--target", "trt9"], "--target: expected one of trt10, trt11, ort"),
    ],
)
def test_bad_input_is_one_message_and_exit_code_2(
    more: list[str], words: str, data: Evalset, weights: Path, build: Path, tmp_path: Path, capsys: Any
) -> None:
    assert run(arguments(data, weights, build, tmp_path, "--steps", "2", *more)) == 2
    error = capsys.readouterr().err
    assert words in error
    assert "Traceback" not in error


def test_weights_for_an_onnx_file_and_a_quantized_network_are_refused(
    data: Evalset, weights: Path, exported: Path, build: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="leave --weights out"):
        run_qat(request(data, weights, tmp_path, model=str(exported)), SilentProgress())
    quantized = request(data, None, tmp_path, model=str(build / "minmax.qdq.onnx"))  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="expected a float network"):
        run_qat(quantized, SilentProgress())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_one_error(data: Evalset, weights: Path, build: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="an NVIDIA GPU that PyTorch can use"):
        run_qat(request(data, weights, tmp_path, init=str(build), device="cuda"), SilentProgress())


def test_an_interrupt_ends_with_130_and_the_same_command_goes_on(
    data: Evalset, weights: Path, build: Path, repository: Path, tmp_path: Path
) -> None:
    environment = {**os.environ, "PYTHONPATH": str(repository), "OMP_NUM_THREADS": "1"}
    more = ("--steps", "200", "--no-control")
    command = [sys.executable, "-m", "calib", *arguments(data, weights, build, tmp_path, *more)]
    with subprocess.Popen(command, cwd=repository, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while process.poll() is None and not (tmp_path / ".partial" / "start.json").exists():
            time.sleep(0.02)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        assert process.wait(60) == 130, rest
    assert "the same command goes on" in rest
    assert not (tmp_path / "qat.qdq.onnx").exists()
    done = subprocess.run(
        [*command, "-q"], cwd=repository, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "qat.qdq.onnx").is_file()


def test_batch_normalisation_is_folded_before_the_training(data: Evalset, tmp_path: Path) -> None:
    """Behind a convolution and behind a transposed one in groups: what is trained is what the Q/DQ network holds."""
    parsed = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[N,3,H,W] image) => (float[N,5,H,W] logits)
        {
            a = Conv (image, w)  b = BatchNormalization (a, g, s, m, q)  c = Relu (b)
            d = ConvTranspose <group = 2> (c, t)  e = BatchNormalization (d, g, s, m, q)  f = Relu (e)
            logits = Conv (f, v)
        }
    """)
    rng = np.random.default_rng(0)
    for name, shape in (("w", (6, 3, 1, 1)), ("t", (6, 3, 1, 1)), ("v", (5, 6, 1, 1)), ("g", 6), ("s", 6), ("m", 6)):
        parsed.graph.initializer.append(onnx.numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name))
    parsed.graph.initializer.append(onnx.numpy_helper.from_array(rng.uniform(0.5, 2, 6).astype(np.float32), "q"))
    onnx.save(parsed, tmp_path / "net.onnx")
    asked = request(data, None, tmp_path / "out", model=str(tmp_path / "net.onnx"), control=False)  # type: ignore[arg-type]
    run_qat(replace(asked, target="ort", scale_bits=24), SilentProgress())
    written = load_model(tmp_path / "out" / "qat.qdq.onnx")
    assert "BatchNormalization" not in {node.op_type for node in written.graph.node}
    assert [node.op_type for node in load_model(tmp_path / "out" / "float.onnx").graph.node] == [
        "Conv", "Relu", "ConvTranspose", "Relu", "Conv",
    ]  # fmt: skip
    stored = {item.name: onnx.numpy_helper.to_array(item) for item in written.graph.initializer}
    np.testing.assert_allclose(stored["w_scale"], np.abs(stored["w"]).max((1, 2, 3)) / 127, rtol=1e-6)
    found = verify(VerifyRequest(tmp_path / "out", tmp_path / "out" / "float.onnx"), SilentProgress())
    assert found.passed, [check for check in found.checks if check.status == "fail"]
