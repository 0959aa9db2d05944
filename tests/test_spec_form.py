"""The MACs of a spec as a polynomial in N: by hand, and against counts at sizes that it was not made of."""

import json
import math
from fractions import Fraction

import pytest

import xfcost
from helpers import stdout_of

D = 768


def form(name, **options):
    return xfcost.analyze(name, trace=False, **options).closed_form


def test_gpt2_has_its_blocks_and_its_vocabulary():
    linear = 12 * 12 * D**2 + 50_257 * D
    found = form("gpt2", N=100)
    assert (found.macs, found.period) == (f"{12 * 2 * D}·N² + {linear}·N", 1)
    assert xfcost.analyze("gpt2", N=777, trace=False).macs == 12 * 2 * D * 777**2 + linear * 777
    assert "MACs = 18,432·N² + 123,532,032·N   (through the counts at N = 1, 256," in stdout_of(
        "analyze", "gpt2", "--no-trace"
    )
    assert json.loads(xfcost.analyze("gpt2", trace=False).to_json())["closed_form"]["macs"] == form("gpt2").macs


def test_bert_adds_its_pooler_of_one_token():
    assert form("bert").macs == f"{12 * 2 * D}·N² + {12 * 12 * D**2}·N + {D**2}"
    assert xfcost.analyze("bert", N=77, trace=False).macs == 12 * 2 * D * 77**2 + 12 * 12 * D**2 * 77 + D**2


@pytest.mark.parametrize("size", [224, "224x448"])
def test_the_class_token_of_vit_makes_more_linear_terms(size):
    # 12 blocks at N + 1 tokens: 12·d² each, and 2·d·(N + 1)²; patches of 8·8·3 pixels, 1,000 classes from one token.
    d, blocks = 384, 12
    per_token, square = blocks * 12 * d**2, blocks * 2 * d
    linear, rest = per_token + 2 * square + 192 * d, per_token + square + 1000 * d
    assert form("vit-s8", size=size).macs == f"{square}·N² + {linear}·N + {rest}"
    assert xfcost.analyze("vit-s8", size=320, trace=False).macs == square * 1600**2 + linear * 1600 + rest


def test_mamba_pads_its_convolutions_and_has_no_square():
    # 24 blocks: projections to 2·e, from e to 48 + 2·16 and from 48 to e, the states' e·16 products, and out of e;
    # a convolution of 4 computes 3 tokens more, which are cut off.
    e, states, rank = 2 * D, 16, 48
    block = D * 2 * e + 4 * e + e * (rank + 2 * states) + rank * e + e * states + e * D
    linear = 24 * block + 50_280 * D
    assert form("mamba-130m").macs == f"{linear}·N + {24 * 4 * 3 * e}"
    assert xfcost.analyze("mamba-130m", N=33, trace=False).macs == linear * 33 + 24 * 4 * 3 * e


def test_of_few_tokens_it_is_the_same_form():
    assert {form("vit-ti32", size=size).macs for size in (64, 96, 224)} == {form("vit-ti32", size=1024).macs}


def test_a_window_beyond_a_short_input_is_seen():
    assert form("longformer", N=8) is None


def values(macs, tokens):
    """The polynomial of a report at one N."""
    powers = {"": 1, "N": tokens, "N²": tokens**2}
    terms = [term.partition("·") for term in macs.replace(" - ", " + -").split(" + ")]
    return sum(Fraction(number) * powers[power] for number, _, power in terms)


# Strides of ResNet, CvT and PVT halve the first stage's grid three times; Swin's windows of 7 fill the last one.
@pytest.mark.parametrize(("name", "period"), [("swin", 56), ("cvt-13", 8), ("pvt-v2-b0", 8), ("resnet-50", 8)])
def test_windows_and_strides_have_the_form_of_multiples_of_the_least_side(name, period):
    found = form(name)
    assert (found.period, found.counted_in) == (period, "√N")
    assert f"where √N is a multiple of {period}" in " ".join(stdout_of("analyze", name, "--no-trace").split())
    for times in (4, 7, 11):
        side = period * times
        assert xfcost.analyze(name, size=4 * side, trace=False).macs == values(found.macs, side**2)
    between = xfcost.analyze(name, size=4 * (period // 2) * 5, trace=False)
    assert between.macs != values(found.macs, between.metadata.grid_tokens)


@pytest.mark.parametrize(("name", "sizes"), [("resnet-50", (32, 224, 256, 288)), ("swin", (224, 448, 896))])
def test_the_form_and_its_condition_are_the_same_whatever_the_own_size(name, sizes):
    found = [form(name, size=size) for size in sizes]
    assert len({(one.macs, one.period) for one in found}) == 1
    for one in found:
        assert len(one.sizes) >= 5
        assert all(math.isqrt(size) % one.period == 0 for size in one.sizes)


# Blocks of windows that a length fills: Longformer's have 512 tokens, Reformer's buckets 128, Mamba-2's chunks 256.
@pytest.mark.parametrize(("name", "period"), [("longformer", 512), ("mamba2-130m", 256)])
def test_blocks_of_tokens_have_the_form_of_multiples_of_a_block(name, period):
    found = form(name)
    assert (found.period, found.counted_in) == (period, "N")
    settings = ("embed.1.length=16384",) if name == "longformer" else ()
    for tokens in (period * 7, period * 22):
        assert xfcost.analyze(name, N=tokens, trace=False, settings=settings).macs == values(found.macs, tokens)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("swin", {"size": 256}),  # windows of 7 pad 64 tokens a side, 128 a side differently
        ("swin", {"size": "224x448"}),
        ("t5-base", {}),  # two streams
        # padded by 511 tokens; so many blocks more, and one for what is left of them, stand at each small multiple
        ("longformer", {"N": 4097}),
        ("gpt2", {"mode": "prefill"}),
        ("gpt2", {"on": "h100-sxm"}),
        ("gpt2", {"closed_form": False}),
    ],
)
def test_elsewhere_there_is_none(name, options):
    ledger = xfcost.analyze(name, trace=False, **options)
    assert ledger.closed_form is None
    assert "closed_form" not in json.loads(ledger.to_json())
