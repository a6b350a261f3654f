"""``calib cache rename``: ranges under other names, from a list or from the structure of two exports."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from calib.core.formats import trt_cache
from calib.core.formats.jsontext import JsonText
from calib.core.formats.registry import FORMATS, QDQ, WriteOptions
from calib.core.formats.text import ENCODING, lines_of, malformed
from calib.core.graph import analyse
from calib.core.printable import counted, excerpt, printable, quoted
from calib.core.trtcache import CalibrationCache, parse
from calib.edges.models import load_model
from calib.edges.tables import read_range_file, table_in
from calib.errors import FormatError, UsageError
from calib.jobs.cache.edit import EditResult, write_file
from calib.stages.matching import match_networks
from calib.stages.rangecoverage import listed, parser_made
from calib.types.rangetable import RangeTable, TensorRange

DECIDE = "decide for one new name"


def read_mapping(path: str) -> dict[str, str]:
    """Read old and new names: a JSON object, or a line ``old<TAB>new`` (or ``old -> new``) each.

    Raises:
        FormatError: with line and column; an old name is given twice, or a new one cannot stand in a line.
    """
    data = read_range_file(path)
    return _json_mapping(data, path) if data.lstrip()[:1] == b"{" else _line_mapping(data, path)


def _json_mapping(data: bytes, path: str) -> dict[str, str]:
    text = JsonText(data, path)
    if text.repeated:
        raise malformed(f"{path}:1:1", "every old name once", f"{excerpt(text.repeated[0])} twice", DECIDE)
    for old, new in text.content.items():
        if not isinstance(new, str) or not new.strip() or re.search(r"[\r\n]", new):
            raise text.error((old,), "a tensor name that can stand in a line", new)
    return dict(text.content)


def _line_mapping(data: bytes, path: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, line in lines_of(data.decode(*ENCODING)):
        old, _, new = (part.strip() for part in line.partition("\t" if "\t" in line else " -> "))
        if not old or not new:
            raise malformed(f"{path}:{number}:1", "a line 'old<TAB>new' or 'old -> new'", excerpt(line))
        if found.setdefault(old, new) != new:
            got = f"{quoted(old)} a second time"
            raise malformed(f"{path}:{number}:1", "every old name once", got, DECIDE)
    return found


@dataclass(frozen=True)
class RenameRequest:
    """What to rename.

    Attributes:
        source: file of ranges that names tensors.
        output: file to write, in the same format.
        mapping: file of old and new names, or None to match two networks.
        from_model: network whose names the file has.
        to_model: network whose names it shall get.
        partial: accept that ranges without a new name are left out.
    """

    source: str
    output: Path
    mapping: str | None = None
    from_model: Path | None = None
    to_model: Path | None = None
    partial: bool = False


def rename(request: RenameRequest) -> EditResult:
    """Carry ranges over to other names; header, order and spelling of a cache stay.

    Raises:
        UsageError: neither a mapping nor two networks are given, or both.
        FormatError: a new name is given twice, or a range has none and ``partial`` is not set.
    """
    if (request.mapping is None) == (request.from_model is None or request.to_model is None):
        raise UsageError(
            "calib cache rename",
            expected="--map FILE, or --from-model and --to-model",
            got="both or neither",
            remedy="give a file of old and new names, or the two exports",
        )
    data = read_range_file(request.source)
    table = table_in(data, request.source)
    if table.source == QDQ:
        raise FormatError(request.source, expected="a table of ranges", got="Q/DQ ONNX", remedy="convert it first")
    names, warnings, lost = _new_names(request, table)
    if lost and not request.partial:
        raise FormatError(
            request.source,
            expected="a new name for every range",
            got=f"none for {len(lost)} ({listed(lost)})",
            remedy="name them in a file with --map, or pass --partial to leave them out",
        )
    _refuse_collisions(request.source, table, names)
    if table.source == trt_cache.KEY:
        written = _renamed_cache(parse(data, request.source), names)
    else:
        kept = [replace(item, name=names[item.name]) for item in table if item.name in names]
        written = FORMATS[table.source].write(table.with_ranges(kept), WriteOptions())
    write_file(request.output, written)
    changed = sum(names.get(item.name, item.name) != item.name for item in table)
    facts = {"renamed": changed, "left_out": [printable(name) for name in table.ranges if name not in names]}
    return EditResult(request.output, sum(name in names for name in table.ranges), tuple(warnings), facts)


def _new_names(request: RenameRequest, table: RangeTable) -> tuple[dict[str, str], list[str], list[str]]:
    """Answer new names (their own where nothing is said), warnings, and ranges that lose their place."""
    if request.mapping is not None:
        return _by_list(read_mapping(request.mapping), table)
    if request.from_model is None or request.to_model is None:
        raise AssertionError("checked by the caller")
    return _by_structure(request.from_model, request.to_model, table)


def _by_list(mapping: Mapping[str, str], table: RangeTable) -> tuple[dict[str, str], list[str], list[str]]:
    unused = [name for name in mapping if name not in table.ranges]
    subject = counted(len(unused), "name of the mapping is", "names of the mapping are")
    warnings = [f"{subject} not in the file: {listed(unused)}"] if unused else []
    return {name: mapping.get(name, name) for name in table.ranges}, warnings, []


def _by_structure(from_model: Path, to_model: Path, table: RangeTable) -> tuple[dict[str, str], list[str], list[str]]:
    first, second = load_model(from_model), load_model(to_model)
    found = match_networks(first, analyse(first), second, analyse(second))
    names = {name: found.pairs[name] for name in table.ranges if name in found.pairs}
    warnings = []
    by_order = [name for name in names if name not in found.sure]
    if by_order:
        subject = counted(len(by_order), "tensor was", "tensors were")
        warnings.append(f"{subject} matched by order, operator and shape alone: {listed(by_order)}")
    gone = [name for name in table.ranges if name not in names]
    made = [name for name in gone if parser_made(name)]
    if made:
        subject = counted(len(made), "key of TensorRT's parser was", "keys of TensorRT's parser were")
        warnings.append(f"{subject} left out; such keys hold for one graph only")
    return names, warnings, [name for name in gone if not parser_made(name)]


def _refuse_collisions(place: str, table: RangeTable, names: Mapping[str, str]) -> None:
    taken: dict[str, TensorRange] = {}
    for item in table:
        new = names.get(item.name)
        known = taken.setdefault(new, item) if new is not None else item
        if known is not item and known.amax != item.amax:
            raise FormatError(
                place,
                expected="a name of its own for every range",
                got=f"{quoted(str(new))} for both {quoted(known.name)} and {quoted(item.name)}, whose ranges differ",
                remedy="map them apart",
            )


def _renamed_cache(cache: CalibrationCache, names: Mapping[str, str]) -> bytes:
    seen: set[str] = set()
    kept = []
    for entry in cache.entries:
        new = names.get(entry.name)
        if new is not None and (new not in seen or new == entry.name):
            seen.add(new)
            kept.append(replace(entry, name=new))
    return replace(cache, entries=tuple(kept)).render()
