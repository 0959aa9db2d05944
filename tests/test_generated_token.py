"""A forward of a language model says what the next token costs, and which dtype its config states."""

import json

import pytest

import xfcost
from hugging_face import write

LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 32, "intermediate_size": 48,
    "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 50, "hidden_act": "silu",
}  # fmt: skip


def test_a_forward_has_the_decode_step_at_its_n():
    token = xfcost.analyze("gpt2", N=200, batch=3, trace=False).generated_token
    step = xfcost.analyze("gpt2", N=200, batch=3, mode="decode", trace=False)
    assert (token.tokens, token.dtype) == (200, "bfloat16")
    # keys and values of 12 layers, 768 wide, of 200 tokens of 3 samples, 2 bytes each
    assert token.cache.bytes == 2 * 12 * 768 * 200 * 3 * 2
    assert token.flops == step.total("flops")


def test_settings_dtype_and_a_listed_model_s_stored_counts_are_those_of_the_step():
    options = {"settings": iter(["stages.0.depth=2"]), "dtype": "float32"}
    token = xfcost.analyze("gpt2", N=64, trace=False, **options).generated_token
    assert (token.cache.bytes, token.dtype) == (2 * 2 * 768 * 64 * 4, "float32")
    listed = xfcost.analyze("qwen3-0.6b", N=64)
    assert listed.generated_token.flops == xfcost.analyze("qwen3-0.6b", N=64, mode="decode").total("flops")
    assert json.loads(listed.to_json())["generated_token"]["tokens"] == 64


@pytest.mark.parametrize("name", ["vit", "bert-base", "t5-base"])
def test_what_writes_no_text_alone_has_none(name):
    ledger = xfcost.analyze(name, trace=False)
    assert ledger.generated_token is None
    assert "generated_token" not in json.loads(ledger.to_json())


@pytest.mark.parametrize("field", ["torch_dtype", "dtype"])
def test_a_note_says_that_the_config_has_another_dtype(tmp_path, field):
    config = str(write(tmp_path, LLAMA | {field: "bfloat16"}))

    def notes(**options):
        found = xfcost.analyze(config, N=8, trace=False, **options).metadata.notes
        return [note for note in found if "the config has" in note]

    assert notes() == ["counted in float32; the config has bfloat16: --dtype bfloat16"]
    assert notes(dtype="float32") == notes(dtype="bfloat16") == notes(mode="decode") == []
    compared = xfcost.compare(config, "gpt2", N=8).ledgers
    assert ["the config has" in " ".join(one.metadata.notes) for one in compared] == [True, False]
    write(tmp_path, LLAMA | {field: "float32"})
    assert notes() == []


def test_the_note_is_of_a_class_that_is_run_too(tmp_path):
    values = LLAMA | {"attention_bias": True, "mlp_bias": True, "pretraining_tp": 1, "torch_dtype": "float16"}
    config = str(write(tmp_path, values | {"model_type": "olmo2", "architectures": ["Olmo2ForCausalLM"]}))
    ledger = xfcost.analyze(config, N=8, trace=False, mixing=False)
    assert ledger.module is not None
    assert "counted in float32; the config has float16: --dtype float16" in ledger.metadata.notes
