"""What is wrong with a file of ranges: one finding a kind, with its severity and the remedy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from calib.core.cachelook import Fingerprint, input_fingerprint
from calib.core.graph import Network
from calib.core.inputrange import check_input
from calib.core.rangefaults import IMPLAUSIBLE, Faults, find_faults, input_ranges, worthless
from calib.core.trtcache import CalibrationCache
from calib.core.trtversions import judge_number
from calib.stages.rangecoverage import REASONS, EntryCoverage, cover, parser_made
from calib.types.data import Preprocess
from calib.types.rangetable import RangeTable, TensorRange

Severity = Literal["error", "warning", "note"]
CALIBRATE = "calibrate again with `calib build`, on images preprocessed as for inference"
AS_FLOAT32 = (
    "make every batch float32 before it is copied to the device (numpy: .astype(np.float32)), then calibrate again"
)
REMARK_REMEDIES: Mapping[str, str] = {
    "conflicts": "calibrate again, or delete all but one of them",
    "duplicates": "delete all but one of them",
    "asymmetric": "quantize again with symmetric INT8 (zero point 0)",
    "per_channel_activation": "quantize activations again with one scale a tensor",
    "lost_negative_side": "convert the calibration.json that was written beside this file",
}


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
        *(_header_findings(cache) if cache else ()),
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
        text = f"{len(item.names)} {item.text}" if item.names else item.text
        yield Finding(item.code, severity, text, REMARK_REMEDIES.get(item.code, ""), item.names)


def _header_findings(cache: CalibrationCache) -> Iterator[Finding]:
    header = cache.header
    if header.number is None:
        text = f"the header {header.text!r} states no TensorRT version; TensorRT 6 and later ignore such a cache"
        yield Finding("old_header", "warning", text, "`calib cache retarget` gives it a header of today")
    elif reason := judge_number(header.number):
        remedy = "`calib cache retarget --trt-version` writes the number of the version you run"
        yield Finding(
            "unknown_version", "error", f"the header {header.text!r} is read by no TensorRT: {reason}", remedy
        )
    if header.number is not None and header.algorithm != "EntropyCalibration2":
        text = (
            f"the header names {header.algorithm}: trtexec, Polygraphy and DLA read caches as EntropyCalibration2, "
            "ignore this one and calibrate anew, trtexec on noise"
        )
        remedy = "`calib cache retarget --algorithm EntropyCalibration2`, unless your calibrator is of the named class"
        yield Finding("header_suffix", "warning", text, remedy)


def _input_findings(
    table: RangeTable, ranges: tuple[TensorRange, ...], preprocess: Preprocess | Mapping[str, Preprocess | float] | None
) -> Iterator[Finding]:
    wrong = worthless(ranges)
    for item in ranges:
        said = input_fingerprint(item.amax)
        if item.name in wrong:
            code = "blank_input" if said.code == "blank" else "float64_as_float32"
            remedy = CALIBRATE if said.code == "blank" else AS_FLOAT32
            text = f"the input {item.name!r} has amax {item.amax:.4g}: {said.text}"
            yield Finding(code, "error", text, remedy, (item.name,))
            continue
        yield Finding(
            "input", "note", f"the input {item.name!r} has amax {item.amax:.6g}: {said.text}", "", (item.name,)
        )
        yield from _declared_findings(item.name, item.amax, preprocess)
    if not ranges and table.naming == "tensor":
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
    text = f"the input {name!r} has amax {amax:.6g}; {declared}: {said.text}"
    severity: Severity = "warning" if said.verdict == "narrow" else "error"
    yield Finding("input_range", severity, text, "calibrate with the preprocessing of inference", (name,))


def _fault_findings(faults: Faults) -> Iterator[Finding]:
    if faults.nonfinite:
        text = f"{len(faults.nonfinite)} ranges are infinite or NaN: float64 read as float32, or an overflow"
        yield Finding("nonfinite", "error", text, AS_FLOAT32, faults.nonfinite)
    if faults.implausible:
        why = "float64 read as float32, or uninitialised memory"
        text = f"{len(faults.implausible)} ranges are beyond {IMPLAUSIBLE:g}: {why}"
        yield Finding("implausible", "error", text, AS_FLOAT32, faults.implausible)
    if faults.negative:
        text = f"{len(faults.negative)} ranges are negative: the file is damaged"
        yield Finding("negative", "error", text, "restore the file, or calibrate again", faults.negative)
    named = not all(parser_made(name) for name in faults.dead)
    if faults.dead:
        text = f"{len(faults.dead)} tensors are dead: their range is 0, and TensorRT 8.6 refuses to build"
        remedy = "`calib cache convert` gives them a floor; a layer that is dead on every image points at wrong images"
        yield Finding("dead", "error" if named else "warning", text, remedy, faults.dead)


def _spelling_findings(cache: CalibrationCache) -> Iterator[Finding]:
    if cache.newline == "\r\n":
        yield Finding(
            "crlf", "warning", "lines end in CRLF; readers that compare the header find another one", "`dos2unix`"
        )
    odd = tuple(
        entry.name for entry in cache.entries if not entry.spelling.startswith(": ") or entry.spelling[2:3] == " "
    )
    if odd:
        text = f"{len(odd)} entries do not have exactly one space after the colon, as trtexec needs"
        yield Finding("spelling", "warning", text, "`calib cache convert --to trt-cache` writes it anew", odd)


def _name_findings(table: RangeTable) -> Iterator[Finding]:
    unnamed = tuple(item.name for item in table if parser_made(item.name))
    if unnamed:
        text = f"{len(unnamed)} keys are names that TensorRT's parser made up: they hold for one version and graph only"
        yield Finding(
            "unnamed", "warning", text, "calibrate again after an update of TensorRT or of the network", unnamed
        )
    colons = tuple(item.name for item in table if ":" in item.name)
    if colons:
        text = f"{len(colons)} names hold a colon: ONNX Runtime's TensorRT provider cuts them at the first one"
        yield Finding("colon", "note", text, "", colons)


def _coverage_findings(coverage: EntryCoverage, network: Network) -> Iterator[Finding]:
    if coverage.other_network or not coverage.matched:
        text = (
            f"{len(coverage.foreign)} named ranges are not in the network and {len(coverage.matched)} are: another "
            "network, or another export of it"
        )
        remedy = "lint with the export that was calibrated; `calib cache rename` carries ranges between exports"
        yield Finding("other_network", "error", text, remedy, coverage.foreign)
    yield from _missing_findings(coverage, network)
    for reason, names in coverage.strangers.items():
        if reason == "foreign" and coverage.other_network:
            continue
        severity: Severity = "warning" if reason == "foreign" else "note"
        yield Finding(
            f"no_tensor_{reason}", severity, f"{len(names)} entries without tensor: {REASONS[reason]}", "", names
        )


def _missing_findings(coverage: EntryCoverage, network: Network) -> Iterator[Finding]:
    if not coverage.missing:
        return
    inputs = {item.name for item in network.inputs} & set(coverage.missing)
    total = len(coverage.matched) + len(coverage.missing)
    what = "TensorRT runs what reads or makes them in float"
    text = f"{len(coverage.missing)} of {total} float activations have no entry; {what}"
    severity: Severity = "error" if inputs or not coverage.matched else "warning"
    remedy = "calibrate again: all of a network's activations need a range"
    yield Finding("missing", severity, text, remedy, coverage.missing)
