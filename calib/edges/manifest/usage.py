"""Which label files of a manifest no image refers to."""

from __future__ import annotations

from pathlib import Path

from calib.edges.manifest.addresses import join_address
from calib.edges.manifest.loading import load_dataset, read_model, resolve_root
from calib.edges.manifest.patterns import FIELD, find_images
from calib.edges.manifest.schema import SplitModel
from calib.errors import ManifestError

FIELD_GLOBS = {"path": "**/*", "parent": "**", "suffix": ".*"}


def find_unused_labels(path: str, root: str | None = None) -> list[str]:
    """List label files that fit a split's template while no split has an image for them.

    Splits that come from lists or exclude images are left out: they choose from a folder on purpose.

    Args:
        path: the manifest.
        root: overrides its root.

    Returns:
        paths as the template spells them, ascending; empty where no template says what to look for.
    """
    read = read_model(path)
    if read is None:
        return []
    file, model = read
    base = resolve_root(file, model, root)
    used: set[str] = set()
    found: set[str] = set()
    for name, split in model.splits.items():
        try:
            records = load_dataset(path, name, root).records
        except ManifestError:
            return []  # without this split's images nobody can tell which labels are left over
        used |= {Path(record.label).as_posix() for record in records if record.label}
        found |= set(_fitting_labels(split, base))
    return sorted(label for label in found if Path(join_address(base, label)).as_posix() not in used)


def _fitting_labels(split: SplitModel, root: str) -> list[str]:
    if split.labels is None or split.list is not None or split.exclude or not FIELD.search(split.labels):
        return []
    pattern = FIELD.sub(lambda match: FIELD_GLOBS.get(match[1], "*"), split.labels)
    return list(find_images(split.labels, root, pattern))
