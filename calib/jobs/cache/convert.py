"""``calib cache convert``: ranges from one format into another, with an account of what went over."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import onnx

from calib.core.engine.shapes import open_shapes
from calib.core.formats import trt_cache
from calib.core.formats.registry import FORMATS, QDQ, format_of_name, options_like
from calib.core.graph import Network, analyse
from calib.core.plan import REASONS, TARGETS, Target
from calib.edges.files import make_output_folder, write_atomic
from calib.edges.models import load_model, save_model
from calib.edges.tables import load_table
from calib.errors import FormatError, UsageError
from calib.stages.convert import Prepared, amax_of, prepare
from calib.stages.modules import map_modules, to_modules, to_tensors
from calib.stages.qdq import QdqResult, quantize_model
from calib.types.rangetable import RangeTable


@dataclass(frozen=True)
class ConvertRequest:
    """What to convert.

    Attributes:
        source: file of ranges.
        output: file to write.
        to: key of the format; None where the suffix of ``output`` tells.
        model: ONNX file of the float network, or None.
        target: whose placement rules a Q/DQ network follows.
        trt_version: TensorRT version of a cache's header; None keeps the source's where it is a cache.
        algorithm: calibrator class of a cache's header; None keeps the source's where it is a cache.
        partial: accept that what the target cannot carry is left out.
    """

    source: str
    output: Path
    to: str | None = None
    model: Path | None = None
    target: Target = "trt11"
    trt_version: str | None = None
    algorithm: str | None = None
    partial: bool = False


@dataclass(frozen=True)
class ConvertResult:
    """What a conversion did.

    Attributes:
        request: what was asked.
        to: key of the format written.
        prepared: the ranges that went over, and what did not.
        quantized: the Q/DQ network, where one was written.
        unneeded: ranges that no quantizer of the target needs.
        table: the source as it was read.
        header: first line of the cache that was written; empty for other formats.
        shapes: inputs of the Q/DQ network that leave lengths open, as ``NAME:1x3xHxW`` (:func:`open_shapes`).
    """

    request: ConvertRequest
    to: str
    prepared: Prepared
    quantized: QdqResult | None
    unneeded: tuple[str, ...]
    table: RangeTable
    header: str = ""
    shapes: tuple[str, ...] = ()


def parse_target(text: str) -> Target:
    """Read ``--target``.

    Raises:
        UsageError: it is none of the targets.
    """
    for target in TARGETS:
        if text == target:
            return target
    raise UsageError(f"--target {text}", expected=f"one of {', '.join(TARGETS)}", got=repr(text), remedy="name one")


def convert(request: ConvertRequest) -> ConvertResult:
    """Convert a file; nothing is written unless all is well.

    Raises:
        FormatError: the source is malformed, or holds what the target cannot carry and ``partial`` is not set.
        UsageError: the target needs a network and none is given, or the format to write cannot be told.
        ModelError: the network cannot be used.
    """
    to = format_of_name(str(request.output), request.to)
    table = load_table(request.source)
    model = load_model(request.model) if request.model else None
    _require_model(table, to, model)
    network = analyse(model) if model is not None else None
    named, lost, unneeded = _named(table, to, model, network)
    prepared = prepare(named, to, network, lost)
    prepared.require(partial=request.partial)
    make_output_folder(request.output.parent)
    if to == QDQ and model is not None and network is not None:
        quantized = _write_qdq(request, prepared, model)
        shapes = open_shapes(network.inputs)
        return ConvertResult(request, to, prepared, quantized, _without_pair(prepared, quantized), table, shapes=shapes)
    data = FORMATS[to].write(prepared.table, options_like(table, request.trt_version, request.algorithm))
    write_atomic(request.output, data)
    header = data.partition(b"\n")[0].decode() if to == trt_cache.KEY else ""
    return ConvertResult(request, to, prepared, None, unneeded, table, header)


def _require_model(table: RangeTable, to: str, model: onnx.ModelProto | None) -> None:
    naming = "tensor" if to == QDQ else FORMATS[to].naming
    if model is not None or (to != QDQ and naming == table.naming):
        return
    why = "Q/DQ pairs stand in a network" if to == QDQ else "modules and tensors are matched through the network"
    raise UsageError(
        "--model", expected=f"the float network's ONNX file: {why}", got="none", remedy="pass --model NETWORK.onnx"
    )


def _named(
    table: RangeTable, to: str, model: onnx.ModelProto | None, network: Network | None
) -> tuple[RangeTable, tuple[str, ...], tuple[str, ...]]:
    """Bring names into the target's terms; also what could not be, and what no quantizer needs."""
    naming = "tensor" if to == QDQ else FORMATS[to].naming
    if naming == table.naming or model is None or network is None:
        return table, (), ()
    modules = map_modules(model, network)
    if naming == "tensor":
        named, lost = to_tensors(table, modules)
        return named, lost, ()
    named, unneeded = to_modules(table, modules)
    if not named.ranges:
        raise FormatError(
            table.place,
            expected="ranges of tensors that a module with a weight reads",
            got="none: the network's nodes and weights carry no module names",
            remedy="export it with torch.onnx.export and keep initialiser names (keep_initializers_as_inputs=False)",
        )
    return named, (), unneeded


def _write_qdq(request: ConvertRequest, prepared: Prepared, model: onnx.ModelProto) -> QdqResult:
    weights = {item.name: item for item in prepared.table.weights if item.follows_weight is False}
    quantized = quantize_model(model, amax_of(prepared.table), request.target, weights=weights)
    if not quantized.plan.activations:
        reasons = Counter(item.reason for item in quantized.plan.with_status("float"))
        first = next((REASONS[reason] for reason, _ in reasons.most_common()), "the network has no layer")
        raise FormatError(
            request.source,
            expected="ranges for the inputs of the network's layers",
            got=f"none that serves: every layer would stay in float ({first})",
            remedy="pass the ranges of this very export, or calibrate it with `calib build`",
        )
    save_model(quantized.model, request.output)
    return quantized


def _without_pair(prepared: Prepared, quantized: QdqResult) -> tuple[str, ...]:
    """Name the ranges that no Q/DQ pair stands for: of tensors that fuse or stay in float."""
    placed = {pair.tensor for pair in quantized.plan.activations}
    known = set(prepared.coverage.matched if prepared.coverage else ()) | set(prepared.derived)
    return tuple(item.name for item in prepared.table if item.name in known and item.name not in placed)
