"""What tests of the main job share: small networks and data sets, running a build, and checking what it promises."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from calib.core import trtcache
from calib.core.graph import analyse
from calib.edges.feeds import FeedReader, bind_dataset
from calib.edges.manifest import load_dataset
from calib.edges.progress import SilentProgress
from calib.jobs.build import BuildRequest, BuildResult, build

IMAGES = 14
"""In the training split of the small data set."""
SIZE = 16
PLAIN = "colour=rgb,size=16x16,scale=1/255,mean=0.5,std=0.25"
CHECKED = ("minmax", "entropy")
CLOSE = 0.1
"""Largest error of a minmax Q/DQ output, root mean square, as a share of the float output's."""
AGREE = 0.9
"""Least share of equal elements of an integer output, such as class ids."""


def run(request: BuildRequest, **changes: Any) -> BuildResult:
    return build(replace(request, **changes), SilentProgress())


def contents(folder: Path, *, without: Sequence[str] = ("provenance.json", "provenance.intoto.json")) -> dict[str, str]:
    """Sha256 of the files of a build folder by name."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
        if path.name not in without and path.is_file()
    }


class Killed(BaseException):
    """What a kill looks like from inside."""


def kill_after(monkeypatch: pytest.MonkeyPatch, images: int, kind: type[BaseException] = Killed) -> list[str]:
    """Let the build die at its next image once some have been loaded for collecting; returns the list of loads."""
    loaded: list[str] = []
    load = FeedReader.load
    first = True

    def dying(self: FeedReader, key: str) -> Any:
        nonlocal first
        if first:  # the one that is tried out before the scan
            first = False
            return load(self, key)
        if len(loaded) == images:
            raise kind
        loaded.append(key)
        return load(self, key)

    monkeypatch.setattr(FeedReader, "load", dying)
    return loaded


def write_pictures(folder: Path, count: int = 6, size: tuple[int, int] = (20, 24)) -> Path:
    """Pictures of noise, lighter and lighter; ``size`` is height and width."""
    rng = np.random.default_rng(2)
    folder.mkdir(parents=True, exist_ok=True)
    for index in range(count):
        light = 40 + 200 * index / max(count - 1, 1)
        cv2.imwrite(str(folder / f"{index}.png"), (rng.random((*size, 3)) * light).astype(np.uint8))
    return folder


def build_and_check(
    model: onnx.ModelProto | Path, images: Path, preprocess: str | None = PLAIN, *, close: float = CLOSE, **options: Any
) -> Path:
    """Build on a manifest of a few images and check what every build promises; returns the folder."""
    path = images.parent / "net.onnx"
    if isinstance(model, Path):
        path = model
    else:
        onnx.save(model, path)
    output = images.parent / "out"
    request = BuildRequest(
        path, str(images), output, samplers=("random",), num_images=6, calibrators=CHECKED,
        preprocess=preprocess, **options,
    )  # fmt: skip
    run(request)
    network = analyse(onnx.load(path))
    wanted = [item.name for item in network.activations if item.elem_type is not None]
    for label in CHECKED:
        cache = trtcache.parse((output / f"{label}.cache").read_bytes())
        assert [entry.name for entry in cache.entries if entry.name in set(wanted)] == wanted
        assert all(0 < entry.scale < np.inf for entry in cache.entries)
        check_runs(output / f"{label}.qdq.onnx")
    check_close(path, output / "minmax.qdq.onnx", images, preprocess, close)
    return output


def check_runs(path: Path) -> None:
    """ONNX's checker and ONNX Runtime accept a network."""
    onnx.checker.check_model(str(path), full_check=True)
    session(path)


def session(path: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def check_close(reference: Path, quantized: Path, images: Path, preprocess: str | None, close: float = CLOSE) -> None:
    """The quantized network computes about what the float one does on a calibration image."""
    dataset = load_dataset(str(images), None, None, preprocess)
    bindings = bind_dataset(analyse(onnx.load(reference)), dataset, reference.name)
    feeds = dict(FeedReader(dataset, bindings).load(dataset.records[-1].key))
    runs = []
    for path in (reference, quantized):
        loaded = session(path)
        for item in loaded.get_inputs():  # a batch that the network fixes
            if item.shape and isinstance(item.shape[0], int) and len(feeds[item.name]) == 1:
                feeds[item.name] = np.repeat(feeds[item.name], item.shape[0], axis=0)
        runs.append(loaded.run(None, feeds))
    for exact, found in zip(*runs, strict=True):
        if exact.dtype.kind == "f":
            float_output = exact.astype(np.float64)
            assert np.linalg.norm(float_output - found) <= close * np.linalg.norm(float_output)
        else:
            assert np.mean(exact == found) >= AGREE


def weight(*shape: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) / 3).astype(np.float32)


def graph(
    nodes: list[onnx.NodeProto],
    inputs: Mapping[str, tuple[Any, ...]],
    outputs: Mapping[str, tuple[Any, ...]],
    weights: Mapping[str, np.ndarray],
    opset: int = 17,
    elem_type: int = TensorProto.FLOAT,
) -> onnx.ModelProto:
    made = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(name, elem_type, list(shape)) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, elem_type, list(shape)) for name, shape in outputs.items()],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    version = {7: 3, 8: 3, 9: 4, 10: 5, 11: 6, 12: 7, 13: 7}.get(opset, 8 if opset < 19 else 10)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=version)


def two_convolutions(opset: int = 17, **changes: Any) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Conv", ["image", "w0"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w1"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["c", "w2"], ["logits"]),
    ]
    weights = {"w0": weight(8, 3, 3, 3), "w1": weight(8, 8, 3, 3, seed=1), "w2": weight(3, 8, 1, 1, seed=2)}
    return graph(nodes, {"image": ("N", 3, SIZE, SIZE)}, {"logits": ("N", 3, SIZE, SIZE)}, weights, opset, **changes)


def parsed(
    body: str,
    weights: Mapping[str, np.ndarray] | None = None,
    *,
    inputs: str = "float[N,3,16,16] image",
    outputs: str = "float[N,3,16,16] logits",
    opset: int = 17,
    after: str = "",
) -> onnx.ModelProto:
    """A network in ONNX's text form around a body; ``w0`` [8,3,3,3] and ``w2`` [3,8,1,1] are there."""
    model = onnx.parser.parse_model(
        f'<ir_version: {10 if opset > 18 else 8}, opset_import: ["" : {opset}, "com.microsoft" : 1, "local" : 1]> '
        f"net ({inputs}) => ({outputs}) {{ {body} }} {after}"
    )
    stored = {"w0": weight(8, 3, 3, 3), "w2": weight(3, 8, 1, 1, seed=2), **(weights or {})}
    read = {name for graph in (model.graph,) for node in graph.node for name in node.input}
    read |= {name for node in model.graph.node for item in node.attribute for n in item.g.node for name in n.input}
    model.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(value), name) for name, value in stored.items() if name in read
    )
    return model
