"""Routing attention: its clusters, its options, its fallbacks, and what makes its order."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import places
from places import rows_of
from specs import counted
from xfcost.formulas.component import Place
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.routing import Routing
from xfcost.torch_models.mechanisms.routing import DECAY, RoutingAttention

at = partial(places.at, dim=8)


def torch_module(component: Routing, spot: Place) -> RoutingAttention:
    torch.manual_seed(0)
    return RoutingAttention(component, spot).double().eval()


def tokens(n: int, dim: int = 8, batch: int = 1) -> Tensor:
    return torch.randn(batch, n, dim, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({}, (10, 10)),  # ⌊√100⌋
        ({"window": 16}, (7, 16)),  # ⌈100/16⌉
        ({"clusters": 7}, (7, 15)),  # ⌈100/7⌉
        ({"clusters": 7, "window": 4}, (7, 4)),
        ({"window": 200}, (1, 100)),
        ({"clusters": 200}, (200, 1)),
    ],
)
def test_clusters_and_their_windows(options: dict[str, int], sizes: tuple[int, int]) -> None:
    assert Routing(heads=2, **options).sizes(Grid((100,)))[:2] == sizes


@pytest.mark.parametrize(
    ("options", "field", "message"),
    [
        ({"local_heads": 2, "window": 4}, "local_heads", "2 of 2 heads are local, and none is left to route"),
        ({"local_heads": 1}, "local_heads", "give `local_window`"),
        ({"causal": True}, "causal", "write causal: approximate"),
    ],
)
def test_what_can_not_be_is_refused(options: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(ComponentError, match=message) as refused:
        Routing(heads=2, **options).check(at(16))
    assert refused.value.field == field


@pytest.mark.parametrize("shared", [False, True])
def test_centroids_move_in_training_alone_and_are_no_parameters(*, shared: bool) -> None:
    module = torch_module(Routing(heads=1, clusters=2, shared_qk=shared), at(6))
    before = module.distances.centroids_HCK.clone()
    module(tokens(6))
    assert torch.equal(module.distances.centroids_HCK, before)
    module.train()
    module(tokens(6)).sum().backward()
    members: dict[int, Tensor] = {0: torch.zeros(8).double(), 1: torch.zeros(8).double()}
    sides = module.qv(tokens(6)).chunk(2, -1)[:1] if shared else module.qkv(tokens(6)).chunk(3, -1)[:2]
    for vector in F.normalize(torch.cat(sides, dim=1)[0], dim=-1):
        members[int((before[0] @ vector).argmax())] += vector
    for cluster, mean in members.items():
        expected = (
            before[0, cluster] if not mean.any() else DECAY * before[0, cluster] + (1 - DECAY) * mean / mean.norm()
        )
        torch.testing.assert_close(module.distances.centroids_HCK[0, cluster], expected, rtol=1e-12, atol=1e-12)
    assert not any("centroids" in name for name, _ in module.named_parameters())


def test_memory_keys_stand_per_cluster() -> None:
    # Causal and not shared: 4 clusters, 2 heads of 4, one key and one value each; more tokens, more clusters.
    component = Routing(heads=2, causal="approximate")
    assert [rows_of(component, at(n))["memory_keys"].params for n in (16, 64)] == [2 * 4 * 4, 2 * 8 * 4]
    assert any("1 memory key(s)" in note for note in component.notes(at(16)))
    assert rows_of(component, at(16))["scores"].attention_entries == 2 * 4 * 4 * 5


def test_notes_tell_where_the_order_in_print_fails() -> None:
    notes = [" ".join(Routing(heads=2, **sizes).notes(at(1024))) for sizes in ({}, {"window": 64}, {"clusters": 16})]
    assert "N√N needs" not in notes[0]
    assert "the distances cost N²·d/w; N√N needs w = √N, here 32" in notes[1]
    assert "attention costs N²·d/k; N√N needs k = √N, here 32" in notes[2]
    padded = Routing(heads=2, local_heads=1, local_window=100)
    assert any("pad 1024 tokens to 1100" in note for note in padded.notes(at(1024)))


def test_the_layers_of_the_public_implementation() -> None:
    """routing-transformer 1.6.1, 6 layers of d = 512, h = 8 (4 local), w = 128 at 2048 tokens, shared and causal.

    MACs of its parts, counted by torch's FlopCounterMode: local projections 805,306,368; queries and values 268,435,456
    each; W_O 536,870,912; local attention 268,435,456; distances 8,388,608; clusters 134,217,728.
    """
    ledger = counted("routing-lm")
    (macs,) = [{row.operation: row.macs for row in ledger.rows if ".block.0." in row.path}]
    assert macs["local_qkv"] == 805_306_368
    assert macs["qv"] == 2 * 268_435_456
    assert macs["out"] == 536_870_912
    assert macs["local_scores"] + macs["local_weighted_sum"] == 268_435_456
    assert macs["distances"] == 8_388_608
    assert macs["scores"] + macs["weighted_sum"] == 134_217_728
