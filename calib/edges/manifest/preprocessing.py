"""Preprocessing from the command line and from manifests, merged; never guessed."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Any

from calib.edges.files import read_bytes
from calib.edges.manifest.schema import PreprocessModel, validate
from calib.edges.manifest.yamlfile import YamlFile, parse_yaml
from calib.errors import ManifestError, UsageError
from calib.types.data import Dataset, Preprocess

EXAMPLE = "colour=rgb,size=352x480,scale=1/255,mean=0.485:0.456:0.406,std=0.229:0.224:0.225"
PER_CHANNEL = ("mean", "std")


def require_preprocess(dataset: Dataset) -> Preprocess:
    """The preprocessing of a data set.

    Raises:
        ManifestError: it states none; the message shows how to.
    """
    if dataset.preprocess is not None:
        return dataset.preprocess
    raise ManifestError(
        dataset.manifest_path,
        expected="the network's preprocessing (colour order, size, scale, mean, std); it is never guessed",
        got="none in the manifest and no --preprocess",
        remedy=f"give --preprocess {EXAMPLE}, with the values the network was trained with, or write them under "
        "preprocess: in the manifest (scale multiplies pixel values of 0..255; mean and std follow it)",
    )


def parse_preprocess(text: str, base: dict[str, Any] | None = None) -> Preprocess:
    """Read ``--preprocess``: a YAML file, or ``key=value,key=value``.

    Lists (mean, std) are separated by ``:``, numbers may be fractions (``1/255``).

    Args:
        text: the flag's value.
        base: the manifest's ``preprocess:``, which what ``text`` does not state is taken from.

    Raises:
        UsageError: no file and not of this form, or an unknown key.
        ManifestError: a wrong or missing value.
    """
    if "=" in text.partition(",")[0]:
        file = YamlFile(f"--preprocess {text}", _parse_pairs(text), {})
    else:
        file = _read_file(text)
    merged = (base or {}) | file.content
    return validate(PreprocessModel, file, merged).build()


def _read_file(text: str) -> YamlFile:
    if not Path(text).is_file():
        raise UsageError(
            f"--preprocess {text}",
            expected="a YAML file or key=value,key=value",
            got="no such file, and no '='",
            remedy=f"write for example --preprocess {EXAMPLE}",
        )
    file = parse_yaml(text, read_bytes(text))
    inner = file.content.get("preprocess")
    return YamlFile(text, inner, file.lines) if isinstance(inner, dict) else file


def _parse_pairs(text: str) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not value or key in content:
            raise UsageError(
                f"--preprocess {text}",
                expected="key=value,key=value, each key once, list items separated by ':'",
                got=repr(item),
                remedy=f"write for example {EXAMPLE}",
            )
        if key not in PreprocessModel.model_fields:
            raise _unknown_key(text, key)
        content[key] = _split_list(value) if key in PER_CHANNEL else value
    return content


def _split_list(value: str) -> list[str]:
    """Items of a list: separated by ``:`` or blanks; three or more slash-separated parts cannot be a fraction."""
    if ":" not in value and value.count("/") >= 2:
        return value.split("/")
    return [item for item in re.split(r"[:\s]+", value) if item]


def _unknown_key(text: str, key: str) -> UsageError:
    known = list(PreprocessModel.model_fields)
    close = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return UsageError(
        f"--preprocess {text}",
        expected="the keys " + ", ".join(known),
        got=repr(key),
        remedy=f"{hint}write for example {EXAMPLE}",
    )
