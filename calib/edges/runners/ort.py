"""Networks in ONNX Runtime, whole or as a chain of segments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx

from calib.core.blocked import BlockedTensor, return_blocks
from calib.core.segments import Segment
from calib.edges.runners.blocks import block_width, optimized
from calib.edges.runners.session import Memory, Provider, Session, as_array, require_provider, shared_memory_released
from calib.errors import ModelError
from calib.types.runner import Array, Blocks, Feeds

__all__ = ["OrtChain", "OrtRunner", "Provider", "require_provider", "shared_memory_released"]

FLOAT_TENSORS = frozenset({"tensor(float)", "tensor(float16)", "tensor(double)", "tensor(bfloat16)"})


class OrtChain:
    """Segments of a network in ONNX Runtime, one session each, run one after the other.

    Args:
        segments: the network in parts, first to last.
        place: what to call it in messages.
        provider: where it runs.
        optimize: False turns every graph optimization off, so that Q/DQ is computed literally.
        share_memory: take main memory from a store that all such networks share: several large ones then need no more
            than the largest. :func:`shared_memory_released` empties it.
        blocks: observed tensors may come as :class:`Blocks`, which saves copying them into the usual layout. The values
            are the same. Of no account where the network is not optimized or not run on the CPU.

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
        share_memory: bool = False,
        blocks: bool = False,
    ) -> None:
        memory: Memory = "shared" if share_memory or len(segments) > 1 else "own"
        reads = [item.inputs for item in segments]
        self._links: list[_Link] = []
        for number, item in enumerate(segments, 1):
            later = frozenset[str]().union(*reads[number:])
            link = _in_blocks(item, place, memory, later) if blocks and optimize and provider == "cpu" else None
            if link is None:
                session = Session(item.model, place, provider, optimize=optimize, memory=memory)
                link = _Link(session, item.observed, item.inputs, later)
            self._links.append(link)

    @property
    def outputs(self) -> Sequence[str]:
        """Names of the observed tensors in network order."""
        return tuple(name for link in self._links for name in link.observed)

    @property
    def float_outputs(self) -> Sequence[str]:
        """Those of a floating-point type."""
        return tuple(name for link in self._links for name in link.observed if link.type_of(name) in FLOAT_TENSORS)

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
                yield name, link.taken(found, name)
            found.clear()


@dataclass(frozen=True)
class _Link:
    """A segment in its session.

    Attributes:
        session: the session.
        observed: what it gives.
        reads: what it reads.
        later: what the segments after it read.
        blocks: what it gives in blocks, and as which tensor.
    """

    session: Session
    observed: Sequence[str]
    reads: frozenset[str]
    later: frozenset[str]
    blocks: Mapping[str, BlockedTensor] = field(default_factory=dict)

    def type_of(self, name: str) -> str:
        """Type of an observed tensor as the runtime spells it."""
        return self.session.types[self.blocks[name].name if name in self.blocks else name]

    def taken(self, found: dict[str, Any], name: str) -> Array:
        """Take an observed tensor out of what a run gave."""
        block = self.blocks.get(name)
        if block is None:
            return as_array(found.pop(name))
        images, lanes, *size = (array := as_array(found.pop(block.name))).shape
        width = block_width()
        return Blocks(array.reshape(images, lanes // width, *size, width), block.channels)


def _in_blocks(item: Segment, place: str, memory: Memory, later: frozenset[str]) -> _Link | None:
    """A segment whose tensors come in blocks as far as they can; None where none can.

    What later segments read comes as usual: they are optimized on their own.
    """
    whole = optimized(item.model) if block_width() else None
    if whole is None:
        return None
    model, blocks = return_blocks(whole, later)
    if not blocks:
        return None
    try:
        session = Session(model, place, "cpu", optimize=False, memory=memory)
    except ModelError:  # a graph that the runtime can make and not read
        return None
    return _Link(session, item.observed, item.inputs, later, blocks)


def _picked(values: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in names}


class OrtRunner(OrtChain):
    """A whole network in ONNX Runtime, its outputs observed.

    Args:
        model: the network.
        place: what to call it in messages.
        provider: where it runs.
        optimize: False turns every graph optimization off, so that Q/DQ is computed literally.
        share_memory: take main memory from a store that all such networks share: several large ones then need no more
            than the largest. :func:`shared_memory_released` empties it.

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
        share_memory: bool = False,
    ) -> None:
        outputs = tuple(dict.fromkeys(value.name for value in model.graph.output))
        super().__init__([Segment(model, outputs)], place, provider, optimize=optimize, share_memory=share_memory)
