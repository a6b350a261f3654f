"""``calib demo``: the main job on data and a network that come with calib."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calib.cli.common import JsonFlag, QuietFlag, SeedOption, WorkersOption, emit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from calib.jobs.demo import DemoResult

NAME_ROOM = 26


def command(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of the demo.")] = Path("demo-out"),
    evaluate: Annotated[
        bool, typer.Option("--evaluate/--no-evaluate", help="Measure what every variant costs in accuracy.")
    ] = True,
    workers: WorkersOption = None,
    seed: SeedOption = 0,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Draw street scenes, calibrate a small network on them with two samplers, measure every calibrator.

    Works offline in an empty folder. Interrupted, the same command goes on where it stopped.
    """
    from calib.edges.progress import choose_progress
    from calib.jobs.demo import DemoRequest, run_demo

    request = DemoRequest(output=output, evaluate=evaluate, seed=seed, workers=workers)
    result = run_demo(request, choose_progress(quiet=quiet))
    emit(_document(result), as_json=as_json, text=_text(result))


def _document(result: DemoResult) -> dict[str, Any]:
    builds = {name: str(build.folder) for name, build in result.builds.items()}
    return {"report": str(result.report), "builds": builds, "evaluation": result.evaluation}


def _text(result: DemoResult) -> str:
    table = [] if result.evaluation is None else [*_table(result.evaluation), ""]
    builds = [f"{name + ' build':<{NAME_ROOM}}{build.folder}" for name, build in result.builds.items()]
    return "\n".join([*table, *builds, "", f"open {result.report}"])


def _table(evaluation: Mapping[str, Any]) -> list[str]:
    """Lay the differences out: a row a network, a column a slice."""
    from calib.demo.page import columns_of, differences, reference_row

    columns = columns_of(evaluation)
    widths = [max(len(name), 6) + 2 for name in columns]
    head = "".join(f"{name:>{width}}" for name, width in zip(columns, widths, strict=True))
    row = "".join(f"{value:>{width}.1f}" for value, width in zip(reference_row(evaluation), widths, strict=True))
    lines = [f"{'mIoU':<{NAME_ROOM}}{head}", f"{'float network, %':<{NAME_ROOM}}{row}", "INT8 minus float, points"]
    for model in evaluation["models"][1:]:
        cells = zip(differences(model), widths, strict=True)
        lines.append(
            f"  {model['name']:<{NAME_ROOM - 2}}" + "".join(f"{c['delta']:>+{width}.2f}" for c, width in cells)
        )
    return lines
