"""The demo's data set: which scenes each split holds, and writing them with their manifest."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from calib.demo.classes import CLASS_COLOURS, CLASS_NAMES, VOID
from calib.demo.light import DUSK_BELOW, NIGHT_BELOW
from calib.demo.scenes import COLUMNS, ROWS, Scene, draw_scene
from calib.edges.files import make_output_folder, output_errors, write_atomic
from calib.types.progress import Progress

GENERATOR_VERSION = 1
"""Raised whenever the same seed would draw another picture: files of another version are written anew."""

JPEG_QUALITY = 95
SPLITS: dict[str, dict[str, int]] = {
    "calib": {"day": 168, "dusk": 48, "night": 24},
    "val": {"day": 40, "dusk": 24, "night": 16},
}
"""Images by split and light. Mostly day, as road data is; ``val`` holds enough dark images to score them."""

LEVELS = {"day": (DUSK_BELOW, 1.0), "dusk": (NIGHT_BELOW, DUSK_BELOW), "night": (0.0, NIGHT_BELOW)}
STAMP = "scenes.json"


@dataclass(frozen=True)
class PlannedScene:
    """A scene of a split before it is drawn.

    Attributes:
        name: file name without suffix; begins with its light group.
        group: ``day``, ``dusk`` or ``night``.
        seed: seed of the picture.
        level: light, 0 to 1.
    """

    name: str
    group: str
    seed: tuple[int, ...]
    level: float

    def draw(self) -> Scene:
        """Draw the scene."""
        return draw_scene(self.seed, self.level)


def plan_scenes(counts: dict[str, int], stream: int) -> list[PlannedScene]:
    """Plan a set of scenes.

    Args:
        counts: images a light group.
        stream: number of the set; sets of different numbers share no scene.
    """
    return [
        PlannedScene(f"{group}_{number:04d}", group, (stream, order, number), _level(group, stream, number))
        for order, group in enumerate(LEVELS)
        for number in range(counts.get(group, 0))
    ]


def _level(group: str, stream: int, number: int) -> float:
    low, high = LEVELS[group]
    return float(np.random.default_rng((stream, 99, number)).uniform(low, high))


def plan_split(split: str) -> list[PlannedScene]:
    """Plan the scenes of a split of the demo's data set."""
    return plan_scenes(SPLITS[split], stream=1 + list(SPLITS).index(split))


def encode_image(image: NDArray[np.uint8]) -> bytes:
    """Encode RGB pixels as the JPEG that is written."""
    return _encoded(".jpg", image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])


def encode_label(label: NDArray[np.uint8]) -> bytes:
    """Encode class ids as a grayscale PNG, without loss."""
    return _encoded(".png", label, [cv2.IMWRITE_PNG_COMPRESSION, 6])


def _encoded(suffix: str, pixels: NDArray[np.uint8], options: list[int]) -> bytes:
    done, buffer = cv2.imencode(suffix, pixels, options)
    if not done:
        message = f"OpenCV cannot encode {suffix}"
        raise RuntimeError(message)
    return bytes(buffer)


def write_dataset(folder: Path, progress: Progress, workers: int = 2) -> Path:
    """Write images, labels and the manifest below ``folder``; answer the manifest's path.

    Scenes that an interrupted run finished are kept; those of another version of the generator are drawn anew.

    Args:
        folder: created where it is missing.
        progress: counts the scenes.
        workers: threads that draw.

    Raises:
        OutputError: the folder cannot be written.
    """
    files = [SceneFiles(folder, split, scene) for split in SPLITS for scene in plan_split(split)]
    for place in sorted({path.parent for item in files for path in item.paths}):
        make_output_folder(place)
    _discard_other_version(folder, files)
    with progress.task("drawing scenes", len(files)) as task, ThreadPoolExecutor(workers) as pool:
        for _ in pool.map(SceneFiles.write, files):
            task.advance()
    manifest = folder / "demo.yaml"
    write_atomic(manifest, manifest_text(".").encode())
    return manifest


@dataclass(frozen=True)
class SceneFiles:
    """Where a scene's image and label are written."""

    folder: Path
    split: str
    scene: PlannedScene

    @property
    def paths(self) -> tuple[Path, Path]:
        """Image, then label."""
        name = self.scene.name
        return self.folder / "images" / self.split / f"{name}.jpg", self.folder / "labels" / self.split / f"{name}.png"

    def write(self) -> None:
        """Draw and write the scene unless both files are there."""
        image, label = self.paths
        if not (image.is_file() and label.is_file()):
            drawn = self.scene.draw()
            write_atomic(label, encode_label(drawn.label))
            write_atomic(image, encode_image(drawn.image))


def _discard_other_version(folder: Path, files: list[SceneFiles]) -> None:
    """Remove scenes that another version drew, then note ours before the first one is written."""
    stamp = folder / STAMP
    ours = json.dumps({"generator": GENERATOR_VERSION, "opencv": cv2.__version__, "numpy": np.__version__}).encode()
    with output_errors(folder):
        if stamp.is_file() and stamp.read_bytes() == ours:
            return
        for path in (path for item in files for path in item.paths):
            path.unlink(missing_ok=True)
    write_atomic(stamp, ours)


def manifest_text(root: str) -> str:
    """Render the data set's manifest; ``root`` is the folder of the images, relative to the manifest."""
    classes = "\n".join(
        f"  - {{name: {name}, colour: [{', '.join(map(str, colour))}]}}"
        for name, colour in zip(CLASS_NAMES, CLASS_COLOURS, strict=True)
    )
    splits = "\n".join(
        f'  {split}: {{images: "images/{split}/*.jpg", labels: "labels/{split}/{{stem}}.png"}}' for split in SPLITS
    )
    return MANIFEST.format(root=root, splits=splits, classes=classes, void=VOID, rows=ROWS, columns=COLUMNS)


MANIFEST = """\
# Street scenes that `calib demo` draws, from noon to night; the file name begins with the light: day, dusk or night.
name: demo
root: {root}
splits:
{splits}
classes:
{classes}
group: {{light: '([^/_]+)_[^/]*$'}}
ignore_index: {void}
label_format: index
preprocess:
  colour: rgb
  size: [{rows}, {columns}]
  scale: 1/255
  mean: [0.485, 0.456, 0.406]
  std: [0.229, 0.224, 0.225]
"""
