"""What TensorRT's engine inspector says of an engine's layers, in the schemas of TensorRT 8.4 to 11.

TensorRT 10 and older end the document with ``Bindings``, a list of names, and describe a tensor by
``Format/Datatype``; TensorRT 11 has ``I/O Tensors``, a list of mappings, and separate ``Format`` and ``Datatype``
(docs.nvidia.com/deeplearning/tensorrt, api/migration/tensorrt-10x-to-11x-IEngineInspector). ``trtexec
--exportLayerInfo`` writes the same.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from calib.errors import FormatError

Schema = Literal["bindings", "io-tensors"]

_TYPES = (
    ("int8", re.compile(r"\bu?int8\b", re.I)),
    ("fp16", re.compile(r"\b(fp16|half|float16)\b", re.I)),
    ("bf16", re.compile(r"\b(bf16|bfloat16)\b", re.I)),
    ("fp8", re.compile(r"\bfp8\w*\b", re.I)),
    ("fp32", re.compile(r"\b(fp32|float|float32)\b", re.I)),
    ("int32", re.compile(r"\bint32\b", re.I)),
    ("int64", re.compile(r"\bint64\b", re.I)),
    ("bool", re.compile(r"\bbool\b", re.I)),
)
_ONNX_NODE = re.compile(r"\[ONNX Layer: ([^\]\x1e\x1f]*)\]")
_INT8_KERNEL = re.compile(r"(?<![a-z0-9])(i8i8|int8x4|i8f32_i8i32|i8i32|imma)|(?<=_)(i8i8|i8)(?=_)", re.I)
_SEPARATORS = re.compile(r"[\x1e\x1f]")


@dataclass(frozen=True)
class EngineTensor:
    """A tensor that an engine layer reads or writes.

    Attributes:
        name: its name.
        dtype: ``int8``, ``fp16``, ``fp32``, …, or empty where it is not told.
        format: the description as TensorRT prints it.
        elements: number of elements, or None where lengths are open.
    """

    name: str
    dtype: str
    format: str
    elements: int | None


@dataclass(frozen=True)
class EngineLayer:
    """One layer of an engine: usually several layers of the network, fused.

    Attributes:
        name: as TensorRT made it up, parts joined by `` + ``.
        kind: ``CaskConvolution``, ``Reformat``, ``kgen``, …; empty without detailed information.
        tactic: name of the kernel, or empty.
        weights: type of its weights, or empty.
        inputs: tensors read.
        outputs: tensors written.
        nodes: ONNX nodes it was made from, as far as it says.
        origin: why a reformat is there, or empty.
    """

    name: str
    kind: str
    tactic: str
    weights: str
    inputs: tuple[EngineTensor, ...]
    outputs: tuple[EngineTensor, ...]
    nodes: tuple[str, ...]
    origin: str = ""

    @property
    def is_reformat(self) -> bool:
        """Whether it only changes the type or layout of a tensor."""
        return self.kind == "Reformat" or (not self.kind and self.name.startswith("Reformatting CopyNode"))

    @property
    def is_empty(self) -> bool:
        """Whether it does no work: a place holder, a stored constant, a wait."""
        return self.kind in ("NoOp", "Constant", "signal", "wait")

    @property
    def precision(self) -> str:
        """Type it computes in: that of its weights, its INT8 kernel, else of its first float or INT8 input."""
        if self.weights in ("int8", "fp16", "fp32", "bf16", "fp8"):
            return self.weights
        if _INT8_KERNEL.search(self.tactic):
            return "int8"
        numeric = [tensor.dtype for tensor in (*self.inputs, *self.outputs) if tensor.dtype in _NUMERIC]
        return numeric[0] if numeric else ""


_NUMERIC = frozenset({"int8", "fp16", "bf16", "fp8", "fp32"})


@dataclass(frozen=True)
class EngineInfo:
    """What an engine is made of.

    Attributes:
        schema: which of the two forms it was told in.
        layers: in execution order.
        io: names of the engine's inputs and outputs.
        detailed: whether types and kernels are told, or names only.
    """

    schema: Schema
    layers: tuple[EngineLayer, ...]
    io: tuple[str, ...]
    detailed: bool


def parse_layer_info(text: str | bytes, place: str = "layer information") -> EngineInfo:
    """Read a layer information.

    Args:
        text: JSON as the engine inspector or ``trtexec --exportLayerInfo`` give it.
        place: what to call it in messages.

    Raises:
        FormatError: it is none.
    """
    try:
        document = json.loads(text)
        layers = tuple(_layer(item) for item in document["Layers"])
        schema, io = _io(document)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise FormatError(
            place,
            expected="a layer information with Layers, and Bindings or I/O Tensors",
            got=f"{type(error).__name__}: {error}"[:200],
            remedy="write it with `trtexec --exportLayerInfo=FILE --profilingVerbosity=detailed`, or `calib engine`",
        ) from error
    return EngineInfo(schema, layers, io, detailed=any(layer.kind for layer in layers))


def _io(document: Mapping[str, Any]) -> tuple[Schema, tuple[str, ...]]:
    if "I/O Tensors" in document:
        return "io-tensors", tuple(str(item["Name"]) for item in document["I/O Tensors"])
    return "bindings", tuple(str(name) for name in document.get("Bindings", ()))


def _layer(item: Any) -> EngineLayer:
    """Read one layer; without detailed information it is its name alone."""
    if isinstance(item, str):
        return EngineLayer(_clean(item), "", "", "", (), (), tuple(_parts(item)))
    name = item["Name"]
    metadata = str(item.get("Metadata", ""))
    return EngineLayer(
        name=_clean(name),
        kind=str(item.get("LayerType", "")),
        tactic=str(item.get("TacticName", "")),
        weights=_weights_type(item),
        inputs=tuple(_tensor(entry) for entry in item.get("Inputs", ())),
        outputs=tuple(_tensor(entry) for entry in item.get("Outputs", ())),
        nodes=tuple(dict.fromkeys([*_ONNX_NODE.findall(metadata), *_parts(name)])),
        origin=str(item.get("Origin", "")),
    )


def _weights_type(item: Mapping[str, Any]) -> str:
    weights = item.get("Weights", item.get("ConvWeights"))
    return type_in(str(weights.get("Type", ""))) if isinstance(weights, dict) and weights.get("Count") else ""


def _tensor(entry: Mapping[str, Any]) -> EngineTensor:
    described = str(entry.get("Format/Datatype") or entry.get("Format") or "")
    stated = str(entry.get("Datatype") or entry.get("DataType") or "")
    lengths = entry.get("Dimensions")
    fixed = isinstance(lengths, list) and all(isinstance(length, int) and length >= 0 for length in lengths)
    return EngineTensor(
        str(entry.get("Name", "")),
        type_in(stated) or type_in(described),
        described,
        math.prod(lengths or ()) if fixed else None,
    )


def type_in(text: str) -> str:
    """Find the element type that a description names; empty where it names none."""
    return next((name for name, pattern in _TYPES if pattern.search(text)), "")


def _parts(name: str) -> Iterator[str]:
    """Names of the network's layers in the name of an engine layer: ``a + b``, ``PWN(c)``, ``{ForeignNode[d...e]}``."""
    for part in re.split(r" \+ |[\x1e\x1f]|\.\.\.", name):
        inner = part.strip()
        while match := re.fullmatch(r"(?:PWN|\{ForeignNode|SCALE_HALF|COPY)?[(\[{](.*?)[)\]}]*", inner):
            inner = match[1].strip()
        inner = re.sub(r"^(?:PWN\(|\{ForeignNode\[)+", "", inner).rstrip(")]}")
        if inner:
            yield inner


def _clean(name: str) -> str:
    return _SEPARATORS.sub(" + ", name)
