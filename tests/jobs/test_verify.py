"""The release gate passes what a build wrote, and nothing else."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnx
import pytest

from calib.core import trtcache
from calib.core.attestation import make_statement
from calib.core.statfile import pack, unpack
from calib.edges.progress import SilentProgress
from calib.errors import ManifestError, ModelError, UsageError
from calib.jobs.verify import Verification, VerifyRequest, verify
from tests.smallbuild import make_build, write_network


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build of one network, and one of another network with the same tensor names beside it."""
    folder = tmp_path_factory.mktemp("built")
    for name, seed in (("one", 5), ("other", 6)):
        (folder / name).mkdir()
        make_build(folder / name, seed=seed)
    return folder


@pytest.fixture
def place(built: Path, tmp_path: Path) -> Path:
    """A copy to tamper with: network, data, the build ``out`` and the other network's folder ``other``."""
    shutil.copytree(built / "one", tmp_path / "one")
    shutil.copytree(built / "other", tmp_path / "one" / "other")
    return tmp_path / "one"


def check(place: Path, **changes: Any) -> Verification:
    request = VerifyRequest(place / "out", place / "net.onnx", data=str(place / "set.yaml"), replay=6, workers=1)
    return verify(replace(request, **changes), SilentProgress())


def failures(result: Verification) -> dict[str, str]:
    return {item.name: item.detail for item in result.checks if item.status == "fail"}


# Ways to touch a folder


def load(place: Path, name: str = "provenance.json") -> Any:
    return json.loads((place / "out" / name).read_text())


def store(place: Path, document: Any, name: str = "provenance.json") -> None:
    (place / "out" / name).write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def edit(place: Path, *keys: str, value: Any) -> None:
    """Set a value of the provenance."""
    document = load(place)
    target = document
    for key in keys[:-1]:
        target = target[key]
    target[keys[-1]] = value
    store(place, document)


def rehash(place: Path, *names: str) -> None:
    """Record the hashes that files have now, in the statement too, as a careful forger would."""
    document = load(place)
    for name in names or document["outputs"]:
        document["outputs"][name] = hashlib.sha256((place / "out" / name).read_bytes()).hexdigest()
    store(place, document)
    state_anew(place)


def state_anew(place: Path) -> None:
    digest = hashlib.sha256((place / "out/provenance.json").read_bytes()).hexdigest()
    store(place, make_statement(load(place), {"provenance.json": digest}), "provenance.intoto.json")


def rewrite_cache(place: Path, change: Callable[[str], str], *names: str) -> None:
    for name in names or ("calibration.cache",):
        path = place / "out" / name
        path.write_text(change(path.read_text()))


def halve_scale(text: str, tensor: str = "r") -> str:
    cache = trtcache.parse(text.encode())
    entries = [
        trtcache.CacheEntry.of(item.name, item.scale / (2 if item.name == tensor else 1)) for item in cache.entries
    ]
    return trtcache.CalibrationCache(cache.header, tuple(entries)).render().decode()


def rewrite_network(path: Path, change: Callable[[onnx.ModelProto], None]) -> None:
    model = onnx.load(path)
    change(model)
    onnx.save(model, path)


def nudge_weight(model: onnx.ModelProto, name: str = "w2") -> None:
    (tensor,) = [item for item in model.graph.initializer if item.name == name]
    values = onnx.numpy_helper.to_array(tensor).copy()
    values.flat[0] = np.nextafter(values.flat[0], np.float32(10))
    tensor.CopyFrom(onnx.numpy_helper.from_array(values, name))


def halve_qdq_scale(model: onnx.ModelProto) -> None:
    node = next(item for item in model.graph.node if item.op_type == "QuantizeLinear")
    (tensor,) = [item for item in model.graph.initializer if item.name == node.input[1]]
    values = onnx.numpy_helper.to_array(tensor) / np.float32(2)
    tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))


def drop_node(model: onnx.ModelProto) -> None:
    """Bypass the first quantizer."""
    dequantize = next(item for item in model.graph.node if item.op_type == "DequantizeLinear")
    quantize = next(item for item in model.graph.node if dequantize.input[0] in item.output)
    for node in model.graph.node:
        for index, name in enumerate(node.input):
            if name == dequantize.output[0]:
                node.input[index] = quantize.input[0]


def rewrite_statistics(place: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = place / "out" / "statistics.npz"
    statistics, about = unpack(path.read_bytes(), "statistics")
    about.pop("schema")
    change(statistics)
    path.write_bytes(pack(statistics, about))


def from_other(place: Path, *names: str) -> None:
    for name in names:
        shutil.copy(place / "other" / "out" / name, place / "out" / name)


CACHES = ("calibration.cache", "percentile.cache", "minmax.cache", "per-channel.cache")


def truncate(place: Path, name: str) -> None:
    path = place / "out" / name
    path.write_bytes(path.read_bytes()[:-7])


def edit_range(place: Path) -> None:
    document = load(place, "ranges.json")
    document["tensors"][2]["ranges"]["percentile"]["amax"] *= 0.5
    store(place, document, "ranges.json")


def change_extremes(statistics: dict[str, Any]) -> None:
    statistics["r"] = replace(statistics["r"], maximum=statistics["r"].maximum * 2)


def move_counts(statistics: dict[str, Any]) -> None:
    counts = statistics["r"].positive.copy()
    moved, top = counts[0] // 2, int(np.flatnonzero(counts)[-1])
    counts[0] -= moved
    counts[top] += moved
    statistics["r"] = replace(statistics["r"], positive=counts)


def forge_everything(place: Path) -> None:
    """Put the other network's whole build in place, and this network's hash into its provenance."""
    recorded = load(place)["request"]["model"]
    shutil.rmtree(place / "out")
    shutil.copytree(place / "other" / "out", place / "out")
    edit(place, "request", "model", value=recorded)
    rehash(place)


def derive_everything(place: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Edit the statistics and make every other file follow from them, with all hashes right."""
    from calib.core.graph import analyse
    from calib.core.plugins import parse_spec
    from calib.edges.plugins import all_calibrators
    from calib.edges.written import json_bytes
    from calib.jobs.build.artifacts import Calibrated, make_variant
    from calib.jobs.build.sources import Source
    from calib.stages.collect import Collected
    from calib.stages.ranges import bind_calibrators, calibrate
    from calib.stages.rangesfile import ranges_document

    rewrite_statistics(place, change)
    out = place / "out"
    statistics, _ = unpack((out / "statistics.npz").read_bytes(), "statistics")
    model = onnx.load(place / "net.onnx")
    calibrators = bind_calibrators([parse_spec("percentile"), parse_spec("minmax")], all_calibrators())
    source = Source("", model, analyse(model), calibrators)
    ranges = calibrate(statistics, calibrators)
    item = Calibrated(source, Collected(frozenset(), statistics), ranges)
    (out / "ranges.json").write_bytes(json_bytes(ranges_document(source.network, statistics, ranges, calibrators)))
    for calibrator in calibrators:
        variant, cache = make_variant(item, calibrator, "10.14.1", "EntropyCalibration2", "trt10")
        (out / f"{calibrator.label}.cache").write_bytes(cache)
        onnx.save(variant.quantized.model, out / f"{calibrator.label}.qdq.onnx")
    shutil.copy(out / "percentile.cache", out / "calibration.cache")
    rehash(place)


def scale_statistics(factor: float) -> Callable[[dict[str, Any]], None]:
    """Statistics of a tensor whose values are a power of two larger: consistent in themselves."""

    def change(statistics: dict[str, Any]) -> None:
        item = statistics["a"]
        step = int(np.log2(factor))
        statistics["a"] = replace(
            item,
            minimum=item.minimum * factor,
            maximum=item.maximum * factor,
            exponent=item.exponent + step,
            tail=(item.tail * np.float32(factor)).astype(np.float32),
            channel_minimum=(item.channel_minimum * np.float32(factor)).astype(np.float32),
            channel_maximum=(item.channel_maximum * np.float32(factor)).astype(np.float32),
        )

    return change


def other_calibrator_parameters(place: Path) -> None:
    document = load(place)
    document["calibrators"][0]["parameters"]["percentile"] = 99.0
    store(place, document)


def other_spec(place: Path) -> None:
    """Say that another percentile was asked for, everywhere the provenance says it."""
    document = load(place)
    document["calibrators"][0]["spec"] = document["request"]["calibrators"][0] = "percentile:percentile=99.9"
    store(place, document)
    rehash(place)


def swap_image(place: Path, how: str) -> None:
    key = next(iter(load(place)["images"]))
    path = place / "data" / key
    if how == "delete":
        path.unlink()
    elif how == "replace":
        cv2.imwrite(str(path), np.full((24, 32, 3), 250, np.uint8))
    elif how == "encode again":
        cv2.imwrite(str(path), cv2.imread(str(path)), [cv2.IMWRITE_PNG_COMPRESSION, 9])
    else:
        shutil.copy(path, place / "data/images/val/00.png")


def forget_image(place: Path, everywhere: bool) -> None:
    document = load(place)
    key = document["images"].popitem()[0]
    store(place, document)
    if everywhere:
        path = place / "out" / "selection.jsonl"
        lines = [line for line in path.read_text().splitlines(keepends=True) if json.loads(line)["image"] != key]
        path.write_text("".join(lines))
        rehash(place)


def rewrite_manifest(place: Path, old: str, new: str) -> None:
    path = place / "set.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def link_outside(place: Path) -> None:
    path = place / "out" / "minmax.cache"
    shutil.move(path, place / "elsewhere.cache")
    path.symlink_to(place / "elsewhere.cache")


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def write_statement_of_other(place: Path) -> None:
    from_other(place, "provenance.intoto.json")


def both_preprocess(place: Path) -> None:
    document = load(place)
    for holder in (document, document["request"]):
        holder["preprocess"] = {**holder["preprocess"], "mean": [0.0]}
    store(place, document)
    rehash(place)


Tamper = Callable[[Path], Any]
TAMPERS: dict[str, tuple[Tamper, str]] = {
    # the network
    "one weight changed by the least there is": (
        lambda p: rewrite_network(p / "net.onnx", nudge_weight), "model"),
    "another network with the same tensor names": (lambda p: write_network(p / "net.onnx", seed=6), "model"),
    "only a comment in the network changed": (
        lambda p: rewrite_network(p / "net.onnx", lambda m: setattr(m, "doc_string", "x")), "model"),
    "a padding of the network changed": (
        lambda p: rewrite_network(p / "net.onnx", lambda m: setattr(m.graph.node[0], "name", "other")), "model"),
    # a cache
    "one scale edited in the release": (lambda p: rewrite_cache(p, halve_scale), "calibration.cache"),
    "one scale edited, hash edited along": (
        lambda p: [rewrite_cache(p, halve_scale), rehash(p)], "calibration.cache"),
    "one scale edited in release and variant, hashes along": (
        lambda p: [rewrite_cache(p, halve_scale, *CACHES[:2]), rehash(p)], "percentile.cache"),
    "one scale edited in caches and ranges, hashes along": (
        lambda p: [rewrite_cache(p, halve_scale, *CACHES[:2]), edit_range(p), rehash(p)], "ranges.json"),
    "a range edited": (edit_range, "ranges.json"),
    "a range edited, hash along": (lambda p: [edit_range(p), rehash(p)], "ranges.json"),
    "release cache of another network": (lambda p: from_other(p, "calibration.cache"), "calibration.cache"),
    "release cache of another network, hash along": (
        lambda p: [from_other(p, "calibration.cache"), rehash(p)], "calibration.cache"),
    "every cache of another network, hashes along": (lambda p: [from_other(p, *CACHES), rehash(p)], "minmax.cache"),
    "release is another variant's cache, hash along": (
        lambda p: [shutil.copy(p / "out/minmax.cache", p / "out/calibration.cache"), rehash(p)], "calibration.cache"),
    "header of another TensorRT, hash along": (
        lambda p: [rewrite_cache(p, lambda t: t.replace("TRT-101401", "TRT-101600"), *CACHES), rehash(p)],
        "percentile.cache"),
    "header of another calibrator class, hash along": (
        lambda p: [rewrite_cache(p, lambda t: t.replace("Calibration2", "Calibration"), *CACHES), rehash(p)],
        "percentile.cache"),
    "an entry dropped, hash along": (
        lambda p: [rewrite_cache(p, lambda t: "\n".join(t.split("\n")[:-2]) + "\n", *CACHES), rehash(p)],
        "percentile.cache"),
    "an entry added, hash along": (
        lambda p: [rewrite_cache(p, lambda t: t + "ghost: 3c010a14\n", *CACHES), rehash(p)], "percentile.cache"),
    "entries in another order, hash along": (
        lambda p: [rewrite_cache(p, lambda t: "\n".join([*t.split("\n")[:1], *sorted(t.split("\n")[1:-1])]) + "\n",
                                 *CACHES), rehash(p)], "percentile.cache"),
    "other line ends, hash along": (
        lambda p: [(p / "out/minmax.cache").write_bytes(
            (p / "out/minmax.cache").read_bytes().replace(b"\n", b"\r\n")), rehash(p)], "minmax.cache"),
    "not a cache at all, hash along": (
        lambda p: [rewrite_cache(p, lambda t: "<html>", *CACHES), rehash(p)], "minmax.cache"),
    # Q/DQ networks
    "a Q/DQ scale edited, hash along": (
        lambda p: [rewrite_network(p / "out/minmax.qdq.onnx", halve_qdq_scale), rehash(p)], "minmax.qdq.onnx"),
    "a Q/DQ weight edited, hash along": (
        lambda p: [rewrite_network(p / "out/minmax.qdq.onnx", nudge_weight), rehash(p)], "minmax.qdq.onnx"),
    "a Q/DQ pair bypassed, hash along": (
        lambda p: [rewrite_network(p / "out/minmax.qdq.onnx", drop_node), rehash(p)], "minmax.qdq.onnx"),
    "the equalized network edited, hash along": (
        lambda p: [rewrite_network(p / "out/equalized.float.onnx", nudge_weight), rehash(p)], "equalized.float.onnx"),
    "a Q/DQ network of another network, hash along": (
        lambda p: [from_other(p, "percentile.qdq.onnx"), rehash(p)], "percentile.qdq.onnx"),
    # statistics
    "extremes edited, hash along": (
        lambda p: [rewrite_statistics(p, change_extremes), rehash(p)], "statistics.npz"),
    "counts edited, hash along": (lambda p: [rewrite_statistics(p, move_counts), rehash(p)], "ranges.json"),
    "a tensor's statistics removed, hash along": (
        lambda p: [rewrite_statistics(p, lambda s: s.pop("r")), rehash(p)], "statistics.npz"),
    "statistics of another network, hash along": (
        lambda p: [from_other(p, "statistics.npz"), rehash(p)], "ranges.json"),
    "everything forged from smaller statistics": (lambda p: derive_everything(p, scale_statistics(0.25)), "values"),
    "everything forged from larger statistics": (lambda p: derive_everything(p, scale_statistics(4.0)), "values"),
    "another network's build under this network's hash": (forge_everything, "percentile.qdq.onnx"),
    # damage
    **{f"{name} cut short": (partial(truncate, name=name), f"file {name}") for name in (
        "calibration.cache", "percentile.cache", "ranges.json", "statistics.npz", "minmax.qdq.onnx",
        "selection.jsonl", "report.html", "equalized.float.onnx")},
    "provenance cut short": (lambda p: truncate(p, "provenance.json"), "provenance"),
    "a file deleted": (lambda p: (p / "out/minmax.cache").unlink(), "file minmax.cache"),
    "a file is a link out of the folder": (link_outside, "file minmax.cache"),
    # data
    "an image replaced": (lambda p: swap_image(p, "replace"), "images"),
    "an image deleted": (lambda p: swap_image(p, "delete"), "images"),
    "an image written again with the same pixels": (lambda p: swap_image(p, "encode again"), "images"),
    "a calibration image among the evaluation images": (lambda p: swap_image(p, "leak"), "overlap"),
    "another mean": (lambda p: rewrite_manifest(p, "mean: [0.5]", "mean: [0.4]"), "preprocessing"),
    "another colour order": (lambda p: rewrite_manifest(p, "colour: rgb", "colour: bgr"), "preprocessing"),
    "another scale": (lambda p: rewrite_manifest(p, "scale: 1/255", "scale: 1"), "preprocessing"),
    "another class list": (lambda p: rewrite_manifest(p, "thing", "object"), "manifest"),
    # provenance
    "expired schema": (lambda p: edit(p, "schema", value=0), "provenance"),
    "schema of the future": (lambda p: edit(p, "schema", value=2), "provenance"),
    "schema as text": (lambda p: edit(p, "schema", value="1"), "provenance"),
    "schema as truth": (lambda p: edit(p, "schema", value=True), "provenance"),
    "provenance is a list": (lambda p: store(p, []), "provenance"),
    "provenance without images": (lambda p: edit(p, "images", value={}), "provenance"),
    "a hash that is none": (lambda p: edit(p, "outputs", "minmax.cache", value="0"), "provenance"),
    "a file not listed": (lambda p: edit(p, "outputs", value={
        k: v for k, v in load(p)["outputs"].items() if k != "calibration.cache"}), "provenance"),
    "a file outside the folder listed": (
        lambda p: edit(p, "outputs", "../net.onnx", value="0" * 64), "provenance"),
    "the seed edited": (lambda p: edit(p, "seed", value=1), "provenance"),
    "the seed edited in both places": (
        lambda p: [edit(p, "seed", value=1), edit(p, "request", "seed", value=1)], "statement"),
    "an image's hash edited": (
        lambda p: edit(p, "images", next(iter(load(p)["images"])), value="0" * 64), "selection.jsonl"),
    "an image left out": (lambda p: forget_image(p, everywhere=False), "selection.jsonl"),
    "an image left out of provenance and selection": (lambda p: forget_image(p, everywhere=True), "statistics.npz"),
    "calibrator parameters edited": (other_calibrator_parameters, "calibrators"),
    "the calibrator's spec edited everywhere": (other_spec, "calibrators"),
    "a sampler edited": (lambda p: edit(p, "request", "samplers", value=["stratified"]), "provenance"),
    "preprocessing edited in one place": (
        lambda p: edit(p, "preprocess", "mean", value=[0.0]), "provenance"),
    "preprocessing edited in both places": (both_preprocess, "preprocessing"),
    "the manifest's hash edited": (lambda p: edit(p, "request", "manifest", value="0" * 64), "manifest"),
    "the network's hash edited": (
        lambda p: edit(p, "request", "model", value={"net.onnx": "0" * 64}), "model"),
    "the TensorRT version edited": (lambda p: edit(p, "request", "trt_version", value="10.16.0"), "percentile.cache"),
    "the TensorRT version nonsense": (lambda p: edit(p, "request", "trt_version", value="ten"), "provenance"),
    "the placement target edited": (lambda p: edit(p, "request", "target", value="ort"), "statement"),
    "the times edited": (lambda p: edit(p, "times", "finished", value="2001-01-01T00:00:00+00:00"), "age"),
    "a time in the future": (lambda p: edit(p, "times", "finished", value="2999-01-01T00:00:00+00:00"), "age"),
    "the statement of another build": (write_statement_of_other, "statement"),
    "the statement deleted": (lambda p: (p / "out/provenance.intoto.json").unlink(), "statement"),
    "a file is a folder": (lambda p: make_folder(p / "out/minmax.cache"), "file minmax.cache"),
    "a statement that is none": (lambda p: store(p, {"subject": 5}, "provenance.intoto.json"), "statement"),
}  # fmt: skip


def test_what_a_build_wrote_passes(place: Path) -> None:
    result = check(place, replay="all", trt_version="10.14.1")
    assert failures(result) == {}
    assert result.passed
    skipped = {item.name for item in result.checks if item.status == "skip"}
    assert skipped == {"signature", "accuracy"}


@pytest.mark.parametrize("name", TAMPERS)
def test_none_passes(place: Path, name: str) -> None:
    tamper, where = TAMPERS[name]
    tamper(place)
    result = check(place)
    assert not result.passed
    assert where in failures(result), failures(result)
    assert all(item.remedy for item in result.checks if item.status == "fail")
    states = [item.status for item in result.checks]
    assert states[: states.count("fail")] == ["fail"] * states.count("fail")


def test_what_needs_no_data_is_caught_without_data(place: Path) -> None:
    rewrite_network(place / "net.onnx", nudge_weight)
    rewrite_cache(place, halve_scale)
    found = failures(check(place, data=None))
    assert {"model", "calibration.cache", "file calibration.cache"} <= set(found)


def test_the_reasons_name_what_differs(place: Path) -> None:
    rewrite_cache(place, halve_scale, *CACHES[:2])
    rewrite_manifest(place, "mean: [0.5]", "mean: [0.4]")
    found = failures(check(place))
    assert "'r' has amax" in found["percentile.cache"]
    assert "mean [0.5] → [0.4]" in found["preprocessing"]


def test_a_renamed_network_is_the_same_network(place: Path) -> None:
    (place / "net.onnx").rename(place / "released.onnx")
    assert check(place, model=place / "released.onnx").passed


@pytest.mark.parametrize(
    ("version", "passed"),
    [("10.14.1", True), ("10.14.1.48", True), ("10.16.0", False), ("8.6.1", False), ("11.1.0", True)],
)
def test_the_cache_must_be_headed_for_the_tensorrt_that_reads_it(place: Path, version: str, passed: bool) -> None:
    assert check(place, trt_version=version).passed is passed


def test_the_installed_tensorrt_counts_where_none_is_named(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calib.jobs.verify.target.installed_tensorrt", lambda: "10.9.0.34")
    assert "installed is 10.9.0" in failures(check(place))["tensorrt"]
    monkeypatch.setattr("calib.jobs.verify.target.installed_tensorrt", lambda: "11.1.0")
    assert check(place).passed


def test_a_build_may_be_too_old(place: Path) -> None:
    document = load(place)
    document["times"] = {"started": "2026-01-01T00:00:00+00:00", "finished": "2026-01-01T00:01:00+00:00"}
    store(place, document)
    state_anew(place)
    assert check(place).passed
    assert "days ago" in failures(check(place, max_age=7.0))["age"]


def test_a_foreign_cache_in_the_folder_is_pointed_out(place: Path) -> None:
    shutil.copy(place / "out/minmax.cache", place / "out/best.cache")
    result = check(place)
    assert result.passed
    assert [item.detail for item in result.checks if item.status == "note"] == [
        "not of this build, and not vouched for: best.cache"
    ]


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"folder": "nowhere"}, UsageError),
        ({"folder": "data"}, UsageError),
        ({"model": "nothing.onnx"}, ModelError),
        ({"model": "set.yaml"}, ModelError),
        ({"data": "nothing.yaml"}, ManifestError),
        ({"split": "test"}, ManifestError),
        ({"trt_version": "new"}, UsageError),
        ({"max_drop": "miou"}, UsageError),
    ],
)
def test_unusable_input_is_told_apart_from_a_refusal(
    place: Path, changes: dict[str, Any], kind: type[Exception]
) -> None:
    paths = {key: place / value for key, value in changes.items() if key in ("folder", "model")}
    with pytest.raises(kind):
        check(place, **{**changes, **paths})


def mutated(data: bytes, rng: np.random.Generator) -> bytes:
    """Overwrite, cut or repeat a few bytes."""
    out = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(0, len(out)))
        kind = int(rng.integers(0, 3))
        if kind == 0:
            out[at] ^= int(rng.integers(1, 256))
        elif kind == 1:
            del out[at : at + int(rng.integers(1, 40))]
        else:
            out[at:at] = out[at : at + int(rng.integers(1, 40))]
    return bytes(out)


def damaged(place: Path, name: str, count: int) -> Iterator[Verification]:
    original = (place / "out" / name).read_bytes()
    provenance = (place / "out" / "provenance.json").read_bytes()
    rng = np.random.default_rng(3)
    for _ in range(count):
        (place / "out" / "provenance.json").write_bytes(provenance)
        changed = mutated(original, rng)
        (place / "out" / name).write_bytes(changed)
        if name != "provenance.json":
            rehash(place, name)
        yield check(place, data=None) if changed != original else check(place, max_age=0.0)


@pytest.mark.parametrize(
    "name", ["provenance.json", "statistics.npz", "ranges.json", "minmax.qdq.onnx", "minmax.cache"]
)
def test_damage_is_refused_and_never_crashes(place: Path, name: str) -> None:
    verdicts = [result.passed for result in damaged(place, name, 25)]
    assert len(verdicts) == 25
    assert not any(verdicts)
