"""What a check learns of each image, and the findings it draws from that. Reads nothing."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Literal

from calib.errors import CalibError
from calib.types.data import Dataset, ImageRecord

Severity = Literal["error", "warning", "info"]
SUFFIXES = {
    "jpeg": (".jpg", ".jpeg", ".jpe", ".jfif"),
    "tiff": (".tif", ".tiff"),
    "pnm": (".ppm", ".pgm", ".pbm", ".pnm"),
}
CITYSCAPES_LABEL_IDS = frozenset(range(19, 34))
CITYSCAPES_CLASSES = 19
CITYSCAPES_LABELS = 34
MOST_VALUES = 64


@dataclass(frozen=True)
class Finding:
    """One thing found.

    Attributes:
        severity: ``error`` makes data unusable or wrong, ``warning`` deserves a look, ``info`` states a choice.
        code: stable short name of the kind of finding.
        split: the split it is in, empty for the whole manifest.
        file: key or path of the file, empty for a whole split.
        message: what was found.
        remedy: what to do about it, possibly nothing.
    """

    severity: Severity
    code: str
    split: str
    file: str
    message: str
    remedy: str = ""


@dataclass(frozen=True)
class FileFacts:
    """What was learned of one image and its label.

    Attributes:
        record: the image.
        kind: file format and mode of the image, ``jpeg rgb``; empty if unusable.
        size: ``(height, width)`` of the picture as it is used, None if unusable.
        orientation: EXIF orientation, 1..8.
        applied: whether it was applied.
        trailing: bytes behind the end of the picture.
        extraneous: bytes inside the picture's data that belong to nothing.
        sha256: hex digest of the image file, empty if unreadable.
        image_error: why the image cannot be used.
        label_kind: mode of the label file, empty if unusable.
        label_size: ``(height, width)`` of the label.
        label_file: what names the label in findings: its address, or the image where one file holds all labels.
        label_missing: whether the record names a label that does not exist.
        label_error: why the label cannot be used.
        foreign: raw label values outside the class table, with pixel counts; the ``MOST_VALUES`` most frequent.
        foreign_values: how many different ones there are.
        notes: oddities of the label.
        pixels: pixels of each train id, then void.
    """

    record: ImageRecord
    kind: str = ""
    size: tuple[int, int] | None = None
    orientation: int = 1
    applied: bool = False
    trailing: int = 0
    extraneous: int = 0
    sha256: str = ""
    image_error: CalibError | None = None
    label_kind: str = ""
    label_size: tuple[int, int] | None = None
    label_file: str = ""
    label_missing: bool = False
    label_error: CalibError | None = None
    foreign: Mapping[int, int] = field(default_factory=dict)
    foreign_values: int = 0
    notes: tuple[str, ...] = ()
    pixels: tuple[int, ...] = ()


def file_findings(facts: FileFacts, split: str) -> Iterator[Finding]:
    """Findings about one image and its label."""
    key, label = facts.record.key, facts.label_file
    if facts.image_error is not None:
        yield _of_error("unusable-image", split, key, facts.image_error)
    if facts.label_error is not None:
        yield _of_error("missing-label" if facts.label_missing else "unusable-label", split, label, facts.label_error)
    if facts.foreign:
        shown = sorted(frequent_values(facts.foreign, 8).items())
        listed = ", ".join(f"{value} ({count} pixels)" for value, count in shown)
        more = f" and {facts.foreign_values - len(shown)} more" if facts.foreign_values > len(shown) else ""
        yield Finding(
            "error", "foreign-ids", split, label, f"values outside the class table: {listed}{more}",
            "map them with label_map (void drops them), or correct classes and label_format",
        )  # fmt: skip
    if facts.size and facts.label_size and facts.size != facts.label_size:
        yield Finding(
            "error", "size-mismatch", split, key, f"image {_size(facts.size)}, label {_size(facts.label_size)}",
            "export the label again at the image's size; labels are not resized without being asked",
        )  # fmt: skip
    yield from _oddities(facts, split)


def frequent_values(counts: Mapping[int, int], most: int) -> dict[int, int]:
    """The most frequent values, most frequent first; equally frequent ones by value."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:most])


def _oddities(facts: FileFacts, split: str) -> Iterator[Finding]:
    key = facts.record.key
    if facts.orientation != 1:
        choice = "applied" if facts.applied else "not applied: only the stored layout has the label's size"
        yield Finding("info", "exif-orientation", split, key, f"EXIF orientation {facts.orientation}, {choice}")
    if facts.extraneous:
        yield Finding(
            "warning", "extraneous-bytes", split, key, f"{facts.extraneous} bytes inside JPEG data belong to nothing",
            "decoders pass over them; save it again if you can",
        )  # fmt: skip
    if facts.trailing:
        yield Finding("info", "trailing-bytes", split, key, f"{facts.trailing} bytes behind the end of the picture")
    if facts.kind.endswith("16"):
        yield Finding("info", "16-bit", split, key, "16 bits a sample, scaled to 8 by value / 257")
    kind, suffix = facts.kind.partition(" ")[0], PurePosixPath(key).suffix.lower()
    if kind and suffix and suffix not in SUFFIXES.get(kind, (f".{kind}",)):
        yield Finding("warning", "misnamed", split, key, f"a {kind.upper()} file named {suffix}", "rename it")
    if facts.pixels and not any(facts.pixels[:-1]):
        yield Finding("warning", "all-void", split, facts.label_file, "every pixel of the label is void")
    for note in facts.notes:
        yield Finding("warning", "label-note", split, facts.label_file, note)


def split_findings(dataset: Dataset, files: Sequence[FileFacts]) -> Iterator[Finding]:
    """Findings about a split as a whole."""
    split = dataset.split
    if not any(facts.record.label for facts in files):
        yield Finding("warning", "no-labels", split, "", "no image has a label", "scores of labels need labels:")
    if dataset.preprocess is None:
        yield Finding(
            "warning", "no-preprocess", split, "", "no preprocessing is stated",
            "write preprocess: into the manifest, or give --preprocess to the commands that run a network",
        )  # fmt: skip
    yield from _label_hints(dataset, files)
    yield from _class_findings(dataset, files)
    yield from _duplicates(split, files)


def _label_hints(dataset: Dataset, files: Sequence[FileFacts]) -> Iterator[Finding]:
    """Say when values outside the table look like another label format."""
    foreign: Counter[int] = Counter()
    for facts in files:
        foreign.update(facts.foreign)
    count = len(dataset.classes.names) if dataset.classes else 0
    named = any("labelids" in (facts.record.label or "").lower() for facts in files)
    plain = dataset.label_format in ("index", "palette") and not dataset.label_map
    by_value = count == CITYSCAPES_CLASSES and foreign and set(foreign) <= CITYSCAPES_LABEL_IDS
    if plain and (by_value or (named and 0 < count < CITYSCAPES_LABELS)):
        yield Finding(
            "error", "label-ids", dataset.split, "", "the labels look like Cityscapes labelIds, not trainIds",
            "declare label_format: cityscapes, which maps them, or point labels: at the labelTrainIds files",
        )  # fmt: skip
    elif plain and count and set(foreign) == {count}:
        yield Finding(
            "error", "shifted-ids", dataset.split, "", f"the only value outside the table is {count}",
            f"if labels start at 1 with 0 as void, declare label_format: ade20k; if {count} is void, "
            f"declare ignore_index: {count}",
        )  # fmt: skip


def _class_findings(dataset: Dataset, files: Sequence[FileFacts]) -> Iterator[Finding]:
    if dataset.classes is None:
        return
    names, ignored = dataset.classes.names, dataset.classes.ignore_index
    if ignored is not None and 0 <= ignored < len(names):
        yield Finding(
            "warning", "ignored-class", dataset.split, "", f"ignore_index {ignored} is class {names[ignored]!r}",
            "false positives on its pixels will not be counted; use a value outside the classes for void",
        )  # fmt: skip
    totals = class_pixels(files)
    absent = [name for name, pixels in zip(names, totals, strict=False) if pixels == 0]
    if totals and absent:
        yield Finding(
            "warning", "absent-class", dataset.split, "", f"classes without a pixel: {', '.join(absent)}",
            "their IoU will be null on this split",
        )  # fmt: skip


def class_pixels(files: Iterable[FileFacts]) -> tuple[int, ...]:
    """Pixels of each train id over all files, void last; empty without labels."""
    return tuple(sum(column) for column in zip(*(facts.pixels for facts in files if facts.pixels), strict=True))


def _duplicates(split: str, files: Sequence[FileFacts]) -> Iterator[Finding]:
    first: dict[str, str] = {}
    for facts in files:
        if facts.sha256 and facts.sha256 in first:
            yield Finding(
                "warning", "duplicate", split, facts.record.key, f"the same file as {first[facts.sha256]}",
                "remove one; duplicates weigh twice",
            )  # fmt: skip
        elif facts.sha256:
            first[facts.sha256] = facts.record.key


def overlap_findings(splits: Mapping[str, Sequence[FileFacts]]) -> Iterator[Finding]:
    """Images that occur in several splits, by content."""
    owners: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for split, files in splits.items():
        for facts in files:
            if facts.sha256 and all(owner != split for owner, _ in owners[facts.sha256]):
                owners[facts.sha256].append((split, facts.record.key))
    for (split, key), *others in (places for places in owners.values() if len(places) > 1):
        where = ", ".join(f"{other} ({name})" for other, name in others)
        yield Finding(
            "warning", "split-overlap", split, key, f"also in split {where}",
            "calibrating on evaluation images flatters the result; keep each image in one split",
        )  # fmt: skip


def _of_error(code: str, split: str, file: str, error: CalibError) -> Finding:
    place = "" if error.place in (file, "") or error.place.endswith(file) else f"{error.place}: "
    return Finding("error", code, split, file, f"{place}expected {error.expected}, got {error.got}", error.remedy)


def _size(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"
