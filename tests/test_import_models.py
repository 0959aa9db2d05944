"""`xfcost import` of tiny configs, public ones and any fields: parameters and MACs as of the models in transformers."""

import json
import re
import shutil
import tempfile
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import fields

from hugging_face import CONFIGS, ours, placed, theirs, write
from modules import counted_by_torch
from strategies import both_accounts, exact
from transformers_models import parameters, transformers
from xfcost.api.analysis import analyze
from xfcost.importing.convert import FAMILIES, family_of
from xfcost.importing.family import COST_FREE, SUPPORTED_VALUES
from xfcost.ledger.errors import SpecError
from xfcost.spec.run import Run

TOKENS = 11
_BERT = {
    "vocab_size": 29, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20,
    "max_position_embeddings": 16, "num_labels": 5,
}  # fmt: skip
_GPT = {"vocab_size": 29, "n_embd": 12, "n_layer": 2, "n_head": 3, "num_labels": 5, "pad_token_id": 0}
_LLAMA = _BERT | {"num_key_value_heads": 1, "pad_token_id": 0}
_DEEPSEEK = _LLAMA | {
    "num_hidden_layers": 3, "num_key_value_heads": 3, "moe_intermediate_size": 7, "first_k_dense_replace": 1,
    "kv_lora_rank": 6, "q_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 2, "v_head_dim": 3,
    "n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 3, "n_group": 4, "topk_group": 2,
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
TINY = {
    "bert": _BERT, "roberta": _BERT, "xlm-roberta": _BERT,
    "distilbert": {
        "vocab_size": 29, "dim": 12, "n_layers": 2, "n_heads": 3, "hidden_dim": 20, "max_position_embeddings": 16,
    },
    "openai-gpt": _GPT | {"n_positions": 16}, "gpt2": _GPT | {"n_positions": 16},
    "bloom": {"vocab_size": 29, "hidden_size": 12, "n_layer": 2, "n_head": 3, "num_labels": 5, "pad_token_id": 0},
    "t5": _T5, "mt5": _T5, "llama": _LLAMA, "mistral": _LLAMA, "qwen2": _LLAMA,
    "mixtral": _LLAMA | {"num_local_experts": 4}, "deepseek_v2": _DEEPSEEK | {"topk_method": "group_limited_greedy"},
    "deepseek_v3": _DEEPSEEK,
    "mamba2": {
        "vocab_size": 29, "hidden_size": 12, "num_heads": 6, "head_dim": 4, "state_size": 5, "num_hidden_layers": 2,
        "n_groups": 2, "chunk_size": 4,
    },
    "mamba": {"vocab_size": 29, "hidden_size": 12, "state_size": 5, "num_hidden_layers": 2, "time_step_rank": 3},
    "rwkv": {"vocab_size": 29, "hidden_size": 12, "num_hidden_layers": 2, "intermediate_size": 20}, "vit": _VIT,
    "deit": _VIT,
    "pvt": {"hidden_sizes": [4, 8, 10, 8], "num_attention_heads": [1, 2, 5, 2], "image_size": 64, "num_labels": 5},
    "poolformer": {"hidden_sizes": [4, 6, 8, 10], "num_labels": 5},
    "convnext": {"hidden_sizes": [4, 6, 8], "depths": [1, 2, 1], "num_stages": 3, "image_size": 64, "num_labels": 5},
    "resnet": {"embedding_size": 4, "hidden_sizes": [8, 12, 16], "depths": [1, 2, 2], "num_labels": 5}, "swin": _SWIN,
    "swinv2": _SWIN,
}  # fmt: skip
EACH = [(kind, name) for kind in FAMILIES for name in family_of(kind).architectures]
# transformers' plain scan has a product in each of its steps, and its convolution more outputs.
SCANS = ("mamba", "mamba2")


def config(folder, kind, architecture, **more):
    values = {"model_type": kind, "architectures": [architecture]} | TINY[kind] | more
    return write(folder, values), values


def two_labels(architecture):
    """Where an answer starts and where it ends: transformers runs those heads with no others."""
    return {"num_labels": 2} if "bert" in architecture.lower() and "Question" in architecture else {}


def run_of(kind, architecture):
    """N tokens; an image has its own."""
    if "vocab_size" not in TINY[kind]:
        return Run()
    return Run(tokens=(TOKENS, 7) if kind in ("t5", "mt5") and not architecture.endswith("EncoderModel") else (TOKENS,))


def their_macs(model, values, run):
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
    return counted_by_torch(lambda: model(**inputs))[1]


# Many fields at once, each with a number of its own, beside TINY's.
_OTHER_BERT = {
    "hidden_size": 10, "num_attention_heads": 2, "intermediate_size": 23, "num_hidden_layers": 3, "vocab_size": 31,
}  # fmt: skip
_OTHER_LLAMA = {
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 23, "vocab_size": 31,
    "num_hidden_layers": 3, "tie_word_embeddings": True,
}  # fmt: skip
_OTHER_DEEPSEEK = {
    "num_hidden_layers": 4, "first_k_dense_replace": 2, "q_lora_rank": None, "kv_lora_rank": 10, "qk_nope_head_dim": 6,
    "qk_rope_head_dim": 4, "v_head_dim": 8, "n_routed_experts": 6, "n_shared_experts": 3, "num_experts_per_tok": 2,
    "n_group": 3, "topk_group": 1, "moe_intermediate_size": 5, "attention_bias": True, "tie_word_embeddings": True,
}  # fmt: skip
# its last stage has 15/2, rounded up: 8·8 tokens; 6·2.25 is rounded down
_OTHER_SWIN = {"image_size": 30, "window_size": 6, "mlp_ratio": 2.25, "qkv_bias": False, "depths": [1, 4]}
OTHER = {
    "bert": _OTHER_BERT | {"type_vocab_size": 3},
    "roberta": _OTHER_BERT | {"type_vocab_size": 3, "tie_word_embeddings": False},
    "distilbert": {"dim": 10, "n_heads": 2, "hidden_dim": 23, "n_layers": 3, "sinusoidal_pos_embds": True},
    "gpt2": {"n_inner": 23, "n_embd": 10, "n_head": 2, "n_layer": 3, "tie_word_embeddings": False},
    "bloom": {"hidden_size": 10, "n_head": 2, "n_layer": 3, "tie_word_embeddings": False},
    "t5": {
        "d_kv": 7, "num_heads": 2, "num_layers": 3, "num_decoder_layers": 1, "feed_forward_proj": "gated-gelu",
        "relative_attention_num_buckets": 10, "tie_word_embeddings": False,
    },
    "llama": _OTHER_LLAMA | {"attention_bias": True, "mlp_bias": True},
    "mistral": _OTHER_LLAMA | {"sliding_window": 40},
    "qwen2": _OTHER_LLAMA,
    "mixtral": _OTHER_LLAMA | {"num_local_experts": 5, "num_experts_per_tok": 3},
    "deepseek_v2": _OTHER_DEEPSEEK | {"topk_method": "greedy"},
    "deepseek_v3": _OTHER_DEEPSEEK | {"norm_topk_prob": False},
    "mamba": {"state_size": 7, "expand": 3, "conv_kernel": 3, "time_step_rank": "auto"},
    "mamba2": {"state_size": 7, "conv_kernel": 3, "n_groups": 3, "tie_word_embeddings": True},
    "rwkv": {"hidden_size": 10, "intermediate_size": None, "tie_word_embeddings": True},
    "vit": {"qkv_bias": False, "intermediate_size": 23, "patch_size": 2, "image_size": [6, 8], "num_hidden_layers": 3},
    "pvt": {
        "depths": [1, 2, 1, 3], "mlp_ratios": [3, 2, 5, 4], "sequence_reduction_ratios": [4, 2, 1, 1],
        "patch_sizes": [4, 2, 2, 2], "strides": [4, 2, 2, 2],
    },
    "poolformer": {"mlp_ratio": 1.5, "depths": [1, 2, 1, 3], "use_layer_scale": False},
    "convnext": {"depths": [2, 1, 3], "hidden_sizes": [5, 6, 9], "patch_size": 2, "layer_scale_init_value": 0.0},
    "resnet": {"layer_type": "basic", "depths": [2, 1, 3], "downsample_in_first_stage": True},
    "swin": _OTHER_SWIN | {"window_size": 8},  # the whole of it
    "swinv2": _OTHER_SWIN,
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "architecture", "more"),
    [pytest.param(kind, name, two_labels(name), id=f"tiny-{kind}-{name}") for kind, name in EACH]
    + [pytest.param(kind, family_of(kind).architectures[0], more, id=f"other-{kind}") for kind, more in OTHER.items()],
)
def test_fields_have_their_parameters_and_macs(kind, architecture, more, tmp_path):
    path, values = config(tmp_path, kind, architecture, **more)
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
def test_the_spec_runs_and_every_row_is_what_the_trace_sees(kind, architecture, tmp_path):
    path, _ = config(tmp_path, kind, architecture, **two_labels(architecture))
    _, architecture_ = placed(path, run_of(kind, architecture)._replace(batch=2))
    exact(both_accounts(architecture_))


# `xfcost import` on configs as the public models' are: parameters to the unit beside the model transformers builds


NAMES = sorted(path.stem for path in CONFIGS.glob("*.json"))


@pytest.mark.parametrize("name", NAMES)
def test_a_full_config_has_their_parameters(name, tmp_path):
    path = Path(shutil.copy(CONFIGS / f"{name}.json", tmp_path))
    values = json.loads(path.read_text())
    assert ours(path).total("params") == parameters(theirs(values, values["architectures"][0]))


# Fields of a config: missing ones are transformers' defaults; any within range give its parameters, or are refused


# Fields of ours that transformers keeps elsewhere (in rope_parameters), and a length that is N alone.
ELSEWHERE = {"rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor", "seq_length", "num_labels"}
# What transformers works out where it is null.
WORKED_OUT = {
    "num_key_value_heads", "head_dim", "num_decoder_layers", "time_step_rank", "pooler_output_size",
    "attention_hidden_size", "scale_decoder_outputs", "intermediate_size", "sliding_window", "layer_types",
}  # fmt: skip


@pytest.mark.parametrize("kind", FAMILIES)
def test_missing_fields_are_their_defaults(kind):
    known = transformers.AutoConfig.for_model(kind)
    family = family_of(kind)()
    for field in fields(family):
        value = getattr(family, field.name)
        if field.name in ELSEWHERE or (field.name in WORKED_OUT and value in (None, "auto")):
            continue
        if kind == "qwen2" and field.name == "sliding_window":
            continue  # null, where use_sliding_window is false
        theirs = getattr(known, field.name)
        assert value == (list(theirs) if isinstance(theirs, tuple) else theirs), field.name
    if rope := getattr(known, "rope_parameters", None):
        assert family_of(kind).default_theta == rope["rope_theta"]


@pytest.mark.parametrize("kind", FAMILIES)
def test_every_field_of_a_config_that_transformers_saves_is_known(kind, tmp_path):
    """Nothing that it writes by itself is refused."""
    config = transformers.AutoConfig.for_model(kind, **TINY[kind])
    config.architectures = [family_of(kind).architectures[0]]
    config.save_pretrained(tmp_path)
    ledger = ours(tmp_path / "config.json", Run())
    with torch.device("meta"):
        model = getattr(transformers, config.architectures[0])(transformers.AutoConfig.from_pretrained(tmp_path))
    assert ledger.total("params") == parameters(model)


@pytest.mark.parametrize("kind", FAMILIES)
def test_no_field_is_both_supported_and_left_out(kind):
    family = family_of(kind)
    own = set(family.__struct_fields__) | set(family.aliases)
    assert not own & (family.cost_free | set(family.mirrors))
    assert not COST_FREE & (set(SUPPORTED_VALUES) | set(family.supported_values) | set(family.mirrors))
    assert set(transformers.GenerationConfig._get_default_generation_params()) <= COST_FREE


def test_heads_are_as_wide_as_the_config_says(tmp_path):
    """Mistral NeMo: 32 heads of 128 in a width of 5120; its checkpoint has 12,247,782,400 parameters."""
    fields = {"hidden_size": 5120, "head_dim": 128, "vocab_size": 131_072, "num_hidden_layers": 40}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mistral", "sliding_window": None} | fields))
    layer = 2 * 5120 * 32 * 128 + 2 * 5120 * 8 * 128 + 3 * 5120 * 14_336 + 2 * 5120
    assert 40 * layer + 2 * 131_072 * 5120 + 5120 == 12_247_782_400
    ledger = analyze(str(tmp_path / "config.json"), mode="decode", N=100, trace=False)
    assert ledger.total("params") == 12_247_782_400
    assert ledger.cache.bytes_per_token == 40 * 2 * 8 * 128 * ledger.bytes_per_element


def numbers(*names, low=1, high=24):
    return dict.fromkeys(names, st.integers(low, high))


MAYBE = st.booleans()
TIED = {"tie_word_embeddings": MAYBE}
ACTS = st.sampled_from(["gelu", "gelu_new", "relu", "silu", "quick_gelu", "relu6"])
_ANY_BERT = numbers(
    "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "type_vocab_size",
    "max_position_embeddings", "vocab_size", "num_labels",
) | TIED | {"hidden_act": ACTS, "is_decoder": MAYBE}  # fmt: skip
_ANY_GPT = numbers("n_embd", "n_layer", "n_head", "n_positions", "num_labels") | TIED
_ANY_LLAMA = numbers(
    "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size"
) | {
    "head_dim": st.none() | st.integers(1, 9),
    "hidden_act": ACTS,
    "tie_word_embeddings": MAYBE,
    "rope_theta": st.sampled_from([10000.0, 5e5]),
}
_ANY_DEEPSEEK = numbers(
    "num_hidden_layers", "first_k_dense_replace", "kv_lora_rank", "qk_nope_head_dim", "v_head_dim",
    "n_routed_experts", "n_shared_experts", "num_experts_per_tok", "n_group", "topk_group", high=8,
) | {
    "q_lora_rank": st.none() | st.integers(1, 9), "qk_rope_head_dim": st.integers(1, 6), "hidden_act": ACTS,
    "attention_bias": MAYBE, "tie_word_embeddings": MAYBE, "first_k_dense_replace": st.integers(0, 4),
}  # fmt: skip
_ANY_T5 = numbers("d_model", "d_kv", "num_heads", "num_layers", "num_decoder_layers", "d_ff") | {
    "feed_forward_proj": st.sampled_from(["relu", "gelu", "gated-gelu", "gated-silu", "gated-relu", "silu"]),
    "relative_attention_num_buckets": st.integers(4, 40),
    "tie_word_embeddings": MAYBE,
}
_ANY_VIT = numbers(
    "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "num_channels", "num_labels",
    "pooler_output_size",
) | {
    "qkv_bias": MAYBE,
    "hidden_act": ACTS,
    "patch_size": st.integers(1, 4) | st.just([2, 4]),
    "image_size": st.integers(4, 12) | st.lists(st.integers(4, 12), min_size=2, max_size=2),
}  # fmt: skip
_ANY_SWIN = {
    "embed_dim": st.sampled_from([4, 6, 12]), "depths": st.lists(st.integers(1, 4), min_size=1, max_size=3),
    "num_heads": st.lists(st.integers(1, 3), min_size=1, max_size=3), "window_size": st.integers(1, 6),
    "image_size": st.sampled_from([8, 16, 24, [16, 24], 30]), "patch_size": st.sampled_from([1, 2, 4]),
    "mlp_ratio": st.sampled_from([1.5, 2.0, 4.0]), "qkv_bias": MAYBE, "hidden_act": ACTS,
    "use_absolute_embeddings": MAYBE,
}  # fmt: skip
DRAWN = {
    "bert": _ANY_BERT,
    "roberta": _ANY_BERT,
    "xlm-roberta": _ANY_BERT,
    "distilbert": numbers("dim", "n_layers", "n_heads", "hidden_dim", "vocab_size")
    | TIED
    | {"activation": ACTS, "sinusoidal_pos_embds": MAYBE},
    "openai-gpt": _ANY_GPT | {"afn": ACTS},
    "gpt2": _ANY_GPT
    | {"n_inner": st.none() | st.integers(1, 20), "activation_function": ACTS, "scale_attn_weights": MAYBE},
    "bloom": numbers("hidden_size", "n_layer", "n_head") | TIED,
    "t5": _ANY_T5,
    "mt5": _ANY_T5,
    "llama": _ANY_LLAMA | {"attention_bias": MAYBE, "mlp_bias": MAYBE},
    "mistral": _ANY_LLAMA | {"sliding_window": st.none() | st.integers(1, 40)},
    "qwen2": _ANY_LLAMA | {"use_sliding_window": MAYBE, "head_dim": st.integers(1, 9)},
    "mixtral": _ANY_LLAMA | numbers("num_experts_per_tok", "num_local_experts", high=6),
    "deepseek_v2": _ANY_DEEPSEEK | {"topk_method": st.sampled_from(["greedy", "group_limited_greedy"])},
    "deepseek_v3": _ANY_DEEPSEEK | {"norm_topk_prob": MAYBE},
    "mamba2": numbers("state_size", "num_hidden_layers", "conv_kernel", "chunk_size")
    | {"tie_word_embeddings": MAYBE, "n_groups": st.integers(1, 6), "use_conv_bias": MAYBE},
    "mamba": numbers("hidden_size", "state_size", "num_hidden_layers", "expand", "conv_kernel")
    | TIED
    | {"time_step_rank": st.just("auto") | st.integers(1, 9), "use_bias": MAYBE},
    "rwkv": numbers("hidden_size", "num_hidden_layers", "intermediate_size") | {"tie_word_embeddings": MAYBE},
    "vit": _ANY_VIT,
    "deit": _ANY_VIT,
    "pvt": numbers("num_labels")
    | {
        "depths": st.lists(st.integers(1, 3), min_size=3, max_size=4), "hidden_act": ACTS,
        "image_size": st.sampled_from([32, 64, 96]),
    },
    "poolformer": numbers("num_labels")
    | {
        "use_layer_scale": MAYBE, "mlp_ratio": st.sampled_from([1.5, 2.0]), "pool_size": st.integers(1, 5),
        "hidden_act": ACTS,
    },
    "convnext": numbers("num_labels", "patch_size")
    | {"layer_scale_init_value": st.sampled_from([0.0, 1e-6]), "num_stages": st.integers(2, 4), "hidden_act": ACTS},
    "resnet": numbers("num_labels", "embedding_size")
    | {
        "layer_type": st.sampled_from(["basic", "bottleneck"]), "downsample_in_first_stage": MAYBE,
        "hidden_sizes": st.lists(st.integers(1, 20), min_size=2, max_size=3), "downsample_in_bottleneck": MAYBE,
    },
    "swin": _ANY_SWIN,
    "swinv2": _ANY_SWIN,
}  # fmt: skip


def test_every_family_is_tried():
    assert TINY.keys() == DRAWN.keys() == FAMILIES.keys()


@pytest.mark.parametrize("kind", FAMILIES)
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_fields_give_their_parameters_or_are_refused_by_name(kind, data):
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
def test_a_deepseek_of_fewer_layers_than_dense_ones_has_no_experts(dense, layers, tmp_path):
    values = {"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"]} | TINY["deepseek_v3"]
    values |= {"first_k_dense_replace": dense, "num_hidden_layers": layers}
    ledger = ours(write(tmp_path, values))
    assert ledger.total("params") == parameters(theirs(values, "DeepseekV3ForCausalLM"))
    assert any("expert" in row.path for row in ledger.rows) == (dense < layers)


SCALED = {"rope_type": "linear", "factor": 2.0}


@pytest.mark.parametrize(
    ("rope", "theta"),
    [
        ({}, 10000.0), ({"rope_theta": 5e5}, 5e5), ({"rope_theta": 5e5, "rope_scaling": SCALED}, 5e5),
        ({"rope_scaling": SCALED}, 10000.0), ({"rope_parameters": SCALED | {"rope_theta": 3e5}}, 3e5),
        ({"rope_theta": 3e5, "rope_parameters": SCALED | {"rope_theta": 3e5}}, 3e5),
    ],
)  # fmt: skip
def test_theta_is_that_of_the_config_wherever_it_stands(rope, theta, tmp_path):
    values = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]} | TINY["llama"] | rope
    _, architecture = placed(write(tmp_path, values))
    attention = [part.component for part, *_ in architecture.parts() if hasattr(part.component, "rope_base")]
    assert {one.rope_base for one in attention} == {theta}
    fields = deepcopy({name: value for name, value in values.items() if name != "architectures"})
    assert transformers.AutoConfig.for_model(**fields).rope_parameters["rope_theta"] == theta


def _components(kind, architecture, folder, **more):
    """Of the spec that a small config makes."""
    _, made = placed(write(folder, {"model_type": kind, "architectures": [architecture]} | TINY[kind] | more))
    return [part.component for part, *_ in made.parts()]


@pytest.mark.parametrize("size", [3, 4, 7])
def test_windows_are_shifted_as_theirs_are(size, tmp_path):
    name, fields = "SwinForImageClassification", {"window_size": size}
    swin = theirs({"model_type": "swin"} | TINY["swin"] | fields, name).swin
    shifts = {block.shift_size for layer in swin.encoder.layers for block in layer.blocks}
    assert {one.shift for one in _components("swin", name, tmp_path, **fields) if hasattr(one, "shift")} == shifts


def test_windows_that_theirs_clips_to_an_odd_grid_halved_are_refused(tmp_path):
    """15 tokens along an axis become 8, and theirs are cut into windows of 15 // 2, padded."""
    name, fields = "Swinv2ForImageClassification", {"image_size": 30, "window_size": 8}
    model = theirs({"model_type": "swinv2"} | TINY["swinv2"] | fields, name)
    assert model.swinv2.encoder.layers[1].blocks[0].window_size == 7
    for size in (7, 8):
        with pytest.raises(SpecError, match="window_size"):
            _components("swinv2", name, tmp_path, **fields | {"window_size": size})
    assert _components("swinv2", name, tmp_path, **fields | {"window_size": 6})


@pytest.mark.parametrize("fields", [{}, {"scale_attn_weights": False}, {"scale_attn_weights": True}])
def test_gpt2_s_scores_are_scaled_where_theirs_are(fields, tmp_path):
    (attention,) = (one for one in _components("gpt2", "GPT2Model", tmp_path, **fields) if hasattr(one, "scaled"))
    their_block = theirs({"model_type": "gpt2"} | TINY["gpt2"] | fields, "GPT2Model").h[0].attn
    assert attention.scaled == their_block.scale_attn_weights


@pytest.mark.parametrize("fields", [(32, 64), (32, 128), (16, 128), (8, 20)])
def test_t5_s_buckets_reach_as_far_as_theirs(fields, tmp_path):
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
def test_weights_of_experts_are_normalized_and_scaled_as_the_config_says(kind, fields, expected, tmp_path):
    name = family_of(kind).architectures[0]
    (moe,) = (one for one in _components(kind, name, tmp_path, **fields) if hasattr(one, "normalize"))
    assert (moe.normalize, moe.scale) == expected
    config = transformers.AutoConfig.for_model(kind, **(TINY[kind] | fields))
    assert (config.norm_topk_prob, config.routed_scaling_factor) == (moe.normalize, moe.scale or 1.0)


@pytest.mark.parametrize(("window", "written"), [(15, 15), (16, None), (17, None), (None, None)])
def test_a_window_is_written_where_it_is_shorter_than_the_context(window, written, tmp_path):
    values = {"model_type": "mistral", "architectures": ["MistralForCausalLM"]} | TINY["mistral"]  # 16 positions
    _, architecture = placed(write(tmp_path, values | {"sliding_window": window}))
    assert {getattr(one.part.component, "window", None) for one in architecture.parts()} == {None, written}
