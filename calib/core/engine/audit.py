"""What became of a quantization plan in an engine: which layers run INT8, which fell back, what reformats cost."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from calib.core.engine.layerinfo import EngineInfo, EngineLayer
from calib.core.plan import Decision
from calib.core.roles import COMPUTE
from calib.errors import FormatError

SCHEMA = 1
Outcome = Literal["int8", "fell back", "float", "unplanned int8", "not found"]
GENERATED = ("_QuantizeLinear", "_DequantizeLinear")
"""Endings of node names that stand for a Q/DQ pair and not for the layer itself."""


@dataclass(frozen=True)
class LayerOutcome:
    """What became of one layer of the network.

    Attributes:
        layer: its label.
        op_type: operator.
        planned: ``int8`` or ``float``.
        outcome: ``int8`` as planned; ``fell back`` to float; ``float`` as planned; ``unplanned int8``; ``not found`` in
            the engine.
        precision: type that it runs in, or empty.
        engine_layer: the engine layer it is part of, or empty.
        milliseconds: that engine layer's time, or None without a profile.
    """

    layer: str
    op_type: str
    planned: str
    outcome: Outcome
    precision: str
    engine_layer: str
    milliseconds: float | None


@dataclass(frozen=True)
class Reformat:
    """A layer that only changes type or layout.

    Attributes:
        name: as TensorRT calls it.
        change: from and to, as ``fp32 → int8``.
        elements: elements moved, or None.
        milliseconds: its time, or None without a profile.
    """

    name: str
    change: str
    elements: int | None
    milliseconds: float | None


@dataclass(frozen=True)
class Audit:
    """The account of an engine.

    Attributes:
        layers: compute layers of the network, in network order.
        reformats: in engine order.
        precisions: number of working engine layers by type.
        total_ms: sum of all layer times, or None without a profile.
        schema: form of the layer information.
    """

    layers: tuple[LayerOutcome, ...]
    reformats: tuple[Reformat, ...]
    precisions: Mapping[str, int]
    total_ms: float | None
    schema: str

    def with_outcome(self, outcome: Outcome) -> tuple[LayerOutcome, ...]:
        """List the layers of one outcome."""
        return tuple(item for item in self.layers if item.outcome == outcome)

    @property
    def reformat_ms(self) -> float | None:
        """Time spent in reformats, or None without a profile."""
        return None if self.total_ms is None else sum(item.milliseconds or 0.0 for item in self.reformats)

    def document(self) -> dict[str, Any]:
        """The account as JSON values."""
        return {
            "schema": SCHEMA,
            "layer_information": self.schema,
            "counts": dict(Counter(item.outcome for item in self.layers)),
            "engine_layers_by_type": dict(self.precisions),
            "total_ms": self.total_ms,
            "reformat_ms": self.reformat_ms,
            "layers": [asdict(item) for item in self.layers],
            "reformats": [asdict(item) for item in self.reformats],
        }

    def lines(self) -> tuple[str, ...]:
        """The account for people, a line a finding."""
        return tuple(_lines(self))


def audit_engine(info: EngineInfo, decisions: Sequence[Decision], times: Mapping[str, float] | None = None) -> Audit:
    """Compare an engine with the plan it should follow.

    Args:
        info: the engine's layers, told in detail.
        decisions: of the quantization plan; only compute layers are looked for.
        times: milliseconds by engine layer name, or None without a profile.

    Raises:
        FormatError: the layer information holds names only.
    """
    if not info.detailed:
        raise FormatError(
            "layer information",
            expected="types and kernels of the layers",
            got="their names only",
            remedy="build with detailed profiling verbosity (trtexec --profilingVerbosity=detailed)",
        )
    homes = _homes(info.layers)
    layers = [_outcome(item, homes, times) for item in decisions if item.op_type in COMPUTE]
    reformats = [_reformat(layer, times) for layer in info.layers if layer.is_reformat]
    working = [layer for layer in info.layers if not layer.is_empty and not layer.is_reformat]
    counts = Counter(layer.precision or "other" for layer in working)
    total = None if times is None else sum(times.values())
    return Audit(tuple(layers), tuple(reformats), dict(sorted(counts.items())), total, info.schema)


def read_profile(text: str | bytes, place: str = "profile") -> dict[str, float]:
    """Read average milliseconds by layer from what ``trtexec --exportProfile`` or ``calib engine`` wrote.

    Raises:
        FormatError: it is no such file.
    """
    try:
        entries = [item for item in json.loads(text) if "name" in item]
        found: dict[str, float] = {}
        for item in entries:  # a name may occur twice; both did work
            found[item["name"]] = found.get(item["name"], 0.0) + float(item["averageMs"])
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
        raise FormatError(
            place,
            expected="a list of layer times",
            got=f"{type(error).__name__}: {error}"[:200],
            remedy="write it with `trtexec --exportProfile=FILE`, or `calib engine`",
        ) from error
    return found


def _homes(layers: Iterable[EngineLayer]) -> dict[str, EngineLayer]:
    """Engine layer by the name of an ONNX node in it; a working layer goes before a reformat that names the node."""
    found: dict[str, EngineLayer] = {}
    for layer in layers:
        for node in layer.nodes:
            held = found.get(node)
            if held is None or _rank(layer) > _rank(held):
                found[node] = layer
    return found


def _rank(layer: EngineLayer) -> int:
    if layer.is_reformat or layer.is_empty:
        return 0
    return 2 if layer.weights else 1


def _outcome(decision: Decision, homes: Mapping[str, EngineLayer], times: Mapping[str, float] | None) -> LayerOutcome:
    planned = "int8" if decision.status == "int8" else "float"
    home = next((homes[name] for name in names_of(decision.label) if name in homes), None)
    precision = "" if home is None else home.precision
    outcome: Outcome
    if home is None or not precision:
        outcome = "not found"
    elif planned == "int8":
        outcome = "int8" if precision == "int8" else "fell back"
    else:
        outcome = "unplanned int8" if precision == "int8" else "float"
    spent = None if home is None or times is None else times.get(home.name)
    name = "" if home is None else home.name
    return LayerOutcome(decision.label, decision.op_type, planned, outcome, precision, name, spent)


def names_of(label: str) -> Iterator[str]:
    """Names under which TensorRT's parser knows a node: its own, or ``node_of_OUTPUT`` where it has none."""
    yield label
    if label.endswith(")") and "(" in label:
        yield f"node_of_{label.partition('(')[2][:-1]}"


def _reformat(layer: EngineLayer, times: Mapping[str, float] | None) -> Reformat:
    source = next((tensor for tensor in layer.inputs), None)
    target = next((tensor for tensor in layer.outputs), None)
    if source is None or target is None:
        change = ""
    elif source.dtype == target.dtype:
        change = f"{source.dtype}, other layout"
    else:
        change = f"{source.dtype} → {target.dtype}"
    elements = None if target is None else target.elements
    return Reformat(layer.name, change, elements, None if times is None else times.get(layer.name))


def _lines(audit: Audit) -> Iterator[str]:
    counts = Counter(item.outcome for item in audit.layers)
    planned = counts["int8"] + counts["fell back"]
    yield f"{counts['int8']} of {planned} layers planned for INT8 run in it" + _share(audit)
    for outcome, text in (
        ("fell back", "fell back to float"),
        ("unplanned int8", "run in INT8 against the plan"),
        ("not found", "are not found in the engine by name"),
    ):
        for item in audit.with_outcome(outcome):  # type: ignore[arg-type]
            yield f"{text}: {item.layer} ({item.op_type}{', ' + item.precision if item.precision else ''})"
    yield _reformat_line(audit)


def _share(audit: Audit) -> str:
    types = ", ".join(f"{count} {kind}" for kind, count in audit.precisions.items())
    return f"; engine layers by type: {types}" if types else ""


def _reformat_line(audit: Audit) -> str:
    text = f"{len(audit.reformats)} reformats"
    if audit.total_ms and audit.reformat_ms is not None:
        text += (
            f" take {audit.reformat_ms:.3f} ms of {audit.total_ms:.3f} ms ({audit.reformat_ms / audit.total_ms:.1%})"
        )
    return text
