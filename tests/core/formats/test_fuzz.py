"""Damaged files of every format: an error that points at the place, never a crash, never a hang; and what is read all
the same can be shown, checked and converted, or is refused with a remedy.

``python -m tests.core.formats.test_fuzz 1000000`` runs the long way: that many mutants a format.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from calib.core.formats.registry import FORMATS, WriteOptions, detect, read_table
from calib.errors import FormatError, MissingLibraryError
from calib.jobs.cache.lint import as_text as lint_text
from calib.jobs.cache.show import as_text, describe_table
from calib.stages.convert import prepare
from calib.stages.qdqread import read_qdq
from calib.stages.rangelint import lint_table
from calib.types.rangetable import RangeTable
from tests.core.formats.tables import PORTABLE, TENSOR_KEYS, qdq_model, sample

PLACE = re.compile(r"f(?: \(header\))?(?::\d+:\d+|: byte \d+|: .+_amax|)\Z", re.DOTALL)
POINTED = frozenset({"trt-cache", "ort-text", "range-text", "ort-json", "tao-json", "ppq-json"})
"""Text formats, whose errors name line and column."""
MUTANTS = 400
TOKENS = (
    b"\n",
    b":",
    b" ",
    b"0",
    b"-",
    b"nan",
    b"inf",
    b"1e999",
    b"{",
    b"}",
    b'"',
    b"[",
    b",",
    b"\xff",
    b"\0",
    b"\r\n",
    b"\\ud800",
    b"\\u0000",
)


def mutant(data: bytes, rng: np.random.Generator) -> bytes:
    """Flip, cut, repeat, insert or shift a few times."""
    made = bytearray(data)
    for _ in range(int(rng.integers(1, 5))):
        at, kind = int(rng.integers(0, len(made) + 1)), int(rng.integers(0, 6))
        if kind == 0 and at < len(made):
            made[at] ^= 1 << int(rng.integers(0, 8))
        elif kind == 1:
            del made[at : at + int(rng.integers(1, 9))]
        elif kind == 2:
            made[at:at] = TOKENS[int(rng.integers(0, len(TOKENS)))]
        elif kind == 3:
            made[at:at] = made[at : at + int(rng.integers(1, 33))]
        elif kind == 4:
            made[at : at + 4] = int(rng.integers(0, 2**32)).to_bytes(4, "little")
        else:
            del made[at:]
    return bytes(made)


def check(read: Callable[[bytes, str], RangeTable], key: str, data: bytes) -> bool:
    """Read a mutant and use what was read; whether it was refused."""
    tables: list[RangeTable] = []
    found = refusal(lambda content, place: tables.append(read(content, place)), data)
    if found is None:
        use(tables[0], key)
        return False
    assert PLACE.match(found.place), found.place
    assert key not in POINTED or re.search(r":\d+:\d+\Z", found.place), found.place
    assert all((found.expected, found.got, found.remedy))
    return True


def refusal(read: Callable[[bytes, str], object], data: bytes) -> FormatError | MissingLibraryError | None:
    try:
        read(data, "f")
    except (FormatError, MissingLibraryError) as error:
        return error
    return None


def use(table: RangeTable, key: str) -> None:
    """Do with a table what the commands do with it."""
    report = lint_table(table)
    assert as_text(describe_table(table))
    assert lint_text("f", report)
    for target in TENSOR_KEYS if table.naming == "tensor" else [key]:
        try:
            prepared = prepare(table, target, None)
            prepared.require(partial=len(table) % 2 == 0)
            FORMATS[target].write(prepared.table, WriteOptions())
        except FormatError as error:
            assert error.remedy  # noqa: PT017  a refusal is one of two right answers


def read_onnx(data: bytes, place: str) -> RangeTable:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except (DecodeError, UnicodeDecodeError) as error:
        raise FormatError(place, expected="a protobuf", got=str(error), remedy="restore it") from error
    return read_qdq(model, place)


def mangled(rng: np.random.Generator) -> onnx.ModelProto:
    """Edit a Q/DQ model so that it still parses: wires, operators, types, shapes and data that do not fit."""
    made = qdq_model()
    names = [
        *(item.name for item in made.graph.initializer),
        *(name for item in made.graph.node for name in item.output),
    ]
    operators = ["QuantizeLinear", "DequantizeLinear", "Conv", "Reshape", "Cast", "Transpose", "Identity", "Constant"]
    for _ in range(int(rng.integers(1, 6))):
        node = made.graph.node[int(rng.integers(len(made.graph.node)))]
        tensor = made.graph.initializer[int(rng.integers(len(made.graph.initializer)))]
        kind, name = int(rng.integers(0, 8)), names[int(rng.integers(len(names)))]
        if kind == 0 and node.input:
            node.input[int(rng.integers(len(node.input)))] = name if rng.random() < 0.8 else ""
        elif kind == 1:
            node.op_type = operators[int(rng.integers(len(operators)))]
        elif kind == 2:
            tensor.data_type = int(rng.integers(0, 26))
        elif kind == 3:
            tensor.dims[:] = [int(side) for side in rng.integers(-2, 5, int(rng.integers(0, 4)))]
        elif kind == 4:
            tensor.raw_data = rng.bytes(int(rng.integers(0, 20)))
        elif kind == 5:
            node.attribute.append(onnx.helper.make_attribute("axis", int(rng.integers(-9, 9))))
        elif kind == 6 and node.input:
            del node.input[-1]
        else:
            tensor.name = name
    return made


def reader(key: str) -> Callable[[bytes, str], RangeTable]:
    return read_onnx if key == "qdq-onnx" else FORMATS[key].read


def seed_of(key: str) -> bytes:
    return qdq_model().SerializeToString() if key == "qdq-onnx" else sample(key)


def fuzz(key: str, count: int, seed: int = 0) -> tuple[int, float]:
    """Read mutants of a format's sample; how many were refused, and the longest processor time one took."""
    rng, data, read = np.random.default_rng(seed), seed_of(key), reader(key)
    refused, slowest = 0, 0.0
    for _ in range(count):
        whole = mangled(rng).SerializeToString() if key == "qdq-onnx" and rng.random() < 0.5 else data
        made, start = whole if whole is not data else mutant(data, rng), time.process_time()
        refused += check(read, key, made)
        slowest = max(slowest, time.process_time() - start)
    return refused, slowest


@pytest.mark.parametrize("key", [*PORTABLE, "qdq-onnx"])
def test_mutants_of_every_format_are_read_or_refused_with_a_place(key):
    refused, _ = fuzz(key, MUTANTS)
    assert refused > MUTANTS // 50


def test_mutants_of_a_torch_file_are_read_or_refused_with_a_place():
    pytest.importorskip("torch")
    assert fuzz("amax-torch", MUTANTS)[0] > MUTANTS // 50


@given(st.binary(max_size=200), st.sampled_from(PORTABLE))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_read_or_refused(data, key):
    check(FORMATS[key].read, key, data)


@given(st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_any_bytes_have_a_format_or_are_refused(data):
    found = refusal(lambda data, place: read_table(data, place, detect(data, place)), data)
    assert found is None or found.place.startswith("f")


if __name__ == "__main__":
    for name in sys.argv[2:] or [*PORTABLE, "qdq-onnx"]:
        number, longest = fuzz(name, int(sys.argv[1]), seed=1)
        print(f"{name}: {sys.argv[1]} mutants, {number} refused, longest {longest * 1000:.1f} ms", flush=True)
