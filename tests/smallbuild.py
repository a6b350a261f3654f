"""A small network, data set and build folder on disk, for tests of what happens to a finished build."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import onnx

from calib.edges.progress import SilentProgress
from calib.jobs.build import BuildRequest, build

NETWORK = """
<ir_version: 8, opset_import: ["" : 13]>
net (float[N,3,24,32] image) => (float[N,3,24,32] logits)
{
  a = Conv <pads = [1,1,1,1]> (image, w0, b0)
  r = Relu (a)
  b = Conv <pads = [1,1,1,1], group = 8> (r, w1, b1)
  s = Add (b, r)
  t = Relu (s)
  d = Conv (t, w2)
  e = Relu (d)
  c = Conv (e, w3)
  logits = Identity (c)
}
"""
SHAPES = {"w0": (8, 3, 3, 3), "b0": (8,), "w1": (8, 1, 3, 3), "b1": (8,), "w2": (8, 8, 1, 1), "w3": (3, 8, 1, 1)}
MANIFEST = """
name: small
root: data
splits:
  train: {images: "images/train/*.png", labels: "labels/train/{stem}.png"}
  val: {images: "images/val/*.png", labels: "labels/val/{stem}.png"}
classes: [ground, thing, road]
label_format: index
preprocess: {colour: rgb, size: [24, 32], scale: 1/255, mean: [0.5], std: [0.25]}
"""


def write_network(path: Path, seed: int = 5) -> Path:
    """Write the network; another seed gives other weights under the same names."""
    parsed = onnx.parser.parse_model(NETWORK)
    rng = np.random.default_rng(seed)
    for name, shape in SHAPES.items():
        values = (rng.standard_normal(shape) / 3).astype(np.float32)
        parsed.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    onnx.save(parsed, path)
    return path


def write_data(folder: Path, images: int = 10) -> Path:
    """Write pictures with labels, a quarter as many again for evaluation, and the manifest."""
    rng = np.random.default_rng(1)
    for split, count in (("train", images), ("val", images // 2)):
        for index in range(count):
            pixels = (rng.random((24, 32, 3)) * 255 * (1 - index / images)).astype(np.uint8)
            label = np.zeros((24, 32), np.uint8)
            label[index : index + 6, 4:12], label[18:, :] = 1, 2
            for kind, data in (("images", pixels), ("labels", label)):
                path = folder / "data" / kind / split / f"{index:02}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                cv2.imwrite(str(path), data)
    path = folder / "set.yaml"
    path.write_text(MANIFEST)
    return path


def make_build(
    folder: Path,
    calibrators: Sequence[str] = ("percentile", "minmax", "per-channel:equalize=true"),
    seed: int = 5,
    evaluate: str | None = None,
    keep_float: Sequence[str] = (),
) -> Path:
    """Write network, data and a finished build ``out`` into a folder."""
    model = write_network(folder / "net.onnx", seed)
    manifest = write_data(folder)
    request = BuildRequest(
        model,
        str(manifest),
        folder / "out",
        split="train",
        samplers=("random",),
        num_images=6,
        calibrators=calibrators,
        evaluation_split="val",
        evaluate=evaluate,
        keep_float=keep_float,
    )
    build(request, SilentProgress())
    return folder / "out"
