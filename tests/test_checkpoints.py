"""Checkpoints on the disk: folders, safetensors and GGUF, of which only headers are read; their bytes, by operation."""

from __future__ import annotations

import json
import os
import random
import struct
import sys
import tracemalloc
from math import prod

import gguf
import pytest
import torch
import transformers
from safetensors.torch import save_file

import checkpoint_files as files
import xfcost
from helpers import error_of, stdout_of
from xfcost.importing.checkpoints import DTYPE_BITS, safetensors_file
from xfcost.importing.gguf import ARCHITECTURES, gguf_config, read_header
from xfcost.ledger.errors import XfcostError
from xfcost.ledger.stored import module_key

D, FFN, WORDS, LAYERS = 256, 512, 512, 2
SMALL = {
    "vocab_size": WORDS, "hidden_size": D, "intermediate_size": FFN, "num_hidden_layers": LAYERS,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 4096,
}  # fmt: skip
# The linear maps of a layer, outputs and inputs.
LINEAR = {
    "self_attn.q_proj": (D, D), "self_attn.k_proj": (D // 2, D), "self_attn.v_proj": (D // 2, D),
    "self_attn.o_proj": (D, D), "mlp.gate_proj": (FFN, D), "mlp.up_proj": (FFN, D), "mlp.down_proj": (D, FFN),
}  # fmt: skip
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 256}
CONFIGS = {
    "llama": transformers.LlamaConfig(**SMALL),
    "mixtral": transformers.MixtralConfig(**SMALL, num_local_experts=4),
    "qwen2": transformers.Qwen2Config(**SMALL, tie_word_embeddings=True),
    "gpt2": transformers.GPT2Config(vocab_size=WORDS, n_embd=D, n_layer=LAYERS, n_head=4, n_positions=4096),
    "mamba": transformers.MambaConfig(vocab_size=WORDS, hidden_size=D, num_hidden_layers=LAYERS),
    "deepseek": transformers.DeepseekV3Config(
        **SMALL | {"num_key_value_heads": 4}, **EXPERTS, n_routed_experts=8, n_group=2, topk_group=1,
        first_k_dense_replace=1, kv_lora_rank=256, q_lora_rank=256, qk_nope_head_dim=16, qk_rope_head_dim=8,
        v_head_dim=16,
    ),
    "qwen3": transformers.Qwen3Config(**SMALL, head_dim=32),
    "qwen2moe": transformers.Qwen2MoeConfig(**SMALL, **EXPERTS, num_experts=8, shared_expert_intermediate_size=512),
    "qwen3moe": transformers.Qwen3MoeConfig(**SMALL, **EXPERTS, head_dim=32, num_experts=8),
    "gemma": transformers.GemmaConfig(**SMALL, head_dim=32),
    "gemma2": transformers.Gemma2Config(**SMALL, head_dim=32),
    "gemma3": transformers.Gemma3TextConfig(**SMALL, head_dim=32),
    "phi3": transformers.Phi3Config(**SMALL, pad_token_id=None),
    "gpt-oss": transformers.GptOssConfig(**SMALL, head_dim=32, num_local_experts=4, num_experts_per_tok=2),
    "olmo2": transformers.Olmo2Config(**SMALL),
    "smollm3": transformers.SmolLM3Config(**SMALL, pad_token_id=None),
    "starcoder2": transformers.Starcoder2Config(**SMALL),
    "glm4moe": transformers.Glm4MoeConfig(
        **SMALL, **EXPERTS, head_dim=32, n_routed_experts=8, n_shared_experts=1, first_k_dense_replace=1
    ),
}  # fmt: skip
# Those that a spec is made of; the class of others runs.
QUICK = ("llama", "mixtral", "qwen2", "gpt2", "mamba", "deepseek")
FAMILIES = [pytest.param(name, marks=() if name in QUICK else pytest.mark.rest) for name in CONFIGS]
DECODE = {"mode": "decode", "N": 100, "trace": False}


def decoded(place, **how):
    """The ledger of a decode step, with the bytes of a checkpoint's tensors."""
    return xfcost.analyze(os.fspath(place), **{**DECODE, **how})


def llama_shapes(linear):
    """A checkpoint of `CONFIGS["llama"]` whose linear maps are stored as `linear` says: {part: (dtype, shape)}."""
    found = {"model.embed_tokens.weight": ("BF16", (WORDS, D)), "lm_head.weight": ("BF16", (WORDS, D))}
    found["model.norm.weight"] = ("BF16", (D,))
    for layer in range(LAYERS):
        around = f"model.layers.{layer}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            found[f"{around}{name}.weight"] = ("BF16", (D,))
        for name, (outputs, inputs) in LINEAR.items():
            found |= {f"{around}{name}.{part}": one for part, one in linear(outputs, inputs).items()}
    return found


def nbytes(tensors):
    return sum(prod(shape) * DTYPE_BITS[dtype] // 8 for dtype, shape in tensors.values())


def folder_of(folder, tensors, **fields):
    """A folder with a sparse model.safetensors of `tensors`, {name: (dtype, shape)}."""
    folder.mkdir(exist_ok=True)
    config = CONFIGS["llama"].to_dict() | {"dtype": "bfloat16"} | fields
    (folder / "config.json").write_text(json.dumps(config))
    files.write_header(folder / "model.safetensors", tensors)
    return folder


def plain(outputs, inputs):
    return {"weight": ("BF16", (outputs, inputs))}


# ── bytes by operation ──


@pytest.mark.parametrize("name", FAMILIES)
def test_every_operation_of_a_family_has_the_bytes_of_its_tensors(name, tmp_path):
    config = CONFIGS[name]
    shapes = files.shapes_of(config)
    published = files.unstacked(shapes) if name != "gpt-oss" else shapes
    found = decoded(files.write_folder(tmp_path / name, config, published, shards=3))
    held = found.joined_weights.held
    assert {row.path: held[row.path] for row in found.rows if row.params} == {
        row.path: 2 * row.params * row.times for row in found.rows if row.params
    }
    assert found.metadata.checkpoint.bytes == found.held_bytes == 2 * sum(map(prod, shapes.values()))
    assert (found.joined_weights.others, found.metadata.warnings) == ({}, ())


def metadata_of(architecture, **more):
    heads = {"attention.head_count": 4, "attention.head_count_kv": 2}
    widths = {"embedding_length": D, "feed_forward_length": FFN}
    return {"general.file_type": 7, "context_length": 4096, "block_count": LAYERS, **widths, **heads, **more}


HEAD = {"attention.key_length": 32, "attention.value_length": 32}
OF_EXPERTS = {"expert_count": 8, "expert_used_count": 2, "expert_feed_forward_length": 256}
GGUFS = {
    "llama": ("LLAMA", {}),
    "mixtral": ("LLAMA", {"expert_count": 4, "expert_used_count": 2}),
    "qwen2": ("QWEN2", {}),
    "gpt2": ("GPT2", {"feed_forward_length": 4 * D}),
    "deepseek": ("DEEPSEEK2", OF_EXPERTS | {
        "rope.dimension_count": 8, "attention.key_length": 24, "attention.value_length": 16,
        "attention.kv_lora_rank": 256, "attention.q_lora_rank": 256, "leading_dense_block_count": 1,
        "expert_shared_count": 1, "expert_gating_func": 2, "expert_group_count": 2, "expert_group_used_count": 1,
    }),
    "qwen3": ("QWEN3", HEAD),
    "qwen2moe": ("QWEN2MOE", OF_EXPERTS | {"expert_shared_feed_forward_length": 512}),
    "qwen3moe": ("QWEN3MOE", HEAD | OF_EXPERTS),
    "gemma": ("GEMMA", HEAD),
    "gemma2": ("GEMMA2", HEAD | {"attention.sliding_window": 4096}),
    "gemma3": ("GEMMA3", HEAD | {"attention.sliding_window": 4096}),
    "phi3": ("PHI3", {}),
    "gpt-oss": ("GPT_OSS", HEAD | {
        "expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": FFN, "attention.sliding_window": 128,
    }),
    "olmo2": ("OLMO2", {}),
    "smollm3": ("SMOLLM3", {}),
    "starcoder2": ("STARCODER2", {}),
    "glm4moe": ("GLM4_MOE", HEAD | OF_EXPERTS | {"leading_dense_block_count": 1, "expert_shared_count": 1}),
}  # fmt: skip


@pytest.mark.parametrize("name", [one for one in FAMILIES if one.values[0] in GGUFS])
def test_a_gguf_is_the_model_of_its_metadata(name, tmp_path):
    architecture, more = GGUFS[name]
    shapes = files.shapes_of(CONFIGS[name])
    own = files.gguf_shapes(architecture, shapes, LAYERS, columns_last=name != "gpt-oss")
    kinds = {one: "Q8_0" for one, shape in own.items() if len(shape) > 1}
    file = files.write_gguf(tmp_path / f"{name}.gguf", architecture, metadata_of(architecture, **more), own, kinds)
    found = decoded(file)
    assert found.total("params") == sum(map(prod, shapes.values()))
    # blocks of 32 have a byte each and a 16-bit scale; norms and biases four
    assert found.held_bytes == sum(
        prod(shape) * 34 // 32 if len(shape) > 1 else 4 * prod(shape) for shape in own.values()
    )
    assert (found.joined_weights.others, found.metadata.warnings) == ({}, ())
    assert found.metadata.weight_format.name == "Q8_0"
    assert {gguf.MODEL_ARCH_NAMES[gguf.MODEL_ARCH[one]] for one, _ in GGUFS.values()} == {*ARCHITECTURES}


def awq(outputs, inputs):
    of_groups = {"qzeros": ("I32", (inputs // 128, outputs // 8)), "scales": ("F16", (inputs // 128, outputs))}
    return {"qweight": ("I32", (inputs, outputs // 8)), **of_groups}


def gptq(outputs, inputs):
    return awq(outputs, inputs) | {"qweight": ("I32", (inputs // 8, outputs)), "g_idx": ("I32", (inputs,))}


def packed(outputs, inputs):
    scale = {"weight_scale": ("BF16", (outputs, inputs // 128)), "weight_shape": ("I64", (2,))}
    return {"weight_packed": ("I32", (outputs, inputs // 8)), **scale}


def fp8(outputs, inputs):
    return {
        "weight": ("F8_E4M3", (outputs, inputs)),
        "weight_scale_inv": ("F32", (-(-outputs // 128), -(-inputs // 128))),
    }


def nf4(outputs, inputs):
    elements = outputs * inputs
    return {
        "weight": ("U8", (elements // 2, 1)), "weight.absmax": ("F32", (elements // 64,)),
        "weight.quant_map": ("F32", (16,)), "weight.quant_state.bitsandbytes__nf4": ("U8", (85,)),
    }  # fmt: skip


def nvfp4(outputs, inputs):
    scales = {"weight_scale": ("F8_E4M3", (outputs, inputs // 16)), "weight_scale_2": ("F32", ())}
    return {"weight": ("U8", (outputs, inputs // 2)), **scales, "input_scale": ("F32", ())}


SCHEME = {"config_groups": {"group_0": {"targets": ["Linear"], "weights": {
    "num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True}}}}  # fmt: skip


@pytest.mark.parametrize(
    ("linear", "method", "more"),
    [  # bytes of a matrix that are in no formula by the config
        (awq, {"quant_method": "awq", "bits": 4, "group_size": 128}, lambda outputs, inputs: 0),
        (gptq, {"quant_method": "gptq", "bits": 4, "group_size": 128}, lambda outputs, inputs: 4 * inputs),
        (packed, {"quant_method": "compressed-tensors", "format": "pack-quantized", **SCHEME}, lambda *_: 16),
        (fp8, {"quant_method": "fp8", "weight_block_size": [128, 128]}, lambda *_: 0),
        (nf4, {"quant_method": "bitsandbytes", "load_in_4bit": True}, lambda *_: 64 + 85),
        (nvfp4, {"quant_method": "modelopt", "quant_algo": "NVFP4"}, lambda *_: 4),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_packed_matrices_are_unpacked_and_have_their_own_bytes(linear, method, more, tmp_path):
    tensors = llama_shapes(linear)
    folder = folder_of(tmp_path / "packed", tensors, quantization_config=method)
    found, by_config = decoded(folder), decoded(folder / "config.json")
    assert found.held_bytes == found.metadata.checkpoint.bytes == nbytes(tensors)
    assert found.held_bytes == by_config.held_bytes + LAYERS * sum(more(*shape) for shape in LINEAR.values())
    assert found.metadata.warnings == ()
    down = nbytes(linear(D, FFN))
    row = next(row for row in found.rows if row.operation == "down")
    assert found.storage.held_in_all(row) == LAYERS * down
    # all of a step but the table, of which one row is read
    assert found.step.weight_bytes == nbytes(tensors) - 2 * D * (WORDS - 1)


def test_devices_hold_and_read_the_stored_bytes(tmp_path):
    file = files.write_gguf(
        tmp_path / "tied.gguf", "QWEN2", metadata_of("QWEN2"),
        own := files.gguf_shapes("QWEN2", files.shapes_of(CONFIGS["qwen2"]), LAYERS), {"token_embd.weight": "Q6_K"},
    )  # fmt: skip
    found = decoded(file, on="h100-sxm")
    table = WORDS * D * 210 // 256
    others = 4 * (sum(map(prod, own.values())) - WORDS * D)
    assert found.on.memory.weights == found.held_bytes == table + others
    # the head reads the whole table, and the look-up one row of it
    assert found.step.weight_bytes == others + table + D * 210 // 256
    int4 = decoded(file, weights="int4", on="h100-sxm")
    assert int4.on.memory.weights == int4.held_bytes < 2 * int4.total("params")
    assert int4.metadata.checkpoint.bytes == found.held_bytes


def test_bytes_that_belong_to_no_operation_have_a_reason(tmp_path):
    tensors = llama_shapes(plain)
    extra = {
        "vision_tower.encoder.layers.7.mlp.fc1.weight": 10, "multi_modal_projector.linear.weight": 11,
        "audio_tower.conv.weight": 3, "mtp.layers.0.mlp.up_proj.weight": 5, "model.layers.2.eh_proj.weight": 6,
        "model.layers.2.mlp.up_proj.weight": 7, "model.layers.0.self_attn.rotary_emb.inv_freq": 2,
        "model.layers.0.self_attn.masked_bias": 1,
    }  # fmt: skip
    more = {name: ("F32", (size,)) for name, size in extra.items()}
    found = decoded(folder_of(tmp_path / "more", tensors | more))
    assert found.joined_weights.others == {
        "vision tower": 84, "audio tower": 12, "multi-token prediction": 72, "rotary frequencies": 8,
        "masks and position ids": 4,
    }  # fmt: skip
    assert found.joined_weights.bytes == found.held_bytes == nbytes(tensors)
    assert found.metadata.checkpoint.bytes == nbytes(tensors | more)
    tied = folder_of(tmp_path / "tied", tensors, tie_word_embeddings=True)
    assert decoded(tied).joined_weights.others == {"a copy of the table that the head shares": 2 * WORDS * D}
    base = folder_of(tmp_path / "base", tensors, architectures=["LlamaModel"])
    (nbytes_of_head,) = xfcost.analyze(str(base), N=9, trace=False).joined_weights.others.values()
    assert nbytes_of_head == 2 * WORDS * D


def test_tensors_of_no_known_name_are_named_in_a_warning(tmp_path):
    odd = {"model.layers.1.adapter.weight": ("F32", (5,)), "gate.weight": ("F32", (2,))}
    found = decoded(folder_of(tmp_path / "odd", llama_shapes(plain) | odd))
    assert sum(found.joined_weights.others.values()) + found.held_bytes == found.metadata.checkpoint.bytes
    assert found.metadata.warnings


SIDES = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
IMAGES = {**SIDES, "image_size": 32, "patch_size": 8}
TEXT = {"vocab_size": WORDS, "eos_token_id": 2}
OTHERS = {
    "BertForMaskedLM": transformers.BertConfig(**SIDES, vocab_size=WORDS),
    "BloomForCausalLM": transformers.BloomConfig(vocab_size=WORDS, hidden_size=64, n_layer=2, n_head=4),
    "T5ForConditionalGeneration": transformers.T5Config(
        vocab_size=WORDS, d_model=64, d_ff=128, num_layers=2, num_heads=4, d_kv=16
    ),
    "ViTForImageClassification": transformers.ViTConfig(**IMAGES),
    "SwinForImageClassification": transformers.SwinConfig(
        image_size=32, patch_size=4, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4
    ),
    "CLIPModel": transformers.CLIPConfig(text_config=SIDES | TEXT, vision_config=IMAGES),
}


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=pytest.mark.rest if one == "CLIPModel" else ()) for one in OTHERS]
)
def test_models_that_do_not_write_text_or_read_it_twice(name, tmp_path):
    with torch.device("meta"):
        model = getattr(transformers, name)(OTHERS[name])
    shapes = {name: tuple(one.shape) for name, one in model.named_parameters()}
    buffers = {"bert.embeddings.position_ids": (1, 512)} if name.startswith("Bert") else {}
    fields = OTHERS[name].to_dict() | {"architectures": [name]}
    found = xfcost.analyze(str(files.write_folder(tmp_path / "a", fields, shapes | buffers)), trace=False)
    assert found.joined_weights.held == {row.path: 2 * row.params * row.times for row in found.rows if row.params}
    assert [*found.joined_weights.others.values()] == [1024] * len(buffers)
    assert found.metadata.warnings == ()


def test_parameters_that_a_checkpoint_has_in_another_layer_are_no_difference(tmp_path):
    """RWKV-4 has the norm behind its table in the first layer."""
    config = transformers.RwkvConfig(vocab_size=WORDS, hidden_size=64, num_hidden_layers=2, attention_hidden_size=64)
    shapes = files.shapes_of(config)
    found = decoded(files.write_folder(tmp_path / "rwkv", config, shapes))
    assert found.held_bytes == 2 * sum(map(prod, shapes.values()))
    assert found.metadata.warnings == ()


# ── what disagrees ──


def changed(**shapes):
    """The tensors of the small Llama with other shapes; None: it is missing."""
    tensors = llama_shapes(plain)
    for name, shape in shapes.items():
        if shape is None:
            del tensors[name]
        else:
            tensors[name] = ("BF16", shape)
    return tensors


@pytest.mark.parametrize(
    ("shapes", "both"),
    [
        ({"model.layers.0.self_attn.q_proj.weight": (D, 320)}, ("256×320", "256×256")),
        ({"model.layers.1.self_attn.k_proj.bias": (D // 2,)}, ("131,200", "131,072")),
        ({"model.embed_tokens.weight": (WORDS + 8, D)}, ("133,120", "131,072")),
        ({f"model.layers.1.{name}.weight": None for name in LINEAR}
         | {f"model.layers.1.{name}.weight": None for name in ("input_layernorm", "post_attention_layernorm")},
         ("it has 1 layers", "has 2")),
        ({"model.layers.2.mlp.up_proj.weight": (FFN, D)}, ("3 layers", "has 2")),
        ({"lm_head.weight": None}, ("no tensor of lm_head", "131,072")),
        ({"model.layers.0.mlp.down_proj.weight": None}, ("no tensor of mlp.down_proj", "256×512")),
    ],
    ids=["shape", "bias", "table", "fewer", "more", "head", "missing"],
)  # fmt: skip
def test_tensors_and_config_that_disagree_are_both_named(shapes, both, tmp_path):
    folder = folder_of(tmp_path / "other", changed(**shapes))
    for more in ((), ("--mode", "decode", "--on", "h100-sxm")):
        error = error_of("analyze", folder, "--N", 100, *more)
        assert error.count("\n") == 1
        assert all(one in error for one in (*both, "config.json")), error


def test_experts_are_counted_too(tmp_path):
    shapes = files.unstacked(files.shapes_of(CONFIGS["mixtral"]))
    fewer = {name: shape for name, shape in shapes.items() if ".experts.3." not in name}
    error = error_of("analyze", files.write_folder(tmp_path / "moe", CONFIGS["mixtral"], fewer), "--N", 8)
    assert "one of 3 experts" in error
    assert "of 4 by config.json" in error


# ── what a user points at ──


def test_a_folder_a_file_a_shard_and_a_snapshot_are_one_checkpoint(tmp_path, monkeypatch):
    shapes = files.shapes_of(CONFIGS["llama"])
    folder = files.write_folder(tmp_path / "Llama-Small", CONFIGS["llama"], shapes, shards=2)
    whole = decoded(folder)
    assert whole.metadata.checkpoint.files == 2
    assert whole.metadata.name.startswith("Llama-Small")
    assert decoded(folder / "model-00002-of-00002.safetensors").held_bytes == whole.held_bytes
    snapshot = tmp_path / "models--org--Cached" / "snapshots" / "0123abc"
    snapshot.mkdir(parents=True)
    for file in folder.iterdir():
        (snapshot / file.name).symlink_to(file)
    cached = decoded(snapshot)
    assert (cached.held_bytes, cached.metadata.name) == (whole.held_bytes, whole.metadata.name.replace(
        "Llama-Small", "Cached"))  # fmt: skip
    monkeypatch.chdir(folder)
    assert decoded(".").held_bytes == decoded("./").held_bytes == whole.held_bytes
    single = files.write_folder(tmp_path / "single", CONFIGS["llama"], shapes)
    assert decoded(single / "model.safetensors").held_bytes == decoded(single).held_bytes == whole.held_bytes
    assert xfcost.compare(str(folder), str(single), **DECODE).ledgers[1].held_bytes == whole.held_bytes
    (config_alone := tmp_path / "alone").mkdir()
    (config_alone / "config.json").write_text((folder / "config.json").read_text())
    assert decoded(config_alone).total("params") == whole.total("params")


def test_of_a_folder_with_both_the_whole_file_is_read_as_by_transformers(tmp_path):
    """Its shards, which are gone, are not asked for."""
    shapes = files.shapes_of(CONFIGS["llama"])
    folder = files.write_folder(tmp_path, CONFIGS["llama"], shapes, shards=2)
    files.write_folder(tmp_path, CONFIGS["llama"], shapes, dtype="F32")
    told = "model.safetensors is read, as transformers reads it; model.safetensors.index.json is not"
    for _ in range(2):
        found = decoded(folder).metadata
        assert (found.checkpoint.files, list(found.checkpoint.dtypes)) == (1, ["F32"])
        assert told in found.warnings
        for shard in tmp_path.glob("*-of-*"):
            shard.unlink()
    (tmp_path / "model.safetensors.index.json").unlink()
    assert told not in decoded(folder).metadata.warnings


def test_without_a_config_the_tensors_alone_are_described(tmp_path):
    files.write_safetensors(tmp_path / "lora.safetensors", {"a": (3, 5), "b": (7,)}, dtypes={"b": "F32"})
    error = error_of("analyze", tmp_path / "lora.safetensors")
    assert "2 tensors of 22 elements, 58 B (F16 30 B, F32 28 B)" in error
    assert error.count("\n") == 1


def test_parts_of_a_gguf_are_one(tmp_path):
    shapes = files.gguf_shapes("LLAMA", files.shapes_of(CONFIGS["llama"]), LAYERS)
    whole = decoded(files.write_gguf(tmp_path / "one.gguf", "LLAMA", metadata_of("LLAMA"), shapes))
    names = list(shapes)
    for number in range(3):
        part = tmp_path / f"many-{number + 1:05d}-of-00003.gguf"
        own = metadata_of("LLAMA") if number == 0 else {}
        files.write_gguf(part, "LLAMA", own, {name: shapes[name] for name in names[number::3]})
    for number in (1, 3):
        found = decoded(tmp_path / f"many-{number:05d}-of-00003.gguf") if number == 1 else decoded(tmp_path)
        if number == 1:
            assert (found.held_bytes, found.metadata.checkpoint.files) == (whole.held_bytes, 3)
            (tmp_path / "one.gguf").unlink()
    assert found.held_bytes == whole.held_bytes
    (tmp_path / "many-00002-of-00003.gguf").unlink()
    assert "many-00002-of-00003.gguf: no such file" in error_of("analyze", tmp_path / "many-00001-of-00003.gguf")


def test_a_gguf_of_a_listed_model_has_its_stored_counts(tmp_path):
    """At its true size: Qwen3 0.6B in Q8_0, whose table is that of the head too."""
    config = transformers.Qwen3Config(**json.loads(listed_config("qwen3-0.6b")))
    shapes = files.gguf_shapes("QWEN3", files.shapes_of(config), 28)
    kinds = {name: "Q8_0" for name, shape in shapes.items() if len(shape) > 1}
    metadata = {
        "context_length": 40960, "block_count": 28, "embedding_length": 1024, "feed_forward_length": 3072,
        "attention.head_count": 16, "attention.head_count_kv": 8, "attention.key_length": 128,
        "rope.freq_base": 1e6, "general.file_type": 7,
    }  # fmt: skip
    file = files.write_gguf(tmp_path / "Qwen3-0.6B-Q8_0.gguf", "QWEN3", metadata, shapes, kinds)
    found = decoded(file, N=40_960)
    assert found.module.recorded
    assert found.cache.bytes == 4.375 * 2**30  # at its full context, as in unsloth's pull request 4757
    assert found.held_bytes == found.metadata.checkpoint.bytes
    assert found.metadata.warnings == ()


def listed_config(name):
    from xfcost.spec.models import config_of

    return config_of(name).read_text()


@pytest.mark.rest
def test_deepseek_v3_in_q8_0_has_the_bytes_that_llama_cpp_prints(tmp_path):
    """664.29 GiB in 361 tensors of F32 and 664 of Q8_0 (ikawrakow/ik_llama.cpp, issue 285); R1 has the same shapes."""
    config = transformers.DeepseekV3Config(**json.loads(listed_config("deepseek-r1")))
    shapes = files.gguf_shapes("DEEPSEEK2", files.shapes_of(config), 61)
    shapes |= {f"blk.{layer}.exp_probs_b.bias": (256,) for layer in range(3, 61)}
    kinds = {name: "Q8_0" for name, shape in shapes.items() if len(shape) > 1 and "ffn_gate_inp" not in name}
    metadata = {
        "context_length": 163840, "block_count": 61, "embedding_length": 7168, "feed_forward_length": 18432,
        "attention.head_count": 128, "attention.head_count_kv": 128, "attention.key_length": 192,
        "attention.value_length": 128, "attention.kv_lora_rank": 512, "attention.q_lora_rank": 1536,
        "rope.dimension_count": 64, "leading_dense_block_count": 3, "expert_count": 256, "expert_used_count": 8,
        "expert_shared_count": 1, "expert_feed_forward_length": 2048, "expert_gating_func": 2,
        "expert_group_count": 8, "expert_group_used_count": 4, "general.file_type": 7,
    }  # fmt: skip
    found = decoded(files.write_gguf(tmp_path / "DeepSeek-V3-Q8_0.gguf", "DEEPSEEK2", metadata, shapes, kinds))
    stored = found.metadata.checkpoint
    assert (stored.tensors, len(kinds)) == (1025, 664)
    assert round(stored.bytes / 2**30, 2) == 664.29
    assert found.held_bytes == stored.bytes
    assert found.metadata.warnings == ()


# ── headers ──


def test_every_type_of_safetensors_has_its_bytes(tmp_path):
    of_torch = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16,
                torch.int8, torch.uint8, torch.bool, torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64,
                torch.uint16, torch.uint32, torch.uint64, torch.float8_e8m0fnu]  # fmt: skip
    tensors = {str(kind): torch.empty((3, 4), dtype=kind) for kind in of_torch}
    save_file(tensors, tmp_path / "all.safetensors")
    found = {one.name: one for one in safetensors_file(str(tmp_path / "all.safetensors"), "all")}
    assert {name: (one.shape, one.bytes) for name, one in found.items()} == {
        name: ((3, 4), one.nbytes) for name, one in tensors.items()
    }
    assert len({one.dtype for one in found.values()}) == len(of_torch)


def test_every_block_format_of_gguf_has_its_bytes(tmp_path):
    shapes = {kind.name: (3, 256) for kind in gguf.GGML_QUANT_SIZES}
    file = files.write_gguf(tmp_path / "all.gguf", "LLAMA", {}, shapes, {name: name for name in shapes})
    found = {one.name: one for one in read_header(str(file), "all").tensors}
    assert {name: (one.dtype, one.shape, one.bytes) for name, one in found.items()} == {
        kind.name: (kind.name, (3, 256), 3 * 256 // block * size)
        for kind, (block, size) in gguf.GGML_QUANT_SIZES.items()
    }
    theirs = {one.name: (one.n_bytes, tuple(map(int, one.shape[::-1]))) for one in gguf.GGUFReader(file).tensors}
    assert theirs == {name: (one.bytes, one.shape) for name, one in found.items()}


def test_of_a_file_of_400_gigabytes_its_header_alone_is_read(tmp_path):
    layers = 100
    tensors = {f"model.layers.{layer}.mlp.up_proj.weight": ("BF16", (50_000, 40_000)) for layer in range(layers)}
    files.write_header(tmp_path / "large.safetensors", tensors)
    shapes = {name.replace("model.layers", "blk"): shape for name, (_, shape) in tensors.items()}
    files.write_gguf(tmp_path / "large.gguf", "LLAMA", {}, shapes, dict.fromkeys(shapes, "F16"), words=20_000)
    for name, read in (("large.safetensors", safetensors_file), ("large.gguf", read_header)):
        assert (tmp_path / name).stat().st_size > 400e9
        tracemalloc.start()
        found = read(str(tmp_path / name), name)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert sum(one.bytes for one in getattr(found, "tensors", found)) == 400 * 10**9
        assert most < 2_000_000


def entry(begin, end, shape=(4, 4), dtype="F32"):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


HEADERS = {
    "length": (b"{}", 0, 4 * 10**9),
    "length of 64 bits": (b"{}", 0, 2**64 - 1),
    "longer than the file": (b"{}", 0, 50),
    "nested": (b'{"a":' + b"[" * 100_000, 0),
    "no JSON": (b"\xff\xfe{]", 0),
    "a list": (b"[1]", 0),
    "offset": ({"a": entry(0, 64), "b": entry(10**12, 10**12 + 64)}, 128),
    "overlap": ({"a": entry(0, 64), "b": entry(32, 96)}, 96),
    "hole": ({"a": entry(0, 64), "b": entry(128, 192)}, 192),
    "rest": ({"a": entry(0, 64)}, 65),
    "negative": ({"a": entry(-64, 0)}, 0),
    "backwards": ({"a": entry(64, 0)}, 64),
    "fraction": ({"a": entry(0, 6.5)}, 64),
    "dtype": ({"a": entry(0, 64, dtype="Q9")}, 64),
    "truncated": ({"a": entry(0, 64)}, 10),
    "sides": ({"a": entry(0, 64, [2**40] * 20)}, 64),
    "dimensions": ({"a": entry(0, 4, [1] * 100_000)}, 4),
    "another size": ({"a": entry(0, 60)}, 60),
    "tensors": (b'{"a":' + b'"data_offsets"' * 500_001, 0),
}


@pytest.mark.parametrize("fault", HEADERS)
def test_a_bad_header_of_safetensors_ends_in_one_line(fault, tmp_path):
    header, data, *length = HEADERS[fault]
    header = header if isinstance(header, bytes) else json.dumps(header).encode()
    file = tmp_path / "bad.safetensors"
    file.write_bytes(struct.pack("<Q", *length or [len(header)]) + header + b"\0" * data)
    refused(file)


def test_a_header_that_is_too_long_is_not_read(tmp_path):
    (file := tmp_path / "sparse.safetensors").write_bytes(struct.pack("<Q", 150_000_000))
    os.truncate(file, 200_000_000)
    tracemalloc.start()
    with pytest.raises(XfcostError):
        safetensors_file(str(file), file.name)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


def refused(file):
    """The one line about a file, in which it is named."""
    (tmp := file.parent / "config.json").write_text(json.dumps(CONFIGS["llama"].to_dict()))
    error = error_of("analyze", file)
    tmp.unlink()
    assert error.count("\n") == 1
    assert file.name in error
    assert len(error) < 900
    return error


def gguf_bytes(*parts, tensors=0, entries=0, version=3):
    return b"GGUF" + struct.pack("<IQQ", version, tensors, entries) + b"".join(parts)


def text(words):
    return struct.pack("<Q", len(words)) + words


def info(name=b"t", sides=(32,), kind=0, offset=0):
    return text(name) + struct.pack(f"<I{len(sides)}QIQ", len(sides), *sides, kind, offset)


GGUF_HEADERS = {
    "magic": b"GGML" + bytes(40),
    "empty": b"",
    "version": gguf_bytes(version=1),
    "big-endian": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "tensors": gguf_bytes(tensors=2**63),
    "entries": gguf_bytes(entries=2**40),
    "key": gguf_bytes(struct.pack("<Q", 2**62), entries=1),
    "kind": gguf_bytes(text(b"a"), struct.pack("<I", 99), entries=1),
    "array": gguf_bytes(text(b"a"), struct.pack("<IIQ", 9, 4, 2**61), entries=1),
    "texts": gguf_bytes(text(b"a"), struct.pack("<IIQ", 9, 8, 3_000_000), entries=1),
    "arrays": gguf_bytes(text(b"a"), struct.pack("<IIQ", 9, 9, 1), entries=1),
    "twice": gguf_bytes(*[text(b"a") + struct.pack("<II", 4, 1)] * 2, entries=2),
    "alignment": gguf_bytes(text(b"general.alignment"), struct.pack("<II", 4, 0), entries=1),
    "dimensions": gguf_bytes(text(b"t"), struct.pack("<I", 10**9), tensors=1),
    "sides": gguf_bytes(info(sides=(2**40,) * 4), tensors=1),
    "type": gguf_bytes(info(kind=77), tensors=1),
    "block": gguf_bytes(info(sides=(33,), kind=8), tensors=1) + bytes(999),
    "offset": gguf_bytes(info(offset=2**60), tensors=1) + bytes(999),
    "truncated": gguf_bytes(info(), tensors=1) + bytes(40),
    "overlap": gguf_bytes(info(), info(b"u", offset=64), tensors=2) + bytes(999),
    "same name": gguf_bytes(info(), info(offset=128), tensors=2) + bytes(999),
    "architecture": gguf_bytes(text(b"general.architecture"), struct.pack("<I", 8), text(b"clip"), entries=1),
    "no architecture": gguf_bytes(),
    "no table": gguf_bytes(text(b"general.architecture"), struct.pack("<I", 8), text(b"llama"), entries=1),
}


@pytest.mark.parametrize("fault", GGUF_HEADERS)
def test_a_bad_header_of_gguf_ends_in_one_line(fault, tmp_path):
    file = tmp_path / "bad.gguf"
    file.write_bytes(GGUF_HEADERS[fault])
    error = refused(file)
    assert all(one in error for one in (ARCHITECTURES if "architecture" in fault else ())), error


def test_shards_that_are_missing_or_in_a_loop(tmp_path):
    folder = files.write_folder(tmp_path / "a", CONFIGS["llama"], files.shapes_of(CONFIGS["llama"]), shards=2)
    index = folder / "model.safetensors.index.json"
    first, second = (folder / f"model-0000{number}-of-00002.safetensors" for number in (1, 2))
    text_of_index = index.read_text()

    def says(words):
        error = error_of("analyze", folder)
        assert error.count("\n") == 1
        assert words in error, error

    for other in (index.name, "../a/" + first.name, "/etc/passwd", "x.bin"):
        index.write_text(text_of_index.replace(first.name, other))
        says("is no safetensors file of its folder")
    for other in ("{", "[]", '{"weight_map": []}', '{"weight_map": {"a": 1}}'):
        index.write_text(other)
        says("is no index of shards")
    index.write_text('{"weight_map": {}}')
    says("names 0 shards")
    index.write_text(json.dumps({"weight_map": {"x": first.name}}))
    says("has no tensor x")
    index.write_text(text_of_index)
    moved = second.rename(folder / "kept")
    says("no such file, and model.safetensors.index.json has")
    second.symlink_to(second.name)
    says("no such file")
    second.unlink()
    second.symlink_to(first.name)
    says("is in model-00001-of-00002.safetensors too")
    second.unlink()
    os.mkfifo(second)
    says("a pipe or a device")
    second.unlink()
    moved.rename(second)
    index.unlink()
    index.symlink_to(index.name)
    says("can't be read")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pth", "model.PT", "last.ckpt"])
def test_weights_in_a_pickle_are_not_opened(name, tmp_path):
    (tmp_path / name).write_bytes(b"")
    error = error_of("analyze", tmp_path / name, COLUMNS="1000")
    assert "a pickle of torch; opening one may run its code" in error
    assert "give the model's config.json, or save its weights" in error


def test_the_package_for_gguf_is_named_where_it_is_missing(tmp_path, monkeypatch):
    file = files.write_gguf(tmp_path / "a.gguf", "LLAMA", {}, {"a": (32,)})
    monkeypatch.setitem(sys.modules, "gguf", None)
    monkeypatch.setitem(sys.modules, "gguf.constants", None)
    assert "xfcost[checkpoints]" in refused(file)


def mutated(given, random_):
    """Bytes with some others in them, more or fewer; most changes are in the header."""
    found = bytearray(given)
    for _ in range(random_.choice((1, 1, 1, 2, 3, 8))):
        at = random_.randrange(min(len(found), 900) or 1)
        change = random_.choice(("byte", "bit", "over", "in", "out", "cut", "copy"))
        other = random_.choice(_OTHERS)
        if change == "byte" and found:
            found[at] = random_.randrange(256)
        elif change == "bit" and found:
            found[at] ^= 1 << random_.randrange(8)
        elif change == "over":
            found[at : at + len(other)] = other
        elif change == "in":
            found[at:at] = other
        elif change == "out":
            del found[at : at + random_.choice((1, 2, 8, 100, 1000))]
        elif change == "cut":
            del found[random_.randrange(len(found) + 1) :]
        else:
            found[at:at] = found[: random_.choice((1, 8, 64))]
    return bytes(found)


_OTHERS = (
    b"\xff" * 8, bytes(8), (2**63).to_bytes(8, "little"), (4 * 10**9).to_bytes(8, "little"), b"9" * 40, b'"\\ud800"',
    b"[" * 8, b"{", b"-1", b"1e999", b"null", b"GGUF",
)  # fmt: skip


@pytest.mark.parametrize("number", [400, pytest.param(4_000, marks=pytest.mark.rest)])
def test_mutated_headers_are_read_or_end_in_one_line(number, tmp_path):
    table, maps = "token_embd.weight", {"output_norm.weight": (32,), "blk.0.attn_q.weight": (32, 32)}
    files.write_safetensors(tmp_path / "a.safetensors", maps)
    metadata = metadata_of("LLAMA", block_count=1, embedding_length=32)
    files.write_gguf(tmp_path / "a.gguf", "LLAMA", metadata, {table: (64, 32), **maps}, {table: "Q8_0"}, words=64)
    random_, outcomes = random.Random(48), set()  # noqa: S311 - no secret
    for file, read in ((tmp_path / "a.safetensors", safetensors_file), (tmp_path / "a.gguf", read_header)):
        given = file.read_bytes()
        for _ in range(number // 2):
            file.write_bytes(mutated(given, random_))
            try:
                found = read(str(file), file.name)
            except XfcostError as error:
                outcomes.add(str(error))
                continue
            assert all(one.bytes <= file.stat().st_size for one in getattr(found, "tensors", found))
    assert all(one.isprintable() and len(one) < 500 for one in outcomes)
    assert len(outcomes) > 40


def test_a_report_says_what_is_on_the_disk(tmp_path):
    folder = folder_of(tmp_path / "said", llama_shapes(plain) | {"visual.patch.weight": ("F32", (1000,))})
    words = ("analyze", folder, "--N", 100, "--mode", "decode", "--on", "h100-sxm", "--no-trace")
    found = json.loads(stdout_of(*words, "--format", "json"))
    assert found["checkpoint"] == {
        "place": str(folder), "files": 1, "tensors": 22, "bytes": nbytes(llama_shapes(plain)) + 4000,
        "operations_bytes": nbytes(llama_shapes(plain)), "other_bytes": {"vision tower": 4000},
        "dtypes": {"BF16": nbytes(llama_shapes(plain)), "F32": 4000},
    }  # fmt: skip
    assert found["on"]["memory"]["weights"] == nbytes(llama_shapes(plain))
    line = " ".join(stdout_of(*words).split())
    assert "3.906 KiB belong to no operation: vision tower" in line


def test_checkpoints_of_one_model_differ_as_stored(tmp_path):
    shapes = llama_shapes(plain)
    scaled = {name: ("F8_E4M3" if len(shape) == 2 else kind, shape) for name, (kind, shape) in shapes.items()}
    folders = [folder_of(tmp_path / name, each) for name, each in (("bf16", shapes), ("fp8", scaled))]
    found = xfcost.diff(*map(str, folders), N=16)
    matrices = sum(prod(shape) for _, shape in shapes.values() if len(shape) == 2)
    assert not found.operations
    assert found.stored == {
        "all": (nbytes(shapes), nbytes(shapes) - matrices),
        "BF16": (nbytes(shapes), nbytes(shapes) - 2 * matrices),
        "F8_E4M3": (0, matrices),
    }
    assert xfcost.diff(str(folders[0]), str(folders[0]), N=16).stored == {}


def test_names_of_modules_are_those_of_transformers():
    assert module_key("model.language_model.layers.3.self_attn.q_proj") == ("", 3, "self_attn.q_proj")
    assert module_key("transformer.h.11.attn.c_attn") == ("", 11, "self_attn.c_attn")
    assert module_key("model.layers.0.block_sparse_moe.experts.7.w2") == ("", 0, "mlp.experts.*.down_proj")
    assert module_key("bert.encoder.layer.1.attention.self.value") == ("encoder", 1, "self_attn.v_proj")
    assert module_key("language_model.model.embed_tokens") == ("", None, "embed_tokens")


def test_fields_of_a_gguf_that_differ_from_layer_to_layer_are_refused(tmp_path):
    shapes = {"token_embd.weight": (64, 32), "output_norm.weight": (32,)}
    own = metadata_of("LLAMA", feed_forward_length=[64, 64])
    file = files.write_gguf(tmp_path / "alike.gguf", "LLAMA", own, shapes)
    assert gguf_config(str(file))["intermediate_size"] == 64
    own = metadata_of("LLAMA", feed_forward_length=[64, 32])
    assert "feed_forward_length" in refused(files.write_gguf(tmp_path / "other.gguf", "LLAMA", own, shapes))


# Names that a class has now -> those of published checkpoints.
_NORMED = {"parametrizations.weight.original0": "weight_g", "parametrizations.weight.original1": "weight_v"}
_SPEECH = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 32,
    "conv_dim": [16] * 7, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4,
}  # fmt: skip
# Type of model -> its class, fields, renamed tensors, and bytes that its forward does not read.
READ_ELSEWHERE = {
    "jamba": (
        "JambaForCausalLM",
        {
            "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
            "num_key_value_heads": 2, "vocab_size": 128, "attn_layer_period": 2, "attn_layer_offset": 1,
            "num_experts": 4, "mamba_d_state": 8, "mamba_dt_rank": 8,
        },
        {}, 0,
    ),
    # attention of the tower's head reads the parameters of its output projection itself
    "gemma3": (
        "Gemma3ForConditionalGeneration",
        {
            "text_config": {
                "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
                "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 128,
            },
            "vision_config": {
                "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
                "image_size": 56,
            },
            "image_token_index": 5, "boi_token_index": 6, "eoi_token_index": 7, "mm_tokens_per_image": 4,
        },
        {"model.language_model.": "language_model.model."}, 0,
    ),
    # the embedding of masked frames, 64 numbers, is for training
    "wav2vec2": ("Wav2Vec2ForCTC", _SPEECH, {}, 2 * 64),
    "wav2vec2 as published": ("Wav2Vec2ForCTC", _SPEECH, _NORMED, 2 * 64),
}  # fmt: skip


@pytest.mark.rest
@pytest.mark.parametrize("name", READ_ELSEWHERE)
def test_what_operations_of_other_modules_read_is_read(name, tmp_path):
    kind, fields, renamed, unread = READ_ELSEWHERE[name]
    config = transformers.AutoConfig.for_model(name.partition(" ")[0], **fields)
    with torch.device("meta"):
        model = getattr(transformers, kind)(config)
    shapes = {}
    for own, parameter in model.named_parameters():
        stored = own
        for before, after in renamed.items():
            stored = stored.replace(before, after)
        shapes[stored] = tuple(parameter.shape)
    folder = files.write_folder(tmp_path / "stored", config.to_dict() | {"architectures": [kind]}, shapes)
    words = [] if fields is _SPEECH else ["--N", 16]
    found = json.loads(stdout_of("analyze", folder, *words, "--no-trace", "--no-mixing", "--format", "json"))
    held = 2 * sum(map(prod, shapes.values()))
    assert (found["checkpoint"]["bytes"], found["checkpoint"]["operations_bytes"]) == (held, held - unread)


@pytest.mark.rest
def test_a_tower_for_images_is_held_and_not_read_in_a_step_of_text(tmp_path):
    text = SMALL | {"head_dim": 32}
    vision = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    tokens = {"image_token_index": 5, "boi_token_index": 6, "eoi_token_index": 7, "mm_tokens_per_image": 4}
    config = transformers.Gemma3Config(text_config=text, vision_config=vision | {"image_size": 56}, **tokens)
    with torch.device("meta"):
        model = transformers.Gemma3ForConditionalGeneration(config)
    shapes = {name: tuple(one.shape) for name, one in model.named_parameters()}
    tower = {name: "F32" for name in shapes if "language_model" not in name}
    published = {name.replace("model.language_model.", "language_model.model."): one for name, one in shapes.items()}
    fields = config.to_dict() | {"architectures": ["Gemma3ForConditionalGeneration"]}
    found = decoded(files.write_folder(tmp_path / "vl", fields, published, dtypes=tower))
    of_tower = 4 * sum(prod(shapes[name]) for name in tower)
    of_text = 2 * sum(prod(shape) for name, shape in shapes.items() if name not in tower)
    assert found.joined_weights.others == {"vision tower": of_tower}
    assert found.joined_weights.bytes == of_text
    assert found.held_bytes == of_tower + of_text
    held = found.joined_weights.held
    own = {row.path: row.params * row.times for row in found.rows if row.params and "language_model" in row.component}
    assert {path: held[path] for path in own} == {path: 2 * params for path, params in own.items()}


def test_gpt_oss_20b_has_the_bytes_of_its_published_index(tmp_path):
    """13,761,264,768, `total_size` in the index of openai/gpt-oss-20b; experts are MXFP4 in blocks of 16 bytes."""
    config = json.loads(listed_config("gpt-oss-20b"))
    shapes = files.shapes_of(transformers.GptOssConfig(**config))
    tensors = {name: ("BF16", shape) for name, shape in shapes.items()}
    for name, (count, inputs, outputs) in {one: shape for one, shape in shapes.items() if len(shape) == 3}.items():
        del tensors[name]
        tensors[f"{name}_blocks"] = ("U8", (count, outputs, inputs // 32, 16))
        tensors[f"{name}_scales"] = ("U8", (count, outputs, inputs // 32))
    folder = tmp_path / "gpt-oss-20b"
    folder.mkdir()
    (folder / "config.json").write_text(listed_config("gpt-oss-20b"))
    files.write_header(folder / "model.safetensors", tensors)
    found = decoded(folder)
    assert found.module.recorded
    assert found.held_bytes == found.metadata.checkpoint.bytes == 13_761_264_768
    assert found.held_bytes == decoded("gpt-oss-20b").held_bytes
    assert found.metadata.warnings == ()
    experts = [row for row in found.rows if row.operation == "_grouped_mm"]
    assert sum(found.storage.held_in_all(row) for row in experts) == pytest.approx(
        24 * 32 * 3 * 2880**2 * 17 / 32,
        rel=1e-3,  # biases share the bytes of their module by parameters
    )


def test_a_folder_without_tensors_has_the_bytes_of_its_config(tmp_path):
    """Its config.json alone, or with weights in a format that is not read; a GGUF that lies there is read."""
    folder = folder_of(tmp_path / "whole", llama_shapes(plain))
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"PK")
    alone, config = decoded(folder), decoded(folder / "config.json")
    assert alone.held_bytes == config.held_bytes > 0
    assert alone.metadata.checkpoint is None


def test_more_tensors_than_parameters_belong_to_no_operation(tmp_path):
    """100·100 elements of 2 bytes under a name that nothing has: no row reads them."""
    whole = decoded(folder_of(tmp_path / "whole", llama_shapes(plain)))
    more = decoded(folder_of(tmp_path / "more", llama_shapes(plain) | {"foo.bar": ("BF16", (100, 100))}))
    assert more.held_bytes == whole.held_bytes
    assert more.step.weight_bytes == whole.step.weight_bytes
    assert sum(more.joined_weights.others.values()) == 2 * 100 * 100


def test_a_table_that_only_its_sharers_read_is_read(tmp_path):
    """BART stores its table as `model.shared`: a step's head reads all of it, in the bytes of the checkpoint."""
    config = transformers.BartConfig(
        vocab_size=1000, d_model=64, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128, max_position_embeddings=128,
    )  # fmt: skip
    transformers.BartForConditionalGeneration(config).save_pretrained(tmp_path)
    ledger = decoded(tmp_path, N=32)
    head = next(row for row in ledger.rows if row.path.startswith("lm_head."))
    assert ledger.storage.read_bytes(head, 1000 * 64) == 4 * 1000 * 64
    reasons = ledger.joined_weights.others
    unread = (row for row in ledger.rows if row.operation == "parameters" and row.component != "model.shared")
    assert reasons["not read in this pass"] == 4 * sum(row.times * row.params for row in unread) > 0


def test_a_folder_is_named_without_a_dot_unless_a_preset_has_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = {"model_type": "gpt2", "n_layer": 2, "n_head": 4, "n_embd": 64, "vocab_size": 99, "n_positions": 32}
    for name in ("mine", "vit", "full"):  # `full` is a mechanism, in a preset common-full
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config), encoding="utf-8")
    mine = xfcost.analyze("mine", trace=False)
    assert mine.total("params") == xfcost.analyze("./mine", trace=False).total("params")
    assert xfcost.analyze("vit", trace=False).metadata.name == "ViT-S/8"
    assert xfcost.analyze("full", trace=False).metadata.preset
