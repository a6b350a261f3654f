"""Images, labels, classes and preprocessing, as a manifest describes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Colour = Literal["rgb", "bgr", "gray"]
Layout = Literal["nchw", "nhwc"]
Resize = Literal["bilinear", "nearest", "area", "cubic"]
Fit = Literal["stretch", "letterbox", "crop"]
LabelFormat = Literal["index", "palette", "rgb", "cityscapes", "ade20k", "coco", "coco-panoptic"]


@dataclass(frozen=True)
class Preprocess:
    """How pixels become network input: ``(resize(pixels) * scale - mean) / std``, then layout and dtype.

    Attributes:
        colour: channel order the network was trained on.
        size: ``(height, width)`` in pixels, or None to keep each image's own size.
        resize: interpolation.
        fit: ``stretch`` to size, ``letterbox`` (keep aspect, pad) or centre ``crop``.
        pad: pixel value 0..255 of letterbox borders.
        scale: multiplies raw pixel values (0..255); 1/255 for networks trained on [0, 1].
        mean: subtracted after scaling, one value a channel (or a single one).
        std: divides after the subtraction, one value a channel (or a single one).
        layout: ``nchw`` or ``nhwc``.
        dtype: element type of the network input.
    """

    colour: Colour
    size: tuple[int, int] | None
    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]
    layout: Layout = "nchw"
    resize: Resize = "bilinear"
    fit: Fit = "stretch"
    pad: int = 114
    dtype: Literal["float32", "float16", "uint8"] = "float32"


@dataclass(frozen=True)
class ImageRecord:
    """One image of a split.

    Attributes:
        key: stable identity inside the manifest: the path relative to its root, with ``/``.
        path: address that :mod:`calib.edges.files` opens.
        label: address of the label, or None.
        group: manifest columns such as sequence or time of day.
        inputs: addresses of arrays or images for further network inputs, by input name.
    """

    key: str
    path: str
    label: str | None = None
    group: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ClassTable:
    """The classes of a data set.

    Attributes:
        names: class names by train id.
        ignore_index: label value that is not scored, or None; may lie outside 0..255.
        colours: RGB colour of each class (0..255), for pictures and for RGB labels.
    """

    names: tuple[str, ...]
    ignore_index: int | None
    colours: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Dataset:
    """One split of a manifest, resolved: every record's address is final.

    Attributes:
        name: the manifest's name.
        split: the split's name.
        records: sorted by key, keys unique.
        classes: None when the manifest names none (image-only work).
        label_format: how label files encode classes.
        label_map: raw label value (or ``"r,g,b"``) to train id; empty for the identity.
        preprocess: None when the manifest states none.
        inputs: preprocessing or constant of further network inputs, by input name.
        manifest_path: the file it came from.
        manifest_sha256: hex digest of that file.
    """

    name: str
    split: str
    records: tuple[ImageRecord, ...]
    classes: ClassTable | None
    label_format: LabelFormat
    label_map: Mapping[str, int]
    preprocess: Preprocess | None
    inputs: Mapping[str, Preprocess | float]
    manifest_path: str
    manifest_sha256: str
