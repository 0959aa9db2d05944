"""Fields of a config: missing ones are transformers' defaults; any within range give its parameters, or are refused."""

from __future__ import annotations

import re
import tempfile
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import fields

from hugging_face import ours, placed, theirs, write
from test_import_tiny import TINY
from transformers_models import parameters, transformers
from xfcost.importing.common import COST_FREE, SUPPORTED_VALUES
from xfcost.importing.families import FAMILIES, family_of
from xfcost.ledger.errors import SpecError
from xfcost.spec.load import load
from xfcost.spec.run import Run

# Fields of ours that transformers keeps elsewhere (in rope_parameters), and a length that is N alone.
ELSEWHERE = {"rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor", "seq_length", "num_labels"}
# What transformers works out where it is null.
WORKED_OUT = {
    "num_key_value_heads",
    "head_dim",
    "num_decoder_layers",
    "time_step_rank",
    "pooler_output_size",
    "attention_hidden_size",
    "scale_decoder_outputs",
    "intermediate_size",
    "sliding_window",
    "layer_types",
}


@pytest.mark.parametrize("kind", FAMILIES)
def test_missing_fields_are_their_defaults(kind: str) -> None:
    known = transformers.AutoConfig.for_model(kind)
    family = family_of(kind)()
    for field in fields(family):
        if field.name in ELSEWHERE:
            continue
        value = getattr(family, field.name)
        if field.name in WORKED_OUT and value in (None, "auto"):
            continue
        if kind == "qwen2" and field.name == "sliding_window":
            continue  # null, where use_sliding_window is false
        theirs = getattr(known, field.name)
        assert value == (list(theirs) if isinstance(theirs, tuple) else theirs), field.name


@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen2", "mixtral", "deepseek_v2", "deepseek_v3"])
def test_theta_is_theirs(kind: str) -> None:
    rope = transformers.AutoConfig.for_model(kind).rope_parameters
    assert family_of(kind).default_theta == rope["rope_theta"]


@pytest.mark.parametrize("kind", FAMILIES)
def test_every_field_of_a_config_that_transformers_saves_is_known(kind: str, tmp_path: Path) -> None:
    """Nothing that it writes by itself is refused."""
    config = transformers.AutoConfig.for_model(kind, **TINY[kind])
    config.architectures = [family_of(kind).architectures[0]]
    config.save_pretrained(tmp_path)
    ledger = ours(tmp_path / "config.json", Run())
    with torch.device("meta"):
        model = getattr(transformers, config.architectures[0])(transformers.AutoConfig.from_pretrained(tmp_path))
    assert ledger.total("params") == parameters(model)


@pytest.mark.parametrize("kind", FAMILIES)
def test_no_field_is_both_supported_and_left_out(kind: str) -> None:
    family = family_of(kind)
    own = set(family.__struct_fields__) | set(family.aliases)
    assert not own & (family.cost_free | set(family.mirrors))
    assert not COST_FREE & (set(SUPPORTED_VALUES) | set(family.supported_values) | set(family.mirrors))


def test_what_the_generation_of_text_needs_is_known() -> None:
    assert set(transformers.GenerationConfig._get_default_generation_params()) <= COST_FREE


def numbers(*names: str, low: int = 1, high: int = 24) -> dict[str, st.SearchStrategy[Any]]:
    return dict.fromkeys(names, st.integers(low, high))


ACTS = st.sampled_from(["gelu", "gelu_new", "relu", "silu", "quick_gelu", "relu6"])
_BERT = numbers(
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "type_vocab_size",
    "max_position_embeddings",
    "vocab_size",
    "num_labels",
) | {"hidden_act": ACTS, "is_decoder": st.booleans(), "tie_word_embeddings": st.booleans()}
_GPT = numbers("n_embd", "n_layer", "n_head", "n_positions", "num_labels") | {"tie_word_embeddings": st.booleans()}
_LLAMA = numbers(
    "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size"
) | {
    "head_dim": st.none() | st.integers(1, 9),
    "hidden_act": ACTS,
    "tie_word_embeddings": st.booleans(),
    "rope_theta": st.sampled_from([10000.0, 5e5]),
}
_DEEPSEEK = numbers(
    "num_hidden_layers",
    "first_k_dense_replace",
    "kv_lora_rank",
    "qk_nope_head_dim",
    "v_head_dim",
    "n_routed_experts",
    "n_shared_experts",
    "num_experts_per_tok",
    "n_group",
    "topk_group",
    high=8,
) | {
    "q_lora_rank": st.none() | st.integers(1, 9),
    "qk_rope_head_dim": st.integers(1, 6),
    "hidden_act": ACTS,
    "attention_bias": st.booleans(),
    "tie_word_embeddings": st.booleans(),
    "first_k_dense_replace": st.integers(0, 4),
}
_T5 = numbers("d_model", "d_kv", "num_heads", "num_layers", "num_decoder_layers", "d_ff") | {
    "feed_forward_proj": st.sampled_from(["relu", "gelu", "gated-gelu", "gated-silu", "gated-relu", "silu"]),
    "relative_attention_num_buckets": st.integers(4, 40),
    "tie_word_embeddings": st.booleans(),
}
_VIT = numbers(
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "num_channels",
    "num_labels",
    "pooler_output_size",
) | {
    "qkv_bias": st.booleans(),
    "hidden_act": ACTS,
    "patch_size": st.integers(1, 4) | st.just([2, 4]),
    "image_size": st.integers(4, 12) | st.lists(st.integers(4, 12), min_size=2, max_size=2),
}
_SWIN = {
    "embed_dim": st.sampled_from([4, 6, 12]),
    "depths": st.lists(st.integers(1, 4), min_size=1, max_size=3),
    "num_heads": st.lists(st.integers(1, 3), min_size=1, max_size=3),
    "window_size": st.integers(1, 6),
    "image_size": st.sampled_from([8, 16, 24, [16, 24], 30]),
    "patch_size": st.sampled_from([1, 2, 4]),
    "mlp_ratio": st.sampled_from([1.5, 2.0, 4.0]),
    "qkv_bias": st.booleans(),
    "hidden_act": ACTS,
    "use_absolute_embeddings": st.booleans(),
}
DRAWN: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "bert": _BERT,
    "roberta": _BERT,
    "xlm-roberta": _BERT,
    "distilbert": numbers("dim", "n_layers", "n_heads", "hidden_dim", "vocab_size")
    | {"tie_word_embeddings": st.booleans(), "activation": ACTS, "sinusoidal_pos_embds": st.booleans()},
    "openai-gpt": _GPT | {"afn": ACTS},
    "gpt2": _GPT
    | {"n_inner": st.none() | st.integers(1, 20), "activation_function": ACTS, "scale_attn_weights": st.booleans()},
    "bloom": numbers("hidden_size", "n_layer", "n_head") | {"tie_word_embeddings": st.booleans()},
    "t5": _T5,
    "mt5": _T5,
    "llama": _LLAMA | {"attention_bias": st.booleans(), "mlp_bias": st.booleans()},
    "mistral": _LLAMA | {"sliding_window": st.none() | st.integers(1, 40)},
    "qwen2": _LLAMA | {"use_sliding_window": st.booleans(), "head_dim": st.integers(1, 9)},
    "mixtral": _LLAMA | numbers("num_experts_per_tok", "num_local_experts", high=6),
    "deepseek_v2": _DEEPSEEK | {"topk_method": st.sampled_from(["greedy", "group_limited_greedy"])},
    "deepseek_v3": _DEEPSEEK | {"norm_topk_prob": st.booleans()},
    "mamba2": numbers("state_size", "num_hidden_layers", "conv_kernel", "chunk_size")
    | {"tie_word_embeddings": st.booleans(), "n_groups": st.integers(1, 6), "use_conv_bias": st.booleans()},
    "mamba": numbers("hidden_size", "state_size", "num_hidden_layers", "expand", "conv_kernel")
    | {
        "time_step_rank": st.just("auto") | st.integers(1, 9),
        "tie_word_embeddings": st.booleans(),
        "use_bias": st.booleans(),
    },
    "rwkv": numbers("hidden_size", "num_hidden_layers", "intermediate_size") | {"tie_word_embeddings": st.booleans()},
    "vit": _VIT,
    "deit": _VIT,
    "pvt": numbers("num_labels")
    | {
        "depths": st.lists(st.integers(1, 3), min_size=3, max_size=4),
        "hidden_act": ACTS,
        "image_size": st.sampled_from([32, 64, 96]),
    },
    "poolformer": numbers("num_labels")
    | {
        "use_layer_scale": st.booleans(),
        "mlp_ratio": st.sampled_from([1.5, 2.0]),
        "pool_size": st.integers(1, 5),
        "hidden_act": ACTS,
    },
    "convnext": numbers("num_labels", "patch_size")
    | {"layer_scale_init_value": st.sampled_from([0.0, 1e-6]), "num_stages": st.integers(2, 4), "hidden_act": ACTS},
    "resnet": numbers("num_labels", "embedding_size")
    | {
        "layer_type": st.sampled_from(["basic", "bottleneck"]),
        "downsample_in_first_stage": st.booleans(),
        "hidden_sizes": st.lists(st.integers(1, 20), min_size=2, max_size=3),
        "downsample_in_bottleneck": st.booleans(),
    },
    "swin": _SWIN,
    "swinv2": _SWIN,
}


def test_every_family_is_drawn() -> None:
    assert DRAWN.keys() == FAMILIES.keys()


@pytest.mark.parametrize("kind", FAMILIES)
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_fields_give_their_parameters_or_are_refused_by_name(kind: str, data: st.DataObject) -> None:
    drawn = data.draw(st.fixed_dictionaries({}, optional=DRAWN[kind]))
    architecture = data.draw(st.sampled_from(family_of(kind).architectures))
    values = {"model_type": kind, "architectures": [architecture]} | TINY[kind] | drawn
    total, said = None, ""
    with tempfile.TemporaryDirectory() as folder:
        try:
            path = write(Path(folder), values)
            total = ours(path).total("params")
        except SpecError as error:
            said = str(error)
    if said:
        # the field at fault, or, where that is missing and has its default, one of the file that it can't stand beside
        assert re.search(r"config\.json(?::1)? \w+", said), said
        assert values.keys() & set(re.findall(r"\w+", said.partition("config.json")[2])), said
        return
    assert total == parameters(theirs(values, architecture))


@pytest.mark.parametrize(("dense", "layers"), [(0, 2), (1, 2), (2, 2), (3, 2), (5, 1)])
def test_a_deepseek_of_fewer_layers_than_dense_ones_has_no_experts(dense: int, layers: int, tmp_path: Path) -> None:
    values = {"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"]} | TINY["deepseek_v3"]
    values |= {"first_k_dense_replace": dense, "num_hidden_layers": layers}
    ledger = ours(write(tmp_path, values))
    assert ledger.total("params") == parameters(theirs(values, "DeepseekV3ForCausalLM"))
    assert any("expert" in row.path for row in ledger.rows) == (dense < layers)


SCALED = {"rope_type": "linear", "factor": 2.0}


@pytest.mark.parametrize(
    ("rope", "theta"),
    [
        ({}, 10000.0),
        ({"rope_theta": 5e5}, 5e5),
        ({"rope_theta": 5e5, "rope_scaling": SCALED}, 5e5),
        ({"rope_scaling": SCALED}, 10000.0),
        ({"rope_parameters": SCALED | {"rope_theta": 3e5}}, 3e5),
        ({"rope_theta": 3e5, "rope_parameters": SCALED | {"rope_theta": 3e5}}, 3e5),
    ],
)
def test_theta_is_that_of_the_config_wherever_it_stands(rope: dict[str, Any], theta: float, tmp_path: Path) -> None:
    values = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]} | TINY["llama"] | rope
    _, architecture = placed(write(tmp_path, values))
    attention = [part.component for part, *_ in architecture.parts() if hasattr(part.component, "rope_base")]
    assert {one.rope_base for one in attention} == {theta}
    fields = deepcopy({name: value for name, value in values.items() if name != "architectures"})
    assert transformers.AutoConfig.for_model(**fields).rope_parameters["rope_theta"] == theta


def _components(kind: str, architecture: str, folder: Path, **more: Any) -> list[Any]:
    """Of the spec that a small config makes."""
    _, made = placed(write(folder, {"model_type": kind, "architectures": [architecture]} | TINY[kind] | more))
    return [part.component for part, *_ in made.parts()]


@pytest.mark.parametrize("size", [3, 4, 7])
def test_windows_are_shifted_as_theirs_are(size: int, tmp_path: Path) -> None:
    name = "SwinForImageClassification"
    ours_ = _components("swin", name, tmp_path, window_size=size)
    values = {"model_type": "swin"} | TINY["swin"] | {"window_size": size}
    blocks = [block for layer in theirs(values, name).swin.encoder.layers for block in layer.blocks]
    assert {one.shift for one in ours_ if hasattr(one, "shift")} == {block.shift_size for block in blocks}


@pytest.mark.parametrize("fields", [{}, {"scale_attn_weights": False}, {"scale_attn_weights": True}])
def test_gpt2_s_scores_are_scaled_where_theirs_are(fields: dict[str, bool], tmp_path: Path) -> None:
    (attention,) = (one for one in _components("gpt2", "GPT2Model", tmp_path, **fields) if hasattr(one, "scaled"))
    their_block = theirs({"model_type": "gpt2"} | TINY["gpt2"] | fields, "GPT2Model").h[0].attn
    assert attention.scaled == their_block.scale_attn_weights


@pytest.mark.parametrize("fields", [(32, 64), (32, 128), (16, 128), (8, 20)])
def test_t5_s_buckets_reach_as_far_as_theirs(fields: tuple[int, int], tmp_path: Path) -> None:
    names = ("relative_attention_num_buckets", "relative_attention_max_distance")
    given = dict(zip(names, fields, strict=True))
    biases = [getattr(one, "bias", None) for one in _components("t5", "T5EncoderModel", tmp_path, **given)]
    assert {(one.count, one.distance) for one in biases if hasattr(one, "distance")} == {fields}


@pytest.mark.parametrize(
    ("kind", "fields", "expected"),
    [
        ("deepseek_v2", {}, (False, None)),  # a factor of 1
        ("deepseek_v2", {"routed_scaling_factor": 2.5}, (False, 2.5)),
        ("deepseek_v3", {}, (True, 2.5)),
        ("deepseek_v3", {"norm_topk_prob": False, "routed_scaling_factor": 1.0}, (False, None)),
    ],
)
def test_weights_of_experts_are_normalized_and_scaled_as_the_config_says(
    kind: str, fields: dict[str, Any], expected: tuple[bool, float | None], tmp_path: Path
) -> None:
    name = family_of(kind).architectures[0]
    (moe,) = (one for one in _components(kind, name, tmp_path, **fields) if hasattr(one, "normalize"))
    assert (moe.normalize, moe.scale) == expected
    config = transformers.AutoConfig.for_model(kind, **(TINY[kind] | fields))
    assert (config.norm_topk_prob, config.routed_scaling_factor) == (moe.normalize, moe.scale or 1.0)


@pytest.mark.parametrize(("window", "noted"), [(15, True), (16, False), (17, False)])
def test_a_window_is_noted_where_it_is_shorter_than_the_context(window: int, noted: bool, tmp_path: Path) -> None:
    values = {"model_type": "mistral", "architectures": ["MistralForCausalLM"]} | TINY["mistral"]  # 16 positions
    spec, _ = placed(write(tmp_path, values | {"sliding_window": window}))
    assert ("notes" in spec.data) == noted


def test_a_spec_made_is_as_good_as_one_written(tmp_path: Path) -> None:
    path = write(tmp_path, {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]})
    assert ours(path).total("params") == 124_439_808
    assert load(str(path.with_suffix(".yaml")), ["stages.0.depth=1"]).spec.stages[0].depth == 1
