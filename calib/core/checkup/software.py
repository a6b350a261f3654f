"""Check-up of Python and of the packages that carry the main job."""

from __future__ import annotations

from calib.core.checkup.versions import older
from calib.types.machine import Finding, Machine

OLDEST_PYTHON = (3, 11)
CORE = {
    "numpy": "numpy",
    "onnx": "onnx",
    "onnx-ir": "onnx_ir",
    "opencv-python-headless": "cv2",
    "numba": "numba",
    "pyarrow": "pyarrow.parquet",
    "scikit-learn": "sklearn",
    "typer": "typer",
    "rich": "rich",
    "pydantic": "pydantic",
    "msgspec": "msgspec",
    "jinja2": "jinja2",
    "pyyaml": "yaml",
}
"""Distributions the main job stands on, with the module each is imported as."""
OPENCV_BUILDS = ("opencv-python", "opencv-python-headless", "opencv-contrib-python", "opencv-contrib-python-headless")
MODELOPT_NEEDS = ("requests", "huggingface_hub")


def check_python(machine: Machine) -> list[Finding]:
    """Check the interpreter's version and width."""
    version = ".".join(map(str, machine.python))
    if machine.python[:2] < OLDEST_PYTHON:
        remedy = "make a virtual environment with Python 3.11 or newer"
        return [Finding("Python", "python", "problem", f"{version}, but calib needs 3.11", remedy, blocking=True)]
    if machine.bits < 64:
        remedy = "install a 64-bit Python: ONNX Runtime, pyarrow and numba have no 32-bit builds"
        return [Finding("Python", "python", "problem", f"{version}, {machine.bits}-bit", remedy, blocking=True)]
    return [Finding("Python", "python", "ok", version)]


def check_core_packages(machine: Machine) -> list[Finding]:
    """Check that each core package is there, is not too old, and imports."""
    return [_check_package(machine, name, module) for name, module in CORE.items()]


def check_opencv(machine: Machine) -> list[Finding]:
    """Check that only one OpenCV build owns the module ``cv2``."""
    builds = [name for name in OPENCV_BUILDS if name in machine.distributions]
    if len(builds) < 2:
        return []
    return [
        Finding(
            "Packages",
            "cv2",
            "problem",
            f"{' and '.join(builds)} both write the module cv2; which files you get depends on the order of install",
            f"pip uninstall -y {' '.join(builds)} && pip install opencv-python-headless",
        )
    ]


def check_kernel_compiler(machine: Machine) -> list[Finding]:
    """Check that numba may compile: an environment variable can turn it off."""
    if machine.environment.get("NUMBA_DISABLE_JIT", "0") in ("", "0"):
        return []
    detail = "NUMBA_DISABLE_JIT is set: counting runs interpreted, many times slower"
    return [Finding("Packages", "numba compiler", "problem", detail, "unset NUMBA_DISABLE_JIT")]


def check_named_packages(machine: Machine) -> list[Finding]:
    """Check packages people expect beside TensorRT, and say what calib does without them."""
    return [_check_pytorch_quantization(machine), _check_pycuda(machine), _check_modelopt(machine)]


def _check_package(machine: Machine, name: str, module: str) -> Finding:
    version, tested = machine.distributions.get(name), machine.tested.get(name)
    pin = f"{name}=={tested}" if tested else name
    error = machine.imports.get(module, "")
    substitute = name in OPENCV_BUILDS and any(build in machine.distributions for build in OPENCV_BUILDS)
    if version is None and (error or not substitute):
        return Finding("Packages", name, "problem", "not installed", f"pip install {pin}", blocking=True)
    if error:
        detail = f"{version or 'another build'} does not import: {error}"
        return Finding("Packages", name, "problem", detail, f"pip install --force-reinstall {pin}", blocking=True)
    if version is None:
        return Finding("Packages", name, "ok", "another build of OpenCV stands in for it")
    minimum = machine.minimum.get(name)
    if minimum and older(version, minimum):
        detail = f"{version}, but calib needs {minimum}"
        return Finding("Packages", name, "problem", detail, f"pip install {pin}", blocking=True)
    return Finding("Packages", name, "ok", version if tested in (None, version) else f"{version}; tested with {tested}")


def _check_pytorch_quantization(machine: Machine) -> Finding:
    name, why = "pytorch-quantization", "not needed: calib has its own calibrators"
    if "pytorch_quantization" in machine.modules:
        return Finding("Named packages", name, "ok", f"{machine.distributions.get(name, 'installed')}; {why}")
    if name in machine.distributions:
        detail = "the placeholder of PyPI, without the library"
        return Finding("Named packages", name, "problem", detail, f"pip uninstall {name}; {why}")
    return Finding("Named packages", name, "missing", f"{why}; its name on PyPI is a placeholder that does not install")


def _check_pycuda(machine: Machine) -> Finding:
    version = machine.distributions.get("pycuda")
    why = "not needed: calib runs networks on the GPU through ONNX Runtime"
    if version:
        return Finding("Named packages", "pycuda", "ok", f"{version}; {why}")
    return Finding(
        "Named packages", "pycuda", "missing", f"{why}; it is source-only and needs the CUDA toolkit to build"
    )


def _check_modelopt(machine: Machine) -> Finding:
    version = machine.distributions.get("nvidia-modelopt")
    if version is None:
        detail = "not installed; only needed to bring ModelOpt models along"
        return Finding(
            "Named packages", "nvidia-modelopt", "missing", detail, "pip install 'calib-workbench[modelopt]'"
        )
    lacking = [name for name in MODELOPT_NEEDS if name not in machine.modules]
    if lacking:
        detail = f"{version} does not import without {' and '.join(lacking)}, which it does not declare"
        return Finding("Named packages", "nvidia-modelopt", "problem", detail, f"pip install {' '.join(lacking)}")
    return Finding("Named packages", "nvidia-modelopt", "ok", version)
