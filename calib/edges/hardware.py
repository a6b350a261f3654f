"""Reading the processor and memory of this machine, and the limits a container puts on them."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from calib.types.machine import Cpu, Memory

UNLIMITED = 1 << 60
SYSCTL_SECONDS = 10


def read_cpu(root: Path = Path("/")) -> Cpu:
    """Read the processor; ``root`` stands before ``/proc`` and ``/sys``, for tests."""
    cores = os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores
    quota = cgroup_cores(root)
    usable = min(allowed, max(1, int(quota))) if quota else allowed
    info = _read(root / "proc/cpuinfo")
    if info:
        model, flags = parse_cpuinfo(info)
    elif platform.system() == "Darwin":
        model, flags = parse_sysctl(_sysctl())
    else:
        model, flags = platform.processor(), None
    return Cpu(platform.machine(), model, flags, cores, usable)


def parse_cpuinfo(text: str) -> tuple[str, frozenset[str] | None]:
    """Take model name and instruction sets from ``/proc/cpuinfo``; x86 calls them flags, ARM Features."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip().lower(), value.strip())
    flags = fields.get("flags", fields.get("features"))
    return fields.get("model name", ""), None if flags is None else frozenset(flags.split())


def parse_sysctl(text: str) -> tuple[str, frozenset[str] | None]:
    """Take model and instruction sets from macOS' sysctl: Intel lists them, Apple's has ``FEAT_x: 1`` lines."""
    model = re.search(r"machdep\.cpu\.brand_string: (.+)", text)
    listed = re.findall(r"machdep\.cpu\.(?:leaf7_)?features: (.+)", text)
    flags = {word.lower() for words in listed for word in words.split()}
    names = {"FEAT_DotProd": "asimddp", "FEAT_I8MM": "i8mm"}
    flags |= {flag for name, flag in names.items() if re.search(rf"hw\.optional\.arm\.{name}: 1", text)}
    return model[1] if model else "", frozenset(flags) if flags else None


def read_memory(root: Path = Path("/")) -> Memory:
    """Read main memory and the container's limit; ``root`` as in :func:`read_cpu`."""
    text = _read(root / "proc/meminfo")
    found = {key: int(value) * 1024 for key, value in re.findall(r"^(\w+):\s+(\d+) kB$", text, re.MULTILINE)}
    total = found.get("MemTotal") or _physical_memory()
    return Memory(total, found.get("MemAvailable"), cgroup_memory(root))


def cgroup_memory(root: Path = Path("/")) -> int | None:
    """Read the memory limit of the container in bytes, None without one."""
    for name in ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"):
        text = _read(root / name).strip()
        if text.isdigit() and int(text) < UNLIMITED:
            return int(text)
    return None


def cgroup_cores(root: Path = Path("/")) -> float | None:
    """Read the processor quota of the container in cores, None without one."""
    quota, _, period = _read(root / "sys/fs/cgroup/cpu.max").strip().partition(" ")
    if not quota:
        quota = _read(root / "sys/fs/cgroup/cpu/cpu.cfs_quota_us").strip()
        period = _read(root / "sys/fs/cgroup/cpu/cpu.cfs_period_us").strip()
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None


def user_cache(environment: Mapping[str, str]) -> Path:
    """Name the user's cache folder on this system."""
    if platform.system() == "Windows":
        return Path(environment.get("LOCALAPPDATA", "~")).expanduser()
    if platform.system() == "Darwin":
        return Path("~/Library/Caches").expanduser()
    return Path(environment.get("XDG_CACHE_HOME") or "~/.cache").expanduser()


def _physical_memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 0


def _sysctl() -> str:
    try:
        done = subprocess.run(
            ["/usr/sbin/sysctl", "machdep.cpu", "hw.optional"],
            capture_output=True,
            text=True,
            timeout=SYSCTL_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
