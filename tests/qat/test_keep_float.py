"""Layers kept in float: those of the build that a training starts from, and those asked for."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

import calib.qat  # noqa: E402
from calib.edges.models import load_model  # noqa: E402
from calib.edges.progress import SilentProgress  # noqa: E402
from calib.errors import UsageError  # noqa: E402
from calib.jobs.build import BuildRequest  # noqa: E402
from calib.jobs.build import build as make  # noqa: E402
from calib.jobs.qat import QatRequest, run_qat  # noqa: E402
from calib.jobs.verify.request import VerifyRequest  # noqa: E402
from calib.jobs.verify.run import verify  # noqa: E402
from calib.stages.qdq import activation_ranges  # noqa: E402
from tests.evalsets import Evalset  # noqa: E402

FACTORY = "tests.qat.networks:Small"


def quantized_inputs(path: Path) -> set[str]:
    return set(activation_ranges(load_model(path)))


def first_layer(path: Path) -> tuple[str, str]:
    """Name of the first convolution's output, and of its input."""
    node = next(node for node in onnx.load(path).graph.node if node.op_type == "Conv")
    return node.output[0], node.input[0]


def test_the_builds_layers_stay_in_float_under_training_too(
    data: Evalset, weights: Path, exported: Path, tmp_path: Path
) -> None:
    made, read = first_layer(exported)
    kept = BuildRequest(
        exported, str(data.manifest), tmp_path / "build", split="train", num_images=4, calibrators=("minmax",),
        keep_float=(made,),
    )  # fmt: skip
    make(kept, SilentProgress())
    request = QatRequest(
        FACTORY, str(data.manifest), tmp_path / "qat", weights, init=str(tmp_path / "build"), steps=2, batch_size=4,
        val_split="val", control=False, workers=2,
    )  # fmt: skip
    run_qat(request, SilentProgress())
    found = quantized_inputs(tmp_path / "qat" / "qat.qdq.onnx")
    assert found == quantized_inputs(tmp_path / "build" / "minmax.qdq.onnx")
    assert read not in found
    result = verify(VerifyRequest(tmp_path / "qat", tmp_path / "qat" / "float.onnx", workers=1), SilentProgress())
    assert result.passed, [item for item in result.checks if item.status == "fail"]
    recorded = json.loads((tmp_path / "qat" / "provenance.json").read_bytes())
    assert recorded["training"]["float_nodes"]
    assert made in recorded["request"]["start"]

    example = torch.zeros(1, 3, 32, 48)
    module = calib.qat.prepare(exported, tmp_path / "build", example=example)
    calib.qat.export(module.eval(), tmp_path / "own.onnx")
    assert quantized_inputs(tmp_path / "own.onnx") == found


def test_layers_may_be_asked_for_where_there_is_no_build(data: Evalset, exported: Path, tmp_path: Path) -> None:
    made, read = first_layer(exported)
    listed = tmp_path / "keep.txt"
    listed.write_text(f"# too dear\n{made}\n")
    request = QatRequest(
        str(exported), str(data.manifest), tmp_path / "qat", steps=1, batch_size=4, val_split="val", control=False,
        workers=2, keep_float=(f"@{listed}",),
    )  # fmt: skip
    run_qat(request, SilentProgress())
    assert read not in quantized_inputs(tmp_path / "qat" / "qat.qdq.onnx")
    assert read not in quantized_inputs(tmp_path / "qat" / "ptq" / "entropy.qdq.onnx")


def test_a_pattern_that_names_nothing_is_refused_before_anything_is_calibrated(
    data: Evalset, exported: Path, tmp_path: Path
) -> None:
    request = QatRequest(
        str(exported), str(data.manifest), tmp_path / "qat", steps=1, val_split="val", keep_float=("nothing.*",)
    )
    with pytest.raises(UsageError, match="nothing"):
        run_qat(request, SilentProgress())
    assert not (tmp_path / "qat" / "ptq").exists()
