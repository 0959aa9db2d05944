"""Prefill and decode step of models of transformers, against their own caches and torch's counter on real runs.

References run the model itself on the CPU, with real numbers and attention as plain products; nothing of them is ours.
"""

from __future__ import annotations

import csv
import inspect
import json
import re
from pathlib import Path
from typing import Any, ClassVar, Optional

import msgspec
import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import xfcost
from helpers import report_text, xf
from transformers_models import cache_name, transformers
from xfcost.api.accounts import as_built, module_account, named_module
from xfcost.api.analysis import account_options
from xfcost.api.roofline import bounded_rooflines
from xfcost.api.systems import open_systems
from xfcost.counting.choosing import at_batch
from xfcost.counting.devices import read_devices
from xfcost.counting.on_devices import memory_need, step_bound
from xfcost.ledger.device import DeviceFigure, DeviceGroup
from xfcost.ledger.errors import UsageError
from xfcost.ledger.execution import Mode
from xfcost.ledger.least_work import row_bytes
from xfcost.ledger.ledger import Ledger
from xfcost.spec.run import Run
from xfcost.spec.targets import ModuleTarget
from xfcost.torch_models.any_model import alike_layers, decoding, targets
from xfcost.torch_models.any_model import ledger as ledger_of_modules
from xfcost.torch_models.any_model.inputs import Lengths
from xfcost.torch_models.any_model.ledger import How
from xfcost.torch_models.any_model.run import cache_parameter
from xfcost.torch_models.any_model.targets import GivenModule

B, N = 2, 12
TEXT = {
    "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4,
    "intermediate_size": 24, "vocab_size": 29, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
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
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "Qwen3ForCausalLM": ("qwen3", TEXT),
    "Qwen3MoeForCausalLM": ("qwen3_moe", TEXT | EXPERTS),
    "Gemma3ForCausalLM": ("gemma3_text", TEXT | {"sliding_window": 4, "sliding_window_pattern": 3}),
    "MistralForCausalLM": ("mistral", TEXT | {"sliding_window": 4}),  # a spec would cache all tokens
    "Phi3ForCausalLM": ("phi3", TEXT),
    "Llama4ForCausalLM": ("llama4_text", TEXT | {"intermediate_size_mlp": 24, "num_local_experts": 4}),
    "Glm4MoeForCausalLM": (
        "glm4_moe", TEXT | EXPERTS | {"n_routed_experts": 8, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1},
    ),
    "GptOssForCausalLM": ("gpt_oss", TEXT | {"num_local_experts": 8, "sliding_window": 4}),
    "Olmo2ForCausalLM": ("olmo2", TEXT),
    "SmolLM3ForCausalLM": ("smollm3", TEXT),
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


def config_of(folder: Path, name: str, **more: Any) -> str:
    model_type, fields = MODELS[name]
    path = folder / "config.json"
    path.write_text(json.dumps({**fields, "model_type": model_type, "architectures": [name], **more}))
    return str(path)


def real(name: str, **more: Any) -> Any:
    """The model itself, in float32 with random weights on the CPU."""
    model_type, fields = MODELS[name]
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(**{**fields, **more, "model_type": model_type})
    model = getattr(transformers, name)(config).eval().requires_grad_(requires_grad=False)
    model.config._experts_implementation = "eager"
    return model


def tensors_of(value: Any, seen: set[int]) -> list[torch.Tensor]:
    """Every tensor with an axis in a cache, once."""
    if id(value) in seen:
        return []
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        return [value] if value.dim() else []
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    attributes = vars(value).values() if hasattr(value, "__dict__") else ()
    return [tensor for one in (*inner, *attributes) for tensor in tensors_of(one, seen)]


def ran(name: str, tokens: int) -> tuple[int, int]:
    """MACs of the step for the last of `tokens` tokens, and the bytes of the cache after it."""
    model = real(name)
    ids = torch.randint(3, 29, (B, tokens), generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        first = model(input_ids=ids[:, :-1], use_cache=True)
        key = next(one for one in (cache_name(), "cache_params") if first.get(one) is not None)
        with FlopCounterMode(display=False) as counter:
            second = model(input_ids=ids[:, -1:], use_cache=True, **{key: first[key]})
    return counter.get_total_flops() // 2, sum(one.nbytes for one in tensors_of(second[key], set()))


def step(path: str, **options: Any) -> Ledger:
    given: dict[str, Any] = {"mode": "decode", "N": N, "batch": B, "dtype": "float32"}
    given |= {"trace": False, "mixing": False, "closed_form": False}
    return xfcost.analyze(path, **(given | options))


@pytest.mark.parametrize("name", MODELS)
def test_a_decode_step_is_that_of_the_real_model(name: str, tmp_path: Path) -> None:
    ledger, (macs, cache) = step(config_of(tmp_path, name)), ran(name, N)
    assert ledger.cache is not None
    assert ledger.step is not None
    assert ledger.total("macs") == macs
    assert ledger.cache.bytes == ledger.step.cache_bytes == cache
    assert ledger.total("params") == sum(one.numel() for one in real(name).parameters())


@pytest.mark.parametrize("name", MODELS)
def test_a_cache_grows_as_the_real_one(name: str, tmp_path: Path) -> None:
    cache = step(config_of(tmp_path, name)).cache
    assert cache is not None
    assert ran(name, N + 1)[1] - cache.bytes == B * cache.bytes_per_token
    assert ran(name, 2 * N)[1] - cache.bytes == N * B * cache.bytes_per_token  # windows of 4 are full


def test_windows_and_states_do_not_grow(tmp_path: Path) -> None:
    gemma = step(config_of(tmp_path, "Gemma3ForCausalLM")).cache
    # of 3 layers the last is full; the others keep 4 - 1 tokens of 2 heads of 4 numbers, keys and values, in 4 bytes
    assert gemma is not None
    assert gemma.state_bytes == 2 * B * 3 * 2 * 4 * 2 * 4
    assert gemma.recurrent_bytes == 0
    assert gemma.bytes_per_token == 2 * 4 * 2 * 4
    heads = {row.heads for row in step(config_of(tmp_path, "Gemma3ForCausalLM")).rows if row.fused}
    assert heads == {4}  # of queries, in groups of 2 that share keys, with a mask and without
    mamba = step(config_of(tmp_path, "FalconMambaForCausalLM")).cache
    assert mamba is not None
    assert mamba.bytes == mamba.state_bytes == mamba.recurrent_bytes > 0
    assert mamba.bytes_per_token == 0


# Class -> its fields, the codes of a token, and those of an encoder's text before them.
CODES: dict[str, tuple[dict[str, Any], int, bool]] = {
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
def test_a_step_reads_the_codes_of_every_codebook(name: str, tmp_path: Path) -> None:
    fields, codes, encodes = CODES[name]
    path = tmp_path / "config.json"
    path.write_text(json.dumps(fields | {"architectures": [name]}))
    ledger = step(str(path))
    model = getattr(transformers, name)(transformers.AutoConfig.for_model(**fields)).eval()
    ids, text = torch.randint(3, 10, (B, N, codes)), {"input_ids": torch.randint(3, 29, (B, N))} if encodes else {}
    of_ids = "decoder_input_ids" if encodes else "input_ids"
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        cache = model(**text, **{of_ids: ids[:, :-1]}, use_cache=True)[cache_name()]
        states = {"encoder_outputs": (model.get_encoder()(**text)[0],)} if encodes else {}
        with FlopCounterMode(display=False) as counter:
            model(**states, **{of_ids: ids[:, -1:]}, use_cache=True, **{cache_name(): cache})
    assert ledger.total("macs") == counter.get_total_flops() // 2
    assert ledger.cache is not None
    assert ledger.cache.bytes == sum(one.nbytes for one in tensors_of(cache, set()))
    assert ledger.total("params") == sum(one.numel() for one in model.parameters())


def test_experts_are_read_as_expected(tmp_path: Path) -> None:
    ledger = step(config_of(tmp_path, "Qwen3MoeForCausalLM"))
    experts = 3 * 8 * (2 * 12 * 16 + 16 * 12)  # of 3 layers: 8 experts of a map to 2·12 and one back
    table, others = 29 * 16, (ledger.total("params") or 0) - 29 * 16 - experts
    assert ledger.step is not None
    # each of 2 tokens chooses 2 of 8 experts: 8·(1 - (6/8)²) = 3.5 are read; of the table 2 rows of 16
    assert ledger.step.weight_bytes == pytest.approx(4 * (others + B * 16 + experts * 3.5 / 8))
    assert ledger.step.least_weight_bytes == 4 * (others + B * 16 + experts * 2 // 8)
    assert ledger.total("active_params") == others + table + experts * 2 // 8


def test_a_prompt_is_counted_with_its_last_logits_and_its_cache(tmp_path: Path) -> None:
    path = config_of(tmp_path, "Qwen3ForCausalLM")
    prefill, decode = (step(path, mode=mode) for mode in ("prefill", "decode"))
    forward = xfcost.analyze(path, N=N, batch=B, trace=False, mixing=False)
    assert prefill.cache == decode.cache
    assert prefill.metadata.mode == "prefill"
    assert prefill.metadata.logits == "last"
    # logits of 1 token of 12 alone: 29 maps of 16
    assert (forward.total("macs") or 0) - (prefill.total("macs") or 0) == B * (N - 1) * 29 * 16


def test_the_default_of_a_config_is_bfloat16(tmp_path: Path) -> None:
    path = config_of(tmp_path, "Qwen3ForCausalLM")
    usual, wide = (xfcost.analyze(path, mode="decode", N=N, trace=False, **more) for more in ({}, {"dtype": "float32"}))
    assert usual.metadata.dtype == "bfloat16"
    assert "bfloat16: the default" in str(usual.metadata.default_note)
    assert wide.metadata.dtype == "float32"
    assert wide.metadata.default_note is None
    assert usual.cache is not None
    assert wide.cache is not None
    assert 2 * usual.cache.bytes == wide.cache.bytes
    assert xfcost.analyze(path, N=N, trace=False, mixing=False).metadata.dtype == "float32"


def test_a_step_on_devices_reads_weights_and_cache_once(tmp_path: Path) -> None:
    ledger = step(config_of(tmp_path, "Qwen3ForCausalLM"), on="h100-sxm", dtype="bfloat16")
    assert ledger.on is not None
    assert ledger.step is not None
    assert ledger.cache is not None
    bytes_ = ledger.step.weight_bytes + ledger.step.cache_bytes
    assert ledger.on.time.bytes == bytes_
    assert ledger.on.seconds == pytest.approx(bytes_ / 3.35e12)
    assert ledger.on.memory.weights == 2 * (ledger.total("params") or 0)
    assert ledger.on.outputs == B


@pytest.mark.parametrize("name", ["Qwen3ForCausalLM", "Qwen3MoeForCausalLM", "FalconMambaForCausalLM"])
def test_a_step_of_many_samples_is_that_of_one_so_many_times(name: str, tmp_path: Path) -> None:
    one, many = (step(config_of(tmp_path, name), batch=batch, dtype="bfloat16") for batch in (1, 5))
    derived, on = at_batch(one, 5), read_devices("h100-sxm")
    assert step_bound(derived, on) == step_bound(many, on)
    assert memory_need(derived, None) == memory_need(many, None)


def test_a_batch_at_a_rate_of_each_sample(tmp_path: Path) -> None:
    path = config_of(tmp_path, "Qwen3ForCausalLM")
    given: dict[str, Any] = {"on": "h100-sxm", "dtype": "bfloat16"}
    (choice,) = step(path, **given, tokens_per_user=1e8).choices
    assert choice.at_rate is not None
    assert choice.at_rate.limit == "rate"
    largest = choice.at_rate.batch or 0
    steps = [step(path, **given, batch=batch).on for batch in (largest, largest + 1)]
    assert [one is not None and one.seconds <= 1e-8 for one in steps] == [True, False]


@pytest.mark.rest
def test_a_rate_of_each_sample_needs_the_step_of_one() -> None:
    model, options = real("Qwen3ForCausalLM"), {"mode": "decode", "on": "h100-sxm,l40s", "tokens_per_user": 1e6}
    one, two = (torch.zeros(batch, N, dtype=torch.int64) for batch in (1, 2))
    found = xfcost.analyze(model, example_inputs={"input_ids": one}, trace=False, **options)  # type: ignore[arg-type]
    assert [choice.at_rate is not None for choice in found.choices] == [True, True]
    with pytest.raises(UsageError, match=r"--tokens-per-user: .* their own batch, not 1; give inputs of one sample"):
        xfcost.analyze(model, example_inputs={"input_ids": two}, trace=False, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["Qwen3ForCausalLM", "Gemma3ForCausalLM"])
def test_the_largest_n_fits_and_the_next_does_not(name: str, tmp_path: Path) -> None:
    path = config_of(tmp_path, name, max_position_embeddings=2**20)
    found = step(path, on=SMALL).on
    assert found is not None
    assert found.memory.largest_tokens is not None
    largest = found.memory.largest_tokens
    fits = [step(path, on=SMALL, N=tokens).on.memory.fits for tokens in (largest, largest + 1)]  # type: ignore[union-attr]
    assert fits == [True, False]
    path = config_of(tmp_path, name, max_position_embeddings=64)
    ends = step(path, on=SMALL).on
    assert ends is not None
    assert (ends.memory.largest_tokens, ends.memory.positions) == (64, True)


def test_a_causal_prompt_is_bound_by_the_pairs_that_are_kept(tmp_path: Path) -> None:
    ledger = step(config_of(tmp_path, "Qwen3ForCausalLM"), mode="prefill", on="h100-sxm", dtype="bfloat16")
    dense = sum(row.macs * row.times for row in ledger.rows if row.fused)
    assert dense == 3 * B * 4 * N * N * 2 * 4  # 3 layers, 4 heads, two products of width 4
    assert ledger.on is not None
    kept = dense * (N + 1) // (2 * N)
    assert ledger.on.time.flops == 2 * ((ledger.total("macs") or 0) - dense + kept)


def test_a_prompt_of_local_layers_is_bound_by_the_pairs_of_their_windows(tmp_path: Path) -> None:
    ledger = step(config_of(tmp_path, "Gemma3ForCausalLM"), mode="prefill", on="h100-sxm", dtype="bfloat16")
    # 4 heads, two products of width 4: a query of the two local layers meets itself and 3 before it, that of the
    # global layer all before it
    local, whole, dense = sum(min(i + 1, 4) for i in range(N)), N * (N + 1) // 2, N * N
    each = B * 4 * 2 * 4
    cores = [(row.macs * row.times) for row in ledger.rows if row.fused]
    assert sum(cores) == 3 * each * dense
    assert ledger.on is not None
    left_out = each * (2 * (dense - local) + dense - whole)
    assert ledger.on.time.flops == 2 * ((ledger.total("macs") or 0) - left_out)


def test_a_prompt_in_chunks_is_bound_by_the_pairs_within_them(tmp_path: Path) -> None:
    kinds = ["chunked_attention", "chunked_attention", "full_attention"]
    more = {"attention_chunk_size": 5, "layer_types": kinds}
    ledger = step(config_of(tmp_path, "Llama4ForCausalLM", **more), mode="prefill", on="h100-sxm", dtype="bfloat16")
    # 12 tokens: two chunks of 5·6/2 = 15 causal pairs and one of 2·3/2 = 3; in the last layer 12·13/2 = 78
    cores = {row.pairs: row for row in ledger.rows if row.fused}
    assert {pairs: row.times for pairs, row in cores.items()} == {33: 2, 78: 1}
    # 4 heads, two products of width 4; the class computes all 144 pairs
    assert {row.macs for row in cores.values()} == {B * 4 * 2 * 4 * 144}
    assert ledger.on is not None
    left_out = B * 4 * 2 * 4 * (2 * (144 - 33) + 144 - 78)
    assert ledger.on.time.flops == 2 * ((ledger.total("macs") or 0) - left_out)


@pytest.mark.parametrize("tokens", [4, 5, 6, 8, 10, 11])
def test_a_step_in_chunks_reads_the_keys_of_its_chunk(
    tokens: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds, kept = ["chunked_attention", "chunked_attention", "full_attention"], []
    more = {"attention_chunk_size": 5, "layer_types": kinds}
    ledger = step(config_of(tmp_path, "Llama4ForCausalLM", **more), N=tokens, on="h100-sxm", dtype="bfloat16")
    attend = nn.functional.scaled_dot_product_attention

    def noted(query: Any, key: Any, value: Any, attn_mask: Any = None, **options: Any) -> Any:
        kept.append(key.shape[-2] if attn_mask is None else int(attn_mask[0].sum()))
        return attend(query, key, value, attn_mask=attn_mask, **options)

    model = real("Llama4ForCausalLM", **more)
    ids = torch.randint(3, 29, (1, tokens), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        cache = model(input_ids=ids[:, :-1], use_cache=True)[cache_name()]
        monkeypatch.setattr(nn.functional, "scaled_dot_product_attention", noted)
        model(input_ids=ids[:, -1:], use_cache=True, **{cache_name(): cache})
    # 4 heads in groups of 2, keys and values of width 4 in 2 bytes
    of_token, reads = B * 2 * 2 * 4 * 2, [row for row in ledger.rows if row.fused for _ in range(row.times)]
    assert ([row.pairs or tokens for row in reads], {row.heads for row in reads}) == (kept, {4})
    assert ledger.on is not None
    assert ledger.step is not None
    assert ledger.cache is not None
    # the last 4 tokens of chunked layers are cached. A step reads those in memory: of a new chunk none
    held = 2 * min(tokens, 4) + tokens
    assert ledger.cache.bytes == of_token * held
    assert ledger.step.cache_bytes == of_token * (held if tokens < 5 else 2 * (kept[0] - 1) + tokens)
    assert ledger.on.time.bytes == ledger.step.least_weight_bytes + ledger.step.cache_bytes
    # the class multiplies 4 queries of width 4 with all keys at hand, which are 5 at most, and with their values
    left_out = B * 4 * 2 * 4 * 2 * (min(tokens, 5) - kept[0])
    assert ledger.on.time.flops == 2 * ((ledger.total("macs") or 0) - left_out)


# Config -> figures in which transformers runs something else than the importer's spec.
IMPORTED: dict[str, tuple[str, ...]] = {
    "gpt2": (), "llama-3.2-1b": (), "mistral-7b-v0.1": (), "mixtral-8x7b": (), "qwen2-0.5b": (),
    "bloom-560m": ("core_bytes",),  # its class has eager attention alone
    # it makes keys and values of all tokens again, where a spec multiplies the latent
    "deepseek-v2-lite": ("macs", "core_bytes"),
    # it looks all relative positions up, of which a spec reads the rows, and adds them in no kernel
    "mt5-small": ("weight_bytes", "core_bytes"),
}  # fmt: skip


@pytest.mark.parametrize("name", IMPORTED)
def test_a_step_is_that_of_the_imported_spec(name: str, tmp_path: Path) -> None:
    fields = json.loads((Path(__file__).parent / "data" / "configs" / f"{name}.json").read_text())
    layers = {"num_hidden_layers", "n_layer", "num_layers", "num_decoder_layers"} & fields.keys()
    path = tmp_path / "config.json"
    path.write_text(json.dumps(fields | dict.fromkeys(layers, 2)))
    run = as_built(Run(mode="decode", batch=B), text=True)
    module = named_module(ModuleTarget("config", str(path), "", str(path)), (), (), B, run)
    found = [figures(step(str(path), dtype="bfloat16"))]
    found.append(figures(module_account(module, {"N": N}, account_options({"trace": False, "mixing": False}), run)))
    spec, model = ({key: value for key, value in one.items() if key not in IMPORTED[name]} for one in found)
    assert spec == model


@pytest.mark.rest
@pytest.mark.parametrize("mode", ["forward", "prefill"])
@pytest.mark.parametrize("name", [*IMPORTED][:-1])  # T5 computes the logits of all positions of a prompt
def test_a_pass_is_that_of_the_imported_spec(name: str, mode: Mode, tmp_path: Path) -> None:
    fields = json.loads((Path(__file__).parent / "data" / "configs" / f"{name}.json").read_text())
    path = tmp_path / "config.json"
    path.write_text(json.dumps(fields | dict.fromkeys({"num_hidden_layers", "n_layer"} & fields.keys(), 2)))
    run = as_built(Run(mode=mode, batch=B, dtype="bfloat16"), text=True)
    module = named_module(ModuleTarget("config", str(path), "", str(path)), (), (), B, run)
    spec = step(str(path), mode=mode, dtype="bfloat16")
    found = module_account(module, {"N": N}, account_options({"trace": False, "mixing": False}), run)
    for total in ("params", "active_params", "macs"):
        assert found.total(total) == spec.total(total)
    assert found.cache == spec.cache


def figures(ledger: Ledger) -> dict[str, Any]:
    assert ledger.step is not None
    totals = {name: ledger.total(name) for name in ("params", "active_params", "macs")}
    cores = [(row.times, row_bytes(row, ledger)) for row in ledger.rows if row.fused]
    core_bytes = sum(times * moved[0] for times, moved in cores if moved is not None)
    return totals | {"weight_bytes": ledger.step.weight_bytes, "cache": ledger.cache, "core_bytes": core_bytes}


class Decoder(nn.Module):
    """A module of one's own with the signature of transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.map = nn.Embedding(5, 4), nn.Linear(4, 4)

    def forward(self, input_ids: torch.Tensor, past_key_values: Any = None, *, use_cache: bool = False) -> Any:
        x_BNC = self.map(self.table(input_ids))
        keys = x_BNC if past_key_values is None else torch.cat((past_key_values[0], x_BNC), dim=1)
        return {"logits": x_BNC @ keys.transpose(1, 2), "past_key_values": (keys,) if use_cache else None}


def test_a_module_of_ones_own_decodes() -> None:
    inputs = lambda N: {"input_ids": torch.zeros(B, N, dtype=torch.long)}  # noqa: E731
    ledger = xfcost.analyze(Decoder(), example_inputs=inputs, N=N, mode="decode")
    # a map of 4 by 4 and 12 scores of width 4, of each of 2 samples
    assert ledger.total("macs") == B * (4 * 4 + N * 4)
    assert ledger.cache is not None
    assert (ledger.cache.bytes, ledger.cache.bytes_per_token) == (B * N * 4 * 4, 4 * 4)
    form = ledger.module.closed_form if ledger.module else None
    # 16 MACs of the map and 4 of each score; a token of 4 numbers in 4 bytes; of 2 samples
    assert form is not None
    assert (form.macs, form.cache) == ("8·N + 32", "32·N")
    assert "KV cache in N: 32·N bytes" in report_text(ledger)
    given = xfcost.analyze(Decoder(), example_inputs=inputs(N - 1), mode="decode")
    assert given.total("macs") == ledger.total("macs")


class Named(nn.Module):
    """Its cache is called `memory`, and it returns that behind its logits."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Decoder()

    def forward(self, input_ids: torch.Tensor, memory: Any = None) -> Any:
        found = self.inner(input_ids, memory, use_cache=True)
        return found["logits"], found["past_key_values"]


@pytest.mark.parametrize("mode", ["prefill", "decode", "generate"])
def test_a_cache_of_another_name(mode: Mode) -> None:
    inputs = lambda N: {"input_ids": torch.zeros(B, N, dtype=torch.long)}  # noqa: E731
    given: dict[str, Any] = {"example_inputs": inputs, "N": N, "mode": mode, "on": SMALL, "mixing": False}
    given |= {"new_tokens": 5} if mode == "generate" else {}
    found = xfcost.analyze(Named(), cache_in="memory", cache_out="1", **given)
    usual = xfcost.analyze(Decoder(), **given)
    assert found.cache == usual.cache
    assert found.total("macs") == usual.total("macs")
    assert found.generation == usual.generation
    assert found.on is not None
    assert usual.on is not None
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
def test_a_cache_is_found_by_its_type(takes: str, annotation: Any, returns: Any) -> None:
    inputs = lambda N: {"input_ids": torch.zeros(B, N, dtype=torch.long)}  # noqa: E731
    found = xfcost.analyze(Typed(takes, annotation, returns), example_inputs=inputs, N=N, mode="decode", mixing=False)
    assert found.cache is not None
    assert (found.cache.bytes, found.cache.bytes_per_token) == (B * N * 2 * 4 * 4, 2 * 4 * 4)  # 2 of width 4, float32


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mode": "decode"}, "expected parameters use_cache and past_key_values.* or --cache-in with the name"),
        ({"mode": "decode", "cache_in": "memori"}, "--cache-in memori: did you mean 'memory'"),
        ({"mode": "decode", "cache_in": "memory"}, "returned no cache; expected it by name, as in {'memory'"),
        ({"cache_in": "memory"}, "--cache-in memory: only --mode prefill, decode and generate have a cache"),
    ],
)
def test_a_cache_that_is_not_there(options: dict[str, Any], words: str) -> None:
    ids = {"input_ids": torch.zeros(B, N, dtype=torch.long)}
    with pytest.raises(UsageError, match=words):
        xfcost.analyze(Named(), example_inputs=ids, **options)


class Keywords(Decoder):
    """It names none of its arguments."""

    def forward(self, **given: Any) -> Any:
        found = super().forward(given["input_ids"], given.get("memory"), use_cache=True)
        return {"logits": found["logits"], "memory": found["past_key_values"]}


@pytest.mark.parametrize(
    ("module", "options", "words"),
    [
        (Named, {}, "another one, as in --cache-in memory$"),
        (Named, {"cache_in": "memory"}, "several outputs, as in --cache-out 1$"),
        (Keywords, {}, r"as in --cache-in past_key_values, if it reads that of \*\*given$"),
        (Keywords, {"cache_in": "past_key_values"}, "as in --cache-out memory$"),
        (Keywords, {"cache_in": "other", "cache_out": "memory"}, "--cache-in other: Keywords does not read it"),
    ],
)
def test_a_message_names_the_option_that_mends_it(module: Any, options: dict[str, Any], words: str) -> None:
    inputs = lambda N: {"input_ids": torch.zeros(B, N, dtype=torch.long)}  # noqa: E731
    with pytest.raises(UsageError, match=words):
        xfcost.analyze(module(), example_inputs=inputs, N=N, mode="decode", mixing=False, **options)


def test_a_module_that_names_no_argument_decodes() -> None:
    inputs = lambda N: {"input_ids": torch.zeros(B, N, dtype=torch.long)}  # noqa: E731
    given: dict[str, Any] = {"example_inputs": inputs, "N": N, "mode": "decode", "mixing": False}
    found, usual = xfcost.analyze(Keywords(), cache_in="memory", **given), xfcost.analyze(Decoder(), **given)
    assert (found.total("macs"), found.cache) == (usual.total("macs"), usual.cache)


class Refuses(Decoder):
    """Its code raises on `meta`."""

    def forward(self, input_ids: torch.Tensor, past_key_values: Any = None, *, use_cache: bool = False) -> Any:
        if input_ids.is_meta:
            raise RuntimeError("not on meta")
        return super().forward(input_ids, past_key_values, use_cache=use_cache)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_prompt_runs_on_fake_tensors_where_its_step_does(device: str) -> None:
    given = {"input_ids": torch.zeros(B, N - 1, dtype=torch.long, device=device)}
    found = xfcost.analyze(Refuses().to(device), example_inputs=given, mode="decode", mixing=False)
    usual = xfcost.analyze(Decoder().to(device), example_inputs=given, mode="decode", mixing=False)
    assert found.module is not None
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


def test_views_of_one_tensor_are_each_in_the_cache() -> None:
    inputs = lambda N: {"input_ids": torch.zeros(B, N, dtype=torch.long)}  # noqa: E731
    for mode in ("prefill", "decode"):
        cache = xfcost.analyze(Views(), example_inputs=inputs, N=N, mode=mode).cache
        assert cache is not None
        assert (cache.bytes, cache.bytes_per_token) == (B * N * 8 * 4, 8 * 4)


def test_the_largest_n_of_given_inputs_is_that_of_inputs_with_a_letter() -> None:
    inputs = lambda N: {"input_ids": torch.zeros(B, N, dtype=torch.long)}  # noqa: E731
    found = [
        xfcost.analyze(Decoder(), example_inputs=given, mode="decode", on=SMALL, **more).on
        for given, more in ((inputs, {"N": N}), (inputs(N - 1), {}))
    ]
    largest = {one.memory.largest_tokens for one in found if one is not None}
    assert len(largest) == 1
    assert None not in largest


def test_the_operations_of_a_prompt_have_kinds(tmp_path: Path) -> None:
    ledger = step(config_of(tmp_path, "Qwen3ForCausalLM"), mode="prefill", mixing=None)
    kinds = {row.operation: row.mixing for row in ledger.rows if row.macs}
    assert kinds == {"mm": "per-token", "scaled_dot_product_attention": "global"}


def test_an_encoder_is_kept_without_architectures_and_its_cache_grows(tmp_path: Path) -> None:
    sizes = {"d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 2, "num_heads": 4, "vocab_size": 29}
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "umt5", **sizes}))
    ledger = step(str(path), on=SMALL)
    assert ledger.module is not None
    assert ledger.module.module.endswith("UMT5ForConditionalGeneration")
    assert ledger.on is not None
    largest = ledger.on.memory.largest_tokens
    assert largest is not None
    fits = [step(str(path), on=SMALL, N=tokens).on.memory.fits for tokens in (largest, largest + 1)]
    assert fits == [True, False]


def mistral3(folder: Path) -> str:
    text = {
        "model_type": "mistral", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 1000,
    }  # fmt: skip
    image = {
        "model_type": "pixtral", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1,
        "num_attention_heads": 4, "head_dim": 16, "image_size": 56, "patch_size": 14,
    }  # fmt: skip
    whole = {"model_type": "mistral3", "text_config": text, "vision_config": image, "spatial_merge_size": 2}
    path = folder / "config.json"
    path.write_text(json.dumps({**whole, "image_token_index": 10, "vision_feature_layer": -1}), encoding="utf-8")
    return str(path)


def test_n_counts_the_tokens_of_an_image(tmp_path: Path) -> None:
    path = mistral3(tmp_path)
    # N tokens, of which 4 · 4 patches of 14 pixels take 2 · 2; 2 layers · keys and values · 2 heads · 16 · 2 bytes
    for mode, image in (("prefill", True), ("decode", False)):
        ledger = xfcost.analyze(path, mode=mode, N=64, mixing=False)
        assert ledger.cache is not None
        assert ledger.cache.bytes == 64 * 2 * 2 * 2 * 16 * 2
        assert any("vision_tower" in row.path for row in ledger.rows if row.macs) == image
        assert any("pixel_values" in one for one in ledger.module.inputs) == image  # type: ignore[union-attr]
    with pytest.raises(UsageError, match="--N 4: 4 of the tokens are an image's; expected --N from 5"):
        xfcost.analyze(path, mode="prefill", N=4)


def test_without_n_a_text_of_512_tokens_is_behind_the_image(tmp_path: Path) -> None:
    assert xfcost.analyze(mistral3(tmp_path), trace=False, mixing=False).metadata.grid_tokens == 512 + 4


def test_n_beyond_the_positions_has_a_note(tmp_path: Path) -> None:
    path = config_of(tmp_path, "Qwen3ForCausalLM", max_position_embeddings=8)
    assert step(path).metadata.warnings == (f"N = {N} is beyond the model's 8 positions",)
    assert step(path, N=8).metadata.warnings == ()


def test_eager_attention_of_a_prompt_is_bound_with_all_pairs(tmp_path: Path) -> None:
    path = config_of(tmp_path, "Qwen3ForCausalLM")
    eager, fused = (step(path, mode="prefill", on="h100-sxm", attention=one).on for one in ("eager", "fused"))
    assert eager is not None
    assert fused is not None
    assert any("counts all pairs" in note for note in eager.notes)
    assert not fused.notes


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mode": "generate"}, "--new-tokens is missing"),
        ({"mode": "generate", "new_tokens": 2, "device": "cpu"}, "--device"),
        ({"mode": "decode", "N": 1}, "expected --N from 2"),
        ({"mode": "decode", "device": "cpu"}, "--device"),
        ({"mode": "decode", "predict": True}, "--predict"),
    ],
)
def test_what_a_step_can_not_be_is_refused(options: dict[str, Any], words: str) -> None:
    inputs = lambda N: {"input_ids": torch.zeros(B, N, dtype=torch.long)}  # noqa: E731
    with pytest.raises(UsageError, match=words):
        xfcost.analyze(Decoder(), example_inputs=inputs, **({"N": N} | options))


# A prompt and the steps after it ──────────────────────────────────────────────────────────────────────────────────────


def test_a_generation_is_a_prompt_and_its_steps() -> None:
    inputs = lambda N: {"input_ids": torch.zeros(B, N, dtype=torch.long)}  # noqa: E731
    ledger = xfcost.analyze(Decoder(), example_inputs=inputs, N=N, mode="generate", new_tokens=40, on="h100-sxm")
    found = ledger.generation
    assert found is not None
    assert found.decode is not None
    assert ledger.cache is not None
    assert ledger.on is not None
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


def test_without_a_cache_an_encoder_still_runs_once() -> None:
    def inputs(N: int) -> dict[str, torch.Tensor]:
        return {"input_ids": torch.zeros(1, N, dtype=torch.long), "patches": torch.ones(1, 7, 3)}

    ledger = xfcost.analyze(Captioner(), example_inputs=inputs, N=N, mode="generate", new_tokens=4, mixing=False)
    assert ledger.generation is not None
    # 7 patches through a map of 3 by 4; passes of 12 to 15 tokens, each with a map of 4 by 4 and scores of width 4
    encoder, passes = 7 * 3 * 4, sum(16 * tokens + 4 * tokens * tokens for tokens in range(12, 16))
    assert ledger.generation.without_cache.macs == encoder + passes
    assert ledger.generation.prefill.macs == encoder + 16 * 12 + 4 * 12 * 12


@pytest.mark.parametrize("name", ["Qwen3ForCausalLM", "Gemma3ForCausalLM", "FalconMambaForCausalLM"])
def test_the_steps_of_a_generation_are_those_of_the_real_model(name: str, tmp_path: Path) -> None:
    ledger = step(config_of(tmp_path, name), mode="generate", N=2, new_tokens=8)  # windows of 4 fill on the way
    assert ledger.generation is not None
    assert ledger.generation.decode is not None
    assert ledger.generation.decode.macs == sum(ran(name, tokens)[0] for tokens in range(3, 10))
    assert ledger.cache is not None
    assert ledger.cache.bytes == ran(name, 9)[1]


def test_a_generation_of_a_config_is_that_of_its_spec(tmp_path: Path) -> None:
    fields = json.loads((Path(__file__).parent / "data" / "configs" / "llama-3.2-1b.json").read_text())
    path = tmp_path / "config.json"
    path.write_text(json.dumps(fields | {"num_hidden_layers": 2}))
    run = as_built(Run(mode="generate", batch=B, new_tokens=70), text=True)
    module = named_module(ModuleTarget("config", str(path), "", str(path)), (), (), B, run)
    ledgers = (
        step(str(path), mode="generate", new_tokens=70, dtype="bfloat16"),
        module_account(module, {"N": N}, account_options({"trace": False, "mixing": False}), run),
    )
    spec, found = (one.generation for one in ledgers)
    assert spec is not None
    assert found is not None
    assert [one and one.macs for one in (found.prefill, found.decode, found.without_cache)] == [
        one and one.macs for one in (spec.prefill, spec.decode, spec.without_cache)
    ]
    assert ledgers[0].cache == ledgers[1].cache


def test_generations_are_compared_as_each_is_counted() -> None:
    inputs = lambda N: {"input_ids": torch.zeros(B, N, dtype=torch.long)}  # noqa: E731
    given: dict[str, Any] = {"N": N, "mode": "generate", "new_tokens": 5, "on": "h100-sxm"}
    found = xfcost.compare((Decoder(), inputs), (Views(), inputs), mixing=False, **given)
    for module, ledger in zip((Decoder(), Views()), found.ledgers, strict=True):
        alone = xfcost.analyze(module, example_inputs=inputs, **given)
        assert ledger.generation == alone.generation
        assert ledger.total("macs") == alone.total("macs")
        assert ledger.cache == alone.cache
        assert ledger.on is not None
        assert alone.on is not None
        assert ledger.on.time == alone.on.time


def test_a_generation_needs_an_n_of_its_own(tmp_path: Path) -> None:
    given = {"input_ids": torch.zeros(B, N, dtype=torch.long)}
    with pytest.raises(UsageError, match="have no letter N"):
        xfcost.analyze(Decoder(), example_inputs=given, mode="generate", new_tokens=2)
    path = tmp_path / "config.json"
    sizes = {"d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 2, "num_heads": 4, "vocab_size": 29}
    path.write_text(json.dumps({"model_type": "umt5", **sizes}))
    with pytest.raises(UsageError, match="of its encoder's text and of its decoder's"):
        step(str(path), mode="generate", new_tokens=2)


def test_a_step_has_a_roofline(tmp_path: Path) -> None:
    options = {"mode": "decode", "dtype": "bfloat16", "batch": B}
    systems = open_systems([config_of(tmp_path, "Qwen3ForCausalLM")], options)
    run = Run(tokens=(N,), mode="decode", batch=B, dtype="bfloat16", on=read_devices("h100-sxm"))
    [found] = bounded_rooflines(systems, run)
    head = next(one for one in found.points if one.title == "lm_head.mm")
    # 2 samples meet 29 maps of 16 numbers: 2·2·29·16 FLOPs, and 2 bytes of each number, at 3.35 TB/s
    assert (head.flops, head.operand_bytes) == (4 * 29 * 16, 2 * 29 * 16)
    assert head.seconds == pytest.approx(2 * 29 * 16 / 3.35e12)


@pytest.mark.rest
def test_the_cache_of_a_config_is_plotted(tmp_path: Path) -> None:
    config_of(tmp_path, "Qwen3ForCausalLM")
    done = xf("plot", "config.json", "--N", "8:16", "--metric", "cache", "-o", "a.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with (tmp_path / "a.csv").open() as stream:
        found = {int(one["N"]): int(one["cache_bytes"]) for one in csv.DictReader(stream)}
    # keys and values of 3 layers, 2 heads of 4 numbers in 2 bytes
    assert found == {tokens: tokens * 2 * 3 * 2 * 4 * 2 for tokens in range(8, 17)}


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


@pytest.mark.parametrize(
    ("options", "layers"), [({}, {0}), ({"alternating": True}, {0, 1}), ({"sums": True}, {*range(6)})]
)
def test_at_other_n_the_first_alike_layers_run_alone(options: dict[str, bool], layers: set[int]) -> None:
    own, fresh = (
        GivenModule(Stack(**options), lambda N: {"input_ids": torch.zeros(B, N, dtype=torch.long)}) for _ in range(2)
    )
    bare = How(trace=False, closed_form=False, mode="decode")
    own.ledger(Lengths(N), bare._replace(trace=True))
    own.ledger(Lengths(30), bare)
    Stack.ran.clear()
    short = own.ledger(Lengths(40), bare)
    assert Stack.ran == layers
    whole = fresh.ledger(Lengths(40), bare)
    assert (short.rows, short.cache, short.step) == (whole.rows, whole.cache, whole.step)


@pytest.mark.parametrize(
    ("options", "layers"), [({}, {0}), ({"alternating": True}, {0, 1}), ({"sums": True}, {*range(6)})]
)
def test_a_forward_of_many_operations_runs_the_first_alike_layers(
    options: dict[str, bool], layers: set[int], monkeypatch: Any
) -> None:
    class Noting(Stack):
        def forward(self, input_ids: torch.Tensor) -> Any:
            self.ran.clear()
            return super().forward(input_ids)["logits"]

    def ledger(tokens: int) -> Ledger:
        module = GivenModule(Noting(**options), lambda N: torch.zeros(B, N, dtype=torch.long))
        return module.ledger(Lengths(tokens), How(trace=False, closed_form=False))

    whole = ledger(40)
    monkeypatch.setattr(alike_layers, "_MOST_CALLS", 20)
    assert ledger(40).rows == whole.rows
    assert Stack.ran == layers


def traced(most: int, monkeypatch: Any, trace: bool | None = None, **options: bool) -> Ledger:
    """The ledger of a stack of 6 layers, where a run of more than `most` operations is long."""
    monkeypatch.setattr(ledger_of_modules, "_MOST_TRACED", most)
    tokens = torch.zeros(B, N, dtype=torch.long)
    return xfcost.analyze(Stack(**options), example_inputs=tokens, mixing=False, trace=trace)


@pytest.mark.parametrize("options", [{}, {"alternating": True}, {"sums": True}])
def test_a_long_run_is_traced_with_its_first_alike_layers(options: dict[str, bool], monkeypatch: Any) -> None:
    whole, short = (traced(most, monkeypatch, trace=True, **options) for most in (10**9, 0))
    assert short.module is not None
    assert short.module.traced == "agrees"
    assert (short.rows, short.module, short.agreement) == (whole.rows, whole.module, whole.agreement)


@pytest.mark.parametrize(("most", "options"), [(0, {}), (20, {"alternating": True}), (40, {"sums": True})])
def test_a_run_is_traced_on_demand_where_its_first_alike_layers_are_long_or_differ(
    most: int, options: dict[str, bool], monkeypatch: Any
) -> None:
    left_out, asked = (traced(most, monkeypatch, trace, **options) for trace in (None, True))
    assert left_out.module is not None
    assert left_out.agreement is not None
    assert asked.module is not None
    assert re.fullmatch(r"not traced: a run has \d+ operations; --trace traces it", left_out.module.traced)
    assert (left_out.total("traced_macs"), left_out.agreement.accounts) == (None, ())
    assert (asked.total("traced_macs"), asked.module.traced) == (left_out.total("macs"), "agrees")
    assert traced(10**9, monkeypatch, **options).module == asked.module


def test_a_run_whose_first_alike_layers_are_short_is_traced(monkeypatch: Any) -> None:
    ledger = traced(40, monkeypatch)
    assert ledger.module is not None
    assert ledger.module.traced == "agrees"


class Adding(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(5001):
            x = x + 1
        return x


def test_a_long_loop_is_left_out_of_a_trace() -> None:
    ledger = xfcost.analyze(Adding(), example_inputs=torch.zeros(2), mixing=False)
    assert "trace: not traced: a run has 5,001 operations; --trace traces it" in report_text(ledger)


def test_a_long_run_is_counted_once_for_its_closed_form(monkeypatch: Any) -> None:
    monkeypatch.setattr(alike_layers, "_MOST_CALLS", 20)
    monkeypatch.setattr(ledger_of_modules, "_QUICK", 10)
    runs = []
    model = Stack()
    model.register_forward_hook(lambda *_: runs.append(1))
    module = GivenModule(model, lambda N: torch.zeros(B, N, dtype=torch.long))
    ledger = module.ledger(Lengths(40), How(trace=False))
    assert ledger.module is not None
    assert ledger.module.closed_form is not None
    assert "operations; --verbose also counts it at other N" in str(ledger.module.closed_form.refused)
    assert len(runs) == 3  # of few tokens, all layers and the first one; of all tokens, the first one


def test_a_model_without_a_cache_is_not_built_with_numbers(tmp_path: Path, monkeypatch: Any) -> None:
    fields = TEXT | {"model_type": "recurrent_gemma", "num_hidden_layers": 3, "lru_width": 16}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(fields | {"architectures": ["RecurrentGemmaForCausalLM"]}))
    monkeypatch.setattr(decoding, "_MOST_CALLS", 100)
    devices = []
    monkeypatch.setattr(targets, "configured", lambda *given: devices.append(given[1]) or BUILT(*given))
    with pytest.raises(UsageError, match="RecurrentGemmaForCausalLM returned no cache"):
        xfcost.analyze(str(path), mode="decode", N=200)
    assert devices == ["meta"]


BUILT = targets.configured


@pytest.mark.rest
@pytest.mark.parametrize("mode", ["prefill", "decode"])
@pytest.mark.parametrize("name", MODELS)
def test_the_first_alike_layers_stand_for_all(name: str, mode: Mode, tmp_path: Path) -> None:
    more: dict[str, Any] = {"num_hidden_layers": 8}
    more |= {"layer_types": ["conv", "full_attention", "conv", "conv"] * 2} if name == "Lfm2ForCausalLM" else {}
    more |= {"sliding_window": 20} if name == "Gemma3ForCausalLM" else {}  # not yet full at N
    path, bare = config_of(tmp_path, name, **more), How(trace=False, closed_form=False, mode=mode)
    run = as_built(Run(mode=mode, batch=B), text=True)
    own, fresh = (named_module(ModuleTarget("config", path, "", path), (), (), B, run) for _ in range(2))
    own.ledger(Lengths(N), bare)
    short, whole = own.ledger(Lengths(41), bare), fresh.ledger(Lengths(41), bare)
    assert (short.rows, short.cache, short.step) == (whole.rows, whole.cache, whole.step)


@pytest.mark.parametrize("name", ["JambaForCausalLM", "FalconMambaForCausalLM"])
def test_a_long_prompt_of_recurrences_runs_for_a_few_tokens(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = config_of(tmp_path, name)
    whole = step(path, N=70)
    monkeypatch.setattr(decoding, "_MOST_CALLS", 2000)
    short = step(path, N=70)
    assert (short.rows, short.cache, short.step) == (whole.rows, whole.cache, whole.step)
    assert step(path, N=1_000_000).cache is not None  # in which a loop would run 10⁶ times


def test_a_dictionary_that_a_model_fills_is_no_cache() -> None:
    module = Typed("cache", dict[str, torch.Tensor] | None, lambda y, cache: {"logits": y})
    assert cache_parameter(module) is None


def test_a_module_without_a_cache_is_refused() -> None:
    with pytest.raises(UsageError, match="takes no cache; expected parameters use_cache and past_key_values"):
        xfcost.analyze(nn.Linear(2, 2), example_inputs=torch.zeros(1, 2), mode="decode")


def test_a_config_whose_class_has_no_cache_is_refused_before_weights_are_allocated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({
        "model_type": "dinov2", "architectures": ["Dinov2Model"], "hidden_size": 8, "num_hidden_layers": 1,
        "num_attention_heads": 2, "image_size": 4, "patch_size": 2,
    }))  # fmt: skip
    devices, configured = list[str](), targets.configured

    def watched(place: str, device: str, *options: Any) -> nn.Module:
        devices.append(device)
        return configured(place, device, *options)

    monkeypatch.setattr(targets, "configured", watched)
    with pytest.raises(UsageError, match="the forward of Dinov2Model takes no cache"):
        named_module(ModuleTarget("config", str(path), "", str(path)), (), (), 1, Run(mode="decode")).ledger(
            Lengths(), How(mode="decode")
        )
    assert devices == ["meta"]
