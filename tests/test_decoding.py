"""One token more, its past cached: what steps give, cost and keep, for every mechanism that has such a form."""

import itertools
from fractions import Fraction

import msgspec
import pytest
import torch

from cases import CASES
from cases.base import Case
from cases.layers import LAYER_CASES
from compared import scattered
from contract import BATCH, Steps, cache_memory, example, in_order, logits_step_by_step
from helpers import PLAIN
from modules import Holder
from strategies import cases, exact, place_for
from tiers import covering, of_case, tiered
from xfcost.api.analysis import analyze
from xfcost.counting.forward import batched
from xfcost.formulas.component import Place
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import Grid
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.metadata import Metadata
from xfcost.mechanisms.sliding import Sliding
from xfcost.program.residual import component_rows
from xfcost.spec.architecture import Part
from xfcost.spec.load import load
from xfcost.torch_models.accounts import reconciled
from xfcost.torch_models.build import ModuleMaker
from xfcost.torch_models.mixing.follower import Budget
from xfcost.torch_models.probing.account import leaves_of, prepared
from xfcost.torch_models.program import ProgramModule
from xfcost.torch_models.shared.cache import set_position
from xfcost.torch_models.shared.leaves import Table


def decodes(component, where):
    try:
        return bool(list(component_rows(component, where, decodes=True)))
    except ComponentError:
        return False


def decodable():
    """Every example that decodes, on sequences alone; it does so on all or on none."""
    known = {}
    for case in cases():
        grid, name = case.place.grid, str(case.component)
        if len(grid.sides) == 1 and not grid.special:
            if name not in known:
                known[name] = decodes(case.component, case.place)
            if known[name]:
                yield case


DECODABLE = list(decodable())
every_step = pytest.mark.parametrize("case", tiered(DECODABLE, of_case), ids=str)


def tables(case):
    """The argument `tables` of the case's module."""
    return {"tables": {name: Table(*shape) for name, shape in case.component.tables(case.place).items()}}


def both(case, device="cpu"):
    """The module of all tokens, and that of one token with a cache, with the same weights, in float64."""
    torch.manual_seed(0)
    with torch.device(device):
        shared = tables(case)
        whole = ProgramModule(case.component, case.place, **shared).double().eval()
        step = ProgramModule(case.component, case.place, **shared, cache_batch=BATCH).double().eval()
    step.load_state_dict(whole.state_dict())
    return whole.requires_grad_(requires_grad=False), step.requires_grad_(requires_grad=False)


@every_step
def test_step_by_step_is_the_whole_forward(case):
    whole, step = both(case)
    x_BND, *memory = example(case.place, BATCH)
    with torch.no_grad():
        expected = whole(x_BND, *memory) if case.component.reads_memory else whole(x_BND)
        if case.component.reads_memory:
            cache_memory(step, *memory)
        for token in range(x_BND.shape[1]):
            set_position(step, token)
            given = step(x_BND[:, token : token + 1])
            torch.testing.assert_close(given[:, 0], expected[:, token], rtol=1e-9, atol=1e-10)


LAYERS_WITH_A_STEP = [
    case for case in LAYER_CASES if decodes(case.layer, case.place) and not getattr(case.layer, "tokens_compete", False)
]


@pytest.mark.parametrize("case", LAYERS_WITH_A_STEP, ids=str)
def test_a_layer_step_by_step_is_the_whole_forward(case):
    part = Part("it", case.layer, case.place, "none")
    whole, step = (ModuleMaker({}, cache_batch).module(part).double().eval() for cache_batch in (None, BATCH))
    step.load_state_dict(scattered(whole).state_dict())
    inputs = case.inputs(BATCH)
    with torch.no_grad():
        torch.testing.assert_close(Steps(step)(*inputs), whole(*inputs), rtol=1e-9, atol=1e-10)


@every_step
def test_what_a_step_caches_is_worked_out_by_hand(case):
    assert CASES[type(case.component)].cached, f"{case.component}: it `decodes`, but its case has no `cached`"


@pytest.mark.parametrize(
    ("component", "growing", "fixed"), [one for case in CASES.values() for one in case.cached], ids=str
)
def test_what_a_mechanism_caches_by_hand(component, growing, fixed):
    assert component.decodes, f"{component}: its case has `cached`, but its class no `decodes`"
    rows = list(component_rows(component, place_for(component, Grid((9,))), decodes=True))
    added = sum(row.figure("cached_per_token") for row in rows)
    assert (added, sum(row.cached for row in rows) - 9 * added) == (growing, fixed)


@every_step
def test_the_counted_step_is_the_traced_one(case):
    rows = tuple(batched(row, BATCH) for row in component_rows(case.component, case.place, decodes=True))
    with torch.device("meta"):
        step = ProgramModule(case.component, case.place, **tables(case), cache_batch=BATCH).eval().requires_grad_(False)
        x_B1D = torch.empty(BATCH, 1, case.place.dim)
    set_position(step, case.place.grid.total - 1)
    rows = tuple(msgspec.structs.replace(row, path=f"it.{row.path}") for row in rows)
    counted = Ledger(metadata=Metadata(name="one", tokens="", grid_tokens=case.place.grid.tokens), rows=rows)
    agreement = reconciled(counted, Holder(step), (x_B1D,), {"it": "it"}).agreement
    assert agreement.exact, agreement
    in_order(component_rows(case.component, case.place, decodes=True), step, (x_B1D,))


def followed_rows(case):
    """Every row of a mechanism's step that a run of all steps shows as it is."""
    otherwise = CASES[type(case.component)].followed_otherwise(case.component)
    rows = component_rows(case.component, case.place, decodes=True)
    return frozenset((type(case.component), row.path, row.title) for row in rows if row.path not in otherwise)


OF_FIVE = [case for case in DECODABLE if case.place.grid.total == 5]


@pytest.mark.parametrize("case", [OF_FIVE[number] for number in covering([*map(followed_rows, OF_FIVE)])], ids=str)
def test_kinds_of_a_step_are_found_in_a_run_of_all_steps(case):
    """What each row reads, and whether content decides, at two numbers of tokens, run from the first to the last."""
    places = [
        msgspec.structs.replace(case.place, grid=Grid((tokens,)), memory=case.place.memory and Grid((tokens + 2,)))
        for tokens in (9, 11)
    ]
    modules, given = [], []
    for place in places:
        torch.manual_seed(0)
        step = ProgramModule(case.component, place, **tables(Case(case.component, place)), cache_batch=1)
        modules.append(prepared(Steps(step.double())))
        given.append(example(place, 1))
    followed = leaves_of(modules, given, Budget())
    for rows in zip(*(component_rows(case.component, place, decodes=True) for place in places), strict=True):
        path = rows[0].path
        leaves = [of_size[path] for of_size in followed if path in of_size]
        if not leaves or path in CASES[type(case.component)].followed_otherwise(case.component):
            assert leaves or not any(row.mixes and row.flops for row in rows), f"{path} doesn't run"
            continue
        assert {leaf.mixing for leaf in leaves} == {row.mixing for row in rows}, path
        if rows[0].mixes:
            assert [leaf.numbers[0] for leaf in leaves] == [row.reads_tokens for row in rows], path
            assert {leaf.content_dependent for leaf in leaves} == {row.content_dependent for row in rows}, path


@every_step
def test_a_step_has_all_parameters_and_keeps_what_it_says(case):
    def rows(tokens):
        sides = case.place.grid.sides if tokens == case.place.grid.total else (tokens,)
        grid = type(case.place.grid)(sides)
        return list(component_rows(case.component, msgspec.structs.replace(case.place, grid=grid), decodes=True))

    n = case.place.grid.total
    here = rows(n)
    assert sum(row.params for row in here) == sum(row.params for row in component_rows(case.component, case.place))
    before, after = (sum(row.cached for row in rows(tokens)) for tokens in (n, 2 * n))
    added = sum(row.figure("cached_per_token") for row in here)
    assert 0 < before <= after <= before + n * added
    assert (after == before) or added  # what grows says by how much


# Every family, small, under its preset's own stem layers, heads and order of layers.
TINY = {
    "gpt2": ["stages.0.depth=2", "**.heads=2", "stages.0.dim=8", "input.vocabulary=11"],
    "llama3-8b": ["stages.0.depth=2", "**.heads=4", "**.kv_heads=2", "stages.0.dim=8", "**.hidden=12"],
    "mistral-7b": ["stages.0.depth=2", "**.heads=4", "**.kv_heads=2", "stages.0.dim=8", "**.window=4"],
    "mistral-7b-sliding": ["stages.0.depth=2", "**.heads=4", "**.kv_heads=2", "stages.0.dim=8", "**.window=4"],
    "bloom-560m": ["stages.0.depth=2", "**.heads=2", "stages.0.dim=8"],
    "deepseek-v2": [
        *("stages.0.blocks.1.repeat=1", "stages.0.dim=8", "**.heads=2", "**.head_dim=4", "**.rope_dim=2"),
        *("**.kv_rank=6", "**.q_rank=5", "**.hidden=12", "**.experts=8", "**.active=2", "**.groups.count=4"),
        "input.vocabulary=13",
    ],
    # their past is a state
    "mamba-130m": ["stages.0.depth=2", "stages.0.dim=8", "input.vocabulary=11"],
    "mamba2-130m": ["stages.0.depth=2", "stages.0.dim=8", "**.head_dim=4", "**.state=3", "input.vocabulary=11"],
    "rwkv4-169m": ["stages.0.depth=2", "stages.0.dim=8", "input.vocabulary=11"],
    "retnet-1.3b": [
        "stages.0.depth=2", "stages.0.dim=8", "**.heads=2", "stages.0.block.0.value_dim=12", "input.vocabulary=11",
    ],
    "linear-transformer-mnist": ["stages.0.depth=2", "stages.0.dim=8", "**.heads=2"],
    "common-lstm": ["stages.0.depth=2", "stages.0.dim=8"],
    "common-conv": ["stages.0.depth=2", "stages.0.dim=8", "stages.0.block.0.causal=true"],
    "bytenet-lm": ["stages.0.depth=5", "stages.0.dim=8"],
    "igpt-s": ["stages.0.depth=2", "stages.0.dim=8", "**.heads=2"],
}  # fmt: skip


@pytest.mark.parametrize("preset", TINY)
def test_a_whole_decoder_step_by_step(preset):
    expected, got = logits_step_by_step(load(preset, tuple(TINY[preset])), (9,))
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-10)


TWO = {
    "t5-small": ["encoder.stages.0.blocks.0.repeat=1", "decoder.stages.0.depth=2"],
    "transformer-base": ["encoder.stages.0.depth=1", "decoder.stages.0.depth=2"],
    "seq2seq-lstm": ["encoder.stages.0.dim=6", "decoder.stages.0.dim=6", "encoder.input.vocabulary=9"],
    "rnnsearch": [
        *("encoder.stages.0.dim=6", "decoder.stages.0.dim=5", "decoder.stages.0.block.0.hidden=4"),
        *("decoder.stages.0.block.0.attend.hidden=3", "decoder.stages.0.block.0.readout.hidden=5"),
    ],
    "convs2s-en-de": [
        *("encoder.stages.0.depth=1", "encoder.stages.1.depth=1", "encoder.stages.2.depth=1", "encoder.stages.2.dim=6"),
        *("decoder.stages.0.depth=2", "decoder.stages.0.dim=6", "decoder.stages.1.depth=1", "**.head_dim=4"),
        *("decoder.stages.1.dim=4", "decoder.stages.2.depth=1", "decoder.stages.2.dim=5"),
    ],
    "bytenet-translation": ["encoder.stages.0.dim=6", "decoder.stages.0.dim=6"],
}


@pytest.mark.parametrize("preset", TWO)
def test_a_whole_encoder_decoder_step_by_step(preset):
    settings = (*TWO[preset], "input.vocabulary=13")
    sizes = (7, 7) if preset == "bytenet-translation" else (5, 7)
    expected, got = logits_step_by_step(load(preset, settings), sizes)
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-10)


# One preset of every family whose past is a state, at its own size.
WITH_STATES = (
    *("mamba-130m", "mamba2-130m", "rwkv4-169m", "retnet-1.3b", "retnet-1.3b-recurrent", "linear-transformer-mnist"),
    *("common-lstm", "bytenet-lm", "igpt-s", "seq2seq-lstm", "rnnsearch", "convs2s-en-de", "bytenet-translation"),
    "show-attend-tell",
)


@pytest.mark.parametrize(
    ("preset", "sizes", "attention"),
    [
        *(
            (preset, sizes, attention)
            for attention in ("eager", "fused")
            for preset, sizes in (
                *(("gpt2", 100), ("llama3-8b", 8192), ("mistral-7b", 5000), ("t5-base", "512,114")),
                *(("deepseek-v2-lite", 2048), ("deepseek-moe-16b", 2048), ("mixtral-8x7b", 2048)),
            )
        ),
        pytest.param("gpt3-175b", 2048, "eager", marks=pytest.mark.rest),
        pytest.param("gpt3-175b", 2048, "fused", marks=pytest.mark.rest),
        *((preset, None, None) for preset in WITH_STATES),
    ],
)
def test_a_decoding_preset_is_counted_as_it_is_traced(preset, sizes, attention):
    ledger = analyze(preset, N=sizes, mode="decode", attention=attention, batch=3)
    exact(ledger)
    assert ledger.total("params") == analyze(preset, trace=False).total("params")


def test_the_cache_of_cross_attention_by_hand():
    """T5-small: 6 layers · 2 (K, V) · 512 · 2 bytes for each of 100 tokens of the encoder and 7 of the decoder."""
    ledger = analyze("t5-small", N="100,7", batch=3, dtype="bfloat16", mode="decode", trace=False)
    of_token = 6 * 2 * 512 * 2
    assert ledger.cache.cross_attention_bytes == ledger.cache.state_bytes == 3 * 100 * of_token
    assert ledger.cache.bytes == 3 * 107 * of_token


def test_a_step_of_a_decoder_reads_no_weights_of_the_encoder_and_of_its_keys():
    # T5-small: 6 blocks of width 512: Q, K, V and O, Q and O of cross-attention, 2·512·2048, three norms, biases of
    # 8 heads and 10 distances; a last norm, the head's table, a row of it
    block = 4 * 512**2 + 2 * 512**2 + 2 * 512 * 2048 + 3 * 512 + 8 * 10
    ledger = analyze("t5-small", mode="decode", N=(20, 10), trace=False, **PLAIN)
    assert ledger.step.weight_bytes == 4 * (6 * block + 512 + 32128 * 512 + 512)


@pytest.mark.parametrize(("tokens", "kept", "grows"), [(4095, 4095, 1), (4096, 4096, 0), (16_384, 4096, 0)])
def test_the_cache_of_a_masked_window_is_a_ring(tokens, kept, grows):
    """Mistral 7B: 32 layers · 2 (K, V) · 8 heads of 128 · 2 bytes for each of the last 4,096 tokens, 512 MiB."""
    ledger = analyze("mistral-7b", N=tokens, dtype="bfloat16", mode="decode", trace=False)
    of_token = 32 * 2 * 8 * 128 * 2
    assert ledger.cache.bytes == ledger.step.cache_bytes == kept * of_token
    assert ledger.cache.bytes_per_token == grows * of_token
    assert {(row.reads, row.reads_tokens) for row in ledger.rows if row.mixing != "per-token"} == {("w", kept)}
    assert {row.pairs for row in ledger.rows} == {None, kept}
    assert ledger.total("macs", lambda row: row.mixes) == 32 * 2 * kept * 32 * 128


@pytest.mark.parametrize("tokens", [4096, 4097, 16_384])
def test_the_pairs_of_a_masked_window_one_query_at_a_time(tokens):
    ledger = analyze("mistral-7b", N=tokens, trace=False)
    kept = sum(min(query + 1, 4096) for query in range(tokens))
    scores = ledger.scores()
    assert (scores.computed, scores.kept, scores.causal) == (1024 * tokens**2, 1024 * kept, tokens == 4096)
    assert ledger.total("macs", lambda row: row.mixing == "local") == 32 * 2 * tokens**2 * 4096
    assert ledger.total("macs", lambda row: row.mixing == "global") == 0


@pytest.mark.parametrize("tokens", range(1, 15))
def test_a_dilated_window_keeps_the_last_of_every_residue_class(tokens):
    """Every third token is read, four in all; each class has as many rows as the fullest one needs."""
    place = Place(grid=Grid((tokens,)), dim=6, out_dim=6)
    rows = {
        row.path: row
        for row in component_rows(Sliding(heads=2, window=4, dilation=3, causal=True), place, decodes=True)
    }
    classes = [[token for token in range(tokens) if token % 3 == residue][-4:] for residue in range(3)]
    read = len(classes[(tokens - 1) % 3])
    assert rows["scores"].pairs == read
    assert rows["scores"].macs == rows["weighted_sum"].macs == read * 6
    # keys and values, 6 wide; the token's own are written
    assert (rows["cache"].cached, rows["cache"].moved) == (3 * max(map(len, classes)) * 2 * 6, 2 * 6)


@pytest.mark.parametrize("preset", ["gpt3-175b-banded", "mistral-7b-sliding", "llama3-8b", "mamba-130m"])
@pytest.mark.parametrize("tokens", [100, 2000, 4095, 4096])
def test_what_a_token_more_adds_is_what_the_next_cache_has_more(preset, tokens):
    if preset.startswith("gpt3") and tokens >= 2048:
        tokens //= 4
    here, next_ = (analyze(preset, N=n, mode="decode", trace=False).cache for n in (tokens, tokens + 1))
    assert next_.bytes - here.bytes == here.bytes_per_token


def _distinct(experts, active, tokens):
    """The mean number of distinct experts over all choices of all tokens, one by one."""
    choices = list(itertools.combinations(range(experts), active))
    every = [len(set().union(*chosen)) for chosen in itertools.product(choices, repeat=tokens)]
    return Fraction(sum(every), len(every))


def test_a_batch_reads_the_expected_number_of_experts():
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
        assert (step.weight_bytes - dense - batch * lookup) / expert == pytest.approx(experts, abs=1e-3)
        assert step.intensity == step.flops / (step.weight_bytes + step.cache_bytes)


def decoded(preset, tokens):
    return analyze(preset, N=tokens, mode="decode", trace=False, **PLAIN)


@pytest.mark.parametrize(
    ("preset", "numbers"),
    [
        # 24 layers of E = 1536 channels: 16 numbers of state and 3 inputs of the convolution each
        ("mamba-130m", 24 * 1536 * (16 + 3)),
        # 24 layers of E = 1536, S = 128: S·E numbers, and 3 inputs of the E + 2·S channels of the convolution
        ("mamba2-130m", 24 * (128 * 1536 + 3 * (1536 + 256))),
        # 12 layers of d = 768: three numbers per channel, and the token before, of time and of channel mixing
        ("rwkv4-169m", 12 * 768 * (3 + 1 + 1)),
        # 24 layers of 8 heads, d = 2048, v = 4096: d·v/h numbers each
        ("retnet-1.3b", 24 * 2048 * 4096 // 8),
        # 4 layers of h and c, 1000 each
        ("seq2seq-lstm", 4 * 2 * 1000),
    ],
)
def test_the_state_of_a_preset_by_hand(preset, numbers):
    ledger = decoded(preset, "5,1024" if preset == "seq2seq-lstm" else 1024)
    assert ledger.cache.bytes == 4 * numbers


def test_all_forms_of_retention_decode_alike():
    ledgers = [decoded(f"retnet-1.3b{form}", 1000) for form in ("", "-chunkwise", "-recurrent")]
    costs = {(one.total("macs"), one.total("flops"), one.cache, one.step) for one in ledgers}
    assert len(costs) == 1


def test_a_step_of_rnnsearch_by_hand():
    """n = 1000, m = 620, n' = 1000, l = 500, M = 30 source tokens of 2000; the keys are kept, and the tokens."""
    ledger = decoded("rnnsearch", "30,50")
    rows = {row.path: row for row in ledger.rows}
    step = "decoder.stages.0.block.0."
    assert rows[step + "query"].macs == 1000 * 1000
    assert rows[step + "energies"].macs == 30 * 1000
    assert rows[step + "weighted_sum"].macs == 30 * 2000
    assert rows[step + "recurrence"].macs == 1000 * 3000
    assert rows[step + "keys"].macs == rows[step + "start_linear"].macs == 0
    assert rows[step + "keys"].params == 2000 * 1000
    assert rows[step + "cache"].cached == 30 * (1000 + 2000)
    assert rows[step + "state"].cached == 1000
    assert ledger.cache.bytes_per_token == 0
