"""Q/DQ networks of every kind that units are found in, for tests of sensitivity."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper

from calib.core.plan import PlacementOptions
from calib.stages.qdq import quantize_model
from tests.graphs import feeds, minmax, model, node, weight

SIZE = 12


def quantized(float_model: onnx.ModelProto, **options: object) -> onnx.ModelProto:
    """Put minmax pairs into a network, as the builds do."""
    ranges = minmax(float_model, feeds(float_model, size=SIZE, seed=3))
    return quantize_model(float_model, ranges, options=PlacementOptions(logits=True, **options)).model  # type: ignore[arg-type]


def image() -> Mapping[str, list[int | str]]:
    return {"image": ["N", 3, SIZE, SIZE]}


def chain() -> onnx.ModelProto:
    """Layers in a row, with activations, a residual addition and a skip connection."""
    nodes = [
        node("Conv", "image,w0,b0", "c0", pads=[1, 1, 1, 1]),
        node("Relu", "c0", "r0"),
        node("Conv", "r0,w1", "c1", pads=[1, 1, 1, 1], group=4),
        node("Relu", "c1", "r1"),
        node("Conv", "r1,w2", "c2"),
        node("Add", "c2,r0", "a"),
        node("Relu", "a", "r2"),
        node("Conv", "r2,w3", "c3", strides=[2, 2]),
        node("Resize", "c3,,scales", "up", mode="linear", coordinate_transformation_mode="half_pixel"),
        node("Concat", "up,r0", "cat", axis=1),
        node("Conv", "cat,w4,b4", "logits"),
    ]
    weights = {
        "w0": weight(4, 3, 3, 3), "b0": weight(4, seed=9), "w1": weight(4, 1, 3, 3, seed=1),
        "w2": weight(4, 4, 1, 1, seed=2), "w3": weight(6, 4, 1, 1, seed=3), "w4": weight(5, 10, 1, 1, seed=4),
        "b4": weight(5, seed=8), "scales": np.array([1, 1, 2, 2], np.float32),
    }  # fmt: skip
    return model(nodes, image(), ["logits"], weights)


def moved() -> onnx.ModelProto:
    """Pairs that stand before a MaxPool and before a Pad, whose output other nodes read too."""
    nodes = [
        node("Conv", "image,w0", "c0"),
        node("Relu", "c0", "r0"),
        node("Conv", "r0,w1", "c1"),
        node("MaxPool", "r0", "p", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1]),
        node("Conv", "p,w1", "c2"),
        node("Pad", "r0,pads", "padded"),
        node("Conv", "padded,w2", "c3"),
        node("Add", "c1,c2", "a0"),
        node("Add", "a0,c3", "a1"),
        node("Sigmoid", "padded", "s"),
        node("ReduceMean", "s", "m", axes=[2, 3]),
        node("Mul", "a1,m", "logits"),
    ]
    weights = {
        "w0": weight(4, 3, 1, 1), "w1": weight(4, 4, 1, 1, seed=1), "w2": weight(4, 4, 3, 3, seed=2),
        "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64),
    }  # fmt: skip
    return model(nodes, image(), ["logits"], weights)


def shaped() -> onnx.ModelProto:
    """Sizes computed from shapes inside the network, and two outputs."""
    nodes = [
        node("Conv", "image,w0", "c0", strides=[2, 2]),
        node("Relu", "c0", "r0"),
        node("Conv", "r0,w1", "c1"),
        node("Shape", "image", "shape"),
        node("Slice", "shape,two,four", "hw"),
        node("Shape", "c1", "own"),
        node("Slice", "own,zero,two", "nc"),
        node("Concat", "nc,hw", "sizes", axis=0),
        node("Resize", "c1,,,sizes", "logits", mode="linear"),
        node("Conv", "r0,w2", "aux"),
    ]
    weights = {
        "w0": weight(4, 3, 1, 1), "w1": weight(5, 4, 1, 1, seed=1), "w2": weight(3, 4, 1, 1, seed=2),
        "zero": np.array([0], np.int64), "two": np.array([2], np.int64), "four": np.array([4], np.int64),
    }  # fmt: skip
    return model(nodes, image(), ["logits", "aux"], weights)


def matrices() -> onnx.ModelProto:
    """Products of matrices behind reshapes and transpositions."""
    nodes = [
        node("Conv", "image,w0", "c0"),
        node("Reshape", "c0,flat", "f"),
        node("Transpose", "f", "t", perm=[0, 2, 1]),
        node("MatMul", "t,w1", "m"),
        node("MatMul", "m,f", "attention"),
        node("MatMul", "attention,t", "v"),
        node("Transpose", "v", "u", perm=[0, 2, 1]),
        node("Reshape", "u,back", "logits"),
    ]
    weights = {
        "w0": weight(4, 3, 1, 1), "w1": weight(4, 4, seed=1), "flat": np.array([0, 4, -1], np.int64),
        "back": np.array([0, 4, SIZE, SIZE], np.int64),
    }  # fmt: skip
    return model(nodes, image(), ["logits"], weights)


def runtime_style() -> onnx.ModelProto:
    """Pairs as ONNX Runtime's quantizer places them: unsigned with zero points, on outputs, weights stored as INT8."""
    rng = np.random.default_rng(2)
    half = {"x": (0.021, 120), "y": (0.3, 140), "z": (0.9, 128)}
    weights = {
        "w_int": rng.integers(-127, 127, (5, 3, 1, 1)).astype(np.int8), "w_scale": np.array(0.01, np.float32),
        "w_zero": np.array(0, np.int8), "v_int": rng.integers(-127, 127, (4, 5, 1, 1)).astype(np.int8),
    }  # fmt: skip
    nodes = [
        *pair("image", "x", "x_dq"), node("DequantizeLinear", "w_int,w_scale,w_zero", "w"),
        node("Conv", "x_dq,w", "c"), *pair("c", "y", "y_dq"), node("Relu", "y_dq", "r"),
        node("DequantizeLinear", "v_int,w_scale,w_zero", "v"), node("Conv", "r,v", "logits_raw"),
        *pair("logits_raw", "z", "logits"),
    ]  # fmt: skip
    for name, (scale, zero) in half.items():
        weights[f"{name}_scale"] = np.array(scale, np.float32)
        weights[f"{name}_zero"] = np.array(zero, np.uint8)
    return model(nodes, image(), ["logits"], weights)


def pooled() -> onnx.ModelProto:
    """A pair before a MaxPool whose output a layer and a float operator read."""
    nodes = [
        node("Conv", "image,w0", "c0"), *pair("c0", "x", "x_dq"),
        node("MaxPool", "x_dq", "p", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Conv", "p,w1", "c1"), node("Sigmoid", "p", "s"), node("Mul", "c1,s", "logits"),
    ]  # fmt: skip
    weights = {
        "w0": weight(4, 3, 1, 1), "w1": weight(4, 4, 1, 1, seed=1),
        "x_scale": np.array(0.05, np.float32), "x_zero": np.array(0, np.int8),
    }  # fmt: skip
    return model(nodes, image(), ["logits"], weights)


def pair(source: str, key: str, target: str) -> list[onnx.NodeProto]:
    """An unsigned Q/DQ pair."""
    return [
        node("QuantizeLinear", f"{source},{key}_scale,{key}_zero", f"{key}_q"),
        node("DequantizeLinear", f"{key}_q,{key}_scale,{key}_zero", target),
    ]


NETWORKS: Mapping[str, onnx.ModelProto] = {
    "chain": quantized(chain()),
    "dedicated": quantized(chain(), dedicated=True),
    "per-tensor": quantized(chain(), per_channel=False),
    "moved": quantized(moved()),
    "shaped": quantized(shaped()),
    "matrices": quantized(matrices()),
    "runtime": runtime_style(),
    "pooled": pooled(),
}


def only(network: onnx.ModelProto, kept: set[str]) -> onnx.ModelProto:
    """Take away every pair whose QuantizeLinear is not named, by hand: readers take what the pair was made from."""
    copy = onnx.ModelProto()
    copy.CopyFrom(network)
    sources = {n.output[0]: n.input[0] for n in copy.graph.node if n.op_type == "QuantizeLinear" and n.name not in kept}
    ends = {
        n.output[0]: sources[n.input[0]]
        for n in copy.graph.node
        if n.op_type == "DequantizeLinear" and n.input[0] in sources
    }
    for item in copy.graph.node:
        for slot, name in enumerate(item.input):
            item.input[slot] = ends.get(name, name)
    outputs = {output.name: ends[output.name] for output in copy.graph.output if output.name in ends}
    kept_nodes = [n for n in copy.graph.node if n.output[0] not in ends and n.output[0] not in sources]
    del copy.graph.node[:]
    copy.graph.node.extend(kept_nodes)
    copy.graph.node.extend(helper.make_node("Identity", [inner], [name]) for name, inner in outputs.items())
    return copy


def with_dynamic_scale() -> onnx.ModelProto:
    """A pair whose scale the network computes."""
    nodes = [
        node("Abs", "image", "abs"),
        node("ReduceMax", "abs", "most", keepdims=0),
        node("Mul", "most,step", "scale"),
        node("QuantizeLinear", "image,scale,zero", "q"),
        node("DequantizeLinear", "q,scale,zero", "dq"),
        node("Conv", "dq,w0", "c0"),
        *[node("QuantizeLinear", "c0,fixed,zero", "q1"), node("DequantizeLinear", "q1,fixed,zero", "dq1")],
        node("Conv", "dq1,w1", "logits"),
    ]
    weights = {
        "w0": weight(4, 3, 1, 1), "w1": weight(4, 4, 1, 1, seed=1), "zero": np.array(0, np.int8),
        "step": np.array(1 / 127, np.float32), "fixed": np.array(0.05, np.float32),
    }  # fmt: skip
    return model(nodes, image(), ["logits"], weights)


def tensor(name: str, value: np.ndarray) -> onnx.TensorProto:
    return numpy_helper.from_array(value, name)
