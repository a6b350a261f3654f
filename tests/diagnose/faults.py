"""The bank: sound networks, one change to each candidate, and pairs without any fault; at reduced sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

import cv2
import numpy as np
import onnx
import onnxruntime
from onnx import version_converter

from calib.core.expose import expose
from calib.core.graph import analyse
from calib.edges.runners.ort import OrtRunner
from calib.stages.diagnose.onnxtrace import OnnxTrace, trace_onnx
from calib.stages.halve import halve
from calib.stages.qdq import quantize_model
from tests.diagnose import edits
from tests.diagnose.edits import Model, Planted

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SIZE = (128, 160)
CAMVID = ("deeplabv3plus_mnv2", "unetpp_se")
CASES = {"selfie": "selfie_nhwc_opset11", "sinet": "sinet_softmax_opset12", "unet_small": "unet_small_opset18"}


class Runtime:
    """ONNX Runtime on the CPU."""

    def load(self, model: Model, *, optimize: bool) -> OrtRunner:
        return OrtRunner(model, "bank", optimize=optimize, share_memory=True)


RUNTIME = Runtime()


def picture(path: Path, size: tuple[int, int]) -> np.ndarray:
    """A CamVid frame as both CamVid networks take it, float32 ``[1, 3, H, W]``."""
    pixels = cv2.resize(cv2.imread(str(path))[:, :, ::-1], size[::-1])
    return np.ascontiguousarray(((pixels / 255.0 - MEAN) / STD).transpose(2, 0, 1)[None].astype(np.float32))


@dataclass
class Sound:
    """A sound network with what it is run on."""

    name: str
    model: Model
    feeds: list[dict[str, np.ndarray]]

    @cached_property
    def trace(self) -> OnnxTrace:
        return trace_onnx(self.model, self.feeds[0], RUNTIME, self.name)

    @property
    def others(self) -> list[Callable[[], tuple[OnnxTrace, dict[str, np.ndarray]]]]:
        """Traces on the other pictures."""
        return [
            lambda feeds=feeds: (trace_onnx(self.model, feeds, RUNTIME, self.name), feeds) for feeds in self.feeds[1:]
        ]

    @cached_property
    def ranges(self) -> dict[str, float]:
        """Largest magnitude of every activation."""
        names = [item.name for item in analyse(self.model).activations if item.producer is not None]
        runner = OrtRunner(expose(self.model, names), self.name)
        found: dict[str, float] = {}
        for feeds in self.feeds:
            for name, value in [*runner.run(feeds).items(), *feeds.items()]:
                found[name] = max(found.get(name, 0.0), float(np.abs(np.asarray(value)).max()))
        return found

    @cached_property
    def qdq(self) -> Model:
        return quantize_model(self.model, self.ranges).model


def resized(model: Model, size: tuple[int, int]) -> Model:
    """A copy for another picture size."""
    copy = edits.copied(model)
    dims = copy.graph.input[0].type.tensor_type.shape.dim
    dims[2].dim_value, dims[3].dim_value = size
    for output in copy.graph.output:
        output.type.tensor_type.ClearField("shape")
    del copy.graph.value_info[:]
    return copy


def load_sound(shared: Path, name: str) -> Sound:
    """One of the networks, with three pictures."""
    frames = sorted((shared / "camvid/images/val").glob("*.jpg"))[::30][:3]
    if name in CAMVID:
        model = resized(onnx.load(shared / f"models/{name}.onnx"), SIZE)
        return Sound(name, model, [{"image": picture(frame, SIZE)} for frame in frames])
    model = onnx.load(shared / f"cases/models/{CASES[name]}.onnx")
    source = model.graph.input[0]
    shape = [dim.dim_value or 1 for dim in source.type.tensor_type.shape.dim]
    last = shape[3] in (1, 3)
    pictures = [picture(frame, (shape[1], shape[2]) if last else (shape[2], shape[3])) for frame in frames]
    pictures = [p.transpose(0, 2, 3, 1) if last else p[:, : shape[1]] for p in pictures]
    return Sound(name, model, [{source.name: np.ascontiguousarray(p)} for p in pictures])


@dataclass(frozen=True)
class Entry:
    """A candidate of the bank: its name, the network it is made of, and how."""

    name: str
    network: str
    make: Callable[[Sound], Planted]
    quick: bool = field(default=False)


def entries() -> Iterator[Entry]:
    """Every planted fault."""
    yield from _float_faults()
    yield from _case_faults()
    yield from _quantization_faults()


def _on(network: str, name: str, function: Callable[..., Planted], *arguments: object, quick: bool = False) -> Entry:
    return Entry(name, network, lambda sound: function(sound.model, *arguments), quick)


def _float_faults() -> Iterator[Entry]:
    d, u = CAMVID
    yield _on(d, "Resize align_corners, late", edits.resize_mode, 0.99, quick=True)
    yield _on(u, "Resize asymmetric, early", edits.resize_mode, 0.0, "asymmetric")
    yield _on(u, "Resize asymmetric, middle", edits.resize_mode, 0.5, "asymmetric")
    yield _on(u, "Resize nearest, late", edits.resize_nearest, 0.9)
    yield _on(d, "ReLU6 lost, early", edits.dropped_activation, 0.1, "Clip")
    yield _on(d, "ReLU6 lost, middle", edits.dropped_activation, 0.5, "Clip", quick=True)
    yield _on(u, "HardSwish lost, late", edits.dropped_activation, 0.95, "HardSwish")
    yield _on(u, "SE ReLU lost, middle", edits.dropped_activation, 0.5, "Relu")
    yield _on(d, "residual Add lost, early", edits.dropped_residual, 0.1)
    yield _on(d, "residual Add lost, late", edits.dropped_residual, 0.9)
    yield _on(u, "Sigmoid twice, middle", edits.doubled, 0.5, "Sigmoid", quick=True)
    yield _on(u, "HardSwish twice, early", edits.doubled, 0.05, "HardSwish")
    yield _on(d, "AveragePool put in, middle", edits.inserted_pool, 0.5)
    yield _on(d, "dilation, early", edits.dilation, 0.1)
    yield _on(d, "dilation, late", edits.dilation, 0.99, quick=True)
    yield _on(u, "padding, middle", edits.padding, 0.5)
    yield _on(u, "padding, late", edits.padding, 0.95)
    yield _on(d, "stride, early", edits.stride, 0.0)
    yield _on(d, "stride, middle", edits.stride, 0.7)
    yield _on(d, "groups, middle", edits.groups, 0.5)
    yield _on(d, "ReLU6 to ReLU, early", edits.replaced_activation, 0.1)
    yield _on(u, "HardSwish to ReLU, late", edits.replaced_activation, 0.9, "HardSwish", "Relu")
    yield _on(d, "Clip bound, early", edits.clip_bound, 0.1, 3.0)
    yield _on(d, "Clip bound, late", edits.clip_bound, 0.9, 1.0)
    yield _on(u, "Concat order, middle", edits.concat_order, 0.5, quick=True)
    yield _on(d, "shortcut from another tensor, middle", edits.rewired, 0.5)
    yield _on(u, "bias lost, late", edits.bias_lost, 0.95)
    yield _on(u, "MaxPool to AveragePool", edits.pool, 0.5, "kind")
    for place, how in zip((0.1, 0.5, 0.9) * 4, _WEIGHTS, strict=False):
        yield _on(d, f"weights: {how}", edits.weights, place, how, quick=how in {"permute", "half"})
    yield _on(d, "BGR in the first layer", edits.channel_order, quick=True)
    yield _on(u, "scale 255 in the first layer", edits.input_scale, 255.0)
    order = np.array([2, 1, 0])
    yield _on(d, "channels swapped before the network", edits.input_node, "Gather", order, ("channel-order",))
    mean, std = (np.array(item, np.float32).reshape(1, 3, 1, 1) for item in (MEAN, STD))
    yield _on(d, "1/255 twice", edits.input_node, "Mul", np.array(1 / 255, np.float32), ("input-scale",))
    yield _on(u, "mean subtracted twice", edits.input_node, "Sub", mean, ("mean-std",))
    yield _on(d, "deviation divided twice", edits.input_node, "Div", std, ("mean-std",), quick=True)


_WEIGHTS = ("permute", "half", "perturb", "few", "zero", "bf16", "scale", "channels", "replace", "int8", "swap")


def _case_faults() -> Iterator[Entry]:
    for place, how in ((0.05, "epsilon"), (0.5, "training"), (0.95, "epsilon"), (0.2, "variance"), (0.9, "scale")):
        yield _on("sinet", f"batch norm {how} at {place}", edits.batch_norm, place, how, quick=place == 0.05)
    yield _on("sinet", "depthwise weights transposed", edits.weights, 0.205, "transpose", quick=True)
    yield _on("sinet", "Softmax axis", edits.softmax_axis, 0.99)
    yield _on("sinet", "BGR in the first layer", edits.channel_order)
    yield _on("selfie", "ReLU lost, middle", edits.dropped_activation, 0.5)
    yield _on("selfie", "Clip bound, late", edits.clip_bound, 0.9, 0.5)
    yield _on("selfie", "scale 1/255 in the first layer", edits.input_scale, 1 / 255)
    yield _on("unet_small", "ConvTranspose output_padding", edits.output_padding, 0.0, quick=True)
    yield _on("unet_small", "ReLU lost, late", edits.dropped_activation, 0.9)
    yield _on("unet_small", "ConvTranspose weights transposed", edits.weights, 0.0, "permute", "ConvTranspose")
    yield _on("unet_small", "float16 overflow", edits.overflow, 0.5, quick=True)


def _quantization_faults() -> Iterator[Entry]:
    def on(network: str, name: str, function: Callable[..., Planted], *arguments: object, quick: bool = False) -> Entry:
        return Entry(f"Q/DQ: {name}", network, lambda sound: function(sound.qdq, *arguments), quick)

    d, u = CAMVID
    yield on(d, "range too wide, early", edits.pair_scale, 0.0, 10.0)
    yield on(d, "range too narrow, middle", edits.pair_scale, 0.5, 0.1, quick=True)
    yield on(u, "range too narrow, late", edits.pair_scale, 0.9, 0.2)
    yield on(u, "range too wide, middle", edits.pair_scale, 0.5, 6.0)
    yield on(d, "zero point, middle", edits.pair_zero, 0.5, quick=True)
    yield on(u, "zero point, late", edits.pair_zero, 0.95)
    yield on(d, "weights per tensor, early", edits.pair_weights, 0.0, "per-tensor", quick=True)
    yield on(d, "weights per tensor, middle", edits.pair_weights, 0.5, "per-tensor")
    yield on(u, "weights' scales too small, late", edits.pair_weights, 0.9, "range")
    yield Entry("Q/DQ: logits", d, partial(_pair_behind, op_type="Conv", kinds=("logits-quantized",)))
    yield Entry("Q/DQ: gate", u, partial(_pair_behind, op_type="Sigmoid", kinds=("gate-quantized",)), True)
    yield on(d, "halves of a pair differ, early", edits.pair_halves, 0.15, quick=True)
    yield on(u, "halves of a pair differ, middle", edits.pair_halves, 0.5, 0.5)
    yield on("sinet", "weights' scales too large where much is lost anyway", edits.weights_scale, 0.172, 5.0)
    yield on(u, "weights' scales too large, early", edits.weights_scale, 0.09, 5.0, quick=True)
    yield on("selfie", "range too wide before a Sigmoid that hides it", edits.pair_scale, 0.926, 30.0, quick=True)
    yield on("unet_small", "one scale of a transposed convolution", edits.weights_scale, 0.777, 5.0, quick=True)
    yield on("unet_small", "range halved where none else clips", edits.pair_scale, 0.568, 0.5, quick=True)
    yield on("selfie", "weights' scales too small, late", edits.weights_scale, 0.44, 0.1)
    yield on(d, "Resize align_corners", edits.resize_mode, 0.99)
    yield on(d, "ReLU lost", edits.dropped_activation, 0.5, "Relu")
    yield on(u, "weights permuted", edits.weights, 0.5, "permute", "QuantizeLinear", 0)


def _pair_behind(sound: Sound, op_type: str, kinds: tuple[str, ...]) -> Planted:
    tensor = [node.output[0] for node in sound.model.graph.node if node.op_type == op_type][-1]
    return edits.pair_at(sound.qdq, tensor, sound.ranges[tensor], kinds)


@dataclass(frozen=True)
class CleanPair:
    """A pair without a fault."""

    name: str
    network: str
    make: Callable[[Sound], Model]
    quick: bool = False


def clean_pairs() -> Iterator[CleanPair]:
    """Every sound pair."""
    for name in (*CAMVID, *CASES):
        yield CleanPair("the same file", name, lambda sound: sound.model, name == CAMVID[0])
    for name in CAMVID:
        yield CleanPair("Q/DQ by minmax", name, lambda sound: sound.qdq, name == CAMVID[0])
        yield CleanPair("opset 20", name, lambda sound: version_converter.convert_version(sound.model, 20))
        yield CleanPair("names changed", name, renamed)
        yield CleanPair("float16", name, lambda sound: halve(sound.model).model)
    yield CleanPair("constants folded by ONNX Runtime", CAMVID[0], partial(optimized, level="ORT_ENABLE_BASIC"), True)
    yield CleanPair("fused by ONNX Runtime", CAMVID[1], partial(optimized, level="ORT_ENABLE_EXTENDED"))
    yield CleanPair("batch norms folded by ONNX Runtime", "sinet", partial(optimized, level="ORT_ENABLE_BASIC"), True)
    yield CleanPair("folded by ONNX Runtime", "selfie", partial(optimized, level="ORT_ENABLE_BASIC"))
    yield CleanPair("opset 18", "sinet", lambda sound: version_converter.convert_version(sound.model, 18))
    yield CleanPair("Q/DQ by minmax", "unet_small", lambda sound: sound.qdq)


def renamed(sound: Sound) -> Model:
    """All inner tensors and nodes under other names."""
    copy = edits.copied(sound.model)
    kept = {item.name for item in (*copy.graph.input, *copy.graph.output)}
    names: dict[str, str] = {}

    def new(name: str) -> str:
        return name if not name or name in kept else names.setdefault(name, f"t{len(names)}")

    for place, node in enumerate(copy.graph.node):
        node.name = f"n{place}"
        for field_ in (node.input, node.output):
            for slot, name in enumerate(field_):
                field_[slot] = new(name)
    for tensor in copy.graph.initializer:
        tensor.name = new(tensor.name)
    del copy.graph.value_info[:]
    return copy


def optimized(sound: Sound, level: str) -> Model:
    """The network as ONNX Runtime rewrites it."""
    import tempfile

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.log_severity_level = 3
    with tempfile.TemporaryDirectory() as folder:
        options.optimized_model_filepath = f"{folder}/optimized.onnx"
        onnxruntime.InferenceSession(sound.model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return onnx.load(options.optimized_model_filepath)
