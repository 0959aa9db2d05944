"""What `xfcost import` refuses: every message names the field (or the line and column), and says how to mend."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hugging_face import CONFIGS, write
from specs import counted
from xfcost.importing import import_config
from xfcost.importing.convert import FAMILIES
from xfcost.ledger.errors import SpecError, UsageError
from xfcost.spec.load import load
from xfcost.spec.reader import read
from xfcost.spec.show import WIDTH, spec_text

BERT = {"model_type": "bert", "architectures": ["BertModel"]}
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}

# text of the file -> what is said
NO_JSON = [
    ("", "config.json:1 is empty; expected a config.json of transformers"),
    ("  \n", "config.json:1 is empty"),
    ("[]", "config.json:1 a list at top level; expected the object of a config.json"),
    ("7", "config.json:1 a single value at top level"),
    ('{\n "model_type": "bert",\n}', "config.json:"),
    ('{"model_type": "bert"', "config.json:1:22 is not valid JSON: expecting ',' delimiter"),
    ('{"model_type": "bert"\n "x": 1}', "config.json:2:2 is not valid JSON: expecting ',' delimiter"),
    ("{'model_type': 'bert'}", "config.json:1:2 is not valid JSON: expecting property name enclosed in double quotes"),
    ('{"model_type": "bert"} {}', "config.json:1:24 is not valid JSON: extra data"),
    ('{"x": ["\\ud800"]}', "config.json: has half a character, as \\ud800 is; expected a config.json"),
    ("model_type: bert", "config.json:1:1 is not valid JSON: expecting value"),
    ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "config.json: is nested too deeply"),
    ('{"vocab_size": 1, "vocab_size": 2}', "vocab_size: duplicate field (first at line 1); keep one"),
    ('{"model_type": "bert",\n"x": {"a": 1, "a": 2}}', "config.json:2 x: duplicate key 'a'"),
    ('{"model_type": "llama",\n"rope_theta": NaN}', "config.json:2 rope_theta: expected a finite number, got nan"),
    ('{"model_type": "llama", "hidden_size": -Infinity}', "hidden_size: expected a finite number, got -inf"),
    ('{"model_type": "llama", "rope_theta": 1e999}', "rope_theta: expected a finite number, got inf"),
    ('{"model_type": "llama", "rope_scaling": {"factor": [NaN]}}', "rope_scaling: expected a finite number, got"),
    ('{"hidden_size": ' + "9" * 10_000 + "}", "hidden_size: a number of 10,000 digits is too large"),
    ("{}", "has no model_type; expected a config.json of transformers with one of bert, "),
    ('{"hidden_size": 768}', "has no model_type"),
    ('{"model_type": 7}', "config.json:1 model_type: expected text, got 7"),
    ('{"model_type": null}', "model_type: expected text, got null"),
    ('{"model_type": "lama"}', "model_type: 'lama' is not supported; a config of another model_type is another model"),
    ('{"model_type": "whisper"}', "is another model. Expected one of bert, roberta"),
]


@pytest.mark.parametrize(("text", "said"), NO_JSON, ids=range(len(NO_JSON)))
def test_what_is_no_config_is_refused(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(SpecError) as error:
        import_config(path)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_comma_too_many_is_told_by_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{\n "model_type": "bert",\n}')
    with pytest.raises(SpecError, match=r"config\.json:[23]:\d+ is not valid JSON"):
        import_config(path)


# fields -> what is said, the field by its name
REFUSED: list[tuple[dict[str, Any], str]] = [
    (BERT | {"position_embedding_type": "relative_key"},
     "position_embedding_type: expected 'absolute', got 'relative_key'"),
    (BERT | {"hidden_act": "relu6"}, "hidden_act: expected gelu, gelu_accurate"),
    (BERT | {"hidden_act": "relu6"}, "got 'relu6'; did you mean 'relu'"),
    (BERT | {"hidden_act": 3}, "hidden_act: expected gelu"),
    (BERT | {"num_attention_heads": 5}, "num_attention_heads: 5 heads don't divide the width 768 (hidden_size)"),
    (BERT | {"num_attention_heads": 0}, "num_attention_heads: expected a whole number of at least 1, got 0"),
    (BERT | {"hidden_size": "768"}, "hidden_size: expected a whole number, got '768'"),
    (BERT | {"hidden_size": None}, "hidden_size: expected a whole number, got null"),
    (BERT | {"hidden_size": True}, "hidden_size: expected a whole number, got true"),
    (BERT | {"hidden_size": 768.5}, "hidden_size: expected a whole number, got 768.5"),
    (BERT | {"hidden_size": [768]}, "hidden_size: expected a whole number, got [768]"),
    (BERT | {"hidden_size": -768}, "hidden_size: expected a whole number of at least 1"),
    (BERT | {"hidden_size": 10**30}, "hidden_size: expected a"),
    (BERT | {"num_hidden_layers": 0}, "num_hidden_layers: expected a whole number of at least 1, got 0"),
    (BERT | {"is_decoder": "yes"}, "is_decoder: expected true or false, got 'yes'"),
    (BERT | {"add_cross_attention": True}, "add_cross_attention: expected false, got true"),
    (BERT | {"is_encoder_decoder": True}, "is_encoder_decoder: expected false, got true"),
    (BERT | {"pruned_heads": {"0": [1]}}, "pruned_heads: expected {} or null"),
    (BERT | {"embedding_size": 128}, "embedding_size: is unknown in this family, and 128 could change"),
    (BERT | {"hidden_sise": 128}, "128 could change what is counted; did you mean 'hidden_size'"),
    (BERT | {"id2label": ["a"]}, "id2label: expected class names by class number"),
    (BERT | {"id2label": {}}, "id2label: expected class names"),
    (BERT | {"id2label": {"0": "a"}, "num_labels": 3}, "num_labels: expected 1, the names in id2label, got 3"),
    (BERT | {"num_labels": 0}, "num_labels: expected a whole number of at least 1"),
    (BERT | {"architectures": "BertModel"}, "architectures: expected a list of names, got 'BertModel'"),
    (BERT | {"architectures": [7]}, "architectures: expected a list of names, got [7]"),
    (BERT | {"architectures": ["GPT2Model"]},
     "architectures: 'GPT2Model' is not supported; expected one of BertModel, "),
    ({"model_type": "bert", "architectures": ["BertForMaskedLM"], "tie_word_embeddings": False},
     "tie_word_embeddings: expected true, got false: untied"),
    ({"model_type": "bert", "architectures": ["BertForQuestionAnswering"], "num_labels": 3}, "num_labels: expected 2"),
    ({"model_type": "bert", "architectures": ["BertForQuestionAnswering"], "id2label": {"0": "a"}},
     "id2label: expected 2 (where an answer starts and ends), got 1"),
    ({"model_type": "roberta", "max_position_embeddings": 2}, "max_position_embeddings: expected at least 3, got 2"),
    ({"model_type": "roberta", "pad_token_id": -1}, "pad_token_id: expected a whole number of at least 0"),
    ({"model_type": "gpt2", "n_embd": 12, "hidden_size": 24},
     "hidden_size: is another name of n_embd, which is 12; got 24"),
    ({"model_type": "gpt2", "hidden_size": 770}, "n_head: 12 heads don't divide the width 770"),
    ({"model_type": "gpt2", "num_attention_heads": 5}, "num_attention_heads: 5 heads don't divide the width 768"),
    ({"model_type": "gpt2", "activation_function": "mish"}, "activation_function: expected gelu"),
    ({"model_type": "gpt2", "add_cross_attention": True}, "add_cross_attention: expected false, got true"),
    ({"model_type": "openai-gpt", "afn": "gelu_new"}, "afn: expected gelu, relu, silu, swish, got 'gelu_new'"),
    ({"model_type": "bloom", "apply_residual_connection_post_layernorm": True},
     "apply_residual_connection_post_layernorm: "),
    ({"model_type": "bloom", "n_inner": 99}, "n_inner: expected null, got 99"),
    ({"model_type": "t5", "feed_forward_proj": "gated-relu"}, "feed_forward_proj: expected a gate of silu or gelu"),
    ({"model_type": "t5", "feed_forward_proj": "sated-gelu"},
     "feed_forward_proj: expected an activation, or gated- and one"),
    ({"model_type": "t5", "relative_attention_max_distance": 16},
     "relative_attention_max_distance: expected at least 17"),
    ({"model_type": "t5", "is_decoder": True}, "is_decoder: expected false, got true"),
    (LLAMA | {"num_key_value_heads": 5},
     "num_key_value_heads: 32 heads (num_attention_heads) don't divide into 5 groups"),
    (LLAMA | {"num_attention_heads": 30}, "num_attention_heads: 30 heads don't divide the width 4096"),
    (LLAMA | {"head_dim": 5}, "head_dim: rotary positions rotate pairs of columns, and a head is 5 wide"),
    (LLAMA | {"hidden_act": "relu"}, "hidden_act: expected a gate of silu or gelu, got 'relu'"),
    (LLAMA | {"rope_theta": 0.5}, "rope_theta: expected a number of at least 1"),
    (LLAMA | {"rope_scaling": "linear"}, "rope_scaling: expected a mapping, got 'linear'"),
    (LLAMA | {"rope_scaling": {"type": "spiral", "factor": 2}},
     "rope_scaling: its type is 'spiral'; expected one of default"),
    (LLAMA | {"rope_scaling": {"type": "linear", "turns": 2}}, "rope_scaling: its key 'turns' is not known"),
    (LLAMA | {"rope_parameters": {"rope_theta": "x"}}, "rope_parameters: its rope_theta is 'x'"),
    (LLAMA | {"rope_theta": 5.0, "rope_parameters": {"rope_theta": 6.0}}, "rope_parameters: its rope_theta 6.0 and"),
    (LLAMA | {"rope_parameters": {"partial_rotary_factor": 0.5}},
     "rope_parameters: its partial_rotary_factor: expected 1"),
    (LLAMA | {"partial_rotary_factor": 0.5}, "partial_rotary_factor: expected 1, got 0.5"),
    (LLAMA | {"num_local_experts": 8}, "num_local_experts: is unknown in this family"),
    ({"model_type": "qwen2", "layer_types": ["full_attention"]},
     "layer_types: expected 32 words, one per layer, got 1"),
    ({"model_type": "qwen2", "num_hidden_layers": 1, "layer_types": ["linear"]},
     "layer_types: expected full_attention or"),
    ({"model_type": "mixtral", "num_experts_per_tok": 9}, "num_experts_per_tok: a token can't use 9 of 8 experts"),
    ({"model_type": "mixtral", "num_experts": 4, "num_local_experts": 8}, "num_experts: is another name of"),
    ({"model_type": "deepseek_v2"}, "num_experts_per_tok: is missing: the number of experts per token has no default"),
    ({"model_type": "deepseek_v2", "num_experts_per_tok": 2, "norm_topk_prob": True}, "norm_topk_prob: expected false"),
    ({"model_type": "deepseek_v3", "n_group": 7}, "n_group: 256 experts (n_routed_experts) don't divide into 7 groups"),
    ({"model_type": "deepseek_v3", "topk_group": 9}, "topk_group: 9 of 8 groups (n_group) can't be active"),
    ({"model_type": "deepseek_v3", "topk_group": None}, "topk_group: expected a number of groups, got null"),
    ({"model_type": "deepseek_v3", "num_experts_per_tok": 200}, "num_experts_per_tok: expected at most 128"),
    ({"model_type": "deepseek_v3", "num_key_value_heads": 1}, "num_key_value_heads: expected num_attention_heads, 128"),
    ({"model_type": "deepseek_v3", "qk_rope_head_dim": 63}, "qk_rope_head_dim: 63 is odd"),
    ({"model_type": "deepseek_v3", "routed_scaling_factor": 0}, "routed_scaling_factor: expected more than 0"),
    ({"model_type": "deepseek_v3", "head_dim": 7}, "head_dim: expected qk_rope_head_dim, which is 64, got 7"),
    ({"model_type": "mamba2", "num_heads": 7}, "num_heads: expected num_heads·head_dim to be expand·hidden_size, 8192"),
    ({"model_type": "mamba2", "n_groups": 7}, "n_groups: doesn't divide the 128 heads (num_heads); it could be 1, 2"),
    ({"model_type": "convnext", "depths": [1]}, "depths: expected 4 items, one per stage (num_stages), got 1"),
    ({"model_type": "resnet", "hidden_act": "gelu"}, "hidden_act: expected relu, got 'gelu'"),
    ({"model_type": "resnet", "hidden_sizes": [8, 3, 8, 8]}, "hidden_sizes: expected at least 4: a bottleneck has"),
    ({"model_type": "poolformer", "pool_size": 4}, "pool_size: 4 is even, and a pool is centred on its token"),
    ({"model_type": "pvt", "strides": [2, 2, 2, 2]}, "strides: expected patch_sizes, [4, 2, 2, 2], got [2, 2, 2, 2]"),
    ({"model_type": "pvt", "image_size": 200},
     "image_size: expected a multiple of 32, so that patches tile it, got 200"),
    ({"model_type": "pvt", "qkv_bias": False}, "qkv_bias: expected true, got false"),
    ({"model_type": "mamba", "use_bias": True},
     "use_bias: expected false, got true: the grammar has no projections with biases"),
    ({"model_type": "mamba", "use_conv_bias": False}, "use_conv_bias: expected true, got false"),
    ({"model_type": "mamba", "intermediate_size": 99},
     "intermediate_size: expected inner_width, which is 1536, got 99"),
    ({"model_type": "mamba", "time_step_rank": "many"}, "time_step_rank: expected auto, got 'many'"),
    ({"model_type": "rwkv", "attention_hidden_size": 5}, "attention_hidden_size: expected hidden_size, 4096, got 5"),
    ({"model_type": "vit", "patch_size": 15}, "patch_size: 15 does not divide the image 224×224 (image_size)"),
    ({"model_type": "vit", "patch_size": [16, 8]}, "patch_size: expected square patches, got 16×8"),
    ({"model_type": "vit", "image_size": [1, 2, 3]}, "image_size: expected a"),
    ({"model_type": "swin", "num_heads": [3, 6]}, "num_heads: expected 4 numbers, as depths has, got 2"),
    ({"model_type": "swin", "depths": []}, "depths: expected a list of at least 1 item"),
    ({"model_type": "swin", "depths": [2, "x"], "num_heads": [3, 6]}, "depths[1]: expected a whole number, got 'x'"),
    ({"model_type": "swin", "num_heads": [5, 6, 12, 24]}, "num_heads: 5 heads don't divide the width 96"),
    ({"model_type": "swin", "window_size": 12}, "window_size: expected at most 7, the side of the last stage's grid"),
    ({"model_type": "swin", "hidden_size": 96}, "hidden_size: expected final_width, which is 768, got 96"),
    ({"model_type": "swinv2", "use_absolute_embeddings": True}, "use_absolute_embeddings: expected false"),
]  # fmt: skip


@pytest.mark.parametrize(("values", "said"), REFUSED, ids=[said.partition(":")[0] for _, said in REFUSED])
def test_unsupported_fields_are_refused_by_name(values: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as error:
        import_config(write(tmp_path, values))
    assert said in str(error.value)
    assert str(error.value).startswith(f"{tmp_path}/config.json")


def test_the_line_is_the_field_s_own(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(BERT | {"x": {"y": [1, "}"]}, "hidden_size": '\n\\"{'}, indent=2))
    lines = path.read_text().splitlines()
    for field, ignored in (("x", []), ("hidden_size", ["x"])):
        line = next(number for number, text in enumerate(lines, 1) if text.startswith(f'  "{field}"'))
        with pytest.raises(SpecError, match=rf"config\.json:{line} {field}: "):
            import_config(path, ignored=ignored)


def test_unknown_fields_can_be_ignored_and_supported_ones_can_not(tmp_path: Path) -> None:
    path = write(tmp_path, BERT | {"mood": "good"})
    spec = import_config(path, ignored=["mood"])
    assert "mood: ignored (--ignore)." in spec.text
    for name, said in (
        ("hidden_size", "changes what is counted and can't be ignored"),
        ("moods", "did you mean 'mood'"),
    ):
        with pytest.raises(SpecError, match=said):
            import_config(path, ignored=[name])


# Near names of other models: a config renamed to one would be counted as what it is not.
@pytest.mark.parametrize("model_type", ["qwen3", "convnextv2", "umt5", "mistral3", "lama"])
def test_no_other_model_is_proposed_for_a_model_type(model_type: str, tmp_path: Path) -> None:
    path = write(tmp_path, {"model_type": model_type, "architectures": ["NotSupported"]})
    with pytest.raises(SpecError) as error:
        import_config(path)
    assert "did you mean" not in str(error.value)
    assert f"'{model_type}' is not supported, nor is its architecture 'NotSupported'" in str(error.value)


def test_all_fields_that_are_refused_are_said_in_one_run_in_the_order_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text("""{
 "model_type": "llama",
 "rope_theta": NaN,
 "hidden_size": "768",
 "hidden_sise": 3,
 "num_hidden_layers": 0,
 "is_encoder_decoder": true,
 "id2label": []
}""")
    with pytest.raises(SpecError) as error:
        import_config(path)
    said = [line.partition("config.json:")[2] for line in str(error.value).splitlines()]
    assert [line.partition(": ")[0] for line in said] == [
        "3 rope_theta", "4 hidden_size", "5 hidden_sise", "6 num_hidden_layers", "7 is_encoder_decoder", "8 id2label",
    ]  # fmt: skip


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
def test_fields_that_change_nothing_pass_and_what_a_reader_must_know_is_remarked(
    base: dict[str, Any], tmp_path: Path
) -> None:
    plain = import_config(write(tmp_path, base))
    more = import_config(write(tmp_path, base | WITHOUT_EFFECT | REMARKED))
    assert more.data == plain.data
    new = [remark for remark in more.remarks if remark not in plain.remarks]
    assert sorted(remark.partition(":")[0] for remark in new) == sorted(REMARKED)


def test_an_unknown_model_type_follows_the_architecture_that_it_names(tmp_path: Path) -> None:
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


def test_another_architecture_can_be_asked_for_and_none_that_isn_t_known(tmp_path: Path) -> None:
    path = write(tmp_path, BERT)
    assert import_config(path, "BertForMaskedLM").data["head"]["kind"] == "masked_language_model"
    with pytest.raises(UsageError, match=r"--architecture BertForMusic: did you mean 'BertFor"):
        import_config(path, "BertForMusic")


def test_files_that_can_not_be_read(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no such file; `xfcost import` reads a local file and fetches none"):
        import_config(tmp_path / "none.json")
    with pytest.raises(SpecError, match=r"is a directory; expected a config\.json of transformers$"):
        import_config(tmp_path)
    path = write(tmp_path, BERT)
    with pytest.raises(SpecError, match=rf"is a directory; expected a config.json of transformers: {path}"):
        import_config(tmp_path)
    path.write_bytes(b'{"model_type": "\xff"}')
    with pytest.raises(SpecError, match="is not UTF-8 text"):
        import_config(path)
    path.write_text(" " * 16_000_001)
    with pytest.raises(SpecError, match="is larger than 16,000,000 bytes; a config is a page of JSON"):
        import_config(path)


def command(*arguments: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "xfcost", "import", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=os.environ | {"PYTHONIOENCODING": "utf-8"},
    )


def test_the_command_writes_a_spec_whole_or_not_at_all(tmp_path: Path) -> None:
    config, spec = CONFIGS / "llama-3.2-1b.json", tmp_path / "spec.yaml"
    done = command(config, "-o", "spec.yaml", folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.splitlines()[-1] == "Wrote spec.yaml"
    assert "rotary positions of type llama3 change constants only" in done.stderr
    written = spec.read_text()
    assert written == command(config, folder=tmp_path).stdout
    assert load(str(spec)).spec.input.vocabulary == 128256
    again = command(config, "-o", "spec.yaml", folder=tmp_path)
    said = "error: -o spec.yaml: already exists; take another name, or --force to overwrite it\n"
    assert (again.returncode, again.stderr) == (2, said)
    assert command(config, "-o", "spec.yaml", "--force", folder=tmp_path).returncode == 0
    wrong = command(config, "-o", "spec.txt", folder=tmp_path)
    assert (wrong.returncode, list(tmp_path.iterdir())) == (2, [spec])
    assert "expected a name that ends in .yaml or .yml" in wrong.stderr


def test_the_command_refuses_with_one_line_and_no_traceback(tmp_path: Path) -> None:
    write(tmp_path, BERT | {"hidden_act": "relu6"})
    done = command("config.json", "-o", "spec.yaml", folder=tmp_path)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert done.stderr.startswith("error: config.json:1 hidden_act: expected gelu")
    assert not (tmp_path / "spec.yaml").exists()


def test_the_default_of_a_missing_field_is_told_and_written(tmp_path: Path) -> None:
    fields = json.loads((CONFIGS / "gpt2.json").read_text())
    whole = import_config(write(tmp_path, fields | {"tie_word_embeddings": True, "scale_attn_weights": True}))
    assert not any("default" in remark for remark in whole.remarks)
    partial = import_config(
        write(tmp_path, {name: fields[name] for name in fields if name not in ("n_embd", "n_layer")})
    )
    said = (
        "Assumed: tie_word_embeddings true, n_embd 768, n_layer 12, scale_attn_weights true; transformers' defaults of "
        "fields that the config doesn't have."
    )
    assert said in partial.remarks
    assert "# Assumed: tie_word_embeddings true, n_embd 768, n_layer 12, " in partial.text
    # An alias is no missing field, and classes matter to a classifier alone.
    bert = {"model_type": "bert", "architectures": ["BertForSequenceClassification"]}
    assert "Assumed: num_labels 2, vocab_size 30522, " in import_config(write(tmp_path, bert)).text
    assert "num_labels" not in import_config(write(tmp_path, bert | {"id2label": {"0": "a"}})).text


def test_an_architecture_of_another_family_is_refused_in_the_words_of_any_option(tmp_path: Path) -> None:
    path = write(tmp_path, {"model_type": "vit"})
    with pytest.raises(UsageError, match=r"--architecture Foo: expected one of ViTForImageClassification, ViTModel \("):
        import_config(path, "Foo")


# The YAML that `xfcost import` writes: what is read back is what was written, and it looks like a preset ──────────────


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


def full(value: Any) -> Any:
    """Without empty mappings and lists in block style, which no spec has."""
    if isinstance(value, dict):
        return {key: full(item) for key, item in value.items()} or {"a": 1}
    return ([full(item) for item in value] or [1]) if isinstance(value, list) else value


@given(st.dictionaries(KEYS, VALUES, min_size=1, max_size=6).map(full), st.lists(TEXT, max_size=3))
def test_what_is_written_is_read(data: dict[str, Any], comments: list[str]) -> None:
    found, _ = read(spec_text(data, comments), "spec.yaml")
    assert found == data


@pytest.mark.parametrize("name", ["t5-small", "swin-tiny-patch4-window7-224", "mistral-7b-v0.1", "llama-3.1-405b"])
def test_any_reader_of_yaml_reads_a_spec(name: str) -> None:
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
def test_a_public_model_s_config_gives_its_preset(config: str, preset: str, tmp_path: Path) -> None:
    path = Path(shutil.copy(CONFIGS / f"{config}.json", tmp_path))
    file = tmp_path / "spec.yaml"
    file.write_text(import_config(path).text)
    ours, known = load(str(file)).spec, load(preset).spec
    assert (ours.stages, ours.encoder, ours.decoder) == (known.stages, known.encoder, known.decoder)
    assert (ours.embed, ours.head, ours.residual, ours.input) == (known.embed, known.head, known.residual, known.input)


def test_the_top_says_where_it_comes_from(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "gpt2", "_name_or_path": "/home/me/models/mine\n"}))
    lines = import_config(path).text.splitlines()
    assert lines[0].startswith("# Made by `xfcost import` from ")
    assert "model_type gpt2, architecture GPT2LMHeadModel." in " ".join(line.lstrip("# ") for line in lines[:4])
    assert any(line.startswith("# Assumed: GPT2LMHeadModel; the config names no architectures") for line in lines)
    assert "name: mine (GPT2LMHeadModel)" in lines


def test_a_name_is_never_an_instruction(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    for name in ("", "/", "\x1b[31mred", "a" * 500, "{x: 1}", "名前", "- x\n# y", 7, None):
        path.write_text(json.dumps({"model_type": "gpt2", "_name_or_path": name}))
        spec = import_config(path)
        assert read(spec.text, "spec.yaml")[0] == spec.data


def test_every_family_has_a_full_config() -> None:
    kinds = {json.loads(path.read_text())["model_type"] for path in CONFIGS.glob("*.json")}
    assert kinds == set(FAMILIES)
