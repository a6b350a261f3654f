"""``calib lint``: what in a network will hurt, why, and the remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calib.cli.common import JsonFlag, QuietFlag, VerboseFlag, emit
from calib.errors import UsageError

EXIT_ERRORS_FOUND = 1


def command(
    model: Annotated[str | None, typer.Argument(metavar="MODEL", help="ONNX file, float or with Q/DQ.")] = None,
    target: Annotated[str, typer.Option("--target", help="What will run it, comma-separated.")] = "trt10,trt11,ort",
    ranges: Annotated[
        Path | None,
        typer.Option("--ranges", help="A build folder, its ranges.json, or a file of ranges: values count then."),
    ] = None,
    rule: Annotated[
        list[str] | None, typer.Option("--rule", metavar="ID", help="Apply this rule only; repeat.")
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option("--ignore", metavar="ID", help="Leave a rule out; repeat.")
    ] = None,
    sarif: Annotated[Path | None, typer.Option("--sarif", help="Write a SARIF 2.1.0 log for code review.")] = None,
    explain: Annotated[
        str | None, typer.Option("--explain", metavar="ID", help="Explain a rule, or list `all`; needs no MODEL.")
    ] = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
    verbose: VerboseFlag = False,
) -> None:
    """Say what in a network will hurt on its targets, why, and what to do; ends with 1 on errors."""
    del quiet
    if explain is not None:
        return _explain(explain, as_json=as_json)
    if model is None:
        raise UsageError(
            "calib lint", expected="MODEL, an ONNX file", got="nothing", remedy="`calib lint --help` shows how"
        )
    from calib.jobs import lint as job

    report = job.lint(
        model,
        target,
        rules=rule or (),
        ignore=ignore or (),
        ranges=None if ranges is None else str(ranges),
    )
    if sarif is not None:
        job.write_sarif(report, sarif)
    emit(job.document_of(report), as_json=as_json, text=job.as_text(report, verbose=verbose))
    if report.failed:
        raise typer.Exit(EXIT_ERRORS_FOUND)
    return None


def _explain(key: str, *, as_json: bool) -> None:
    from calib.core.lint.rules import RULES
    from calib.jobs import lint as job

    if key == "all":
        document = {"schema": 1, "rules": [job.rule_document(rule) for rule in RULES.values()]}
        return emit(document, as_json=as_json, text=job.explain_all())
    rule = job.find_rule("--explain", key)
    return emit({"schema": 1, **job.rule_document(rule)}, as_json=as_json, text=job.explain(rule))
