"""Float PyTorch networks: a factory called, its weights loaded without unpickling anything."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from calib.edges.evaluation.loading import call_factory
from calib.edges.weightfiles import load_weights
from calib.errors import UsageError


def make_module(address: str, weights: Path | None) -> tuple[nn.Module, tuple[str, ...]]:
    """Call a factory and load weights into what it makes.

    Args:
        address: ``package.module:factory``; the factory takes no arguments, and may be a class.
        weights: ``.pt``, ``.pth`` or ``.safetensors``, or None where the factory loads them itself.

    Returns:
        the module in evaluation mode, float32, on the CPU; and what people should know of the weights.

    Raises:
        UsageError: the factory cannot be called, or makes something else.
        FormatError: the weights cannot be read.
        ModelError: they do not fit.
    """
    module = call_factory(address)
    if not isinstance(module, nn.Module):
        raise UsageError(
            address,
            expected="a factory of a PyTorch module",
            got=f"one of {type(module).__name__}",
            remedy="name a function or class that makes the network; an ONNX file is passed as it is",
        )
    module = module.float().eval().cpu()
    return module, () if weights is None else load_weights(module, weights)
