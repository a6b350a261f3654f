"""TensorRT calibration caches: byte-exact round trips, header numbers, and names for what is no cache."""

from __future__ import annotations

import json
import re
import struct

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calib.core.trtcache import CacheEntry, header_number, header_version, parse, render
from calib.errors import FormatError, UsageError

FOREIGN = {"ort_text_table.cache"}
PLACE = re.compile(r"cache:[0-9]+:[0-9]+\Z")


def test_every_public_cache_renders_back_byte_for_byte(shared):
    parsed = 0
    for path in sorted((shared / "cases/caches").iterdir()):
        data = path.read_bytes()
        if path.name in FOREIGN:
            with pytest.raises(FormatError, match="calibration table of ONNX Runtime") as caught:
                parse(data, path.name)
            assert caught.value.place == f"{path.name}:1:1"
            continue
        cache = parse(data, path.name)
        assert cache.render() == data
        assert len(cache.entries) == len([line for line in data.splitlines() if b": " in line])
        parsed += 1
    assert parsed >= 13


@pytest.mark.parametrize(
    ("name", "version", "algorithm", "crlf", "final"),
    [
        ("oldest_header_1_no_newline.cache", None, None, False, False),
        ("crlf_trt7200.cache", "7.2.0", "EntropyCalibration2", True, True),
        ("nanodet_entropy1_trt7201.cache", "7.2.1", "EntropyCalibration", False, True),
        ("minmax_trt100001_unnamed.cache", "10.0.1", "MinMaxCalibration", False, True),
        ("trt101401.cache", "10.14.1", "EntropyCalibration2", False, True),
        ("legacy_two_doubles.cache", None, "LegacyCalibration", False, True),
    ],
)
def test_headers_of_the_public_caches(shared, name, version, algorithm, crlf, final):
    cache = parse((shared / "cases/caches" / name).read_bytes())
    assert (cache.header.version, cache.header.algorithm) == (version, algorithm)
    assert (cache.newline == "\r\n", cache.final_newline) == (crlf, final)


def test_values_of_public_caches(shared):
    folder = shared / "cases/caches"
    zero = parse((folder / "diffusion_inf_zero_trt8601.cache").read_bytes())
    assert zero.entries[0] == CacheEntry("sample", 0, ": 0", "\n")
    assert zero.entries[0].scale == 0
    assert parse((folder / "twinlitenet_inf_zero.cache").read_bytes()).scales["554"] == float("inf")
    legacy = parse((folder / "legacy_two_doubles.cache").read_bytes())
    assert legacy.header.legacy == (1.0, struct.unpack(">d", bytes.fromhex("3fefffb8b26394fb"))[0])
    unit = parse((folder / "nanodet_entropy1_trt7201.cache").read_bytes())
    assert unit.entries[0].amax == pytest.approx(1.0, abs=3e-4)
    assert np.float32(1 / 127).view(np.uint32) == 0x3C010204, "the README's own example of 1.0"
    unnamed = parse((folder / "minmax_trt100001_unnamed.cache").read_bytes())
    assert sum(entry.unnamed for entry in unnamed.entries) > 100


def test_last_colon_separates():
    cache = parse(b"TRT-8601-EntropyCalibration2\nscope/a b:0: 3f800000\nonnx::Mul_314: 40000000\n7:3f000000\n")
    assert cache.scales == {"scope/a b:0": 1.0, "onnx::Mul_314": 2.0, "7": 0.5}


@pytest.mark.parametrize(
    ("data", "text", "place"),
    [
        (b"", "empty file", "cache:1:1"),
        (b"\n \n", "blanks only", "cache:1:1"),
        (b"<!DOCTYPE html><html>", "HTML page", "cache:1:1"),
        (b'{"tensor_scales": {"a": 1.0}}', "TAO", "cache:1:1"),
        (b'{"act_quant_info": {"a": 1.0}}', "PPQ", "cache:1:1"),
        (b'{"data": "2.64"}', "JSON", "cache:1:1"),
        (b"data: 2.64\nconv: 1.5\n", "sampleINT8API", "cache:1:1"),
        (b"data 2.64\nconv 1.5\n", "ONNX Runtime", "cache:1:1"),
        (b"\x0c\x00\x00\x00\x00\x00\x06\x00\x08\x00\x04\x00\x06\x00\x00\x00", "flatbuffer", "cache:1:1"),
        (b"ptrt\x00\x00\x00", "TensorRT engine", "cache:1:1"),
        (b"PK\x03\x04\x00", "zip archive", "cache:1:1"),
        (b"\x93NUMPY\x01\x00", "NumPy", "cache:1:1"),
        (b"\x08\x08\x12\x07pytorch\x00", "ONNX model", "cache:1:1"),
        (b"\xff\xfeT\x00R\x00T\x00", "UTF-16", "cache:1:1"),
        (b"\xef\xbb\xbfTRT-8601-EntropyCalibration2\n", "byte order mark", "cache:1:1"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git-lfs", "cache:1:1"),
        (b"images: 3c010a14\n", "header line is missing", "cache:1:1"),
        (b"hello\nimages: 3c010a14\n", "'hello'", "cache:1:1"),
        (b"TRT-8601-X\nimages: 3c010a14\nx 3f\n", "'x 3f'", "cache:3:1"),
        (b"TRT-8601-X\n\n\nimages: 3c010a14z\n", "'3c010a14z'", "cache:4:9"),
        (b"TRT-8601-X\nimages: \n", "nothing", "cache:2:8"),
        (b"TRT-8601-X\n: 3f800000\n", "name before the colon", "cache:2:1"),
        (b"TRT-8601-X\na: 3f8000001\n", "'3f8000001'", "cache:2:4"),
    ],
)
def test_what_is_no_cache_is_named(data, text, place):
    with pytest.raises(FormatError, match=re.escape(text)) as caught:
        parse(data)
    assert caught.value.place == place
    assert caught.value.remedy


def test_json_of_tao_is_not_taken_for_a_cache():
    document = json.dumps({"tensor_scales": {"x": 2.0}}, indent=1).encode()
    with pytest.raises(FormatError, match="tensor_scales"):
        parse(document)


@pytest.mark.parametrize(
    ("version", "number"),
    [("8.6.1", 8601), ("8.6.0", 8600), ("7.2.3.4", 7203), ("9.3.0", 9300), ("10.0.1", 100001), ("10.14.1", 101401)],
)
def test_header_numbers_follow_the_formula_of_their_version(version, number):
    assert header_number(version) == number
    assert header_version(number) == ".".join(version.split(".")[:3])


@pytest.mark.parametrize(
    "version", ["", "8", "8.6", "8.x.1", "v8.6.1", "8.6.1rc1", "8.16.1", "0.0.1", "8.6.1; rm", "١٠.1.1"]
)
def test_malformed_versions_are_refused(version):
    with pytest.raises(UsageError, match=re.escape("major.minor.patch")):
        header_number(version)


def test_versions_without_caches_are_refused():
    with pytest.raises(UsageError, match="Q/DQ ONNX"):
        header_number("11.1.0")


def test_render_writes_entropy2_unless_asked():
    cache = render([("images", 1 / 127), ("scope/x:0", 0.5)], "10.14.1")
    assert cache.render() == b"TRT-101401-EntropyCalibration2\nimages: 3c010204\nscope/x:0: 3f000000\n"
    assert render([], "8.6.1", "MinMaxCalibration").render() == b"TRT-8601-MinMaxCalibration\n"
    with pytest.raises(UsageError, match="EntropyCalibration2"):
        render([], "8.6.1", "Entropy")


@pytest.mark.parametrize("scale", [0.0, -1.0, float("inf"), float("nan"), 1e-60, 1e300])
@pytest.mark.filterwarnings("ignore:overflow")
def test_render_refuses_scales_no_engine_can_use(scale):
    with pytest.raises(FormatError, match="finite scale > 0"):
        render([("x", scale)], "8.6.1")


@pytest.mark.parametrize("name", ["", "a\nb", "a\rb", "a "])
def test_render_refuses_names_that_break_the_line(name):
    with pytest.raises(FormatError, match="stand in a line"):
        render([(name, 1.0)], "8.6.1")


NAMES = (
    st.text(
        st.characters(codec="utf-8", exclude_characters="\r\n\0", exclude_categories=["Cs"]), min_size=1, max_size=20
    )
    .map(str.strip)
    .filter(bool)
)
SCALES = st.floats(2.0**-120, 2.0**120, width=32)


@given(st.lists(st.tuples(NAMES, SCALES), max_size=20), st.sampled_from(["8.6.1", "10.14.1", "7.2.3"]))
@settings(deadline=None)
def test_parse_inverts_render(entries, version):
    cache = render(entries, version)
    again = parse(cache.render())
    assert again == cache
    assert [(entry.name, entry.scale) for entry in again.entries] == entries
    assert again.header.version == version


SAMPLE = (
    b"TRT-8601-EntropyCalibration2\r\nimages: 3c010a14\r\n\r\n(Unnamed Layer* 3) [Constant]_output: 0\r\na:0: 7f800000"
)


def outcome(data: bytes) -> str:
    """Parse arbitrary bytes: they render back exactly, or the error has line and column."""
    try:
        cache = parse(data)
    except FormatError as error:
        return "round trip or place" if PLACE.match(error.place) else error.place
    return "round trip or place" if cache.render() == data else "other bytes"


@given(st.data())
@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow])
def test_mutated_caches_parse_or_raise_with_line_and_column(data):
    mutated = bytearray(SAMPLE)
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, len(mutated)))
        action = data.draw(st.sampled_from(["insert", "delete", "replace", "cut"]))
        if action == "insert":
            mutated[place:place] = data.draw(st.binary(max_size=5))
        elif action == "cut":
            del mutated[place:]
        else:
            mutated[place : place + 1] = b"" if action == "delete" else data.draw(st.binary(min_size=1, max_size=1))
    assert outcome(bytes(mutated)) == "round trip or place"


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_any_bytes_parse_or_raise(data):
    assert outcome(data) == "round trip or place"


def test_long_runs_of_blanks_do_not_hang():
    blanks = b"TRT-8601-X\n" + b" \t" * 200_000 + b"x: " + b" " * 200_000 + b"3f800000\n" + b" \n" * 100_000
    cache = parse(blanks)
    assert cache.render() == blanks
    assert cache.entries[0].scale == 1.0


def test_duplicates_are_kept_and_listed():
    cache = parse(b"1\na: 3f800000\nb: 3f800000\na: 40000000\n")
    assert cache.duplicates == ("a",)
    assert cache.scales["a"] == 2.0
