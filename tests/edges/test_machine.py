"""Probing: of this machine for real, and of others by their tools' and files' texts."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import pytest

from calib.core.checkup.software import CORE
from calib.edges import hardware, machine
from calib.edges.probe_script import MARK
from calib.types.machine import Gpu, Probe

CPUINFO = "processor\t: 0\nmodel name\t: Xeon\nflags\t\t: fpu avx2 avx512_vnni\n\nprocessor\t: 1\nflags\t: other\n"


def fake_tool(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH but the system's own tools."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/bin")
    monkeypatch.setattr(machine, "TRTEXEC_FOLDERS", (str(folder / "no"),))
    return folder


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_this_machine_is_probed_whole() -> None:
    found = machine.probe_machine()
    assert found.python == sys.version_info[:3]
    assert found.imports == dict.fromkeys(CORE.values(), "")
    assert found.runtime.error == ""
    assert "CPUExecutionProvider" in found.runtime.facts["available"]
    assert found.distributions["numpy"] == importlib.metadata.version("numpy")
    assert found.memory.total > 0
    assert 1 <= found.cpu.usable <= found.cpu.cores
    assert [folder.role for folder in found.folders] == ["temporary", "current"]
    assert all(folder.writable and folder.free for folder in found.folders)
    assert set(CORE) <= set(found.tested)


def test_a_library_that_is_not_there_is_told_by_a_probe() -> None:
    assert machine.run_probe("core", "no_such_library").facts == {
        "no_such_library": "ModuleNotFoundError: No module named 'no_such_library'"
    }


def test_a_library_that_kills_the_interpreter_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deadly.py").write_text("import os\nos.abort()\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    probe = machine.run_probe("core", "json", "deadly", "numpy")
    assert probe.error.startswith("the interpreter died while importing deadly")
    assert machine.core_imports(probe)["numpy"] == probe.error


def test_a_library_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(600)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert machine.run_probe("core", "slow", seconds=1).error == "no answer within 1 s"


def test_an_empty_namespace_package_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tensorrt").mkdir()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert machine.run_probe("tensorrt").facts == {"namespace": True}


@pytest.mark.parametrize(
    ("version", "extra", "calibrates"),
    [("10.14.1", "class IInt8EntropyCalibrator2: ...", True), ("11.4.0", "", False)],
)
def test_a_tensorrt_package_tells_whether_it_calibrates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, extra: str, calibrates: bool
) -> None:
    (tmp_path / "tensorrt.py").write_text(f"__version__ = {version!r}\n{extra}\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert machine.run_probe("tensorrt").facts == {"version": version, "calibrators": calibrates}


def test_a_gutted_runtime_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "onnxruntime").mkdir()
    (tmp_path / "onnxruntime" / "__init__.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert "get_available_providers" in machine.run_probe("onnxruntime").error


def test_noise_before_the_answer_is_passed_over_and_its_log_kept() -> None:
    output = f'banner\n{MARK}{{"importing": "x"}}\nwarning {MARK}{{"facts": {{"x": ""}}}}\n'
    assert machine.read_probe(0, output, "flood") == Probe(True, {"x": ""}, "", "flood")
    assert machine.read_probe(-11, "banner", "").error == "the interpreter died (exit code -11)"


def test_gpus_are_listed_by_nvidia_smi(tools: Path) -> None:
    fake_tool(
        tools, "nvidia-smi", "echo 'NVIDIA H200, 580.95.05, 143771, 9.0'; echo 'Orin (nvgpu), 540.4.0, [N/A], [N/A]'"
    )
    assert machine.list_gpus(False) == (
        (Gpu("NVIDIA H200", "580.95.05", 143771, "9.0"), Gpu("Orin (nvgpu)", "540.4.0", None, "")),
        "",
    )


def test_an_old_nvidia_smi_is_asked_for_less(tools: Path) -> None:
    script = "case $1 in *compute_cap*) echo 'Field \"compute_cap\" is not a valid field to query.'; exit 2;; esac"
    fake_tool(tools, "nvidia-smi", f"{script}\necho 'Tesla T4, 440.33, 15109'")
    assert machine.list_gpus(False) == ((Gpu("Tesla T4", "440.33", 15109, ""),), "")


def test_a_driver_out_of_step_is_told(tools: Path) -> None:
    fake_tool(tools, "nvidia-smi", "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18")
    gpus, error = machine.list_gpus(False)
    assert (gpus, error) == ((), "nvidia-smi fails: Failed to initialize NVML: Driver/library version mismatch")


def test_no_tool_and_no_library_is_no_gpu(tools: Path) -> None:
    assert tools.is_dir()
    assert machine.list_gpus(False) == ((), "")


def test_cuda_core_is_the_second_source() -> None:
    probe = Probe(True, {"driver": "580.95.05", "devices": [{"name": "NVIDIA H200", "compute": "9.0"}]})
    assert machine.parse_cuda_core(probe) == (Gpu("NVIDIA H200", "580.95.05", None, "9.0"),)
    assert machine.parse_cuda_core(Probe(True, {}, "DynamicLibNotFoundError")) == ()


def test_trtexec_is_found_on_path_and_asked(tools: Path) -> None:
    assert machine.find_trtexec() is None
    fake_tool(tools, "trtexec", "echo '&&&& RUNNING TensorRT.trtexec [TensorRT v101401]'")
    assert machine.find_trtexec() == (
        str(tools / "trtexec"),
        "&&&& RUNNING TensorRT.trtexec [TensorRT v101401]\n",
    )


def test_trtexec_is_found_where_the_packages_of_nvidia_put_it(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = tools / "hidden"
    hidden.mkdir()
    fake_tool(hidden, "trtexec", "exit 1")
    monkeypatch.setattr(machine, "TRTEXEC_FOLDERS", (str(hidden),))
    assert machine.find_trtexec() == (str(hidden / "trtexec"), "")


def test_processor_text_of_x86_and_arm_is_read() -> None:
    assert hardware.parse_cpuinfo(CPUINFO) == ("Xeon", frozenset({"fpu", "avx2", "avx512_vnni"}))
    assert hardware.parse_cpuinfo("Features\t: fp asimd asimddp\n") == ("", frozenset({"fp", "asimd", "asimddp"}))
    assert hardware.parse_cpuinfo("Processor : unknown\n") == ("", None)


def test_sysctl_of_both_kinds_of_mac_is_read() -> None:
    intel = "machdep.cpu.brand_string: Intel i7\nmachdep.cpu.features: FPU SSE4.2\nmachdep.cpu.leaf7_features: AVX2\n"
    apple = "machdep.cpu.brand_string: Apple M3\nhw.optional.arm.FEAT_DotProd: 1\nhw.optional.arm.FEAT_I8MM: 0\n"
    assert hardware.parse_sysctl(intel) == ("Intel i7", frozenset({"fpu", "sse4.2", "avx2"}))
    assert hardware.parse_sysctl(apple) == ("Apple M3", frozenset({"asimddp"}))
    assert hardware.parse_sysctl("") == ("", None)


def test_memory_and_the_limits_of_a_container_are_read(tmp_path: Path) -> None:
    write(tmp_path, "proc/meminfo", "MemTotal:       2048 kB\nMemAvailable:    512 kB\nHugePages_Total:  7\n")
    assert hardware.read_memory(tmp_path) == hardware.Memory(2048 * 1024, 512 * 1024, None)
    write(tmp_path, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    assert hardware.cgroup_memory(tmp_path) is None
    write(tmp_path, "sys/fs/cgroup/memory.max", "1048576\n")
    assert hardware.cgroup_memory(tmp_path) == 1048576
    write(tmp_path, "sys/fs/cgroup/memory.max", "max\n")
    assert hardware.cgroup_memory(tmp_path) is None


@pytest.mark.parametrize(("text", "cores"), [("150000 100000", 1.5), ("max 100000", None), ("", None)])
def test_the_processor_quota_of_a_container_is_read(tmp_path: Path, text: str, cores: float | None) -> None:
    write(tmp_path, "sys/fs/cgroup/cpu.max", text)
    assert hardware.cgroup_cores(tmp_path) == cores


def test_the_older_spelling_of_the_quota_is_read(tmp_path: Path) -> None:
    write(tmp_path, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n")
    write(tmp_path, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n")
    assert hardware.cgroup_cores(tmp_path) is None
    write(tmp_path, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000\n")
    assert hardware.cgroup_cores(tmp_path) == 4.0


def test_a_folder_that_is_not_there_or_a_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert machine.look_at("temporary", tmp_path).writable
    assert not machine.look_at("temporary", tmp_path / "none").writable
    assert not machine.look_at("temporary", tmp_path / "file").writable
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_kernels_are_kept_beside_the_source_or_in_the_users_cache(tmp_path: Path) -> None:
    package = tmp_path / "core"
    package.mkdir()
    home = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert machine.kernel_cache(home, package).path == str(package / "__pycache__")
    wanted = machine.kernel_cache({"NUMBA_CACHE_DIR": str(tmp_path / "kept")}, package)
    assert (wanted.path, wanted.writable) == (str(tmp_path / "kept"), True)


def test_a_file_where_the_kernel_cache_should_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    found = machine.kernel_cache({"NUMBA_CACHE_DIR": str(tmp_path / "file")}, tmp_path)
    assert not found.writable
