"""Public reports of accuracy lost between PyTorch, ONNX and TensorRT, as small networks."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import onnx
import pytest

from calib.core.resizespec import ResizeSpec, axis_matrix, resize
from calib.stages.diagnose.halfcheck import check_half
from calib.stages.diagnose.oracles import disagreements
from tests.diagnose.faults import RUNTIME
from tests.diagnose.nets import examined, net, node, noise, traced


def resized(size: tuple[int, ...], **attributes: object) -> onnx.ModelProto:
    nodes = [node("Resize", ["x", "", "", "sizes"], "y", **attributes)]
    return net(nodes, [1, 1, None, None], {"sizes": np.array(size, np.int64)})  # type: ignore[list-item]


def scaled(scales: tuple[float, ...], **attributes: object) -> onnx.ModelProto:
    nodes = [node("Resize", ["x", "", "scales"], "y", **attributes)]
    return net(nodes, [1, 1, None, None], {"scales": np.array(scales, np.float32)})  # type: ignore[list-item]


def ramp(width: int) -> np.ndarray:
    return np.arange(width, dtype=np.float32).reshape(1, 1, 1, width)


def test_a1_2_a_tie_that_the_runtime_rounds_the_other_way_is_its_rounding() -> None:
    model = resized(
        (1, 1, 1, 6), mode="nearest", coordinate_transformation_mode="half_pixel", nearest_mode="round_prefer_ceil"
    )
    trace = traced(model, ramp(20))
    exact = axis_matrix(ResizeSpec("nearest", "half_pixel", "round_prefer_ceil"), 20, 6)
    assert exact is not None
    assert int(exact[4].argmax()) == 15
    found = disagreements(trace, RUNTIME)
    if trace.values["y"].reshape(-1)[4] == 15:
        assert found == []  # a runtime that rounds as specified
        return
    assert [item.kind for item in found] == ["Resize"]
    assert (found[0].runtime, found[0].specification) == (14, 15)
    assert "the specification is right" in found[0].words


def test_a1_2_two_nodes_that_are_one_by_the_specification_are_no_export_fault() -> None:
    common = {"mode": "nearest", "coordinate_transformation_mode": "half_pixel"}
    reference = resized((1, 1, 1, 10), nearest_mode="round_prefer_floor", **common)
    candidate = resized((1, 1, 1, 10), nearest_mode="round_prefer_ceil", **common)
    found = examined(reference, candidate, ramp(30))  # odd factor: no tie, so both sample the same
    assert [cause.kind for cause in found.causes if cause.stage == "export"] == []


def test_a1_4_a_float32_scale_moves_a_sample_and_is_counted() -> None:
    model = scaled(
        (1, 1, 1, 64 / 26), mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    )
    trace = traced(model, ramp(26))
    exact = axis_matrix(ResizeSpec("nearest", "asymmetric", "floor"), 26, 64, Fraction(64, 26))
    assert exact is not None
    assert int(exact[32].argmax()) == 13
    answered = trace.values["y"].reshape(-1)[32]
    found = disagreements(trace, RUNTIME)
    assert (found == []) == (answered == 13)
    if found:
        assert found[0].share == pytest.approx(1 / 64)
    for before, after in ((32, 64), (10, 25)):
        clean = scaled(
            (1, 1, 1, after / before), mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
        )
        assert disagreements(traced(clean, ramp(before)), RUNTIME) == []


@pytest.mark.parametrize("case", ["A1-5", "A1-7"])
def test_a1_5_a1_7_asymmetric_against_half_pixel_is_named(case: str) -> None:
    size = (1, 1, 8, 8) if case == "A1-5" else (1, 1, 10, 10)
    reference = resized(size, mode="linear", coordinate_transformation_mode="half_pixel")
    candidate = resized(size, mode="linear", coordinate_transformation_mode="asymmetric")
    found = examined(reference, candidate, noise(1, 1, 4, 4))
    assert [(cause.kind, cause.stage) for cause in found.causes] == [("resize-mode", "export")]
    assert "asymmetric instead of half_pixel" in found.causes[0].title


def test_a1_10_a_lost_row_is_told_with_both_sizes() -> None:
    spec = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
    reference = resized((1, 1, 120, 120), **spec)
    candidate = resized((1, 1, 119, 119), **spec)
    found = examined(reference, candidate, noise(1, 1, 88, 88))
    assert found.causes[0].kind == "resize-size"
    assert "119" in found.causes[0].title
    assert "120" in found.causes[0].title


def test_a1_14_exported_statistics_are_compared() -> None:
    names = ["scale", "shift", "mean", "variance"]
    nodes = [node("BatchNormalization", ["x", *names], "n"), node("Relu", ["n"], "y")]
    weights = {"scale": np.ones(3), "shift": np.zeros(3), "mean": np.array([0.1, 0.2, 0.3]), "variance": np.ones(3)}
    sound = {name: np.asarray(value, np.float32) for name, value in weights.items()}
    batch = sound | {"mean": np.zeros(3, np.float32)}
    found = examined(net(nodes, [1, 3, 9, 9], sound), net(nodes, [1, 3, 9, 9], batch), noise(1, 3, 9, 9))
    assert [cause.kind for cause in found.causes] == ["bn-statistics"]
    assert "mean" in found.causes[0].title


def test_a1_16_a1_17_a1_19_values_beyond_float16_are_located() -> None:
    nodes = [
        node("Mul", ["x", "large"], "wide"),
        node("Mul", ["wide", "wide"], "square"),
        node("Sqrt", ["square"], "root"),
        node("Mul", ["root", "small"], "y"),
    ]
    weights = {"large": np.array(940, np.float32), "small": np.array(1 / 940, np.float32)}
    model = net(nodes, [1, 2, 8, 8], weights)
    x = np.abs(noise(1, 2, 8, 8)) + 1
    wanted = traced(model, x).values["y"]
    found = check_half(model, {"x": x}, wanted, "y", RUNTIME)
    assert found.falls
    assert found.overflows[0].node == "Mul_square"


def test_a1_26_a_dropped_output_padding_is_named_with_both_shapes() -> None:
    weights = {"w": noise(4, 3, 3, 3)}
    common = {"strides": [2, 2], "pads": [1, 1, 1, 1]}
    reference = net([node("ConvTranspose", ["x", "w"], "y", output_padding=[1, 1], **common)], [1, 4, 28, 28], weights)
    candidate = net([node("ConvTranspose", ["x", "w"], "y", **common)], [1, 4, 28, 28], weights)
    found = examined(reference, candidate, noise(1, 4, 28, 28))
    assert found.causes[0].kind == "output-padding"
    assert any("55" in line and "56" in line for line in found.causes[0].evidence)


def test_a1_29_an_edited_opset_number_is_named() -> None:
    nodes = [node("Relu", ["x"], "r"), node("Softmax", ["r"], "y", axis=1)]
    reference, candidate = (net(nodes, [2, 3, 4], opset=opset) for opset in (12, 13))
    found = examined(reference, candidate, noise(2, 3, 4))
    assert [cause.kind for cause in found.causes] == ["opset-edited"]


def test_the_exact_resize_agrees_with_the_reference_evaluator() -> None:
    from onnx.reference import ReferenceEvaluator

    x = noise(1, 2, 7, 9)
    for mode in ("linear", "cubic"):
        for coordinates in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"):
            model = net(
                [node("Resize", ["x", "", "", "s"], "y", mode=mode, coordinate_transformation_mode=coordinates)],
                [1, 2, 7, 9],
                {"s": np.array([1, 2, 15, 4], np.int64)},
            )
            wanted = np.asarray(ReferenceEvaluator(model).run(None, {"x": x})[0])
            own = resize(x, ResizeSpec(mode, coordinates), (1, 2, 15, 4))
            assert own is not None
            assert np.abs(own - wanted).max() < 1e-5, (mode, coordinates)
