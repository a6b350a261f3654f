"""What the shape of a network's output gives away: a classifier, an export that rounded a size, other classes."""

from __future__ import annotations

from collections.abc import Sequence

from calib.errors import ModelError

NEAR = 2
"""Pixels by which an output may miss the input's size and still be meant to have it."""
SMALLEST = 8
"""Sides up to this are resolutions of their own, not roundings."""


def refuse_single_cell(shape: Sequence[int], network: tuple[int, int], place: str) -> None:
    """Refuse an output of one cell for a whole picture: one answer an image is what classifiers give.

    Args:
        shape: ``[C, h, w]`` or ``[h, w]`` of an image's output.
        network: ``(height, width)`` of the network input.
        place: network and output, for messages.

    Raises:
        ModelError: there is one cell, and the input has more.
    """
    if shape[-2] * shape[-1] == 1 < network[0] * network[1]:
        raise ModelError(
            place,
            expected="a class map",
            got=f"one cell for an input of {network[0]} x {network[1]}, as a classifier answers",
            remedy="evaluate a segmentation network, or choose another --output-name",
        )


def output_remarks(shape: Sequence[int], classes: int, network: tuple[int, int]) -> tuple[str, ...]:
    """Say what is odd about an output that can be scored.

    Args:
        shape: ``[C, h, w]`` or ``[h, w]`` of an image's output.
        classes: number of classes.
        network: ``(height, width)`` of the network input.
    """
    remarks = []
    if len(shape) == 3 and shape[0] > classes:
        remarks.append(
            f"{shape[0]} channels for {classes} classes; where one of the others wins, the pixel counts as wrong. Was "
            "it trained on the classes of the manifest?"
        )
    cells = (shape[-2], shape[-1])
    if _is_rounded(cells, network):
        remarks.append(
            f"an output of {cells[0]} x {cells[1]} for an input of {network[0]} x {network[1]}: the export rounded a "
            "size, and the class map is stretched by that"
        )
    return tuple(remarks)


def _is_rounded(cells: tuple[int, int], network: tuple[int, int]) -> bool:
    return any(0 < abs(have - want) <= NEAR and want > SMALLEST for have, want in zip(cells, network, strict=True))
