"""Import one library in a process of its own and print what it says of itself as one JSON line.

Run by path, ``python -P probe_script.py NAME…``, and so importing nothing of calib: a library that crashes the
interpreter, prints a flood or takes the GPU does so here and not in the process that asks.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

MARK = "calib-probe:"
NVIDIA_PROVIDERS = ("CUDAExecutionProvider", "TensorrtExecutionProvider")


def probe_core(names: list[str]) -> dict[str, str]:
    """Import each module; its error, or an empty text. The name is told first, in case the interpreter dies of it."""
    errors = {}
    for name in names:
        say({"importing": name})
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 - whatever a broken library raises is the finding
            errors[name] = last_line(error)
        else:
            errors[name] = compile_kernel() if name == "numba" else ""
    return errors


def compile_kernel() -> str:
    """Compile and run a tiny kernel; its error, or an empty text."""
    import numba

    compile_function: Any = numba.njit
    try:
        return "" if compile_function(add_one)(1) == 2 else "a compiled kernel answers wrongly"
    except Exception as error:  # noqa: BLE001 - as above
        return last_line(error)


def add_one(value: int) -> int:
    """Add one; compiled by :func:`compile_kernel`."""
    return value + 1


def probe_onnxruntime() -> dict[str, Any]:
    """Tell the version and providers, and which NVIDIA provider really runs a network (empty text: it does)."""
    import onnxruntime

    available = onnxruntime.get_available_providers()
    if hasattr(onnxruntime, "preload_dlls") and NVIDIA_PROVIDERS[0] in available:
        onnxruntime.preload_dlls()
    loaded = {name: run_network(onnxruntime, name) for name in NVIDIA_PROVIDERS if name in available}
    return {"version": onnxruntime.__version__, "available": available, "loaded": loaded}


def run_network(onnxruntime: Any, provider: str) -> str:
    """Run a network of one node on a provider; why it did not run there, or an empty text."""
    import numpy as np
    from onnx import TensorProto, helper

    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "probe", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=[provider])
        session.run(None, {"x": np.zeros(2, np.float32)})
    except Exception as error:  # noqa: BLE001 - as above
        return last_line(error)
    return "" if provider in session.get_providers() else "ONNX Runtime fell back to the CPU"


def probe_tensorrt() -> dict[str, Any]:
    """Tell the version, and whether it still calibrates."""
    import tensorrt

    if getattr(tensorrt, "__file__", None) is None:
        return {"namespace": True}
    return {"version": tensorrt.__version__, "calibrators": hasattr(tensorrt, "IInt8EntropyCalibrator2")}


def probe_torch() -> dict[str, Any]:
    """Tell the version, the CUDA release it was built for, and whether it can use a GPU."""
    import torch

    return {"version": torch.__version__, "cuda": torch.version.cuda, "available": torch.cuda.is_available()}


def probe_gpus() -> dict[str, Any]:
    """List the GPUs that cuda-core sees, where there is no nvidia-smi."""
    from cuda.core import Device, system

    devices = [
        {"name": device.name, "compute": ".".join(map(str, device.compute_capability))}
        for device in Device.get_all_devices()
    ]
    driver = system.get_kernel_mode_driver_version()
    return {"driver": driver if isinstance(driver, str) else ".".join(map(str, driver)), "devices": devices}


def last_line(error: BaseException) -> str:
    """Shorten an error to its kind and the last line of its text."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1]}"[:300] if lines else type(error).__name__


def say(document: dict[str, Any]) -> None:
    """Print one marked line."""
    print(MARK + json.dumps(document), flush=True)  # noqa: T201


def main(arguments: list[str]) -> None:
    """Run the probe that the first argument names; the others are its own."""
    name, *rest = arguments
    probes = {
        "onnxruntime": probe_onnxruntime,
        "tensorrt": probe_tensorrt,
        "torch": probe_torch,
        "gpus": probe_gpus,
    }
    try:
        say({"facts": probe_core(rest) if name == "core" else probes[name]()})
    except Exception as error:  # noqa: BLE001 - as above
        say({"error": last_line(error)})


if __name__ == "__main__":
    main(sys.argv[1:])
