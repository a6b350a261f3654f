"""``calib doctor``: what is installed and usable here, and the remedy for each lack."""

from __future__ import annotations

from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING

import typer

from calib import __version__
from calib.cli.common import JsonFlag, emit

if TYPE_CHECKING:
    from calib.jobs.doctor import Checkup
    from calib.types.machine import Finding

EXIT_BROKEN = 1


def command(as_json: JsonFlag = False) -> None:
    """Say what is installed and usable on this machine, and the remedy for each lack.

    Exits with 1 when something the main job needs is broken.
    """
    from calib.jobs.doctor import check_this_machine

    checkup = check_this_machine()
    document = {
        "schema": 1,
        "version": __version__,
        "usable": checkup.usable,
        "findings": [asdict(finding) for finding in checkup.findings],
    }
    emit(document, as_json=as_json, text=render(checkup))
    if not checkup.usable:
        raise typer.Exit(EXIT_BROKEN)


def render(checkup: Checkup) -> str:
    """Render a check-up for people: headings, a line a finding, remedies below, the verdict last."""
    lines = []
    for section, findings in groupby(checkup.findings, key=lambda finding: finding.section):
        lines += [section, *(_line(finding) for finding in findings), ""]
    return "\n".join([*lines, verdict(checkup)])


def verdict(checkup: Checkup) -> str:
    """Say in one line whether the main job can run, and how much there is to mend."""
    blocking = [finding.name for finding in checkup.findings if finding.blocking]
    others = sum(finding.status == "problem" and not finding.blocking for finding in checkup.findings)
    rest = f"; {others} other problem{'s' * (others != 1)}" if others else ""
    if blocking:
        return f"calib cannot run its main job here until this is mended: {', '.join(blocking)}{rest}"
    return f"calib can run its main job here{rest}"


def _line(finding: Finding) -> str:
    head = f"  {finding.status.upper() if finding.status == 'problem' else finding.status:<8} {finding.name}:"
    remedy = f"\n{'':<11}remedy: {finding.remedy}" if finding.remedy else ""
    return f"{head} {finding.detail}{remedy}"
