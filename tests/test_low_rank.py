"""Attention through fewer rows: low-rank, Nyström and compressed, and weights that ignore the content."""

import msgspec
import pytest
import torch
from torch.nn import functional as F

from places import at, total
from specs import counted
from strategies import counted_spec, exact, placed
from transformers_models import transformers
from xfcost.counting.forward import count
from xfcost.formulas.arithmetic import root_divisor
from xfcost.formulas.component import Place
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.full import Full
from xfcost.mechanisms.low_rank import Nystrom, pseudo_inverse
from xfcost.mechanisms.spatial_reduction import Compressed
from xfcost.mechanisms.synthesizer import Synthesizer
from xfcost.mechanisms.token_mixing import Gmlp, TokenLinear, TokenMlp
from xfcost.torch_models.accounts import reconciled
from xfcost.torch_models.build import build
from xfcost.torch_models.program import Functions, ProgramModule
from xfcost.torch_models.shared.attention import multiples_of_identity

# `--kind` of one of these selects this file
KINDS = ("low_rank", "nystrom", "compressed", "synthesizer", "token_mlp")


# Low-rank attention ───────────────────────────────────────────────────────────────────────────────────────────────────


def model(*blocks, length=16, dim=12):
    return {
        "input": {"kind": "tokens", "vocabulary": 11, "length": length},
        "embed": [{"kind": "token"}],
        "stages": [{"dim": dim, "blocks": [[{"kind": "low_rank", **block}] for block in blocks]}],
    }


def test_layerwise_sharing_is_one_table_in_the_model(tmp_path):
    architecture = placed(model(*[{"heads": 2, "rank": 4, "share": "layerwise"}] * 3), tmp_path)
    live = build(architecture, "cpu")
    ledger = exact(reconciled(count(architecture), *build(architecture)))
    assert {row.path: row.params for row in ledger.rows if row.params and row.path.startswith("shared")} == {
        "shared.projection_16x4": 64
    }
    assert sum(parameter.numel() for parameter in live.model.parameters()) == ledger.total("params")
    # every layer reads the table: changed, it changes what each gives
    layer = live.model.get_submodule("streams.0.stages.0.run.2.0.inner")
    x = torch.randn(1, 16, 12)
    before = layer(x)
    live.model.get_parameter("shared.projection_16x4.weight").mul_(2)
    assert not torch.equal(before, layer(x))


def test_layerwise_numbers_are_those_of_one_shared_table(tmp_path):
    live = build(placed(model({"heads": 1, "rank": 4, "share": "layerwise"}), tmp_path), "cpu")
    layer = live.model.get_submodule("streams.0.stages.0.run.0.0.inner").double()
    table = live.model.get_parameter("shared.projection_16x4.weight").double()
    layer.projection.tables["weight"].double()
    x = torch.randn(2, 16, 12, dtype=torch.float64)
    q, k, v = F.linear(x, layer.qkv.weight, layer.qkv.bias).chunk(3, dim=-1)
    weights = (q @ (table.T @ k).mT / 12**0.5).softmax(-1)
    plain = F.linear(weights @ (table.T @ v), layer.out.weight, layer.out.bias)
    torch.testing.assert_close(layer(x), plain, rtol=1e-11, atol=1e-12)


def test_linformer_package(tmp_path):
    # linformer 0.2.3, LinformerLM(num_tokens=20000, dim=512, seq_len=2048, depth=6, heads=8, k=256): 46,745,120
    # parameters, 66,068,676,608 MACs by FlopCounterMode.
    # Its Q, K, V have no bias (6·3·512 here), and it has no last norm.
    data = {
        "input": {"kind": "tokens", "vocabulary": 20_000, "length": 2048},
        "embed": [{"kind": "token"}, {"kind": "position"}],
        "stages": [{"dim": 512, "depth": 6, "block": [{"kind": "low_rank", "heads": 8, "rank": 256}, {"kind": "mlp"}]}],
        "head": {"kind": "language_model", "norm": "none", "bias": True},
    }
    ledger = counted_spec(data, tmp_path)
    assert ledger.total("params") == 46_745_120 + 6 * 3 * 512
    assert ledger.total("macs") == 66_068_676_608


# Nyström attention ────────────────────────────────────────────────────────────────────────────────────────────────────


def noise(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("n", [3, 4, 5])
@pytest.mark.parametrize("fused", [False, True])
def test_no_more_tokens_than_landmarks_are_attended_over_exactly(n, *, fused):
    component, spots = Nystrom(heads=2, landmarks=4, conv=None), at(n, fused=fused)
    mine, full = ProgramModule(component, spots).double(), ProgramModule(Full(heads=2), spots).double()
    full.load_state_dict(mine.state_dict())
    x = noise(2, n, 6)
    same = torch.allclose(mine(x), full(x), rtol=1e-12, atol=1e-13)
    mine_rows, full_rows = (list(each.operations(spots)) for each in (component, Full(heads=2)))
    assert same == (mine_rows == full_rows) == (n <= 4)


def test_the_iteration_comes_to_the_inverse():
    torch.manual_seed(0)
    a = (3 * torch.randn(2, 3, 8, 8, dtype=torch.float64)).softmax(-1)
    multiples = multiples_of_identity(8, (7.0, 15.0, 13.0)).double()
    inverses = (pseudo_inverse(Functions, a, multiples, iterations=steps) for steps in (1, 6, 12, 30))
    errors = [float((inverse @ a - torch.eye(8)).abs().amax()) for inverse in inverses]
    assert errors[0] > 0.5
    assert errors[-1] < 1e-8
    assert errors == sorted(errors, reverse=True)


def test_counting_is_quick_whatever_n():
    rows = list(Nystrom(heads=2).operations(at(2**32)))
    assert sum(row.macs for row in rows) > 2**40


def spec(n, landmarks, *, dim=12, heads=3, conv=5):
    mixer = {"kind": "nystrom", "heads": heads, "landmarks": landmarks, "conv": conv}
    return {
        "input": {"kind": "tokens", "vocabulary": 31, "length": n},
        "residual": {"place": "post"},
        "embed": [{"kind": "token"}, {"kind": "position", "length": n + 2}, {"kind": "token_type"}, {"kind": "norm"}],
        "stages": [{"dim": dim, "depth": 2, "block": [mixer, {"kind": "mlp", "hidden": 20}]}],
    }


def theirs(n, landmarks, *, heads=3, conv=5):
    config = transformers.NystromformerConfig(
        vocab_size=31, hidden_size=12, num_hidden_layers=2, num_attention_heads=heads, intermediate_size=20,
        max_position_embeddings=n, num_landmarks=landmarks, segment_means_seq_len=n, conv_kernel_size=conv,
        hidden_act="gelu",
    )  # fmt: skip
    torch.manual_seed(0)
    return transformers.NystromformerModel(config).eval().requires_grad_(requires_grad=False)


@pytest.mark.parametrize(("n", "landmarks"), [(16, 4), (8, 8)])
def test_outputs_are_transformers_s(n, landmarks, tmp_path):
    # One head and one sample: transformers starts its iteration from the largest column sum of all heads and samples.
    model = theirs(n, landmarks, heads=1).double()
    ours = build(placed(spec(n, landmarks, heads=1), tmp_path), "cpu").model.double()
    copy_weights(model, ours)
    numbers = torch.arange(n)[None] % 31
    mine, other = ours(numbers), model(numbers).last_hidden_state
    torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-9)


def copy_weights(theirs, ours):
    """Theirs into ours, by place; the norms' ε too, which costs nothing."""
    stream = ours.streams[0]
    token, position, kind, norm = stream.embed
    token.lookup.weight.copy_(theirs.embeddings.word_embeddings.weight)
    kind.lookup.weight.copy_(theirs.embeddings.token_type_embeddings.weight)
    # ours takes the first rows, theirs begins at the third
    position.table.weight.copy_(theirs.embeddings.position_embeddings.weight.roll(-2, 0))
    norm.norm.load_state_dict(theirs.embeddings.LayerNorm.state_dict())
    norm.norm.eps = theirs.embeddings.LayerNorm.eps
    for block, layer in zip(stream.stages[0].run, theirs.encoder.layer, strict=True):
        attention, mlp = block
        mine, other = attention.inner, layer.attention.self
        mine.qkv.weight.copy_(torch.cat([part.weight for part in (other.query, other.key, other.value)]))
        mine.qkv.bias.copy_(torch.cat([part.bias for part in (other.query, other.key, other.value)]))
        mine.conv.weight.copy_(other.conv.weight)
        mine.out.load_state_dict(layer.attention.output.dense.state_dict())
        mlp.inner.fc1.load_state_dict(layer.intermediate.dense.state_dict())
        mlp.inner.fc2.load_state_dict(layer.output.dense.state_dict())
        for sub, norm_theirs in ((attention, layer.attention.output.LayerNorm), (mlp, layer.output.LayerNorm)):
            sub.residual_norm.load_state_dict(norm_theirs.state_dict())
            sub.residual_norm.eps = norm_theirs.eps


# Memory-compressed attention ──────────────────────────────────────────────────────────────────────────────────────────


def test_the_public_package_s_figures():
    # memory-compressed-attention 0.0.7, MemoryCompressedAttention(512, heads=8, causal=True) on 1024 tokens:
    # 1,148,928 parameters and 1,500,643,328 MACs (torch's counter). Its Q, K and V have no bias, its output has one.
    # 4·N·D² + 2·⌈N/3⌉·3·D²/8 + 2·N·(⌈N/3⌉ + 1)·D: 1,073,741,824 + 67,239,936 + 359,661,568.
    component = Compressed(heads=8, groups=8, causal=True)
    assert total(component, at(1024, dim=512), "params") - 3 * 512 == 1_148_928
    assert total(component, at(1024, dim=512), "macs") == 1_500_643_328


# Synthetic attention ──────────────────────────────────────────────────────────────────────────────────────────────────

FORMS = ("dense", "random", "factorized_dense", "factorized_random")


@pytest.mark.parametrize(
    ("form", "params"),
    [
        # Table 1 of the paper, for one head as wide as the model: d² + dN, d(d + k₁ + k₂), N², 2Nk.
        ("dense", 6 * 6 + 6 * 12),
        ("factorized_dense", 6 * (6 + 3 + 4)),
        ("random", 12 * 12),
        ("factorized_random", 2 * 12 * 8),
    ],
)
def test_parameters_are_those_of_the_paper(form, params):
    component = Synthesizer(heads=1, form=form, projection_bias=False)
    rows = {row.path: row.params for row in component.operations(at(12))}
    assert sum(rows.values()) - rows["value"] - rows["out"] == params


def test_random_weights_do_not_see_the_input_and_can_stay_as_drawn():
    torch.manual_seed(0)
    module = ProgramModule(Synthesizer(heads=2, form="random", trainable=False), at(12)).double()
    assert [name for name, _ in module.named_parameters() if "synthesis" in name] == []
    assert "synthesis.weight" in module.state_dict()
    weights = []
    module.softmax.register_forward_hook(lambda *call: weights.append(call[-1]))
    module(noise(3, 12, 6))
    module(2 * noise(3, 12, 6))
    assert torch.equal(*weights)
    assert weights[0].shape == (2, 12, 12)


@pytest.mark.parametrize(("n", "divisor"), [(1, 1), (13, 1), (12, 3), (36, 6), (2**20, 2**10), (6 * 2**20, 2**11)])
def test_the_divisor_nearest_below_the_root(n, divisor):
    assert root_divisor(n) == divisor
    assert Synthesizer(heads=2, form="factorized_dense").factors(Grid((n,))) == (divisor, n // divisor)


# MLP-Mixer, ResMLP and gMLP ───────────────────────────────────────────────────────────────────────────────────────────

SPOT = Place(grid=Grid((3, 4)), dim=10, out_dim=10)


@pytest.mark.parametrize(
    "component", [TokenMlp(hidden=5), TokenLinear(), Gmlp()], ids=lambda component: component.label()
)
def test_token_mixing_is_global_static_and_bound_to_n(component):
    larger = msgspec.structs.replace(SPOT, grid=Grid((4, 4)))
    for row, other in zip(component.operations(SPOT), component.operations(larger), strict=True):
        assert row.bound == row.mixes == (row.params != other.params)
        assert not row.content_dependent
        assert (row.mixing, row.reads) in {("per-token", None), ("global", "N"), ("global", "k")}


def test_bound_parameters_are_what_another_n_changes():
    # 12 blocks of 2·196·384 + 384 + 196 weights over tokens.
    ledgers = [counted("mixer-b16", tokens=tokens) for tokens in (None, (784,))]
    assert ledgers[0].bound_params == 12 * (2 * 196 * 384 + 384 + 196)
    assert len({ledger.total("params") - ledger.bound_params for ledger in ledgers}) == 1
