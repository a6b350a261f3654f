"""Departures of two aligned networks: where a step makes another tensor than its counterpart, and from what steps."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from calib.stages.diagnose.matches import Departure, Match
from calib.stages.diagnose.onnxtrace import OnnxTrace
from calib.stages.diagnose.trace import Step, Trace

Matches = Mapping[str, Match]


def in_order(candidate: OnnxTrace, matches: Matches) -> dict[str, Match]:
    """Matches in the candidate's order."""
    depth = candidate.depth
    return dict(sorted(matches.items(), key=lambda item: (depth.get(item[0], 0), item[0])))


def departures_of(
    reference: Trace, candidate: OnnxTrace, matches: Matches, taken: Collection[str], strong: Collection[str]
) -> list[Departure]:
    """List the tensors whose step makes any error at all, or is another step than its counterpart.

    Args:
        reference: its trace.
        candidate: the candidate's.
        matches: every tensor that was recognised, in the candidate's order.
        taken: tensors of the reference that some tensor of the candidate was recognised as, at any time.
        strong: tensors whose values had to be replaced by the reference's.
    """
    made = (name for name, match in matches.items() if match.how != "input")
    departed = [
        name for name in made if matches[name].born.relative > 0 or _differs(reference, candidate, matches, name)
    ]
    return [_departure(reference, candidate, matches, taken, name, strong=name in strong) for name in departed]


def _differs(reference: Trace, candidate: OnnxTrace, matches: Matches, name: str) -> bool:
    step, other = candidate.makers.get(name), reference.makers.get(matches[name].reference)
    return step is not None and other is not None and other.kind == step.kind and other.fingerprint != step.fingerprint


def _departure(
    reference: Trace, candidate: OnnxTrace, matches: Matches, taken: Collection[str], tensor: str, *, strong: bool
) -> Departure:
    match = matches[tensor]
    if tensor in candidate.inputs:
        return Departure(tensor, match.reference, (), (), (), match.born, strong)
    steps, frontier = _piece(candidate, matches, tensor)
    known = {matches[name].reference for name in frontier}
    theirs = _reference_piece(reference, match.reference, known, taken)
    return Departure(tensor, match.reference, steps, theirs, frontier, match.born, strong)


def _piece(candidate: OnnxTrace, matches: Matches, tensor: str) -> tuple[tuple[Step, ...], tuple[str, ...]]:
    """The candidate's steps from recognised tensors to this one, and those tensors."""
    steps: dict[int, Step] = {}
    frontier: dict[str, None] = {}
    pending = [candidate.makers[tensor]]
    while pending:
        step = pending.pop()
        steps[step.index] = step
        for name in step.data:
            maker = candidate.makers.get(name)
            if name in matches or maker is None:
                frontier[name] = None
            elif maker.index not in steps:
                pending.append(maker)
    return tuple(steps[index] for index in sorted(steps)), tuple(frontier)


def _reference_piece(reference: Trace, wanted: str, known: set[str], taken: Collection[str]) -> tuple[Step, ...]:
    """The reference's steps from the same tensors, or from others that have a counterpart, to the wanted one."""
    steps: dict[int, Step] = {}
    pending = [] if wanted in known else [wanted]
    stop = known.union(taken) - {wanted}
    while pending:
        step = reference.makers.get(pending.pop())
        if step is None or step.index in steps:
            continue
        steps[step.index] = step
        pending.extend(name for name in step.data if name not in stop)
    return tuple(steps[index] for index in sorted(steps))
