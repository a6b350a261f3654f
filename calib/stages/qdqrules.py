"""What TensorRT rejects of a Q/DQ model as it stands, whoever wrote it: one finding a rule, with its remedy.

The rules are those of TensorRT's ONNX parser and of strongly typed networks (docs/placement.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx

from calib.core.graph.stored import StoredValues
from calib.core.qdqgrid import QONNX, attribute
from calib.core.qdqpairs import Quantizer, find_quantizers
from calib.core.roles import COMPUTE
from calib.stages.convert_opset import opset_of
from calib.stages.qdqread import INTEGER_OPERATORS
from calib.stages.rangelint import Finding, Severity

CONVERT = "write it anew for TensorRT: calib cache convert FILE -o NEW.onnx"
RULES: Mapping[str, tuple[Severity, str, str]] = {
    "trt_type": ("error", "quantize to a type other than INT8", CONVERT),
    "trt_zero_point": ("error", "have a zero point other than 0", CONVERT),
    "trt_zero_type": ("error", "have a zero point that is no INT8 number", CONVERT),
    "trt_scale": ("error", "have a scale that is zero, negative, infinite or NaN", "calibrate again"),
    "trt_computed_scale": ("error", "have a scale or zero point that the network computes", "fold its constants"),
    "trt_activation_axis": ("error", "are activations with a scale per channel; TensorRT takes one a tensor", CONVERT),
    "trt_weight_axis": ("error", "have scales along another axis than their layer's output channels", CONVERT),
    "trt_axis_missing": ("error", "have scales per channel and no axis, which then is 1", CONVERT),
    "trt_opset": ("error", "have scales per channel below opset 13, or float16 scales below opset 19", CONVERT),
    "trt_scale_type": ("error", "have a scale of another float type than their input (strong typing)", CONVERT),
    "trt_bias": ("error", "are biases stored as integers; biases stay in float", CONVERT),
    "trt_between": ("warning", "have operators between Q and DQ (Clip), where TensorRT expects none", CONVERT),
    "trt_operator": ("error", "are operators that TensorRT does not have", "quantize again in the Q/DQ format"),
    "trt_unpaired": ("error", "quantize and are not restored, or are restored and not quantized", CONVERT),
    "trt_deconv_axis": ("warning", "are transposed convolutions with a scale per channel, on which TensorRT's versions "
                        "differ", CONVERT),
}  # fmt: skip
OUTPUT_AXIS: Mapping[str, int] = {"Conv": 0, "ConvTranspose": 1, "MatMul": -1}


def tensorrt_findings(model: onnx.ModelProto) -> tuple[Finding, ...]:
    """Check a Q/DQ model against TensorRT's rules, errors first; nothing where it holds no quantizer.

    Args:
        model: external data loaded.
    """
    checker = _Checker(model)
    for item in find_quantizers(model):
        checker.check(item)
    checker.operators()
    found = (_finding(code, names) for code, names in checker.found.items())
    return tuple(sorted(found, key=lambda item: item.severity != "error"))


def _finding(code: str, names: dict[str, None]) -> Finding:
    severity, text, remedy = RULES[code]
    return Finding(code, severity, f"{len(names)} {text}", remedy, tuple(names))


@dataclass
class _Checker:
    model: onnx.ModelProto
    found: dict[str, dict[str, None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.nodes = self.model.graph.node
        self.stored = StoredValues(self.model)
        self.opset = opset_of(self.model)
        self.types = {item.name: item.type.tensor_type.elem_type for item in self.model.graph.value_info}
        self.types |= {item.name: item.type.tensor_type.elem_type for item in self.model.graph.input}
        self.types |= {name: tensor.data_type for name, tensor in self.stored.initializers.items()}
        self.readers: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
        for node in self.nodes:
            for slot, name in enumerate(node.input):
                self.readers.setdefault(name, []).append((node, slot))

    def mark(self, code: str, name: str, holds: bool = True) -> None:
        if holds:
            self.found.setdefault(code, {})[name] = None

    def check(self, item: Quantizer) -> None:
        name, grid = item.name or item.output, item.grid
        self.mark("trt_unpaired", name, item.form in {"foreign", "dangling"})
        self.mark("trt_operator", self.nodes[item.node].op_type, item.form == "single")
        if item.form in {"foreign", "single"}:
            return
        if grid is None:
            self.mark("trt_computed_scale", name)
            return
        if item.form == "stored" and grid.kind == "INT32":
            self.mark("trt_bias", name)
            return
        self.mark("trt_type", name, grid.kind != "INT8")
        self.mark("trt_zero_point", name, bool(grid.zero.any()))
        self.mark("trt_zero_type", name, grid.float_zero)
        self.mark("trt_scale", name, not bool((np.isfinite(grid.scale) & (grid.scale > 0)).all()))
        self.mark("trt_between", name, bool(item.between))
        self.types_of(item, name)
        if grid.scale.size > 1:
            self.axes(item, name)

    def types_of(self, item: Quantizer, name: str) -> None:
        """Check the scale's float type against the input's and against the opset."""
        scale = self.scale_type(self.nodes[item.node].input[1])
        source = self.types.get(item.source)
        known = source in {onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}
        self.mark("trt_scale_type", name, item.form == "pair" and known and scale is not None and scale != source)
        self.mark("trt_opset", name, scale == onnx.TensorProto.FLOAT16 and self.opset < 19)

    def scale_type(self, name: str) -> int | None:
        if name in self.stored.initializers:
            return int(self.stored.initializers[name].data_type)
        value = self.stored.value(name)
        kinds = {"float32": onnx.TensorProto.FLOAT, "float16": onnx.TensorProto.FLOAT16}
        return None if value is None else kinds.get(value.dtype.name)

    def axes(self, item: Quantizer, name: str) -> None:
        """Check the axis of per-channel scales: constants only, along the layer's output channels."""
        node = self.nodes[item.restore]
        self.mark("trt_activation_axis", name, not item.constant)
        self.mark("trt_opset", name, self.opset < 13)
        self.mark("trt_axis_missing", name, attribute(node, "axis") is None)
        for layer, slot in self.readers.get(item.output, ()) if item.constant else ():
            wanted = self.output_axis(layer, slot)
            if layer.op_type == "ConvTranspose":
                self.mark("trt_deconv_axis", name)
            elif wanted is not None and item.axis is not None:
                rank = self.rank(item.source)
                off = item.axis % rank != wanted % rank if rank else item.axis != wanted
                self.mark("trt_weight_axis", name, off)

    def output_axis(self, layer: onnx.NodeProto, slot: int) -> int | None:
        if layer.op_type not in COMPUTE or slot != 1:
            return None
        if layer.op_type == "Gemm":
            return 0 if attribute(layer, "transB", 0) else 1
        return OUTPUT_AXIS[layer.op_type]

    def rank(self, name: str) -> int:
        value = self.stored.value(name)
        return 0 if value is None else value.ndim

    def operators(self) -> None:
        for node in self.nodes:
            self.mark("trt_operator", node.op_type, node.op_type in INTEGER_OPERATORS | QONNX)


def rejected_line(findings: tuple[Finding, ...]) -> str:
    """Say in one line what TensorRT rejects of a model, or nothing."""
    errors = [item.text for item in findings if item.severity == "error"]
    return f"as it stands TensorRT rejects the file: {'; '.join(errors)}" if errors else ""
