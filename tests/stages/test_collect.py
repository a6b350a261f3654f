"""Collecting is exact whatever the order, the workers, the batches, the interruption; deriving is exact too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from calib.core.expose import expose
from calib.core.graph import analyse
from calib.core.histogram import collect_statistics
from calib.edges.progress import SilentProgress
from calib.edges.runners.ort import OrtRunner
from calib.errors import StatisticsError
from calib.stages.collect import Collected, Collector
from calib.stages.derive import plan_observations
from calib.types.statistics import TensorStatistics

NETWORK = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[N,3,8,10] image) => (float[N,4,8,10] out)
<float six = {6.0}, float zero = {0.0}, float low = {-1.5}, float high = {0.5}>
{
  a = Conv <pads = [1,1,1,1]> (image, w)
  relu = Relu (a)
  six_clip = Clip (a, zero, six)
  tanhish = Clip (relu, low, high)
  moved = Transpose <perm = [0,2,3,1]> (relu)
  back = Transpose <perm = [0,3,1,2]> (moved)
  both = Concat <axis = 1> (relu, six_clip)
  tall = Concat <axis = 2> (relu, six_clip)
  pooled = GlobalAveragePool (both)
  sum = Add (back, six_clip)
  out = Identity (sum)
}
"""


def make_model() -> onnx.ModelProto:
    model = onnx.parser.parse_model(NETWORK)
    weight = np.random.default_rng(7).standard_normal((4, 3, 3, 3)).astype(np.float32) * 2
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    return model


def images(count: int) -> dict[str, dict[str, NDArray[Any]]]:
    rng = np.random.default_rng(3)
    return {
        f"{index:03}": {"image": rng.standard_normal((1, 3, 8, 10)).astype(np.float32) * (index % 5 + 0.1)}
        for index in range(count)
    }


def run(
    data: Mapping[str, Mapping[str, NDArray[Any]]],
    model: onnx.ModelProto | None = None,
    order: list[str] | None = None,
    workers: int = 1,
    done: Collected | None = None,
    **options: Any,
) -> Collected:
    model = model or make_model()
    network = analyse(model)
    plan = plan_observations(network)
    runner = OrtRunner(expose(model, [n for n, o in plan.observed.items() if o.activation.producer is not None]), "net")
    collector = Collector(network, plan, runner, data.__getitem__, **options)
    return collector.collect(order or sorted(data), workers=workers, progress=SilentProgress(), done=done)


def assert_same(first: Mapping[str, TensorStatistics], second: Mapping[str, TensorStatistics]) -> None:
    assert list(first) == list(second)
    for name, item in first.items():
        for field in fields(TensorStatistics):
            ours, theirs = getattr(item, field.name), getattr(second[name], field.name)
            np.testing.assert_array_equal(ours, theirs, err_msg=f"{name}.{field.name}")


def test_every_float_activation_has_statistics_in_network_order() -> None:
    found = run(images(3)).statistics
    assert list(found) == [item.name for item in analyse(make_model()).activations]
    assert {"image", "a", "relu", "six_clip", "tanhish", "back", "both", "tall", "pooled", "sum", "out"} <= set(found)


def test_few_tensors_are_observed() -> None:
    observed = set(plan_observations(analyse(make_model())).observed)
    assert {"image", "a", "pooled", "sum"} <= observed
    assert not observed & {"relu", "six_clip", "moved", "back", "both", "tall", "out"}


def test_derived_statistics_equal_counting_the_tensors_themselves() -> None:
    data, model = images(6), make_model()
    network = analyse(model)
    names = [item.name for item in network.activations if item.producer is not None]
    runner = OrtRunner(expose(model, names), "net")
    outputs = {key: {**feeds, **runner.run(feeds)} for key, feeds in data.items()}
    direct = {
        item.name: collect_statistics(item.name, [outputs[key][item.name] for key in data], item.channel_axis)
        for item in network.activations
    }
    assert_same(run(data).statistics, direct)


def test_order_and_workers_do_not_matter() -> None:
    data = images(9)
    reference = run(data).statistics
    assert_same(run(data, order=sorted(data, reverse=True), workers=4).statistics, reference)


def test_a_batch_counts_like_its_images() -> None:
    data = images(7)
    assert_same(run(data, rows=3).statistics, run(data).statistics)


def test_a_fixed_batch_is_filled_up_and_the_filling_not_counted() -> None:
    data, model = images(7), make_model()
    reference = run(data).statistics
    for value in (model.graph.input[0], model.graph.output[0]):
        value.type.tensor_type.shape.dim[0].dim_value = 4
    assert_same(run(data, model, rows=4, fill=True).statistics, reference)


def test_images_of_unlike_size_are_counted_one_by_one() -> None:
    model = make_model()
    for axis in (2, 3):
        for value in (model.graph.input[0], model.graph.output[0]):
            value.type.tensor_type.shape.dim[axis].dim_param = f"d{axis}"
    data = images(2)
    data["002"] = {"image": np.ones((1, 3, 12, 6), np.float32)}
    assert_same(run(data, model, rows=3).statistics, run(data, model).statistics)


def test_going_on_from_a_checkpoint_ends_in_the_same_statistics() -> None:
    data = images(8)
    first = run({key: data[key] for key in list(data)[:3]})
    rest = run(data, done=first)
    assert rest.images == frozenset(data)
    assert_same(rest.statistics, run(data).statistics)


def test_a_finished_image_is_not_run_again() -> None:
    data = images(4)
    done = run({key: data[key] for key in list(data)[:2]})
    asked: list[str] = []

    class Watched(dict[str, Any]):
        def __getitem__(self, key: str) -> Any:
            asked.append(key)
            return super().__getitem__(key)

    run(Watched(data), done=done)
    assert sorted(asked) == ["002", "003"]


@pytest.mark.parametrize("workers", [1, 3])
def test_a_non_finite_value_stops_with_image_tensor_and_count(workers: int) -> None:
    data = images(5)
    data["003"]["image"][0, 1, 2, 3] = np.nan
    with pytest.raises(StatisticsError) as caught:
        run(data, workers=workers)
    assert caught.value.place == "tensor 'image', image 003"
    assert caught.value.got.startswith("1 NaN or infinite of 240 values")


def test_non_finite_values_can_be_skipped_and_are_counted() -> None:
    data = images(3)
    data["001"]["image"][0, 0, 0, :2] = np.inf
    found = run(data, non_finite="skip").statistics
    assert found["image"].nonfinite == 2
    assert found["image"].count == 3 * 240 - 2
    assert np.isfinite([found[name].amax for name in found]).all()


def test_a_failing_image_ends_the_run_with_its_own_error() -> None:
    def load(key: str) -> Any:
        if key == "002":
            raise OSError("gone")
        return images(4)[key]

    model = make_model()
    network = analyse(model)
    plan = plan_observations(network)
    runner = OrtRunner(expose(model, [n for n, o in plan.observed.items() if o.activation.producer is not None]), "net")
    with pytest.raises(OSError, match="gone"):
        Collector(network, plan, runner, load).collect(sorted(images(4)), workers=2, progress=SilentProgress())
