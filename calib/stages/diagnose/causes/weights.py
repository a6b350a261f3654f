"""Changed weights: which, how much, and in what way."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.weightdiff import WeightChange
from calib.stages.diagnose.case import Case, Change
from calib.stages.diagnose.causes.common import CONFIRMED, GUESSED, LIKELY, make_cause, restored
from calib.stages.diagnose.causes.normalization import NORMS
from calib.stages.diagnose.steprun import Mend
from calib.types.diagnosis import Cause

KINDS = {
    "permuted": "weights-permuted",
    "transposed": "weights-transposed",
    "flipped": "weights-flipped",
    "rounded-fp16": "weights-rounded",
    "rounded-bf16": "weights-rounded",
    "truncated-bf16": "weights-rounded",
    "truncated": "weights-rounded",
    "quantized": "weights-quantized",
    "zeroed": "weights-zeroed",
    "scaled": "weights-scaled",
    "offset": "weights-offset",
    "few": "weights-changed",
    "perturbed": "weights-changed",
    "replaced": "weights-replaced",
    "missing": "bias-missing",
    "added": "bias-added",
    "shape": "weights-replaced",
}
ADVICE = {
    "weights-permuted": "channels changed places between checkpoint and graph; export again without reordering",
    "weights-transposed": "one side stores this weight transposed; check the layout that the converter assumes",
    "weights-rounded": "export in float32 and let the builder round: INT8 scales belong to the unrounded weights",
    "weights-zeroed": "the checkpoint was pruned or damaged; export again from the one that was evaluated",
    "weights-replaced": "the candidate comes from another checkpoint; export again from the one that was evaluated",
    "weights-scaled": "a batch norm folded with other statistics or another epsilon scales channels like this",
    "bias-missing": "the bias was lost in the export or in folding the batch norm",
}


def detect(case: Case) -> Iterator[Cause]:
    """Find weights that changed."""
    changes = [item for item in case.changes if item.what == "weight" and item.kind not in NORMS and item.weights]
    for change in changes:
        yield _cause(case, change, len(changes))


def _cause(case: Case, change: Change, several: int) -> Cause:
    step, other, found = change.step, change.other, change.weights
    if found is None:
        raise AssertionError(change)
    healed = _heals(case, change)
    if not healed and several > 1 and step is not None and other is not None:
        theirs = {name: weights for name, weights in other.weights.items() if name in step.weights}
        healed = case.heals_with(step, Mend(weights=theirs))
    kind = KINDS[found.kind]
    sure = CONFIRMED if healed else LIKELY if several > 1 else GUESSED + 0.2
    what = f"the reference's {change.name}"
    return make_cause(
        case, step, kind, f"{change.label}: the weights {change.name} changed: {found.words}", other=other,
        evidence=(*restored(case, healed=healed, what=what), _size(found)), remedy=ADVICE.get(kind, _remedy(found)),
        confidence=sure - (0.01 if change.name == "B" else 0.0),
        details={"operand": change.name, "relative": found.relative, "change": found.kind, **found.details},
    )  # fmt: skip


def _heals(case: Case, change: Change) -> bool:
    step, other = change.step, change.other
    theirs = None if other is None else other.weights.get(change.name)
    if step is None or theirs is None:
        return False
    return case.heals_with(step, Mend(weights={change.name: theirs}))


def _size(found: WeightChange) -> str:
    return f"the weights' relative change is {found.relative:.2g}"


def _remedy(found: WeightChange) -> str:
    del found
    return "export again from the checkpoint that was evaluated, and compare its hash"
