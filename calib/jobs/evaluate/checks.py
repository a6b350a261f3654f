"""What must hold before a network is run: labels, their values, and no image of the calibration set."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from calib.core.printable import printable
from calib.core.scoretable import take_rows
from calib.edges.evaluation.sources import TRAINED, Calibration, Source, read_calibration
from calib.edges.files import sha256_file
from calib.edges.labels import LabelReader
from calib.edges.manifest import list_splits, load_dataset
from calib.errors import CalibError, ImageError, ManifestError
from calib.jobs.evaluate.request import EvaluateRequest
from calib.jobs.scan import scan
from calib.stages.sample import refuse_shared, shared_images
from calib.types.data import Dataset, ImageRecord
from calib.types.progress import Progress
from calib.types.scores import ScoreTable

NAMED = 10


def require_labels(dataset: Dataset) -> None:
    """Refuse a split that cannot be scored.

    Raises:
        ManifestError: it names no classes, or images have no label.
    """
    place = f"{dataset.manifest_path}, split {dataset.split}"
    if dataset.classes is None or not dataset.classes.names:
        raise ManifestError(
            place, expected="classes", got="none", remedy="add classes: [NAME, …] to the manifest, in train-id order"
        )
    bare = [record.key for record in dataset.records if record.label is None]
    if bare:
        raise ManifestError(
            place,
            expected="a label for every image",
            got=f"{len(bare)} of {len(dataset.records)} without, the first {bare[0]}",
            remedy="give the split a labels: entry, or take these images out of it",
        )


def ignored_class(dataset: Dataset) -> str | None:
    """Warn when a real class is the ignore index: its false positives then cost nothing where it is."""
    classes = dataset.classes
    if classes is None or classes.ignore_index is None or not 0 <= classes.ignore_index < len(classes.names):
        return None
    name = classes.names[classes.ignore_index]
    return (
        f"ignore_index {classes.ignore_index} is the class {name}: its pixels are not scored, so other classes' false "
        f"positives on them vanish, and {name} itself has no IoU; use a value outside the classes unless this is meant"
    )


def check_foreign(dataset: Dataset, table: ScoreTable, foreign: Literal["stop", "void"]) -> str | None:
    """Look at label values outside the class table.

    Args:
        dataset: the split.
        table: its scores.
        foreign: ``stop`` at them, or count them as ``void``.

    Returns:
        a warning when they are to count as void, None when there are none.

    Raises:
        ImageError: there are some; it names files, values and pixels.
    """
    held = np.flatnonzero(np.nan_to_num(table.columns["foreign_share"]) > 0)
    if not held.size:
        return None
    reader, records = LabelReader(dataset), {record.key: record for record in dataset.records}
    values: Counter[int] = Counter()
    lines: list[str] = []
    for row in held.tolist():
        strange = reader.read(records[table.keys[row]]).foreign
        values.update(strange)
        if len(lines) < NAMED:
            pixels = ", ".join(f"value {value} ({count} pixels)" for value, count in sorted(strange.items())[:8])
            lines.append(f"  {records[table.keys[row]].label}: {pixels}")
    total = ", ".join(f"{value} ({count} pixels)" for value, count in sorted(values.items())[:16])
    if foreign == "void":
        return f"{held.size} labels hold values outside the class table, counted as void: {total}"
    more = [f"  … and {held.size - NAMED} more"] if held.size > NAMED else []
    count = len(dataset.classes.names) if dataset.classes else 0
    raise ImageError(
        f"labels of {dataset.name}, split {dataset.split}",
        expected=f"values 0 to {count - 1} or the ignore index",
        got=f"{held.size} labels with other values, {total}:\n" + "\n".join([*lines, *more]),
        remedy="map them with label_map, set ignore_index, or add the missing class; --foreign void leaves these "
        "pixels out of the score",
    )


def digest_labels(dataset: Dataset, workers: int) -> str:
    """Digest of every label file, so that counts of changed labels are not reused."""
    paths = sorted({_file_of(record) for record in dataset.records})
    with ThreadPoolExecutor(workers) as pool:
        digests = dict(zip(paths, pool.map(_digest, paths), strict=True))
    lines = (f"{record.key}\0{record.label}\0{digests[_file_of(record)]}\n" for record in dataset.records)
    return hashlib.sha256("".join(line.replace(_root(dataset), "") for line in lines).encode()).hexdigest()


def check_leaks(
    sources: Iterable[Source], request: EvaluateRequest, table: ScoreTable, scratch: Path, progress: Progress
) -> tuple[Calibration, ...]:
    """Refuse an evaluation on images that a network was calibrated on, as files or as re-encoded copies.

    Args:
        sources: the networks; those of build folders tell what they were calibrated on.
        request: the manifest, in whose splits the calibration images are looked for.
        table: scores of the evaluation split.
        scratch: folder for the index of the calibration images.
        progress: shows the scan.

    Returns:
        what each build folder was calibrated on.

    Raises:
        LeakError: images are shared; it names them.
        FormatError: a build folder's records cannot be read.
    """
    folders = dict.fromkeys(source.folder for source in sources if source.folder is not None)
    found = tuple(read_calibration(folder) for folder in folders)
    for calibration in found:
        keys = sorted(calibration.images)
        empty = np.zeros(len(keys), np.uint64)
        digests = np.array([calibration.images[key] for key in keys], str)
        flat = {"sha256": digests, "phash": empty, "flatness": np.ones(len(keys), np.float32)}
        own = ScoreTable(tuple(keys), flat, (), table.thresholds)
        where = (
            f"the {'training' if TRAINED in calibration.provenance else 'calibration'} images of {calibration.folder}"
        )
        refuse_shared(shared_images(own, table), where, f"split {request.split or 'of the evaluation'}")
        looked = _scan_calibration(calibration, request, scratch, progress)
        if looked is None:
            progress.warn(
                f"{where} are not all in {request.data}: compared by sha256 only, so copies in another encoding "
                "would not be noticed"
            )
        else:
            refuse_shared(shared_images(looked, table), where, f"split {request.split or 'of the evaluation'}")
    return found


def _scan_calibration(
    calibration: Calibration, request: EvaluateRequest, scratch: Path, progress: Progress
) -> ScoreTable | None:
    """Score the calibration images where the manifest's splits hold them all, to compare what they look like."""
    found: dict[str, ImageRecord] = {}
    part: Dataset | None = None
    for split in list_splits(request.data) or (None,):
        try:
            dataset = load_dataset(request.data, split, request.root, request.preprocess)
        except CalibError:
            continue
        found |= {r.key: replace(r, label=None) for r in dataset.records if r.key in calibration.images}
        part = dataset
        if len(found) == len(calibration.images):
            break
    if part is None or len(found) < len(calibration.images):
        return None
    whole = replace(part, records=tuple(found[key] for key in sorted(found)), classes=None)
    table = scan(whole, scratch / "calibration.parquet", progress=progress, workers=request.workers).table
    same = [row for row, key in enumerate(table.keys) if table.columns["sha256"][row] == calibration.images[key]]
    return take_rows(table, np.array(same, np.int64)) if len(same) == len(found) else None


def _file_of(record: ImageRecord) -> str:
    """The file that holds a label; several records may share one, as in COCO JSON."""
    return str(record.label).partition("#")[0]


def _digest(path: str) -> str:
    return sha256_file(Path(path)) if Path(path).is_file() else ""


def _root(dataset: Dataset) -> str:
    """Folder that the labels' addresses start with, so that a moved data set has the same digest."""
    first = dataset.records[0]
    return first.path.removesuffix(first.key)


def other_network(calibrations: Sequence[Calibration], reference: str, files: Mapping[str, str]) -> list[str]:
    """Warn where variants were not built from the reference."""
    return [
        f"{printable(str(item.folder))} was not built from {reference}: differences also hold what changed between the "
        "two networks"
        for item in calibrations
        if item.network and set(item.network.values()).isdisjoint(files.values())
    ]
