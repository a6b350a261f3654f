"""For every rule a graph that triggers it and one, as like it as can be, that does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.graphs import model, node, weight
from tests.lint.graphs import IMAGE, OPEN, Pairs, batchnorm, conv, edited, resize, single

Case = tuple[Callable[[], onnx.ModelProto], Callable[[], onnx.ModelProto]]
NCHW = (1, 3, 16, 16)
F32 = np.float32


def ramp(*shape: int) -> np.ndarray:
    return np.linspace(0.5, 1.0, int(np.prod(shape)), dtype=F32).reshape(shape)


# Model and operators


def unknown_attribute() -> onnx.ModelProto:
    return resize(NCHW, scales=(1, 1, 2, 2), mode="linear", antialias=0, opset=17)


def known_attribute() -> onnx.ModelProto:
    return resize(NCHW, scales=(1, 1, 2, 2), mode="linear", antialias=0, opset=18)


def at_ir(version: int) -> onnx.ModelProto:
    return edited(conv(), lambda made: setattr(made, "ir_version", version))


def custom(domain: str) -> onnx.ModelProto:
    opsets = [helper.make_opsetid(domain, 1)]
    return model([node("Relu", "x", "a"), node("Special", "a", "y", domain=domain)], IMAGE, ["y"], opsets=opsets)


def typed(elem_type: int) -> onnx.ModelProto:
    """Add on integers of a type, inside the network."""
    nodes = [
        node("Cast", "x", "a", to=elem_type),
        node("Add", "a,a", "b"),
        node("Cast", "b", "y", to=TensorProto.FLOAT),
    ]
    return model(nodes, IMAGE, ["y"])


def doubled(elem_type: int) -> onnx.ModelProto:
    return model([node("Relu", "x", "y")], IMAGE, ["y"], elem_type=elem_type)


def heavy(elements: int) -> onnx.ModelProto:
    """State a large weight without holding it."""
    made = conv()
    made.graph.initializer.append(TensorProto(name="big", data_type=TensorProto.FLOAT, dims=[elements]))
    return made


def listed(made: onnx.ModelProto) -> None:
    made.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [4, 3, 3, 3]))


def frozen_reshape(target: tuple[int, ...]) -> onnx.ModelProto:
    return model([node("Reshape", "x,t", "y")], {"x": ("N", 3, 16, 16)}, ["y"], {"t": np.array(target, np.int64)})


def branch(data: bool) -> onnx.ModelProto:
    """Make an If that yields a map, or one that only constants pass through."""
    source = "x" if data else "c"
    then, other = (
        helper.make_graph(
            [node("Relu" if i else "Identity", source, f"o{i}")],
            f"g{i}",
            [],
            [helper.make_tensor_value_info(f"o{i}", TensorProto.FLOAT, None)],
        )
        for i in (0, 1)
    )
    flag = "f" if data else "k"
    nodes = [
        node("ReduceMax", "x", "top", keepdims=0),
        node("Greater", "top,z", "f"),
        node("If", flag, "b", then_branch=then, else_branch=other),
        node("Add", "x,b", "y"),
    ]
    weights = {"z": np.array(0, F32), "k": np.array(True), "c": np.ones((1, 3, 16, 16), F32)}
    return model(nodes, IMAGE, ["y"], weights)


def named_twice(made: onnx.ModelProto) -> None:
    for item in made.graph.node:
        item.name = "same"


def nameless(made: onnx.ModelProto) -> None:
    made.graph.node[0].name = ""


def two_relus() -> onnx.ModelProto:
    return model([node("Relu", "x", "a"), node("Relu", "a", "y")], IMAGE, ["y"])


# Geometry


def mixed(second: str) -> onnx.ModelProto:
    nodes = [
        node("Resize", "x,,s", "a", mode="linear", coordinate_transformation_mode="half_pixel"),
        node("Resize", "a,,s", "b", mode="linear", coordinate_transformation_mode="half_pixel"),
        node("Resize", "b,,s", "y", mode="linear", coordinate_transformation_mode=second),
    ]
    return model(nodes, IMAGE, ["y"], {"s": np.array([1, 1, 2, 2], F32)})


def divided_scales(divide: bool) -> onnx.ModelProto:
    """Compute scales from sizes by division, or hand the sizes over."""
    nodes = [
        node("Shape", "x", "s"),
        node("Cast", "s", "f", to=TensorProto.FLOAT),
        node("Mul", "f,two", "t"),
        node("Div", "t,f", "q"),
        node("Cast", "t", "n", to=TensorProto.INT64),
        node("Resize", "x,,q" if divide else "x,,,n", "y", mode="linear"),
    ]
    return model(nodes, OPEN, ["y"], {"two": np.array([1, 1, 2, 2], F32)})


def grid_sample(opset: int) -> onnx.ModelProto:
    inputs = {"x": (1, 1, 1, 256), "g": (1, 1, 9, 2)}
    mode = "linear" if opset >= 20 else "bilinear"
    return model([node("GridSample", "x,g", "y", mode=mode, padding_mode="zeros")], inputs, ["y"], opset=opset)


def pad(pads: tuple[int, ...], *, mode: str = "constant", value: float | None = None, shape=NCHW) -> onnx.ModelProto:
    weights = {"p": np.array(pads, np.int64)} | ({} if value is None else {"v": np.array(value, F32)})
    return model([node("Pad", "x,p" + ",v" * (value is not None), "y", mode=mode)], {"x": shape}, ["y"], weights)


def deconv(size: int = 28, *, opset: int = 17, **attributes) -> onnx.ModelProto:
    nodes = [node("ConvTranspose", "x,w", "y", **attributes)]
    return model(nodes, {"x": (1, 4, size, size)}, ["y"], {"w": weight(4, 5, 3, 3)}, opset=opset)


# Normalisation and values


def epsilons(odd: float) -> onnx.ModelProto:
    """Chain twelve BatchNormalizations of which one has another epsilon."""
    ones, zeros = np.ones(3, F32), np.zeros(3, F32)
    nodes = [
        node(
            "BatchNormalization", f"{'x' if i == 0 else f'b{i - 1}'},s,z,z,s", f"b{i}", epsilon=odd if i == 5 else 1e-5
        )
        for i in range(12)
    ]
    return model(nodes, IMAGE, ["b11"], {"s": ones, "z": zeros})


def conv_bn(other_reader: bool = False) -> onnx.ModelProto:
    ones, zeros = np.ones(4, F32), np.zeros(4, F32)
    nodes = [node("Conv", "x,w", "c"), node("BatchNormalization", "c,s,z,z,s", "n")]
    nodes.append(node("Add", "n,c", "y") if other_reader else node("Relu", "n", "y"))
    return model(nodes, IMAGE, ["y"], {"w": weight(4, 3, 3, 3), "s": ones, "z": zeros})


def conv_relu() -> onnx.ModelProto:
    return model([node("Conv", "x,w", "c"), node("Relu", "c", "y")], IMAGE, ["y"], {"w": weight(4, 3, 3, 3)})


def batch_mean(axes: tuple[int, ...]) -> onnx.ModelProto:
    nodes = [node("ReduceMean", "x", "m", axes=axes), node("Sub", "x,m", "y")]
    return model(nodes, {"x": (4, 3, 16, 16)}, ["y"])


def dropout(training: bool) -> onnx.ModelProto:
    weights = {"r": np.array(0.5, F32), "t": np.array(training)}
    return model([node("Dropout", "x,r,t", "y")], IMAGE, ["y"], weights)


def noise(random: bool) -> onnx.ModelProto:
    nodes = [node("RandomNormalLike", "x", "n") if random else node("Relu", "x", "n"), node("Add", "x,n", "y")]
    return model(nodes, IMAGE, ["y"])


def added(value: float) -> onnx.ModelProto:
    return model([node("Add", "x,c", "a"), node("Relu", "a", "y")], IMAGE, ["y"], {"c": np.array(value, F32)})


def spread_weight(ratio: float) -> np.ndarray:
    value = ramp(4, 3, 3, 3)
    value[1] /= ratio * value[1].max() / value[3].max()
    return value


def dead_weight(dead: int) -> np.ndarray:
    value = weight(4, 3, 3, 3)
    value[:dead] = 0
    return value


def broken_weight(bad: float) -> np.ndarray:
    value = weight(4, 3, 3, 3)
    value[0, 0, 0, 0] = bad
    return value


def computed_weight(computed: bool) -> onnx.ModelProto:
    nodes = [node("Mul", "x,x", "k") if computed else node("Mul", "w,w", "k"), node("Conv", "x,k", "y")]
    return model(nodes, {"x": (4, 4, 3, 3)}, ["y"], {"w": weight(4, 4, 3, 3)})


# Q/DQ


def chain(**changes) -> Pairs:
    """Build three convolutions, the first two in INT8, and hand the builder back with its last tensor."""
    made = Pairs()
    made.last = made.op("Relu", made.conv(made.op("Relu", made.conv("x", 4)), 4))
    return made


def sound() -> onnx.ModelProto:
    """A network quantized as it should be: three convolutions and a residual, the logits layer in float."""
    made = Pairs()
    stem = made.op("Relu", made.conv("x", 4))
    shared = made.pair(stem, 0.1)
    inner = made.op("Conv", shared, made.weight(4, 4, 1, 1))
    block = made.op("Relu", made.op("Add", inner, shared))
    return made.done(made.op("Conv", block, made.store("w", weight(3, 4, 1, 1))))


def quantized(scale: object = 0.1, zero: object = np.int8(0), *, opset: int = 17, **attributes) -> onnx.ModelProto:
    """One convolution in INT8 between Relus, with a pair of these settings on its input."""
    made = Pairs()
    data = made.pair(made.op("Relu", "x"), scale, zero, **attributes)
    return made.done(made.op("Relu", made.op("Conv", data, made.weight(4, 4, 1, 1))), opset=opset)


def quantized_weight(
    axis: int | None, *, opset: int = 17, write_axis: bool = True, shape=(4, 4, 1, 1)
) -> onnx.ModelProto:
    made = Pairs()
    name = made.weight(*shape, axis=axis)
    if not write_axis:
        del made.nodes[-1].attribute[:]
    return made.done(made.op("Relu", made.op("Conv", made.pair("x"), name)), opset=opset)


def scale_count(channels: int) -> onnx.ModelProto:
    made = Pairs()
    stored = made.store("w", np.ones((4, 4, 1, 1), np.int8))
    extra = (made.store("s", np.full(channels, 0.1, F32)), made.store("z", np.zeros(channels, np.int8)))
    name = made.op("DequantizeLinear", stored, *extra, axis=0)
    return made.done(made.op("Relu", made.op("Conv", made.pair("x"), name)))


def half_scale(opset: int) -> onnx.ModelProto:
    """Quantize a float16 tensor by float16 scales."""
    made = Pairs()
    half = made.op("Cast", "x", to=TensorProto.FLOAT16)
    paired = made.pair(half, np.array(0.1, np.float16))
    return made.done(made.op("Cast", paired, to=TensorProto.FLOAT), opset=opset)


def bias(quantized_bias: bool) -> onnx.ModelProto:
    made = Pairs()
    if quantized_bias:
        stored = made.store("b", np.arange(4, dtype=np.int32))
        offset = made.op("DequantizeLinear", stored, made.store("bs", np.array(1e-3, F32)))
    else:
        offset = made.store("b", np.arange(4, dtype=F32))
    layer = made.op("Conv", made.pair("x"), made.weight(4, 4, 1, 1), offset)
    return made.done(made.op("Relu", layer))


def integer_reader(pair: bool) -> onnx.ModelProto:
    made = Pairs()
    extra = (made.store("s", np.array(0.1, F32)), made.store("z", np.array(0, np.int8)))
    integers = made.op("QuantizeLinear", "x", *extra)
    if pair:
        return made.done(made.op("Relu", made.op("DequantizeLinear", integers, *extra)))
    return made.done(made.op("Cast", integers, to=TensorProto.FLOAT))


def tail(*, on_output: bool = False, int8: bool = False) -> onnx.ModelProto:
    """A network with a chosen end: a pair on its output, or its logits layer in INT8."""
    made = chain()
    head = made.conv(made.last, 3, int8=int8)
    return made.done(made.pair(head) if on_output else head)


def gate(int8: bool) -> onnx.ModelProto:
    made = Pairs()
    body = made.op("Relu", made.conv("x", 4, kernel=3, pads=[1, 1, 1, 1]))
    squeezed = made.op("Relu", made.conv(made.op("GlobalAveragePool", body), 4, int8=int8))
    gated = made.op("Mul", body, made.op("Sigmoid", made.conv(squeezed, 4, int8=int8)))
    return made.done(made.conv(made.op("Relu", made.conv(gated, 4)), 3, int8=False))


def softmax_pair(before: bool) -> onnx.ModelProto:
    made = chain()
    scores = made.op("Softmax", made.pair(made.last) if before else made.last, axis=1)
    return made.done(made.conv(made.op("Relu", made.conv(scores, 4)), 3, int8=False))


def residual(shortcut: bool) -> onnx.ModelProto:
    made = Pairs()
    stem = made.op("Relu", made.conv("x", 4))
    shared = made.pair(stem)
    inner = made.op("Conv", shared, made.weight(4, 4, 1, 1))
    block = made.op("Relu", made.op("Add", inner, shared if shortcut else stem))
    return made.done(made.conv(made.op("Relu", made.conv(block, 4)), 3, int8=False))


def island(int8: bool) -> onnx.ModelProto:
    made = chain()
    middle = made.op("Relu", made.conv(made.last, 4, int8=int8))
    return made.done(made.conv(made.op("Relu", made.conv(middle, 4)), 3, int8=False))


def half_layer(both: bool) -> onnx.ModelProto:
    made = chain()
    data = made.pair(made.last) if both else made.last
    layer = made.op("Relu", made.op("Conv", data, made.weight(4, 4, 1, 1)))
    return made.done(made.conv(layer, 3, int8=False))


def before_relu(between: bool) -> onnx.ModelProto:
    made = Pairs()
    layer = made.conv("x", 4)
    active = made.op("Relu", made.pair(layer)) if between else made.pair(made.op("Relu", layer))
    return made.done(made.conv(made.op("Relu", made.conv(active, 4, scale=0.1)), 3, int8=False))


def quantized_bn(int8: bool) -> onnx.ModelProto:
    made = chain()
    ones, zeros = made.store("s", np.ones(4, F32)), made.store("b", np.zeros(4, F32))
    norm = made.op("BatchNormalization", made.conv(made.last, 4, int8=int8), ones, zeros, zeros, ones)
    return made.done(made.conv(made.op("Relu", norm), 3, int8=False))


def concat(scales: tuple[float, float], shared: float | None) -> onnx.ModelProto:
    """Concatenate two pairs, with one pair behind for both or none."""
    made = Pairs()
    left, right = (made.op("Relu", made.conv("x", 4)) for _ in range(2))
    joined = made.op("Concat", made.pair(left, scales[0]), made.pair(right, scales[1]), axis=1)
    data = joined if shared is None else made.pair(joined, shared)
    layer = made.op("Relu", made.op("Conv", data, made.weight(4, 8, 1, 1)))
    return made.done(made.conv(layer, 3, int8=False))


def pool_pair(behind: bool) -> onnx.ModelProto:
    made = chain()
    settings = {"kernel_shape": [2, 2], "strides": [2, 2]}
    if behind:
        data = made.pair(made.op("AveragePool", made.last, **settings))
    else:
        data = made.op("AveragePool", made.pair(made.last), **settings)
    layer = made.op("Relu", made.op("Conv", data, made.weight(4, 4, 1, 1)))
    return made.done(made.conv(layer, 3, int8=False))


def pad_pair(before: bool) -> onnx.ModelProto:
    made = chain()
    pads = made.store("p", np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64))
    data = made.op("Pad", made.pair(made.last), pads) if before else made.pair(made.op("Pad", made.last, pads))
    layer = made.op("Relu", made.op("Conv", data, made.weight(4, 4, 3, 3)))
    return made.done(made.conv(layer, 3, int8=False))


def twice(second: float) -> onnx.ModelProto:
    made = chain()
    data = made.pair(made.pair(made.last, 0.1), second)
    layer = made.op("Relu", made.op("Conv", data, made.weight(4, 4, 1, 1)))
    return made.done(made.conv(layer, 3, int8=False))


def quantized_deconv(axis: int | None, group: int = 1) -> onnx.ModelProto:
    made = chain()
    kernel = made.weight(4, 4 // group, 2, 2, axis=axis)
    layer = made.op("ConvTranspose", made.pair(made.last), kernel, strides=[2, 2], group=group)
    return made.done(made.conv(made.op("Relu", layer), 3, int8=False))


def removed_upsample(opset: int) -> onnx.ModelProto:
    weights = {"s": np.array([1, 1, 2, 2], F32)}
    return model([node("Upsample", "x,s", "y", mode="nearest")], IMAGE, ["y"], weights, opset=opset)


def nonzero(inside: bool) -> onnx.ModelProto:
    source = "x" if inside else "c"
    nodes = [node("NonZero", source, "n"), node("Cast", "n", "f", to=TensorProto.FLOAT), node("ReduceMax", "f", "m")]
    nodes.append(node("Add", "x,m", "y"))
    return model(nodes, {"x": (3, 4)}, ["y"], {"c": np.ones((3, 4), F32)})


CASES: Mapping[str, Case] = {
    "onnx-schema": (unknown_attribute, known_attribute),
    "shape-inference": (
        lambda: single("Softmax", (2, 3, 4), axis=7),
        lambda: single("Softmax", (2, 3, 4), axis=2),
    ),
    "opset": (lambda: single("Relu", opset=6), lambda: single("Relu", opset=17)),
    "ir-version": (lambda: at_ir(13), lambda: at_ir(8)),
    "trt-operator": (lambda: single("Det", (1, 3, 4, 4)), lambda: single("Relu", (1, 3, 4, 4))),
    "trt-limits": (
        lambda: single("MaxPool", kernel_shape=[3, 3], dilations=[2, 2]),
        lambda: single("MaxPool", kernel_shape=[3, 3], dilations=[1, 1]),
    ),
    "custom-operator": (lambda: custom("vendor"), two_relus),
    "tensor-types": (lambda: typed(TensorProto.UINT32), lambda: typed(TensorProto.INT32)),
    "input-types": (lambda: doubled(TensorProto.FLOAT16), lambda: doubled(TensorProto.FLOAT)),
    "float64": (lambda: doubled(TensorProto.DOUBLE), lambda: doubled(TensorProto.FLOAT)),
    "model-size": (lambda: heavy(2**29), lambda: heavy(2**20)),
    "initializer-inputs": (lambda: edited(conv(), listed), conv),
    "dynamic-shapes": (lambda: single("Relu", ("N", 3, 16, 16)), lambda: single("Relu")),
    "reshape-frozen": (lambda: frozen_reshape((1, 768)), lambda: frozen_reshape((-1, 768))),
    "control-flow": (lambda: branch(data=True), lambda: branch(data=False)),
    "data-dependent": (lambda: nonzero(inside=True), lambda: nonzero(inside=False)),
    "random-values": (lambda: noise(random=True), lambda: noise(random=False)),
    "node-names": (lambda: edited(two_relus(), named_twice), two_relus),
    "node-unnamed": (lambda: edited(two_relus(), nameless), two_relus),
    "resize-coordinates": (
        lambda: resize(NCHW, scales=(1, 1, 2, 2), mode="linear", coordinate_transformation_mode="asymmetric"),
        lambda: resize(NCHW, scales=(1, 1, 2, 2), mode="linear", coordinate_transformation_mode="half_pixel"),
    ),
    "resize-invalid": (
        lambda: resize(NCHW, scales=(1, 1, 0, 2), mode="linear"),
        lambda: resize(NCHW, scales=(1, 1, 0.5, 2), mode="linear"),
    ),
    "resize-single-pixel": (
        lambda: resize(
            (1, 1, 10, 10), sizes=(1, 1, 1, 1), mode="linear", coordinate_transformation_mode="pytorch_half_pixel"
        ),
        lambda: resize((1, 1, 10, 10), sizes=(1, 1, 1, 1), mode="linear", coordinate_transformation_mode="half_pixel"),
    ),
    "resize-axes": (
        lambda: resize((1, 8, 20, 12), scales=(1, 2, 2, 1), mode="linear"),
        lambda: resize((1, 8, 20, 12), scales=(1, 1, 2, 2), mode="linear"),
    ),
    "resize-frozen": (
        lambda: resize(("N", 3, "H", "W"), sizes=(1, 3, 64, 64), mode="linear"),
        lambda: resize(("N", 3, "H", "W"), scales=(1, 1, 1.5, 2), mode="linear"),
    ),
    "resize-rounding": (
        lambda: resize((1, 3, 33, 33), scales=(1, 1, 47 / 33, 47 / 33), mode="linear"),
        lambda: resize((1, 3, 32, 32), scales=(1, 1, 1.5, 1.5), mode="linear"),
    ),
    "resize-run-time-scales": (lambda: divided_scales(divide=True), lambda: divided_scales(divide=False)),
    "resize-antialias": (
        lambda: resize(NCHW, sizes=(1, 3, 8, 8), mode="linear", antialias=1, opset=18),
        lambda: resize(NCHW, sizes=(1, 3, 8, 8), mode="linear", antialias=0, opset=18),
    ),
    "resize-cubic": (
        lambda: resize(NCHW, scales=(1, 1, 2, 2), mode="cubic", cubic_coeff_a=-0.5),
        lambda: resize(NCHW, scales=(1, 1, 2, 2), mode="cubic"),
    ),
    "resize-unsupported": (
        lambda: resize(NCHW, sizes=(1, 3, 8, 8), mode="linear", keep_aspect_ratio_policy="not_larger", opset=18),
        lambda: resize(NCHW, sizes=(1, 3, 8, 8), mode="linear", keep_aspect_ratio_policy="stretch", opset=18),
    ),
    "resize-ties": (
        lambda: resize(
            (1, 1, 26, 26), sizes=(1, 1, 64, 64), coordinate_transformation_mode="asymmetric", nearest_mode="floor"
        ),
        lambda: resize(
            (1, 1, 32, 32), sizes=(1, 1, 64, 64), coordinate_transformation_mode="asymmetric", nearest_mode="floor"
        ),
    ),
    "resize-mixed": (lambda: mixed("align_corners"), lambda: mixed("pytorch_half_pixel")),
    "gridsample-opset": (lambda: grid_sample(20), lambda: grid_sample(18)),
    "batchnorm-training": (lambda: batchnorm(training_mode=1), batchnorm),
    "batch-statistics": (lambda: batch_mean((0, 2, 3)), lambda: batch_mean((2, 3))),
    "batchnorm-epsilon": (lambda: epsilons(1e-3), lambda: epsilons(1e-5)),
    "batchnorm-variance": (
        lambda: batchnorm(variance=np.array([1, 1e-9, 1, 1], F32)),
        lambda: batchnorm(variance=np.array([1, 1e-9, 1, 1], F32), scale=np.array([1, 1e-6, 1, 1], F32)),
    ),
    "batchnorm-unfused": (conv_bn, conv_relu),
    "dropout-training": (lambda: dropout(training=True), lambda: dropout(training=False)),
    "softmax-flatten": (
        lambda: single("Softmax", (2, 3, 4), opset=12, axis=1),
        lambda: single("Softmax", (2, 3, 4), opset=12, axis=2),
    ),
    "norm-fp16": (
        lambda: model(
            [node("InstanceNormalization", "x,s,b", "y")], IMAGE, ["y"], {"s": np.ones(3, F32), "b": np.zeros(3, F32)}
        ),
        batchnorm,
    ),
    "layer-channels": (lambda: conv(shape=(1, 4, 16, 16)), conv),
    "window-invalid": (
        lambda: single("AveragePool", kernel_shape=[2, 2], strides=[0, 0]),
        lambda: single("AveragePool", kernel_shape=[2, 2], strides=[1, 1]),
    ),
    "pool-frozen": (
        lambda: single("AveragePool", kernel_shape=[16, 16]),
        lambda: single("GlobalAveragePool"),
    ),
    "pad-reflect-width": (
        lambda: pad((0, 0, 0, 1, 0, 0, 0, 3), mode="reflect", shape=(1, 1, 3, 3)),
        lambda: pad((0, 0, 0, 1, 0, 0, 0, 2), mode="reflect", shape=(1, 1, 3, 3)),
    ),
    "pad-mode": (
        lambda: pad((0, 0, 1, 1, 0, 0, 1, 1), value=0.5),
        lambda: pad((0, 0, 1, 1, 0, 0, 1, 1), value=0.0),
    ),
    "auto-pad": (
        lambda: conv(auto_pad="SAME_UPPER", strides=[2, 2], kernel_shape=[3, 3]),
        lambda: conv(auto_pad="SAME_UPPER", strides=[1, 1], kernel_shape=[3, 3]),
    ),
    "convtranspose-output-padding": (
        lambda: deconv(strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1]),
        lambda: deconv(strides=[2, 2], pads=[1, 1, 1, 1]),
    ),
    "convtranspose-auto-pad": (
        lambda: deconv(3, strides=[2, 2], auto_pad="SAME_UPPER", output_padding=[1, 1]),
        lambda: deconv(3, strides=[2, 2], pads=[1, 1, 1, 1]),
    ),
    "nonfinite-constants": (
        lambda: conv({"w": broken_weight(np.inf)}),
        lambda: conv({"w": broken_weight(3.0)}),
    ),
    "fp16-constants": (lambda: added(-1e9), lambda: added(-1e4)),
    "layer-weights": (lambda: computed_weight(computed=True), lambda: computed_weight(computed=False)),
    "weight-ratio": (lambda: conv({"w": spread_weight(300)}), lambda: conv({"w": spread_weight(50)})),
    "dead-channels": (lambda: conv({"w": dead_weight(1)}), lambda: conv({"w": dead_weight(0)})),
    "concat-ranges": (lambda: concat((0.1, 0.001), 0.1), lambda: concat((0.1, 0.05), 0.1)),
    "qdq-type": (lambda: quantized(0.1, np.uint8(0)), quantized),
    "qdq-implicit-type": (lambda: quantized(0.1, None), quantized),
    "qdq-zero-point": (lambda: quantized(0.1, np.int8(3)), quantized),
    "qdq-scale": (lambda: quantized(0.0), quantized),
    "qdq-scale-count": (lambda: scale_count(3), lambda: scale_count(4)),
    "qdq-scale-type": (lambda: half_scale(17), lambda: half_scale(19)),
    "qdq-bias": (lambda: bias(quantized_bias=True), lambda: bias(quantized_bias=False)),
    "qdq-per-channel-opset": (
        lambda: quantized_weight(0, opset=12, write_axis=False),
        lambda: quantized_weight(None, opset=12),
    ),
    "qdq-axis": (lambda: quantized_weight(0, write_axis=False), lambda: quantized_weight(0)),
    "qdq-weight-axis": (lambda: quantized_weight(1), lambda: quantized_weight(0)),
    "qdq-activation-per-channel": (
        lambda: quantized(np.full(4, 0.1, F32), np.zeros(4, np.int8), axis=1),
        quantized,
    ),
    "qdq-unpaired": (lambda: integer_reader(pair=False), lambda: integer_reader(pair=True)),
    "qdq-output": (lambda: tail(on_output=True), tail),
    "qdq-logits": (lambda: tail(int8=True), tail),
    "qdq-gate": (lambda: gate(int8=True), lambda: gate(int8=False)),
    "qdq-normalisation": (lambda: softmax_pair(before=True), lambda: softmax_pair(before=False)),
    "qdq-residual": (lambda: residual(shortcut=False), lambda: residual(shortcut=True)),
    "qdq-island": (lambda: island(int8=False), lambda: island(int8=True)),
    "qdq-half-layer": (lambda: half_layer(both=False), lambda: half_layer(both=True)),
    "qdq-fusion": (lambda: before_relu(between=True), lambda: before_relu(between=False)),
    "qdq-batchnorm": (lambda: quantized_bn(int8=True), lambda: quantized_bn(int8=False)),
    "qdq-pool": (lambda: pool_pair(behind=False), lambda: pool_pair(behind=True)),
    "qdq-pad": (lambda: pad_pair(before=False), lambda: pad_pair(before=True)),
    "qdq-double": (lambda: twice(0.2), lambda: twice(0.1)),
    "qdq-deconv": (lambda: quantized_deconv(1), lambda: quantized_deconv(None)),
    "qdq-calibrator": (quantized, conv),
}
RANGED: Mapping[str, tuple[Callable[[], onnx.ModelProto], Mapping[str, float], Mapping[str, float]]] = {
    "fp16-range": (two_relus, {"a": 65535.0}, {"a": 65000.0}),
}
"""Rules that need observed ranges: a graph, ranges that trigger, ranges that do not."""
