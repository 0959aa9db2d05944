"""Language models beside transformers: GPT-3, LLaMA, Mistral, T5, DeepSeek's latents."""

import json

import pytest
import torch

import transformers_models as hf
from cases.base import Case
from contract import example, make
from places import at
from specs import counted
from xfcost.api.analysis import analyze
from xfcost.counting.forward import count
from xfcost.importing import import_config
from xfcost.mechanisms.full import Full, Mla
from xfcost.program.residual import component_rows
from xfcost.spec.checkpoints import positions_of_config

# `--kind` of one of these selects this file
KINDS = ("mla",)

# GPT-3 ────────────────────────────────────────────────────────────────────────────────────────────────────────────────

# Brown et al. 2020, Table D.1: parameters in millions; Table 2.1: layers, width, heads (XL's as its width has them)


def params(name, *settings):
    total = counted(name, *settings).total("params")
    assert total is not None
    return total


def test_the_two_rows_of_table_2_1_that_do_not_add_up():
    # 24 heads of 128 in XL: 24 layers with 4·2048·1024 weights and 3·1024 biases more, 1517M and not 1320M
    block = "[{kind: full, heads: 24, head_dim: 128, causal: true}, {kind: mlp, ratio: 4, act: gelu_tanh}]"
    wide = params("gpt3-xl", f"stages.0.block={block}")
    assert wide - params("gpt3-xl") == 24 * (4 * 2048 * 1024 + 3 * 1024)
    assert round(wide / 1e6) == 1517
    # 5140 in the 13B model: 12,953M and not 12,850M
    assert round(params("gpt3-13b-5140") / 1e6) == 12953
    assert round(params("gpt3-13b") / 1e6) == 12853


# LLaMA and Mistral ────────────────────────────────────────────────────────────────────────────────────────────────────


VOCABULARY, HIDDEN, LAYERS = 29, 20, 2  # of every small model
LLAMA_DIM, LLAMA_HEADS = 24, 6
EPS = torch.finfo(torch.float64).eps  # what torch's own norm adds


def with_windows(theirs, folder, length):
    """Our model with gathered windows of 4 tokens in place of full attention, which the import counts."""
    windows = {"kind": "sliding", "window": 4, "kv_heads": 2, "position": "rope", "projection_bias": False}
    theirs.config.to_json_file(folder / "config.json")
    data = import_config(folder / "config.json").data
    data["stages"][0]["block"][0] = windows | {"heads": LLAMA_HEADS, "causal": True}
    return hf.ours_of(data, folder, batch=2, dtype="float64", tokens=(length,))


def language_models_theirs(family, **settings):
    small = {
        "vocab_size": VOCABULARY, "hidden_size": LLAMA_DIM, "intermediate_size": HIDDEN, "num_hidden_layers": LAYERS,
        "num_attention_heads": LLAMA_HEADS, "rms_norm_eps": EPS, "pad_token_id": None, "bos_token_id": 0,
        "eos_token_id": 0,
    }  # fmt: skip
    return hf.theirs_of(f"{family}ForCausalLM", **(small | settings))


def language_models_copied(model, ours, *, tied):
    """Their weights into ours, every one of them."""
    weights, stream = hf.TheirWeights(model), ours.streams[0]
    if tied:
        ours.shared["embedding"].weight.copy_(weights.take("model.embed_tokens.weight"))
    else:
        weights.put(stream.embed[0].lookup, "model.embed_tokens")
        weights.put(ours.head.linear, "lm_head")
    for number, (mixer, mlp) in enumerate(stream.stages[0].run):
        layer = f"model.layers.{number}."
        weights.put(mixer.residual_norm, f"{layer}input_layernorm")
        weights.put_joined(mixer.inner.qkv, *(f"{layer}self_attn.{name}_proj" for name in "qkv"))
        weights.put(mixer.inner.out, f"{layer}self_attn.o_proj")
        weights.put(mlp.residual_norm, f"{layer}post_attention_layernorm")
        for name in ("gate", "up", "down"):
            weights.put(getattr(mlp.inner, name), f"{layer}mlp.{name}_proj")
    weights.put(ours.head.norm, "model.norm")
    assert not weights


def compare_llama(model, ours, *, tied=False, dense=True):
    """Parameters, outputs with the same weights, and (where both run the dense product) MACs."""
    model = hf.scrambled(model.double())
    language_models_copied(model, ours[1].model, tied=tied)
    hf.alike(model, ours, hf.logits_uncached, tolerance=1e-5, more=0 if dense else None)  # norms and softmax in float32


@pytest.mark.parametrize("attention", ["eager", "fused"])
@pytest.mark.parametrize(
    ("kv_heads", "base", "tied"), [(6, 10000.0, False), (2, 10000.0, False), (1, 500.0, True)], ids=str
)
def test_llama_with_their_weights(kv_heads, base, tied, attention, tmp_path):
    rope = {"rope_type": "default", "rope_theta": base}
    model = language_models_theirs(
        "Llama", num_key_value_heads=kv_heads, tie_word_embeddings=tied, rope_parameters=rope
    )
    compare_llama(model, hf.imported(model, tmp_path, tokens=(11,), attention=attention), tied=tied)


@pytest.mark.parametrize("length", [3, 4, 11, 16])
def test_mistral_with_gathered_windows_and_their_weights(length, tmp_path):
    """Gathered windows give what a masked dense product gives, and have other MACs."""
    model = language_models_theirs("Mistral", num_key_value_heads=2, sliding_window=4)
    gathered, dense = with_windows(model, tmp_path, length), hf.imported(model, tmp_path, tokens=(length,))
    compare_llama(model, gathered, dense=False)
    if length > 4:
        # blocks of 2 queries by 6 keys: below the dense product from 6 keys on, padding counted
        pairs = {11: (12 * 6, 11 * 11), 16: (16 * 6, 16 * 16)}[length]
        ledgers = [count(architecture) for architecture, _ in (gathered, dense)]
        products = [sum(row.times_over("macs") for row in one.rows if row.mixes) for one in ledgers]
        assert products == [2 * LAYERS * 2 * LLAMA_DIM * pair for pair in pairs]


@pytest.mark.parametrize("attention", ["eager", "fused"])
@pytest.mark.parametrize("length", [3, 4, 5, 11])
def test_mistral_with_a_masked_window_and_their_weights(length, attention, tmp_path):
    model = language_models_theirs("Mistral", num_key_value_heads=2, sliding_window=4)
    compare_llama(model, hf.imported(model, tmp_path, tokens=(length,), attention=attention))


@pytest.mark.parametrize("attention", ["eager", "fused"])
@pytest.mark.parametrize(
    ("layers", "windows"),
    [
        ({"max_window_layers": 0}, [4, 4]),
        ({"max_window_layers": 1}, [None, 4]),
        ({"max_window_layers": 2}, [None, None]),
        ({"layer_types": ["sliding_attention", "full_attention"]}, [4, None]),
    ],
    ids=str,
)
def test_layers_of_qwen2_have_their_windows(layers, windows, attention, tmp_path):
    model = language_models_theirs("Qwen2", num_key_value_heads=2, use_sliding_window=True, sliding_window=4, **layers)
    ours = hf.imported(model, tmp_path, tokens=(11,), attention=attention)
    full = [one for one in ours[0].parts() if isinstance(one.part.component, Full)]
    assert [one.part.component.window for one in full for _ in range(one.times)] == windows
    compare_llama(model, ours)


def read_by_the_last(run, embedding):
    """The tokens of the first sample on whose vectors its last token's outputs depend, by autograd."""
    vectors = []

    def followed(*called):
        vectors.append(called[-1].detach().requires_grad_())
        return vectors[-1]

    hook = embedding.register_forward_hook(followed)
    run()[0, -1].square().sum().backward()
    hook.remove()
    return vectors[0].grad[0].abs().sum(-1).nonzero().flatten().tolist()


@pytest.mark.parametrize("attention", ["eager", "fused"])
def test_the_last_token_reads_the_window_of_each_layer(attention, tmp_path):
    """Two layers with windows of 4: 2·3 tokens before the last of 11."""
    model = hf.scrambled(language_models_theirs("Mistral", num_key_value_heads=2, sliding_window=4).double())
    _, live = hf.imported(model, tmp_path, tokens=(11,), attention=attention)
    for run, embedding in (
        (lambda: hf.logits_uncached(model, *live.inputs), model.model.embed_tokens),
        (lambda: live.model(*live.inputs), live.model.streams[0].embed[0].lookup),
    ):
        assert read_by_the_last(run, embedding) == [*range(4, 11)]


# T5 ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────

T5_DIM, T5_HEADS, HEAD_DIM = 12, 3, 5


def theirs_t5(*, gated):
    """A small one, heads together wider than the stream, the decoder a layer deeper than the encoder."""
    # a gated one is tied all the same in 5.x, but then not scaled
    return hf.theirs_of(
        "T5ForConditionalGeneration", vocab_size=VOCABULARY, d_model=T5_DIM, d_kv=HEAD_DIM, d_ff=HIDDEN,
        num_heads=T5_HEADS, num_layers=LAYERS, num_decoder_layers=LAYERS + 1, relative_attention_num_buckets=8,
        relative_attention_max_distance=6, feed_forward_proj="gated-gelu" if gated else "relu",
        tie_word_embeddings=not gated, layer_norm_epsilon=EPS,
    )  # fmt: skip


def t5_copied(weights, ours, *, gated):
    """Their weights into ours, every one of them."""
    encoder, decoder = ours.streams
    ours.shared["embedding"].weight.copy_(weights.take("shared.weight"))
    table = "block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    for stack in ("encoder", "decoder"):
        ours.shared[f"{stack}_bias"].weight.copy_(weights.take(f"{stack}.{table}"))
    for stream, stack in ((encoder, "encoder"), (decoder, "decoder")):
        blocks = [block for block in stream.stages[0].run if len(block) > 1]
        for number, block in enumerate(blocks):
            names = ["SelfAttention", *(["EncDecAttention"] if stack == "decoder" else []), "DenseReluDense"]
            for position, (part, name) in enumerate(zip(block, names, strict=True)):
                layer = f"{stack}.block.{number}.layer.{position}."
                weights.put(part.residual_norm, f"{layer}layer_norm")
                _put_layer(part.inner, weights, layer + name, gated=gated)
    weights.put(encoder.stages[0].run[-1][0].inner.norm, "encoder.final_layer_norm")
    weights.put(ours.head.norm, "decoder.final_layer_norm")
    assert not weights


def _put_layer(inner, weights, name, *, gated):
    if name.endswith("DenseReluDense"):
        names = {"gate": "wi_0", "up": "wi_1", "down": "wo"} if gated else {"fc1": "wi", "fc2": "wo"}
        for one, other in names.items():
            weights.put(getattr(inner, one), f"{name}.{other}")
        return
    weights.put_projections(inner, *(f"{name}.{letter}" for letter in "qkv"))
    weights.put(inner.out, f"{name}.o")


@pytest.mark.parametrize("attention", ["eager", "fused"])
@pytest.mark.parametrize("tokens", [(1, 1), (11, 7), (5, 16)], ids=str)
@pytest.mark.parametrize("gated", [False, True])
def test_t5_with_their_weights(gated, tokens, attention, tmp_path):
    model = theirs_t5(gated=gated)
    architecture, live = hf.imported(model, tmp_path, tokens=tokens, attention=attention)
    model = hf.scrambled(model.double())
    t5_copied(hf.TheirWeights(model), live.model, gated=gated)

    def logits(model, source, target):
        return model(input_ids=source, decoder_input_ids=target, use_cache=False).logits

    hf.alike(model, (architecture, live), logits, tolerance=1e-5)  # float32 norms, softmax


def test_a_table_serves_all_layers_of_its_stack(tmp_path):
    rows = {row.path: row for row in count(hf.imported(theirs_t5(gated=True), tmp_path, tokens=(5, 16))[0]).rows}
    for stack in ("encoder", "decoder"):
        assert rows[f"shared.{stack}_bias"].params == 8 * T5_HEADS
    used = [row for row in rows.values() if row.operation == "relative_bias"]
    found = [(row.shared, row.times, row.params) for row in used]
    assert found == [("encoder_bias", LAYERS, 0), ("decoder_bias", LAYERS + 1, 0)]
    # queries are not scaled, and cross-attention has no bias
    assert not any(row.operation == "scale" for row in rows.values())
    assert not any(row.operation == "add_bias" and ".block.1." in row.path for row in rows.values())


# Latent attention ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_keys_of_one_token_share_their_turned_part():
    component = Mla(heads=2, rope_dim=2, kv_rank=4)
    module, seen = make(Case(component, at(5, dim=6))), []
    module.join.register_forward_hook(lambda _, inputs, output: seen.append(inputs[1]))
    module(*example(at(5, dim=6), 1))
    queries, keys = seen
    assert keys[:, 0].equal(keys[:, 1])
    assert not queries[:, 0].allclose(queries[:, 1])
    assert keys.untyped_storage().nbytes() == 5 * 2 * 8, "one copy for all heads, in float64"


def test_a_step_reads_the_latents_themselves():
    # DeepSeek-V3 at 32,768 tokens: 128·32,768·(2·512 + 64) MACs and the maps, 128·512·(128 + 128), once: 4.58e9. Keys
    # and values of all tokens written out again would take 32,768 times the maps: 5.51e11.
    component = Mla(heads=128, head_dim=128, rope_dim=64, kv_rank=512, q_rank=1536, causal=True)
    rows = {row.path: row for row in component_rows(component, at(32768, dim=7168), decodes=True)}
    assert rows["kv_up"].macs == 128 * 512 * 256
    core = rows["scores"].macs + rows["weighted_sum"].macs
    assert core == 128 * 32768 * (2 * 512 + 64)
    assert core + rows["kv_up"].macs == pytest.approx(4.58e9, rel=1e-3)
    assert 32768 * rows["kv_up"].macs + 128 * 32768 * (192 + 128) == pytest.approx(5.51e11, rel=1e-3)
    assert (rows["cache"].cached, rows["cache"].cache.per_token) == (32768 * 576, 576)


def test_the_cache_of_deepseek_v3_by_hand():
    """61 layers · 576 · 2 bytes = 70,272 a token; multi-head attention with 128 heads of 128 keeps 57 times as much."""
    ledger = analyze("deepseek-v3", N=4096, dtype="bfloat16", mode="decode", weights="none", trace=False)
    assert (ledger.cache.bytes_per_token, ledger.cache.bytes) == (70_272, 4096 * 70_272)
    assert pytest.approx(56.9, abs=0.1) == 2 * 128 * 128 * 2 * 61 / 70_272
    # all that a token uses is read, of the embedding one row
    assert ledger.step.weight_bytes == 2 * (37_552_282_624 - 129_280 * 7168 + 7168)


def test_a_preset_whose_weights_are_published_in_another_format_counts_them_so():
    """In FP8 those of DeepSeek-V3 are half as large: eight H200 hold them, and no bfloat16; R1 has the same ones."""
    options = {"N": 4096, "mode": "decode", "on": "h200x8", "trace": False}
    whole, given, published = (analyze("deepseek-v3", **options, weights=one) for one in ("none", "fp8", None))
    assert published.held_bytes == given.held_bytes == analyze("deepseek-r1", **options).held_bytes
    assert published.held_bytes < 8 * 141e9 < whole.held_bytes == 2 * whole.total("params")
    # a forward, and training, have no checkpoint
    assert analyze("deepseek-v3", N=64, trace=False).held_bytes == 4 * whole.total("params")
    assert analyze("deepseek-v3", N=64, mode="train", trace=False).held_bytes == whole.held_bytes


@pytest.mark.parametrize(
    ("spec", "options", "last", "most"),
    [
        ("llama3-8b", {"N": 8192}, 8192, None),
        ("llama3-8b", {"N": 8193}, 8193, 8192),
        ("llama3-8b", {"N": 9000, "mode": "decode"}, 9000, 8192),
        ("llama3-8b", {"N": 8193, "mode": "train"}, 8193, 8192),
        ("llama3-8b", {"N": 8000, "mode": "generate", "new_tokens": 193}, 8192, None),  # the last token is not read
        ("llama3-8b", {"N": 8000, "mode": "generate", "new_tokens": 194}, 8193, 8192),
        # `positions` of the spec, not its `length`
        ("deepseek-v3", {"N": 131_072, "mode": "decode", "weights": "none"}, 131_072, None),
        ("bloom-560m", {"N": 2049}, 2049, None),  # ALiBi has no positions
        ("qwen2.5-32b", {"N": 200_000, "mode": "prefill"}, 200_000, 131_072),
        ("gpt-oss-20b", {"N": 131_073, "mode": "decode"}, 131_073, 131_072),
        ("gpt-oss-20b", {"N": 131_072}, 131_072, None),
        ("mamba-130m", {"N": 100_000}, 100_000, None),  # a recurrence has no positions
        ("common-full", {"N": 100_000}, 100_000, None),
    ],
)
def test_tokens_beyond_the_positions_are_said_first(spec, options, last, most):
    ledger = analyze(spec, trace=False, **options)
    said = () if most is None else (f"N = {last:,} is beyond the model's {most:,} positions",)
    assert ledger.metadata.warnings == said
    assert json.loads(ledger.to_json())["notes"][: len(said)] == list(said)


@pytest.mark.parametrize(
    ("fields", "most"),
    [
        ({}, 4096),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 512}}, 4096),
        ({"rope_scaling": {"type": "linear", "factor": 2.5}}, 10_240),
        ({"rope_scaling": {"type": "dynamic", "factor": 4}}, 16_384),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}}, 16_384),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}}, 4096),
        ({"rope_scaling": {"type": "linear", "factor": 8.0}, "model_type": "gemma3_text"}, 4096),
        ({"rope_scaling": "none"}, 4096),
        ({"alibi": True}, None),
        ({"model_type": "t5", "n_positions": 512}, None),
        ({"text_config": {"max_position_embeddings": 9}}, 9),
        ({"max_position_embeddings": None, "n_positions": 7}, 7),
        ({"max_position_embeddings": "many"}, None),
    ],
)
def test_positions_of_a_config_are_scaled_as_its_rotary_positions(fields, most):
    assert positions_of_config({"max_position_embeddings": 4096} | fields) == most
