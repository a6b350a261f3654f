"""A network under training that is called and answers like the module it was made from."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import onnx
import torch
from torch import nn
from torch.utils import _pytree as pytree

from calib.core.plan import PlacementOptions, QuantizationPlan, Target
from calib.core.quantization import SCALE_BITS
from calib.edges.qat.module import OnnxModule
from calib.edges.qat.parameters import refuse_broken
from calib.errors import ModelError, UsageError

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

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """Move the module, as ``to``, ``cuda`` and the like do; its numbers stay float32.

        Raises:
            UsageError: they would be converted. Scales would lose the bits that the export promises.
        """
        kind = fn(torch.zeros(1)).dtype
        if kind != torch.float32:
            raise UsageError(
                "a prepared module",
                expected="float32 parameters: fake quantization and its scales are float32",
                got=f"a conversion to {str(kind).removeprefix('torch.')}",
                remedy="train under torch.autocast for mixed precision; convert the exported network where needed",
            )
        return super()._apply(fn, recurse)

    def forward(self, *args: Tensor, **kwargs: Tensor) -> Any:
        """Compute what the original module computes, with fake quantization, in the structure of its answer."""
        found = list(self.run(*self._in_order(args, kwargs)).values())
        if self._structure is None:
            return found[0] if len(found) == 1 else tuple(found)
        return self._structure.fill(found)

    def refuse_broken(self) -> None:
        """Refuse weights and scales that training made infinite or NaN, which no export could hold.

        Raises:
            StatisticsError: naming them.
        """
        tensors = {name: self.weights[name] for name in self.weights.names()}
        refuse_broken(
            {**tensors, **{f"scale of {name}": self.quantizers[name].scale for name in self.quantizers.names()}}
        )

    def _in_order(self, args: tuple[Tensor, ...], kwargs: dict[str, Tensor]) -> list[Tensor]:
        """Bring arguments by name into their places; those that are no tensors were fixed when it was made."""
        if self._signature is None:
            named = [kwargs[name] for name in self.input_names if name in kwargs]
            return [*args, *named]
        bound = self._signature.bind(*args, **kwargs)
        return [item for item in pytree.tree_leaves((bound.args, bound.kwargs)) if torch.is_tensor(item)]


class Structure:
    """How a module's answer is put together; the tensors of it are forgotten.

    Args:
        answer: tensors, or dictionaries, lists and tuples of them and of other values.
    """

    def __init__(self, answer: Any) -> None:
        leaves, self._spec = pytree.tree_flatten(answer)
        self._leaves = [None if torch.is_tensor(leaf) else leaf for leaf in leaves]
        self._places = [place for place, leaf in enumerate(leaves) if torch.is_tensor(leaf)]

    @property
    def tensors(self) -> int:
        """How many tensors it holds."""
        return len(self._places)

    def fill(self, tensors: Sequence[Tensor]) -> Any:
        """Put tensors into their places."""
        leaves = list(self._leaves)
        for place, tensor in zip(self._places, tensors, strict=True):
            leaves[place] = tensor
        return pytree.tree_unflatten(leaves, self._spec)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle through an example: PyTorch's own description of a structure warns when it is copied."""
        leaves = list(self._leaves)
        for place in self._places:
            leaves[place] = torch.empty(0)
        return Structure, (pytree.tree_unflatten(leaves, self._spec),)


def _structure_of(module: nn.Module, example: Sequence[Tensor]) -> Structure:
    """Learn how a module's answer is put together."""
    module.eval()
    with torch.no_grad():
        found = Structure(module(*example))
    if not found.tensors:
        raise ModelError(
            type(module).__name__,
            expected="a network that answers with tensors",
            got="none in its answer",
            remedy="wrap it in a module that returns tensors, or dictionaries, lists or tuples of them",
        )
    return found
