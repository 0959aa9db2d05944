"""Inputs of any form, and what a module runs on: `meta`, fake or real tensors."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import xfcost
from any_models import TOKENS, Cache, Model, Pair, Takes, X
from modules import Call
from xfcost.ledger.errors import UsageError
from xfcost.torch_models.any_model.ledger import module_ledger
from xfcost.torch_models.any_model.run import run_on


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(
    ("inputs", "keywords", "pick"),
    [
        (X, None, lambda x: x),
        ((X,), None, lambda x: x),
        ([X, 3], None, lambda x, number: x),
        ({"x": X}, None, lambda x: x),
        ((X,), {"flag": True, "mask": None}, lambda x, flag, mask: x),
        (({"deep": [(1, X)]},), None, lambda nested: nested["deep"][0][1]),
        (Pair(X), None, lambda pair: pair.left),
        ((None, X), None, lambda nothing, x: x),
        (nn.Parameter(X), None, lambda x: x),
        ((X * nn.Parameter(torch.ones(8)),), None, lambda x: x),  # a tensor with a history
    ],
    ids=["tensor", "tuple", "list", "dictionary", "both", "nested", "dataclass", "none", "parameter", "not a leaf"],
)
def test_inputs_of_any_form(inputs, keywords, pick, device):
    ledger = xfcost.analyze(Takes(pick).to(device), example_inputs=inputs, example_kwargs=keywords)
    assert ledger.total("macs") == 3 * 64
    assert ledger.module.traced == "agrees"


def test_a_cache_among_the_inputs_is_left_as_it_was():
    cache = Cache()
    ledger = module_ledger(Takes(lambda x, cache: cache.append(x)), (X, cache))
    assert ledger.total("macs") == (2 + 3) * 64
    assert (cache.keys.shape, cache.keys.is_meta) == ((2, 8), False)


def test_inputs_are_left_as_they_were():
    given = torch.ones(3, 8)
    run_on("real", Call(lambda x: x.mul_(2)), (given,), {})
    module_ledger(Call(lambda x: x.mul_(2)), (given,))
    assert torch.equal(given, torch.ones(3, 8))


# What is run on ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("how", ["fake", "real"])
def test_every_way_counts_the_same(how):
    first, other = (run_on(way, Model(), (TOKENS,), {}).works for way in ("meta", how))
    assert [(work.path, work.operation, work.costs) for work in first] == [
        (work.path, work.operation, work.costs) for work in other
    ]


def test_the_fast_path_of_an_encoder_is_off_on_real_tensors_too():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2).eval()
    on_meta, on_real = (run_on(how, encoder, (torch.ones(2, 5, 8),), {}).works for how in ("meta", "real"))
    macs = [sum(work.costs["macs"] for work in works) for works in (on_meta, on_real)]
    # 10 tokens of 4·d² + 2·d·f, and d per pair for QKᵀ and AV
    assert macs == [2 * 10 * (4 * 64 + 2 * 128 + 2 * 5 * 8)] * 2


def test_code_that_looks_at_values_runs_on_real_tensors_and_says_so():
    ledger = module_ledger(Takes(lambda x: x[x.sum(-1) > 28]), (torch.arange(24.0).reshape(3, 8),))
    # rows 1 and 2 are chosen
    assert (ledger.total("macs"), ledger.module.tensors) == (2 * 64, "real")
    assert "nonzero" in ledger.module.reason or "index" in ledger.module.reason


def test_a_tensor_of_another_device_runs_on_fake_tensors():
    ledger = module_ledger(Takes(lambda x: x + torch.ones(8)), (X,))
    assert (ledger.total("macs"), ledger.module.tensors) == (192, "fake")


def test_values_are_refused_on_meta():
    model = Takes(lambda x: x[x.sum(-1) > 28]).to("meta")
    with pytest.raises(UsageError, match=r"Takes does not run on these inputs: .*needs real ones"):
        module_ledger(model, (X.to("meta"),))
