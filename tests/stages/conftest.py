"""Fixtures of the stage tests."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def camvid_tables(shared, tmp_path_factory):
    """Score tables of CamVid's train and val splits."""
    from calib.edges.manifest import load_dataset
    from calib.edges.progress import SilentProgress
    from calib.jobs.scan import scan

    folder = tmp_path_factory.mktemp("camvid")
    tables = []
    for split in ("train", "val"):
        dataset = load_dataset("camvid", split, str(shared / "camvid"))
        tables.append(scan(dataset, folder / f"{split}.parquet", progress=SilentProgress()).table)
    return tables
