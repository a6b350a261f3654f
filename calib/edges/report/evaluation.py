"""The report of ``calib evaluate``: what INT8 cost, which class, where, and whether the difference is real."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from calib.edges.report.evaluation_figures import difference_figure, image_figures
from calib.edges.report.evaluation_tables import (
    boundary_table,
    class_table,
    flip_table,
    iou_table,
    network_table,
    objects_table,
    slice_table,
)
from calib.edges.report.evaluation_training import training_views
from calib.edges.report.evaluation_words import (
    Json,
    by_chance,
    candidates,
    chosen_first,
    points,
    reference_of,
    verdict_of,
)
from calib.edges.report.model import Level, Notice, OutputFile, TensorRow
from calib.edges.report.page import render_page
from calib.edges.report.tensors import ranges_view

TITLES = {
    "networks": "Networks",
    "trainings": "PTQ or QAT",
    "gate": "Gate",
    "classes": "Classes",
    "slices": "Slices",
    "objects": "Objects by size",
    "pixels": "Where pixels changed",
    "images": "Image by image",
    "worst": "Worst images",
    "calibration": "What was calibrated on",
    "ranges": "Ranges of the calibrators",
    "method": "How it was measured",
}


FACTS = 3
"""Networks whose difference stands in the header."""


@dataclass(frozen=True)
class Overlay:
    """A picture of an image, encoded as JPEG or PNG, and what it shows."""

    caption: str
    picture: bytes


@dataclass(frozen=True)
class WorstImage:
    """An image on which a network does worst.

    Attributes:
        model: the network.
        key: the image.
        rank: 1 for the worst.
        before: the reference's mIoU on it, 0..1, or None without a reference.
        after: the network's own.
        flipped: share of the pixels whose class changed, or None without a reference.
        overlays: pictures, the image itself first.
        slices: the slices it is in.
    """

    model: str
    key: str
    rank: int
    before: float | None
    after: float | None
    flipped: float | None
    overlays: tuple[Overlay, ...]
    slices: tuple[str, ...] = ()

    @property
    def delta(self) -> str:
        """Difference of the two in points."""
        return "" if self.before is None or self.after is None else points(100 * (self.after - self.before))


@dataclass(frozen=True)
class EvaluationReport:
    """What the report is made from.

    Attributes:
        document: what ``evaluation.json`` holds.
        images: what ``evaluation_images.csv`` holds.
        worst: pictures of the worst images of each network.
        colours: RGB colour of each class.
        tensors: rows of the ranges section, of the build folder that was evaluated; None leaves it out.
        calibrators: names of its calibrators.
        files: the files beside the report.
    """

    document: Json
    images: Sequence[Json]
    worst: Sequence[WorstImage] = ()
    colours: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    tensors: tuple[TensorRow, ...] | None = None
    calibrators: tuple[str, ...] = ()
    files: tuple[OutputFile, ...] = ()


@dataclass(frozen=True)
class PageSubject:
    """What the page's frame names."""

    version: str


def render_evaluation_report(report: EvaluationReport) -> bytes:
    """Render the report: UTF-8 HTML, complete in itself, the same bytes for the same results.

    Raises:
        ValueError: a picture is no JPEG, PNG or WebP.
    """
    document = report.document
    level, words, detail = verdict_of(document)
    reference, others = reference_of(document), candidates(document)
    context: dict[str, Any] = {
        "report": report,
        "document": document,
        "subject": PageSubject(document["version"]),
        "level": level,
        "verdict": words,
        "detail": detail,
        "reference": reference,
        "others": others,
        "first_others": chosen_first(document)[:FACTS],
        "by_chance": by_chance(document),
        "notices": tuple(_notices(document)),
        "networks": network_table(document),
        "differences": difference_figure(document) if others else None,
        "gate": document["gate"],
        "classes": class_table(document) or iou_table(document),
        "ious": iou_table(document) if others else None,
        "boundaries": boundary_table(document),
        "slices": slice_table(document),
        "trainings": training_views(document),
        "pixels": flip_table(document) if others else None,
        "objects": objects_table(document),
        "images": image_figures(document, report.images) if others else None,
        "worst": sorted(report.worst, key=_loss),
        "calibration": document["calibrated_on"],
        "ranges": ranges_view(report.tensors, report.calibrators) if report.tensors else None,
        "method": document["numerics"],
    }
    present = [name for name in TITLES if context.get(name)]
    return render_page("evaluation.html.j2", context, present, TITLES)


def _loss(item: WorstImage) -> tuple[float, str, int]:
    """What the pictures are ordered by: the largest loss first, or the lowest mIoU."""
    return (item.after or 0.0) - (item.before or 0.0), item.model, item.rank


def _notices(document: Json) -> Iterator[Notice]:
    for text in document["notes"]:
        yield Notice(_level_of(text), text)
    sequences = [name for name in document["slices"] if name.startswith(("sequence=", "video=", "scene="))]
    if len(sequences) > 1 and "groups" not in document["intervals"]["method"]:
        column = sequences[0].partition("=")[0]
        yield Notice(
            "info",
            "Intervals are drawn over images",
            f"Frames of one {column} resemble each other, so intervals over images are too narrow where the results "
            f"are to hold for other {column}s: --bootstrap-by {column} draws each of the {len(sequences)} as a whole.",
            "method",
        )


def _level_of(text: str) -> Level:
    """A note's weight: what spoils the numbers is a warning."""
    spoils = ("outside the class", "NaN", "is the class", "was not built from", "rounded a size", "channels for")
    return "warning" if any(words in text for words in spoils) else "info"
