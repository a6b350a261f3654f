"""What is known of a network's values, from a build or from any file of ranges."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calib.core.graph import Network
from calib.edges.tables import load_table, read_range_file
from calib.errors import UsageError

BUILD_FILE = "ranges.json"


def observed_ranges(path: str, network: Network) -> Mapping[str, float]:
    """Read the largest magnitude of every tensor of a network.

    Args:
        path: a build folder or its ``ranges.json``, whose observed extremes are taken; or any file of ranges that
            ``calib cache`` reads (a cache holds clipped ranges: less than was observed).
        network: whose tensors they should be.

    Raises:
        UsageError: there are none of this network.
        CalibError: the file cannot be read.
    """
    place = str(Path(path) / BUILD_FILE) if Path(path).is_dir() else path
    found = _of_build(read_range_file(place))
    if found is None:
        found = {item.name: item.amax for item in load_table(place)}
    known = {name: amax for name, amax in found.items() if math.isfinite(amax)}
    if network.names.isdisjoint(known):
        raise UsageError(
            f"--ranges {path}",
            expected="ranges of this network's tensors",
            got=f"{len(known)} finite ranges, none of a tensor in it",
            remedy="pass what a build of this very export wrote; `calib cache rename` carries ranges between exports",
        )
    return known


def _of_build(content: bytes) -> dict[str, float] | None:
    """Read observed extremes out of a build's ``ranges.json``; None where it is no such file."""
    if not content.lstrip().startswith(b"{"):
        return None
    try:
        tensors: list[dict[str, Any]] = json.loads(content)["tensors"]
        return {
            str(item["name"]): max(abs(float(item["minimum"])), abs(float(item["maximum"])))
            for item in tensors
            if item["minimum"] is not None and item["maximum"] is not None
        }
    except (ValueError, KeyError, TypeError):
        return None
