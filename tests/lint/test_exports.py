"""No false alarm on what PyTorch exports: building blocks through both exporters, the networks of the shared folder."""

from __future__ import annotations

import io
import logging
import warnings
from pathlib import Path

import onnx
import pytest

from calib.core.graph import analyse
from calib.core.lint.engine import lint_model
from calib.core.lint.rule import Finding
from calib.core.plan import TARGETS
from calib.edges.models import load_model
from calib.stages.qdq import quantize_model
from tests.graphs import feeds, minmax

BLOCKS = (
    "bottleneck", "inverted_residual", "aspp", "pyramid_pooling", "fpn", "unet", "segformer", "encoder_layer",
    "group_norm", "pixel_shuffle", "flow_warp", "convnext",
)  # fmt: skip
OPSETS = (11, 13, 17, 18, 20)
TRUE = {("flow_warp", 20): {"gridsample-opset"}}
"""Warnings that are right: GridSample of opset 20 is sampled to the nearest by TensorRT."""
FIRST = {"flow_warp": 16, "encoder_layer": 14}
"""First opset that the older exporter has GridSample, or fused attention, for."""
NETWORKS = (
    "models/deeplabv3plus_mnv2", "models/unetpp_se", "cases/models/selfie_nhwc_opset11",
    "cases/models/sinet_softmax_opset12", "cases/models/twinlitenet_opset14", "cases/models/unet_small_opset18",
)  # fmt: skip


def of(findings: tuple[Finding, ...], severity: str) -> set[str]:
    return {item.rule.id for item in findings if item.severity == severity}


def export(name: str, opset: int, *, dynamo: bool) -> onnx.ModelProto | None:
    """Export a block; None where the exporter has no such opset for it."""
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    if dynamo:
        pytest.importorskip("onnxscript", reason="needs onnxscript")
    from tests.lint.blocks import SIZE, build

    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            torch.onnx.export(
                build(name), (torch.zeros(1, 3, SIZE, SIZE),), stream, opset_version=opset, dynamo=dynamo, verbose=False
            )
        except torch.onnx.errors.UnsupportedOperatorError:
            return None
        finally:
            logging.disable(logging.NOTSET)
    return onnx.load_from_string(stream.getvalue())


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_through_the_torchscript_exporter(name: str) -> None:
    seen = 0
    for opset in OPSETS:
        graph = export(name, opset, dynamo=False)
        if graph is None:
            assert opset < FIRST[name]
            continue
        found = lint_model(graph)
        assert of(found, "error") == set(), opset
        assert of(found, "warning") == TRUE.get((name, opset), set()), opset
        seen += 1
    assert seen >= 3


@pytest.mark.parametrize("opset", [18, 20])
@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_through_the_dynamo_exporter(name: str, opset: int) -> None:
    graph = export(name, opset, dynamo=True)
    assert graph is not None
    found = lint_model(graph)
    assert of(found, "error") == set()
    assert of(found, "warning") == TRUE.get((name, opset), set())


@pytest.mark.parametrize("path", NETWORKS)
def test_networks_have_no_error(path: str, shared: Path) -> None:
    found = lint_model(load_model(shared / f"{path}.onnx"))
    assert of(found, "error") == set()
    expected = {"sinet_softmax_opset12": {"initializer-inputs"}, "twinlitenet_opset14": {"dead-channels"}}
    assert of(found, "warning") == expected.get(Path(path).name, set())


def check_own_output(graph: onnx.ModelProto, true: set[str]) -> None:
    """What calib makes of a network has no finding of its own."""
    amax = minmax(graph, feeds(graph, size=1))
    assert amax.keys() == {item.name for item in analyse(graph).activations}
    for target in TARGETS:
        found = lint_model(quantize_model(graph, amax, target).model)
        assert of(found, "error") == set()
        assert of(found, "warning") <= true, target
        own = {item for item in of(found, "note") if item.startswith("qdq-") or "batchnorm" in item}
        assert own <= {"qdq-calibrator"}


@pytest.mark.parametrize("path", NETWORKS)
def test_networks_that_calib_quantizes_have_no_warning(path: str, shared: Path) -> None:
    """Values beyond float16 are the network's: random numbers are no picture to it."""
    graph = load_model(shared / f"{path}.onnx")
    check_own_output(graph, {"fp16-range"})


@pytest.mark.parametrize("opset", [11, 13, 17, 20])
@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_that_calib_quantizes_have_no_warning(name: str, opset: int) -> None:
    graph = export(name, opset, dynamo=False)
    if graph is None:
        assert opset < FIRST[name]
        return
    check_own_output(graph, TRUE.get((name, max(opset, 13)), set()))
