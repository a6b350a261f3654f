"""Probing the machine: what is installed, what imports, what the processor, memory and disks are."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from calib.core.checkup.software import CORE, MODELOPT_NEEDS
from calib.core.checkup.versions import lower_bounds, normalise, pinned
from calib.edges import hardware, probe_script
from calib.types.machine import Folder, Gpu, Machine, Probe

DISTRIBUTION = "calib-workbench"
PROBE_SECONDS = 180
TOOL_SECONDS = 30
TRTEXEC_FOLDERS = ("/usr/src/tensorrt/bin", "/opt/tensorrt/bin", "/usr/local/tensorrt/bin", "/usr/local/TensorRT/bin")
LOOKED_FOR = ("onnxruntime", "tensorrt", "torch", "cuda", "pytorch_quantization", *MODELOPT_NEEDS)
VARIABLES = ("NUMBA_DISABLE_JIT", "NUMBA_CACHE_DIR")


def probe_machine() -> Machine:
    """Gather the facts of this machine; the libraries are imported in processes of their own, side by side."""
    modules = frozenset(name for name in LOOKED_FOR if find_module(name))
    with ThreadPoolExecutor(max_workers=4) as pool:
        core = pool.submit(run_probe, "core", *CORE.values())
        libraries = {
            name: pool.submit(_probe_if, name in modules, name) for name in ("onnxruntime", "tensorrt", "torch")
        }
        gpus = pool.submit(list_gpus, "cuda" in modules)
        imports = core_imports(core.result())
        probes = {name: future.result() for name, future in libraries.items()}
        found, gpu_error = gpus.result()
    return Machine(
        system=platform.system(),
        python=sys.version_info[:3],
        bits=struct.calcsize("P") * 8,
        distributions=installed_distributions(),
        tested=pinned(tested_versions()),
        minimum=declared_bounds(),
        modules=modules,
        imports=imports,
        runtime=probes["onnxruntime"],
        tensorrt=probes["tensorrt"],
        torch=probes["torch"],
        trtexec=find_trtexec(),
        gpus=found,
        gpu_error=gpu_error,
        cpu=hardware.read_cpu(),
        memory=hardware.read_memory(),
        folders=(look_at("temporary", Path(tempfile.gettempdir())), look_at("current", Path.cwd())),
        kernel_cache=kernel_cache(os.environ, Path(__file__).parent.parent / "core"),
        environment={name: os.environ[name] for name in VARIABLES if name in os.environ},
    )


def installed_distributions() -> dict[str, str]:
    """List the installed distributions with their versions, names normalised; broken metadata is passed over."""
    pairs = ((each.metadata["Name"], each.version) for each in importlib.metadata.distributions() if each.metadata)
    return {normalise(name): version for name, version in pairs if name}


def tested_versions() -> list[str]:
    """Read the list of tested versions: shipped with the package, or at the root of a source tree."""
    package = Path(__file__).parent.parent
    for path in (package / "data" / "constraints.txt", package.parent / "constraints.txt"):
        if path.is_file():
            return path.read_text(encoding="utf-8").splitlines()
    return []


def declared_bounds() -> dict[str, str]:
    """Read the lowest versions this distribution declares; none where calib runs from a source tree."""
    try:
        return lower_bounds(importlib.metadata.requires(DISTRIBUTION) or ())
    except importlib.metadata.PackageNotFoundError:
        return {}


def find_module(name: str) -> bool:
    """Say whether Python finds a top-level module, without importing it."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def run_probe(name: str, *arguments: str, seconds: float = PROBE_SECONDS) -> Probe:
    """Run one probe of :mod:`calib.edges.probe_script` in a process of its own."""
    command = [sys.executable, "-P", probe_script.__file__, name, *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return Probe(found=True, error=f"no answer within {seconds:.0f} s")
    except OSError as error:
        return Probe(found=True, error=f"cannot start a process: {error}")
    return read_probe(done.returncode, done.stdout, done.stderr)


def read_probe(code: int, output: str, log: str) -> Probe:
    """Make a probe's answer of its exit code, marked lines and log.

    A process that died without an answer is an error that names what it was importing.
    """
    marked = [line.partition(probe_script.MARK)[2] for line in output.splitlines() if probe_script.MARK in line]
    answers: list[dict[str, Any]] = [json.loads(line) for line in marked]
    last = answers[-1] if answers else {}
    if "facts" in last or "error" in last:
        return Probe(found=True, facts=last.get("facts", {}), error=last.get("error", ""), log=log)
    doing = f" while importing {last['importing']}" if "importing" in last else ""
    return Probe(found=True, error=f"the interpreter died{doing} (exit code {code})", log=log)


def core_imports(probe: Probe) -> dict[str, str]:
    """Give each core module its import error; when the probe died, each carries that."""
    return {module: str(probe.facts.get(module, probe.error)) for module in CORE.values()}


def find_trtexec() -> tuple[str, str] | None:
    """Find trtexec on PATH or where NVIDIA's packages put it, and what it prints of itself."""
    path = shutil.which("trtexec") or shutil.which("trtexec", path=os.pathsep.join(TRTEXEC_FOLDERS))
    return (path, _output([path, "--help"])[1]) if path else None


def list_gpus(has_cuda_core: bool) -> tuple[tuple[Gpu, ...], str]:
    """List the NVIDIA GPUs through nvidia-smi, else through cuda-core; and why that failed."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return (parse_cuda_core(run_probe("gpus")), "") if has_cuda_core else ((), "")
    for fields in ("name,driver_version,memory.total,compute_cap", "name,driver_version,memory.total"):
        code, text = _output([tool, f"--query-gpu={fields}", "--format=csv,noheader,nounits"])
        if code == 0:
            return parse_nvidia_smi(text), ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (), f"nvidia-smi fails: {lines[0] if lines else f'exit code {code}'}"


def parse_nvidia_smi(text: str) -> tuple[Gpu, ...]:
    """Read ``name, driver, memory in MiB[, compute capability]`` lines; what a GPU does not tell stays empty."""
    gpus = []
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) < 3 or not fields[0]:
            continue
        name, driver, memory, compute = (*fields, "")[:4]
        gpus.append(Gpu(name, driver, int(memory) if memory.isdigit() else None, "" if "[" in compute else compute))
    return tuple(gpus)


def parse_cuda_core(probe: Probe) -> tuple[Gpu, ...]:
    """Read the answer of the ``gpus`` probe; no GPU where it failed, as without a driver."""
    devices: Iterable[Mapping[str, str]] = probe.facts.get("devices", ())
    return tuple(Gpu(each["name"], str(probe.facts["driver"]), None, each["compute"]) for each in devices)


def look_at(role: str, path: Path) -> Folder:
    """Look at the room in a folder and try to write there."""
    try:
        return Folder(role, str(path), shutil.disk_usage(path).free, can_write(path))
    except OSError:
        return Folder(role, str(path), None, False)


def kernel_cache(environment: Mapping[str, str], package: Path) -> Folder:
    """Find where numba keeps the kernels of a package: NUMBA_CACHE_DIR, beside the source, or the user's cache."""
    wanted = environment.get("NUMBA_CACHE_DIR")
    choices = [Path(wanted)] if wanted else [package / "__pycache__", hardware.user_cache(environment) / "numba"]
    found = [path for path in choices if can_write(nearest(path))]
    return Folder("kernel cache", str((found or choices)[0]), None, bool(found))


def nearest(path: Path) -> Path:
    """Find the nearest path that exists, the path itself or one above it."""
    return next((each for each in (path, *path.parents) if each.exists()), path)


def can_write(folder: Path) -> bool:
    """Say whether a file can be made in a folder, by making one."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _probe_if(found: bool, name: str) -> Probe:
    return run_probe(name) if found else Probe(found=False)


def _output(command: list[str]) -> tuple[int, str]:
    """Run a tool; its exit code and what it prints on either stream."""
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=TOOL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 1, f"no answer within {TOOL_SECONDS} s"
    except OSError as error:
        return 1, str(error)
    return done.returncode, done.stdout
