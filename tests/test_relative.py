"""Positions and memories of attention: relative, compressive, grouped heads, widths of values."""

from functools import partial
from pathlib import Path

import msgspec
import pytest
import torch
from torch import Tensor, nn

import places
from cases.base import Case
from compared import given, options_of
from contract import make
from modules import noise
from places import at, rows_of
from references.attention import compressed_once, with_memory
from specs import counted
from strategies import counted_spec, placed, stack
from xfcost.counting.forward import count
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.full import Buckets, Cross, Full, alibi
from xfcost.mechanisms.relative import Compressive, Relative
from xfcost.program.residual import component_rows
from xfcost.torch_models.build import build
from xfcost.torch_models.shared.attention import bucket_rows

# `--kind` of one of these selects this file
KINDS = ("relative", "compressive")


# Transformer-XL's attention ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(
    "component",
    [
        Relative(heads=2, causal=True, memory=4),
        Relative(heads=3, memory=3, projection_bias=True),
        Relative(heads=1, causal=True, memory=2, memory_queries=True),
    ],
    ids=str,
)
def test_a_given_memory_is_attended_over(component: Relative, *, fused: bool) -> None:
    module = make(Case(component, at(5, fused=fused)))
    x_BND, memory_BPD = noise(2, 5, 6), noise(2, component.memory, 6, seed=2)
    plain = with_memory(options_of(component), given(module), x_BND, memory_BPD)
    assert not torch.allclose(module(x_BND), plain)  # it is no zeros
    module.memory_1PD = memory_BPD
    torch.testing.assert_close(module(x_BND), plain, rtol=1e-11, atol=1e-12)


def test_a_memory_gets_no_gradient() -> None:
    module = make(Case(Relative(heads=2, causal=True, memory=4), at(5)))
    x_BND, memory_BPD = noise(1, 5, 6).requires_grad_(), noise(1, 4, 6, seed=2).requires_grad_()
    module.memory_1PD = memory_BPD
    module(x_BND).sum().backward()
    assert x_BND.grad is not None
    assert memory_BPD.grad is None


def test_two_segments_are_one_long_pass_through_a_layer() -> None:
    # One layer over 10 tokens at once, and over the second 5 with the first 5 for a memory.
    whole, half = (
        make(Case(Relative(heads=2, causal=True, memory=memory), at(tokens))) for tokens, memory in ((10, 0), (5, 5))
    )
    half.load_state_dict(whole.state_dict())
    x_BND = noise(2, 10, 6)
    half.memory_1PD = x_BND[:, :5]
    torch.testing.assert_close(half(x_BND[:, 5:]), whole(x_BND)[:, 5:], rtol=1e-11, atol=1e-12)


# transformers 4.57.6 (deprecated.transfo_xl), FlopCounterMode/2: embedding and layers, with queries of the memory.
PUBLIC = {
    "transformer-xl-enwik8": (41_066_496, 37_044_092_928, 12 * 512 * 512**2),
    "transformer-xl-wt103": (150_850_870, 8_649_360_000, 16 * 150 * 410**2),
}


@pytest.mark.parametrize("name", PUBLIC)
def test_the_public_code_s_parameters_and_macs(name: str) -> None:
    params, macs, of_memory_queries = PUBLIC[name]
    ours = counted(name, "head=null", "stages.0.block.0.memory_queries=true")
    assert (ours.total("params"), ours.total("macs")) == (params, macs)
    # with the head's 204 biases, and with 24 layers
    assert counted("transformer-xl-enwik8").total("params") == 41_066_700
    assert counted("transformer-xl-enwik8-24l", "head=null").total("params") == 277_278_720
    assert macs - counted(name, "head=null").total("macs") == of_memory_queries


def test_the_public_code_s_default_layers(tmp_path: Path) -> None:
    """TransfoXLConfig(), 18 layers, 128 words, a memory of 1600: 283,885,936 parameters, 164,567,711,744 MACs.

    Its embedding is adaptive and not in the spec: clusters of 20,000, 20,000, 160,000 and 67,735 words, 1024, 256, 64
    and 16 wide, each with a map to 1024. All words were of the first cluster, whose map took 128·1024² MACs.
    """
    clusters = {1024: 20_000, 256: 20_000, 64: 160_000, 16: 67_735}
    embedding = sum(words * width + width * 1024 for width, words in clusters.items())
    relative = {"kind": "relative", "heads": 16, "causal": True, "memory": 1600, "memory_queries": True}
    over = {"input": {"kind": "vectors", "channels": 1024, "length": 128}, "embed": [], "residual": {"place": "post"}}
    mlp = {"kind": "mlp", "hidden": 4096, "act": "relu"}
    ours = counted_spec(stack(relative, mlp, dim=1024, depth=18, **over), tmp_path)
    assert ours.total("params") == 283_885_936 - embedding
    assert ours.total("macs") == 164_567_711_744 - 128 * 1024**2


def test_u_and_v_can_be_shared_by_all_layers(tmp_path: Path) -> None:
    mixer = msgspec.to_builtins(Relative(heads=2, causal=True, memory=3, share="biases"))
    architecture = placed(stack(mixer, dim=6, depth=4, length=5, vocabulary=7), tmp_path)
    counted, live = count(architecture), build(architecture, "cpu")
    # 7·6 words, u and v once, and per layer 5 maps of 6·6 and a norm of 2·6
    assert counted.total("params") == 42 + 12 + 4 * (180 + 12)
    assert sum(parameter.numel() for parameter in live.model.parameters()) == counted.total("params")
    # u is the table's first row and v its second: content changes with the one, positions with the other
    table, layer = live.model.shared["biases"].weight, live.model.get_submodule("streams.0.stages.0.run.3.0.inner")
    table.copy_(torch.arange(12.0).reshape(2, 6))
    zeros = torch.zeros(1, 1, 6)
    assert torch.equal(layer.content_bias(zeros).flatten(), torch.arange(6.0))
    assert torch.equal(layer.position_bias(zeros).flatten(), torch.arange(6.0) + 6)


# Compressive attention ────────────────────────────────────────────────────────────────────────────────────────────────


def by_algorithm_1(component: Compressive, module: nn.Module, segments: tuple[Tensor, ...]) -> list[Tensor]:
    """Rae et al. 2020, Algorithm 1, one layer: attend, take the n oldest memories out, compress them, at the end."""
    options, weights = options_of(component), given(module)
    batch, tokens, width = segments[0].shape
    memory, slots = (
        segments[0].new_zeros(batch, size, width) for size in (component.memory, component.compressed_memory)
    )
    # what the module finds before a text: zeros were evicted
    new = compressed_once(options, weights, torch.zeros_like(segments[0]))
    slots = torch.cat([slots, new], 1)[:, -component.compressed_memory :]
    answers = []
    for x_BND in segments:
        answers.append(with_memory(options, weights, x_BND, torch.cat([slots, memory], dim=1)))
        kept = torch.cat([memory, x_BND], dim=1)
        evicted, memory = kept[:, :tokens], kept[:, tokens:]
        slots = torch.cat([slots, compressed_once(options, weights, evicted)], dim=1)[:, -component.compressed_memory :]
    return answers


@pytest.mark.parametrize(
    "component",
    [
        Compressive(heads=2, causal=True, memory=6, compressed_memory=5, compression=2),
        Compressive(heads=1, causal=True, memory=3, compressed_memory=4, compression=2, function="mean"),
        Compressive(heads=3, causal=True, compressed_memory=1, compression=2, function="max"),
        Compressive(heads=2, causal=True, memory=2, compressed_memory=3, compression=5),
    ],
    ids=str,
)
def test_segments_go_on_as_the_paper_s_algorithm_does(component: Compressive) -> None:
    module, segments = make(Case(component, at(4))), tuple(noise(2, 4, 6, seed=seed) for seed in range(1, 6))
    for x_BND, plain in zip(segments, by_algorithm_1(component, module, segments), strict=True):
        torch.testing.assert_close(module(x_BND), plain, rtol=1e-11, atol=1e-12)
        # the next segment finds what this one has made of the compressed memory, and the memory behind it
        memory, evicted = (part.expand(2, -1, -1) for part in (module.memory_1PD, module.evicted_1ND))
        new = compressed_once(options_of(component), given(module), evicted)
        slots = torch.cat([memory[:, : component.compressed_memory], new], dim=1)[:, -component.compressed_memory :]
        kept = torch.cat([memory[:, component.compressed_memory :], x_BND], dim=1)
        module.evicted_1ND, module.memory_1PD = kept[:, :4], torch.cat([slots, kept[:, 4:]], dim=1)


def test_the_public_package_s_figures_but_for_its_positions(tmp_path: Path) -> None:
    """compressive-transformer-pytorch 0.4.0: 46,879,264 parameters, 57,193,529,344 MACs (FlopCounterMode/2).

    Six layers of 512, n = n_m = 1024, n_cm = 256, c = 4. It has a position table per head in place of W_R, u and v,
    which all layers share, and a bias on the output projection and the vocabulary alone.
    """
    mixer = {"kind": "compressive", "heads": 8, "causal": True, "memory": 1024, "compressed_memory": 256}
    head = {"kind": "language_model", "norm": "none", "bias": True}
    spec = stack(mixer, {"kind": "mlp"}, dim=512, depth=6, length=1024, vocabulary=20_000, head=head)
    ours = counted_spec(spec, tmp_path)
    keys = 1024 + 1024 + 256
    table, output_biases, positions = keys * 512, 6 * 512, 6 * (512 * 512 + 2 * 512)
    assert ours.total("params") == 46_879_264 - table - output_biases + positions
    assert ours.total("macs") == 57_193_529_344 + 6 * keys * 512 * 512  # W_R on every distance


# Heads in groups, rotary positions, ALiBi and buckets ─────────────────────────────────────────────────────────────────

grouped_at = partial(places.at, dim=8)


def test_a_shared_head_of_keys_is_read_once_from_main_memory() -> None:
    alone, shared = (rows_of(Full(heads=4, kv_heads=few), grouped_at(10))["scores"].core for few in (4, 2))
    # 4 cores of 10 queries by 10 keys, or 2 of 20 by 10
    assert (msgspec.structs.astuple(alone), msgspec.structs.astuple(shared)) == ((4, 10, 10, 2, 2), (2, 20, 10, 2, 2))


def test_alibi_s_slopes() -> None:
    # eight heads: 1/2, 1/4, … 1/256 (Press et al. 2022, §3)
    assert alibi(torch.arange(8), 0, 1, heads=8).tolist() == [2.0**-number for number in range(1, 9)]
    # twelve: those of eight, then 2^-0.5, 2^-1.5, …
    expected = 2.0 ** -torch.tensor([0.5, 1.5, 2.5, 3.5])
    torch.testing.assert_close(alibi(torch.arange(12), 0, 1, heads=12)[8:], expected)


def test_bucket_rows_by_hand() -> None:
    component = Full(heads=4, bias=Buckets(count=8, distance=20), scaled=False)
    found = rows_of(component, grouped_at(10))
    # 8 buckets of 4 heads; 19 distances looked up, then laid out for 100 pairs
    assert (found["relative_bias"].params, found["relative_bias"].moved) == (32, 4 * (19 + 100))
    assert found["relative_bias"].once
    assert "scale" not in found
    # two directions with 4 buckets each: 0 and 1 exact, then 2 to 6 (2·√10 = 6.3), then the rest
    distances = torch.tensor([0, 1, 2, 6, 7, 20, 99, -1, -2, -6, -7, -99])
    assert bucket_rows(distances, component.bias, causal=False).tolist() == [0, 5, 6, 6, 7, 7, 7, 1, 2, 2, 3, 3]
    # one direction with 8: 0 to 3 exact, then from 4, 4·⁴√5 = 6.0, 8.9 and 13.4 on
    assert bucket_rows(distances, component.bias, causal=True).tolist() == [0] * 7 + [1, 2, 5, 5, 7]


# Values that are wider, or narrower, than keys ────────────────────────────────────────────────────────────────────────

value_width_at = partial(places.at, dim=12)


def test_caches_keep_both_widths() -> None:
    own = {
        row.path: row
        for row in component_rows(Full(heads=6, kv_heads=3, value_dim=5, causal=True), value_width_at(10), decodes=True)
    }
    assert (own["cache"].cache.per_token, own["cache"].cached) == (3 * (2 + 5), 10 * 3 * (2 + 5))
    other = component_rows(
        Cross(heads=3, head_dim=2, value_dim=5), value_width_at(10, memory=Grid((7,)), memory_dim=4), decodes=True
    )
    assert [row.cached for row in other if row.path == "cache"] == [7 * 3 * (2 + 5)]


def test_the_bias_of_the_output_is_the_same_in_a_step() -> None:
    for bias in (True, False):
        component = Full(heads=2, causal=True, projection_bias=not bias, output_bias=bias)
        step = {row.path: row.params for row in component_rows(component, value_width_at(10), decodes=True)}
        assert step["out"] == rows_of(component, value_width_at(10))["out"].params == 144 + 12 * bias
