"""Memory-compressed attention: its first tokens, the public package's figures, and options that can't be."""

from __future__ import annotations

import torch

from cases.base import Case
from contract import example, make
from places import at, total
from refused import refusals
from strategies import place_for
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.compressed import Compressed

# Blocks ------------------------------------------------------------------------------------------------------------


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


# Costs -------------------------------------------------------------------------------------------------------------


def test_the_public_package_s_figures():
    # memory-compressed-attention 0.0.7, MemoryCompressedAttention(512, heads=8, causal=True) on 1024 tokens:
    # 1,148,928 parameters and 1,500,643,328 MACs (torch's counter). Its Q, K and V have no bias, its output has one.
    # 4·N·D² + 2·⌈N/3⌉·3·D²/8 + 2·N·(⌈N/3⌉ + 1)·D: 1,073,741,824 + 67,239,936 + 359,661,568.
    component = Compressed(heads=8, groups=8, causal=True)
    assert total(component, at(1024, dim=512), "params") - 3 * 512 == 1_148_928
    assert total(component, at(1024, dim=512), "macs") == 1_500_643_328


# Options -----------------------------------------------------------------------------------------------------------


test_options_that_can_not_be = refusals(
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
    at(7),
)
