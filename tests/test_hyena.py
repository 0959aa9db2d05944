"""Hyena: its transforms in a trace, its long convolution beside a direct one, and how it grows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

import places
from modules import Call
from refused import refusals
from xfcost.mechanisms.hyena import Hyena
from xfcost.torch_models.mechanisms.hyena import LongConvolution, Spectra
from xfcost.torch_models.modules import MODULES
from xfcost.torch_models.tracing.trace import trace

spot = partial(places.at, dim=8)


def test_fixed_positions_bind_no_weights_to_a_length() -> None:
    rows = list(Hyena(positions="fixed").operations(spot(5)))
    assert "positions" not in {row.path for row in rows}
    assert not any(row.bound for row in rows)


@pytest.mark.parametrize(
    ("run", "flops"),
    [
        (torch.fft.rfft, 6 * 5 * 4 * 3),  # 6 of 8 numbers
        (lambda x: torch.fft.rfft(x, n=16), 6 * 5 * 8 * 4),
        (lambda x: torch.fft.rfft(x, n=15), 6 * 5 * 15 * 4 // 2),  # an odd length, halves and all
        (lambda x: torch.fft.rfft(x, n=2 * x.shape[-1]), 6 * 5 * 8 * 4),  # worked out while the trace runs
        (lambda x: torch.fft.rfft(x, dim=1), 16 * 15),  # 16 of 3 numbers: ⌊5·3·2/2⌋ each
        (lambda x: torch.fft.irfft(torch.fft.rfft(x, n=16), n=16), 2 * 6 * 5 * 8 * 4),
        (lambda x: torch.fft.rfft(x) * torch.fft.rfft(x), 2 * 360 + 6 * 6 * 5),  # 5 complex numbers each
    ],
    ids=["own length", "padded", "odd", "shape arithmetic", "axis", "back", "product"],
)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_transforms_are_counted_by_their_convention(run: Callable[..., Tensor], flops: int, device: str) -> None:
    found = trace(Call(run), (torch.empty(2, 3, 8, device=device),))
    assert found.unsupported == {}
    assert (found.macs, found.flops) == (0, flops)


@pytest.mark.parametrize("tokens", [1, 2, 7, 64])
def test_the_long_convolution_is_the_direct_one(tokens: int) -> None:
    torch.manual_seed(0)
    v, h = torch.randn(2, tokens, 3, dtype=torch.float64), torch.randn(tokens, 3, dtype=torch.float64)
    ours = LongConvolution(tokens)(v, Spectra(tokens)(h))
    kernel = h.T.flip(-1).unsqueeze(1)  # torch's convolution is a correlation
    direct = nn.functional.conv1d(v.transpose(1, 2), kernel, padding=tokens - 1, groups=3)[..., :tokens]
    torch.testing.assert_close(ours, direct.transpose(1, 2), rtol=1e-11, atol=1e-12)


def test_it_runs_in_half_precision() -> None:
    module = MODULES[Hyena](Hyena(features=5), spot(6)).bfloat16().requires_grad_(requires_grad=False)
    answer = module(torch.randn(2, 6, 8, dtype=torch.bfloat16))
    assert answer.dtype == torch.bfloat16
    assert bool(answer.isfinite().all())


test_what_it_refuses = refusals(
    [
        (Hyena(features=4), spot(5), "features", "4 is even, .* try 3 or 5"),
        (Hyena(), spot(3, 3), "kind", "needs a sequence without special tokens"),
    ]
)


def test_what_it_tells() -> None:
    transforms, learned, state = Hyena().notes(spot(5))
    assert "1 long convolution(s) by transforms of 2·5 numbers" in transforms
    assert "another N needs other rows" in learned
    assert "8 numbers each must be kept" in state
    assert len(list(Hyena(positions="fixed").notes(spot(5)))) == 2
