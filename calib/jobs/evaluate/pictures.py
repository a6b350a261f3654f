"""Pictures of the images on which a network does worst: the image, its label, both class maps, the flipped pixels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from calib.edges.report.evaluation import Overlay, WorstImage
from calib.jobs.evaluate.counting import Counting
from calib.types.progress import Progress

LONGEST = 480
"""Longer side of a picture in pixels."""
SHARP_COLOURS = [cv2.IMWRITE_JPEG_QUALITY, 78, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444]
HARMED, HELPED, OTHER = (230, 97, 1), (43, 120, 200), (150, 90, 190)
"""Colours of flipped pixels, told apart by people who do not see all colours: right before, right now, never right."""
FADE = 0.3
CROSS = np.array([[0, 1, 0], [1, 1, 1], [0, 1, 0]], np.uint8)
Json = Mapping[str, Any]


def choose_worst(
    images: Sequence[Json], models: Sequence[str], reference: str | None, count: int
) -> list[tuple[str, int, Json]]:
    """Choose each network's worst images: those that lose most against the reference, or score lowest without one.

    Args:
        images: entries of ``evaluation_images.csv``.
        models: every network.
        reference: the reference, whose own images are not shown.
        count: images a network.

    Returns:
        network, rank from 1, image.
    """
    chosen: list[tuple[str, int, Json]] = []
    for model in models:
        if model == reference:
            continue
        scored = [(_gain(image, model, reference), image["image"], image) for image in images]
        kept = sorted(
            (gain, key, image) for gain, key, image in scored if gain is not None and _counts(gain, reference)
        )
        chosen += [(model, rank, image) for rank, (_, _, image) in enumerate(kept[:count], 1)]
    return chosen


def draw_worst(
    counting: Counting, chosen: Sequence[tuple[str, int, Json]], reference: str | None, progress: Progress
) -> list[WorstImage]:
    """Run the chosen images once more and draw them."""
    keys = sorted({image["image"] for _, _, image in chosen})

    def draw(key: str) -> dict[str, list[Overlay]]:
        found = dict(_draw(counting, key, [model for model, _, image in chosen if image["image"] == key], reference))
        task.advance()
        return found

    with progress.task("drawing the worst images", len(keys)) as task, ThreadPoolExecutor(counting.workers) as pool:
        drawn = dict(zip(keys, pool.map(draw, keys), strict=True))
    return [
        WorstImage(
            model=model,
            key=image["image"],
            rank=rank,
            before=None if reference is None else image["models"][reference]["miou"],
            after=image["models"][model]["miou"],
            flipped=image["models"][model]["flipped"],
            overlays=tuple(drawn[image["image"]][model]),
            slices=tuple(name for name in image["slices"] if not name.startswith("rare:")),
        )
        for model, rank, image in chosen
    ]


def _gain(image: Json, model: str, reference: str | None) -> float | None:
    own = image["models"][model]["miou"]
    if own is None or reference is None:
        return None if own is None else float(own)
    return float(own - image["models"][reference]["miou"])


def _counts(gain: float, reference: str | None) -> bool:
    """Whether an image is worth showing: without a reference any, else one that lost."""
    return reference is None or gain < 0


def _draw(
    counting: Counting, key: str, wanted: Sequence[str], reference: str | None
) -> Iterator[tuple[str, list[Overlay]]]:
    scene = counting.load(key)
    plan, by_name = counting.evaluator.class_maps(scene, {*wanted, *([] if reference is None else [reference])})
    box = plan.covered
    pixels = scene.pixels[box.top : box.bottom, box.left : box.right]
    label = box.of(scene.label)
    colours = colour_table(counting.colours, len(counting.classes))
    common = [
        Overlay("image", encode_photo(pixels)),
        Overlay("label", encode_classes(label, colours)),
    ]
    if reference is not None:
        common.append(Overlay(reference, encode_classes(by_name[reference], colours)))
    for model in wanted:
        own = [*common, Overlay(model, encode_classes(by_name[model], colours))]
        if reference is not None:
            flips = draw_flips(pixels, label, by_name[reference], by_name[model])
            own.append(Overlay("flipped pixels", encode_photo(flips)))
        yield model, own


def colour_table(colours: Sequence[tuple[int, int, int]], classes: int) -> NDArray[np.uint8]:
    """RGB by class id, uint8 ``[classes + 1, 3]``; the last row, black, is for void and for no class."""
    table = np.zeros((classes + 1, 3), np.uint8)
    table[: len(colours)] = np.asarray(colours, np.uint8).reshape(-1, 3)[:classes]
    return table


def draw_flips(
    pixels: NDArray[np.uint8], label: NDArray[Any], before: NDArray[Any], after: NDArray[Any]
) -> NDArray[np.uint8]:
    """Paint flipped pixels, one pixel wider, over a faded grey picture, uint8 ``[H, W, 3]``."""
    grey = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)
    faded = (255 - FADE * (255 - grey.astype(np.float32))).astype(np.uint8)
    painted = np.repeat(faded[..., None], 3, axis=2)
    flipped = before != after
    kinds = ((flipped, OTHER), (flipped & (before == label), HARMED), (flipped & (after == label), HELPED))
    for mask, colour in kinds:
        painted[cv2.dilate(mask.astype(np.uint8), CROSS) > 0] = colour
    return painted


def encode_classes(ids: NDArray[Any], colours: NDArray[np.uint8]) -> bytes:
    """Paint a class map and encode it as PNG, shrunk without mixing classes."""
    small = _shrunk(ids, cv2.INTER_NEAREST)
    return _encoded(colours[np.minimum(small.astype(np.int64), len(colours) - 1)], ".png", [])


def encode_photo(pixels: NDArray[np.uint8]) -> bytes:
    """Encode a picture as JPEG, shrunk."""
    return _encoded(_shrunk(pixels, cv2.INTER_AREA), ".jpg", SHARP_COLOURS)


def _shrunk(array: NDArray[Any], interpolation: int) -> NDArray[Any]:
    height, width = array.shape[:2]
    factor = min(1.0, LONGEST / max(height, width))
    if factor == 1.0:
        return array
    size = (max(1, round(width * factor)), max(1, round(height * factor)))
    return cv2.resize(np.ascontiguousarray(array), size, interpolation=interpolation)


def _encoded(pixels: NDArray[np.uint8], kind: str, options: list[int]) -> bytes:
    _, encoded = cv2.imencode(kind, cv2.cvtColor(np.ascontiguousarray(pixels), cv2.COLOR_RGB2BGR), options)
    return bytes(encoded.tobytes())
