"""Hold a build against the data set: manifest, preprocessing, images, overlap with evaluation, values on images."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from calib.core.gate.consistency import extremes_not_reached, extremes_outside
from calib.edges.feeds import bind_dataset
from calib.edges.files import sha256_file
from calib.edges.manifest import load_dataset
from calib.jobs.build.artifacts import Calibrated
from calib.jobs.build.collecting import make_collector
from calib.jobs.build.request import describe_inputs
from calib.jobs.verify.request import VerifyRequest
from calib.jobs.verify.subject import Subject
from calib.types.data import Dataset, ImageRecord
from calib.types.gate import Check, few
from calib.types.progress import Progress
from calib.types.statistics import TensorStatistics

NO_DATA = "give --data to check this"
STALE = "build again: ranges hold for the images and the preprocessing they were collected on"
OTHER = "the statistics are of another network, other images or other pixels: build again"
TALLIED = ("preprocessing", "manifest", "images", "overlap", "values")


def check_data(
    subject: Subject, request: VerifyRequest, calibrated: Sequence[Calibrated], progress: Progress
) -> list[Check]:
    """Check everything that needs the data set.

    Raises:
        ManifestError: the manifest cannot be read, or lacks the split.
    """
    if request.data is None:
        return [Check(name, "skip", NO_DATA) for name in TALLIED]
    split = request.split if request.split is not None else subject.request["split"]
    dataset = _load(request, split)
    digests = _hash_calibration(subject, request, dataset, progress)
    checks = [*_check_description(subject, dataset), *_check_images(subject, digests)]
    checks.append(_check_overlap(subject, request, progress))
    checks.append(_check_values(subject, request, dataset, digests, calibrated, progress))
    return checks


def _load(request: VerifyRequest, split: str) -> Dataset:
    """Load a split; the split of a list without split column is the list's own name."""
    data = str(request.data)
    wanted = None if Path(data).stem == split and not data.endswith((".yaml", ".yml")) else split
    return load_dataset(data, wanted, request.root, request.preprocess)


def _check_description(subject: Subject, dataset: Dataset) -> Iterator[Check]:
    recorded = subject.request
    now = describe_inputs(dataset)
    changed = [f"inputs.{name}" for name in _changed(recorded["inputs"], now["inputs"])]
    before, after = recorded["preprocess"] or {}, now["preprocess"] or {}
    changed += [f"{key} {before.get(key)!r} → {after.get(key)!r}" for key in _changed(before, after)]
    if changed:
        yield Check("preprocessing", "fail", f"changed since the build: {few(changed)}", STALE)
    else:
        yield Check("preprocessing", "pass", "as it was")
    if dataset.manifest_sha256 != recorded["manifest"]:
        yield Check("manifest", "fail", f"{dataset.manifest_path} was changed since the build", STALE)
    else:
        yield Check("manifest", "pass", "as it was")


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    return sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))


def _hash_calibration(
    subject: Subject, request: VerifyRequest, dataset: Dataset, progress: Progress
) -> dict[str, str | None]:
    """Sha256 of every calibration image as it is now; None where it is missing.

    A training depends on the images of its validation split, too.
    """
    records = {record.key: record for record in dataset.records}
    further = subject.request.get("val_split")
    if further is not None:
        records |= {record.key: record for record in _load(request, further).records}
    keys = list(subject.provenance["images"])
    found = _hash_all(
        [records[key] for key in keys if key in records], "hash calibration images", request.workers, progress
    )
    return {key: found.get(key) for key in keys}


def _hash_all(
    records: Sequence[ImageRecord], label: str, workers: int | None, progress: Progress
) -> dict[str, str | None]:
    with progress.task(label, len(records)) as task, ThreadPoolExecutor(workers) as pool:

        def hashed(record: ImageRecord) -> str | None:
            try:
                return sha256_file(Path(record.path))
            except OSError:
                return None
            finally:
                task.advance()

        return dict(zip([record.key for record in records], pool.map(hashed, records), strict=True))


def _check_images(subject: Subject, digests: Mapping[str, str | None]) -> Iterator[Check]:
    recorded = subject.provenance["images"]
    missing = sorted(key for key, digest in digests.items() if digest is None)
    changed = sorted(key for key, digest in digests.items() if digest is not None and digest != recorded[key])
    if missing:
        yield Check("images", "fail", f"{len(missing)} of {len(recorded)} are missing: {few(missing)}", STALE)
    if changed:
        yield Check("images", "fail", f"{len(changed)} of {len(recorded)} were replaced: {few(changed)}", STALE)
    if not missing and not changed:
        yield Check("images", "pass", f"all {len(recorded)} as they were")


def _check_overlap(subject: Subject, request: VerifyRequest, progress: Progress) -> Check:
    split = request.evaluation_split or subject.evaluation_split
    if split is None:
        return Check("overlap", "skip", "name the split that accuracy is measured on with --evaluation-split")
    ours = {digest: key for key, digest in subject.provenance["images"].items()}
    others = _hash_all(_load(request, split).records, f"hash split {split}", request.workers, progress)
    shared = sorted(f"{ours[digest]} = {key}" for key, digest in others.items() if digest in ours)
    if not shared:
        return Check("overlap", "pass", f"no calibration image among the {len(others)} of split {split}")
    detail = f"{len(shared)} calibration images are also in split {split}: {few(shared)}"
    return Check("overlap", "fail", detail, "calibrate on training images only (`calib build --evaluation-split`)")


def _check_values(
    subject: Subject,
    request: VerifyRequest,
    dataset: Dataset,
    digests: Mapping[str, str | None],
    calibrated: Sequence[Calibrated],
    progress: Progress,
) -> Check:
    """Run calibration images again: their values must lie inside the recorded extremes, and all of them reach these."""
    sound = sorted(key for key, digest in digests.items() if digest == subject.provenance["images"][key])
    wanted = len(sound) if request.replay == "all" else min(request.replay, len(sound))
    if not calibrated or not wanted:
        return Check("values", "skip", "needs sound statistics, unchanged images and --replay of at least 1")
    keys = [sound[place * len(sound) // wanted] for place in range(wanted)]
    seen = _collect(subject, request, dataset, calibrated[0], keys, progress)
    recorded = calibrated[0].collected.statistics
    complete = len(keys) == len(subject.provenance["images"])
    odd = extremes_outside(recorded, seen) + (extremes_not_reached(recorded, seen) if complete else [])
    if odd:
        return Check("values", "fail", f"{len(odd)} tensors do not have the recorded values: {few(odd, 2)}", OTHER)
    if complete:
        return Check("values", "pass", f"all {len(keys)} images run again give the recorded extremes and counts")
    return Check("values", "pass", f"{len(keys)} images run again stay inside the recorded extremes")


def _collect(
    subject: Subject,
    request: VerifyRequest,
    dataset: Dataset,
    calibrated: Calibrated,
    keys: Sequence[str],
    progress: Progress,
) -> Mapping[str, TensorStatistics]:
    source = calibrated.source
    bindings = bind_dataset(source.network, dataset, "the network")
    collector = make_collector(
        source, dataset, bindings, place="the network", non_finite=subject.request.get("non_finite", "stop")
    )
    return collector.collect(keys, workers=request.workers or os.cpu_count() or 1, progress=progress).statistics
