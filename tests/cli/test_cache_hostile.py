"""``calib cache`` on what people really have: odd headers, damaged lines, archives, names from every exporter."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from calib.cli.app import make_app, run
from calib.core.cachelook import input_fingerprint
from calib.core.formats.registry import FORMATS
from calib.core.trtcache import parse
from tests.core.formats.tables import TENSOR_KEYS

HEADER = "TRT-8601-EntropyCalibration2\n"
UNIT = "3c010204"
BODY = f"images: {UNIT}\n/model.0/conv/Conv_output_0: 3dc6f1a2\n"
NAMES = {
    "uff": ["Input", "conv1/BiasAdd", "b1/LeakyRelu:0", "MarkOutput_0"],
    "caffe": ["data", "conv1_1", "fc6", "prob"],
    "tf-trt": ["TensorRTInputPH_0", "StatefulPartitionedCall/model/conv2d/BiasAdd:0", "PartitionedCall/resnet/add"],
    "deepstream": ["input_1", "conv1/convolution", "activation_1/Relu", "output_bbox/BiasAdd"],
    "jetson-inference": ["input_0", "216", "218", "/x/y z [1]"],
    "tensorrtx": ["data", "(Unnamed Layer* 0) [Convolution]_output", "(Unnamed Layer* 1) [Scale]_output", "prob"],
    "yolo": ["images", "/model.0/conv/Conv_output_0", "/model.22/Concat_output_0", "output0"],
    "odd": ["a b", "a: b", "a::b:", "[x]", "画像:0", "a\tb", "'q'", '"q"', "\\n", "-", "0", "1e5", "a,b", "a=b", "{y}"],
}


def calib(*arguments: object) -> int:
    return run(["cache", *map(str, arguments)], make_app((), (("cache", "calib.cli.cache"),)))


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str | bytes], Path]:
    def written(content: str | bytes) -> Path:
        path = tmp_path / "given.cache"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return written


@pytest.fixture
def lint(capsys) -> Callable[[Path], tuple[int, dict[str, dict]]]:
    def linted(path: Path) -> tuple[int, dict[str, dict]]:
        code = calib("lint", path, "--json")
        return code, {item["code"]: item for item in json.loads(capsys.readouterr().out)["findings"]}

    return linted


def entries(names: list[str]) -> str:
    bits = [int(np.float32((index + 1) / 127).view(np.uint32)) for index in range(len(names))]
    return "".join(f"{name}: {value:x}\n" for name, value in zip(names, bits, strict=True))


# What is read, and comes back byte for byte


@pytest.mark.parametrize(
    ("header", "version", "finding"),
    [
        ("TRT-4000-EntropyCalibration", "4.0.0", "header_suffix"),
        ("TRT-5105-EntropyCalibration2", "5.1.5", None),
        ("TRT-6001-EntropyCalibration2", "6.0.1", None),
        ("TRT-7000-EntropyCalibration2", "7.0.0", None),
        ("TRT-8003-EntropyCalibration2", "8.0.3", None),
        ("TRT-8517-EntropyCalibration2", "8.5.17", None),
        ("TRT-9300-EntropyCalibration2", "9.3.0", None),
        ("TRT-100300-EntropyCalibration2", "10.3.0", None),
        ("TRT-101600-EntropyCalibration2", "10.16.0", None),
        ("TRT-8601-EntropyCalibration2 ", "8.6.1", "header_blanks"),
        ("1", None, "old_header"),
        ("0 3ff0000000000000 3fefffb8b26394fb", None, "old_header"),
        ("TRT-110000-EntropyCalibration2", "11.0.0", "unknown_version"),
        ("TRT-8XXX-EntropyCalibration2", None, "unknown_version"),
        ("TRT-8.6.1-EntropyCalibration2", None, "unknown_version"),
        ("TRT-8601", None, "unknown_version"),
        ("trt-8601-EntropyCalibration2", None, "unknown_version"),
        (" TRT-8601-EntropyCalibration2", None, "unknown_version"),
        ("TRT-08601-EntropyCalibration2", None, "unknown_version"),
        ("TRT-8601-EntropyCalibration2 # made by hand", None, "unknown_version"),
    ],
)
def test_every_header_is_decoded_kept_and_replaced(file, lint, capsys, tmp_path, header, version, finding):
    path = file(f"{header}\n{BODY}")
    assert calib("show", path, "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["header"]["version"] == version
    assert shown["input"]["code"] == "unit"
    assert parse(path.read_bytes()).render() == path.read_bytes()
    code, found = lint(path)
    assert set(found) - {"input"} == ({finding} if finding else set())
    assert code == (1 if finding == "unknown_version" else 0)
    assert calib("retarget", path, "-o", tmp_path / "new.cache", "--trt-version", "10.3.0") == 0
    first, _, rest = (tmp_path / "new.cache").read_text().partition("\n")
    assert first.startswith("TRT-100300-EntropyCalibration")
    assert rest == BODY


@pytest.mark.parametrize("kind", NAMES)
def test_names_of_every_exporter_survive_every_command(file, capsys, tmp_path, kind):
    path, out, back = file(HEADER + entries(NAMES[kind])), tmp_path / "out", tmp_path / "back.cache"
    assert parse(path.read_bytes()).render() == path.read_bytes()
    (tmp_path / "none.json").write_text("{}")
    assert calib("rename", path, "-o", out, "--map", tmp_path / "none.json") == 0
    assert out.read_bytes() == path.read_bytes()
    for key in TENSOR_KEYS:
        assert calib("convert", path, "-o", out, "--to", key) == 0
        assert calib("convert", out, "-o", back, "--to", "trt-cache", "--trt-version", "8.6.1") == 0
        assert parse(back.read_bytes()).scales == parse(path.read_bytes()).scales, key
    assert calib("merge", path, path, "-o", back) == 0
    assert back.read_bytes() == path.read_bytes()
    capsys.readouterr()
    assert calib("diff", path, path, "--json") == 0
    assert json.loads(capsys.readouterr().out)["identical"]


@pytest.mark.parametrize(
    ("text", "code", "finding"),
    [
        (HEADER.replace("\n", "\r") + BODY.replace("\n", "\r"), 0, "crlf"),
        (HEADER + BODY.replace("\n", "\r\n"), 0, "crlf"),
        (HEADER + f"images : {UNIT}\n", 0, "blanks"),
        (HEADER + f"images:\t{UNIT}\n", 0, "spelling"),
        (HEADER + f"images: {UNIT}\nconv: 3f8000", 1, "minute"),
        (HEADER + f"images: {UNIT}\nconv: 1\n", 1, "minute"),
        (HEADER + "images: ff\nconv: 3f800000\n", 1, "integers_as_float32"),
        (HEADER, 1, "empty"),
        ("1", 1, "empty"),
    ],
)
def test_what_is_read_but_amiss_has_its_finding(file, lint, text, code, finding):
    path = file(text)
    assert parse(path.read_bytes()).render() == path.read_bytes()
    ended, found = lint(path)
    assert (ended, finding in found) == (code, True)
    assert found[finding]["remedy"]


@pytest.mark.parametrize(
    "text",
    [HEADER, f"{HEADER}images: {UNIT}\nconv: 3f8000", f"{HEADER}{BODY}images: 3f800000\n", f"{HEADER}images: 0\n"],
)
def test_what_lint_fails_is_not_converted_either(file, tmp_path, text):
    for name in ("o.txt", "o.cache", "calibration.json"):
        assert calib("convert", file(text), "-o", tmp_path / name) == 2
        assert not (tmp_path / name).exists()


def test_a_cache_in_a_pipe_is_read_once(file, capsys, tmp_path):
    """``calib cache show <(zcat old.cache.gz)``: the shell gives the name of a pipe."""
    import os
    import threading

    for content in (f"{HEADER}{BODY}", '{"tensor_scales": {"images": 1.0}}'):
        pipe = tmp_path / f"pipe{len(content)}"
        os.mkfifo(pipe)
        for command in (["show"], ["lint"], ["rename", "-o", str(tmp_path / "o"), "--map", str(tmp_path / "m.json")]):
            (tmp_path / "m.json").write_text("{}")
            feeding = threading.Thread(target=pipe.write_text, args=(content,), daemon=True)
            feeding.start()
            assert calib(command[0], pipe, *command[1:]) == 0
            feeding.join()
    assert "images" in capsys.readouterr().out


# What is refused, with place, finding and remedy


def zipped(data: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("old.cache", data)
    return stream.getvalue()


def tarred(data: bytes) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        member = tarfile.TarInfo("old.cache")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return stream.getvalue()


CACHE = (HEADER + BODY).encode()
REFUSED: dict[str, tuple[bytes, str, str, str]] = {
    "gzip": (gzip.compress(CACHE), "1:1", "a gzip archive", "unpack"),
    "bzip2": (bz2.compress(CACHE), "1:1", "a bzip2 archive", "unpack"),
    "xz": (lzma.compress(CACHE), "1:1", "an xz archive", "unpack"),
    "zip": (zipped(CACHE), "1:1", "a zip archive", "unpack"),
    "tar": (tarred(CACHE), "1:1", "a tar archive", "unpack"),
    "utf-16": (CACHE.decode().encode("utf-16"), "1:1", "UTF-16 text", "UTF-8"),
    "utf-16 without mark": (CACHE.decode().encode("utf-16-be"), "1:1", "UTF-16 text", "UTF-8"),
    "utf-32": (CACHE.decode().encode("utf-32"), "1:1", "UTF-32 text", "UTF-8"),
    "byte order mark": (b"\xef\xbb\xbf" + CACHE, "1:1", "byte order mark", "UTF-8"),
    "git-lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "1:1", "a git-lfs pointer", "git lfs"),
    "blank line first": (b"\n" + CACHE, "1:1", "a blank line", "delete the blank lines"),
    "no header": (BODY.encode(), "1:1", "the header line is missing", "add the header"),
    "prose": (b"lorem ipsum\ndolor: sit\n", "1:1", "'lorem ipsum'", "convert"),
    "two caches in one": (CACHE + CACHE, "4:1", "'TRT-8601-EntropyCalibration2'", "calib cache merge"),
    "merge conflict": (CACHE + b"<<<<<<< HEAD\n", "4:1", "'<<<<<<< HEAD'", "merge conflict"),
    "comment": (CACHE + b"# checked\n", "4:1", "'# checked'", "no comments"),
    "0x": (CACHE + b"conv: 0x3f800000\n", "4:7", "'0x3f800000'", "without 0x"),
    "decimal": (CACHE + b"conv: 1.5\n", "4:7", "'1.5'", "dynamic-range text"),
    "nine digits": (CACHE + b"conv: 3f8000000\n", "4:7", "'3f8000000'", "damaged"),
    "cut behind the colon": (CACHE + b"conv:", "4:6", "nothing", "damaged"),
    "cut in the name": (CACHE + b"co", "4:1", "'co'", "damaged"),
    "half a character": (b'{"tensor_scales": {"a": 1.0,\n "\\ud800": 2.0}}', "2:3", "half of one", "damaged"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_refused_by_every_command(file, capsys, tmp_path, name):
    data, place, got, remedy = REFUSED[name]
    path, out = file(data), tmp_path / "out.txt"
    (tmp_path / "none.json").write_text("{}")
    for command in (
        ["show", path], ["lint", path], ["diff", path, path], ["convert", path, "-o", out],
        ["merge", path, path, "-o", out], ["rename", path, "-o", out, "--map", tmp_path / "none.json"],
    ):  # fmt: skip
        assert calib(*command) == 2
        first, second = capsys.readouterr().err.strip().splitlines()
        assert first.startswith(f"calib: {path}:{place}: expected ")
        assert got in first
        assert second.startswith("  remedy: ")
        assert remedy in second
    assert not out.exists()


def test_a_hostile_name_cannot_steer_the_terminal(file, capsys, tmp_path):
    path = file(f"{HEADER}images: {UNIT}\n\x1b[2Jgone: 7f800000\n\xff: 7f800000\n".encode("latin-1"))
    for command in (["show", path], ["lint", path], ["convert", path, "-o", tmp_path / "o.txt"]):
        calib(*command)
        captured = capsys.readouterr()
        assert "\x1b" not in captured.out + captured.err
        assert "\\x1b[2Jgone" in captured.out + captured.err
        assert "\\xff" in captured.out + captured.err


# What the commands promise besides


def test_retarget_by_class_alone_keeps_the_version(file, capsys, tmp_path):
    path, out = file(f"TRT-8401-MinMaxCalibration\n{BODY}"), tmp_path / "out.cache"
    assert calib("retarget", path, "-o", out, "--algorithm", "EntropyCalibration2") == 0
    assert out.read_text() == f"TRT-8401-EntropyCalibration2\n{BODY}"
    assert calib("retarget", path, "-o", out) == 2
    assert calib("retarget", file(f"1\n{BODY}"), "-o", out, "--algorithm", "EntropyCalibration2") == 2
    assert "--trt-version 10.14.1" in capsys.readouterr().err


def test_a_header_that_no_version_writes_is_not_carried_on(file, capsys, tmp_path):
    path, out = file(f"TRT-110000-EntropyCalibration2\n{BODY}"), tmp_path / "out.cache"
    for command in (["convert", path, "-o", out], ["merge", path, path, "-o", out]):
        assert calib(*command) == 0
        assert out.read_bytes().startswith(b"TRT-101401-EntropyCalibration2\n")
    assert "header    TRT-101401-EntropyCalibration2" in capsys.readouterr().out


def test_a_merge_says_what_it_could_not_decide_and_what_it_changed(file, capsys, tmp_path):
    path = file(f"{HEADER}{BODY}dead: 0\nimages: 3c810204\n")
    assert calib("merge", path, path, "-o", tmp_path / "out.cache") == 0
    told = capsys.readouterr().out
    assert "1 tensor occurs more than once, with different ranges" in told
    assert "1 range was 0 or next to it and got a floor: dead" in told
    blank = file(f"{HEADER}images: 0\nconv: 3f800000\n")
    assert calib("merge", blank, blank, "-o", tmp_path / "out.cache") == 2
    assert "blank images only" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("mapping", "place", "told"),
    [
        (b'{"images": "a\\nb"}', "map:1:12", "'a\\nb'"),
        (b'{"images": ""}', "map:1:12", "nothing"),
        (b'{"images": "\\ud800"}', "map:1:13", "half of one"),
        (b'{"images": "a", "images": "b"}', "map:1:1", "'images' twice"),
        (b"images\ta\nimages\tb\n", "map:2:1", "'images' a second time"),
    ],
)
def test_names_that_no_file_could_hold_are_not_given(file, capsys, tmp_path, mapping, place, told):
    (tmp_path / "map").write_bytes(mapping)
    assert calib("rename", file(HEADER + BODY), "-o", tmp_path / "out", "--map", tmp_path / "map") == 2
    message = capsys.readouterr().err
    assert place in message
    assert told in message
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("amax", "code"),
    [
        (255 * 128 / 127, "raw"), (255 * 0.95, "raw"), (127.5, "centred"), (128 * 128 / 127, "centred"),
        (151.06 * 128 / 127, "caffe"), (2.64 * 128 / 127, "imagenet"), (2.25, "imagenet"), (0.98, "unit"),
        (128 / 127, "unit"), (1e-40, "integers"), (300.0, "other"), (30.0, "other"), (200.0, "other"),
    ],
)  # fmt: skip
def test_fingerprints_hold_where_calibrators_clip_and_bins_widen(amax, code):
    assert input_fingerprint(amax).code == code


@pytest.mark.parametrize(
    "name", ["input_tensor:0", "inputs/X", "TensorRTInputPH_0", "rgb", "zero_padding2d_input", "Input_Image", "frame"]
)
def test_inputs_of_caches_in_no_order_are_found(file, capsys, name):
    path = file(f"TRT-5105-EntropyCalibration2\nconv1/Relu: 3f800000\n{name}: {UNIT}\nfc: 3f800000\n")
    assert calib("show", path, "--json") == 0
    assert json.loads(capsys.readouterr().out)["input"]["name"] == name


def test_every_format_is_refused_where_nothing_is_in_it(tmp_path, capsys):
    empty = {
        "tao-json": '{"tensor_scales": {}}', "ppq-json": '{"act_quant_info": {}}', "ort-json": "{}",
        "trt-cache": HEADER,
    }  # fmt: skip
    for key, text in empty.items():
        assert key in FORMATS
        (tmp_path / "given").write_text(text)
        assert calib("convert", tmp_path / "given", "-o", tmp_path / "o.txt") == 2, key
        assert "no range at all" in capsys.readouterr().err
        assert calib("lint", tmp_path / "given") == 1
        assert "the file holds no range" in capsys.readouterr().out
