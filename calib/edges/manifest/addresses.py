"""Addresses of files: joined, expanded and checked in one place, so that object storage has somewhere to go."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from calib.errors import ManifestError

REMOTE = re.compile(r"^(s3|gs|az|abfss?|https?)://", re.IGNORECASE)
VARIABLE = re.compile(r"\$(?:(?P<plain>\w+)|\{(?P<name>\w+)(?::-(?P<default>[^}]*))?\})")


def join_address(root: str, address: str) -> str:
    """Join an address with the root it is relative to; absolute and remote addresses stay as they are."""
    if REMOTE.match(address):
        return address
    if REMOTE.match(root):
        return f"{root.rstrip('/')}/{address}"
    return os.path.join(root, address.removeprefix("./")).replace(os.sep, "/")  # noqa: PTH118 - called for every image


def key_of(root: str, address: str) -> str:
    """Identity of an image: its address as it is stated, relative to the root wherever it lies below the root.

    Args:
        root: folder that relative addresses are relative to.
        address: as a pattern or list states it, not joined with the root.
    """
    if REMOTE.match(address):
        return address.removeprefix(root.rstrip("/") + "/")
    if not os.path.isabs(address):  # noqa: PTH117 - called for every image
        return os.path.normpath(address).replace(os.sep, "/")
    relative = os.path.relpath(address, root).replace(os.sep, "/")
    return address.replace(os.sep, "/") if relative.startswith("../") else relative


def refuse_remote(place: str, address: str) -> str:
    """Let local addresses pass.

    Raises:
        ManifestError: the address is in object storage or on the web, which is not read yet.
    """
    if not REMOTE.match(address):
        return address
    raise ManifestError(
        place,
        expected="a local path",
        got=f"{address!r}, and remote storage is not supported yet",
        remedy="copy the data to a local folder and name that folder with --root",
    )


def expand(place: str, text: str, environment: Mapping[str, str] | None = None) -> str:
    """Expand ``~``, ``$NAME``, ``${NAME}`` and ``${NAME:-default}``.

    Raises:
        ManifestError: a variable without default is not set.
    """
    variables = os.environ if environment is None else environment

    def value(match: re.Match[str]) -> str:
        name, default = match["plain"] or match["name"], match["default"]
        found = variables.get(name) or default
        if found is not None:
            return found
        raise ManifestError(
            place,
            expected=f"environment variable {name}, which {text!r} refers to",
            got="none of that name",
            remedy=f"set {name} to the data's folder, or name the folder with --root",
        )

    return os.path.expanduser(VARIABLE.sub(value, text))  # noqa: PTH111 - text may be an address
