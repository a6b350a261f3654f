"""What the header warns of: the caller's notices, and those that follow from the sections."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from calib.edges.report.formatting import listed, plural
from calib.edges.report.model import (
    CONSTANT,
    DEAD,
    NEVER_OBSERVED,
    BuildReport,
    Level,
    Notice,
    PlacementSection,
    TensorRow,
)

_ORDER: dict[Level, int] = {"error": 0, "warning": 1, "info": 2}
_FLAGS: tuple[tuple[str, Level, tuple[str, str], str], ...] = (
    (
        NEVER_OBSERVED,
        "warning",
        ("was never observed", "were never observed"),
        "No value was seen, so the range is no measurement; see whether this branch can run at all.",
    ),
    (
        DEAD,
        "warning",
        ("is dead: zero on every image", "are dead: zero on every image"),
        "A zero scale makes TensorRT fail, so a floor was written; more varied images may show it live.",
    ),
    (
        CONSTANT,
        "info",
        ("is constant over the whole set", "are constant over the whole set"),
        "If that is not meant, the images may be too much alike.",
    ),
)


def all_notices(report: BuildReport) -> tuple[Notice, ...]:
    """Join the caller's notices with the derived ones, worst first; what the caller raised itself is not repeated."""
    given = {notice.title for notice in report.notices}
    kinds = {notice.about for notice in report.notices if notice.about}
    derived = [item for item in derived_notices(report) if item.title not in given and item.about not in kinds]
    return tuple(sorted((*report.notices, *derived), key=lambda notice: _ORDER[notice.level]))


def derived_notices(report: BuildReport) -> Iterator[Notice]:
    """Find what the sections hold that a reader must not miss."""
    for note in report.images.notes if report.images else ():
        yield Notice("info", note, section="images")
    yield from _of_tensors(report.tensors or ())
    if report.placement:
        yield from _of_placement(report.placement)


def verdict(notices: tuple[Notice, ...]) -> tuple[Level | None, str]:
    """Say in a few words whether the result can be used as it is; the level is None when nothing stands out."""
    levels = Counter(notice.level for notice in notices)
    if levels["error"]:
        return "error", f"Not usable as it is: {plural(levels['error'], 'error')}"
    if levels["warning"]:
        return "warning", f"Built, with {plural(levels['warning'], 'warning')}"
    return None, "Built, nothing stands out"


def _of_tensors(tensors: tuple[TensorRow, ...]) -> Iterator[Notice]:
    for flag, level, (one, many), advice in _FLAGS:
        names = [row.name for row in tensors if flag in row.flags]
        if names:
            title = f"{plural(len(names), 'tensor')} {one if len(names) == 1 else many}"
            yield Notice(level, title, f"{listed(names)}. {advice}", "ranges", flag)
    skipped = [row for row in tensors if row.nonfinite]
    if skipped:
        total = sum(row.nonfinite for row in skipped)
        yield Notice(
            "warning",
            f"{plural(total, 'non-finite value')} skipped in {plural(len(skipped), 'tensor')}",
            f"{listed([row.name for row in skipped])}. NaN and infinity entered no range; find out why they arise.",
            "ranges",
            "non-finite",
        )


def _of_placement(placement: PlacementSection) -> Iterator[Notice]:
    yield from _of_coverage(placement)
    if placement.concats:
        joints = len({item.node for item in placement.concats})
        worst = max(placement.concats, key=lambda item: item.bits)
        cost = f"up to {worst.bits:.1f} bits" if math.isfinite(worst.bits) else "all bits of a dead one"
        yield Notice(
            "info",
            f"{plural(joints, 'Concat')} of ranges of different width",
            f"One shared scale would cost the inputs {cost} (at {worst.node}).",
            "placement",
            "concat",
        )
    if placement.dead_channels:
        dead = sum(len(item.channels) for item in placement.dead_channels)
        yield Notice(
            "info",
            f"{plural(dead, 'dead weight channel')} in {plural(len(placement.dead_channels), 'tensor')}",
            "Their scales were set to a floor; the weights are zero, so nothing is lost.",
            "placement",
            "dead channels",
        )
    left = Counter(item.reason for item in placement.decisions if item.status == "float")
    if left:
        reasons = [f"{reason or 'no reason given'} ({number})" for reason, number in left.most_common()]
        title = f"{left.total()} of {plural(len(placement.decisions), 'operator')} left float"
        yield Notice("info", title, f"{listed(reasons)}.", "placement", "float")
    if placement.opset and placement.opset[0] != placement.opset[1]:
        before, after = placement.opset
        yield Notice(
            "info", f"Opset changed from {before} to {after}", "Q/DQ as written needs it.", "placement", "opset"
        )


def _of_coverage(placement: PlacementSection) -> Iterator[Notice]:
    if not placement.missing:
        return
    yield Notice(
        "warning",
        f"{plural(len(placement.missing), 'float tensor')} without an entry in the cache",
        f"{listed(list(placement.missing))}. TensorRT runs the layers around in float and says so only in its log.",
        "placement",
        "missing",
    )
