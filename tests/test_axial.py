"""Attention along axes and by stride: patterns, orders of layers, pixels one after the other."""

from functools import partial

import pytest
import torch

import places
from cases.base import DIM, VOLUME, Case
from compared import given, referred
from contract import example, joined, make
from modules import Module
from places import at, rows_of, total
from specs import architecture_of, counted
from strategies import place_for
from whole_probe import probe
from xfcost.formulas.component import Place
from xfcost.layers.stems import Fold
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.sparse import Sparse
from xfcost.mechanisms.window import Axial
from xfcost.torch_models.build import build
from xfcost.torch_models.program import ProgramModule

# `--kind` of one of these selects this file
KINDS = ("axial", "sparse")


# Axial attention ──────────────────────────────────────────────────────────────────────────────────────────────────────

axial_at = partial(places.at, dim=DIM)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("fused", [False, True])
def test_attention_along_depth(causal, fused):
    component = Axial(axis="depth", heads=2, causal=causal)
    case = Case(component, place_for(component, VOLUME, fused=fused))
    module, inputs = make(case), example(case.place, 2)
    torch.testing.assert_close(module(*inputs), referred(case, given(module), *inputs), rtol=1e-11, atol=1e-12)
    seen = probe(module, inputs)
    assert seen.reads == tuple(frozenset(component.reads(VOLUME, token)) for token in range(24))
    assert seen.pairs == component.pairs(VOLUME)
    assert joined(component, case.place, 2, "none").agreement.exact


def test_the_public_image_transformer_s_attention_layers():
    # axial-attention 0.6.1, AxialImageTransformer(dim=128, depth=4, heads=8) on 32×32: 9,971,712 parameters,
    # 10,267,656,192 MACs. Of each of its 4·2 layers, the feed-forward is two 3×3 convolutions 128 -> 512 -> 128 under
    # a norm; the attention has a norm, and of its projections the last alone has a bias.
    forward_params = 2 * 128 + 2 * (128 * 512 * 9) + 512 + 128
    forward_macs = 1024 * 2 * (128 * 512 * 9)
    theirs = (9_971_712 - 8 * forward_params, 10_267_656_192 - 8 * forward_macs)
    spot = Place(grid=Grid((32, 32)), dim=128, out_dim=128)
    components = [Axial(axis=axis, heads=8, projection_bias=False) for axis in ("row", "column")]
    params = sum(total(component, spot, "params") + 2 * 128 + 128 for component in components)
    assert (4 * params, 4 * sum(total(component, spot, "macs") for component in components)) == theirs


@pytest.mark.parametrize("power", range(7, 17))
def test_every_power_of_two_folds_to_at_most_two_to_one(power):
    n = 2**power
    fold = Fold()
    fold.check(axial_at(n))
    height, width = fold.out(axial_at(n))[0].sides
    assert (height * width, height) == (n, 2 ** (power // 2))
    ledger = counted("common-axial", tokens=(n,))
    # 6 blocks along rows, 6 along columns.
    scores = sum(row.times * row.macs for row in ledger.rows if row.operation == "scores")
    assert scores == 6 * n * (height + width) * 768


# The autoregressive Axial Transformer ─────────────────────────────────────────────────────────────────────────────────

# Ho et al. 2019, §4.2 and figure 3, on 3×4 pixels of one width: the outer decoder reads rows whole and columns upwards,
# its output goes down by a row; the inner one reads the pixels, shifted right, to the left in their row.
TWO_STAGES = """\
name: small axial transformer
input: {kind: image, size: [3, 4], channels: 6}
encoder:
  embed: [{kind: patch, size: 1}, {kind: axis_position, share: places}]
  stages:
    - dim: 6
      depth: 2
      pattern:
        - [{kind: axial, axis: row, heads: 2}, {kind: mlp, ratio: 1}]
        - [{kind: axial, axis: column, heads: 2, causal: true}, {kind: mlp, ratio: 1}]
decoder:
  embed: [{kind: patch, size: 1}, SHIFT_RIGHT, {kind: axis_position, share: places}]
  stages:
    - dim: 6
      blocks:
        - [CONTEXT]
        - {repeat: 2, blocks: [[{kind: axial, axis: row, heads: 2}, {kind: mlp, ratio: 1}]]}
"""
RIGHT, CONTEXT = "{kind: shift, axis: row}", "{kind: context, shift: column}"


@pytest.mark.parametrize(
    ("right", "context", "read"),
    [
        # in raster order, as Π p(x_i | x_1 … x_{i-1}) wants it: all rows above through the outer decoder, the row's own
        # pixels left of it through the inner one
        (RIGHT, CONTEXT, lambda pixel: pixel),
        ("", CONTEXT, lambda pixel: pixel + 1),
        (RIGHT, "{kind: context}", lambda pixel: (pixel // 4 + 1) * 4),
    ],
    ids=["both shifts", "without the shift right", "without the shift down"],
)
def test_a_pixel_reads_exactly_the_pixels_before_it(right, context, read, tmp_path):
    file = tmp_path / "axial.yaml"
    file.write_text(TWO_STAGES.replace("SHIFT_RIGHT, ", f"{right}, " if right else "").replace("CONTEXT", context))
    streams = build(architecture_of(str(file)), "cpu").model
    model = Module(lambda self, image: self.streams(image, image), streams=streams)
    seen = probe(model, (torch.zeros(1, 6, 3, 4),), tokens=(2, 3), out_tokens=(1,))
    assert seen.reads == tuple(frozenset(range(read(pixel))) for pixel in range(12))


def test_the_two_decoders_of_the_imagenet_model_are_the_paper_s():
    ledger = counted("axial-transformer-imagenet64")
    scores = [row for row in ledger.rows if row.operation == "scores"]
    # 4 rows and 4 masked columns outside, 1 + 7 masked rows inside; a line of 64 everywhere.
    assert [(row.times, row.reads_tokens) for row in scores] == [(4, 64), (4, 64), (1, 64), (7, 64)]
    full, causal = 4096 * 64, 4096 * 65 // 2
    assert [row.pairs for row in scores] == [full, causal, causal, causal]
    assert ledger.metadata.tokens == "encoder 4,096 (64×64) + decoder 4,096 (64×64)"


# Sparse Transformer's patterns ────────────────────────────────────────────────────────────────────────────────────────


def strided(stride, integration="merged", *, causal=True, **more):
    return Sparse(heads=2, pattern="strided", stride=stride, integration=integration, causal=causal, **more)


def fixed(stride, summary, integration="merged", *, causal=True):
    return Sparse(heads=2, pattern="fixed", stride=stride, summary=summary, integration=integration, causal=causal)


def listed(component, n, *tokens):
    return [sorted(component.reads(Grid((n,)), token)) for token in tokens]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("integration", ["local", "long", "merged"])
def test_every_small_pattern_has_as_many_pairs_as_its_closed_form(integration, *, causal):
    """Every stride up to 5, every number of cells, every length up to four blocks: rests with several cells too."""
    for stride in range(1, 6):
        summaries = [fixed(stride, cells, integration, causal=causal) for cells in range(1, stride + 1)]
        for component in (strided(stride, integration, causal=causal), *summaries):
            for n in range(1, 4 * stride + 1):
                assert sum(map(len, listed(component, n, *range(n)))) == component.pairs(Grid((n,))), (component, n)


@pytest.mark.parametrize("n", [1, 7, 64, 129, 1000])
@pytest.mark.parametrize("stride", [1, 3, 8])
def test_the_paper_s_sums(n, stride):
    """Σ over tokens, from the paper's set-builder lines word for word."""
    for i in (0, n // 2, n - 1):
        local = {j for j in range(i + 1) if j >= max(0, i - stride)}
        jumps = {j for j in range(i + 1) if (i - j) % stride == 0}
        assert set(strided(stride).reads(Grid((n,)), i)) == local | jumps
        block = {j for j in range(i + 1) if j // stride == i // stride}
        cells = {j for j in range(i + 1) if j % stride in range(stride - 1, stride + 1)}
        assert set(fixed(stride, 1).reads(Grid((n,)), i)) == block | cells


def test_the_enwik8_model_reads_a_quarter_of_what_dense_attention_does():
    # N = 12288 = 96·128, c = 32. A⁽¹⁾ N·129/2; A⁽²⁾ 32·N·95/2 + 96·32·33/2; both: the cells of a block, 96·32·33/2.
    n, component = 12288, fixed(128, 32)
    assert component.local_pairs(n) == n * 129 // 2
    assert component.long_pairs(n) == 32 * n * 95 // 2 + 96 * 528
    assert component.overlap(n) == 96 * 528
    assert component.pairs(Grid((n,))) == 19_470_336
    assert component.pairs(Grid((n,))) / (n * (n + 1) // 2) == pytest.approx(0.258, abs=5e-4)
    # What runs is dense: N·128 in the blocks and N·96·32 against all cells, which causality halves only on paper.
    rows = rows_of(component, at(n))
    assert [rows[path].attention_entries for path in ("local_scores", "long_scores")] == [2 * n * 128, 2 * n * 96 * 32]


@pytest.mark.parametrize("fused", [False, True])
def test_a_token_before_the_first_cell_reads_nothing_and_leaves_no_nan(*, fused):
    module = ProgramModule(fixed(4, 1, "long"), at(10, fused=fused))
    x = torch.randn(2, 10, 6, requires_grad=True)
    y = module(x)
    torch.testing.assert_close(y[:, :3], module.out.bias.expand(2, 3, 6))
    y.sum().backward()
    assert x.grad.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in module.parameters())
