"""``calib cache`` from end to end: real caches, a build's own cache, TwinLiteNet's broken one."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import onnx
import pytest

from calib.cli.app import make_app, run
from calib.core.formats.registry import FORMATS
from calib.core.trtcache import parse, render
from calib.edges.models import load_model
from calib.edges.progress import SilentProgress
from calib.jobs.build import BuildRequest, build
from calib.stages.qdqread import read_qdq
from tests.graphs import minmax, model, node, weight
from tests.graphs import run as run_onnx

LAYERS = (
    node("Conv", "image,stem.weight", "a", pads=[1, 1, 1, 1]),
    node("Relu", "a", "r"),
    node("Conv", "r,block.depthwise.weight", "b", pads=[1, 1, 1, 1], group=8),
    node("Add", "b,r", "s"),
    node("Transpose", "s", "t", perm=[0, 1, 3, 2]),
    node("Transpose", "t", "u", perm=[0, 1, 3, 2]),
    node("Conv", "u,block.mix.weight", "c"),
    node("Relu", "c", "d"),
    node("Conv", "d,head.weight", "logits"),
)
SHAPES = {
    "stem.weight": (8, 3, 3, 3), "block.depthwise.weight": (8, 1, 3, 3), "block.mix.weight": (8, 8, 1, 1),
    "head.weight": (3, 8, 1, 1),
}  # fmt: skip
FINGERPRINTS = {
    "colon_names_trt7201": "caffe", "crlf_trt7200": "centred", "diffusion_inf_zero_trt8601": "blank",
    "legacy_two_doubles": "imagenet", "minmax_trt100001_unnamed": "imagenet", "nanodet_entropy1_trt7201": "unit",
    "oldest_header_1_no_newline": "unit", "ort_text_table": "imagenet", "qat2ptq_trt8600": "unit",
    "spaces_inf_minmax_trt6001": "other", "trt101401": "unit", "trt101401_zero": "unit",
    "twinlitenet_inf_zero": "garbage", "yolov4_tiny_trt7103": "unit",
}  # fmt: skip
BROKEN = {"diffusion_inf_zero_trt8601", "spaces_inf_minmax_trt6001", "trt101401_zero", "twinlitenet_inf_zero"}


def calib(*arguments: object) -> int:
    return run(["cache", *map(str, arguments)], make_app((), (("cache", "calib.cli.cache"),)))


@pytest.fixture
def answer(capsys):
    """Run a command under ``--json``; answer its exit code and document."""

    def asked(*arguments: object) -> tuple[int, dict]:
        code = calib(*arguments, "--json")
        return code, json.loads(capsys.readouterr().out or "{}")

    return asked


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(5)
    weights = {name: rng.standard_normal(shape).astype(np.float32) / 3 for name, shape in SHAPES.items()}
    path = tmp_path_factory.mktemp("network") / "net.onnx"
    onnx.save(model(LAYERS, {"image": ("N", 3, 24, 32)}, ["logits"], weights, opset=13), path)
    return path


@pytest.fixture(scope="module")
def built(network: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build of the small network on eight pictures."""
    folder = tmp_path_factory.mktemp("build")
    rng = np.random.default_rng(1)
    for index in range(8):
        pixels = (rng.random((24, 32, 3)) * 255).astype(np.uint8)
        (folder / "images").mkdir(exist_ok=True)
        cv2.imwrite(str(folder / "images" / f"{index}.png"), pixels)
    manifest = folder / "set.yaml"
    manifest.write_text(
        "name: small\nsplits:\n  train: {images: 'images/*.png'}\n"
        "preprocess: {colour: rgb, size: [24, 32], scale: 1/255,\n"
        "             mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}\n"
    )
    request = BuildRequest(
        model=network, data=str(manifest), output=folder / "out", num_images=8, calibrators=("minmax", "entropy")
    )
    build(request, SilentProgress())
    return folder


@pytest.fixture
def cache(network: Path, tmp_path: Path) -> Path:
    """A cache of the small network, minmax on one batch."""
    loaded = load_model(network)
    amax = minmax(loaded, {"image": np.random.default_rng(0).normal(size=(1, 3, 24, 32)).astype(np.float32)})
    path = tmp_path / "net.cache"
    path.write_bytes(render([(name, value / 127) for name, value in amax.items()], "8.6.1").render())
    return path


@pytest.mark.parametrize("name", sorted(FINGERPRINTS))
def test_every_public_cache_is_shown_and_linted_with_its_preprocessing(shared, answer, name):
    path = shared / "cases/caches" / f"{name}.cache"
    code, shown = answer("show", path)
    assert (code, shown["input"]["code"]) == (0, FINGERPRINTS[name])
    code, linted = answer("lint", path)
    assert code == (1 if name in BROKEN else 0)
    assert linted["inputs"][0]["code"] == FINGERPRINTS[name]
    assert linted["passed"] == (code == 0)
    assert calib("show", path) == 0
    assert calib("lint", path) == code


@pytest.mark.parametrize("calibrator", ["minmax", "entropy"])
def test_the_cache_of_a_build_gives_the_builds_own_qdq_network_byte_for_byte(
    built, network, tmp_path, answer, calibrator
):
    out = tmp_path / "again.onnx"
    code, document = answer(
        "convert", built / "out" / f"{calibrator}.cache", "-o", out, "--model", network, "--target", "trt10"
    )
    assert (code, document["missing"], document["strangers"]) == (0, [], {})
    assert out.read_bytes() == (built / "out" / f"{calibrator}.qdq.onnx").read_bytes()


def test_a5_19_qdq_to_cache_and_back_keeps_every_scale(built, network, tmp_path, answer):
    first, second, third = tmp_path / "a.cache", tmp_path / "b.onnx", tmp_path / "c.cache"
    source = built / "out" / "minmax.qdq.onnx"
    assert answer("convert", source, "-o", first, "--model", network)[0] == 0
    assert answer("convert", first, "-o", second, "--model", network)[0] == 0
    assert answer("convert", second, "-o", third, "--model", network)[0] == 0
    assert first.read_bytes() == third.read_bytes()
    scales = {item.name: item.scale for item in read_qdq(load_model(source), "q")}
    assert scales.items() <= parse(first.read_bytes()).scales.items()


def test_every_format_leads_to_the_same_qdq_network(built, network, tmp_path, answer):
    source, direct = built / "out" / "minmax.cache", tmp_path / "direct.onnx"
    assert answer("convert", source, "-o", direct, "--model", network)[0] == 0
    for key in sorted(FORMATS):
        if key == "amax-torch":
            continue
        between, out = tmp_path / f"between.{key}", tmp_path / f"{key}.onnx"
        assert answer("convert", source, "-o", between, "--to", key, "--model", network)[0] == 0
        assert answer("convert", between, "-o", out, "--model", network)[0] == 0
        if FORMATS[key].naming == "tensor":
            assert out.read_bytes() == direct.read_bytes(), key
        else:
            scales = [read_qdq(load_model(path), "q").ranges for path in (direct, out)]
            assert scales[0].keys() - {"r"} <= scales[1].keys()
            assert all(
                abs(scales[1][name].scale / scales[0][name].scale - 1) < 2**-22
                for name in scales[1]
                if name in scales[0]
            )


def test_a_lint_of_a_builds_cache_against_its_network_and_manifest_passes(built, network, answer):
    manifest = built / "set.yaml"
    code, document = answer("lint", built / "out/calibration.cache", "--model", network, "--data", manifest)
    assert (code, [item["code"] for item in document["findings"]]) == (0, ["input"])
    wrong = "colour=rgb,size=24x32,scale=1,mean=0,std=1"
    code, document = answer("lint", built / "out/calibration.cache", "--preprocess", wrong)
    assert code == 1
    assert document["findings"][0]["code"] == "input_range"


def test_a2_1_twinlitenets_broken_cache_is_found_out_and_not_converted(shared, tmp_path, answer, capsys):
    cache = shared / "cases/caches/twinlitenet_inf_zero.cache"
    network = shared / "cases/models/twinlitenet_opset14.onnx"
    code, document = answer("lint", cache, "--model", network)
    found = {item["code"]: item for item in document["findings"]}
    assert code == 1
    assert "float64 buffer read as float32" in found["float64_as_float32"]["text"]
    assert {"560", "284", "288"} <= set(found["dead"]["tensors"])
    assert len(found["dead"]["tensors"]) == 42
    assert len(found["nonfinite"]["tensors"]) == 120
    assert found["other_network"]["severity"] == "error"
    for flags in ([], ["--partial"]):
        assert calib("convert", cache, "-o", tmp_path / "out.onnx", "--model", network, *flags) == 2
        message = capsys.readouterr().err
        assert "float64 buffer read as float32" in message
        assert "calibrate again with `calib build`" in message
    assert list(tmp_path.iterdir()) == []


def edited(cache: Path, **scales: float | None) -> Path:
    """Write a cache with some scales changed, or entries left out."""
    found = parse(cache.read_bytes())
    lines = [found.header.text]
    for entry in found.entries:
        scale = scales.pop(entry.name, entry.scale)
        if scale is not None:
            lines.append(f"{entry.name}: {int(np.float32(scale).view(np.uint32)):x}")
    lines += [f"{name}: {int(np.float32(scale).view(np.uint32)):x}" for name, scale in scales.items()]
    path = cache.with_name("edited.cache")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_what_is_missing_is_said_and_what_follows_from_others_is_filled_in(cache, network, tmp_path, answer):
    out = tmp_path / "out.onnx"
    code, document = answer("convert", edited(cache, b=None, t=None, u=None), "-o", out, "--model", network)
    assert code == 0
    assert document["missing"] == ["b", "t", "u"]
    assert document["derived"] == ["t", "u"]
    assert document["layers"]["without_range"] == []
    code, document = answer("convert", edited(cache, r=None), "-o", out, "--model", network)
    assert code == 0
    assert document["missing"] == ["r"]
    assert len(document["layers"]["without_range"]) == 1


@pytest.mark.parametrize("scale", [float("inf"), float("nan"), -1.0, 1e30])
def test_a2_2_wrong_ranges_are_refused_unless_they_may_be_left_out(cache, network, tmp_path, answer, capsys, scale):
    wrong, out = edited(cache, b=scale), tmp_path / "out.onnx"
    assert calib("convert", wrong, "-o", out, "--model", network) == 2
    message = capsys.readouterr().err
    assert "(b)" in message
    assert "--partial" in message
    assert not out.exists()
    code, document = answer("convert", wrong, "-o", out, "--model", network, "--partial")
    assert (code, document["dropped"]) == (0, ["b"])


def test_a2_4_dead_tensors_get_a_floor_where_the_reader_needs_one(cache, network, tmp_path, answer):
    dead = edited(cache, b=0.0)
    for name, amax in (("out.cache", 1.0), ("out.flatbuffers", 1.0), ("out.txt", 0.0)):
        code, document = answer("convert", dead, "-o", tmp_path / name)
        assert (code, document["dead"]) == (0, ["b"])
        _, shown = answer("show", tmp_path / name)
        assert next(item["amax"] for item in shown["entries"] if item["name"] == "b") == pytest.approx(amax)


def test_a_converted_cache_keeps_its_header_unless_another_is_asked_for(cache, tmp_path, answer):
    out = tmp_path / "out.cache"
    for flags, header in (
        ((), b"TRT-8601-EntropyCalibration2"),
        (("--trt-version", "10.3.0", "--algorithm", "MinMaxCalibration"), b"TRT-100300-MinMaxCalibration"),
    ):
        assert answer("convert", cache, "-o", out, *flags)[0] == 0
        assert out.read_bytes().partition(b"\n")[0] == header


@pytest.mark.parametrize("name", ["data", "input_1:0", "Placeholder", "actual_input_1", "image_input", "model/input.1"])
def test_the_input_of_a_cache_in_no_order_is_found_by_its_name(tmp_path, answer, name):
    path = tmp_path / "old.cache"
    path.write_text(f"1\n(Unnamed ITensor* 4): 3d8e7308\nconv1: 3f800000\n{name}: 3caa4a58\n")
    assert answer("show", path)[1]["input"] == answer("lint", path)[1]["inputs"][0] | {"amax": pytest.approx(2.64)}


def test_a_blank_input_is_never_converted(cache, network, tmp_path, capsys):
    assert calib("convert", edited(cache, image=0.0), "-o", tmp_path / "o.onnx", "--model", network, "--partial") == 2
    assert "blank images only" in capsys.readouterr().err


def test_ranges_of_tensors_the_network_lacks_are_refused_by_name(cache, network, tmp_path, answer, capsys):
    foreign, out = edited(cache, stranger=0.5), tmp_path / "o.onnx"
    assert calib("convert", foreign, "-o", out, "--model", network) == 2
    assert "(stranger)" in capsys.readouterr().err
    code, document = answer("convert", foreign, "-o", out, "--model", network, "--partial")
    assert (code, document["strangers"]) == (0, {"foreign": ["stranger"]})
    made = edited(cache, **{"(Unnamed Layer* 3) [Constant]_output": 0.5})
    code, document = answer("convert", made, "-o", out, "--model", network)
    assert (code, list(document["strangers"])) == (0, ["unnamed"])


def test_the_cache_of_another_network_is_refused(shared, network, tmp_path, capsys):
    source = shared / "cases/caches/qat2ptq_trt8600.cache"
    assert calib("convert", source, "-o", tmp_path / "o.onnx", "--model", network, "--partial") == 2
    assert "another network or export" in capsys.readouterr().err


def test_lint_against_a_network_says_why_an_entry_has_no_tensor(cache, network, answer):
    names = {"(Unnamed Layer* 3) [Shuffle]_output": 0.5, "stem.weight": 0.1, "s_output": 0.2, "stranger": 1.0}
    code, document = answer("lint", edited(cache, c=None, **names), "--model", network)
    found = {item["code"]: item["tensors"] for item in document["findings"]}
    assert code == 0
    assert found["missing"] == ["c"]
    assert found["no_tensor_unnamed"] == ["(Unnamed Layer* 3) [Shuffle]_output"]
    assert found["no_tensor_constant"] == ["stem.weight"]
    assert found["no_tensor_output"] == ["s_output"]
    assert found["no_tensor_foreign"] == ["stranger"]


@pytest.mark.parametrize(
    ("text", "code", "exit_code"),
    [
        ("TRT-10300-EntropyCalibration2\nimage: 3c010a14\n", "unknown_version", 1),
        ("TRT-8601-MinMaxCalibration\nimage: 3c010a14\n", "header_suffix", 0),
        ("1\nimage: 3c010a14\n", "old_header", 0),
        ("TRT-8601-EntropyCalibration2\nimage: 3c010a14\na: 3f800000\na: 3f000000\n", "conflicts", 1),
        ("TRT-8601-EntropyCalibration2\nimage: 3c010a14\na: 3f800000\na: 3f800000\n", "duplicates", 0),
        ("TRT-8601-EntropyCalibration2\nimage: 3c010a14\na:3f800000\n", "spelling", 0),
        ("TRT-8601-EntropyCalibration2\r\nimage: 3c010a14\r\n", "crlf", 0),
        ("TRT-8601-EntropyCalibration2\nimage: 3c010a14\na: bf800000\n", "negative", 1),
        ("TRT-8601-EntropyCalibration2\nimage: 3c010a14\na: 7fc00000\n", "nonfinite", 1),
        ("TRT-8601-EntropyCalibration2\nimage: 3c010a14\na: 0\n", "dead", 1),
    ],
)
def test_each_trouble_has_its_finding(tmp_path, answer, text, code, exit_code):
    path = tmp_path / "x.cache"
    path.write_bytes(text.encode())
    ended, document = answer("lint", path)
    assert ended == exit_code
    assert code in {item["code"] for item in document["findings"]}


def test_clipped_weights_of_a_qat_state_dict_keep_their_scales_in_qdq(network, cache, tmp_path, answer, capsys):
    loaded = load_model(network)
    values = {item.name: onnx.numpy_helper.to_array(item) for item in loaded.graph.initializer}
    state = {f"{name.removesuffix('.weight')}.input_quantizer._amax": np.float32(2) for name in values}
    clipped = np.abs(values["stem.weight"]).max((1, 2, 3), keepdims=True) * 0.75
    state |= {"stem.weight_quantizer._amax": clipped, **values}
    np.savez(tmp_path / "qat.npz", **state)
    assert calib("convert", tmp_path / "qat.npz", "-o", tmp_path / "o.cache", "--model", network) == 2
    assert "(stem.weight)" in capsys.readouterr().err
    code, document = answer("convert", tmp_path / "qat.npz", "-o", tmp_path / "o.onnx", "--model", network)
    assert code == 0
    assert any("kept the ranges" in note for note in document["notes"])
    found = {item.name: item.scales for item in read_qdq(load_model(tmp_path / "o.onnx"), "q").weights}
    np.testing.assert_array_equal(
        found["stem.weight"], np.asarray(clipped.ravel().astype(np.float64) / 127, np.float32)
    )


def test_quantizers_without_a_tensor_are_refused_by_name(network, tmp_path, capsys):
    state = {"stem.input_quantizer._amax": np.float32(2), "block.attn.q_bmm_quantizer._amax": np.float32(1)}
    np.savez(tmp_path / "s.npz", **state)
    assert calib("convert", tmp_path / "s.npz", "-o", tmp_path / "o.cache", "--model", network) == 2
    assert "block.attn.q_bmm_quantizer" in capsys.readouterr().err
    assert calib("convert", tmp_path / "s.npz", "-o", tmp_path / "o.cache") == 2
    assert "--model" in capsys.readouterr().err


def test_retarget_changes_the_header_alone_and_says_what_it_does_not_prove(shared, tmp_path, answer, capsys):
    source, out = shared / "cases/caches/crlf_trt7200.cache", tmp_path / "new.cache"
    code, document = answer("retarget", source, "-o", out, "--trt-version", "10.14.1")
    before, after = source.read_bytes(), out.read_bytes()
    assert (code, document["header"]) == (0, "TRT-101401-EntropyCalibration2")
    assert before.partition(b"\r\n")[2] == after.partition(b"\r\n")[2]
    assert any("without checking" in line for line in document["warnings"])
    assert calib("retarget", source, "-o", out, "--trt-version", "11.0.0") == 2
    assert "Q/DQ ONNX" in capsys.readouterr().err
    _, document = answer(
        "retarget", shared / "cases/caches/legacy_two_doubles.cache", "-o", out, "--trt-version", "8.6.1"
    )
    assert document["header"] == "TRT-8601-EntropyCalibration2"
    _, document = answer(
        "retarget", shared / "cases/caches/minmax_trt100001_unnamed.cache", "-o", out, "--trt-version", "10.3.0"
    )
    assert document["header"] == "TRT-100300-MinMaxCalibration"
    assert any("trtexec" in line for line in document["warnings"])
    assert any("177 keys" in line for line in document["warnings"])


def test_merge_takes_the_larger_range_in_the_networks_order(cache, network, tmp_path, answer, capsys):
    second = edited(cache, image=None, a=1e3, extra=0.5)
    other = second.rename(tmp_path / "second.cache")
    code, document = answer("merge", other, cache, "-o", tmp_path / "m.cache", "--model", network)
    merged, first = parse((tmp_path / "m.cache").read_bytes()), parse(cache.read_bytes())
    assert code == 0
    assert list(merged.scales) == [*first.scales, "extra"]
    assert merged.scales == first.scales | {"a": 1000.0, "extra": 0.5}
    assert len(document["warnings"]) == 2
    wrong = edited(cache, a=float("inf"))
    assert calib("merge", cache, wrong, "-o", tmp_path / "m2.cache") == 2
    assert "(a)" in capsys.readouterr().err
    assert calib("merge", cache, "-o", tmp_path / "m2.cache") == 2


def test_rename_by_a_list_keeps_every_other_byte(cache, tmp_path, answer, capsys):
    (tmp_path / "names.txt").write_text("a\tconv_a\nnowhere -> x\n")
    code, document = answer("rename", cache, "-o", tmp_path / "r.cache", "--map", tmp_path / "names.txt")
    assert (code, document["renamed"], len(document["warnings"])) == (0, 1, 1)
    assert (tmp_path / "r.cache").read_bytes() == cache.read_bytes().replace(b"\na: ", b"\nconv_a: ")
    (tmp_path / "names.json").write_text('{"a": "logits"}')
    assert calib("rename", cache, "-o", tmp_path / "r.cache", "--map", tmp_path / "names.json") == 2
    assert "for both" in capsys.readouterr().err
    (tmp_path / "bad.txt").write_text("a\tb\nnothing\n")
    assert calib("rename", cache, "-o", tmp_path / "r.cache", "--map", tmp_path / "bad.txt") == 2
    assert "bad.txt:2:1" in capsys.readouterr().err
    assert calib("rename", cache, "-o", tmp_path / "r.cache") == 2


def test_rename_between_two_exports_carries_a_cache_over(cache, network, tmp_path, answer, capsys):
    second = load_model(network)
    for item in second.graph.node:
        item.output[:] = [f"n/{name}" if name != "logits" else name for name in item.output]
        item.input[:] = [
            f"n/{name}" if name in {"a", "r", "b", "s", "t", "u", "c", "d"} else name for name in item.input
        ]
    onnx.save(second, tmp_path / "second.onnx")
    source = edited(cache, **{"(Unnamed Layer* 1) [Shuffle]_output": 0.5})
    flags = ("--from-model", network, "--to-model", tmp_path / "second.onnx")
    code, document = answer("rename", source, "-o", tmp_path / "r.cache", *flags)
    assert code == 0
    first = parse(cache.read_bytes()).scales
    wanted = {name if name in {"image", "logits"} else f"n/{name}": scale for name, scale in first.items()}
    assert parse((tmp_path / "r.cache").read_bytes()).scales == wanted
    assert document["left_out"] == ["(Unnamed Layer* 1) [Shuffle]_output"]
    assert answer("lint", tmp_path / "r.cache", "--model", tmp_path / "second.onnx")[0] == 0
    assert calib("rename", edited(cache, stranger=1.0), "-o", tmp_path / "r2.cache", *flags) == 2
    assert "(stranger)" in capsys.readouterr().err


def test_diff_draws_what_it_says(shared, tmp_path, answer, capsys):
    first, second = (shared / "cases/caches" / f"{name}.cache" for name in ("trt101401", "trt101401_zero"))
    for name in ("d.html", "d.svg"):
        code, document = answer("diff", first, second, "-o", tmp_path / name)
        assert code == 0
        text = (tmp_path / name).read_text()
        assert "bits: log2(second / first)" in text
        assert "</svg>" in text
    sizes = [abs(item["bits"]) for item in document["tensors"] if item["bits"] is not None]
    assert sizes == sorted(sizes, reverse=True)
    assert not document["identical"]
    assert answer("diff", first, first)[1]["identical"]
    assert calib("diff", first, second) == 0
    assert "245 tensors in both" in capsys.readouterr().out
    assert calib("diff", first, second, "-o", tmp_path / "d.png") == 2


def test_what_the_target_network_lacks_a_range_for_entirely_is_refused(network, tmp_path, capsys):
    (tmp_path / "few.txt").write_text("logits: 3.0\n")
    assert calib("convert", tmp_path / "few.txt", "-o", tmp_path / "o.onnx", "--model", network) == 2
    assert "every layer would stay in float" in capsys.readouterr().err
    assert not (tmp_path / "o.onnx").exists()


def test_a_half_precision_network_gets_the_builds_scales_too(tmp_path):
    nodes = [node("Conv", "x,w", "a"), node("Relu", "a", "r"), node("Conv", "r,v", "m"), node("Conv", "m,v", "y")]
    weights = {"w": weight(4, 3, 3, 3, dtype=np.float16), "v": weight(4, 4, 1, 1, dtype=np.float16)}
    made = model(nodes, {"x": (1, 3, 8, 8)}, ["y"], weights, opset=19, elem_type=onnx.TensorProto.FLOAT16)
    assert run_onnx(made, {"x": np.ones((1, 3, 8, 8), np.float16)})[0].dtype == np.float16
    onnx.save(made, tmp_path / "h.onnx")
    (tmp_path / "h.txt").write_text("x: 1.0\na: 2.0\nr: 2.5\nm: 3.0\ny: 1.0\n")
    assert calib("convert", tmp_path / "h.txt", "-o", tmp_path / "h.qdq.onnx", "--model", tmp_path / "h.onnx") == 0
    found = read_qdq(load_model(tmp_path / "h.qdq.onnx"), "q")
    assert found.ranges["r"].scale == float(np.float16(2.5 / 127))
