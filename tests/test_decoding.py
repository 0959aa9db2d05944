"""One token more, its past cached: what steps give, cost and keep, for every mechanism that has such a form."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor, nn

from cases import CASES
from cases.base import Case
from helpers import PLAIN
from modules import Holder
from strategies import cases, exact
from tiers import of_case, tiered
from xfcost.api.analysis import analyze
from xfcost.counting.forward import batched
from xfcost.formulas.component import Mixer, Place, tag_of
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.metadata import Metadata
from xfcost.ledger.operation import Operation
from xfcost.mechanisms import MECHANISMS
from xfcost.report.console import plain_text
from xfcost.report.table import report
from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.spec.run import Run
from xfcost.torch_models.accounts import reconciled
from xfcost.torch_models.build import build
from xfcost.torch_models.layers.context import ContextLayer, TokenOfMemory
from xfcost.torch_models.mechanisms.cross import CrossAttention
from xfcost.torch_models.modules import MODULES, optional_arguments
from xfcost.torch_models.shared.cache import MemoryCache, RecurrentState, set_position
from xfcost.torch_models.shared.leaves import Table
from xfcost.torch_models.shared.recurrent import Attending, RecurrentLayer

BATCH = 2


def decodes(component: Mixer, where: Place) -> bool:
    try:
        return bool(list(component.decoding(where)))
    except ComponentError:
        return False


def decodable() -> Iterator[Case]:
    """Every example that decodes, on sequences alone."""
    for case in cases():
        grid = case.place.grid
        if len(grid.sides) == 1 and not grid.special and decodes(case.component, case.place):
            yield case


every_step = pytest.mark.parametrize("case", tiered(decodable(), of_case), ids=str)


@pytest.mark.parametrize("mechanism", list(MECHANISMS.values()), ids=tag_of)
def test_a_module_takes_a_cache_exactly_where_an_example_decodes(mechanism: type[Mixer]) -> None:
    case = CASES[mechanism]
    expected = any(type(one.component) is mechanism for one in decodable())
    assert ("cache_batch" in optional_arguments(MODULES[mechanism])) == expected, case.component


def tables(case: Case) -> dict[str, dict[str, Table]]:
    """The argument `tables` of the case's module, if it takes one."""
    tables = {name: Table(*shape) for name, shape in case.component.tables(case.place).items()}
    return {"tables": tables} if "tables" in optional_arguments(MODULES[type(case.component)]) else {}


def both(case: Case, device: str = "cpu") -> tuple[nn.Module, nn.Module]:
    """The module of all tokens, and that of one token with a cache, with the same weights, in float64."""
    torch.manual_seed(0)
    with torch.device(device):
        shared = tables(case)
        make = MODULES[type(case.component)]
        whole = make(case.component, case.place, **shared).double().eval()
        step = make(case.component, case.place, **shared, cache_batch=BATCH).double().eval()
    step.load_state_dict(whole.state_dict())
    return whole.requires_grad_(requires_grad=False), step.requires_grad_(requires_grad=False)


def inputs(where: Place) -> tuple[Tensor, ...]:
    noise = torch.Generator().manual_seed(1)
    shapes = [(BATCH, where.grid.total, where.dim)]
    if where.memory:
        shapes.append((BATCH, where.memory.total, where.memory_dim))
    return tuple(torch.randn(shape, generator=noise, dtype=torch.float64) for shape in shapes)


def cache_memory(decoder: nn.Module, memory: Tensor) -> None:
    """Compute what every token reads of the encoder's output, and the states that start from it."""
    for module in decoder.modules():
        match module:
            case CrossAttention(cache=MemoryCache() as cache):
                cache.keys, cache.values = module.keys_and_values(memory)
            case ContextLayer(cache=TokenOfMemory() as cache):
                cache.memory_BND = memory
            case Attending(cache=MemoryCache() as cache, state=RecurrentState() as state):
                cache.keys, cache.values = module.inner.keys(memory), memory
                state(*module.first_state(memory))
            case RecurrentLayer(starts_from_encoder=True, state=RecurrentState() as state):
                state(*module.first_states()[0])


@every_step
def test_step_by_step_is_the_whole_forward(case: Case) -> None:
    whole, step = both(case)
    x_BND, *memory = inputs(case.place)
    with torch.no_grad():
        expected = whole(x_BND, *memory) if case.component.reads_memory else whole(x_BND)
        if case.component.reads_memory:
            cache_memory(step, *memory)
        for token in range(x_BND.shape[1]):
            set_position(step, token)
            given = step(x_BND[:, token : token + 1])
            torch.testing.assert_close(given[:, 0], expected[:, token], rtol=1e-9, atol=1e-10)


@every_step
def test_the_counted_step_is_the_traced_one(case: Case) -> None:
    rows = tuple(batched(row, BATCH) for row in case.component.decoding(case.place))
    with torch.device("meta"):
        make = MODULES[type(case.component)]
        step = make(case.component, case.place, **tables(case), cache_batch=BATCH).eval().requires_grad_(False)
        x_B1D = torch.empty(BATCH, 1, case.place.dim)
    set_position(step, case.place.grid.total - 1)
    rows = tuple(msgspec.structs.replace(row, path=f"it.{row.path}") for row in rows)
    counted = Ledger(metadata=Metadata(name="one", tokens="", grid_tokens=case.place.grid.tokens), rows=rows)
    agreement = reconciled(counted, Holder(step), (x_B1D,), {"it": "it"}).agreement
    assert agreement is not None
    assert agreement.exact, agreement


@every_step
def test_a_step_has_all_parameters_and_keeps_what_it_says(case: Case) -> None:
    def rows(tokens: int) -> list[Operation]:
        sides = case.place.grid.sides if tokens == case.place.grid.total else (tokens,)
        grid = type(case.place.grid)(sides)
        return list(case.component.decoding(msgspec.structs.replace(case.place, grid=grid)))

    n = case.place.grid.total
    here = rows(n)
    assert sum(row.params for row in here) == sum(row.params for row in case.component.operations(case.place))
    before, after = (sum(row.cached for row in rows(tokens)) for tokens in (n, 2 * n))
    added = sum(row.figure("cached_per_token") for row in here)
    assert 0 < before <= after <= before + n * added
    assert (after == before) or added  # what grows says by how much


@pytest.mark.parametrize("case", [case for case in decodable() if tag_of(type(case.component)) == "full"], ids=str)
def test_steps_add_up_to_the_pairs_that_a_causal_mask_leaves(case: Case) -> None:
    """Σ t for t = 1 … N is N(N+1)/2: a cache computes no score that the mask would throw away."""
    n = case.place.grid.total

    def scores(tokens: int) -> int:
        where = msgspec.structs.replace(case.place, grid=type(case.place.grid)((tokens,)))
        return sum(row.pairs or 0 for row in case.component.decoding(where))

    assert (
        sum(scores(tokens) for tokens in range(1, n + 1)) == n * (n + 1) // 2 == case.component.pairs(case.place.grid)
    )


TINY = {
    "gpt2": ["stages.0.depth=2", "**.heads=2", "stages.0.dim=8", "input.vocabulary=11"],
    "llama3-8b": ["stages.0.depth=2", "**.heads=4", "**.kv_heads=2", "stages.0.dim=8", "**.hidden=12"],
    "mistral-7b-sliding": ["stages.0.depth=2", "**.heads=4", "**.kv_heads=2", "stages.0.dim=8", "**.window=4"],
    "bloom-560m": ["stages.0.depth=2", "**.heads=2", "stages.0.dim=8"],
}


def logits_step_by_step(spec: Any, sizes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """(B, N, V) of the whole forward, and of N steps with the same weights."""
    torch.manual_seed(0)
    run = Run(tokens=sizes, batch=BATCH, dtype="float64")
    whole = build(place(spec, run), "cpu")
    step = build(place(spec, run._replace(mode="decode")), "cpu")
    step.model.load_state_dict(whole.model.state_dict())
    numbers, answers = whole.inputs[-1], []
    with torch.no_grad():
        expected = whole.model(*whole.inputs)
        if len(sizes) > 1:
            memory = step.model.streams[0](whole.inputs[0], None)
            cache_memory(step.model.streams[1], memory)
        for token in range(numbers.shape[1]):
            set_position(step.model, token)
            answers.append(step.model(numbers[:, token : token + 1]))
    return expected, torch.cat(answers, dim=1)


@pytest.mark.parametrize("preset", TINY)
def test_a_whole_decoder_step_by_step(preset: str) -> None:
    expected, got = logits_step_by_step(load(preset, tuple(TINY[preset])), (9,))
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(("preset", "depth"), [("t5-small", "blocks.0.repeat"), ("transformer-base", "depth")])
def test_a_whole_encoder_decoder_step_by_step(preset: str, depth: str) -> None:
    settings = (f"encoder.stages.0.{depth}=1", "decoder.stages.0.depth=2", "input.vocabulary=13")
    expected, got = logits_step_by_step(load(preset, settings), (5, 7))
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("attention", ["eager", "fused"])
@pytest.mark.parametrize(
    ("preset", "sizes"),
    [
        ("gpt2", "100"),
        ("llama3-8b", "8192"),
        ("mistral-7b", "5000"),
        ("t5-base", "512,114"),
        pytest.param("gpt3-175b", "2048", marks=pytest.mark.rest),
    ],
)
def test_a_decoding_preset_is_counted_as_it_is_traced(preset: str, sizes: str, attention: str) -> None:
    ledger = analyze(preset, N=sizes, mode="decode", attention=attention, batch=3)  # type: ignore[arg-type]
    exact(ledger)
    assert ledger.total("params") == analyze(preset, trace=False).total("params")


def test_the_cache_of_llama_3_by_hand() -> None:
    """32 layers · 2 (K, V) · 8 heads · 128 · 2 bytes = 131,072 bytes per token; 4 samples of 8,192: 4 GiB."""
    ledger = analyze("llama3-8b", N=8192, batch=4, dtype="bfloat16", mode="decode", trace=False)
    assert ledger.cache is not None
    assert (ledger.cache.bytes_per_token, ledger.cache.bytes, ledger.cache.state_bytes) == (131072, 4 * 2**30, 0)
    # all 8,030,261,248 weights but the embedding, 128,256 · 4,096, of which 4 samples look up a row each
    assert ledger.step is not None
    assert ledger.step.weight_bytes == 2 * (8_030_261_248 - 128_256 * 4096 + 4 * 4096)
    assert ledger.step.intensity == pytest.approx(ledger.total("flops") / ledger.step.bytes_read)


def test_the_cache_of_gpt_2_in_float32_by_hand() -> None:
    """12 layers · 2 (K, V) · 12 heads · 64 · 4 bytes = 73,728 bytes more per token of a sample; 2 samples of 512."""
    ledger = analyze("gpt2", N=512, batch=2, dtype="float32", mode="decode", trace=False)
    assert ledger.cache is not None
    assert (ledger.cache.bytes_per_token, ledger.cache.bytes) == (73_728, 2 * 512 * 73_728)
    text = plain_text(lambda width: report(ledger, None, width))
    assert "72 KiB more per token of a sample" in text


def test_fewer_heads_of_keys_and_values_shrink_the_cache_and_no_score() -> None:
    """MHA -> GQA -> MQA (Shazeer 2019; Ainslie et al. 2023): h_kv = 32, 8, 1."""
    ledgers = {
        heads: analyze(
            "llama3-8b", N=1000, mode="decode", attention="eager", trace=False, settings=[f"**.kv_heads={heads}"]
        )
        for heads in (32, 8, 1)
    }
    caches = {heads: ledger.cache.bytes for heads, ledger in ledgers.items() if ledger.cache}
    assert caches[32] == 4 * caches[8] == 32 * caches[1]
    scores = {next(row.macs for row in ledger.rows if row.operation == "scores") for ledger in ledgers.values()}
    assert scores == {1000 * 4096}


def test_a_full_window_grows_no_more() -> None:
    """Mistral's window is 4,096: from there on, N changes neither the cache nor the work."""
    small, large = (analyze("mistral-7b-sliding", N=n, mode="decode", trace=False) for n in (4096, 32768))
    assert small.cache == large.cache
    assert small.cache is not None
    assert (small.cache.bytes_per_token, small.cache.state_bytes) == (0, small.cache.bytes)
    assert small.total("macs") == large.total("macs")


@pytest.mark.parametrize("preset", ["gpt3-175b-banded", "mistral-7b-sliding", "llama3-8b", "mamba-130m"])
@pytest.mark.parametrize("tokens", [100, 2000, 4095, 4096])
def test_what_a_token_more_adds_is_what_the_next_cache_has_more(preset: str, tokens: int) -> None:
    if preset.startswith("gpt3") and tokens >= 2048:
        tokens //= 4
    here, next_ = (analyze(preset, N=n, mode="decode", trace=False).cache for n in (tokens, tokens + 1))
    assert here is not None
    assert next_ is not None
    assert next_.bytes - here.bytes == here.bytes_per_token


def test_prefill_is_the_forward_and_tells_its_cache() -> None:
    forward, prefill, decode = (
        analyze("gpt2", N=64, mode=mode, trace=False, **PLAIN)  # type: ignore[arg-type]
        for mode in ("forward", "prefill", "decode")
    )
    # all but the head's logits, of one position in place of 64 (tests/test_generation_executed.py)
    assert [row for row in prefill.rows if row.path not in {"head.last", "head.linear"}] == [
        row for row in forward.rows if row.path != "head.linear"
    ]
    assert forward.cache is None
    assert prefill.cache == decode.cache
    assert prefill.step is None


def _distinct(experts: int, active: int, tokens: int) -> Fraction:
    """The mean number of distinct experts over all choices of all tokens, one by one."""
    choices = list(itertools.combinations(range(experts), active))
    every = [len(set().union(*chosen)) for chosen in itertools.product(choices, repeat=tokens)]
    return Fraction(sum(every), len(every))


def test_a_batch_reads_the_expected_number_of_experts_and_at_least_those_of_one_token() -> None:
    """Mixtral, 2 of 8 experts: one sample reads 2, two read 3.5, eight 7.2, if routing is even."""
    assert [_distinct(8, 2, tokens) for tokens in (1, 2, 3)] == [2, 3.5, 4.625]
    steps = {
        batch: analyze("mixtral-8x7b", N=64, batch=batch, mode="decode", trace=False, **PLAIN).step
        for batch in (1, 2, 3, 8)
    }
    expert = 32 * 3 * 4096 * 14336 * 4  # bytes: 32 blocks, three matrices
    lookup = 4096 * 4  # a row of the embedding per sample
    dense = steps[1].weight_bytes - lookup - 2 * expert
    for batch, experts in ((2, 3.5), (3, 4.625), (8, 7.199)):
        step = steps[batch]
        assert step.least_weight_bytes == dense + batch * lookup + 2 * expert
        assert (step.weight_bytes - dense - batch * lookup) / expert == pytest.approx(experts, abs=1e-3)
        assert step.expected
        assert step.intensity == step.flops / (step.weight_bytes + step.cache_bytes)
    assert not steps[1].expected
    assert steps[1].weight_bytes == steps[1].least_weight_bytes
    assert isinstance(steps[1].weight_bytes, int)
