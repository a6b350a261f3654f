"""Every operator against ONNX's own test cases, and Resize and transposed convolutions against ONNX Runtime."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

torch = pytest.importorskip("torch", reason="needs PyTorch")

from calib.edges.qat.module import OnnxModule  # noqa: E402
from calib.edges.qat.ops import OPERATORS  # noqa: E402
from calib.errors import ModelError  # noqa: E402

KNOWN = frozenset({"float32", "float64", "float16", "int64", "int32", "bool", "uint8", "int8", "int16"})
TRAINING_MODE = (
    "test_batchnorm_example_training_mode",
    "test_batchnorm_epsilon_training_mode",
    "test_training_dropout",
)
"""Cases of operators in training mode: inference graphs hold none."""
EMPTY = "empty_set"
"""Maxima of nothing."""
UNEVEN_CORNERS = frozenset(
    {"test_resize_downsample_scales_linear_align_corners", "test_resize_downsample_scales_cubic_align_corners"}
)
"""Scales that give a fraction of an element between aligned corners: ONNX Runtime takes whole ones, as done here."""
WITHOUT_CASES = frozenset({"GlobalLpPool"})


@cache
def cases() -> dict[str, list[Any]]:
    """ONNX's test cases of single nodes, by operator."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        collected = collect_testcases(None)
    found: dict[str, list[Any]] = {}
    for case in collected:
        if len(case.model.graph.node) == 1:
            found.setdefault(case.model.graph.node[0].op_type, []).append(case)
    return found


def left_out(name: str) -> bool:
    return name.startswith(TRAINING_MODE) or EMPTY in name or name in UNEVEN_CORNERS


def arrays_of(items: Any) -> list[np.ndarray] | None:
    """Inputs or outputs of a case; None where one is of a type that PyTorch lacks, or no tensor."""
    plain = [numpy_helper.to_array(item) if isinstance(item, TensorProto) else item for item in items]
    if any(isinstance(item, list | dict) or item is None for item in plain):
        return None
    found = [np.array(item) for item in plain]
    return found if all(array.dtype.name in KNOWN for array in found) else None


@pytest.mark.parametrize("operator", sorted(set(OPERATORS) - WITHOUT_CASES))
def test_an_operator_answers_as_onnx_says(operator: str) -> None:
    checked = 0
    for case in cases()[operator]:
        for inputs, outputs in case.data_sets:
            arrays, expected = arrays_of(inputs), arrays_of(outputs)
            if arrays is None or expected is None or left_out(case.name):
                continue
            with torch.no_grad():
                answer = OnnxModule(case.model).run(*map(torch.from_numpy, arrays))
            for declared, wanted in zip(case.model.graph.output, expected, strict=True):
                given = answer[declared.name].numpy()
                assert (given.shape, given.dtype) == (wanted.shape, wanted.dtype), case.name
                loose = 2e-3 if wanted.dtype == np.float16 else case.rtol
                np.testing.assert_allclose(given.astype(float), wanted.astype(float), loose, 1e-5, err_msg=case.name)
            checked += 1
    assert checked > 0


def one_node(node: onnx.NodeProto, shape: list[int], constants: list[onnx.TensorProto], opset: int = 19) -> Any:
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def runtime(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    answer: np.ndarray = session.run(None, {"x": x})[0]
    return answer


def resizes() -> Iterator[tuple[dict[str, Any], tuple[int, int], list[onnx.TensorProto], list[str]]]:
    """Resizes up and down, by scales and to sizes, in every mode."""
    draw = random.Random(5)
    transforms = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric")
    for mode in ("nearest", "linear", "cubic"):
        for transform in transforms:
            for _ in range(10):
                attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": transform}
                if mode == "nearest":
                    attributes["nearest_mode"] = draw.choice(["round_prefer_floor", "floor", "ceil"])
                elif draw.random() < 0.3:
                    attributes["antialias"] = 1
                if mode == "cubic":
                    attributes |= {"exclude_outside": draw.randint(0, 1), "cubic_coeff_a": draw.choice([-0.75, -0.5])}
                height, width = draw.randint(3, 12), draw.randint(3, 12)
                if draw.random() < 0.5:
                    sizes = np.array([1, 2, draw.randint(1, 25), draw.randint(1, 25)], np.int64)
                    yield attributes, (height, width), [numpy_helper.from_array(sizes, "s")], ["x", "", "", "s"]
                else:
                    factors = [1, 1, draw.choice([0.5, 0.6, 2, 3]), draw.choice([0.5, 1, 1.5, 2.3])]
                    scales = np.array(factors, np.float32)
                    yield attributes, (height, width), [numpy_helper.from_array(scales, "s")], ["x", "", "s"]


def test_resize_computes_what_onnx_runtime_computes() -> None:
    rng = np.random.default_rng(0)
    for attributes, (height, width), constants, inputs in resizes():
        node = helper.make_node("Resize", inputs, ["y"], **attributes)
        model = one_node(node, [1, 2, height, width], constants)
        x = rng.normal(size=(1, 2, height, width)).astype(np.float32)
        with torch.no_grad():
            given = OnnxModule(model)(torch.from_numpy(x)).numpy()
        np.testing.assert_allclose(given, runtime(model, x), 1e-3, 2e-4, err_msg=f"{attributes} {height}x{width}")


@pytest.mark.parametrize("mode", ["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"])
def test_transposed_convolutions_with_every_padding(mode: str) -> None:
    draw, rng = random.Random(7), np.random.default_rng(1)
    for _ in range(12):
        group, stride, dilation = draw.choice([1, 2, 4]), draw.randint(1, 3), draw.randint(1, 2)
        kernel = draw.randint(stride, 4)  # ONNX Runtime does not fill up what a kernel shorter than its step leaves
        attributes: dict[str, Any] = {"strides": [stride] * 2, "dilations": [dilation] * 2, "group": group}
        if mode == "NOTSET":
            attributes["pads"] = [draw.randint(0, 1) for _ in range(4)]
            attributes["output_padding"] = [draw.randint(0, max(stride, dilation) - 1)] * 2
        else:
            attributes["auto_pad"] = mode
        weight = rng.normal(size=(4, 3, kernel, kernel)).astype(np.float32)
        bias = rng.normal(size=3 * group).astype(np.float32)
        constants = [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(bias, "b")]
        node = helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"], **attributes)
        model = one_node(node, [1, 4, 6, 5], constants)
        x = rng.normal(size=(1, 4, 6, 5)).astype(np.float32)
        wanted = runtime(model, x)
        with torch.no_grad():
            given = OnnxModule(model)(torch.from_numpy(x)).numpy()
        np.testing.assert_allclose(given, wanted, 1e-4, 1e-5, err_msg=str(attributes))


def test_average_pools_count_as_onnx_runtime_counts() -> None:
    draw, rng = random.Random(9), np.random.default_rng(2)
    for _ in range(30):
        kernel = draw.randint(2, 4)
        attributes = {
            "kernel_shape": [kernel] * 2,
            "strides": [draw.randint(1, 3)] * 2,
            "pads": [draw.randint(0, kernel - 1) for _ in range(4)],
            "ceil_mode": draw.randint(0, 1),
            "count_include_pad": draw.randint(0, 1),
        }
        for operator in ("AveragePool", "MaxPool"):
            own = {k: v for k, v in attributes.items() if operator == "AveragePool" or k != "count_include_pad"}
            model = one_node(helper.make_node(operator, ["x"], ["y"], **own), [1, 2, 9, 8], [])
            x = rng.normal(size=(1, 2, 9, 8)).astype(np.float32)
            with torch.no_grad():
                given = OnnxModule(model)(torch.from_numpy(x)).numpy()
            np.testing.assert_allclose(given, runtime(model, x), 1e-5, 1e-6, err_msg=f"{operator} {own}")


def test_global_lp_pool() -> None:
    model = one_node(helper.make_node("GlobalLpPool", ["x"], ["y"], p=3), [1, 2, 4, 5], [])
    x = np.random.default_rng(3).normal(size=(1, 2, 4, 5)).astype(np.float32)
    wanted = (np.abs(x) ** 3).sum((2, 3), keepdims=True) ** (1 / 3)
    np.testing.assert_allclose(OnnxModule(model)(torch.from_numpy(x)).numpy(), wanted, 1e-5)


def test_an_unknown_operator_is_one_error_that_names_node_and_operator() -> None:
    model = one_node(helper.make_node("Det", ["x"], ["y"], name="odd"), [1, 4, 4], [])
    with pytest.raises(ModelError, match=r"node odd: expected an operator that can be trained through here, got Det"):
        OnnxModule(model)


def test_a_node_that_cannot_run_names_itself_and_its_shapes() -> None:
    model = one_node(helper.make_node("Concat", ["x", "c"], ["y"], axis=1, name="join"), [1, 2, None, None],
                     [numpy_helper.from_array(np.zeros((1, 1, 3, 3), np.float32), "c")])  # fmt: skip
    with pytest.raises(ModelError, match=r"node join \(Concat\): expected to run on inputs of shape 1x2x4x4, 1x1x3x3"):
        OnnxModule(model)(torch.zeros(1, 2, 4, 4))
