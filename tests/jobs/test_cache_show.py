"""``calib cache show`` on public caches."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from calib.cli.cache import app
from calib.core.cachelook import input_fingerprint
from calib.errors import FormatError
from calib.jobs.cache.show import as_text, describe_file

CLEAN = {"unnamed", "dead", "nonfinite", "implausible", "minute", "negative", "duplicates"}


@pytest.mark.parametrize(
    ("amax", "code", "faulty"),
    [
        (1.0002, "unit", False),
        (2.64, "imagenet", False),
        (128.0, "centred", False),
        (151.1, "caffe", False),
        (255.0, "raw", False),
        (0.0, "blank", True),
        (float("inf"), "garbage", True),
        (2.257e38, "garbage", True),
        (-1.0, "garbage", True),
        (32768.0, "other", False),
    ],
)
def test_a2_1_the_inputs_range_tells_the_preprocessing(amax, code, faulty):
    found = input_fingerprint(amax)
    assert (found.code, found.faulty) == (code, faulty)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("trt101401.cache", "unit"),
        ("minmax_trt100001_unnamed.cache", "imagenet"),
        ("crlf_trt7200.cache", "centred"),
        ("diffusion_inf_zero_trt8601.cache", "blank"),
        ("twinlitenet_inf_zero.cache", "garbage"),
    ],
)
def test_public_caches_are_read_for_what_they_are(shared, name, code):
    path = str(shared / "cases/caches" / name)
    document = describe_file(path)
    assert document["input"]["code"] == code
    assert set(document["findings"]) == CLEAN


def test_a2_2_dead_and_nonfinite_entries_are_listed(shared):
    path = str(shared / "cases/caches/diffusion_inf_zero_trt8601.cache")
    document = describe_file(path)
    assert "sample" in document["findings"]["dead"]
    assert document["findings"]["nonfinite"]
    text = as_text(document)
    assert "written by TensorRT 8.6.1" in text
    assert "blank images only" in text


def test_json_holds_the_whole_cache(shared):
    path = str(shared / "cases/caches/twinlitenet_inf_zero.cache")
    result = CliRunner().invoke(app, ["show", path, "--json"])
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert len(document["entries"]) == 241
    assert document["entries"][1] == {"name": "554", "amax": "inf", "scale": "inf", "hex": "7f800000"}
    assert document["header"]["number"] == 8201


def test_names_that_are_no_text_are_escaped(tmp_path):
    path = tmp_path / "odd.cache"
    path.write_bytes(b"TRT-8601-X\n\xff\x1b[31m: 3f800000\n")
    result = CliRunner().invoke(app, ["show", str(path)])
    assert result.exit_code == 0
    assert "\\xff\\x1b[31m" in result.stdout


def test_missing_files_and_other_kinds_are_format_errors(tmp_path, shared):
    with pytest.raises(FormatError, match="readable calibration cache"):
        describe_file(str(tmp_path / "nothing.cache"))
    with pytest.raises(FormatError, match="a float model"):
        describe_file(str(shared / "cases/models/unet_small_opset18.onnx"))
