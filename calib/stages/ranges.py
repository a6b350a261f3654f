"""Calibrate: the statistics of every tensor to every calibrator's dynamic ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from calib.core.plugins import bind_arguments, find_plugin
from calib.errors import StatisticsError, UsageError
from calib.types.parameters import PluginSpec
from calib.types.statistics import Calibrator, DynamicRange, TensorStatistics

GIVEN = 1
"""Leading parameters of a calibrator that the workbench passes itself: the statistics."""


@dataclass(frozen=True)
class BoundCalibrator:
    """A calibrator with its arguments.

    Attributes:
        label: names it in files and tables: the plugin's name, with the arguments behind it where two would clash.
        spec: as the user wrote it.
        function: the plugin.
        arguments: every parameter with its value, defaults included.
    """

    label: str
    spec: PluginSpec
    function: Calibrator
    arguments: Mapping[str, Any]


def bind_calibrators(specs: Sequence[PluginSpec], registry: Mapping[str, Calibrator]) -> tuple[BoundCalibrator, ...]:
    """Find the plugins and check their arguments.

    Raises:
        UsageError: an unknown plugin or argument, or the same calibrator twice.
    """
    names = [spec.name for spec in specs]
    bound = []
    for spec in specs:
        function = find_plugin("calibrator", spec.name, registry)
        arguments = bind_arguments("calibrator", spec, function, GIVEN)
        label = spec.name if names.count(spec.name) == 1 else _long_label(spec)
        bound.append(BoundCalibrator(label, spec, function, arguments))
    labels = [item.label for item in bound]
    for label in labels:
        if labels.count(label) > 1:
            raise UsageError(
                f"--calibrator {label}", expected="each calibrator once", got="it twice", remedy="leave one of them out"
            )
    return tuple(bound)


def _long_label(spec: PluginSpec) -> str:
    """A label that is also a file name on every system."""
    return "_".join([spec.name, *(f"{key}-{value}" for key, value in spec.arguments)])


def calibrate(
    statistics: Mapping[str, TensorStatistics], calibrators: Sequence[BoundCalibrator], workers: int = 1
) -> dict[str, dict[str, DynamicRange]]:
    """Ask every calibrator for every tensor's range.

    Args:
        statistics: by tensor name.
        calibrators: with their arguments.
        workers: threads; the answer does not depend on it.

    Returns:
        Calibrator label to tensor name to range.

    Raises:
        StatisticsError: a calibrator's answer lies outside the observed range or is not finite.
    """
    jobs = [(calibrator, item) for calibrator in calibrators for item in statistics.values()]
    with ThreadPoolExecutor(workers) as pool:
        answers = list(pool.map(lambda job: _ask(*job), jobs))
    found: dict[str, dict[str, DynamicRange]] = {calibrator.label: {} for calibrator in calibrators}
    for (calibrator, item), answer in zip(jobs, answers, strict=True):
        found[calibrator.label][item.name] = answer
    return found


def _ask(calibrator: BoundCalibrator, statistics: TensorStatistics) -> DynamicRange:
    answer = calibrator.function(statistics, **calibrator.arguments)
    if not 0 <= answer.amax <= statistics.amax:
        raise StatisticsError(
            f"calibrator {calibrator.spec}, tensor {statistics.name!r}",
            expected=f"an amax between 0 and the observed {statistics.amax:g}",
            got=f"{answer.amax:g}",
            remedy="report this to the calibrator's author; the other calibrators can be used meanwhile",
        )
    return answer
