"""What a diagnosis says: the rungs of the ladder, the departures of tensors, the causes with their evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Stage = Literal["preprocessing", "export", "runtime", "fp16", "quantization", "kernels", "tensorrt"]
"""Where accuracy falls.

``preprocessing``: the candidate is fed other numbers. ``export``: the candidate computes something else than the
reference, in float. ``runtime``: one graph, two runtimes (or optimization levels), two answers. ``fp16``: the cast to
half precision. ``quantization``: the scales of the Q/DQ pairs. ``kernels``: integer kernels against the literal Q/DQ
arithmetic. ``tensorrt``: the engine against the network it was built from.
"""
STAGES: tuple[Stage, ...] = ("preprocessing", "export", "runtime", "fp16", "quantization", "kernels", "tensorrt")

Severity = Literal["fault", "remark"]


@dataclass(frozen=True)
class Cause:
    """A named cause at a place of the network.

    Attributes:
        stage: where accuracy is lost by it.
        kind: class of the cause, a stable code such as ``resize-mode`` or ``weights-permuted``.
        title: the cause in one sentence.
        node: node of the candidate, or of the reference where the candidate lacks it.
        tensor: first tensor that departs, as the candidate names it.
        reference_node: its counterpart in the reference, or empty.
        evidence: what was seen, one sentence each, with numbers.
        remedy: what to do.
        confidence: 0..1; 1 where putting the reference's value back restored the tensor.
        impact: share of the output's squared error that mending it removes, 0..1, or None where not measured.
        severity: ``fault``, or ``remark`` where it is no fault of the candidate.
        details: numbers for machines.
    """

    stage: Stage
    kind: str
    title: str
    node: str
    tensor: str
    reference_node: str = ""
    evidence: tuple[str, ...] = ()
    remedy: str = ""
    confidence: float = 0.5
    impact: float | None = None
    severity: Severity = "fault"
    details: Mapping[str, Any] = field(default_factory=dict)
