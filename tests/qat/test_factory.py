"""Float networks from factories: weights in every wrapping, nothing unpickled."""

from __future__ import annotations

import argparse
import json
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from calib.edges.qat.factory import make_module  # noqa: E402
from calib.edges.weightfiles import load_weights, read_states  # noqa: E402
from calib.errors import FormatError, ModelError, UsageError  # noqa: E402
from tests.qat.networks import Plain  # noqa: E402


def state(shift: float = 1.0) -> dict[str, Any]:
    found = Plain().state_dict()
    return {name: item + shift if item.is_floating_point() else item for name, item in found.items()}


def prefixed(prefix: str, tensors: dict[str, Any]) -> dict[str, Any]:
    return {f"{prefix}{name}": item for name, item in tensors.items()}


def network(shift: float = 1.0) -> Plain:
    module = Plain()
    module.load_state_dict(state(shift))
    return module


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
    "data parallel": lambda tensors: prefixed("module.", tensors),
    "compiled and parallel": lambda tensors: prefixed("module._orig_mod.", tensors),
    "a compiled part": lambda tensors: {name.replace("head.", "head._orig_mod."): x for name, x in tensors.items()},
    "state_dict": lambda tensors: {"epoch": 3, "state_dict": tensors},
    "model": lambda tensors: {"model": prefixed("module.", tensors), "best": 0.5},
    "a tensor beside": lambda tensors: {"epoch": torch.tensor(3), "loss": torch.zeros(()), "model": tensors},
    "an optimizer beside": lambda tensors: {
        "optimizer": {"state": {"0": {"exp_avg": torch.zeros(3)}}}, "net": {"state_dict": tensors},
    },
    "averaged": lambda tensors: {"ema": tensors},
    "averaged beside": lambda tensors: {"state_dict": state(7.0), "model_ema": tensors},
    "parameters": lambda tensors: {"params": tensors},
    "lightning": lambda tensors: {"state_dict": prefixed("model.", tensors)},
    "lightning with a loss": lambda tensors: {
        "state_dict": {**prefixed("model.", tensors), "criterion.weight": torch.ones(5)},
    },
    "no counters": lambda tensors: {name: item for name, item in tensors.items() if "num_batches" not in name},
    "options beside": lambda tensors: {
        "args": argparse.Namespace(lr=0.1), "best": np.float64(0.5), "state_dict": tensors,
    },
    "whole": lambda tensors: network(),
    "whole, nested": lambda tensors: {"epoch": 2, "model": network()},
    "double": lambda tensors: {name: x.double() if x.is_floating_point() else x for name, x in tensors.items()},
}  # fmt: skip


@pytest.mark.parametrize("form", ["zip", "legacy"])
@pytest.mark.parametrize("wrapping", sorted(WRAPPINGS))
def test_weights_are_found_in_every_wrapping(wrapping: str, form: str, tmp_path: Path) -> None:
    torch.save(WRAPPINGS[wrapping](state()), tmp_path / "w.pth", _use_new_zipfile_serialization=form == "zip")
    module, _ = make_module("tests.qat.networks:Plain", tmp_path / "w.pth")
    assert torch.equal(module.head.weight, state()["head.weight"])
    assert torch.equal(module.first[1].running_var, state()["first.1.running_var"])
    assert not module.training


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_half_precision_is_widened(kind: Any, tmp_path: Path) -> None:
    halves = {name: item.to(kind) if item.is_floating_point() else item for name, item in state().items()}
    torch.save(halves, tmp_path / "w.pt")
    module, _ = make_module("tests.qat.networks:Plain", tmp_path / "w.pt")
    assert torch.equal(module.head.weight, halves["head.weight"].float())


def test_the_choice_among_several_is_told(tmp_path: Path) -> None:
    torch.save({"model": state(7.0), "ema": state()}, tmp_path / "w.pt")
    _, notes = make_module("tests.qat.networks:Plain", tmp_path / "w.pt")
    assert [note.split(": ", 1)[1] for note in notes] == [
        "weights of ema are taken, the averaged weights; model would fit as well"
    ]
    torch.save({**prefixed("net.", state()), "loss.weight": torch.ones(5)}, tmp_path / "w.pt")
    _, notes = make_module("tests.qat.networks:Plain", tmp_path / "w.pt")
    assert [note.split(": ", 1)[1] for note in notes] == ["weights of net.* are taken; left aside: loss.weight"]
    torch.save(state(), tmp_path / "w.pt")
    assert make_module("tests.qat.networks:Plain", tmp_path / "w.pt")[1] == ()


def test_safetensors_are_read(tmp_path: Path) -> None:
    (tmp_path / "w.safetensors").write_bytes(as_safetensors(state(0.25)))
    module = Plain()
    load_weights(module, tmp_path / "w.safetensors")
    assert torch.equal(module.first[0].weight, state(0.25)["first.0.weight"])


def test_a_cut_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "w.safetensors").write_bytes(as_safetensors(state())[:-100])
    with pytest.raises(FormatError, match="expected weights"):
        load_weights(Plain(), tmp_path / "w.safetensors")
    torch.save(state(), tmp_path / "w.pt")
    (tmp_path / "w.pt").write_bytes((tmp_path / "w.pt").read_bytes()[:-300])
    with pytest.raises(FormatError, match="expected weights"):
        load_weights(Plain(), tmp_path / "w.pt")


class Harmful:
    """Would leave a file behind on unpickling."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


def test_nothing_in_a_file_is_executed(tmp_path: Path) -> None:
    trap = tmp_path / "sprung"
    (tmp_path / "w.pt").write_bytes(pickle.dumps({"state_dict": Harmful(trap)}))
    with pytest.raises(FormatError, match="expected weights"):
        read_states(tmp_path / "w.pt")
    torch.save({"hook": Harmful(trap), "state_dict": state()}, tmp_path / "trap.pt")
    load_weights(Plain(), tmp_path / "trap.pt")
    assert not trap.exists()
    torch.load(tmp_path / "trap.pt", weights_only=False)
    assert trap.exists()


@pytest.mark.parametrize("content", [b"", b"hello, this is no file of weights at all", b"PK\x03\x04damaged"])
def test_what_is_no_file_of_weights_is_one_error(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "w.pt").write_bytes(content)
    with pytest.raises(FormatError, match="expected weights"):
        read_states(tmp_path / "w.pt")
    with pytest.raises(FormatError, match="no such file"):
        read_states(tmp_path / "missing.pt")


def refused(tensors: dict[str, Any], folder: Path) -> str:
    torch.save(tensors, folder / "w.pt")
    with pytest.raises(ModelError) as caught:
        load_weights(Plain(), folder / "w.pt")
    return str(caught.value)


def test_weights_of_another_network_are_named(tmp_path: Path) -> None:
    other = {name.replace("head", "tail"): item for name, item in state().items()}
    said = refused(other, tmp_path)
    assert "2 missing (head.bias, head.weight), 2 not in the network (tail.bias, tail.weight)" in said
    wrong = {**state(), "head.weight": torch.zeros(7, 8, 1, 1)}
    assert "head.weight of shape (5, 8, 1, 1), got (7, 8, 1, 1)" in refused(wrong, tmp_path)


def test_numbers_that_are_no_start_are_refused(tmp_path: Path) -> None:
    broken = {**state(), "head.bias": torch.full((5,), float("nan"))}
    assert "NaN or infinity in head.bias" in refused(broken, tmp_path)
    stored = {**state(), "head.weight": torch.zeros(5, 8, 1, 1, dtype=torch.int8)}
    assert "floating-point numbers in head.weight, got int8" in refused(stored, tmp_path)


def test_a_factory_of_something_else_is_refused() -> None:
    with pytest.raises(UsageError, match="a factory of a PyTorch module, got one of int"):
        make_module("tests.jobs.factories:number", None)
    with pytest.raises(UsageError, match="no weights at hand"):
        make_module("tests.jobs.factories:broken", None)
