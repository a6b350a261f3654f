"""Run the candidate step by step on the reference's tensors: which tensor is which, and where error is born.

Every step of the candidate computes on the reference's values of what it reads, so error does not accumulate: a step
whose answer is off has made the error itself. A tensor is recognised by its value, whatever it is called and however
the operators around it were fused, split or moved. Where an answer matches nothing, the reference's value is put in
its place, first where what follows then agrees again; that place is a departure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from calib.core.difference import APART, Difference, difference
from calib.stages.diagnose.counterparts import Counterparts
from calib.stages.diagnose.departures import departures_of, in_order
from calib.stages.diagnose.lookup import EXACT, Lookup, arranged
from calib.stages.diagnose.matches import Alignment, Match
from calib.stages.diagnose.onnxtrace import OnnxTrace, Runtime
from calib.stages.diagnose.steprun import run_step
from calib.stages.diagnose.trace import Arrays, Step, Trace

CLOSE = 2e-2
"""Relative error up to which a tensor is its counterpart with a fault in it, rather than another tensor."""
ROUNDING = 1e-6
"""Relative error that no detector ever looks at."""
TRIED = 24
"""Tensors behind the first that departs which are tried as the place of the departure."""
MOST = 12
"""Departures after which a candidate is another network."""


def align(reference: Trace, candidate: OnnxTrace, runtime: Runtime) -> Alignment:
    """Align two networks on one image.

    Args:
        reference: with the value of every tensor.
        candidate: values are not needed; its inputs hold what it is fed.
        runtime: runs single steps, without optimizations.
    """
    return _Aligner(reference, candidate, runtime).align()


class _Aligner:
    def __init__(self, reference: Trace, candidate: OnnxTrace, runtime: Runtime) -> None:
        self.reference, self.candidate, self.runtime = reference, candidate, runtime
        self.lookup = Lookup(reference)
        self.counterparts = Counterparts(reference, candidate)
        self.matches: dict[str, Match] = {}
        self.taken: set[str] = set()
        self.own: dict[str, NDArray[Any]] = {}
        self.forced: list[tuple[str, Difference]] = []
        self.tried: set[tuple[str, str]] = set()
        self.loose: set[str] = set()  # recognised behind tensors that were not; looked at again once those are

    def align(self) -> Alignment:
        self._match_inputs()
        self._sweep(self.candidate.steps)
        self._force_inputs()
        while len(self.forced) < MOST:
            found = self._next_departure()
            if found is None:
                break
            tensor, wanted = found
            born = self._against(tensor, wanted)
            self.forced.append((tensor, born))
            self._match(tensor, Match(wanted, "forced", born, self._perm(tensor, wanted)))
            self._sweep(self._behind(tensor))
        self._settle()
        strong = {tensor for tensor, _ in self.forced}
        matches = in_order(self.candidate, self.matches)
        departures = departures_of(self.reference, self.candidate, matches, self.taken, strong)
        return Alignment(matches, departures, tuple(self._cone()), self.own, self.reference.values)

    def _settle(self) -> None:
        """Match what was passed over because its error fades away, and not because what is behind makes up for it."""
        for step in self.candidate.steps:
            for slot, name in enumerate(step.outputs):
                if name in self.matches or name not in self.own or not all(item in self.matches for item in step.data):
                    continue
                for wanted in self._counterparts(step, slot, name)[:2]:
                    if self._same_kind(name, wanted) and self._heals(name, wanted) and self._settles(name, wanted):
                        break

    def _settles(self, name: str, wanted: str) -> bool:
        """Force a tensor, and take it back where what is behind departs then: a scale that the next layer undoes."""
        kept = dict(self.matches), dict(self.own), set(self.loose), set(self.taken)
        agreed = set(self.matches)
        born = self._against(name, wanted)
        self._match(name, Match(wanted, "forced", born, self._perm(name, wanted)))
        self._sweep(self._behind(name))
        moved = [tensor for tensor in self.matches if self.matches[tensor] != kept[0].get(tensor)]
        behind = [self.matches[tensor] for tensor in moved if tensor != name]
        if agreed <= set(self.matches) and all(match.born.relative <= EXACT for match in behind):
            self.forced.append((name, born))
            return True
        self.matches, self.own, self.loose, self.taken = kept
        return False

    # Values

    def value(self, tensor: str) -> NDArray[Any] | None:
        """What the steps behind a tensor compute on: the reference's value where it is known."""
        match = self.matches.get(tensor)
        if match is None:
            return self.own.get(tensor)
        found = self.reference.values[match.reference]
        return arranged(found, match.perm, self.own.get(tensor))

    def _data(self, step: Step, instead: Mapping[str, NDArray[Any]] | None = None) -> Arrays | None:
        found: dict[str, NDArray[Any]] = {}
        for name in step.data:
            value = (instead or {}).get(name, self.value(name))
            if value is None:
                return None
            found[name] = value
        return found

    def _run(self, step: Step, instead: Mapping[str, NDArray[Any]] | None = None) -> Arrays | None:
        data = self._data(step, instead)
        return None if data is None else run_step(self.candidate, step, data, self.runtime)

    # Matching

    def _match(self, tensor: str, match: Match) -> None:
        self.matches[tensor] = match
        self.taken.add(match.reference)

    def _match_inputs(self) -> None:
        """Match what is fed alike; an input that is fed otherwise may still be made alike by the candidate's steps."""
        for name, wanted in self._input_pairs():
            self.own[name] = self.candidate.values[name]
            born = self._against(name, wanted)
            if born.relative <= EXACT:
                self._match(name, Match(wanted, "input", born, self._perm(name, wanted)))

    def _input_pairs(self) -> Iterator[tuple[str, str]]:
        names = list(self.reference.inputs)
        for place, name in enumerate(self.candidate.inputs):
            if name in names:
                yield name, name
            elif place < len(names):
                yield name, names[place]

    def _force_inputs(self) -> None:
        """Where the steps do not make up for it, the candidate is fed another picture."""
        waiting = [(name, wanted) for name, wanted in self._input_pairs() if name not in self.matches]
        if not waiting or not self._cone():
            return
        for name, wanted in waiting:
            if self._heals(name, wanted) or not self._any_match():
                born = self._against(name, wanted)
                self.forced.append((name, born))
                self._match(name, Match(wanted, "forced", born, self._perm(name, wanted)))
        self._sweep(self.candidate.steps)

    def _any_match(self) -> bool:
        return bool(self.matches)

    def _sweep(self, steps: Sequence[Step]) -> None:
        for step in steps:
            for name in self.loose.intersection(step.outputs):
                del self.matches[name]
            self.loose.difference_update(step.outputs)
            if all(name in self.matches for name in step.outputs):
                continue
            answer = self._run(step)
            for slot, name in enumerate(step.outputs):
                if name in self.matches:
                    continue
                self.own.pop(name, None)
                if answer is not None and name in answer:
                    self.own[name] = answer[name]
                    self._recognise(step, slot, name)

    def _recognise(self, step: Step, slot: int, name: str) -> None:
        """Find the reference's tensor that one is, by its counterparts first and by its values alone second."""
        known = all(source in self.matches for source in step.data)
        best = self._by_structure(step, slot, name, known=known)
        if best is None or best.born.relative > EXACT:
            best = self._by_value(step, slot, name) or best
        if best is None:
            return
        self._match(name, best)
        if best.born.relative <= ROUNDING and best.perm is None:
            self._share(name, best.reference)
        self.loose.update(() if known else (name,))

    def _by_structure(self, step: Step, slot: int, name: str, *, known: bool) -> Match | None:
        # Behind a tensor that was not recognised only agreement counts: what comes close there may be the pale
        # remainder of a fault further up.
        tolerance, value = CLOSE if known else EXACT, self.own[name]
        best: Match | None = None
        for wanted in self._counterparts(step, slot, name):
            if self.lookup.near(value, wanted, CLOSE):
                found = self._against(name, wanted)
                if found.relative <= tolerance and (best is None or found.relative < best.born.relative):
                    best = Match(wanted, "structure", found, self._perm(name, wanted))
            if best is not None and best.born.relative == 0:
                break
        return best

    def _by_value(self, step: Step, slot: int, name: str) -> Match | None:
        idle = self._read_by(step) if self._has_counterpart(step, slot, name) else set()
        for wanted in self.lookup.equal(self.own[name], self.taken):
            if wanted in idle:  # a step that does nothing here, while the reference's does: no mere copy
                continue
            found = self._against(name, wanted)
            if found.relative <= EXACT:
                return Match(wanted, "value", found, self._perm(name, wanted))
        return None

    def _share(self, name: str, wanted: str) -> None:
        """Keep the reference's array for the candidate's own where they differ by rounding at most: half the memory."""
        theirs = self.reference.values[wanted]
        if theirs.dtype == self.own[name].dtype and theirs.shape == self.own[name].shape:
            self.own[name] = theirs

    def _read_by(self, step: Step) -> set[str]:
        return {self.matches[name].reference for name in step.data if name in self.matches}

    def _has_counterpart(self, step: Step, slot: int, name: str) -> bool:
        """Whether the reference has a step of the same operator for this tensor that nothing else was taken for."""
        makers = [self.reference.makers.get(item) for item in self._counterparts(step, slot, name)[:3]]
        return any(
            maker is not None and maker.kind == step.kind and self.taken.isdisjoint(maker.outputs) for maker in makers
        )

    def _perm(self, tensor: str, wanted: str) -> tuple[int, ...] | None:
        value = self.own.get(tensor)
        return None if value is None else self.lookup.perm(value, wanted)

    def _against(self, tensor: str, wanted: str) -> Difference:
        value = self.own.get(tensor)
        if value is None:
            return APART
        other = arranged(self.reference.values[wanted], self.lookup.perm(value, wanted), None)
        if other.shape != value.shape and other.size == value.size:
            other = other.reshape(value.shape)
        return difference(value, other)

    def _counterparts(self, step: Step, slot: int, name: str) -> list[str]:
        return self.counterparts.of(step, slot, name, self.matches, self.taken)

    # Departures

    def _cone(self) -> list[str]:
        """Unmatched tensors from which an output is reached through unmatched ones only, in order."""
        found: set[str] = set()
        pending = [name for name in self.candidate.outputs if name not in self.matches]
        while pending:
            name = pending.pop()
            step = self.candidate.makers.get(name)
            if name in found or step is None:
                continue
            found.add(name)
            pending.extend(source for source in step.data if source not in self.matches)
        return sorted(found, key=lambda name: (self.candidate.depth[name], name))

    def _next_departure(self) -> tuple[str, str] | None:
        """The first tensor of the cone whose replacement by the reference's makes what follows agree again."""
        options = [(name, wanted) for name in self._cone()[:TRIED] for wanted in self._options(name)]
        for name, wanted in options:
            if self._heals(name, wanted):
                self.tried.add((name, wanted))
                return name, wanted
        fallback = [(name, wanted) for name, wanted in options if self._same_kind(name, wanted)]
        for name, wanted in fallback or options:
            self.tried.add((name, wanted))
            return name, wanted
        return None

    def _options(self, name: str) -> list[str]:
        step = self.candidate.makers[name]
        found = self._counterparts(step, step.outputs.index(name), name)
        return [wanted for wanted in found if (name, wanted) not in self.tried][:4]

    def _same_kind(self, name: str, wanted: str) -> bool:
        other = self.reference.makers.get(wanted)
        return other is not None and other.kind == self.candidate.makers[name].kind and wanted not in self.taken

    def _heals(self, name: str, wanted: str) -> bool:
        value = arranged(self.reference.values[wanted], self._perm(name, wanted), self.own.get(name))
        if name in self.candidate.outputs:
            place = self.candidate.outputs.index(name)
            return place < len(self.reference.outputs) and self.reference.outputs[place] == wanted
        return any(self._agrees(reader, {name: value}) for reader in self.candidate.readers.get(name, [])[:3])

    def _agrees(self, step: Step, instead: Mapping[str, NDArray[Any]]) -> bool:
        """Whether a step's answer is one of the reference's tensors once an input is replaced."""
        answer = self._run(step, instead)
        if answer is None:
            return False
        for slot, name in enumerate(step.outputs):
            value = answer.get(name)
            if value is None:
                continue
            near = [w for w in self._counterparts(step, slot, name) if self.lookup.near(value, w, CLOSE)]
            for wanted in (*near, *self.lookup.equal(value, set())):
                other = arranged(self.reference.values[wanted], self.lookup.perm(value, wanted), None)
                if other.size == value.size and difference(value, other.reshape(value.shape)).relative <= CLOSE:
                    return True
        return False

    def _behind(self, tensor: str) -> list[Step]:
        """Steps behind a tensor, in order."""
        reached = {tensor}
        steps = []
        for step in self.candidate.steps:
            if not reached.isdisjoint(step.data):
                steps.append(step)
                reached.update(step.outputs)
        return steps
