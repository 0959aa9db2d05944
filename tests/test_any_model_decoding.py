"""Prefill and decode step of models of transformers, against their own caches and torch's counter on real runs.

References run the model itself on the CPU, with real numbers and attention as plain products; nothing of them is ours.
"""

import inspect
import itertools
import json
import re
from typing import Any, ClassVar, Optional

import msgspec
import pytest
import torch
from torch import nn

import xfcost
from helpers import report_text
from hugging_face import CONFIGS, TEXT, real, step_of, stepped, write
from transformers_models import cache_name, parameters, transformers
from xfcost.api.analysis import account_options
from xfcost.api.systems import as_built, named_module
from xfcost.counting.devices import read_devices
from xfcost.ledger.device import DeviceFigure, DeviceGroup
from xfcost.ledger.errors import UsageError
from xfcost.ledger.least_work import extreme_weight_bytes, row_bytes
from xfcost.parts.serving.bounds import memory_need, step_bound
from xfcost.parts.serving.choosing import at_batch
from xfcost.spec.run import Run
from xfcost.spec.targets import ModuleTarget
from xfcost.systems.module import ModuleSystem
from xfcost.torch_models.any_model import alike_layers, decoding, targets
from xfcost.torch_models.any_model import ledger as ledger_of_modules
from xfcost.torch_models.any_model.inputs import Lengths
from xfcost.torch_models.any_model.ledger import How
from xfcost.torch_models.any_model.run import cache_parameter
from xfcost.torch_models.any_model.targets import GivenModule

B, N = 2, 12
FALCON = {name: value for name, value in TEXT.items() if name != "head_dim"}
FALCON |= {"new_decoder_architecture": True, "num_kv_heads": 2}
CONVOLUTIONS = {"layer_types": ["conv", "full_attention", "conv"], "block_auto_adjust_ff_dim": False}
H100 = read_devices("h100-sxm").device
SMALL = DeviceGroup(device=msgspec.structs.replace(H100, memory=DeviceFigure(value=1_000_000, sources=())))
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 12}
SMALL_LINEAR = {
    "linear_key_head_dim": 4, "linear_value_head_dim": 4, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
}  # fmt: skip
# Class -> its model_type and fields; three layers each, of which a window or a state may not grow.
MODELS = {
    "Qwen3ForCausalLM": ("qwen3", TEXT),
    "Qwen3MoeForCausalLM": ("qwen3_moe", TEXT | EXPERTS),
    "Gemma3ForCausalLM": ("gemma3_text", TEXT | {"sliding_window": 4, "sliding_window_pattern": 3}),
    "Llama4ForCausalLM": ("llama4_text", TEXT | {"intermediate_size_mlp": 24, "num_local_experts": 4}),
    "Glm4MoeForCausalLM": (
        "glm4_moe", TEXT | EXPERTS | {"n_routed_experts": 8, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1},
    ),
    "GptOssForCausalLM": ("gpt_oss", TEXT | {"num_local_experts": 8, "sliding_window": 4}),
    "FalconForCausalLM": ("falcon", FALCON),
    "FalconMambaForCausalLM": (
        "falcon_mamba", {"hidden_size": 16, "num_hidden_layers": 2, "vocab_size": 29, "state_size": 4},
    ),
    "Lfm2ForCausalLM": ("lfm2", TEXT | CONVOLUTIONS),
    "JambaForCausalLM": (
        "jamba",
        TEXT | {"attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "num_experts": 4,
                "mamba_d_state": 4, "use_mamba_kernels": False},
    ),
    # an adapter of each language, whose samples are found by number
    "XmodForCausalLM": (
        "xmod",
        {name: value for name, value in TEXT.items() if name not in ("head_dim", "num_key_value_heads")}
        | {"is_decoder": True, "languages": ["en_XX", "de_DE"], "default_language": "de_DE"},
    ),
    # its queries look for the blocks of tokens that they see
    "Qwen4ExpForCausalLM": (
        "qwen4_exp_text",
        TEXT | EXPERTS | SMALL_LINEAR | {"num_hidden_layers": 4, "head_dim": 8, "shared_expert_intermediate_size": 12,
        "hc_count": 2, "hc_lowrank": 4, "indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 8,
        "indexer_budget": 8, "indexer_compress_ratio": 2},
    ),
}  # fmt: skip


def zeros(N):
    return {"input_ids": torch.zeros(B, N, dtype=torch.long)}


def config_of(folder, name, **more):
    model_type, fields = MODELS[name]
    return str(write(folder, {**fields, "model_type": model_type, "architectures": [name], **more}))


def model_of(name, **more):
    return real(name, MODELS[name][1] | more)


def ran(name, tokens):
    """MACs of the step for the last of `tokens` tokens, and the bytes of the cache after it."""
    ids = torch.randint(3, 29, (B, tokens - 1), generator=torch.Generator().manual_seed(0))
    return stepped(model_of(name), {"input_ids": ids})


def step(path, **options):
    return step_of(path, **{"N": N} | options)


@pytest.mark.parametrize("name", MODELS)
def test_a_decode_step_is_that_of_the_real_model(name, tmp_path):
    ledger, (macs, cache) = step(config_of(tmp_path, name)), ran(name, N)
    assert ledger.total("macs") == macs
    assert ledger.cache.bytes == ledger.step.cache_bytes == cache
    assert ledger.total("params") == parameters(model_of(name))


@pytest.mark.parametrize("name", MODELS)
def test_a_cache_grows_as_the_real_one(name, tmp_path):
    cache = step(config_of(tmp_path, name)).cache
    assert ran(name, N + 1)[1] - cache.bytes == B * cache.bytes_per_token
    assert ran(name, 2 * N)[1] - cache.bytes == N * B * cache.bytes_per_token  # windows of 4 are full


# Class -> its fields, the codes of a token, and those of an encoder's text before them.
CODES = {
    "KyutaiSpeechToTextForConditionalGeneration": (
        TEXT | {"model_type": "kyutai_speech_to_text", "num_codebooks": 3, "codebook_vocab_size": 11, "ffn_dim": 24,
                "audio_pad_token_id": 5, "sliding_window": 40, "codec_config": {}},
        4, False,
    ),
    "DiaForConditionalGeneration": (
        {"model_type": "dia", "delay_pattern": [0, 1, 2],
         "encoder_config": {name: TEXT[name] for name in TEXT if not name.endswith("token_id")},
         "decoder_config": TEXT | {"num_channels": 3, "cross_num_attention_heads": 4, "cross_head_dim": 4,
                                   "cross_num_key_value_heads": 4, "cross_hidden_size": 16}},
        3, True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CODES)
def test_a_step_reads_the_codes_of_every_codebook(name, tmp_path):
    fields, codes, encodes = CODES[name]
    ledger, model = step(write(tmp_path, fields | {"architectures": [name]})), real(name, fields)
    ids, text = torch.randint(3, 10, (B, N - 1, codes)), {"input_ids": torch.randint(3, 29, (B, N))}
    macs, cache = stepped(model, text | {"decoder_input_ids": ids} if encodes else {"input_ids": ids})
    assert ledger.total("macs") == macs
    assert ledger.cache.bytes == cache
    assert ledger.total("params") == parameters(model)


def test_experts_are_read_as_expected(tmp_path):
    ledger = step(config_of(tmp_path, "Qwen3MoeForCausalLM"))
    experts = 3 * 8 * (2 * 12 * 16 + 16 * 12)  # of 3 layers: 8 experts of a map to 2·12 and one back
    table, others = 29 * 16, ledger.total("params") - 29 * 16 - experts
    # each of 2 tokens chooses 2 of 8 experts: 8·(1 - (6/8)²) = 3.5 are read; of the table 2 rows of 16
    assert ledger.step.weight_bytes == pytest.approx(4 * (others + B * 16 + experts * 3.5 / 8))
    assert extreme_weight_bytes(ledger)[0] == 4 * (others + B * 16 + experts * 2 // 8)
    assert ledger.total("active_params") == others + table + experts * 2 // 8


def test_a_step_on_devices_reads_weights_and_cache_once(tmp_path):
    ledger = step(config_of(tmp_path, "Qwen3ForCausalLM"), on="h100-sxm", dtype="bfloat16")
    assert ledger.cache is not None
    bytes_ = ledger.step.weight_bytes + ledger.step.cache_bytes
    assert ledger.on.time.bytes == bytes_
    assert ledger.on.seconds == pytest.approx(bytes_ / 3.35e12)
    assert ledger.on.memory.weights == 2 * ledger.total("params")
    assert ledger.on.outputs == B


@pytest.mark.parametrize("name", ["Qwen3ForCausalLM", "Qwen3MoeForCausalLM", "FalconMambaForCausalLM"])
def test_a_step_of_many_samples_is_that_of_one_so_many_times(name, tmp_path):
    one, many = (step(config_of(tmp_path, name), batch=batch, dtype="bfloat16") for batch in (1, 5))
    derived, on = at_batch(one, 5), read_devices("h100-sxm")
    assert step_bound(derived, on) == step_bound(many, on)
    assert memory_need(derived, None) == msgspec.structs.replace(memory_need(many, None), activations=None)


@pytest.mark.rest
def test_a_rate_of_each_sample_needs_the_step_of_one():
    model, options = model_of("Qwen3ForCausalLM"), {"mode": "decode", "on": "h100-sxm,l40s", "tokens_per_user": 1e6}
    one, two = (torch.zeros(batch, N, dtype=torch.int64) for batch in (1, 2))
    found = xfcost.analyze(model, example_inputs={"input_ids": one}, trace=False, **options)
    assert [choice.at_rate is not None for choice in found.choices] == [True, True]
    with pytest.raises(UsageError, match=r"--tokens-per-user: .* their own batch, not 1; give inputs of one sample"):
        xfcost.analyze(model, example_inputs={"input_ids": two}, trace=False, **options)


def assert_the_largest_fits(path):
    largest = step(path, on=SMALL).on.memory.largest_tokens
    assert largest is not None
    fits = [step(path, on=SMALL, N=tokens).on.memory.fits for tokens in (largest, largest + 1)]
    assert fits == [True, False]


@pytest.mark.parametrize("name", ["Qwen3ForCausalLM", "Gemma3ForCausalLM"])
def test_the_largest_n_fits_and_the_next_does_not(name, tmp_path):
    assert_the_largest_fits(config_of(tmp_path, name, max_position_embeddings=2**20))
    path = config_of(tmp_path, name, max_position_embeddings=64)
    ends = step(path, on=SMALL).on
    assert (ends.memory.largest_tokens, ends.memory.positions) == (64, True)


CHUNKS = {
    "attention_chunk_size": 5, "layer_types": ["chunked_attention", "chunked_attention", "full_attention"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "more", "kept"),
    [
        ("Qwen3ForCausalLM", {}, [78] * 3),  # 12·13/2 causal pairs
        ("Gemma3ForCausalLM", {}, [42, 42, 78]),  # of two local layers 1 + 2 + 3 and 9·4: itself and 3 before it
        ("Llama4ForCausalLM", CHUNKS, [33, 33, 78]),  # two chunks of 5·6/2 and one of 2·3/2
    ],
)
def test_a_causal_prompt_is_bound_by_the_pairs_that_are_kept(name, more, kept, tmp_path):
    ledger = step(config_of(tmp_path, name, **more), mode="prefill", on="h100-sxm", dtype="bfloat16")
    each = B * 4 * 2 * 4  # 4 heads, two products of width 4; the class computes all 144 pairs
    cores = [row for row in ledger.rows if row.fused for _ in range(row.times)]
    assert {row.macs for row in cores} == {each * N * N}
    assert sorted(row.pairs or 78 for row in cores) == kept
    assert ledger.on.time.flops == 2 * (ledger.total("macs") - each * sum(N * N - pairs for pairs in kept))


@pytest.mark.parametrize("tokens", [4, 5, 6, 8, 10, 11])
def test_a_step_in_chunks_reads_the_keys_of_its_chunk(tokens, tmp_path, monkeypatch):
    path, kept = config_of(tmp_path, "Llama4ForCausalLM", **CHUNKS), []
    ledger = step(path, N=tokens, on="h100-sxm", dtype="bfloat16")
    attend = nn.functional.scaled_dot_product_attention

    def noted(query, key, value, attn_mask=None, **options):
        kept.append(key.shape[-2] if attn_mask is None else int(attn_mask[0].sum()))
        return attend(query, key, value, attn_mask=attn_mask, **options)

    model = model_of("Llama4ForCausalLM", **CHUNKS)
    ids = torch.randint(3, 29, (1, tokens), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        cache = model(input_ids=ids[:, :-1], use_cache=True)[cache_name()]
        monkeypatch.setattr(nn.functional, "scaled_dot_product_attention", noted)
        model(input_ids=ids[:, -1:], use_cache=True, **{cache_name(): cache})
    # 4 heads in groups of 2, keys and values of width 4 in 2 bytes
    of_token, reads = B * 2 * 2 * 4 * 2, [row for row in ledger.rows if row.fused for _ in range(row.times)]
    assert ([row.pairs or tokens for row in reads], {row.heads for row in reads}) == (kept, {4})
    # the last 4 tokens of chunked layers are cached. A step reads those in memory: of a new chunk none
    held = 2 * min(tokens, 4) + tokens
    assert ledger.cache.bytes == of_token * held
    assert ledger.step.cache_bytes == of_token * (held if tokens < 5 else 2 * (kept[0] - 1) + tokens)
    assert ledger.on.time.bytes == ledger.step.bytes_read
    # the class multiplies 4 queries of width 4 with all keys at hand, which are 5 at most, and with their values
    left_out = B * 4 * 2 * 4 * 2 * (min(tokens, 5) - kept[0])
    assert ledger.on.time.flops == 2 * (ledger.total("macs") - left_out)


# Config -> figures in which transformers runs something else than the importer's spec.
IMPORTED = {
    "gpt2": (), "llama-3.2-1b": (), "mistral-7b-v0.1": (), "mixtral-8x7b": (), "qwen2-0.5b": (),
    "bloom-560m": ("core_bytes",),  # its class has eager attention alone
    # it makes keys and values of all tokens again, where a spec multiplies the latent
    "deepseek-v2-lite": ("macs", "core_bytes"),
    # it looks all relative positions up, of which a spec reads the rows, and adds them in no kernel
    "mt5-small": ("weight_bytes", "core_bytes"),
}  # fmt: skip


def both_accounts(name, folder, mode, **more):
    """Of a config with two layers: that of its spec, and that of its class."""
    values = json.loads((CONFIGS / f"{name}.json").read_text())
    layers = {"num_hidden_layers", "n_layer", "num_layers", "num_decoder_layers"} & values.keys()
    path = str(write(folder, values | dict.fromkeys(layers, 2)))
    run = as_built(Run(mode=mode, batch=B, dtype="bfloat16", **more), text=True)
    module = named_module(ModuleTarget("config", path, "", path), (), (), B, run)
    spec = step(path, mode=mode, dtype="bfloat16", **more)
    return spec, ModuleSystem(module).account(
        run._replace(tokens=(N,)), account_options({"trace": False, "mixing": False})
    )


def figures(ledger):
    totals = {name: ledger.total(name) for name in ("params", "active_params", "macs")}
    cores = [(row.times, row_bytes(row, ledger)) for row in ledger.rows if row.fused]
    core_bytes = sum(times * moved for times, moved in cores if moved is not None)
    return totals | {"weight_bytes": ledger.step.weight_bytes, "cache": ledger.cache, "core_bytes": core_bytes}


@pytest.mark.parametrize("name", IMPORTED)
def test_a_step_is_that_of_the_imported_spec(name, tmp_path):
    found = map(figures, both_accounts(name, tmp_path, "decode"))
    spec, model = ({key: value for key, value in one.items() if key not in IMPORTED[name]} for one in found)
    assert spec == model


@pytest.mark.parametrize("tokens", [3, 4, 5, 12])
@pytest.mark.parametrize(
    "values",
    [
        {"model_type": "mistral", "architectures": ["MistralForCausalLM"]},
        {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "num_local_experts": 4},
        {
            "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "use_sliding_window": True,
            "max_window_layers": 1,
        },
    ],
    ids=lambda values: values["model_type"],
)  # fmt: skip
def test_a_step_of_a_spec_reads_the_window_of_the_class(values, tokens, tmp_path):
    """The class drops the oldest token before it adds the step's; the spec's ring keeps it until the next step."""
    plain = {name: value for name, value in TEXT.items() if name != "head_dim" or values["model_type"] != "qwen2"}
    fields = plain | values | {"sliding_window": 4}
    found = step(str(write(tmp_path, fields)), N=tokens)
    ids = torch.randint(3, 29, (B, tokens - 1), generator=torch.Generator().manual_seed(0))
    macs, cache = stepped(real(values["architectures"][0], fields), {"input_ids": ids})
    layers = fields["num_hidden_layers"] - values.get("max_window_layers", 0)
    of_token = 2 * fields["num_key_value_heads"] * fields["hidden_size"] // fields["num_attention_heads"] * 4
    assert found.module is None
    assert found.total("macs") == macs
    assert found.cache.bytes == found.step.cache_bytes == cache + (B * layers * of_token if tokens >= 4 else 0)
    others = fields["num_hidden_layers"] - layers
    assert found.cache.bytes_per_token == (others if tokens >= 4 else others + layers) * of_token


@pytest.mark.rest
# T5 computes the logits of all positions of a prompt
@pytest.mark.parametrize(
    ("name", "mode"), [*zip([*IMPORTED][:-1], itertools.cycle(("forward", "prefill")), strict=False)]
)
def test_a_pass_is_that_of_the_imported_spec(name, mode, tmp_path):
    spec, found = both_accounts(name, tmp_path, mode)
    for total in ("params", "active_params", "macs"):
        assert found.total(total) == spec.total(total)
    assert found.cache == spec.cache


def test_a_generation_of_a_config_is_that_of_its_spec(tmp_path):
    spec, found = both_accounts("llama-3.2-1b", tmp_path, "generate", new_tokens=70)
    for work in ("prefill", "decode", "without_cache"):
        assert getattr(found.generation, work).macs == getattr(spec.generation, work).macs
    assert found.cache == spec.cache


class Decoder(nn.Module):
    """A module of one's own with the signature of transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.map = nn.Embedding(5, 4), nn.Linear(4, 4)

    def forward(self, input_ids: torch.Tensor, past_key_values: Any = None, *, use_cache: bool = False) -> Any:
        x_BNC = self.map(self.table(input_ids))
        keys = x_BNC if past_key_values is None else torch.cat((past_key_values[0], x_BNC), dim=1)
        return {"logits": x_BNC @ keys.transpose(1, 2), "past_key_values": (keys,) if use_cache else None}


def test_a_module_of_ones_own_decodes():
    ledger = xfcost.analyze(Decoder(), example_inputs=zeros, N=N, mode="decode")
    # a map of 4 by 4 and 12 scores of width 4, of each of 2 samples
    assert ledger.total("macs") == B * (4 * 4 + N * 4)
    assert (ledger.cache.bytes, ledger.cache.bytes_per_token) == (B * N * 4 * 4, 4 * 4)
    form = ledger.closed_form
    # 16 MACs of the map and 4 of each score; a token of 4 numbers in 4 bytes; of 2 samples
    assert (form.macs, form.cache) == ("8·N + 32", "32·N")
    assert "KV cache = 32·N bytes" in report_text(ledger)
    given = xfcost.analyze(Decoder(), example_inputs=zeros(N - 1), mode="decode")
    assert given.total("macs") == ledger.total("macs")


class Named(nn.Module):
    """Its cache is called `memory`, and it returns that behind its logits."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Decoder()

    def forward(self, input_ids: torch.Tensor, memory: Any = None) -> Any:
        found = self.inner(input_ids, memory, use_cache=True)
        return found["logits"], found["past_key_values"]


class Keywords(Decoder):
    """It names none of its arguments."""

    def forward(self, **given: Any) -> Any:
        found = super().forward(given["input_ids"], given.get("memory"), use_cache=True)
        return {"logits": found["logits"], "memory": found["past_key_values"]}


@pytest.mark.parametrize("mode", ["prefill", "decode", "generate"])
@pytest.mark.parametrize(("module", "out"), [(Named, {"cache_out": "1"}), (Keywords, {})])
def test_a_cache_of_another_name_also_where_a_module_names_no_argument(module, out, mode):
    given = {"example_inputs": zeros, "N": N, "mode": mode, "on": SMALL, "mixing": False}
    given |= {"new_tokens": 5} if mode == "generate" else {}
    found = xfcost.analyze(module(), cache_in="memory", **out, **given)
    usual = xfcost.analyze(Decoder(), **given)
    assert found.cache == usual.cache
    assert found.total("macs") == usual.total("macs")
    assert found.generation == usual.generation
    assert (found.on.time, found.on.memory) == (usual.on.time, usual.on.memory)


class Typed(nn.Module):
    """Its cache is a `Cache` of transformers; the parameter's name and annotation, and what it returns, may be any."""

    def __init__(self, takes: str, annotation: Any, returns: Any) -> None:
        super().__init__()
        self.table, self.map, self.returns = nn.Embedding(5, 4), nn.Linear(4, 4), returns
        forward = lambda self, input_ids, use_cache=False, **named: self.decode(input_ids, **named)  # noqa: E731
        names = ("self", "input_ids", "use_cache", takes)
        given = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
        given[-1] = given[-1].replace(annotation=annotation, default=None)
        forward.__signature__ = inspect.Signature(given)
        self.forward = forward.__get__(self)

    def decode(self, input_ids: torch.Tensor, **named: Any) -> Any:
        cache = next(iter(named.values()), None) or transformers.DynamicCache()
        keys, _ = cache.update(*[self.map(self.table(input_ids))[:, None]] * 2, 0)
        return self.returns(keys @ keys.mT, cache)


OPTIONAL = transformers.DynamicCache | None


@pytest.mark.parametrize(
    ("takes", "annotation", "returns"),
    [
        ("memory", OPTIONAL, lambda y, cache: {"logits": y, "memory": cache}),
        ("memory", "Cache | None", lambda y, cache: {"logits": y, "memory": cache}),
        ("memory", Optional["transformers.Cache"], lambda y, cache: {"logits": y, "kept": cache}),
        ("memory", OPTIONAL, lambda y, cache: (y, cache)),
        ("memory", inspect.Parameter.empty, lambda y, cache: {"logits": y, "memory": cache}),
        ("cache", inspect.Parameter.empty, lambda y, cache: {"past_key_values": y, "cache": cache}),
    ],
)
def test_a_cache_is_found_by_its_type(takes, annotation, returns):
    found = xfcost.analyze(Typed(takes, annotation, returns), example_inputs=zeros, N=N, mode="decode", mixing=False)
    assert (found.cache.bytes, found.cache.bytes_per_token) == (B * N * 2 * 4 * 4, 2 * 4 * 4)  # 2 of width 4, float32


@pytest.mark.parametrize(
    ("module", "options", "words"),
    [
        (Named, {}, "expected parameters use_cache and past_key_values.* another one, as in --cache-in memory$"),
        (Named, {"cache_in": "memori"}, "--cache-in memori: did you mean 'memory'"),
        (Named, {"cache_in": "memory"}, "returned no cache; .* several outputs, as in --cache-out 1$"),
        (Named, {"cache_in": "memory", "mode": "forward"}, "only --mode prefill, decode and generate have a cache"),
        (Keywords, {}, r"as in --cache-in past_key_values, if it reads that of \*\*given$"),
        (Keywords, {"cache_in": "past_key_values"}, "as in --cache-out memory$"),
        (Keywords, {"cache_in": "other", "cache_out": "memory"}, "--cache-in other: Keywords does not read it"),
        (Decoder, {"mode": "generate", "device": "cpu", "new_tokens": 2}, "--device"),
        (Decoder, {"N": 1}, "expected --N from 2"),
        (Decoder, {"device": "cpu"}, "--device"),
        (Decoder, {"predict": True}, "--predict"),
    ],
)
def test_a_message_names_the_option_that_mends_it(module, options, words):
    given = {"N": N, "mode": "decode", "mixing": False} | options
    with pytest.raises(UsageError, match=words):
        xfcost.analyze(module(), example_inputs=zeros, **given)


class Refuses(Decoder):
    """Its code raises on `meta`."""

    def forward(self, input_ids: torch.Tensor, past_key_values: Any = None, *, use_cache: bool = False) -> Any:
        if input_ids.is_meta:
            raise RuntimeError("not on meta")
        return super().forward(input_ids, past_key_values, use_cache=use_cache)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_prompt_runs_on_fake_tensors_where_its_step_does(device):
    given = {"input_ids": torch.zeros(B, N - 1, dtype=torch.long, device=device)}
    found = xfcost.analyze(Refuses().to(device), example_inputs=given, mode="decode", mixing=False)
    usual = xfcost.analyze(Decoder().to(device), example_inputs=given, mode="decode", mixing=False)
    assert found.module.tensors == "fake"
    assert (found.total("macs"), found.cache) == (usual.total("macs"), usual.cache)


class Views(Decoder):
    """Keys and values are views of one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(4, 8)

    def forward(self, input_ids: torch.Tensor, past_key_values: Any = None, *, use_cache: bool = False) -> Any:
        parts = self.map(self.table(input_ids)).chunk(2, dim=-1)
        past = past_key_values or ()
        cache = tuple(torch.cat((old, new), dim=1) for old, new in zip(past, parts, strict=True)) if past else parts
        return {"logits": cache[0] @ cache[1].transpose(1, 2), "past_key_values": cache if use_cache else None}


def test_views_of_one_tensor_are_each_in_the_cache():
    for mode in ("prefill", "decode"):
        cache = xfcost.analyze(Views(), example_inputs=zeros, N=N, mode=mode).cache
        assert (cache.bytes, cache.bytes_per_token) == (B * N * 8 * 4, 8 * 4)


def test_the_operations_of_a_prompt_have_kinds(tmp_path):
    ledger = step(config_of(tmp_path, "Qwen3ForCausalLM"), mode="prefill", mixing=None)
    kinds = {row.operation: row.mixing for row in ledger.rows if row.macs}
    assert kinds == {"mm": "per-token", "scaled_dot_product_attention": "global"}


UMT5 = {
    "model_type": "umt5", "d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 2, "num_heads": 4, "vocab_size": 29,
}  # fmt: skip


def test_an_encoder_is_kept_without_architectures_and_its_cache_grows(tmp_path):
    path = write(tmp_path, UMT5)
    assert step(path).module.module.endswith("UMT5ForConditionalGeneration")
    assert_the_largest_fits(path)


def test_eager_attention_of_a_prompt_is_bound_with_all_pairs(tmp_path):
    path = config_of(tmp_path, "Qwen3ForCausalLM")
    eager, fused = (step(path, mode="prefill", on="h100-sxm", attention=one).on.notes for one in ("eager", "fused"))
    assert any("counts all pairs" in note for note in eager)
    assert not fused


# A prompt and the steps after it ──────────────────────────────────────────────────────────────────────────────────────


def test_a_generation_is_a_prompt_and_its_steps():
    ledger = xfcost.analyze(Decoder(), example_inputs=zeros, N=N, mode="generate", new_tokens=40, on="h100-sxm")
    found = ledger.generation
    # 16 MACs of the map for each token, and 4 of each score; tokens 13 to 51 follow 12
    assert found.prefill.macs == B * (16 * 12 + 4 * 12 * 12)
    assert found.decode.macs == B * sum(16 + 4 * tokens for tokens in range(13, 52))
    assert found.without_cache.macs == B * sum(16 * tokens + 4 * tokens * tokens for tokens in range(12, 52))
    assert ledger.total("macs") == found.prefill.macs + found.decode.macs
    assert ledger.total("params") == 5 * 4 + 4 * 4 + 4
    assert ledger.cache.bytes == B * 51 * 4 * 4
    assert ledger.on.outputs == B * 40
    assert [one.time.flops for one in ledger.on.phases] == [2 * found.prefill.macs, 2 * found.decode.macs]
    text = report_text(ledger)
    assert "≠" not in text  # its rows are sums over passes, of which no trace has any
    # the map of all 51 tokens and the scores, as shares of both phases
    own = [B * 16 * 12, B * 16 * 39, B * 4 * 12 * 12, B * 4 * sum(range(13, 52))]
    assert f"most MACs: {max(own) / sum(own):.1%}".replace("%", " %") in text


class Captioner(nn.Module):
    """An encoder of an image's patches, whose states a decoder of text caches beside its own keys."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(3, 4), Decoder()

    def forward(
        self, input_ids: torch.Tensor, patches: Any = None, past_key_values: Any = None, *, use_cache: bool = False
    ) -> Any:
        states = self.encoder(patches) if past_key_values is None else past_key_values[1]
        found = self.decoder(input_ids, past_key_values and past_key_values[:1], use_cache=True)
        scores = found["logits"].sum() + states.sum()
        return {"logits": scores, "past_key_values": (*found["past_key_values"], states) if use_cache else None}


def test_without_a_cache_an_encoder_still_runs_once():
    def inputs(N):
        return {"input_ids": torch.zeros(1, N, dtype=torch.long), "patches": torch.ones(1, 7, 3)}

    ledger = xfcost.analyze(Captioner(), example_inputs=inputs, N=N, mode="generate", new_tokens=4, mixing=False)
    # 7 patches through a map of 3 by 4; passes of 12 to 15 tokens, each with a map of 4 by 4 and scores of width 4
    encoder, passes = 7 * 3 * 4, sum(16 * tokens + 4 * tokens * tokens for tokens in range(12, 16))
    assert ledger.generation.without_cache.macs == encoder + passes
    assert ledger.generation.prefill.macs == encoder + 16 * 12 + 4 * 12 * 12


@pytest.mark.parametrize("name", ["Gemma3ForCausalLM", "FalconMambaForCausalLM"])
def test_the_steps_of_a_generation_are_those_of_the_real_model(name, tmp_path):
    ledger = step(config_of(tmp_path, name), mode="generate", N=2, new_tokens=8)  # windows of 4 fill on the way
    assert ledger.generation.decode.macs == sum(ran(name, tokens)[0] for tokens in range(3, 10))
    assert ledger.cache.bytes == ran(name, 9)[1]


def test_a_generation_needs_an_n_of_its_own(tmp_path):
    given = zeros(N)
    with pytest.raises(UsageError, match="have no letter N"):
        xfcost.analyze(Decoder(), example_inputs=given, mode="generate", new_tokens=2)
    path = write(tmp_path, UMT5)
    with pytest.raises(UsageError, match="of its encoder's text and of its decoder's"):
        step(path, mode="generate", new_tokens=2)


# Alike layers, of which the first ones run alone at other sizes ─────────────────────────────────────────────────────


class Stack(nn.Module):
    """Layers that note their runs; those of odd numbers may run twice, or the whole may add to each layer's output."""

    ran: ClassVar[set[int]] = set()

    def __init__(self, *, alternating: bool = False, sums: bool = False) -> None:
        super().__init__()
        self.table, self.layers = nn.Embedding(5, 4), nn.ModuleList(map(Numbered, range(6)))
        self.alternating, self.sums = alternating, sums

    def forward(self, input_ids: torch.Tensor, past_key_values: Any = None, *, use_cache: bool = False) -> Any:
        x_BNC, cache = self.table(input_ids), []
        for place, layer in enumerate(self.layers):
            self.ran.add(place)
            for _ in range(1 + (self.alternating and place % 2)):
                x_BNC, keys = layer(x_BNC, past_key_values and past_key_values[place])
            x_BNC = x_BNC + place if self.sums else x_BNC
            cache.append(keys)
        return {"logits": x_BNC, "past_key_values": cache}


class Numbered(nn.Module):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.number, self.map = number, nn.Linear(4, 4)

    def forward(self, x_BNC: torch.Tensor, past: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        keys = self.map(x_BNC)
        keys = keys if past is None else torch.cat((past, keys), dim=1)
        return (x_BNC @ keys.transpose(1, 2)).softmax(dim=-1) @ keys, keys


stacks = pytest.mark.parametrize(
    ("options", "layers"), [({}, {0, 1}), ({"alternating": True}, {0, 1, 2}), ({"sums": True}, {*range(6)})]
)


@stacks
def test_at_other_n_the_first_alike_layers_run_alone(options, layers):
    own, fresh = (GivenModule(Stack(**options), zeros) for _ in range(2))
    bare = How(trace=False, closed_form=False, mode="decode")
    own.ledger(Lengths(N), bare._replace(trace=True))
    own.ledger(Lengths(30), bare)
    Stack.ran.clear()
    short = own.ledger(Lengths(40), bare)
    assert Stack.ran == layers
    whole = fresh.ledger(Lengths(40), bare)
    assert (short.rows, short.cache, short.step) == (whole.rows, whole.cache, whole.step)
    assert short.activations == whole.activations


@stacks
def test_a_forward_of_many_operations_runs_the_first_alike_layers(options, layers, monkeypatch):
    class Noting(Stack):
        def forward(self, input_ids: torch.Tensor) -> Any:
            self.ran.clear()
            return super().forward(input_ids)["logits"]

    def ledger(tokens):
        module = GivenModule(Noting(**options), lambda N: torch.zeros(B, N, dtype=torch.long))
        return module.ledger(Lengths(tokens), How(trace=False, closed_form=False))

    whole = ledger(40)
    monkeypatch.setattr(alike_layers, "_MOST_CALLS", 20)
    assert ledger(40).rows == whole.rows
    assert Stack.ran == layers


def traced(most, monkeypatch, trace=None, **options):
    """The ledger of a stack of 6 layers, where a run of more than `most` operations is long."""
    monkeypatch.setattr(ledger_of_modules, "_MOST_TRACED", most)
    tokens = torch.zeros(B, N, dtype=torch.long)
    return xfcost.analyze(Stack(**options), example_inputs=tokens, mixing=False, trace=trace)


@pytest.mark.parametrize("options", [{}, {"alternating": True}, {"sums": True}])
def test_a_long_run_is_traced_with_its_first_alike_layers(options, monkeypatch):
    whole, short = (traced(most, monkeypatch, trace=True, **options) for most in (10**9, 0))
    assert short.module.traced == "agrees"
    assert (short.rows, short.module, short.agreement) == (whole.rows, whole.module, whole.agreement)


@pytest.mark.parametrize(("most", "options"), [(0, {}), (20, {"alternating": True}), (40, {"sums": True})])
def test_a_run_is_traced_on_demand_where_its_first_alike_layers_are_long_or_differ(most, options, monkeypatch):
    left_out, asked = (traced(most, monkeypatch, trace, **options) for trace in (None, True))
    assert re.fullmatch(r"not traced: a run has \d+ operations; --trace traces it", left_out.module.traced)
    assert (left_out.total("traced_macs"), left_out.agreement.accounts) == (None, ())
    assert (asked.total("traced_macs"), asked.module.traced) == (left_out.total("macs"), "agrees")
    assert traced(10**9, monkeypatch, **options).module == asked.module


def test_a_run_whose_first_alike_layers_are_short_is_traced(monkeypatch):
    ledger = traced(40, monkeypatch)
    assert ledger.module.traced == "agrees"


class Adding(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(5001):
            x = x + 1
        return x


def test_a_long_loop_is_left_out_of_a_trace():
    ledger = xfcost.analyze(Adding(), example_inputs=torch.zeros(2), mixing=False)
    assert "trace: not traced: a run has 5,001 operations; --trace traces it" in report_text(ledger)


def test_a_long_run_is_counted_once_for_its_closed_form(monkeypatch):
    monkeypatch.setattr(alike_layers, "_MOST_CALLS", 20)
    monkeypatch.setattr(ledger_of_modules, "_QUICK", 10)
    runs = []
    model = Stack()
    model.register_forward_hook(lambda *_: runs.append(1))
    module = GivenModule(model, lambda N: torch.zeros(B, N, dtype=torch.long))
    ledger = module.ledger(Lengths(40), How(trace=False))
    assert "operations; --verbose also counts it at other N" in str(ledger.closed_form.refused)
    assert len(runs) == 3  # of few tokens, all layers and the first one; of all tokens, the first one


VISION = {
    "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 4, "patch_size": 2,
}  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "name", "said"),
    [
        (TEXT | {"model_type": "recurrent_gemma", "lru_width": 16}, "RecurrentGemmaForCausalLM", "returned no cache"),
        ({"model_type": "dinov2"} | VISION, "Dinov2Model", "takes no cache"),
    ],
)
def test_a_model_without_a_cache_is_not_built_with_numbers(fields, name, said, tmp_path, monkeypatch):
    path = write(tmp_path, fields | {"architectures": [name]})
    monkeypatch.setattr(decoding, "_MOST_CALLS", 100)
    devices = []
    monkeypatch.setattr(targets, "configured", lambda *given: devices.append(given[1]) or BUILT(*given))
    with pytest.raises(UsageError, match=f"{name} {said}"):
        xfcost.analyze(str(path), mode="decode", **({} if "image_size" in fields else {"N": 200}))
    assert devices == ["meta"]


BUILT = targets.configured


@pytest.mark.rest
@pytest.mark.parametrize(
    ("name", "mode"),
    [
        *(("Qwen3ForCausalLM", "decode"), ("Gemma3ForCausalLM", "prefill"), ("Lfm2ForCausalLM", "decode")),
        *(("GptOssForCausalLM", "prefill"), ("JambaForCausalLM", "decode"), ("XmodForCausalLM", "decode")),
    ],
)
def test_the_first_alike_layers_stand_for_all(name, mode, tmp_path):
    more = {"num_hidden_layers": 8}
    more |= {"layer_types": ["conv", "full_attention", "conv", "conv"] * 2} if name == "Lfm2ForCausalLM" else {}
    more |= {"sliding_window": 20} if name == "Gemma3ForCausalLM" else {}  # not yet full at N
    path, bare = config_of(tmp_path, name, **more), How(trace=False, closed_form=False, mode=mode)
    run = as_built(Run(mode=mode, batch=B), text=True)
    own, fresh = (named_module(ModuleTarget("config", path, "", path), (), (), B, run) for _ in range(2))
    own.ledger(Lengths(N), bare)
    short, whole = own.ledger(Lengths(41), bare), fresh.ledger(Lengths(41), bare)
    assert (short.rows, short.cache, short.step) == (whole.rows, whole.cache, whole.step)


@pytest.mark.parametrize("name", ["JambaForCausalLM", "FalconMambaForCausalLM"])
def test_a_long_prompt_of_recurrences_runs_for_a_few_tokens(name, tmp_path, monkeypatch):
    path = config_of(tmp_path, name)
    whole = step(path, N=70)
    monkeypatch.setattr(decoding, "_MOST_CALLS", 2000)
    short = step(path, N=70)
    assert (short.rows, short.cache, short.step) == (whole.rows, whole.cache, whole.step)
    assert step(path, N=1_000_000).cache is not None  # in which a loop would run 10⁶ times


def test_a_dictionary_that_a_model_fills_is_no_cache():
    module = Typed("cache", dict[str, torch.Tensor] | None, lambda y, cache: {"logits": y})
    assert cache_parameter(module) is None
