"""Memory-compressed attention: its blocks by hand, the public package's figures, what a survey's table says of it."""

from __future__ import annotations

import pytest
import torch

from cases.base import Case
from strategies import place_for
from test_every_mechanism import example, make
from whole_probe import probe
from xfcost.counting.forward import count
from xfcost.formulas.component import Place
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.compressed import Compressed
from xfcost.mechanisms.full import Full
from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.spec.run import Run


def at(tokens: int, dim: int = 6) -> Place:
    return Place(grid=Grid((tokens,)), dim=dim, out_dim=dim)


def rows(component: Compressed, spot: Place) -> dict:
    return {row.path: row for row in component.operations(spot)}


def total(component: Compressed | Full, spot: Place, quantity: str) -> int:
    return sum(getattr(row, quantity) for row in component.operations(spot))


# Blocks ------------------------------------------------------------------------------------------------------------


def test_blocks_by_hand():
    # 7 tokens, blocks of 3 that end at 0, 3 and 6: two zeros stand before the first token.
    component, grid = Compressed(heads=1, causal=True), Grid((7,))
    assert (component.compressed_keys(grid), component.padding(grid), component.first_end(grid)) == (3, 2, 0)
    # A token reads up to the last end, and weighs it by its own query.
    listed = [list(component.reads(grid, token)) for token in range(7)]
    assert listed == [[0], [0, 1], [0, 2], [0, 1, 2, 3], [0, 1, 2, 3, 4], [0, 1, 2, 3, 5], [0, 1, 2, 3, 4, 5, 6]]
    assert component.pairs(grid) == 1 + 2 + 2 + 4 + 5 + 5 + 7
    # With compressed keys: 1, 1, 1, 2, 2, 2 and 3, and the null key 7 times.
    assert component.scored(grid) == 12 + 7


def test_the_first_tokens_read_the_null_key_alone():
    # 6 tokens: the first block ends at token 2, and nothing that 0 and 1 could read ends before.
    component, grid = Compressed(heads=2, causal=True), Grid((6,))
    assert [len(component.reads(grid, token)) for token in range(6)] == [0, 0, 3, 4, 4, 6]
    case = Case(component, place_for(component, grid))
    module, inputs = make(case), example(case.place, 1)
    torch.nn.init.normal_(module.null.weight)
    expected = module.out(module.null.weight[1])[0]
    torch.testing.assert_close(module(*inputs)[0, 0], expected)
    torch.testing.assert_close(module(*inputs)[0, 1], expected)
    assert list(component.notes(case.place)) == [
        "the first block ends at token 2, counted from 0: the tokens before it read the null key alone"
    ]
    assert list(component.notes(at(7))) == ["keys and values of the 7 tokens are padded by 2 at the front, and counted"]


def test_a_longer_kernel_overlaps_its_neighbours():
    # Kernel 5, stride 2 on 6 tokens: blocks end at 1, 3, 5 and begin three tokens before the one before's end.
    component, grid = Compressed(heads=2, compression=2, kernel=5, null_key=False), Grid((6,))
    assert (component.compressed_keys(grid), component.padding(grid)) == (3, 3)
    module = make(Case(component, place_for(component, grid)))
    compress = probe(
        torch.nn.Sequential(module.pad, module.compress), (torch.zeros(1, 2, 6, 6),), tokens=(1, 2), out_tokens=(1, 2)
    )
    assert compress.reads[:3] == tuple(map(frozenset, ([0, 1], [0, 1, 2, 3], [1, 2, 3, 4, 5])))  # the keys'
    assert compress.reads[3:] == tuple(frozenset(6 + token for token in tokens) for tokens in compress.reads[:3])


@pytest.mark.parametrize(("function", "expected"), [("mean", [1 / 3, 3.0, 6.0]), ("max", [1.0, 4.0, 7.0])])
def test_pools_by_hand(function, expected):
    # 1 … 7 in blocks that end at 1, 4 and 7: zeros count for the mean, and are no maximum.
    component = Compressed(heads=1, function=function)
    module = make(Case(component, at(7, dim=1)))
    numbers = torch.arange(1.0, 8.0).double().reshape(1, 1, 7, 1).expand(1, 2, 7, 1)
    assert module.compress(module.pad(numbers))[0, 0, :, 0].tolist() == pytest.approx(expected)
    negative = module.compress(module.pad(-numbers))[0, 0, :, 0].tolist()
    assert negative[0] == pytest.approx(-expected[0])  # -1 is the greatest there, and no zero


# Costs -------------------------------------------------------------------------------------------------------------


def test_the_public_package_s_figures():
    # memory-compressed-attention 0.0.7, MemoryCompressedAttention(512, heads=8, causal=True) on 1024 tokens:
    # 1,148,928 parameters and 1,500,643,328 MACs (torch's counter). Its Q, K and V have no bias, its output has one.
    # 4·N·D² + 2·⌈N/3⌉·3·D²/8 + 2·N·(⌈N/3⌉ + 1)·D: 1,073,741,824 + 67,239,936 + 359,661,568.
    component = Compressed(heads=8, groups=8, causal=True)
    assert total(component, at(1024, 512), "params") - 3 * 512 == 1_148_928
    assert total(component, at(1024, 512), "macs") == 1_500_643_328


def test_rows_by_hand():
    # 7 tokens of width 6, 2 heads; blocks of 3 tokens: 3 compressed keys, 2 zeros before the tokens.
    found = rows(Compressed(heads=2, causal=True), at(7))
    assert found["pad"].moved == 2 * 9 * 6
    # The same 3·6·6 weights for keys and for values.
    assert (found["compress"].params, found["compress"].macs) == (3 * 36 + 6, 2 * 3 * 3 * 36)
    assert found["compress"].flops == 2 * 648 + 2 * 3 * 6
    assert (found["null"].params, found["null"].moved) == (12, 2 * 4 * 6)
    assert (found["compressed_scores"].macs, found["compressed_scores"].attention_entries) == (7 * 4 * 6, 2 * 7 * 4)
    assert (found["compress"].mixing, found["compress"].content_dependent) == ("local", False)
    assert (found["compressed_scores"].mixing, found["compressed_scores"].reads_tokens) == ("global", 4)
    pooled = rows(Compressed(heads=2, function="max", null_key=False), at(6))["compress"]
    assert (pooled.comparisons, pooled.params, pooled.content_dependent) == (2 * 2 * 3 * 6, 0, True)


def test_queries_are_not_compressed():
    # The survey's table has N_c² for it, its text N·N/c: three times fewer scores than full attention's, not nine.
    full, component, spot = Full(heads=1), Compressed(heads=1, null_key=False), at(3 * 2**12)
    assert total(full, spot, "attention_entries") == 3 * total(component, spot, "attention_entries")


@pytest.mark.parametrize("power", range(7, 17))
def test_every_power_of_two_in_the_common_family(power):
    n = 2**power
    ledger = count(place(load("common-compressed"), Run(tokens=(n,))))
    assert ledger.total("attention_entries") == 12 * 12 * n * ((n + 2) // 3 + 1)


# Options -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("component", "field", "text"),
    [
        (
            Compressed(heads=1, compression=4, kernel=3),
            "kernel",
            "3 tokens every 4 tokens leave tokens unread",
        ),
        (Compressed(heads=1, groups=4), "groups", "4 does not divide the 6 channels; it could be 1, 2, 3, 6"),
        (Compressed(heads=1, groups=2, function="mean"), "groups", "'mean' has no channel groups"),
        (Compressed(heads=1, causal=True, null_key=False), "null_key", "the first tokens read the null key alone"),
        (Compressed(heads=4), "heads", "4 does not divide the width 6"),
    ],
)
def test_options_that_can_not_be(component, field, text):
    with pytest.raises(ComponentError, match=text) as refused:
        component.check(at(7))
    assert refused.value.field == field
