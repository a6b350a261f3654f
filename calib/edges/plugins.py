"""Plugins from outside: entry points joined with the built-in registries."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from calib.errors import UsageError
from calib.types.scores import Sampler
from calib.types.statistics import Calibrator


def all_samplers() -> Mapping[str, Sampler]:
    """Built-in samplers and those of entry-point group ``calib.samplers``."""
    from samplers import SAMPLERS

    return _joined(SAMPLERS, "calib.samplers")


def all_calibrators() -> Mapping[str, Calibrator]:
    """Built-in calibrators and those of entry-point group ``calib.calibrators``."""
    from calibrators import CALIBRATORS

    return _joined(CALIBRATORS, "calib.calibrators")


def _joined(built_in: Mapping[str, Any], group: str) -> dict[str, Any]:
    joined = dict(built_in)
    for point in entry_points(group=group):
        if point.name in joined:
            raise UsageError(
                f"entry point {point.value} of group {group}",
                expected="a name not taken by another plugin",
                got=repr(point.name),
                remedy="rename the entry point, or uninstall one of the two packages",
            )
        joined[point.name] = _load(point, group)
    return joined


def _load(point: Any, group: str) -> Any:
    try:
        return point.load()
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"entry point {point.name!r} of group {group}",
            expected=f"{point.value} to import",
            got=str(error),
            remedy="reinstall or uninstall the package that declares it",
        ) from error
