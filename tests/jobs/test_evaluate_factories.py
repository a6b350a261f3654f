"""Networks that are Python objects."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calib.errors import CalibError, MissingLibraryError, ModelError, UsageError
from calib.jobs.evaluate import evaluate
from tests.evalsets import Evalset, colour_network, make_set, save
from tests.jobs import factories

QUICK: dict[str, Any] = {"resamples": 100, "pictures": 0}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Evalset:
    return make_set(tmp_path_factory.mktemp("set"), images=5)


def test_a_function_scores_like_its_network(data: Evalset, tmp_path: Path) -> None:
    document = evaluate(["tests.jobs.factories:function"], data.manifest, output=tmp_path, **QUICK)
    model = document["models"][0]
    assert (model["kind"], model["sha256"]) == ("python", None)
    assert model["pixel_accuracy"] > 0.5
    assert factories.CALLS[-1] == (1, 3, 32, 48)


def test_without_a_fingerprint_nothing_is_reused(data: Evalset, tmp_path: Path) -> None:
    for _ in range(2):
        factories.CALLS.clear()
        evaluate(["tests.jobs.factories:function"], data.manifest, output=tmp_path, **QUICK)
        assert len(factories.CALLS) == 6  # five images, and one to learn the outputs


def test_a_mapping_has_outputs_to_choose_from(data: Evalset, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="aux"):
        evaluate(["tests.jobs.factories:mapping"], data.manifest, output=tmp_path, **QUICK)
    document = evaluate(["tests.jobs.factories:mapping"], data.manifest, output=tmp_path, output_name="out", **QUICK)
    assert document["models"][0]["pixel_accuracy"] > 0.5


def test_a_model_is_run_as_one(data: Evalset, tmp_path: Path) -> None:
    path = save(colour_network(5), tmp_path / "n.onnx")
    document = evaluate([path, "tests.jobs.factories:model"], data.manifest, output=tmp_path / "out", **QUICK)
    assert document["models"][1]["confusion"] == document["models"][0]["confusion"]
    assert document["models"][1]["kind"] == "float"


def test_a_torch_module_scores_like_its_network(data: Evalset, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    names = ["tests.jobs.factories:function", "tests.jobs.factories:module"]
    first, second = evaluate(names, data.manifest, output=tmp_path, **QUICK)["models"]
    assert np.abs(np.array(first["confusion"]) - second["confusion"]).sum() <= 4  # float32 sums in another order
    assert second["sha256"]


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("broken", UsageError, "no weights at hand"),
        ("number", UsageError, "int"),
        ("absent", UsageError, "absent"),
        ("words", ModelError, "str"),
        ("failing", ModelError, "matmul"),
    ],
)
def test_factories_that_fail_are_told(
    data: Evalset, tmp_path: Path, name: str, error: type[CalibError], words: str
) -> None:
    with pytest.raises(error, match=words):
        evaluate([f"tests.jobs.factories:{name}"], data.manifest, output=tmp_path, **QUICK)


def test_a_module_that_cannot_be_imported_is_told(data: Evalset, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="PYTHONPATH"):
        evaluate(["no_such_package.nets:make"], data.manifest, output=tmp_path, **QUICK)


def test_an_engine_is_told_apart_and_its_twin_named(data: Evalset, tmp_path: Path) -> None:
    engine = tmp_path / "net.engine"
    engine.write_bytes(b"ftrt")
    if importlib.util.find_spec("tensorrt") is not None:
        pytest.skip("TensorRT is installed: it would try to run the engine")
    with pytest.raises(MissingLibraryError, match=r"\.qdq\.onnx that the engine was built from"):
        evaluate([engine], data.manifest, output=tmp_path / "out", **QUICK)
