"""Scans and long convolutions: state-space models, RWKV, retention, Hyena, and kernel attention's states."""

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import contract
import places
from cases.base import Case
from modules import Call, noise
from specs import counted
from strategies import exact, stack, stored
from xfcost.api.analysis import analyze
from xfcost.ledger.errors import DeviceError
from xfcost.mechanisms.full import Full
from xfcost.mechanisms.hyena import Hyena
from xfcost.mechanisms.kernel import EluPlusOne, Kernel, RandomFeatures
from xfcost.mechanisms.retention import Retention, RwkvTime
from xfcost.program.residual import component_rows
from xfcost.torch_models.program import ProgramModule
from xfcost.torch_models.running.surroundings import default_dtype
from xfcost.torch_models.shared import recurrence
from xfcost.torch_models.shared.fixed_numbers import orthogonal_features
from xfcost.torch_models.tracing.trace import trace

# `--kind` of one of these selects this file
KINDS = ("mamba", "rwkv_time", "retention", "hyena", "kernel")


spot = partial(places.at, dim=8)


# The inputs of each scan over so many steps.
SCANS: dict[str, Callable[[int], list[tuple[int, ...]]]] = {
    "selective_scan": lambda N: [(2, N, 6), (2, N, 6), (6, 3), (2, N, 3), (2, N, 3)],
    "wkv": lambda N: [(2, N, 6), (2, N, 6), (6,), (6,)],
    "retention": lambda N: [(2, N, 15), (2, N, 15), (2, N, 12), (3,)],
    "decayed_sums": lambda N: [(2, N, 60), (3,)],
}


@pytest.mark.parametrize("name", SCANS)
def test_a_step_of_the_one_node_costs_what_a_step_of_the_loop_does(name: str) -> None:
    # One step more: what the last one leaves for none to read, a trace of the loop drops.
    def traced(run: Any, steps: int) -> list[int]:
        found = trace(Call(run), tuple(torch.randn(shape) for shape in SCANS[name](steps)))
        assert found.unsupported == {}
        own = found.modules[""]
        return [own.macs, own.flops, own.comparisons, own.moved]

    node, loop = getattr(torch.ops.xfcost, name), recurrence.PLAIN[name]
    steps = [[b - a for a, b in zip(traced(run, 5), traced(run, 6), strict=True)] for run in (node, loop)]
    assert steps[0] == steps[1]
    assert traced(node, 5) == [5 * each for each in steps[0]]


@pytest.mark.parametrize("name", ["430m", "1b5", "7b", "14b"])
def test_rwkv_s_printed_flops_per_token_are_twice_the_macs_of_its_maps(name: str) -> None:
    printed = {"430m": 7.573e8, "1b5": 2.823e9, "7b": 1.437e10, "14b": 2.778e10}[name]
    one = counted(f"rwkv4-{name}", tokens=(1,)).total("macs")
    assert float(f"{2 * (one or 0):.3e}") == printed
    assert counted(f"rwkv4-{name}", tokens=(7,)).total("macs") == 7 * (one or 0)


# Retention ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_decays_are_told_without_rounding() -> None:
    module: Any = ProgramModule(Retention(heads=3, form="recurrent"), spot(5, dim=12))
    assert module.scan.decay_H.tolist() == [31 / 32, 63 / 64, 127 / 128]


@pytest.mark.parametrize("tokens", [1, 4, 5])
def test_what_the_only_chunk_adds_has_no_gradient(tokens: int, tmp_path: Path) -> None:
    """Up to 4 tokens are one chunk of 4: zeros are read of it, and their queries alone learn."""
    chunked = {"kind": "retention", "heads": 2, "form": "chunkwise", "chunk": 4}
    ledger = exact(analyze(stored(stack(chunked, depth=2, length=tokens), tmp_path), mode="train"))
    rows = {row.operation: row for row in ledger.rows}
    (state, macs), (read, _) = ((rows[name].backward_macs, rows[name].macs) for name in ("state", "read"))
    assert (state, read) == ((0, macs) if tokens <= 4 else (2 * macs, 2 * macs))


# Hyena ────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_fixed_positions_bind_no_weights_to_a_length() -> None:
    rows = list(component_rows(Hyena(positions="fixed"), spot(5)))
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


def test_it_runs_in_half_precision() -> None:
    module = ProgramModule(Hyena(features=5), spot(6)).bfloat16().requires_grad_(requires_grad=False)
    answer = module(torch.randn(2, 6, 8, dtype=torch.bfloat16))
    assert answer.dtype == torch.bfloat16
    assert bool(answer.isfinite().all())
    with default_dtype(torch.float16):  # before the first token a state begins with a number below those of float16
        step = ProgramModule(RwkvTime(), spot(6), cache_batch=2).requires_grad_(requires_grad=False)
        assert bool(step(torch.randn(2, 1, 8)).isfinite().all())


# Kernel attention ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("device", [None, "cpu"])
def test_what_torch_can_not_lay_out_is_refused(device: str | None, tmp_path: Path) -> None:
    # On `meta` torch's running sum lays every state beside every other: 2²⁶ chunks, squared, of 24·24 numbers.
    file = stored(stack({"kind": "kernel", "heads": 2, "causal": True}, dim=48, length=2**32), tmp_path)
    assert analyze(file, trace=False).total("macs") > 0
    with pytest.raises(DeviceError, match=r"too large even on `meta` .*overflow"):
        analyze(file, trace=device is None, device=device)


def test_random_features_are_orthogonal_in_blocks_and_as_long_as_gaussians() -> None:
    torch.manual_seed(0)
    features = orthogonal_features(2050, 16).double()
    blocks = features[:2048].unflatten(0, (128, 16))
    products = (blocks @ blocks.mT)[:, ~torch.eye(16, dtype=torch.bool)]
    assert products.abs().max() < 1e-4  # made in float64, kept in float32
    lengths = features.norm(dim=-1)
    # χ with 16 degrees of freedom: mean 3.938, and the mean square is 16.
    assert lengths.mean() == pytest.approx(3.938, abs=0.06)
    assert lengths.square().mean() == pytest.approx(16, abs=0.5)
    assert lengths.std() > 0.5
    # No direction is favoured: 128 numbers of variance 1 at each place of the diagonal, their means 0 ± 0.09. (QR's own
    # signs, which public code keeps, make them -0.5 to -0.9.)
    assert blocks.diagonal(dim1=-2, dim2=-1).mean(0).abs().max() < 0.35


def test_random_features_are_a_buffer_that_is_drawn_anew_for_every_layer_and_by_torch_s_seed() -> None:
    component = Kernel(heads=2, features=RandomFeatures(count=12))
    module = contract.make(Case(component, spot(4)))
    assert "project.features_FK" in module.state_dict()
    assert not any("project" in name for name, _ in module.named_parameters())
    assert torch.equal(module.project.features_FK, contract.make(Case(component, spot(4))).project.features_FK)
    other = ProgramModule(component, spot(4)).double()
    assert not torch.equal(module.project.features_FK, other.project.features_FK)
    with torch.device("meta"):
        assert ProgramModule(component, spot(4)).project.features_FK.shape == (12, 4)


def test_more_features_come_nearer_to_softmax_attention() -> None:
    # The error of an average of m draws falls as 1/√m: by 16 from 16 to 4096. Over 12 draws, for short queries and
    # keys: long ones need more features (exp has heavy tails), and leave a floor, the ε of the public implementation.
    torch.manual_seed(0)
    full = ProgramModule(Full(heads=2), spot(24)).double().requires_grad_(requires_grad=False)
    x, errors = noise(4, 24, 8) / 2, []
    for count in (16, 64, 256, 1024, 4096):
        component, found = Kernel(heads=2, features=RandomFeatures(count=count)), []
        for seed in range(12):
            torch.manual_seed(seed)
            module = ProgramModule(component, spot(24)).double()
            module.load_state_dict(full.state_dict(), strict=False)
            found.append((module(x) - full(x)).detach().square().mean())
        errors.append(float(torch.stack(found).mean().sqrt() / full(x).std()))
    assert all(later < 0.85 * earlier for earlier, later in itertools.pairwise(errors)), errors
    assert 10 < errors[0] / errors[-1] < 25, errors


def test_causal_features_stay_finite_where_keys_are_huge() -> None:
    component = Kernel(heads=1, causal=True, chunk=4, features=RandomFeatures(count=64))
    module = contract.make(Case(component, spot(12, dim=64))).float()
    assert module(1e3 * noise(1, 12, 64).float()).isfinite().all()


def test_what_the_note_says_of_the_price_is_so() -> None:
    for features, least in ((RandomFeatures(count=6), 12), (EluPlusOne(), 4)):
        for n in (least, least + 1):
            rows = component_rows(Kernel(heads=2, features=features), spot(n))
            mine = sum(row.macs for row in rows if row.path in ("project", "state", "read"))
            assert (mine < 2 * n * n * 8) == (n > least)
