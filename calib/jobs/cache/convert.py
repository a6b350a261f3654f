"""``calib cache convert``: ranges from one format into another, with an account of what went over."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import onnx

from calib.core.engine.shapes import open_shapes
from calib.core.formats import trt_cache
from calib.core.formats.registry import FORMATS, QDQ, format_of_name, options_like
from calib.core.graph import Network, analyse
from calib.core.plan import REASONS, TARGETS, PlacementOptions, Target
from calib.edges.files import make_output_folder, write_atomic
from calib.edges.models import load_model, save_model
from calib.edges.patterns import read_patterns
from calib.edges.tables import load_table
from calib.errors import FormatError, UsageError
from calib.stages.convert import Prepared, amax_of, prepare
from calib.stages.floatlayers import FLAG, find_float_layers
from calib.stages.modules import ModuleMap, map_modules, to_modules, to_tensors
from calib.stages.qdq import QdqResult, quantize_model
from calib.stages.qdqrules import rejected_line, tensorrt_findings
from calib.stages.qdqstrip import Stripped, strip_qdq
from calib.stages.trained import layers_with_weight, options_as_trained, trained_layers
from calib.stages.weightmatch import match_weights, named_weights, weight_remarks
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
        as_trained: quantize exactly the layers that the source quantizes, not those that the placement would.
        keep_float: patterns of nodes, or of tensors they make, that stay in float in a Q/DQ network.
    """

    source: str
    output: Path
    to: str | None = None
    model: Path | None = None
    target: Target = "trt11"
    trt_version: str | None = None
    algorithm: str | None = None
    partial: bool = False
    as_trained: bool = False
    keep_float: tuple[str, ...] = ()


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
        unquantized: layers of the network that the source has no quantizers for; None where it does not tell.
        rejected: what TensorRT rejects of the source as it stands, in one line, or empty.
        stripped: the float network that was taken out of the source, where none was given.
    """

    request: ConvertRequest
    to: str
    prepared: Prepared
    quantized: QdqResult | None
    unneeded: tuple[str, ...]
    table: RangeTable
    header: str = ""
    shapes: tuple[str, ...] = ()
    unquantized: tuple[str, ...] | None = None
    rejected: str = ""
    stripped: Stripped | None = None


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
    request = replace(request, keep_float=read_patterns(request.keep_float))
    if request.keep_float and to != QDQ:
        raise UsageError(
            FLAG, expected="a Q/DQ network to write, whose layers it names", got=FORMATS[to].title,
            remedy="write .onnx; `calib engine` pins the layers of a build for a cache",
        )  # fmt: skip
    table = load_table(request.source)
    source = _Source(request, table, to)
    named, lost, unneeded = source.named()
    prepared = prepare(named, to, source.network, lost)
    prepared.require(partial=request.partial)
    make_output_folder(request.output.parent)
    quantized: QdqResult | None = None
    header, shapes = "", tuple[str, ...]()
    if to == QDQ:
        quantized = _write_qdq(request, prepared, source)
        unneeded = _without_pair(prepared, quantized)
        shapes = open_shapes(source.network.inputs) if source.network is not None else ()
    else:
        data = FORMATS[to].write(prepared.table, options_like(table, request.trt_version, request.algorithm))
        write_atomic(request.output, data)
        header = data.partition(b"\n")[0].decode() if to == trt_cache.KEY else ""
    return ConvertResult(
        request,
        to,
        prepared,
        quantized,
        unneeded,
        table,
        header,
        shapes,
        source.unquantized(),
        source.rejected,
        source.stripped,
    )


class _Source:
    """A file of ranges, and the network it is laid against: the one given, or the one inside a Q/DQ file."""

    def __init__(self, request: ConvertRequest, table: RangeTable, to: str) -> None:
        self.table = table
        self.naming = "tensor" if to == QDQ else FORMATS[to].naming
        needed = to == QDQ or self.naming != table.naming
        quantized = load_model(request.source) if table.source == QDQ else None
        self.rejected = rejected_line(tensorrt_findings(quantized)) if quantized is not None else ""
        self.stripped: Stripped | None = None
        self.model: onnx.ModelProto | None = None
        if request.model is not None:
            self.model = load_model(request.model)
        elif needed and quantized is not None:
            self.stripped = strip_qdq(quantized, request.source)
            self.model = self.stripped.model
        elif needed:
            raise _no_model(to)
        self.network: Network | None = None
        self.modules: ModuleMap | None = None
        if self.model is not None:
            self.network = analyse(self.model)
            self.modules = map_modules(self.model, self.network)

    def named(self) -> tuple[RangeTable, tuple[str, ...], tuple[str, ...]]:
        """Bring names into the target's terms; also what could not be, and what no quantizer needs."""
        if self.model is None or self.network is None or self.modules is None:
            return self.table, (), ()
        table = self.table
        if self.stripped is None:  # else they are the file's own
            matches = match_weights(table, self.model, self.network, self.modules)
            table = table.remarked(*weight_remarks(table, matches))
        if table.naming == "tensor":
            table = named_weights(table, self.modules)
        if self.naming == table.naming:
            return table, (), ()
        if self.naming == "tensor":
            named, lost = to_tensors(table, self.modules)
            return named, lost, ()
        return _by_module(table, self.modules)

    def trained(self) -> frozenset[int]:
        """Find the layers that the source quantizes."""
        if self.network is None or self.modules is None:
            return frozenset()
        uses = self.stripped.uses if self.stripped is not None else None
        return trained_layers(self.table, self.network, self.modules, uses)

    def unquantized(self) -> tuple[str, ...] | None:
        """Name the layers that the source has no quantizers for, where it has quantizers of layers at all."""
        if self.network is None or not (self.table.naming == "module" or self.table.source == QDQ):
            return None
        trained = self.trained()
        return tuple(node.label for node in layers_with_weight(self.network) if node.index not in trained)

    def options(self, request: ConvertRequest, named: RangeTable) -> PlacementOptions:
        """Choose the placement: the target's own, or where the source has its quantizers."""
        if not request.as_trained or self.network is None:
            return PlacementOptions()
        if not (self.table.naming == "module" or self.table.source == QDQ):
            raise UsageError(
                "--as-trained",
                expected="a source that says which layers it quantizes: a state dict or a Q/DQ network",
                got=self.table.source,
                remedy="leave it out",
            )
        return options_as_trained(PlacementOptions(), self.trained(), named, self.network)


def _no_model(to: str) -> UsageError:
    why = "Q/DQ pairs stand in a network" if to == QDQ else "modules and tensors are matched through the network"
    expected = f"the float network's ONNX file: {why}"
    return UsageError("--model", expected=expected, got="none", remedy="pass --model NETWORK.onnx")


def _by_module(table: RangeTable, modules: ModuleMap) -> tuple[RangeTable, tuple[str, ...], tuple[str, ...]]:
    named, unneeded = to_modules(table, modules)
    if not named.ranges:
        raise FormatError(
            table.place,
            expected="ranges of tensors that a module with a weight reads",
            got="none: the network's nodes and weights carry no module names",
            remedy="export it with torch.onnx.export and keep initialiser names (keep_initializers_as_inputs=False)",
        )
    return named, (), unneeded


def _write_qdq(request: ConvertRequest, prepared: Prepared, source: _Source) -> QdqResult:
    if source.model is None:
        raise _no_model(QDQ)
    weights = {item.name: item for item in prepared.table.weights if item.follows_weight is False}
    options = source.options(request, prepared.table)
    if request.keep_float:
        options = find_float_layers(source.model, request.keep_float, request.target, options).options(options)
    quantized = quantize_model(source.model, amax_of(prepared.table), request.target, options, weights=weights)
    if not quantized.plan.activations:
        reasons = Counter(item.reason for item in quantized.plan.with_status("float"))
        first = next((REASONS[reason] for reason, _ in reasons.most_common()), "the network has no layer")
        raise FormatError(
            request.source,
            expected="ranges for the inputs of the network's layers",
            got=f"none that serves: every layer would stay in float ({first})",
            remedy="keep fewer layers in float: without any in INT8 the float network itself is what remains"
            if "excluded" in reasons
            else "pass the ranges of this very export, or calibrate it with `calib build`",
        )
    save_model(quantized.model, request.output)
    return quantized


def _without_pair(prepared: Prepared, quantized: QdqResult) -> tuple[str, ...]:
    """Name the ranges that no Q/DQ pair stands for: of tensors that fuse or stay in float."""
    placed = {pair.tensor for pair in quantized.plan.activations}
    known = set(prepared.coverage.matched if prepared.coverage else ()) | set(prepared.derived)
    return tuple(item.name for item in prepared.table if item.name in known and item.name not in placed)
