"""The shape of ``provenance.json``, and whether a document has it and agrees with itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from calib.core.plan import TARGETS
from calib.core.trtcache import ALGORITHMS, header_number
from calib.errors import UsageError
from calib.types.gate import Check, few

SCHEMA = 1
"""Version of ``provenance.json`` that this calib writes and accepts."""
REBUILD = "build again, or restore the folder as `calib build` left it"
EDITED = f"provenance.json was edited; {REBUILD}"
CLOCK_TOLERANCE = timedelta(hours=26)
"""A build may seem to come from the future by this much: a clock set to local time."""

_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
Document = Mapping[str, Any]


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and _SHA256.match(value) is not None


def _are_digests(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and bool(value)
        and all(_is_text(key) and _is_digest(item) for key, item in value.items())
    )


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(_is_text(item) for item in value)


def _is_mapping(value: Any) -> bool:
    return isinstance(value, dict)


def _is_mapping_or_null(value: Any) -> bool:
    return value is None or isinstance(value, dict)


def _is_evaluation_record(value: Any) -> bool:
    if value is None:
        return True
    return (
        isinstance(value, dict)
        and _is_text(value.get("file"))
        and _is_digest(value.get("sha256"))
        and _is_mapping_or_null(value.get("choice"))
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _are_calibrators(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(
            isinstance(item, dict)
            and _is_text(item.get("name"))
            and _is_text(item.get("spec"))
            and isinstance(item.get("parameters"), dict)
            for item in value
        )
    )


def _are_samplers(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) and _is_text(item.get("spec")) for item in value)


def _is_time(value: Any) -> bool:
    return read_time(value) is not None


SHAPE: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "request": ("a mapping", _is_mapping),
    "request.model": ("file names with sha256", _are_digests),
    "request.manifest": ("a sha256", _is_digest),
    "request.split": ("a text", lambda value: isinstance(value, str)),
    "request.samplers": ("a list of specs", _are_texts),
    "request.calibrators": ("a list of specs", _are_texts),
    "request.num_images": ("a number or auto", lambda value: value == "auto" or _is_number(value)),
    "request.seed": ("a number", _is_number),
    "request.preprocess": ("a mapping or null", _is_mapping_or_null),
    "request.inputs": ("a mapping", _is_mapping),
    "request.versions": ("a mapping", _is_mapping),
    "request.trt_version": ("a version", _is_text),
    "request.cache_algorithm": (f"one of {', '.join(ALGORITHMS)}", lambda value: value in ALGORITHMS),
    "request.target": (f"one of {', '.join(TARGETS)}", lambda value: value in TARGETS),
    "request.keep_float": ("a list of patterns", _are_texts),
    "calibrators": ("a list of name, spec, parameters", _are_calibrators),
    "samplers": ("a list of spec, parameters", _are_samplers),
    "seed": ("a number", _is_number),
    "preprocess": ("a mapping or null", _is_mapping_or_null),
    "evaluation": ("null, or the file, sha256 and choice of an evaluation", _is_evaluation_record),
    "images": ("image names with sha256", _are_digests),
    "outputs": ("file names with sha256", _are_digests),
    "times.started": ("a time", _is_time),
    "times.finished": ("a time", _is_time),
}
"""Dotted path to what belongs there, in words and as a test."""

OPTIONAL = frozenset({"evaluation", "request.keep_float"})
"""Paths that need not be there."""


def read_time(value: Any) -> datetime | None:
    """Read an ISO 8601 time; None where it is none, or names no time zone."""
    try:
        found = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return found if found.tzinfo is not None else None


def check_shape(document: Any) -> Check:
    """Check the schema version, and that everything it promises is there."""
    if not isinstance(document, dict):
        return Check("provenance", "fail", "provenance.json is no mapping", EDITED)
    schema = document.get("schema")
    if schema != SCHEMA or isinstance(schema, bool):
        age = "an expired" if isinstance(schema, int) and schema < SCHEMA else "an unknown"
        detail = f"{age} schema: {schema!r}; this calib reads {SCHEMA}"
        return Check("provenance", "fail", detail, _schema_remedy(schema))
    wrong = list(_misshapen(document))
    if wrong:
        return Check("provenance", "fail", f"not as a build writes it: {few(wrong)}", EDITED)
    return Check("provenance", "pass", f"schema {SCHEMA}, complete")


def _schema_remedy(schema: Any) -> str:
    if isinstance(schema, int) and not isinstance(schema, bool) and schema > SCHEMA:
        return "a newer calib made this build: update calib"
    return "build again with this calib: what an older schema does not record cannot be checked"


def _misshapen(document: Document) -> Iterator[str]:
    for path, (wanted, test) in SHAPE.items():
        value: Any = document
        for key in path.split("."):
            value = value.get(key, _ABSENT) if isinstance(value, dict) else _ABSENT
        if value is _ABSENT and path not in OPTIONAL:
            yield f"{path} is missing"
        elif value is not _ABSENT and not test(value):
            yield f"{path} is not {wanted}"


_ABSENT = object()


def check_agreement(document: Document) -> list[Check]:
    """Check that what a provenance says twice agrees, and that it lists every file a build writes.

    Args:
        document: of the right shape.
    """
    wrong = list(_disagreements(document))
    if wrong:
        return [Check("provenance", "fail", f"contradicts itself: {text}", EDITED) for text in wrong]
    return [Check("provenance", "pass", "agrees with itself")]


def _disagreements(document: Document) -> Iterator[str]:
    request, outputs = document["request"], document["outputs"]
    for key in ("seed", "preprocess"):
        if document[key] != request[key]:
            yield f"{key} and request.{key} differ"
    if [item["spec"] for item in document["samplers"]] != request["samplers"]:
        yield "samplers and request.samplers differ"
    asked, made = sorted(request["calibrators"]), sorted(item["spec"] for item in document["calibrators"])
    if asked and asked != made:
        yield "calibrators and request.calibrators differ"
    if isinstance(request["num_images"], int) and len(document["images"]) > request["num_images"]:
        yield f"{len(document['images'])} images, {request['num_images']} were asked for"
    choice = (document.get("evaluation") or {}).get("choice")
    if choice and choice.get("name") != document["calibrators"][0]["name"]:
        yield f"the release is {document['calibrators'][0]['name']}, the evaluation chose {choice.get('name')}"
    missing = sorted(expected_outputs(document) - set(outputs))
    if missing:
        yield f"outputs does not list {few(missing)}"
    odd = sorted(name for name in outputs if not is_plain_name(name))
    if odd:
        yield f"outputs lists files outside the folder: {few(odd)}"
    try:
        header_number(request["trt_version"])
    except UsageError as error:
        yield f"request.trt_version is {error.got}"


def expected_outputs(document: Document) -> set[str]:
    """Names of the files that a build with these calibrators writes at least."""
    labels = [item["name"] for item in document["calibrators"]]
    fixed = {"calibration.cache", "selection.jsonl", "ranges.json", "report.html"}
    fixed |= {"training.json", "qat.float.onnx"} if is_training(document) else {"statistics.npz"}
    return fixed | {f"{label}{ending}" for label in labels for ending in (".cache", ".qdq.onnx")}


def is_training(document: Document) -> bool:
    """Whether a provenance is that of ``calib qat``: ranges were learnt, not calibrated."""
    return "training" in document


def kept_in_float(document: Document) -> tuple[str, ...]:
    """Patterns of the layers that a build or training was asked to keep in float; of older ones none."""
    return tuple(map(str, document.get("request", {}).get("keep_float", ())))


def is_plain_name(name: str) -> bool:
    """Whether a name is that of a file in the folder itself."""
    return name not in ("", ".", "..") and not any(mark in name for mark in "/\\:\0")


def check_times(document: Document, now: datetime, max_age_days: float | None) -> Check:
    """Check the order of the times, and the age where one is asked for."""
    started, finished = (read_time(document["times"][key]) for key in ("started", "finished"))
    if started is None or finished is None:
        return Check("age", "fail", "the times cannot be read", EDITED)
    if finished < started or finished > now + CLOCK_TOLERANCE:
        return Check("age", "fail", f"impossible times: started {started}, finished {finished}", EDITED)
    age = (now - finished) / timedelta(days=1)
    day = finished.astimezone(UTC).date().isoformat()
    if max_age_days is not None and age > max_age_days:
        return Check(
            "age", "fail", f"built on {day}, {age:.0f} days ago; at most {max_age_days:g} are allowed", "build again"
        )
    return Check("age", "pass", f"built on {day}")
