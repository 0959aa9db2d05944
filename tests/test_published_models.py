"""Published models by name: their counts are those of a run, their parameters the published ones."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path

import msgspec
import pytest

from helpers import error_of, report_text, stdout_of
from xfcost.api.analysis import analyze, compare
from xfcost.commands.options import presets_from
from xfcost.counting.forward import count
from xfcost.counting.recorded import RecordedCounts, filled, form_value, letters_at, recorded
from xfcost.importing import loaded_config
from xfcost.ledger.errors import UsageError
from xfcost.spec.load import load, preset_names
from xfcost.spec.models import RECORDED_WITH, config_of, models
from xfcost.spec.placement import place
from xfcost.spec.run import Run

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from record_models import counts, runs_of, same, written

WITH_COUNTS = [name for name in models() if config_of(name).with_suffix(".counts.json").is_file()]
TINY = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 1000, "hidden_size": 16,
    "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8,
    "max_position_embeddings": 4096,
}  # fmt: skip


def test_the_tool_writes_counts_that_are_those_of_a_run_elsewhere(tmp_path):
    config = tmp_path / "tiny.json"
    config.write_text(json.dumps(TINY))
    file = msgspec.json.decode(written(counts(config, ["decode"])), type=RecordedCounts)
    run = runs_of(config)[0]("decode")
    for tokens, batch in ((2, 1), (777, 6), (10_000, 13)):
        assert same(file.ledger("decode", tokens, batch), run(tokens, batch))
    assert file.positions == 4096


@pytest.mark.rest
@pytest.mark.parametrize("name", WITH_COUNTS)
def test_counts_are_those_of_a_run_of_the_class(name):
    found, runs = recorded(name), runs_of(config_of(name))[0]
    for mode, pieces in found.counts.modes.items():
        # one N of every piece, at another batch than those that it was fitted to
        for piece in pieces:
            tokens = piece.first + 17 if piece.last is None else (piece.first + piece.last) // 2
            assert same(found.counts.ledger(mode, tokens, 11), runs(mode)(tokens, 11)), f"{mode} at {tokens}"


def test_forms_are_sums_of_products():
    letters = letters_at(100, 3, {"C": 64}, {"L": "5*B+1"}, {"X": ("4*B", 8)})
    # 100 tokens are two chunks of 64; 16 numbers are sorted by 4 comparisons each; 12 choices are of all 8
    assert letters == {"N": 100, "B": 3, "C": 128, "L": 4, "X": 8}
    assert form_value("2*B*N^2-1/2*N+7", letters) == 2 * 3 * 10_000 - 50 + 7
    assert form_value("-C+L*B", letters) == -128 + 12
    with pytest.raises(ValueError, match="1/3"):
        form_value("1/3*N", letters)
    assert filled('{"macs":"«2*N»","text":"«B:»×«12*N:,»"}', letters) == '{"macs":200,"text":"3×1,200"}'


@pytest.mark.parametrize("name", models())
def test_parameters_are_the_published_ones(name):
    """At the precision at which they are printed."""
    published = models()[name].params
    if found := recorded(name):
        mode = next(iter(found.counts.modes))
        ours = found.at(64, mode, 1).total("params")
    else:
        ours = count(place(loaded_config(config_of(name)), Run()), orders=False).total("params")
    if published is not None:
        digits = len(published[:-1].partition(".")[2])
        scale = {"M": 1e6, "B": 1e9, "T": 1e12}[published[-1]]
        assert f"{ours / scale:.{digits}f}{published[-1]}" == published


def test_names_are_those_of_no_preset_and_complete_in_the_shell():
    assert not set(models()) & set(preset_names())
    assert "qwen3-32b" in presets_from("qwen3-3")
    assert all(one.config for one in models().values())


def test_a_cache_and_weights_by_hand():
    """28 layers of 8 key-value heads of 128, in two bytes; 151,936 rows of 1024 are the head's too."""
    ledger = analyze("qwen3-0.6b", mode="decode", N="32k", batch=16, on="h100-sxmx2")
    assert ledger.cache.bytes_per_token == 2 * 28 * 8 * 128 * 2
    assert ledger.cache.bytes == 16 * 32_000 * ledger.cache.bytes_per_token
    # q, k, v, o: 1024·(16+8+8+16)·128; three of 1024·3072; norms 2·1024 + 2·128
    layer = 1024 * 48 * 128 + 3 * 1024 * 3072 + 2 * 1024 + 2 * 128
    assert ledger.total("params") == 28 * layer + 1024 + 151_936 * 1024
    assert ledger.on.memory.fits
    assert ledger.module.closed_form.cache == "1835008·N"


def test_a_generation_is_its_prompt_and_every_step_by_hand():
    """16 heads of 128; the prompt's logits are of its last position."""
    # q, k, v, o: 1024·(16+8+8+16)·128; three of 1024·3072
    layers, head = 28 * (1024 * 48 * 128 + 3 * 1024 * 3072), 1024 * 151_936
    pair = 28 * 2 * 16 * 128
    # 3 new tokens after 10: a prompt of 10 × 10 pairs, then steps that read 11 and 12 tokens
    macs = 12 * layers + 3 * head + (10 * 10 + 11 + 12) * pair
    ledger = analyze("qwen3-0.6b", mode="generate", N=10, new_tokens=3, on="h100-sxm")
    assert ledger.total("macs") == ledger.generation.with_cache.macs == macs
    # without a cache: passes over 10, 11 and 12 tokens
    assert ledger.generation.without_cache.macs == 33 * layers + 3 * head + (100 + 121 + 144) * pair
    assert ledger.cache.bytes == 12 * 28 * 2 * 8 * 128 * 2
    steps = [analyze("qwen3-0.6b", mode="decode", N=tokens, on="h100-sxm").on.time for tokens in (11, 12)]
    assert ledger.on.phases[1].time.bytes == sum(one.bytes for one in steps)
    assert ledger.on.memory.needed > 2 * 596_049_920


@pytest.mark.parametrize("name", ["gemma-3-1b", "gpt-oss-20b"])
def test_the_steps_of_a_generation_pass_the_end_of_a_window(name):
    """Windows of 512 and 128 tokens fill on the way."""
    ledger = analyze(name, mode="generate", N=100, new_tokens=500, batch=2)
    model = recorded(name)
    steps = [model.at(tokens, "decode", 2).total("macs") for tokens in range(101, 600)]
    assert ledger.generation.decode.macs == sum(steps)
    assert ledger.generation.prefill.macs == model.at(100, "prefill", 2).total("macs")


def test_a_comparison_of_generations_has_the_work_of_each():
    found = compare("qwen3-0.6b", "llama3-8b", mode="generate", N="1k", new_tokens=8, on="h100-sxm")
    own = analyze("qwen3-0.6b", mode="generate", N="1k", new_tokens=8, on="h100-sxm")
    assert found.figures["Qwen3 0.6B"]["generation_macs"] == own.generation.with_cache.macs
    assert found.figures["Qwen3 0.6B"]["least_seconds"] == own.on.seconds
    # the prompt grows from N to 2·N: between linear and quadratic
    assert 1 < found.growth["Qwen3 0.6B"]["macs"] < 2


def test_stored_counts_say_that_nothing_was_compared():
    ledger = analyze("qwen3-0.6b", mode="decode", N=100)
    values = json.loads(ledger.to_json())
    assert values["agreement"] is None
    assert values["versions"].keys() == {"xfcost", "transformers", "torch"}
    assert "recorded from a run of Qwen3ForCausalLM on meta tensors: transformers 5" in report_text(ledger)


@pytest.mark.rest
@pytest.mark.skipif(sys.version_info < (3, 11), reason="an older transformers is installed there")
def test_counts_are_of_the_versions_that_run_here():
    assert {name: version(name).partition("+")[0] for name in RECORDED_WITH} == RECORDED_WITH


def test_a_class_that_runs_has_the_name_and_the_paper_of_the_list(tmp_path):
    run = analyze("qwen3-0.6b", N=8, dtype="bfloat16", trace=False, mixing=False)
    assert run.metadata.name == "Qwen3 0.6B"
    assert run.agreement.exact
    stored = analyze("qwen3-0.6b", N=8)
    assert (stored.metadata.paper, stored.metadata.published) == (run.metadata.paper, run.metadata.published)
    # a config that is no file of the list has the name of its class
    other = tmp_path / "qwen3-0.6b.json"
    other.write_text(json.dumps(TINY))
    assert analyze(str(other), N=8, trace=False, mixing=False).metadata.name == "Qwen3ForCausalLM"


def test_specs_of_the_list_have_their_own_papers():
    assert analyze("kimi-k2", N=8, trace=False).metadata.paper == "Kimi Team 2025, arXiv:2507.20534"
    assert "2501.12948" in analyze("deepseek-r1", N=8, trace=False).metadata.paper
    assert analyze("mistral-small-3-24b", N=8, trace=False).metadata.paper is None


def test_systems_are_compared_by_name():
    found = compare("qwen3-0.6b", "llama3-8b", mode="decode", N="8k", batch=4, on="h100-sxm")
    ours = found.ledgers[0]
    assert ours.metadata.name == "Qwen3 0.6B"
    assert ours.metadata.batch == 4


def test_messages_and_the_list():
    with pytest.raises(UsageError, match="did you mean 'qwen3-32b'"):
        analyze("qwen3-23b")
    with pytest.raises(UsageError, match="expected a spec; that is a published model"):
        load("qwen3-32b")
    with pytest.raises(UsageError, match="expected --N from 2, got 1"):
        analyze("qwen3-32b", mode="decode", N=1)
    assert "--models lists" in error_of("list", "--models", "--totals")
    rows = json.loads(stdout_of("list", "--models", "--format", "json"))
    assert {row["model"] for row in rows} == set(models())
    assert all(row["config"] for row in rows)


def test_layers_whose_heads_differ_are_not_shared_out():
    # Gemma 4's windows have eight heads of keys and values, its global layers two
    assert recorded("gemma-4-26b-a4b").counts.heads is None
    with pytest.raises(UsageError, match="heads"):
        analyze("gemma-4-26b-a4b", mode="decode", N=64, on="h100-sxmx2", tensor_parallel=2)


def test_devices_stand_side_by_side_for_published_models():
    found = analyze("qwen3-32b", mode="decode", N=32_000, on="h100-sxm,h200-sxm", tokens_per_user=20, weights="fp8")
    assert {one.asked.name for one in found.choices} == {"h100-sxm", "h200-sxm"}
    assert found.metadata.weight_format == "fp8"
