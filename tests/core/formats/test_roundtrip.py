"""What goes through a format comes back: to the bit where the format holds scales or amax in full."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calib.core.formats.registry import FORMATS, WriteOptions, detect, read_table
from calib.core.quantization import scale_from_amax
from calib.core.trtcache import parse
from calib.errors import FormatError
from calib.types.rangetable import RangeTable, TensorRange, WeightRange
from tests.core.formats.tables import PORTABLE, TENSOR_KEYS, finite_scales, names, sample, table, written


def ulps(first: float, second: float) -> float:
    return abs(first - second) / float(np.spacing(np.float32(max(first, second))))


@given(st.dictionaries(names, finite_scales, min_size=1, max_size=8))
@settings(max_examples=60, deadline=None)
def test_every_pair_of_tensor_formats_brings_scales_back_exactly(scales):
    made = table(scales)
    for first in TENSOR_KEYS:
        once = read_table(written(made, first), "f", first)
        for second in TENSOR_KEYS:
            twice = read_table(written(once, second), "f", second)
            assert {item.name: item.exact_scale for item in twice} == {item.name: item.exact_scale for item in made}


@given(st.dictionaries(names, finite_scales, min_size=1, max_size=8))
@settings(max_examples=60, deadline=None)
def test_float32_amax_brings_scales_back_to_one_unit_in_the_last_place(scales):
    made = table({f"{name}.input_quantizer": value for name, value in scales.items()}, "module")
    for key in ("amax-npz", "amax-safetensors"):
        back = read_table(written(made, key), "f", key)
        assert set(back.ranges) == set(made.ranges)
        assert all(ulps(item.exact_scale, made.ranges[item.name].exact_scale) <= 1 for item in back)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=500)
def test_scale_times_127_over_127_is_the_scale_for_every_float32(bits):
    scale = float(np.uint32(bits).view(np.float32))
    if math.isfinite(scale):
        assert scale * 127 / 127 == scale
    if scale >= 2.0**-63 and math.isfinite(scale):
        assert float(scale_from_amax(TensorRange.of_scale("t", scale).amax)) == scale


@pytest.mark.parametrize("key", PORTABLE)
def test_a_file_is_known_by_its_content_and_written_again_byte_for_byte(key):
    data = sample(key)
    assert detect(data, "f") == key
    again = read_table(data, "f")
    assert again.source == key
    assert FORMATS[key].write(again, WriteOptions()) == data


@pytest.mark.parametrize(
    "name",
    [
        "colon_names_trt7201", "crlf_trt7200", "diffusion_inf_zero_trt8601", "legacy_two_doubles", "ort_text_table",
        "minmax_trt100001_unnamed", "nanodet_entropy1_trt7201", "oldest_header_1_no_newline", "qat2ptq_trt8600",
        "spaces_inf_minmax_trt6001", "trt101401", "trt101401_zero", "twinlitenet_inf_zero", "yolov4_tiny_trt7103",
    ],
)  # fmt: skip
def test_public_caches_come_back_byte_for_byte(shared, name):
    data = (shared / "cases/caches" / f"{name}.cache").read_bytes()
    found = read_table(data, name)
    if found.source == "trt-cache":
        assert parse(data).render() == data
        assert [item.scale for item in found] == [entry.scale for entry in parse(data).entries] or found.remarks
    else:
        assert FORMATS[found.source].write(found, WriteOptions()) == data


@given(names)
@settings(max_examples=100)
def test_names_that_a_line_cannot_hold_are_refused_not_mangled(name):
    for key in ("ort-text", "range-text", "trt-cache"):
        for odd in (f"{name}\n", f"{name} ", ""):
            with pytest.raises(FormatError, match="name"):
                FORMATS[key].write(table({odd: 0.5}), WriteOptions())
    for key in ("ort-json", "tao-json", "ort-flatbuffers"):
        assert name + "\n" in read_table(FORMATS[key].write(table({name + "\n": 0.5}), WriteOptions()), "f").ranges
        with pytest.raises(FormatError, match="UTF-8"):
            FORMATS[key].write(table({"\udcff": 0.5}), WriteOptions())


def test_weight_ranges_keep_their_rank_and_axis_in_a_state_dict():
    scales = np.array([0.5, 0.25], np.float32).astype(np.float64)
    weights = (
        WeightRange("c.weight_quantizer", scales, 0, rank=4),
        WeightRange("d.weight_quantizer", scales, 1, rank=4),
        WeightRange("e.weight_quantizer", np.asarray(0.125), None),
    )
    made = RangeTable({"c.input_quantizer": TensorRange("c.input_quantizer", 2.0)}, "t", "t", weights, naming="module")
    for key in ("amax-npz", "amax-safetensors"):
        back = read_table(FORMATS[key].write(made, WriteOptions()), "f")
        found = {item.name: item for item in back.weights}
        assert [(item.axis, item.rank) for item in found.values()] == [(0, 4), (1, 4), (None, None)]
        np.testing.assert_array_equal(found["d.weight_quantizer"].scales, scales)
