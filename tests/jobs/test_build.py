"""The main job: what it writes, that it is the same every time, that nothing is lost, and what it says of bad input."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnx
import pytest

from calib.core import trtcache
from calib.core.graph import analyse
from calib.core.statfile import unpack
from calib.edges import files
from calib.edges.builddir import BuildFolder, is_output
from calib.edges.feeds import FeedReader
from calib.errors import CalibError, ImageError, LeakError, ManifestError, ModelError, OutputError, UsageError
from calib.jobs.build import BuildRequest
from calib.stages import collect
from calib.stages.collect import Collector
from calibrators import CALIBRATORS
from tests.builds import IMAGES, Killed, contents, kill_after, run


def test_a_build_folder_holds_what_was_promised(request_: BuildRequest, tmp_path: Path) -> None:
    run(request_)
    names = set(contents(tmp_path / "out", without=()))
    promised = {"selection.jsonl", "statistics.npz", "ranges.json", "provenance.json", "report.html"}
    promised.add("provenance.intoto.json")
    for label in CALIBRATORS:
        promised |= {f"{label}.cache", f"{label}.qdq.onnx"}
    assert names == promised | {"calibration.cache"}
    lines = [json.loads(line) for line in (tmp_path / "out/selection.jsonl").read_text().splitlines()]
    assert [line["rank"] for line in lines] == list(range(1, 9))
    assert set(lines[0]) == {"image", "sha256", "sampler", "score", "rank"}


def test_the_release_cache_is_the_first_calibrators(request_: BuildRequest, tmp_path: Path) -> None:
    run(request_, calibrators=("percentile", "minmax"))
    found = contents(tmp_path / "out")
    assert found["calibration.cache"] == found["percentile.cache"] != found["minmax.cache"]


def test_the_cache_covers_every_float_activation_in_network_order(request_: BuildRequest, tmp_path: Path) -> None:
    run(request_, trt_version="8.6.1")
    cache = trtcache.parse((tmp_path / "out/calibration.cache").read_bytes())
    network = analyse(onnx.load(request_.model))
    assert [entry.name for entry in cache.entries] == [item.name for item in network.activations]
    assert (tmp_path / "out/calibration.cache").read_text().startswith("TRT-8601-EntropyCalibration2\n")
    assert all(0 < entry.scale < np.inf for entry in cache.entries)


def test_the_cache_holds_the_ranges(request_: BuildRequest, tmp_path: Path) -> None:
    run(request_)
    ranges = json.loads((tmp_path / "out/ranges.json").read_text())
    for label in CALIBRATORS:
        cache = trtcache.parse((tmp_path / f"out/{label}.cache").read_bytes())
        scales = {entry.name: entry.scale for entry in cache.entries}
        wanted = {item["name"]: np.float32(item["ranges"][label]["amax"] / 127) for item in ranges["tensors"]}
        assert scales == wanted


def test_provenance_vouches_for_every_file(request_: BuildRequest, tmp_path: Path) -> None:
    result = run(request_)
    provenance = json.loads((tmp_path / "out/provenance.json").read_text())
    assert provenance["outputs"] == contents(tmp_path / "out")
    assert provenance["request"]["model"] == {"net.onnx": hashlib.sha256(request_.model.read_bytes()).hexdigest()}
    assert len(provenance["images"]) == 8
    for key, digest in provenance["images"].items():
        assert hashlib.sha256((tmp_path / "data" / key).read_bytes()).hexdigest() == digest
    assert provenance == result.provenance
    assert {"schema", "seed", "preprocess", "samplers", "calibrators", "host", "times"} <= set(provenance)


def test_workers_and_listing_order_do_not_change_a_byte(request_: BuildRequest, tmp_path: Path) -> None:
    run(request_, workers=1)
    reference = contents(tmp_path / "out")
    run(request_, workers=4, output=tmp_path / "again")
    assert contents(tmp_path / "again") == reference
    names = [f"data/images/train/{index:02}.png,data/labels/train/{index:02}.png" for index in range(IMAGES)]
    statistics = []
    for order in (names, names[::-1]):
        listed = tmp_path / "listed.csv"
        listed.write_text("\n".join(["image,label", *order]) + "\n")
        spec = "colour=rgb,size=24x32,scale=1/255,mean=0.5,std=0.25"
        output = tmp_path / f"list{len(statistics)}"
        run(request_, data=str(listed), split=None, preprocess=spec, output=output)
        found = contents(output)
        statistics.append({name: found[name] for name in found if name != "report.html"})
    assert statistics[0] == statistics[1]


def test_a_batch_changes_nothing_where_the_runtime_computes_the_same(request_: BuildRequest, tmp_path: Path) -> None:
    run(request_)
    run(request_, batch_size=3, output=tmp_path / "batched")
    first, second = (unpack((tmp_path / name / "statistics.npz").read_bytes(), name)[0] for name in ("out", "batched"))
    np.testing.assert_array_equal(first["image"].positive, second["image"].positive)
    for name, item in first.items():
        assert second[name].count == item.count
        assert second[name].amax == pytest.approx(item.amax, rel=1e-5)


@pytest.mark.parametrize("num_images", [8, "auto"])
def test_a_killed_build_goes_on_and_ends_in_the_same_bytes(
    request_: BuildRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_images: Any
) -> None:
    run(request_, output=tmp_path / "whole", num_images=num_images)
    monkeypatch.setattr(collect, "CHECKPOINT_INTERVAL_S", 0.0)
    with monkeypatch.context() as patch:
        first = kill_after(patch, 5)
        with pytest.raises(Killed):
            run(request_, workers=1, num_images=num_images)
    assert not (tmp_path / "out/provenance.json").exists()
    with monkeypatch.context() as patch:
        second = kill_after(patch, 1000)
        run(request_, workers=1, num_images=num_images)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    assert len(set(first) & set(second)) <= 1  # the one in flight
    assert not (tmp_path / "out/.partial").exists()


def test_a_checkpoint_of_another_request_is_not_used(
    request_: BuildRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect, "CHECKPOINT_INTERVAL_S", 0.0)
    with monkeypatch.context() as patch:
        kill_after(patch, 5)
        with pytest.raises(Killed):
            run(request_, workers=1)
    spec = "colour=bgr,size=24x32,scale=1/255,mean=0.5,std=0.25"
    run(request_, preprocess=spec)
    run(request_, preprocess=spec, output=tmp_path / "fresh")
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")


def test_an_image_that_changed_since_the_kill_is_counted_anew(
    request_: BuildRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = replace(request_, num_images=IMAGES)
    monkeypatch.setattr(collect, "CHECKPOINT_INTERVAL_S", 0.0)
    with monkeypatch.context() as patch:
        loaded = kill_after(patch, 5)
        with pytest.raises(Killed):
            run(request, workers=1)
    cv2.imwrite(str(tmp_path / "data" / loaded[0]), np.full((24, 32, 3), 250, np.uint8))
    run(request)
    run(request, output=tmp_path / "fresh")
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")


def test_a_finished_build_is_not_done_again(request_: BuildRequest, tmp_path: Path) -> None:
    first = run(request_)
    before = (tmp_path / "out/provenance.json").read_bytes()
    second = run(request_)
    assert (first.reused, second.reused) == (False, True)
    assert (tmp_path / "out/provenance.json").read_bytes() == before


def test_a_damaged_finished_build_is_done_again(request_: BuildRequest, tmp_path: Path) -> None:
    run(request_)
    reference = contents(tmp_path / "out")
    (tmp_path / "out/calibration.cache").write_text("TRT-101401-EntropyCalibration2\n")
    assert not run(request_).reused
    assert contents(tmp_path / "out") == reference


def test_another_calibrator_needs_no_second_pass(
    request_: BuildRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(request_, calibrators=("minmax",))
    monkeypatch.setattr(Collector, "_run_batch", None)
    run(request_, calibrators=("percentile:percentile=99", "percentile:percentile=99.9"))
    names = set(contents(tmp_path / "out"))
    assert {"percentile_percentile-99.cache", "percentile_percentile-99.9.cache"} <= names
    assert "minmax.cache" not in names  # it belongs to the build before


def test_auto_adds_images_until_the_ranges_settle(request_: BuildRequest, tmp_path: Path) -> None:
    result = run(request_, num_images="auto", calibrators=("minmax",))
    assert 1 <= len(result.provenance["images"]) <= IMAGES
    assert (
        "until" in (tmp_path / "out/report.html").read_text() or "settle" in (tmp_path / "out/report.html").read_text()
    )


def test_qdq_networks_pass_the_checker_and_keep_the_inputs_and_outputs(request_: BuildRequest, tmp_path: Path) -> None:
    run(request_)
    source = onnx.load(request_.model)
    for label in CALIBRATORS:
        written = onnx.load(tmp_path / f"out/{label}.qdq.onnx")
        onnx.checker.check_model(written, full_check=True)
        assert list(written.graph.input) == list(source.graph.input)
        assert list(written.graph.output) == list(source.graph.output)
        assert any(node.op_type == "QuantizeLinear" for node in written.graph.node)


def test_images_of_the_evaluation_split_are_refused(request_: BuildRequest, tmp_path: Path) -> None:
    copy = tmp_path / "data/images/val/00.png"
    copy.write_bytes((tmp_path / "data/images/train/03.png").read_bytes())
    with pytest.raises(LeakError) as caught:
        run(request_, num_images=IMAGES, evaluation_split="val")
    assert "train/03.png" in str(caught.value)
    with pytest.raises(UsageError):
        run(request_, evaluation_split="train")


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "locked"
    folder.mkdir()
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    yield folder
    folder.chmod(stat.S_IRWXU)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_refused(request_: BuildRequest, read_only: Path) -> None:
    with pytest.raises(OutputError):
        run(request_, output=read_only / "out")


def test_an_output_that_is_a_file_is_refused(request_: BuildRequest, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(OutputError):
        run(request_, output=tmp_path / "taken")
    assert (tmp_path / "taken").read_text() == "mine"


def test_a_full_disk_loses_nothing_and_the_build_goes_on(
    request_: BuildRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(request_, output=tmp_path / "whole")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    writes = 0

    def filling(descriptor: int) -> None:
        nonlocal writes
        writes += 1
        if writes > 4:
            full(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", filling)
        with pytest.raises(OutputError, match="no space left"):
            run(request_)
    assert not list((tmp_path / "out").glob("*.tmp")) + list((tmp_path / "out").glob(".*.tmp"))
    assert not (tmp_path / "out/provenance.json").exists()
    run(request_)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def write_html(path: Path) -> None:
    path.write_text("<!DOCTYPE html><html><body>Sign in</body></html>")


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"samplers": ("darkregions",)}, UsageError),
        ({"samplers": ("random:fraction=2",)}, UsageError),
        ({"calibrators": ("entropi",)}, UsageError),
        ({"calibrators": ("percentile:percentile=101",)}, UsageError),
        ({"calibrators": ("minmax", "minmax")}, UsageError),
        ({"trt_version": "11.0.0"}, UsageError),
        ({"trt_version": "ten"}, UsageError),
        ({"cache_algorithm": "Entropy"}, UsageError),
        ({"split": "test"}, CalibError),
        ({"model": Path("missing.onnx")}, ModelError),
        ({"data": "missing.yaml"}, CalibError),
        ({"batch_size": 0}, UsageError),
        ({"workers": 0}, UsageError),
    ],
)  # fmt: skip
def test_bad_arguments_are_refused_before_any_work(
    request_: BuildRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], kind: type
) -> None:
    monkeypatch.setattr(FeedReader, "load", None)
    with pytest.raises(kind) as caught:
        run(request_, **changes)
    assert isinstance(caught.value, CalibError)
    assert caught.value.remedy
    assert not (tmp_path / "out/calibration.cache").exists()


def test_a_model_that_is_a_web_page_is_named(request_: BuildRequest, tmp_path: Path) -> None:
    write_html(tmp_path / "net.onnx")
    with pytest.raises(ModelError, match=r"(?i)html|web page"):
        run(request_)


def test_an_unreadable_image_is_named(request_: BuildRequest, tmp_path: Path) -> None:
    write_html(tmp_path / "data/images/train/05.png")
    with pytest.raises(ImageError, match=r"05\.png"):
        run(request_)


def test_an_empty_split_is_refused(request_: BuildRequest, tmp_path: Path) -> None:
    for image in (tmp_path / "data/images/train").iterdir():
        image.unlink()
    with pytest.raises(ManifestError):
        run(request_)


def test_missing_preprocessing_is_an_error_that_shows_how_to_state_it(request_: BuildRequest, manifest: Path) -> None:
    text = manifest.read_text()
    manifest.write_text("\n".join(line for line in text.splitlines() if "preprocess" not in line))
    with pytest.raises(ManifestError) as caught:
        run(request_)
    assert "--preprocess" in caught.value.remedy


def test_a_size_the_network_does_not_take_is_explained(request_: BuildRequest) -> None:
    with pytest.raises(ModelError) as caught:
        run(request_, preprocess="size=32x24")
    assert not (request_.output / ".partial").exists()  # found before the scan
    assert caught.value.expected.endswith("shape ?x3x24x32")
    assert caught.value.got == "1x3x32x24"


def test_an_equalizing_calibrator_gets_a_network_of_its_own(request_: BuildRequest, tmp_path: Path) -> None:
    run(request_, calibrators=("minmax", "per-channel:equalize=true"))
    names = set(contents(tmp_path / "out"))
    assert {"equalized.float.onnx", "statistics.equalized.npz", "ranges.equalized.json"} <= names
    cache = trtcache.parse((tmp_path / "out/per-channel.cache").read_bytes())
    twin = analyse(onnx.load(tmp_path / "out/equalized.float.onnx"))
    assert [entry.name for entry in cache.entries] == [item.name for item in twin.activations]
    assert "belong to equalized.float.onnx" in (tmp_path / "out/report.html").read_text()


def test_evaluate_releases_the_best_variant_with_its_numbers(request_: BuildRequest, tmp_path: Path) -> None:
    result = run(request_, evaluate="val", calibrators=("percentile:percentile=60", "minmax"))
    found = contents(tmp_path / "out", without=("provenance.json", "evaluation"))
    assert found["calibration.cache"] == found["minmax.cache"] != found["percentile.cache"]
    evaluation = json.loads((tmp_path / "out/evaluation/evaluation.json").read_text())
    assert {model["name"] for model in evaluation["models"]} == {"net", "percentile", "minmax"}
    record = result.provenance["evaluation"]
    assert record["choice"] == evaluation["best_variant"]
    assert record["sha256"] == hashlib.sha256((tmp_path / "out/evaluation/evaluation.json").read_bytes()).hexdigest()
    assert [item["name"] for item in result.provenance["calibrators"]] == ["minmax", "percentile"]
    assert "Measured on val" in (tmp_path / "out/report.html").read_text()
    assert run(request_, evaluate="val", calibrators=("percentile:percentile=60", "minmax")).reused


def test_evaluate_refuses_the_split_that_is_calibrated_on(request_: BuildRequest) -> None:
    with pytest.raises(UsageError):
        run(request_, evaluate="train")


def test_files_that_no_build_wrote_are_left_alone(request_: BuildRequest) -> None:
    request_.output.mkdir()
    mine = request_.output / "entropy.cache"
    mine.write_text("mine")
    with pytest.raises(OutputError, match=r"entropy\.cache"):
        run(request_)
    assert mine.read_text() == "mine"
    mine.unlink()
    run(request_)
    run(request_, seed=1)  # its own files may be replaced
    assert (request_.output / "entropy.cache").is_file()


def test_a_second_build_of_a_folder_is_refused_while_the_first_runs(request_: BuildRequest) -> None:
    with BuildFolder(request_.output).locked(), pytest.raises(OutputError, match=f"process {os.getpid()}"):
        run(request_)
    assert run(request_).folder == request_.output
    assert not (request_.output / ".partial").exists()


def test_an_interrupted_build_keeps_the_images_it_has_counted(
    request_: BuildRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole = contents(run(request_, output=tmp_path / "whole").folder)
    with monkeypatch.context() as patch:
        kill_after(patch, 5, KeyboardInterrupt)
        with pytest.raises(KeyboardInterrupt):
            run(request_, workers=1)
    with monkeypatch.context() as patch:
        loaded = kill_after(patch, 100)
        resumed = run(request_, workers=1)
    assert len(loaded) == 3  # of eight
    assert contents(resumed.folder) == whole


def test_pictures_of_a_report_are_not_taken_for_images_of_the_data_set(request_: BuildRequest) -> None:
    assert not is_output(request_.output, str(request_.output / "photo.png"))
    assert not is_output(request_.output, str(request_.output / "sub" / "report.html"))
    assert is_output(request_.output, str(request_.output / "." / "report.html"))
