"""Findings as a SARIF 2.1.0 log, for code review: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from calib.core.lint.rule import Finding, Rule, Sighting
from calib.core.printable import printable

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
KINDS = {"node": "function", "tensor": "variable", "model": "module"}
"""Kinds of logical locations that come nearest: SARIF names those of programs, and allows others."""


def sarif_log(findings: Sequence[Finding], rules: Mapping[str, Rule], uri: str, version: str) -> dict[str, Any]:
    """Describe findings as one SARIF log; a result a place.

    Args:
        findings: what was found.
        rules: the rules that were applied, by id.
        uri: of the model file, relative to the repository or absolute, percent-encoded.
        version: of calib.
    """
    places = {rule: index for index, rule in enumerate(rules)}
    driver = {
        "name": "calib lint",
        "version": version,
        "semanticVersion": version,
        "rules": [_rule(rule) for rule in rules.values()],
    }
    run = {
        "tool": {"driver": driver},
        "artifacts": [{"location": {"uri": uri}, "roles": ["analysisTarget"]}],
        "results": [item for finding in findings for item in _results(finding, places[finding.rule.id], uri)],
        "columnKind": "unicodeCodePoints",
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "name": "".join(word.capitalize() for word in rule.id.split("-")),
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.why},
        "help": {"text": f"{rule.why}\n\nRemedy: {rule.remedy}", "markdown": _markdown(rule)},
        "helpUri": next(source for source in rule.sources if source.startswith("https://")),
        "defaultConfiguration": {"level": default_level(rule)},
        "properties": {"targets": list(rule.levels), "tags": ["onnx", "tensorrt", "quantization"]},
    }


def default_level(rule: Rule) -> str:
    """Answer the worst severity a rule has by itself."""
    return Finding(rule, rule.levels, ()).severity


def _markdown(rule: Rule) -> str:
    sources = "\n".join(f"- <{source}>" if source.startswith("https://") else f"- {source}" for source in rule.sources)
    return f"{rule.why}\n\n**Remedy:** {rule.remedy}\n\n{sources}"


def _results(finding: Finding, index: int, uri: str) -> Iterator[dict[str, Any]]:
    for place in finding.places:
        subject = printable(place.name) + ": " if place.name else ""
        yield {
            "ruleId": finding.rule.id,
            "ruleIndex": index,
            "level": finding.severity,
            "message": {"text": f"{subject}{finding.rule.title} ({printable(place.saw)}). {finding.rule.remedy}"},
            "locations": [_location(place, uri)],
            "partialFingerprints": {"calib/v1": _fingerprint(finding.rule.id, place)},
            "properties": {"targets": {str(target): level for target, level in finding.levels.items()}},
        }


def _location(place: Sighting, uri: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "physicalLocation": {"artifactLocation": {"uri": uri, "index": 0}, "region": {"startLine": 1}}
    }
    if place.name:
        name = printable(place.name)
        found["logicalLocations"] = [{"name": name, "fullyQualifiedName": name, "kind": KINDS[place.place]}]
    return found


def _fingerprint(rule: str, place: Sighting) -> str:
    """Identify a result across runs: by rule and place, not by the values there."""
    text = f"{rule}\0{place.place}\0{place.name}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
