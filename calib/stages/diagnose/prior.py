"""A first guess which tensor of the candidate is which of the reference; values have the last word."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Mapping

from calib.stages.diagnose.onnxtrace import OnnxTrace
from calib.stages.diagnose.trace import Step, Trace
from calib.stages.matching import match_networks


def guess(reference: Trace, candidate: OnnxTrace) -> dict[str, str]:
    """Guess the counterpart of the candidate's tensors: by weights and structure, then by order.

    Two ONNX networks are matched by :func:`calib.stages.matching.match_networks`; the operators of a PyTorch module
    by their weights, and by order between those.

    Returns:
        tensor of the candidate to tensor of the reference.
    """
    by_weights = dict(_by_weights(reference, candidate))
    if isinstance(reference, OnnxTrace) and reference.network is not None and candidate.network is not None:
        found = match_networks(reference.model, reference.network, candidate.model, candidate.network)
        pairs = {candidate.resolve(theirs): reference.resolve(ours) for ours, theirs in found.pairs.items()}
        return pairs | by_weights
    return _in_order(reference, candidate, by_weights) | by_weights


def _by_weights(reference: Trace, candidate: Trace) -> Iterator[tuple[str, str]]:
    """Steps whose weights occur once in each network."""
    counts = [Counter(step.weight_digest for step in trace.steps) for trace in (reference, candidate)]
    known = {step.weight_digest: step for step in reference.steps if step.weight_digest}
    for step in candidate.steps:
        mark = step.weight_digest
        if mark and counts[0][mark] == 1 and counts[1][mark] == 1:
            yield from zip(step.outputs, known[mark].outputs, strict=False)


def _in_order(reference: Trace, candidate: Trace, sure: Mapping[str, str]) -> dict[str, str]:
    """Match what is left by operator and order; sure pairs hold the two sequences together."""
    ours = [_key(step, reference, {}) for step in reference.steps]
    marks = {theirs: place for place, step in enumerate(reference.steps) for theirs in step.outputs}
    held = {mine: marks[theirs] for mine, theirs in sure.items() if theirs in marks}
    ours = [f"={place}" if place in held.values() else key for place, key in enumerate(ours)]
    theirs = [_key(step, candidate, held) for step in candidate.steps]
    matcher = difflib.SequenceMatcher(None, ours, theirs, autojunk=False)
    found: dict[str, str] = {}
    for block in matcher.get_matching_blocks():
        for offset in range(block.size):
            one, other = reference.steps[block.a + offset], candidate.steps[block.b + offset]
            found |= dict(zip(other.outputs, one.outputs, strict=False))
    return found


def _key(step: Step, trace: Trace, held: Mapping[str, int]) -> str:
    place = next((held[name] for name in step.outputs if name in held), None)
    if place is not None:
        return f"={place}"
    value = trace.values.get(step.outputs[0]) if step.outputs else None
    return f"{step.kind} {None if value is None else value.size}"
