"""How far rounding may take a residual stream from its sums: bounds that hold, and are not wide."""

import copy

import pytest
import torch
from torch import nn

from xfcost.torch_models.residual_stream import rounding
from xfcost.torch_models.shared.norms import Affine, BatchNorm, GroupNorm, LayerNorm, RmsNorm


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_sums_are_within_their_bound_and_a_little_more_is_not(dtype):
    torch.manual_seed(1)
    unit = rounding.unit_of(dtype)
    x, first, second = (torch.randn(1, 50, 64).to(dtype) for _ in range(3))
    stream = rounding.plus(rounding.plus(rounding.entering(x), first, unit), second, unit)
    out = (x + first) + second
    check = rounding.compared(out, stream)
    assert check.within
    assert 0 < check.bound < 40 * unit
    off = out.double() + 1.01 * stream.bound + (out.double() - stream.value).abs()
    assert not rounding.compared(off, stream).within
    rows = rounding.plus(rounding.entering(x), first[:, :1], unit)
    assert torch.equal(rows.value[:, 1:], x[:, 1:].double())
    assert float(rows.bound[:, 1:].max()) == 0


@pytest.mark.parametrize("kind", [LayerNorm, RmsNorm])
def test_a_norm_s_bound_holds_for_the_worst_that_its_input_may_differ(kind):
    # x_i / sqrt(mean(x^2)) grows most where x_i moves away from 0 and all others towards it
    torch.manual_seed(3)
    module, x = kind(64).double(), torch.randn(1, 1, 64, dtype=torch.float64)
    off = torch.full_like(x, 1e-7)
    with torch.no_grad():
        found = rounding.through(rounding.Worked(x, off), (module,), rounding.unit_of(torch.float64))
        centred = x - x.mean() if kind is LayerNorm else x
        for number in range(64):
            away = -centred.sign() * off
            away[..., number] *= -1
            difference = (module(x + away) - module(x))[..., number].abs()
            assert difference <= found.bound[..., number] * 1.001
            assert kind is LayerNorm or difference >= found.bound[..., number] * 0.9


@pytest.mark.parametrize("kind", [LayerNorm, RmsNorm, GroupNorm, BatchNorm, Affine])
@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_norms_are_within_their_bound_and_it_is_not_wide(kind, size):
    torch.manual_seed(2)
    module = kind(64)
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    x, delta = (size * (1 + torch.randn(1, 30, 64)) for _ in range(2))
    unit = rounding.unit_of(torch.float32)
    with torch.no_grad():
        out = module.eval()(x + delta)
        stream = rounding.through(rounding.plus(rounding.entering(x), delta, unit), (module,), unit)
        assert rounding.compared(out, stream).within
        # of first order, with n roundings in a mean over n numbers
        assert stream.bound.max() < 64 * 30 * 64 * unit * max(1.0, float(out.abs().max()))
        assert not rounding.compared(out + 4 * stream.bound, stream).within
        double = copy.deepcopy(module).double()
        if kind is RmsNorm:
            double.eps = torch.finfo(torch.float32).eps  # what the model's own dtype takes by default
        assert torch.allclose(stream.value, double(x.double() + delta.double()), rtol=1e-12)
