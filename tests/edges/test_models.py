"""Loading names what a file really is; saving is atomic and keeps everything."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest

from calib.edges import models
from calib.edges.models import load_model, save_model
from calib.errors import ModelError, OutputError
from tests.graphs import model, node, weight


@pytest.fixture
def graph():
    made = model([node("Conv", "x,w", "y")], {"x": (1, 3, 8, 8)}, ["y"], {"w": weight(64, 3, 3, 3)})
    made.doc_string = "documented"
    onnx.helper.set_model_props(made, {"key": "value"})
    return made


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "an empty file"),
        (b"<!DOCTYPE html><html></html>", "an HTML page"),
        (b"\n\n  <html>", "an HTML page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git-lfs pointer"),
        (b"PK\x03\x04rest of an archive", "zip archive"),
        (b"\x89HDF\r\n\x1a\n", "HDF5"),
        (b"\x1c\x00\x00\x00TFL3\x00\x00", "TensorFlow Lite"),
        (b"ptrt\x00\x00\x00\x00engine", "TensorRT engine"),
        (b"<?xml version='1.0'?><net/>", "XML"),
        (b'{"error": "not found"}', "JSON"),
        (b"Access denied. Please log in.\n", "text file"),
        (b"\xff\xfe\x00\x01\x02garbage\x00\x00", "no protobuf"),
        (b"\x08\x08", "without nodes"),
    ],
)
def test_other_kinds_of_file_are_named(tmp_path, content, text):
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=text) as caught:
        load_model(path)
    assert caught.value.remedy
    assert caught.value.place == str(path)


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(ModelError, match="no such file"):
        load_model(tmp_path / "nothing.onnx")
    with pytest.raises(ModelError, match="a folder"):
        load_model(tmp_path)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_cut_files_are_errors(tmp_path, graph, share):
    data = graph.SerializeToString()
    path = tmp_path / "model.onnx"
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(ModelError, match=r"ends or breaks|cut short|without nodes"):
        load_model(path)


def test_extension_does_not_matter(tmp_path, graph):
    for name in ("model.bin", "model.json", "model.textproto", "model"):
        (tmp_path / name).write_bytes(graph.SerializeToString())
        assert load_model(tmp_path / name) == graph


def test_newer_opset_is_named(tmp_path, graph):
    graph.opset_import[0].version = 999
    save_model(graph, tmp_path / "m.onnx")
    with pytest.raises(ModelError, match="opset 999"):
        load_model(tmp_path / "m.onnx")


def save_external(graph, folder):
    onnx.save(graph, folder / "m.onnx", save_as_external_data=True, location="m.bin", size_threshold=16)
    return folder / "m.onnx"


def test_external_data_is_loaded_and_its_absence_named(tmp_path, graph):
    expected = onnx.numpy_helper.to_array(graph.graph.initializer[0])
    path = save_external(graph, tmp_path)
    loaded = load_model(path)
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(loaded.graph.initializer[0]), expected)
    data = tmp_path / "m.bin"
    data.write_bytes(data.read_bytes()[:100])
    with pytest.raises(ModelError, match=r"100 bytes in 'm\.bin'"):
        load_model(path)
    data.unlink()
    with pytest.raises(ModelError, match=r"no file 'm\.bin'"):
        load_model(path)


def test_external_data_outside_the_folder_is_refused(tmp_path, graph):
    path = save_external(graph, tmp_path)
    raw = onnx.load(path, load_external_data=False)
    raw.graph.initializer[0].external_data[0].value = "../secret"
    path.write_bytes(raw.SerializeToString())
    with pytest.raises(ModelError, match=r"'\.\./secret'"):
        load_model(path)


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("offset", "abc", "no numbers"), ("offset", "-5", "no numbers"), ("length", "9" * 12, "bytes in 'm.bin'"),
        ("location", "/etc/passwd", "external data at '/etc/passwd'"), ("location", "a\0b", "external data at"),
        ("location", "", "external data at ''"),
    ],
)  # fmt: skip
def test_damaged_references_to_external_data_are_explained(tmp_path, graph, key, value, told):
    path = save_external(graph, tmp_path)
    raw = onnx.load(path, load_external_data=False)
    entries = {item.key: item for item in raw.graph.initializer[0].external_data}
    entries[key].value = value
    path.write_bytes(raw.SerializeToString())
    with pytest.raises(ModelError, match=re.escape(told)) as caught:
        load_model(path)
    assert caught.value.remedy


def test_external_data_that_is_a_link_is_refused_and_a_linked_model_is_not(tmp_path, graph):
    path = save_external(graph, tmp_path)
    (tmp_path / "link.onnx").symlink_to(path)
    assert load_model(tmp_path / "link.onnx") == load_model(path)
    (tmp_path / "m.bin").rename(tmp_path / "real.bin")
    (tmp_path / "m.bin").symlink_to(tmp_path / "real.bin")
    with pytest.raises(ModelError, match=r"'m\.bin', a link"):
        load_model(path)


def test_a_network_gives_the_same_bytes_wherever_its_weights_were(tmp_path, graph):
    save_model(graph, tmp_path / "inside.onnx")
    save_model(load_model(save_external(graph, tmp_path)), tmp_path / "outside.onnx")
    assert (tmp_path / "inside.onnx").read_bytes() == (tmp_path / "outside.onnx").read_bytes()


def test_save_round_trips_and_is_deterministic(tmp_path, graph):
    save_model(graph, tmp_path / "a.onnx")
    save_model(graph, tmp_path / "b.onnx")
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    assert load_model(tmp_path / "a.onnx") == graph
    assert sorted(item.name for item in tmp_path.iterdir()) == ["a.onnx", "b.onnx"]


def test_models_beyond_the_protobuf_limit_get_external_data(tmp_path, graph, monkeypatch):
    monkeypatch.setattr(models, "PROTOBUF_LIMIT", 100)
    before = graph.SerializeToString()
    save_model(graph, tmp_path / "big.onnx")
    assert graph.SerializeToString() == before
    assert (tmp_path / "big.onnx.data").stat().st_size == 64 * 27 * 4
    assert (tmp_path / "big.onnx").stat().st_size < 1000
    loaded = load_model(tmp_path / "big.onnx")
    np.testing.assert_array_equal(
        onnx.numpy_helper.to_array(loaded.graph.initializer[0]), onnx.numpy_helper.to_array(graph.graph.initializer[0])
    )
    assert (loaded.doc_string, loaded.metadata_props, loaded.graph.node) == (
        graph.doc_string,
        graph.metadata_props,
        graph.graph.node,
    )
    onnx.checker.check_model(str(tmp_path / "big.onnx"))


def test_unwritable_place_is_an_output_error(graph, tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("")
    with pytest.raises(OutputError):
        save_model(graph, blocker / "m.onnx")


def test_the_shared_html_page_is_named(shared):
    with pytest.raises(ModelError, match="HTML"):
        load_model(shared / "cases/models/not_a_model_html.onnx")


def test_a_tensor_whose_bytes_do_not_make_its_shape_is_named(tmp_path, graph):
    path = tmp_path / "model.onnx"
    whole = graph.graph.initializer[0].raw_data
    for data in (whole[:-4], whole + b"\0" * 4, b""):
        graph.graph.initializer[0].raw_data = data
        path.write_bytes(graph.SerializeToString())
        with pytest.raises(ModelError, match=f"tensor 'w': expected 6912 bytes for shape .*, got {len(data)}"):
            load_model(path)
    graph.graph.initializer[0].ClearField("raw_data")
    graph.graph.initializer[0].float_data.extend([1.0] * 1727)
    path.write_bytes(graph.SerializeToString())
    with pytest.raises(ModelError, match="got 6908"):
        load_model(path)
    graph.graph.initializer[0].float_data.append(1.0)
    path.write_bytes(graph.SerializeToString())
    assert len(load_model(path).graph.initializer[0].float_data) == 1728
