"""JSON that users hand in besides files of ranges: whatever it holds, it is read, or refused with a place and a remedy.

``python -m tests.core.test_fuzz_documents 200000`` runs the long way: that many mutants a reader.
"""

from __future__ import annotations

import base64
import copy
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from calib.core.attestation import PAYLOAD_TYPE, make_statement, parse_envelope, statement_subjects
from calib.core.engine.audit import audit_engine, read_profile
from calib.core.engine.layerinfo import parse_layer_info
from calib.core.gate.accuracy import evaluation_problems, find_measured, is_evaluation, judge_measured
from calib.core.gate.provenance import check_agreement, check_shape, check_times, read_time
from calib.core.maxdrop import parse_max_drop
from calib.core.plan import Decision
from calib.errors import CalibError
from tests.core.formats.test_fuzz import mutant

DIGEST, OTHER = "ab" * 32, "cd" * 32
MUTANTS = 400
VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 7, 1e308, float("nan"), float("inf"), 10**400, "", "x", "\ud800", "nan", [], [1], ["a", None],
    [[]], {}, {"a": 1}, {"": {}}, {"Name": 3}, [{"name": None}],
)  # fmt: skip
TENSOR = {"Name": "image", "Location": "Device", "Dimensions": [1, 3, 24, 32], "Format/Datatype": "Row major INT8"}
LAYER = {
    "Name": "n_a + n_r", "LayerType": "CaskConvolution", "Inputs": [TENSOR], "Outputs": [TENSOR],
    "TacticName": "sm80_xmma_fprop_i8i8_i8i32", "Weights": {"Type": "Int8", "Count": 64},
    "Metadata": "[ONNX Layer: n_a]",
}  # fmt: skip
IOU = {"ground": 0.8, "thing": 0.4}
MODEL = {"name": "float", "sha256": DIGEST, "miou": 0.6, "per_class": IOU, "slices": {"dark": {"miou": 0.5}}}
DELTA = {"delta": 0.0, "ci95": [-1.0, 1.0]}
AGAINST = {"miou": DELTA, "per_class": {"ground": DELTA, "thing": DELTA}, "slices": {"dark": DELTA}}
EVALUATION = {
    "schema": 1, "reference": "float", "data": {"split": "val"},
    "models": [MODEL, {**MODEL, "name": "int8", "sha256": OTHER, "vs_reference": AGAINST}],
}  # fmt: skip
REQUEST = {
    "model": {"net.onnx": DIGEST}, "manifest": DIGEST, "split": "train", "samplers": ["random"],
    "calibrators": ["minmax"], "num_images": 6, "seed": 0, "preprocess": {"size": [24, 32]}, "inputs": {},
    "versions": {"calib": "0"}, "trt_version": "10.14.1", "cache_algorithm": "EntropyCalibration2", "target": "trt10",
}  # fmt: skip
OUTPUTS = ("calibration.cache", "minmax.cache", "minmax.qdq.onnx", "ranges.json", "report.html", "selection.jsonl")
PROVENANCE = {
    "schema": 1, "request": REQUEST, "calibrators": [{"name": "minmax", "spec": "minmax", "parameters": {}}],
    "samplers": [{"spec": "random", "parameters": {}}], "seed": 0, "preprocess": {"size": [24, 32]},
    "evaluation": {"file": "evaluation.json", "sha256": DIGEST, "choice": {"name": "minmax"}},
    "images": {"a.png": DIGEST}, "outputs": dict.fromkeys((*OUTPUTS, "statistics.npz"), DIGEST),
    "times": {"started": "2026-01-01T00:00:00+00:00", "finished": "2026-01-01T00:01:00+00:00"},
}  # fmt: skip
ENVELOPE = {
    "payload": base64.b64encode(b"{}").decode(), "payloadType": PAYLOAD_TYPE,
    "signatures": [{"keyid": "k", "sig": base64.b64encode(b"s" * 64).decode()}],
}  # fmt: skip


def read_layers(data: bytes) -> None:
    decisions = [Decision(0, "n_a", "Conv", "int8", "quantized"), Decision(1, "Conv(b)", "Conv", "float", "logits")]
    audit = audit_engine(parse_layer_info(data), decisions, {"n_a": 0.5})
    assert json.dumps(audit.document())
    assert audit.lines()


def read_provenance(data: bytes) -> None:
    document = json.loads(data)
    if check_shape(document).status != "pass":
        return
    check_agreement(document)
    finished = read_time("2026-02-01T00:00:00+00:00")
    assert finished is not None
    assert check_times(document, finished, 7.0).status in {"pass", "fail"}
    assert statement_subjects(make_statement(document, {})) == document["outputs"]


def read_evaluation(data: bytes) -> None:
    document = json.loads(data)
    if not is_evaluation(document):
        return
    measured = find_measured(document, DIGEST, OTHER)
    if not isinstance(measured, str) and not evaluation_problems(measured):
        assert judge_measured(measured, parse_max_drop("miou=1,class:thing=1,slice:dark=1"), "interval")


READERS: Mapping[str, tuple[Callable[[bytes], Any], Any]] = {
    "layer information": (read_layers, {"Layers": [LAYER, "n_b"], "Bindings": ["image"]}),
    "layer information of 11": (read_layers, {"Layers": [LAYER], "I/O Tensors": [TENSOR]}),
    "profile": (read_profile, [{"count": 10}, {"name": "n_a", "timeMs": 5.0, "averageMs": 0.5, "percentage": 100.0}]),
    "statement": (lambda data: statement_subjects(json.loads(data)), make_statement(PROVENANCE, {"x": DIGEST})),
    "envelope": (lambda data: parse_envelope(data, "f"), ENVELOPE),
    "provenance": (read_provenance, PROVENANCE),
    "evaluation": (read_evaluation, EVALUATION),
}  # fmt: skip


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """List every container of a document with each of its keys."""
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from places(value[key])


def edited(document: Any, rng: np.random.Generator) -> bytes:
    """Put other values, or none, in up to three places; now and then damage the text besides."""
    made = copy.deepcopy(document)
    for _ in range(int(rng.integers(1, 4))):
        found = list(places(made))
        if not found:
            break
        holder, key = found[int(rng.integers(len(found)))]
        if rng.random() < 0.3:
            del holder[key]
        else:
            holder[key] = copy.deepcopy(VALUES[int(rng.integers(len(VALUES)))])
    data = json.dumps(made).encode()
    return mutant(data, rng) if rng.random() < 0.2 else data


def refused(read: Callable[[bytes], Any], data: bytes) -> bool:
    """Read a mutant; whether it was refused, with place, expectation, finding and remedy."""
    try:
        read(data)
    except CalibError as error:
        return all((error.place, error.expected, error.got, error.remedy))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):  # of json.loads, which callers catch
        return True
    return False


def fuzz(name: str, count: int, seed: int = 0) -> tuple[int, float]:
    """Read mutants of a document; how many were refused, and the longest processor time one took."""
    read, document = READERS[name]
    read(json.dumps(document).encode())
    rng, number, slowest = np.random.default_rng(seed), 0, 0.0
    for _ in range(count):
        data, start = edited(document, rng), time.process_time()
        number += refused(read, data)
        slowest = max(slowest, time.process_time() - start)
    return number, slowest


@pytest.mark.parametrize("name", READERS)
def test_mutated_documents_are_read_or_refused(name):
    number, _ = fuzz(name, MUTANTS)
    assert 0 <= number < MUTANTS


if __name__ == "__main__":
    for kind in sys.argv[2:] or READERS:
        total, longest = fuzz(kind, int(sys.argv[1]), seed=1)
        print(f"{kind}: {sys.argv[1]} mutants, {total} refused, longest {longest * 1000:.1f} ms", flush=True)
