"""Score images in parallel: what is handed in is decoded and counted, what cannot be used is gathered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from calib.core.scores import Counts, ReducedLuma, ScoreSettings, make_columns
from calib.errors import ImageError
from calib.types.data import Dataset, ImageRecord, Preprocess
from calib.types.scores import ScoreTable

NAMED_FAILURES = 100
HANDFUL = 8
"""Images a task: waking a thread for each would cost more than it balances."""


@dataclass(frozen=True)
class Stamp:
    """What tells, without reading, whether a file has changed.

    Attributes:
        size: bytes, -1 where there is no file.
        mtime_ns: time of last change, nanoseconds since the epoch, -1 where there is no file.
    """

    size: int
    mtime_ns: int


@dataclass(frozen=True)
class ScanImage:
    """An image as a scan needs it.

    Attributes:
        luma: BT.601 at the working size.
        ids: unsigned ``[H, W]`` train ids, void where none; None without a label.
        foreign: label pixels with values outside the class table.
        sha256: hex digest of the image file's bytes.
    """

    luma: ReducedLuma
    ids: NDArray[Any] | None
    foreign: int
    sha256: str


class ImageSource(Protocol):
    """Reads images and labels; safe to call from several threads."""

    def stamp(self, record: ImageRecord) -> tuple[Stamp, Stamp]:
        """Look at image and label without reading them."""

    def load(self, record: ImageRecord) -> ScanImage:
        """Read and decode.

        Raises:
            ImageError: image or label cannot be used.
        """


@dataclass(frozen=True)
class Failure:
    """An image that could not be scored."""

    key: str
    error: ImageError


@dataclass(frozen=True)
class ScanPlan:
    """What every image of a scan is scored with."""

    settings: ScoreSettings
    preprocess: Preprocess | None
    class_names: tuple[str, ...]

    @classmethod
    def of(cls, dataset: Dataset, settings: ScoreSettings) -> ScanPlan:
        """Take from a data set what scoring needs of it."""
        return cls(settings, dataset.preprocess, dataset.classes.names if dataset.classes else ())


@dataclass(frozen=True)
class PartialScan:
    """Some images being scored.

    Attributes:
        records: what is scored.
        plan: settings and classes.
        counts: filled by the workers, a row a record.
        answers: for each handful of images, the digest of each, or why it could not be scored.
    """

    records: Sequence[ImageRecord]
    plan: ScanPlan
    counts: Counts
    answers: Sequence[Future[list[str | ImageError]]]

    def finish(self, stamps: Mapping[str, tuple[Stamp, Stamp]]) -> tuple[ScoreTable, list[Failure]]:
        """Wait for the images.

        Args:
            stamps: of image and label, by key.

        Returns:
            The table of those that could be scored, and the failures, both in the order of the records.
        """
        digests = [digest for future in self.answers for digest in future.result()]
        good = [row for row, digest in enumerate(digests) if isinstance(digest, str)]
        failures = [
            Failure(self.records[row].key, digest)
            for row, digest in enumerate(digests)
            if isinstance(digest, ImageError)
        ]
        settings, records = self.plan.settings, [self.records[row] for row in good]
        columns = make_columns(self.counts.take(np.array(good, np.int64)), settings)
        columns |= _describe_files(records, [stamps[record.key] for record in records])
        columns["sha256"] = np.array([digests[row] for row in good], "U64")
        keys = tuple(record.key for record in records)
        thresholds = settings.as_thresholds(self.plan.preprocess)
        return ScoreTable(keys, columns, self.plan.class_names, thresholds), failures


def start_part(
    records: Sequence[ImageRecord], source: ImageSource, plan: ScanPlan, pool: Executor, done: Callable[[], None]
) -> PartialScan:
    """Begin to score some images; the next part can be started before this one is finished.

    Args:
        records: what to score.
        source: reads them.
        plan: settings and classes.
        pool: runs a handful of images a task in threads; the answer does not depend on their number.
        done: called after each image, from several threads.
    """
    counts = Counts(len(records), len(plan.class_names))

    def score(row: int) -> str | ImageError:
        try:
            image = source.load(records[row])
        except ImageError as error:
            return error
        finally:
            done()
        counts.add_image(row, image.luma, image.ids, plan.settings, plan.preprocess)
        counts.foreign[row] = image.foreign
        return image.sha256

    def score_handful(rows: range) -> list[str | ImageError]:
        return [score(row) for row in rows]

    starts = range(0, len(records), HANDFUL)
    handfuls = [range(start, min(start + HANDFUL, len(records))) for start in starts]
    return PartialScan(records, plan, counts, [pool.submit(score_handful, rows) for rows in handfuls])


def _describe_files(records: Sequence[ImageRecord], stamps: Sequence[tuple[Stamp, Stamp]]) -> dict[str, NDArray[Any]]:
    return {
        "path": np.array([record.path for record in records], str),
        "label_path": np.array([record.label or "" for record in records], str),
        "group": np.array([describe_group(record) for record in records], str),
        "file_size": np.array([image.size for image, _ in stamps], np.int64),
        "file_mtime_ns": np.array([image.mtime_ns for image, _ in stamps], np.int64),
        "label_size": np.array([label.size for _, label in stamps], np.int64),
        "label_mtime_ns": np.array([label.mtime_ns for _, label in stamps], np.int64),
    }


def describe_group(record: ImageRecord) -> str:
    """Write a record's group as ``name=value;name=value``, names ascending; empty for none."""
    return ";".join(f"{name}={value}" for name, value in sorted(record.group.items()))


def find_unchanged(
    table: ScoreTable, records: Sequence[ImageRecord], stamps: Sequence[tuple[Stamp, Stamp]]
) -> dict[str, int]:
    """Find the records whose scores are known: same addresses, sizes, times of change and group.

    Returns:
        Key to row in ``table``.
    """
    columns = ("path", "label_path", "group", "file_size", "file_mtime_ns", "label_size", "label_mtime_ns")
    known = zip(*(table.columns[name].tolist() for name in columns), strict=True)
    rows = {key: (row, facts) for row, (key, facts) in enumerate(zip(table.keys, known, strict=True))}
    found = {}
    for record, (image, label) in zip(records, stamps, strict=True):
        row, facts = rows.get(record.key, (-1, ()))
        sizes = (image.size, image.mtime_ns, label.size, label.mtime_ns)
        if facts == (record.path, record.label or "", describe_group(record), *sizes) and image.size >= 0:
            found[record.key] = row
    return found


def gather_failures(failures: Sequence[Failure], total: int, place: str) -> ImageError:
    """Make one error of all images that cannot be used; names each, up to a hundred.

    Args:
        failures: at least one.
        total: images of the scan.
        place: the data set.
    """
    lines = [f"  {item.key}: {_reason(item)}" for item in failures[:NAMED_FAILURES]]
    if len(failures) > NAMED_FAILURES:
        lines.append(f"  … and {len(failures) - NAMED_FAILURES} more")
    return ImageError(
        place,
        expected="images and labels that can be read",
        got=f"{len(failures)} of {total} that cannot:\n" + "\n".join(lines),
        remedy="repair these files or take them out of the data set, then run the same command again: "
        "the other images are kept and not read again",
    )


def _reason(failure: Failure) -> str:
    error = failure.error
    own = error.place == failure.key or error.place.endswith("/" + failure.key)
    return f"{'' if own else error.place + ': '}expected {error.expected}, got {error.got}"
