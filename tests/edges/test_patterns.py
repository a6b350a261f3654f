"""Patterns given one by one or in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from calib.edges.patterns import read_patterns
from calib.errors import CalibError


def test_a_file_stands_for_its_lines(tmp_path: Path) -> None:
    file = tmp_path / "keep.txt"
    file.write_bytes("\ufeff# why\r\nhead.*\r\n\r\n  stem  \n  # no\nüber\n".encode())
    assert read_patterns(["first", f"@{file}", "stem"]) == ("first", "head.*", "stem", "über")


def test_an_empty_file_names_nothing(tmp_path: Path) -> None:
    file = tmp_path / "keep.txt"
    file.write_text("# no layer costs much\n")
    assert read_patterns([f"@{file}"]) == ()


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00head"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "keep.txt"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(CalibError, match=r"keep\.txt"):
        read_patterns([f"@{file}"])
