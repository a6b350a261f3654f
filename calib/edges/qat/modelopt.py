"""A user's own module under ModelOpt's fake quantization, trained and read out like the ONNX network it exports to."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from torch import nn

from calib.core.graph import Network, analyse
from calib.core.graph.stored import StoredValues
from calib.core.plan import QuantizationPlan
from calib.core.quantization import scale_from_amax
from calib.core.trainable import trainable_constants
from calib.edges import qat_modelopt
from calib.edges.qat.exporting import tensors_of
from calib.errors import ModelError
from calib.stages.modules import ModuleMap, map_modules, to_modules, to_tensors
from calib.types.gate import few
from calib.types.rangetable import LEVELS, RangeTable, TensorRange, WeightRange

Tensor = Any
Values = dict[str, NDArray[np.float32]]
NUDGE = 1.01
"""Factor on every parameter, to see which constants of the export follow the parameters."""
REMEDY = "use --backend calib, which trains the exported network itself"


@dataclass(frozen=True)
class Export:
    """How a module became the float network.

    Attributes:
        model: the float network.
        run: exports a module of the same class in the same way.
        example: inputs that it was exported with.
        place: what to call the network in messages.
    """

    model: onnx.ModelProto
    run: Callable[[nn.Module], onnx.ModelProto]
    example: Sequence[Tensor]
    place: str


@dataclass(frozen=True)
class Learnt:
    """What a training made of a network, by names of the float network's tensors.

    Attributes:
        values: trained weights.
        amax: range of every quantized activation.
        weights: ranges of the quantized weights.
    """

    values: Values
    amax: dict[str, float]
    weights: dict[str, WeightRange]

    def trained_values(self) -> Values:
        """Read the trained weights by tensor name."""
        return self.values

    def activation_amax(self) -> dict[str, float]:
        """Read the range of every quantized activation."""
        return self.amax

    def weight_ranges(self) -> dict[str, WeightRange]:
        """Read the ranges that ModelOpt quantizes weights with, as the Q/DQ writer takes them."""
        return self.weights


class ModelOptModule(nn.Module):
    """A module with ModelOpt's fake quantizers where a plan quantizes; answers with the one output that is trained.

    It stays in evaluation mode, whatever is asked: batch normalisation keeps its statistics and nothing is dropped out,
    so that what is trained is what is exported. ModelOpt keeps ranges as they are; weights alone are learnt.

    Args:
        module: the float module; not changed.
        layers: names of the modules to quantize.
        plan: where the exported network is quantized, and with which ranges: these layers alone.
        export: how the float network was made of the module.
        output: name of the output to answer with.

    Raises:
        MissingLibraryError: ModelOpt is not installed.
        ModelError: the module cannot be trained this way: what it takes or answers is not what its export does, or
            training would change what the export holds as a constant.
        StatisticsError: a layer's input has no range.
    """

    def __init__(
        self, module: nn.Module, layers: Collection[str], plan: QuantizationPlan, export: Export, output: str
    ) -> None:
        super().__init__()
        self._float, self._export, self._layers = {"module": module}, export, frozenset(layers)
        self._network = analyse(export.model)
        self._stored = StoredValues(export.model)
        self._trainable = frozenset(trainable_constants(self._network, self._stored))
        self._modules_map = map_modules(export.model, self._network)
        self._output = _place_of(output, self._network, export)
        ranges = ranges_by_module(plan, self._modules_map, self._layers)
        self.module = qat_modelopt.prepare(copy.deepcopy(module), layers, ranges=ranges)
        self.eval()
        self._freeze_constants()
        self._freeze_unused()
        self._named_ranges()
        self._rehearse()

    def forward(self, *inputs: Tensor) -> Tensor:
        """Compute the output that is trained."""
        return tensors_of(self.module(*inputs))[self._output]

    def train(self, mode: bool = True) -> ModelOptModule:
        """Stay in evaluation mode."""
        super().train(False)
        return self

    def learnt(self) -> Learnt:
        """Export the float network with the weights of now, and read weights and ranges by its tensors' names.

        Raises:
            ModelError: the export is another network than at the start.
        """
        module = copy.deepcopy(self._float["module"])
        module.load_state_dict(qat_modelopt.float_state(self.module))
        values = {name: value for name, value in self._values_of(module).items() if name in self._trainable}
        named = self._named_ranges()
        amax = {item.name: item.exact_scale * LEVELS for item in named}
        return Learnt(values, amax, {item.name: item for item in named.weights})

    def _parameters_of_module(self) -> dict[str, Tensor]:
        return dict(self.module.named_parameters())

    def _named_ranges(self) -> RangeTable:
        """The ranges in force, by tensor."""
        named, lost = to_tensors(qat_modelopt.ranges_of(self.module), self._modules_map)
        if lost:
            raise ModelError(
                self._export.place,
                expected="modules whose nodes can be told in the export",
                got=f"none for {few(lost)}",
                remedy=f"try the other --exporter, or {REMEDY}",
            )
        return named

    def _freeze_constants(self) -> None:
        """Keep parameters that the export holds under their names as constants, such as of normalisations it kept."""
        for name, parameter in self._parameters_of_module().items():
            if name in self._stored.initializers and name not in self._trainable:
                parameter.requires_grad_(False)

    def _freeze_unused(self) -> None:
        """Ask for no gradient of parameters that the output does not depend on: distributed training waits for all."""
        asked = [item for item in self.parameters() if item.requires_grad]
        total = self(*self._export.example).float().sum()
        for item, gradient in zip(asked, torch.autograd.grad(total, asked, allow_unused=True), strict=True):
            item.requires_grad_(gradient is not None)

    def _values_of(self, module: nn.Module) -> Values:
        """Export a module and read the constants of the float network; it must be the same network."""
        model = self._export.run(module.eval())
        stored = StoredValues(model)
        if not analyse(model).has_nodes_of(self._network) or set(stored.initializers) != set(self._stored.initializers):
            raise ModelError(
                self._export.place,
                expected="the same graph at each export",
                got="other nodes or names once its weights had changed",
                remedy=REMEDY,
            )
        names = {*stored.initializers, *self._trainable}
        read = {name: stored.value(name) for name in sorted(names)}
        return {name: value for name, value in read.items() if value is not None}

    def _rehearse(self) -> None:
        """Export with every trained parameter nudged: what moves must be what the export calls a weight."""
        module = copy.deepcopy(self._float["module"])
        trained = {name for name, item in self._parameters_of_module().items() if item.requires_grad}
        with torch.no_grad():
            for name, item in module.named_parameters():
                if name in trained:
                    item.mul_(NUDGE)
        moved = set(self._moved(self._values_of(module))) - self._trainable
        if moved:
            raise ModelError(
                self._export.place,
                expected="parameters that the export holds as weights of its layers",
                got=f"{few(sorted(moved))}, which belong to what the network computes",
                remedy=f"set requires_grad = False on their parameters in the factory, or {REMEDY}",
            )

    def _moved(self, values: Mapping[str, NDArray[Any]]) -> Iterator[str]:
        for name, value in values.items():
            before = self._stored.value(name)
            if before is None or before.tobytes() != value.tobytes():
                yield name


def ranges_by_module(plan: QuantizationPlan, modules: ModuleMap, layers: Collection[str]) -> RangeTable:
    """Name a plan's ranges by module.

    A module that is used several times has one quantizer for all its inputs; these, and whatever else reads them, get
    the largest of their ranges.

    Args:
        plan: ranges by tensor.
        modules: of the network that the plan was made from.
        layers: the modules that are quantized.
    """
    pairs = (
        TensorRange.of_scale(pair.tensor, float(scale_from_amax(pair.amax, pair.elem_type)))
        for pair in plan.activations
    )
    named = RangeTable({item.name: item for item in pairs}, "plan", "start ranges")
    while True:
        found, _ = to_modules(named, modules)
        wanted = (item for item in found if item.name.rpartition(".")[0] in layers)
        table = found.with_ranges(wanted)
        again, _ = to_tensors(table, modules)
        if {item.name: item.amax for item in again} == {item.name: item.amax for item in named}:
            return table
        named = again


def _place_of(output: str, network: Network, export: Export) -> int:
    names = [item.name for item in network.outputs]
    if output not in names:
        raise ModelError(
            export.place,
            expected="a module that answers with its logits",
            got=f"class numbers; the scores are {output!r} inside of it",
            remedy=f"name a factory of the module without its argmax, or {REMEDY}",
        )
    if len(network.inputs) != len(export.example):
        raise ModelError(
            export.place,
            expected=f"a network that uses its {len(export.example)} inputs",
            got=f"{len(network.inputs)} inputs in its export",
            remedy=REMEDY,
        )
    return names.index(output)
