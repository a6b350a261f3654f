"""What an evaluation says of how Q/DQ was computed."""

from __future__ import annotations

from pathlib import Path

import pytest

from calib.jobs.evaluate.request import EvaluateRequest, describe_numerics
from calib.types.machine import Cpu


def described(flags: set[str] | None, architecture: str = "x86_64", **options: object) -> dict[str, object]:
    request = EvaluateRequest(["n.onnx"], "set", Path("out"), **{"numerics": "int8", **options})
    cpu = Cpu(architecture, "", None if flags is None else frozenset(flags), 2, 2)
    return describe_numerics(request, cpu)


def test_without_vnni_saturation_is_named() -> None:
    found = described({"avx2"})
    assert found["saturates"] is True
    assert "U8S8" in str(found["words"])
    assert found["instruction_sets"] == ["avx2"]


@pytest.mark.parametrize(("flags", "architecture"), [({"avx2", "avx512_vnni"}, "x86_64"), ({"asimddp"}, "aarch64")])
def test_with_dot_products_sums_are_exact(flags: set[str], architecture: str) -> None:
    found = described(flags, architecture)
    assert found["saturates"] is False
    assert "saturate" not in str(found["words"])


def test_unknown_flags_are_unknown() -> None:
    assert described(None)["saturates"] is None


def test_fake_quantization_does_not_depend_on_the_machine() -> None:
    assert described({"avx2"}, numerics="fake-quant") == described({"avx512_vnni"}, numerics="fake-quant")
    assert "graph optimizations off" in str(described(set(), numerics="fake-quant")["words"])


def test_on_a_gpu_nothing_is_said_of_the_processor() -> None:
    assert described({"avx2"}, provider="cuda")["instruction_sets"] is None
