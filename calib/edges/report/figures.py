"""A chart with the data table behind it, and the figures every report can use."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from calib.edges.report import formatting, svg
from calib.edges.report.model import AmountSection, Distribution


@dataclass(frozen=True)
class DataTable:
    """The numbers of a chart as text, first column the row's name."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Figure:
    """A chart for the page.

    Attributes:
        title: heading.
        svg: the chart, markup from :mod:`calib.edges.report.svg`.
        table: its numbers.
        legend: class and name of each series, empty where labels in the chart suffice.
        note: one sentence on how to read it.
        narrow: the same chart for narrow screens, or empty where one serves all.
    """

    title: str
    svg: str
    table: DataTable
    legend: tuple[tuple[str, str], ...] = ()
    note: str = ""
    narrow: str = ""


PAIR_LEGEND = (("pop", "all images of the split"), ("sel", "chosen images"))
DOT_LEGEND = (("ring", "all images of the split"), ("disc", "chosen images"))
CLASSES_DRAWN = 24
"""Classes drawn at most; data sets have up to 171."""


def distribution_figure(key: str, shown: Distribution, width: float = 360) -> Figure:
    """Draw how the chosen set and the population spread over one score; narrow screens get 360 pixels."""
    wide = _distribution_figure(key, shown, width)
    if width <= 360:
        return wide
    return replace(wide, narrow=_distribution_figure(f"{key}-narrow", shown, 360).svg)


def is_geometric(edges: Sequence[float]) -> bool:
    """Tell whether bin edges grow by a factor, so that a logarithmic axis gives the bins one width."""
    if len(edges) < 4 or edges[0] <= 0:
        return False
    factors = [high / low for low, high in pairwise(edges)]
    return min(factors) > 1.02 and max(factors) / min(factors) < 1.1


def _distribution_figure(key: str, shown: Distribution, width: float) -> Figure:
    population, selection = shares_of(shown.population), shares_of(shown.selection)
    table = _distribution_table(shown, population, selection)
    about = svg.About(key, shown.name, _in_words(shown, population, selection))
    if shown.edges:
        drawn = svg.paired_bars(
            shown.edges,
            population,
            selection,
            about=about,
            caption=shown.unit,
            log=is_geometric(shown.edges),
            width=width,
        )
        return Figure(shown.name, drawn, table, PAIR_LEGEND, shown.note)
    kept = most_changed(population, selection, CLASSES_DRAWN)
    names = [shown.labels[index] for index in kept]
    whole, part = ([values[index] for index in kept] for values in (population, selection))
    drawn = svg.paired_dots(names, whole, part, about=about, caption=shown.unit, width=width)
    left = len(shown.labels) - len(kept)
    rest = f"The {len(kept)} that changed most; {left} more are among the numbers." if left else ""
    return Figure(shown.name, drawn, table, DOT_LEGEND, f"{shown.note} {rest}".strip())


def most_changed(population: Sequence[float], selection: Sequence[float], most: int) -> list[int]:
    """Choose the ``most`` indices whose share changed by the largest factor, in their own order.

    A share that comes from or goes to zero changed the most; zero in both sets not at all.
    """
    changes = [
        0.0 if whole == part else math.inf if whole <= 0 or part <= 0 else abs(math.log(part / whole))
        for whole, part in zip(population, selection, strict=True)
    ]
    ordered = sorted(range(len(changes)), key=lambda index: (-changes[index], index))
    return sorted(ordered[:most])


def shares_of(amounts: Sequence[float]) -> tuple[float, ...]:
    """Divide amounts by their sum; all zero stays all zero."""
    total = float(sum(amounts))
    return tuple(float(amount) / total if total else 0.0 for amount in amounts)


def bin_names(edges: Sequence[float]) -> tuple[str, ...]:
    """Name bins by their edges."""
    return tuple(f"{formatting.number(low)} to {formatting.number(high)}" for low, high in pairwise(edges))


def _distribution_table(shown: Distribution, population: Sequence[float], selection: Sequence[float]) -> DataTable:
    rows = tuple(
        (name, formatting.share(whole), formatting.share(part), formatting.ratio(part / whole if whole else None))
        for name, whole, part in zip(shown.labels or bin_names(shown.edges), population, selection, strict=True)
    )
    first = "class" if shown.labels else shown.unit or "bin"
    return DataTable(shown.name, (first, "all images", "chosen", "chosen / all"), rows)


def _in_words(shown: Distribution, population: Sequence[float], selection: Sequence[float]) -> str:
    names = shown.labels or bin_names(shown.edges)
    moved = sorted(range(len(names)), key=lambda index: (population[index] - selection[index], index))
    most = [
        f"{names[index]} with {formatting.share(selection[index])} against {formatting.share(population[index])}"
        for index in moved[:3]
        if selection[index] > population[index]
    ]
    return "Most enriched: " + "; ".join(most) if most else "The chosen set is spread like the population."


def amount_figure(key: str, section: AmountSection) -> Figure:
    """Draw how the ranges settled while images were added."""
    curves = [svg.Line(name, values, index) for index, (name, values) in enumerate(section.change.items())]
    caption = f"range change, {section.unit}"
    settled = "" if section.tolerance is None else f"settled below {formatting.number(section.tolerance)}"
    taken = "" if section.chosen is None else f"{formatting.count(section.chosen)} images taken"
    about = svg.About(key, "Range change against number of images", section.note or f"{settled}; {taken}")
    drawn = [
        svg.lines(
            section.images,
            curves,
            about=svg.About(f"{about.key}{suffix}", about.title, about.description),
            frame=svg.Frame(width, 260, 24, 14, 38, 48),
            x_caption="images",
            y_caption=caption,
            level=section.tolerance,
            level_name=settled,
            mark=section.chosen,
            mark_name=taken,
        )
        for suffix, width in (("", 1040.0), ("-narrow", 360.0))
    ]
    rows = tuple(
        (formatting.count(images), *(formatting.number(values[index]) for values in section.change.values()))
        for index, images in enumerate(section.images)
    )
    table = DataTable(caption, ("images", *section.change), rows)
    legend = tuple((f"ln s{index % 8 + 1}", name) for index, name in enumerate(section.change))
    return Figure(about.title, drawn[0], table, legend, section.note, drawn[1])
