"""What `transformers` runs in `generate`, with a cache and without one, beside what is counted: MACs to the unit."""

import pytest
import torch

from helpers import PLAIN
from hugging_face import theirs, write
from modules import counted_by_torch
from strategies import exact
from xfcost.api.analysis import analyze
from xfcost.counting.system import AccountOptions
from xfcost.importing import import_config
from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.spec.run import Run
from xfcost.systems.spec import SpecSystem
from xfcost.torch_models.build import build

BATCH = 2
ENDLESS = {"bos_token_id": 0, "eos_token_id": None, "pad_token_id": None}
GPT2 = ENDLESS | {"model_type": "gpt2", "n_layer": 2, "n_embd": 96, "n_head": 4, "vocab_size": 500, "n_positions": 64}
LLAMA = ENDLESS | {
    "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 48, "intermediate_size": 80, "num_attention_heads": 6,
    "num_key_value_heads": 2, "vocab_size": 101, "max_position_embeddings": 64,
}  # fmt: skip
MIXTRAL = LLAMA | {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
RWKV = ENDLESS | {
    "model_type": "rwkv", "num_hidden_layers": 2, "hidden_size": 32, "attention_hidden_size": 32, "vocab_size": 101,
    "context_length": 64,
}  # fmt: skip
MAMBA = ENDLESS | {
    "model_type": "mamba", "num_hidden_layers": 2, "hidden_size": 32, "state_size": 4, "expand": 2, "conv_kernel": 4,
    "vocab_size": 101,
}  # fmt: skip
T5 = {
    "model_type": "t5", "d_model": 24, "d_kv": 8, "d_ff": 40, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 3,
    "vocab_size": 101, "decoder_start_token_id": 0, "eos_token_id": None, "pad_token_id": 0,
}  # fmt: skip


def macs_of_theirs(values, architecture, prompt, new, *, cache, batch=BATCH):
    """Of `generate` as it ran on the CPU, attention eager; greedy, and never at an end."""
    torch.manual_seed(0)
    model = theirs(values, architecture, device="cpu")
    numbers = torch.randint(2, values["vocab_size"], (batch, prompt))
    how = {"attention_mask": torch.ones_like(numbers), "do_sample": False, "max_new_tokens": new, "use_cache": cache}
    written, macs = counted_by_torch(lambda: model.generate(numbers, **how))
    start = 1 if model.config.is_encoder_decoder else prompt
    assert written.shape == (batch, start + new)
    return macs


def ours(folder, values, architecture, **run):
    """The same text, counted and traced."""
    spec = import_config(write(folder, values | {"architectures": [architecture]}))
    file = folder / "ours.yaml"
    file.write_text(spec.text, encoding="utf-8")
    run = Run(batch=run.pop("batch", BATCH), mode="generate", **run)
    return SpecSystem(load(str(file))).account(run, AccountOptions(trace=True))


@pytest.mark.parametrize(("logits", "cached", "alone"), [(None, 7_134_336, 57_006_720), ("all", 8_046_336, 68_286_720)])
def test_gpt2_writes_ten_tokens_after_twenty(logits, cached, alone, tmp_path):
    """L = 2, d = 96, V = 500; the logits of the 19 positions before the last are 19·d·V = 912,000 MACs.

    Without a cache passes over 20, …, 29 tokens leave out 19 + … + 28 = 235 positions, 235·d·V = 11,280,000 MACs.
    """
    ledger = ours(tmp_path, GPT2, "GPT2LMHeadModel", tokens=(20,), new_tokens=10, logits=logits, batch=1)
    assert (ledger.generation.with_cache.macs, ledger.generation.without_cache.macs) == (cached, alone)
    exact(ledger)
    if logits is None:
        for cache, macs in ((True, cached), (False, alone)):
            assert macs_of_theirs(GPT2, "GPT2LMHeadModel", 20, 10, cache=cache, batch=1) == macs


@pytest.mark.parametrize(
    ("values", "architecture", "cache", "more"),
    [
        (GPT2, "GPT2LMHeadModel", True, 0),
        (GPT2, "GPT2LMHeadModel", False, 0),
        (LLAMA, "LlamaForCausalLM", True, 0),
        (LLAMA, "LlamaForCausalLM", False, 0),
        (MIXTRAL, "MixtralForCausalLM", True, 0),
        (MIXTRAL, "MixtralForCausalLM", False, 0),
        # 4 steps, 2 samples, 2 layers: without its kernel `causal_conv1d_update` convolves one position too many, of
        # which nothing is read: 4 taps of 64 channels
        (MAMBA, "MambaForCausalLM", True, 4 * 2 * 2 * 4 * 64),
        (MAMBA, "MambaForCausalLM", False, 0),
        (RWKV, "RwkvForCausalLM", False, 0),
        # With a cache its decoder is given one token at a time, from the first.
        (T5, "T5ForConditionalGeneration", True, 0),
        (T5, "T5ForConditionalGeneration", False, 0),
    ],
    ids=lambda given: str(given) if isinstance(given, str | bool) else "",
)
def test_what_transformers_generates_costs_what_is_counted(values, architecture, cache, more, tmp_path):
    prompt, new = 7, 5
    # T5's class alone knows no `logits_to_keep`: without a cache it computes the logits of all positions, every time
    more_options = {"tokens": (prompt, 1), "logits": "last" if cache else "all"} if values is T5 else {}
    ledger = ours(tmp_path, values, architecture, **{"tokens": (prompt,), "new_tokens": new} | more_options)
    exact(ledger)
    counted = ledger.generation.with_cache if cache else ledger.generation.without_cache
    assert counted.macs + more == macs_of_theirs(values, architecture, prompt, new, cache=cache)


@pytest.mark.parametrize(
    ("preset", "width", "vocabulary"),
    [("gpt2", 768, 50257), ("t5-small", 512, 32128), ("mixtral-8x7b", 4096, 32000), ("mamba-130m", 768, 50280)],
)
def test_only_the_head_does_less_for_a_prompt(preset, width, vocabulary):
    n = 9
    last, every = (
        analyze(preset, N=n, mode="prefill", logits=logits, trace=False, **PLAIN) for logits in (None, "all")
    )
    forward = analyze(preset, N=n, trace=False)
    assert every.rows == forward.rows
    assert (last.metadata.logits, every.metadata.logits, forward.metadata.logits) == ("last", "all", "all")
    fewer = {row.path: row for row in last.rows}
    for row in forward.rows:
        if row.path != "head.linear":  # the norm before it is of all positions
            assert fewer[row.path] == row
    assert (every.total("macs") or 0) - (last.total("macs") or 0) == (n - 1) * width * vocabulary
    assert set(fewer) - {row.path for row in forward.rows} == {"head.last"}


def test_the_real_model_has_logits_of_one_position(tmp_path):
    """Those of the last, of all that the same weights give; torch's own counter sees the same MACs."""
    ours(tmp_path, LLAMA, "LlamaForCausalLM", tokens=(6,), new_tokens=1)
    loaded = load(str(tmp_path / "ours.yaml"))
    torch.manual_seed(0)
    run = Run(tokens=(6,), batch=BATCH, mode="prefill", dtype="float32", attention="eager")
    every, last = (build(place(loaded, run._replace(logits=logits)), "cpu") for logits in ("all", "last"))
    last.model.load_state_dict(every.model.state_dict())
    logits_B1V = last.model(*every.inputs)
    assert logits_B1V.shape == (BATCH, 1, LLAMA["vocab_size"])
    torch.testing.assert_close(logits_B1V, every.model(*every.inputs)[:, -1:])
    _, macs = counted_by_torch(lambda: last.model(*every.inputs))
    assert macs == SpecSystem(loaded).account(run, AccountOptions()).total("macs")


def test_the_report_says_of_which_positions():
    said = {
        words: analyze("gpt2", N=9, trace=False, **options).metadata.logits
        for words, options in {
            "forward": {},
            "train": {"mode": "train"},
            "decode": {"mode": "decode"},
            "prefill": {"mode": "prefill"},
            "asked": {"mode": "prefill", "logits": "all"},
        }.items()
    }
    assert said == {"forward": "all", "train": "all", "decode": "all", "prefill": "last", "asked": "all"}
    assert analyze("vit", mode="prefill", trace=False).metadata.logits is None
