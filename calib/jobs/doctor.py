"""The check-up of a machine: every check over the facts of one probing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from calib.core.checkup.hardware import check_cpu, check_folders, check_memory
from calib.core.checkup.runtimes import check_gpu, check_runtime, check_tensorrt, check_torch
from calib.core.checkup.software import (
    check_core_packages,
    check_kernel_compiler,
    check_named_packages,
    check_opencv,
    check_python,
)
from calib.edges.machine import probe_machine
from calib.types.machine import Finding, Machine

CHECKS: tuple[Callable[[Machine], list[Finding]], ...] = (
    check_python,
    check_core_packages,
    check_opencv,
    check_kernel_compiler,
    check_runtime,
    check_torch,
    check_gpu,
    check_tensorrt,
    check_named_packages,
    check_cpu,
    check_memory,
    check_folders,
)


@dataclass(frozen=True)
class Checkup:
    """The findings of one machine, in the order they are shown."""

    findings: tuple[Finding, ...]

    @property
    def usable(self) -> bool:
        """Whether the main job can run."""
        return not any(finding.blocking for finding in self.findings)


def check_up(machine: Machine) -> Checkup:
    """Run every check on the facts of a machine."""
    return Checkup(tuple(finding for check in CHECKS for finding in check(machine)))


def check_this_machine() -> Checkup:
    """Probe this machine and run every check."""
    return check_up(probe_machine())
