"""``calib cache lint``: what is wrong with a file of ranges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import onnx

from calib.core.formats import trt_cache
from calib.core.formats.registry import QDQ, detect
from calib.core.graph import analyse
from calib.core.printable import counted, printable
from calib.core.trtcache import CalibrationCache, parse
from calib.edges.manifest import parse_preprocess, stated_preprocess
from calib.edges.models import load_model
from calib.edges.tables import read_range_file, table_in
from calib.errors import ManifestError
from calib.stages.qdqread import read_qdq
from calib.stages.qdqrules import tensorrt_findings
from calib.stages.rangelint import Finding, LintReport, lint_table
from calib.types.data import Preprocess
from calib.types.rangetable import RangeTable

SHOWN = 8
"""Names that the text lists of a finding; ``--json`` holds all."""


def lint(path: str, model: Path | None = None, preprocess: str | None = None, data: str | None = None) -> LintReport:
    """Lint a file of ranges.

    Args:
        path: the file, in any format.
        model: ONNX file of the network that it should belong to.
        preprocess: how pictures become network input: a spec or a YAML file.
        data: manifest that states it.

    Raises:
        CalibError: a file cannot be read.
    """
    source = _load(path)
    network = None if model is None else analyse(load_model(model))
    report = lint_table(source.table, source.cache, network, _declared(preprocess, data))
    return report if source.model is None else report.joined(tensorrt_findings(source.model))


@dataclass(frozen=True)
class _Loaded:
    table: RangeTable
    cache: CalibrationCache | None = None
    model: onnx.ModelProto | None = None


def _load(path: str) -> _Loaded:
    content = read_range_file(path)
    key = detect(content, path)
    if key == trt_cache.KEY:
        cache = parse(content, path)
        return _Loaded(trt_cache.table_of(cache, path), cache)
    if key == QDQ:
        model = load_model(path, content)
        return _Loaded(read_qdq(model, path), model=model)
    return _Loaded(table_in(content, path))


def _declared(preprocess: str | None, data: str | None) -> Preprocess | None:
    if data is None:
        return None if preprocess is None else parse_preprocess(preprocess)
    stated = stated_preprocess(data, preprocess)
    if stated is None:
        raise ManifestError(
            data,
            expected="preprocessing, to compare the input's range with",
            got="a manifest or list that states none",
            remedy="give --preprocess, or write it under preprocess: in the manifest",
        )
    return stated


def document_of(path: str, report: LintReport) -> dict[str, Any]:
    """Describe the findings as one JSON document."""
    return {
        "schema": 1,
        "file": path,
        "passed": not report.failed,
        "inputs": [{"name": printable(item.name), "amax": item.amax, **asdict(found)} for item, found in report.inputs],
        "counts": _counts(report.findings),
        "findings": [
            {
                "code": item.code,
                "severity": item.severity,
                "text": printable(item.text),
                "remedy": item.remedy,
                "tensors": [printable(name) for name in item.names],
            }
            for item in report.findings
        ],
    }


def _counts(findings: Sequence[Finding]) -> Mapping[str, int]:
    counts = Counter(item.severity for item in findings)
    return {severity: counts[severity] for severity in ("error", "warning", "note")}


def as_text(path: str, report: LintReport) -> str:
    """Lay the findings out for people."""
    lines: list[str] = []
    for item in report.findings:
        lines.append(f"{item.severity:<8} {item.text}  [{item.code}]")
        if item.names and printable(item.names[0]) not in item.text:
            more = f", … ({len(item.names) - SHOWN} more; --json lists all)" if len(item.names) > SHOWN else ""
            lines.append(f"           {', '.join(item.names[:SHOWN])}{more}")
        if item.remedy:
            lines.append(f"           remedy: {item.remedy}")
    counts = ", ".join(counted(count, name) for name, count in _counts(report.findings).items())
    return "\n".join(printable(line) for line in (*lines, f"{path}: {counts}"))
