"""Write a plan's Q/DQ pairs into an ONNX model, and leave the rest of it as it is.

The protobuf is edited in place of a copy: a round trip through a graph library adds value infos and rewrites
opset imports, and "untouched" is promised.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from calib.core.graph import ConstantReader, Network, Use, analyse
from calib.core.graph.naming import fresh
from calib.core.plan import ActivationQuantizer, PlacementOptions, QuantizationPlan, Target, WeightQuantizer
from calib.core.quantization import QUANT_MAX, scale_from_amax, weight_amax
from calib.core.roles import COMPUTE, is_standard
from calib.errors import ModelError, StatisticsError
from calib.stages.convert_opset import convert_opset, opset_of
from calib.stages.foldnorms import fold_norms
from calib.stages.placement import DEFAULTS, MINIMUM_OPSET, PER_CHANNEL_OPSET, plan_quantization
from calib.stages.qdqnotes import Note, notes_of
from calib.stages.qdqread import read_qdq
from calib.types.rangetable import WeightRange

ELEMENT_TYPES: Mapping[str, int] = {
    "float32": onnx.TensorProto.FLOAT,
    "float16": onnx.TensorProto.FLOAT16,
    "bfloat16": onnx.TensorProto.BFLOAT16,
}
NO_WEIGHTS: Mapping[str, WeightRange] = {}


@dataclass(frozen=True)
class QdqResult:
    """A model with Q/DQ pairs and the account of how it came about.

    Attributes:
        model: the new model; the one it was made from is unchanged.
        plan: where the pairs are and what was decided for every node.
        notes: what a user should know.
        dead_channels: weight tensor to the channels that are all zero and got a floor.
        opset: operator set before and after.
        given_weights: weights whose scales were given, not computed.
    """

    model: onnx.ModelProto
    plan: QuantizationPlan
    notes: tuple[Note, ...]
    dead_channels: Mapping[str, tuple[int, ...]]
    opset: tuple[int, int]
    given_weights: tuple[str, ...] = ()


def quantize_model(
    model: onnx.ModelProto,
    ranges: Mapping[str, float],
    target: Target = "trt11",
    options: PlacementOptions = DEFAULTS,
    weights: Mapping[str, WeightRange] | None = None,
) -> QdqResult:
    """Make the Q/DQ model of a float model.

    The operator set is raised where per-channel scales (13) or float16 scales (19) need it. Where the converter
    cannot, weights get one scale each at the model's own opset, and a note says so. Batch normalisation is folded into
    the layers before it (:mod:`calib.stages.foldnorms`), so that scales belong to the weights that are used.

    Args:
        model: the float model, external data loaded; not changed.
        ranges: amax by tensor name, from a calibrator, a cache or any mapping. A cache's ``scale * 127`` in float64
            gives its very scale again: 24 bits times 7 bits fit into 53, so ``/ 127`` is exact.
        target: what will read the model.
        options: placement choices.
        weights: ranges of weights by tensor name that shall hold instead of their largest magnitudes; these weights
            stay as they are, whatever normalisation follows.

    Raises:
        ModelError: the model holds Q/DQ already, a weight is not finite, or its opset is too old for Q/DQ and
            cannot be raised.
        StatisticsError: an amax is negative, infinite or NaN.
    """
    before = opset_of(model)
    weights = weights or {}
    raised, reason = raise_opset(model, options)
    folding = fold_norms(raised, keep=frozenset(weights))
    raised, options = folding.model, replace(options, float_nodes=folding.renamed(options.float_nodes))
    network = analyse(raised)
    plan = plan_quantization(network, ranges, target, options, unreadable_weights(raised, network))
    written, dead = write_qdq(raised, network, plan, weights)
    opset = (before, opset_of(written))
    fixed = tuple(raised.graph.input[place].name for place in overridable(raised))
    notes = notes_of(plan, network, ranges, dead, opset=opset, fallback=reason, folded=folding.folded, fixed=fixed)
    given = tuple(item.tensor for item in plan.weights if item.tensor in weights)
    return QdqResult(written, plan, notes, dead, opset, given)


def raise_opset(model: onnx.ModelProto, options: PlacementOptions) -> tuple[onnx.ModelProto, str]:
    """Raise the operator set as far as the scales need.

    Returns:
        the model (itself where nothing is to be raised), and the reason why it was not raised as far as per-channel
        scales need it, or nothing.

    Raises:
        ModelError: it is too old for Q/DQ and the converter cannot raise it.
    """
    types = {str(analysed.elem_type) for analysed in analyse(model).activations}
    needed = max((MINIMUM_OPSET[item] for item in types if item in MINIMUM_OPSET), default=10)
    wanted = max(needed, PER_CHANNEL_OPSET) if options.per_channel else needed
    try:
        return convert_opset(model, wanted), ""
    except ModelError as error:
        if opset_of(model) >= needed:
            return model, error.got
        if wanted == needed:
            raise
        return convert_opset(model, needed), error.got


def unreadable_weights(model: onnx.ModelProto, network: Network) -> frozenset[str]:
    """Name the constant operands of layers whose value cannot be computed here."""
    reader = ConstantReader(model, network)
    stored = {tensor.name for tensor in model.graph.initializer}
    operands = {name for node in network.nodes if is_standard(node, *COMPUTE) for name in node.inputs[:2]}
    computed = (operands & network.constants) - stored
    return frozenset(name for name in computed if reader.value(name) is None)


def write_qdq(
    model: onnx.ModelProto, network: Network, plan: QuantizationPlan, weights: Mapping[str, WeightRange] = NO_WEIGHTS
) -> tuple[onnx.ModelProto, dict[str, tuple[int, ...]]]:
    """Insert a plan's pairs into a copy of the model.

    Args:
        model: the model the network was analysed from.
        network: its analysis.
        plan: made from that network.
        weights: ranges of weights that shall hold instead of their largest magnitudes; others' are computed.

    Returns:
        The new model, and the dead channels by weight.

    Raises:
        ModelError: a weight holds NaN or infinity.
    """
    writer = _Writer(network)
    reader = ConstantReader(model, network)
    for pair in plan.activations:
        writer.add(pair, scale_from_amax(pair.amax, pair.elem_type), None)
    for weight in plan.weights:
        amax = _amax(weight, reader)
        chosen = given_amax(amax, weights[weight.tensor]) if weight.tensor in weights else amax
        writer.add(weight, scale_from_amax(chosen, weight.elem_type), weight.axis)
        dead = tuple(int(index) for index in np.flatnonzero(amax == 0))
        writer.dead.update({weight.tensor: dead} if dead else {})
    return writer.assemble(model), writer.dead


def given_amax(observed: NDArray[np.float64], given: WeightRange) -> NDArray[np.float64]:
    """Carry a weight's given ranges over to the weight of this model.

    Where the two weights differ, as by a folded batch normalisation, each channel keeps its share of the largest
    magnitude: folding scales both by the same factor.

    Args:
        observed: largest magnitudes of this model's weight, ``[C]`` or 0-d.
        given: ranges from elsewhere.

    Returns:
        amax, shape of ``observed``; ``observed`` itself where the shapes differ or the given weight is not known.
    """
    before = given.observed
    if before is None or before.shape != given.scales.shape or not before.size:
        return observed
    amax = np.asarray(given.scales * QUANT_MAX)
    if not observed.ndim:  # one scale where the other file has one a channel: the largest, as it was trained
        before, amax = before.max(), amax.max()
    if before.shape != observed.shape:
        return observed
    alive = before > 0
    folded = np.where(alive, observed * amax / np.where(alive, before, 1.0), observed)
    return np.asarray(np.where(before == observed, amax, folded))


def _amax(weight: WeightQuantizer, reader: ConstantReader) -> NDArray[np.float64]:
    value = reader.value(weight.tensor)
    if value is None:
        raise ModelError(
            f"weight {weight.tensor!r}", expected="a constant", got="nothing that can be folded", remedy="fold it first"
        )
    try:
        return weight_amax(value, weight.axis)
    except StatisticsError as error:
        raise ModelError(
            f"weight {weight.tensor!r}", expected=error.expected, got=error.got, remedy=error.remedy
        ) from error


@dataclass
class _Writer:
    """Collects pairs, then lays the nodes out anew."""

    network: Network
    dead: dict[str, tuple[int, ...]] = field(default_factory=dict)
    _taken: set[str] = field(default_factory=set)
    _initializers: list[onnx.TensorProto] = field(default_factory=list)
    _zero_points: dict[tuple[int, ...], str] = field(default_factory=dict)
    _rewired: dict[Use, str] = field(default_factory=dict)
    _pairs: dict[int, list[onnx.NodeProto]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._taken.update(self.network.names)
        self._position = {index: place for place, index in enumerate(self.network.order)}

    def _name(self, wanted: str) -> str:
        """Take a name that no node, tensor or initialiser of the model has, at any depth."""
        return fresh(wanted, self._taken)

    def add(self, pair: ActivationQuantizer | WeightQuantizer, scale: NDArray[np.float64], axis: int | None) -> None:
        """Make a pair's nodes and initialisers, to stand before its first consumer."""
        tensor = pair.tensor
        operands = [self._scale(tensor, scale, pair.elem_type), self._zero_point(tensor, scale.shape)]
        quantized, restored = self._name(f"{tensor}_quantized"), self._name(f"{tensor}_dequantized")
        nodes = [
            _node(op, [source, *operands], result, self._name(f"{tensor}_{op}"), axis)
            for op, source, result in (
                ("QuantizeLinear", tensor, quantized),
                ("DequantizeLinear", quantized, restored),
            )
        ]
        first = min(pair.uses, key=lambda use: self._position[use.node]).node
        self._pairs.setdefault(first, []).extend(nodes)
        self._rewired.update(dict.fromkeys(pair.uses, restored))

    def _scale(self, tensor: str, scale: NDArray[np.float64], elem_type: str) -> str:
        name = self._name(f"{tensor}_scale")
        kind = ELEMENT_TYPES[elem_type]
        self._initializers.append(helper.make_tensor(name, kind, scale.shape, scale.ravel().tolist()))
        return name

    def _zero_point(self, tensor: str, shape: tuple[int, ...]) -> str:
        if shape not in self._zero_points:
            name = self._name(f"{tensor}_zero_point")
            self._initializers.append(numpy_helper.from_array(np.zeros(shape, np.int8), name))
            self._zero_points[shape] = name
        return self._zero_points[shape]

    def assemble(self, model: onnx.ModelProto) -> onnx.ModelProto:
        """Copy the model with the pairs in place; node order is kept where it is topological.

        Initialisers that are listed as inputs are listed no more: ranges and scales rest on their values, which a
        caller could replace, and for a runtime they would be no constants.
        """
        answer = onnx.ModelProto()
        answer.CopyFrom(model)
        for place in reversed(overridable(model)):
            del answer.graph.input[place]
        del answer.graph.node[:]
        answer.graph.node.extend(self._nodes(model))
        answer.graph.initializer.extend(self._initializers)
        standard = helper.make_opsetid("", self.network.opset)
        answer.ir_version = max(model.ir_version, helper.find_min_ir_version_for([standard]))
        return answer

    def _nodes(self, model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
        for index in self.network.order:
            yield from self._pairs.get(index, ())
            node = onnx.NodeProto()
            node.CopyFrom(model.graph.node[index])
            for slot in range(len(node.input)):
                node.input[slot] = self._rewired.get(Use(index, slot), node.input[slot])
            yield node


def overridable(model: onnx.ModelProto) -> tuple[int, ...]:
    """Places in the list of inputs of those that are initialisers, whose values a caller may replace."""
    stored = {tensor.name for tensor in model.graph.initializer}
    return tuple(place for place, item in enumerate(model.graph.input) if item.name in stored)


def _node(op_type: str, inputs: list[str], output: str, name: str, axis: int | None) -> onnx.NodeProto:
    """Make a Q or DQ node; the axis is written wherever there is one, for readers differ in its default."""
    node = helper.make_node(op_type, inputs, [output], name=name)
    if axis is not None:
        node.attribute.append(helper.make_attribute("axis", axis))
    return node


def activation_ranges(model: onnx.ModelProto) -> dict[str, float]:
    """Read amax (``scale * 127``) of every activation that a Q/DQ model quantizes per tensor, in node order.

    ``quantize_model`` on the float model with these ranges gives the same scales again, to the bit.
    """
    return {item.name: item.amax for item in read_qdq(model, "model")}
