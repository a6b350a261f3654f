"""Which images are trained on and which are validated on: never those that the result is reported on."""

from __future__ import annotations

from dataclasses import dataclass, replace

from calib.edges.manifest import list_splits, load_dataset, require_preprocess
from calib.errors import ManifestError, UsageError
from calib.jobs.qat.request import QatRequest
from calib.types.data import Dataset, ImageRecord

HELD_SHARE = 0.1
"""Share of the training images held out where no split is named to validate on."""
MOST_HELD = 200
BLOCKS = 5
"""Held-out images are this many runs of neighbours, for frames of one video resemble their neighbours."""


@dataclass(frozen=True)
class Splits:
    """The images of a training.

    Attributes:
        train: to train on.
        valid: to validate on.
        held_out: whether ``valid`` is a part of the training split.
    """

    train: Dataset
    valid: Dataset
    held_out: bool

    @property
    def words(self) -> str:
        """Say it for people."""
        if not self.held_out:
            return f"validated on split {self.valid.split}: report the result on another one"
        return (
            f"validated on {len(self.valid.records)} images held out of split {self.train.split}; the float network "
            "may have seen them when it was trained, so their mIoU watches over the training and chooses nothing"
        )


def choose_splits(request: QatRequest) -> Splits:
    """Load the training split, and a split to validate on or a held-out part.

    Raises:
        ManifestError: a split is missing, has images without label, or is too small to hold anything out.
        UsageError: the manifest has several splits and none is called ``train``.
    """
    train = load_dataset(request.data, _train_split(request), request.root, request.preprocess)
    require_preprocess(train)
    _require_labels(train)
    if request.val_split is not None:
        valid = load_dataset(request.data, request.val_split, request.root, request.preprocess)
        _require_labels(valid)
        return Splits(train, valid, False)
    held = hold_out(train.records)
    keys = {record.key for record in held}
    kept = tuple(record for record in train.records if record.key not in keys)
    if not held or not kept:
        raise ManifestError(
            f"split {train.split} of {train.manifest_path}",
            expected="at least two images, one of them to validate on",
            got=str(len(train.records)),
            remedy="name a split to validate on with --val-split",
        )
    return Splits(replace(train, records=kept), replace(train, records=held), True)


def _require_labels(dataset: Dataset) -> None:
    bare = [record.key for record in dataset.records if record.label is None]
    if bare:
        raise ManifestError(
            f"{dataset.manifest_path}, split {dataset.split}",
            expected="a label for every image",
            got=f"{len(bare)} of {len(dataset.records)} without, the first {bare[0]}",
            remedy="give the split a labels: entry, or take these images out of it",
        )


def hold_out(records: tuple[ImageRecord, ...]) -> tuple[ImageRecord, ...]:
    """Choose images to hold out: runs of neighbours, evenly spread over the sorted images."""
    total = len(records)
    wanted = min(MOST_HELD, max(1, round(total * HELD_SHARE))) if total > 1 else 0
    blocks = min(BLOCKS, wanted)
    chosen: list[ImageRecord] = []
    for block in range(blocks):
        length = wanted // blocks + (block < wanted % blocks)
        centre = (2 * block + 1) * total // (2 * blocks)
        start = max(0, min(total - length, centre - length // 2))
        chosen.extend(records[start : start + length])
    return tuple({record.key: record for record in chosen}.values())


def _train_split(request: QatRequest) -> str | None:
    if request.split is not None:
        return request.split
    known = list_splits(request.data)
    if len(known) < 2:
        return None
    if "train" in known:
        return "train"
    raise UsageError(
        "--split", expected="the split to train on", got="none, and none is called train",
        remedy=f"name one of {', '.join(known)}",
    )  # fmt: skip
