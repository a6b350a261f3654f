"""One self-contained HTML file: templates, style, script and the policy that forbids every request."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from calib.edges.report import evaluation_words, formatting
from calib.edges.report.figures import amount_figure, distribution_figure
from calib.edges.report.model import BuildReport
from calib.edges.report.notices import all_notices, verdict
from calib.edges.report.placement import placement_view
from calib.edges.report.tensors import ranges_view
from calib.edges.report.thumbnails import data_uri

STYLES = ("tokens.css", "page.css", "tables.css", "charts.css", "evaluation.css", "print.css")
UNBROKEN = 20
"""Characters of a name that stand together at most."""
SCRIPTS = ("tables.js", "pager.js", "sortable.js", "page.js")


@dataclass(frozen=True)
class SectionLink:
    """An entry of the contents: the section's id, number and title."""

    id: str
    number: int
    title: str


NARROW_CHART, WIDE_CHART = 360.0, 520.0
"""Natural widths of charts in three and in two columns."""

TITLES = {
    "images": "Calibration images",
    "ranges": "Ranges",
    "placement": "Placement",
    "amount": "How many images are enough",
    "provenance": "Provenance and next steps",
}


def render_build_report(report: BuildReport) -> bytes:
    """Render the report of ``calib build``: UTF-8 HTML, the same bytes for the same report.

    Raises:
        ValueError: a thumbnail is no JPEG, PNG or WebP.
    """
    notices = all_notices(report)
    level, words = verdict(notices)
    context = {
        "report": report,
        "subject": report.subject,
        "notices": notices,
        "level": level,
        "verdict": words,
        "distributions": _distributions(report),
        "ranges": ranges_view(report.tensors, report.subject.calibrators) if report.tensors else None,
        "placement": placement_view(report.placement) if report.placement else None,
        "amount": amount_figure("amount-chart", report.amount) if report.amount else None,
    }
    present = {name: context.get(name) or getattr(report, name, None) for name in TITLES}
    return render_page("build.html.j2", context, [name for name in TITLES if present[name]])


def render_page(template: str, context: dict[str, Any], sections: list[str], titles: dict[str, str] = TITLES) -> bytes:
    """Render a page of the kit: ``template`` extends ``base.html.j2`` and has a block a section.

    Args:
        template: file name under ``templates/``.
        context: variables of the template.
        sections: ids of the sections that are present, in order.
        titles: title of every section id.
    """
    links = [SectionLink(name, place, titles[name]) for place, name in enumerate(sections, 1)]
    script = bundle(SCRIPTS)
    page = {
        "sections": {link.id: link for link in links},
        "style": Markup(bundle(STYLES)),
        "script": Markup(script),
        "policy": content_policy(script),
    }
    return environment().get_template(template).render(**context, **page).encode("utf-8")


def content_policy(script: str) -> str:
    """Forbid every request, and every script but this one, whatever a name in the report holds."""
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    return (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )


@cache
def bundle(names: tuple[str, ...]) -> str:
    """Join asset files in order."""
    folder = files("calib.edges.report") / "assets"
    return "\n".join((folder / name).read_text(encoding="utf-8").strip() for name in names)


@cache
def environment() -> jinja2.Environment:
    """Set jinja up: everything printed is made visible, then escaped; an undefined name is an error."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("calib.edges.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in ("bits", "file_size", "number", "plural", "ratio", "share"):
        made.filters[name] = getattr(formatting, name)
    made.filters["thousands"] = formatting.count
    for name in ("interval", "lost", "percent", "points"):
        made.filters[name] = getattr(evaluation_words, name)
    made.filters["svg"] = Markup
    made.filters["data_uri"] = data_uri
    made.filters["breakable"] = breakable
    return made


def breakable(name: str) -> Markup:
    """Escape a path-like name and let it break before its separators, so that it wraps where people read.

    Longer stretches without any may break inside, so that no name decides how wide a table is.
    """
    pieces = re.split(r"(?<=[^/._:-])(?=[/._:-])", formatting.visible(name))
    return Markup("<wbr>").join(part for piece in pieces for part in _parts(piece))


def _parts(piece: str) -> list[str]:
    if max(map(len, piece.split()), default=0) <= UNBROKEN:
        return [piece]
    return re.findall(rf"\s*\S{{1,{UNBROKEN}}}\s*|\s+", piece)


def _shown(value: Any) -> Any:
    if isinstance(value, Markup):
        return value
    return formatting.visible(value) if isinstance(value, str) else value


def _distributions(report: BuildReport) -> list[Any]:
    shown = report.images.distributions if report.images else ()
    width = WIDE_CHART if len(shown) in (2, 4) else NARROW_CHART
    return [distribution_figure(f"dist-{place}", item, width) for place, item in enumerate(shown)]
