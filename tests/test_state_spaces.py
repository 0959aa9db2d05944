"""Scans and long convolutions: state-space models, RWKV, retention, Hyena, and kernel attention's states."""

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import contract
import places
from cases.base import Case
from modules import Call, counted_by_torch, noise
from specs import counted
from strategies import exact, stack, stored
from transformers_models import parameters
from xfcost.api.analysis import analyze
from xfcost.formulas.component import Mixer, Place
from xfcost.ledger.errors import DeviceError
from xfcost.mechanisms.full import Full
from xfcost.mechanisms.gated_delta import GatedDelta
from xfcost.mechanisms.hyena import Hyena
from xfcost.mechanisms.kernel import EluPlusOne, Kernel, RandomFeatures
from xfcost.mechanisms.mamba import Mamba, Mamba2
from xfcost.mechanisms.retention import Retention, RwkvChannel, RwkvTime
from xfcost.program.residual import component_rows
from xfcost.torch_models.program import ProgramModule
from xfcost.torch_models.shared import recurrence
from xfcost.torch_models.shared.fixed_numbers import orthogonal_features
from xfcost.torch_models.tracing.trace import trace

# `--kind` of one of these selects this file
KINDS = ("mamba2", "gated_delta", "retention", "hyena", "kernel")


# Mamba and RWKV-4 ─────────────────────────────────────────────────────────────────────────────────────────────────────

spot = partial(places.at, dim=8)


def live(component: Mixer, where: Place) -> Any:
    torch.manual_seed(0)
    return ProgramModule(component, where).requires_grad_(requires_grad=False)


def as_theirs(
    ours: nn.Module, theirs: nn.Module, component: Mixer, where: Place, *, missed: int = 0, rtol: float = 1e-4,
    atol: float = 1e-5,
) -> None:  # fmt: skip
    """Numbers, parameters, and MACs but for those that torch misses."""
    x = torch.randn(2, where.grid.total, where.dim)
    expected, macs = counted_by_torch(lambda: theirs(x))
    torch.testing.assert_close(ours(x), expected, rtol=rtol, atol=atol)
    assert macs == 2 * (places.total(component, where, "macs") - missed)
    assert parameters(theirs) == places.total(component, where, "params")


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


def test_a_mamba_block_is_transformers_own() -> None:
    from transformers import MambaConfig
    from transformers.models.mamba.modeling_mamba import MambaMixer

    torch.manual_seed(1)
    config = MambaConfig(hidden_size=32, state_size=5, conv_kernel=4, expand=2, num_hidden_layers=1, use_mambapy=False)
    theirs = MambaMixer(config, layer_idx=0).eval().requires_grad_(requires_grad=False)
    component, where = Mamba(state=5), spot(11, dim=32)
    ours = live(component, where)
    ours.decay.log.copy_(theirs.A_log.normal_())
    ours.skip.weight.copy_(theirs.D.normal_())
    for name in ("in_proj", "x_proj", "dt_proj", "out_proj"):
        getattr(ours, name).load_state_dict(getattr(theirs, name).state_dict())
    ours.conv.load_state_dict(theirs.conv1d.state_dict())
    as_theirs(ours, theirs, component, where)


def test_an_rwkv_block_is_transformers_own() -> None:
    from transformers import RwkvConfig
    from transformers.models.rwkv.modeling_rwkv import RwkvFeedForward, RwkvSelfAttention

    torch.manual_seed(1)
    config = RwkvConfig(hidden_size=16, attention_hidden_size=16, intermediate_size=64, num_hidden_layers=1)
    x = torch.randn(2, 11, 16)
    for component, make, uses in (
        (RwkvTime(), RwkvSelfAttention, "key value receptance"),
        (RwkvChannel(), RwkvFeedForward, "key receptance"),
    ):
        theirs = make(config).eval().requires_grad_(requires_grad=False)
        for parameter in theirs.parameters():
            parameter.normal_(std=0.3)
        ours = live(component, spot(11, dim=16))
        for row, use in enumerate(uses.split()):
            ours.mix.weight[row].copy_(getattr(theirs, f"time_mix_{use}").flatten())
        time = isinstance(component, RwkvTime)
        for name in ("key", "value", "receptance", *(["output"] if time else [])):
            getattr(ours, name).load_state_dict(getattr(theirs, name).state_dict())
        if time:
            ours.decay.weight.copy_(theirs.time_decay)
            ours.wkv.first.copy_(theirs.time_first)
        torch.testing.assert_close(ours(x), theirs(x)[0], rtol=1e-4, atol=1e-5)
        assert parameters(theirs) == places.total(component, spot(11, dim=16), "params")


# Mamba-2 ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("groups", "tokens"), [(1, 11), (2, 16), (4, 3), (1, 1)])
def test_a_block_is_transformers_own(groups: int, tokens: int) -> None:
    from transformers import Mamba2Config
    from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer

    torch.manual_seed(1)
    sizes = {"hidden_size": 16, "state_size": 5, "head_dim": 4, "num_heads": 8, "n_groups": groups, "chunk_size": 8}
    theirs = Mamba2Mixer(Mamba2Config(**sizes, num_hidden_layers=1), layer_idx=0).requires_grad_(requires_grad=False)
    theirs.eval()
    if groups > 1 and not hasattr(theirs.norm, "group_size"):
        pytest.skip("this version of transformers normalises all groups at once; the paper's model each alone")
    for parameter in (theirs.A_log, theirs.D, theirs.dt_bias, theirs.norm.weight):
        parameter.normal_()
    component, where = Mamba2(state=5, head_dim=4, groups=groups, chunk=8), spot(tokens, dim=16)
    ours = live(component, where)
    for name in ("in_proj", "out_proj"):
        getattr(ours, name).load_state_dict(getattr(theirs, name).state_dict())
    ours.conv.load_state_dict(theirs.conv1d.state_dict())
    ours.step.bias.copy_(theirs.dt_bias)
    ours.decay.log.copy_(theirs.A_log)
    ours.skip.weight.copy_(theirs.D)
    ours.norm.weight.copy_(theirs.norm.weight)
    as_theirs(ours, theirs, component, where)


# Gated DeltaNet ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("key_heads", "tokens"), [(4, 5), (2, 64), (1, 70)])
def test_a_gated_delta_block_is_transformers_own(key_heads: int, tokens: int) -> None:
    modeling = pytest.importorskip("transformers.models.qwen3_next.modeling_qwen3_next")
    from transformers import Qwen3NextConfig

    torch.manual_seed(1)
    sizes = {"linear_num_key_heads": key_heads, "linear_num_value_heads": 4, "linear_key_head_dim": 6}
    config = Qwen3NextConfig(hidden_size=16, num_hidden_layers=1, linear_value_head_dim=5, **sizes)
    theirs = modeling.Qwen3NextGatedDeltaNet(config, layer_idx=0).eval().requires_grad_(requires_grad=False)
    for parameter in theirs.parameters():
        parameter.normal_(std=0.5)
    component = GatedDelta(heads=4, key_heads=key_heads, head_dim=6, value_dim=5)
    where = spot(tokens, dim=16)
    ours = live(component, where)
    # theirs are in the order of key heads
    widths, each = [6, 6, 20 // key_heads, 20 // key_heads], 4 // key_heads
    by_head = theirs.in_proj_qkvz.weight.unflatten(0, (key_heads, -1)).split(widths, 1)
    ours.in_proj.weight.copy_(torch.cat([part.flatten(0, 1) for part in by_head]))
    by_head = theirs.in_proj_ba.weight.unflatten(0, (key_heads, -1)).split([each, each], 1)
    ours.gates_proj.weight.copy_(torch.cat([part.flatten(0, 1) for part in by_head]))
    for row, weight in (
        (ours.conv.weight, theirs.conv1d.weight), (ours.decay.log, theirs.A_log), (ours.rates.bias, theirs.dt_bias),
        (ours.norm.weight, theirs.norm.weight), (ours.out_proj.weight, theirs.out_proj.weight),
    ):  # fmt: skip
        row.copy_(weight)
    (solve,) = (row.macs for row in component_rows(component, where) if row.path == "solve")  # which torch misses
    as_theirs(ours, theirs, component, where, missed=solve, rtol=1e-3, atol=1e-4)


# Retention ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_decays_are_told_without_rounding() -> None:
    module = live(Retention(heads=3, form="recurrent"), spot(5, dim=12))
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
