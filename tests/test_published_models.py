"""Published models by name: their counts are those of a run, their parameters the published ones."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from copy import deepcopy
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path

import msgspec
import pytest
from record_models import counts, runs_of, same, stored, with_kinds, written

from helpers import environment, xf
from xfcost.api.analysis import analyze, compare
from xfcost.api.roofline import bounded_roofline
from xfcost.commands.options import presets_from
from xfcost.counting.forward import count
from xfcost.counting.recorded import RecordedCounts, filled, form_value, letters_at
from xfcost.importing import listed_model, loaded_config
from xfcost.ledger.errors import UsageError
from xfcost.ledger.operation import KINDS
from xfcost.questions.find.answer import find
from xfcost.spec.load import load, preset_names
from xfcost.spec.models import RECORDED_WITH, config_of, listed_name, models
from xfcost.spec.placement import place
from xfcost.spec.run import Run
from xfcost.systems.published import published_system

NEW = {"new_tokens": 3}
# dense, and with windows; of the others tools/record_models.py runs the same code, for minutes
RUN = ("qwen3-1.7b", "gemma-3-270m")
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
@pytest.mark.parametrize("name", RUN)
def test_counts_are_those_of_a_run_of_the_class(name):
    found, runs = published_system(name), runs_of(config_of(name))[0]
    for mode, pieces in found.counts.modes.items():
        # one N of every piece, at another batch than those that it was fitted to
        for piece in pieces:
            tokens = piece.first + 17 if piece.last is None else (piece.first + piece.last) // 2
            assert same(found.counts.ledger(mode, tokens, 11), runs(mode)(tokens, 11)), f"{mode} at {tokens}"


def test_forms_are_sums_of_products():
    letters = letters_at(100, 3, {"C": 64}, {"L": "5*B+1"}, {"X": ("4*B", 8)})
    # 100 tokens are two chunks of 64, with 64·65/2 + 36·37/2 causal pairs; 16 numbers are sorted by 4 comparisons each;
    # 12 choices are of all 8
    assert letters == {"N": 100, "B": 3, "C": 2, "CP": 2746, "L": 4, "X": 8}
    assert form_value("2*B*N^2-1/2*N+7", letters) == 2 * 3 * 10_000 - 50 + 7
    assert form_value("-64*C+L*B", letters) == -128 + 12
    with pytest.raises(ValueError, match="1/3"):
        form_value("1/3*N", letters)
    assert filled('{"macs":"«2*N»","text":"«B:»×«12*N:,»"}', letters) == '{"macs":200,"text":"3×1,200"}'


@pytest.mark.parametrize("name", models())
def test_parameters_are_the_published_ones(name):
    """At the precision at which they are printed."""
    published = models()[name].params
    if found := published_system(name):
        mode = next(iter(found.counts.modes))
        ours = found.at(min(64, found.counts.tokens), mode, 1).total("params")
    else:
        ours = count(place(loaded_config(config_of(name)), Run()), orders=False).total("params")
    if published is not None:
        digits = len(published[:-1].partition(".")[2])
        scale = {"M": 1e6, "B": 1e9, "T": 1e12}[published[-1]]
        assert f"{ours / scale:.{digits}f}{published[-1]}" == published


def test_names_are_those_of_no_preset_and_complete_in_the_shell():
    assert not set(models()) & set(preset_names())
    assert "qwen3-32b" in presets_from("qwen3-3")
    with pytest.raises(UsageError, match="that is a published model"):
        load("qwen3-32b")


def test_a_model_has_the_names_that_people_give_it():
    """Its id on the Hub, that without the organisation, its title and its name, in any case; each of one model."""
    named = Counter()
    for name, one in models().items():
        organisation, own = one.hub_id.split("/")
        spellings = {text.lower() for text in (name, one.title, one.hub_id, own, f"{organisation}/{name}")}
        assert {listed_name(text) for text in (*spellings, one.hub_id, one.hub_id.upper(), one.title)} == {name}
        named.update(spellings)
    assert set(named.values()) == {1}
    assert not named.keys() & {*preset_names(), *(one.removeprefix("common-") for one in preset_names())}
    assert listed_name("Qwen/Qwen3-33B") is None


@pytest.mark.parametrize(
    ("spelled", "name"),
    [("Qwen/Qwen3-32B", "qwen3-32b"), ("Qwen2.5-32B", "qwen2.5-32b"), ("ViT", "vit"), ("Linformer", "linformer")],
)
def test_a_spec_in_another_spelling_is_the_same_one(spelled, name):
    first, other = (analyze(one, N=64, trace=False) for one in (spelled, name))
    assert first.to_json() == other.to_json()
    assert compare(spelled, name, N=64, thorough=False).ledgers[0].metadata == first.metadata


def test_other_spellings_in_other_commands(tmp_path):
    """In a search, as a pattern, and in `show`; an own file or folder of another spelling goes first."""
    found = find("microsoft/Phi-4", "QWEN3-0.6*", N=64)
    assert {one.name for one in found.rows} == {"phi-4", "qwen3-0.6b"}
    assert xf("show", "Qwen/Qwen3-32B").stdout == config_of("qwen3-32b").read_text(encoding="utf-8")
    assert xf("show", "ViT").stdout == xf("show", "vit").stdout
    (tmp_path / "Qwen").mkdir()
    (tmp_path / "Qwen/Qwen3-32B").write_text("name: mine", encoding="utf-8")
    assert "Qwen/Qwen3-32B:1" in xf("analyze", "Qwen/Qwen3-32B", cwd=tmp_path).stderr


def test_a_cache_and_weights_by_hand():
    """28 layers of 8 key-value heads of 128, in two bytes; 151,936 rows of 1024 are the head's too."""
    ledger = analyze("qwen3-0.6b", mode="decode", N="32k", batch=16, on="h100-sxmx2")
    assert ledger.cache.bytes_per_token == 2 * 28 * 8 * 128 * 2
    assert ledger.cache.bytes == 16 * 32_000 * ledger.cache.bytes_per_token
    # q, k, v, o: 1024·(16+8+8+16)·128; three of 1024·3072; norms 2·1024 + 2·128
    layer = 1024 * 48 * 128 + 3 * 1024 * 3072 + 2 * 1024 + 2 * 128
    assert ledger.total("params") == 28 * layer + 1024 + 151_936 * 1024
    assert ledger.on.memory.fits
    assert ledger.closed_form.cache == "1835008·N"


@pytest.mark.parametrize(("tokens", "chunks"), [(3, 1), (64, 1), (65, 2), (1000, 16), (1024, 16)])
def test_a_chunk_that_is_not_full_costs_a_whole_one(tokens, chunks):
    """48 heads of 128 keys and values; of each token three products of 64·128 and three of 128·128."""
    rows = published_system("qwen3.5-27b").at(tokens, "prefill", 2).rows
    products = sum(row.macs for row in rows if ".linear_attn.bmm" in row.path)
    assert products == 2 * chunks * 64 * 48 * 3 * (64 * 128 + 128 * 128)


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


@pytest.mark.parametrize(("name", "window"), [("gemma-3-1b", 512), ("gpt-oss-20b", 128)])
def test_the_steps_of_a_generation_pass_the_end_of_a_window(name, window):
    """Windows fill on the way."""
    ledger = analyze(name, mode="generate", N=window - 20, new_tokens=40, batch=2)
    model = published_system(name)
    steps = [model.at(tokens, "decode", 2).total("macs") for tokens in range(window - 19, window + 20)]
    assert ledger.generation.decode.macs == sum(steps)
    assert ledger.generation.prefill.macs == model.at(window - 20, "prefill", 2).total("macs")


@pytest.mark.parametrize(("new_tokens", "beyond"), [(10, False), (11, True)])
def test_a_generation_may_end_at_the_last_position(new_tokens, beyond):
    """Qwen3 0.6B has 40,960 positions; the last new token is read by nobody."""
    warnings = analyze("qwen3-0.6b", mode="generate", N=40_951, new_tokens=new_tokens).metadata.warnings
    assert any("N = 40,961 is beyond the model's 40,960 positions" in one for one in warnings) is beyond


def test_every_batch_has_its_own_cache():
    """Of one model, asked again: 28 layers of 8 heads of 128, twice, in two bytes."""
    model = published_system("qwen3-0.6b")
    for batch in (1, 8, 3):
        assert model.at(1000, "decode", batch).cache.bytes == batch * 1000 * 28 * 2 * 8 * 128 * 2
    # two replicas have four of eight samples each
    shared = analyze("qwen3-0.6b", mode="decode", N=1000, batch=8, on="h100-sxmx2", tensor_parallel=1)
    assert shared.on.memory.cache == 4 * 1000 * 28 * 2 * 8 * 128 * 2


@pytest.mark.parametrize("name", ["gpt-oss-20b", "qwen3-30b-a3b"])
def test_a_generation_has_the_parameters_of_its_prompt(name):
    prompt, whole = (analyze(name, mode=mode, N=8, **more) for mode, more in (("prefill", {}), ("generate", NEW)))
    for quantity in ("params", "active_params", "attention_entries"):
        assert 0 < whole.total(quantity) == prompt.total(quantity)
    assert whole.weights_read() == pytest.approx(prompt.weights_read())


def macs_by_kind(ledger):
    return {kind: ledger.total("macs", lambda row: row.mixing == kind) for kind in KINDS}  # noqa: B023 - used at once


@pytest.mark.parametrize(
    ("name", "given", "global_macs", "local_macs"),
    [
        # QK and AV of 64 layers with 64 heads of 128 that read every token
        ("qwen3-32b", {"mode": "decode", "N": 4096}, 2 * 64 * 64 * 128 * 4096, 0),
        # 32 heads of 128; 52 layers read the last 1024 tokens, 10 all 4096
        ("gemma-3-27b", {"mode": "decode", "N": 4096}, 10 * 2 * 32 * 128 * 4096, 52 * 2 * 32 * 128 * 1024),
        # 12 layers 768 wide, whose 1370 tokens are 37² patches and [CLS]
        ("dinov2-b", {}, 12 * 2 * 768 * 1370**2, 0),
        # 22 layers 768 wide: layers 0, 3, … 21 read every token, 14 a window, of all computed pairs
        ("modernbert-base", {"N": 1024}, 8 * 2 * 768 * 1024**2, 14 * 2 * 768 * 1024**2),
        # 32 layers 1280 wide over 1500 frames, 4 over 448 tokens that also read the frames; kernels of 3 frames
        (
            "whisper-large-v3-turbo",
            {"N": 448},
            32 * 2 * 1280 * 1500**2 + 4 * 2 * 1280 * (448**2 + 448 * 1500),
            3 * 1280 * (3000 * 128 + 1500 * 1280),
        ),
        # 10 layers of 16 heads of 256 read every token; 30 have 32 heads of 128 and 64 chunks of 64 tokens. Of each
        # chunk two products read the state, and one of two that make tokens and the next state holds 64² pairs; keys by
        # keys and queries by keys, two triangular systems (of 64 unknowns the k-th takes k - 1 products on each of 128
        # right sides), and a kernel of 4 tokens on 8192 channels, padded by 3, are of the chunk.
        (
            "qwen3.5-35b-a3b",
            {"mode": "prefill", "N": 4096},
            10 * 2 * 16 * 256 * 4096**2 + 30 * 32 * 64 * (3 * 64 * 128 * 128 + 64 * 64 * 128),
            30 * (32 * 64 * (2 * 64 * 64 * 128 + 2 * (64 * 63 // 2) * 128) + 4 * 8192 * (4096 + 3)),
        ),
    ],
)
def test_rows_of_stored_counts_have_kinds_by_hand(name, given, global_macs, local_macs):
    ledger = analyze(name, **given)
    rest = ledger.total("macs") - global_macs - local_macs
    assert macs_by_kind(ledger) == {"global": global_macs, "local": local_macs, "per-token": rest, "unknown": 0}


@pytest.mark.rest
def test_kinds_of_a_small_build_are_those_of_the_spec():
    config = Path(__file__).parent / "data" / "configs" / "llama-3.2-1b.json"
    found = counts(config, ["decode"])
    with_kinds(found["modes"], config)
    ours = msgspec.json.decode(written(found), type=RecordedCounts).ledger("decode", 5000, 1)
    spec = analyze(str(config), mode="decode", N=5000, trace=False)
    assert macs_by_kind(ours) == macs_by_kind(spec)


@pytest.mark.rest
@pytest.mark.parametrize("name", RUN)
def test_kinds_of_stored_counts_are_those_of_a_small_build(name):
    config = config_of(name)
    modes = stored(config.with_suffix(".counts.json"))["modes"]
    found = deepcopy(modes)
    with_kinds(found, config)
    assert found == modes


@pytest.mark.parametrize(
    ("name", "layers", "heads", "kv_heads", "head_dim"),
    [
        # Grattafiori et al. 2024, arXiv:2407.21783, table 3; the model cards of Llama 3.2 and 3.3
        ("llama-3.1-8b", 32, 32, 8, 128), ("llama-3.1-70b", 80, 64, 8, 128), ("llama-3.1-405b", 126, 128, 8, 128),
        ("llama-3.2-1b", 16, 32, 8, 64), ("llama-3.2-3b", 28, 24, 8, 128), ("llama-3.3-70b", 80, 64, 8, 128),
        # Jiang et al. 2023, arXiv:2310.06825, table 1
        ("mistral-7b-v0.3", 32, 32, 8, 128),
        # Qwen Team 2024, arXiv:2412.15115, table 1: layers, heads of queries and of keys
        ("qwen2.5-3b", 36, 16, 2, 128), ("qwen2.5-7b", 28, 28, 4, 128), ("qwen2.5-14b", 48, 40, 8, 128),
        ("qwen2.5-32b", 64, 40, 8, 128), ("qwen2.5-72b", 80, 64, 8, 128),
        # Yang et al. 2025, arXiv:2505.09388, tables 1 and 2
        ("qwen3-0.6b", 28, 16, 8, 128), ("qwen3-8b", 36, 32, 8, 128), ("qwen3-32b", 64, 64, 8, 128),
        ("qwen3-30b-a3b", 48, 32, 4, 128), ("qwen3-235b-a22b", 94, 64, 4, 128),
    ],
)  # fmt: skip
def test_attention_is_of_the_published_heads(name, layers, heads, kv_heads, head_dim):
    """Two bytes of each key and value; QK and AV of a step that reads 1000 tokens."""
    ledger = analyze(name, mode="decode", N=1000, trace=False, on="h100-sxm")
    assert ledger.cache.bytes_per_token == layers * 2 * kv_heads * head_dim * 2
    assert ledger.total("macs", lambda row: row.mixing == "global") == layers * 2 * heads * head_dim * 1000


def test_stored_counts_say_that_nothing_was_compared():
    ledger = analyze("qwen3-0.6b", mode="decode", N=100)
    values = json.loads(ledger.to_json())
    assert values["agreement"] is None
    assert values["versions"].keys() == {"xfcost", "transformers", "torch"}


@pytest.mark.rest
@pytest.mark.skipif(sys.version_info < (3, 11), reason="an older transformers is installed there")
def test_counts_are_of_the_versions_that_run_here():
    assert {name: version(name).partition("+")[0] for name in RECORDED_WITH} == RECORDED_WITH


def test_of_several_reasons_against_a_spec_one_line_is_said(tmp_path):
    # two fields are wrong, and transformers' class takes them all the same
    fields = {"model_type": "gpt2", "n_embd": 32, "n_layer": 0, "n_head": 0, "vocab_size": 60_000}
    (tmp_path / "config.json").write_text(json.dumps(fields | {"n_positions": 64, "activation_function": "relu"}))
    done = xf("analyze", "config.json", "--N", "8", "--no-mixing", "--no-trace", cwd=tmp_path)
    reason = "xfcost has no spec of it: n_layer: expected a whole number of at least 1, got 0"
    assert done.stderr.splitlines() == [f"counted by running transformers' class of model_type gpt2; {reason}"]


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


# Fields of the published file that the list leaves out, as they change no count.
_PUBLISHED_BESIDE = {
    "bos_token_id": 151643, "eos_token_id": 151645, "initializer_range": 0.02, "rope_scaling": None,
    "sliding_window": None, "torch_dtype": "bfloat16", "transformers_version": "4.51.0", "use_cache": True,
}  # fmt: skip


def test_a_config_with_the_fields_of_a_listed_model_has_its_counts(tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps(json.loads(config_of("qwen3-0.6b").read_text(encoding="utf-8")) | _PUBLISHED_BESIDE))
    given = {"mode": "decode", "N": 100, "batch": 2, "on": "h100-sxm"}
    own, listed = (json.loads(analyze(name, **given).to_json()) for name in (str(config), "qwen3-0.6b"))
    note = f"{config} has the fields of qwen3-0.6b, whose stored counts these are"
    assert own.pop("notes") == [*listed.pop("notes"), note]
    assert own == listed
    code = f"import sys, xfcost; xfcost.analyze({str(config)!r}, N=8); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env=environment())
    compared = compare(str(config), "qwen3-1.7b", mode="decode", N=100)
    assert note in compared.ledgers[0].metadata.notes
    # another dtype is not stored: the class runs, on the file
    run = analyze(str(config), N=8, dtype="bfloat16", trace=False, mixing=False)
    assert (run.metadata.name, run.agreement.exact) == ("Qwen3ForCausalLM", True)


@pytest.mark.parametrize(
    ("name", "changed", "listed"),
    [
        ("qwen3-0.6b", {"torch_dtype": "float16", "quantization_config": {"quant_method": "fp8"}}, "qwen3-0.6b"),
        ("qwen3-0.6b", {"num_hidden_layers": 27}, None),
        ("qwen3-0.6b", {"layer_types": ["full_attention"] * 28}, None),
        ("qwen3-0.6b", {"head_dim": None}, None),
        ("clip-vit-l-14", {"is_encoder_decoder": False, "logit_scale_init_value": None}, "clip-vit-l-14"),
        ("clip-vit-l-14", {"vision_config": {"hidden_size": 1024}}, None),
    ],
)
def test_fields_that_may_change_a_count_make_another_model(name, changed, listed):
    assert listed_model(json.loads(config_of(name).read_text(encoding="utf-8")) | changed) == listed


def test_a_kernel_serves_attention_whose_class_is_run_eager():
    """gpt-oss 20B: 24 layers, every other one with a window of 128; 64 heads of 64, and sinks in the softmax."""
    given = {"mode": "prefill", "N": 200, "batch": 3, "on": "h100-sxm"}
    kernel, eager = analyze("gpt-oss-20b", **given), analyze("gpt-oss-20b", attention="eager", **given)
    assert [one.metadata.attention for one in (kernel, eager)] == ["fused", "eager"]
    for quantity in ("params", "macs", "flops", "comparisons"):
        assert kernel.total(quantity) == eager.total(quantity)
    # one log-sum-exp in float32 for each head and token; eager: scores and softmax over 200 keys and a sink, in 2 bytes
    assert kernel.attention_memory()["peak"] == 3 * 64 * 200 * 4
    assert eager.attention_memory()["peak"] == 2 * 3 * 64 * 200 * 201 * 2
    (core,) = [row for row in kernel.rows if row.operation == "flash_attention"]
    pairs = [sum(one - two < window for one in range(200) for two in range(one + 1)) for window in (128, 200)]
    assert core.pairs == sum(pairs) // 2
    assert core.macs == 3 * 64 * 200 * 200 * 64 * 2
    dense = eager.total("macs") - 24 * core.macs
    kept = int(core.macs * Fraction(core.pairs, 200 * 200))
    assert kernel.on.time.flops == 2 * (dense + 24 * kept)
    assert any("flash attention with sinks" in note for note in kernel.metadata.notes)
    steps = [analyze("gpt-oss-20b", mode="decode", N=200, attention=one) for one in (None, "eager")]
    assert steps[0].step == steps[1].step


def test_a_core_reads_the_keys_that_its_heads_share_once():
    """Qwen3 0.6B: 16 heads of queries, 8 of keys and values, of 128 numbers in two bytes."""
    points = bounded_roofline(analyze("qwen3-0.6b", mode="decode", N=100, batch=2, on="h100-sxm")).points
    (core,) = [one for one in points if "scaled_dot_product" in one.title]
    # keys and values of 100 tokens; queries and outputs of one
    assert core.operand_bytes == 28 * 2 * (100 * 8 * 2 + 16 * 2) * 128 * 2


def test_models_are_found_by_name():
    given = {"mode": "decode", "N": "8k", "batch": 4, "on": "h100-sxm"}
    found = find("qwen3-0.6b", "gpt-oss-20b", "llama3-8b", "llama-3.1-8b", max_memory="30GiB", **given)
    assert [row.name for row in found.rows] == ["gpt-oss-20b", "llama3-8b", "llama-3.1-8b", "qwen3-0.6b"]
    assert found.rows[1].figures == found.rows[2].figures  # of the same shapes
    for name in ("qwen3-0.6b", "gpt-oss-20b"):
        figures = next(one.figures for one in (*found.rows, *found.not_fitting) if one.name == name)
        own = analyze(name, **given)
        assert figures["params"] == own.total("params")
        assert figures["macs"] == own.total("macs")
        assert figures["cache_bytes"] == own.cache.bytes
        assert figures["memory"] == own.on.memory.needed
        assert figures["seconds"] == pytest.approx(own.on.seconds)


@pytest.mark.rest
def test_find_runs_the_class_of_a_model_where_its_counts_do_not_answer():
    given = {"N": 32, "batch": 2, "on": "h100-sxm"}
    (found,) = find("qwen3-0.6b", **given).rows
    own = analyze("qwen3-0.6b", trace=False, **given)
    assert found.figures["memory"] == own.on.memory.needed
    assert found.figures["seconds"] == pytest.approx(own.on.seconds)
    # 28 layers of q, o (1024 to 2048), k, v (to 1024), MLP (three times 1024 to 3072) and 151,936 scores of 1024
    # products, of 64 tokens; QK and AV of 16 heads, 128 wide, 32 queries and keys, 2 samples
    layer = 2 * 1024 * 2048 + 2 * 1024 * 1024 + 3 * 1024 * 3072
    attention = 28 * 2 * 2 * 16 * 128 * 32 * 32
    assert found.figures["macs"] == (28 * layer + 151_936 * 1024) * 64 + attention


def test_patterns_match_published_models():
    found = find("qwen3-?.6b", "gpt2*", mode="decode", N=64)
    assert {one.name for one in found.rows} >= {"qwen3-0.6b", "gpt2"}
    two = compare("qwen3-[0-9].*b", N=64, thorough=False)
    assert [one.metadata.source for one in two.ledgers] == ["qwen3-0.6b", "qwen3-1.7b"]


@pytest.mark.parametrize(("name", "gflops"), [("clip-vit-l-14", 175.33), ("siglip-so400m-384", 723.48)])
def test_images_and_texts_cost_what_others_count(name, gflops):
    """Two FLOPs for each multiply-add, as in open_clip's docs/model_profile.csv, which counts its own modules."""
    assert round(2 * analyze(name).total("macs") / 1e9, 2) == gflops
    assert analyze(name, batch=3).total("macs") > 2.99 * analyze(name).total("macs")


def test_an_encoder_of_text_by_hand():
    """22 layers of width 768 and gated networks of 1152, with all pairs of the mask in every layer."""
    layer = 768 * 4 * 768 + 768 * 2 * 1152 + 1152 * 768
    assert analyze("modernbert-base", N=8192).total("macs") == 22 * (layer * 8192 + 2 * 768 * 8192**2)


def test_a_step_of_llama_4_reads_its_last_chunk():
    """48 layers of 8 key heads of 128, in two bytes; of 36 the last 8191 tokens are cached, for chunks of 8192."""
    of_token = 8 * 128 * 2 * 2
    # 100,000 = 12 · 8192 + 1696, of which the step itself makes one
    for tokens, read in ((100_000, 1695), (16_385, 0), (16_384, 8191), (8193, 0), (8192, 8191), (8191, 8191)):
        ledger = analyze("llama-4-scout", mode="decode", N=tokens, batch=3, on="h100-sxmx8")
        assert ledger.cache.bytes == 3 * of_token * (36 * 8191 + 12 * tokens)
        assert ledger.step.cache_bytes == 3 * of_token * (36 * read + 12 * tokens)
        shared = analyze("llama-4-scout", mode="decode", N=tokens, batch=3, on="h100-sxmx8", tensor_parallel=8)
        assert shared.step.cache_bytes == ledger.step.cache_bytes


def test_whisper_has_the_keys_and_values_of_the_speech_in_its_cache():
    """32 layers of keys and values of 1280, in two bytes: of the text's tokens and of 1500 frames."""
    ledger = analyze("whisper-large-v3", mode="decode", N=448, batch=4, on="h100-sxm")
    assert ledger.cache.bytes == 4 * 32 * 2 * 1280 * 2 * (448 + 1500)
    assert ledger.cache.bytes_per_token == 32 * 2 * 1280 * 2
    assert ledger.cache.cross_attention_bytes == ledger.cache.state_bytes == 4 * 32 * 2 * 1280 * 2 * 1500
    # of each layer q, k, v, o and those of the cross-attention but its keys and values; the network; scores and values
    layer = 6 * 1280**2 + 2 * 1280 * 5120 + 2 * 1280 * (448 + 1500)
    assert ledger.total("macs") == 4 * (32 * layer + 1280 * 51_866)
    # the text is written for speech that was encoded once
    written = analyze("whisper-large-v3", mode="generate", N=4, new_tokens=100)
    encoder = analyze("whisper-large-v3", mode="prefill", N=4).total("macs")
    steps = [analyze("whisper-large-v3", mode="decode", N=4 + step).total("macs") for step in range(1, 100)]
    assert written.total("macs") == encoder + sum(steps)


def test_what_published_kernels_read_of_a_sparse_cache_is_noted():
    """DeepSeek V3.2: in each of 61 layers 128 numbers of every token, and 576 of the 2048 that the indexer chooses."""
    short, long = (analyze("deepseek-v3.2", mode="decode", N=N, batch=3) for N in (2000, 32_000))
    assert short.cache.bytes == 3 * 61 * (128 + 576) * 2 * 2000
    assert f"read {short.cache.bytes:,} bytes" in short.metadata.notes[0]
    assert f"read {3 * 61 * 2 * (128 * 32_000 + 576 * 2048):,} bytes" in long.metadata.notes[0]
    # what the class does in each step: keys and values of 128 heads, 128 wide, of all tokens out of the 512 cached
    again = [row for row in long.rows if row.path.endswith("kv_b_proj.mm")]
    assert sum(row.times * row.macs for row in again) == 3 * 61 * 512 * 128 * (128 + 128) * 32_000
    # every device of a group computes and caches the latents and the indexer's keys whole
    shared = analyze("deepseek-v3.2", mode="decode", N=32_000, batch=3, on="h200-sxmx16", tensor_parallel=16)
    assert shared.on.memory.cache == long.cache.bytes


@pytest.mark.rest
def test_a_training_step_on_devices_has_the_mixing_kinds_of_stored_counts():
    run = {"mode": "train", "N": 16, "on": "h100-sxmx4", "zero": 3, "checkpoint": "full", "trace": False}
    ledger = analyze("gemma-3-270m", **run)
    assert ledger.has_kinds
    step, memory = ledger.training.step, ledger.training.plan.memory
    assert 0 < step.recomputed_macs < step.forward_macs
    assert (memory.activations, memory.recomputed) == (step.kept_bytes, step.recomputed_bytes)
