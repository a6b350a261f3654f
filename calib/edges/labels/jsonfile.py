"""Typed JSON files, with errors that name file and place."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from calib.edges.files import read_bytes
from calib.errors import FormatError

T = TypeVar("T")


def load_json(address: str, kind: type[T], what: str) -> T:
    """Read a JSON file into a msgspec type.

    Args:
        address: the file.
        kind: its structure.
        what: name of the format, for errors.

    Raises:
        ImageError: the file is missing.
        FormatError: it is no JSON, or not of this structure.
    """
    data = read_bytes(address)
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FormatError(
            address,
            expected=what,
            got=str(error),
            remedy="check that the file is complete and of this format (instances, panoptic and captions files differ)",
        ) from error
