"""Check a data set before anything is computed on it: every file is decoded, every oddity named."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from calib.core.jpegscan import check_scan
from calib.edges.files import read_bytes
from calib.edges.images import read_header, read_picture
from calib.edges.labels import LabelMap, LabelReader
from calib.edges.manifest import list_splits, load_dataset
from calib.edges.manifest.usage import find_unused_labels
from calib.errors import CalibError, ImageError, ManifestError
from calib.jobs.manifest_facts import (
    MOST_VALUES,
    FileFacts,
    Finding,
    class_pixels,
    file_findings,
    frequent_values,
    overlap_findings,
    split_findings,
)
from calib.types.data import ClassTable, Dataset, ImageRecord
from calib.types.progress import Progress

SCHEMA = 1
ANY_VALUE = 65534
SEVERITIES = ("error", "warning", "info")


@dataclass(frozen=True)
class SplitCheck:
    """A split and what was learned of its files, in the order of its records."""

    dataset: Dataset
    files: tuple[FileFacts, ...]


@dataclass(frozen=True)
class ManifestCheck:
    """The whole check.

    Attributes:
        manifest: path of the manifest.
        splits: by name, in the manifest's order.
        findings: errors first, then warnings, then information; each by code, split and file.
    """

    manifest: str
    splits: dict[str, SplitCheck]
    findings: tuple[Finding, ...]

    def count(self, severity: str) -> int:
        """Number of findings of a severity."""
        return sum(finding.severity == severity for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """The check as one JSON document."""
        return {
            "schema": SCHEMA,
            "manifest": self.manifest,
            "usable": self.count("error") == 0,
            "errors": self.count("error"),
            "warnings": self.count("warning"),
            "splits": {name: summarise(check) for name, check in self.splits.items()},
            "findings": [vars(finding) for finding in self.findings],
        }


def check_manifest(
    path: str, split: str | None, root: str | None, workers: int | None, progress: Progress
) -> ManifestCheck:
    """Check a manifest: its splits, and every image and label of them.

    Args:
        path: manifest, list, or a shipped manifest's name.
        split: one split, or None for all.
        root: overrides the manifest's root.
        workers: threads; None for as many as this process may use.
        progress: told of every file.

    Raises:
        ManifestError: the manifest itself is wrong, or the split missing.
    """
    datasets, findings = _load_splits(path, split, root)
    checks = {dataset.split: _check_split(dataset, workers, progress) for dataset in datasets}
    findings += [finding for check in checks.values() for finding in _findings_of(check)]
    findings += overlap_findings({name: check.files for name, check in checks.items()})
    findings += (
        Finding("warning", "unused-label", "", label, "no image refers to this label", "check the images pattern")
        for label in find_unused_labels(path, root)
    )
    ordered = sorted(findings, key=lambda f: (SEVERITIES.index(f.severity), f.code, f.split, f.file, f.message))
    return ManifestCheck(datasets[0].manifest_path, checks, tuple(ordered))


def summarise(check: SplitCheck) -> dict[str, Any]:
    """Count the files of a split by kind, mode and size, and the pixels by class."""
    files = check.files
    totals = class_pixels(files) if check.dataset.classes else ()
    classes = check.dataset.classes.names if check.dataset.classes else ()
    return {
        "images": len(files),
        "usable_images": sum(facts.image_error is None for facts in files),
        "labels": sum(facts.record.label is not None for facts in files),
        "usable_labels": sum(facts.label_size is not None for facts in files),
        "image_kinds": _counted(facts.kind for facts in files if facts.kind),
        "label_kinds": _counted(facts.label_kind for facts in files if facts.label_size),
        "sizes": _counted(f"{facts.size[0]}x{facts.size[1]}" for facts in files if facts.size),
        "rotated": {
            "applied": sum(facts.applied for facts in files),
            "kept": sum(facts.orientation != 1 and not facts.applied for facts in files),
        },
        "class_pixels": dict(zip((*classes, "void"), totals, strict=True)) if totals else {},
    }


def usable_cores() -> int:
    """Cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def inspect(record: ImageRecord, reader: LabelReader | None, class_count: int) -> FileFacts:
    """Decode an image and its label, and note what they are; errors become facts."""
    facts = FileFacts(record, label_file=record.key if (record.label or "").endswith(".json") else record.label or "")
    if reader is not None and record.label is not None:
        facts = _inspect_label(facts, reader, class_count)
    return _inspect_image(facts)


def _load_splits(path: str, split: str | None, root: str | None) -> tuple[list[Dataset], list[Finding]]:
    """Load the split asked for, or all; of several, those that cannot be loaded become findings."""
    names = () if split is not None else list_splits(path)
    if len(names) < 2:
        return [load_dataset(path, split, root)], []
    datasets, findings, errors = [], [], []
    for name in names:
        try:
            datasets.append(load_dataset(path, name, root))
        except ManifestError as error:
            errors.append(error)
            message = f"expected {error.expected}, got {error.got}"
            findings.append(Finding("error", "unusable-split", name, "", message, error.remedy))
    if not datasets:
        raise errors[0]
    return datasets, findings


def _check_split(dataset: Dataset, workers: int | None, progress: Progress) -> SplitCheck:
    labelled = any(record.label for record in dataset.records)
    reader = LabelReader(_with_any_classes(dataset)) if labelled else None
    class_count = len(dataset.classes.names) if dataset.classes else 0
    with (
        progress.task(f"checking {dataset.split}", len(dataset.records)) as task,
        ThreadPoolExecutor(workers or usable_cores()) as pool,
    ):

        def work(record: ImageRecord) -> FileFacts:
            facts = inspect(record, reader, class_count)
            task.advance()
            return facts

        return SplitCheck(dataset, tuple(pool.map(work, dataset.records)))


def _findings_of(check: SplitCheck) -> list[Finding]:
    split = check.dataset.split
    of_files = [finding for facts in check.files for finding in file_findings(facts, split)]
    return [*of_files, *split_findings(check.dataset, check.files), *_missing_labels(check), *_missing_inputs(check)]


def _missing_labels(check: SplitCheck) -> list[Finding]:
    """Images without a label, where other images of the split have one."""
    if not any(facts.record.label for facts in check.files):
        return []
    return [
        Finding("error", "missing-label", check.dataset.split, facts.record.key, "no label is listed", "add its label")
        for facts in check.files
        if facts.record.label is None
    ]


def _missing_inputs(check: SplitCheck) -> list[Finding]:
    return [
        Finding("error", "missing-input", check.dataset.split, address, f"no such file, for input {name!r}")
        for facts in check.files
        for name, address in facts.record.inputs.items()
        if not Path(address).is_file()
    ]


def _inspect_label(facts: FileFacts, reader: LabelReader, class_count: int) -> FileFacts:
    label = facts.record.label or ""
    try:
        found = reader.read(facts.record)
    except CalibError as error:
        return replace(facts, label_error=error, label_missing=not Path(label).exists())
    height, width = found.ids.shape
    return replace(
        facts,
        label_kind=f"{Path(label).suffix.lower().lstrip('.')} {found.mode}".strip(),
        label_size=(height, width),
        foreign=frequent_values(found.foreign, MOST_VALUES),
        foreign_values=len(found.foreign),
        notes=found.notes,
        pixels=_pixels_of(found, class_count),
    )


def _pixels_of(label: LabelMap, class_count: int) -> tuple[int, ...]:
    counts = np.bincount(label.ids.reshape(-1), minlength=label.void + 1)
    return (*(int(count) for count in counts[:class_count]), int(counts[label.void]))


def _inspect_image(facts: FileFacts) -> FileFacts:
    path = facts.record.path
    try:
        data = read_bytes(path)
        facts = replace(facts, sha256=hashlib.sha256(data).hexdigest())
        header = read_header(path, data)
        extraneous = _check_jpeg(path, data) if header.kind == "jpeg" else 0
        picture = read_picture(path, data, facts.label_size)
    except CalibError as error:
        return replace(facts, image_error=error)
    height, width = picture.pixels.shape[:2]
    return replace(
        facts,
        kind=f"{picture.kind} {picture.mode}",
        size=(height, width),
        orientation=picture.orientation,
        applied=picture.applied,
        trailing=header.trailing,
        extraneous=extraneous,
    )


def _check_jpeg(path: str, data: bytes) -> int:
    """Extraneous bytes of a JPEG file.

    Raises:
        ImageError: part of the picture is missing or damaged, which decoders paint over.
    """
    scan = check_scan(data)
    if scan.walked and scan.done < 1:
        raise ImageError(
            path,
            expected="a whole JPEG picture",
            got=f"data that break off or are damaged after {scan.done:.1%} of it; the rest would be filled in",
            remedy="copy or download it again, or take it out of the data set",
        )
    return scan.extraneous


def _with_any_classes(dataset: Dataset) -> Dataset:
    """Without classes, let every label value pass: files and sizes can be checked all the same."""
    if dataset.classes is not None:
        return dataset
    return replace(dataset, classes=ClassTable(tuple(str(value) for value in range(ANY_VALUE)), None, ()))


def _counted(items: Any) -> dict[str, int]:
    return dict(sorted(Counter(items).items(), key=lambda item: (-item[1], item[0])))
