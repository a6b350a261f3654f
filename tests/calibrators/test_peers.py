"""What other quantizers get wrong, or may serve as a second opinion on; run against them where they are installed."""

from __future__ import annotations

import contextlib
import gc
import io
import weakref
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from calib.core.histogram import TensorAccumulator, collect_statistics, merge
from calib.core.search import entropy_bin, percentile_bin, squared_error_bin, squared_errors
from calibrators import CALIBRATORS
from calibrators.entropy import entropy
from calibrators.minmax import minmax
from calibrators.percentile import percentile
from tests.calibrators import reference

Floats = NDArray[np.float32]


def onnxruntime_range(method: str, batches: list[Floats], **options: Any) -> tuple[float, float]:
    """Range that ONNX Runtime's histogram calibrators choose; entropy with the defaults of ``quantize_static``."""
    pytest.importorskip("onnxruntime", reason="ONNX Runtime's own calibrator is the one tested against")
    from onnxruntime.quantization.calibrate import HistogramCollector

    settings = {"symmetric": False, "num_bins": 128, "num_quantized_bins": 128, "percentile": 99.99, "scenario": "same"}
    collector = HistogramCollector(method, **(settings | options))
    with contextlib.redirect_stdout(io.StringIO()):
        for batch in batches:
            collector.collect({"x": [batch]})
        low, high = collector.compute_collection_result()["x"][:2]
    return float(low), float(high)


def laplace_batches() -> list[Floats]:
    return [reference.samples("laplace", 20_000, seed) for seed in range(4)]


def test_entropy_is_not_minmax_in_disguise() -> None:
    """ONNX Runtime cuts the range into 128 bins for 128 levels: one candidate is left, the whole range."""
    values = np.concatenate(laplace_batches())
    statistics = collect_statistics("x", [values])
    assert max(map(abs, onnxruntime_range("entropy", [values]))) == pytest.approx(minmax(statistics).amax)
    assert entropy(statistics).amax < 0.95 * minmax(statistics).amax


@pytest.mark.parametrize("name", CALIBRATORS)
def test_an_outlier_counts_the_same_in_any_batch(name: str) -> None:
    """ONNX Runtime's bins are those of the first batch: an outlier there is kept, in a later batch it is clipped."""
    batches = laplace_batches()
    batches[0][0] = 100.0
    ours = [CALIBRATORS[name](collect_statistics("x", order)).amax for order in (batches, batches[::-1])]
    assert ours[0] == ours[1]


def test_an_outlier_counts_differently_by_batch_in_onnxruntime() -> None:
    """The peer's behaviour that the test above guards against."""
    batches = laplace_batches()
    batches[0][0] = 100.0
    early, late = (onnxruntime_range("entropy", order)[1] for order in (batches, batches[::-1]))
    assert early == 100.0
    assert late < 20.0


def test_no_activation_is_kept() -> None:
    """ONNX Runtime's histogram calibrators keep every activation of every image until the end."""
    accumulator = TensorAccumulator("x", 0)
    array = np.ones((3, 1000), np.float32)
    seen = weakref.ref(array)
    accumulator.update(array)
    del array
    gc.collect()
    assert seen() is None
    sizes = []
    for number in range(1, 41):
        accumulator.update(np.full((3, 1000), number, np.float32))
        members = [value for value in vars(accumulator).values() if isinstance(value, np.ndarray)]
        sizes.append(sum(member.nbytes for member in members))
    assert len(set(sizes)) == 1


def test_every_image_counts() -> None:
    """ONNX Runtime's ``CalibMaxIntermediateOutputs``: of 9 images under a limit of 4 only the last counts."""
    images = [np.full((1, 2, 5), number, np.float32) for number in range(9)]
    statistics = collect_statistics("x", images, 1)
    assert (statistics.count, statistics.minimum, statistics.maximum) == (90, 0, 8)


def test_images_of_different_sizes() -> None:
    """ONNX Runtime stacks activations, which fails as soon as two images differ in size."""
    images = [np.ones((1, 2, size, size + 1), np.float32) * size for size in (3, 5, 8)]
    statistics = collect_statistics("x", images, 1)
    assert statistics.count == sum(image.size for image in images)
    assert list(statistics.channel_maximum) == [8, 8]


@pytest.mark.parametrize(("low", "high", "amax"), [(-84.4, 45.4, 84.4), (-39.5, 0.0, 39.5), (0.0, 3.0, 3.0)])
def test_the_range_covers_the_larger_side(low: float, high: float, amax: float) -> None:
    """ONNX Runtime's ``write_calibration_table`` writes the larger bound, not the larger magnitude: 45.4, -0.0."""
    statistics = collect_statistics("x", [np.linspace(low, high, 1000, dtype=np.float32)])
    assert minmax(statistics).amax == np.float32(amax)


def test_percentile_after_relu_is_symmetric() -> None:
    """ONNX Runtime's percentile after a Relu has a lower end of 0, and so another scale than the same tensor's amax."""
    values = reference.samples("relu", 50_000, 0)
    assert onnxruntime_range("percentile", [values], symmetric=True)[0] == 0.0
    signed = values * np.where(np.arange(values.size) % 2, 1, -1).astype(np.float32)
    one_sided, two_sided = (percentile(collect_statistics("x", [array])) for array in (values, signed))
    assert one_sided.amax == two_sided.amax > 0


def test_counts_past_float32_and_int32() -> None:
    """ModelOpt counts in float32, where 2**24 + 1 is 2**24, and then in int32: percentile of 3e9 values is 0."""
    statistics = collect_statistics("x", [np.array([0.0] * 6 + [1.0], np.float32)])
    for _ in range(30):
        statistics = merge(statistics, statistics)
    single = collect_statistics("x", [np.array([2.0], np.float32)])
    many = merge(statistics, single)
    assert many.count == 7 * 2**30 + 1
    assert int(many.positive[0]) == 6 * 2**30 > 2**32
    assert percentile(many).amax == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize("first", CALIBRATORS)
def test_no_calibrator_changes_what_the_next_one_sees(first: str) -> None:
    """ModelOpt's entropy overwrites bin 0 of the stored histogram, and so changes the percentile asked after it."""
    statistics = collect_statistics("x", [reference.samples("relu", 50_000, 1)], None)
    alone = {name: calibrator(statistics).amax for name, calibrator in CALIBRATORS.items()}
    CALIBRATORS[first](statistics)
    assert {name: calibrator(statistics).amax for name, calibrator in CALIBRATORS.items()} == alone


def test_half_precision_magnitudes_do_not_underflow() -> None:
    """A channel of 1e-6 in float16 became scale 0 elsewhere: half precision has no 1e-6 / 127."""
    values = np.array([[1e-6, -1e-6], [1.0, 2.0]], np.float16)
    statistics = collect_statistics("x", [values], 0)
    assert statistics.channel_maximum[0] / np.float32(127) > 0
    assert minmax(collect_statistics("x", [values[:1]])).amax == float(values[0, 0])


def test_never_observed_differs_from_dead_and_from_constant() -> None:
    """An observer that never ran kept its initial bounds elsewhere, and made a scale of them."""
    never = collect_statistics("x", [])
    dead = collect_statistics("x", [np.zeros(5, np.float32)])
    constant = collect_statistics("x", [np.full(5, -2.0, np.float32)])
    assert (never.count, never.amax, never.minimum > never.maximum) == (0, 0.0, True)
    assert (dead.count, dead.amax, dead.minimum, dead.maximum) == (5, 0.0, 0.0, 0.0)
    assert (constant.count, constant.amax, constant.minimum, constant.maximum) == (5, 2.0, -2.0, -2.0)
    for calibrator in CALIBRATORS.values():
        assert calibrator(never).amax == calibrator(dead).amax == 0.0


@pytest.fixture
def modelopt(monkeypatch: pytest.MonkeyPatch) -> Any:
    """ModelOpt's calibrator, its squared error mended: 0.47 passes the bit width where a bias is expected."""
    pytest.importorskip("modelopt", reason="NVIDIA ModelOpt is the second opinion; install the extra `modelopt`")
    from modelopt.torch.quantization.calib import histogram

    quantize = histogram.fake_tensor_quant
    monkeypatch.setattr(histogram, "fake_tensor_quant", lambda x, amax, *rest: quantize(x, amax, None, *rest))
    return histogram.HistogramCalibrator


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("kind", reference.KINDS)
def test_modelopt_chooses_the_same_bins(modelopt: Any, kind: str) -> None:
    import torch

    calibrator = modelopt(num_bins=2048)
    calibrator.collect(torch.from_numpy(reference.samples(kind, 200_000, 0)))
    counts = calibrator._calib_hist.numpy().astype(np.int64)
    edges = calibrator._calib_bin_edges.numpy()
    chosen = {name: calibrator.compute_amax(name).item() for name in ("entropy", "mse", "percentile")}
    assert edges[entropy_bin(counts)[0]] == chosen["entropy"]
    assert edges[percentile_bin(counts, 99.99)] == chosen["percentile"]
    errors = squared_errors(counts)  # ModelOpt sums in float32: of nearly equal errors it may take another
    theirs = int(np.searchsorted(edges, chosen["mse"])) - 1
    assert errors[theirs - 128] == pytest.approx(squared_error_bin(counts)[1], rel=1e-5)
