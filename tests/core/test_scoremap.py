"""What an output is: logits, probabilities, class numbers, one channel; channels first or last; several outputs."""

from __future__ import annotations

import numpy as np
import pytest

from calib.core.graph import GraphTensor, analyse
from calib.core.preprocess import geometry
from calib.core.scoremap import (
    OutputReading,
    choose_output,
    output_makers,
    planes_of,
    predict,
    with_threshold,
)
from calib.errors import ModelError, UsageError
from calib.types.data import Preprocess
from tests.graphs import model, node

SPEC = Preprocess("rgb", (8, 12), 1.0, (0.0,), (1.0,))


def tensor(name: str, *shape: int | None, kind: str = "float32") -> GraphTensor:
    return GraphTensor(name, kind, shape)


def choose(*outputs: GraphTensor, classes: int = 5, wanted: str | None = None, **makers: str) -> OutputReading:
    return choose_output(outputs, makers, classes, wanted, "net.onnx")


def test_channels_first_and_last() -> None:
    assert choose(tensor("o", None, 5, 8, 12)).layout == "nchw"
    assert choose(tensor("o", None, 8, 12, 5)).layout == "nhwc"
    assert choose(tensor("o", None, None, None, None)).layout == "auto"
    assert choose(tensor("o", None, 5, 8, 5)).layout == "auto"


def test_a_network_of_other_classes_with_open_sides_is_refused() -> None:
    with pytest.raises(ModelError, match="a batch of 7 channels"):
        choose(tensor("o", None, 5, None, None), classes=7)
    assert choose(tensor("o", None, 9, None, None), classes=7).kind == "scores"
    assert choose(tensor("o", None, 5, None, 7), classes=7).layout == "nhwc"


def test_where_both_axes_fit_the_aspect_of_the_input_decides() -> None:
    reading = OutputReading("o", "scores")
    assert planes_of(np.zeros((1, 5, 10, 5)), reading, 5, (20, 10), "o").shape == (1, 5, 10, 5)
    assert planes_of(np.zeros((1, 5, 10, 5)), reading, 5, (10, 20), "o").shape == (1, 5, 5, 10)


def test_kinds_follow_from_type_shape_and_maker() -> None:
    assert choose(tensor("o", None, 8, 12, kind="int64")).kind == "ids"
    assert choose(tensor("o", None, 1, 8, 12, kind="uint8")).kind == "ids"
    assert choose(tensor("o", None, 8, 12), o="ArgMax").kind == "ids"
    assert choose(tensor("o", None, 5, 8, 12, kind="int8")).kind == "scores"
    assert choose(tensor("o", None, 5, 8, 12), o="Softmax").activation == "Softmax"


def test_one_channel_for_two_classes() -> None:
    logits = choose(tensor("o", None, 1, 8, 12), classes=2)
    assert (logits.kind, logits.threshold) == ("binary", 0.0)
    sigmoid = choose(tensor("o", None, 8, 12, 1), classes=2, o="Sigmoid")
    assert (sigmoid.kind, sigmoid.threshold, sigmoid.activation) == ("binary", 0.5, "Sigmoid")
    assert with_threshold(sigmoid, 0.3).threshold == 0.3
    assert with_threshold(sigmoid, None) == sigmoid
    assert choose(tensor("o", None, 2, 8, 12), classes=2).kind == "scores"


def test_the_maker_is_found_behind_what_only_moves_numbers() -> None:
    nodes = [
        node("Sigmoid", "x", "s"), node("Transpose", "s", "t", perm=[0, 2, 3, 1]), node("Cast", "t", "o", to=1),
        node("ArgMax", "x", "a", axis=1, keepdims=0), node("Cast", "a", "p", to=1),
    ]  # fmt: skip
    network = analyse(model(nodes, {"x": [1, 1, 4, 4]}, ["o", "p"]))
    assert output_makers(network) == {"o": "Sigmoid", "p": "ArgMax"}


def test_several_outputs_have_to_be_chosen_from() -> None:
    outputs = tensor("lanes", 1, 2, 8, 12), tensor("area", 1, 2, 8, 12)
    with pytest.raises(UsageError, match=r"lanes \(float32 1x2x8x12\), area.*\n.*--output-name lanes"):
        choose(*outputs, classes=2)
    assert choose(*outputs, classes=2, wanted="area").name == "area"
    with pytest.raises(UsageError, match="name an output"):
        choose(*outputs, classes=2, wanted="areas")


def test_the_only_output_that_fits_is_taken() -> None:
    assert choose(tensor("features", 1, 3, 8, 12), tensor("o", 1, 5, 8, 12), tensor("label", 1, 1000)).name == "o"


@pytest.mark.parametrize(
    "shape", [(None, 4, 8, 12), (None, 1, 8, 12), (None, 1000), (None, 5, 96), (None, 5, 3, 8, 12)]
)
def test_what_is_no_class_map_is_refused_with_its_shape(shape: tuple[int | None, ...]) -> None:
    with pytest.raises(ModelError, match="5 channels"):
        choose(tensor("o", *shape))


def test_too_few_channels_do_not_pass_for_channels_last() -> None:
    with pytest.raises(ModelError, match="352x480"):
        choose(tensor("o", None, 10, 352, 480), classes=11)
    assert choose(tensor("o", None, 12, 352, 480), classes=11).kind == "scores"
    assert planes_of(np.zeros((1, 30, 40, 12)), OutputReading("o", "scores"), 11, (30, 40), "o").shape[1] == 12


def test_a_shape_only_known_at_run_time_is_checked_then() -> None:
    with pytest.raises(ModelError, match="1x4x8x12"):
        planes_of(np.zeros((1, 4, 8, 12)), OutputReading("o", "scores"), 5, (8, 12), "net.onnx, a.png")
    with pytest.raises(ModelError, match=r"net\.onnx, a\.png"):
        planes_of(np.zeros((1, 4, 8, 12)), OutputReading("o", "ids"), 5, (8, 12), "net.onnx, a.png")


def test_class_numbers_in_any_shape_and_type() -> None:
    reading = OutputReading("o", "ids")
    ids = np.random.default_rng(0).integers(0, 5, (4, 6))
    plan = geometry((16, 24), SPEC)
    expected = np.repeat(np.repeat(ids, 4, axis=0), 4, axis=1)
    for array in (ids[None], ids[None, None], ids[None, ..., None], ids[None].astype(np.float32), ids):
        planes = planes_of(array, reading, 5, (8, 12), "o")[0]
        found = predict(planes, reading, plan, (16, 24), 5)
        assert (found.ids == expected).all()
        assert found.ties is None
        assert found.foreign == {}


def test_foreign_class_numbers_are_counted_and_marked() -> None:
    """A4-2: a prediction that holds id 255 or 34."""
    ids = np.zeros((8, 12), np.int64)
    ids[0, 0], ids[1, :2], ids[2, :3] = 255, 34, -1
    found = predict(ids, OutputReading("o", "ids"), geometry((8, 12), SPEC), (8, 12), 5)
    assert found.foreign == {-1: 3, 34: 2, 255: 1}
    assert (found.ids == 254).sum() == 6
    fuzzy = ids.astype(np.float32)
    fuzzy[3, 3] = np.nan
    found = predict(fuzzy, OutputReading("o", "ids"), geometry((8, 12), SPEC), (8, 12), 5)
    assert (found.lost, found.foreign) == (1, {-1: 3, 34: 2, 255: 1})


def test_more_channels_than_classes_are_foreign_predictions() -> None:
    logits = np.zeros((7, 8, 12), np.float32)
    logits[6, :2] = 1.0
    found = predict(logits, OutputReading("o", "scores"), geometry((8, 12), SPEC), (8, 12), 5)
    assert found.foreign == {6: 24}
    assert (found.ids[:2] == 6).all()
