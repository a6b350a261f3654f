"""Convolutions and pools that leave uneven padding to the runtime."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.geometry import POOLS, Window, window
from calib.core.lint.rule import Rule, Sighting, at, everywhere
from calib.core.lint.sources import operator
from calib.core.lint.subject import Subject, ints


def check(subject: Subject) -> Iterator[Sighting]:
    """List each Conv or pool with SAME padding that does not come out even, or that also states pads."""
    for node in subject.nodes("Conv", *POOLS):
        found = window(node, subject)
        if found.auto_pad.startswith("SAME"):
            pads = ints(node, "pads")
            if pads:
                yield at(node, f"{found.auto_pad} and pads {pads}: both are stated", everywhere("error"))
            elif _uneven(found):
                yield at(node, f"{found.auto_pad}, kernel {found.kernel}, stride {found.stride}")


def _uneven(found: Window) -> bool:
    """Tell whether the two sides get different pads; a dynamic length may make them."""
    for index, extent in enumerate(found.extent):
        step = max(found.stride[index] if index < len(found.stride) else 1, 1)
        before = found.before[index] if index < len(found.before) else None
        total = None if before is None else max((-(-before // step) - 1) * step + extent - before, 0)
        if (total is None and (step > 1 or extent % 2 == 0)) or (total is not None and total % 2):
            return True
    return False


RULE = Rule(
    id="auto-pad",
    title="Uneven padding is left to the runtime (auto_pad)",
    why=(
        "SAME_UPPER puts the odd pixel at the end, as TensorFlow does; PyTorch's padding is even. A converter that "
        "makes even pads of it shifts the map by half a pixel at each such layer. A node that states auto_pad and "
        "pads at once is refused by every runtime."
    ),
    remedy="leave it if the network was trained so; write explicit pads before other tools rewrite the graph",
    sources=(operator("Conv"), operator("AveragePool")),
    levels=everywhere("note"),
    check=check,
)
