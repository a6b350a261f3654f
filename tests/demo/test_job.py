import json
import re

import pytest
from typer.testing import CliRunner

from calib.cli.app import make_app
from calib.demo import dataset
from calib.jobs import demo

pytest.importorskip("onnxruntime", reason="needs onnxruntime to run the demo's network")

FEW = {"calib": {"day": 8, "dusk": 4, "night": 4}, "val": {"day": 3, "dusk": 2, "night": 2}}


@pytest.fixture(scope="module")
def few():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dataset, "SPLITS", FEW)
        patch.setattr(demo, "IMAGES", 6)
        yield


@pytest.fixture(scope="module")
def finished(few, tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "demo-out"
    answer = CliRunner().invoke(make_app(), ["demo", "-o", str(folder), "--quiet"])
    assert answer.exit_code == 0, answer.output
    return folder, answer.stdout


def test_it_ends_by_naming_the_report(finished):
    folder, printed = finished
    assert printed.strip().splitlines()[-1] == f"open {folder / 'report.html'}"
    assert (folder / "report.html").is_file()


def test_it_prints_what_was_measured(finished):
    folder, printed = finished
    evaluation = json.loads((folder / "evaluation/evaluation.json").read_text())
    assert [model["name"] for model in evaluation["models"]][:2] == ["demo", "random/entropy"]
    assert len(evaluation["models"]) == 11
    for model in evaluation["models"][1:]:
        delta = model["vs_reference"]["slices"]["light=night"]["delta"]
        (line,) = [line for line in printed.splitlines() if line.strip().startswith(model["name"])]
        assert f"{delta:+.2f}" in line.split()


def test_it_leaves_a_whole_build_for_each_sampler(finished):
    folder, _ = finished
    for name in ("random", "enriched"):
        build = folder / "builds" / name
        assert {"calibration.cache", "minmax.qdq.onnx", "provenance.json", "report.html"} <= {
            path.name for path in build.iterdir()
        }
        assert len((build / "selection.jsonl").read_text().splitlines()) == 6
    assert (folder / "demo.onnx").is_file()


def test_the_page_asks_the_network_for_nothing_and_links_the_builds(finished):
    folder, _ = finished
    page = (folder / "report.html").read_text()
    links = set(re.findall(r'(?:href|src)="([^"#]+)"', page))
    assert all(link.startswith("data:") or (folder / link).is_file() for link in links)
    assert {"builds/random/report.html", "builds/enriched/report.html", "evaluation/evaluation.html"} <= links
    assert page.count("<img") == 6


def test_the_same_command_again_repeats_nothing_and_says_the_same(finished, few):
    folder, printed = finished
    before = {path: path.stat().st_mtime_ns for path in (folder / "builds").rglob("*") if path.is_file()}
    page = (folder / "report.html").read_bytes()
    again = CliRunner().invoke(make_app(), ["demo", "-o", str(folder), "--quiet"])
    assert again.stdout == printed
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert (folder / "report.html").read_bytes() == page


def test_without_evaluation_it_names_a_build_report(few, tmp_path):
    answer = CliRunner().invoke(make_app(), ["demo", "-o", str(tmp_path), "--no-evaluate", "--json", "--quiet"])
    document = json.loads(answer.stdout)
    assert document["evaluation"] is None
    assert document["report"] == str(tmp_path / "builds" / "random" / "report.html")
    assert not (tmp_path / "evaluation").exists()
