"""An ONNX network as a PyTorch module: the same nodes, its weights as parameters, fake quantization where a plan says.

Running the graph itself, instead of a module written beside it, puts the fake quantization of training at exactly the
places where the Q/DQ pairs of the export will stand.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import torch
from torch import nn

from calib.core.graph import Network, Use, analyse
from calib.core.graph.stored import StoredValues, refill
from calib.core.plan import QuantizationPlan
from calib.core.quantization import QUANT_MAX, scale_from_amax, weight_amax
from calib.core.trainable import trainable_constants
from calib.edges.qat.fakequant import FLOAT_BITS, Quantizer, WeightQuantizer, on_grid
from calib.edges.qat.grids import BIAS, Grid, find_grids, quantizer_name
from calib.edges.qat.steps import MOVING, OMITTED, ON_HOST, Program, Step, compile_network
from calib.errors import ModelError
from calib.types.rangetable import WeightRange

Tensor = Any


class Named(nn.Module):
    """Tensors or modules under any name; what PyTorch does not allow in one is replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.keys_by_name: dict[str, str] = {}

    def key(self, name: str) -> str:
        """Find or make the attribute that stands for a name."""
        if name not in self.keys_by_name:
            wanted = "t_" + re.sub(r"\W", "_", name)
            key, count = wanted, 1
            while key in self.keys_by_name.values():
                key, count = f"{wanted}_{count}", count + 1
            self.keys_by_name[name] = key
        return self.keys_by_name[name]

    def names(self) -> Iterator[str]:
        """List the names."""
        yield from self.keys_by_name

    def __getitem__(self, name: str) -> Any:
        """Find what goes by a name."""
        return getattr(self, self.keys_by_name[name])

    def __contains__(self, name: object) -> bool:
        """Whether there is something of that name."""
        return name in self.keys_by_name


class OnnxModule(nn.Module):
    """Runs an ONNX network in PyTorch.

    Args:
        model: a float network, external data loaded; not changed.
        plan: where to fake-quantize, or None for the float network.
        network: the model's analysis, where it is at hand.
        outputs: tensors to answer with; default the network's outputs.
        learn_scales: whether the activations' scales are parameters.
        learn_weight_scales: whether the weights' scales are parameters; else they follow the weights.
        scale_bits: significant bits that scales keep, 24 for all; with fewer, biases are rounded to whole steps of the
            sums they are added to, see :func:`calib.core.quantization.coarse_scale`.

    Attributes:
        weights: parameters by tensor name.
        quantizers: fake quantization, by :func:`quantizer_name`.
        quantize: whether fake quantization is on.

    Raises:
        ModelError: an operator that cannot be run here.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        plan: QuantizationPlan | None = None,
        *,
        network: Network | None = None,
        outputs: Sequence[str] | None = None,
        learn_scales: bool = False,
        learn_weight_scales: bool = False,
        scale_bits: int = FLOAT_BITS,
    ) -> None:
        super().__init__()
        network = analyse(model) if network is None else network
        self.model, self.network, self.plan = model, network, plan
        self.quantize = plan is not None
        self.input_names = tuple(item.name for item in network.inputs)
        self.output_names = tuple(outputs or (item.name for item in network.outputs))
        stored = StoredValues(model)
        self._trained = trainable_constants(network, stored)
        self.weights, self.constants, self.quantizers = Named(), Named(), Named()
        for name in self._trained:
            start = torch.from_numpy(np.array(stored.value(name), np.float32))
            self.weights.register_parameter(self.weights.key(name), nn.Parameter(start))
        self._program = compile_network(model, network, self._trained, self.output_names)
        self._hold_constants(self._program)
        self.scale_bits = scale_bits
        self._redirect: dict[Use, str] = {}
        self._tensors: dict[str, str] = {}
        self._grids: dict[str, Grid] = {}
        if plan is not None:
            self._add_quantizers(plan, stored, learn_scales, learn_weight_scales)
            if scale_bits < FLOAT_BITS:
                self._grids = find_grids(network, plan, set(self._trained))
        self._freeze_unused()

    def _hold_constants(self, program: Program) -> None:
        for name, value in program.device.items():
            self.constants.register_buffer(self.constants.key(name), value, persistent=False)

    def _add_quantizers(
        self, plan: QuantizationPlan, stored: StoredValues, learn_scales: bool, learn_weight_scales: bool
    ) -> None:
        for pair in plan.activations:
            scale = scale_from_amax(pair.amax, pair.elem_type)
            self._add(pair.tensor, Quantizer(scale, None, learnt=learn_scales, bits=self.scale_bits), pair.uses)
        for weight in plan.weights:
            value = stored.value(weight.tensor) if learn_weight_scales else None
            bits = self.scale_bits if weight.tensor in self._alone(plan) else FLOAT_BITS
            quantizer: Quantizer = WeightQuantizer(np.ones(()), weight.axis, learnt=False, bits=bits)
            if value is not None:
                scale = scale_from_amax(weight_amax(value, weight.axis))
                quantizer = Quantizer(scale, weight.axis, learnt=True, bits=bits)
            self._tensors[quantizer_name(weight)] = weight.tensor
            self._add(quantizer_name(weight), quantizer, weight.uses)

    def _alone(self, plan: QuantizationPlan) -> set[str]:
        """Weights that are parameters and have one set of scales: what can be moved to fit coarse scales."""
        count = Counter(weight.tensor for weight in plan.weights)
        return {name for name in self._trained if count[name] == 1}

    def _add(self, name: str, quantizer: Quantizer, uses: Sequence[Use]) -> None:
        """Add a quantizer; several pairs of one tensor share it, for they have one range."""
        if name not in self.quantizers:
            self.quantizers.add_module(self.quantizers.key(name), quantizer)
        self._redirect.update(dict.fromkeys(uses, name))

    def _freeze_unused(self) -> None:
        """Ask for no gradient of parameters that the outputs do not depend on: distributed training waits for all."""
        read = {name for step in self._program.steps for name in step.call.node.inputs}
        ran = {step.call.node.index for step in self._program.steps}
        used = {name for use, name in self._redirect.items() if use.node in ran}
        for name in self.weights.names():
            if name not in read:
                self.weights[name].requires_grad_(False)
        for name in self.quantizers.names():
            if name not in used:
                self.quantizers[name].requires_grad_(False)

    def run(self, *inputs: Tensor) -> dict[str, Tensor]:
        """Compute the outputs by name.

        Args:
            inputs: in the order of the network's inputs.

        Raises:
            ModelError: the number of inputs is another, or a node cannot run on them.
        """
        if len(inputs) != len(self.input_names):
            raise ModelError(
                "inputs", expected=f"{len(self.input_names)} tensors ({', '.join(self.input_names)})",
                got=str(len(inputs)), remedy="pass one tensor for each input of the network",
            )  # fmt: skip
        values: dict[str, Tensor] = dict(zip(self.input_names, inputs, strict=True))
        quantized: dict[str, tuple[Tensor, Tensor]] = {}
        for step in self._program.steps:
            operands = [self._operand(step, slot, values, quantized) for slot in range(len(step.sources))]
            made = _run_step(step, operands)
            answers = made if isinstance(made, tuple) else (made,)
            values.update((name, value) for name, value in zip(step.call.node.outputs, answers, strict=False) if name)
            for name in step.frees:
                values.pop(name, None)
                quantized.pop(name, None)
        return {name: self._value(name, values) for name in self.output_names}

    def forward(self, *inputs: Tensor) -> Any:
        """Compute the outputs: one tensor, or a tuple of them."""
        found = tuple(self.run(*inputs).values())
        return found[0] if len(found) == 1 else found

    def _operand(
        self, step: Step, slot: int, values: dict[str, Tensor], quantized: dict[str, tuple[Tensor, Tensor]]
    ) -> Tensor | None:
        source, node = step.sources[slot], step.call.node
        if source == OMITTED:
            return None
        name = node.inputs[slot]
        pair = self._redirect.get(Use(node.index, slot)) if self.quantize else None
        if pair is not None:
            if pair not in quantized:
                value, quantizer = self._value(name, values), self.quantizers[pair]
                scale = quantizer.scale_for(value)
                quantized[pair] = (quantizer(value, scale), scale)
            return quantized[pair][0]
        if slot == BIAS and self.quantize and name in self._grids:
            grid = self._grids[name]
            return on_grid(self.weights[name], quantized[grid.input][1].detach() * quantized[grid.weight][1].detach())
        if source == MOVING:
            return self._value(name, values)
        return self._program.host[name] if source == ON_HOST else self.constants[name]

    def _value(self, name: str, values: Mapping[str, Tensor]) -> Tensor:
        if name in values:
            return values[name]
        return self.weights[name] if name in self.weights else self.constants[name]

    def trained_values(self) -> dict[str, np.ndarray[Any, np.dtype[np.float32]]]:
        """Read the parameters as they count, by tensor name: weights settled and biases on their grid."""
        values = {name: self.weights[name].detach() for name in self.weights.names()}
        for name, tensor in self._tensors.items():
            quantizer = self.quantizers[name]
            if isinstance(quantizer, WeightQuantizer) and tensor in values:
                values[tensor] = quantizer.settled(values[tensor], quantizer.scale_for(values[tensor]))
        for name, grid in self._grids.items():
            step = self._scale(grid.input) * self._scale(grid.weight)
            values[name] = on_grid(values[name], step.detach())
        return {name: value.float().cpu().numpy() for name, value in values.items()}

    def activation_amax(self) -> dict[str, float]:
        """Read the range of every quantized activation: ``scale * 127``, exact in float64."""
        pairs = () if self.plan is None else self.plan.activations
        return {pair.tensor: float(self._scale(pair.tensor)) * QUANT_MAX for pair in pairs}

    def weight_ranges(self) -> dict[str, WeightRange]:
        """Read the learnt scales of weights, as the Q/DQ writer takes them; empty where scales follow the weights."""
        found: dict[str, WeightRange] = {}
        for pair in () if self.plan is None else self.plan.weights:
            name = quantizer_name(pair)
            if not isinstance(self.quantizers[name], WeightQuantizer):
                value = self.weights[pair.tensor].detach().float().cpu().numpy()
                scales = np.asarray(self._scale(name).cpu().numpy(), np.float64)
                found[pair.tensor] = WeightRange(pair.tensor, scales, pair.axis, weight_amax(value, pair.axis))
        return found

    def _scale(self, name: str) -> Tensor:
        """The scales of a quantizer as they are now, float32; those of a weight that is a parameter or constant."""
        quantizer = self.quantizers[name]
        if not isinstance(quantizer, WeightQuantizer):
            return quantizer.scale.detach()
        return quantizer.scale_for(self._value(self._tensors[name], {})).detach()

    def float_model(self) -> onnx.ModelProto:
        """Copy the network with the parameters of now as its weights."""
        return with_values(self.model, self.trained_values())


def _run_step(step: Step, operands: list[Tensor | None]) -> Any:
    try:
        return step.run(step.call, *operands)
    except ModelError:
        raise
    except (RuntimeError, ValueError, TypeError, IndexError, KeyError) as error:
        if isinstance(error, torch.cuda.OutOfMemoryError):
            raise
        node = step.call.node
        shapes = ", ".join("none" if item is None else "x".join(map(str, item.shape)) for item in operands)
        raise ModelError(
            f"node {node.label} ({node.op_type})",
            expected="to run on inputs of shape " + shapes,
            got=f"{type(error).__name__}: {' '.join(str(error).split())[:300]}",
            remedy="check the size of the input (some networks need one that is divisible by 32); a network with a "
            "fixed batch may need --batch-size 1",
        ) from error


def with_values(model: onnx.ModelProto, values: Mapping[str, np.ndarray[Any, Any]]) -> onnx.ModelProto:
    """Copy a model with other values of stored tensors.

    Args:
        model: not changed.
        values: by name of an initialiser or of a Constant node's output.
    """
    answer = onnx.ModelProto()
    answer.CopyFrom(model)
    for tensor in answer.graph.initializer:
        if tensor.name in values:
            _store(tensor, values[tensor.name])
    for node in answer.graph.node:
        if node.op_type == "Constant" and node.output[0] in values:
            for attribute in node.attribute:
                if attribute.name == "value":
                    _store(attribute.t, values[node.output[0]])
    return answer


def _store(tensor: onnx.TensorProto, value: np.ndarray[Any, Any]) -> None:
    refill(tensor, np.ascontiguousarray(value, np.float32).reshape(tuple(tensor.dims)))
