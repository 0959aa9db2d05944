"""What `xfcost import` refuses: every message names the field (or the line and column), and says how to mend."""

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from helpers import error_of, stdout_of, xf
from hugging_face import CONFIGS, write
from specs import counted
from xfcost.importing import import_config
from xfcost.importing.convert import FAMILIES
from xfcost.ledger.errors import SpecError
from xfcost.spec.load import load
from xfcost.spec.reader import read
from xfcost.spec.show import WIDTH, spec_text

BERT = {"model_type": "bert", "architectures": ["BertModel"]}
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}

NO_CONFIG = [
    "", "  \n", "7", '{\n "model_type": "bert",\n}', "model_type: bert", '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}",
    '{"model_type": "bert",\n"x": {"a": 1, "a": 2}}', '{"model_type": "llama", "hidden_size": -Infinity}',
    '{"model_type": "llama", "rope_theta": 1e999}', '{"model_type": "llama", "rope_scaling": {"factor": [NaN]}}',
    '{"hidden_size": ' + "9" * 10_000 + "}", '{"hidden_size": 768}', '{"model_type": 7}', '{"model_type": null}',
]  # fmt: skip


@pytest.mark.parametrize("text", NO_CONFIG, ids=range(len(NO_CONFIG)))
def test_what_is_no_config_is_refused_in_one_line(text, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(SpecError) as error:
        import_config(path)
    assert str(error.value).startswith(f"{path}:")
    assert "\n" not in str(error.value)


# Fields of a family's config, of which the last is refused by its name.
REFUSED = {
    "bert": [
        {"position_embedding_type": "relative_key"}, {"hidden_act": "relu6"}, {"hidden_act": 3},
        {"num_attention_heads": 5}, {"num_attention_heads": 0}, {"hidden_size": "768"}, {"hidden_size": None},
        {"hidden_size": True}, {"hidden_size": 768.5}, {"hidden_size": [768]}, {"hidden_size": -768},
        {"hidden_size": 10**30}, {"num_hidden_layers": 0}, {"is_decoder": "yes"}, {"add_cross_attention": True},
        {"is_encoder_decoder": True}, {"pruned_heads": {"0": [1]}}, {"embedding_size": 128}, {"hidden_sise": 128},
        {"id2label": ["a"]}, {"id2label": {}}, {"id2label": {"0": "a"}, "num_labels": 3}, {"num_labels": 0},
        {"architectures": "BertModel"}, {"architectures": [7]}, {"architectures": ["GPT2Model"]},
        {"architectures": ["BertForMaskedLM"], "tie_word_embeddings": False},
        {"architectures": ["BertForQuestionAnswering"], "num_labels": 3},
        {"architectures": ["BertForQuestionAnswering"], "id2label": {"0": "a"}},
    ],
    "roberta": [{"max_position_embeddings": 2}, {"pad_token_id": -1}],
    "gpt2": [
        {"n_embd": 12, "hidden_size": 24}, {"hidden_size": 770, "n_head": 12}, {"num_attention_heads": 5},
        {"activation_function": "mish"}, {"add_cross_attention": True},
    ],
    "openai-gpt": [{"afn": "gelu_new"}],
    "bloom": [{"apply_residual_connection_post_layernorm": True}, {"n_inner": 99}],
    "t5": [
        {"feed_forward_proj": "gated-relu"}, {"feed_forward_proj": "sated-gelu"},
        {"relative_attention_max_distance": 16}, {"is_decoder": True},
    ],
    "llama": [
        {"num_key_value_heads": 5}, {"num_attention_heads": 30}, {"head_dim": 5}, {"hidden_act": "relu"},
        {"rope_theta": 0.5}, {"rope_scaling": "linear"}, {"rope_scaling": {"type": "spiral", "factor": 2}},
        {"rope_scaling": {"type": "linear", "turns": 2}}, {"rope_parameters": {"rope_theta": "x"}},
        {"rope_theta": 5.0, "rope_parameters": {"rope_theta": 6.0}},
        {"rope_parameters": {"partial_rotary_factor": 0.5}}, {"partial_rotary_factor": 0.5}, {"num_local_experts": 8},
    ],
    "qwen2": [{"layer_types": ["full_attention"]}, {"num_hidden_layers": 1, "layer_types": ["linear"]}],
    "mixtral": [{"num_experts_per_tok": 9}, {"num_local_experts": 8, "num_experts": 4}],
    "deepseek_v2": [{"num_experts_per_tok": 2, "norm_topk_prob": True}],
    "deepseek_v3": [
        {"n_group": 7}, {"topk_group": 9}, {"topk_group": None}, {"num_experts_per_tok": 200},
        {"num_key_value_heads": 1}, {"qk_rope_head_dim": 63}, {"routed_scaling_factor": 0}, {"head_dim": 7},
    ],
    "mamba2": [{"num_heads": 7}, {"n_groups": 7}],
    "convnext": [{"depths": [1]}],
    "resnet": [{"hidden_act": "gelu"}, {"hidden_sizes": [8, 3, 8, 8]}],
    "poolformer": [{"pool_size": 4}],
    "pvt": [{"strides": [2, 2, 2, 2]}, {"image_size": 200}, {"qkv_bias": False}],
    "mamba": [{"use_bias": True}, {"use_conv_bias": False}, {"intermediate_size": 99}, {"time_step_rank": "many"}],
    "rwkv": [{"attention_hidden_size": 5}],
    "vit": [{"patch_size": 15}, {"patch_size": [16, 8]}, {"image_size": [1, 2, 3]}],
    "swin": [
        {"num_heads": [3, 6]}, {"depths": []}, {"num_heads": [3, 6], "depths": [2, "x"]}, {"num_heads": [5, 6, 12, 24]},
        {"window_size": 12}, {"hidden_size": 96},
    ],
    "swinv2": [{"use_absolute_embeddings": True}],
}  # fmt: skip


@pytest.mark.parametrize(
    "values",
    [{"model_type": family} | values for family, cases in REFUSED.items() for values in cases],
    ids=lambda values: f"{values['model_type']}-{list(values)[-1]}",
)
def test_unsupported_fields_are_refused_by_name(values, tmp_path):
    with pytest.raises(SpecError) as error:
        import_config(write(tmp_path, values))
    assert re.search(rf"/config\.json:\d+ {list(values)[-1]}(\[\d\])?: ", str(error.value))


def test_the_line_is_the_field_s_own(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(BERT | {"x": {"y": [1, "}"]}, "hidden_size": '\n\\"{'}, indent=2))
    lines = path.read_text().splitlines()
    for field, ignored in (("x", []), ("hidden_size", ["x"])):
        line = next(number for number, text in enumerate(lines, 1) if text.startswith(f'  "{field}"'))
        with pytest.raises(SpecError, match=rf"config\.json:{line} {field}: "):
            import_config(path, ignored=ignored)


def test_unknown_fields_can_be_ignored_and_supported_ones_can_not(tmp_path):
    path = write(tmp_path, BERT | {"mood": "good"})
    import_config(path, ignored=["mood"])
    for name in ("hidden_size", "moods"):
        with pytest.raises(SpecError, match=f" {name}: "):
            import_config(path, ignored=[name])


# Near names of other models: a config renamed to one would be counted as what it is not.
@pytest.mark.parametrize("model_type", ["qwen3", "convnextv2", "umt5", "mistral3", "lama"])
def test_no_other_model_is_proposed_for_a_model_type(model_type, tmp_path):
    path = write(tmp_path, {"model_type": model_type, "architectures": ["NotSupported"]})
    with pytest.raises(SpecError, match=f"^(?!.*did you mean).*'{model_type}'"):
        import_config(path)


# Written by other libraries, or read by code that the model is not: nothing of what is counted hangs on them.
WITHOUT_EFFECT = {
    "_num_labels": 7,
    "sentence_transformers": {"version": "5"},
    "sbert_ce_default_activation_function": "torch.nn.Identity",
    "is_llama_config": True,
}
REMARKED = {
    "auto_map": {"AutoModel": "x.Y"},
    "quantization": {"bits": 4, "group_size": 64},
    "quantization_config": {"quant_method": "fp8"},
    "is_causal": False,
}


@pytest.mark.parametrize("base", [BERT, LLAMA], ids=["bert", "llama"])
def test_fields_that_change_nothing_pass_and_what_a_reader_must_know_is_remarked(base, tmp_path):
    plain = import_config(write(tmp_path, base))
    more = import_config(write(tmp_path, base | WITHOUT_EFFECT | REMARKED))
    assert more.data == plain.data
    new = [remark for remark in more.remarks if remark not in plain.remarks]
    assert sorted(remark.partition(":")[0] for remark in new) == sorted(REMARKED)


def test_an_unknown_model_type_follows_the_architecture_that_it_names(tmp_path):
    # Kimi K2 (Moonshot AI 2025, arXiv:2507.20534, table 2): DeepSeek-V3's blocks, 61 layers, 384 experts, 64 heads,
    # 1.04e12 parameters, 32.6e9 of them active.
    values = json.loads((Path(__file__).with_name("data") / "kimi_k2.json").read_text(encoding="utf-8"))
    assert values["model_type"] == "kimi_k2"
    found = import_config(write(tmp_path, values))
    assert found.architecture == "DeepseekV3ForCausalLM"
    assert "no family has the model_type kimi_k2" in found.remarks[0]
    path = tmp_path / "k2.yaml"
    path.write_text(found.text)
    ledger = counted(str(path))
    # d = 7168, V = 163840: embedding and head; per block MLA (query rank 1536, KV rank 512, 64 heads of 128 + 64, 128)
    mla = 7168 * 1536 + 1536 + 1536 * 64 * 192 + 7168 * (512 + 64) + 512 + 512 * 64 * 256 + 64 * 128 * 7168
    dense, expert = 3 * 7168 * 18432, 3 * 7168 * 2048
    sparse = 385 * expert + 384 * 7168  # the correction of the router's scores is a buffer
    assert ledger.total("params") == 2 * 163840 * 7168 + 61 * (mla + 2 * 7168) + dense + 60 * sparse + 7168
    assert round(ledger.total("params") / 1e12, 2) == 1.03


def test_files_that_can_not_be_read(tmp_path):
    path = write(tmp_path, BERT)
    for content in (b'{"model_type": "\xff"}', b" " * 16_000_001):
        path.write_bytes(content)
        with pytest.raises(SpecError):
            import_config(path)


def test_the_command_writes_a_spec_whole_or_not_at_all(tmp_path):
    config, spec = CONFIGS / "llama-3.2-1b.json", tmp_path / "spec.yaml"
    done = xf("import", config, "-o", "spec.yaml", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    written = spec.read_text()
    assert written == stdout_of("import", config, cwd=tmp_path)
    assert load(str(spec)).spec.input.vocabulary == 128256
    assert error_of("import", config, "-o", "spec.yaml", cwd=tmp_path)
    assert xf("import", config, "-o", "spec.yaml", "--force", cwd=tmp_path).returncode == 0
    assert error_of("import", config, "-o", "spec.txt", cwd=tmp_path)
    assert error_of("import", tmp_path, "-o", "other.yaml", cwd=tmp_path)
    assert list(tmp_path.iterdir()) == [spec]


def test_the_default_of_a_missing_field_is_told_and_written(tmp_path):
    fields = json.loads((CONFIGS / "gpt2.json").read_text())
    whole = import_config(write(tmp_path, fields | {"tie_word_embeddings": True, "scale_attn_weights": True}))
    assert not any("default" in remark for remark in whole.remarks)
    partial = import_config(
        write(tmp_path, {name: fields[name] for name in fields if name not in ("n_embd", "n_layer")})
    )
    assert "# Assumed: tie_word_embeddings true, n_embd 768, n_layer 12, " in partial.text
    # An alias is no missing field, and classes matter to a classifier alone.
    bert = {"model_type": "bert", "architectures": ["BertForSequenceClassification"]}
    assert "Assumed: num_labels 2, vocab_size 30522, " in import_config(write(tmp_path, bert)).text
    assert "num_labels" not in import_config(write(tmp_path, bert | {"id2label": {"0": "a"}})).text


KEYS = st.from_regex(r"[a-z][a-z_]{0,8}", fullmatch=True)
TEXT = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"], exclude_characters="\u2028\u2029\x85\ufeff")
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**18), 10**18)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
    | st.sampled_from(["no", "1e5", "null", "a: b", "a #b", "- a", "{a}", "a,", " a", "a ", "0x1f", "arXiv:1706.03762"])
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=20
)


def full(value):
    """Without empty mappings and lists in block style, which no spec has."""
    if isinstance(value, dict):
        return {key: full(item) for key, item in value.items()} or {"a": 1}
    return ([full(item) for item in value] or [1]) if isinstance(value, list) else value


@given(st.dictionaries(KEYS, VALUES, min_size=1, max_size=6).map(full), st.lists(TEXT, max_size=3))
def test_what_is_written_is_read(data, comments):
    found, _ = read(spec_text(data, comments), "spec.yaml")
    assert found == data


@pytest.mark.parametrize("name", ["t5-small", "swin-tiny-patch4-window7-224", "mistral-7b-v0.1", "llama-3.1-405b"])
def test_any_reader_of_yaml_reads_a_spec(name):
    spec = import_config(CONFIGS / f"{name}.json")
    assert yaml.safe_load(spec.text) == spec.data
    assert all(len(line) <= WIDTH or "kind:" in line for line in spec.text.splitlines())


@pytest.mark.parametrize(
    ("config", "preset"),
    [
        ("bert-base-uncased", "bert-base-mlm"),
        ("openai-gpt", "gpt1"),
        ("t5-small", "t5-small"),
        ("llama-2-7b", "llama2-7b"),
        ("llama-3-8b", "llama3-8b"),
        ("llama-3.1-405b", "llama3.1-405b"),
        ("swin-tiny-patch4-window7-224", "swin-t"),
        ("swinv2-tiny-patch4-window8-256", "swinv2-t-w8-256"),
        ("bloom-560m", "bloom-560m"),
        ("mamba-130m-hf", "mamba-130m"),
    ],
)
def test_a_public_model_s_config_gives_its_preset(config, preset, tmp_path):
    path = Path(shutil.copy(CONFIGS / f"{config}.json", tmp_path))
    file = tmp_path / "spec.yaml"
    file.write_text(import_config(path).text)
    ours, known = load(str(file)).spec, load(preset).spec
    assert (ours.stages, ours.encoder, ours.decoder) == (known.stages, known.encoder, known.decoder)
    assert (ours.embed, ours.head, ours.residual, ours.input) == (known.embed, known.head, known.residual, known.input)


def test_a_name_is_never_an_instruction(tmp_path):
    for name in ("", "/", "\x1b[31mred", "a" * 500, "{x: 1}", "名前", "- x\n# y", 7, None):
        spec = import_config(write(tmp_path, {"model_type": "gpt2", "_name_or_path": name}))
        assert read(spec.text, "spec.yaml")[0] == spec.data


def test_every_family_has_a_full_config():
    kinds = {json.loads(path.read_text())["model_type"] for path in CONFIGS.glob("*.json")}
    assert kinds == set(FAMILIES)
