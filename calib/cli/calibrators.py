"""``calib calibrators``: the calibrators there are, with their parameters."""

from __future__ import annotations

from calib.cli.common import JsonFlag, emit, plugin_document, plugin_table

GIVEN = 1
"""A calibrator's leading parameters that the workbench passes itself: the tensor's statistics."""


def command(as_json: JsonFlag = False) -> None:
    """List the calibrators with their parameters, plugins from outside included."""
    from calib.edges.plugins import all_calibrators

    registry = all_calibrators()
    emit(
        plugin_document("calibrator", registry, GIVEN),
        as_json=as_json,
        text=plugin_table("calibrator", registry, GIVEN),
    )
