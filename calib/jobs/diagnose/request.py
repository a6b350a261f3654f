"""What a diagnosis was asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from calib.edges.runners.ort import Provider

IMAGES = 16


@dataclass(frozen=True)
class DiagnoseRequest:
    """The arguments of a diagnosis.

    Attributes:
        reference: the network as it should be: ``module:factory``, an ONNX file, or a build folder.
        candidate: the network that lost accuracy: the same, a Q/DQ ONNX, ``DIR:calibrator``, or an engine.
        data: manifest, list file or name of a shipped manifest.
        output: folder of the results.
        split: split to take images from; None where the manifest has only one.
        root: overrides the manifest's root.
        preprocess: overrides the manifest's preprocessing.
        candidate_preprocess: the candidate's own, where it is another; a build folder brings its own.
        reference_weights: checkpoint of a PyTorch reference.
        candidate_weights: checkpoint of a PyTorch candidate.
        cache: calibration cache to hold against the candidate; a build folder brings its own.
        num_images: images looked at.
        output_name: which output counts, where the networks have several.
        workers: rungs run side by side; None for one a core.
        provider: where networks run.
        seed: of the intervals.
    """

    reference: str
    candidate: str
    data: str
    output: Path
    split: str | None = None
    root: str | None = None
    preprocess: str | None = None
    candidate_preprocess: str | None = None
    reference_weights: Path | None = None
    candidate_weights: Path | None = None
    cache: str | None = None
    num_images: int = IMAGES
    output_name: str | None = None
    workers: int | None = None
    provider: Provider = "cpu"
    seed: int = 0
