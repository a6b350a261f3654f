"""Logging to MLflow, in a store of its own on this machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from calib.edges.evaluation.mlflowlog import EXPERIMENT, metrics_of
from calib.errors import MissingLibraryError, UsageError
from calib.jobs.evaluate import evaluate
from tests.evalsets import colour_network, make_set, save

QUICK: dict[str, Any] = {"resamples": 100, "pictures": 0}


def evaluated(folder: Path, **options: Any) -> dict[str, Any]:
    data = make_set(folder / "set", images=6)
    networks = [
        save(colour_network(5, spoil=spoil), folder / f"{name}.onnx") for name, spoil in (("a", 0.0), ("b", 0.2))
    ]
    return evaluate(networks, data.manifest, output=folder / "out", **QUICK, **options)


def test_metrics_have_names_and_numbers_that_mlflow_takes(tmp_path: Path) -> None:
    model = evaluated(tmp_path)["models"][1]
    metrics = metrics_of(model)
    assert metrics["miou"] == model["miou"]
    assert metrics["delta/miou"] == model["vs_reference"]["miou"]["delta"]
    assert metrics["class/c1"] == model["per_class"]["c1"]
    assert metrics["slice/sequence_a"] == model["slices"]["sequence=a"]["miou"]
    assert all(isinstance(value, float) for value in metrics.values())
    assert not any("=" in name or ":" in name for name in metrics)


def test_a_lack_of_mlflow_is_told_before_anything_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(MissingLibraryError, match=r"pip install 'calib-workbench\[mlflow\]'"):
        evaluated(tmp_path, mlflow="sqlite:///none.db")
    assert not (tmp_path / "out").exists()


@pytest.mark.filterwarnings("default")
def test_a_run_a_network_with_parameters_metrics_and_artifacts(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow", reason="MLflow is not installed")
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    mlflow.set_tracking_uri(uri)
    mlflow.create_experiment(EXPERIMENT, artifact_location=(tmp_path / "artifacts").as_uri())
    document = evaluated(tmp_path, mlflow=uri, max_drop="miou=0.001")
    runs = {run.info.run_name: run for run in mlflow.MlflowClient(uri).search_runs([
        mlflow.get_experiment_by_name(EXPERIMENT).experiment_id
    ])}  # fmt: skip
    assert set(runs) == {"a", "b"}
    assert runs["b"].data.params["reference"] == "a"
    assert runs["b"].data.params["sha256"] == document["models"][1]["sha256"]
    assert runs["b"].data.metrics == pytest.approx(metrics_of(document["models"][1]))
    assert runs["b"].data.tags["gate miou_0.001"] == "failed"
    files = {item.path for item in mlflow.MlflowClient(uri).list_artifacts(runs["b"].info.run_id)}
    assert {"evaluation.html", "evaluation.json", "evaluation_classes.csv"} <= files


@pytest.mark.filterwarnings("default")
def test_a_store_that_cannot_be_reached_is_told_and_the_results_stay(tmp_path: Path) -> None:
    pytest.importorskip("mlflow", reason="MLflow is not installed")
    with pytest.raises(UsageError, match="the results themselves are complete"):
        evaluated(tmp_path, mlflow="nonsense://nowhere")
    assert (tmp_path / "out" / "evaluation.html").exists()
