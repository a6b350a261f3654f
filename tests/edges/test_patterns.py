"""Patterns given one by one or in a file."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from calib.edges.patterns import file_pattern, read_patterns
from calib.errors import CalibError, UsageError


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


@pytest.mark.parametrize("name", ["head.*", "layers[1]", "@at", "two words", "\u2028u", "Conv(a)"])
def test_a_name_that_is_read_as_it_is_is_written_so(name: str) -> None:
    assert file_pattern(name) == name


@pytest.mark.parametrize("name", ["#1", " lead", "trail\t", " # [a]*? ", "two\nlines", "\r", " ", "#", "@at", "#[!x]"])
def test_any_name_survives_a_file(tmp_path: Path, name: str) -> None:
    file = tmp_path / "keep.txt"
    file.write_bytes(f"# why\n{file_pattern(name)}\n".encode())
    (pattern,) = read_patterns([f"@{file}"])
    assert pattern == name or fnmatchcase(name, pattern)
    assert not fnmatchcase(f"{name}x", pattern)
    assert not fnmatchcase(f"x{name}", pattern)


@pytest.mark.parametrize("given", ["", "@"])
def test_nothing_is_no_pattern(given: str) -> None:
    with pytest.raises(UsageError, match="leave the option out"):
        read_patterns(["head", given])
