"""The gate's accuracy check: of these networks, on other images, with figures that agree, within the limits."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calib.edges.progress import SilentProgress
from calib.errors import FormatError, UsageError
from calib.jobs.evaluate import EvaluateRequest, run_evaluation
from calib.jobs.verify import Verification, VerifyRequest, verify
from tests.smallbuild import make_build

LOOSE = "miou=100"


def evaluate(place: Path, output: Path, split: str = "val", models: tuple[str, ...] = ("out",)) -> None:
    request = EvaluateRequest(
        models=[str(place / item) for item in models],
        reference=str(place / "net.onnx"),
        data=str(place / "set.yaml"),
        output=output,
        split=split,
        pictures=0,
        resamples=100,
    )
    run_evaluation(request, SilentProgress())


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    for name, seed in (("one", 5), ("other", 6)):
        (folder / name).mkdir()
        make_build(folder / name, calibrators=("percentile", "minmax"), seed=seed)
        evaluate(folder / name, folder / name / "out" / "evaluation")
    return folder


@pytest.fixture
def place(built: Path, tmp_path: Path) -> Path:
    shutil.copytree(built / "one", tmp_path / "one")
    shutil.copytree(built / "other", tmp_path / "one" / "other")
    return tmp_path / "one"


def check(place: Path, **changes: Any) -> Verification:
    request = VerifyRequest(place / "out", place / "net.onnx", max_drop=LOOSE, replay=0)
    return verify(replace(request, **changes), SilentProgress())


def reasons(result: Verification) -> list[str]:
    return [item.detail for item in result.checks if item.status == "fail"]


def edit(place: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = place / "out/evaluation/evaluation.json"
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def candidate(document: dict[str, Any]) -> dict[str, Any]:
    return next(item for item in document["models"] if item["path"].endswith("percentile.qdq.onnx"))


def test_a_stored_evaluation_is_judged(place: Path) -> None:
    result = check(place)
    assert result.passed, reasons(result)
    (found,) = [item for item in result.checks if item.name.startswith("accuracy")]
    assert found.name == "accuracy miou=100"
    assert found.detail.startswith("percentile: ")


def test_limits_are_held_against_what_was_measured(place: Path) -> None:
    def worsen(document: dict[str, Any]) -> None:
        entry, base = candidate(document), document["models"][0]
        for name in base["per_class"]:
            base["per_class"][name], entry["per_class"][name] = 0.5, 0.49
            entry["vs_reference"]["per_class"][name] = {"delta": -1.0, "ci95": [-1.5, -0.5]}
        base["miou"], entry["miou"] = 0.5, 0.49
        entry["vs_reference"]["miou"] |= {"delta": -1.0, "ci95": [-1.5, -0.5]}

    edit(place, worsen)
    assert reasons(check(place, max_drop="miou=1.2,class:thing=1.2")) == []
    assert not check(place, max_drop="miou=1.2", gate_by="interval").passed
    result = check(place, max_drop="miou=0.9,class:thing=1.2,class:road=0.5")
    assert [item.name for item in result.checks if item.status == "fail"] == [
        "accuracy class:road=0.5",
        "accuracy miou=0.9",
    ]


BROKEN: dict[str, tuple[Callable[[Path], Any], str]] = {
    "none is there": (lambda p: shutil.rmtree(p / "out/evaluation"), "no stored evaluation"),
    "of another build": (
        lambda p: shutil.copy(p / "other/out/evaluation/evaluation.json", p / "out/evaluation/evaluation.json"),
        "is not this float network"),
    "of other variants": (
        lambda p: edit(p, lambda d: candidate(d).update(sha256="0" * 64)), "does not hold the Q/DQ network"),
    "without reference": (lambda p: edit(p, lambda d: d.update(reference=None)), "no reference network"),
    "a difference edited": (
        lambda p: edit(p, lambda d: candidate(d)["vs_reference"]["miou"].update(delta=5.0)), "contradicts itself"),
    "a class difference edited": (
        lambda p: edit(p, lambda d: candidate(d)["vs_reference"]["per_class"]["road"].update(delta=5.0)),
        "contradicts itself"),
    "an IoU edited": (
        lambda p: edit(p, lambda d: candidate(d).update(miou=candidate(d)["miou"] / 2)), "is not the mean"),
    "an IoU that is none": (lambda p: edit(p, lambda d: candidate(d)["per_class"].update(road=7.0)), "no IoU"),
    "no differences": (lambda p: edit(p, lambda d: candidate(d).update(vs_reference=None)), "no differences"),
    "measured on the calibration split": (
        lambda p: edit(p, lambda d: d["data"].update(split="train")), "which was calibrated on"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_an_evaluation_that_proves_nothing_does_not_pass(place: Path, name: str) -> None:
    tamper, reason = BROKEN[name]
    tamper(place)
    result = check(place)
    assert not result.passed
    assert any(reason in text for text in reasons(result)), reasons(result)


def test_another_variant_can_be_judged(place: Path) -> None:
    result = check(place, variant="minmax")
    assert next(item.detail for item in result.checks if item.name.startswith("accuracy")).startswith("minmax: ")
    with pytest.raises(UsageError, match="percentile, minmax"):
        check(place, variant="mse")


def test_unusable_evaluations_and_limits_are_usage_errors(place: Path) -> None:
    (place / "notes.json").write_text("[]")
    with pytest.raises(FormatError, match=r"evaluation\.json"):
        check(place, evaluation=place / "notes.json")
    with pytest.raises(UsageError, match="readable"):
        check(place, evaluation=place / "nothing.json")
    with pytest.raises(UsageError, match="ground, thing, road"):
        check(place, max_drop="class:Pedestrian=1")
    with pytest.raises(UsageError, match="--data"):
        check(place, fresh=True)


def test_a_fresh_evaluation_gives_the_same_verdict_as_the_stored_one(place: Path) -> None:
    stored = next(item for item in check(place).checks if item.name.startswith("accuracy"))
    shutil.rmtree(place / "out/evaluation")
    result = check(place, fresh=True, data=str(place / "set.yaml"))
    fresh = next(item for item in result.checks if item.name.startswith("accuracy"))
    assert (fresh.status, fresh.detail.partition(" [")[0]) == (stored.status, stored.detail.partition(" [")[0])


def test_under_a_key_the_evaluation_must_be_signed_too(place: Path) -> None:
    pytest.importorskip("cryptography", reason="needs the extra sign")
    from calib.jobs.sign import sign
    from tests.jobs.test_sign import write_keys

    private, public = write_keys(place)
    sign(place / "out", private)
    assert check(place, key=public).passed
    shutil.copy(place / "out/evaluation/evaluation.json", place / "elsewhere.json")
    edit(place, lambda document: document["notes"].append("x"))
    assert any("not covered by the signature" in text for text in reasons(check(place, key=public)))
    shutil.copy(place / "elsewhere.json", place / "out/evaluation/evaluation.json")
    assert check(place, key=public, evaluation=place / "elsewhere.json").passed


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build that measured its variants and released the best."""
    folder = tmp_path_factory.mktemp("measured")
    make_build(folder, calibrators=("percentile:percentile=60", "minmax", "per-channel:equalize=true"), evaluate="val")
    return folder


def test_a_build_that_chose_by_measuring_passes(measured: Path) -> None:
    provenance = json.loads((measured / "out/provenance.json").read_text())
    labels = [item["name"] for item in provenance["calibrators"]]
    assert labels[0] == provenance["evaluation"]["choice"]["name"]
    result = check(measured, data=str(measured / "set.yaml"))
    assert result.passed, reasons(result)
    names = {item.name: item.status for item in result.checks}
    assert names["evaluation"] == names["overlap"] == names["accuracy miou=100"] == "pass"


@pytest.mark.parametrize("kind", ["edited", "missing", "elsewhere", "another choice"])
def test_the_evaluation_that_chose_the_release_is_vouched_for(measured: Path, tmp_path: Path, kind: str) -> None:
    shutil.copytree(measured, tmp_path / "one")
    place = tmp_path / "one"
    path, provenance = place / "out/evaluation/evaluation.json", place / "out/provenance.json"
    document = json.loads(provenance.read_text())
    if kind == "edited":
        path.write_text(path.read_text() + " ")
    elif kind == "missing":
        path.unlink()
    elif kind == "elsewhere":
        document["evaluation"]["file"] = "../net.onnx"
        provenance.write_text(json.dumps(document))
    else:
        document["evaluation"]["choice"]["name"] = "other"
        provenance.write_text(json.dumps(document))
    result = check(place, max_drop="")
    assert not result.passed
    failed = {item.name for item in result.checks if item.status == "fail"}
    assert ("provenance" if kind == "another choice" else "evaluation") in failed
