"""What ``calib cache retarget``, ``merge`` and ``rename`` share: how they write, and what they answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calib.core.printable import printable
from calib.edges.files import make_output_folder, write_atomic


@dataclass(frozen=True)
class EditResult:
    """What an edit did.

    Attributes:
        output: the file written.
        entries: number of ranges in it.
        warnings: what the edit does not prove, or changed besides; a line each.
        facts: further figures for machines.
    """

    output: Path
    entries: int
    warnings: tuple[str, ...]
    facts: Mapping[str, Any]

    def document(self) -> dict[str, Any]:
        """Describe the edit as one JSON document."""
        warnings = [printable(line) for line in self.warnings]
        return {"schema": 1, "output": str(self.output), "entries": self.entries, "warnings": warnings, **self.facts}

    def text(self) -> str:
        """Lay the edit out for people."""
        facts = [f"{key}: {value}" for key, value in self.facts.items() if isinstance(value, str | int)]
        lines = [f"{self.output}: {self.entries} ranges", *facts, *(f"warning: {line}" for line in self.warnings)]
        return "\n".join(printable(line) for line in lines)


def write_file(output: Path, data: bytes) -> None:
    """Write a file, and the folder it goes into.

    Raises:
        OutputError: neither can be written.
    """
    make_output_folder(output.parent)
    write_atomic(output, data)
