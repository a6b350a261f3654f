"""``calib build --evaluate``: what would end it is found before hours of work, and the release is the one chosen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from calib.edges.progress import SilentProgress
from calib.errors import CalibError, ImageError, ManifestError, ModelError, UsageError
from calib.jobs.build import BuildRequest, BuildResult, build, run
from calib.jobs.verify import VerifyRequest, verify
from tests.evalsets import Evalset, colour_network, make_set, save


@pytest.fixture
def data(tmp_path: Path) -> Evalset:
    return make_set(tmp_path / "set", images=6, splits=("train", "val"), noise=60.0)


def deep_network(classes: int = 5) -> onnx.ModelProto:
    """The network of colours behind two convolutions that leave the picture as it is, so that there is INT8 in it."""
    model = colour_network(classes, outputs=("y",))
    eye = np.eye(3, dtype=np.float32)
    apart, back = np.concatenate([8 * eye, -8 * eye]), np.concatenate([eye, -eye], axis=1) / 8
    model.graph.initializer.extend(
        [
            numpy_helper.from_array(apart[..., None, None], "apart"),
            numpy_helper.from_array(back[..., None, None], "back"),
        ]
    )
    nodes = [
        helper.make_node("Conv", ["image", "apart"], ["x"]),
        helper.make_node("Relu", ["x"], ["y"]),
        helper.make_node("Conv", ["y", "back"], ["z"]),
    ]
    last = list(model.graph.node)
    last[0].input[0] = "z"
    del model.graph.node[:], model.graph.output[1:]
    model.graph.node.extend([*nodes, *last])
    return model


def request_for(data: Evalset, folder: Path, name: str = "net.onnx", **options: Any) -> BuildRequest:
    model = folder / name
    if not model.exists():
        save(deep_network(), model)
    return BuildRequest(
        model=model, data=str(data.manifest), output=folder / "out", split="train", num_images=4,
        samplers=("random",), **{"calibrators": ("percentile:percentile=60", "minmax"), "evaluate": "val", **options},
    )  # fmt: skip


def run_build(request: BuildRequest) -> BuildResult:
    return build(request, SilentProgress())


def test_a_model_named_like_a_calibrator_does_not_confuse_the_choice(data: Evalset, tmp_path: Path) -> None:
    result = run_build(request_for(data, tmp_path, "minmax.onnx"))
    evaluation = json.loads((tmp_path / "out/evaluation/evaluation.json").read_text())
    assert [model["name"] for model in evaluation["models"]] == ["minmax.onnx", "percentile", "minmax"]
    assert evaluation["reference"] == "minmax.onnx"
    assert result.provenance["evaluation"]["choice"]["name"] == "minmax"
    assert result.provenance["calibrators"][0]["name"] == "minmax"
    report = verify(VerifyRequest(tmp_path / "out", tmp_path / "minmax.onnx"), SilentProgress())
    assert report.passed


def unlabelled(data: Evalset) -> None:
    data.manifest.write_text(data.manifest.read_text().replace("    labels: labels/val/{stem}.png\n", ""))


def foreign(data: Evalset) -> None:
    key = next(key for key in data.keys if "val" in key)
    label = data.label(key)
    label[20, 20] = 77
    data.change_label(key, label)


def other_classes(data: Evalset) -> None:
    data.manifest.write_text(data.manifest.read_text().replace("- c4\n", "- c4\n- c5\n- c6\n"))


@pytest.mark.parametrize(
    ("spoil", "error", "words"),
    [
        (unlabelled, ManifestError, "a label for every image"),
        (foreign, ImageError, r"value 77 \(1 pixels\)"),
        (other_classes, ModelError, "a batch of 7 channels"),
    ],
)
def test_a_split_that_cannot_be_scored_is_told_before_a_network_is_run(
    data: Evalset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Any, error: type[CalibError], words: str
) -> None:
    spoil(data)
    monkeypatch.setattr(run, "_Job", None)
    with pytest.raises(error, match=words):
        run_build(request_for(data, tmp_path))


@pytest.mark.parametrize("option", ["evaluate", "evaluation_split"])
def test_the_split_calibrated_on_is_refused_by_the_name_of_its_option(
    data: Evalset, tmp_path: Path, option: str
) -> None:
    options: dict[str, Any] = {"evaluate": None} | {option: "train"}
    with pytest.raises(UsageError) as caught:
        run_build(request_for(data, tmp_path, **options))
    assert caught.value.place == f"--{option.replace('_', '-')} train"


def test_a_network_with_two_heads_is_scored_by_the_one_named(data: Evalset, tmp_path: Path) -> None:
    model = deep_network()
    model.graph.node.append(helper.make_node("Neg", ["logits"], ["against"]))
    model.graph.output.append(helper.make_tensor_value_info("against", onnx.TensorProto.FLOAT, [None, 5, None, None]))
    save(model, tmp_path / "net.onnx")
    with pytest.raises(UsageError, match="--output-name logits"):
        run_build(request_for(data, tmp_path))
    run_build(request_for(data, tmp_path, output_name="logits"))
    models = json.loads((tmp_path / "out/evaluation/evaluation.json").read_text())["models"]
    assert all(model["pixel_accuracy"] > 0.5 for model in models if model["name"] != "percentile")


def test_an_output_to_score_needs_a_split_to_score(data: Evalset, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--evaluate SPLIT"):
        run_build(request_for(data, tmp_path, evaluate=None, output_name="logits"))


def test_a_single_variant_is_measured_too(data: Evalset, tmp_path: Path) -> None:
    result = run_build(request_for(data, tmp_path, calibrators=("minmax",)))
    assert dict(result.summary())["measured"] == "on val; evaluation/evaluation.json has the numbers"
    assert (tmp_path / "out/evaluation/evaluation.html").exists()
