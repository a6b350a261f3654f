"""The class maps of the images on which each network does worst so far, kept while images are scored.

A report shows these images. Kept, they need no second forward pass; which they are is known only at the end, so of each
network the worst of the images seen are kept, compressed, and memory does not grow with the images. The set left at the
end does not depend on the order in which the images came.
"""

from __future__ import annotations

import bisect
import zlib
from collections.abc import Collection, Mapping
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.core import metrics
from calib.core.tally import Layout, Sparse, to_dense

LARGEST = 1 << 20
"""Bytes of a compressed class map beyond which it is not kept: noise does not compress, and is computed again."""
Entry = tuple[float, str]
Packed = tuple[bytes, str, tuple[int, ...]]


class WorstMaps:
    """Keeps class maps; may be used from several threads.

    Args:
        count: images kept of each network, at least 0.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._entries: dict[str, list[Entry]] = {}
        self._maps: dict[tuple[str, str], dict[str, Packed]] = {}
        self._lock = Lock()

    def offer(self, network: str, key: str, gain: float | None, maps: Mapping[str, NDArray[Any]]) -> None:
        """Keep an image's maps if it is among the worst of a network so far.

        Args:
            network: the network.
            key: the image.
            gain: how well it does there, in any unit: the lowest are kept; None where nothing can be said.
            maps: class maps by network, its own and, where it is compared, the reference's; uint8 or uint16 ``[H, W]``.
        """
        if gain is None or not self._wants(network, (gain, key)):
            return
        packed = {name: _pack(ids) for name, ids in maps.items()}
        with self._lock:
            entries = self._entries.setdefault(network, [])
            bisect.insort(entries, (gain, key))
            self._maps[network, key] = packed if all(len(item[0]) <= LARGEST for item in packed.values()) else {}
            for _, other in entries[self._count :]:
                del self._maps[network, other]
            del entries[self._count :]

    def find(self, key: str, wanted: Collection[str]) -> dict[str, NDArray[Any]] | None:
        """The maps of an image under some networks; None unless all of them were kept."""
        held: dict[str, Packed] = {}
        with self._lock:
            for (_, other), packed in self._maps.items():
                if other == key:
                    held.update(packed)
        return {name: _unpack(held[name]) for name in wanted} if held.keys() >= set(wanted) else None

    def _wants(self, network: str, entry: Entry) -> bool:
        with self._lock:
            entries = self._entries.get(network, [])
            return self._count > 0 and (len(entries) < self._count or entry < entries[-1])


def image_miou(counts: Sparse, layout: Layout) -> float | None:
    """An image's own mIoU from its counts under a network; None without a labelled pixel."""
    matrix = layout.view(to_dense(counts, layout.length), "confusion")
    mean = float(metrics.mean_iou(metrics.class_iou(*metrics.diagonal_counts(matrix))))
    return None if np.isnan(mean) else mean


def _pack(ids: NDArray[Any]) -> Packed:
    return zlib.compress(np.ascontiguousarray(ids).tobytes(), 1), ids.dtype.str, ids.shape


def _unpack(packed: Packed) -> NDArray[Any]:
    data, dtype, shape = packed
    return np.frombuffer(zlib.decompress(data), dtype).reshape(shape)
