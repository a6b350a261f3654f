"""Check-up of the processor, memory and folders."""

from __future__ import annotations

from calib.types.machine import Finding, Folder, Machine

GIB = 1 << 30
WANTED_MEMORY = 2 * GIB
WANTED_DISK = GIB
INTERESTING = ("avx2", "avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm")
WITH_DOT_PRODUCT = frozenset({"avx512_vnni", "avx_vnni", "avxvnni", "amx_int8"})
SATURATION = "pairs of 8-bit products are summed in 16 bits and saturate: ONNX Runtime can score Q/DQ below TensorRT"
SATURATION_REMEDY = "score Q/DQ networks on a processor with VNNI, or with session option session.x64quantprecision=1"


def check_cpu(machine: Machine) -> list[Finding]:
    """Check cores and instruction sets; without VNNI x86 sums 8-bit products in saturating 16 bits.

    Source: ONNX Runtime's documentation, "Quantize ONNX models", on U8S8 saturation under AVX2 and AVX-512.
    """
    cpu = machine.cpu
    share = "" if cpu.usable == cpu.cores else f"; {cpu.usable} usable by this process"
    found = [Finding("Machine", "cores", "ok", f"{cpu.cores} of {cpu.model or cpu.architecture}{share}")]
    if cpu.flags is None:
        return [*found, Finding("Machine", "instruction sets", "missing", "this system does not tell them")]
    sets = ", ".join(name for name in INTERESTING if name in cpu.flags) or "none of " + ", ".join(INTERESTING)
    if cpu.architecture.lower() not in ("x86_64", "amd64") or not WITH_DOT_PRODUCT.isdisjoint(cpu.flags):
        return [*found, Finding("Machine", "instruction sets", "ok", f"{sets}; INT8 sums are exact in ONNX Runtime")]
    return [*found, Finding("Machine", "instruction sets", "problem", f"{sets}; {SATURATION}", SATURATION_REMEDY)]


def check_memory(machine: Machine) -> list[Finding]:
    """Check the memory a build can take."""
    memory = machine.memory
    total = min(memory.total, memory.limit or memory.total)
    free = total if memory.available is None else min(memory.available, total)
    limit = " (the container's limit)" if memory.limit and memory.limit < memory.total else ""
    detail = f"{total / GIB:.1f} GiB{limit}, {free / GIB:.1f} GiB available"
    if free < WANTED_MEMORY:
        remedy = "close other programs, or use fewer --workers and a smaller batch"
        return [Finding("Machine", "memory", "problem", f"{detail}; a build can take up to 2 GiB", remedy)]
    return [Finding("Machine", "memory", "ok", detail)]


def check_folders(machine: Machine) -> list[Finding]:
    """Check room and permission where calib writes."""
    return [_check_folder(folder) for folder in machine.folders] + [_check_kernel_cache(machine.kernel_cache)]


def _check_folder(folder: Folder) -> Finding:
    name = f"{folder.role} folder"
    if folder.free is None or not folder.writable:
        remedy = (
            "write results elsewhere with -o" if folder.role == "current" else "set TMPDIR to a folder you can write"
        )
        blocking = folder.role != "current"
        return Finding("Machine", name, "problem", f"{folder.path} cannot be written", remedy, blocking=blocking)
    detail = f"{folder.path}, {folder.free / GIB:.1f} GiB free"
    if folder.free < WANTED_DISK:
        remedy = "free some space" + (", or set TMPDIR to another folder" if folder.role != "current" else " or use -o")
        return Finding("Machine", name, "problem", detail, remedy)
    return Finding("Machine", name, "ok", detail)


def _check_kernel_cache(folder: Folder) -> Finding:
    if folder.writable:
        return Finding("Machine", "kernel cache", "ok", folder.path)
    detail = f"{folder.path} cannot be written, nor can a cache of yours: compiled kernels cannot be kept"
    return Finding("Machine", "kernel cache", "problem", detail, "set NUMBA_CACHE_DIR to a folder you can write", True)
