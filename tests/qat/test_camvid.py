"""A real network, trained for a few steps on a CPU at reduced size."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from calib.edges.feeds import FeedReader, bind_dataset  # noqa: E402
from calib.edges.manifest import load_dataset  # noqa: E402
from calib.edges.models import load_model  # noqa: E402
from calib.edges.progress import SilentProgress  # noqa: E402
from calib.edges.qat.module import OnnxModule  # noqa: E402
from calib.jobs.qat import QatRequest, run_qat  # noqa: E402
from calib.jobs.qat.preparing import plan_model  # noqa: E402
from calib.stages.qdq import activation_ranges  # noqa: E402

MANIFEST = """
name: small-camvid
root: {root}
splits:
  train: {{images: "images/train/*1?50.jpg", labels: "labels/train/{{stem}}.png"}}
  val: {{images: "images/val/*[579]9.jpg", labels: "labels/val/{{stem}}.png"}}
classes: [Sky, Building, Pole, Road, Pavement, Tree, SignSymbol, Fence, Car, Pedestrian, Bicyclist]
ignore_index: 11
label_format: index
preprocess:
  {{colour: rgb, size: [96, 128], scale: 1/255, mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}}
"""


def test_a_real_network_is_trained_on_a_cpu(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime

    monkeypatch.syspath_prepend(str(shared / "models"))
    (tmp_path / "set.yaml").write_text(MANIFEST.format(root=shared / "camvid"))
    request = QatRequest(
        model="camvid_nets:DeepLabV3Plus", weights=shared / "models" / "deeplabv3plus_mnv2.pt",
        data=str(tmp_path / "set.yaml"), output=tmp_path / "out", steps=4, batch_size=2, lr=5e-5, val_split="val",
        calibrator="minmax", workers=1,
    )  # fmt: skip
    run_qat(request, SilentProgress())
    document = json.loads((tmp_path / "out" / "training.json").read_bytes())
    curve = document["qat"]["curve"]
    assert curve[-1]["miou"] > curve[0]["miou"] - 0.01
    model = load_model(tmp_path / "out" / "qat.qdq.onnx")
    amax = activation_ranges(model)
    assert len(amax) > 50
    twin = load_model(tmp_path / "out" / "qat.float.onnx")
    network = OnnxModule(*plan_model(twin, amax, "trt11"))
    dataset = load_dataset(str(tmp_path / "set.yaml"), "val")
    reader = FeedReader(dataset, bind_dataset(network.network, dataset, "net"))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    agreeing, pixels = 0, 0
    for record in dataset.records:
        x = reader.load(record.key)["image"]
        wanted = session.run(None, {"image": x})[0].argmax(1)
        with torch.no_grad():
            agreeing += int((network(torch.from_numpy(x)).numpy().argmax(1) == wanted).sum())
        pixels += wanted.size
    assert agreeing / pixels >= 0.999
