"""Files of a measurement of sensitivity: every image's counts, the result, and the layers to keep in float."""

from __future__ import annotations

import csv
import io
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from calib.core.sensitivity.counts import ImageCounts, ImageRecord, LabelCounts
from calib.edges.files import write_atomic
from calib.edges.patterns import file_pattern
from calib.edges.recordlog import Facts, RecordLog, read_log, write_log
from calib.stages.sensitivity_scoring import merge_records

Json = Mapping[str, Any]
DOCUMENT, TABLE, COUNTS = "sensitivity.json", "sensitivity.csv", "sensitivity.counts"
KEEP = "keep-float.txt"
_Packed = tuple[str, bytes, int, int, list[tuple[int, bytes, bytes, bytes, bytes]]]


class CountsJournal:
    """Counted images of a running measurement, appended one by one; a context that closes the file.

    It begins with what a finished measurement of the same facts has left.

    Args:
        path: the journal.
        finished: the counts of a finished measurement.
        facts: what the counts depend on.

    Raises:
        OutputError: the file cannot be written.
    """

    def __init__(self, path: Path, finished: Path, facts: Facts) -> None:
        self._finished, self._facts = finished, facts
        self._log = RecordLog(path, facts)
        self.done: dict[str, ImageRecord] = {}
        for payload in (*read_log(finished, facts), *self._log.found):
            self._take(_unpacked(payload))

    def add(self, record: ImageRecord) -> None:
        """Keep what was counted of an image; it survives the death of this process."""
        self._log.append(_packed(record))
        self._take(record)

    def finish(self) -> None:
        """Write the counts of the finished measurement: sorted, the same bytes however they came about.

        Raises:
            OutputError: they cannot be written.
        """
        write_log(self._finished, self._facts, [_packed(self.done[key]) for key in sorted(self.done)])

    def __enter__(self) -> CountsJournal:
        """Begin; the file is open already."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the file."""
        self._log.__exit__(*error)

    def _take(self, record: ImageRecord) -> None:
        self.done[record.key] = merge_records(self.done, record)


def write_sensitivity(folder: Path, document: Json) -> None:
    """Write ``sensitivity.json``, ``sensitivity.csv`` and, of layers, ``keep-float.txt``.

    Raises:
        OutputError: one cannot be written.
    """
    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
    write_atomic(folder / DOCUMENT, (text + "\n").encode())
    write_atomic(folder / TABLE, _csv(list(table_lines(document))))
    if document["network"]["unit"] == "layer":
        write_atomic(folder / KEEP, "".join(f"{line}\n" for line in keep_lines(document)).encode())


def keep_lines(document: Json) -> Iterator[str]:
    """Patterns for ``--keep-float``: the layers that cost much, with what each costs and the work it takes along.

    Those that the measured build keeps in float come first, so that a build from this list keeps them too.
    """
    ranking, kept = document["ranking"], set(document["costly"])
    by = ranking["by"].replace("miou", "mIoU")
    if document["network"]["kept_in_float"]:
        yield "# Kept in float by the build that was measured:"
        yield from map(file_pattern, document["network"]["kept_in_float"])
    yield f"# Layers that surely lose something, and {ranking['resolution']:g} points or more, by {by}:"
    yield "# calib build … --keep-float @keep-float.txt leaves them in float. Losses in points, 95 % intervals."
    for unit in document["units"]:
        if unit["name"] in kept:
            work = "" if unit["macs_share"] is None else f", {unit['macs_share']:.2%} of the multiply-accumulates"
            yield f"# {unit['op']}, rank {unit['rank']}{work}: {_spoken(unit['loss']['miou'])} of mIoU"
            yield file_pattern(unit["name"])


def _spoken(entry: Json) -> str:
    loss, ci95 = entry["loss"], entry["ci95"]
    words = "unknown" if loss is None else f"{loss:+.3f}"
    return words if ci95 is None else f"{words} [{ci95[0]:.3f}, {ci95[1]:.3f}]"


def table_lines(document: Json) -> Iterator[dict[str, Any]]:
    """One line a unit, in the order of rank: its losses by class and slice, flips, work."""
    for unit in document["units"]:
        loss, flips = unit["loss"] or {}, unit["flips"] or {}
        low, high = (loss.get("miou") or {}).get("ci95") or (None, None)
        yield {
            "rank": unit["rank"],
            "name": unit["name"],
            "op": unit["op"],
            "place": unit["place"],
            "images": unit["images"],
            "settled": unit["settled"],
            "loss": (loss.get("miou") or {}).get("loss"),
            "ci95_low": low,
            "ci95_high": high,
            "significant": int(loss["miou"]["significant"]) if loss else None,
            "flipped": flips.get("share"),
            "harmed": flips.get("harmed"),
            "helped": flips.get("helped"),
            "sqnr_db": unit["sqnr_db"],
            "macs": unit["macs"],
            "macs_share": unit["macs_share"],
            "loss_per_percent_of_macs": unit["loss_per_percent_of_macs"],
            **{f"class:{name}": _loss(loss, "per_class", name) for name in document["data"]["classes"]},
            **{f"slice:{name}": _loss(loss, "slices", name) for name in document["slices"]},
        }


def _loss(loss: Json, part: str, name: str) -> float | None:
    entry = loss.get(part, {}).get(name)
    return None if entry is None else entry["loss"]


def _csv(lines: Sequence[dict[str, Any]]) -> bytes:
    """RFC 4180 with a header; an empty field for what cannot be said."""
    sink = io.StringIO(newline="")
    writer = csv.DictWriter(sink, list(lines[0]) if lines else ["rank", "name"], restval="")
    writer.writeheader()
    writer.writerows(lines)
    return sink.getvalue().encode()


def _packed(record: ImageRecord) -> bytes:
    networks = [
        (number, *(array.tobytes() for array in (own.classes, own.flips, own.flipped, own.powers)))
        for number, own in sorted(record.networks.items())
    ]
    label = record.label
    content = (record.key, label.labelled.tobytes(), label.seen, label.labelled.shape[1], networks)
    return zlib.compress(msgspec.msgpack.encode(content), 1)


def _unpacked(payload: bytes) -> ImageRecord:
    key, labelled, seen, classes, networks = msgspec.msgpack.decode(zlib.decompress(payload), type=_Packed)
    counts = {
        number: ImageCounts(
            np.frombuffer(by_class, np.int64).reshape(2, 2, classes),
            np.frombuffer(flips, np.int64),
            np.frombuffer(flipped, np.int64),
            np.frombuffer(powers, np.float64),
        )
        for number, by_class, flips, flipped, powers in networks
    }
    return ImageRecord(key, LabelCounts(np.frombuffer(labelled, np.int64).reshape(2, classes), seen), counts)
