"""``calib engine``: engine, layer information, profile, audit and timing cache; or the command and why."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from calib.cli.app import run
from calib.core.engine.layerinfo import parse_layer_info
from calib.core.engine.options import OPTIONS
from calib.core.trtcache import parse
from calib.edges.progress import SilentProgress
from calib.edges.tensorrt import library
from calib.edges.tensorrt.building import EngineError
from calib.edges.tensorrt.calibration import CalibrationError
from calib.edges.tensorrt.runner import EngineRunner
from calib.errors import ImageError, ModelError, OutputError, UsageError
from calib.jobs.engine import EngineRequest, EngineResult, build_engine
from tests.graphs import run as run_onnx
from tests.smallbuild import make_build, write_network
from tests.trt.double import HostMemory

VERSIONS = {"trt10": "10.14.1.48", "trt11": "11.1.0.40"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    make_build(folder, calibrators=("percentile", "minmax", "per-channel:equalize=true"))
    return folder


@pytest.fixture
def place(built: Path, tmp_path: Path) -> Path:
    shutil.copytree(built, tmp_path / "one")
    return tmp_path / "one"


def engine(place: Path, provided: Any = None, target: str = "trt10", **changes: Any) -> EngineResult:
    request = EngineRequest(place / "out", target, model=place / "net.onnx", data=str(place / "set.yaml"))
    memory = HostMemory() if provided is None else provided.memory
    return build_engine(replace(request, **changes), SilentProgress(), memory)


def retarget(place: Path, version: str) -> None:
    """A build whose caches are headed for a version."""
    from calib.jobs.build import BuildRequest, build

    request = BuildRequest(
        place / "net.onnx", str(place / "set.yaml"), place / "out", split="train", samplers=("random",), num_images=6,
        calibrators=("percentile", "minmax", "per-channel:equalize=true"), evaluation_split="val", trt_version=version,
    )  # fmt: skip
    build(request, SilentProgress())


def test_trt10_builds_from_network_and_cache(place: Path, provide) -> None:
    provided = provide(10)
    if provided.version != "10.14.1":
        retarget(place, provided.version)
    result = engine(place, provided)
    assert result.missing is None
    names = {path.name for path in result.files.values()}
    stem = "percentile.trt10.engine"
    assert names == {stem, f"{stem}.layers.json", f"{stem}.profile.json", f"{stem}.audit.json", "timing.cache"}
    assert all(path.stat().st_size for path in result.files.values())
    counts = result.document()["audit"]["counts"]
    assert counts.get("int8", 0) >= 1
    info = parse_layer_info(result.files["layers"].read_text())
    assert info.schema == "bindings"
    assert info.detailed
    profile = json.loads(result.files["profile"].read_text())
    assert profile[0] == {"count": 10}
    assert {"name", "timeMs", "averageMs", "percentage"} <= set(profile[1])


def test_the_logits_layer_is_pinned_to_float_as_the_plan_says(place: Path, double) -> None:
    double()
    result = engine(place)
    outcomes = {item.layer: item for item in result.audit.layers}
    logits = next(item for item in outcomes.values() if item.layer == "Conv(c)")
    assert (logits.planned, logits.outcome, logits.precision) == ("float", "float", "fp16")
    assert outcomes["Conv(a)"].outcome == "int8"
    assert outcomes["Conv(a)"].milliseconds is not None
    assert "--layerPrecisions=node_of_c:fp16" in result.command.words
    assert engine(place, fp16=False).audit.with_outcome("float")[0].precision == "fp32"


def test_trt11_builds_from_the_qdq_network(place: Path, provide) -> None:
    provided = provide(11)
    result = engine(place, provided, "trt11")
    assert result.missing is None
    assert result.audit.schema == "io-tensors"
    assert result.document()["audit"]["counts"].get("int8", 0) >= 1
    assert result.files["network"].name == "percentile.fp16.onnx"
    assert result.files["engine"].name == "percentile.trt11.engine"
    plain = engine(place, provided, "trt11", fp16=False)
    assert "network" not in plain.files


def test_the_engine_computes_what_the_network_computes(place: Path, provide) -> None:
    provided = provide(11)
    result = engine(place, provided, "trt11", fp16=False, shapes=("image:1x3x24x32/2x3x24x32/4x3x24x32",))
    runner = EngineRunner(result.files["engine"].read_bytes(), "engine", provided.memory)
    values = {"image": np.random.default_rng(0).standard_normal((2, 3, 24, 32)).astype(np.float32)}
    (wanted,) = run_onnx(onnx.load(place / "out/percentile.qdq.onnx"), values)
    found = runner.run(values)["logits"]
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= 0.05 * np.abs(wanted).max()
    with pytest.raises(ModelError, match=r"\[1, 3, 24, 32\] to \[4, 3, 24, 32\]"):
        runner.run({"image": np.zeros((5, 3, 24, 32), np.float32)})
    with pytest.raises(ModelError, match="feed every input"):
        runner.run({})


def test_an_engine_of_another_version_is_refused(place: Path, double) -> None:
    double("11.1.0.106")
    plan = engine(place, target="trt11").files["engine"].read_bytes()
    double("11.0.0.114")
    with pytest.raises(EngineError, match="not compatible"):
        EngineRunner(plan, "engine", HostMemory())


def test_native_calibration_runs_on_the_builds_images(place: Path, provide) -> None:
    provided = provide(10)
    result = engine(place, provided, native=True)
    cache = parse(result.files["native_cache"].read_bytes())
    assert cache.header.version == provided.version
    if provided.double:
        images = json.loads((place / "out/ranges.json").read_text())["tensors"][0]
        assert cache.scales["image"] * 127 == pytest.approx(max(abs(images["minimum"]), abs(images["maximum"])))
        assert provided.module.events == ["1 batches"]
    assert any("trtexec cannot calibrate" in note for note in result.notes)


def test_native_calibration_refuses_other_images_and_other_preprocessing(place: Path, double) -> None:
    double()
    key = next(iter(json.loads((place / "out/provenance.json").read_text())["images"]))
    image = (place / "data" / key).read_bytes()
    (place / "data" / key).write_bytes(image + b"x")
    with pytest.raises(ImageError, match="missing or changed"):
        engine(place, native=True)
    (place / "data" / key).write_bytes(image)
    with pytest.raises(UsageError, match="preprocessing"):
        engine(place, native=True, preprocess="mean=0.1")
    with pytest.raises(UsageError, match="--data"):
        engine(place, native=True, data=None)


def test_a_failure_while_reading_images_aborts_the_build(place: Path, double, monkeypatch) -> None:
    from calib.edges.feeds import FeedReader

    double()
    load, calls = FeedReader.load, []

    def failing(self, key):
        calls.append(key)
        if len(calls) == 5:
            raise ImageError(key, expected="an image", got="a disk error", remedy="try again")
        return load(self, key)

    monkeypatch.setattr(FeedReader, "load", failing)
    with pytest.raises(ImageError, match="disk error"):
        engine(place, native=True)
    assert not list((place / "out").glob("*.engine"))


def test_a_cache_for_another_tensorrt_is_an_error_and_leaves_no_engine(place: Path, double) -> None:
    double("10.16.1.11")
    with pytest.raises(CalibrationError, match="TRT-101401-EntropyCalibration2"):
        engine(place)
    assert not list((place / "out").glob("*.engine"))


def test_the_timing_cache_is_used_again(place: Path, double) -> None:
    double()
    shared = place / "shared.timing"
    first = engine(place, timing_cache=shared)
    assert first.files["timing_cache"] == shared
    assert f"--timingCacheFile={shared}" in first.command.words
    second = engine(place, timing_cache=shared, variant="minmax")
    assert second.files["engine"].name == "minmax.trt10.engine"
    shared.write_bytes(b"timing:8.6.1")
    with pytest.raises(EngineError, match="--timing-cache"):
        engine(place, timing_cache=shared)


def test_a_variant_with_a_network_of_its_own_needs_no_model(place: Path, double) -> None:
    double()
    result = engine(place, variant="per-channel", model=None)
    assert f"--onnx={place / 'out/equalized.float.onnx'}" in result.command.words
    with pytest.raises(UsageError, match="--model"):
        engine(place, model=None)


@pytest.mark.parametrize("what", ["network", "cache", "qdq"])
def test_files_that_were_touched_are_not_built_from(place: Path, double, what: str) -> None:
    target = "trt11" if what == "qdq" else "trt10"
    double("11.1.0.106" if what == "qdq" else "10.14.1.48")
    if what == "network":
        write_network(place / "net.onnx", seed=6)
    else:
        path = place / "out" / ("calibration.cache" if what == "cache" else "percentile.qdq.onnx")
        path.write_bytes(path.read_bytes() + b"\n")
    with pytest.raises(ModelError):
        engine(place, target=target)


@pytest.mark.parametrize("target", ["trt10", "trt11"])
@pytest.mark.parametrize("fp16", [True, False])
def test_without_tensorrt_the_command_is_printed_with_the_reason(
    place: Path, monkeypatch, capsys, target: str, fp16: bool
) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    major = int(target[3:])
    arguments = ["engine", str(place / "out"), "--target", target, "--model", str(place / "net.onnx")]
    code = run([*arguments, "--fp16" if fp16 else "--no-fp16"])
    printed, errors = capsys.readouterr()
    assert code == 2
    assert f"nothing was built; TensorRT {major}" in errors
    assert "pip install" in errors
    words = shlex.split(printed.splitlines()[-1])
    assert words[0] == "trtexec"
    options = [word.partition("=")[0] for word in words[1:]]
    assert set(options) <= OPTIONS[major]
    for word in words[1:]:
        option, _, value = word.partition("=")
        if option in ("--onnx", "--calib"):
            assert Path(value).is_file()
    assert "--optShapes=image:1x3x24x32" in words
    assert ("--fp16" in words) is (fp16 and major == 10)
    assert run([*arguments, "--print-command"]) == 0


def test_a_tensorrt_of_the_other_major_version_counts_as_missing(place: Path, double) -> None:
    double("11.1.0.106")
    result = engine(place)
    assert result.audit is None
    assert "version 11.1.0.106" in result.missing.got
    assert result.command.major == 10
    assert result.document()["built"] is False


def test_json_holds_command_and_reason(place: Path, monkeypatch, capsys) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    assert run(["engine", str(place / "out"), "--target", "trt11", "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert document["built"] is False
    assert document["trtexec"]["words"][0] == "trtexec"
    assert document["remedy"].startswith("pip install")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"folder": Path("nowhere")}, "build folder"),
        ({"variant": "mse"}, "percentile, minmax"),
        ({"shapes": ("picture:1x3x24x32",)}, "one of the inputs image"),
        ({"shapes": ("image:1x3x24x64",)}, "fits"),
        ({"shapes": ("image:1x3x24",)}, "fits"),
        ({"shapes": ("1x3x24x32",)}, "NAME:"),
        ({"native": True, "target": "trt11"}, "--target trt10"),
        ({"output": Path()}, "a folder"),
        ({"timing_cache": Path()}, "--timing-cache"),
    ],
)
def test_bad_requests_are_usage_errors(place: Path, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        engine(place, **{"print_only": True, **changes})


@pytest.mark.parametrize("target", ["trt10", "trt11"])
def test_the_output_folder_is_made_before_the_build(place: Path, double, monkeypatch, target: str) -> None:
    folder = place / "new" / "ü b"
    changes = {"output": folder / "a.engine", "timing_cache": place / "kept" / "t.cache", "target": target}
    double(VERSIONS[target])
    result = engine(place, **changes)
    assert {path.parent for role, path in result.files.items() if role != "timing_cache"} == {folder}
    assert result.files["timing_cache"].is_file()
    blocked = place / "blocked"
    blocked.write_text("a file")
    monkeypatch.setattr("calib.jobs.engine.run._build", lambda *_: pytest.fail("nothing may be built"))
    with pytest.raises(OutputError, match="place that can be written"):
        engine(place, output=blocked / "a.engine", target=target)


def test_the_installed_version_is_read_from_metadata(monkeypatch) -> None:
    monkeypatch.setattr(
        library, "version", lambda name: {"tensorrt-cu12": "10.9.0.34"}[name] if name == "tensorrt-cu12" else missing()
    )
    assert library.installed_tensorrt() == "10.9.0.34"
    monkeypatch.setattr(library, "version", lambda name: missing())
    assert library.installed_tensorrt() is None


def missing() -> str:
    raise library.PackageNotFoundError


def test_an_engine_is_evaluated_like_the_network_it_was_built_from(place: Path, provide, monkeypatch) -> None:
    from calib.jobs.evaluate import EvaluateRequest, run_evaluation

    provided = provide(11)
    engine(place, provided, "trt11", fp16=False)
    if provided.double:
        monkeypatch.setattr("calib.edges.tensorrt.runner.CudaMemory", HostMemory)
    request = EvaluateRequest(
        models=[str(place / "out/percentile.trt11.engine"), str(place / "out/percentile.qdq.onnx")],
        reference=str(place / "net.onnx"), data=str(place / "set.yaml"), output=place / "evaluated", split="val",
        pictures=0, resamples=100,
    )  # fmt: skip
    models = run_evaluation(request, SilentProgress()).document["models"]
    ours, qdq = models[1:]
    assert ours["miou"] == pytest.approx(qdq["miou"], abs=0.02)
    assert len(ours["sha256"]) == 64


def test_evaluating_an_engine_without_tensorrt_says_what_to_do(place: Path, monkeypatch, capsys) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    (place / "x.engine").write_bytes(b"ptrt")
    code = run(
        [
            "evaluate",
            str(place / "x.engine"),
            "--data",
            str(place / "set.yaml"),
            "--split",
            "val",
            "-o",
            str(place / "e"),
        ]
    )
    assert code == 2
    assert "qdq.onnx" in capsys.readouterr().err
