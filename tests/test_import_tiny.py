"""`xfcost import` on small configs, every architecture of every family: parameters and MACs beside transformers'."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from hugging_face import ours, placed, theirs, write
from strategies import exact
from transformers_models import parameters
from xfcost.counting.forward import count
from xfcost.importing.families import FAMILIES, family_of
from xfcost.spec.run import Run
from xfcost.torch_models.accounts import reconciled
from xfcost.torch_models.build import build

TOKENS = 11
_BERT = {
    "vocab_size": 29, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20,
    "max_position_embeddings": 16, "num_labels": 5,
}  # fmt: skip
_GPT = {"vocab_size": 29, "n_embd": 12, "n_layer": 2, "n_head": 3, "num_labels": 5, "pad_token_id": 0}
_LLAMA = {
    "vocab_size": 29, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 1,
    "intermediate_size": 20, "max_position_embeddings": 16, "num_labels": 5, "pad_token_id": 0,
}  # fmt: skip
_DEEPSEEK = {
    "vocab_size": 29, "hidden_size": 12, "num_hidden_layers": 3, "num_attention_heads": 3, "num_key_value_heads": 3,
    "intermediate_size": 20, "moe_intermediate_size": 7, "max_position_embeddings": 16, "num_labels": 5,
    "pad_token_id": 0, "first_k_dense_replace": 1, "kv_lora_rank": 6, "q_lora_rank": 8, "qk_nope_head_dim": 4,
    "qk_rope_head_dim": 2, "v_head_dim": 3, "n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 3,
    "n_group": 4, "topk_group": 2,
}  # fmt: skip
_T5 = {
    "vocab_size": 29, "d_model": 12, "d_kv": 5, "num_heads": 3, "num_layers": 2, "num_decoder_layers": 3, "d_ff": 20,
    "relative_attention_num_buckets": 8, "relative_attention_max_distance": 6,
}  # fmt: skip
_VIT = {
    "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20, "image_size": [8, 12],
    "patch_size": 4, "num_labels": 5,
}  # fmt: skip
_SWIN = {
    "image_size": 32, "patch_size": 2, "embed_dim": 6, "depths": [2, 3], "num_heads": [1, 3], "window_size": 3,
    "num_labels": 5,
}  # fmt: skip
# model_type -> small fields
TINY: dict[str, dict[str, Any]] = {
    "bert": _BERT,
    "roberta": _BERT,
    "xlm-roberta": _BERT,
    "distilbert": {
        "vocab_size": 29, "dim": 12, "n_layers": 2, "n_heads": 3, "hidden_dim": 20, "max_position_embeddings": 16,
    },
    "openai-gpt": _GPT | {"n_positions": 16},
    "gpt2": _GPT | {"n_positions": 16},
    "bloom": {"vocab_size": 29, "hidden_size": 12, "n_layer": 2, "n_head": 3, "num_labels": 5, "pad_token_id": 0},
    "t5": _T5,
    "mt5": _T5,
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "qwen2": _LLAMA,
    "mixtral": _LLAMA | {"num_local_experts": 4},
    "deepseek_v2": _DEEPSEEK | {"topk_method": "group_limited_greedy"},
    "deepseek_v3": _DEEPSEEK,
    "mamba2": {
        "vocab_size": 29, "hidden_size": 12, "num_heads": 6, "head_dim": 4, "state_size": 5, "num_hidden_layers": 2,
        "n_groups": 2, "chunk_size": 4,
    },
    "mamba": {"vocab_size": 29, "hidden_size": 12, "state_size": 5, "num_hidden_layers": 2, "time_step_rank": 3},
    "rwkv": {"vocab_size": 29, "hidden_size": 12, "num_hidden_layers": 2, "intermediate_size": 20},
    "vit": _VIT,
    "deit": _VIT,
    "pvt": {"hidden_sizes": [4, 8, 10, 8], "num_attention_heads": [1, 2, 5, 2], "image_size": 64, "num_labels": 5},
    "poolformer": {"hidden_sizes": [4, 6, 8, 10], "num_labels": 5},
    "convnext": {"hidden_sizes": [4, 6, 8], "depths": [1, 2, 1], "num_stages": 3, "image_size": 64, "num_labels": 5},
    "resnet": {"embedding_size": 4, "hidden_sizes": [8, 12, 16], "depths": [1, 2, 2], "num_labels": 5},
    "swin": _SWIN,
    "swinv2": _SWIN,
}  # fmt: skip
EACH = [(kind, name) for kind in FAMILIES for name in family_of(kind).architectures]
# transformers' plain scan has a product in each of its steps, and its convolution more outputs: test_scans.py tells.
SCANS = ("mamba", "mamba2")


def config(folder: Path, kind: str, architecture: str, **more: Any) -> tuple[Path, dict[str, Any]]:
    values = {"model_type": kind, "architectures": [architecture]} | TINY[kind] | more
    return write(folder, values), values


def two_labels(architecture: str) -> dict[str, int]:
    """Where an answer starts and where it ends: transformers runs those heads with no others."""
    return {"num_labels": 2} if "bert" in architecture.lower() and "Question" in architecture else {}


def run_of(kind: str, architecture: str) -> Run:
    """N tokens; an image has its own."""
    if "vocab_size" not in TINY[kind]:
        return Run()
    return Run(tokens=(TOKENS, 7) if kind in ("t5", "mt5") and not architecture.endswith("EncoderModel") else (TOKENS,))


def their_macs(model: Any, values: dict[str, Any], run: Run) -> int:
    """By torch's counter, on the CPU and eager, where it sees attention."""
    if run.tokens is None:
        size = values.get("image_size", 224)
        height, width = (size, size) if isinstance(size, int) else size
        inputs = {"pixel_values": torch.zeros(1, 3, height, width)}
    else:
        names = ("input_ids", "decoder_input_ids")
        inputs = {name: torch.full((1, n), 2) for name, n in zip(names, run.tokens, strict=False)}
    if "MultipleChoice" in values["architectures"][0]:
        inputs = {name: ids[None] for name, ids in inputs.items()}
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(**inputs)
    return int(counter.get_total_flops()) // 2


def test_every_family_is_tried() -> None:
    assert TINY.keys() == FAMILIES.keys()


@pytest.mark.parametrize(("kind", "architecture"), EACH)
def test_a_tiny_config_has_their_parameters_and_macs(kind: str, architecture: str, tmp_path: Path) -> None:
    path, values = config(tmp_path, kind, architecture, **two_labels(architecture))
    run = run_of(kind, architecture)
    ledger, model = ours(path, run), theirs(values, architecture, "cpu")
    assert ledger.total("params") == parameters(model)
    if kind not in SCANS:
        assert ledger.total("macs") == their_macs(model, values, run)


# One architecture of every family, and all of those whose heads differ.
TRACED = [
    (kind, name) for kind, name in EACH if kind in ("bert", "gpt2", "vit") or name == family_of(kind).architectures[0]
]


@pytest.mark.parametrize(("kind", "architecture"), TRACED)
def test_the_spec_runs_and_every_row_is_what_the_trace_sees(kind: str, architecture: str, tmp_path: Path) -> None:
    path, _ = config(tmp_path, kind, architecture, **two_labels(architecture))
    _, architecture_ = placed(path, run_of(kind, architecture)._replace(batch=2))
    exact(reconciled(count(architecture_), *build(architecture_)))
