"""PyTorch references: every operator of one run against the ONNX candidate."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from calib.edges.runners.torchtrace import trace_module
from calib.errors import ModelError
from calib.stages.diagnose.examine import examine
from calib.stages.diagnose.trace import Trace
from tests.diagnose import edits
from tests.diagnose.faults import RUNTIME, load_sound

torch = pytest.importorskip("torch", reason="needs PyTorch")
NETS = {"deeplabv3plus_mnv2": "DeepLabV3Plus", "unetpp_se": "UNetPlusPlusSE"}


def module_of(shared: Path, name: str) -> Any:
    sys.path.insert(0, str(shared / "models"))
    try:
        import camvid_nets
    finally:
        sys.path.pop(0)
    made = getattr(camvid_nets, NETS[name])()
    made.load_state_dict(torch.load(shared / f"models/{name}.pt", weights_only=True))
    return made.eval()


def traced(shared: Path, name: str, module: Any = None) -> tuple[Trace, onnx.ModelProto, dict[str, np.ndarray]]:
    sound = load_sound(shared, name)
    return trace_module(module or module_of(shared, name), sound.feeds[0], name), sound.model, sound.feeds[0]


@pytest.mark.parametrize("name", NETS)
def test_the_export_agrees_with_its_module(shared: Path, name: str) -> None:
    trace, model, feeds = traced(shared, name)
    found = examine(trace, model, [feeds], RUNTIME)
    assert [cause.title for cause in found.causes] == []
    assert len(found.comparison.alignment.matches) == len(found.candidate.steps) + 1


@pytest.mark.parametrize(
    ("name", "edit", "arguments"),
    [
        ("deeplabv3plus_mnv2", edits.resize_mode, (0.99,)),
        ("deeplabv3plus_mnv2", edits.weights, (0.5, "permute")),
        ("deeplabv3plus_mnv2", edits.dropped_activation, (0.5, "Clip")),
        ("deeplabv3plus_mnv2", edits.dilation, (0.3,)),
        ("unetpp_se", edits.concat_order, (0.5,)),
        ("unetpp_se", edits.bias_lost, (0.5,)),
    ],
)
def test_a_fault_of_the_export_is_named(shared: Path, name: str, edit: Any, arguments: tuple[Any, ...]) -> None:
    trace, model, feeds = traced(shared, name)
    planted = edit(model, *arguments)
    found = examine(trace, planted.model, [feeds], RUNTIME)
    assert found.causes[0].stage == "export"
    assert found.causes[0].kind in planted.kinds


def test_another_epsilon_is_worked_out_of_the_folded_weights(shared: Path) -> None:
    module = module_of(shared, "deeplabv3plus_mnv2")
    norms = [part for part in module.modules() if isinstance(part, torch.nn.BatchNorm2d)]
    norms[5].eps = 1e-2
    trace, model, feeds = traced(shared, "deeplabv3plus_mnv2", module)
    found = examine(trace, model, [feeds], RUNTIME)
    assert [cause.kind for cause in found.causes] == ["bn-epsilon"]
    assert found.causes[0].details["folded"] == pytest.approx(1e-5, rel=0.05)


def test_in_place_operators_and_views_keep_their_values() -> None:
    class Net(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any) -> Any:
            y = x * 2
            z = y.clone()
            return torch.relu_(y).view(1, -1) + z.reshape(1, -1)

    x = np.random.default_rng(0).normal(0, 1, (1, 3, 4, 4)).astype(np.float32)
    trace = trace_module(Net(), {"x": x}, "net")
    assert [step.kind for step in trace.steps] == ["Mul", "Relu", "Reshape", "Reshape", "Add"]
    assert np.array_equal(trace.values[trace.steps[0].outputs[0]], x * 2)
    assert np.array_equal(trace.values[trace.steps[1].outputs[0]], np.maximum(x * 2, 0))


def test_a_module_that_fails_says_how() -> None:
    with pytest.raises(ModelError, match="RuntimeError"):
        trace_module(torch.nn.Conv2d(5, 1, 3), {"x": np.zeros((1, 3, 8, 8), np.float32)}, "net")
