"""Check-up of what runs networks: ONNX Runtime, TensorRT, PyTorch, the GPU."""

from __future__ import annotations

import re

from calib.core.checkup.versions import release, trt_release
from calib.types.machine import Finding, Gpu, Machine, Probe

RUNTIME_BUILD = re.compile(r"(onnxruntime|ort-nightly)(-(?!extensions|genai|tools|web)[a-z0-9]+)*")
TENSORRT_BUILDS = ("tensorrt", "tensorrt-cu12", "tensorrt-cu13", "tensorrt-lean", "tensorrt-dispatch")
LIBRARY = re.compile(r"(lib[\w.+-]+\.so[\w.]*): cannot open shared object file")
CUDA, TRT = "CUDAExecutionProvider", "TensorrtExecutionProvider"
CPU_PIN = "pip install 'calib-workbench[cpu]'"
GPU_PIN = "pip uninstall -y onnxruntime && pip install 'calib-workbench[gpu]'"
CUDA_LIBRARIES = "pip install 'onnxruntime-gpu[cuda,cudnn]', or install the CUDA and cuDNN releases it was built for"
TENSORRT_PIN = "pip install tensorrt, or 'tensorrt<11' for calibration caches"
ONLY_QDQ = "takes Q/DQ ONNX only; calibration caches are for TensorRT 10 and older"
BOTH = "takes calibration caches and Q/DQ ONNX"


def check_runtime(machine: Machine) -> list[Finding]:
    """Check ONNX Runtime: present, alone, importing; then each of its NVIDIA providers."""
    builds = sorted(name for name in machine.distributions if RUNTIME_BUILD.fullmatch(name))
    found = [_check_runtime_import(machine, builds)]
    if len(builds) > 1:
        found.append(_shadowing(builds))
    if machine.runtime.facts:
        found += _check_providers(machine)
    return found


def check_gpu(machine: Machine) -> list[Finding]:
    """Check the NVIDIA GPUs."""
    if machine.gpu_error:
        remedy = "load or reinstall the NVIDIA driver, then restart the machine; calib runs on the CPU meanwhile"
        return [Finding("GPU", "NVIDIA GPU", "problem", machine.gpu_error, remedy)]
    if not machine.gpus:
        return [Finding("GPU", "NVIDIA GPU", "missing", "none found; calib runs on the CPU")]
    return [Finding("GPU", f"GPU {number}", "ok", _gpu_line(gpu)) for number, gpu in enumerate(machine.gpus)]


def check_tensorrt(machine: Machine) -> list[Finding]:
    """Check TensorRT's Python package and trtexec, and say what their versions can read."""
    return [_check_tensorrt_package(machine), _check_trtexec(machine)]


def check_torch(machine: Machine) -> list[Finding]:
    """Check PyTorch and whether it sees a GPU."""
    probe = machine.torch
    if not probe.found:
        detail = "not installed; only needed for quantization-aware training"
        return [Finding("Runtimes", "torch", "missing", detail, "pip install 'calib-workbench[qat]'")]
    if probe.error:
        detail = f"does not import: {probe.error}"
        return [Finding("Runtimes", "torch", "problem", detail, "pip install --force-reinstall torch")]
    built_for, usable = probe.facts["cuda"], probe.facts["available"]
    detail = f"{probe.facts['version']}, {'uses the GPU' if usable else 'on the CPU'}"
    if machine.gpus and not usable:
        remedy = (
            "install the build for your CUDA release" if not built_for else "bring the driver up to that CUDA release"
        )
        kind = f"built for CUDA {built_for}, which it cannot use" if built_for else "a CPU build"
        return [Finding("Runtimes", "torch", "problem", f"{detail}: {kind}", remedy)]
    return [Finding("Runtimes", "torch", "ok", detail)]


def _check_runtime_import(machine: Machine, builds: list[str]) -> Finding:
    probe = machine.runtime
    if not probe.found:
        return Finding("Runtimes", "onnxruntime", "problem", "not installed", CPU_PIN, blocking=True)
    if probe.error:
        again = " ".join(builds) or "onnxruntime"
        remedy = f"pip uninstall -y {again} && {CPU_PIN}"
        return Finding("Runtimes", "onnxruntime", "problem", f"does not work: {probe.error}", remedy, blocking=True)
    tested = machine.tested.get("onnxruntime")
    version = str(probe.facts["version"])
    note = "" if tested in (None, version) else f"; tested with {tested}"
    return Finding("Runtimes", builds[0] if len(builds) == 1 else "onnxruntime", "ok", f"{version}{note}")


def _shadowing(builds: list[str]) -> Finding:
    wanted = next((name for name in builds if "gpu" in name), builds[0])
    return Finding(
        "Runtimes",
        "onnxruntime builds",
        "problem",
        f"{', '.join(builds)} all write the module onnxruntime; the one installed last wins, often the CPU build",
        f"pip uninstall -y {' '.join(builds)} && pip install {wanted}",
    )


def _check_providers(machine: Machine) -> list[Finding]:
    available = machine.runtime.facts["available"]
    if CUDA not in available:
        if not machine.gpus:
            return [Finding("Runtimes", "CUDA provider", "missing", "not in this build; --provider cpu works")]
        return [Finding("Runtimes", "CUDA provider", "problem", "there is a GPU, but not in this build", GPU_PIN)]
    return [_check_provider(machine, name) for name in (CUDA, TRT) if name in available]


def _check_provider(machine: Machine, provider: str) -> Finding:
    name = "CUDA provider" if provider == CUDA else "TensorRT provider"
    loaded = machine.runtime.facts["loaded"].get(provider, "not tried")
    if loaded == "":
        return Finding("Runtimes", name, "ok", "loads and runs a network")
    library = _missing_library(provider, machine.runtime.log + loaded)
    reason = f"does not load: {library} is not found" if library else f"does not load: {loaded}"
    if not machine.gpus:
        return Finding("Runtimes", name, "missing", f"{reason}; there is no GPU to use it on")
    if provider == TRT:
        return Finding("Runtimes", name, "missing", reason, "install the TensorRT release that it was built for")
    return Finding("Runtimes", name, "problem", reason, CUDA_LIBRARIES)


def _missing_library(provider: str, log: str) -> str:
    """Find in ONNX Runtime's log the library that a provider lacks: in the line about it, else in any."""
    plugin = "cuda" if provider == CUDA else "tensorrt"
    own = re.search(rf"libonnxruntime_providers_{plugin}\.so.*?{LIBRARY.pattern}", log)
    found = own or LIBRARY.search(log)
    return found[1] if found else ""


def _gpu_line(gpu: Gpu) -> str:
    memory = f", {gpu.memory_mib / 1024:.0f} GiB" if gpu.memory_mib else ""
    compute = f", compute capability {gpu.compute}" if gpu.compute else ""
    return f"{gpu.name}{memory}{compute}, driver {gpu.driver or 'unknown'}"


def _check_tensorrt_package(machine: Machine) -> Finding:
    probe, name = machine.tensorrt, "tensorrt"
    without = "engines are built elsewhere: `calib build` writes what TensorRT reads"
    if not probe.found:
        return Finding("TensorRT", name, "missing", f"not installed; {without}", TENSORRT_PIN if machine.gpus else "")
    if probe.facts.get("namespace"):
        owner = "tensorrt-stubs leaves it" if "tensorrt-stubs" in machine.distributions else "a folder of that name"
        remedy = "pip uninstall tensorrt-stubs" if "tensorrt-stubs" in machine.distributions else "remove that folder"
        detail = f"an empty module without the library ({owner}); code that only tries the import is misled"
        return Finding("TensorRT", name, "problem", detail, remedy)
    if probe.error:
        return Finding("TensorRT", name, "problem", f"does not import: {probe.error}", _tensorrt_remedy(machine, probe))
    version = str(probe.facts["version"])
    calibrates = probe.facts.get("calibrators", release(version) < (11,))
    return Finding("TensorRT", name, "ok", f"{version}; {BOTH if calibrates else ONLY_QDQ}")


def _tensorrt_remedy(machine: Machine, probe: Probe) -> str:
    installed = [name for name in TENSORRT_BUILDS if name in machine.distributions]
    library = LIBRARY.search(probe.error + probe.log)
    if library:
        return f"install what provides {library[1]}, or add its folder to LD_LIBRARY_PATH"
    return f"pip install --force-reinstall {installed[0] if installed else 'tensorrt'}"


def _check_trtexec(machine: Machine) -> Finding:
    if machine.trtexec is None:
        return Finding("TensorRT", "trtexec", "missing", "not found; it comes with TensorRT's packages, not with pip's")
    path, text = machine.trtexec
    matched = re.search(r"TensorRT[ .]v(\d+)", text)
    if not matched:
        return Finding(
            "TensorRT", "trtexec", "problem", f"{path} does not tell its version", "run it by hand to see why"
        )
    version = trt_release(int(matched[1]))
    return Finding(
        "TensorRT", "trtexec", "ok", f"{version} at {path}; {BOTH if release(version) < (11,) else ONLY_QDQ}"
    )
