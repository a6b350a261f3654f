"""Whether a network has the weights that a file of ranges was trained or calibrated with.

Ranges belong to weights. A quantization-aware checkpoint put on the network from before the training gives a network
that was never trained: nothing fails, and the accuracy is gone. So every weight beside the ranges is compared with the
network's, through the batch normalisation that the exporter folded, and through the rounding of weights that are stored
as integers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from calib.core.graph import Network, Node
from calib.core.graph.stored import StoredValues
from calib.core.quantization import fake_quantize
from calib.core.sameweights import CLOSE, Likeness, Matrix, Normalisation, compare, rows_of
from calib.stages.modules import ModuleMap
from calib.types.rangetable import RangeTable, Remark, WeightRange

HALF_CLOSE = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
BIAS_CLOSE = 2e-3
SHOWN = 3


@dataclass(frozen=True)
class WeightMatch:
    """A weight of the file and the network's.

    Attributes:
        name: the file's name.
        weight: the network's initialiser.
        likeness: how they compare.
        bias: whether the layer's bias is what the checkpoint gives; None where it cannot be told.
    """

    name: str
    weight: str
    likeness: Likeness
    bias: bool | None = None


def match_weights(
    table: RangeTable, model: onnx.ModelProto, network: Network, modules: ModuleMap
) -> tuple[WeightMatch, ...]:
    """Compare every weight that stands beside the ranges with the network's.

    Args:
        table: with parameters.
        model: the network, external data loaded.
        network: its analysis.
        modules: its modules.
    """
    stored = StoredValues(model)
    norms = normalisations(table.parameters)
    given = {item.name: item for item in table.weights}
    found: list[WeightMatch] = []
    for name, value in table.parameters.items():
        if value.ndim < 2 or value.dtype.kind != "f":
            continue
        ranges = given.get(f"{name.removesuffix('.weight')}.weight_quantizer") or given.get(name)
        ranges = ranges or given.get(f"{name.removesuffix('.weight')}._weight_quantizer")
        for weight, node in layers_of(name, modules).items():
            exported = stored.value(weight)
            if exported is not None and exported.dtype.kind == "f":
                likeness = _likeness(value, exported, node, ranges, norms)
                bias = _bias_agrees(name, node, likeness, table.parameters, stored)
                found.append(WeightMatch(name, weight, likeness, bias))
    return (*found, *_other_vectors(table, stored))


def _other_vectors(table: RangeTable, stored: StoredValues) -> Iterator[WeightMatch]:
    """Find biases and parts of batch normalisations that the network keeps under the file's name, with other values."""
    for name, value in table.parameters.items():
        exported = stored.value(name) if value.ndim == 1 and name in stored.initializers else None
        if exported is not None and exported.shape == value.shape and not _near(value, exported):
            yield WeightMatch(name, name, Likeness("same", 0.0), bias=False)


def _near(first: NDArray[Any], second: NDArray[Any]) -> bool:
    span = max(float(np.abs(first).max(initial=0.0)), 1e-6)
    return bool(np.abs(first - second).max(initial=0.0) <= BIAS_CLOSE * span)


def layers_of(name: str, modules: ModuleMap) -> dict[str, Node]:
    """Find the layers whose weight goes by a name: their initialisers, each with a node that reads it.

    Args:
        name: an initialiser's, or ``MODULE.weight``.
        modules: of the network.
    """
    own = {weight: index for index, weight in modules.weights.items() if weight == name}
    if own:
        readers = (item for group in modules.nodes.values() for item in group if item.index in own.values())
        found = next(readers, None)
        return {name: found} if found is not None else {}
    module = name.removesuffix(".weight")
    nodes = modules.find(module) if module != name else []
    return {modules.weights[node.index]: node for node in nodes if node.index in modules.weights}


def named_weights(table: RangeTable, modules: ModuleMap) -> RangeTable:
    """Give the weights of a table that names tensors the names of the network's, where folding changed them."""
    own = set(modules.weights.values())
    found: list[WeightRange] = []
    for item in table.weights:
        names = [item.name] if item.name in own else list(layers_of(item.name, modules))
        found.extend(replace(item, name=name) for name in names or [item.name])
    return replace(table, weights=tuple(found))


def _likeness(
    trained: NDArray[Any],
    exported: NDArray[Any],
    node: Node,
    ranges: WeightRange | None,
    norms: Mapping[str, Normalisation],
) -> Likeness:
    """Compare in each orientation that fits: exporters transpose the weights of matrix products."""
    transposed, group = node.op_type == "ConvTranspose", node.attributes.get("group", 1)
    groups = group if isinstance(group, int) and group > 0 else 1
    close = _closeness(trained, exported)
    rounded = _rounded(trained, ranges)
    found = [Likeness("shape", 1.0)]
    for turned in _orientations(trained, exported):
        mine, theirs = (rows_of(item, transposed=transposed, group=groups) for item in (trained, turned))
        own = None if rounded is None else rows_of(rounded, transposed=transposed, group=groups)
        found.append(compare(mine, theirs, own, norms, close))
        again = _rounded(turned, ranges)
        if again is not None and np.allclose(again, trained, rtol=close, atol=0):
            found.append(Likeness("rounded", 0.0))
    return min(found, key=lambda item: (not item.sound, item.kind == "shape", item.difference))


def _orientations(trained: NDArray[Any], exported: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Bring a network's weight into the shape of the checkpoint's, in every way that a layer's weight is exported."""
    if exported.shape == trained.shape:
        yield exported
    if exported.ndim == 2 and exported.T.shape == trained.shape:
        yield exported.T
    if exported.shape != trained.shape and exported.size == trained.size:
        squeezed = [tuple(length for length in item.shape if length > 1) for item in (trained, exported)]
        if squeezed[0] == squeezed[1]:
            yield exported.reshape(trained.shape)


def _rounded(weight: NDArray[Any], ranges: WeightRange | None) -> NDArray[Any] | None:
    """Round a weight to the INT8 grid of its ranges; None where they do not fit its shape."""
    if ranges is None or not (np.isfinite(ranges.scales).all() and (ranges.scales > 0).all()):
        return None
    if ranges.axis is None:
        return fake_quantize(weight, ranges.scales) if ranges.scales.ndim == 0 else None
    fits = -weight.ndim <= ranges.axis < weight.ndim and weight.shape[ranges.axis] == ranges.scales.size
    return fake_quantize(weight, ranges.scales, ranges.axis) if fits else None


def _closeness(*weights: NDArray[Any]) -> float:
    """How near is equal: what half precision lost on either side is no difference."""
    found = [CLOSE]
    for weight in weights:
        narrow = np.asarray(weight, np.float32)
        with np.errstate(over="ignore"):
            half = np.array_equal(narrow.astype(np.float16).astype(np.float32), narrow)
        brain = not (narrow.view(np.uint32) & 0xFFFF).any()
        found += [HALF_CLOSE["float16"]] * half + [HALF_CLOSE["bfloat16"]] * brain
    return max(found)


def normalisations(parameters: Mapping[str, NDArray[Any]]) -> dict[str, Normalisation]:
    """Gather the batch normalisations of a state dict by module."""
    found: dict[str, Normalisation] = {}
    for key, value in parameters.items():
        name = key.removesuffix(".running_var")
        if name == key or value.ndim != 1:
            continue
        var = np.asarray(value, np.float64)
        parts = {
            part: np.asarray(parameters.get(f"{name}.{part}", np.full(var.shape, default)), np.float64)
            for part, default in (("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0))
        }
        if all(item.shape == var.shape for item in parts.values()) and (var >= 0).all():
            found[name] = Normalisation(name, parts["weight"], parts["bias"], parts["running_mean"], var)
    return found


def _bias_agrees(
    name: str,
    node: Node,
    likeness: Likeness,
    parameters: Mapping[str, NDArray[Any]],
    stored: StoredValues,
) -> bool | None:
    """Whether the layer's bias is the checkpoint's, with the batch normalisation folded in that its weight shows."""
    exported = stored.value(node.input(2)) if node.input(2) else None
    own = parameters.get(f"{name.removesuffix('.weight')}.bias")
    folded = likeness.normalisation
    if not likeness.sound or exported is None or exported.dtype.kind != "f" or (own is None and folded is None):
        return None
    bias: Matrix | float = 0.0 if own is None else np.asarray(own, np.float64)
    wanted = np.asarray(bias if folded is None else folded.bias(bias, likeness.epsilon))
    return wanted.shape == exported.shape and _near(wanted, exported)


def weight_remarks(table: RangeTable, matches: tuple[WeightMatch, ...]) -> Iterator[Remark]:
    """Say what the comparison found: what was verified, what differs and by how much, what could not be compared."""
    if not any(value.ndim >= 2 for value in table.parameters.values()):
        if table.naming == "module":
            text = "the file holds no weights: whether the network has those that the ranges belong to was not checked"
            yield Remark("weights_unchecked", (), text)
        return
    yield from _differences(matches)
    sound = [item for item in matches if item.likeness.sound and item.bias is not False]
    if sound:
        counts = Counter(item.likeness.kind for item in sound)
        said = ", ".join(f"{count} {KINDS[kind]}" for kind, count in sorted(counts.items()))
        yield Remark("weights_checked", (), f"{len(sound)} weights of the network are the file's: {said}")
    if not matches:
        text = "no weight of the file could be found in the network: whether the ranges belong to its weights is open"
        yield Remark("weights_unchecked", (), text)


KINDS: Mapping[str, str] = {
    "same": "as they are",
    "rounded": "rounded to INT8",
    "folded": "with their batch normalisation folded",
}


def _differences(matches: tuple[WeightMatch, ...]) -> Iterator[Remark]:
    groups = {
        "other": [item for item in matches if item.likeness.kind in {"other", "shape"}],
        "scaled": [item for item in matches if item.likeness.kind == "scaled"],
        "bias": [item for item in matches if item.bias is False],
    }
    texts = {
        "other": f"differ from the network's weights ({_worst(groups['other'])}): the ranges belong to the file's; "
        "export the network again from this checkpoint",
        "scaled": "differ from the network's by a factor a channel that no batch normalisation of the file explains: "
        "the network was exported from another state, or equalized",
        "bias": "have other biases or batch normalisations than the network's, which is from another state",
    }
    for code, found in groups.items():
        if found:
            yield Remark(f"weights_{code}", tuple(item.name for item in found), texts[code], blocks=True)


def _worst(found: list[WeightMatch]) -> str:
    ranked = sorted(found, key=lambda item: -item.likeness.difference)[:SHOWN]
    shown = (
        f"{item.name} has another shape"
        if item.likeness.kind == "shape"
        else f"{item.name} by {item.likeness.difference:.2%} of its largest value"
        for item in ranked
    )
    return ", ".join(shown)
