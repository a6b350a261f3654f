"""Log an evaluation to MLflow: parameters, metrics, and the files as artifacts; a run a network."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from calib.errors import MissingLibraryError, UsageError

EXPERIMENT = "calib evaluate"
NOT_LOGGED = frozenset({"matrices.npz", "index.parquet"})
"""Large or only of use where they are."""
_FORBIDDEN = re.compile(r"[^\w\-. /]")
Json = Mapping[str, Any]


def require_mlflow() -> Any:
    """Import MLflow: before an evaluation that is to be logged, so that its lack is not found out at the end.

    Raises:
        MissingLibraryError: it is not installed.
    """
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
    try:
        import mlflow
    except ImportError as error:
        raise MissingLibraryError(
            "--mlflow", expected="MLflow to log with", got=str(error), remedy="pip install 'calib-workbench[mlflow]'"
        ) from error
    return mlflow


def log_evaluation(uri: str, folder: Path, document: Json) -> None:
    """Log every network as a run of the experiment ``calib evaluate``.

    Args:
        uri: tracking URI: a server, ``sqlite:///FILE`` or a folder.
        folder: the evaluation's files.
        document: what ``evaluation.json`` holds.

    Raises:
        MissingLibraryError: MLflow is not installed.
        UsageError: the store cannot be reached or does not accept the run.
    """
    mlflow = require_mlflow()
    try:
        _log(mlflow, uri, folder, document)
    except (mlflow.exceptions.MlflowException, OSError) as error:
        raise UsageError(
            f"--mlflow {uri}",
            expected="a tracking store that takes the run",
            got=" ".join(str(error).split())[:300],
            remedy=f"check the URI and the server; the results themselves are complete in {folder}",
        ) from error


def parameters_of(document: Json, model: Json) -> dict[str, str]:
    """What was evaluated and how, as MLflow parameters."""
    return {
        "model": model["name"],
        "path": model["path"],
        "sha256": str(model["sha256"]),
        "reference": str(document["reference"]),
        "data": document["data"]["name"],
        "split": document["data"]["split"],
        "images": str(document["data"]["images"]),
        "manifest_sha256": document["data"]["manifest_sha256"],
        "numerics": document["numerics"]["numerics"],
        "intervals": document["intervals"]["method"],
        "calib": document["version"],
    }


def metrics_of(model: Json) -> dict[str, float]:
    """Every number of a network that is known, by names that MLflow takes."""
    return {_name(key): value for key, value in _metrics(model) if value is not None}


def _metrics(model: Json) -> Iterator[tuple[str, float | None]]:
    for name in ("miou", "pixel_accuracy", "frequency_weighted_iou", "mean_of_images_miou"):
        yield name, model[name]
    yield "boundary_miou", model["boundary"]["miou"]
    yield "small_object_recall", model["objects"]["small"]["recall"]
    yield "tie_rate", model["ties"] and model["ties"]["rate"]
    for kind, found in (("class", model["per_class"]), ("slice", model["slices"])):
        for name, value in found.items():
            yield f"{kind}/{name}", value["miou"] if isinstance(value, Mapping) else value
    against = model["vs_reference"]
    if against is None:
        return
    yield "flipped", against["flips"]["share"]
    yield from _difference("delta/miou", against["miou"])
    for kind, found in (("class", against["per_class"]), ("slice", against["slices"])):
        for name, entry in found.items():
            yield from _difference(f"delta/{kind}/{name}", entry)


def _difference(name: str, entry: Json | None) -> Iterator[tuple[str, float | None]]:
    if entry is None:
        return
    yield name, entry["delta"]
    if entry["ci95"] is not None:
        yield f"{name}/ci95_low", entry["ci95"][0]
        yield f"{name}/ci95_high", entry["ci95"][1]


def _name(text: str) -> str:
    """Replace what MLflow does not take in a metric's name."""
    return _FORBIDDEN.sub("_", text)


def _log(mlflow: Any, uri: str, folder: Path, document: Json) -> None:
    mlflow.set_tracking_uri(uri)
    mlflow.set_experiment(EXPERIMENT)
    for model in document["models"]:
        with mlflow.start_run(run_name=model["name"]):
            mlflow.log_params(parameters_of(document, model))
            mlflow.log_metrics(metrics_of(model))
            for verdict in document["gate"] or ():
                if verdict["model"] == model["name"]:
                    mlflow.set_tag(_name(f"gate {verdict['limit']}"), "passed" if verdict["passed"] else "failed")
            for file in sorted(folder.iterdir()):
                if file.is_file() and file.name not in NOT_LOGGED:
                    mlflow.log_artifact(str(file))
