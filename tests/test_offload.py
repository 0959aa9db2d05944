"""`--offload`: the model's first blocks on the host, worked out by hand; both sides together are the whole."""

import json

import pytest

import xfcost
from helpers import xf
from xfcost.counting.devices import device
from xfcost.ledger.errors import UsageError

GIB = 2**30
N = 8000
# Llama 3 70B: 80 blocks, 8 heads of keys and values of 128 numbers, a vocabulary of 128,256 words, width 8192.
PARAMS, TABLE, WIDTH, BLOCKS = 70_553_706_496, 128_256 * 8192, 8192, 80
BLOCK = (PARAMS - 2 * TABLE - WIDTH) // BLOCKS * 2
CACHE = 2 * 8 * 128 * N * 2
HOST = 89.6e9


def run(spec="llama3-70b", mode="decode", **options):
    how = {"mode": mode, "N": N, "on": "h100-sxmx2", "dtype": "bfloat16", "attention": "fused", "trace": False}
    return xfcost.analyze(spec, **how | options)


def on(*given, **options):
    return run(*given, **options).on


def test_a_decode_step_of_a_70b_by_hand():
    found = on(offload=30, host="ryzen-9950x", host_memory="64GiB")
    host = found.offloaded
    assert (host.blocks, host.offload.layers) == (BLOCKS, 30)
    assert (host.memory.weights, host.memory.cache) == (30 * BLOCK, 30 * CACHE)
    assert found.memory.weights == PARAMS * 2 - 30 * BLOCK
    assert found.memory.cache == 50 * CACHE
    assert host.memory.available == 64 * GIB
    assert host.memory.spare == 64 * GIB - 30 * (BLOCK + CACHE) - host.memory.alive
    # of the table of words a step reads one row, of the head all
    read = 50 * (BLOCK + CACHE) + (TABLE + WIDTH) * 2 + WIDTH * 2
    assert found.time.bytes == read
    assert found.time.host.bytes == 30 * (BLOCK + CACHE)
    assert found.time.host.moved_bytes == 2 * WIDTH * 2
    seconds = read / (2 * 3350e9) + 30 * (BLOCK + CACHE) / HOST + 2 * WIDTH * 2 / 63e9
    assert found.seconds == pytest.approx(seconds)
    assert found.time.bound == "memory-bound"


# Of every sort: dense, experts, formats of a checkpoint, windows, states, latents, an encoder; specs and stored counts.
EVERY = {
    "llama3-8b": {}, "mixtral-8x7b": {"weights": "int4"}, "gpt-oss-20b": {}, "qwen3.5-27b": {"cache": "fp8"},
    "deepseek-r1": {}, "kimi-k2-thinking": {}, "gemma-3-27b": {"weights": "fp8"},
    "mistral-7b-sliding": {"cache_blocks": "16,whole"}, "gpt-oss-120b": {"cache_blocks": 64}, "mamba2-370m": {},
    "t5-small": {"N": "100,50"},
}  # fmt: skip


@pytest.mark.parametrize(("spec", "options"), EVERY.items(), ids=EVERY)
@pytest.mark.parametrize("mode", ["decode", "prefill"])
def test_both_sides_are_the_whole(spec, options, mode):
    """Weights, cache, FLOPs and bytes, to the byte."""
    options = {"N": 3000, "batch": 2, "mode": mode} | options
    whole = on(spec, **options)
    total = on(spec, offload=1, **options).offloaded.blocks
    before = 0
    for layers in (1, total // 2):
        found = on(spec, offload=layers, **options)
        mine, host = found.memory, found.offloaded.memory
        for name in ("weights", "cache", "held_cache"):
            assert getattr(mine, name) + getattr(host, name) == getattr(whole.memory, name), name
        assert found.time.flops + found.time.host.flops == whole.time.flops
        read = found.time.bytes + found.time.host.bytes
        assert read == pytest.approx(whole.time.bytes, abs=1)  # of experts an expected number, which is rounded
        assert before < host.weights
        before = host.weights


@pytest.mark.parametrize(
    ("spec", "ends"), [("llama3-8b", 2 * 128_256 * 4096 + 4096), ("gpt-oss-20b", 2 * 201_088 * 2880 + 2880)]
)
def test_without_blocks_a_device_has_the_ends(spec, ends):
    """Embedding, head and the norm before it."""
    found = on(spec, offload=on(spec, offload=1).offloaded.blocks).memory
    assert (found.weights, found.cache) == (ends * 2, 0)


def test_the_first_blocks_are_those_that_run_first():
    """Qwen3.5: of 4 blocks the last has attention, the others states; Gemma 3: of 6 the last has no window."""
    whole = run("qwen3.5-27b").cache
    for layers, states, attention in ((3, 3, 0), (4, 3, 1), (7, 6, 1), (64, 48, 16)):
        host = on("qwen3.5-27b", offload=layers).offloaded.memory
        assert (
            host.cache == whole.recurrent_bytes * states // 48 + (whole.bytes - whole.recurrent_bytes) * attention // 16
        )
    layer = 2 * 16 * 128 * 2
    for layers, windows, others in ((5, 5, 0), (6, 5, 1), (62, 52, 10)):
        host = on("gemma-3-27b", offload=layers).offloaded.memory
        assert host.cache == windows * layer * 1023 + others * layer * N


@pytest.mark.parametrize("spec", ["llama3-8b", "gpt-oss-20b"])
def test_a_generation_is_its_prefill_and_its_steps(spec):
    how = {"offload": 8, "host": "epyc-9654", "on": "rtx-4090", "batch": 3}
    found = on(spec, mode="generate", new_tokens=4, **how)
    prefill, *steps = [on(spec, mode="prefill", **how).time] + [on(spec, N=N + step, **how).time for step in (1, 2, 3)]
    host = [one.host for one in steps]
    assert found.phases[0].time.host == prefill.host
    assert found.phases[0].time.bytes == prefill.bytes
    assert found.phases[1].time.bytes == sum(one.bytes for one in steps)
    for name in ("flops", "bytes", "moved_bytes"):
        assert getattr(found.phases[1].time.host, name) == sum(getattr(one, name) for one in host)
        assert getattr(found.time.host, name) == sum(getattr(one, name) for one in (prefill.host, *host))
    assert found.seconds == pytest.approx(prefill.seconds + sum(one.seconds for one in steps))
    assert found.memory.cache == on(spec, N=N + 3, **how).memory.cache


def test_shares_of_peak_and_bandwidth_are_the_host_s_too():
    how = {"offload": 30, "batch": 1}
    bound = on(**how)
    half = on(mbu="50%", **how)
    assert bound.estimate is None
    assert bound.missing == ("--mbu",)
    assert half.estimate == pytest.approx(
        2 * (bound.seconds - bound.time.host.moved_seconds) + bound.time.host.moved_seconds
    )
    many = {"offload": 30, "N": 64, "batch": 64, "host": "core-14900k"}  # the host computes, the devices read
    assert on(**many).missing == ("--mfu", "--mbu")
    assert on(mbu="50%", **many).estimate is None
    both = on(mbu="50%", mfu="25%", **many)
    assert both.estimate == pytest.approx(
        2 * both.time.memory_seconds + 4 * both.time.host.compute_seconds + both.time.host.moved_seconds
    )


def test_a_host_without_a_peak_of_the_dtype_computes_in_float32(tmp_path, monkeypatch):
    from xfcost.ledger import calibration

    monkeypatch.setattr(calibration, "folder", lambda: tmp_path)
    (tmp_path / "devices.yaml").write_text(
        "devices: {abacus: {memory: 1T, bandwidth: 10G, peaks: {float32: 1T}}, "
        "old: {bandwidth: 10G, peaks: {int8: 1T}}}"
    )
    found = on(offload=1, host="abacus")
    assert (found.offloaded.peak_dtype, found.time.host.peak) == ("float32", 1e12)
    assert found.offloaded.memory.available == 10**12
    with pytest.raises(UsageError, match="--host old: no peak of it is known in bfloat16 or float32"):
        on(offload=1, host="old")


def test_the_link_is_the_device_s_own_where_that_is_pcie():
    for name, link, assumed in (("rtx-4060", "PCIe 4.0 x8", False), ("h100-sxm", "PCIe 5.0 x16", True)):
        found = on("llama3-8b", on=name, offload=1)
        assert (found.offloaded.link, found.offloaded.link_assumed) == (link, assumed)
        rate = device(name).link.rate.value if not assumed else 63e9
        assert found.time.host.moved_seconds == pytest.approx(2 * 4096 * 2 / rate)


def test_the_fewest_blocks_that_fit_both_sides_are_named():
    """Of 141 GB of weights a card of 24 GB holds few blocks; the host then holds the others, if it has the memory."""
    found = on(on="rtx-4090", offload=10)
    assert (found.memory.fits, found.offloaded.memory.fits) == (False, None)
    (remedy,) = found.memory.remedies
    least = int(remedy.removeprefix("--offload "))
    assert on(on="rtx-4090", offload=least).memory.fits
    assert on(on="rtx-4090", offload=least - 1).memory.fits is False
    assert found.no_time.startswith("does not fit: ")
    full = on(on="rtx-4090", offload=least, host_memory="64GB")
    assert (full.memory.fits, full.offloaded.memory.fits) == (True, False)
    assert full.no_time.endswith("of the host")
    assert full.memory.remedies == ()
    assert on("llama3-8b", on="rtx-4090", offload=30, host_memory="1GB").memory.remedies == ("no --offload",)


def test_the_largest_that_fits_is_that_of_both_sides():
    """Of each sample 40 blocks have a cache on either side; more memory of one does not help the other."""
    how = {"spec": "llama3-8b", "on": "rtx-4090", "offload": 16}
    alone, tight = on(**how).memory, on(**how, host_memory="10GB").memory
    assert tight.largest_batch < alone.largest_batch
    assert tight.largest_tokens < alone.largest_tokens
    for limit, name in (("largest_batch", "batch"), ("largest_tokens", "N")):
        most = getattr(tight, limit)
        for value, fits in ((most, True), (most + 1, False)):
            assert on(**how, host_memory="10GB", **{name: value}).offloaded.memory.fits is fits


def test_json_has_both_sides():
    words = ["analyze", "llama3-8b", "--mode", "decode", "--N", "8000", "--on", "rtx-4090", "--format", "json"]
    plain = json.loads(xf(*words).stdout)["on"]
    found = json.loads(xf(*words, "--offload", "16", "--host-memory", "32GiB").stdout)
    one = found["on"]["offload"]
    assert "offload" not in plain
    assert (one["layers"], one["blocks"], one["host"], one["assumed"]) == (16, 32, "ryzen-9950x", True)
    assert one["memory"]["available"] == 32 * GIB
    assert one["memory"]["weights"] + found["on"]["memory"]["weights"] == plain["memory"]["weights"]
    total = one["device_seconds"] + one["seconds"] + one["moved_seconds"]
    assert found["on"]["least_seconds"] == pytest.approx(total)
    assert all(row["least_seconds"] is None for row in found["operations"])  # a row may be on both sides


def test_systems_side_by_side_have_their_own_blocks():
    both = xfcost.compare("llama3-8b", "gpt-oss-20b", mode="decode", N=N, on="rtx-4090", offload=8)
    assert [one.on.offloaded.blocks for one in both.ledgers] == [32, 24]
    with pytest.raises(
        UsageError, match="--offload 30: expected a number of blocks from 1 to 24, those of gpt-oss 20B"
    ):
        xfcost.compare("llama3-8b", "gpt-oss-20b", mode="decode", N=N, on="rtx-4090", offload=30)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"offload": 4}, "--offload 4: needs devices"),
        ({"on": "l4", "host": "epyc-9654"}, "--host epyc-9654: needs blocks that stay on the host, as in --offload 8"),
        ({"on": "l4", "host_memory": "64GiB"}, "--host-memory 64GiB: needs blocks that stay on the host"),
        ({"on": "l4", "offload": 0}, "--offload 0: expected a number of blocks"),
        ({"on": "l4", "offload": 13}, "--offload 13: expected a number of blocks from 1 to 12, those of GPT-2"),
        ({"on": "l4", "offload": 2, "host": "epyc-9654x2"}, "--host epyc-9654 x2: expected one device"),
        ({"on": "l4", "offload": 2, "host": "epic"}, "--host epic: there is no such device"),
        ({"on": "l4", "offload": 2, "host_memory": "64"}, "--host-memory 64: expected bytes of memory"),
        ({"on": "l4x2", "offload": 2, "tensor_parallel": 2}, "--offload 2: assumes devices that divide the"),
        ({"on": "l4,t4", "offload": 2}, "--offload: needs one device, and --on has 2"),
        ({"on": "l4", "offload": 2, "tokens_per_user": 30}, "--tokens-per-user 30: all blocks are on the devices"),
        ({"on": "l4", "offload": 2, "mode": "train"}, "--offload 2: does not apply to a training run"),
        ({"on": "l4", "offload": 2, "device": "cpu"}, "--offload 2: what runs here has all blocks on one device"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(options, message):
    with pytest.raises(UsageError, match=message):
        xfcost.analyze("gpt2", **{"trace": False, "mode": "decode", "N": 64} | options)


def test_searches_and_plots_have_all_blocks_on_the_devices():
    with pytest.raises(UsageError, match="--offload 2: find has all blocks on the devices"):
        xfcost.find("gpt2", mode="decode", on="l4", offload=2)
    with pytest.raises(UsageError, match="--offload 2: a plot has all blocks on the devices"):
        xfcost.plot("gpt2", metric="throughput", N=64, on="l4", offload=2)
