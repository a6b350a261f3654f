"""The scan job: score every image of a data set, reading only what has changed since the last time."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import cv2
import numpy as np

from calib.core.scores import ScoreSettings
from calib.core.scoretable import join_tables, take_rows
from calib.edges.files import make_output_folder, read_bytes
from calib.edges.index import IndexInfo, read_index_and_info, write_index
from calib.edges.labels import LabelReader
from calib.edges.luma import read_luma
from calib.errors import CalibError, ImageError
from calib.stages.scan import (
    Failure,
    PartialScan,
    ScanImage,
    ScanPlan,
    Stamp,
    find_unchanged,
    gather_failures,
    start_part,
)
from calib.types.data import Dataset, ImageRecord
from calib.types.progress import Progress
from calib.types.scores import ScoreTable

PART = 1024
"""Images a part: a killed scan loses at most two parts."""

LOOKS = 64
"""Files a task when they are only looked at."""

MISSING = Stamp(-1, -1)


@dataclass(frozen=True)
class ScanResult:
    """What a scan did.

    Attributes:
        table: scores of every image, sorted by key.
        info: what was written beside them.
        reused: images that were not read again.
        notes: oddities of labels.
    """

    table: ScoreTable
    info: IndexInfo
    reused: int
    notes: tuple[str, ...] = field(default=())


class FileSource:
    """Reads images and labels of a data set from files.

    Args:
        dataset: labels are read only where it names classes.
        working_pixels: luma is reduced to at most this many pixels.
    """

    def __init__(self, dataset: Dataset, working_pixels: int) -> None:
        self._working_pixels = working_pixels
        self._labels = LabelReader(dataset) if dataset.classes is not None and _has_labels(dataset) else None

    def stamp(self, record: ImageRecord) -> tuple[Stamp, Stamp]:
        """Look at image and label without reading them."""
        return _stamp(record.path), _stamp(record.label) if record.label else MISSING

    def load(self, record: ImageRecord) -> ScanImage:
        """Read, hash and decode the image, and its label where it has one.

        Raises:
            ImageError: either cannot be used, or their sizes differ.
        """
        data = read_bytes(record.path)
        digest = hashlib.sha256(data).hexdigest()
        if self._labels is None or record.label is None:
            return ScanImage(read_luma(record.path, data, None, self._working_pixels), None, 0, digest)
        label = self._labels.read(record)
        height, width = label.ids.shape
        luma = read_luma(record.path, data, (height, width), self._working_pixels)
        if luma.size != label.ids.shape:
            raise ImageError(
                record.label,
                expected=f"a label as large as its image, {luma.size[1]} x {luma.size[0]} pixels",
                got=f"{width} x {height}",
                remedy="export image and label at the same size; resizing a label moves its borders",
            )
        return ScanImage(luma, label.ids, sum(label.foreign.values()), digest)


def scan(
    dataset: Dataset,
    output: Path,
    *,
    progress: Progress,
    workers: int | None = None,
    settings: ScoreSettings | None = None,
) -> ScanResult:
    """Score every image and write the index.

    Images that an index at ``output``, or the parts of an interrupted scan beside it, know unchanged are not read.

    Args:
        dataset: what to scan.
        output: the index to write.
        progress: shows how far it is.
        workers: threads, all cores by default; the index does not depend on it.
        settings: thresholds.

    Raises:
        ImageError: some images cannot be used; it names them all. The others are kept for the next run.
        OutputError: the index cannot be written.
    """
    cv2.setNumThreads(1)  # one image a thread is faster than many threads an image
    make_output_folder(output.parent)
    settings = settings or ScoreSettings()
    info = IndexInfo(dataset.name, dataset.split, common_root(dataset), digest_settings(dataset, settings))
    source, parts = FileSource(dataset, settings.working_pixels), _parts_folder(output)
    workers = workers or os.cpu_count() or 1
    with _worker_threads(workers) as pool:
        stamps = _stamps(dataset.records, source, pool)
        known = _find_known(dataset.records, stamps, output, parts, info)
        seen = {key for table in known for key in table.keys}
        waiting = [record for record in dataset.records if record.key not in seen]
        fresh, failures = _scan_waiting(
            waiting, stamps, source, ScanPlan.of(dataset, settings), pool, parts, info, progress
        )
    if failures:
        raise gather_failures(failures, len(dataset.records), f"{dataset.name}, split {dataset.split}")
    table = join_tables([*known, *fresh])
    write_index(output, table, info)
    shutil.rmtree(parts, ignore_errors=True)
    return ScanResult(table, info, len(seen), _note_labels(table))


@contextlib.contextmanager
def _worker_threads(workers: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that drop what waits for them when the block fails or is interrupted."""
    pool = ThreadPoolExecutor(workers)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def digest_settings(dataset: Dataset, settings: ScoreSettings) -> str:
    """Digest everything but the files that decides a score: thresholds, classes, label format and preprocessing."""
    classes = dataset.classes
    facts = {
        "thresholds": settings.as_thresholds(dataset.preprocess),
        "fit": dataset.preprocess.fit if dataset.preprocess else "",
        "classes": [list(classes.names), classes.ignore_index, [list(c) for c in classes.colours]] if classes else [],
        "label_format": dataset.label_format,
        "label_map": sorted(dataset.label_map.items()),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def common_root(dataset: Dataset) -> str:
    """Find the folder that every key is relative to; empty where the images share none."""
    roots = {record.path.removesuffix(record.key) for record in dataset.records}
    root = roots.pop() if len(roots) == 1 else ""
    return root.rstrip("/") if root.endswith("/") else ""


def _scan_waiting(
    waiting: Sequence[ImageRecord],
    stamps: dict[str, tuple[Stamp, Stamp]],
    source: FileSource,
    plan: ScanPlan,
    pool: ThreadPoolExecutor,
    parts: Path,
    info: IndexInfo,
    progress: Progress,
) -> tuple[list[ScoreTable], list[Failure]]:
    tables: list[ScoreTable] = []
    failures: list[Failure] = []

    def finish(part: PartialScan, last: bool) -> None:
        table, failed = part.finish(stamps)
        tables.append(table)
        failures.extend(failed)
        if len(table) and (failures or not last):
            make_output_folder(parts)
            write_index(parts / f"{_digest_keys(table)}.parquet", table, info)

    under_way: PartialScan | None = None
    with progress.task("scanning images", len(waiting)) as task:
        for start in range(0, len(waiting), PART):
            following = start_part(waiting[start : start + PART], source, plan, pool, task.advance)
            if under_way is not None:
                finish(under_way, last=False)
            under_way = following
        if under_way is not None:
            finish(under_way, last=True)
    return tables, failures


def _stamps(
    records: Sequence[ImageRecord], source: FileSource, pool: ThreadPoolExecutor
) -> dict[str, tuple[Stamp, Stamp]]:
    """Look at all files without reading them, many a task: handing one over takes longer than looking at it."""

    def look(start: int) -> list[tuple[Stamp, Stamp]]:
        return [source.stamp(record) for record in records[start : start + LOOKS]]

    found = chain.from_iterable(pool.map(look, range(0, len(records), LOOKS)))
    return dict(zip((record.key for record in records), found, strict=True))


def _find_known(
    records: Sequence[ImageRecord],
    stamps: dict[str, tuple[Stamp, Stamp]],
    output: Path,
    parts: Path,
    info: IndexInfo,
) -> list[ScoreTable]:
    """Tables of the images that need not be read again, without overlap."""
    tables: list[ScoreTable] = []
    left = list(records)
    for path in [output, *sorted(parts.glob("*.parquet"))]:
        table = _read_matching(path, info)
        if table is None:
            continue
        rows = find_unchanged(table, left, [stamps[record.key] for record in left])
        if rows:
            tables.append(take_rows(table, np.array(list(rows.values()), np.int64)))
            left = [record for record in left if record.key not in rows]
    return tables


def _read_matching(path: Path, info: IndexInfo) -> ScoreTable | None:
    """Read an index if it is one and was made with the same settings; a damaged one is scanned again."""
    try:
        table, found = read_index_and_info(path)
    except CalibError:
        return None
    return table if found.settings == info.settings else None


def _parts_folder(output: Path) -> Path:
    return output.with_name(f".{output.name}.parts")


def _digest_keys(table: ScoreTable) -> str:
    return hashlib.sha256("\0".join(table.keys).encode()).hexdigest()[:16]


def _stamp(address: str) -> Stamp:
    try:
        status = Path(address).stat()
    except OSError:
        return MISSING
    return Stamp(status.st_size, status.st_mtime_ns)


def _has_labels(dataset: Dataset) -> bool:
    return any(record.label for record in dataset.records)


def _note_labels(table: ScoreTable) -> tuple[str, ...]:
    notes = []
    foreign = np.nan_to_num(table.columns["foreign_share"]) > 0
    if foreign.any():
        first = table.keys[int(np.argmax(foreign))]
        notes.append(
            f"{int(foreign.sum())} labels hold values outside the class table, counted as void; first: {first}"
        )
    labelled = table.columns["labelled"]
    if labelled.any() and not labelled.all():
        notes.append(f"{int((~labelled).sum())} of {len(table)} images have no label; image scores serve for them")
    return tuple(notes)
