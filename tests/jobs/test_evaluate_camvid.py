"""Real networks on real frames, against ONNX Runtime alone, a resize of its own and scikit-learn."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnxruntime
import pytest
import yaml
from sklearn.metrics import confusion_matrix

from calib.edges.progress import SilentProgress
from calib.jobs.build import BuildRequest, build
from calib.jobs.evaluate import evaluate
from tests.core.test_upsample import resize
from tests.evalsets import prepare

CLASSES, VOID, DARK = 11, 11, 32
SEQUENCES = {"dusk": "0001TP", "day": "0006R0"}


@pytest.fixture(scope="module")
def camvid(shared: Path, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A manifest of two splits of a few frames: to calibrate on, and to evaluate on, by day and at dusk."""
    folder = tmp_path_factory.mktemp("camvid")
    frames = sorted((shared / "camvid" / "images").glob("*/*.jpg"))
    dusk, day = ([frame for frame in frames if name in frame.name] for name in SEQUENCES.values())
    held = [frame for frame in frames if frame.parent.name == "val"]
    splits = {"few": [*held[::34], *dusk[::20], *day[7::33]], "others": [*dusk[5::40], *day[20::60]]}
    manifest = yaml.safe_load((repository / "data_manifests" / "camvid.yaml").read_text(encoding="utf-8"))
    for split, listed in splits.items():
        names = [f"{frame.parent.name}/{frame.stem}" for frame in listed]
        rows = [f"images/{name}.jpg,labels/{name}.png" for name in names]
        (folder / f"{split}.csv").write_text("\n".join(["image,label", *rows]))
    manifest["root"] = str(shared / "camvid")
    manifest["splits"] = {split: {"list": str(folder / f"{split}.csv")} for split in splits}
    (folder / "camvid.yaml").write_text(yaml.safe_dump(manifest))
    return folder / "camvid.yaml"


def matrices(network: str, root: Path, keys: list[str]) -> dict[str, np.ndarray]:
    """Confusion matrices of each frame, int64 ``[2, K, K]``: of all pixels, and of the dark ones alone."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(network, options, providers=["CPUExecutionProvider"])
    found = {}
    for key in keys:
        label = cv2.imread(str(root / key.replace("images", "labels").replace(".jpg", ".png")), cv2.IMREAD_UNCHANGED)
        pixels = cv2.cvtColor(cv2.imread(str(root / key)), cv2.COLOR_BGR2RGB)
        logits = session.run(None, {"image": prepare(pixels, (352, 480))})[0][0]
        predicted = resize(logits.astype(np.float64), *label.shape).argmax(0)
        scored = label != VOID
        dark = scored & (cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY) < DARK)
        found[key] = np.array([counted(label[kept], predicted[kept]) for kept in (scored, dark)])
    return found


def counted(label: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    if not label.size:  # scikit-learn refuses to count nothing
        return np.zeros((CLASSES, CLASSES), np.int64)
    return np.asarray(confusion_matrix(label, predicted, labels=range(CLASSES)))


def iou(matrix: np.ndarray) -> list[float | None]:
    right = np.diag(matrix)
    union = matrix.sum(0) + matrix.sum(1) - right
    return [float(r / u) if n else None for r, u, n in zip(right, union, matrix.sum(1), strict=True)]


def members(folder: Path, model: str) -> dict[str, list[str]]:
    """Images of each slice, from the table; all of them under ``""``."""
    found: dict[str, list[str]] = {"": []}
    with (folder / "evaluation_images.csv").open(newline="") as stream:
        for line in csv.DictReader(stream):
            if line["model"] == model:
                found[""].append(line["image"])
                for column, value in line.items():
                    if column.startswith("slice:") and value == "1":
                        found.setdefault(column.removeprefix("slice:"), []).append(line["image"])
    return found


@pytest.mark.parametrize("calibrators", [(), ("minmax", "percentile")], ids=["float", "variants"])
def test_every_class_and_slice_equals_scikit_learn(
    camvid: Path, shared: Path, tmp_path: Path, calibrators: tuple[str, ...]
) -> None:
    network = shared / "models" / "deeplabv3plus_mnv2.onnx"
    arguments: dict[str, Any] = {"split": "few", "resamples": 100, "pictures": 0, "slices": ["bright=luma_mean>90"]}
    if calibrators:
        build(
            BuildRequest(
                model=network, data=str(camvid), output=tmp_path / "build", split="others", samplers=("random",),
                num_images=3, calibrators=calibrators,
            ),
            SilentProgress(),
        )  # fmt: skip
        arguments["reference"] = str(network)
    models = evaluate(tmp_path / "build" if calibrators else network, camvid, output=tmp_path / "out", **arguments)[
        "models"
    ]
    assert [model["name"] for model in models] == ["deeplabv3plus_mnv2", *calibrators]
    listed = members(tmp_path / "out", models[0]["name"])
    assert {"dark", "dark-pixels", "bright", "small-objects", "edges", "sequence=0001TP"} <= set(listed)
    for model in models:
        frames = matrices(model["path"], shared / "camvid", listed[""])
        for name, keys in listed.items():
            expected = iou(sum(frames[key][int(name == "dark-pixels")] for key in keys))
            found = model["slices"][name] if name else model
            assert list(found["per_class"].values()) == pytest.approx(expected, abs=1e-9)
            assert found["miou"] == pytest.approx(np.mean([v for v in expected if v is not None]), abs=1e-9)
        assert 0.5 < model["miou"] < 0.95
