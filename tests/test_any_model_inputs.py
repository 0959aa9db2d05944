"""Inputs of any form, and what a module runs on: `meta`, fake or real tensors."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.flop_counter import flop_registry

import xfcost
from any_models import TOKENS, Cache, Model, Pair, Takes, X
from modules import Call
from xfcost.ledger.errors import UsageError
from xfcost.torch_models.any_model.ledger import module_ledger
from xfcost.torch_models.any_model.run import run_on


class Slotted:
    """An object without a dictionary of its attributes."""

    __slots__ = ("x",)

    def __init__(self, x: torch.Tensor) -> None:
        self.x = x


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
        (Slotted(X), None, lambda slotted: slotted.x),
        ((None, X), None, lambda nothing, x: x),
        (nn.Parameter(X), None, lambda x: x),
        ((X * nn.Parameter(torch.ones(8)),), None, lambda x: x),  # a tensor with a history
    ],
    ids=["tensor", "tuple", "list", "dict", "both", "nested", "dataclass", "slots", "none", "parameter", "not a leaf"],
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


def refusing_meta(x: torch.Tensor) -> torch.Tensor:
    if x.device.type not in ("cpu", "cuda"):
        raise ValueError(f"no kernel for {x.device.type}")
    return x


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_code_that_refuses_meta_runs_on_fake_tensors(device):
    ledger = module_ledger(Takes(refusing_meta).to(device), (X.to(device),))
    assert (ledger.total("macs"), ledger.module.tensors) == (192, "fake")
    assert "no kernel for meta" in ledger.module.reason


@pytest.mark.filterwarnings("ignore:flex_attention called without")
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_flex_attention_of_a_module_made_anywhere(device):
    def attended(x: torch.Tensor) -> torch.Tensor:
        heads = x.unflatten(-1, (2, 8)).transpose(1, 2)
        return flex_attention(heads, heads, heads).transpose(1, 2).flatten(2)

    model = nn.Sequential(nn.Linear(16, 16), Call(attended)).to(device)
    # a map of 2·32 tokens; QKᵀ and AV of 2 samples and 2 heads, 8 wide, where this version of torch has its costs
    counted = any("flex_attention" in str(operation) for operation in flop_registry)
    expected = 2 * 32 * 16 * 16 + counted * 2 * (2 * 2 * 32 * 32 * 8)
    assert module_ledger(model, (torch.zeros(2, 32, 16, device=device),)).total("macs") == expected


@pytest.mark.parametrize("around", ["inside", "outside", "decorator"])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_autocast_of_the_cpu_has_its_dtypes(device, around):
    cast = torch.autocast("cpu", dtype=torch.bfloat16)
    linear = nn.Linear(8, 8)

    def inside(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return linear(x)

    run = {"inside": inside, "outside": linear, "decorator": cast(linear.forward)}[around]
    model = Call(run)
    model.linear = linear
    with cast if around == "outside" else nullcontext():
        ledger = xfcost.analyze(model.to(device), example_inputs=X.to(device), mode="train", trace=False)
    # autograd saves the input of 3 tokens in bfloat16; it needs no gradient, so that no weights are saved
    assert (ledger.total("kept_bytes"), ledger.module.tensors) == (3 * 8 * 2, "fake")


def test_autocast_that_is_off_runs_on_meta():
    def run(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", enabled=False):
            return x

    assert module_ledger(Takes(run), (X,)).module.tensors == "meta"


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int16])
@pytest.mark.parametrize(
    "look_up",
    [nn.functional.embedding, lambda ids, table: table.index_select(0, ids)],
    ids=["embedding", "index_select"],
)
def test_indices_are_refused_as_on_the_cpu(look_up, dtype, device):
    table = torch.zeros(8, 8)
    ids = torch.zeros(5, dtype=dtype)
    with pytest.raises(
        RuntimeError, match=r"Long, Int; but got|index_select\(\): Expected dtype int32 or int64"
    ) as real:
        look_up(ids, table)
    with pytest.raises(UsageError) as found:
        module_ledger(Call(look_up), (ids.to(device), table.to(device)))
    start = str(real.value).partition("; but got")[0]
    assert f"does not run on these inputs: RuntimeError: {start}" in str(found.value)
