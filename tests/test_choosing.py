"""Devices side by side, prices, and the largest batch at a rate of each sample: against what is worked out by hand."""

import math
from itertools import pairwise

import pytest

import xfcost
from helpers import stdout_of, table_of
from xfcost.counting.devices import device_names, read_devices, read_several
from xfcost.ledger import calibration
from xfcost.ledger.device import DeviceGroup
from xfcost.ledger.errors import UsageError
from xfcost.parts.serving.bounds import memory_need, step_bound
from xfcost.parts.serving.choices import BatchAtRate
from xfcost.parts.serving.choosing import at_batch

N, BATCH = 32_000, 16
# Llama 3 70B: of 80 layers with 8 heads of keys and values of 128 numbers, a sample's cache of bfloat16 in bytes.
CACHE = 2 * 80 * 8 * 128 * N * 2
PARAMS, TABLE = 70_553_706_496, 128_256 * 8192
# The activations at the end of a step of one sample: its token, the last block's output and its norm, and logits.
STEP = 8 + 2 * 8192 * 2 + 128_256 * 2
H100, L40S = 84_942_979_072, 48_000_000_000  # bytes


def decode(spec="llama3-70b", **options):
    return xfcost.analyze(spec, **{"mode": "decode", "N": N, "batch": BATCH, "trace": False} | options)


def choices(spec="llama3-70b", **options):
    return {choice.asked.name: choice for choice in decode(spec, **options).choices}


def read(batch):
    """The bytes that a step of Llama 3 70B reads: of the table of its vocabulary a row for every sample."""
    return (PARAMS - TABLE) * 2 + batch * (8192 * 2 + CACHE)


def test_as_many_devices_as_hold_the_run():
    found = choices(on="h100-sxm,l40s,h100-sxmx8")
    needed = PARAMS * 2 + BATCH * CACHE  # 308.9 GB, and 4 KiB of statistics: 3.64 H100, 6.43 L40S
    assert {name: choice.takes for name, choice in found.items()} == {"h100-sxm": 4, "l40s": 7, "h100-sxm x8": 4}
    assert (math.ceil(needed / H100), math.ceil(needed / L40S)) == (4, 7)
    assert {name: choice.fits for name, choice in found.items()} == {
        "h100-sxm": False, "l40s": False, "h100-sxm x8": True
    }  # fmt: skip
    assert [choice.found.on.count for choice in found.values()] == [8, 4, 7]
    assert found["h100-sxm"].found.seconds == pytest.approx(read(BATCH) / (4 * 3350e9))
    assert found["h100-sxm x8"].found.seconds == pytest.approx(read(BATCH) / (8 * 3350e9))


def test_a_device_without_a_peak_of_the_dtype_is_listed_with_the_reason():
    found = choices("gpt2", N=100, on="t4,h100-sxm")
    assert list(found) == ["h100-sxm", "t4"]
    assert (found["t4"].found, found["t4"].reason) == (None, "no bfloat16 peak is known")


@pytest.mark.parametrize(
    ("on", "where"),
    [
        ("gh200-96,a100-sxm-80,rtx-3090", " where one is known (not of a100-sxm-80, rtx-3090)"),
        ("gh200-96,h20", ""),
        ("a100-sxm-80,rtx-3090", None),
    ],
)
def test_a_list_says_which_devices_have_no_peak_of_the_weights_dtype(on, where):
    faster = "" if where is None else f", those with fp8 weights at that of their own dtype{where}"
    told = stdout_of("analyze", "llama3-8b", "--mode", "prefill", "--weights-dtype", "fp8", "--on", on, "--no-trace")
    assert f"lower bound: products at the peak of bfloat16{faster}, or weights once" in " ".join(told.split())


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("h100-sxm, l40sx4", ["h100-sxm", "l40s x4"]),
        ("A100-*x2", ["a100-pcie-40 x2", "a100-sxm-40 x2", "a100-pcie-80 x2", "a100-sxm-80 x2"]),
        ("aws", ["trainium1", "trainium2", "inferentia2"]),
        ("l40s,l4*", ["l40s", "l4", "l40"]),
        ("h100-sxm", ["h100-sxm"]),
    ],
)
def test_names_and_groups_of_devices(text, names):
    assert [group.name for group in read_several(text)] == names


def test_python_takes_a_list_of_devices():
    one = read_devices("h100-sxm")
    assert [group.name for group in read_several([one, "l40s"])] == ["h100-sxm", "l40s"]
    with pytest.raises(UsageError, match="h100-sxm is given twice; give it once"):
        read_several([one, one.device, "l40s"])
    assert [group.name for group in read_several("all")] == device_names()


def test_the_largest_batch_at_a_rate_by_hand():
    rate = choices(on="h100-sxmx8", batch=1, tokens_per_user=30)["h100-sxm x8"].at_rate
    # 26.8e12 bytes/s in 1/30 s are 893.3 GB: the weights' 139.0 GB, and 71.9 caches of 10.49 GB
    assert rate.by_rate == (8 * 3350e9 / 30 - read(0)) // (read(1) - read(0)) == 71
    # 679.5 GB of memory: 141.1 GB of weights, and 51.3 caches with activations
    assert rate.by_memory == (8 * H100 - PARAMS * 2) // (CACHE + STEP) == 51
    assert (rate.batch, rate.limit) == (51, "memory")
    assert rate.outputs_per_second == pytest.approx(51 * 8 * 3350e9 / read(51))


def test_a_record_by_hand():
    """Every figure of a row of the CSV, of devices that hold the run and of some that do not."""
    options = {"batch": 1, "tokens_per_user": 30, "price": {"h100-sxm": 2.5, "l40s": 0.8}, "mbu": 0.5}
    found = {name: one.record() for name, one in choices(on="h100-sxmx8,l40s", **options).items()}
    least, many = read(1) / (8 * 3350e9), 2 * read(29) / (8 * 3350e9)  # the largest batch, at half of the bandwidth
    assert found["h100-sxm x8"] == {
        "device": "h100-sxm", "count": 8, "fits": True, "takes": 2, "memory_kind": "usable", "devices": 8,
        "dtype": "bfloat16", "memory_bytes": 8 * H100, "needed_bytes": PARAMS * 2 + CACHE + STEP,
        "bound": "memory-bound", "least_seconds": pytest.approx(least),
        "mfu": None, "mbu": 0.5, "estimated_seconds": pytest.approx(2 * least),
        "price_per_hour": 20, "outputs_per_second": pytest.approx(29 / many),
        "outputs_per_price": pytest.approx(29 / many * 3600 / 20), "tokens_per_user": 30,
        "largest_batch": 29, "limit": "rate", "largest_batch_by_rate": 29, "largest_batch_by_memory": 51,
        "largest_batch_seconds": pytest.approx(many), "reason": None,
    }  # fmt: skip
    few = found["l40s"]
    assert (few["count"], few["fits"], few["takes"], few["devices"], few["price_per_hour"]) == (1, False, 4, 4, 3.2)
    assert few["least_seconds"] == pytest.approx(read(1) / (4 * 864e9))


def test_a_price_of_one_device_leaves_those_of_the_user_s_file(tmp_path, monkeypatch):
    monkeypatch.setattr(calibration, "folder", lambda: tmp_path)
    (tmp_path / "devices.yaml").write_text("devices: {l40s: {price_per_hour: 0.8}, h100-sxm: {price_per_hour: 9}}")
    for price, prices in (({"h100-sxm": 2.5}, [20, 1.6, None]), (2.0, [16, 4, 2]), (None, [72, 1.6, None])):
        found = choices(on="h100-sxmx8,l40sx2,t4", price=price, dtype="float16")
        assert [found[name].asked.price_per_hour for name in ("h100-sxm x8", "l40s x2", "t4")] == prices


@pytest.mark.parametrize(
    ("by_rate", "by_memory", "found"),
    [(5, 7, (5, "rate")), (7, 5, (5, "memory")), (5, 5, (5, "rate")), (None, 5, (5, "memory")), (5, None, (5, "rate"))],
)
def test_the_limit_that_a_larger_batch_would_break(by_rate, by_memory, found):
    rate = BatchAtRate(tokens_per_user=1, by_rate=by_rate, by_memory=by_memory, seconds=None)
    assert (rate.batch, rate.limit) == found


def test_a_rate_that_one_sample_does_not_get():
    rate = choices(on="h100-sxmx8", batch=1, tokens_per_user=1000)["h100-sxm x8"].at_rate
    assert (rate.batch, rate.limit, rate.seconds, rate.outputs_per_second) == (0, "rate", None, None)


def test_the_batch_of_the_run_does_not_change_the_largest():
    one, many = (choices(on="h100-sxmx8", batch=batch, tokens_per_user=30) for batch in (1, 16))
    assert one["h100-sxm x8"].at_rate == many["h100-sxm x8"].at_rate


def test_of_one_device_that_does_not_hold_the_run_no_batch_fits():
    (choice,) = decode(on="h100-sxm", batch=1, tokens_per_user=3).choices
    assert (choice.takes, choice.found.on.count, choice.at_rate.batch) == (2, 1, 0)


SPECS = ["llama3-8b", "mixtral-8x7b", "deepseek-v2-lite", "mamba2-2.7b", "gpt2", "t5-base"]


@pytest.mark.parametrize("name", SPECS)
def test_a_step_of_many_samples_is_that_of_one_so_many_times(name):
    on = read_devices("h100-sxm")
    one = decode(name, N=64, batch=1)
    for batch in (2, 7):
        counted, derived = decode(name, N=64, batch=batch), at_batch(one, batch)
        assert step_bound(derived, on) == step_bound(counted, on)
        assert memory_need(derived, None) == memory_need(counted, None)
        assert (derived.rows, derived.cache) == (counted.rows, counted.cache)


@pytest.mark.parametrize("name", SPECS)
def test_a_larger_batch_raises_no_rate_and_more_devices_lower_none(name):
    one, on = decode(name, N=64, batch=1), read_devices("a100-sxm-80")
    several = DeviceGroup(device=on.device, count=3)
    before = 0.0
    for batch in (1, 2, 3, 8, 100, 1000):
        bound = step_bound(at_batch(one, batch), on)
        assert bound.seconds >= before
        assert step_bound(at_batch(one, batch), several).seconds <= bound.seconds
        before = bound.seconds


# Numbers of one token's keys and values in all layers; blocks with experts, how many, one's numbers, the share of a
# token; and the table of the vocabulary, of which a row is read for each sample.
EXPERTS = {
    "llama3-70b": (80 * 2 * 8 * 128, 0, 0, 0, 0.0, 128_256 * 8192, 8192),
    "mixtral-8x22b": (56 * 2 * 8 * 128, 56, 8, 3 * 6144 * 16384, 2 / 8, 32_000 * 6144, 6144),
    "deepseek-v3": (61 * (512 + 64), 58, 256, 3 * 7168 * 2048, 8 / 256, 129_280 * 7168, 7168),
}


def test_systems_rank_by_the_bytes_that_a_step_is_expected_to_read():
    options = {"weights": "none", "thorough": False}
    found = xfcost.compare(*EXPERTS, mode="decode", N=N, batch=BATCH, on="h100-sxmx32", **options)
    seconds = {}
    for ledger, figures, (kept, blocks, experts, size, share, table, width) in zip(
        found.ledgers, found.figures.values(), EXPERTS.values(), strict=True
    ):
        # one expert of E is left out by 16 tokens with k each at a chance of (1 - k/E)^16: 0.01 and 0.60
        left_out = blocks * experts * size * (1 - share) ** BATCH
        read = 2 * (ledger.total("params") - table + BATCH * width - left_out + kept * N * BATCH)
        assert figures["read_bytes"] == ledger.on.time.bytes == pytest.approx(read, rel=1e-9)
        assert figures["least_seconds"] == pytest.approx(read / (32 * 3350e9))
        seconds[ledger.metadata.name] = figures["least_seconds"]
    assert sorted(seconds, key=seconds.__getitem__) == ["Llama 3 70B", "Mixtral 8x22B", "DeepSeek-V3"]


CURVE = ("plot", "llama3-70b", "--mode", "decode", "--N", "32k", "--metric", "throughput")


def test_a_curve_by_hand(tmp_path):
    target = tmp_path / "curve.csv"
    stdout_of(*CURVE, "--on", "h100-sxmx8", "-o", target)
    rows = table_of(target)
    assert {(row["system"], row["device"], row["devices"], row["N"]) for row in rows} == {
        ("Llama 3 70B", "h100-sxm", "8", "32000")
    }
    for row in rows:
        batch, seconds = int(row["batch"]), read(int(row["batch"])) / (8 * 3350e9)
        assert float(row["seconds"]) == pytest.approx(seconds)
        assert float(row["tokens_per_second_per_user"]) == pytest.approx(1 / seconds)
        assert float(row["tokens_per_second"]) == pytest.approx(batch / seconds)
        assert row["bound"] == "memory-bound"
    batches = [int(row["batch"]) for row in rows]
    assert batches == sorted(set(batches))
    assert (batches[0], batches[-1]) == (1, 51)  # 51.3 caches fit beside the weights, as above


def test_a_curve_of_an_estimate_falls_and_bends_where_products_take_longer(tmp_path):
    # Llama 3 8B with a cache of one token: 2·7.5e9 FLOPs a sample at 989.4e12·0.4 take as long as its 15.0e9 bytes at
    # 3350e9·0.8 from 5.6 ms / 38 µs = 148 samples on
    words = ("plot", "llama3-8b", "--mode", "decode", "--N", "16", "--metric", "throughput", "--on", "h100-sxm")
    stdout_of(*words, "--mfu", "40%", "--mbu", "80%", "-o", tmp_path / "curve.csv")
    rows = table_of(tmp_path / "curve.csv")
    one = 2 * (8_030_261_248 - 128_256 * 4096 + 4096) + 2 * 32 * 8 * 128 * 16 * 2
    assert float(rows[0]["seconds"]) == pytest.approx(one / (3350e9 * 0.8))
    bounds = {int(row["batch"]): row["bound"] for row in rows}
    assert max(batch for batch, bound in bounds.items() if bound == "memory-bound") in range(120, 149)
    assert min(batch for batch, bound in bounds.items() if bound == "compute-bound") in range(148, 182)
    users = [float(row["tokens_per_second_per_user"]) for row in rows]
    together = [float(row["tokens_per_second"]) for row in rows]
    assert users == sorted(users, reverse=True)
    assert all(more >= less * (1 - 1e-12) for less, more in pairwise(together))  # level where products take longer


def test_the_largest_batch_is_one_everywhere_and_a_sample_more_does_not_fit(tmp_path):
    # torch copies tensors for many samples that it does not copy for one: scaled from one sample, 411
    words = ("--mode", "decode", "--on", "t4", "--dtype", "float16", "--attention", "eager")
    stdout_of("plot", "t5-base", *words, "--metric", "throughput", "-o", tmp_path / "curve.csv")
    on = {"on": "t4", "dtype": "float16", "attention": "eager", "N": None}
    largest = decode("t5-base", batch=1, **on).on.memory.largest_batch
    (choice,) = decode("t5-base", batch=1, tokens_per_user=0.001, **on).choices
    assert int(table_of(tmp_path / "curve.csv")[-1]["batch"]) == choice.at_rate.by_memory == largest
    fits = [decode("t5-base", batch=largest + more, **on).on.memory.fits for more in (0, 1)]
    assert fits == [True, False]


def test_devices_without_a_curve_are_left_out(tmp_path):
    stdout_of(*CURVE, "--on", "h100-sxm,t4,h100-sxmx2,a30", "-o", tmp_path / "curve.csv")
    assert {row["devices"] for row in table_of(tmp_path / "curve.csv")} == {"2"}


def test_a_prefill_has_the_same_activations_on_one_device_as_side_by_side():
    options = {"mode": "prefill", "N": 8000, "batch": 64}
    alone = decode("llama3-8b", on="l40s", **options).on.memory
    found = choices("llama3-8b", on="h100-sxm,l40s", **options)["l40s"]
    assert alone.activations > alone.attention
    assert found.takes == math.ceil(alone.needed / alone.available)
