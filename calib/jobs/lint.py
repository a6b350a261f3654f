"""``calib lint``: what in a network will hurt on its targets, and what to do about it."""

from __future__ import annotations

import difflib
import json
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from calib.core.graph import analyse
from calib.core.lint.engine import lint_model
from calib.core.lint.rule import SEVERITIES, Finding, Rule, Severity, Sighting
from calib.core.lint.rules import RULES
from calib.core.lint.sarif import default_level, sarif_log
from calib.core.plan import TARGETS, Target
from calib.core.printable import printable
from calib.edges.files import make_output_folder, write_atomic
from calib.edges.models import load_model
from calib.errors import UsageError
from calib.jobs.lint_ranges import observed_ranges

SHOWN = 8
"""Places that the text lists of a finding; ``--json`` holds all."""
WIDTH = 100


@dataclass(frozen=True)
class LintReport:
    """What was found in a network.

    Attributes:
        model: the file.
        targets: what it was judged for.
        rules: the rules that were applied, by id.
        findings: errors first.
    """

    model: str
    targets: tuple[Target, ...]
    rules: Mapping[str, Rule]
    findings: tuple[Finding, ...]

    @property
    def failed(self) -> bool:
        """Whether a target will refuse the network or compute something else."""
        return any(item.severity == "error" for item in self.findings)

    @property
    def counts(self) -> dict[Severity, int]:
        """Number of findings by severity, worst first."""
        counts = Counter(item.severity for item in self.findings)
        return {severity: counts[severity] for severity in SEVERITIES}


def lint(
    model: str,
    targets: str = ",".join(TARGETS),
    *,
    rules: Sequence[str] = (),
    ignore: Sequence[str] = (),
    ranges: str | None = None,
) -> LintReport:
    """Lint an ONNX file.

    Args:
        model: the file.
        targets: comma-separated, of :data:`calib.core.plan.TARGETS`.
        rules: ids of the rules to apply, all by default; each may be a comma-separated list.
        ignore: ids of rules to leave out.
        ranges: ranges of this network, for the rules that look at values: as :func:`observed_ranges` takes them.

    Raises:
        UsageError: there is no such target or rule.
        CalibError: a file cannot be read, or is not what it should be.
    """
    wanted, chosen = parse_targets(targets), choose_rules(rules, ignore)
    graph = load_model(model)
    network = analyse(graph)
    amax = None if ranges is None else observed_ranges(ranges, network)
    found = lint_model(graph, network, wanted, ranges=amax, rules=tuple(chosen.values()))
    return LintReport(model, wanted, chosen, found)


def parse_targets(text: str) -> tuple[Target, ...]:
    """Read a comma-separated list of targets.

    Raises:
        UsageError: one of them is none.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in TARGETS]
    if unknown or not names:
        got = repr(unknown[0]) if unknown else "none"
        raise UsageError(
            "--target", expected=f"some of {', '.join(TARGETS)}", got=got, remedy="separate several by commas"
        )
    return tuple(target for target in TARGETS if target in names)


def choose_rules(only: Sequence[str], ignore: Sequence[str]) -> Mapping[str, Rule]:
    """Pick rules by id, in the registry's order.

    Raises:
        UsageError: there is no rule of an id, or none is left.
    """
    wanted, dropped = set(_ids("--rule", only)), set(_ids("--ignore", ignore))
    chosen = {key: rule for key, rule in RULES.items() if (not wanted or key in wanted) and key not in dropped}
    if not chosen:
        raise UsageError("--ignore", expected="a rule to be left", got="none", remedy="name fewer rules")
    return chosen


def _ids(flag: str, given: Iterable[str]) -> Iterator[str]:
    for item in (part.strip() for text in given for part in text.split(",")):
        if item:
            yield find_rule(flag, item).id


def find_rule(flag: str, key: str) -> Rule:
    """Find a rule by its id.

    Raises:
        UsageError: there is none.
    """
    if key in RULES:
        return RULES[key]
    close = difflib.get_close_matches(key, RULES, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]}? " if close else ""
    raise UsageError(
        flag, expected="the id of a rule", got=repr(key), remedy=f"{hint}`calib lint --explain all` lists them"
    )


def write_sarif(report: LintReport, path: Path) -> None:
    """Write the findings as a SARIF log.

    Raises:
        OutputError: the file cannot be written.
    """
    from calib import __version__

    log = sarif_log(report.findings, report.rules, uri_of(report.model), __version__)
    make_output_folder(path.parent)
    write_atomic(path, json.dumps(log, indent=2).encode() + b"\n")


def uri_of(path: str) -> str:
    """Write a path as a URI reference; a relative one stays relative, as code review needs it."""
    place = Path(path)
    return place.as_uri() if place.is_absolute() else quote(place.as_posix())


def document_of(report: LintReport) -> dict[str, Any]:
    """Describe a report as one JSON document."""
    return {
        "schema": 1,
        "model": report.model,
        "targets": list(report.targets),
        "passed": not report.failed,
        "rules": list(report.rules),
        "counts": report.counts,
        "findings": [_finding_document(item) for item in report.findings],
    }


def _finding_document(item: Finding) -> dict[str, Any]:
    return {
        "rule": item.rule.id,
        "severity": item.severity,
        "targets": dict(item.levels),
        "title": item.rule.title,
        "why": item.rule.why,
        "remedy": item.rule.remedy,
        "sources": list(item.rule.sources),
        "places": [
            {"kind": place.place, "name": printable(place.name), "saw": printable(place.saw)} for place in item.places
        ],
    }


def as_text(report: LintReport, *, verbose: bool = False) -> str:
    """Lay a report out for people, worst first; notes are short unless ``verbose``."""
    lines: list[str] = []
    for severity in SEVERITIES:
        found = [item for item in report.findings if item.severity == severity]
        for item in found:
            lines += [*_finding_lines(item, report.targets, full=verbose or severity != "note"), ""]
    counts = ", ".join(f"{count} {name}{'s' * (count != 1)}" for name, count in report.counts.items())
    lines.append(f"{report.model}: {counts} for {', '.join(report.targets)}")
    return "\n".join(printable(line) for line in lines)


def _finding_lines(item: Finding, targets: Sequence[Target], *, full: bool) -> Iterator[str]:
    yield from _wrapped(f"{item.severity:<8} ", f"{item.rule.title}{_where(item, targets)}  [{item.rule.id}]")
    yield from (f"           {line}" for line in _places(item.places))
    if full:
        yield from _wrapped("           why: ", item.rule.why)
    yield from _wrapped("           remedy: ", item.rule.remedy)
    if full:
        yield from (f"           see: {source}" for source in item.rule.sources)


def _where(item: Finding, targets: Sequence[Target]) -> str:
    """Name the targets it concerns, unless that is all of them alike."""
    if set(item.levels.values()) == {item.severity}:
        return "" if set(item.targets) == set(targets) else f" ({', '.join(item.targets)})"
    parts = [f"{level} on {', '.join(names)}" for level in SEVERITIES if (names := _of_level(item, level))]
    return f" ({'; '.join(parts)})"


def _of_level(item: Finding, level: Severity) -> list[Target]:
    return [target for target in item.targets if item.levels[target] == level]


def _places(places: Sequence[Sighting]) -> Iterator[str]:
    """List places; those with the same values share a line."""
    alike: dict[str, list[str]] = {}
    for place in places:
        alike.setdefault(place.saw, []).append(place.name)
    left = SHOWN
    for saw, names in alike.items():
        shown = [name for name in names[: max(left, 0)] if name]
        if left > 0:
            more = f" and {len(names) - len(shown)} more" if shown and len(names) > len(shown) else ""
            yield f"{', '.join(shown)}{more}: {saw}" if shown else saw
        left -= len(names)
    hidden = sum(len(names) for names in list(alike.values())) - SHOWN
    if hidden > 0 and len(alike) > 1:
        yield f"… ({len(places)} places in all; --json lists them)"


def _wrapped(prefix: str, text: str) -> Iterator[str]:
    indent = " " * len(prefix.rstrip(" ") + " ") if prefix.startswith(" ") else " " * len(prefix)
    yield from textwrap.wrap(
        text, WIDTH, initial_indent=prefix, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def explain(rule: Rule) -> str:
    """Lay out all that is known of a rule."""
    severities = ", ".join(f"{level} on {target}" for target, level in rule.levels.items())
    return "\n".join(
        [
            f"{rule.id}: {rule.title}",
            f"  severity: {severities}",
            *_wrapped("  why: ", rule.why),
            *_wrapped("  remedy: ", rule.remedy),
            *(f"  see: {source}" for source in rule.sources),
        ]
    )


def explain_all() -> str:
    """List every rule: id, severity, title."""
    width = max(map(len, RULES))
    return "\n".join(f"{key:<{width}}  {default_level(rule):<8} {rule.title}" for key, rule in RULES.items())


def rule_document(rule: Rule) -> dict[str, Any]:
    """Describe a rule for ``--json``."""
    return {
        "id": rule.id,
        "title": rule.title,
        "targets": dict(rule.levels),
        "why": rule.why,
        "remedy": rule.remedy,
        "sources": list(rule.sources),
    }
