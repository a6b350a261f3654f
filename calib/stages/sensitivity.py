"""Run a network's units one at a time: the float work is done once an image, each unit repeats only what it changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Protocol

import onnx

from calib.core.sensitivity.relay import Part, Relay
from calib.types.runner import Feeds

Values = dict[str, Any]
"""Tensors in the runtime's memory, by name."""


class PartSession(Protocol):
    """A part of a network, loaded by a runtime; may be called from several threads at once."""

    def run(self, arrays: Feeds, values: Mapping[str, Any]) -> dict[str, Any]:
        """Run once on inputs from NumPy's memory and from the runtime's."""


@dataclass(frozen=True)
class _Loaded:
    part: Part
    session: PartSession


class RelayRunner:
    """Runs a relay's units on images; may be called from several threads at once.

    Args:
        relay: the network in legs.
        load: loads a part of it.
    """

    def __init__(self, relay: Relay, load: Callable[[onnx.ModelProto], PartSession]) -> None:
        self._relay, self._load = relay, load
        self._loaded: dict[tuple[str, int, int], _Loaded] = {}
        self._lock = Lock()

    def base(self, feeds: Feeds) -> list[Values]:
        """Run the base network: of each leg, what it gives. The last one's holds the output that is scored."""
        found: list[Values] = []
        known: Values = {}
        for number in range(len(self._relay.legs)):
            made = self._run(self._whole(number), feeds, known, {})
            known |= made
            found.append(made)
        return found

    def units(self, feeds: Feeds, base: Sequence[Values], wanted: Sequence[int]) -> Iterator[tuple[int, Any]]:
        """Run units one at a time, each alone switched.

        Args:
            feeds: the image.
            base: what :meth:`base` gave for it.
            wanted: numbers of units.

        Yields:
            each unit with the output that is scored, in the runtime's memory; None for one whose output is the base's.
        """
        pending: dict[int, Values] = {}
        legs = {unit: self._relay.legs_of(unit) for unit in wanted}
        known: Values = {}
        for number, made in enumerate(base):
            here = [unit for unit in wanted if number in legs[unit]]
            taps = self._run(self._tapped(number), feeds, known, {}) if here and self._relay.legs[number].taps else {}
            for unit in here:
                changed = pending.pop(unit, {})
                loaded = self._switched(unit, number)
                changed |= self._run(loaded, feeds, known | taps, changed) if loaded.part.outputs else {}
                if number == legs[unit][-1]:
                    yield unit, self._finish(number + 1, feeds, base, known | made, changed)
                else:
                    pending[unit] = changed
            for unit, changed in pending.items():
                if unit not in here:
                    pending[unit] = changed | self._through(number, feeds, known, changed)
            known |= made

    def _finish(self, first: int, feeds: Feeds, base: Sequence[Values], known: Values, changed: Values) -> Any:
        """Run the legs behind a unit's last, as far as it changes them."""
        known = dict(known)
        for number in range(first, len(base)):
            changed = changed | self._through(number, feeds, known, changed)
            known |= base[number]
        return changed.get(self._relay.output)

    def _through(self, number: int, feeds: Feeds, known: Values, changed: Values) -> Values:
        """Run a leg on changed inputs; nothing where none of its inputs is changed."""
        loaded = self._whole(number)
        if loaded.part.inputs.isdisjoint(changed):
            return {}
        return self._run(loaded, feeds, known, changed)

    def _run(self, loaded: _Loaded, feeds: Feeds, known: Values, changed: Values) -> Values:
        values = {name: changed.get(name, known.get(name)) for name in loaded.part.inputs if name not in feeds}
        arrays = {name: feeds[name] for name in loaded.part.inputs if name in feeds}
        return loaded.session.run(arrays, values)

    def _whole(self, leg: int) -> _Loaded:
        return self._get(("whole", leg, 0), lambda: self._relay.whole(leg))

    def _tapped(self, leg: int) -> _Loaded:
        return self._get(("tapped", leg, 0), lambda: self._relay.tapped(leg))

    def _switched(self, unit: int, leg: int) -> _Loaded:
        return self._get(("switched", leg, unit), lambda: self._relay.switched(unit, leg))

    def _get(self, key: tuple[str, int, int], make: Callable[[], Part]) -> _Loaded:
        with self._lock:
            if key not in self._loaded:
                part = make()
                self._loaded[key] = _Loaded(part, self._load(part.model))
            return self._loaded[key]
