"""Speculative decoding: rounds of a draft and a target by hand, against other people's runs, figures and laws."""

import json
from itertools import pairwise

import pytest
import serving
import torch

from hugging_face import TEXT, theirs, write
from modules import counted_by_torch
from transformers_models import cache_name
from xfcost.api.analysis import analyze
from xfcost.counting.system import AccountOptions
from xfcost.ledger.errors import UsageError
from xfcost.parts.serving.speculative import Draft, head_passes, speculation
from xfcost.spec.load import load
from xfcost.spec.run import Run
from xfcost.systems.spec import SpecSystem

# H100 SXM: 3.35 TB/s and 989.4 TFLOP/s (bfloat16).
BANDWIDTH, PEAK = 3.35e12, 989.4e12


def rounds(target, draft="ngram", **options):
    """The step's ledger and its rounds."""
    ledger = analyze(target, mode="decode", trace=False, draft=draft, **options)
    return ledger, ledger.speculation


def test_a_round_by_hand():
    """Llama 3.2 1B for Llama 3.1 8B.

    Weights are read once in every pass: of a look-up table one row of each token, of the head all of it. The cache of
    N tokens is 2·8·128·32 layers numbers a token in the target, 2·8·64·16 in the draft, 2 bytes each.
    """
    tokens, k, batch = 4096, 4, 3
    _, one = rounds("llama3.1-8b", "llama3.2-1b", N=tokens, batch=batch, draft_tokens=k, on="h100-sxm")
    params, table = 8_030_261_248, 128_256 * 4096
    weights = 2 * (params - table + batch * (k + 1) * 4096)
    cache = 2 * 2 * 8 * 128 * 32 * batch * (tokens + k)
    assert one.verification_time.bytes == weights + cache
    assert one.verification_time.seconds == pytest.approx((weights + cache) / BANDWIDTH)
    own, own_table = 1_235_814_400, 128_256 * 2048  # its head is the embedding's table
    for place, time in enumerate(one.draft_times):
        assert time.bytes == 2 * (own - own_table + own_table + batch * 2048) + 4 * 8 * 64 * 16 * batch * (
            tokens + place
        )
    assert len(one.draft_times) == k
    drafting = sum(time.bytes for time in one.draft_times) / BANDWIDTH
    assert one.seconds(*one.times) == pytest.approx((weights + cache) / BANDWIDTH + drafting)
    gained = one.with_accepted(3)
    assert gained.tokens_per_second == pytest.approx(4 * batch / one.seconds(*one.times))
    assert gained.speed_up == pytest.approx(4 * one.step_time.seconds / one.seconds(*one.times))
    # both models and caches, and the logits of (k + 1)·B tokens among the activations of the larger one
    assert one.draft_weights == 2 * own
    assert one.draft_cache == 4 * 8 * 64 * 16 * batch * (tokens + k - 1)
    assert one.memory.weights == 2 * (params + own)
    assert one.memory.cache == cache + one.draft_cache
    assert one.memory.activations >= 2 * 128_256 * (k + 1) * batch


def test_a_verification_becomes_compute_bound():
    """k + 1 tokens of B samples take 2·P·(k + 1)·B FLOPs for 2·P bytes: with 64·9 = 576 tokens beyond 295 FLOP/byte."""
    _, one = rounds("llama3.1-8b", "ngram", N=64, batch=64, draft_tokens=8, on="h100-sxm")
    assert (one.step_time.bound, one.verification_time.bound) == ("memory-bound", "compute-bound")
    assert one.verification_time.flops == pytest.approx(9 * one.step_time.flops, rel=1e-3)
    assert one.verification_time.seconds == one.verification_time.flops / PEAK


@pytest.mark.parametrize("target", ["gpt2", "llama3-8b", "mixtral-8x7b", "deepseek-v2-lite", "rwkv4-169m"])
@pytest.mark.parametrize("sharing", [{}, {"tensor_parallel": 4}], ids=["perfectly", "tensor"])
def test_no_drafted_token_is_a_decode_step(target, sharing):
    """To the unit: FLOPs, bytes of weights and cache, seconds and memory."""
    if sharing and target == "rwkv4-169m":
        return  # it has no heads to divide
    options = {"N": 500, "batch": 2, "on": "h100-sxmx4", "trace": False, **sharing}
    step = analyze(target, mode="decode", **options)
    draft = Draft("ngram", 0)
    verified = analyze(
        target, mode="prefill", N=500, cached_prefix=499, logits="all", **{"batch": 2, **sharing}, on="h100-sxmx4"
    )
    one = speculation(step, verified, [], draft)
    assert one.verification == one.step
    assert one.verification_time.bytes == one.step_time.bytes
    assert one.verification_time.flops == one.step_time.flops
    assert one.verification_time.seconds == one.step_time.seconds
    assert one.memory.needed == step.on.memory.needed
    assert one.with_accepted(0).speed_up == 1
    assert one.break_even == 0


def test_laws_of_rounds():
    """More accepted tokens are faster, none is slower than no draft, more drafted ones take longer rounds."""
    found = [rounds("llama3-8b", "llama3.2-1b", N=1024, draft_tokens=k, on="h100-sxm")[1] for k in (1, 3, 7)]
    for one in found:
        table = one.rows()
        assert [row.accepted for row in table] == [*range(one.draft_tokens + 1)]
        for less, more in pairwise(table):
            assert less.speed_up < more.speed_up
            assert less.acceptance < more.acceptance
            assert less.flops_per_token > more.flops_per_token
        assert table[0].speed_up < 1
        assert one.with_accepted(one.break_even).speed_up == pytest.approx(1)
    for less, more in pairwise(found):
        assert less.break_even < more.break_even
        assert less.verification.macs < more.verification.macs


def test_acceptance_of_leviathan():
    """Equation 1: (1 - α^(k + 1)) / (1 - α) tokens; α = 0.8 and k = 5 give 3.69, as in figure 2."""
    _, one = rounds("gpt2", "ngram", N=100, draft_tokens=5, acceptance=0.8)
    expected = (1 - 0.8**6) / (1 - 0.8)
    assert one.accepted + 1 == pytest.approx(expected) == pytest.approx(3.69, abs=0.01)
    assert one.with_accepted(one.accepted).acceptance == pytest.approx(0.8)
    assert [one.acceptance_of(a) for a in (0, 5)] == [0, 1]


def test_many_drafted_tokens_have_a_short_table():
    _, one = rounds("gpt2", "ngram", N=100, draft_tokens=32)
    assert [row.accepted for row in one.rows()] == [0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 32]


GPT2 = {"model_type": "gpt2", "n_embd": 16, "n_layer": 2, "n_head": 4, "vocab_size": 29, "n_positions": 64}
CLASSES = {
    "LlamaForCausalLM": {"model_type": "llama", **TEXT},
    "GPT2LMHeadModel": GPT2,
    "BloomForCausalLM": {"model_type": "bloom", "hidden_size": 16, "n_layer": 2, "n_head": 4, "vocab_size": 29},
}


@pytest.mark.parametrize(("name", "fields"), CLASSES.items(), ids=CLASSES)
@pytest.mark.parametrize("drafted", [1, 4])
def test_the_verification_is_what_the_model_runs(name, fields, drafted, tmp_path):
    """The class of transformers on the last token and the drafted ones, behind the cache of the tokens before."""
    tokens, batch = 11, 2
    model = theirs(fields, name)
    with torch.no_grad():
        first = model(torch.zeros(batch, tokens - 1, dtype=torch.int64, device="meta"), use_cache=True)
        new = torch.zeros(batch, drafted + 1, dtype=torch.int64, device="meta")
        _, macs = counted_by_torch(lambda: model(new, use_cache=True, **{cache_name(): first[cache_name()]}))
    path = write(tmp_path, fields | {"architectures": [name]})
    _, one = rounds(str(path), "ngram", N=tokens, batch=batch, draft_tokens=drafted, attention="eager")
    assert one.verification.macs == macs


def test_logits_of_stored_counts_are_of_all_tokens():
    """Qwen3 8B has a spec's sizes: its stored counts of a verification are those of k + 1 steps over as many tokens."""
    last = analyze("qwen3-8b", mode="decode", N=504)
    _, one = rounds("qwen3-8b", "ngram", N=500, draft_tokens=4)
    assert one.verification.macs == 5 * last.total("macs")


@pytest.mark.parametrize(
    ("target", "published"),
    [("vicuna", 0.24), ("llama2-13b", 0.37), ("llama2-70b", 0.99), ("llama3-8b", 0.25), ("llama3-70b", 0.99)],
)
def test_eagle_heads_are_as_large_as_published(target, published):
    """EAGLE's README (SafeAILab/EAGLE): parameters of the released heads in billions; Vicuna 7B is a LLaMA 7B."""
    _, one = rounds({"vicuna": "llama2-7b"}.get(target, target), "eagle", N=64)
    assert one.draft_params / 1e9 == pytest.approx(published, abs=0.005)
    # without embedding and head of the target: W of 2d × d, and a block
    assert one.draft_tokens == 5


def test_an_mtp_module_is_as_large_as_published():
    """DeepSeek-V3's README_WEIGHTS: 11.5 B parameters but for the shared embedding and head; 1 module.

    By hand: 2·7168² of the map, a block (its last: 256 experts of 3·7168·2048, one shared, router, attention of
    187,107,328), two norms before the map and the head's own.
    """
    _, one = rounds("deepseek-v3", "mtp", N=64)
    experts = 257 * 3 * 7168 * 2048 + 256 * 7168 + 256
    assert one.draft_params == pytest.approx(2 * 7168**2 + experts + 187_107_328, rel=1e-5)
    assert one.draft_params / 1e9 == pytest.approx(11.5, rel=0.01)
    assert (one.draft_tokens, one.method) == (1, "mtp")


def test_medusa_heads_by_hand():
    """A head is d² + d + d·V parameters; k of them run at once, on one token of each sample, and have no cache."""
    _, one = rounds("llama2-7b", "medusa", N=64, batch=2, draft_tokens=4, on="h100-sxm")
    d, words = 4096, 32_000
    assert one.draft_params == 4 * (d * d + d + d * words)
    assert one.drafting.macs == 2 * 4 * (d * d + d * words)
    (time,) = one.draft_times
    assert time.bytes == one.draft_weights == 2 * one.draft_params
    assert one.draft_cache == 0


def test_heads_are_divided_as_the_target_is():
    """On 4 devices each holds a quarter of the block, and the whole map of 2d × d, as in vLLM (ReplicatedLinear)."""
    _, whole = rounds("llama3-70b", "eagle", N=64, on="h100-sxmx4")
    _, each = rounds("llama3-70b", "eagle", N=64, on="h100-sxmx4", tensor_parallel=4)
    assert whole.draft_weights == 2 * whole.draft_params
    of_map = 2 * 2 * 8192**2
    assert each.draft_weights == pytest.approx((whole.draft_weights - of_map) / 4 + of_map, rel=0.001)
    assert each.draft_cache == whole.draft_cache / 4


@pytest.mark.parametrize("one", serving.speculative(), ids=lambda one: one.line["target"])
def test_no_published_run_is_faster_than_its_bound(one):
    """Without a draft, and with all drafted tokens accepted; a round gave more than 1 token, and no more than k + 1."""
    drafted = one.rounds.draft_tokens
    assert one.plain < 1 / one.rounds.step_time.seconds
    assert one.printed < one.rounds.with_accepted(drafted).tokens_per_second
    assert 1 < one.needed < drafted + 1


def test_experts_make_a_verification_longer():
    """Of 256 experts with 8 of each token, 16 tokens choose 102 and 8 choose 57, as expected: 256·(1 - (31/32)^T)."""
    _, one = rounds("deepseek-v3", "ngram", N=64, batch=8, draft_tokens=1, on="h200-sxmx16", weights="none")
    experts = 58 * 2 * 3 * 7168 * 2048  # bytes of one expert in all blocks of them
    more = 256 * ((31 / 32) ** 8 - (31 / 32) ** 16) * experts
    assert one.verification_time.bytes - one.step_time.bytes == pytest.approx(more, rel=0.01)
    assert one.experts


def test_what_does_not_fit_with_its_draft_has_a_ratio_and_no_speed():
    """Llama 2 13B is 24.2 GiB of 48 GB. As its own draft it takes 6 passes for 3 tokens."""
    _, alone = rounds("llama2-13b", "ngram", N=64, on="l40s")
    _, both = rounds("llama2-13b", "llama2-13b", N=64, on="l40s")
    assert alone.fits
    assert not both.fits
    gained = both.with_accepted(2)
    assert gained.seconds_per_token is gained.tokens_per_second is None
    assert gained.speed_up == pytest.approx(3 / 6, rel=0.001)
    assert both.break_even == pytest.approx(5, rel=0.001)
    assert both.to_object()["memory"]["spare"] < 0


def test_estimates_are_of_all_passes():
    _, bound = rounds("llama3-8b", "llama3.2-1b", N=64, on="h100-sxm")
    _, one = rounds("llama3-8b", "llama3.2-1b", N=64, on="h100-sxm", mbu=0.5)
    assert one.estimated
    assert not bound.estimated
    assert one.with_accepted(2).seconds_per_token == pytest.approx(2 * bound.with_accepted(2).seconds_per_token)
    assert one.break_even == pytest.approx(bound.break_even)


@pytest.mark.parametrize("draft", ["llama3.2-1b", "eagle", "medusa"])
def test_a_generation_is_its_prefills_and_its_rounds(draft):
    """12 of 13 new tokens in 3 rounds of 3 drafted tokens, all accepted: each round counted at its own N."""
    how = {"batch": 2, "on": "h100-sxm", "draft": draft, "draft_tokens": 3}
    ledger = analyze("llama3.1-8b", mode="generate", N=500, new_tokens=13, trace=False, **how)
    one = ledger.speculation
    each = [rounds("llama3.1-8b", N=tokens, **{**how, "draft": draft})[1] for tokens in (501, 505, 509)]
    of_rounds = sum(part.seconds(*part.times) for part in each)
    prompts = [analyze(name, mode="prefill", N=500, batch=2, on="h100-sxm") for name in ("llama3.1-8b", "llama3.2-1b")]
    of_target, of_draft = (prompt.on.seconds for prompt in prompts)
    prefills = one.seconds(*one.prefill_times)
    assert one.prefill_times[0].seconds == of_target
    if draft == "llama3.2-1b":
        assert prefills == pytest.approx(of_target + of_draft)
        assert one.prefill.flops == sum(prompt.total("flops") for prompt in prompts)
    else:  # an EAGLE head is a block of the 32, and more; Medusa's heads read no prompt
        assert (prefills > of_target * 33 / 32) == (draft == "eagle")
    found = one.with_accepted(3)
    total = found.seconds_per_token * 13
    assert total <= prefills + of_rounds
    assert total == pytest.approx(prefills + of_rounds, rel=1e-4)
    assert found.tokens_per_second == pytest.approx(2 * 13 / total)
    assert found.speed_up == pytest.approx(ledger.on.seconds / total)
    assert one.plain_times == ledger.on.parts
    assert one.with_accepted(one.break_even).speed_up == pytest.approx(1)
    assert one.memory.cache == each[-1].memory.cache
    assert one.memory.activations == max(ledger.on.memory.activations, each[-1].memory.activations)


def test_json_has_every_figure():
    ledger, one = rounds("llama3-8b", "llama3.2-1b", N=64, batch=2, on="h100-sxm", accepted=2.5)
    found = json.loads(ledger.to_json())["speculation"]
    assert (found["draft"], found["method"], found["draft_tokens"]) == ("Llama 3.2 1B", "draft_model", 5)
    assert found["least_seconds"]["round"] == pytest.approx(one.seconds(*one.times))
    assert found["with_accepted"]["tokens"] == 3.5
    assert found["break_even_accepted"] == pytest.approx(one.break_even)
    assert len(found["by_accepted"]) == 6
    assert "speculation" not in json.loads(analyze("gpt2", mode="decode", trace=False).to_json())


def test_heads_step_behind_the_same_tokens_as_the_target():
    """Of an EAGLE head the cache of one block grows with every token that it drafts."""
    run = Run(mode="decode", tokens=(100,), on=None)
    passes = head_passes(load("llama3-8b"), run, Draft("eagle", 3), 100)
    assert [one.cache.bytes for one in passes] == [2 * 2 * 8 * 128 * tokens for tokens in (100, 101, 102)]
    own = SpecSystem(load("llama3-8b")).account(run, AccountOptions(trace=False))
    of_block = [row for row in own.rows if row.in_block]
    in_head = {row.title: row.macs for row in passes[0].rows if row.in_block}
    assert in_head == {row.title: row.macs for row in of_block}


@pytest.mark.parametrize(
    ("spec", "given", "message"),
    [
        ("gpt2", {"mode": "prefill", "draft": "ngram"}, "--mode decode and --mode generate"),
        ("gpt2", {"mode": "generate", "new_tokens": 1, "draft": "ngram"}, "give more of them"),
        ("gpt2", {"accepted": 2}, "add its draft"),
        ("gpt2", {"draft": "ngram", "accepted": 6}, "5 are drafted"),
        ("gpt2", {"draft": "ngram", "accepted": 2, "acceptance": 0.5}, "give one of them"),
        ("gpt2", {"draft": "ngram", "draft_tokens": 65}, "from 1 to 64"),
        ("gpt2", {"draft": "ngram", "on": "h100-sxmx2", "pipeline": 2}, "--pipeline 2: rounds of --draft"),
        ("gpt2", {"draft": "ngram", "on": "h100-sxm,l40s"}, "--draft: needs one device"),
        ("gpt2", {"draft": "ngram", "on": "h100-sxm", "tokens_per_user": 30}, "--tokens-per-user 30: rounds"),
        ("gpt2", {"draft": "ngram", "device": "cpu"}, "--device cpu: rounds"),
        ("gpt2", {"draft": "nothing"}, "--draft nothing: there is no preset"),
        ("gpt2", {"draft": "vit"}, "--draft vit: .*token by token"),
        ("mixtral-8x7b", {"draft": "eagle"}, "describe it as a spec"),
        ("qwen3-8b", {"draft": "mtp"}, "no spec says"),
        ("performer", {"draft": "ngram"}, "whole prompts only"),
        ("gpt2", {"draft": "ngram", "N": 1024}, "1029 tokens do not fit"),
    ],
    ids=str,
)
def test_what_has_no_round_is_refused(spec, given, message):
    with pytest.raises(UsageError, match=message):
        analyze(spec, **{"mode": "decode", "N": 300, "trace": False} | given)
