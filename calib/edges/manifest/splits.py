"""Splits to image records: by pattern, by table, or by a text list that fills patterns in."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from calib.edges.manifest.addresses import join_address, key_of, refuse_remote
from calib.edges.manifest.lists import Row, is_table, read_lines, read_table
from calib.edges.manifest.patterns import compile_pattern, fill, find_images, path_fields
from calib.edges.manifest.schema import SplitModel
from calib.errors import ManifestError
from calib.types.data import ImageRecord

INPUT_PREFIX = "input:"
RESERVED_COLUMNS = frozenset({"image", "label", "split"})


@dataclass(frozen=True)
class SplitContext:
    """Where a split stands.

    Attributes:
        place: names the split in errors.
        root: folder its addresses are relative to.
        folder: folder of the manifest, where lists are looked for too.
        label_format: how labels encode classes.
        groups: regular expression of each group column.
    """

    place: str
    root: str
    folder: str
    label_format: str
    groups: Mapping[str, re.Pattern[str]]


def resolve_split(split: SplitModel, context: SplitContext) -> tuple[ImageRecord, ...]:
    """List the records of a split, sorted by key.

    Raises:
        ManifestError: no images, a malformed pattern, or an image twice.
    """
    if split.list is None and not split.images:
        raise ManifestError(
            context.place,
            expected="images: PATTERN or list: FILE",
            got="neither",
            remedy='write for example images: "images/train/*.jpg"',
        )
    if split.list is None:
        records = _records_by_pattern(split, context)
    else:
        path = _find_list(split.list, context)
        records = (
            records_of_table(read_table(path), path, context)
            if is_table(path)
            else _records_by_lines(split, path, context)
        )
    kept = _without_excluded(records, split.exclude, context)
    return sort_records([_with_groups(record, context) for record in kept], context.place)


def sort_records(records: Iterable[ImageRecord], place: str) -> tuple[ImageRecord, ...]:
    """Sort by key.

    Raises:
        ManifestError: there are none, one is listed twice, or its name is no text.
    """
    found = sorted(records, key=lambda record: record.key)
    strange = next((record.path for record in found if not _is_text(record.path)), None)
    if strange is not None:
        raise ManifestError(
            place,
            expected="file names in UTF-8",
            got=ascii(strange),
            remedy="rename the file, as with `convmv -f latin1 -t utf8 -r --notest FOLDER`",
        )
    twice = next((a.key for a, b in itertools.pairwise(found) if a.key == b.key), None)
    if twice is not None:
        raise ManifestError(place, expected="each image once", got=f"{twice} twice", remedy="remove it from the list")
    if not found:
        raise ManifestError(place, expected="images", got="none", remedy="check the list and exclude:")
    return tuple(found)


def _is_text(path: str) -> bool:
    """Whether a path can be written as UTF-8; Python smuggles other bytes of file names through as lone surrogates."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def records_of_table(rows: list[Row], path: str, context: SplitContext) -> list[ImageRecord]:
    """Make records of the rows of a list: columns image, label, ``input:NAME``; the others are group columns."""
    records = []
    for number, row in enumerate(rows, 1):
        if not row["image"]:
            raise ManifestError(
                f"{path}, row {number}", expected="an image", got="an empty cell", remedy="fill it in or drop the row"
            )
        label = row.get("label", "")
        inputs = {name.removeprefix(INPUT_PREFIX): row[name] for name in row if name.startswith(INPUT_PREFIX)}
        record = _record(context, row["image"], label or None, {name: text for name, text in inputs.items() if text})
        columns = {
            name: text
            for name, text in row.items()
            if name not in RESERVED_COLUMNS and not name.startswith(INPUT_PREFIX)
        }
        records.append(replace(record, group=columns))
    return records


def _records_by_pattern(split: SplitModel, context: SplitContext) -> list[ImageRecord]:
    found: dict[str, dict[str, str]] = {}
    for pattern in split.images:
        refuse_remote(context.place, pattern)
        matches = find_images(context.place, context.root, pattern)
        if not matches:
            raise _no_match(pattern, context)
        found = matches | found
    return [_templated(split, context, path, fields) for path, fields in found.items()]


def _records_by_lines(split: SplitModel, path: str, context: SplitContext) -> list[ImageRecord]:
    """Fill ``{line}`` of the images template with each line; without one a line is ``IMAGE`` or ``IMAGE LABEL``."""
    if len(split.images) > 1:
        raise ManifestError(
            context.place,
            expected="one images: template beside list:",
            got=f"{len(split.images)}",
            remedy="write one template with {line}",
        )
    records = []
    for line in read_lines(path):
        if split.images:
            image = fill(context.place, split.images[0], {"line": line})
            records.append(_templated(split, context, image, {"line": line}))
        else:
            image, _, label = line.partition(" ")
            record = _templated(split, context, image, {"line": line})
            records.append(_record(context, image, label.strip(), record.inputs) if label.strip() else record)
    return records


def _templated(split: SplitModel, context: SplitContext, image: str, fields: Mapping[str, str]) -> ImageRecord:
    known = {**path_fields(image), **fields}
    label = None if split.labels is None else fill(context.place, _label_template(split.labels, context), known)
    inputs = {name: fill(context.place, template, known) for name, template in split.inputs.items()}
    return _record(context, image, label, inputs)


def _label_template(labels: str, context: SplitContext) -> str:
    """The template itself; a panoptic JSON file stands for the folder of PNG files beside it."""
    if context.label_format == "coco-panoptic" and labels.endswith(".json"):
        return labels.removesuffix(".json") + "/{stem}.png"
    if "{" not in labels and context.label_format != "coco":
        raise ManifestError(
            context.place,
            expected='a labels template such as "labels/train/{stem}.png"',
            got=f"{labels!r}, the same file for every image",
            remedy="put a field of the image's path into it",
        )
    return labels


def _record(context: SplitContext, image: str, label: str | None, inputs: Mapping[str, str]) -> ImageRecord:
    path = join_address(context.root, refuse_remote(context.place, image))
    address = None if label is None else join_address(context.root, refuse_remote(context.place, label))
    further = {name: join_address(context.root, text) for name, text in sorted(inputs.items())}
    return ImageRecord(key_of(context.root, image), path, address, {}, further)


def _with_groups(record: ImageRecord, context: SplitContext) -> ImageRecord:
    matches = {name: shape.search(record.key) for name, shape in context.groups.items()}
    values = {
        name: (match[1] or "") if match and match.re.groups else match[0] if match else ""
        for name, match in matches.items()
    }
    return replace(record, group={**record.group, **values})


def _without_excluded(
    records: list[ImageRecord], exclude: tuple[str, ...], context: SplitContext
) -> Iterable[ImageRecord]:
    shapes = [compile_pattern(context.place, pattern) for pattern in exclude]
    return (record for record in records if not any(shape.fullmatch(record.key) for shape in shapes))


def _find_list(name: str, context: SplitContext) -> str:
    places = [join_address(root, refuse_remote(context.place, name)) for root in (context.root, context.folder)]
    found = next((path for path in places if Path(path).is_file()), None)
    if found is not None:
        return found
    raise ManifestError(
        context.place,
        expected=f"list {name!r} below the root or beside the manifest",
        got="no such file in " + " or ".join(dict.fromkeys(places)),
        remedy="correct list:, or name the data's folder with --root",
    )


def _no_match(pattern: str, context: SplitContext) -> ManifestError:
    root = Path(context.root)
    if not root.is_dir():
        got = f"no folder {context.root}"
    else:
        entries = sorted(entry.name for entry in root.iterdir())[:6]
        got = f"no such file below {context.root}, which holds " + (", ".join(entries) or "nothing")
    return ManifestError(
        context.place,
        expected=f"files that match {pattern!r}",
        got=got,
        remedy="correct images:, or name the folder that the pattern is relative to with --root",
    )
