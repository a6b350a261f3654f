"""``calib verify``: every check of the release gate, failing ones first."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from calib.core.gate.provenance import check_times
from calib.core.maxdrop import parse_max_drop
from calib.jobs.verify.accuracy import check_accuracy
from calib.jobs.verify.derive import check_derivation
from calib.jobs.verify.images import check_data
from calib.jobs.verify.request import VerifyRequest
from calib.jobs.verify.signatures import check_vouchers
from calib.jobs.verify.subject import Subject, check_files, check_model, read_subject
from calib.jobs.verify.target import check_target
from calib.types.gate import Check, order_checks
from calib.types.progress import Progress

SCHEMA = 1


@dataclass(frozen=True)
class Verification:
    """What the gate says.

    Attributes:
        folder: the build folder.
        checks: failing ones first.
    """

    folder: Path
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return all(check.status != "fail" for check in self.checks)

    def document(self) -> dict[str, Any]:
        """The verdict as JSON values."""
        return {
            "schema": SCHEMA,
            "folder": str(self.folder),
            "passed": self.passed,
            "checks": [asdict(check) for check in self.checks],
        }


def verify(request: VerifyRequest, progress: Progress) -> Verification:
    """Check a build folder against its own records, a network, and where given data, key and limits.

    Raises:
        CalibError: something given cannot be used: no build folder, an unreadable network, manifest or key.
    """
    limits = parse_max_drop(request.max_drop) if request.max_drop else ()
    subject, checks = read_subject(request)
    if subject is not None and all(check.status != "fail" for check in checks):
        checks += _check_all(subject, request, limits, progress)
    elif subject is not None:
        checks += [*check_files(subject), check_model(subject)]
    if any(check.name == "provenance" and check.status == "fail" for check in checks):
        checks.append(Check("everything else", "skip", "what the provenance does not say soundly cannot be checked"))
    return Verification(request.folder, order_checks(checks))


def _check_all(subject: Subject, request: VerifyRequest, limits: Any, progress: Progress) -> list[Check]:
    derived = check_derivation(subject, request.workers or os.cpu_count() or 1)
    vouched = check_vouchers(subject, request.key)
    return [
        check_times(subject.provenance, datetime.now(UTC), request.max_age),
        *check_files(subject),
        check_model(subject),
        *derived.checks,
        check_target(subject, request.trt_version),
        *vouched.checks,
        *check_data(subject, request, derived.calibrated, progress),
        *check_accuracy(subject, request, limits, vouched.signed, progress),
    ]
