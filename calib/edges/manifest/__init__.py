"""Data manifests and lists: from YAML, CSV, JSON lines, Parquet or COCO JSON to a ``Dataset``."""

from calib.edges.manifest.loading import (
    find_manifest,
    list_splits,
    load_dataset,
    shipped_manifests,
    stated_preprocess,
)
from calib.edges.manifest.preprocessing import parse_preprocess, require_preprocess

__all__ = [
    "find_manifest",
    "list_splits",
    "load_dataset",
    "parse_preprocess",
    "require_preprocess",
    "shipped_manifests",
    "stated_preprocess",
]
