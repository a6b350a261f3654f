"""Sparse initialisers become dense ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from calib.edges.models import load_model
from calib.errors import ModelError
from tests.builds import two_convolutions


def sparse_twin(model: onnx.ModelProto, *, linear: bool, wrong: bool = False) -> onnx.ModelProto:
    """The same network with its first weight stored sparse."""
    twin = onnx.ModelProto()
    twin.CopyFrom(model)
    dense = numpy_helper.to_array(twin.graph.initializer[0])
    places = np.argwhere(dense)
    values = numpy_helper.from_array(dense[tuple(places.T)], twin.graph.initializer[0].name)
    indices = np.ravel_multi_index(tuple(places.T), dense.shape) if linear else places
    stored = numpy_helper.from_array((indices + (10_000 if wrong else 0)).astype(np.int64), "places")
    twin.graph.sparse_initializer.append(helper.make_sparse_tensor(values, stored, list(dense.shape)))
    del twin.graph.initializer[0]
    return twin


@pytest.mark.parametrize("linear", [True, False])
def test_they_hold_the_same_numbers(tmp_path: Path, linear: bool) -> None:
    model = two_convolutions()
    onnx.save(sparse_twin(model, linear=linear), tmp_path / "sparse.onnx")
    loaded = load_model(tmp_path / "sparse.onnx")
    assert not loaded.graph.sparse_initializer
    stored = {item.name: numpy_helper.to_array(item) for item in loaded.graph.initializer}
    for item in model.graph.initializer:
        np.testing.assert_array_equal(stored[item.name], numpy_helper.to_array(item))


@pytest.mark.parametrize("linear", [True, False])
def test_indices_beyond_the_shape_are_named(tmp_path: Path, linear: bool) -> None:
    onnx.save(sparse_twin(two_convolutions(), linear=linear, wrong=True), tmp_path / "sparse.onnx")
    with pytest.raises(ModelError, match="indices into a tensor of shape"):
        load_model(tmp_path / "sparse.onnx")
