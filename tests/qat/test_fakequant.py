"""Fake quantization: the values of a Q/DQ pair, the gradients of the papers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="needs PyTorch")

from calib.core.quantization import coarse_scale, scale_from_amax, weight_amax  # noqa: E402
from calib.core.quantization import fake_quantize as exact  # noqa: E402
from calib.edges.qat.fakequant import Quantizer, WeightQuantizer  # noqa: E402


def quantizer(amax: float, *, learnt: bool) -> Quantizer:
    return Quantizer(scale_from_amax(amax), None, learnt=learnt)


@given(st.floats(1e-4, 1e4), st.integers(0, 2**32 - 1))
def test_without_gradients_it_is_the_arithmetic_of_the_writer_to_the_bit(amax: float, seed: int) -> None:
    x = (np.random.default_rng(seed).normal(size=200) * amax).astype(np.float32)
    x[:4] = np.float32(scale_from_amax(amax)) * np.array([0.5, 1.5, 2.5, -0.5], np.float32)  # ties
    with torch.no_grad():
        answer = quantizer(amax, learnt=True)(torch.from_numpy(x)).numpy()
    np.testing.assert_array_equal(answer, exact(x, scale_from_amax(amax)))


@pytest.mark.parametrize("learnt", [True, False])
def test_with_gradients_it_computes_the_same_but_for_ties(learnt: bool) -> None:
    x = torch.randn(1, 3, 50, 50, generator=torch.Generator().manual_seed(0))
    own = quantizer(2.0, learnt=learnt)
    with torch.no_grad():
        wanted = own(x)
    given_ = own(x.requires_grad_()).detach()
    assert float((given_ - wanted).abs().max()) <= 2.0 / 127 * 1.001
    assert float((given_ != wanted).float().mean()) < 1e-3


def test_gradients_pass_inside_the_range_and_nowhere_else() -> None:
    x = torch.tensor([-3.0, -1.0, 0.2, 0.99, 1.5], requires_grad=True)
    quantizer(1.0, learnt=False)(x).sum().backward()
    assert x.grad.tolist() == [0.0, 1.0, 1.0, 1.0, 0.0]


def test_the_gradient_of_a_scale_is_that_of_lsq() -> None:
    """Equation 3 of Esser et al. (ICLR 2020), times its gradient scale, through ``scale = start * exp(shift)``."""
    x = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(1)) * 2
    own = quantizer(1.5, learnt=True)
    weight = torch.randn(x.shape, generator=torch.Generator().manual_seed(2))
    (own(x) * weight).sum().backward()
    scale = float(own.start)
    v = x.double() / scale
    slope = torch.where(v <= -128, -128.0, torch.where(v >= 127, 127.0, torch.round(v) - v))
    wanted = float((slope * weight).sum()) * scale / math.sqrt(3 * 4 * 5 * 127)
    assert float(own.shift.grad) == pytest.approx(wanted, rel=1e-4)


def test_a_scale_stays_positive_whatever_the_steps() -> None:
    own = quantizer(1.0, learnt=True)
    optimizer = torch.optim.SGD([own.shift], lr=100.0)
    for seed in range(20):
        optimizer.zero_grad()
        own(torch.randn(1, 64, generator=torch.Generator().manual_seed(seed))).pow(2).sum().backward()
        optimizer.step()
    assert 0 < own.scale.item() < math.inf


@pytest.mark.parametrize("axis", [0, 1, None])
def test_scales_of_a_weight_follow_it_as_the_writer_computes_them(axis: int | None) -> None:
    weight = np.random.default_rng(4).normal(size=(6, 5, 3, 3)).astype(np.float32)
    weight[2] = 0
    own = WeightQuantizer(np.ones(()), axis, learnt=False)
    scales = own.scale_for(torch.from_numpy(weight)).numpy()
    np.testing.assert_array_equal(scales, scale_from_amax(weight_amax(weight, axis)).astype(np.float32))
    with torch.no_grad():
        answer = own(torch.from_numpy(weight)).numpy()
    np.testing.assert_array_equal(answer, exact(weight, scale_from_amax(weight_amax(weight, axis)), axis))


def test_a_weight_gets_the_whole_gradient() -> None:
    weight = torch.randn(4, 3, 3, 3, generator=torch.Generator().manual_seed(5), requires_grad=True)
    WeightQuantizer(np.ones(()), 0, learnt=False)(weight).sum().backward()
    assert bool((weight.grad == 1).all())


def test_learnt_scales_of_channels_get_one_gradient_each() -> None:
    weight = torch.randn(4, 3, 3, 3, generator=torch.Generator().manual_seed(6), requires_grad=True)
    own = Quantizer(scale_from_amax(np.array([1.0, 2.0, 0.5, 0.0])), 0, learnt=True)
    own(weight).pow(2).sum().backward()
    assert own.shift.grad.shape == (4,)
    assert bool(own.shift.grad.isfinite().all())
    assert int((own.shift.grad != 0).sum()) >= 3


def test_mixed_precision_leaves_fake_quantization_in_float32() -> None:
    x = torch.randn(1, 8, generator=torch.Generator().manual_seed(7))
    own = quantizer(1.0, learnt=True)
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        answer = own(x.bfloat16())
    assert answer.dtype == torch.float32
    assert torch.equal(answer, own(x.bfloat16().float()).detach())


@given(st.floats(1e-6, 1e6), st.integers(2, 24))
def test_coarse_scales_are_rounded_up_alike_here_and_in_numpy(value: float, bits: int) -> None:
    from calib.edges.qat.fakequant import coarse

    scale = np.float32(value)
    wanted = coarse_scale(scale, bits)
    assert scale <= wanted <= float(scale) * (1 + 2.0 ** (1 - bits))
    assert float(wanted) == float(np.float32(wanted))
    assert int(np.frexp(wanted)[0] * 2**bits) == np.frexp(wanted)[0] * 2**bits
    assert coarse(torch.tensor(scale), bits).item() == float(wanted if bits < 24 else scale)


@pytest.mark.parametrize("axis", [0, None])
def test_a_settled_weight_has_its_coarse_scale_by_the_plain_rule(axis: int | None) -> None:
    """Whoever computes ``max|w| / 127`` of the written weight gets the scale of training, and the same integers."""
    weight = torch.randn(6, 5, 3, 3, generator=torch.Generator().manual_seed(8))
    weight[2] = 0
    own = WeightQuantizer(np.ones(()), axis, learnt=False, bits=5)
    scale = own.scale_for(weight)
    settled = own.settled(weight, scale).numpy()
    plain = scale_from_amax(weight_amax(settled, axis))
    np.testing.assert_array_equal(plain.astype(np.float32), scale.numpy())
    np.testing.assert_array_equal(own(weight).detach().numpy(), exact(settled, plain, axis))
    assert float(np.abs(settled - weight.numpy()).max()) <= float(np.abs(weight.numpy()).max()) / 16
    assert np.mean(settled != weight.numpy()) < 0.05


def test_biases_on_their_grid_are_whole_numbers_of_steps() -> None:
    from calib.edges.qat.fakequant import on_grid

    bias = torch.randn(7, generator=torch.Generator().manual_seed(9), requires_grad=True)
    step = torch.tensor([0.01, 0.02, 0.0078125, 0.1, 0.003, 0.5, 4.0])
    rounded = on_grid(bias, step)
    whole = rounded.detach().double() / step.double()
    assert torch.allclose(whole, whole.round(), atol=1e-4)
    assert bool(((rounded - bias).abs() <= step / 2 + 1e-7).all())
    rounded.sum().backward()
    assert bool((bias.grad == 1).all())
