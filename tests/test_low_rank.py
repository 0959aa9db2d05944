"""Low-rank attention: shared tables, what is static, the break-even, figures of public code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from places import at
from strategies import counted_spec, exact, placed
from xfcost.counting.forward import count
from xfcost.ledger.errors import ComponentError
from xfcost.mechanisms.full import Full
from xfcost.mechanisms.low_rank import LowRank
from xfcost.torch_models.accounts import reconciled
from xfcost.torch_models.build import build


def model(*blocks: dict[str, Any], length: int = 16, dim: int = 12) -> dict[str, Any]:
    return {
        "input": {"kind": "tokens", "vocabulary": 11, "length": length},
        "embed": [{"kind": "token"}],
        "stages": [{"dim": dim, "blocks": [[{"kind": "low_rank", **block}] for block in blocks]}],
    }


def test_layerwise_sharing_is_one_table_in_the_model(tmp_path: Path) -> None:
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


def test_tables_of_other_ranks_are_other_tables(tmp_path: Path) -> None:
    both = [{"heads": 2, "rank": rank, "share": "layerwise"} for rank in (4, 8)]
    assert (
        counted_spec(model(*both), tmp_path).total("params")
        == counted_spec(model(*both[:1] * 2), tmp_path).total("params") + 16 * 8
    )


def test_layerwise_numbers_are_those_of_one_shared_table(tmp_path: Path) -> None:
    live = build(placed(model({"heads": 1, "rank": 4, "share": "layerwise"}), tmp_path), "cpu")
    layer = live.model.get_submodule("streams.0.stages.0.run.0.0.inner").double()
    table = live.model.get_parameter("shared.projection_16x4.weight").double()
    layer.projection.shared_table[0].double()
    x = torch.randn(2, 16, 12, dtype=torch.float64)
    q, k, v = F.linear(x, layer.qkv.weight, layer.qkv.bias).chunk(3, dim=-1)
    weights = (q @ (table.T @ k).mT / 12**0.5).softmax(-1)
    plain = F.linear(weights @ (table.T @ v), layer.out.weight, layer.out.bias)
    torch.testing.assert_close(layer(x), plain, rtol=1e-11, atol=1e-12)


def test_a_rank_above_half_of_n_is_told_and_is_no_bargain() -> None:
    for n in (8, 9):
        mine, full = (
            sum(row.macs for row in component.operations(at(n)))
            for component in (LowRank(heads=2, rank=4), Full(heads=2))
        )
        assert (mine < full) == (n > 8)
        told = [note for note in LowRank(heads=2, rank=4).notes(at(n)) if "only where N exceeds 8" in note]
        assert bool(told) == (n <= 8)
    assert "one row per token (9)" in next(iter(LowRank(heads=2, rank=4).notes(at(9))))


def test_it_has_no_causal_form() -> None:
    with pytest.raises(
        ComponentError, match=r"'low_rank' has no causal form: every projected key and value"
    ) as refused:
        LowRank(heads=2, causal=True).check(at(10))
    assert refused.value.field == "causal"


def test_linformer_package(tmp_path: Path) -> None:
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
