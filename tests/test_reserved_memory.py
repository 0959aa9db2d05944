"""`--memory-share` and `--cache-blocks`: what engines reserve beside what a run needs, worked out by hand."""

import json

import pytest

import xfcost
from helpers import xf
from xfcost.api.options import read_option
from xfcost.counting.devices import read_devices
from xfcost.ledger.cache_blocks import CacheBlocks
from xfcost.ledger.errors import UsageError

GIB, MIB = 2**30, 2**20
H100 = 84_942_979_072  # bytes that the driver reports
DECODE = {"mode": "decode", "dtype": "bfloat16", "attention": "fused", "trace": False}


def on(spec, devices="h100-sxm", **options):
    return xfcost.analyze(spec, **DECODE | {"on": devices} | options).on


def memory(spec, **options):
    return on(spec, **options).memory


def up(tokens, block):
    return (tokens + block - 1) // block * block


# Bytes of keys and values of a token in one layer, in bfloat16: 2 · heads · width · 2.
MISTRAL = 2 * 8 * 128 * 2
GPT_OSS = 2 * 8 * 64 * 2


@pytest.mark.parametrize(("tokens", "batch", "block"), [(1000, 3, 16), (1008, 1, 16), (5000, 2, 256), (10_001, 1, 16)])
def test_blocks_of_a_spec_with_windows(tokens, batch, block):
    """Mistral 7B: 32 layers, all with a window of 4096 tokens."""
    plain, rounded, whole = (
        memory("mistral-7b-sliding", N=tokens, batch=batch, **{"cache_blocks": given} if given else {})
        for given in (None, block, f"{block},whole")
    )
    layer = 32 * MISTRAL * batch
    assert (plain.reserved_cache, plain.cache) == (None, layer * min(tokens, 4096))
    assert rounded.reserved_cache == layer * up(min(tokens, 4096), block)
    assert whole.reserved_cache == layer * up(tokens, block)
    assert plain.cache == rounded.cache == whole.cache  # the need itself is what it was
    assert plain.needed == whole.needed == whole.reserved - whole.reserved_cache + whole.cache
    assert plain.spare - whole.spare == whole.reserved_cache - plain.cache


@pytest.mark.parametrize("mode", ["prefill", "generate"])
def test_blocks_in_modes_whose_rows_have_no_cache_of_their_own(mode):
    more = {"new_tokens": 100} if mode == "generate" else {}
    found = memory("mistral-7b-sliding", N=10_001, batch=2, cache_blocks="16,whole", **more | {"mode": mode})
    assert found.reserved_cache == 2 * 32 * MISTRAL * up(10_001 + (99 if more else 0), 16)
    recorded = memory("gpt-oss-20b", N=10_001, batch=2, cache_blocks="16,whole", **more | {"mode": mode})
    assert recorded.reserved_cache == 2 * 24 * GPT_OSS * up(10_001 + (99 if more else 0), 16)


def test_recurrent_states_are_no_blocks():
    plain, blocks = (
        xfcost.analyze("qwen3.5-27b", N=1001, on="h100-sxm", **DECODE, cache_blocks=given)
        for given in (None, "64,whole")
    )
    states = plain.cache.recurrent_bytes
    assert states
    per_token = 16 * 2 * 4 * 256 * 2  # of its 64 layers 16 have keys and values: 4 heads of 256
    assert plain.on.memory.cache == states + 1001 * per_token
    assert blocks.on.memory.reserved_cache == states + up(1001, 64) * per_token


def test_an_encoder_s_keys_and_values_are_no_blocks():
    plain, blocks = (memory("t5-small", N="100,50", cache_blocks=given) for given in (None, 64))
    own = xfcost.analyze("t5-small", N="100,50", **DECODE).cache
    per_token = own.bytes_per_token
    assert plain.cache == own.cross_attention_bytes + 50 * per_token
    assert blocks.reserved_cache == own.cross_attention_bytes + 64 * per_token


def test_devices_that_share_the_heads_hold_their_part_of_the_blocks():
    plan = {"devices": "h100-sxmx4", "tensor_parallel": 4, "N": 1001, "batch": 8}
    found = on("mistral-7b-sliding", cache_blocks=64, **plan).memory
    assert found.of_each
    assert (found.cache, found.reserved_cache) == (8 * 32 * MISTRAL * 1001 // 4, 8 * 32 * MISTRAL * 1024 // 4)


@pytest.mark.parametrize("blocks", [None, "64", "16,whole"])
@pytest.mark.parametrize("tokens", [100, 4095, 4096, 8000])
def test_a_step_of_masked_windows_is_one_of_gathered_windows(tokens, blocks):
    """What they run over many tokens differs: a dense product with a mask, and blocks of half a window."""
    how = {"N": tokens, "mode": "decode", "batch": 3, "on": "h100-sxm", "trace": False, "cache_blocks": blocks}
    masked, gathered = (xfcost.analyze(name, **how) for name in ("mistral-7b", "mistral-7b-sliding"))
    assert (masked.cache, masked.step) == (gathered.cache, gathered.step)
    assert (masked.on.memory, masked.on.time) == (gathered.on.memory, gathered.on.time)
    assert (masked.macs, masked.total("flops")) == (gathered.macs, gathered.total("flops"))


@pytest.mark.parametrize("blocks", [16, "16,whole", 1000])
@pytest.mark.parametrize("spec", ["mistral-7b-sliding", "gpt-oss-20b"])
def test_the_largest_that_fits_is_of_what_is_reserved(spec, blocks):
    """At the largest N and batch the run fits, and at one more it does not: of specs and of stored counts."""
    how = {"spec": spec, "memory_share": "24%" if spec == "gpt-oss-20b" else "30%", "cache_blocks": blocks}
    found = memory(N=8000, batch=4, **how)
    assert found.fits
    for at, fits in ((found.largest_batch, True), (found.largest_batch + 1, False)):
        assert memory(N=8000, batch=at, **how).fits is fits
    if found.largest_tokens is not None:  # windows alone, without blocks of the full context, fit at every N
        for at, fits in ((found.largest_tokens, True), (found.largest_tokens + 1, False)):
            assert memory(N=at, batch=4, **how).fits is fits
        assert found.largest_tokens % CacheBlocks(tokens=read_option("cache_blocks", blocks).tokens).tokens == 0
    assert (found.largest_tokens is None) == (spec == "mistral-7b-sliding" and blocks != "16,whole")


def test_a_share_of_each_device_s_memory():
    for given in ("90%", 0.9, "0.9"):
        found = on("llama3-8b", devices="h100-sxmx2", N=1000, memory_share=given)
        assert found.memory.available == 2 * int(0.9 * H100)
    each = on("llama3-8b", devices="h100-sxmx2", N=1000, memory_share="50%", tensor_parallel=2).memory
    assert each.available == int(0.5 * H100)
    assert read_devices("h100-sxm").memory_bytes == H100  # the list itself is what it was


def test_devices_side_by_side_follow_the_share_and_the_blocks():
    """Of 24 layers of gpt-oss 20B 12 have windows; weights and statistics are what they are without blocks."""
    how = DECODE | {"N": 8192, "batch": 320, "on": "h100-sxm,l40s"}
    plain, reserved = (
        {choice.asked.name: choice for choice in xfcost.analyze("gpt-oss-20b", **how, **more).choices}
        for more in ({}, {"cache_blocks": "16,whole", "memory_share": "50%"})
    )
    need = plain["h100-sxm"].found.memory
    whole = need.needed - need.cache + 320 * 24 * GPT_OSS * 8192
    assert [plain[name].takes for name in ("h100-sxm", "l40s")] == [1, 2]
    assert [reserved[name].takes for name in ("h100-sxm", "l40s")] == [
        -(-whole // (H100 // 2)),
        -(-whole // 24_000_000_000),
    ]
    assert reserved["h100-sxm"].found.memory.reserved == whole


def test_a_rate_of_each_sample_ends_where_reserved_memory_does():
    how = {"spec": "gpt-oss-20b", "N": 8192, "batch": 32, "tokens_per_user": 1}
    rate = xfcost.analyze(**DECODE | how, on="h100-sxm", cache_blocks="16,whole").choices[0].at_rate
    need = memory("gpt-oss-20b", N=8192, batch=32)
    each = need.attention // 32 + 24 * GPT_OSS * 8192
    assert rate.by_memory == (H100 - need.weights) // each


def test_find_keeps_what_fits_in_what_may_be_used():
    """Both of a spec and of stored counts: the memory that it compares is the reserved one, the cache the exact one."""
    how = {"mode": "decode", "N": 8192, "batch": 64, "on": "h100-sxm"}
    found = {}
    for name, more in (("plain", {}), ("blocks", {"cache_blocks": "16,whole"})):
        result = xfcost.find("gpt-oss-20b", "mistral-7b-sliding", **how, **more)
        found[name] = {one.name: one.figures for one in result.rows}
    for spec, layers, each in (("gpt-oss-20b", 24, GPT_OSS), ("mistral-7b-sliding", 32, MISTRAL)):
        plain, blocks = found["plain"][spec], found["blocks"][spec]
        assert blocks["cache_bytes"] == plain["cache_bytes"]
        assert blocks["memory"] - plain["memory"] == 64 * layers * each * 8192 - plain["cache_bytes"]
    half = xfcost.find("gpt-oss-20b", "mistral-7b-sliding", **how, memory_share="60%", cache_blocks="16,whole")
    assert [one.name for one in half.rows] == ["gpt-oss-20b"]  # 12.8 + 24 GiB of 47.5, and 13.5 + 64 GiB
    prefill = how | {"mode": "prefill", "batch": 2}
    plain, blocks = (
        xfcost.find("mistral-7b-sliding", **prefill, **more).rows[0].figures["memory"]
        for more in ({}, {"cache_blocks": "16,whole"})
    )
    assert blocks - plain == 2 * 32 * MISTRAL * (8192 - 4096)


def test_a_curve_of_throughput_ends_where_reserved_memory_does():
    found = xfcost.plot(
        "gpt-oss-20b", metric="throughput", N=8192, on="h100-sxm", cache_blocks="16,whole", memory_share=0.9
    )
    need = memory("gpt-oss-20b", N=8192, batch=1)
    assert found.rows[-1]["batch"] == (int(0.9 * H100) - need.weights) // (need.attention + 24 * GPT_OSS * 8192)


def test_json_has_the_need_beside_what_is_reserved():
    words = ["analyze", "gpt-oss-20b", "--mode", "decode", "--N", "8192", "--batch", "32", "--on", "h100-sxm"]
    plain, found = (
        json.loads(xf(*words, *more, "--format", "json").stdout)["on"]["memory"]
        for more in ((), ("--cache-blocks", "16,whole", "--memory-share", "90%"))
    )
    assert found["cache_blocks"] == {"tokens": 16, "whole": True}
    assert (found["share"], found["available"]) == (0.9, int(0.9 * H100))
    assert (found["needed"], found["cache"]) == (plain["needed"], plain["cache"])
    assert found["reserved"] - found["needed"] == found["reserved_cache"] - found["cache"]
    assert found["spare"] == found["available"] - found["reserved"]
    assert not {"reserved", "reserved_cache", "cache_blocks", "share"} & plain.keys()


@pytest.mark.parametrize("given", [0, -16, "16,half", ",whole", "whole", "16,", 1.5, [16], True, 10**9])
def test_blocks_that_cannot_be(given):
    with pytest.raises(UsageError, match=r"--cache-blocks .*: expected the tokens of a block, .*16,whole"):
        on("llama3-8b", N=64, cache_blocks=given)


@pytest.mark.parametrize("given", ["16, whole", "16,WHOLE", CacheBlocks(tokens=16, whole=True)])
def test_blocks_are_read_from_texts_and_objects(given):
    assert read_option("cache_blocks", given) == CacheBlocks(tokens=16, whole=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memory_share": "90%"}, r"--memory-share 90%: needs devices"),
        ({"mode": "decode", "cache_blocks": 16}, r"--cache-blocks 16: needs devices"),
        ({"on": "h100-sxm", "mode": "forward", "cache_blocks": 16}, r"--cache-blocks 16: --mode forward has no cache"),
        ({"on": "h100-sxm", "mode": "train", "cache_blocks": 16}, r"--cache-blocks 16: --mode train has no cache"),
        ({"on": "h100-sxm", "memory_share": "110%"}, r"--memory-share 110%: expected a share of each device's memory"),
    ],
)  # fmt: skip
def test_options_without_effect(options, message):
    with pytest.raises(UsageError, match=message):
        xfcost.analyze("gpt2", trace=False, **options)


@pytest.mark.parametrize("name", ["memory_share", "cache_blocks"])
def test_a_plot_of_costs_has_no_memory(name):
    with pytest.raises(
        UsageError, match=r"what fits is no part of it; only --metric throughput ends where memory does"
    ):
        xfcost.plot(
            "gpt2", metric="least-time", on="h100-sxm", mode="decode", **{name: "16" if "blocks" in name else 0.9}
        )


def test_a_training_plan_has_its_share_too():
    how = {"mode": "train", "N": 1024, "trace": False, "on": "a100-sxm-80"}
    whole, half = (xfcost.analyze("gpt2", **how, **more).training.plan for more in ({}, {"memory_share": "50%"}))
    assert half.device_bytes == int(0.5 * whole.device_bytes)
