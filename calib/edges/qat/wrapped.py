"""A network under training that is called and answers like the module it was made from."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import onnx
import torch
from torch import nn
from torch.utils import _pytree as pytree

from calib.core.plan import PlacementOptions, QuantizationPlan, Target
from calib.core.quantization import SCALE_BITS
from calib.edges.qat.module import OnnxModule
from calib.errors import ModelError

Tensor = Any


class QatModule(OnnxModule):
    """What :func:`calib.qat.prepare` gives: a network to be trained in one's own loop.

    Args:
        model: the float network, its operator set raised as the Q/DQ writer needs it.
        plan: where to fake-quantize.
        origin: the float network as it was given or exported; the export starts from it.
        amax: range of every tensor at the start.
        target: whose placement rules the plan follows.
        options: placement choices of the plan.
        like: the module whose call and answer are kept, or None.
        example: inputs that it was called with.
        learn_scales: whether the activations' scales are parameters.
        learn_weight_scales: whether the weights' scales are parameters.
        scale_bits: significant bits that scales keep.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        plan: QuantizationPlan,
        *,
        origin: onnx.ModelProto,
        amax: dict[str, float],
        target: Target,
        options: PlacementOptions,
        like: nn.Module | None = None,
        example: Sequence[Tensor] = (),
        learn_scales: bool = True,
        learn_weight_scales: bool = False,
        scale_bits: int = SCALE_BITS,
    ) -> None:
        super().__init__(
            model, plan, learn_scales=learn_scales, learn_weight_scales=learn_weight_scales, scale_bits=scale_bits
        )
        self.origin, self.start_amax, self.target, self.options = origin, amax, target, options
        self._signature = None if like is None else inspect.signature(like.forward)
        self._structure = None if like is None else _structure_of(like, example)

    def forward(self, *args: Tensor, **kwargs: Tensor) -> Any:
        """Compute what the original module computes, with fake quantization, in the structure of its answer."""
        found = list(self.run(*self._in_order(args, kwargs)).values())
        if self._structure is None:
            return found[0] if len(found) == 1 else tuple(found)
        leaves, spec = self._structure
        tensors = iter(found)
        return pytree.tree_unflatten([next(tensors) if torch.is_tensor(leaf) else leaf for leaf in leaves], spec)

    def _in_order(self, args: tuple[Tensor, ...], kwargs: dict[str, Tensor]) -> list[Tensor]:
        """Bring arguments by name into their places; those that are no tensors were fixed when it was made."""
        if self._signature is None:
            named = [kwargs[name] for name in self.input_names if name in kwargs]
            return [*args, *named]
        bound = self._signature.bind(*args, **kwargs)
        return [item for item in pytree.tree_leaves((bound.args, bound.kwargs)) if torch.is_tensor(item)]


def _structure_of(module: nn.Module, example: Sequence[Tensor]) -> tuple[list[Any], Any]:
    """Learn how a module's answer is put together; tensors of it are forgotten."""
    module.eval()
    with torch.no_grad():
        leaves, spec = pytree.tree_flatten(module(*example))
    if not any(torch.is_tensor(leaf) for leaf in leaves):
        raise ModelError(
            type(module).__name__,
            expected="a network that answers with tensors",
            got="none in its answer",
            remedy="wrap it in a module that returns tensors, or dictionaries, lists or tuples of them",
        )
    return [torch.empty(0) if torch.is_tensor(leaf) else leaf for leaf in leaves], spec
