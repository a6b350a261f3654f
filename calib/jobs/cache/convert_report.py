"""What a conversion did, for people and for machines."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from typing import Any

from calib.core.formats import statedict
from calib.core.plan import REASONS
from calib.core.printable import counted, printable
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
        subject = counted(len(prepared.dropped), "range was", "ranges were")
        yield f"{subject} wrong and left out: {listed(prepared.dropped)}"
    if prepared.dead:
        what = "given the range 1, which holds zero exactly"
        kept = "kept as 0, which TensorRT's readers refuse"
        subject = counted(len(prepared.dead), "tensor was", "tensors were")
        yield f"{subject} zero on every image; {what if result.to in NEEDS_FLOOR else kept}: {listed(prepared.dead)}"
    if prepared.floored:
        subject = counted(len(prepared.floored), "scale was", "scales were")
        yield f"{subject} too small for INT8, raised to a floor: {listed(prepared.floored)}"
    if prepared.derived:
        subject = counted(len(prepared.derived), "range follows", "ranges follow")
        yield f"{subject} from others, filled in: {listed(prepared.derived)}"
    if result.rejected:
        yield result.rejected
    if result.stripped is not None:
        yield _stripped_line(result.stripped)
    for remark in prepared.table.remarks:
        yield f"{remark.sentence}: {listed(remark.names)}" if remark.names else remark.text
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
            subject = counted(len(quantized.given_weights), "weight")
            yield f"{subject} kept the ranges that {table.source} states"
        elif clipped:
            yield f"{counted(len(clipped), 'weight has', 'weights have')} other ranges in {table.source}; computed anew"
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
        "header": result.header or None,
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
        *([f"header    {result.header}"] if result.header else ()),
        f"carried   {counted(len(result.prepared.table), 'range')}",
        *(f"coverage  {line}" for line in (coverage.lines() if coverage else ())),
        *(f"note      {line}" for line in notes_of(result)),
        *_source_lines(result),
        *(_layer_lines(result.quantized) if result.quantized else ()),
    ]
    if result.unneeded:
        subject = counted(len(result.unneeded), "range is of a tensor", "ranges are of tensors")
        lines.append(f"unused    {subject} that fuse or stay in float")
    if result.quantized and result.quantized.plan.target == "trt11":
        shapes = [f"--shapes={','.join(result.shapes)}"] if result.shapes else []
        words = ["trtexec", f"--onnx={result.request.output}", *shapes, "--saveEngine=model.engine"]
        lines.append(f"next      {shlex.join(words)}  (TensorRT 11)")
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
        layers = counted(len(without), "layer stays", "layers stay")
        yield f"missing   {layers} in float for want of a range: {listed(without)}"
    reasons = Counter(item.reason for item in plan.with_status("float") if item.reason != "no_range")
    yield from (f"float     {count} {REASONS[reason]}" for reason, count in reasons.most_common())
    if quantized.opset[0] != quantized.opset[1]:
        yield f"opset     raised from {quantized.opset[0]} to {quantized.opset[1]}"
