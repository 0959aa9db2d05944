"""Language models run in bfloat16 with fused attention, but in a forward; everything else in float32, eager."""

import pytest
import torch
from torch import nn

import xfcost
from helpers import PLAIN, report_text, stdout_of, table_of
from strategies import stack, stored
from xfcost.api.axes import measured_axis
from xfcost.api.measuring.plan import SweptSizes, planned, run_of
from xfcost.api.runs import make_run, timing_plan
from xfcost.spec.load import load
from xfcost.spec.run import is_language_model, with_defaults

OF_LANGUAGE_MODELS = ("bfloat16", "fused")
USUAL = ("float32", "eager")
# Mode -> the options that it needs.
MODES = {"prefill": {}, "decode": {}, "generate": {"new_tokens": 3}, "train": {}}
BLOCK = ({"kind": "full", "heads": 2, "causal": True}, {"kind": "mlp", "ratio": 2})
TEXT = stack(*BLOCK, length=6, name="Text", head={"kind": "language_model"})


@pytest.fixture
def text(tmp_path):
    """A language model of one block."""
    return stored(TEXT, tmp_path, "text.yaml")


def ran(ledger):
    return ledger.metadata.dtype, ledger.metadata.attention


def counted(spec, **options):
    return xfcost.analyze(spec, trace=False, **options)


@pytest.mark.parametrize("preset", ["gpt2", "mixtral-8x7b", "mamba-130m", "t5-small", "bert-base-mlm", "igpt-s"])
def test_tokens_and_scores_of_their_vocabulary_are_a_language_model(preset):
    assert is_language_model(load(preset).spec)


# An image, a classifier, no head, a head that pools, and a decoder of words whose encoder sees an image.
@pytest.mark.parametrize("preset", ["vit", "linformer-512", "gpt1-backbone", "bert-base", "show-attend-tell"])
def test_what_lacks_either_is_none(preset):
    assert not is_language_model(load(preset).spec)


@pytest.mark.parametrize("mode", MODES)
def test_language_models_run_in_bfloat16_with_fused_attention(text, mode):
    ledger = xfcost.analyze(text, mode=mode, **MODES[mode])
    assert ran(ledger) == OF_LANGUAGE_MODELS
    assert ledger.metadata.default_note
    # the real model agrees
    assert ledger.agreement.exact


def test_a_forward_is_in_float32_and_eager_and_what_is_given_wins(text):
    for options in ({}, {"mode": "decode", **PLAIN}):
        ledger = counted(text, **options)
        assert (ran(ledger), ledger.metadata.default_note) == (USUAL, None)
    assert ran(counted(text, mode="decode", dtype="float16")) == ("float16", "fused")
    assert ran(counted(text, mode="train", attention="eager")) == ("bfloat16", "eager")


def test_a_system_without_attention_is_not_said_to_run_it():
    assert "fused" not in report_text(xfcost.compare("mamba-130m", "mamba-370m", mode="decode", trace=False))
    assert "fused" not in report_text(counted("mamba-130m", mode="decode"))
    assert counted("mamba-130m", mode="decode", dtype="float16").metadata.default_note is None


@pytest.mark.parametrize("preset", ["vit", "bert-base"])
def test_other_systems_keep_float32_and_eager(preset):
    ledger = counted(preset, mode="train")
    assert (ran(ledger), ledger.metadata.default_note) == (USUAL, None)


def test_a_comparison_has_one_dtype_and_one_attention(text):
    alike = xfcost.compare(text, text, mode="train")
    assert [ran(one) for one in alike.ledgers] == [OF_LANGUAGE_MODELS] * 2
    mixed = xfcost.compare(text, "vit-ti32", mode="train")
    assert [ran(one) for one in mixed.ledgers] == [USUAL] * 2


def test_language_models_run_in_bfloat16_on_devices_in_every_mode(text):
    forward = counted(text, on="h100-sxm")
    assert ran(forward) == OF_LANGUAGE_MODELS
    assert ran(counted(text, on="h100-sxm", dtype="float32", attention="eager")) == USUAL
    assert ran(counted(text)) == ran(counted("vit-ti32", on="h100-sxm")) == USUAL
    mixed = xfcost.compare(text, "vit-ti32", on="h100-sxm")
    assert [ran(one) for one in mixed.ledgers] == [USUAL] * 2


def test_a_device_without_bfloat16_runs_language_models_in_float16():
    ledger = xfcost.analyze("gpt2", N=16, on="t4")  # 65 TFLOP/s in float16, none in bfloat16
    assert (ledger.metadata.dtype, ledger.metadata.attention) == ("float16", "fused")


def test_a_module_without_a_spec_is_no_language_model():
    run = with_defaults(make_run(mode="train"), [load("gpt2").spec, False])
    assert (run.dtype, run.attention) == USUAL


def test_a_module_keeps_the_dtype_of_its_weights_and_specs_beside_it_are_float32(text):
    module = nn.Linear(4, 5).to(torch.float16)
    mixed = xfcost.compare(text, (module, torch.zeros(2, 4, dtype=torch.float16)), mode="train")
    assert ran(mixed.ledgers[0]) == USUAL
    assert mixed.ledgers[1].metadata.dtype == "float16"
    assert mixed.growth["Text"]["attention_bytes"] == pytest.approx(2.0)  # of matrices


@pytest.mark.parametrize(
    ("words", "ran"), [(("cache",), OF_LANGUAGE_MODELS), (("scores", "--mode", "decode"), ("bfloat16", "eager"))]
)
def test_plots_of_caches_and_of_scores(text, tmp_path, words, ran):
    stdout_of("plot", text, "--N", "6:8", "-o", "a.csv", "--metric", *words, cwd=tmp_path)
    rows = table_of(tmp_path / "a.csv")
    assert {(row["dtype"], row["attention"]) for row in rows} == {ran}
    assert words != ("cache",) or int(rows[0]["cache_bytes"]) == 2 * 6 * 8 * 2


def plan_of(*specs, **options):
    axis, span = measured_axis("6", None)
    return planned(specs, options, SweptSizes(axis, span, 1), timing_plan("cpu", {}))


def test_measured_rows_say_what_they_ran(text):
    found = plan_of(text, mode="forward,decode")
    rows = [one.configuration for one in found.rows]
    assert [(one.mode, one.dtype, one.attention) for one in rows] == [
        ("forward", *USUAL),
        ("decode", *OF_LANGUAGE_MODELS),
    ]
    assert len(found.default_notes) == 1
    given = plan_of(text, mode="decode", **PLAIN)
    assert given.default_notes == ()
    # rows of a file are found again by these: none of float32 is taken for one of bfloat16
    assert given.rows[0].configuration != rows[1]
    again = run_of(rows[1])
    assert (again.dtype, again.attention, again.default_note) == (*OF_LANGUAGE_MODELS, None)
