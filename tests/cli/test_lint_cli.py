"""``calib lint`` from end to end: exit codes, text, JSON, SARIF, the choice of rules and targets."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import urlparse

import numpy as np
import onnx
import pytest

from calib.cli.app import make_app, run
from calib.core.lint.rules import RULES
from tests.graphs import model, node, weight
from tests.lint.cases import CASES, quantized, sound, two_relus

APP = make_app((("lint", "calib.cli.lint"),), ())


def calib(*arguments: object) -> int:
    return run(["lint", *map(str, arguments)], APP)


@pytest.fixture
def save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Save a network in the working folder."""
    monkeypatch.chdir(tmp_path)

    def saved(graph: onnx.ModelProto, name: str = "net.onnx") -> str:
        Path(name).write_bytes(graph.SerializeToString())
        return name

    return saved


@pytest.fixture
def answer(capsys: pytest.CaptureFixture[str]):
    """Run a command under ``--json``; answer its exit code and document."""

    def asked(*arguments: object) -> tuple[int, dict]:
        code = calib(*arguments, "--json")
        return code, json.loads(capsys.readouterr().out or "{}")

    return asked


def test_errors_end_with_1_and_anything_less_with_0(save, answer) -> None:
    code, document = answer(save(quantized(0.0)))
    assert (code, document["passed"], document["counts"]["error"]) == (1, False, 1)
    code, document = answer(save(CASES["pool-frozen"][0]()))
    assert (code, document["passed"], document["counts"]) == (0, True, {"error": 0, "warning": 0, "note": 1})


def test_the_document_says_what_where_why_and_what_to_do(save, answer) -> None:
    _, document = answer(save(quantized(0.0)))
    first = document["findings"][0]
    assert first["rule"] == "qdq-scale"
    assert first["targets"] == {"trt10": "error", "trt11": "error", "ort": "error"}
    assert first["places"][0] == {"kind": "node", "name": "n_quantizelinear4", "saw": "scale 0"}
    assert first["why"]
    assert first["remedy"]
    assert first["sources"][0].startswith("https://")
    assert document["targets"] == ["trt10", "trt11", "ort"]


def test_a_finding_counts_for_its_targets_only(save, answer) -> None:
    path = save(quantized(0.1, np.uint8(0)))
    code, document = answer(path, "--target", "ort")
    assert (code, [item["rule"] for item in document["findings"]]) == (0, ["qdq-logits"])
    code, document = answer(path, "--target", "trt11, trt10")
    assert code == 1
    assert document["findings"][0]["targets"] == {"trt10": "error", "trt11": "error"}


def test_the_text_is_grouped_worst_first_and_names_nodes(save, capsys) -> None:
    assert calib(save(quantized(0.0))) == 1
    lines = capsys.readouterr().out.splitlines()
    heads = [line.split()[0] for line in lines if re.match(r"(error|warning|note) ", line)]
    assert heads == sorted(heads, key=("error", "warning", "note").index)
    assert lines[0] == "error    Scale that is not finite and above zero  [qdq-scale]"
    assert lines[1].strip() == "n_quantizelinear4, n_dequantizelinear5: scale 0"
    assert lines[-1] == "net.onnx: 1 error, 1 warning, 1 note for trt10, trt11, ort"
    assert all(len(line) <= 100 or "https://" in line for line in lines)


def test_notes_are_short_unless_more_is_asked(save, capsys) -> None:
    path = save(CASES["pool-frozen"][0]())
    calib(path)
    short = capsys.readouterr().out
    calib(path, "--verbose")
    long = capsys.readouterr().out
    assert "why:" not in short
    assert "why:" in long
    assert "remedy:" in short


def test_many_places_share_lines_and_json_holds_all(save, answer, capsys) -> None:
    nodes = [node("Relu", "x" if i == 0 else f"r{i - 1}", f"r{i}") for i in range(40)]
    for index in range(0, 40, 2):
        nodes[index].name = nodes[index + 1].name
    path = save(model(nodes, {"x": (1, 3, 4, 4)}, ["r39"]))
    assert calib(path) == 0
    assert "n_r1, n_r3, n_r5, n_r7, n_r9, n_r11, n_r13, n_r15 and 12 more: 2 nodes" in capsys.readouterr().out
    assert len(answer(path)[1]["findings"][0]["places"]) == 20


def test_rules_can_be_chosen_and_left_out(save, answer) -> None:
    path = save(quantized(0.0))
    assert [item["rule"] for item in answer(path, "--rule", "qdq-logits,qdq-calibrator")[1]["findings"]] == [
        "qdq-logits",
        "qdq-calibrator",
    ]
    code, document = answer(path, "--ignore", "qdq-scale", "--ignore", "qdq-logits")
    assert (code, [item["rule"] for item in document["findings"]]) == (0, ["qdq-calibrator"])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--rule", "qdq-scales"], "did you mean qdq-scale?"),
        (["--ignore", "nonsense"], "--explain all"),
        (["--ignore", ",".join(RULES)], "expected a rule to be left"),
        (["--target", "trt9"], "expected some of trt10, trt11, ort, got 'trt9'"),
        (["--target", ""], "got none"),
        (["--ranges", "missing.json"], "missing.json"),
    ],
)
def test_bad_usage_ends_with_2(save, capsys, arguments, text) -> None:
    assert calib(save(two_relus()), *arguments) == 2
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"TRT-8601-EntropyCalibration2\ninput: 3c010a14\n", "a text file"),
        (b"<!doctype html><html>", "an HTML page"),
        (b"PK\x03\x04zip", "a zip archive"),
        (b"", "an empty file"),
    ],
)
def test_what_is_no_network_ends_with_2(tmp_path, capsys, content, text) -> None:
    path = tmp_path / "input"
    path.write_bytes(content)
    assert calib(path) == 2
    assert text in capsys.readouterr().err


def test_a_folder_and_nothing_end_with_2(tmp_path, capsys) -> None:
    assert calib(tmp_path) == 2
    assert "name the .onnx file inside it" in capsys.readouterr().err
    assert calib() == 2
    assert "expected MODEL" in capsys.readouterr().err


def test_a_damaged_weight_is_named(save, capsys) -> None:
    graph = model([node("Conv", "x,w", "y")], {"x": (1, 3, 8, 8)}, ["y"], {"w": weight(4, 3, 3, 3)})
    graph.graph.initializer[0].raw_data = graph.graph.initializer[0].raw_data[:10]
    assert calib(save(graph)) == 2
    assert "tensor 'w': expected 432 bytes for shape [4, 3, 3, 3], got 10" in capsys.readouterr().err


def test_observed_ranges_are_looked_at(save, answer, tmp_path) -> None:
    path = save(two_relus())
    (tmp_path / "ranges.json").write_text(json.dumps({"tensor_scales": {"a": 70000.0, "x": 1.0, "y": 2.0}}))
    assert answer(path)[1]["findings"] == []
    _, document = answer(path, "--ranges", "ranges.json")
    assert document["findings"][0]["places"] == [{"kind": "tensor", "name": "a", "saw": "reaches 70000"}]


def test_a_builds_observed_extremes_are_taken(save, answer, tmp_path) -> None:
    rows = [("x", -1.0, 1.0), ("a", -70000.0, 3.0), ("y", None, None)]
    tensors = [{"name": name, "minimum": low, "maximum": high, "ranges": {}} for name, low, high in rows]
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "ranges.json").write_text(json.dumps({"schema": 1, "tensors": tensors}))
    path = save(two_relus())
    for given in ("build", "build/ranges.json"):
        places = answer(path, "--ranges", given)[1]["findings"][0]["places"]
        assert places == [{"kind": "tensor", "name": "a", "saw": "reaches 70000"}]


def test_ranges_of_another_network_are_refused(save, capsys, tmp_path) -> None:
    (tmp_path / "ranges.json").write_text(json.dumps({"tensor_scales": {"other": 1.0}}))
    assert calib(save(two_relus()), "--ranges", "ranges.json") == 2
    assert "none of a tensor in it" in capsys.readouterr().err


def test_control_characters_never_reach_the_terminal(save, capsys) -> None:
    graph = CASES["window-invalid"][0]()
    graph.graph.node[0].name = "\x1b[31mred\n"
    assert calib(save(graph)) == 1
    assert "\x1b" not in capsys.readouterr().out


def test_rules_are_explained_without_a_network(capsys, answer) -> None:
    assert calib("--explain", "qdq-axis") == 0
    text = capsys.readouterr().out
    assert "severity: error on trt10, error on trt11, warning on ort" in text
    assert "ONNX Runtime follows and is right to" in " ".join(text.split())
    assert calib("--explain", "all") == 0
    assert len(capsys.readouterr().out.splitlines()) == len(RULES)
    code, document = answer("--explain", "all")
    assert (code, [rule["id"] for rule in document["rules"]]) == (0, list(RULES))
    assert calib("--explain", "qdq-axes") == 2
    assert "did you mean qdq-axis?" in capsys.readouterr().err


REQUIRED = {
    "log": {"version", "runs"},
    "run": {"tool"},
    "result": {"message"},
    "rule": {"id"},
}
"""Properties that the SARIF 2.1.0 schema requires."""


def test_the_sarif_log_has_the_structure_that_reviewers_read(save, capsys) -> None:
    assert calib(save(quantized(0.0), "my net.onnx"), "--sarif", "logs/lint.sarif") == 1
    capsys.readouterr()
    log = json.loads(Path("logs/lint.sarif").read_text())
    (one,) = log["runs"]
    rules = one["tool"]["driver"]["rules"]
    for kind, items in {"log": [log], "run": [one], "result": one["results"], "rule": rules}.items():
        assert items
        assert all(REQUIRED[kind] <= item.keys() for item in items)
    assert log["version"] == "2.1.0"
    assert [rule["id"] for rule in rules] == list(RULES)
    assert all(urlparse(rule["helpUri"]).scheme == "https" for rule in rules)
    assert all(rule["help"]["text"] and rule["shortDescription"]["text"] for rule in rules)
    assert {rule["defaultConfiguration"]["level"] for rule in rules} <= {"error", "warning", "note"}
    for result in one["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in {"error", "warning", "note"}
        (location,) = result["locations"]
        assert location["physicalLocation"]["artifactLocation"] == {"uri": "my%20net.onnx", "index": 0}
    first = one["results"][0]
    assert first["locations"][0]["logicalLocations"][0]["name"] == "n_quantizelinear4"
    assert one["artifacts"][0]["location"]["uri"] == "my%20net.onnx"


def test_results_keep_their_fingerprints_when_values_change(save) -> None:
    logs = []
    for name, scale in (("a.sarif", 0.0), ("b.sarif", -1.0)):
        calib(save(quantized(scale)), "--sarif", name)
        logs.append(json.loads(Path(name).read_text())["runs"][0]["results"])
    prints = [[result["partialFingerprints"]["calib/v1"] for result in log] for log in logs]
    assert prints[0] == prints[1]
    assert len(set(prints[0])) == len(prints[0])
    assert logs[0][0]["message"] != logs[1][0]["message"]


def test_the_same_network_gives_the_same_bytes(save, capsys) -> None:
    path = save(sound())
    outputs = []
    for name in ("a.sarif", "b.sarif"):
        calib(path, "--sarif", name, "--json")
        outputs.append((capsys.readouterr().out, Path(name).read_bytes()))
    assert outputs[0] == outputs[1]


def test_a_log_that_cannot_be_written_ends_with_2(save, capsys, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    assert calib(save(two_relus()), "--sarif", "file/lint.sarif") == 2
    assert capsys.readouterr().out == ""


def test_the_page_lists_every_rule_as_it_is(repository: Path) -> None:
    text = (repository / "docs" / "lint.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([a-z0-9-]+)` \| (.+) \|$", text, re.MULTILINE))
    assert list(rows) == list(RULES)
    for key, rule in RULES.items():
        assert rows[key] == f"{row_levels(rule.levels)} | {rule.title}", key


def row_levels(levels) -> str:
    return " | ".join(levels.get(target, "–") for target in ("trt10", "trt11", "ort"))
