"""Sinkhorn attention: what is sorted and how, its orders, and the public implementation's figures."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor

import places
from specs import counted
from xfcost.formulas.component import Place
from xfcost.ledger.errors import ComponentError
from xfcost.mechanisms.sinkhorn import Sinkhorn
from xfcost.torch_models.mechanisms.sinkhorn import SinkhornAttention

at = partial(places.at, dim=8)


def torch_module(component: Sinkhorn, spot: Place) -> SinkhornAttention:
    torch.manual_seed(0)
    return SinkhornAttention(component, spot).double().eval()


def tokens(n: int, dim: int = 8) -> Tensor:
    return torch.randn(1, n, dim, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_sortcut_is_never_causal() -> None:
    with pytest.raises(ComponentError, match="later ones too; write causal: false") as refused:
        Sinkhorn(heads=2, sortcut=2, causal=True).check(at(12))
    assert refused.value.field == "sortcut"


def test_noise_belongs_to_training_alone() -> None:
    module = torch_module(Sinkhorn(heads=2, block=4), at(12))
    assert torch.equal(module(tokens(12)), module(tokens(12)))
    module.train()
    assert not torch.equal(module(tokens(12)), module(tokens(12)))


def test_notes() -> None:
    free, cut = Sinkhorn(heads=2, block=64), Sinkhorn(heads=2, block=64, sortcut=2)
    assert list(free.notes(at(4096))) == ["sorting 64 blocks softly costs N²·d/b; N√N needs b = √N, here 64"]
    assert "100 tokens padded to 128, whole blocks of 64" in next(free.notes(at(100)))
    assert list(cut.notes(at(4096))) == ["2 of 64 sorted blocks are read; scoring blocks stays N²·d/b²"]
    assert any("rows of the sorting" in note for note in Sinkhorn(heads=2, causal=True).notes(at(64)))


def test_the_layers_of_the_public_implementation() -> None:
    """sinkhorn-transformer 0.11.4, 6 layers of d = 512, h = 8, b = 128 at 2048 tokens: 16 blocks.

    63,049,564,160 MACs by torch's FlopCounterMode: 6 feed-forward networks of 4,294,967,296, the head's 20,971,520,000,
    and in every attention 4·2048·512² of projections, 16²·512 of the sort network, 2·16²·128·512 of reordering,
    2·2048·256·512 of attention.
    """
    ledger = counted("sinkhorn-lm")
    macs = {row.operation: row.macs for row in ledger.rows if ".block.0." in row.path}
    assert macs["qkv"] + macs["out"] == 2_147_483_648
    assert macs["sort_scores"] == 131_072
    assert macs["reorder"] == 33_554_432
    assert macs["scores"] + macs["weighted_sum"] == 536_870_912
    assert ledger.total("macs") == 6 * (4_294_967_296 + sum(macs.values())) + 20_971_520_000 == 63_049_564_160
    # its positions, learned per block and per place in it, and W_O's biases are not in the spec
    assert ledger.total("params") == 39_479_840 - (16 + 128) * 512 - 6 * 512
