"""Tensor, pipeline and expert parallelism in inference: bytes of a device, bytes read and exchanged, by hand."""

from __future__ import annotations

import json

import pytest
import serving

import xfcost
from xfcost.ledger.least_work import row_bound
from xfcost.ledger.parallelism import HeadSharing
from xfcost.spec.models import models

DECODE = {"mode": "decode", "trace": False, "dtype": "bfloat16", "attention": "fused"}


def on(spec, devices, **options):
    return xfcost.analyze(spec, on=devices, **DECODE | {"N": 1000} | options).on


# Llama 3.1 8B: 32 layers of width 4096 with 32 heads of queries and 8 of keys and values; 65 norms
KEYS = 4096 * 2048
LAYER = 2 * 4096 * 4096 + KEYS + 3 * 4096 * 14336
VOCABULARY, NORMS = 2 * 128_256 * 4096, 65 * 4096


@pytest.mark.parametrize(("tensor", "repeated"), [(1, 0), (2, 0), (8, 0), (16, 1), (32, 3)])
def test_the_weights_and_the_cache_of_a_device(tensor, repeated):
    found = on("llama3.1-8b", f"h100-sxmx{tensor}", tensor_parallel=tensor, batch=4)
    shared = 32 * (LAYER + repeated * KEYS) + VOCABULARY
    assert found.memory.weights == 2 * (shared // tensor + NORMS)
    # a token's keys and values: 2·8·128 numbers of 32 layers; above 8 devices each holds one head
    assert found.memory.cache == 4 * 1000 * 32 * 2048 * 2 // min(tensor, 8)
    assert found.memory.available == 84942979072
    read = tensor * 2 * NORMS + 2 * (shared - VOCABULARY // 2) + 4 * 2 * 4096  # rows of the table for four samples
    assert found.time.bytes == read + 4 * 1000 * 32 * 2048 * 2 * (1 + repeated)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "tensor", "held"),
    # twelve heads of queries, three for each of keys: of six devices the second has heads 2 and 3, of two of keys
    [(12, 4, 6, 2), (12, 4, 4, 1), (12, 4, 12, 1), (12, 4, 2, 2), (12, 12, 3, 4), (12, 1, 4, 1), (12, 4, 3, 2)],
)
def test_the_most_key_heads_of_a_device(heads, kv_heads, tensor, held):
    assert HeadSharing(heads, kv_heads).held(tensor) == held


@pytest.mark.parametrize(("tensor", "pipeline"), [(1, 1), (4, 1), (2, 2), (1, 4)])
def test_the_attention_matrices_of_a_device(tensor, pipeline):
    """Scores and softmax of one layer are alive at once: of 4 samples, 32 heads and 1000 keys, in two bytes."""
    degrees = {"tensor_parallel": tensor, "pipeline": pipeline, "batch": 4, "attention": "eager"}
    found = on("llama3.1-8b", f"h100-sxmx{tensor * pipeline}", **degrees)
    assert found.memory.attention == 2 * 4 * 32 * 1000 * 2 // tensor


@pytest.mark.parametrize(("tensor", "replicas", "pipeline"), [(2, 4, 1), (8, 1, 1), (8, 1, 2), (8, 2, 1)])
def test_the_cache_of_a_model_with_stored_counts(tensor, replicas, pipeline):
    """Qwen3.5 27B: 16 layers cache four heads of keys and values, 256 wide; 48 have a state, which is never copied.

    48 heads of 128·128 in float32, and the last four inputs of a convolution 10,240 wide.
    """
    degrees = {"tensor_parallel": tensor, "pipeline": pipeline, "batch": 8}
    found = on("qwen3.5-27b", f"h100-sxmx{tensor * replicas * pipeline}", **degrees, attention=None)
    keys, states = 1000 * 16 * 4 * 2 * 256 * 2, 48 * (48 * 128 * 128 * 4 + 4 * 10_240 * 2)
    copies = max(1, tensor // 4)
    assert found.memory.cache == 8 // replicas * (copies * keys + states) // (tensor * pipeline)


def test_keys_before_a_chunk_are_read_by_none_of_the_devices_that_hold_a_copy():
    # Llama 4 Scout: 48 layers with 8 heads of keys and values, 128 wide; of 40 devices 5 hold each head. 500 tokens
    # later in a chunk of 8192 all layers read 500 more, and the 36 chunked ones nothing of the chunk before
    shorter, longer = (
        on("llama-4-scout", "h100-sxmx40", tensor_parallel=40, batch=2, N=n, attention=None) for n in (8500, 9000)
    )
    assert longer.time.bytes - shorter.time.bytes == 5 * 2 * 48 * 500 * 2 * 8 * 128 * 2


def test_a_latent_is_held_by_every_device():
    # DeepSeek-V2-Lite: 27 layers of 2048, a latent of 512 + 64 that every device computes and caches; norms; 26 routers
    # of 64 experts
    whole = 27 * (2048 * 576 + 2 * 2048 + 512) + 2048 + 26 * 2048 * 64
    one, four = (on("deepseek-v2-lite", f"h100-sxmx{t}", tensor_parallel=t, batch=8) for t in (1, 4))
    assert four.memory.weights == pytest.approx((one.memory.weights - 2 * whole) / 4 + 2 * whole, abs=64)
    assert four.memory.cache == one.memory.cache == 8 * 1000 * 27 * 576 * 2


def test_all_reduces_are_those_of_32_attentions_and_32_mlps_and_the_embedding():
    found = on("llama3.1-8b", "h100-sxmx8", tensor_parallel=8, batch=16)
    assert found.exchange.all_reduces == 65
    assert found.time.link_bytes == 65 * 16 * 4096 * 2
    assert found.time.link_seconds == found.time.link_bytes / 450e9
    assert found.exchange.ring == 1.75
    prefill = on("llama3.1-8b", "l40sx4", tensor_parallel=4, mode="prefill", N=2000)
    assert prefill.time.link_bytes == 65 * 2000 * 4096 * 2
    # PCIe 4.0 x16
    assert prefill.time.link_seconds == pytest.approx(prefill.time.link_bytes / 31.5e9)
    assert on("mixtral-8x7b", "h100-sxmx8", tensor_parallel=8).exchange.all_reduce_bytes == 65 * 4096 * 2


def test_beyond_a_node_a_network_joins_the_devices():
    inside, beyond = (on("llama3.1-8b", f"h100-sxmx{t}", tensor_parallel=t, batch=16).time for t in (8, 16))
    assert inside.link_bytes == beyond.link_bytes
    # eight ports of 50 GB/s receive the sum for a node
    assert beyond.link_seconds == pytest.approx(beyond.link_bytes / 400e9)
    # Mixtral on two nodes of eight replicas: a token's two experts are on 16 devices, of which seven others are near
    options = {"tensor_parallel": 1, "expert_parallel": 8, "batch": 64}
    near = on("mixtral-8x7b", "h100-sxmx8", **options).time
    assert near.link_seconds == pytest.approx(near.link_bytes / 450e9)
    far = on("deepseek-v2-lite", "h100-sxmx16", **options | {"expert_parallel": 16}).time
    assert far.link_seconds == pytest.approx(far.link_bytes * 8 / 15 / 50e9)


def test_stages_of_whole_nodes_send_over_the_network():
    found = on("llama3.1-8b", "h100-sxmx16", tensor_parallel=8, pipeline=2, batch=16).exchange
    # half of 64 sub-layers and the embedding, sixteen samples; an eighth of their vectors to the next node
    assert found.seconds == pytest.approx(33 * 16 * 8192 / 450e9 + 2 * 8192 / 50e9)
    assert found.bytes == 33 * 16 * 8192 + 2 * 8192
    inside = on("llama3.1-8b", "h100-sxmx8", tensor_parallel=4, pipeline=2, batch=16).exchange
    assert inside.seconds == pytest.approx(33 * 16 * 8192 / 450e9 + 4 * 8192 / 450e9)


@pytest.mark.parametrize(("tensor", "rate"), [(2, 64e9), (4, 192e9), (8, 448e9)])
def test_of_a_mesh_a_few_devices_use_their_links_alone(tensor, rate):
    found = on("llama3.1-8b", f"mi300xx{tensor}", tensor_parallel=tensor).time
    assert found.link_seconds == pytest.approx(found.link_bytes / rate)


def test_a_slow_link_bounds_a_long_prompt():
    options = {"mode": "prefill", "N": 4000, "weights": "fp8", "mfu": 0.5}
    found = on("llama3.1-8b", "l40sx8", tensor_parallel=8, **options)
    assert found.time.bound == "link-bound"
    assert found.seconds == found.time.link_seconds
    assert found.estimate == pytest.approx(2 * found.time.compute_seconds + found.time.link_seconds)


def test_replicas_divide_the_samples():
    single, two = on("llama3.1-8b", "h100-sxm", batch=4), on("llama3.1-8b", "h100-sxmx2", tensor_parallel=1, batch=8)
    assert two.seconds == pytest.approx(single.seconds)
    assert two.outputs == 2 * single.outputs
    assert two.memory.weights == single.memory.weights
    assert two.memory.cache == single.memory.cache
    assert two.memory.largest_batch == 2 * single.memory.largest_batch
    assert two.memory.largest_tokens == single.memory.largest_tokens
    # of seven samples a replica has four
    assert on("llama3.1-8b", "h100-sxmx2", tensor_parallel=1, batch=7).seconds == pytest.approx(single.seconds)


def test_stages_of_a_decode_step_follow_each_other():
    one, two = on("llama3.1-8b", "h100-sxm", batch=4), on("llama3.1-8b", "h100-sxmx2", pipeline=2, batch=8)
    assert two.time.memory_seconds == pytest.approx(one.time.memory_seconds)
    assert two.time.compute_seconds == pytest.approx(one.time.compute_seconds)
    # 16 of 32 blocks with the table or the head, and the last norm
    assert two.memory.weights == 2 * (16 * LAYER + 32 * 4096 + VOCABULARY // 2 + 4096)
    assert two.memory.cache == one.memory.cache
    # a vector of each of four samples, twice
    assert two.time.link_bytes == 2 * 4 * 4096 * 2
    # a prompt fills the stages with its chunks
    prefill = on("llama3.1-8b", "h100-sxmx2", pipeline=2, mode="prefill", N=4000)
    assert prefill.seconds == on("llama3.1-8b", "h100-sxmx2", mode="prefill", N=4000).seconds


def test_experts_are_whole_on_their_devices():
    # Mixtral 8x7B: 32 layers, eight experts of 3·4096·14336; the rest is on each of eight replicas
    experts = 32 * 8 * 3 * 4096 * 14336
    found = on("mixtral-8x7b", "h100-sxmx8", tensor_parallel=1, expert_parallel=8, batch=64)
    assert found.memory.weights == 2 * (46_702_792_704 - experts + experts // 8)
    # a token meets two of eight experts, 7/8 of them elsewhere: there and back, 32 layers, eight samples of a device
    assert found.time.link_bytes == pytest.approx(2 * 2 * 7 / 8 * 8 * 4096 * 2 * 32)
    # all devices together read each expert once, which 64 tokens are expected to choose
    read = found.time.bytes - 8 * found.memory.cache
    others = 8 * 2 * (46_702_792_704 - experts - 32_000 * 4096 + 8 * 4096)
    assert read == pytest.approx(2 * experts * (1 - 0.75**64) + others, rel=1e-6)
    # within eight devices that divide the attention, sums of experts are those of any MLP
    inside = on("mixtral-8x7b", "h100-sxmx8", tensor_parallel=8, expert_parallel=8, batch=64)
    assert inside.time.link_bytes == 65 * 64 * 4096 * 2
    others = 46_702_792_704 - experts
    assert inside.memory.weights == pytest.approx(found.memory.weights - 2 * 7 / 8 * others, rel=2e-3)
    # of three devices two hold three of the eight experts
    three = on("mixtral-8x7b", "h100-sxmx3", tensor_parallel=1, expert_parallel=3, batch=3)
    assert three.memory.weights == 2 * (others + experts * 3 // 8)
    # of four pairs of devices each has two experts and 16 samples: a token's two are expected on 3·(1 - (6·5)/(8·7))
    # other pairs; a device sends half of each vector, there and back
    pairs = on("mixtral-8x7b", "h100-sxmx8", tensor_parallel=2, expert_parallel=8, batch=64).time
    assert pairs.link_bytes - 65 * 16 * 4096 * 2 == pytest.approx(2 * 39 / 28 * 16 * 4096 * 2 * 32 / 2)
    # of two stages a device has half of the layers, and two micro-batches of 16 samples pass through it
    options = {"tensor_parallel": 2, "pipeline": 2, "expert_parallel": 4, "batch": 64}
    stages = on("mixtral-8x7b", "h100-sxmx8", **options).time
    own = on("mixtral-8x7b", "h100-sxmx8", **options | {"expert_parallel": 2}).time  # experts on a stage's own devices
    sent = 2 * (1 - 6 / 28) * 16 * 4096 * 2 * 16 / 2
    assert stages.link_bytes - own.link_bytes == pytest.approx(2 * sent)
    # inside a node everything is received at the full rate
    assert stages.link_seconds == pytest.approx(stages.link_bytes / 450e9)


@pytest.mark.parametrize("batch", [1, 3])
def test_few_tokens_take_as_long_as_one_whole_expert_of_each_layer(batch):
    """Mixtral 8x7B: 32 layers, of each token two of eight experts of 3·4096·14336; one on each of eight devices."""
    expert = 2 * 3 * 4096 * 14336
    found = on("mixtral-8x7b", "h100-sxmx8", tensor_parallel=1, expert_parallel=8, batch=batch)
    # a device with a chosen expert reads all of it, in one layer after the other
    assert found.time.experts_seconds == pytest.approx(32 * expert / 3.35e12)
    assert found.time.memory_seconds == found.time.experts_seconds
    # one token, or the second and third with it, choose 8·(1 - 0.75^T) experts, no more than there are tokens for
    others = 2 * (46_702_792_704 - 32 * 8 * expert // 2 - 32_000 * 4096 + 4096)
    read = found.time.bytes - 8 * found.memory.cache
    assert read == pytest.approx(32 * 8 * expert * (1 - 0.75**batch) + 8 * others, rel=1e-6)
    # on sixteen devices two groups of eight have all experts each
    wide = on("mixtral-8x7b", "h100-sxmx16", tensor_parallel=1, expert_parallel=8, batch=batch)
    assert wide.time.experts_seconds == found.time.experts_seconds


def test_many_tokens_read_the_experts_of_a_device_at_its_rate():
    # DeepSeek-V2-Lite: two devices have 32 of 64 experts each, of which a token chooses six
    for batch in (2, 64):
        found = on("deepseek-v2-lite", "h100-sxmx2", tensor_parallel=1, expert_parallel=2, batch=batch)
        # 26 layers of experts of 3·2048·1408, of which a device has half of those that are expected
        experts = 64 * (1 - (58 / 64) ** batch) / 2
        assert found.time.experts_seconds == pytest.approx(26 * experts * 2 * 3 * 2048 * 1408 / 3.35e12)
        assert found.time.memory_seconds == found.time.bytes / found.time.bandwidth
        assert found.notes == ()


@pytest.mark.parametrize("spec", ["llama3.1-8b", "mixtral-8x7b", "deepseek-v2-lite", "gpt2-xl"])
@pytest.mark.parametrize("mode", ["decode", "prefill"])
def test_no_sharing_beats_the_perfect_one(spec, mode):
    perfect = on(spec, "h100-sxmx4", batch=8, mode=mode, N=256)
    for options in ({"tensor_parallel": 1}, {"tensor_parallel": 4}, {"tensor_parallel": 2}):
        if spec == "gpt2-xl":  # 25 heads
            options = {"tensor_parallel": 1, "pipeline": 4}  # noqa: PLW2901 - another degree
        found = on(spec, "h100-sxmx4", batch=8, mode=mode, N=256, **options)
        assert found.seconds >= perfect.seconds * (1 - 1e-9)
        # of activations, devices that share a model as given have their attention matrices counted alone
        alike = perfect.memory.weights + perfect.memory.cache + perfect.memory.attention
        assert 4 * (found.memory.weights + found.memory.cache + found.memory.attention) >= alike


def test_a_table_that_both_ends_share_is_held_once_by_each():
    # GPT-2: 12 blocks of 12·768² weights and 13·768 more; tables of 50,257 words and 1,024 positions, a last norm
    blocks, words, positions = 12 * (12 * 768**2 + 13 * 768), 50_257 * 768, 1024 * 768
    single = on("gpt2", "h100-sxmx2", tensor_parallel=1).memory.weights
    assert single == 2 * (blocks + words + positions + 2 * 768) == 2 * 124_439_808
    stages = on("gpt2", "h100-sxmx2", pipeline=2).memory.weights
    assert stages == 2 * (blocks // 2 + words + positions)


QWEN3 = {
    "model_type": "qwen3", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "head_dim": 16,
    "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 1000, "tie_word_embeddings": False,
}  # fmt: skip


@pytest.mark.rest
def test_a_model_of_transformers_is_shared_as_a_spec(tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps(QWEN3))
    keys = 2 * 64 * 32
    layer, vocabulary = 2 * 64 * 64 + keys + 3 * 64 * 128, 2 * 1000 * 64
    norms = 4 * (2 * 64 + 2 * 16) + 64  # of queries and keys too
    for tensor, repeated in ((2, 0), (4, 1)):
        options = {"mode": "decode", "N": 100, "batch": 3, "on": f"h100-sxmx{tensor}", "tensor_parallel": tensor}
        found = xfcost.analyze(str(config), **options).on
        assert found.memory.weights == 2 * ((4 * (layer + repeated * keys) + vocabulary) // tensor + norms)
        assert found.memory.cache == 3 * 100 * 4 * 2 * 32 * 2 // 2
        assert found.time.link_bytes == 9 * 3 * 64 * 2
    options = {"mode": "decode", "N": 100, "batch": 4, "on": "h100-sxmx2", "pipeline": 2}
    found = xfcost.analyze(str(config), **options).on
    assert found.memory.weights == 2 * (2 * layer + vocabulary // 2 + (norms - 64) // 2 + 64)


@pytest.mark.rest
def test_no_measured_figure_beats_the_bound_with_its_format_and_its_devices():
    """Of published serving figures with fewer bits, on several devices, or both: as quantised and shared as there."""
    formats = {("8", "int8"): "int8", ("8", "float8"): "fp8", ("4", "int8"): "int4"}
    looked = 0
    for one in serving.served():
        line = one.line
        weights, devices = formats.get((line["bits"], line["peak"])), int(line["devices"])
        if line["what"] != "measured" or line["compute_only"] or line["mode"] == "generate":
            continue
        if weights is None and devices == 1:
            continue
        if line["preset"] in models():  # its counts have one attention; test_in_print.py holds it to its bound
            continue
        options = {"weights": weights, "tensor_parallel": devices, "batch": line["batch"], "N": line["N"]}
        options |= {"dtype": one.on.dtype, "mode": line["mode"], "settings": line["settings"].split()}
        found = on(line["preset"], f"{line['device']}x{devices}", **options)
        share = found.seconds / one.value if line["unit"] == "ms" else one.value / (found.outputs / found.seconds)
        assert 0.09 < share < 0.9, (line["id"], share)
        looked += 1
    assert looked > 20


def test_every_replica_reads_its_own_weights():
    """What all devices read in a step, of the whole and of an operation."""
    options = DECODE | {"N": 1000, "on": "h100-sxmx8"}
    # weights without the table of the embedding, of which a sample reads a row of 4096; norms are on every device
    shared, norms = 2 * (32 * LAYER + VOCABULARY // 2), 2 * NORMS
    cache = 1000 * 32 * 2048 * 2
    ledgers = {
        # four replicas of two devices, and two that have no sample
        (2, 1, 8): (4, 8),
        (2, 1, 2): (2, 4),
        # four replicas of two stages, each with two samples in two micro-batches; of one sample there is one
        (1, 2, 8): (8, 8),
        (1, 2, 1): (1, 1),
        # two replicas of two stages of two devices
        (2, 2, 8): (4, 8),
    }
    for (tensor, pipeline, batch), (copies, of_norms) in ledgers.items():
        degrees = {"tensor_parallel": tensor, "pipeline": pipeline, "batch": batch}
        ledger = xfcost.analyze("llama3.1-8b", **options, **degrees)
        rows = copies * -(-batch // copies) * 2 * 4096  # of the embedding
        assert ledger.step.weight_bytes == copies * shared + of_norms * norms + rows
        assert ledger.step.cache_bytes == batch * cache
        up = next(row for row in ledger.rows if row.title == "Up-projection")
        # 2·B FLOPs of a weight over the two bytes in which it is read so many times
        assert row_bound(up, ledger).intensity == pytest.approx(batch / copies)
    # sixteen devices have two of each of eight heads of keys
    core = xfcost.analyze("llama3.1-8b", **options | {"on": "h100-sxmx16", "tensor_parallel": 16, "batch": 1})
    assert core.step.cache_bytes == 2 * cache
    row = next(row for row in core.rows if row.fused)
    # keys and values of a layer, 1000·2048 numbers twice; queries and outputs, 2·4096
    assert row_bound(row, core).least_bytes == 2 * (2 * 1000 * 2048 + 2 * 4096)


def test_all_devices_together_compute_an_operation():
    # 2·1000·768·3072 FLOPs, 380 for each byte, and the biases; without degrees two devices divide them perfectly
    ledgers = [
        xfcost.analyze("gpt2", on=f"h100-sxm{count}", **DECODE | {"mode": "prefill", "N": 1000}) for count in ("", "x2")
    ]
    up = next(row for row in ledgers[0].rows if row.title == "MLP up-projection")
    one, two = (row_bound(up, ledger) for ledger in ledgers)
    assert one.roofline_bound == "compute-bound"
    assert one.least_seconds == pytest.approx((2 * 768 + 1) * 1000 * 3072 / 989e12, rel=1e-3)
    assert two.least_seconds == one.least_seconds / 2


@pytest.mark.parametrize("tensor", [1, 4])
def test_what_every_device_computes_whole_counts_as_often(tensor):
    """FLOPs per byte by hand: an RMS norm 4·d per sample and 2·d bytes, a map 2 per weight and sample, and 2 bytes.

    Of DeepSeek-V2-Lite every device computes the latent of keys and values, of 512 + 64 of 2048, with its norm, in 27
    blocks, and routers to 64 experts in 26.
    """
    ledger = xfcost.analyze("deepseek-v2-lite", mode="decode", N=64, batch=3, on=f"h100-sxmx{tensor}",
                            tensor_parallel=tensor, trace=False)  # fmt: skip
    rows = {row.path.rpartition(".")[2]: row_bound(row, ledger) for row in ledger.rows if "blocks.0.0" in row.path}
    assert rows["residual_norm"].intensity == rows["kv_norm"].intensity == 4 * 3 / 2
    assert rows["kv_down"].intensity == rows["q"].intensity == 2 * 3 / 2
    once = sum(row.times * row.macs for row in ledger.rows)
    again = (27 * (512 + 64) + 26 * 64) * 2048 * 3 * (tensor - 1)
    assert ledger.on.time.flops == 2 * (once + again)


def test_a_replica_holds_the_cache_of_its_samples_in_every_mode():
    # two replicas of two devices: eight of sixteen samples, half of the keys and values of 32 layers of 2·1024 numbers
    options = {"tensor_parallel": 2, "batch": 16}
    for mode, tokens in (("decode", 1000), ("prefill", 1000), ("generate", 1000 + 5 - 1)):
        more = {"new_tokens": 5} if mode == "generate" else {}
        found = on("llama3.1-8b", "h100-sxmx4", mode=mode, **options, **more)
        assert found.memory.cache == 8 * tokens * 32 * 2048 * 2 // 2
    # a prefill writes the cache of all samples
    whole, part = (on("llama3.1-8b", "h100-sxmx4", mode="prefill", tensor_parallel=t, batch=16) for t in (4, 2))
    norms = 2 * NORMS
    read = 2 * (32 * LAYER + VOCABULARY // 2) + 2 * 16 * 1000 * 4096
    assert whole.time.bytes == pytest.approx(4 * norms + read + 16 * 1000 * 32 * 2048 * 2, rel=1e-3)
    assert part.time.bytes == pytest.approx(whole.time.bytes + read - 2 * 16 * 1000 * 4096, rel=1e-2)
    # the first phase of a generation is that prefill, and its steps read the caches of all samples
    options |= {"mode": "generate", "new_tokens": 3}
    prompt, steps = (one.time for one in on("llama3.1-8b", "h100-sxmx4", **options).phases)
    assert prompt == part.time
    of_step = 2 * (read - 2 * 16 * 1000 * 4096) + 4 * norms + 2 * 16 * 4096
    assert steps.bytes == 2 * of_step + 16 * (1001 + 1002) * 32 * 2048 * 2


def test_systems_without_experts_ignore_their_degree_beside_others():
    both = xfcost.compare("llama3-8b", "mixtral-8x7b", N=1000, on="h100-sxmx8", expert_parallel=8, **DECODE)
    alone = on("llama3-8b", "h100-sxmx8", tensor_parallel=1)
    assert both.ledgers[0].on.time == alone.time
