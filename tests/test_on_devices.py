"""`--on`: bounds, estimates and memory against what is worked out by hand; the words and keys of the reports."""

from __future__ import annotations

import contextlib
import json
import re

import msgspec
import pytest
import torch

import xfcost
from helpers import csv_of, least_macs, report_text, xf
from strategies import stack, stored
from xfcost.api.runs import make_run
from xfcost.counting.devices import read_devices
from xfcost.counting.forward import count
from xfcost.ledger import calibration
from xfcost.ledger.achieved import reached
from xfcost.ledger.errors import DeviceError, UsageError
from xfcost.ledger.join import with_operand_bytes
from xfcost.ledger.least_work import extreme_weight_bytes
from xfcost.ledger.metadata import Timing
from xfcost.parts.serving.bounds import largest_true, step_bound
from xfcost.parts.serving.result import PhaseBound, TimeBound
from xfcost.spec.load import load, preset_names
from xfcost.spec.placement import place
from xfcost.spec.run import Run
from xfcost.torch_models.build import build
from xfcost.torch_models.timing.devices import products_in
from xfcost.torch_models.timing.rows import row_bytes

GIB = 2**30
BF16 = {"dtype": "bfloat16", "attention": "fused", "trace": False}
LLAMA = ["analyze", "llama3.1-70b", "--mode", "decode", "--dtype", "bf16", "--attention", "fused", "--no-trace"]


def decode(spec="llama3-70b", on="h100-sxmx8", **options):
    return xfcost.analyze(spec, **BF16 | {"mode": "decode", "N": "128k", "batch": 8, "on": on} | options)


def test_a_decode_step_of_a_70b_by_hand():
    found = decode().on
    layers, heads, width, batch, tokens = 80, 8, 128, 8, 128_000
    cache = 2 * layers * heads * width * tokens * batch * 2
    table = 128_256 * 8192
    weights = (70_553_706_496 - table) * 2 + batch * 8192 * 2  # of the embedding table, one row per sample
    assert found.memory.cache == cache == 312.5 * GIB
    assert found.memory.weights == 70_553_706_496 * 2
    assert found.time.bytes == weights + cache
    assert found.seconds == pytest.approx((weights + cache) / (8 * 3350e9))
    assert found.time.bound == "memory-bound"
    assert found.memory.available == 8 * 84942979072
    assert found.memory.fits
    assert found.memory.spare == 8 * 84942979072 - found.memory.needed
    assert found.outputs == 8


@pytest.mark.parametrize(
    ("options", "on"),
    [
        ({"tensor_parallel": 2}, "h100-sxmx2"),
        ({"pipeline": 2, "tensor_parallel": 4}, "h100-sxmx8"),
        ({"devices": 8, "tensor_parallel": 4}, "h100-sxmx8"),
        ({"devices": 8}, "h100-sxmx8"),
        ({"devices": 8, "mode": "train", "batch": 1}, "h100-sxmx8"),
    ],
)
def test_one_device_becomes_as_many_as_share_the_model(options, on):
    one, several = decode(on="h100-sxm", **options), decode(on=on, **options | {"devices": None})
    assert one.to_json() == several.to_json()


def test_the_bound_takes_no_efficiency_and_an_estimate_needs_one():
    bound = decode().on
    assert (bound.estimate, bound.missing) == (None, ("--mbu",))
    half = decode(mbu="50%").on
    assert half.missing == ()
    assert half.estimate == pytest.approx(2 * bound.seconds)
    assert half.seconds == bound.seconds
    assert decode(mfu="40%").on.missing == ("--mbu",)  # its compute is hardly anything


@pytest.mark.parametrize(
    ("compute", "memory", "mfu", "mbu", "seconds", "missing"),
    [
        (2.0, 1.0, 0.5, None, 4.0, ()), (2.0, 1.0, None, 0.5, None, ("--mfu",)), (2.0, 1.0, None, 0.25, 4.0, ()),
        (2.0, 1.0, 0.5, 0.1, 10.0, ()), (1.0, 2.0, 0.9, None, None, ("--mbu",)), (1.0, 2.0, 0.25, None, 4.0, ()),
        (1.0, 2.0, None, None, None, ("--mbu",)), (2.0, 1.0, None, None, None, ("--mfu",)),
    ],
)  # fmt: skip
def test_an_estimate_needs_the_share_of_what_bounds_it(compute, memory, mfu, mbu, seconds, missing):
    times = {"peak": 1000.0, "bandwidth": 100.0, "bytes": int(memory * 100)}
    one = TimeBound(flops=int(compute * 1000), **times)
    found = one.at(mfu, mbu)
    assert (found and found.seconds) == (seconds and pytest.approx(seconds))
    run = msgspec.structs.replace(decode().on, time=one, mfu=mfu, mbu=mbu)
    assert (run.missing, run.estimate) == (missing, seconds and pytest.approx(seconds))
    # beside a phase that products bound and one that memory does, twenty times as long
    other = TimeBound(flops=40_000, **times), TimeBound(flops=1, **times | {"bytes": 4000})
    phases = tuple(PhaseBound(name="", time=time) for time in (one, *other))
    both = tuple(option for option, share in (("--mfu", mfu), ("--mbu", mbu)) if share is None)
    assert msgspec.structs.replace(run, phases=phases).missing == both


@pytest.mark.parametrize(
    ("compute", "memory", "link", "bound"),
    [
        (3, 2, 1, "compute-bound"), (2, 3, 1, "memory-bound"), (1, 2, 3, "link-bound"), (2, 1, 3, "link-bound"),
        (1, 3, 2, "memory-bound"), (3, 1, 2, "compute-bound"), (2, 2, 1, "compute-bound"), (1, 2, 2, "memory-bound"),
    ],
)  # fmt: skip
def test_the_longest_of_the_three_is_the_bound(compute, memory, link, bound):
    time = TimeBound(flops=compute * 10, bytes=memory, peak=10.0, bandwidth=1.0, link_seconds=link)
    assert (time.bound, time.seconds) == (bound, max(compute, memory, link))
    experts = msgspec.structs.replace(time, experts_seconds=11.0)
    assert (experts.bound, experts.seconds) == ("memory-bound", 11)


def test_with_no_share_a_step_is_its_bound_and_with_one_the_link_comes_on_top():
    # 3 s of products, 4 s of memory, 2 s of the link
    times = {"flops": 30, "peak": 10.0, "bytes": 4, "bandwidth": 1.0}
    time = TimeBound(**times, link_seconds=2.0)
    assert time.seconds_at(None, None) == time.seconds == 4
    assert time.seconds_at(0.5, None) == 6 + 2
    assert time.seconds_at(None, 0.5) == 8 + 2
    assert msgspec.structs.replace(time, link_seconds=7.0).seconds_at(None, None) == 7


def test_masked_scores_need_not_be_computed():
    causal = xfcost.analyze("llama3-8b", N=1000, **BF16)
    core = [row for row in causal.rows if row.core is not None]
    dense = sum(row.macs * row.times for row in core)
    kept = sum(row.macs * row.times * (1000 * 1001 // 2) // 1000**2 for row in core)
    assert least_macs(causal) == causal.total("macs") - dense + kept
    eager = xfcost.analyze("llama3-8b", N=1000, **BF16 | {"attention": "eager"})
    assert least_macs(eager) == least_macs(causal)
    full = xfcost.analyze("vit", trace=False)
    assert least_macs(full) == full.total("macs")


def test_a_mechanism_of_two_patterns_needs_no_more_than_both_keep():
    # Longformer, 64 tokens, one global: windows of |i - j| <= 4 without the global token's row and column are
    # 64·9 - 20 - 9 = 547 pairs, every token and the global one another 64 + 64; of width 768, for QK and for AV
    ledger = xfcost.analyze("longformer-base-4096", N=64, settings=["**.window=8"], trace=False)
    others = sum(row.macs * row.times for row in ledger.rows if not row.content_dependent)
    assert others < least_macs(ledger) <= others + 12 * 2 * 768 * (547 + 64 + 64) < ledger.total("macs")


def test_the_largest_batch_and_n_fit_and_the_next_do_not():
    need = decode().on.memory
    assert decode(batch=need.largest_batch).on.memory.fits
    assert not decode(batch=need.largest_batch + 1).on.memory.fits
    assert decode(N=need.largest_tokens).on.memory.fits
    assert not decode(N=need.largest_tokens + 1).on.memory.fits


@pytest.mark.parametrize(
    ("spec", "on", "options"),
    [
        # of 4,096 tokens, with one key head for 32: 2·32·128·4096 numbers of cache a sample, and 2·32·4096 of scores
        # and softmax, 1/128 more
        ("llama3-8b", "h100-sxm", {"N": 4096, "settings": ["**.kv_heads=1"]}),
        ("t5-base", "t4", {"N": 512, "dtype": "float16"}),  # copies of keys that one sample does not need
    ],
)
def test_the_largest_batch_has_room_for_its_attention_matrices(spec, on, options):
    memory = [decode(spec, on, batch=1, attention="eager", **options).on.memory]
    largest = memory[0].largest_batch
    assert largest > 128
    memory = [decode(spec, on, batch=batch, attention="eager", **options).on.memory for batch in (largest, largest + 1)]
    assert [one.fits for one in memory] == [True, False]


def test_positions_end_the_largest_n_and_a_window_sets_none():
    positions, window = (decode(spec, "h100-sxm", N=100, batch=1).on.memory for spec in ("gpt2", "mistral-7b-sliding"))
    assert (positions.largest_tokens, positions.positions) == (1024, True)
    assert window.largest_tokens is None


@pytest.mark.parametrize(
    ("system", "options", "positions"),
    [
        ("llama3-8b", {}, 8192),
        ("llama3-8b", {"batch": 128}, None),  # memory ends before the positions
        ("llama3-8b", {"N": 8193}, None),  # a warning names them
        ("mamba-130m", {}, None),
    ],
)
def test_where_memory_holds_more_tokens_the_positions_of_a_spec_are_named(system, options, positions):
    ledger = decode(system, "h100-sxm", **({"N": 1000, "batch": 1} | options))
    assert ledger.on.memory.fewer_positions == positions
    named = [line for line in report_text(ledger).splitlines() if "fits up" in line and "positions" in line]
    assert [line.split("; ")[1] for line in named] == ([] if positions is None else ["the model has 8,192 positions"])


@pytest.mark.parametrize("last", [0, 1, 5, 41, 1000])
def test_the_last_number_for_which_it_holds(last):
    assert largest_true(lambda number: number <= last, 7, 10**6) == last
    assert largest_true(lambda number: True, 7, 10**6) is None


def test_a_small_cache_turns_compute_bound_at_a_batch():
    closing = decode(N=128, batch=1).on.compute_bound_batch.batch
    assert closing is not None
    assert decode(N=128, batch=closing).on.time.bound == "compute-bound"
    assert decode(N=128, batch=closing - 1).on.time.bound == "memory-bound"


def test_a_mixture_of_experts_turns_compute_bound_when_all_experts_are_read():
    # Mixtral 8x7B, 32 layers of d = 4096: a batch of hundreds reads all 8 experts of 3·d·14336 weights, and a token
    # computes with 2 of them. Both also: Q and O of d², K and V of d·1024, the router's 8·d, two norms; the head's
    # 32,000·d and the last norm. Keys and values of 128 tokens: 2·1024 numbers a layer, read by 32 heads of 128.
    d, layers, tokens = 4096, 32, 128
    expert, others = 3 * d * 14336, 2 * d * d + 2 * d * 1024 + 8 * d
    weights = 2 * (layers * (8 * expert + others + 2 * d) + 32_000 * d + d)
    flops = 2 * (layers * (2 * expert + others + 2 * tokens * d) + 32_000 * d)
    cache = 2 * layers * 2 * 1024 * tokens
    batch = weights / (flops * 3.35e12 / 989.4e12 - cache)
    found = decode("mixtral-8x7b", "h100-sxm", N=tokens, batch=1).on.compute_bound_batch
    assert found.batch == pytest.approx(batch, abs=2)


def test_a_large_cache_never_turns_compute_bound():
    found = decode().on.compute_bound_batch
    assert found.batch is None
    # 64 query heads read the cache of 8: 2 · 64 · 2 FLOPs per token and width of 8 · 2 · 2 bytes
    assert found.intensity == pytest.approx(8, rel=0.5)
    assert found.intensity < found.ridge_point == pytest.approx(989.4 / 3.35)
    assert decode(batch=10**6).on.time.bound == "memory-bound"


MIXTRAL = {"trace": False, "dtype": "bfloat16", "attention": "fused", "on": "h100-sxmx8"}


def test_a_bound_and_an_estimate_take_the_expected_experts():
    # bytes of an expert of 32 blocks, three matrices each; of a token its row of the table, and its keys and values
    expert, row, cached = 2 * 32 * 3 * 4096 * 14336, 2 * 4096, 2 * 32 * 2 * 8 * 128

    def run(mode, N, batch, **more):
        return xfcost.analyze("mixtral-8x7b", mode=mode, N=N, batch=batch, **MIXTRAL, **more).on

    # 8 tokens choose 2 of 8 experts, one token 2
    one, found = run("decode", 1024, 1).time, run("decode", 1024, 8, mfu=0.5, mbu=0.5)
    more = found.time.bytes - one.bytes - 7 * (row + 1024 * cached)
    assert more / expert == pytest.approx(8 * (1 - 0.75**8) - 2)
    assert found.seconds == pytest.approx(found.time.bytes / (8 * 3.35e12))
    assert found.estimate == pytest.approx(2 * found.seconds)
    # a prefill of two samples with eight tokens each: sixteen choose
    one, prefill = run("prefill", 1, 1).time, run("prefill", 8, 2).time
    more = prefill.bytes - one.bytes - 15 * (row + cached)
    assert more / expert == pytest.approx(8 * (1 - 0.75**16) - 2)


def test_the_extremes_of_experts_are_those_of_one_token_and_of_all():
    expert, row = 2 * 32 * 3 * 4096 * 14336, 2 * 4096
    one, two, many = (
        xfcost.analyze("mixtral-8x7b", mode="decode", N=64, batch=batch, **MIXTRAL) for batch in (1, 2, 9)
    )
    weights = one.step.weight_bytes - 2 * expert
    assert extreme_weight_bytes(one) == (one.step.weight_bytes,) * 2
    assert extreme_weight_bytes(two) == (weights + row + 2 * expert, weights + row + 4 * expert)
    assert extreme_weight_bytes(many) == (weights + 8 * row + 2 * expert, weights + 8 * row + 8 * expert)


def test_verdicts_on_experts_come_from_the_same_numbers():
    def found(batch):
        return xfcost.analyze("mixtral-8x7b", mode="decode", N=32, batch=batch, **MIXTRAL).on

    closing = found(3).compute_bound_batch.batch
    assert closing == found(999).compute_bound_batch.batch  # whatever the batch of the report is
    assert [found(closing + more).time.bound for more in (-1, 0)] == ["memory-bound", "compute-bound"]


def test_rows_of_experts_are_bounded_by_the_expected_ones():
    words = ["analyze", "deepseek-v3", "--mode", "decode", "--N", "4096", "--batch", "256", "--on", "h200-sxmx16"]
    words += ["--weights-dtype", "none", "--no-trace"]
    row = next(row for row in csv_of(*words) if row["operation"] == "experts_gate")
    assert row["roofline_bound"] == "memory-bound"
    assert int(row["least_bytes"]) == pytest.approx(2 * 256 * 7168 * 2048, rel=1e-3)


# What generates, on what, and with which options.
GENERATED = {
    "one device": ("llama3-8b", "a100-sxm-80", {}),
    "heads divided among devices": ("llama3.1-8b", "h100-sxmx8", {"tensor_parallel": 4, "batch": 6}),
    "expected experts, every time": ("mixtral-8x7b", "h100-sxmx8", {"tensor_parallel": 8, "batch": 6}),
    "experts of other replicas": ("mixtral-8x7b", "h100-sxmx8", {"tensor_parallel": 1, "expert_parallel": 8}),
    "formats": ("llama3.1-8b", "h100-sxm", {"weights": "fp8", "cache": "fp8"}),
}


@pytest.mark.parametrize(("spec", "on", "options"), GENERATED.values(), ids=GENERATED)
def test_a_generation_is_its_prefill_and_its_steps(spec, on, options):
    def run(mode, **more):
        return xfcost.analyze(spec, **BF16, on=on, mode=mode, **options, **more).on

    whole, prefill = run("generate", N=100, new_tokens=4), run("prefill", N=100).time
    steps = [run("decode", N=100 + number).time for number in (1, 2, 3)]
    assert [one.name for one in whole.phases] == ["prefill", "decode"]
    assert whole.phases[0].time == prefill
    decode = whole.phases[1].time
    for quantity in ("bytes", "flops", "quantised_flops", "link_bytes"):
        assert getattr(decode, quantity) == sum(getattr(one, quantity) for one in steps)
    assert (decode.link_bytes > 0) == ("tensor_parallel" in options)
    assert decode.compute_seconds == pytest.approx(sum(one.compute_seconds for one in steps))
    assert whole.seconds == sum(one.time.seconds for one in whole.phases)
    assert whole.outputs == 4 * options.get("batch", 1)
    assert [phase.name for phase in run("generate", N=100, new_tokens=1).phases] == ["prefill"]


def test_rows_are_bounded_where_their_bytes_are_known():
    rows = {row["operation"]: row for row in csv_of(*LLAMA, "--N", "8k", "--batch", "512", "--on", "h100-sxm")}
    assert rows["qkv"]["roofline_bound"] == "compute-bound"  # 512 FLOPs per byte of a weight
    assert rows["attention"]["roofline_bound"] == "memory-bound"
    assert rows["rotary"]["roofline_bound"] == ""
    assert int(rows["qkv"]["least_bytes"]) == 83886080 * 2
    # of 512 samples: queries and outputs of 64 heads of one token, keys and values of 8 heads of 8,000
    assert int(rows["attention"]["least_bytes"]) == 512 * (2 * 64 * 128 + 2 * 8 * 128 * 8000) * 2
    assert "roofline_bound" not in csv_of(*LLAMA, "--N", "8k")[0]


def test_of_mixing_operations_of_a_decode_step_that_read_a_state_no_bytes_are_known():
    words = ["analyze", "mamba-130m", "--mode", "decode", "--dtype", "bf16", "--no-trace", "--on", "h100-sxm"]
    rows = csv_of(*words)
    mixing = [row for row in rows if row["mixing"] != "per-token"]
    assert any(int(row["params"]) for row in mixing)  # a convolution's kernels
    assert {row["least_bytes"] for row in mixing} == {""}
    assert sum(bool(row["least_bytes"]) for row in rows) > 3


UNFIT = {
    "more devices": ("llama3-70b", {"N": 8000, "on": "h100-sxm"}),
    "replicas": ("llama3-70b", {"N": 128_000, "on": "h100-sxmx2", "batch": 20, "weights": "int4"}),
    "prefill": ("llama3-70b", {"N": 128_000, "on": "h100-sxmx2", "batch": 20, "mode": "prefill"}),
    "fewer replicas": ("llama3-70b", {"N": 32_000, "on": "h100-sxmx8", "batch": 20, "tensor_parallel": 1}),
    "stages": ("llama3-70b", {"N": 32_000, "on": "h100-sxmx4", "batch": 50, "pipeline": 2}),
    "experts": (
        "mixtral-8x22b", {"N": 32_000, "on": "l40sx8", "batch": 100, "tensor_parallel": 1, "expert_parallel": 8}
    ),
    "no heads": ("mamba-2.8b", {"N": 500, "on": "t4", "batch": 1000, "dtype": "float16"}),
    "generation": ("llama3-8b", {"N": 8000, "on": "t4", "mode": "generate", "new_tokens": 10, "dtype": "float16"}),
    "a forward": ("vit", {"on": "t4", "batch": 100_000, "dtype": "float32", "mode": "forward"}),
    "a quantised cache": ("llama3-8b", {"N": 64_000, "on": "l4", "batch": 4, "cache": "fp8"}),
    "a listed model": ("qwen3-32b", {"N": 32_000, "on": "rtx-4090", "batch": 100}),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "options"), UNFIT.values(), ids=UNFIT)
def test_each_remedy_fits_and_no_smaller_one_of_its_kind(spec, options):
    options = {"mode": "decode"} | options

    def memory(**more):
        return xfcost.analyze(spec, trace=False, **options | more).on.memory

    def fits(**more):
        return memory(**more).fits

    def has_room(count, tensor):
        """For all activations of a replica on each of its devices, of which a shared run counts a part."""
        one = memory(on=f"{name}x{count}", tensor_parallel=tensor)
        samples = -(-options.get("batch", 1) * tensor // count)
        return one.weights + one.cache + max(one.alive, activations * samples) <= one.available

    need = memory()
    assert need.remedies
    activations = (need.activations or 0) / options.get("batch", 1)
    for remedy in need.remedies:
        words = remedy.replace("--", "").replace("-", "_").replace("s_dtype", "s").replace("e_dtype", "e").split()
        more = dict(zip(words[::2], words[1::2], strict=True))
        more |= {"on": more["on"].replace("_", "-")} if "on" in more else {}
        assert fits(**more), remedy
        if "batch" in more:
            assert not fits(batch=int(more["batch"]) + 1)
        if {"on", "tensor_parallel"} <= more.keys() and not {"tensor_parallel", "pipeline"} & options.keys():
            name, _, most = more["on"].rpartition("x")
            # heads of 6 or of a multiple of 8
            for count in range(max(1, int(most) - 8), int(most)):
                for tensor in (degree for degree in ((1, 2, 3, 6) if spec == "vit" else (1, 2, 4, 8, 16))):
                    if count % tensor == 0:
                        assert not has_room(count, tensor)


def test_devices_that_would_fit_hold_all_activations_among_them():
    need = xfcost.analyze("gpt2", on="t4", batch=4096, dtype="float16", trace=False).on.memory
    devices = -(-need.needed // need.available)
    assert need.remedies[0] == f"--on t4x{devices}"


def test_the_keys_of_json():
    found = json.loads(xf(*LLAMA, "--on", "h100-sxmx8", "--N", "128k", "--batch", "8", "--format", "json").stdout)
    on = found["on"]
    assert (on["device"], on["count"], on["dtype"], on["bound"]) == ("h100-sxm", 8, "bfloat16", "memory-bound")
    assert on["estimated_seconds"] is None
    # eight H100: 8 · 989.4 TFLOP/s and 8 · 3.35 TB/s, whose quotient is that of one; 8 tokens a step
    assert on["ridge_point"] == pytest.approx(989.4e12 / 3.35e12)
    assert on["memory_seconds"] == on["least_seconds"] == pytest.approx(on["bytes"] / 26.8e12)
    assert on["compute_seconds"] == pytest.approx(on["flops"] / 7915.2e12)
    assert on["most_outputs_per_second"] == pytest.approx(8 * 26.8e12 / on["bytes"])
    assert "on" not in json.loads(xf(*LLAMA, "--N", "128k", "--format", "json").stdout)


@pytest.mark.parametrize("name", ["gpt2", "llama3.2-1b", "t5-small"])
@pytest.mark.parametrize("attention", ["eager", "fused"])
def test_bytes_of_rows_are_those_of_the_real_model(name, attention):
    """The operands of every operation of the torch model on `meta`, each tensor once."""
    options = {"N": 96, "batch": 2, "dtype": "float32", "attention": attention}
    run = make_run(**options, on="a100-sxm-80")
    ledger = xfcost.analyze(name, **options, on="a100-sxm-80", trace=False)
    plain = xfcost.analyze(name, **options, trace=False)
    real = with_operand_bytes(plain, row_bytes(build(place(load(name), run))))
    both = [(ours, theirs) for ours, theirs in zip(ledger.rows, real.rows, strict=True) if not ours.only_moves]
    assert {one.path: one.operand_bytes for one, _ in both} == {one.path: one.operand_bytes for _, one in both}
    assert sum(one.operand_bytes is not None for one, _ in both) > 10


def test_a_prefill_has_the_bytes_of_its_operations_and_the_longer_of_both_times():
    options = ["analyze", "gpt2", "--N", "1k", "--dtype", "bf16", "--attention", "fused", "--no-trace"]
    rows = {row["operation"]: row for row in csv_of(*options, "--mode", "prefill", "--on", "a100-sxm-80")}
    # 1,000 tokens of 768 read, 2,304 written, and 2,304·769 weights; 2·768·2,304 FLOPs a token and the bias
    moved, flops = 2 * (1000 * (768 + 2304) + 2304 * 769), int(rows["qkv"]["flops"])
    assert int(rows["qkv"]["least_bytes"]) == moved
    assert flops == pytest.approx(2 * 1000 * 768 * 2304, rel=1e-3)
    assert float(rows["qkv"]["least_seconds"]) == pytest.approx(max(flops / 312e12, moved / 2039e9))


def test_a_price_stands_beside_the_bound_and_the_estimate(tmp_path, monkeypatch):
    monkeypatch.setattr(calibration, "folder", lambda: tmp_path)
    (tmp_path / "devices.yaml").write_text("devices: {h100-sxm: {price_per_hour: 2.5}}")
    ledger = decode(mbu=0.5)
    found = ledger.on
    assert found.price_per_output(found.seconds) == pytest.approx(8 * 2.5 * found.seconds / 3600 / 8)
    on = json.loads(ledger.to_json())["on"]
    assert on["estimated_price_per_output"] == pytest.approx(2 * on["least_price_per_output"])
    (tmp_path / "devices.yaml").unlink()
    assert decode().on.price_per_output(1.0) is None


def test_the_work_of_the_bound_and_the_estimate():
    # GPT-2: 12 layers of 12·768² weights and a head of 50,257·768, of 8 tokens; scores and AV of 36 of 64 pairs
    macs = 8 * 12 * 12 * 768**2 + 50_257 * 768 + 12 * 2 * 36 * 768
    # 124,439,808 weights, of which the head reads the table; 8 of 1,024 rows of positions, and of the table; the cache
    read = 124_439_808 - 1024 * 768 + 2 * 8 * 768 + 2 * 8 * 12 * 768
    found = xfcost.analyze("gpt2", mode="prefill", N=8, on="h100-sxm", trace=False).on.time
    assert (found.flops, found.bytes) == (pytest.approx(2 * macs, rel=1e-3), pytest.approx(2 * read, rel=1e-3))


def test_the_answer_is_the_same_beside_a_trace():
    plain, traced = (xfcost.analyze("gpt2", N=64, on="l4", mfu=0.5, trace=trace) for trace in (False, True))
    assert plain.on == traced.on
    assert traced.agreement.exact


def test_a_module_beside_a_spec_has_a_bound(tmp_path):
    (tmp_path / "net.py").write_text("import torch\n\n\ndef net():\n    return torch.nn.Linear(8, 8)\n")
    words = ["--input", "1x8", "--on", "t4"]
    found = xf("compare", f"{tmp_path}/net.py:net", "vit", *words)
    assert re.search(r"^  net +memory-bound; fits", found.stdout, re.MULTILINE), found.stderr
    alone = json.loads(xf("analyze", f"{tmp_path}/net.py:net", *words, "--format", "json").stdout)["on"]
    # 8·8 weights and 8 biases of 4 bytes, at 320 GB/s
    assert alone["least_seconds"] == pytest.approx((8 * 8 + 8) * 4 / 320e9)


NETS = """import torch
from torch.nn.functional import scaled_dot_product_attention


def net():
    return torch.nn.Linear(8, 8)


class Table(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = torch.nn.Parameter(torch.zeros(3, 5, 4))

    def forward(self, x):
        return x + scaled_dot_product_attention(self.rows, self.rows, self.rows).sum()


class Heads(torch.nn.Module):
    def forward(self, x):
        q = x.unflatten(2, (2, 4)).transpose(1, 2)
        return (q @ q.transpose(2, 3)).softmax(-1) @ q
"""


@pytest.fixture
def nets(tmp_path):
    (tmp_path / "net.py").write_text(NETS)
    return f"{tmp_path}/net.py"


@pytest.mark.parametrize(
    ("inputs", "batch", "samples"), [("Bx8", 16, 16), ("Bx8", None, 1), ("1x8", None, 1), ("16x8", None, None)]
)
def test_a_module_gives_the_samples_that_its_inputs_say(nets, inputs, batch, samples):
    options = {} if batch is None else {"batch": batch}
    ledger = xfcost.analyze(f"{nets}:net", inputs=(inputs,), on="t4", price=0.5, mixing=False, **options)
    rows = 16 if inputs == "16x8" else samples
    assert (ledger.total("macs"), ledger.on.outputs) == (rows * 8 * 8, samples)  # the MACs have the batch once
    # 8·8 weights and 8 biases of 4 bytes, at 320 GB/s
    seconds = (8 * 8 + 8) * 4 / 320e9
    found, text = ledger.on.to_object(), report_text(ledger)
    if samples is None:
        assert found["most_outputs_per_second"] is found["least_price_per_output"] is None
        assert "lower bound: 0.90 ns per run, memory-bound" in text
        assert "samples/s" not in text
    else:
        assert found["most_outputs_per_second"] == pytest.approx(samples / seconds)
        assert found["least_price_per_output"] == pytest.approx(0.5 / 3600 * seconds / samples)


def test_heads_of_a_module_are_those_of_a_sample(nets):
    known, unknown = (
        xfcost.analyze(f"{nets}:Heads", inputs=(inputs,), N=5, mixing=False, **more)
        for inputs, more in (("BxNx8", {"batch": 6}), ("6xNx8", {}))
    )
    assert (known.metadata.batch, known.metadata.batch_known) == (6, True)
    assert not unknown.metadata.batch_known
    assert {row.heads for row in known.rows if row.heads} == {2}
    assert known.attention_memory() == unknown.attention_memory()
    assert known.attention_memory()["per_head"] == 5 * 5 * 4
    assert known.totals() == unknown.totals()


def test_attention_that_samples_share_leaves_their_number_open(nets):
    ledger = xfcost.analyze(f"{nets}:Table", inputs=("Bx4",), batch=2, on="t4", mixing=False)
    assert (ledger.metadata.batch_known, ledger.on.outputs) == (False, None)


@pytest.mark.parametrize(
    ("inputs", "each", "held"),
    [
        (
            ("--input", "Bx8", "--batch", "16"),
            "32 samples, 16 on each of 2 replicas; ZeRO 0",
            "micro-batch of 16 samples",
        ),
        (("--input", "16x8"), "the batch that is given, on each of 2 replicas; ZeRO 0", "of the batch that is given"),
    ],
)
def test_a_training_step_of_a_module_has_the_samples_that_its_inputs_say(nets, inputs, each, held):
    found = xf("analyze", f"{nets}:net", *inputs, "--mode", "train", "--on", "t4x2", "--no-mixing").stdout
    assert f"each step: {each}" in found
    assert held in found


def test_devices_are_sorted_by_time_where_samples_are_not_known(nets, tmp_path):
    words = [f"{nets}:net", "--input", "16x8", "--no-mixing"]
    found = json.loads(xf("analyze", *words, "--on", "t4,h100-sxm", "--format", "json").stdout)["choices"]
    assert [one["outputs_per_second"] for one in found] == [None, None]
    assert [one["device"] for one in found] == ["h100-sxm", "t4"]
    report = tmp_path / "report.json"
    report.write_text(xf("analyze", *words, "--on", "t4", "--format", "json").stdout)
    assert xf("diff", str(report), str(report)).returncode == 0
    checked = xf("check", *words[:3], "--on", "t4", "--max-seconds", "1")
    assert (checked.returncode, "samples/s" in checked.stdout) == (0, False)


A100 = read_devices("a100-sxm-80")  # 19.5 TFLOP/s in float32, 156 in TF32 (datasheet)


def is_float32_with_products_in_tf32(plain, fast):
    """Counts and bytes are those of float32, and the bound that of products at the other peak."""
    assert fast.metadata.dtype == "tf32"
    assert fast.totals() == plain.totals()
    assert (fast.held_bytes, fast.attention_memory()) == (plain.held_bytes, plain.attention_memory())
    assert step_bound(fast, A100) == msgspec.structs.replace(step_bound(plain, A100), peak=156e12)


@pytest.mark.rest
def test_tf32_is_float32_whose_products_have_another_peak_in_every_preset():
    for name in preset_names():
        loaded = load(name)
        runs = [Run(dtype=dtype, attention="eager") for dtype in ("float32", "tf32")]
        is_float32_with_products_in_tf32(*(count(place(loaded, run), orders=False) for run in runs))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("vit", {"mfu": 0.4}), ("swin", {"attention": "fused"}), ("llama3-8b", {"mode": "decode", "N": 4096}),
        ("gpt2", {"mode": "prefill"}), ("mamba-130m", {"mode": "decode"}), ("dinov2-s", {"batch": 3}),
    ],
)  # fmt: skip
def test_tf32_is_float32_whose_products_have_another_peak(name, options):
    options |= {"on": "a100-sxm-80", "trace": False}
    plain, fast = (xfcost.analyze(name, dtype=dtype, **options) for dtype in ("float32", "tf32"))
    is_float32_with_products_in_tf32(plain, fast)
    assert fast.on.memory == plain.on.memory
    assert fast.cache == plain.cache
    assert fast.on.time.peak == json.loads(fast.to_json())["on"]["peak_flops_per_second"] == 156e12


def test_element_wise_work_has_the_peak_of_float32():
    options = {"on": "a100-sxm-80", "settings": ["stages.0.block.0.iterations=40"]}
    plain, fast = (xfcost.roofline("common-sinkhorn", dtype=dtype, **options)[0] for dtype in ("float32", "tf32"))
    rows = {row.title: (row, other) for row, other in zip(plain.ledger.rows, fast.ledger.rows, strict=True)}
    for row, other in rows.values():
        peak, moved = 156e12 if row.macs else 19.5e12, row.operand_bytes / 2039e9
        assert other.operand_bytes == row.operand_bytes
        assert row.predicted_seconds == pytest.approx(max(row.flops / 19.5e12, moved))
        assert other.predicted_seconds == pytest.approx(max(row.flops / peak, moved))
    row, _ = rows["Sinkhorn iterations"]
    assert row.predicted_seconds == pytest.approx(row.flops / 19.5e12)  # not of memory


def test_both_phases_of_a_generation_are_in_tf32():
    options = {"mode": "generate", "N": 512, "new_tokens": 4, "attention": "eager", "trace": False}
    plain, fast = (xfcost.analyze("gpt2", on="a100-sxm-80", dtype=dtype, **options).on for dtype in ("float32", "tf32"))
    prefill, decode = fast.phases
    assert prefill.time.seconds == pytest.approx(prefill.time.flops / 156e12)
    assert decode.time.seconds == plain.phases[1].time.seconds  # bytes


@pytest.mark.parametrize("on", ["v100-sxm2-16", "t4", "mi250"])
def test_devices_without_tf32_refuse_it_as_any_dtype_that_they_lack(on):
    with pytest.raises(UsageError, match=rf"^{on}: no tf32 peak of it is known, only .*float32 \("):
        xfcost.analyze("vit", on=on, dtype="tf32", trace=False)


def test_a_run_in_tf32_is_refused_where_nothing_computes_in_it(monkeypatch):
    monkeypatch.setattr("xfcost.torch_models.accounts.traced", lambda *given: pytest.fail("traced first"))
    refused = pytest.raises(DeviceError, match=r"^--dtype tf32: cpu has no products in TF32")
    with refused:
        xfcost.analyze("vit", dtype="tf32", device="cpu")
    with refused:
        xfcost.analyze("vit", dtype="tf32", predict="cpu", trace=False)
    with refused:
        xfcost.calibrate(dtype="tf32")


def test_a_module_of_float32_is_counted_in_tf32_and_no_other():
    module, inputs = torch.nn.Linear(64, 64), torch.randn(8192, 64)
    options = {"example_inputs": inputs, "on": "a100-sxm-80", "trace": False}
    plain, fast = (xfcost.analyze(module, dtype=dtype, **options) for dtype in (None, "tf32"))
    is_float32_with_products_in_tf32(plain, fast)
    with pytest.raises(UsageError, match="the tensors of Linear are bfloat16"):
        xfcost.analyze(module.bfloat16(), dtype="tf32", **options | {"example_inputs": inputs.bfloat16()})


def test_products_are_in_the_dtype_of_the_run_and_then_as_before(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "is_tf32_supported", lambda: True)
    matmul, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn.conv
    usual = (matmul.fp32_precision, convolutions.fp32_precision)
    seen = {}

    def run(dtype):
        seen[dtype] = (matmul.fp32_precision, convolutions.fp32_precision, torch.get_float32_matmul_precision())
        raise ZeroDivisionError

    for dtype in ("float32", "tf32"):
        with pytest.raises(ZeroDivisionError), products_in(dtype, "cuda"):
            run(dtype)
        assert (matmul.fp32_precision, convolutions.fp32_precision) == usual
    assert seen["tf32"] == ("tf32", "tf32", "high")
    assert "tf32" not in seen["float32"]
    assert seen["float32"][2] == "highest"
    with products_in("float32", "cpu"):
        assert (matmul.fp32_precision, convolutions.fp32_precision) == usual


def test_published_runs_in_tf32_are_no_faster_than_its_bound():
    # 938 images/s of ResNet-50 in training on an A100, in TF32: a bound of 802 images/s is one of float32
    options = {"mode": "train", "batch": 256, "on": "a100-sxm-80", "tokens": 3136 * 10**6, "trace": False}
    plain, fast = (xfcost.analyze("resnet-50", dtype=dtype, **options).training.plan for dtype in ("float32", "tf32"))
    assert 256 / plain.bound_step_seconds == pytest.approx(802, abs=1)
    assert 256 / fast.bound_step_seconds == pytest.approx(802 * 156 / 19.5, rel=1e-3)
    assert [one.step_seconds for one in plain.at] == pytest.approx([8 * one.step_seconds for one in fast.at])
    assert fast.memory == plain.memory


# Recorded on one H100 SXM, 66.9 TFLOP/s in float32, 989.4 in bfloat16, 3.35 TB/s: medians of twelve calls
VIT, PATCHES = 22_405_742_592, 784 * 192 * 384  # MACs of a forward, and those of them that multiply pixels
GPT2_STEP = 124_439_808 - 1024 * 768 + 2 * 768  # weights: of the positions one row, and one more of the tied table
ON_H100 = {
    "forward": (
        {"spec": "vit", "dtype": "float32", "attention": "eager"},
        0.0045017, 2 * VIT / 66.9e12, 4 * 22_055_272 / 3.35e12,
    ),
    "decode": (
        {"spec": "gpt2", "mode": "decode", "N": 1024, "dtype": "bfloat16", "attention": "fused"},
        0.0093896, None, (2 * GPT2_STEP + 36 * 2**20) / 3.35e12,
    ),
    "train": (
        {"spec": "vit", "mode": "train", "batch": 16, "dtype": "bfloat16", "attention": "fused"},
        0.02791865, 16 * 2 * (3 * VIT - PATCHES) / 989.4e12, None,
    ),
}  # fmt: skip


def _timed(ledger, seconds):
    timing = Timing(device="cuda", machine="NVIDIA H100 80GB HBM3", seconds=seconds, spread=0.0, runs=12, threads=1)
    return msgspec.structs.replace(ledger, timing=timing)


@pytest.mark.parametrize("mode", ON_H100)
def test_a_measured_run_has_shares_of_the_devices(mode):
    options, seconds, at_peak, at_bandwidth = ON_H100[mode]
    ledger = _timed(xfcost.analyze(**options, on="h100-sxm", trace=False), seconds)
    found = reached(ledger)
    assert at_peak is None or found.mfu == pytest.approx(at_peak / seconds)
    # the lookup of a token and of its position are what the weights hold beside the products
    assert found.mbu == (None if at_bandwidth is None else pytest.approx(at_bandwidth / seconds, rel=1e-3))
    told = json.loads(ledger.to_json())["timing"]
    assert (told["mfu"], told["mbu"], told["of_bound"]) == (found.mfu, found.mbu, found.of_bound)
    words = " ".join(report_text(ledger).split())
    assert f"on cuda, NVIDIA H100 80GB HBM3, 1 thread: {100 * found.mfu:.3g} % MFU" in words
    assert "faster than the bound" not in words
    faster = " ".join(report_text(_timed(ledger, 1e-6)).split())
    assert "faster than the bound: the device or the dtype of its products must be another one" in faster


def test_the_share_that_a_run_reached_gives_its_time_as_an_estimate():
    options, seconds, *_ = ON_H100["forward"]
    found = reached(_timed(xfcost.analyze(**options, on="h100-sxm", trace=False), seconds))
    assert xfcost.analyze(**options, on="h100-sxm", mfu=found.mfu, trace=False).on.estimate == pytest.approx(seconds)
    fast = reached(_timed(xfcost.analyze(**options | {"dtype": "tf32"}, on="h100-sxm", trace=False), seconds))
    assert (fast.mfu, fast.of_bound) == pytest.approx((found.mfu * 66.9 / 494.7,) * 2)
    assert found.of_bound == pytest.approx(found.mfu)


def test_the_steps_of_one_micro_batch_are_measured():
    options = {"mode": "train", "on": "h100-sxm", "dtype": "bfloat16", "global_batch": 2 * 784, "trace": False}
    one, two = (reached(_timed(xfcost.analyze("vit", **options | more), 0.01)) for more in ({"global_batch": 784}, {}))
    assert one == two


@pytest.mark.parametrize("mode", ["forward", "train"])
def test_a_run_on_this_machine_and_the_bound_of_a_device_stand_together(mode, tmp_path):
    entry = {"kind": "vectors", "length": 8, "channels": 16}
    path = stored(stack({"kind": "full", "heads": 2}, dim=16, input=entry, embed=[]), tmp_path)
    options = {"mode": mode, "on": "t4", "device": "cpu", "runs": 1}
    ledger = xfcost.analyze(path, **options)
    found, flops = reached(ledger), 2 * ledger.total("macs")
    if mode == "train":
        flops += 2 * ledger.total("backward_macs")
    assert found.mfu == pytest.approx(flops / 8.1e12 / ledger.timing.seconds)
    compared = xfcost.compare(path, path, **options)
    assert all(compared.figures[name]["mfu"] for name in compared.names)


def times_in(value, path=""):
    """Path -> number, of every time, rate and price of JSON."""
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        return {where: one for step, inner in pairs for where, one in times_in(inner, f"{path}.{step}").items()}
    words = path.rpartition(".")[2]
    is_time = words.endswith(("seconds", "days", "cost", "per_second", "per_output")) and "peak" not in words
    return {path: value} if is_time and words != "bytes_per_second" and value is not None else {}


@pytest.mark.parametrize(
    ("options", "few", "enough"),
    [
        ({"mode": "decode", "N": 4096, "mbu": 0.6}, "h100-sxm", "h100-sxmx2"),
        ({"mode": "prefill", "N": 4096, "mfu": 0.4, "tensor_parallel": 2}, "l40sx2", "h200-sxmx2"),
        ({"mode": "generate", "N": 64, "new_tokens": 8, "mfu": 0.4, "mbu": 0.6}, "h100-sxm", "h100-sxmx2"),
    ],
)
def test_what_does_not_fit_takes_no_time(options, few, enough):
    short = xfcost.analyze("llama3-70b", on=few, **options)
    values = json.loads(short.to_json())
    found = values["on"]
    assert short.no_time == found["no_time"]
    assert found["no_time"].startswith("does not fit: ")
    assert found["memory"]["fits"] is False
    assert times_in({"found": found, "rows": values["operations"]}) == {}
    found = json.loads(xfcost.analyze("llama3-70b", on=enough, **options).to_json())["on"]
    assert found["no_time"] is None
    assert len(times_in(found)) > 1


def test_a_comparison_and_a_search_have_no_time_of_what_does_not_fit():
    compared = csv_of("compare", "llama3-8b", "llama3-70b", "--mode", "decode", "--N", "4k", "--on", "h100-sxm")
    assert compared[0]["least_seconds"]
    assert compared[1]["least_seconds"] == compared[0]["no_time"] == ""
    assert compared[1]["no_time"].startswith("does not fit: ")
    found = xfcost.find("llama3-8b", "llama3-70b", mode="decode", N="4k", on="h100-sxm")
    assert found.rows[0].figures["seconds"] > 0
    assert found.not_fitting[0].figures["seconds"] is None
    assert found.left_out[0].nearest.figures["seconds"] is None


@pytest.mark.parametrize(("on", "form"), [("t4", "int8"), ("a100-sxm-40", "int8"), ("l40s", "fp8")])
def test_formats_that_would_fit_are_those_of_the_device(on, form):
    """Of 8 bits: T4 and A100 have no FP8 units. 13B bytes fit 15 GB, and 70B two of 40 or 48 GB."""
    spec = "llama2-13b" if on == "t4" else "llama2-70b"
    options = {} if on == "t4" else {"tensor_parallel": 2, "on": f"{on}x2"}
    found = xfcost.analyze(spec, **{"mode": "decode", "N": 64, "on": on, "trace": False} | options).on.memory.remedies
    assert f"--weights-dtype {form}" in found
