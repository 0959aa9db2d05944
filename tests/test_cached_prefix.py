"""A prompt whose first tokens are cached: what the others compute, held against steps, passes and pairs one by one."""

from itertools import pairwise

import pytest

from xfcost.api.analysis import analyze, build, compare
from xfcost.counting.model_record import forward_record
from xfcost.formulas.component import Place
from xfcost.ledger.errors import SpecError, UsageError
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.full import Full, Mla
from xfcost.mechanisms.mamba import Mamba, Mamba2
from xfcost.mechanisms.sliding import Sliding
from xfcost.program.residual import component_rows
from xfcost.questions.diff.answer import diff
from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.spec.run import Run

WORK = ("macs", "flops", "comparisons", "moved")
ATTENTIONS = {
    "all heads": Full(heads=4, causal=True),
    "grouped heads, biased": Full(heads=4, kv_heads=2, causal=True, position="alibi"),
    "latent": Mla(heads=4, kv_rank=8, rope_dim=2, causal=True),
    "windows": Sliding(heads=4, window=6, causal=True),
    "masked windows": Full(heads=4, kv_heads=2, window=6, causal=True),
    "spread windows": Sliding(heads=4, window=6, causal=True, dilation=3),
}


def rows_of(component, tokens, cached=0, *, fused=False):
    """Name -> row of the component behind a cached prefix, 16 wide."""
    here = Place(grid=Grid((tokens,)), dim=16, out_dim=16, fused=fused)
    return {row.path: row for row in component_rows(component, here, cached=cached)}


@pytest.mark.parametrize("fused", [False, True], ids=["eager", "fused"])
@pytest.mark.parametrize(("tokens", "cached"), [(7, 6), (24, 1), (24, 11), (40, 37)])
@pytest.mark.parametrize("mixer", ATTENTIONS.values(), ids=ATTENTIONS)
def test_pairs_are_those_of_the_new_tokens_one_by_one(mixer, tokens, cached, fused):
    here = Grid((tokens,))
    each = sum(len(mixer.reads(here, token)) for token in range(cached, tokens))
    found = {row.pairs for row in rows_of(mixer, tokens, cached, fused=fused).values() if row.pairs is not None}
    assert found == {each}


@pytest.mark.parametrize(
    "mixer", [ATTENTIONS["all heads"], ATTENTIONS["grouped heads, biased"]], ids=["plain", "alibi"]
)
@pytest.mark.parametrize(("tokens", "cached"), [(24, 1), (24, 11), (40, 37)])
def test_attention_computes_new_queries_by_all_keys(mixer, tokens, cached):
    """q·N dense products; every row that has none of them is the difference of two whole passes."""
    eager, whole, prefix = rows_of(mixer, tokens, cached), rows_of(mixer, tokens), rows_of(mixer, cached)
    queries = tokens - cached
    for name in ("scores", "weighted_sum"):
        assert eager[name].macs == queries * tokens * 16
        assert eager[name].reads_tokens == tokens
    assert eager["scores"].attention_entries == eager["softmax"].matrix.entries == 4 * queries * tokens
    assert (eager["scores"].core.times * eager["scores"].core.queries, eager["scores"].core.keys) == (
        4 * queries,
        tokens,
    )
    assert rows_of(mixer, tokens, cached, fused=True)["attention"].macs == 2 * queries * tokens * 16
    for name in whole.keys() - {"scores", "softmax", "weighted_sum", "mask", "add_bias"}:
        for work in WORK:
            assert getattr(eager[name], work) == getattr(whole[name], work) - getattr(prefix[name], work), (name, work)
        assert eager[name].params == whole[name].params


@pytest.mark.parametrize(("tokens", "cached"), [(24, 1), (24, 5), (24, 11), (40, 37)])
def test_masked_windows_compute_new_queries_by_the_keys_that_they_read(tokens, cached):
    """Of the cached tokens at most 5, which the first new one reads."""
    read = {key for query in range(cached, tokens) for key in range(max(0, query - 5), query + 1)}
    rows, fused = (rows_of(ATTENTIONS["masked windows"], tokens, cached, fused=one) for one in (False, True))
    queries, whole = tokens - cached, rows_of(ATTENTIONS["masked windows"], tokens)
    assert rows["scores"].macs == rows["weighted_sum"].macs == queries * len(read) * 16
    assert rows["scores"].core.keys == fused["attention"].core.keys == len(read)
    assert fused["attention"].macs == 2 * queries * len(read) * 16
    assert rows["cache"].moved == queries * 2 * 2 * 4
    assert rows["qkv"].macs * tokens == whole["qkv"].macs * queries


def test_latents_of_the_prefix_are_projected_again():
    """The cache has latents: keys and values of all N tokens come out of them; other maps run on new tokens."""
    rows, whole, prefix = (rows_of(ATTENTIONS["latent"], *sizes) for sizes in ((24, 10), (24,), (10,)))
    assert rows["kv_up"].macs == whole["kv_up"].macs
    for name in ("q", "kv_down", "kv_norm", "rotary", "out"):
        assert rows[name].flops == whole[name].flops - prefix[name].flops > 0, name
    assert rows["cache"].moved == 14 * (8 + 2)


@pytest.mark.parametrize("mixer", [Mamba(state=4), Mamba2(state=4, head_dim=8, chunk=4)], ids=["scan", "chunks"])
def test_states_run_over_new_tokens_alone(mixer):
    """The state before them takes the place of zeros."""
    behind, alone = rows_of(mixer, 40, 28), rows_of(mixer, 12)
    for name, row in alone.items():
        assert [getattr(behind[name], work) for work in WORK] == [getattr(row, work) for work in WORK], name
        assert behind[name].sequential == row.sequential
    assert {row.reads_tokens for row in behind.values() if row.mixing == "global"} == {40}


@pytest.mark.parametrize(
    ("spec", "tokens"),
    [("gpt2", 513), ("llama3-8b", 513), ("bloom-560m", 513), ("mixtral-8x7b", 513), ("rwkv4-169m", 513)]
    + [("mistral-7b", tokens) for tokens in (4000, 4096, 4097, 5000)],
)
def test_one_new_token_is_a_decode_step(spec, tokens):
    """Of all rows together: products, and what is cached and read at least."""
    how = {"N": tokens, "on": "h100-sxmx8", "attention": "fused"}
    last = analyze(spec, mode="prefill", cached_prefix=tokens - 1, **how)
    step = analyze(spec, mode="decode", **how)
    assert last.total("macs") == step.total("macs")
    assert last.on.time.flops == step.on.time.flops
    assert last.on.time.bytes == step.on.time.bytes
    assert last.cache == step.cache


@pytest.mark.parametrize("model", ["qwen3-32b", "glm-4.5", "llama-4-scout"])
def test_new_tokens_of_a_published_model_are_steps_together(model):
    """Products of q new tokens are those of q steps over the whole prompt, but for the logits of all but the last."""
    step = analyze(model, mode="decode", N=500)
    behind = analyze(model, mode="prefill", N=500, cached_prefix=490)
    logits = next(row.macs for row in behind.rows if row.component == "lm_head")
    assert behind.total("macs") - logits == 10 * (step.total("macs") - logits)


def test_windows_of_a_published_model_read_their_last_keys():
    """gemma-3-1b has windows of 512: as its class does, the new tokens' keys stand behind the 511 before."""
    rows = analyze("gemma-3-1b", mode="prefill", N=4000, cached_prefix=3000).rows
    kernels = {row.times: row for row in rows if row.fused}
    assert {times: row.core.keys for times, row in kernels.items()} == {22: 1000 + 511, 4: 4000}
    assert {times: row.pairs for times, row in kernels.items()} == {22: 512 * 1000, 4: 3000 * 1000 + 1000 * 1001 // 2}


def test_a_few_new_tokens_tell_layers_with_windows_apart():
    """A prompt of 6 tokens fills no window, so that all 26 layers are alike in it; behind 4,000 tokens 22 have windows.

    But for the logits, 6 new tokens are 6 steps, with 5 keys more than a step's 512 in a window; 4 heads of 256.
    """
    step = analyze("gemma-3-1b", mode="decode", N=4006)
    behind = analyze("gemma-3-1b", mode="prefill", N=4006, cached_prefix=4000)
    assert {row.times: (row.core.keys, row.pairs) for row in behind.rows if row.fused} == {
        22: (6 + 511, 6 * 512),
        4: (4006, 6 * 4000 + 21),
    }
    logits = next(row.macs for row in behind.rows if row.component == "lm_head")
    more = 22 * 2 * 6 * 5 * 4 * 256
    assert behind.total("macs") - logits == 6 * (step.total("macs") - logits) + more
    assert behind.total("params") == step.total("params")


@pytest.mark.parametrize("spec", ["gpt2", "qwen3-8b"])
def test_the_longer_the_prefix_the_less_is_left(spec):
    found = [analyze(spec, mode="prefill", N=1024, cached_prefix=one, on="h100-sxm") for one in (2, 256, 512, 1022)]
    for more, less in pairwise(found):
        assert more.prefix.prefill.flops > less.prefix.prefill.flops
        assert more.prefix.prefill_seconds > less.prefix.prefill_seconds
    whole = analyze(spec, mode="prefill", N=1024, on="h100-sxm")
    for one in found:
        assert one.prefix.without.flops == whole.total("flops") > one.total("flops") == one.prefix.prefill.flops
        assert one.prefix.without_seconds == whole.on.seconds > one.on.seconds == one.prefix.prefill_seconds
        assert one.on.outputs == 1024 - one.prefix.tokens
    assert found[0].on.time.flops < whole.on.time.flops


@pytest.mark.parametrize("spec", ["gpt2", "qwen3-8b"])
def test_a_generation_saves_what_its_prefill_saves(spec):
    how = {"N": 300, "new_tokens": 20, "on": "h100-sxm"}
    behind, whole = (analyze(spec, mode="generate", **how, **more) for more in ({"cached_prefix": 200}, {}))
    alone = analyze(spec, mode="prefill", N=300, cached_prefix=200)
    assert behind.generation.prefill.flops == alone.total("flops") == behind.prefix.prefill.flops
    assert behind.generation.decode == whole.generation.decode
    assert behind.generation.without_cache == whole.generation.without_cache
    assert behind.prefix.without == whole.generation.prefill
    assert behind.on.phases[1] == whole.on.phases[1]
    assert behind.prefix.without_seconds == whole.on.phases[0].time.seconds > behind.prefix.prefill_seconds


def test_memory_is_that_of_the_new_tokens():
    """Activations of a long prompt fall with them; the cache stays."""
    spec = load("llama3-8b")
    runs = [Run(tokens=(4096,), mode="prefill", cached_prefix=cached) for cached in (0, 3072)]
    whole, behind = (forward_record(place(spec, run)) for run in runs)
    assert whole.peak_bytes() == pytest.approx(4 * behind.peak_bytes(), rel=0.01)
    row = "stages.0.block.0.attention"
    width, of_keys = 4096, 1024  # Q and the output, K and V
    assert behind.operands[row] == 32 * 2 * (2 * 1024 * width + 2 * 4096 * of_keys)


def test_saved_runs_say_their_prefix(tmp_path):
    """Costs of other prefixes are those of other runs."""
    for cached in (100, 200):
        ledger = analyze("gpt2", mode="prefill", N=512, cached_prefix=cached)
        (tmp_path / f"{cached}.json").write_text(ledger.to_json())
    with pytest.raises(UsageError, match="cached prefix 100 and 200"):
        diff(tmp_path / "100.json", tmp_path / "200.json")


def test_systems_are_compared_behind_a_prefix():
    found = compare("llama3-8b", "qwen3-8b", mode="prefill", N=2048, cached_prefix=1024)
    for ledger in found.ledgers:
        alone = analyze(ledger.metadata.source, mode="prefill", N=2048, cached_prefix=1024)
        assert ledger.total("macs") == alone.total("macs")


@pytest.mark.parametrize(
    "spec",
    ["memory-transformer", "bert-base", "vit", "retnet-1.3b", "igpt-s", "performer", "gpt-oss-20b", "deepseek-v3.2"],
)
def test_what_is_not_exact_is_refused(spec):
    """Two streams, later tokens, images, no state to go on from, kinds without such a program, other stored rows."""
    with pytest.raises((SpecError, UsageError), match="--cached-prefix"):
        analyze(spec, mode="prefill", cached_prefix=200, **({} if spec == "vit" else {"N": 400}))


@pytest.mark.parametrize(
    "given",
    [
        {"mode": "decode"},
        {"mode": "forward"},
        {"cached_prefix": 512},
        {"cached_prefix": 0},
        {"trace": True},
        {"device": "cpu"},
        {"probe": True},
    ],
    ids=str,
)
def test_a_prefix_without_effect_is_refused(given):
    with pytest.raises(UsageError, match="cached-prefix"):
        analyze("gpt2", **{"mode": "prefill", "N": 512, "cached_prefix": 256} | given)
    with pytest.raises(UsageError, match="cached-prefix"):
        build("gpt2", device="meta", mode="prefill", N=512, cached_prefix=256)
