"""A real network on real frames, against scikit-learn and a resize of its own."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import onnxruntime
import pytest
from sklearn.metrics import confusion_matrix

from calib.jobs.evaluate import evaluate
from tests.core.test_upsample import resize
from tests.evalsets import prepare


def test_camvid_frames_equal_scikit_learn(shared: Path, repository: Path, tmp_path: Path) -> None:
    frames = sorted((shared / "camvid" / "images" / "val").glob("*.jpg"))[::20]
    rows = [f"images/val/{frame.name},labels/val/{frame.stem}.png" for frame in frames]
    (tmp_path / "frames.csv").write_text("\n".join(["image,label", *rows]))
    manifest = (repository / "data_manifests" / "camvid.yaml").read_text()
    head, _, rest = manifest.partition("splits:")
    body = rest.split("\n", 3)[3]
    text = f"{head}splits:\n  few: {{list: {tmp_path / 'frames.csv'}}}\n{body}"
    (tmp_path / "few.yaml").write_text(text)
    network = shared / "models" / "deeplabv3plus_mnv2.onnx"
    model = evaluate(
        network, tmp_path / "few.yaml", output=tmp_path / "out", split="few", root=str(shared / "camvid"),
        resamples=100, pictures=0,
    )["models"][0]  # fmt: skip
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(network), options, providers=["CPUExecutionProvider"])
    total = np.zeros((11, 11), np.int64)
    for frame in frames:
        label = cv2.imread(str(shared / "camvid" / "labels" / "val" / f"{frame.stem}.png"), cv2.IMREAD_UNCHANGED)
        pixels = cv2.cvtColor(cv2.imread(str(frame)), cv2.COLOR_BGR2RGB)
        logits = session.run(None, {"image": prepare(pixels, (352, 480))})[0][0]
        predicted = resize(logits.astype(np.float64), *label.shape).argmax(0)
        total += confusion_matrix(label[label != 11], predicted[label != 11], labels=range(11))
    right = np.diag(total)
    union = total.sum(0) + total.sum(1) - right
    expected = [float(r / u) if n else None for r, u, n in zip(right, union, total.sum(1), strict=True)]
    assert list(model["per_class"].values()) == pytest.approx(expected, abs=1e-9)
    assert model["miou"] == pytest.approx(np.mean([value for value in expected if value is not None]), abs=1e-9)
    assert 0.6 < model["miou"] < 0.9
