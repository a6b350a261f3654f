"""Which tensors of the reference one of the candidate may be: by name, by structure, by its neighbours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set

from calib.stages.diagnose.foldsteps import FOLDING
from calib.stages.diagnose.matches import Match
from calib.stages.diagnose.onnxtrace import OnnxTrace
from calib.stages.diagnose.prior import guess
from calib.stages.diagnose.trace import Step, Trace


def _norm_behind(trace: Trace, step: Step) -> Step | None:
    """The batch norm that alone reads a step."""
    readers = trace.readers.get(step.outputs[0], [])
    return readers[0] if len(readers) == 1 and readers[0].kind == "BatchNormalization" else None


class Counterparts:
    """Candidates for a match, the likeliest first.

    Args:
        reference: the reference's trace.
        candidate: the candidate's.
    """

    def __init__(self, reference: Trace, candidate: OnnxTrace) -> None:
        self.reference, self.candidate = reference, candidate
        self.prior = guess(reference, candidate)

    def of(self, step: Step, slot: int, name: str, matches: Mapping[str, Match], taken: Set[str]) -> list[str]:
        """Tensors of the reference that a tensor may be.

        Args:
            step: the candidate's step that makes it.
            slot: its place among the step's outputs.
            name: the tensor.
            matches: what is known of the tensors before it.
            taken: tensors of the reference that are matched already.
        """
        found = dict.fromkeys(self._behind_norm(step, item) for item in self._likely(step, slot, name, matches, taken))
        return [item for item in found if item in self.reference.values]

    def _behind_norm(self, step: Step, wanted: str) -> str:
        """Where only the reference has its batch norm apart, a folded convolution is what stands behind it."""
        maker = self.reference.makers.get(wanted)
        if maker is None or step.kind not in FOLDING or maker.kind not in FOLDING:
            return wanted
        mine, theirs = _norm_behind(self.candidate, step), _norm_behind(self.reference, maker)
        if (mine is None) == (theirs is None):
            return wanted
        return "" if theirs is None else theirs.outputs[0]

    def _likely(self, step: Step, slot: int, name: str, matches: Mapping[str, Match], taken: Set[str]) -> Iterator[str]:
        if name in self.prior:
            yield self.prior[name]
        if name in self.reference.makers:
            yield name
        yield from self._beside(step, slot, matches, taken)
        yield from self._in_front(name)
        outputs, theirs = self.candidate.outputs, self.reference.outputs
        if name in outputs and len(outputs) == len(theirs):
            yield theirs[outputs.index(name)]

    def _beside(self, step: Step, slot: int, matches: Mapping[str, Match], taken: Set[str]) -> Iterator[str]:
        """What the reference makes of the same tensors, by the same operator first."""
        sources = [matches[name].reference for name in step.data if name in matches]
        if not sources:
            return
        readers = self.reference.readers.get(sources[0], [])
        fitting = [other for other in readers if set(sources) <= set(other.data) and slot < len(other.outputs)]
        for other in sorted(fitting, key=lambda other: (other.kind != step.kind, other.outputs[slot] in taken)):
            yield other.outputs[slot]

    def _in_front(self, name: str) -> Iterator[str]:
        """What the counterparts of the steps that read this tensor read in its place."""
        for reader in self.candidate.readers.get(name, ()):
            match = next((self.prior[item] for item in reader.outputs if item in self.prior), None)
            other = self.reference.makers.get(match or "")
            if other is not None and len(other.data) == len(reader.data) and other.kind == reader.kind:
                yield other.data[reader.data.index(name)]
