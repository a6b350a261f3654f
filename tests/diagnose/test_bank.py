"""The bank: the quick part of it here, all of it by ``python -m tests.diagnose.bank``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.diagnose.bank import check_clean, judge
from tests.diagnose.faults import CleanPair, Entry, Sound, clean_pairs, entries, load_sound

QUICK = [entry for entry in entries() if entry.quick]
CLEAN = [pair for pair in clean_pairs() if pair.quick]
_SOUNDS: dict[str, Sound] = {}


def sound_of(shared: Path, name: str) -> Sound:
    if name not in _SOUNDS:
        _SOUNDS[name] = load_sound(shared, name)
    return _SOUNDS[name]


def test_the_bank_is_large_enough() -> None:
    every = list(entries())
    assert len(every) >= 60
    assert len({entry.network for entry in every}) == 5
    assert len(list(clean_pairs())) >= 10


@pytest.mark.parametrize("entry", QUICK, ids=lambda entry: f"{entry.network}: {entry.name}")
def test_a_planted_fault_is_named(entry: Entry, shared: Path) -> None:
    found = judge(entry, sound_of(shared, entry.network))
    assert found.cause is not None, "no fault found"
    assert (found.stage, found.node, found.kind) == (True, True, True), found.line
    assert found.cause.evidence
    assert found.cause.remedy


@pytest.mark.parametrize("pair", CLEAN, ids=lambda pair: f"{pair.network}: {pair.name}")
def test_a_sound_pair_has_no_fault(pair: CleanPair, shared: Path) -> None:
    found = check_clean(pair, sound_of(shared, pair.network))
    assert [cause.title for cause in found.causes] == []
    assert found.comparison.alignment.lost == ()
