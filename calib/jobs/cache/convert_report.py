"""What a conversion did, for people and for machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from calib.core.formats import statedict
from calib.core.plan import REASONS
from calib.core.printable import printable
from calib.core.roles import COMPUTE
from calib.jobs.cache.convert import ConvertResult
from calib.stages.convert import NEEDS_FLOOR, clipped_weights
from calib.stages.qdq import QdqResult
from calib.stages.qdqstrip import Stripped
from calib.stages.rangecoverage import listed
from calib.types.rangetable import RangeTable

UNLOADABLE = "ModelOpt and pytorch-quantization load it with load_state_dict(strict=False); weight ranges are not in it"


def notes_of(result: ConvertResult) -> Iterator[str]:
    """Say what a user should know of a conversion, a line each."""
    prepared = result.prepared
    if prepared.dropped:
        yield f"{len(prepared.dropped)} ranges were wrong and left out: {listed(prepared.dropped)}"
    if prepared.dead:
        what = "they got the range 1, which holds zero exactly"
        kept = "kept as 0; TensorRT's readers refuse that"
        shown = f"{what if result.to in NEEDS_FLOOR else kept}: {listed(prepared.dead)}"
        yield f"{len(prepared.dead)} tensors were zero on every image: {shown}"
    if prepared.floored:
        yield f"{len(prepared.floored)} scales were too small for INT8 and got a floor: {listed(prepared.floored)}"
    if prepared.derived:
        shown = listed(prepared.derived)
        yield f"{len(prepared.derived)} ranges follow from others exactly and were filled in: {shown}"
    if result.rejected:
        yield result.rejected
    if result.stripped is not None:
        yield _stripped_line(result.stripped)
    for remark in prepared.table.remarks:
        yield f"{len(remark.names)} {remark.text}: {listed(remark.names)}" if remark.names else remark.text
    yield from _weight_notes(result.table, result.to, result.quantized)


def _stripped_line(stripped: Stripped) -> str:
    text = f"the float network was taken out of the file: {len(stripped.quantized)} quantizers removed"
    if stripped.restored:
        text += f", {len(stripped.restored)} weights turned back from integers into what they stand for"
    if stripped.biases:
        text += f", {len(stripped.biases)} biases too"
    if stripped.activated:
        text += f"; {len(stripped.activated)} quantizers did the work of a Relu, which was put back"
    return text


def _weight_notes(table: RangeTable, to: str, quantized: QdqResult | None) -> Iterator[str]:
    if quantized is not None:
        alone = [item.name for item in table.weights if item.follows_weight is None]
        if alone:
            text = "the file does not hold these weights; their ranges were computed from the network's"
            yield f"{len(alone)} ranges of weights were not taken: {text}: {listed(alone)}"
        clipped = clipped_weights(table)
        if quantized.given_weights:
            yield f"{len(quantized.given_weights)} weights kept the ranges that {table.source} states"
        elif clipped:
            yield f"{len(clipped)} weights have other ranges in {table.source}; they were computed anew"
    elif to in {statedict.NPZ, statedict.SAFETENSORS, statedict.TORCH} and not table.weights:
        yield UNLOADABLE


def document_of(result: ConvertResult) -> dict[str, Any]:
    """Describe a conversion as one JSON document."""
    prepared, coverage = result.prepared, result.prepared.coverage
    return {
        "schema": 1,
        "source": {"file": result.request.source, "format": result.table.source},
        "output": {"file": str(result.request.output), "format": result.to},
        "carried": len(prepared.table),
        "missing": [] if coverage is None else [printable(name) for name in coverage.missing],
        "strangers": {}
        if coverage is None
        else {key: [printable(name) for name in names] for key, names in coverage.strangers.items()},
        "derived": [printable(name) for name in prepared.derived],
        "dropped": [printable(name) for name in prepared.dropped],
        "dead": [printable(name) for name in prepared.dead],
        "floored": [printable(name) for name in prepared.floored],
        "unneeded": [printable(name) for name in result.unneeded],
        "unquantized": None if result.unquantized is None else [printable(name) for name in result.unquantized],
        "rejected": printable(result.rejected),
        "layers": None if result.quantized is None else _layers(result.quantized),
        "notes": list(notes_of(result)),
    }


def _layers(quantized: QdqResult) -> dict[str, Any]:
    plan = quantized.plan
    return {
        "target": plan.target,
        "pairs": len(plan.activations),
        "weights": len(plan.weights),
        "opset": list(quantized.opset),
        "int8": [item.label for item in plan.with_status("int8")],
        "float": [{"node": item.label, "op": item.op_type, "reason": item.text} for item in plan.with_status("float")],
        "without_range": [item.label for item in plan.decisions if item.reason == "no_range"],
        "notes": [{"code": note.code, "place": note.place, "text": note.text} for note in quantized.notes],
    }


def as_text(result: ConvertResult) -> str:
    """Lay a conversion out for people."""
    coverage = result.prepared.coverage
    lines = [
        f"from      {result.request.source} ({result.table.source})",
        f"to        {result.request.output} ({result.to})",
        f"carried   {len(result.prepared.table)} ranges",
        *(f"coverage  {line}" for line in (coverage.lines() if coverage else ())),
        *(f"note      {line}" for line in notes_of(result)),
        *_source_lines(result),
        *(_layer_lines(result.quantized) if result.quantized else ()),
    ]
    if result.unneeded:
        lines.append(f"unused    {len(result.unneeded)} ranges are of tensors that fuse or stay in float")
    if result.quantized and result.quantized.plan.target == "trt11":
        lines.append(f"next      trtexec --onnx={result.request.output} --saveEngine=model.engine  (TensorRT 11)")
    return "\n".join(printable(line) for line in lines)


def _source_lines(result: ConvertResult) -> Iterator[str]:
    """Say where the source's quantizers and the placement differ."""
    if result.unquantized:
        yield f"source    quantizes all layers but {len(result.unquantized)}: {listed(result.unquantized)}"
    if result.quantized is None or result.unquantized is None or result.request.as_trained:
        return
    plan, left = result.quantized.plan, set(result.unquantized)
    layers = [item for item in plan.decisions if item.op_type in COMPUTE]
    more = sum(item.status == "int8" and item.label in left for item in layers)
    fewer = sum(item.status == "float" and item.label not in left for item in layers)
    added = sum(item.reason == "residual" for item in plan.decisions)
    if more or fewer or added:
        said = f"{fewer} layers that the source quantizes stay in float, {more} more and {added} additions run in INT8"
        yield f"placement {said}; --as-trained keeps the source's"


def _layer_lines(quantized: QdqResult) -> Iterator[str]:
    plan = quantized.plan
    pairs = f"{len(plan.activations)} Q/DQ pairs on activations, {len(plan.weights)} on weights"
    yield f"layers    {len(plan.with_status('int8'))} run in INT8: {pairs}"
    without = [item.label for item in plan.decisions if item.reason == "no_range"]
    if without:
        yield f"missing   {len(without)} layers stay in float for want of a range: {listed(without)}"
    reasons = Counter(item.reason for item in plan.with_status("float") if item.reason != "no_range")
    yield from (f"float     {count} {REASONS[reason]}" for reason, count in reasons.most_common())
    if quantized.opset[0] != quantized.opset[1]:
        yield f"opset     raised from {quantized.opset[0]} to {quantized.opset[1]}"
