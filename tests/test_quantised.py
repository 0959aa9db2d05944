"""Quantised weights and caches: bytes by hand and in print, peaks of products (`--weights-dtype`, `--cache-dtype`)."""

from __future__ import annotations

import json

import pytest

import xfcost
from helpers import csv_of, error_of, stdout_of
from xfcost.api.options import read_option
from xfcost.counting.devices import device
from xfcost.ledger.errors import UsageError
from xfcost.ledger.least_work import row_bound
from xfcost.ledger.modes import CacheBytes
from xfcost.ledger.operation import Operation
from xfcost.ledger.patterns import wrong_pattern
from xfcost.ledger.quantization import WEIGHT_FORMATS, StoredAs, WeightMatrix, quantised_cache
from xfcost.spec.models import config_of

DECODE = {"mode": "decode", "trace": False, "dtype": "bfloat16", "attention": "fused"}


@pytest.mark.parametrize(
    ("name", "nbytes"),
    [
        # a matrix of 300 inputs and 200 outputs: 60,000 weights
        ("int4", 60_000 // 2 + 200 * 3 * 20 // 8),  # three groups of 128 inputs, the last of 44
        ("nvfp4", 60_000 // 2 + 200 * 19 + 4),  # 19 blocks of 16 inputs, the last of 12
        ("mxfp4", 60_000 // 2 + 200 * 10),  # ten blocks of 32 inputs, the last of 12
        ("fp8", 60_000 + 2 * 3 * 4),  # two by three blocks of 128×128
        ("int8", 60_000 + 200 * 4),
    ],
)
def test_the_bytes_of_a_matrix_by_hand(name, nbytes):
    assert WEIGHT_FORMATS[name].bytes(WeightMatrix(300, 200)) == nbytes
    assert WEIGHT_FORMATS[name].bytes(WeightMatrix(300, 200, 8)) == 8 * nbytes


# Llama 3.1 8B: 32 layers of width 4096; Q, K, V and O, three matrices of the MLP. Beside them a table and a head of
# 128,256·4096, and 65 norms.
LAYER = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336
OTHERS = 2 * (2 * 128_256 * 4096 + 65 * 4096)


@pytest.mark.parametrize(
    ("weights", "nbytes"),
    [
        ("int4", 32 * LAYER * (4 * 128 + 20) // 128 // 8),
        ("mxfp4", 32 * LAYER * 17 // 32),
        ("fp8", 32 * (LAYER + LAYER // 128**2 * 4)),
        ("int8", 32 * (LAYER + 4 * (4096 + 2 * 1024 + 4096 + 2 * 14336 + 4096))),
        (None, 32 * LAYER * 2),
    ],
)
def test_the_weights_of_an_8b_by_hand(weights, nbytes):
    found = xfcost.analyze("llama3.1-8b", N=1000, weights=weights, on="h100-sxm", **DECODE)
    assert found.on.memory.weights == found.held_bytes == nbytes + OTHERS
    # of the table one row of the sample is read
    assert found.on.time.bytes == found.step.bytes_read == nbytes + OTHERS - 2 * 128_255 * 4096 + found.cache.bytes


def test_bias_and_router_stay_in_the_dtype():
    # GPT-2's block: 12·768² weights with 9·768 biases and 4·768 of norms; tables of 50,257 and 1,024 rows
    found = xfcost.analyze("gpt2", N=100, weights="int8", on="h100-sxm", **DECODE)
    scales = 4 * (3 * 768 + 768 + 4 * 768 + 768)
    others = 12 * 13 * 768 + 2 * 768 + (50_257 + 1_024) * 768
    assert found.held_bytes == 12 * (12 * 768**2 + scales) + 2 * others
    # Mixtral 8x7B: 32 layers, eight experts of three matrices of 4096·14336; the router has 8·4096
    found = xfcost.analyze("mixtral-8x7b", N=100, weights="mxfp4", **DECODE)
    experts = 32 * 8 * 3 * 4096 * 14336
    assert found.held_bytes == experts * 17 // 32 + 2 * (46_702_792_704 - experts)
    # 17/32 of a byte for each weight of the two experts of one token
    step = xfcost.analyze("mixtral-8x7b", N=100, **DECODE).step
    assert step.weight_bytes - found.step.weight_bytes == experts // 4 * 2 - experts // 4 * 17 // 32


def test_a_router_is_not_quantised():
    # Mixtral 8x7B, a layer: Q and O of 4096², K and V of 4096·1024, eight experts; a scale of each output
    attention, scales = 2 * 4096**2 + 2 * 4096 * 1024, 2 * 4096 + 2 * 1024
    experts, more = 8 * 3 * 4096 * 14336, 8 * (2 * 14336 + 4096)
    quantised = 32 * (attention + experts)
    found = xfcost.analyze("mixtral-8x7b", N=100, weights="int8", **DECODE)
    assert found.held_bytes == quantised + 4 * 32 * (scales + more) + 2 * (46_702_792_704 - quantised)


def test_of_a_module_s_cache_keys_and_values_alone_have_a_byte():
    # float32: 4,000 bytes of states, 2,000 of full windows, 6,000 of an encoder, 20,000 that grow by 400 a token
    cache = CacheBytes(
        bytes=32_000, bytes_per_token=400, state_bytes=12_000, recurrent_bytes=4_000, cross_attention_bytes=6_000
    )
    found = quantised_cache(cache, 4)
    assert (found.bytes, found.bytes_per_token) == (4_000 + 7_000, 100)
    assert (found.state_bytes, found.recurrent_bytes, found.cross_attention_bytes) == (4_000 + 2_000, 4_000, 1_500)


@pytest.mark.parametrize(
    ("word", "name"), [("AWQ", "int4"), ("gptq", "int4"), ("w8a8", "int8"), ("float8", "fp8"), ("NF4", "nf4")]
)
def test_a_format_has_the_names_that_engines_give_it(word, name):
    assert read_option("weights", word) == name


@pytest.mark.parametrize(
    ("word", "mend"), [("bf16", "--dtype bf16 --weights-dtype none"), ("Q4_K_M", "GGUF .* --weights-dtype int4"),
                       ("q8_0", "--weights-dtype int8"), ("int5", "did you mean 'int8' or 'int4'")],
)  # fmt: skip
def test_other_formats_are_refused_with_what_to_write(word, mend):
    with pytest.raises(UsageError, match=mend):
        read_option("weights", word)


def test_expected_experts_are_read_in_their_format():
    plain, quantised = (
        [xfcost.analyze("mixtral-8x7b", N=100, batch=batch, weights=weights, **DECODE).step for batch in (1, 8)]
        for weights in (None, "int4")
    )
    expert, rows = 32 * 3 * 4096 * 14336, 7 * 2 * 4096
    expected = 8 * (1 - 0.75**8) - 2
    more, quantised_more = (many.weight_bytes - one.weight_bytes - rows for one, many in (plain, quantised))
    assert more == pytest.approx(2 * expert * expected)
    assert quantised_more == pytest.approx(expert * expected * 133 / 256)


def test_keys_and_values_have_a_byte_and_states_do_not():
    plain, quantised = (
        xfcost.analyze("llama3.1-8b", N=1000, batch=4, cache=cache, on="h100-sxm", **DECODE) for cache in (None, "fp8")
    )
    assert quantised.cache.bytes == plain.cache.bytes // 2 == 4 * 1000 * 32 * 2 * 1024
    assert quantised.cache.bytes_per_token == 65_536
    assert plain.on.time.bytes - quantised.on.time.bytes == quantised.cache.bytes
    assert quantised.on.memory.largest_tokens == pytest.approx(2 * plain.on.memory.largest_tokens, rel=1e-3)
    # a layer's attention: keys and values of four samples with a byte each, queries and outputs with two
    core = next(row for row in quantised.rows if row.fused)
    assert row_bound(core, quantised).least_bytes == 4 * (2 * 1000 * 1024 + 2 * 2 * 4096)
    states = [xfcost.analyze("mamba-130m", N=100, cache=cache, **DECODE).cache for cache in (None, "int8")]
    assert states[0] == states[1]
    for name in ("mamba-130m", "retnet-1.3b"):  # nor are products with them faster
        for mode in ("prefill", "decode"):
            found = xfcost.analyze(name, N=64, cache="fp8", on="h100-sxm", **DECODE | {"mode": mode})
            assert found.on.time.quantised_flops == 0
    # Qwen3.5 27B: of 64 layers 16 read keys, 24 heads of 256; 64·65/2 pairs
    hybrid = xfcost.analyze("qwen3.5-27b", N=64, cache="fp8", on="h100-sxm", mode="prefill")
    assert hybrid.on.time.quantised_flops == 2 * 16 * 24 * 256 * 2 * 64 * 65 // 2
    written = [
        xfcost.analyze("llama3.1-8b", N=64, cache=cache, **DECODE | {"mode": "prefill"}) for cache in (None, "fp8")
    ]
    assert written[0].cache.bytes == 2 * written[1].cache.bytes


def test_products_of_quantised_operands_have_their_peak_where_the_device_has_one():
    def bound(on, **formats):
        return xfcost.analyze("llama3.1-8b", N=4096, on=on, **DECODE | {"mode": "prefill"} | formats).on.time

    formats = {}, {"weights": "fp8"}, {"weights": "fp8", "cache": "fp8"}
    plain, weights, both = (bound("h100-sxm", **one) for one in formats)
    # of all tokens the matrices of 32 layers; the head scores the last token alone, half of all pairs are masked
    of_matrices, of_pairs = 2 * 4096 * 32 * LAYER, 2 * 32 * 2 * 4096 * 4096 * 4097 // 2
    of_head = 2 * 4096 * 128_256
    assert plain.flops == weights.flops == of_matrices + of_pairs + of_head
    assert (weights.quantised_flops, both.quantised_flops) == (of_matrices, of_matrices + of_pairs)
    assert weights.compute_seconds == pytest.approx(of_matrices / 1978.9e12 + (of_pairs + of_head) / 989.4e12, rel=1e-3)
    two = bound("h100-sxmx2", weights="fp8")
    assert two.compute_seconds == pytest.approx(weights.compute_seconds / 2)
    assert both.compute_seconds < weights.compute_seconds < plain.compute_seconds
    # of quantised keys and values the pairs alone, eager or in one kernel
    for attention in ("eager", "fused"):
        assert bound("h100-sxm", cache="fp8", attention=attention).quantised_flops == of_pairs
    # a kernel of a module whose mixing was not found too
    kernel = Operation(path="attention", title="", fused=True)
    assert StoredAs(2, cache_products="float8").peak(kernel, device("h100-sxm"), "bfloat16") == 1978.9e12
    # no float8 on an A100, and none of 4 bits: products are in bfloat16
    assert bound("a100-sxm-80", weights="fp8").compute_seconds == bound("a100-sxm-80").compute_seconds
    assert bound("h100-sxm", weights="int4").compute_seconds == plain.compute_seconds


WORDS = ["analyze", "llama3.1-8b", "--mode", "decode", "--N", "8k", "--batch", "16", "--on", "h100-sxm"]


def test_json_and_csv_say_what_is_quantised():
    report = json.loads(stdout_of(*WORDS, "--weights-dtype", "int4", "--format", "json"))
    assert report["quantised"] == {"weights": "int4", "cache": None, "weight_bytes": 5_727_854_592}
    assert report["on"]["memory"]["weights"] == 5_727_854_592
    assert "quantised" not in json.loads(stdout_of(*WORDS, "--format", "json"))
    rows = {row["operation"]: row for row in csv_of(*WORDS, "--weights-dtype", "int4")}
    # 4096 inputs, 6,144 outputs
    assert int(rows["qkv"]["least_bytes"]) == 4096 * 6144 * 133 // 256
    assert int(rows["linear"]["least_bytes"]) == 2 * 4096 * 128_256


def test_find_counts_no_quantised_caches():
    with pytest.raises(UsageError, match="--cache-dtype int8: "):
        xfcost.find(cache="int8", mode="decode", max_params="1G")


def config_with(tmp_path, quantization, name="qwen2.5-32b", **more):
    """The config of a published model with another `quantization_config`."""
    values = json.loads(config_of(name).read_text()) | {"quantization_config": quantization} | more
    path = tmp_path / "config.json"
    path.write_text(json.dumps(values))
    return str(path)


def linear_bytes(bits, out_bits=0, group=None, per_input=0, matrix=0, kept=()):
    """Bytes of Qwen2.5 32B by hand: 64 layers; the tables, norms and biases of Q, K and V are in 16 bits."""
    shapes = {"q": (5120, 5120), "k": (5120, 1024), "v": (5120, 1024), "o": (5120, 5120)}
    shapes |= {"gate": (5120, 27_648), "up": (5120, 27_648), "down": (27_648, 5120)}
    found = 2 * 152_064 * 5120 * 16 + (64 * (2 * 5120 + 5120 + 2 * 1024) + 5120) * 16
    for name, (inputs, outputs) in shapes.items():
        scales = outputs * (inputs // group if group else 1) * out_bits
        each = inputs * outputs * bits + scales + inputs * per_input + matrix
        found += 64 * (16 * inputs * outputs if name in kept else each)
    return found // 8


AWQ = {"quant_method": "awq", "bits": 4}
FP8 = {"quant_method": "fp8"}
NF4 = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
INT4 = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32}
FLOAT8 = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "channel", "group_size": None}
CT = {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"]}
ATTENTION = ("q", "k", "v", "o")
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128}
GPTQ_4 = linear_bytes(4, 20, 128)
# One layer in 16 bits instead of 4 with 20 for 128 inputs
WEIGHTS = 2 * 5120 * 5120 + 2 * 5120 * 1024 + 3 * 5120 * 27_648
LAYER_16 = WEIGHTS * (16 - 4) // 8 - WEIGHTS // 128 * 20 // 8
# The head of 152,064 words in 4 bits instead of 16
HEAD_4 = 152_064 * 5120 * (4 - 16) // 8 + 152_064 * 5120 // 128 * 20 // 8
# down_proj of a layer: in 8 bits and 24 for 128 inputs, instead of 4 and 20
DOWN_GPTQ_8 = 5120 * (27_648 * (8 - 4) + 27_648 // 128 * (24 - 20)) // 8
# Another format for some modules: in their bytes, the other's less the first's
DOWN_8 = 64 * (27_648 * 5120 * (8 - 4) + 5120 * (16 - 27_648 // 32 * 16)) // 8


def groups(*formats, **more):
    """compressed-tensors with a group for each (targets, weights)."""
    named = {str(number): {"targets": [one], "weights": weights} for number, (one, weights) in enumerate(formats)}
    return CT | {"config_groups": named} | more


# Of two layers the three matrices of the MLP in 16 bits, instead of 8 and 32 for each output
ENDS = [f"model.layers.{layer}.mlp.{one}_proj" for layer in (0, 63) for one in ("gate", "up", "down")]
ENDS_16 = 2 * (3 * 5120 * 27_648 - 4 * (2 * 27_648 + 5120))
OF_CONFIGS = [
    ({"quant_method": "fbgemm_fp8", "modules_to_not_convert": ENDS}, "FP8", linear_bytes(8, 32) + ENDS_16),
    (AWQ | {"group_size": 128}, "4-bit AWQ", linear_bytes(4, 20, 128)),
    (GPTQ | {"bits": 8, "group_size": -1}, "8-bit GPTQ", linear_bytes(8, 24)),
    (GPTQ | {"bits": 4, "desc_act": True}, "4-bit GPTQ", linear_bytes(4, 20, 128, per_input=32)),
    (FP8, "FP8", linear_bytes(8, matrix=32)),
    # blocks of 128×128: as many float32 as a scale of 32/128 bits for 128 inputs of each output
    (FP8 | {"weight_block_size": [128, 128]}, "FP8", linear_bytes(8, 32 / 128, 128)),
    (NF4 | {"quant_method": "bitsandbytes"}, "4-bit NF4", linear_bytes(4.5)),
    (NF4 | {"bnb_4bit_use_double_quant": True}, "4-bit NF4", linear_bytes(4 + 8 / 64 + 32 / 64 / 256)),
    ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "8-bit LLM.int8()", linear_bytes(8, 32)),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "NVFP4", linear_bytes(4.5, matrix=32)),
    (groups(("Linear", INT4)), "INT4", linear_bytes(4, 16, 32)),
    (groups(("Linear", INT4 | {"symmetric": False})), "INT4", linear_bytes(4, 20, 32)),
    (groups(("Linear", FLOAT8), ignore=["lm_head", "re:.*self_attn.*"]), "FP8", linear_bytes(8, 16, kept=ATTENTION)),
    (groups(("re:.*mlp.*", FLOAT8)), "FP8", linear_bytes(8, 16, kept=ATTENTION)),
    (  # a pattern comes before the class, wherever it stands
        groups(("Linear", INT4), ("re:.*down_proj", FLOAT8)),
        "INT4 and FP8",
        linear_bytes(4, 16, 32) + DOWN_8,
    ),
    (  # modules of no group stay in the dtype
        groups(("re:.*down_proj", FLOAT8), ("re:.*q_proj", INT4)),
        "FP8 and INT4",
        linear_bytes(4, 16, 32, kept=("k", "v", "o", "gate", "up")) + DOWN_8,
    ),
    (  # a name comes before a pattern
        groups(("re:.*down_proj", INT4), ("model.layers.0.mlp.down_proj", FLOAT8)),
        "INT4 and FP8",
        linear_bytes(4, 16, 32, kept=(*ATTENTION, "gate", "up")) + DOWN_8 // 64,
    ),
    (GPTQ | {"dynamic": {"-:.*self_attn.*": {}}}, "4-bit GPTQ", linear_bytes(4, 20, 128, kept=ATTENTION)),
    (GPTQ | {"dynamic": {"+:.*down_proj": {"bits": 8}}}, "4-bit GPTQ and 8-bit GPTQ", GPTQ_4 + 64 * DOWN_GPTQ_8),
    (  # twice the scales of o_proj
        GPTQ | {"dynamic": {".*o_proj": {"group_size": 64}}},
        "4-bit GPTQ",
        GPTQ_4 + 64 * 5120 * 5120 // 128 * 20 // 8,
    ),
    (  # the first that matches, from the start of the name
        GPTQ | {"dynamic": {"-:down": {}, r"+:.*\.0\..*down_proj": {"bits": 8}, "-:.*down_proj": {}}},
        "4-bit GPTQ and 8-bit GPTQ",
        linear_bytes(4, 20, 128, kept=("down",)) + DOWN_GPTQ_8 + 27_648 * 5120 * (4 - 16) // 8 + 216 * 5120 * 20 // 8,
    ),
    (
        GPTQ | {"modules_in_block_to_quantize": [["self_attn.q_proj"], ["mlp.up_proj", "mlp.gate_proj"]]},
        "4-bit GPTQ",
        linear_bytes(4, 20, 128, kept=("k", "v", "o", "down")),
    ),
    (GPTQ | {"lm_head": True, "modules_in_block_to_quantize": [["self_attn", "mlp"]]}, "4-bit GPTQ", GPTQ_4 + HEAD_4),
    (GPTQ | {"lm_head": True, "dynamic": {"-:lm_head": {}}}, "4-bit GPTQ", GPTQ_4),
    (GPTQ | {"quant_method": "awq", "modules_to_not_convert": ["model.layers.0."]}, "4-bit AWQ", GPTQ_4 + LAYER_16),
    (  # not layers 10 to 19
        GPTQ | {"quant_method": "awq", "modules_to_not_convert": ["model.layers.1", "layers.2"]},
        "4-bit AWQ",
        GPTQ_4 + 2 * LAYER_16,
    ),
    (
        GPTQ | {"quant_method": "awq", "modules_to_not_convert": [r"model\.layers\.(3|4)", "layers.*5.mlp"]},
        "4-bit AWQ",  # the layers 5, 15, …, 55 too
        GPTQ_4 + 2 * LAYER_16 + 6 * (3 * 5120 * 27_648 * (16 * 128 - 4 * 128 - 20) // 128 // 8),
    ),
]


@pytest.mark.parametrize(("quantization", "name", "nbytes"), OF_CONFIGS)
def test_a_config_s_own_format_is_the_default_by_hand(quantization, name, nbytes, tmp_path):
    found = xfcost.analyze(config_with(tmp_path, quantization), N=100, mode="decode", trace=False)
    assert (found.metadata.weight_format.name, found.metadata.weight_format.published) == (name, True)
    assert found.held_bytes == nbytes


# Bytes of the safetensors files on the model's pages, without the layer of multi-token prediction and the biases of the
# experts' choice in float32.
@pytest.mark.parametrize(
    ("name", "form", "nbytes", "within"),
    [
        # `total_size` of model.safetensors.index.json
        ("gpt-oss-20b", "MXFP4", 13_761_264_768, 0),
        ("gpt-oss-120b", "MXFP4", 65_248_815_744, 0),
        ("deepseek-r1", "FP8", 673.2e9, 5e7),
        ("kimi-k2", "FP8", 1029.2e9, 5e7),
        ("kimi-k2-thinking", "INT4", 594.2e9, 5e7),
    ],
)
def test_published_models_have_their_own_format(name, form, nbytes, within):
    found = xfcost.analyze(name, N=64, mode="decode", on="h100-sxm", trace=False)
    assert found.metadata.weight_format.name == form
    assert found.held_bytes == found.on.memory.weights == pytest.approx(nbytes, rel=0, abs=within)
    plain = xfcost.analyze(name, N=64, mode="decode", on="h100-sxm", trace=False, weights="none")
    assert (plain.metadata.weight_format, plain.held_bytes) == (None, 2 * plain.total("params"))


def test_the_indexer_of_deepseek_v3_2_is_what_it_has_beside_r1():
    r1, v3_2 = (xfcost.analyze(f"deepseek-{name}", N=64, mode="decode", trace=False) for name in ("r1", "v3.2"))
    # 61 layers: queries of 64 heads of 128 and one key in FP8, with a float32 for 128×128; a weight of each head and
    # the norm of the key in 16 bits
    queries, key = 1536 * 8192 + 12 * 64 * 4, 7168 * 128 + 56 * 4
    assert v3_2.held_bytes - r1.held_bytes == 61 * (queries + key + 2 * (7168 * 64 + 2 * 128))


def test_a_format_that_is_given_wins_and_one_of_a_config_is_named_first(tmp_path):
    path = config_with(tmp_path, {"quant_method": "awq", "bits": 4, "group_size": 128})
    words = ["analyze", path, "--mode", "decode", "--N", "1k", "--on", "l40s", "--no-trace", "--format", "json"]
    report = json.loads(stdout_of(*words))
    assert report["quantised"] | {"weight_bytes": 0} == {
        "weights": "4-bit AWQ", "as_published": True, "cache": None, "weight_bytes": 0,
    }  # fmt: skip
    assert json.loads(stdout_of(*words, "--weights-dtype", "int8"))["quantised"]["weights"] == "int8"
    assert "quantised" not in json.loads(stdout_of(*words, "--weights-dtype", "none"))
    # neither a training step nor a forward without devices has another dtype than its own
    for options in ({"mode": "train"}, {}):
        assert xfcost.analyze(path, N=64, trace=False, **options).metadata.weight_format is None


@pytest.mark.parametrize(
    ("quantization", "why"),
    [
        ({"quant_method": "aqlm"}, "the method aqlm is not known"),
        ({"quant_method": ["awq"]}, "the method ['awq'] is not known"),
        ({"quant_method": "awq", "bits": "four"}, "its fields of the method awq are not known"),
        (CT | {"config_groups": 3}, "its fields of the method compressed-tensors are not known"),
        (
            groups(("Linear", INT4), ("Conv1d", FLOAT8)),
            "the class Conv1d in the targets of its config_groups is not known",
        ),
        ("int4", "it is no mapping"),
    ],
)
def test_a_format_that_is_not_known_is_said_first(quantization, why, tmp_path):
    found = xfcost.analyze(config_with(tmp_path, quantization), N=64, mode="decode", trace=False)
    said = f"quantization_config: {why}; weights are counted in the dtype, --weights-dtype sets a format"
    assert (found.metadata.warnings, found.held_bytes) == ((said,), 2 * found.total("params"))


@pytest.mark.parametrize(
    ("left_out", "matrices"),
    [
        (["down_proj"], 2),
        (["re:.*gate_proj$"], 2),
        (["experts"], 0),
        (["gate_proj", "down_proj"], 1),
    ],
)
def test_experts_of_a_class_are_left_out_by_the_names_of_their_matrices(left_out, matrices, tmp_path):
    # two layers of four experts, each of three matrices of 2880²: the class stacks gate and up, and down
    small = {"num_hidden_layers": 2, "num_local_experts": 4, "layer_types": ["sliding_attention", "full_attention"]}
    quantization = {"quant_method": "mxfp4", "modules_to_not_convert": left_out}
    path = config_with(tmp_path, quantization, "gpt-oss-20b", **small)
    found = xfcost.analyze(path, N=64, mode="decode", trace=False, mixing=False)
    quantised = 2 * 4 * matrices * 2880 * 2880
    assert found.held_bytes == quantised * 17 // 32 + 2 * (found.total("params") - quantised)


def test_a_map_to_queries_keys_and_values_has_one_index_where_the_checkpoint_has_one_map(tmp_path):
    # GPT-2 small, 12 layers: c_attn, c_proj, c_fc and c_proj, of 768, 768, 768 and 3072 inputs; a 32-bit index for each
    config = {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "n_positions": 1024}
    config |= {"vocab_size": 50_257}
    path = tmp_path / "config.json"
    held = []
    for order in (False, True):
        quantization = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": order}
        path.write_text(json.dumps(config | {"quantization_config": quantization}))
        held.append(xfcost.analyze(str(path), N=64, mode="decode", trace=False).held_bytes)
    assert held[1] - held[0] == 12 * 4 * (3 * 768 + 3072)


@pytest.mark.parametrize(
    ("left_out", "matrices"),
    [
        (["model.layers.0.mlp.experts.3.up_proj"], 1),
        (["model.layers.1.mlp.experts.0"], 3),
        (["re:.*experts\\.[01]\\..*"], 2 * 2 * 3),
        (["re:.*experts\\.\\d+\\.down_proj"], 2 * 4),
    ],
)
def test_single_experts_are_left_out_by_their_numbers(left_out, matrices, tmp_path):
    # two layers of four experts, each of three matrices of 2880²: 8 bits and a float32 for the matrix
    small = {"num_hidden_layers": 2, "num_local_experts": 4, "layer_types": ["sliding_attention", "full_attention"]}
    held = []
    for entries in ([], left_out):
        quantization = {"quant_method": "fp8", "modules_to_not_convert": entries}
        path = config_with(tmp_path, quantization, "gpt-oss-20b", **small)
        found = xfcost.analyze(path, N=64, mode="decode", trace=False, mixing=False, closed_form=False)
        assert found.metadata.warnings == ()
        held.append(found.held_bytes)
    assert held[1] - held[0] == matrices * (2880 * 2880 - 4)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"ignore": ["model.layers.99", "lm_head", "re:.*mlp.gate$"]}, "'model.layers.99' names no linear layer or"),
        ({"ignore": [f"layers.{one}" for one in range(64, 70)]}, "'layers.66' and 3 more name no linear layer or"),
        ({"ignore": ["*(*"]}, "'*(*' names no linear layer or expert that is counted; it has no effect"),
        ({"ignore": ["model.norm", "visual.blocks.0.fc1", "re:.*embed_tokens"]}, None),
        ({"dynamic": {"-:q_proj": {}}}, "'q_proj' names no linear layer"),
        (
            {"modules_to_not_convert": {"a": 1}},
            'modules_to_not_convert: expected a list of names, got {"a": 1}; it has',
        ),
        (
            {"modules_to_not_convert": ["q_proj", None, 1]},
            "modules_to_not_convert: expected names, got null; it has no",
        ),
    ],
)
def test_entries_without_effect_are_said_first(more, message, tmp_path):
    path = config_with(tmp_path, GPTQ | more)
    found = xfcost.analyze(path, N=64, mode="decode", trace=False)
    assert len(found.metadata.warnings) == (message is not None)
    assert message is None or message in found.metadata.warnings[0]
    assert found.metadata.weight_format.name == "4-bit GPTQ"
    assert xfcost.analyze(path, N=64, mode="decode", trace=False, weights="int4").metadata.warnings == ()


def test_a_head_that_shares_its_table_is_not_quantised(tmp_path):
    path = config_with(tmp_path, GPTQ | {"lm_head": True}, tie_word_embeddings=True)
    found = xfcost.analyze(path, N=64, mode="decode", trace=False)
    assert found.held_bytes == GPTQ_4 - 2 * 152_064 * 5120
    assert "lm_head: the model has no head with weights of its own" in found.metadata.warnings[0]


FLOAT8_CACHE = {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False, "symmetric": True}


@pytest.mark.parametrize(
    ("quantization", "cache"),
    [
        (groups(("Linear", FLOAT8), kv_cache_scheme=FLOAT8_CACHE), "fp8"),
        (groups(("Linear", FLOAT8), kv_cache_scheme=None), None),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}, "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}, "fp8"),
        ({"quant_method": "modelopt", "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "INT8"}}, "int8"),
    ],
)
def test_a_config_s_own_cache_is_the_default(quantization, cache, tmp_path):
    # 64 layers, 8 heads of 128 of keys and of values; a byte each, or two
    elements, path = 100 * 64 * 2 * 1024, config_with(tmp_path, quantization)
    for mode in ("decode", "prefill"):
        found = xfcost.analyze(path, N=100, mode=mode, trace=False)
        assert (found.metadata.cache_format, found.cache.bytes) == (cache, elements * (1 if cache else 2))
        plain = xfcost.analyze(path, N=100, mode=mode, trace=False, cache="none")
        assert (plain.metadata.cache_format, plain.cache.bytes) == (None, 2 * elements)
    assert xfcost.analyze(path, N=100, on="h100-sxm", trace=False).metadata.cache_format is None


def test_the_heading_says_that_the_cache_is_as_published(tmp_path):
    path = config_with(tmp_path, {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"})
    words = ["--mode", "decode", "--N", "1k", "--no-trace"]
    told = " ".join(stdout_of("analyze", path, *words, "--on", "h100-sxm").split())
    assert "NVFP4 weights fp8 cache" in told
    assert "KV cache: 125 MiB fp8, as published, batch 1" in told
    told = " ".join(stdout_of("compare", path, "qwen2.5-32b", *words).split())
    assert "in NVFP4, as published, the cache in fp8; Qwen2.5 32B" in told
    # find counts caches in the dtype
    (row,) = xfcost.find(path, mode="decode", N=1000, max_params="1T").rows
    assert row.figures["cache_bytes"] == 1000 * 64 * 2 * 1024 * 2


@pytest.mark.parametrize(
    ("quantization", "message"),
    [
        (CT | {"ignore": ["re:.*(down_proj"]}, "ignore: 're:.*(down_proj': it is no regular expression: missing )"),
        (CT | {"ignore": ["re:((a+|[^x]+)+)+x!$"]}, "ignore: 're:((a+|[^x]+)+)+x!$': it repeats a part that has a"),
        (groups(("re:(", INT4)), "config_groups: 're:(': it is no regular expression"),
        ({"quant_method": "fp8", "modules_to_not_convert": ["re:["]}, "modules_to_not_convert: 're:['"),
        (GPTQ | {"dynamic": {"-:(": {}}}, "dynamic: '-:(': it is no regular expression"),
        (GPTQ | {"dynamic": {"+:(x*)*y": {"bits": 8}}}, "dynamic: '+:(x*)*y': it repeats"),
    ],
)
def test_a_wrong_regular_expression_is_refused(quantization, message, tmp_path):
    quantization = {"config_groups": groups(("Linear", INT4))["config_groups"]} | quantization
    path = config_with(tmp_path, quantization)
    assert f"{path} quantization_config.{message}" in error_of("analyze", path, "--mode", "decode", "--N", "64")


@pytest.mark.parametrize(
    ("pattern", "wrong"),
    [
        (r"^(?!.*mlp\.experts).*$", None),
        (r"model\.layers\.\d+\.mlp\.experts\.\d+\.(gate|up|down)_proj", None),
        (r".*\.(?:0|1|17)\..*self_attn.*", None),
        (r"(?:mlp|attn)*", None),  # choices that begin with other letters
        (r"(a|a)*b", "a repeat or a choice"),
        (r"(a?){30}b", "a repeat or a choice"),
        (r"(\w+\.)+x", "a repeat or a choice"),
        (".*" * 20 + "x", "so many repeats"),
        ("a{0,50}" * 4 + "x", "so many repeats"),
        ("a" * 2001, "it has 2,001 characters"),
        ("(" * 900 + ")" * 900, "too deep"),
        ("a{99999999999999}", "too large"),
    ],
)
def test_a_match_of_a_pattern_ends(pattern, wrong):
    found = wrong_pattern(pattern)
    assert found is None if wrong is None else wrong in found
