"""Which images units are measured on, in which order, and what is read of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from calib.core.scoretable import take_rows
from calib.core.sensitivity.racing import balanced_order
from calib.core.slices import Slice, make_slices, split_slice_option
from calib.edges.images import read_picture
from calib.edges.labels import LabelReader
from calib.edges.manifest import load_dataset, require_preprocess
from calib.errors import LeakError, ManifestError, UsageError
from calib.jobs.evaluate.checks import ignored_class
from calib.jobs.scan import scan
from calib.jobs.sensitivity.request import SensitivityRequest
from calib.stages.compare import Sampling
from calib.stages.evaluate import Scene
from calib.stages.sensitivity_table import Measure
from calib.types.data import Dataset, ImageRecord
from calib.types.progress import Progress
from calib.types.scores import ScoreTable

INDEX = "index.parquet"
VOID = np.uint16(65535)


@dataclass(frozen=True)
class Images:
    """The images of a measurement.

    Attributes:
        dataset: the split, images without use left out.
        table: scores of its images.
        keys: the images in the order in which they are taken, at most as many as asked for.
        slices: masks over ``keys``, in that order.
        sampling: its groups are in that order.
        labelled: whether they have labels.
        notes: what was left out, and why.
    """

    dataset: Dataset
    table: ScoreTable
    keys: tuple[str, ...]
    slices: tuple[Slice, ...]
    sampling: Sampling
    labelled: bool
    notes: tuple[str, ...]

    def load(self, key: str) -> Scene:
        """Read and decode an image, and its label; without one every pixel is void."""
        record = self._records[key]
        if not self.labelled:
            pixels = read_picture(record.path).pixels
            return Scene(key, pixels, np.full(pixels.shape[:2], VOID))
        label = self._labels.read(record).ids
        return Scene(key, read_picture(record.path, expected_size=(label.shape[0], label.shape[1])).pixels, label)

    @cached_property
    def _labels(self) -> LabelReader:
        return LabelReader(self.dataset)

    @cached_property
    def _records(self) -> dict[str, ImageRecord]:
        return {record.key: record for record in self.dataset.records}


def choose_images(
    request: SensitivityRequest, measure: Measure, calibrated_on: frozenset[str], progress: Progress
) -> Images:
    """Scan the split and choose images: none calibrated on, and in each beginning of the order a share of all slices.

    Raises:
        CalibError: the data cannot be used; or every image was calibrated on; or what is ranked by does not exist.
    """
    dataset = load_dataset(request.data, request.split, request.root, request.preprocess)
    require_preprocess(dataset)
    dataset, labelled, notes = _labelled_part(dataset)
    table = scan(dataset, request.output / INDEX, progress=progress, workers=request.workers).table
    kept = np.array([digest not in calibrated_on for digest in table.columns["sha256"].tolist()], bool)
    if not kept.all():
        notes.append(f"{np.count_nonzero(~kept)} images that the network was calibrated on are left out")
    _require_images(kept, dataset)
    custom = dict(split_slice_option(text) for text in request.slices)
    records = {record.key: record for record in dataset.records}
    part = take_rows(table, np.flatnonzero(kept))
    slices, left_out = make_slices(part, [records[key].group for key in part.keys], custom)
    _check_measure(measure, dataset, slices, labelled)
    order = _order(slices, len(part.keys), measure, request)
    keys = tuple(part.keys[row] for row in order.tolist())
    placed = tuple(replace(item, mask=item.mask[order]) for item in slices if item.mask[order].any())
    ignored = ignored_class(dataset) if labelled else None
    groups = _groups(request, [records[key] for key in keys])
    sampling = Sampling(request.resamples, request.seed, groups)
    every_note = (*notes, *(left_out if labelled else ()), *([ignored] if ignored else []))
    return Images(dataset, table, keys, placed, sampling, labelled, every_note)


def _labelled_part(dataset: Dataset) -> tuple[Dataset, bool, list[str]]:
    """Keep the labelled images; all of them, unlabelled, where none can be scored."""
    known = [record for record in dataset.records if record.label is not None]
    if dataset.classes is None or not dataset.classes.names or not known:
        bare = tuple(replace(record, label=None) for record in dataset.records)
        note = "no labels: units are ranked by the pixels they flip, and no loss of IoU is known"
        return replace(dataset, records=bare), False, [note]
    left = len(dataset.records) - len(known)
    return replace(dataset, records=tuple(known)), True, [f"{left} images without label are left out"] if left else []


def _require_images(kept: NDArray[np.bool_], dataset: Dataset) -> None:
    place = f"{dataset.manifest_path}, split {dataset.split}"
    if not kept.size:
        raise ManifestError(place, expected="images", got="none", remedy="name another split")
    if not kept.any():
        raise LeakError(
            place, expected="images that the network was not calibrated on", got=f"all {kept.size} of its images were",
            remedy="measure on another split: clipping costs nothing on the images that chose the ranges",
        )  # fmt: skip


def _check_measure(measure: Measure, dataset: Dataset, slices: Sequence[Slice], labelled: bool) -> None:
    names = dataset.classes.names if dataset.classes else ()
    known = {"class": list(names), "slice": [item.name for item in slices]}.get(measure.kind)
    if known is None:
        return
    if not labelled or measure.name not in known:
        raise UsageError(
            f"--rank-by {measure}", expected=f"a {measure.kind}: " + (", ".join(known) if labelled else "labels"),
            got=repr(measure.name) if labelled else "a split without", remedy="name one of them, or rank by miou",
        )  # fmt: skip


def _order(slices: Sequence[Slice], count: int, measure: Measure, request: SensitivityRequest) -> NDArray[np.int64]:
    """Order the images; where a slice is ranked by, its images come first."""
    order = balanced_order([item.mask for item in slices], count, request.seed)
    if measure.kind == "slice":
        inside = next(item.mask for item in slices if item.name == measure.name)[order]
        order = np.concatenate([order[inside], order[~inside]])
    return order[: request.num_images]


def _groups(request: SensitivityRequest, records: Sequence[ImageRecord]) -> NDArray[np.int64] | None:
    column = request.bootstrap_by
    if column is None:
        return None
    values = [record.group.get(column, "") for record in records]
    if "" in values:
        known = sorted({name for record in records for name in record.group})
        raise UsageError(
            f"--bootstrap-by {column}", expected="a manifest column that every image has",
            got="columns " + ", ".join(known) if known else "a manifest without columns",
            remedy="name one of them, or state `group:` in the manifest",
        )  # fmt: skip
    return np.unique(values, return_inverse=True)[1].astype(np.int64)
