"""Measure every variant of a build, and put the best first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calib.edges.builddir import EVALUATION, BuildFolder
from calib.edges.files import sha256_file
from calib.jobs.build.artifacts import Variant
from calib.jobs.build.request import BuildRequest
from calib.jobs.evaluate import EvaluateRequest, run_evaluation
from calib.types.progress import Progress

FOLDER = "evaluation"


@dataclass(frozen=True)
class Measured:
    """What measuring the variants gave.

    Attributes:
        variants: all of them, the chosen one first.
        record: split, file, its sha256 and the choice with its rule and numbers, for ``provenance.json``.
    """

    variants: tuple[Variant, ...]
    record: Mapping[str, Any]

    @property
    def words(self) -> str:
        """The choice and its reason in a sentence or two."""
        choice = self.record["choice"]
        return str(choice["words"]) if choice else f"{self.variants[0].calibrator.label}: the only variant."


def measure_variants(
    request: BuildRequest, folder: BuildFolder, variants: Sequence[Variant], progress: Progress
) -> Measured:
    """Evaluate the Q/DQ network of every variant against the float network.

    The release is the variant with the least loss on its worst slice among those whose mIoU interval overlaps the
    best's. Interrupted, the same build goes on where the evaluation stopped.

    Args:
        request: names the split.
        folder: holds the networks; the evaluation is written below it.
        variants: in order of preference.
        progress: shows how far it is.

    Raises:
        CalibError: the split cannot be evaluated on.
    """
    files = [folder.path / f"{variant.calibrator.label}.qdq.onnx" for variant in variants]
    evaluation = run_evaluation(
        EvaluateRequest(
            models=[str(request.model), *map(str, files)],
            data=request.data,
            output=folder.path / FOLDER,
            split=request.evaluate,
            reference=str(request.model),
            output_name=request.output_name,
            seed=request.seed,
            root=request.root,
            preprocess=request.preprocess,
            workers=request.workers,
            provider=request.provider,
        ),
        progress,
    )
    choice = evaluation.document["best_variant"]
    chosen = choice["name"] if choice else variants[0].calibrator.label
    ordered = sorted(variants, key=lambda variant: variant.calibrator.label != chosen)
    file = folder.path / FOLDER / EVALUATION
    record = {
        "split": request.evaluate,
        "file": f"{FOLDER}/{EVALUATION}",
        "sha256": sha256_file(file),
        "choice": choice,
    }
    return Measured(tuple(ordered), record)
