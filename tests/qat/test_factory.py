"""Float networks from factories: weights in every wrapping, nothing unpickled."""

from __future__ import annotations

import json
import pickle
import struct
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from calib.edges.qat.factory import load_weights, make_module, read_weights  # noqa: E402
from calib.errors import FormatError, ModelError, UsageError  # noqa: E402
from tests.qat.networks import Plain  # noqa: E402


def state(shift: float = 1.0) -> dict[str, Any]:
    found = Plain().state_dict()
    return {name: item + shift if item.is_floating_point() else item for name, item in found.items()}


def as_safetensors(tensors: dict[str, Any]) -> bytes:
    """The format as its specification says: a length, a JSON header, the bytes."""
    names = {torch.float32: "F32", torch.int64: "I64", torch.float16: "F16"}
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, tensor in tensors.items():
        data = tensor.contiguous().numpy().tobytes()
        header[name] = {
            "dtype": names[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [len(body), len(body) + len(data)],
        }
        body += data
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


WRAPPINGS = {
    "plain": lambda tensors: tensors,
    "data parallel": lambda tensors: {f"module.{name}": item for name, item in tensors.items()},
    "compiled and parallel": lambda tensors: {f"module._orig_mod.{name}": item for name, item in tensors.items()},
    "state_dict": lambda tensors: {"epoch": 3, "state_dict": tensors},
    "model": lambda tensors: {"model": {f"module.{name}": item for name, item in tensors.items()}, "best": 0.5},
    "lightning": lambda tensors: {"state_dict": {f"model.{name}": item for name, item in tensors.items()}},
    "no counters": lambda tensors: {name: item for name, item in tensors.items() if "num_batches" not in name},
}


@pytest.mark.parametrize("wrapping", sorted(WRAPPINGS))
def test_weights_are_found_in_every_wrapping(wrapping: str, tmp_path: Path) -> None:
    torch.save(WRAPPINGS[wrapping](state()), tmp_path / "w.pth")
    module = make_module("tests.qat.networks:Plain", tmp_path / "w.pth")
    assert torch.equal(module.head.weight, state()["head.weight"])
    assert not module.training


def test_safetensors_are_read(tmp_path: Path) -> None:
    (tmp_path / "w.safetensors").write_bytes(as_safetensors(state(0.25)))
    module = Plain()
    load_weights(module, read_weights(tmp_path / "w.safetensors"), "w")
    assert torch.equal(module.first[0].weight, state(0.25)["first.0.weight"])


def test_a_cut_safetensors_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "w.safetensors").write_bytes(as_safetensors(state())[:-100])
    with pytest.raises(FormatError, match="cut short"):
        read_weights(tmp_path / "w.safetensors")


class Harmful:
    """Would run on unpickling."""

    def __reduce__(self) -> Any:
        return (Path.touch, (Path("/tmp/never"),))


def test_a_pickle_is_not_unpickled(tmp_path: Path) -> None:
    (tmp_path / "w.pt").write_bytes(pickle.dumps({"state_dict": Harmful()}))
    with pytest.raises(FormatError, match="not unpickled"):
        read_weights(tmp_path / "w.pt")
    torch.save(Plain(), tmp_path / "whole.pt")
    with pytest.raises(FormatError, match="whole pickled networks are not unpickled"):
        read_weights(tmp_path / "whole.pt")


@pytest.mark.parametrize("content", [b"", b"hello, this is no file of weights at all", b"PK\x03\x04damaged"])
def test_what_is_no_file_of_weights_is_one_error(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "w.pt").write_bytes(content)
    with pytest.raises(FormatError, match="expected weights"):
        read_weights(tmp_path / "w.pt")
    with pytest.raises(FormatError, match="no such file"):
        read_weights(tmp_path / "missing.pt")


def test_weights_of_another_network_are_named() -> None:
    other = {name.replace("head", "tail"): item for name, item in state().items()}
    with pytest.raises(ModelError, match=r"2 missing \(head.bias, head.weight\), 2 not in the network \(tail.bias"):
        load_weights(Plain(), other, "w.pt")
    wrong = {**state(), "head.weight": torch.zeros(7, 8, 1, 1)}
    with pytest.raises(ModelError, match=r"head.weight of shape \(5, 8, 1, 1\), got \(7, 8, 1, 1\)"):
        load_weights(Plain(), wrong, "w.pt")


def test_a_factory_of_something_else_is_refused() -> None:
    with pytest.raises(UsageError, match="a factory of a PyTorch module, got one of int"):
        make_module("tests.jobs.factories:number", None)
    with pytest.raises(UsageError, match="no weights at hand"):
        make_module("tests.jobs.factories:broken", None)
