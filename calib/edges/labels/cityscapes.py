"""Cityscapes label files: labelIds to trainIds, and files that hold trainIds already."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

LABEL_IDS: tuple[int, ...] = (7, 8, 11, 12, 13, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 31, 32, 33)
"""labelIds of the 19 evaluated classes by trainId (cityscapesScripts, helpers/labels.py)."""

HIGHEST_TRAIN_ID = 18
LABEL_ID_COUNT = 34
LICENSE_PLATE = -1
UNSCORED = 255


def label_id_mapping() -> dict[int, int]:
    """Map every labelId to its trainId; the others, licence plate -1 (stored as 255) among them, are void."""
    mapping = dict.fromkeys(range(LABEL_ID_COUNT), UNSCORED) | {LICENSE_PLATE: UNSCORED}
    return mapping | {label: train for train, label in enumerate(LABEL_IDS)}


def train_id_mapping() -> dict[int, int]:
    """Map trainIds to themselves; 255 and -1 are void."""
    return {train: train for train in range(HIGHEST_TRAIN_ID + 1)} | {UNSCORED: UNSCORED, LICENSE_PLATE: UNSCORED}


def holds_train_ids(address: str, plane: NDArray[Any]) -> tuple[bool, str]:
    """Tell trainIds from labelIds, by the file's name and, where it does not say, by the values.

    Values of 19 to 33 occur in labelIds only. 255 occurs in trainIds on every void pixel, and in labelIds only on
    licence plates, which the published files do not hold. A file with neither is taken for labelIds.

    Returns:
        whether these are trainIds, and a note where that is not what ``label_format: cityscapes`` says.
    """
    counts = np.bincount(plane.reshape(-1), minlength=256)
    like_train_ids = bool(counts[UNSCORED] and not counts[HIGHEST_TRAIN_ID + 1 : LABEL_ID_COUNT].any())
    name = PurePosixPath(address.replace("\\", "/")).name.lower()
    if "labeltrainids" in name or ("labelids" not in name and like_train_ids):
        return True, "holds trainIds already, read as such"
    return False, "named labelIds, but its values look like trainIds" if like_train_ids else ""
