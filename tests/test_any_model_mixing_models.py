"""Kinds of rows in unmodified models of `transformers`, and in presets looked at without their spec."""

import logging
import math
import re
from typing import Any, Final

import pytest
import torch

import xfcost
from xfcost.counting.forward import count
from xfcost.ledger.ledger import Ledger
from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.spec.run import Run
from xfcost.torch_models.any_model.inputs import Given
from xfcost.torch_models.any_model.ledger import module_ledger
from xfcost.torch_models.any_model.mixing import Built
from xfcost.torch_models.build import build

logging.getLogger("transformers").setLevel(logging.ERROR)

TEXT: Final = {
    "vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 64,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
FUSED: Final = "scaled_dot_product_attention"
INPUTS: Final = {"input_ids": torch.zeros(1, 64, dtype=torch.int64), "pixel_values": torch.randn(1, 3, 64, 64)}
# Model, settings; path, kind and reads of what mixes.
MODELS: Final[dict[str, tuple[str, dict[str, Any], list[tuple[str, str, int | None]]]]] = {
    "ViT, one size alone": (
        "ViTModel",
        {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 32, "intermediate_size": 64}
        | {"image_size": 64, "patch_size": 16},
        [(f"layers.*.attention.{FUSED}", "global", 17)],
    ),
    "Swin": (
        "SwinModel",
        {"embed_dim": 8, "depths": [2, 2], "num_heads": [1, 2], "window_size": 4, "image_size": 64, "patch_size": 4},
        [
            (f"encoder.layers.{layer}.blocks.{block}.attention.{FUSED}", "local", 16)
            for layer in (0, 1)
            for block in (0, 1)
        ],
    ),
    "BERT": ("BertModel", TEXT, [(f"encoder.layer.*.attention.self.{FUSED}", "global", 64)]),
    "GPT-2": (
        "GPT2Model",
        {"vocab_size": 50, "n_embd": 32, "n_layer": 2, "n_head": 2, "bos_token_id": 1, "eos_token_id": 2},
        [(f"h.*.attn.{FUSED}", "global", 64)],
    ),
    "Mistral, windows": (
        "MistralModel",
        TEXT | {"num_key_value_heads": 1, "sliding_window": 6},
        [(f"layers.*.self_attn.{FUSED}", "local", 6)],
    ),
    "Mistral, windows wider than the sizes": (
        "MistralModel",
        TEXT | {"num_key_value_heads": 1, "sliding_window": 4096},
        [(f"layers.*.self_attn.{FUSED}", "unknown", None)],
    ),
    "RoCBert, zeros beside the words": (
        "RoCBertModel",
        TEXT | {"num_hidden_layers": 2},
        [(f"encoder.layer.*.attention.self.{FUSED}", "global", 64)],
    ),
    "FNet": (
        "FNetModel",
        {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64},
        [("encoder.layer.*.fourier.self._fft_c2c", "global", 64)],
    ),
    "Mixtral, experts": (
        "MixtralModel",
        TEXT | {"num_key_value_heads": 1, "num_local_experts": 4},
        [(f"layers.*.self_attn.{FUSED}", "global", 64)],
    ),
    "Longformer": (
        "LongformerModel",
        TEXT | {"attention_window": 4, "num_hidden_layers": 1},
        [(f"encoder.layer.0.attention.self.{name}", "local", 5) for name in ("bmm", "add_", "_softmax")],
    ),
    "Gemma 2, scores capped pair by pair": (
        "Gemma2Model",
        TEXT | {"num_key_value_heads": 1, "head_dim": 16, "sliding_window": 4, "num_hidden_layers": 2},
        [
            (f"layers.{layer}.self_attn.{name}", kind, reads)
            for layer, kind, reads in ((0, "local", 4), (1, "global", 64))
            for name in ("bmm", "mul", "div", "tanh", "mul", "add", "_softmax", "bmm")
        ],
    ),
    "Mamba": (
        "MambaModel",
        {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 1, "state_size": 4},
        [("layers.0.mixer.conv1d.convolution", "local", 4), ("layers.0.mixer.mul", "global", 64)],
    ),
    "Gemma 3, both": (
        "Gemma3ForCausalLM",
        TEXT
        | {"num_key_value_heads": 1, "head_dim": 16, "sliding_window": 8}
        | {"layer_types": ["sliding_attention", "full_attention"] * 2},
        [
            (f"model.layers.0-2:2.self_attn.{FUSED}", "local", 8),
            (f"model.layers.1-3:2.self_attn.{FUSED}", "global", 64),
        ],
    ),
}


@pytest.mark.rest
@pytest.mark.parametrize("name", MODELS)
def test_attention_of_transformers_is_found_and_all_else_is_per_token(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    model, settings, expected = MODELS[name]
    torch.manual_seed(0)
    made = getattr(transformers, model)
    module = made(made.config_class(**settings)).eval()
    inputs = {module.main_input_name: INPUTS[module.main_input_name]}
    ledger = xfcost.analyze(module, example_inputs=inputs, mixing=True, trace=False)
    mixing = [row for row in ledger.rows if row.mixing != "per-token"]
    assert [(re.sub(r"_\d+$", "", row.path), row.mixing, row.reads_tokens) for row in mixing] == expected
    assert all(row.content_dependent for row in mixing if row.mixes and row.macs and "conv" not in row.path)


SHALLOW: Final = ["stages.*.depth=1"]
FEW_WORDS: Final = ["stages.0.depth=1", "input.vocabulary=50"]
WINDOWS_OF_2: Final = ["stages.*.depth=2", "stages.*.pattern.*.0.size=2", "stages.*.pattern.1.0.shift=1"]
# Overrides, the size of the ledger, the sizes of the two builds with numbers.
PRESETS: Final[dict[str, tuple[list[str], Run, tuple[Run, Run]]]] = {
    "vit": (SHALLOW, Run(size=(224, 224)), (Run(size=(64, 64)), Run(size=(96, 96)))),
    "mixer-s16": (SHALLOW, Run(size=(224, 224)), (Run(size=(64, 64)), Run(size=(96, 96)))),
    "gpt2": (FEW_WORDS, Run(tokens=(100,)), (Run(tokens=(12,)), Run(tokens=(20,)))),
    "mamba-130m": (FEW_WORDS, Run(tokens=(100,)), (Run(tokens=(12,)), Run(tokens=(20,)))),
    "swin": (WINDOWS_OF_2, Run(size=(224, 224)), (Run(size=(96, 96)), Run(size=(160, 160)))),
}
QUICK: Final = ("gpt2",)


def built(preset: str, settings: list[str], run: Run) -> Built:
    live = build(place(load(preset, settings), run), "cpu")
    return live.model, Given(tuple(live.inputs), {})


# A map along tokens takes them transposed: torch leaves its bias, 256 for each of 512 channels, to an addition,
# which is per-token. The formulas count a map's bias with the map.
BIASES_ALONE = {"mixer-s16": 512 * 256}


def by_kind(ledger: Ledger) -> dict[str, tuple[int, int]]:
    kinds = ledger.by("mixing").items()
    return {kind: tuple(ledger.part(rows).total(name) or 0 for name in ("macs", "flops")) for kind, rows in kinds}


@pytest.mark.parametrize(
    "preset", [one if one in QUICK else pytest.param(one, marks=pytest.mark.rest) for one in PRESETS]
)
def test_totals_by_kind_of_a_preset_without_its_spec_are_the_formulas(preset: str) -> None:
    settings, run, sizes = PRESETS[preset]
    architecture = place(load(preset, settings), run)
    live = build(architecture)
    found = module_ledger(
        live.model,
        tuple(live.inputs),
        trace=False,
        mixing=math.inf,
        on_cpu=lambda: [built(preset, settings, one) for one in sizes],
    )
    expected = by_kind(count(architecture, orders=False))
    if bias := BIASES_ALONE.get(preset):
        for kind, flops in (("per-token", bias), ("global", -bias)):
            expected[kind] = (expected[kind][0], expected[kind][1] + flops)
    assert by_kind(found) == expected
