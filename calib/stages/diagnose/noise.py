"""How much error rounding alone may leave in a piece of a network, so that a sound pair is not called faulty.

The piece is run once more with every operand moved by one unit in the last place: what that changes is what rounding
can change (stochastic arithmetic: Vignes, Math. Comput. Simul. 35, 1993). Cancellation and ill-conditioned steps show
by themselves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.core.difference import difference
from calib.stages.diagnose.case import Case, Change
from calib.stages.diagnose.steprun import Mend

FLOOR = 3e-6
"""Relative error that sums in another order leave in float32."""
ROOM = 16.0
"""The longest sums go on rounding where the perturbation stops."""
CERTAIN = 1e-5
"""Relative change of weights that no folding and no exporter makes."""
SHORT = {"float16": 8e-3, "bfloat16": 6e-2}
"""Relative error that is rounding wherever a short type is involved: eight units in the last place."""


def noise_of(case: Case) -> float:
    """Relative error that rounding may leave in the piece of a departure."""
    short = [SHORT[name] for name in _types(case) if name in SHORT]
    if short:
        return max(short)
    if case.departure.born.relative <= FLOOR:
        return FLOOR
    return max(FLOOR, ROOM * _spread(case))


def _types(case: Case) -> set[str]:
    found = {array.dtype.name for array in case.inputs.values()}
    found |= {array.dtype.name for step in case.departure.steps for array in step.weights.values()}
    own = case.own
    return found | ({own.dtype.name} if own is not None else set())


def _spread(case: Case) -> float:
    """Relative change of the piece's answer when every operand moves by a unit in the last place."""
    rng = np.random.default_rng(0)
    plain, moved = dict(case.inputs), {name: _nudged(value, rng) for name, value in case.inputs.items()}
    for step in case.departure.steps:
        answer = case.run_alone(step, plain)
        weights = {name: _nudged(value, rng) for name, value in step.weights.items() if value.dtype.kind == "f"}
        other = case.run_alone(step, moved, Mend(weights=weights))
        if answer is None or other is None:
            return 0.0
        plain |= answer
        moved |= {name: _nudged(value, rng) for name, value in other.items()}
    tensor = case.departure.tensor
    found = difference(moved[tensor], plain[tensor]).relative
    return found if np.isfinite(found) else 0.0


def _nudged(value: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
    if value.dtype != np.float32:
        return value
    steps = rng.integers(-1, 2, value.shape).astype(np.float32) * np.float32(2.0**-23)
    return np.asarray(value * (1 + steps), np.float32)


def is_departure(case: Case) -> bool:
    """Whether the error of a piece is more than rounding.

    Of one step against one, changed weights are no rounding however little they do, nor is a parameter that moves
    single elements by a percent. Where both sides do the very same, the rest is the runtimes' own difference, which a
    tenth of a percent hides.
    """
    born = case.departure.born.relative
    if born == 0:
        return False
    if not case.departure.steps and case.departure.strong:
        return True
    if case.is_pair and not _is_short(case) and any(map(_is_certain, case.changes)):
        return True
    if born <= FLOOR:
        return False
    case.noise = noise_of(case)
    if born <= case.noise:
        return case.is_pair and bool(case.changes) and not _is_short(case) and _moves_elements(case)
    return bool(case.changes) or born > max(1e-3, case.noise)


def _is_short(case: Case) -> bool:
    return not _types(case).isdisjoint(SHORT)


def _is_certain(change: Change) -> bool:
    return change.what == "weight" and change.weights is not None and change.weights.relative > CERTAIN


def _moves_elements(case: Case) -> bool:
    wanted = np.asarray(case.wanted, np.float64)
    size = float(np.sqrt(np.mean(wanted * wanted))) if wanted.size else 0.0
    return case.departure.born.maximum > 1e-2 * size
