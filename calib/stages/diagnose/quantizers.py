"""Q/DQ pairs against what they quantize: clipped shares, levels used, error beyond what eight bits must cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from calib.core.expose import expose
from calib.core.graph import Network, analyse
from calib.stages.diagnose.onnxtrace import Runtime, pruned
from calib.stages.diagnose.quantizer import Quantizer
from calib.types.runner import Feeds, to_host

LEVELS = 127.0


@dataclass
class Meter:
    """What one pair does to a tensor, added up over images.

    Attributes:
        quantizer: the pair.
        elements: seen so far.
        clipped: elements beyond the range.
        signal: sum of squares.
        error: sum of squared errors.
        low: smallest value.
        high: largest.
        non_finite: NaN or infinite elements, which enter nothing else.
        axis: axis of the tensor's channels, None where it has none.
        channels: largest magnitude of every channel, ``[C]``; None before the first tensor, or without an axis.
    """

    quantizer: Quantizer
    elements: int = 0
    clipped: int = 0
    signal: float = 0.0
    error: float = 0.0
    low: float = math.inf
    high: float = -math.inf
    non_finite: int = 0
    axis: int | None = None
    channels: NDArray[np.float64] | None = None

    def add(self, value: NDArray[Any]) -> None:
        """Add a tensor."""
        whole = np.asarray(value, np.float64)
        finite = np.isfinite(whole)
        if not finite.all():
            self.non_finite += int(np.count_nonzero(~finite))
            whole = np.where(finite, whole, 0.0)
        integers = self.quantizer.integers(whole)
        self.clipped += int(np.count_nonzero((integers < self.quantizer.low) | (integers > self.quantizer.high)))
        error = self.quantizer.fake(whole) - whole
        self.error += float(np.sum(error * error))
        self.signal += float(np.sum(whole * whole))
        self.elements += whole.size
        self.low = min(self.low, float(whole.min(initial=math.inf)))
        self.high = max(self.high, float(whole.max(initial=-math.inf)))
        if self.axis is not None and self.axis < whole.ndim and whole.size:
            amax = np.abs(whole).max(axis=tuple(axis for axis in range(whole.ndim) if axis != self.axis))
            same = self.channels is not None and self.channels.shape == amax.shape
            self.channels = np.maximum(self.channels, amax) if same and self.channels is not None else amax

    @property
    def amax(self) -> float:
        """Largest magnitude seen, 0 before the first tensor."""
        return max(abs(self.low), abs(self.high)) if self.elements else 0.0

    @property
    def sqnr_db(self) -> float:
        """Signal to error of this pair alone."""
        if not self.error:
            return math.inf
        return 10 * math.log10(self.signal / self.error) if self.signal else -math.inf

    @property
    def clipped_share(self) -> float:
        """Share of the elements beyond the range, 0..1."""
        return self.clipped / self.elements if self.elements else 0.0

    @property
    def levels(self) -> float:
        """Integers that the observed range spans."""
        scale = float(self.quantizer.scale.max())
        return (self.high - self.low) / scale if self.elements and scale > 0 else 0.0

    @property
    def excess_db(self) -> float:
        """Error beyond that of a symmetric range that just holds everything (a step squared over twelve)."""
        least = (self.amax / LEVELS) ** 2 / 12 * self.elements
        if not least or not self.error:
            return 0.0
        return 10 * math.log10(self.error / least)


def measure(model: onnx.ModelProto, quantizers: Sequence[Quantizer], images: Iterable[Feeds], runtime: Runtime,
            weights: Mapping[str, NDArray[Any]]) -> dict[str, Meter]:  # fmt: skip
    """Run the float twin on some images and measure every pair on its own tensor.

    Args:
        model: the float twin.
        quantizers: its pairs.
        images: one batch each; one is held at a time.
        runtime: runs the twin, without optimizations.
        weights: float weights by tensor.

    Returns:
        a meter a pair, by the output of its DequantizeLinear.
    """
    network = analyse(model)
    axes = {item.name: item.channel_axis for item in network.activations}
    meters = {item.output: Meter(item, axis=axes.get(item.tensor)) for item in quantizers}
    inputs = {item.name for item in network.inputs}
    active = [item for item in quantizers if item.constant is None]
    names = [name for name in dict.fromkeys(item.tensor for item in active) if name not in inputs]
    runner = runtime.load(expose(pruned(model, network, names), names), optimize=False) if names else None
    for feeds in images:
        values = dict(feeds) | ({} if runner is None else dict(runner.run(feeds)))
        for item in active:
            if item.tensor in values:
                meters[item.output].add(to_host(values[item.tensor]))
    for item in quantizers:
        if item.constant is not None:
            meters[item.output].add(weights.get(item.tensor, item.constant))
    return meters


@dataclass(frozen=True)
class Places:
    """Which pairs feed parts that are better left float.

    Attributes:
        logits: outputs of pairs that the last layer reads, or that quantize its answer.
        gates: outputs of pairs inside squeeze-and-excitation gates.
    """

    logits: frozenset[str]
    gates: frozenset[str]


def sensitive_places(network: Network, quantizers: Sequence[Quantizer]) -> Places:
    """Find the pairs at the logits layer and in gates; weights are left out, they follow their layer."""
    from calib.core.roles import find_roles

    roles = find_roles(network)
    logits = {network.nodes[index].label for index in roles.logits}
    gates = {network.nodes[index].label for index in roles.gates}
    made = {name: node.label for node in network.nodes for name in node.outputs}
    behind = _behind_logits(network, roles.logits)
    found: dict[str, set[str]] = {"logits": set(), "gates": set()}
    for item in quantizers:
        if item.constant is not None:
            continue
        near = {*item.readers, made.get(item.tensor, "")}
        if logits.intersection(item.readers) or item.tensor in behind:
            found["logits"].add(item.output)
        elif len(gates & near) and _inside_gate(item, network, gates):
            found["gates"].add(item.output)
    return Places(frozenset(found["logits"]), frozenset(found["gates"]))


def _behind_logits(network: Network, layers: Iterable[int]) -> set[str]:
    """Tensors from a logits layer on."""
    found = {name for index in layers for name in network.nodes[index].outputs}
    for index in network.order:
        node = network.nodes[index]
        if found.intersection(node.inputs):
            found.update(node.outputs)
    return found


def _inside_gate(item: Quantizer, network: Network, gates: set[str]) -> bool:
    """Whether the pair quantizes the gate's vector, rather than the map that it multiplies."""
    maker = network.producer(item.tensor)
    return maker is not None and maker.label in gates and maker.op_type != "Mul"
