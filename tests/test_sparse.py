"""Sparse Transformer's patterns: the paper's figures, its two orders of factors, what is refused and told."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from places import at
from refused import refusals
from whole_probe import probe
from xfcost.formulas.component import Place
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.sparse import Sparse
from xfcost.torch_models.modules import MODULES


def strided(stride: int, integration: str = "merged", *, causal: bool = True, **more: int) -> Sparse:
    return Sparse(heads=2, pattern="strided", stride=stride, integration=integration, causal=causal, **more)


def fixed(stride: int, summary: int, integration: str = "merged", *, causal: bool = True) -> Sparse:
    return Sparse(heads=2, pattern="fixed", stride=stride, summary=summary, integration=integration, causal=causal)


def listed(component: Sparse, n: int, *tokens: int) -> list[list[int]]:
    return [sorted(component.reads(Grid((n,)), token)) for token in tokens]


def figure(component: Sparse, n: int, quantity: str, *rows: str, dim: int = 6) -> int:
    return sum(getattr(row, quantity) for row in component.operations(at(n, dim=dim)) if row.path in rows)


# Patterns ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("integration", ["local", "long", "merged"])
def test_every_small_pattern_has_as_many_pairs_as_its_closed_form(integration: str, *, causal: bool) -> None:
    """Every stride up to 5, every number of cells, every length up to four blocks: rests with several cells too."""
    for stride in range(1, 6):
        summaries = [fixed(stride, cells, integration, causal=causal) for cells in range(1, stride + 1)]
        for component in (strided(stride, integration, causal=causal), *summaries):
            for n in range(1, 4 * stride + 1):
                assert sum(map(len, listed(component, n, *range(n)))) == component.pairs(Grid((n,))), (component, n)


@pytest.mark.parametrize("n", [1, 7, 64, 129, 1000])
@pytest.mark.parametrize("stride", [1, 3, 8])
def test_the_paper_s_sums(n: int, stride: int) -> None:
    """Σ over tokens, from the paper's set-builder lines word for word."""
    for i in (0, n // 2, n - 1):
        local = {j for j in range(i + 1) if j >= max(0, i - stride)}
        jumps = {j for j in range(i + 1) if (i - j) % stride == 0}
        assert set(strided(stride).reads(Grid((n,)), i)) == local | jumps
        block = {j for j in range(i + 1) if j // stride == i // stride}
        cells = {j for j in range(i + 1) if j % stride in range(stride - 1, stride + 1)}
        assert set(fixed(stride, 1).reads(Grid((n,)), i)) == block | cells


def test_the_enwik8_model_reads_a_quarter_of_what_dense_attention_does() -> None:
    # N = 12288 = 96·128, c = 32. A⁽¹⁾ N·129/2; A⁽²⁾ 32·N·95/2 + 96·32·33/2; both: the cells of a block, 96·32·33/2.
    n, component = 12288, fixed(128, 32)
    assert component.local_pairs(n) == n * 129 // 2
    assert component.long_pairs(n) == 32 * n * 95 // 2 + 96 * 528
    assert component.overlap(n) == 96 * 528
    assert component.pairs(Grid((n,))) == 19_470_336
    assert component.pairs(Grid((n,))) / (n * (n + 1) // 2) == pytest.approx(0.258, abs=5e-4)
    # What runs is dense: N·128 in the blocks and N·96·32 against all cells, which causality halves only on paper.
    assert figure(component, n, "attention_entries", "local_scores", "long_scores") == 2 * n * (128 + 96 * 32)


# Reach ───────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Layers(nn.Module):
    """One layer per component, each with its shortcut."""

    def __init__(self, n: int, *components: Sparse) -> None:
        super().__init__()
        self.layers = nn.ModuleList(MODULES[Sparse](component, at(n)) for component in components)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x


def reaches_everything(n: int, *components: Sparse) -> bool:
    """Does every token depend on all tokens up to itself?"""
    seen = probe(Layers(n, *components), (torch.zeros(1, n, 6),)).reads
    return all(reads == frozenset(range(token + 1)) for token, reads in enumerate(seen))


def test_block_then_summary_reaches_everything_in_two_layers_the_other_way_in_three() -> None:
    block, summary = fixed(4, 1, "local"), fixed(4, 1, "long")
    assert reaches_everything(16, block, summary)
    assert not reaches_everything(16, summary, block)
    assert reaches_everything(16, summary, block, summary)
    assert not reaches_everything(16, block, block, block)


def test_strided_layers_reach_everything_in_two_whichever_comes_first() -> None:
    local, jumps = strided(4, "local"), strided(4, "long")
    assert reaches_everything(16, local, jumps)
    assert reaches_everything(16, jumps, local)
    assert not reaches_everything(16, jumps, jumps, jumps)
    assert reaches_everything(16, strided(4), strided(4))


def test_merged_and_split_heads_reach_everything_in_two_layers() -> None:
    assert not reaches_everything(16, fixed(4, 1))
    assert reaches_everything(16, fixed(4, 1), fixed(4, 1))
    assert reaches_everything(16, fixed(4, 1, "heads"), fixed(4, 1, "heads"))


@pytest.mark.parametrize("integration", ["local", "long", "merged", "heads"])
@pytest.mark.parametrize("summary", [None, 2])
def test_on_meta_the_masks_are_shapes_alone(integration: str, summary: int | None) -> None:
    # 2⁴⁰ tokens in blocks of 2²⁰: their positions alone would be 8 TB.
    pattern = "strided" if summary is None else "fixed"
    component = Sparse(heads=2, pattern=pattern, stride=2**20, summary=summary, integration=integration, causal=True)
    with torch.device("meta"):
        module = MODULES[Sparse](component, Place(grid=Grid((2**40 - 5,)), dim=2, out_dim=2))
    assert len(list(module.buffers())) >= 3
    assert all(buffer.is_meta for buffer in module.buffers())


@pytest.mark.parametrize("fused", [False, True])
def test_a_token_before_the_first_cell_reads_nothing_and_leaves_no_nan(*, fused: bool) -> None:
    module = MODULES[Sparse](fixed(4, 1, "long"), at(10, fused=fused))
    x = torch.randn(2, 10, 6, requires_grad=True)
    y = module(x)
    torch.testing.assert_close(y[:, :3], module.out.bias.expand(2, 3, 6))
    y.sum().backward()
    assert x.grad.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in module.parameters())


# Refused, told ───────────────────────────────────────────────────────────────────────────────────────────────────────


test_what_can_not_be_is_refused = refusals(
    [
        (Sparse(heads=1, pattern="strided", stride=4, summary=1), "summary", "strided pattern has no summary cells"),
        (Sparse(heads=1, pattern="fixed", stride=4), "summary", "needs the number of summary cells"),
        (Sparse(heads=1, pattern="fixed", stride=4, summary=5), "summary", "5 cells do not fit a block of 4"),
        (Sparse(heads=3, pattern="strided", stride=4, integration="heads"), "heads", "3 is odd"),
    ],
    at(8),
)


def test_what_a_reader_must_know_is_told() -> None:
    (grows,) = strided(128, "long").notes(at(4096))
    assert "here about 64" in grows
    assert "at a stride of 128, whatever N, the long factor is N²/128" in grows
    assert list(strided(4, "local").notes(at(8))) == []
    padded, cells, fused, both = fixed(4, 2, causal=False).notes(at(9, fused=True))
    assert padded.startswith("9 tokens padded to whole blocks of 4: 3 positions more")
    assert "2 summary cells of a block 2 times it" in cells
    assert "it runs eager, and is counted so" in fused
    assert "tokens on both sides" in both
