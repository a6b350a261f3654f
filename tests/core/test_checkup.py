"""The check-up on machines made up for it: each trap is found, blocks only what it must, and has a remedy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from calib.core.checkup.software import CORE
from calib.core.checkup.versions import lower_bounds, normalise, older, pinned, release, trt_release
from calib.jobs.doctor import check_up
from calib.types.machine import Cpu, Finding, Folder, Gpu, Machine, Memory, Probe

GIB = 1 << 30
TESTED = dict.fromkeys(CORE, "2.0")
H200 = Gpu("NVIDIA H200", "580.95.05", 143771, "9.0")
CUDA, TRT = "CUDAExecutionProvider", "TensorrtExecutionProvider"
HEALTHY = Machine(
    system="Linux",
    python=(3, 11, 7),
    bits=64,
    distributions={**TESTED, "onnxruntime": "1.32.0"},
    tested={**TESTED, "onnxruntime": "1.32.0"},
    minimum=dict.fromkeys(CORE, "1.5"),
    modules=frozenset({"onnxruntime"}),
    imports=dict.fromkeys(CORE.values(), ""),
    runtime=Probe(True, {"version": "1.32.0", "available": ["CPUExecutionProvider"], "loaded": {}}),
    tensorrt=Probe(False),
    torch=Probe(False),
    trtexec=None,
    gpus=(),
    gpu_error="",
    cpu=Cpu("x86_64", "Xeon", frozenset({"avx2", "avx512_vnni"}), 2, 2),
    memory=Memory(24 * GIB, 20 * GIB, None),
    folders=(Folder("temporary", "/tmp", 50 * GIB, True), Folder("current", "/data", 50 * GIB, True)),
    kernel_cache=Folder("kernel cache", "/lib/__pycache__", None, True),
)


def with_distributions(*, drop: str = "", **added: str) -> Machine:
    kept = {name: version for name, version in HEALTHY.distributions.items() if name != drop}
    return replace(HEALTHY, distributions=kept | {name.replace("_", "-"): value for name, value in added.items()})


def with_runtime(gpus: tuple[Gpu, ...] = (H200,), log: str = "", **loaded: str) -> Machine:
    names = {"cuda": CUDA, "trt": TRT}
    tried = {names[key]: value for key, value in loaded.items()}
    facts = {"version": "1.32.0", "available": [*tried, "CPUExecutionProvider"], "loaded": tried}
    return replace(HEALTHY, gpus=gpus, runtime=Probe(True, facts, "", log))


def finding(machine: Machine, name: str) -> Finding:
    (found,) = [each for each in check_up(machine).findings if each.name == name]
    return found


def problems(machine: Machine) -> dict[str, bool]:
    """Name to blocking of every problem."""
    return {each.name: each.blocking for each in check_up(machine).findings if each.status == "problem"}


def test_a_healthy_machine_has_no_problem_and_can_run_the_main_job() -> None:
    assert problems(HEALTHY) == {}
    assert check_up(HEALTHY).usable


CASES: list[tuple[str, Machine, str, bool, str]] = [
    ("old python", replace(HEALTHY, python=(3, 10, 4)), "python", True, "3.11"),
    ("32 bits", replace(HEALTHY, bits=32), "python", True, "64-bit"),
    ("no numpy", with_distributions(drop="numpy"), "numpy", True, "pip install numpy==2.0"),
    ("old onnx", with_distributions(onnx="1.4.9"), "onnx", True, "pip install onnx==2.0"),
    (
        "broken numba",
        replace(HEALTHY, imports=HEALTHY.imports | {"numba": "ImportError: Numba needs NumPy 2.4 or less"}),
        "numba",
        True,
        "--force-reinstall numba==2.0",
    ),
    (
        "two OpenCV builds",
        with_distributions(opencv_python="5.0"),
        "cv2",
        False,
        "pip uninstall -y opencv-python opencv-python-headless && pip install opencv-python-headless",
    ),
    ("no compiler", replace(HEALTHY, environment={"NUMBA_DISABLE_JIT": "1"}), "numba compiler", False, "unset"),
    ("no runtime", replace(HEALTHY, runtime=Probe(False)), "onnxruntime", True, "calib-workbench[cpu]"),
    (
        "runtime gutted by an uninstall",
        replace(HEALTHY, runtime=Probe(True, {}, "AttributeError: module has no attribute 'InferenceSession'")),
        "onnxruntime",
        True,
        "pip uninstall -y onnxruntime &&",
    ),
    (
        "two runtimes",
        with_distributions(onnxruntime_gpu="1.31.1"),
        "onnxruntime builds",
        False,
        "pip uninstall -y onnxruntime onnxruntime-gpu && pip install onnxruntime-gpu",
    ),
    ("CPU build beside a GPU", replace(HEALTHY, gpus=(H200,)), "CUDA provider", False, "calib-workbench[gpu]"),
    (
        "CUDA libraries missing",
        with_runtime(log="Error: libcudnn.so.9: cannot open shared object file: No such file", cuda="fell back"),
        "CUDA provider",
        False,
        "onnxruntime-gpu[cuda,cudnn]",
    ),
    (
        "driver out of step",
        replace(HEALTHY, gpu_error="nvidia-smi fails: Failed to initialize NVML: Driver/library version mismatch"),
        "NVIDIA GPU",
        False,
        "driver",
    ),
    (
        "tensorrt-stubs",
        replace(with_distributions(tensorrt_stubs="10.13.0.35"), tensorrt=Probe(True, {"namespace": True})),
        "tensorrt",
        False,
        "pip uninstall tensorrt-stubs",
    ),
    (
        "a folder called tensorrt",
        replace(HEALTHY, tensorrt=Probe(True, {"namespace": True})),
        "tensorrt",
        False,
        "remove that folder",
    ),
    (
        "TensorRT without its libraries",
        replace(HEALTHY, tensorrt=Probe(True, {}, "ImportError: libnvinfer.so.10: cannot open shared object file")),
        "tensorrt",
        False,
        "libnvinfer.so.10",
    ),
    ("trtexec that does not run", replace(HEALTHY, trtexec=("/opt/trtexec", "not found")), "trtexec", False, "by hand"),
    (
        "torch for the CPU beside a GPU",
        replace(HEALTHY, gpus=(H200,), torch=Probe(True, {"version": "2.13.0+cpu", "cuda": None, "available": False})),
        "torch",
        False,
        "build for your CUDA",
    ),
    (
        "torch broken",
        replace(HEALTHY, torch=Probe(True, {}, "OSError: libtorch.so")),
        "torch",
        False,
        "reinstall torch",
    ),
    (
        "placeholder",
        with_distributions(pytorch_quantization="2.2.1"),
        "pytorch-quantization",
        False,
        "pip uninstall pytorch-quantization",
    ),
    (
        "modelopt without what it imports",
        with_distributions(nvidia_modelopt="0.47.0"),
        "nvidia-modelopt",
        False,
        "pip install requests huggingface_hub",
    ),
    (
        "no VNNI",
        replace(HEALTHY, cpu=Cpu("x86_64", "", frozenset({"avx2"}), 4, 4)),
        "instruction sets",
        False,
        "session.x64quantprecision=1",
    ),
    ("little memory", replace(HEALTHY, memory=Memory(24 * GIB, GIB, None)), "memory", False, "--workers"),
    ("a small container", replace(HEALTHY, memory=Memory(64 * GIB, 50 * GIB, GIB)), "memory", False, "--workers"),
    (
        "no temporary folder",
        replace(HEALTHY, folders=(Folder("temporary", "/tmp", None, False),)),
        "temporary folder",
        True,
        "TMPDIR",
    ),
    (
        "read-only current folder",
        replace(HEALTHY, folders=(Folder("current", "/mnt", 50 * GIB, False),)),
        "current folder",
        False,
        "-o",
    ),
    (
        "full disk",
        replace(HEALTHY, folders=(Folder("temporary", "/tmp", 1000, True),)),
        "temporary folder",
        False,
        "free some space",
    ),
    (
        "no kernel cache",
        replace(HEALTHY, kernel_cache=Folder("kernel cache", "/lib", None, False)),
        "kernel cache",
        True,
        "NUMBA_CACHE_DIR",
    ),
]


@pytest.mark.parametrize(
    ("machine", "name", "blocking", "remedy"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_a_trap_is_found_with_its_remedy(machine: Machine, name: str, blocking: bool, remedy: str) -> None:
    assert problems(machine).get(name) is blocking
    assert remedy in finding(machine, name).remedy
    assert check_up(machine).usable is not blocking


def test_every_problem_has_a_remedy() -> None:
    found = [each for _, machine, *_ in CASES for each in check_up(machine).findings if each.status == "problem"]
    assert len(found) >= len(CASES)
    assert all(each.remedy for each in found)


def test_another_build_of_opencv_stands_in() -> None:
    machine = with_distributions(drop="opencv-python-headless", opencv_contrib_python="5.0")
    assert problems(machine) == {}


def test_an_untested_version_is_told_and_no_problem() -> None:
    found = finding(with_distributions(numpy="2.7"), "numpy")
    assert (found.status, found.detail) == ("ok", "2.7; tested with 2.0")


def test_a_source_tree_without_metadata_has_no_bounds_to_fail() -> None:
    assert problems(replace(with_distributions(onnx="0.1"), minimum={})) == {}


def test_runtime_add_ons_are_not_builds_of_the_runtime() -> None:
    assert problems(with_distributions(onnxruntime_extensions="0.15", onnxruntime_genai_cuda="0.9")) == {}


@pytest.mark.parametrize("other", ["onnxruntime-openvino", "onnxruntime-directml", "ort-nightly-gpu", "ort-nightly"])
def test_every_other_build_of_the_runtime_shadows(other: str) -> None:
    machine = replace(HEALTHY, distributions={**HEALTHY.distributions, other: "1.30"})
    assert "onnxruntime builds" in problems(machine)


def test_providers_that_run_a_network_are_ok() -> None:
    machine = with_runtime(cuda="", trt="")
    assert finding(machine, "CUDA provider").status == "ok"
    assert finding(machine, "TensorRT provider").status == "ok"


def test_a_gpu_build_without_a_gpu_is_no_problem() -> None:
    machine = with_runtime(gpus=(), log="libcuda.so.1: cannot open shared object file", cuda="fell back")
    found = finding(machine, "CUDA provider")
    assert (found.status, "libcuda.so.1" in found.detail) == ("missing", True)


# As onnxruntime-gpu 1.31.1 says it where CUDA is not installed, shortened.
REAL_LOG = """\
Failed to load library /x/capi/libonnxruntime_providers_cuda.so with error: libcublasLt.so.13: cannot open shared object file: No such file or directory
Failed to create CUDAExecutionProvider. Require cuDNN 9.* and CUDA 13.*.
Failed to load library /x/capi/libonnxruntime_providers_tensorrt.so with error: libnvinfer.so.10: cannot open shared object file: No such file or directory
"""  # noqa: E501


def test_the_library_that_keeps_each_provider_from_loading_is_named() -> None:
    machine = with_runtime(log=REAL_LOG, cuda="fell back", trt="fell back")
    assert "libcublasLt.so.13 is not found" in finding(machine, "CUDA provider").detail
    assert "libnvinfer.so.10 is not found" in finding(machine, "TensorRT provider").detail


@pytest.mark.parametrize(
    ("facts", "meaning"),
    [
        ({"version": "10.16.1.11", "calibrators": True}, "takes calibration caches and Q/DQ ONNX"),
        ({"version": "8.6.1", "calibrators": True}, "takes calibration caches and Q/DQ ONNX"),
        ({"version": "11.4.0.106", "calibrators": False}, "takes Q/DQ ONNX only"),
    ],
)
def test_what_a_tensorrt_release_reads(facts: dict[str, Any], meaning: str) -> None:
    found = finding(replace(HEALTHY, tensorrt=Probe(True, facts)), "tensorrt")
    assert found.status == "ok"
    assert found.detail.startswith(f"{facts['version']}; {meaning}")


@pytest.mark.parametrize(
    ("line", "version", "meaning"),
    [
        ("&&&& RUNNING TensorRT.trtexec [TensorRT v8601] # trtexec --help", "8.6.1", "caches and Q/DQ"),
        ("&&&& RUNNING TensorRT.trtexec [TensorRT v101401] [b48] # trtexec", "10.14.1", "caches and Q/DQ"),
        ("&&&& RUNNING TensorRT.trtexec [TensorRT v110400] [b1] # trtexec", "11.4.0", "Q/DQ ONNX only"),
    ],
)
def test_what_a_trtexec_reads(line: str, version: str, meaning: str) -> None:
    found = finding(replace(HEALTHY, trtexec=("/usr/src/tensorrt/bin/trtexec", line)), "trtexec")
    assert found.detail.startswith(f"{version} at /usr/src/tensorrt/bin/trtexec")
    assert meaning in found.detail


def test_a_gpu_is_shown_with_its_memory_and_driver() -> None:
    assert finding(with_runtime(cuda=""), "GPU 0").detail == (
        "NVIDIA H200, 140 GiB, compute capability 9.0, driver 580.95.05"
    )


def test_arm_and_silent_systems_have_no_saturation_to_warn_of() -> None:
    arm = replace(HEALTHY, cpu=Cpu("aarch64", "", frozenset({"asimd"}), 4, 4))
    silent = replace(HEALTHY, cpu=Cpu("AMD64", "", None, 4, 4))
    assert finding(arm, "instruction sets").status == "ok"
    assert finding(silent, "instruction sets").status == "missing"


def test_cores_a_container_withholds_are_told() -> None:
    machine = replace(HEALTHY, cpu=Cpu("x86_64", "Xeon", frozenset({"avx_vnni"}), 64, 2))
    assert finding(machine, "cores").detail == "64 of Xeon; 2 usable by this process"


def test_release_numbers_are_read_and_compared() -> None:
    assert release("2.13.0+cpu") == (2, 13, 0)
    assert release("1.0rc1") == (1, 0)
    assert release("unknown") == ()
    assert older("1.9", "1.17")
    assert not older("2.0.0", "2.0")
    assert not older("2.0", "2.0.0")
    assert older("unknown", "0.1")


@pytest.mark.parametrize(("number", "text"), [(8601, "8.6.1"), (7203, "7.2.3"), (9100, "9.1.0"), (101401, "10.14.1")])
def test_tensorrt_numbers_are_spelt(number: int, text: str) -> None:
    assert trt_release(number) == text


def test_pins_and_bounds_are_read() -> None:
    lines = [
        "# tested",
        "numpy==2.4.6   # newest",
        "",
        "PyYAML == 6.0.4",
        "pytest>=8",
        "onnx_ir==1.1.0 ; python_version>'3'",
    ]
    assert pinned(lines) == {"numpy": "2.4.6", "pyyaml": "6.0.4", "onnx-ir": "1.1.0"}
    requirements = ["numpy>=2.0", "onnxruntime>=1.23; extra == 'cpu'", "cuda-core[cu13]>=1.0", "x<2,>=1.5", "plain"]
    assert lower_bounds(requirements) == {"numpy": "2.0", "cuda-core": "1.0", "x": "1.5"}
    assert normalise("Onnx_IR.x--y") == "onnx-ir-x-y"
