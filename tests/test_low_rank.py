"""Attention through fewer rows: low-rank, Nyström and compressed, and weights that ignore the content."""

import pytest
import torch
from torch.nn import functional as F

import transformers_models as hf
from modules import noise
from places import at, total
from strategies import both_accounts, exact, placed, stack
from xfcost.formulas.arithmetic import root_divisor
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.full import Full
from xfcost.mechanisms.low_rank import Nystrom, pseudo_inverse
from xfcost.mechanisms.spatial_reduction import Compressed
from xfcost.mechanisms.synthesizer import Synthesizer
from xfcost.program.residual import component_rows
from xfcost.torch_models.build import build
from xfcost.torch_models.program import Functions, ProgramModule
from xfcost.torch_models.shared.attention import multiples_of_identity

# `--kind` of one of these selects this file
KINDS = ("low_rank", "nystrom", "compressed", "synthesizer")


# Low-rank attention ───────────────────────────────────────────────────────────────────────────────────────────────────


def model(*blocks, length=16, dim=12):
    stage = {"dim": dim, "blocks": [[{"kind": "low_rank", **block}] for block in blocks]}
    return stack(length=length, stages=[stage])


def test_layerwise_sharing_is_one_table_in_the_model(tmp_path):
    architecture = placed(model(*[{"heads": 2, "rank": 4, "share": "layerwise"}] * 3), tmp_path)
    live = build(architecture, "cpu")
    ledger = exact(both_accounts(architecture))
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


# Nyström attention ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("n", [3, 4, 5])
@pytest.mark.parametrize("fused", [False, True])
def test_no_more_tokens_than_landmarks_are_attended_over_exactly(n, *, fused):
    component, spots = Nystrom(heads=2, landmarks=4, conv=None), at(n, fused=fused)
    mine, full = ProgramModule(component, spots).double(), ProgramModule(Full(heads=2), spots).double()
    full.load_state_dict(mine.state_dict())
    x = noise(2, n, 6)
    same = torch.allclose(mine(x), full(x), rtol=1e-12, atol=1e-13)
    mine_rows, full_rows = (list(component_rows(each, spots)) for each in (component, Full(heads=2)))
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


def nystrom_copied(theirs, ours):
    """Their weights into ours, every one of them; ours takes the first positions, theirs begin at the third."""
    weights, stream = hf.TheirWeights(theirs), ours.streams[0]
    hf.put_embeddings(stream.embed, weights, first=2)
    for number, (mixer, mlp) in enumerate(stream.stages[0].run):
        layer = f"encoder.layer.{number}."
        weights.put(mixer.inner.conv, f"{layer}attention.self.conv")
        hf.put_layer(mixer, mlp, weights, layer, mixer.inner)
    assert not weights


@pytest.mark.parametrize(("n", "landmarks"), [(16, 4), (8, 8)])
def test_nystromformer_with_their_weights(n, landmarks, tmp_path):
    # One head and one sample: transformers starts its iteration from the largest column sum of all heads and samples.
    mixer = {"kind": "nystrom", "heads": 1, "landmarks": landmarks, "conv": 5}
    ours = hf.ours_of(hf.text_spec(mixer, n, n + 2, hidden=20), tmp_path, dtype="float64")
    theirs = hf.theirs_of_text(
        "NystromformerModel", num_attention_heads=1, intermediate_size=20, max_position_embeddings=n,
        num_landmarks=landmarks, segment_means_seq_len=n, conv_kernel_size=5, hidden_act="gelu",
    )  # fmt: skip
    hf.compare(theirs, ours, nystrom_copied, hf.last_state, tolerance=1e-9)


# Memory-compressed attention ──────────────────────────────────────────────────────────────────────────────────────────


def test_the_public_package_s_figures():
    # memory-compressed-attention 0.0.7, MemoryCompressedAttention(512, heads=8, causal=True) on 1024 tokens:
    # 1,148,928 parameters and 1,500,643,328 MACs (torch's counter). Its Q, K and V have no bias, its output has one.
    # 4·N·D² + 2·⌈N/3⌉·3·D²/8 + 2·N·(⌈N/3⌉ + 1)·D: 1,073,741,824 + 67,239,936 + 359,661,568.
    component = Compressed(heads=8, groups=8, causal=True)
    assert total(component, at(1024, dim=512), "params") - 3 * 512 == 1_148_928
    assert total(component, at(1024, dim=512), "macs") == 1_500_643_328


# Synthetic attention ──────────────────────────────────────────────────────────────────────────────────────────────────


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
    rows = {row.path: row.params for row in component_rows(component, at(12))}
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
