"""Files of an evaluation: matrices, journal, tables; and what the MODEL arguments mean."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from calib.core.tally import (
    image_layout,
    image_part,
    matrix_counts,
    network_layout,
    stack,
    to_dense,
    to_sparse,
    total_part,
)
from calib.edges.evaluation.matrices import Journal, gather, load_matrices, save_matrices
from calib.edges.evaluation.sources import find_sources, read_calibration
from calib.edges.evaluation.tables import image_lines
from calib.errors import FormatError, ModelError, UsageError
from calib.stages.evaluate import ImageTally

CLASSES = 3
REQUEST = {"networks": [{"name": "a"}], "counting": 1}


def tally(key: str, seed: int, networks: int = 2) -> ImageTally:
    rng = np.random.default_rng(seed)
    vectors = [rng.integers(0, 3, network_layout(CLASSES).length) for _ in range(networks)]
    image = rng.integers(0, 3, image_layout(CLASSES).length)
    return ImageTally(
        key,
        to_sparse(image),
        tuple(map(to_sparse, vectors)),
        ({}, {9: seed + 1}),
        (True, False),
        ((), (f"odd {key}", "odd in all")),
    )


TALLIES = [tally(key, seed) for seed, key in enumerate("dbca")]


def same(first: ImageTally, second: ImageTally) -> bool:
    pairs = zip((first.image, *first.networks), (second.image, *second.networks), strict=True)
    equal = all(np.array_equal(a.cells, b.cells) and np.array_equal(a.counts, b.counts) for a, b in pairs)
    rest = [(item.key, item.foreign, item.ties_known, item.remarks) for item in (first, second)]
    return equal and rest[0] == rest[1]


def test_matrices_survive_the_file_whatever_the_order(tmp_path: Path) -> None:
    for name, order in (("a", TALLIES), ("b", TALLIES[::-1])):
        save_matrices(tmp_path / name, gather(REQUEST, ["x", "y"], ["c0", "c1", "c2"], order))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    found = load_matrices(tmp_path / "a")
    assert found.keys == ("a", "b", "c", "d")
    assert found.request == REQUEST
    assert found.foreign[1] == {"a": {9: 4}, "b": {9: 2}, "c": {9: 3}, "d": {9: 1}}
    assert found.ties_known == (True, False)
    assert found.remarks == ((), ("odd a", "odd in all", "odd b"))
    expected = to_dense(TALLIES[3].networks[1], network_layout(CLASSES).length)
    assert np.array_equal(found.confusion("y", "a"), network_layout(CLASSES).view(expected, "confusion"))
    assert np.array_equal(found.confusion("y", "a", "dark"), network_layout(CLASSES).view(expected, "dark"))


def test_sparse_sums_are_those_of_the_dense_vectors() -> None:
    layout = network_layout(CLASSES)
    stacked = stack([item.networks[0] for item in TALLIES])
    dense = np.stack([to_dense(item.networks[0], layout.length) for item in TALLIES])
    for name, _ in layout.parts:
        assert np.array_equal(image_part(stacked, layout, name), layout.view(dense, name))
        assert np.array_equal(total_part(stacked, layout, name), layout.view(dense, name).sum(axis=0))
    counts, matrices = matrix_counts(stacked, layout, "confusion"), layout.view(dense, "confusion")
    assert np.array_equal(counts.right, np.diagonal(matrices, axis1=1, axis2=2))
    assert np.array_equal(counts.labelled, matrices.sum(axis=2))
    assert np.array_equal(counts.predicted, matrices[:, :, :-1].sum(axis=1))


@pytest.mark.parametrize("cut", [0, 1, 7, 8, 20, -1])
def test_a_journal_goes_on_behind_its_last_whole_record(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "journal"
    with Journal(path, REQUEST) as journal:
        for item in TALLIES[:2]:
            journal.add(item)
        whole = path.stat().st_size
        journal.add(TALLIES[2])
    data = path.read_bytes()
    path.write_bytes(data[: whole + cut] if cut >= 0 else data[:whole] + b"x" + data[whole + 1 :])
    with Journal(path, REQUEST) as again:
        assert list(again.done) == ["d", "b"]
        assert same(again.done["b"], TALLIES[1])
        again.add(TALLIES[2])
    assert path.read_bytes() == data


@pytest.mark.parametrize("content", [b"", b"short", b"\xff" * 400])
def test_a_journal_that_is_none_is_started_over(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "journal"
    path.write_bytes(content)
    with Journal(path, REQUEST) as journal:
        assert journal.done == {}
        journal.add(TALLIES[0])
    with Journal(path, REQUEST) as journal:
        assert list(journal.done) == ["d"]


def test_a_journal_of_another_request_is_started_over(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal", REQUEST) as journal:
        journal.add(TALLIES[0])
    with Journal(tmp_path / "journal", {**REQUEST, "counting": 2}) as journal:
        assert journal.done == {}


@pytest.mark.parametrize("content", [None, b"", b"no archive", b"PK\x03\x04 cut short"])
def test_a_matrices_file_that_is_none_is_told(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "matrices.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(FormatError, match="calib evaluate"):
        load_matrices(path)


def test_image_lines_hold_every_slice() -> None:
    images = [
        {"image": "a", "height": 1, "width": 2, "scored_pixels": 2, "slices": ["dark"], "models": {"m": {"miou": 0.5}}}
    ]
    assert list(image_lines(images, ["dark", "day"])) == [
        {
            "image": "a",
            "model": "m",
            "height": 1,
            "width": 2,
            "scored_pixels": 2,
            "miou": 0.5,
            "slice:dark": 1,
            "slice:day": 0,
        }
    ]


def build_folder(path: Path, *calibrators: str) -> Path:
    path.mkdir(parents=True)
    for name in calibrators:
        (path / f"{name}.qdq.onnx").write_bytes(b"")
    names = [{"name": name} for name in reversed(calibrators)]
    (path / "provenance.json").write_text(json.dumps({"calibrators": names, "request": {"model": {"f.onnx": "12"}}}))
    (path / "selection.jsonl").write_text('{"image": "a.png", "sha256": "34"}\n')
    return path


def test_a_build_folder_is_all_its_variants_in_its_calibrators_order(tmp_path: Path) -> None:
    folder = build_folder(tmp_path / "build", "a", "b", "c")
    sources = find_sources([str(folder)], None)
    assert [source.name for source in sources] == ["c", "b", "a"]
    assert {source.folder for source in sources} == {folder}
    found = read_calibration(folder)
    assert (found.images, found.network) == ({"a.png": "34"}, {"f.onnx": "12"})


def test_the_reference_comes_first_and_once(tmp_path: Path) -> None:
    folder = build_folder(tmp_path / "build", "a")
    reference = tmp_path / "float.onnx"
    reference.write_bytes(b"")
    sources = find_sources([str(folder), str(reference)], str(reference))
    assert [source.name for source in sources] == ["float", "a"]
    with pytest.raises(UsageError, match="one network"):
        find_sources([str(reference)], str(build_folder(tmp_path / "two", "a", "b")))


def test_equal_names_are_told_apart(tmp_path: Path) -> None:
    folders = [build_folder(tmp_path / name, "minmax") for name in ("first", "second")]
    assert [source.name for source in find_sources(list(map(str, folders)), None)] == ["first/minmax", "second/minmax"]
    deep = [build_folder(tmp_path / name / "build", "minmax") for name in ("x", "y")]
    names = [source.name for source in find_sources(list(map(str, deep)), None)]
    assert names == ["build/minmax", "build/minmax-2"]
    assert len(find_sources([str(folders[0]), str(folders[0])], None)) == 1


def test_a_variant_named_by_its_file_belongs_to_its_folder(tmp_path: Path) -> None:
    folder = build_folder(tmp_path / "build", "a")
    assert find_sources([str(folder / "a.qdq.onnx")], None)[0].folder == folder


def test_engines_and_factories_are_recognised(tmp_path: Path) -> None:
    engine = tmp_path / "net.engine"
    engine.write_bytes(b"")
    magic = tmp_path / "net.bin"
    magic.write_bytes(b"ftrt0000")
    kinds = {source.kind for source in find_sources([str(engine), str(magic)], None)}
    assert kinds == {"engine"}
    factory = find_sources(["package.module:make"], None)[0]
    assert (factory.kind, factory.name) == ("factory", "module.make")


@pytest.mark.parametrize("text", ["absent.onnx", "absent/folder", "C:\\model.onnx", "a b:c"])
def test_what_is_not_there_is_told(text: str) -> None:
    with pytest.raises(ModelError, match="no such file or folder"):
        find_sources([text], None)


def test_a_folder_without_variants_and_a_damaged_one_are_told(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match="calib build"):
        find_sources([str(tmp_path / "empty")], None)
    folder = build_folder(tmp_path / "build", "a")
    (folder / "selection.jsonl").write_text("no json")
    with pytest.raises(FormatError, match="build again"):
        read_calibration(folder)
