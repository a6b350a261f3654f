"""Score tables made of random but plausible numbers."""

from __future__ import annotations

import hashlib

import numpy as np

from calib.core.scores import ScoreSettings
from calib.types.scores import ScoreTable

CLASSES = ("Road", "Building", "Sky", "Pole", "Person")


def make_table(images=40, seed=0, labels=True, **changed):
    """A table of ``images`` rows; ``changed`` replaces columns."""
    rng = np.random.default_rng(seed)
    digests = [hashlib.sha256(f"{seed} {row}".encode()).hexdigest() for row in range(images)]
    share = rng.dirichlet([5, 5, 3, 0.5, 0.1], images)
    small = share * np.array([0.01, 0.02, 0.01, 0.8, 0.6]) * rng.random((images, 5))
    columns = {
        "sha256": np.array(digests, "U64"),
        "path": np.array([f"/data/{row:04d}.jpg" for row in range(images)], str),
        "label_path": np.array([""] * images, str),
        "group": np.array([f"sequence={row * 3 // max(images, 1)}" for row in range(images)], str),
        "phash": rng.integers(0, 2**63, images, dtype=np.uint64),
        "thumbnail": rng.integers(0, 256, (images, 256)).astype(np.uint8),
        "luma_mean": rng.uniform(20, 220, images).astype(np.float32),
        "luma_histogram": rng.dirichlet(np.ones(16), images).astype(np.float32),
        "dark_share": rng.beta(0.5, 2, images).astype(np.float32),
        "bright_share": rng.beta(0.5, 4, images).astype(np.float32),
        "contrast": rng.random(images).astype(np.float32),
        "flatness": rng.uniform(0, 0.5, images).astype(np.float32),
        "edge_density": rng.random(images).astype(np.float32),
        "sharpness": rng.uniform(0, 5000, images).astype(np.float32),
        "labelled": np.full(images, labels),
        "boundary_density": rng.random(images).astype(np.float32),
        "small_count": rng.integers(0, 50, images).astype(np.int32),
        "small_share": small.sum(axis=1).astype(np.float32),
        "object_areas": rng.integers(0, 9, (images, 24)).astype(np.int32),
        "class_share": share.astype(np.float32),
        "class_dark_share": rng.random((images, 5)).astype(np.float32),
        "class_small_count": rng.integers(0, 9, (images, 5)).astype(np.int32),
        "class_small_share": small.astype(np.float32),
    }
    if not labels:
        for name in ("boundary_density", "small_share"):
            columns[name] = np.full(images, np.nan, np.float32)
        for name in ("class_share", "class_dark_share", "class_small_count", "class_small_share"):
            columns[name] = columns[name][:, :0]
        columns["small_count"][:] = 0
        columns["object_areas"][:] = 0
    columns |= {name: np.asarray(value) for name, value in changed.items()}
    for column in columns.values():
        column.flags.writeable = False
    keys = tuple(f"images/{row:04d}.jpg" for row in range(images))
    return ScoreTable(keys, columns, CLASSES if labels else (), ScoreSettings().as_thresholds(None))
