"""FLOPs by convention: held against formulas of trainers, and what they make of a utilisation."""

import json
from fractions import Fraction

import pytest

from xfcost.api.analysis import analyze
from xfcost.ledger.errors import UsageError
from xfcost.ledger.model_flops import model_flops

CONVENTIONS = ("dense", "kept", "6nd")
PLAN = {"mode": "train", "N": 2048, "tokens": "1B", "on": "h100-sxmx8", "zero": 3, "trace": False}
# Llama 3 8B: layers, width, heads' width, of keys and values, of the MLP, vocabulary.
LAYERS, WIDTH, OF_KEYS, HIDDEN, VOCABULARY = 32, 4096, 1024, 14336, 128256


def by_layers(tokens, pairs):
    """MACs of the products of a forward pass of `tokens`, whose heads have so many `pairs`: Megatron's terms."""
    layer = tokens * (WIDTH * (2 * WIDTH + 2 * OF_KEYS) + 3 * WIDTH * HIDDEN) + 2 * pairs * WIDTH
    return LAYERS * layer + tokens * WIDTH * VOCABULARY


@pytest.mark.parametrize("attention", ["eager", "fused"])
@pytest.mark.parametrize(("mode", "passes"), [("forward", 1), ("train", 3)])
def test_a_decoder_s_flops_are_those_of_its_layers(mode, passes, attention):
    """3 times the forward pass in training, 2 FLOPs per multiply-add, nothing that fused attention recomputes."""
    n = 512
    found = model_flops(analyze("llama3-8b", mode=mode, N=n, batch=2, attention=attention, trace=False))
    assert found.dense == 2 * passes * by_layers(2 * n, 2 * n * n)
    assert found.kept == 2 * passes * by_layers(2 * n, 2 * n * (n + 1) // 2)
    assert found.by_params == 2 * passes * 8_030_261_248 * 2 * n


def test_windows_are_kept_pairs():
    """Of blocks of 2,048 queries by 6,144 keys a window of 4,096 keeps 4,096·N - 4,096·4,095/2 pairs."""
    n, window = 8192, 4096
    ledger = analyze("mistral-7b-sliding", N=n, trace=False)
    found = model_flops(ledger)
    mixed = 2 * sum(row.macs * row.times for row in ledger.rows if row.mixes)
    kept = Fraction(window * n - window * (window - 1) // 2, n * 6144)
    assert found.dense - found.kept == mixed - mixed * kept


@pytest.mark.parametrize(
    ("how", "tokens"),
    [
        ({"mode": "prefill", "N": 500, "cached_prefix": 100, "batch": 3}, 1200),
        ({"mode": "decode", "N": 500, "batch": 3}, 3),
        ({"mode": "generate", "N": 500, "new_tokens": 11}, 510),
    ],
    ids=lambda one: one["mode"] if isinstance(one, dict) else "",
)
def test_tokens_are_those_that_are_computed(how, tokens):
    for model in ("gpt2", "qwen3-8b"):
        ledger = analyze(model, trace=False, **how)
        assert model_flops(ledger).by_params == 2 * ledger.total("active_params") * tokens


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_days_are_of_the_flops_of_the_convention(convention):
    ledger = analyze("llama3-8b", mfu="40%", flops=convention, **PLAN)
    plan, one = ledger.training.plan, model_flops(ledger)
    passes = plan.step_tokens // 2048
    assert plan.model_flops == passes * one.by(convention)
    assert plan.at[0].step_seconds == pytest.approx(passes * one.by(convention) / (0.4 * plan.peak * 8))
    # what the devices compute, of the pairs that the convention has
    computed = plan.least_step_flops + plan.least_recomputed_flops
    computed = computed if convention == "kept" else plan.step_flops + plan.recomputed_flops
    assert plan.at[0].hfu * plan.peak * 8 == pytest.approx(computed / plan.at[0].step_seconds)
    assert plan.bound_step_seconds == pytest.approx(passes * one.kept / (plan.peak * 8))
    saved = json.loads(ledger.to_json())
    assert saved["flops_by_convention"] == one.to_object(convention)
    assert (saved["flops_by_convention"]["mfu"], saved["training"]["plan"]["mfu_convention"]) == (convention,) * 2


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_so_they_are_without_devices(convention):
    """Whole steps of 1,024 tokens."""
    how = {"mode": "train", "tokens": 1024 * 1000, "peak": "312T", "mfu": "40%", "trace": False}
    ledger = analyze("gpt2", flops=convention, **how)
    assert ledger.training.run.seconds == pytest.approx(1000 * model_flops(ledger).by(convention) / (0.4 * 312e12))


def test_a_utilisation_above_the_peak_is_one_of_all_pairs():
    """90 % of the peak by kept pairs is above 100 % by all of them, with 64k tokens."""
    how = PLAN | {"N": 65536, "tokens": None, "on": "b200x64", "pipeline": 2}
    plan = analyze("llama3-8b", mfu="90%", flops="kept", **how).training.plan
    assert 0.9 * plan.step_flops / plan.least_step_flops > 1


@pytest.mark.parametrize("given", [{"mode": "decode"}, {"mode": "forward", "on": "h100-sxm"}], ids=str)
def test_a_convention_of_no_training_is_refused(given):
    with pytest.raises(UsageError, match="--flops kept: only for --mode train"):
        analyze("gpt2", flops="kept", trace=False, **given)
