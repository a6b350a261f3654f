"""The processes that train together: one, or those that ``torchrun`` started."""

from __future__ import annotations

import contextlib
import os
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from calib.errors import UsageError

Tensor = Any
LOST = re.compile(r"closed by peer|reset by peer|Connection refused|Broken pipe|remote process exited|[Tt]imed out")
"""How the libraries of communication say that another process is gone."""


@dataclass(frozen=True)
class World:
    """The processes of a training.

    Attributes:
        rank: this process, from 0; the first writes files.
        size: number of processes.
        device: what this process computes on.
    """

    rank: int
    size: int
    device: Any

    @property
    def first(self) -> bool:
        """Whether this process writes files and shows progress."""
        return self.rank == 0

    def total(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all processes."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def agree(self, value: float) -> float:
        """Take the first process's number, so that all decide alike."""
        if self.size == 1:
            return value
        told = torch.tensor([value], dtype=torch.float64, device=self.device)
        dist.broadcast(told, 0)
        return float(told.item())

    def any(self, flag: bool) -> bool:
        """Whether a flag is set in any process."""
        if self.size == 1:
            return flag
        told = torch.tensor([int(flag)], device=self.device)
        dist.all_reduce(told, op=dist.ReduceOp.MAX)
        return bool(told.item())

    def wait(self) -> None:
        """Wait for all processes."""
        if self.size > 1:
            dist.barrier()


def join_world(device: str) -> World:
    """Join the processes that ``torchrun`` started, or be alone.

    Args:
        device: ``cpu`` or ``cuda``.

    Raises:
        UsageError: there is no such device.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise UsageError(
            "--device cuda",
            expected="an NVIDIA GPU that PyTorch can use",
            got="none" if torch.version.cuda else "a PyTorch built without CUDA",
            remedy="use --device cpu, or install the CUDA build of PyTorch; `calib doctor` says what is there",
        )
    size, local = _number("WORLD_SIZE", 1), _number("LOCAL_RANK", 0)
    chosen = torch.device("cuda", local) if device == "cuda" else torch.device("cpu")
    if device == "cuda":
        _require_gpu_of_its_own(local)
        torch.cuda.set_device(chosen)
    if size > 1 and not dist.is_initialized():
        _join(chosen, size)
    return World(dist.get_rank() if size > 1 else 0, size, chosen)


def _number(name: str, default: int) -> int:
    given = os.environ.get(name, str(default))
    if not given.isdecimal():
        raise UsageError(name, expected="a whole number, as torchrun sets it", got=repr(given), remedy=f"unset {name}")
    return int(given)


def _require_gpu_of_its_own(local: int) -> None:
    found = torch.cuda.device_count()
    if local >= found:
        raise UsageError(
            f"process {local + 1} of this machine", expected="a GPU of its own", got=f"{found} GPUs",
            remedy=f"start with torchrun --nproc-per-node {found}",
        )  # fmt: skip


def _join(device: Any, size: int) -> None:
    try:
        if device.type == "cuda":
            dist.init_process_group("nccl", device_id=device)
        else:
            dist.init_process_group("gloo")
    except (ValueError, RuntimeError) as error:
        raise UsageError(
            f"WORLD_SIZE={size}",
            expected="processes that torchrun started",
            got=" ".join(str(error).split())[:200],
            remedy="start with torchrun --nproc-per-node N -m calib qat …, or unset WORLD_SIZE to train alone",
        ) from error


@contextlib.contextmanager
def together(world: World) -> Iterator[None]:
    """Tell the loss of another process, which says itself why it ended, from an error of one's own.

    PyTorch's warning of gradients of 1 x 1 convolutions that lie otherwise than it would have them is kept from people:
    it costs a copy of these.

    Raises:
        UsageError: another process ended.
    """
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Grad strides do not match bucket view strides")
            yield
    except RuntimeError as error:
        if world.size == 1 or not LOST.search(str(error)):
            raise
        raise UsageError(
            f"process {world.rank + 1} of {world.size}",
            expected="the others to go on",
            got="one that ended",
            remedy="its own message says why; run the same command again once that is mended",
        ) from error


def leave_world() -> None:
    """Part from the other processes."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()
