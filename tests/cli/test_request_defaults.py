"""The command line and the Python API do the same where nothing is asked for."""

from __future__ import annotations

import dataclasses
import importlib
import inspect

import pytest

JOBS = {
    "build": "BuildRequest", "diagnose": "DiagnoseRequest", "engine": "EngineRequest", "evaluate": "EvaluateRequest",
    "qat": "QatRequest", "sensitivity": "SensitivityRequest",
}  # fmt: skip
OTHERWISE = {("qat", "distill")}
"""Options that are something else than the field of their name."""


@pytest.mark.parametrize("job", JOBS)
def test_an_option_and_its_field_have_the_same_default(job: str) -> None:
    command = importlib.import_module(f"calib.cli.{job}").command
    request = getattr(importlib.import_module(f"calib.jobs.{job}"), JOBS[job])
    options = inspect.signature(command).parameters
    shared = [
        field
        for field in dataclasses.fields(request)
        if field.name in options and field.default is not dataclasses.MISSING and (job, field.name) not in OTHERWISE
    ]
    assert shared
    for field in shared:
        option = options[field.name].default
        same = str(option) == str(field.default) or (option is None and field.default == ())
        assert same, f"--{field.name} is {option!r}, {request.__name__}.{field.name} {field.default!r}"


def test_the_weight_of_the_distillation_has_one_default() -> None:
    qat = importlib.import_module("calib.cli.qat").command
    request = importlib.import_module("calib.jobs.qat").QatRequest
    assert inspect.signature(qat).parameters["distill_weight"].default == request(model="", data="", output="").distill
