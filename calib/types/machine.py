"""What is known of the machine calib runs on, and what a check-up says about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["ok", "missing", "problem"]


@dataclass(frozen=True)
class Probe:
    """What a library said when a process of its own imported it.

    Attributes:
        found: whether Python finds a module of that name at all.
        facts: what it told about itself, empty when the import failed.
        error: last line of the failure, empty when it imported.
        log: what it wrote to standard error.
    """

    found: bool
    facts: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    log: str = ""


@dataclass(frozen=True)
class Gpu:
    """A graphics processor.

    Attributes:
        name: as its driver calls it.
        driver: version of the driver.
        memory_mib: memory in MiB, or None where it is not told.
        compute: compute capability such as ``9.0``, or empty.
    """

    name: str
    driver: str
    memory_mib: int | None
    compute: str


@dataclass(frozen=True)
class Cpu:
    """The processor.

    Attributes:
        architecture: ``x86_64``, ``aarch64``, ….
        model: its name, or empty.
        flags: instruction sets in the kernel's spelling, or None where the system does not tell.
        cores: logical cores of the machine.
        usable: cores this process may use, by affinity and by the container's quota.
    """

    architecture: str
    model: str
    flags: frozenset[str] | None
    cores: int
    usable: int


@dataclass(frozen=True)
class Memory:
    """Main memory in bytes; ``limit`` is the container's, None without one; ``available`` None where not told."""

    total: int
    available: int | None
    limit: int | None


@dataclass(frozen=True)
class Folder:
    """A folder calib writes to: ``role`` says what for, ``free`` is in bytes and None where it does not exist."""

    role: str
    path: str
    free: int | None
    writable: bool


@dataclass(frozen=True)
class Machine:
    """Facts of one machine, as probed; a check-up reads nothing else.

    Attributes:
        system: name of the operating system.
        python: version of the interpreter.
        bits: width of its pointers.
        distributions: version of every installed distribution, by normalised name.
        tested: version of every package calib was tested with.
        minimum: lowest version calib declares, by package.
        modules: names of the modules that calib looks for and Python finds, installed packages or not.
        imports: error of each core library's import, empty when it imports.
        runtime: ONNX Runtime.
        tensorrt: TensorRT's Python package.
        torch: PyTorch.
        trtexec: path of NVIDIA's trtexec and what it says of its version, or None.
        gpus: NVIDIA GPUs.
        gpu_error: why GPUs could not be listed although a driver's tool is there, else empty.
        cpu: the processor.
        memory: main memory.
        folders: temporary and current folder.
        kernel_cache: where compiled kernels are kept.
        environment: the environment variables that change how calib runs.
    """

    system: str
    python: tuple[int, int, int]
    bits: int
    distributions: Mapping[str, str]
    tested: Mapping[str, str]
    minimum: Mapping[str, str]
    modules: frozenset[str]
    imports: Mapping[str, str]
    runtime: Probe
    tensorrt: Probe
    torch: Probe
    trtexec: tuple[str, str] | None
    gpus: tuple[Gpu, ...]
    gpu_error: str
    cpu: Cpu
    memory: Memory
    folders: tuple[Folder, ...]
    kernel_cache: Folder
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Finding:
    """One line of a check-up.

    Attributes:
        section: heading it belongs under.
        name: what was looked at.
        status: ``ok``; ``missing``, an option that is not there; ``problem``, something that should be mended.
        detail: what was found and what it means.
        remedy: what to do about it, empty when nothing need be done.
        blocking: whether the main job cannot run until it is mended.
    """

    section: str
    name: str
    status: Status
    detail: str
    remedy: str = ""
    blocking: bool = False
