"""IR versions that a target does not read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from calib.core.lint.rule import Levels, Rule, Sighting, whole
from calib.core.lint.sources import ONNX_VERSIONS, ORT_VERSIONS
from calib.core.lint.subject import Subject
from calib.core.plan import Target

NEWEST: Mapping[Target, int] = {"ort": 11}
"""ONNX Runtime 1.23 refuses newer ones."""


def check(subject: Subject) -> Iterator[Sighting]:
    """Report an IR version that is too new for a target."""
    version = subject.model.ir_version
    for target, newest in NEWEST.items():
        if version > newest:
            found: Levels = {target: "warning"}
            yield whole(f"IR version {version}; ONNX Runtime 1.23 reads up to {newest}", found)


RULE = Rule(
    id="ir-version",
    title="IR version that the target does not read",
    why=(
        "ONNX Runtime refuses an IR version newer than its own; the version is a number in the file, not what it "
        "computes."
    ),
    remedy="update ONNX Runtime, or save with an older ir_version (8 serves opset 15 to 18, 10 opset 21 to 22)",
    sources=(ONNX_VERSIONS, ORT_VERSIONS),
    levels={"ort": "warning"},
    check=check,
)
