"""Small labelled data sets whose classes have colours, and networks that tell these colours apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import onnx
import yaml
from onnx import helper, numpy_helper

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def blobs(classes: int, size: tuple[int, int], seed: int, cell: int = 7) -> np.ndarray:
    """A class map of patches with a few stray pixels, uint8 or uint16 ``[H, W]``."""
    rng = np.random.default_rng(seed)
    dtype = np.uint8 if classes <= 254 else np.uint16
    coarse = rng.integers(0, classes, (size[0] // cell + 2, size[1] // cell + 2)).astype(dtype)
    ids = np.repeat(np.repeat(coarse, cell, axis=0), cell, axis=1)[: size[0], : size[1]].copy()
    stray = rng.random(size) < 0.02
    ids[stray] = rng.integers(0, classes, int(stray.sum()))
    return ids


def colours(classes: int) -> np.ndarray:
    """A colour a class, without symmetries that would make logits equal, uint8 ``[classes, 3]``."""
    rng = np.random.default_rng(17)
    steps = max(int(np.ceil(classes ** (1 / 3))), 2)
    grid = np.stack(np.meshgrid(*[np.linspace(20, 235, steps)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    return (rng.permutation(grid)[:classes] + rng.uniform(-9, 9, (classes, 3))).round().astype(np.uint8)


@dataclass(frozen=True)
class Evalset:
    """A data set on disk."""

    manifest: Path
    classes: int
    keys: tuple[str, ...]

    def pixels(self, key: str) -> np.ndarray:
        """RGB of an image."""
        return cv2.cvtColor(cv2.imread(str(self.manifest.parent / key)), cv2.COLOR_BGR2RGB)

    def label(self, key: str) -> np.ndarray:
        """Raw label values."""
        path = self.manifest.parent / key.replace("images", "labels")
        return cv2.imread(str(path), cv2.IMREAD_UNCHANGED)

    def change_label(self, key: str, label: np.ndarray) -> None:
        """Replace a label."""
        cv2.imwrite(str(self.manifest.parent / key.replace("images", "labels")), label)


def make_set(
    folder: Path,
    *,
    classes: int = 5,
    images: int = 12,
    size: tuple[int, int] = (40, 56),
    ignore: int | None = 255,
    noise: float = 40.0,
    preprocess: Mapping[str, object] | None = None,
    splits: Sequence[str] = ("val",),
) -> Evalset:
    """Write images, labels and a manifest; images come from sequences ``a`` and ``b``, those of ``b`` are darker."""
    rng = np.random.default_rng(classes)
    table, keys = colours(classes), []
    for split in splits:
        for kind in ("images", "labels"):
            (folder / kind / split).mkdir(parents=True, exist_ok=True)
        for number in range(images):
            ids = blobs(classes, size, seed=1000 * len(keys) + number)
            light = 1.0 if number % 3 else 0.35
            pixels = table[ids] * light + rng.normal(0, noise, (*size, 3))
            label = ids.copy()
            if ignore is not None and 0 <= ignore <= np.iinfo(ids.dtype).max:
                label[:3] = ignore
            name = f"{'a' if number % 3 else 'b'}_{number:03}.png"
            picture = cv2.cvtColor(np.clip(pixels, 0, 255).astype(np.uint8), cv2.COLOR_RGB2BGR)
            cv2.imwrite(str(folder / "images" / split / name), picture)
            cv2.imwrite(str(folder / "labels" / split / name), label)
            keys.append(f"images/{split}/{name}")
    manifest = {
        "name": "patches",
        "root": ".",
        "splits": {s: {"images": f"images/{s}/*.png", "labels": f"labels/{s}/{{stem}}.png"} for s in splits},
        "classes": [f"c{place}" for place in range(classes)],
        "label_format": "index",
        "group": {"sequence": r"([^/_]+)_[^/]*$"},
        "preprocess": {"colour": "rgb", "size": [32, 48], "scale": 1 / 255, "mean": MEAN, "std": STD}
        | dict(preprocess or {}),
    }
    if ignore is not None:
        manifest["ignore_index"] = ignore
    path = folder / "set.yaml"
    path.write_text(yaml.safe_dump(manifest))
    return Evalset(path, classes, tuple(sorted(keys)))


def colour_network(
    classes: int, *, seed: int = 0, spoil: float = 0.0, stride: int = 1, tail: Sequence[onnx.NodeProto] = (),
    output: str = "logits", batch: int | str = "N", channels_last: bool = False, outputs: Sequence[str] = (),
    output_type: int = onnx.TensorProto.FLOAT,
) -> onnx.ModelProto:  # fmt: skip
    """Logits are negative squared distances from the class colours, in a convolution; ``spoil`` shifts its weights.

    Args:
        classes: number of classes.
        seed: of the spoiling.
        spoil: relative size of random changes to the weights.
        stride: resolution of the logits relative to the input.
        tail: nodes from ``logits`` to ``output``.
        output: name of the network's output.
        batch: length of the batch axis.
        channels_last: the input is ``[N, H, W, C]``.
        outputs: further outputs.
        output_type: element type of the output.
    """
    rng = np.random.default_rng(seed)
    centres = (colours(classes) / 255 - MEAN) / STD + rng.normal(0, 0.01, (classes, 3))
    weight = 2 * centres * (1 + spoil * rng.normal(0, 1, centres.shape))
    bias = -(centres**2).sum(axis=1) * (1 + spoil * rng.normal(0, 1, classes))
    inner = "picture" if channels_last else "image"
    nodes = [helper.make_node("Transpose", ["image"], ["picture"], perm=[0, 3, 1, 2])] if channels_last else []
    nodes.append(helper.make_node("Conv", [inner, "weight", "bias"], ["logits"], strides=[stride, stride]))
    shape = [batch, "h", "w", 3] if channels_last else [batch, 3, "h", "w"]
    graph = helper.make_graph(
        [*nodes, *tail],
        "colours",
        [helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, shape)],
        [
            helper.make_tensor_value_info(name, output_type if name == output else onnx.TensorProto.FLOAT, None)
            for name in (output, *outputs)
        ],
        [
            numpy_helper.from_array(weight.astype(np.float32)[:, :, None, None], "weight"),
            numpy_helper.from_array(bias.astype(np.float32), "bias"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    shaped = onnx.shape_inference.infer_shapes(model)
    for declared, found in zip(model.graph.output, shaped.graph.output, strict=True):
        declared.CopyFrom(found)
    return model


def save(model: onnx.ModelProto, path: Path) -> Path:
    """Write a model."""
    onnx.save(model, path)
    return path


def prepare(pixels: np.ndarray, size: tuple[int, int] = (32, 48)) -> np.ndarray:
    """The manifest's preprocessing, written down independently."""
    resized = cv2.resize(pixels, size[::-1], interpolation=cv2.INTER_LINEAR)
    scaled = (resized.astype(np.float64) / 255 - MEAN) / STD
    return scaled.astype(np.float32).transpose(2, 0, 1)[None]
