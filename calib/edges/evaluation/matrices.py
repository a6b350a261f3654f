"""``matrices.npz``: the counts of every image under every network; and the journal it grows from.

While an evaluation runs, finished images go to a journal, one record each, so that a killed run goes on where it
stopped. At the end the journal becomes ``matrices.npz``, sorted by image: the same bytes whatever the worker count, the
order or the interruptions. From it any slice and any interval is computed without another forward pass.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from calib.core.tally import Layout, Sparse, Stack, image_layout, network_layout, stack
from calib.edges.files import write_atomic
from calib.edges.recordlog import RecordLog
from calib.errors import FormatError
from calib.stages.evaluate import ImageTally

SCHEMA = 1
REMARKS = 3
"""Remarks kept of a network."""
Request = Mapping[str, Any]
"""What decides the counts: networks, images, preprocessing, numerics. Equal requests, equal counts."""


@dataclass(frozen=True)
class Matrices:
    """The counts of a finished evaluation.

    Attributes:
        request: what they were counted for.
        models: names of the networks.
        keys: the images, ascending.
        classes: class names.
        images: counts that no network changes.
        networks: counts under each network.
        foreign: of each network, image to predictions outside the class table to pixels.
        ties_known: of each network, whether ties could be counted.
        remarks: of each network, what is odd about its output.
    """

    request: Request
    models: tuple[str, ...]
    keys: tuple[str, ...]
    classes: tuple[str, ...]
    images: Stack
    networks: tuple[Stack, ...]
    foreign: tuple[Mapping[str, Mapping[int, int]], ...]
    ties_known: tuple[bool, ...]
    remarks: tuple[tuple[str, ...], ...] = ()

    @property
    def layout(self) -> Layout:
        """Layout of a network's vectors."""
        return network_layout(len(self.classes))

    @property
    def image_layout(self) -> Layout:
        """Layout of the images' own vectors."""
        return image_layout(len(self.classes))

    def confusion(self, model: str, key: str, part: str = "confusion") -> NDArray[np.int64]:
        """Confusion matrix of one image, int64 ``[K, K + 1]``; ``part`` ``dark`` for its dark pixels alone.

        Raises:
            KeyError: there is no such network or image.
        """
        if model not in self.models or key not in self.keys:
            raise KeyError(f"{model}, {key}")
        own = self.networks[self.models.index(model)].image(self.keys.index(key))
        vector = np.zeros(self.layout.length, np.int64)
        vector[own.cells] = own.counts
        return self.layout.view(vector, part)


def gather(request: Request, models: Sequence[str], classes: Sequence[str], tallies: Sequence[ImageTally]) -> Matrices:
    """Put the images' counts together, sorted by key."""
    ordered = sorted(tallies, key=lambda tally: tally.key)
    places = range(len(models))
    return Matrices(
        request=request,
        models=tuple(models),
        keys=tuple(tally.key for tally in ordered),
        classes=tuple(classes),
        images=stack([tally.image for tally in ordered]),
        networks=tuple(stack([tally.networks[place] for tally in ordered]) for place in places),
        foreign=tuple({t.key: dict(t.foreign[place]) for t in ordered if t.foreign[place]} for place in places),
        ties_known=tuple(all(tally.ties_known[place] for tally in ordered) for place in places),
        remarks=tuple(_remarks(ordered, place) for place in places),
    )


def _remarks(ordered: Sequence[ImageTally], place: int) -> tuple[str, ...]:
    """What is odd about a network's outputs, in the order of the images; networks of any size may give several."""
    found = dict.fromkeys(text for tally in ordered for text in tally.remarks[place])
    return tuple(found)[:REMARKS]


def save_matrices(path: Path, matrices: Matrices) -> None:
    """Write ``matrices.npz``.

    Raises:
        OutputError: it cannot be written.
    """
    about = {
        "schema": SCHEMA,
        "request": matrices.request,
        "models": matrices.models,
        "keys": matrices.keys,
        "classes": matrices.classes,
        "foreign": matrices.foreign,
        "ties_known": matrices.ties_known,
        "remarks": matrices.remarks,
        "layout": matrices.layout.parts,
        "image_layout": matrices.image_layout.parts,
    }
    arrays = {"about": np.frombuffer(json.dumps(about, sort_keys=True).encode(), np.uint8)}
    arrays |= _arrays("image", matrices.images)
    for place, own in enumerate(matrices.networks):
        arrays |= _arrays(f"network/{place}", own)
    sink = io.BytesIO()
    np.savez_compressed(sink, **arrays)  # type: ignore[arg-type]
    write_atomic(path, sink.getvalue())


def load_matrices(path: Path) -> Matrices:
    """Read ``matrices.npz``.

    Raises:
        FormatError: it is missing, damaged, something else, or of another schema version.
    """
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
            about = json.loads(file["about"].tobytes())
            if about["schema"] != SCHEMA:
                raise _unreadable(path, f"schema version {about['schema']}")
            images = _stack_of(file, "image")
            networks = tuple(_stack_of(file, f"network/{place}") for place in range(len(about["models"])))
    except (OSError, KeyError, ValueError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise _unreadable(path, str(error) or type(error).__name__) from error
    return Matrices(
        request=about["request"],
        models=tuple(about["models"]),
        keys=tuple(about["keys"]),
        classes=tuple(about["classes"]),
        images=images,
        networks=networks,
        foreign=tuple(_whole_keys(own) for own in about["foreign"]),
        ties_known=tuple(about["ties_known"]),
        remarks=tuple(tuple(own) for own in about.get("remarks", ())),
    )


class Journal:
    """Finished images of a running evaluation, appended one by one; a context that closes the file.

    Args:
        path: the file.
        request: what the counts are for; a journal of another request is started over.

    Raises:
        OutputError: the file cannot be written.
    """

    def __init__(self, path: Path, request: Request) -> None:
        self._log = RecordLog(path, request)
        self.done: dict[str, ImageTally] = {tally.key: tally for tally in map(_unpacked, self._log.found)}

    def add(self, tally: ImageTally) -> None:
        """Keep a finished image; it survives the death of this process."""
        self._log.append(_packed(tally))
        self.done[tally.key] = tally

    def __enter__(self) -> Journal:
        """Begin; the file is open already."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the file."""
        self._log.__exit__(*error)


def _packed(tally: ImageTally) -> bytes:
    vectors = [tally.image, *tally.networks]
    content = (
        tally.key,
        [(item.cells.tobytes(), item.counts.tobytes()) for item in vectors],
        [dict(item) for item in tally.foreign],
        list(tally.ties_known),
        [list(item) for item in tally.remarks],
    )
    return zlib.compress(msgspec.msgpack.encode(content), 1)


def _unpacked(payload: bytes) -> ImageTally:
    kind = tuple[str, list[tuple[bytes, bytes]], list[dict[int, int]], list[bool], list[tuple[str, ...]]]
    key, pairs, foreign, ties, remarks = msgspec.msgpack.decode(zlib.decompress(payload), type=kind)
    vectors = [Sparse(np.frombuffer(cells, np.uint32), np.frombuffer(counts, np.int64)) for cells, counts in pairs]
    return ImageTally(key, vectors[0], tuple(vectors[1:]), tuple(foreign), tuple(ties), tuple(remarks))


def _arrays(prefix: str, own: Stack) -> dict[str, NDArray[Any]]:
    return {f"{prefix}/start": own.start, f"{prefix}/cells": own.cells, f"{prefix}/counts": own.counts}


def _stack_of(file: Any, prefix: str) -> Stack:
    return Stack(*(file[f"{prefix}/{name}"] for name in ("start", "cells", "counts")))


def _whole_keys(foreign: Mapping[str, Mapping[str, int]]) -> dict[str, dict[int, int]]:
    return {key: {int(value): count for value, count in own.items()} for key, own in foreign.items()}


def _unreadable(path: Path, got: str) -> FormatError:
    return FormatError(
        str(path),
        expected=f"the matrices of an evaluation, schema version {SCHEMA}",
        got=got.splitlines()[0],
        remedy="run `calib evaluate` again; it writes the file anew",
    )
