"""TensorRT 10 and 11 as test doubles, and the installed one where there is one."""

from __future__ import annotations

import importlib.util
import sys
from types import SimpleNamespace

import pytest

from tests.trt.double import HostMemory, make_tensorrt

DOUBLES = {10: "10.14.1.48", 11: "11.1.0.106"}


def installed_major() -> int | None:
    """Major version of the installed TensorRT, where it and a GPU can be used; else None."""
    if importlib.util.find_spec("tensorrt") is None:
        return None
    import tensorrt

    return int(tensorrt.__version__.partition(".")[0])


@pytest.fixture(params=["double", pytest.param("installed", marks=pytest.mark.tensorrt)])
def provide(request, monkeypatch):
    """Function of a major version that answers with TensorRT's module and device memory, or skips."""

    def provided(major):
        if request.param == "double":
            module = make_tensorrt(DOUBLES[major])
            monkeypatch.setitem(sys.modules, "tensorrt", module)
            return SimpleNamespace(
                module=module, memory=HostMemory(), double=True, version=".".join(DOUBLES[major].split(".")[:3])
            )
        if installed_major() != major:
            pytest.skip(f"needs TensorRT {major}, installed is {installed_major() or 'none'}")
        import tensorrt

        from calib.edges.tensorrt.buffers import CudaMemory
        from calib.errors import CalibError

        try:
            memory = CudaMemory()
        except CalibError as error:
            pytest.skip(f"needs an NVIDIA GPU: {error.got}")
        version = ".".join(tensorrt.__version__.split(".")[:3])
        return SimpleNamespace(module=tensorrt, memory=memory, double=False, version=version)

    return provided


@pytest.fixture
def double(monkeypatch):
    """Function of a version that puts a test double in TensorRT's place."""

    def provided(version="10.14.1.48"):
        module = make_tensorrt(version)
        monkeypatch.setitem(sys.modules, "tensorrt", module)
        return module

    return provided
