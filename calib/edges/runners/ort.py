"""Networks in ONNX Runtime, whole or as a chain of segments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx

from calib.core.segments import Segment
from calib.edges.runners.session import Memory, Provider, Session, as_array, require_provider
from calib.types.runner import Array, Feeds

__all__ = ["OrtChain", "OrtRunner", "Provider", "require_provider"]

FLOAT_TENSORS = frozenset({"tensor(float)", "tensor(float16)", "tensor(double)", "tensor(bfloat16)"})


class OrtChain:
    """Segments of a network in ONNX Runtime, one session each, run one after the other.

    Args:
        segments: the network in parts, first to last.
        place: what to call it in messages.
        provider: where it runs.
        optimize: False turns every graph optimization off, so that Q/DQ is computed literally.
        keep_memory: False gives main memory back after each run. Kept memory grows with every session, and among
            several large networks costs gigabytes while saving no time.

    Raises:
        MissingLibraryError: ONNX Runtime is not installed.
        UsageError: the provider is not available in the installed ONNX Runtime.
        ModelError: ONNX Runtime does not accept the network.
    """

    def __init__(
        self,
        segments: Sequence[Segment],
        place: str,
        provider: Provider = "cpu",
        *,
        optimize: bool = True,
        keep_memory: bool = True,
    ) -> None:
        memory: Memory = ("own" if len(segments) == 1 else "shared") if keep_memory else "none"
        reads = [item.inputs for item in segments]
        self._links = [
            _Link(
                session=Session(item.model, place, provider, optimize=optimize, memory=memory),
                observed=item.observed,
                reads=item.inputs,
                later=frozenset[str]().union(*reads[number:]),
            )
            for number, item in enumerate(segments, 1)
        ]

    @property
    def outputs(self) -> Sequence[str]:
        """Names of the observed tensors in network order."""
        return tuple(name for link in self._links for name in link.observed)

    @property
    def float_outputs(self) -> Sequence[str]:
        """Those of a floating-point type."""
        return tuple(
            name for link in self._links for name in link.observed if link.session.types[name] in FLOAT_TENSORS
        )

    def run(self, feeds: Feeds) -> Mapping[str, Array]:
        """Run one batch and return every observed tensor; they stay in the runtime's memory while the mapping lives.

        Raises:
            ModelError: the network fails on this input.
        """
        return dict(self.stream(feeds))

    def stream(self, feeds: Feeds) -> Iterator[tuple[str, Array]]:
        """Run one batch and give each observed tensor away as soon as it is there.

        What is neither kept by the caller nor needed by a later segment is freed before the next segment runs.

        Raises:
            ModelError: the network fails on this input.
        """
        kept: dict[str, Any] = {}
        for link in self._links:
            found = link.session.run(_picked(feeds, link.reads), _picked(kept, link.reads))
            kept = _picked({**kept, **found}, link.later)
            for name in link.observed:
                yield name, as_array(found.pop(name))
            found.clear()


@dataclass(frozen=True)
class _Link:
    """A segment in its session: what it gives, what it reads, and what the segments after it read."""

    session: Session
    observed: Sequence[str]
    reads: frozenset[str]
    later: frozenset[str]


def _picked(values: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in names}


class OrtRunner(OrtChain):
    """A whole network in ONNX Runtime, its outputs observed.

    Args:
        model: the network.
        place: what to call it in messages.
        provider: where it runs.
        optimize: False turns every graph optimization off, so that Q/DQ is computed literally.
        keep_memory: False gives main memory back after each run. Kept memory grows with every session, and among
            several large networks costs gigabytes while saving no time.

    Raises:
        MissingLibraryError: ONNX Runtime is not installed.
        UsageError: the provider is not available in the installed ONNX Runtime.
        ModelError: ONNX Runtime does not accept the network.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        place: str,
        provider: Provider = "cpu",
        *,
        optimize: bool = True,
        keep_memory: bool = True,
    ) -> None:
        outputs = tuple(dict.fromkeys(value.name for value in model.graph.output))
        super().__init__([Segment(model, outputs)], place, provider, optimize=optimize, keep_memory=keep_memory)
