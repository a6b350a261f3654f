"""``calib samplers``: the samplers there are, with their parameters."""

from __future__ import annotations

from calib.cli.common import JsonFlag, emit, plugin_document, plugin_table

GIVEN = 3
"""A sampler's leading parameters that the workbench passes itself: score table, number of images, random source."""


def command(as_json: JsonFlag = False) -> None:
    """List the samplers with their parameters, plugins from outside included."""
    from calib.edges.plugins import all_samplers

    registry = all_samplers()
    emit(plugin_document("sampler", registry, GIVEN), as_json=as_json, text=plugin_table("sampler", registry, GIVEN))
