"""What the shape of an output gives away."""

from __future__ import annotations

import pytest

from calib.core.outputshape import output_remarks, refuse_single_cell
from calib.errors import ModelError


@pytest.mark.parametrize(
    ("cells", "network", "odd"),
    [
        ((119, 160), (120, 160), True),
        ((120, 160), (120, 160), False),
        ((30, 40), (120, 160), False),
        ((90, 90), (713, 713), False),
        ((7, 8), (8, 8), False),
    ],
)
def test_rounded_sizes_are_remarked_on(cells: tuple[int, int], network: tuple[int, int], odd: bool) -> None:
    remarks = output_remarks((5, *cells), 5, network)
    assert bool(remarks) == odd
    assert not odd or f"{cells[0]} x {cells[1]} for an input of {network[0]} x {network[1]}" in remarks[0]


@pytest.mark.parametrize(("channels", "odd"), [(5, False), (6, True)])
def test_channels_beyond_the_classes_are_remarked_on(channels: int, odd: bool) -> None:
    remarks = output_remarks((channels, 8, 8), 5, (8, 8))
    assert [remark[: len("6 channels for 5 classes")] for remark in remarks] == ["6 channels for 5 classes"] * odd


def test_a_map_of_class_numbers_has_no_channels() -> None:
    assert output_remarks((64, 64), 5, (64, 64)) == ()


@pytest.mark.parametrize("shape", [(5, 1, 1), (1, 1)])
def test_one_cell_for_a_picture_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ModelError, match="one cell for an input of 32 x 48"):
        refuse_single_cell(shape, (32, 48), "net")
    refuse_single_cell(shape, (1, 1), "net")
    refuse_single_cell((5, 1, 2), (32, 48), "net")
