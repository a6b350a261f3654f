"""``calib qat --backend modelopt``: what it refuses, and, where ModelOpt is installed, a training from end to end."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calib.cli.app import run
from calib.edges.models import load_model
from calib.edges.progress import SilentProgress
from calib.edges.qat_modelopt import require_modelopt
from calib.errors import MissingLibraryError, ModelError, UsageError
from calib.jobs.evaluate import evaluate
from calib.jobs.qat import QatRequest, run_qat
from calib.jobs.qat.backends import settle_backend
from calib.jobs.verify.request import VerifyRequest
from calib.jobs.verify.run import verify
from calib.stages.qdq import activation_ranges
from tests.evalsets import Evalset, prepare
from tests.graphs import run as run_onnx

FACTORY = "tests.qat.networks:Small"
SMALL = QatRequest(FACTORY, "data.yaml", Path("out"), backend="modelopt")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Part of these tests needs no PyTorch; the others limit its threads themselves."""


@pytest.fixture(scope="module")
def torch() -> Any:
    """PyTorch on one thread, ModelOpt beside it."""
    found = pytest.importorskip("torch", reason="needs PyTorch")
    try:
        require_modelopt()
    except MissingLibraryError as reason:
        pytest.skip(f"needs NVIDIA ModelOpt: {reason.got}")
    found.set_num_threads(1)
    return found


def request(data: Evalset, weights: Path, output: Path, **changes: Any) -> QatRequest:
    base = QatRequest(
        model=FACTORY, data=str(data.manifest), output=output, weights=weights, steps=4, batch_size=4, lr=1e-3,
        distill=0.5, val_split="val", workers=2, backend="modelopt",
    )  # fmt: skip
    return replace(base, **changes)


@pytest.fixture(scope="module")
def finished(torch: Any, data: Evalset, weights: Path, build: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished training from the build's ranges."""
    folder = tmp_path_factory.mktemp("modelopt")
    run_qat(request(data, weights, folder, init=str(build)), SilentProgress())
    return folder


def test_an_onnx_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.onnx"
    assert run(["qat", str(path), "--data", "d.yaml", "--backend", "modelopt", "-o", str(tmp_path / "out")]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "module:factory" in said
    assert "--backend calib" in said
    assert not (tmp_path / "out").exists()


def test_the_missing_library_is_named_before_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "modelopt", None)
    monkeypatch.setitem(sys.modules, "modelopt.torch", None)
    code = run(["qat", FACTORY, "--data", "none.yaml", "--backend", "modelopt", "-o", str(tmp_path / "out")])
    said = " ".join(capsys.readouterr().err.split())
    assert code == 2
    assert "calib-workbench[qat,modelopt]" in said
    assert "none.yaml" not in said
    assert not (tmp_path / "out").exists()


def test_an_unknown_backend_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["qat", FACTORY, "--data", "d.yaml", "--backend", "brevitas", "-o", str(tmp_path / "out")]) == 2
    assert "calib, modelopt" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("changes", "flag"),
    [
        ({"learn_scales": True}, "--learn-scales"),
        ({"learn_weight_scales": True}, "--learn-weight-scales"),
        ({"scale_bits": 5}, "--scale-bits"),
        ({"freeze": ("head*",)}, "--freeze"),
    ],
)
def test_what_modelopt_does_not_have_is_refused(changes: dict[str, Any], flag: str) -> None:
    with pytest.raises(UsageError, match=flag):
        settle_backend(replace(SMALL, **changes))


def test_backends_fill_in_what_is_left_open() -> None:
    other, own = settle_backend(SMALL), settle_backend(replace(SMALL, backend="calib"))
    assert (other.learn_scales, other.scale_bits) == (False, 24)
    assert (own.learn_scales, own.scale_bits) == (True, 5)
    kept = settle_backend(replace(SMALL, backend="calib", learn_scales=False, scale_bits=8))
    assert (kept.learn_scales, kept.scale_bits) == (False, 8)


def test_the_folder_is_complete_and_verifies(finished: Path, data: Evalset) -> None:
    document = json.loads((finished / "training.json").read_bytes())
    recorded = json.loads((finished / "provenance.json").read_bytes())
    assert document["backend"] == recorded["request"]["backend"] == "modelopt"
    assert "nvidia-modelopt" in recorded["request"]["versions"]
    assert recorded["training"]["float_nodes"]  # the shortcut of the residual addition
    assert document["qat"]["cost"]["steps"] == document["control"]["cost"]["steps"] == 4
    assert {item["tensor"] for item in document["weights"] if item["change"]} >= {"head.weight", "up.weight"}
    result = verify(VerifyRequest(finished, finished / "float.onnx", data=str(data.manifest)), SilentProgress())
    assert [item for item in result.checks if item.status == "fail"] == []


def test_ranges_stay_and_the_cache_has_them(finished: Path) -> None:
    from calib.core.trtcache import parse

    ranges = activation_ranges(load_model(finished / "qat.qdq.onnx"))
    scales = parse((finished / "calibration.cache").read_bytes()).scales
    recorded = {item["name"]: item for item in json.loads((finished / "ranges.json").read_bytes())["tensors"]}
    assert {name for name, item in recorded.items() if item["quantized"]} == set(ranges)
    for name, amax in ranges.items():
        assert np.float32(scales[name]) == np.float32(amax / 127)
        assert amax == pytest.approx(recorded[name]["ranges"]["start"]["amax"], rel=1e-6)


def test_evaluation_takes_the_folder(finished: Path, build: Path, data: Evalset, tmp_path: Path) -> None:
    models = [finished / "float.onnx", build, finished]
    document = evaluate(models, data.manifest, output=tmp_path, split="test", resamples=200, pictures=0)
    assert [model["name"] for model in document["models"]][-2:] == ["qat", "control"]


def test_another_run_gives_the_same_bytes_and_a_finished_one_is_reused(
    finished: Path, data: Evalset, weights: Path, build: Path, tmp_path: Path
) -> None:
    again = run_qat(request(data, weights, finished, init=str(build)), SilentProgress())
    assert again.reused
    run_qat(request(data, weights, tmp_path, init=str(build), workers=1), SilentProgress())
    for name in ("qat.qdq.onnx", "qat.float.onnx", "qat.cache"):
        assert (tmp_path / name).read_bytes() == (finished / name).read_bytes()


def test_a_training_that_was_killed_goes_on_to_the_same_weights(
    finished: Path, data: Evalset, weights: Path, build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from calib.edges.qat.trainer import Trainer

    original, asked = Trainer._step, request(data, weights, tmp_path, init=str(build), checkpoint_seconds=0.0)

    def step(self: Trainer, *given: Any) -> None:
        if self.state.step == 2:
            raise KeyboardInterrupt
        original(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", step)
        with pytest.raises(KeyboardInterrupt):
            run_qat(asked, SilentProgress())
    assert (tmp_path / ".partial" / "qat.checkpoint").exists()
    assert not run_qat(asked, SilentProgress()).reused
    for name in ("qat.qdq.onnx", "qat.cache", "control.onnx"):
        assert (tmp_path / name).read_bytes() == (finished / name).read_bytes()


@pytest.mark.parametrize(
    ("factory", "said"), [("Scaled", "requires_grad = False"), ("Classes", "without its argmax"), ("Own", "calib")]
)
def test_modules_that_cannot_be_trained_this_way_are_refused_before_training(
    torch: Any, data: Evalset, tmp_path: Path, factory: str, said: str
) -> None:
    asked = QatRequest(
        f"tests.qat.networks:{factory}", str(data.manifest), tmp_path, steps=1, batch_size=2, workers=1,
        backend="modelopt", split="train", trt_version="10.14.1",
    )  # fmt: skip
    with pytest.raises((ModelError, UsageError)) as caught:
        run_qat(asked, SilentProgress())
    assert said in str(caught.value.remedy)


def test_the_written_network_computes_what_was_trained(
    torch: Any, data: Evalset, weights: Path, build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from calib.edges.qat import modelopt as module

    held: list[Any] = []
    original = module.ModelOptModule.learnt

    def learnt(self: Any) -> Any:
        held.append(self)
        return original(self)

    monkeypatch.setattr(module.ModelOptModule, "learnt", learnt)
    run_qat(request(data, weights, tmp_path, init=str(build), control=False, ema=0.0, keep="last"), SilentProgress())
    images = np.concatenate([prepare(data.pixels(key)) for key in data.keys]).astype(np.float32)
    with torch.no_grad():
        wanted = held[0](torch.from_numpy(images)).numpy()
    quantized, twin = (load_model(tmp_path / name) for name in ("qat.qdq.onnx", "qat.float.onnx"))
    found, plain = (run_onnx(model, {"image": images})[0] for model in (quantized, twin))
    assert np.mean(found.argmax(1) == wanted.argmax(1)) >= 0.999
    assert np.abs(found - wanted).mean() < 0.1 * np.abs(plain - wanted).mean()
    assert not any(item.training for item in held[0].modules())
