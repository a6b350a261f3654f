"""The processes that train together: one, or those that ``torchrun`` started."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from calib.errors import UsageError

Tensor = Any


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
    size = int(os.environ.get("WORLD_SIZE", "1"))
    local = int(os.environ.get("LOCAL_RANK", "0"))
    chosen = torch.device("cuda", local) if device == "cuda" else torch.device("cpu")
    if device == "cuda":
        torch.cuda.set_device(chosen)
    if size > 1 and not dist.is_initialized():
        if device == "cuda":
            dist.init_process_group("nccl", device_id=chosen)
        else:
            dist.init_process_group("gloo")
    return World(dist.get_rank() if size > 1 else 0, size, chosen)


def leave_world() -> None:
    """Part from the other processes."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()
