"""``--data`` to a ``Dataset``: a manifest, a list, a COCO file, or the bare name of a shipped manifest."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import calib
from calib.edges.files import read_bytes
from calib.edges.manifest.addresses import expand, refuse_remote
from calib.edges.manifest.classes import build_classes, build_label_map
from calib.edges.manifest.cocolist import load_coco
from calib.edges.manifest.lists import Row, is_table, read_table
from calib.edges.manifest.preprocessing import parse_preprocess
from calib.edges.manifest.schema import ManifestModel, PreprocessModel, validate
from calib.edges.manifest.splits import SplitContext, records_of_table, resolve_split, sort_records
from calib.edges.manifest.yamlfile import YamlFile, parse_yaml
from calib.errors import ImageError, ManifestError
from calib.types.data import Dataset, Preprocess

YAML_SUFFIXES = (".yaml", ".yml")
INPUT_FILES = (*YAML_SUFFIXES, ".json", ".csv", ".tsv", ".jsonl", ".ndjson", ".parquet", ".pq")


def load_dataset(path: str, split: str | None, root: str | None = None, preprocess: str | None = None) -> Dataset:
    """Load one split of a data set.

    Args:
        path: a YAML manifest, a CSV, JSON lines or Parquet list, a COCO JSON file, or a shipped manifest's name.
        split: the split; None where there is only one.
        root: folder of the data, overriding the manifest's ``root`` (relative to the working directory).
        preprocess: ``--preprocess``: a spec or a YAML file; it overrides what the manifest states, key by key.

    Returns:
        records with final addresses, sorted by key; the files themselves are not looked at.

    Raises:
        ManifestError: anything wrong in the file, the split missing, or no images in it.
        UsageError: a malformed ``preprocess``.
    """
    manifest = find_manifest(path)
    data = _read_manifest(manifest)
    sha256 = hashlib.sha256(data).hexdigest()
    if root is not None:
        root = refuse_remote("--root", expand("--root", root))
    if is_table(manifest):
        return _with_preprocess(_load_table(manifest, split, root, sha256), preprocess)
    if manifest.endswith(".json") and not _is_manifest_json(data):
        return _with_preprocess(load_coco(manifest, root, sha256), preprocess)
    file = parse_yaml(manifest, data)
    return _load_yaml(file, split, root, preprocess, sha256)


def list_splits(path: str) -> tuple[str, ...]:
    """Names of the splits of a data set, in the manifest's order.

    Raises:
        ManifestError: the manifest cannot be read.
    """
    manifest = find_manifest(path)
    if is_table(manifest):
        return tuple(sorted({row["split"] for row in read_table(manifest) if row.get("split")}))
    read = read_model(path)
    return (Path(manifest).stem,) if read is None else tuple(read[1].splits)


def stated_preprocess(path: str, preprocess: str | None = None) -> Preprocess | None:
    """Read the preprocessing that a manifest states, without looking for its images; None for a list of images.

    Args:
        path: as for :func:`load_dataset`.
        preprocess: ``--preprocess``; it overrides what the manifest states, key by key.

    Raises:
        ManifestError: the manifest is wrong.
        UsageError: a malformed ``preprocess``.
    """
    read = read_model(path)
    if read is None:
        return None if preprocess is None else parse_preprocess(preprocess)
    return _merge_preprocess(*read, preprocess)


def shipped_manifests() -> dict[str, str]:
    """Names and paths of the manifests that come with the package."""
    package = Path(calib.__file__).parent
    folders = (package.parent / "data_manifests", package / "data" / "manifests")
    found = (path for folder in folders if folder.is_dir() for path in sorted(folder.glob("*.yaml")))
    return {path.stem: path.as_posix() for path in reversed(list(found))}


def find_manifest(path: str) -> str:
    """Resolve ``--data``: an existing file, or the name of a shipped manifest.

    Raises:
        ManifestError: neither; the message lists the shipped ones.
    """
    refuse_remote("--data", path)
    if Path(path).is_file():
        return path
    shipped = shipped_manifests()
    if path in shipped:
        return shipped[path]
    raise ManifestError(
        path,
        expected=f"a manifest or list file ({', '.join(INPUT_FILES)}), or a shipped manifest's name",
        got="a folder" if Path(path).is_dir() else "no such file",
        remedy="shipped manifests are " + ", ".join(sorted(shipped)) + "; docs/manifests.md shows how to write one",
    )


def _read_manifest(path: str) -> bytes:
    try:
        return read_bytes(path)
    except ImageError as error:
        raise ManifestError(path, expected=error.expected, got=error.got, remedy=error.remedy) from error


def _is_manifest_json(data: bytes) -> bool:
    return b'"splits"' in data[: 1 << 16]


def _load_yaml(file: YamlFile, split: str | None, root: str | None, preprocess: str | None, sha256: str) -> Dataset:
    model = validate(ManifestModel, file, file.content)
    name = _choose_split(file.path, split, model.splits)
    classes = build_classes(model, file)
    context = SplitContext(
        place=file.place(("splits", name)),
        root=resolve_root(file, model, root),
        folder=_folder_of(file.path),
        label_format=model.label_format,
        groups=_compile_groups(file, model.group),
    )
    return Dataset(
        name=model.name,
        split=name,
        records=resolve_split(model.splits[name], context),
        classes=classes,
        label_format=model.label_format,
        label_map=build_label_map(model, classes, file),
        preprocess=_merge_preprocess(file, model, preprocess),
        inputs={key: v.build() if isinstance(v, PreprocessModel) else v for key, v in model.inputs.items()},
        manifest_path=file.path,
        manifest_sha256=sha256,
    )


def resolve_root(file: YamlFile, model: ManifestModel, root: str | None) -> str:
    """Folder that a manifest's addresses are relative to; ``root`` is ``--root``, where given.

    Raises:
        ManifestError: it is remote, or refers to an environment variable that is not set.
    """
    if root is not None:
        return root
    place = file.place(("root",))
    stated = refuse_remote(place, expand(place, model.root))
    return os.path.normpath(os.path.join(_folder_of(file.path), stated)).replace(os.sep, "/")  # noqa: PTH118


def read_model(path: str) -> tuple[YamlFile, ManifestModel] | None:
    """Parse a YAML manifest; None for lists and COCO files.

    Raises:
        ManifestError: the manifest is wrong.
    """
    manifest = find_manifest(path)
    if is_table(manifest):
        return None
    data = _read_manifest(manifest)
    if manifest.endswith(".json") and not _is_manifest_json(data):
        return None
    file = parse_yaml(manifest, data)
    return file, validate(ManifestModel, file, file.content)


def _folder_of(path: str) -> str:
    return os.path.dirname(os.path.abspath(path))  # noqa: PTH100, PTH120 - keep symbolic links


def _merge_preprocess(file: YamlFile, model: ManifestModel, text: str | None) -> Preprocess | None:
    if text is None:
        return None if model.preprocess is None else model.preprocess.build()
    return parse_preprocess(text, file.content.get("preprocess"))


def _with_preprocess(dataset: Dataset, text: str | None) -> Dataset:
    return dataset if text is None else replace(dataset, preprocess=parse_preprocess(text))


def _compile_groups(file: YamlFile, groups: Mapping[str, str]) -> dict[str, re.Pattern[str]]:
    compiled = {}
    for name, text in groups.items():
        try:
            compiled[name] = re.compile(text)
        except re.error as error:
            raise ManifestError(
                file.place(("group", name)),
                expected="a regular expression that is searched in each image's path",
                got=f"{text!r}: {error}",
                remedy="correct it; in YAML put it into single quotes",
            ) from error
    return compiled


def _choose_split(place: str, split: str | None, names: Iterable[str]) -> str:
    known = list(names)
    if split is None and len(known) == 1:
        return known[0]
    if split in known:
        return str(split)
    raise ManifestError(
        place,
        expected="one of the splits " + ", ".join(known),
        got="no --split" if split is None else repr(split),
        remedy=f"give --split {known[0]}" if known else "leave --split away: this list has no split column",
    )


def _load_table(path: str, split: str | None, root: str | None, sha256: str) -> Dataset:
    rows = read_table(path)
    known = sorted({row["split"] for row in rows if row.get("split")})
    name = _choose_split(path, split, known) if known or split is not None else ""
    chosen: list[Row] = [row for row in rows if not name or row.get("split") == name]
    folder = Path(path).parent.as_posix()
    context = SplitContext(path, root or folder, folder, "index", {})
    return Dataset(
        name=Path(path).stem,
        split=name or Path(path).stem,
        records=sort_records(records_of_table(chosen, path, context), path),
        classes=None,
        label_format="index",
        label_map={},
        preprocess=None,
        inputs={},
        manifest_path=path,
        manifest_sha256=sha256,
    )
