"""``calib cache merge``: the larger range of every tensor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from calib.core.formats.registry import FORMATS, QDQ, format_of_name, options_like
from calib.core.graph import Network, analyse
from calib.core.printable import counted, quoted
from calib.core.rangefaults import find_faults, input_ranges, worthless
from calib.edges.models import load_model
from calib.edges.tables import load_table
from calib.errors import FormatError, UsageError
from calib.jobs.cache.edit import EditResult, write_file
from calib.stages.convert import with_floors
from calib.stages.rangecoverage import listed
from calib.types.rangetable import RangeTable, TensorRange


@dataclass(frozen=True)
class MergeRequest:
    """What to merge.

    Attributes:
        sources: two files or more.
        output: file to write.
        to: key of its format; None where its suffix tells, or else the first file's.
        model: network whose order the ranges take; None keeps the first file's, then the others'.
        trt_version: TensorRT version of a cache's header; None takes the first file's.
        algorithm: calibrator class of a cache's header; None takes the first file's.
    """

    sources: Sequence[str]
    output: Path
    to: str | None = None
    model: Path | None = None
    trt_version: str | None = None
    algorithm: str | None = None


def merge(request: MergeRequest) -> EditResult:
    """Write the larger range of every tensor: what calibrations on several sets of images agree to hold.

    Raises:
        UsageError: fewer than two files, names of different kinds, or Q/DQ ONNX asked for.
        FormatError: a file is malformed, or holds ranges that are not finite and positive or zero.
    """
    tables = [load_table(path) for path in request.sources]
    _require_mergeable(tables)
    to = _format(request.output, request.to, tables[0].source)
    largest: dict[str, TensorRange] = {}
    for item in (item for table in tables for item in table):
        known = largest.get(item.name)
        largest[item.name] = item if known is None or item.amax > known.amax else known
    network = analyse(load_model(request.model)) if request.model else None
    first = [] if network is None else [item.name for item in network.activations if item.name in largest]
    ordered = [largest[name] for name in dict.fromkeys((*first, *largest))]
    whole = tables[0].with_ranges(ordered, weights=())
    _require_real_input(whole, network)
    merged = with_floors(whole, to)
    write_file(
        request.output, FORMATS[to].write(merged, options_like(tables[0], request.trt_version, request.algorithm))
    )
    raised = [item.name for item in whole if merged.ranges[item.name].amax != item.amax]
    warnings = tuple(_merge_warnings(tables, raised))
    return EditResult(request.output, len(merged), warnings, {"format": to, "files": len(tables)})


def _require_mergeable(tables: Sequence[RangeTable]) -> None:
    if len(tables) < 2:
        raise UsageError("calib cache merge", expected="two files or more", got=str(len(tables)), remedy="name them")
    for table in tables:
        if table.naming != tables[0].naming:
            got = f"{tables[0].naming}s and {table.naming}s"
            remedy = "bring them into one format first: `calib cache convert --model NETWORK.onnx`"
            raise UsageError(table.place, expected="names of one kind in all files", got=got, remedy=remedy)
        bad = sorted(find_faults(table).unusable)
        if bad or not table.ranges:
            raise FormatError(
                table.place,
                expected="ranges that can be compared",
                got=f"{len(bad)} wrong ones ({listed(bad)})" if bad else "none at all",
                remedy="calibrate again; the larger of a wrong range and a right one is wrong",
            )


def _require_real_input(whole: RangeTable, network: Network | None) -> None:
    inputs = None if network is None else [item.name for item in network.inputs]
    for name, text in worthless(input_ranges(whole, inputs) if whole.naming == "tensor" else ()).items():
        raise FormatError(
            whole.place, expected="images behind one of the files", got=f"input {quoted(name)}: {text}",
            remedy="calibrate again",
        )  # fmt: skip


def _merge_warnings(tables: Sequence[RangeTable], raised: Sequence[str]) -> Iterator[str]:
    names = [set(table.ranges) for table in tables]
    shared = set.intersection(*names)
    for table, own in zip(tables, names, strict=True):
        alone = [name for name in table.ranges if name not in shared]
        if alone:
            yield f"{len(alone)} of {len(own)} tensors of {table.place} are not in every file: {listed(alone)}"
        for remark in table.remarks:
            if remark.blocks:
                yield f"{table.place}: {remark.sentence}: {listed(remark.names)}"
    if raised:
        yield f"{counted(len(raised), 'range was', 'ranges were')} 0 or next to it and got a floor: {listed(raised)}"
    headers = dict.fromkeys(str(table.metadata["header"]) for table in tables if "header" in table.metadata)
    if len(headers) > 1:
        yield f"the files have different headers ({', '.join(headers)}); the first one's is written"
    if any(table.weights for table in tables):
        yield "ranges of weights are not merged: they follow from the weights"


def _format(output: Path, asked: str | None, source: str) -> str:
    try:
        to = format_of_name(str(output), asked)
    except UsageError:
        if asked is not None:
            raise
        to = source
    if to == QDQ:
        raise UsageError(
            f"-o {output}", expected="a table of ranges", got="Q/DQ ONNX", remedy="write a cache, then convert that"
        )
    return to
