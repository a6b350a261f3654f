"""Checkpoints of every shape trainers write: found, named, and never executed."""

from __future__ import annotations

import numpy as np
import pytest

from calib.core.formats.registry import detect, read_table
from calib.errors import FormatError
from calib.types.rangetable import RangeTable
from tests.core.formats.pickles import Call, File, Name, New, Persistent, module

AMAX = {"c.input_quantizer._amax": np.float32(2), "c.weight_quantizer._amax": np.full((2, 1), 0.5, np.float32)}
STATE = AMAX | {"c.weight": np.array([[0.5, -0.25], [0.1, 0.5]], np.float32)}
ORDERED = Name("collections", "OrderedDict")
REBUILD = Name("torch._utils", "_rebuild_tensor_v2")
ADAM = {"state": {0: {"exp_avg": np.zeros(3, np.float32)}}, "param_groups": [{"lr": 1.0}]}
LAYER = module(
    {"weight": STATE["c.weight"]},
    {
        "input_quantizer": module({"_amax": np.float32(2)}),
        "weight_quantizer": module({"_amax": AMAX["c.weight_quantizer._amax"]}),
    },
)


def read(content: object, *, legacy: bool = False) -> RangeTable:
    data = File(content).legacy() if legacy else File(content).archive()
    assert detect(data, "f") == "amax-torch"
    return read_table(data, "f")


def amax(content: object, **options: bool) -> dict[str, float]:
    return {item.name: item.amax for item in read(content, **options)}


@pytest.mark.parametrize(
    "content",
    [
        STATE,
        {"state_dict": STATE, "epoch": 7, "lr": 0.5},
        {"net": {"model": {"state_dict": STATE}}},
        [STATE],
        {"model": STATE, "args": None},
        {"model": Call(ORDERED, (STATE,), {"_metadata": {"": {"version": 1}}})},
        {"model": STATE, "args": New(Name("argparse", "Namespace"), {"lr": 0.1, "root": "x"})},
        {"model": STATE, "optimizer": ADAM},
        module(children={"c": LAYER}),
        {"ema": New(Name("tool", "ModelEMA"), {"decay": 0.9, "ema": module(children={"c": LAYER})})},
    ],
)  # fmt: skip
@pytest.mark.parametrize("legacy", [False, True])
def test_the_state_dict_is_found_wherever_it_hides(content, legacy):
    found = read(content, legacy=legacy)
    assert {item.name: item.amax for item in found} == {"c.input_quantizer": 2.0}
    (one,) = found.weights
    assert (one.name, one.axis, one.rank, one.follows_weight) == ("c.weight_quantizer", 0, 2, True)
    np.testing.assert_array_equal(found.parameters["c.weight"], STATE["c.weight"])


def test_averaged_weights_come_first_and_the_choice_is_told():
    other = STATE | {"c.input_quantizer._amax": np.float32(3)}
    found = read({"model": other, "ema": {f"module.{key}": value for key, value in STATE.items()}})
    assert {item.name: item.amax for item in found} == {"module.c.input_quantizer": 2.0}
    (remark,) = found.remarks
    assert (remark.code, remark.names, remark.blocks) == ("several_states", ("c.input_quantizer",), False)
    assert "ema was read, not model" in remark.text
    same = read({"model": STATE, "ema": STATE})
    assert [(item.names, "agree" in item.text) for item in same.remarks] == [((), True)]


def test_nothing_that_a_file_names_is_called(tmp_path):
    mark = tmp_path / "ran"
    hostile = [
        Call(Name("os", "system"), (f"touch {mark}",)),
        Call(Name("builtins", "eval"), (f"open({str(mark)!r}, 'w')",)),
        Call(Name("builtins", "exec"), (f"open({str(mark)!r}, 'w')",)),
        Call(Name("pathlib", "Path.touch"), (str(mark),)),
        Call(REBUILD, (Call(Name("os", "system"), (f"touch {mark}",)), 0, (1,), (1,))),
        Call(Name("torch._tensor", "_rebuild_from_type_v2"), (Name("os", "system"), 1, (f"touch {mark}",), {})),
        New(Name("subprocess", "Popen"), {"args": ["touch", str(mark)]}),
        Persistent(("storage", Name("os", "system"), "0", "cpu", 3)),
        Call(REBUILD),
    ]  # fmt: skip
    for item in hostile[:-1]:
        assert amax({"model": STATE, "extra": item}) == {"c.input_quantizer": 2.0}
    for item in hostile:
        try:
            read(item)
        except FormatError:
            continue
        pytest.fail("a file without ranges was read")
    assert not mark.exists()


def test_functions_of_the_reader_cannot_be_changed_by_a_file():
    file = File({"model": STATE})
    attributes = b"N" + file.dump({"__defaults__": (1,), "function": 3}) + b"\x86"
    prefix = file.dump(REBUILD) + attributes + b"b0"
    assert {item.name for item in read_table(file.archive(prefix), "f")} == {"c.input_quantizer"}
    assert amax(STATE) == {"c.input_quantizer": 2.0}


def test_tensors_of_any_layout_and_width():
    file = File({})
    grid = np.arange(6, dtype=np.float32).reshape(2, 3)
    file.content = {
        "a.input_quantizer._amax": file.tensor(np.float32(1.5).reshape(())),
        "b.input_quantizer._amax": file.tensor(np.array([7, 2.5], np.float32)[:1], offset=0),
        "c.input_quantizer._amax": np.float16(0.25),
        "d.input_quantizer._amax": np.array(0x4040, np.uint16),
        "e.weight": Call(
            Name("torch._utils", "_rebuild_parameter"), (file.tensor(grid, strides=(1, 2)), True, Call(ORDERED))
        ),
    }
    table = read_table(file.archive(), "f")
    assert {item.name[0]: item.amax for item in table} == {"a": 1.5, "b": 7.0, "c": 0.25, "d": 3.0}
    np.testing.assert_array_equal(table.parameters["e.weight"], [[0, 2, 4], [1, 3, 5]])


@pytest.mark.parametrize(
    ("offset", "strides"), [(5, None), (0, (9,)), (-1, None), (0, (-1,)), (2**40, None), (0, (2**62,))]
)
def test_a_tensor_never_reaches_out_of_its_storage(offset, strides):
    file = File({})
    tensor = file.tensor(np.ones(3, np.float32), offset=offset, strides=strides)
    file.content = {"a.input_quantizer._amax": tensor}
    with pytest.raises(FormatError, match="byte 0"):
        read_table(file.archive(), "f")


@pytest.mark.parametrize("legacy", [False, True])
def test_damaged_files_end_in_one_message(legacy):
    data = File({"model": STATE}).legacy() if legacy else File({"model": STATE}).archive()
    for length in range(20, len(data), 7):
        try:
            read_table(data[:length], "f", "amax-torch")
        except FormatError:
            continue
    rng = np.random.default_rng(0)
    for _ in range(300):
        broken = bytearray(data)
        for at in rng.integers(0, len(data), 3):
            broken[at] = rng.integers(0, 256)
        try:
            read_table(bytes(broken), "f", "amax-torch")
        except FormatError:
            continue


def test_modelopts_settings_take_out_what_is_no_int8_range_in_force():
    names = ("on", "off", "four", "unsigned", "bare", "dynamic", "biased", "block")
    state = {f"{name}.input_quantizer._amax": np.float32(1) for name in names if name not in {"bare", "dynamic"}}
    common = {"_disabled": False, "_num_bits": 8, "_unsigned": False}
    special = {
        "off": {"_disabled": True}, "four": {"_num_bits": 4}, "unsigned": {"_unsigned": True}, "on": {}, "bare": {},
        "dynamic": {"_dynamic": True}, "biased": {"_bias": {"type": "static"}}, "block": {"_block_sizes": {-1: 32}},
    }  # fmt: skip
    quantizers = {f"{name}.input_quantizer": common | special[name] for name in names}
    modes = [("quantize", {"config": {}, "metadata": {"quantizer_state": quantizers}})]
    content = {
        "modelopt_state": {"modelopt_state_dict": modes, "modelopt_version": "0.47.0"},
        "model_state_dict": state,
    }
    for wrapped in (False, True):
        if wrapped:
            content["model_state_dict"] = {f"module.{key}": value for key, value in state.items()}
        table = read(content)
        assert {item.name.split(".")[-2] for item in table} == {"on", "unsigned", "biased"}
        found = {item.code: (item.names, item.blocks) for item in table.remarks}
        assert found == {
            "disabled": (("off.input_quantizer",), False),
            "not_int8": (("four.input_quantizer", "block.input_quantizer"), True),
            "unsigned": (("unsigned.input_quantizer",), True),
            "uncalibrated": (("bare.input_quantizer",), False),
            "dynamic": (("dynamic.input_quantizer",), False),
            "asymmetric": (("biased.input_quantizer",), True),
        }


def test_fields_that_no_int8_range_carries_are_refused_by_name():
    state = AMAX | {
        "c.input_quantizer._pre_quant_scale": np.ones(2, np.float32),
        "d.input_quantizer._bias_value": np.float32(1),
        "e.input_quantizer._zero_point": np.float32(3),
        "f.weight_quantizer._scale": np.float32(3),
    }
    found = [(item.code, item.names, item.blocks) for item in read(state).remarks]
    assert found == [
        ("pre_quant_scale", ("c.input_quantizer",), True),
        ("asymmetric", ("d.input_quantizer",), True),
        ("asymmetric", ("e.input_quantizer",), True),
        ("foreign_field", ("f.weight_quantizer",), True),
    ]


def test_learned_ranges_of_pytorch_quantization_take_the_larger_end():
    ends = {"a": (-2.0, 2.0), "b": (-3.0, 1.0)}
    state = {
        f"{name}._input_quantizer.clip.clip_value_{end}": np.float32(value)
        for name, pair in ends.items()
        for end, value in zip(("min", "max"), pair, strict=True)
    }
    table = read(state)
    assert {item.name: item.amax for item in table} == {"a._input_quantizer": 2.0, "b._input_quantizer": 3.0}
    assert [(item.code, item.names) for item in table.remarks] == [("asymmetric", ("b._input_quantizer",))]


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("c.activation_post_process.scale", "torch.ao"),
        ("c.weight_quant.tensor_quant.scaling_impl.value", "export_onnx_qcdq"),
        ("c.weight", "after calibration"),
    ],
)
def test_checkpoints_of_other_tools_are_told_what_to_pass_instead(key, said):
    with pytest.raises(FormatError, match=said):
        read({"model": {key: np.ones(3, np.float32)}})
