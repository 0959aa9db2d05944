"""m new tokens: steps with a cache and passes without one, added up exactly."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xfcost.api.analysis import analyze, compare
from xfcost.api.runs import make_run
from xfcost.counting.sums import MAX_EVALUATIONS, sum_over_sizes, sum_parts
from xfcost.counting.system import AccountOptions
from xfcost.ledger.errors import UsageError, XfcostError
from xfcost.spec.load import load
from xfcost.systems.spec import SpecSystem

coefficients = st.lists(st.integers(-50, 50), min_size=1, max_size=4)


@settings(deadline=None)
@given(coefficients, st.integers(1, 300), st.integers(0, 2000), st.integers(1, 400), st.integers(1, 9))
def test_sums_of_pieces_are_those_of_all_their_terms(powers, first, more, kink, steps):
    """Polynomials up to degree 3; what stays when a window is full; what grows by a step every so often."""

    def costs(t):
        return sum(a * t**k for k, a in enumerate(powers)), min(t, kink), min(t, kink) * t, -(-t // steps)

    last = first + more
    assert sum_over_sizes(costs, first, last) == tuple(map(sum, zip(*map(costs, range(first, last + 1)), strict=True)))


def walked(costs, first, last):
    return tuple(map(sum, zip(*map(costs, range(first, last + 1)), strict=True)))


@pytest.mark.rest
@settings(deadline=None)
@given(
    st.integers(1, 500), st.integers(0, 6000), st.integers(2, 70), st.integers(2, 9), st.integers(1, 3000), coefficients
)
def test_sums_of_chunks_and_windows_are_those_of_all_their_terms(first, more, chunk, dilation, window, powers):
    """What is padded up or down, to one length or to the product of two, from the start or until a window is full."""

    def costs(t):
        padded, rest = -(-t // chunk) * chunk, t % (chunk * dilation)
        growing = min(-(-t // dilation), window) * dilation
        return padded * padded, sum(a * rest**k for k, a in enumerate(powers)), growing, t * (2 * t - 1).bit_length()

    last = first + more
    assert sum_over_sizes(costs, first, last, {chunk, dilation, window}) == walked(costs, first, last)


def test_two_thousand_million_tokens_are_summed_exactly():
    """Σ ⌈t/256⌉ over t = 1 … 256·m is 256·m·(m + 1)/2, and Σ t·⌈log₂ t⌉ is a sum over powers of two."""
    last = 2**31
    asked = []

    def costs(t):
        asked.append(t)
        return -(-t // 256), t * (t - 1).bit_length()

    m = last // 256
    logarithms = sum(k * (2**k * (2**k + 1) - 2 ** (k - 1) * (2 ** (k - 1) + 1)) // 2 for k in range(1, 32))
    assert sum_over_sizes(costs, 1, last, {256, 12, 64}) == (256 * m * (m + 1) // 2, logarithms)
    assert len(asked) < MAX_EVALUATIONS


def test_parts_with_periods_of_their_own_are_summed_apart():
    """Σ ⌈t/w⌉ over t = 1 … w·m is w·m·(m + 1)/2; the last part has pieces of 102.4 terms."""
    windows, last = (32, 64, 128, 256, 512), 2**31
    asked = set()

    def costs(t):
        asked.add(t)
        return {str(w): (-(-t // w), t) for w in windows} | {"slots": (-(-5 * t // 512),)}

    sums = sum_parts(costs, tuple, 1, last, {*windows, 5})
    for w in windows:
        m = last // w
        assert sums[str(w)] == (w * m * (m + 1) // 2, last * (last + 1) // 2)
    rounded_up = sum(-(-5 * t // 512) for t in range(1, 513))
    periods = last // 512
    assert sums["slots"] == (periods * rounded_up + 512 * 5 * periods * (periods - 1) // 2,)
    assert len(asked) < 4500


@settings(deadline=None)
@given(st.integers(1, 300), st.integers(0, 5000), st.integers(2, 60), st.integers(2, 9), st.integers(1, 700))
def test_sums_of_parts_are_those_of_all_their_terms(first, more, w, factor, kink):
    def costs(t):
        late = {"late": (t,)} if t > kink else {}
        return {"a": (-(-t // w) * t,), "b": (-(-t // (w * factor)), min(t, kink)), "c": (factor * t // w,)} | late

    last = first + more
    found = sum_parts(costs, tuple, first, last, {w, factor})
    for name in ("a", "b", "c", "late"):
        every = [costs(t)[name] for t in range(first, last + 1) if name in costs(t)]
        assert found.get(name) == (tuple(map(sum, zip(*every, strict=True))) if every else None)


def test_what_changes_everywhere_is_given_up():
    with pytest.raises(UsageError, match="change in too many places"):
        sum_over_sizes(lambda t: (t * int(str(t)[::-1]),), 1, 2**31)


def test_any_costs_of_few_tokens_are_summed():
    costs = lambda t: (hash(str(t)[::-1].zfill(9)) % 97,)  # noqa: E731 - any numbers
    assert sum_over_sizes(costs, 1, MAX_EVALUATIONS, {3, 7}) == walked(costs, 1, MAX_EVALUATIONS)


def work(ledger):
    return ledger.total("macs") or 0, ledger.total("flops") or 0


@pytest.mark.parametrize(
    ("preset", "prompt", "new"),
    [
        ("gpt2", 5, 40), ("mistral-7b-sliding", 4080, 30), ("mistral-7b", 4080, 30), ("llama3-8b", 1, 25),
        ("gpt2", 7, 1), ("gpt2", 7, 2), ("longformer-char-small", 3, 451), ("mamba-130m", 10, 40),
    ],
)  # fmt: skip
def test_generation_is_a_prefill_and_its_steps_one_by_one(preset, prompt, new):
    ledger = analyze(preset, N=prompt, mode="generate", new_tokens=new, trace=False)
    generation = ledger.generation
    steps = [work(analyze(preset, N=t, mode="decode", trace=False)) for t in range(prompt + 1, prompt + new)]
    # every pass computes the logits of its last position alone
    passes = [work(analyze(preset, N=t, mode="prefill", trace=False)) for t in range(prompt, prompt + new)]
    prefill = passes[0]
    assert (generation.prefill.macs, generation.prefill.flops) == prefill
    assert generation.decode.macs == sum(macs for macs, _ in steps)
    assert generation.decode.flops == sum(flops for _, flops in steps)
    assert generation.with_cache.flops == sum(flops for _, flops in [prefill, *steps]) == ledger.total("flops")
    assert generation.without_cache.macs == sum(macs for macs, _ in passes)
    assert generation.without_cache.flops == sum(flops for _, flops in passes)


@pytest.mark.parametrize(("preset", "prompt", "new"), [("t-dmca", 1000, 401), ("etc-base", 601, 400)])
def test_passes_without_a_cache_are_summed_one_by_one(preset, prompt, new):
    generation = analyze(preset, N=prompt, mode="generate", new_tokens=new, trace=False).generation
    passes = [work(analyze(preset, N=t, mode="prefill", trace=False)) for t in range(prompt, prompt + new)]
    assert generation.without_cache.macs == sum(macs for macs, _ in passes)
    assert generation.without_cache.flops == sum(flops for _, flops in passes)


def test_of_an_encoder_decoder_the_decoder_writes_and_the_encoder_reads_once():
    ledger = analyze("t5-small", N="50,3", mode="generate", new_tokens=30, trace=False)
    steps = [work(analyze("t5-small", N=f"50,{t}", mode="decode", trace=False)) for t in range(4, 33)]
    assert ledger.generation.decode.macs == sum(macs for macs, _ in steps)

    def parts(t):
        """MACs of the encoder, and of all else."""
        one = analyze("t5-small", N=f"50,{t}", mode="prefill", trace=False)
        encoder = one.total("macs", lambda row: row.path.startswith("encoder.")) or 0
        return encoder, (one.total("macs") or 0) - encoder

    passes = [parts(t) for t in range(3, 33)]
    assert ledger.generation.without_cache.macs == passes[0][0] + sum(rest for _, rest in passes)


def test_every_step_of_a_short_text_is_traced_and_three_of_a_long_one():
    settings = ["stages.0.depth=1"]
    short = analyze("gpt2", N=6, mode="generate", new_tokens=4, settings=settings)
    long = analyze("gpt2", N=6, mode="generate", new_tokens=100, settings=settings)
    for ledger, sizes in ((short, (7, 8, 9)), (long, (7, 56, 105))):
        assert ledger.generation.traced_at == sizes
        assert ledger.agreement.exact


@pytest.mark.parametrize("preset", ["common-transformer-xl", "hyena-153m"])
def test_what_has_no_steps_is_counted_without_a_cache(preset):
    generation = analyze(preset, N=64, mode="generate", new_tokens=3, trace=False).generation
    assert generation.decode is None
    assert generation.refused is not None
    assert generation.without_cache.macs > generation.prefill.macs


def test_a_prefill_alone_is_not_compared_with_texts():
    comparison = compare("gpt2", "bert-base", N=8, mode="generate", new_tokens=4)
    text, prefill = (comparison.figures[name] for name in comparison.names)
    assert all(text[quantity] for quantity in ("macs", "flops", "mixing_macs", "generation_macs"))
    assert {prefill[quantity] for quantity in ("macs", "flops", "mixing_macs", "generation_macs")} == {None}
    assert prefill["generation_macs_without_cache"]


@pytest.mark.parametrize(("spec", "options"), [("vit", {}), ("gpt2", {"N": 1000, "mode": "prefill"})])
def test_what_can_not_be_generated_is_refused_before_the_trace(spec, options):
    said = []
    with pytest.raises(XfcostError):
        analyze(spec, **{"mode": "generate", "new_tokens": 26} | options, trace=True, progress=said.append)
    assert said == []


@pytest.mark.parametrize("preset", ["mistral-7b-sliding", "mamba2-130m", "hyena-125m", "retnet-1.3b-chunkwise"])
def test_the_longest_generation_is_that_of_its_halves(preset):
    """2³⁰ tokens more than 2³⁰: what a whole text costs without a cache is the sum of two that share their ends.

    A text of m tokens after a prompt of p reads p, p + 1, … p + m - 1 tokens; that after p + m goes on where it ends.
    """
    room = ("**.length=4294967296",)
    prompt, half = 1000, 2**30

    def flops(start, new):
        run = make_run(N=start, mode="generate", new_tokens=new)
        ledger = SpecSystem(load(preset, room)).account(run, AccountOptions())
        return ledger.generation.without_cache.flops

    assert flops(prompt, 2 * half) == flops(prompt, half) + flops(prompt + half, half)
