"""The bank of planted faults, judged: ``python -m tests.diagnose.bank`` prints the table.

A hit of the stage and of the cause is exact; a hit of the node is the node itself or a direct neighbour of it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from calib.stages.diagnose.examine import Examination, examine
from calib.types.diagnosis import Cause
from tests.diagnose.edits import Model, Planted
from tests.diagnose.faults import RUNTIME, CleanPair, Entry, Sound, clean_pairs, entries, load_sound


@dataclass(frozen=True)
class Judged:
    """An entry with what the diagnosis said of it."""

    entry: Entry
    planted: Planted
    cause: Cause | None
    stage: bool
    node: bool
    kind: bool
    seconds: float

    @property
    def line(self) -> str:
        marks = " ".join("ok" if hit else "--" for hit in (self.stage, self.node, self.kind))
        said = (
            "nothing" if self.cause is None else f"{self.cause.kind} at {self.cause.node or self.cause.reference_node}"
        )
        return f"{marks}  {self.seconds:5.1f} s  {self.entry.network:<19} {self.entry.name:<38} {said}"


def neighbourhood(models: Iterable[Model], node: str) -> set[str]:
    """A node and those that it reads from or writes to; constants and Q/DQ pairs in between count as nothing."""
    found = {node}
    for model in models:
        nodes = list(model.graph.node)
        labels = [item.name or f"{item.op_type}({item.output[0]})" for item in nodes]
        own = [place for place, label in enumerate(labels) if label == node]
        for _ in range(3):
            for place in list(own):
                item = nodes[place]
                for near, other in enumerate(nodes):
                    joined = set(item.output) & set(other.input) or set(other.output) & set(item.input)
                    if joined and other.op_type != "Constant":
                        found.add(labels[near])
                        if other.op_type in {"QuantizeLinear", "DequantizeLinear"} and near not in own:
                            own.append(near)
    return found


def judge(entry: Entry, sound: Sound) -> Judged:
    """Diagnose one entry."""
    planted = entry.make(sound)
    started = time.monotonic()
    found = examine(sound.trace, planted.model, sound.feeds, RUNTIME, others=sound.others)
    spent = time.monotonic() - started
    cause = found.causes[0] if found.causes else None
    if cause is None:
        return Judged(entry, planted, None, False, False, False, spent)
    near = neighbourhood((planted.model, sound.model), planted.node)
    node = bool(near & {cause.node, cause.reference_node})
    return Judged(entry, planted, cause, cause.stage == planted.stage, node, cause.kind in planted.kinds, spent)


def check_clean(pair: CleanPair, sound: Sound) -> Examination:
    """Diagnose a pair without a fault; it must come out without a cause."""
    return examine(sound.trace, pair.make(sound), sound.feeds, RUNTIME, others=sound.others)


def main(wanted: list[str]) -> None:
    """Print the table; words choose entries by name."""
    shared = Path(__file__).resolve().parents[2].parent / "shared"
    sounds: dict[str, Sound] = {}

    def sound(name: str) -> Sound:
        return sounds.setdefault(name, load_sound(shared, name)) if name not in sounds else sounds[name]

    judged = []
    for entry in entries():
        if wanted and not any(word in f"{entry.network} {entry.name}" for word in wanted):
            continue
        judged.append(judge(entry, sound(entry.network)))
        print(judged[-1].line, flush=True)
    clean = 0
    pairs = [
        pair for pair in clean_pairs() if not wanted or any(word in f"{pair.network} {pair.name}" for word in wanted)
    ]
    for pair in pairs:
        found = check_clean(pair, sound(pair.network))
        clean += not found.causes
        said = "no fault" if not found.causes else f"{found.causes[0].kind} at {found.causes[0].node}"
        print(f"{'ok' if not found.causes else '--'}        {pair.network:<19} {pair.name:<38} {said}", flush=True)
    total = max(len(judged), 1)
    print(
        f"{len(judged)} faults: stage {sum(j.stage for j in judged)}, node {sum(j.node for j in judged)} "
        f"({sum(j.node for j in judged) / total:.0%}), cause {sum(j.kind for j in judged)} "
        f"({sum(j.kind for j in judged) / total:.0%}); clean pairs without a fault: {clean} of {len(pairs)}"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
