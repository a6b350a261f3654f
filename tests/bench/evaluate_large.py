"""Peak memory of evaluating two networks on large synthetic pictures: 2048 x 1024, 19 classes.

    python -m tests.bench.evaluate_large --images 50 500

A few distinct scenes are linked as often as needed, so that the disk does not fill; every link is read, decoded and
scored as a picture of its own. Peaks are those of whole commands.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

import cv2
import numpy as np
import yaml

from tests.bench.bench import run_calib
from tests.evalsets import MEAN, STD, blobs, colour_network, colours, save

CLASSES, HEIGHT, WIDTH = 19, 1024, 2048
SCENES = 25


def make_scenes(folder: Path) -> None:
    """Write distinct scenes and their labels; every third is bright."""
    folder.mkdir(parents=True)
    table, rng = colours(CLASSES), np.random.default_rng(0)
    for number in range(SCENES):
        ids = blobs(CLASSES, (HEIGHT, WIDTH), number, cell=61)
        light = 1.0 if number % 3 == 0 else 0.35
        pixels = np.clip(table[ids] * light + rng.normal(0, 20, (HEIGHT, WIDTH, 3)), 0, 255).astype(np.uint8)
        cv2.imwrite(str(folder / f"{number}.jpg"), pixels[..., ::-1])
        cv2.imwrite(str(folder / f"{number}.png"), ids)


def make_split(scenes: Path, folder: Path, images: int) -> Path:
    """Link scenes to ``images`` images, and write a manifest."""
    for kind in ("images", "labels"):
        (folder / kind).mkdir(parents=True)
    for number in range(images):
        for kind, ending in (("images", "jpg"), ("labels", "png")):
            os.link(scenes / f"{number % SCENES}.{ending}", folder / kind / f"{number:05}.{ending}")
    manifest = {
        "name": "large",
        "root": ".",
        "splits": {"val": {"images": "images/*.jpg", "labels": "labels/{stem}.png"}},
        "classes": [f"c{number}" for number in range(CLASSES)],
        "ignore_index": 255,
        "label_format": "index",
        "preprocess": {
            "colour": "rgb", "size": [HEIGHT, WIDTH], "scale": 1 / 255, "mean": list(MEAN), "std": list(STD),
        },
    }  # fmt: skip
    target = folder / "set.yaml"
    target.write_text(yaml.safe_dump(manifest), encoding="utf-8")
    return target


def measure(folder: Path, counts: list[int]) -> None:
    """Print time and peak memory of each number of images."""
    make_scenes(folder / "scenes")
    networks = [
        str(save(colour_network(CLASSES, stride=4, spoil=spoil), folder / f"{name}.onnx"))
        for name, spoil in (("float", 0.0), ("spoiled", 0.1))
    ]
    for images in counts:
        manifest = make_split(folder / "scenes", folder / f"set{images}", images)
        output = str(folder / f"out{images}")
        seconds, peak = run_calib(["evaluate", *networks, "--data", str(manifest), "-q", "-o", output])
        print(f"{images} images of {WIDTH} x {HEIGHT}: {seconds:.0f} s, peak {peak:.0f} MiB", flush=True)


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, nargs="+", default=[50, 500])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), options.images)


if __name__ == "__main__":
    main()
