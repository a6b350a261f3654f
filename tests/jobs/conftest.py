"""Networks and data sets for tests of whole jobs."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import onnx
import pytest

from calib.jobs.build import BuildRequest
from tests.builds import IMAGES, write_pictures

NETWORK = """
<ir_version: 8, opset_import: ["" : 13]>
net (float[N,3,24,32] image) => (float[N,3,24,32] logits)
{
  a = Conv <pads = [1,1,1,1]> (image, w0, b0)
  r = Relu (a)
  b = Conv <pads = [1,1,1,1], group = 8> (r, w1)
  s = Add (b, r)
  c = Conv (s, w2)
  logits = Identity (c)
}
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A small network with a depthwise convolution and a residual addition."""
    parsed = onnx.parser.parse_model(NETWORK)
    rng = np.random.default_rng(5)
    shapes = {"w0": (8, 3, 3, 3), "b0": (8,), "w1": (8, 1, 3, 3), "w2": (3, 8, 1, 1)}
    for name, shape in shapes.items():
        values = rng.standard_normal(shape).astype(np.float32) / 3
        parsed.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    path = tmp_path / "net.onnx"
    onnx.save(parsed, path)
    return path


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """Fourteen pictures, darker and darker, with labels of three classes; two more in another split."""
    rng = np.random.default_rng(1)
    for split, count in (("train", IMAGES), ("val", 2)):
        for index in range(count):
            light = 1 - index / IMAGES
            pixels = (rng.random((24, 32, 3)) * 255 * light).astype(np.uint8)
            label = np.zeros((24, 32), np.uint8)
            label[index : index + 6, 4:12], label[18:, :] = 1, 2
            for folder, data in (("images", pixels), ("labels", label)):
                path = tmp_path / "data" / folder / split / f"{index:02}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                cv2.imwrite(str(path), data)
    path = tmp_path / "set.yaml"
    path.write_text(
        """
        name: small
        root: data
        splits:
          train: {images: "images/train/*.png", labels: "labels/train/{stem}.png"}
          val: {images: "images/val/*.png", labels: "labels/val/{stem}.png"}
        classes: [ground, thing, road]
        label_format: index
        preprocess: {colour: rgb, size: [24, 32], scale: 1/255, mean: [0.5], std: [0.25]}
        """
    )
    return path


@pytest.fixture
def request_(model: Path, manifest: Path, tmp_path: Path) -> BuildRequest:
    return BuildRequest(model, str(manifest), tmp_path / "out", split="train", samplers=("random",), num_images=8)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Six pictures and a manifest over them, without preprocessing."""
    write_pictures(tmp_path / "data")
    manifest = tmp_path / "set.yaml"
    manifest.write_text("name: set\nroot: data\nsplits: {all: {images: '*.png'}}\n")
    return manifest
