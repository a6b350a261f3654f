"""What is wrong with a file of ranges: one finding a kind, with its severity and the remedy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from calib.core.cachelook import IMPLAUSIBLE, MINUTE, Fingerprint, input_fingerprint
from calib.core.graph import Network
from calib.core.inputrange import check_input
from calib.core.printable import counted, quoted
from calib.core.rangefaults import REMARK_REMEDIES, Faults, find_faults, input_ranges, worthless
from calib.core.trtcache import CacheHeader, CalibrationCache
from calib.core.trtversions import judge_number
from calib.stages.rangecoverage import REASONS, EntryCoverage, cover, parser_made
from calib.types.data import Preprocess
from calib.types.rangetable import RangeTable, TensorRange

Severity = Literal["error", "warning", "note"]
CALIBRATE = "calibrate again with `calib build`, on images preprocessed as for inference"
RESTORE = "restore the file, or calibrate again"
AS_FLOAT32 = (
    "make every batch float32 before it is copied to the device (numpy: .astype(np.float32)), then calibrate again"
)
INPUT_CODES: Mapping[str, str] = {"blank": "blank_input", "integers": "integers_as_float32"}
"""Codes of findings by the input's fingerprint; other faulty ones are ``float64_as_float32``."""


@dataclass(frozen=True)
class Finding:
    """One kind of trouble.

    Attributes:
        code: kind, for machines.
        severity: ``error``: the file must not be used as it is; ``warning``: it may not do what it seems to.
        text: one line for people.
        remedy: what to do; empty for a note.
        names: the tensors concerned, in file or network order.
    """

    code: str
    severity: Severity
    text: str
    remedy: str = ""
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class LintReport:
    """What was found.

    Attributes:
        inputs: ranges of the network's inputs, with what they say of the preprocessing.
        findings: errors first.
    """

    inputs: tuple[tuple[TensorRange, Fingerprint], ...]
    findings: tuple[Finding, ...]

    @property
    def failed(self) -> bool:
        """Whether the file must not be used as it is."""
        return any(item.severity == "error" for item in self.findings)

    def joined(self, findings: Iterable[Finding]) -> LintReport:
        """Add findings of another check, errors first."""
        return replace(self, findings=_ranked((*self.findings, *findings)))


def _ranked(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    rank = {"error": 0, "warning": 1, "note": 2}
    return tuple(sorted(findings, key=lambda item: rank[item.severity]))


def lint_table(
    table: RangeTable,
    cache: CalibrationCache | None = None,
    network: Network | None = None,
    preprocess: Preprocess | Mapping[str, Preprocess | float] | None = None,
) -> LintReport:
    """Find what is wrong with a file of ranges, errors first.

    Args:
        table: the ranges.
        cache: the same as a cache, with its header and spelling; None for other formats.
        network: the network they should belong to.
        preprocess: how pictures become the network's input; by input name where there are several.
    """
    faults = find_faults(table)
    names = None if network is None else [item.name for item in network.inputs]
    inputs = input_ranges(table, names) if table.naming == "tensor" else ()
    found = [
        *(_header_findings(cache.header) if cache else ()),
        *(() if len(table) or table.weights else (Finding("empty", "error", "the file holds no range", CALIBRATE),)),
        *_input_findings(table, inputs, preprocess),
        *_fault_findings(faults),
        *_remark_findings(table),
        *(_spelling_findings(cache) if cache else ()),
        *_name_findings(table),
        *(_coverage_findings(cover(table, network), network) if network and table.naming == "tensor" else ()),
    ]
    return LintReport(tuple((item, input_fingerprint(item.amax)) for item in inputs), _ranked(found))


def _remark_findings(table: RangeTable) -> Iterator[Finding]:
    for item in table.remarks:
        severity: Severity = "error" if item.blocks else "warning" if item.code == "duplicates" else "note"
        yield Finding(item.code, severity, item.sentence, REMARK_REMEDIES.get(item.code, ""), item.names)


def _header_findings(header: CacheHeader) -> Iterator[Finding]:
    shown = quoted(header.text)
    if header.number is None and not header.malformed:
        text = f"the header {shown} states no TensorRT version; TensorRT 6 and later ignore such a cache"
        yield Finding("old_header", "warning", text, "`calib cache retarget` gives it a header of today")
    elif reason := _unread(header):
        remedy = "`calib cache retarget --trt-version` writes the header of the version you run"
        yield Finding("unknown_version", "error", f"the header {shown} is read by no TensorRT: {reason}", remedy)
    if header.ending[:1] in (" ", "\t"):
        text = "blanks follow the header; readers that compare the line find another one"
        yield Finding("header_blanks", "warning", text, "delete them")
    if header.number is not None and header.algorithm != "EntropyCalibration2":
        text = (
            f"the header names {header.algorithm}: trtexec, Polygraphy and DLA read caches as EntropyCalibration2, "
            "ignore this one and calibrate anew, trtexec on noise"
        )
        remedy = "`calib cache retarget --algorithm EntropyCalibration2`, unless your calibrator is of the named class"
        yield Finding("header_suffix", "warning", text, remedy)


def _unread(header: CacheHeader) -> str:
    if header.number is None:
        return "it writes TRT-, a number such as 8601 or 101401, and the calibrator's class"
    return judge_number(header.number)


def _input_findings(
    table: RangeTable, ranges: tuple[TensorRange, ...], preprocess: Preprocess | Mapping[str, Preprocess | float] | None
) -> Iterator[Finding]:
    wrong = worthless(ranges)
    for item in ranges:
        said = input_fingerprint(item.amax)
        text = f"the input {quoted(item.name)} has amax {item.amax:.6g}: {said.text}"
        if item.name in wrong:
            code = INPUT_CODES.get(said.code, "float64_as_float32")
            yield Finding(code, "error", text, CALIBRATE if said.code == "blank" else AS_FLOAT32, (item.name,))
            continue
        yield Finding("input", "note", text, "", (item.name,))
        yield from _declared_findings(item.name, item.amax, preprocess)
    if not ranges and len(table) and table.naming == "tensor":
        yield Finding(
            "no_input", "warning", "no entry can be told to be the network's input", "pass the network with --model"
        )


def _declared_findings(
    name: str, amax: float, preprocess: Preprocess | Mapping[str, Preprocess | float] | None
) -> Iterator[Finding]:
    spec = preprocess.get(name) if isinstance(preprocess, Mapping) else preprocess
    if not isinstance(spec, Preprocess):
        return
    said = check_input(amax, spec)
    if said.verdict == "fits":
        return
    declared = f"the declared preprocessing gives {said.low:.6g} to {said.high:.6g}"
    text = f"the input {quoted(name)} has amax {amax:.6g}; {declared}: {said.text}"
    severity: Severity = "warning" if said.verdict == "narrow" else "error"
    yield Finding("input_range", severity, text, "calibrate with the preprocessing of inference", (name,))


def _fault_findings(faults: Faults) -> Iterator[Finding]:
    if faults.nonfinite:
        text = f"{_ranges(faults.nonfinite)} infinite or NaN: float64 read as float32, or an overflow"
        yield Finding("nonfinite", "error", text, AS_FLOAT32, faults.nonfinite)
    if faults.implausible:
        why = "float64 read as float32, or uninitialised memory"
        text = f"{_ranges(faults.implausible)} beyond {IMPLAUSIBLE:g}: {why}"
        yield Finding("implausible", "error", text, AS_FLOAT32, faults.implausible)
    if faults.minute:
        why = "digits are missing at the end of the line, or integers were read as float32"
        text = f"{_ranges(faults.minute)} below {MINUTE:.2g}, but not 0: {why}"
        yield Finding("minute", "error", text, RESTORE, faults.minute)
    if faults.negative:
        text = f"{_ranges(faults.negative)} negative: the file is damaged"
        yield Finding("negative", "error", text, RESTORE, faults.negative)
    named = not all(parser_made(name) for name in faults.dead)
    if faults.dead:
        text = f"{_ranges(faults.dead)} 0: the tensors are dead, and TensorRT 8.6 refuses to build"
        remedy = "`calib cache convert` gives them a floor; a layer that is dead on every image points at wrong images"
        yield Finding("dead", "error" if named else "warning", text, remedy, faults.dead)


def _ranges(names: Sequence[str]) -> str:
    return counted(len(names), "range is", "ranges are")


def _spelling_findings(cache: CalibrationCache) -> Iterator[Finding]:
    endings = [cache.header.ending, *(entry.ending for entry in cache.entries)]
    returns = sum("\r" in ending for ending in endings)
    if returns:
        lines = "lines end" if returns == len(endings) else f"{returns} of {len(endings)} lines end"
        kind = "CRLF" if any("\r\n" in ending for ending in endings) else "CR"
        text = f"{lines} in {kind}; readers that compare the header find another one"
        yield Finding("crlf", "warning", text, "`dos2unix`" if kind == "CRLF" else "`mac2unix`")
    odd = tuple(
        entry.name for entry in cache.entries if not entry.spelling.startswith(": ") or entry.spelling[2:3] == " "
    )
    if odd:
        text = (
            f"{counted(len(odd), 'entry does', 'entries do')} not have exactly one space after the colon, as trtexec "
            "needs"
        )
        yield Finding("spelling", "warning", text, "`calib cache convert --to trt-cache` writes it anew", odd)


def _name_findings(table: RangeTable) -> Iterator[Finding]:
    unnamed = tuple(item.name for item in table if parser_made(item.name))
    if unnamed:
        text = f"{counted(len(unnamed), 'key was', 'keys were')} made up by TensorRT's parser for one version and graph"
        yield Finding(
            "unnamed", "warning", text, "calibrate again after an update of TensorRT or of the network", unnamed
        )
    blanks = tuple(item.name for item in table if item.name != item.name.strip(" \t"))
    if blanks:
        text = f"{counted(len(blanks), 'name has', 'names have')} blanks at the ends, which few tensors have"
        yield Finding("blanks", "warning", text, "`calib cache rename` gives another", blanks)
    colons = tuple(item.name for item in table if ":" in item.name)
    if colons:
        names = counted(len(colons), "name holds", "names hold")
        text = f"{names} a colon, at the first of which ONNX Runtime's TensorRT provider cuts"
        yield Finding("colon", "note", text, "", colons)


def _coverage_findings(coverage: EntryCoverage, network: Network) -> Iterator[Finding]:
    if coverage.other_network or not coverage.matched:
        text = (
            f"the network has {len(coverage.matched)} of the named tensors and lacks {len(coverage.foreign)}: another "
            "network, or another export of it"
        )
        remedy = "lint with the export that was calibrated; `calib cache rename` carries ranges between exports"
        yield Finding("other_network", "error", text, remedy, coverage.foreign)
    yield from _missing_findings(coverage, network)
    for reason, names in coverage.strangers.items():
        if reason == "foreign" and coverage.other_network:
            continue
        severity: Severity = "warning" if reason == "foreign" else "note"
        text = f"{counted(len(names), 'entry', 'entries')} without tensor: {REASONS[reason]}"
        yield Finding(f"no_tensor_{reason}", severity, text, "", names)


def _missing_findings(coverage: EntryCoverage, network: Network) -> Iterator[Finding]:
    if not coverage.missing:
        return
    inputs = {item.name for item in network.inputs} & set(coverage.missing)
    total = len(coverage.matched) + len(coverage.missing)
    what = "TensorRT runs what reads or makes them in float"
    verb = "has" if len(coverage.missing) == 1 else "have"
    text = f"{len(coverage.missing)} of {total} float activations {verb} no entry; {what}"
    severity: Severity = "error" if inputs or not coverage.matched else "warning"
    remedy = "calibrate again: all of a network's activations need a range"
    yield Finding("missing", severity, text, remedy, coverage.missing)
