"""Each format's own ways: what it reads, what it remarks on, and where it points in a damaged file."""

from __future__ import annotations

import io
import json
import math
import struct
import zipfile

import numpy as np
import pytest

from calib.core.formats import statedict
from calib.core.formats.flatbuffer import read_pairs, write_pairs
from calib.core.formats.registry import FORMATS, detect, format_of_name, read_table
from calib.errors import FormatError, UsageError
from tests.core.formats.tables import sample

PAIRS = [("conv1", "2.640000104904175"), ("a:0", "1.0"), ("ééx", "0.5"), ("", "3")]


def amax(data: bytes) -> dict[str, float]:
    return {item.name: item.amax for item in read_table(data, "f")}


def remarks(data: bytes) -> dict[str, tuple[str, ...]]:
    return {item.code: item.names for item in read_table(data, "f").remarks}


def test_flatbuffers_are_what_onnx_runtime_reads():
    tables = pytest.importorskip("onnxruntime.quantization.CalTableFlatBuffers.TrtTable")
    found = tables.TrtTable.GetRootAs(write_pairs(PAIRS), 0)
    read = [found.Dict(index) for index in range(found.DictLength())]
    assert [(item.Key().decode(), item.Value().decode()) for item in read] == PAIRS
    assert [pair[:2] for pair in read_pairs(write_pairs(PAIRS), "f")] == PAIRS
    assert list(read_pairs(write_pairs([]), "f")) == []


def test_tables_that_onnx_runtime_writes_are_read_and_its_lost_negative_side_is_told(tmp_path):
    quant = pytest.importorskip("onnxruntime.quantization")
    from onnxruntime.quantization.calibrate import TensorsData

    ends = {"x": (-5.0, 2.0), "relu": (0.0, 3.0), "negative": (-4.0, -1.0)}
    ranges = {name: (np.float32(low), np.float32(high)) for name, (low, high) in ends.items()}
    quant.write_calibration_table(TensorsData(quant.CalibrationMethod.MinMax, ranges), str(tmp_path))
    exact = (tmp_path / "calibration.json").read_bytes()
    assert amax(exact) == {"x": 5.0, "relu": 3.0, "negative": 4.0}
    for name in ("calibration.flatbuffers", "calibration.cache"):
        data = (tmp_path / name).read_bytes()
        assert amax(data) == {"x": 2.0, "relu": 3.0, "negative": -1.0}
        assert remarks(data) == {"signed_maximum": (), "lost_negative_side": ("negative",)}


def test_older_json_tables_of_onnx_runtime_are_read():
    array = {"data": [[-3.0]], "dtype": "float32", "CLS": "numpy.array"}
    old = {"a": [-1.0, 2], "b": {"CLS": "TensorData", "lowest": array, "highest": array}, "c": 4.5}
    assert amax(json.dumps(old).encode()) == {"a": 2.0, "b": 3.0, "c": 4.5}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"tensor_scales": {"a": 1.0,\n  "b": "x"}}', "f:2:8"),
        ('{"tensor_scales": {"a": 1.0,,}}', "f:1:29"),
        ('{"tensor_scales": [1]}', "f:1:19"),
        ('{"act_quant_info": {"a": 1, "b": null}}', "f:1:34"),
        ('{"a": [1.0, 2.0],\n "b": [1.0]}', "f:2:7"),
        ('{"CLS": "TensorsData", "data": {\n"x": {"lowest": 1.0, "highest": "y"}}}', "f:2:6"),
        ("[1, 2]", "f:1:1"),
        ('{"a": ' + "[" * 100_000, "f:1:"),
        ('{"a": 1.0} {', "f:1:12"),
    ],
)
def test_json_errors_name_line_and_column(text, place):
    with pytest.raises(FormatError) as caught:
        read_table(text.encode(), "f")
    assert caught.value.place.startswith(place)


@pytest.mark.parametrize(
    ("text", "key", "place"),
    [
        ("a: 1.0\nb: x1.5\n", "range-text", "f:2:4"),
        ("a: 1.0\n\n  \nnothing\n", "range-text", "f:4:1"),
        ("a 1.0\nb c\n", "ort-text", "f:2:3"),
        ("a 1.0\n1.5\n", "ort-text", "f:2:1"),
        ("TRT-8601-EntropyCalibration2\na: 3c010a14\nb: zz\n", "trt-cache", "f:3:4"),
    ],
)
def test_text_errors_name_line_and_column(text, key, place):
    with pytest.raises(FormatError) as caught:
        read_table(text.encode(), "f", key)
    assert caught.value.place == place


def test_numbers_of_any_size_and_spelling_are_read():
    huge = "1" * 6000
    assert amax(f'{{"tensor_scales": {{"a": {huge}, "b": NaN, "c": -Infinity}}}}'.encode())["a"] == math.inf
    assert amax(b"a: 1e-07\nb b: .5\nc: inf\nd:1:  2.\n") == {"a": 1e-07, "b b": 0.5, "c": math.inf, "d:1": 2.0}
    assert amax(b"x -0.0\ny 5\n") == {"x": 0.0, "y": 5.0}


def test_names_that_occur_twice_are_remarked_on_apart_by_whether_they_agree():
    assert remarks(b"a: 1.0\nb: 2.0\na: 1.0\n") == {"duplicates": ("a",)}
    assert remarks(b"a: 1.0\nb: 2.0\na: 3.0\n") == {"conflicts": ("a",)}
    assert remarks(b'{"tensor_scales": {"a": 1.0, "a": 2.0}}') == {"conflicts": ("a",)}
    assert amax(b"a: 1.0\nb: 2.0\na: 3.0\n")["a"] == 3.0


def damaged(data: bytes, at: int, value: bytes) -> bytes:
    return data[:at] + value + data[at + len(value) :]


@pytest.mark.parametrize(
    "data",
    [
        write_pairs(PAIRS)[:20],
        damaged(write_pairs(PAIRS), 0, struct.pack("<I", 0xFFFFFFF0)),
        damaged(write_pairs(PAIRS), 28, struct.pack("<I", 0x7FFFFFFF)),
        damaged(write_pairs(PAIRS), 32, struct.pack("<I", 0xFFFFFFFF)),
        damaged(write_pairs(PAIRS), 12, struct.pack("<i", -0x7FFFFFFF)),
        write_pairs([("a", "1.0")]).replace(b"a\0", b"\xff\0"),
        write_pairs([("a", "one")]),
    ],
)
def test_offsets_of_a_flatbuffer_never_lead_out_of_it(data):
    with pytest.raises(FormatError, match="byte"):
        FORMATS["ort-flatbuffers"].read(data, "f")


def test_a_flatbuffer_whose_entries_share_one_huge_string_is_a_bomb():
    base = bytearray(write_pairs([("k" * 200_000, "1.0")] * 2))
    count = 40_000
    base[28:32] = struct.pack("<I", count)
    first = struct.unpack_from("<I", base, 32)[0] + 32
    for index in range(count):
        at = 32 + 4 * index
        base[at : at + 4] = struct.pack("<I", first - at if first > at else 0)
    with pytest.raises(FormatError, match="byte"):
        FORMATS["ort-flatbuffers"].read(bytes(base), "f")


def npz(**arrays: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def test_state_dicts_of_both_tools_are_read_with_their_weights():
    weight = np.array([[1.0, -2.0], [0.5, 0.25]], np.float32)
    state = {
        "conv._input_quantizer._amax": np.float32(3),
        "fc.input_quantizer._amax": np.array([4.0]),
        "fc.weight": weight,
        "fc.weight_quantizer._amax": np.array([[2.0], [0.4]], np.float32),
        "fc.bias": np.zeros(2, np.float32),
    }
    found = read_table(npz(**state), "f")
    assert {item.name: item.amax for item in found} == {"conv._input_quantizer": 3.0, "fc.input_quantizer": 4.0}
    (one,) = found.weights
    assert (one.axis, one.rank, one.follows_weight) == (0, 2, False)
    np.testing.assert_array_equal(one.observed, [2.0, 0.5])
    assert statedict.split_quantizer("a.b._input_quantizer") == ("a.b", "input_quantizer")
    assert statedict.split_quantizer("input_quantizer") == ("", "input_quantizer")
    assert statedict.split_quantizer("a.b.weight") is None


def test_state_dict_oddities_are_remarked_on_or_refused():
    state = {"a.input_quantizer._amax": np.array([1.0, 2.0]), "b.input_quantizer._pre_quant_scale": np.ones(2)}
    assert set(remarks(npz(**state))) == {"per_channel_activation", "pre_quant_scale"}
    assert amax(npz(**state)) == {"a.input_quantizer": 2.0}
    for wrong in ({"a.weight": np.ones(2)}, {"a._amax": np.array(["x"])}, {"a._amax": np.empty(0)}):
        with pytest.raises(FormatError):
            read_table(npz(**wrong), "f")


def test_npz_members_are_checked_against_the_bytes_that_are_there():
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }"
        raw = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header
        archive.writestr("a._amax.npy", raw)
    with pytest.raises(FormatError, match="1000000000000"):
        read_table(stream.getvalue(), "f", "amax-npz")
    with pytest.raises(FormatError, match="object"):
        read_table(npz_of_objects(), "f", "amax-npz")


def npz_of_objects() -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **{"a._amax": np.array([{}], object)}, allow_pickle=True)
    return stream.getvalue()


def test_safetensors_of_half_precision_are_read():
    bits = (np.array([2.0, 0.5], np.float32).view(np.uint32) >> 16).astype(np.uint16)
    entries = {
        "a.input_quantizer._amax": ("BF16", [], bits[:1].tobytes()),
        "b.input_quantizer._amax": ("F16", [1], np.float16(0.25).tobytes()),
    }
    header, body = {}, b""
    for name, (dtype, shape, raw) in entries.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    text = json.dumps(header).encode()
    assert amax(struct.pack("<Q", len(text)) + text + body) == {"a.input_quantizer": 2.0, "b.input_quantizer": 0.25}


def test_safetensors_that_point_outside_their_data_are_refused_with_line_and_column():
    data = sample("amax-safetensors")
    with pytest.raises(FormatError, match=r"header\):\d+:\d+"):
        read_table(data[:-4], "f", "amax-safetensors")
    with pytest.raises(FormatError, match="byte 0"):
        read_table(data[:7], "f", "amax-safetensors")


def test_pytorch_itself_writes_what_is_read_and_reads_what_is_written():
    torch = pytest.importorskip("torch")
    stream = io.BytesIO()
    nested = {"epoch": 3, "model": {"c.input_quantizer._amax": torch.tensor(2.0, dtype=torch.bfloat16)}}
    for legacy in (False, True):
        stream = io.BytesIO()
        torch.save(nested, stream, _use_new_zipfile_serialization=not legacy)
        assert detect(stream.getvalue(), "f") == "amax-torch"
        assert amax(stream.getvalue()) == {"c.input_quantizer": 2.0}
    found = torch.load(io.BytesIO(sample("amax-torch")), weights_only=True)
    assert found["layer1.conv.weight_quantizer._amax"].shape == (3, 1, 1, 1)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "an empty file"),
        (b"\n \n", "blanks"),
        (b"<!DOCTYPE html><html>", "HTML"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git-lfs"),
        (b"ptrt\0\0\0\0", "TensorRT engine"),
        (b"PK\x03\x04" + b"\0" * 40, "zip"),
        (b"\x07\x00\x01binary", "binary"),
    ],
)
def test_files_of_other_kinds_are_named(data, what):
    with pytest.raises(FormatError, match=what):
        detect(data, "f")


@pytest.mark.parametrize(
    ("name", "asked", "key"),
    [
        ("a.cache", None, "trt-cache"),
        ("x/calibration.json", None, "ort-json"),
        ("a.qdq.onnx", None, "qdq-onnx"),
        ("a.json", "tao-json", "tao-json"),
        ("a.PT", None, "amax-torch"),
    ],
)
def test_the_format_to_write_is_the_one_asked_for_or_the_suffix_means(name, asked, key):
    assert format_of_name(name, asked) == key


@pytest.mark.parametrize(("name", "asked"), [("a.json", None), ("a", None), ("a.cache", "nonsense")])
def test_a_format_that_cannot_be_told_is_asked_for(name, asked):
    with pytest.raises(UsageError, match="tao-json"):
        format_of_name(name, asked)
