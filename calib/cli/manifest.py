"""``calib manifest``: check the data before anything is computed on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from calib.cli.common import JsonFlag, QuietFlag, RootOption, WorkersOption, emit

if TYPE_CHECKING:
    from calib.jobs.manifest_check import ManifestCheck
    from calib.jobs.manifest_facts import Finding

EXIT_GATE_FAILED = 1
MOST_LINES = 5

app = typer.Typer(no_args_is_help=True, help="Look at data manifests and lists.")


@app.callback()
def _group() -> None:
    """Look at data manifests and lists."""


@app.command("check")
def check(
    manifest: Annotated[str, typer.Argument(help="Manifest, list or COCO file, or the name of a shipped manifest.")],
    split: Annotated[str | None, typer.Option("--split", help="One split; default all.")] = None,
    root: RootOption = None,
    workers: WorkersOption = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Decode every image and label; count them by kind, and name those that cannot be used and why.

    Exits with 0 when all are usable, with 1 when some are not.
    """
    from calib.edges.progress import choose_progress
    from calib.jobs.manifest_check import check_manifest

    result = check_manifest(manifest, split, root, workers, choose_progress(quiet=quiet))
    document = result.to_json()
    emit(document, as_json=as_json, text=render(result, document))
    if result.count("error"):
        raise typer.Exit(EXIT_GATE_FAILED)


def render(result: ManifestCheck, document: dict[str, Any]) -> str:
    """The check as text: counts by split, then every error, then the most important of the rest."""
    parts = [_render_split(name, summary) for name, summary in document["splits"].items()]
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in result.findings:
        groups.setdefault((finding.severity, finding.code), []).append(finding)
    parts += [_render_group(severity, code, found) for (severity, code), found in groups.items()]
    errors, warnings = document["errors"], document["warnings"]
    verdict = "usable" if not errors else "not usable as it is"
    return "\n\n".join([*parts, f"{result.manifest}: {verdict}; {errors} errors, {warnings} warnings"])


def _render_split(name: str, summary: dict[str, Any]) -> str:
    rows = [
        ("images", f"{summary['usable_images']} of {summary['images']} usable{_listed(summary['image_kinds'])}"),
        ("labels", f"{summary['usable_labels']} of {summary['labels']} usable{_listed(summary['label_kinds'])}"),
        ("sizes", ", ".join(f"{size} ({count})" for size, count in [*summary["sizes"].items()][:6])),
    ]
    rotated = summary["rotated"]
    if any(rotated.values()):
        rows.append(("EXIF", f"{rotated['applied']} turned upright, {rotated['kept']} kept as stored"))
    pixels = summary["class_pixels"]
    total = sum(pixels.values())
    rows += [("classes", f"{share / total:7.2%}  {label}") for label, share in pixels.items() if total]
    shown = [(key if index == 0 or rows[index - 1][0] != key else "", text) for index, (key, text) in enumerate(rows)]
    return "\n".join([f"split {name}", *(f"  {key:<8} {text}" for key, text in shown if text)])


def _render_group(severity: str, code: str, found: list[Finding]) -> str:
    most = len(found) if severity == "error" else MOST_LINES
    lines = [f"{severity} {code} ({len(found)})"]
    for finding in found[:most]:
        where = ": ".join(part for part in (finding.split, finding.file) if part)
        lines.append(f"  {where}: {finding.message}" if where else f"  {finding.message}")
    if len(found) > most:
        lines.append(f"  … and {len(found) - most} more; --json lists all")
    remedies = dict.fromkeys(finding.remedy for finding in found if finding.remedy)
    return "\n".join([*lines, *(f"  remedy: {remedy}" for remedy in remedies)])


def _listed(counts: dict[str, int]) -> str:
    return ": " + ", ".join(f"{count} {kind}" for kind, count in counts.items()) if counts else ""
