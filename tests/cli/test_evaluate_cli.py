"""``calib evaluate``: exit codes, the gate's order, JSON on stdout alone, files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from calib.cli.evaluate import command
from calib.errors import UsageError
from tests.evalsets import Evalset, colour_network, make_set, save

APP = typer.Typer()
APP.command("evaluate")(command)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Evalset:
    return make_set(tmp_path_factory.mktemp("set"))


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("networks")
    models = {"float": colour_network(5), "worse": colour_network(5, spoil=0.3), "copy": colour_network(5)}
    return [str(save(model, folder / f"{name}.onnx")) for name, model in models.items()]


def run(data: Evalset, networks: list[str], output: Path, *arguments: str) -> Result:
    fixed = ["--data", str(data.manifest), "-o", str(output), "--resamples", "100", "--pictures", "1", "--quiet"]
    return CliRunner().invoke(APP, [*networks, *fixed, *arguments])


def test_a_run_without_a_gate_exits_with_0_and_names_the_report(
    data: Evalset, networks: list[str], tmp_path: Path
) -> None:
    result = run(data, networks, tmp_path)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].startswith("patches val: 12 images, Q/DQ computed literally")
    assert lines[1].startswith("float ")
    assert lines[1].endswith("reference")
    assert "copy" in lines[3]
    assert "0.00 [0.00, 0.00]  0.00% flipped" in lines[3]
    assert lines[-1] == f"report  {tmp_path / 'evaluation.html'}"
    assert {path.name for path in tmp_path.iterdir()} == {
        "evaluation.html", "evaluation.json", "evaluation_classes.csv", "evaluation_images.csv",
        "evaluation_slices.csv", "index.parquet", "matrices.npz",
    }  # fmt: skip


def test_a_broken_limit_exits_with_1_and_stands_first(data: Evalset, networks: list[str], tmp_path: Path) -> None:
    result = run(data, networks, tmp_path, "--max-drop", "miou=0.3,class:c1=50")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0].startswith("FAIL  worse  miou=0.3  lost ")
    assert [line[:4] for line in lines[:4]] == ["FAIL", "pass", "pass", "pass"]
    assert run(data, networks, tmp_path, "--max-drop", "miou=90").exit_code == 0


def test_json_is_alone_on_stdout_and_is_the_file(data: Evalset, networks: list[str], tmp_path: Path) -> None:
    result = run(data, networks, tmp_path, "--json", "--max-drop", "miou=0.1")
    assert result.exit_code == 1
    assert json.loads(result.stdout) == json.loads((tmp_path / "evaluation.json").read_text())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--numerics", "int4"], "fake-quant, int8"),
        (["--max-drop", "miou"], "KEY=POINTS"),
        (["--slice", "night"], "NAME=EXPRESSION"),
        (["--slice", "night=lumma<3"], "luma_mean"),
        (["--gate-by", "luck"], "value, interval"),
        (["--output-name", "aux"], "logits"),
    ],
)
def test_usage_errors_say_what_is_expected(
    data: Evalset, networks: list[str], tmp_path: Path, arguments: list[str], words: str
) -> None:
    result = run(data, networks, tmp_path, *arguments)
    assert isinstance(result.exception, UsageError)
    assert words in str(result.exception)


def test_integer_kernels_name_the_instruction_sets(data: Evalset, networks: list[str], tmp_path: Path) -> None:
    result = run(data, networks[:1], tmp_path, "--numerics", "int8", "--json")
    numerics = json.loads(result.stdout)["numerics"]
    assert numerics["numerics"] == "int8"
    assert numerics["words"].startswith("integer kernels of ONNX Runtime on ")
    assert isinstance(numerics["instruction_sets"], list)
