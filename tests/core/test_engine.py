"""trtexec commands, shape profiles, layer information of both schemas, and the audit made of it."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from calib.core.engine.audit import audit_engine, names_of, read_profile
from calib.core.engine.layerinfo import parse_layer_info, type_in
from calib.core.engine.options import OPTIONS, TRTEXEC_10, TRTEXEC_11
from calib.core.engine.shapes import ShapeRange, calibration_batch, complete_shapes, open_shapes, parse_shapes
from calib.core.engine.trtexec import EngineFiles, command_for_10, command_for_11
from calib.core.graph import GraphTensor
from calib.core.plan import Decision
from calib.errors import FormatError, UsageError
from calib.types.data import Preprocess

FILES = EngineFiles("net.onnx", "e.engine", "e.layers.json", "e.profile.json", "t.cache", "calibration.cache")
OPEN = {"image": ShapeRange((1, 3, 8, 8), (2, 3, 8, 8), (4, 3, 8, 8))}
SPEC = Preprocess("rgb", (352, 480), 1 / 255, (0.5,), (0.25,))


# trtexec


def test_the_option_lists_differ_where_tensorrt_11_dropped_options() -> None:
    removed = {"--int8", "--fp16", "--bf16", "--fp8", "--best", "--calib", "--layerPrecisions", "--layerOutputTypes"}
    removed |= {"--precisionConstraints", "--calibProfile", "--optShapesCalib", "--minShapesCalib", "--maxShapesCalib"}
    assert removed <= TRTEXEC_10
    assert TRTEXEC_11.isdisjoint(removed)
    kept = {"--onnx", "--saveEngine", "--loadEngine", "--exportLayerInfo", "--exportProfile", "--profilingVerbosity"}
    assert (
        kept | {"--timingCacheFile", "--minShapes", "--optShapes", "--maxShapes", "--shapes"} <= TRTEXEC_10 & TRTEXEC_11
    )


@pytest.mark.parametrize("fp16", [True, False])
@pytest.mark.parametrize("shapes", [{}, OPEN])
@pytest.mark.parametrize("precisions", [{}, {"head": "fp16", "a:b c": "fp32"}])
def test_every_option_that_is_printed_exists_in_its_version(fp16, shapes, precisions) -> None:
    ten, eleven = command_for_10(FILES, shapes, precisions, fp16=fp16), command_for_11(FILES, shapes)
    for command in (ten, eleven):
        assert command.options
        assert set(command.options) <= OPTIONS[command.major]
        assert shlex.split(command.text) == list(command.words)
        assert len(command.options) == len(set(command.options))
    assert ("--layerPrecisions" in ten.options) == bool(precisions) == ("--precisionConstraints" in ten.options)


def test_layers_that_the_syntax_cannot_name_are_said_to_be_left_out() -> None:
    command = command_for_10(FILES, {}, {"a,b": "fp16", "it's": "fp16", "c": "fp16"}, fp16=True)
    assert "--layerPrecisions=c:fp16" in command.words
    assert "a,b, it's" in command.notes[0]
    alone = command_for_10(FILES, {}, {"a,b": "fp16"}, fp16=True)
    assert "--precisionConstraints" not in alone.options


def test_shapes_are_spelled_as_trtexec_reads_them() -> None:
    words = command_for_11(FILES, {**OPEN, "in:0": ShapeRange.fixed((1, 2))}).words
    assert "--minShapes=image:1x3x8x8,in:0:1x2" in words
    assert "--optShapes=image:2x3x8x8,in:0:1x2" in words
    assert "--maxShapes=image:4x3x8x8,in:0:1x2" in words


def test_inputs_that_the_syntax_cannot_name_are_told() -> None:
    odd = {"a,b": ShapeRange.fixed((1, 2))}
    for command in (command_for_10(FILES, odd, {}, fp16=True), command_for_11(FILES, odd)):
        assert any("cannot name these inputs: a,b" in note for note in command.notes)
    assert command_for_11(FILES, OPEN).notes == ()


def test_open_lengths_are_spelled_with_letters_for_what_only_the_user_knows() -> None:
    shapes = {
        "image": (None, 3, None, None),
        "nhwc": (1, None, None, 3),
        "mask": (None, 7),
        "fixed": (1, 3),
        "free": None,
    }
    inputs = [GraphTensor(name, "float32", shape) for name, shape in {**shapes, "free": None}.items()]
    assert open_shapes(inputs) == ("image:1x3xHxW", "nhwc:1xHxWx3", "mask:1x7")
    assert open_shapes([GraphTensor("odd", "float32", (None, None, None, None))]) == ("odd:1xL1xL2xL3",)


def documents(repository: Path) -> list[Path]:
    return [repository / "README.md", *sorted((repository / "docs").glob("*.md"))]


def test_every_trtexec_line_of_the_documents_uses_options_of_a_version(repository: Path) -> None:
    lines = [
        (page.name, line)
        for page in documents(repository)
        for line in re.sub(r"\\\n\s*", " ", page.read_text()).splitlines()
        if line.strip().startswith("trtexec ")
    ]
    assert len(lines) >= 2
    for page, line in lines:
        options = {word.partition("=")[0] for word in shlex.split(line, comments=True)[1:]}
        assert options <= TRTEXEC_10 or options <= TRTEXEC_11, (page, options - TRTEXEC_10, options - TRTEXEC_11)


# Shapes


def test_shapes_are_read() -> None:
    assert parse_shapes(["image:1x3x8x8"]) == {"image": ShapeRange.fixed((1, 3, 8, 8))}
    assert parse_shapes(["in:0:1x3x8x8/2x3x8x8/4x3x8x8"]) == {
        "in:0": ShapeRange((1, 3, 8, 8), (2, 3, 8, 8), (4, 3, 8, 8))
    }


@pytest.mark.parametrize(
    "text",
    ["image", "image:", ":1x3", "image:1x3/2x3", "image:1x0", "image:1x-3", "image:axb", "image:4x3/2x3/1x3",
     "image:1x3/1x3x2/1x3", "image:1x3/1x3/1x3/1x3", "image:1×3"],
)  # fmt: skip
def test_malformed_shapes_are_usage_errors(text: str) -> None:
    with pytest.raises(UsageError, match="--shapes"):
        parse_shapes([text])


def test_an_input_is_given_once() -> None:
    with pytest.raises(UsageError, match="twice"):
        parse_shapes(["a:1", "a:2"])


def test_open_lengths_are_filled_from_the_preprocessing() -> None:
    nchw = GraphTensor("image", "float32", (None, 3, None, None))
    assert complete_shapes([nchw], {}, SPEC) == {"image": ShapeRange.fixed((1, 3, 352, 480))}
    nhwc = GraphTensor("image", "float32", (None, None, None, 3))
    last = Preprocess("rgb", (352, 480), 1 / 255, (0.5,), (0.25,), layout="nhwc")
    assert complete_shapes([nhwc], {}, last) == {"image": ShapeRange.fixed((1, 352, 480, 3))}
    assert complete_shapes([GraphTensor("image", "float32", (1, 3, 8, 8))], {}, None) == {}
    assert complete_shapes([nchw], {"image": ShapeRange.fixed((8, 3, 64, 64))}, SPEC)["image"].opt == (8, 3, 64, 64)


@pytest.mark.parametrize("spec", [None, Preprocess("rgb", None, 1 / 255, (0.5,), (0.25,))])
def test_open_lengths_that_nothing_tells_are_a_usage_error(spec) -> None:
    with pytest.raises(UsageError, match="names no size"):
        complete_shapes([GraphTensor("image", "float32", (None, 3, None, None))], {}, spec)


@pytest.mark.parametrize(("images", "batch"), [(6, 6), (8, 8), (16, 8), (7, 7), (13, 1), (500, 5), (1, 1), (128, 8)])
def test_a_calibration_batch_divides_the_images(images: int, batch: int) -> None:
    assert calibration_batch(images, True, None) == batch
    assert images % batch == 0


def test_a_fixed_batch_must_divide_the_images() -> None:
    assert calibration_batch(12, False, 4) == 4
    with pytest.raises(UsageError, match="--num-images 8"):
        calibration_batch(10, False, 4)


# Layer information


def tensor(name: str, described: str, lengths=(1, 8, 4, 4)) -> dict:
    return {"Name": name, "Location": "Device", "Dimensions": list(lengths), "Format/Datatype": described}


INT8, HALF, FLOAT = (
    "Thirty-two wide channel vectorized row major Int8 format",
    "Channel major FP16 format where channel % 8 == 0",
    "Row major linear FP32",
)
LAYERS = [
    {"Name": "Reformatting CopyNode for Input Tensor 0 to /a/Conv + /a/Relu", "LayerType": "Reformat",
     "Origin": "REFORMAT", "Inputs": [tensor("image", FLOAT)], "Outputs": [tensor("x", INT8)], "TacticName": ""},
    {"Name": "/a/Conv + /a/Relu", "LayerType": "CaskConvolution", "Inputs": [tensor("x", INT8)],
     "Outputs": [tensor("y", INT8)], "Weights": {"Type": "Int8", "Count": 864}, "Bias": {"Type": "Float", "Count": 32},
     "TacticName": "sm80_xmma_fprop_implicit_gemm_interleaved_i8i8_i8i32_f32", "StreamId": 0,
     "Metadata": "[ONNX Layer: /a/Conv]\x1e[ONNX Layer: /a/Relu]"},
    {"Name": "/b/Conv", "LayerType": "CaskConvolution", "Inputs": [tensor("y", HALF)], "Outputs": [tensor("z", HALF)],
     "Weights": {"Type": "Half", "Count": 9}, "TacticName": "sm80_xmma_fprop_f16f16",
     "Metadata": "[ONNX Layer: /b/Conv]"},
    {"Name": "__myl_FcAdd_myl0_3", "LayerType": "kgen", "Inputs": [tensor("z", "Half")],
     "Outputs": [tensor("w", "Half")], "TacticName": "__myl_FcAdd_0x1",
     "Metadata": "[ONNX Layer: /c/MatMul]\x1f[ONNX Layer: /c/Add]"},
    {"Name": "wait_0", "LayerType": "wait", "Inputs": [], "Outputs": []},
    {"Name": "Reformatting CopyNode for Output Tensor 0 to /d/Conv", "LayerType": "NoOp",
     "Inputs": [tensor("w", HALF)], "Outputs": [tensor("out", HALF)]},
    {"Name": "PWN(PWN(/e/Sigmoid), PWN(/e/Mul))", "LayerType": "PointWiseV2", "Inputs": [tensor("w", HALF)],
     "Outputs": [tensor("v", HALF, (-1, 8))]},
]  # fmt: skip


def as_11(layers: list) -> list:
    """The same layers, with format and type apart."""
    told = json.loads(json.dumps(layers))
    for layer in told:
        for item in layer["Inputs"] + layer["Outputs"]:
            described = item.pop("Format/Datatype")
            item["Format"], item["Datatype"] = (
                "N:32 C:32",
                {INT8: "Int8", HALF: "Half", FLOAT: "Float"}.get(described, described),
            )
    return told


def information(schema: str) -> str:
    if schema == "bindings":
        return json.dumps({"Layers": LAYERS, "Bindings": ["image", "out"]})
    io = [
        {"Name": "image", "IOMode": "Input", "DataType": "Float"},
        {"Name": "out", "IOMode": "Output", "DataType": "Half"},
    ]
    return json.dumps({"Layers": as_11(LAYERS), "I/O Tensors": io})


DECISIONS = [
    Decision(0, "/a/Conv", "Conv", "int8", "quantized"),
    Decision(1, "/a/Relu", "Relu", "fused", "fused"),
    Decision(2, "/b/Conv", "Conv", "int8", "quantized"),
    Decision(3, "/c/MatMul", "MatMul", "float", "logits"),
    Decision(4, "/gone/Conv", "Conv", "int8", "quantized"),
]


@pytest.mark.parametrize("schema", ["bindings", "io-tensors"])
def test_both_schemas_say_the_same(schema: str) -> None:
    info = parse_layer_info(information(schema))
    assert (info.schema, info.io, info.detailed) == (schema, ("image", "out"), True)
    assert [layer.precision for layer in info.layers][:4] == ["fp32", "int8", "fp16", "fp16"]
    assert [layer.is_reformat for layer in info.layers] == [True, False, False, False, False, False, False]
    assert [layer.is_empty for layer in info.layers] == [False, False, False, False, True, True, False]
    assert info.layers[1].nodes == ("/a/Conv", "/a/Relu")
    assert info.layers[3].nodes[:2] == ("/c/MatMul", "/c/Add")
    assert info.layers[1].inputs[0].elements == 128
    assert info.layers[6].outputs[0].elements is None


@pytest.mark.parametrize("schema", ["bindings", "io-tensors"])
def test_the_audit_says_what_ran_int8_and_what_fell_back(schema: str) -> None:
    times = {layer["Name"]: 0.5 for layer in LAYERS}
    audit = audit_engine(parse_layer_info(information(schema)), DECISIONS, times)
    assert [(item.layer, item.outcome) for item in audit.layers] == [
        ("/a/Conv", "int8"), ("/b/Conv", "fell back"), ("/c/MatMul", "float"), ("/gone/Conv", "not found"),
    ]  # fmt: skip
    assert audit.layers[1].precision == "fp16"
    assert [item.change for item in audit.reformats] == ["fp32 → int8"]
    assert audit.reformat_ms == 0.5
    assert audit.total_ms == 3.5
    lines = audit.lines()
    assert lines[0].startswith("1 of 2 layers planned for INT8 run in it")
    assert "fell back to float: /b/Conv (Conv, fp16)" in lines
    assert lines[-1] == "1 reformats take 0.500 ms of 3.500 ms (14.3%)"
    assert json.loads(json.dumps(audit.document()))["counts"]["fell back"] == 1


def test_unplanned_int8_shows() -> None:
    plan = [Decision(0, "/a/Conv", "Conv", "float", "logits")]
    audit = audit_engine(parse_layer_info(information("bindings")), plan)
    assert audit.layers[0].outcome == "unplanned int8"
    assert audit.total_ms is audit.reformat_ms is None
    assert audit.lines()[-1] == "1 reformats"


def test_unnamed_nodes_go_by_the_parsers_name() -> None:
    assert list(names_of("Conv(out)")) == ["Conv(out)", "node_of_out"]
    assert list(names_of("/a/Conv")) == ["/a/Conv"]
    text = json.dumps({"Layers": [{**LAYERS[1], "Name": "node_of_out + node_of_r", "Metadata": ""}], "Bindings": []})
    audit = audit_engine(parse_layer_info(text), [Decision(0, "Conv(out)", "Conv", "int8", "quantized")])
    assert audit.layers[0].outcome == "int8"


def test_layer_names_alone_cannot_be_audited() -> None:
    info = parse_layer_info(json.dumps({"Layers": ["/a/Conv + /a/Relu", "/b/Conv"], "Bindings": ["x"]}))
    assert info.layers[0].nodes == ("/a/Conv", "/a/Relu")
    with pytest.raises(FormatError, match="names only"):
        audit_engine(info, DECISIONS)


@pytest.mark.parametrize(
    ("described", "kind"),
    [
        (INT8, "int8"), (HALF, "fp16"), (FLOAT, "fp32"), ("Half", "fp16"), ("Float", "fp32"), ("Int8", "int8"),
        ("BFloat16", "bf16"), ("Row major linear BFloat16 format", "bf16"), ("FP8", "fp8"), ("Int32", "int32"),
        ("Channel major INT8 format where channel % 16 == 0", "int8"), ("Row major linear FP8 format", "fp8"),
        ("Row major linear FP32 format (kLINEAR)", "fp32"), ("Bool", "bool"), ("Unknown format", ""), ("", ""),
    ],
)  # fmt: skip
def test_types_are_found_in_descriptions(described: str, kind: str) -> None:
    assert type_in(described) == kind


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"Layers": 5}', '{"Layers": [5]}', '{"Layers": [{}]}', "[" * 100000,
                                  '{"Layers": [], "I/O Tensors": [5]}'])  # fmt: skip
def test_what_is_no_layer_information_is_a_format_error(text: str) -> None:
    with pytest.raises(FormatError, match="Layers"):
        parse_layer_info(text)


def test_mutated_layer_information_never_crashes() -> None:
    rng = np.random.default_rng(1)
    original = information("bindings").encode()
    answers = 0
    for _ in range(400):
        data = bytearray(original)
        for _ in range(int(rng.integers(1, 6))):
            data[int(rng.integers(0, len(data)))] = int(rng.integers(32, 127))
        try:
            audit_engine(parse_layer_info(bytes(data)), DECISIONS)
        except FormatError:
            continue
        answers += 1
    assert 0 < answers < 400


def test_profiles_are_read_and_repeated_names_added() -> None:
    text = json.dumps(
        [{"count": 3}, {"name": "a", "averageMs": 0.5}, {"name": "b", "averageMs": 1}, {"name": "a", "averageMs": 0.25}]
    )
    assert read_profile(text) == {"a": 0.75, "b": 1.0}
    for bad in (f'[{{"name": "a", "averageMs": 1{"0" * 400}}}]', "", "5", '[{"name": "a"}]', "[5]"):
        with pytest.raises(FormatError, match="layer times"):
            read_profile(bad)
