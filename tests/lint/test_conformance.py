"""ONNX's own conformance models are valid: lint must find no error in them for a runtime that follows the standard."""

from __future__ import annotations

import pytest

from calib.core.lint.engine import lint_model

TRUE = {"test_batchnorm_example_training_mode", "test_batchnorm_epsilon_training_mode"}
"""Models whose point is what lint reports."""


@pytest.mark.filterwarnings("ignore")
def test_no_error_for_onnx_runtime_on_the_operators_conformance_models() -> None:
    from onnx.backend.test.case.node import collect_testcases

    cases = [case for case in collect_testcases(None) if case.model is not None]
    assert len(cases) > 1000
    alarms: dict[str, list[str]] = {}
    for case in cases:
        found = lint_model(case.model, targets=("ort",))
        wrong = [item.rule.id for item in found if item.severity == "error"]
        if wrong:
            alarms[case.name] = wrong
    assert alarms == {name: ["batchnorm-training"] for name in TRUE}
