"""A training plan in reports: does it fit, the answer first, every part in JSON; and what is refused."""

from __future__ import annotations

import json

import pytest

import xfcost
from helpers import error_of, report_text, xf
from plans import GIB, XL, group, planned
from xfcost.counting.checking import BudgetFigure
from xfcost.counting.distributed import step_batch
from xfcost.ledger.errors import UsageError
from xfcost.ledger.execution import CHECKPOINTS
from xfcost.ledger.training import Mesh

# ── does it fit ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_it_fits_or_the_first_remedy_is_named():
    assert planned(on=group(memory=40 * GIB)).fits is True
    tight = planned(on=group(memory=20 * GIB))
    assert (tight.fits, tight.remedies) == (False, ("--zero 1",))
    assert tight.spare_bytes == 20 * GIB - tight.memory.known < 0
    assert planned(on=group(memory=8 * GIB)).remedies == ("--zero 3", "--checkpoint selective")
    assert planned(on=group(memory=GIB)).remedies == ()


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_with_a_remedy_it_fits_and_no_option_that_was_given_is_taken_back(zero, checkpoint):
    for gib in (3, 6, 8, 12, 20):
        plan = planned(on=group(memory=gib * GIB), zero=zero, checkpoint=checkpoint)
        options = dict(one.removeprefix("--").split() for one in plan.remedies)
        made = {"zero": int(options.get("zero", zero)), "checkpoint": options.get("checkpoint", checkpoint)}
        mended = planned(on=group(memory=gib * GIB), **made)
        assert mended.fits is (plan.fits or bool(plan.remedies))
        assert made["zero"] >= zero
        assert CHECKPOINTS.index(made["checkpoint"]) >= CHECKPOINTS.index(checkpoint)


def test_a_remedy_adds_to_what_is_given():
    # states of 1.3 G parameters: 2.45 GiB with --zero 3; the matrices of 24 layers, 24 · 2 · 16 · 2048² bytes, 3 GiB
    tight = planned(on=group(memory=8 * GIB), zero=3)
    assert tight.remedies == ("--checkpoint selective",)
    assert planned(on=group(memory=20 * GIB), checkpoint="full").remedies == ("--zero 1",)


def test_without_a_trace_the_states_of_adafactor_are_not_known():
    plan = planned("gpt3-xl", optimizer="adafactor")
    assert (plan.memory.optimizer, plan.memory.states, plan.fits, plan.bytes_per_parameter) == (None,) * 4
    assert planned("gpt3-xl", optimizer="adafactor", on=group(memory=GIB)).fits is False


# ── reports ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_answer_is_in_the_first_ten_lines():
    text = xf("analyze", "gpt3-xl", "--mode", "train", "--tokens", "300B", "--on", "a100-sxm-80x8")
    first = "\n".join(text.stdout.splitlines()[:10])
    assert "300.0 G tokens on 8 × NVIDIA A100 SXM 80 GB: 42.07 days at 30 %, 31.55 days at 40 %, 25.24 days at" in first
    assert "lower bound 11.78 days: 2.541e21 FLOPs in 18,310,547 steps (of pairs that masks keep, without" in first
    assert round(2.541e21 / (8 * 312e12) / 86400, 2) == 11.78
    assert "which no run reaches" in first
    assert ": fits, " in first
    assert "sustained" not in text.stdout
    assert "tracing" not in text.stderr


def test_a_range_money_and_a_lack_of_memory_in_words():
    options = XL | {"tokens": 300e9, "mfu": "35%:50%", "checkpoint": "full", "zero": 1}
    lines = report_text(xfcost.analyze("gpt3-xl", on=group(memory=7 * GIB, price=2), **options))
    words = " ".join(lines.split())
    assert "78.76 days to 112.5 days (630.1 to 900.1 device-days) at 50 % to 35 % MFU; it costs" in words
    assert "at 2 per device-hour (your price)" in words
    assert "too much; it would with --zero 2" in words
    assert "recomputation: +31.1 % FLOPs (checkpointed blocks): 35 % MFU is 45.9 % HFU" in words
    assert "one of 8 shares (ZeRO 1)" in words


def words_of(spec, **options):
    return " ".join(report_text(xfcost.analyze(spec, **(XL | options))).split())


def test_a_utilisation_that_needs_skipped_scores_says_so():
    plain, above = (words_of("llama3-8b", on=group(), N=131072, attention="fused", mfu=mfu) for mfu in (0.5, 0.98))
    note = "HFU (above 100 % only if masked scores are skipped)"
    assert f"98 % MFU is 111.4 % {note}" in above
    assert "only if" not in plain


def test_tokens_that_do_not_fill_a_step_stand_beside_whole_steps():
    words = words_of("gpt2", on=group(), tokens=10, mfu=0.4, attention="fused")
    assert "above 6·P·D (6.116e12, D = 8,192 tokens: the last step is filled): attention matmuls" in words
    assert "than once per token" not in words
    assert " FLOPs in 1 step (of" in words
    assert "10 tokens on 8 × One: 21.9 ms (175 ms of one device) at 40 % MFU" in words
    assert "e-0" not in words
    ranged = words_of("gpt2", on=group(), tokens=10, mfu="40%:50%", attention="fused")
    assert "17.5 ms to 21.9 ms (140 ms to 175 ms of one device) at 50 % to 40 % MFU" in ranged
    many = words_of("gpt2", on=group(), tokens=10**9, mfu=0.4)
    assert "is filled" not in many
    # eight devices for 2.7 hours
    assert " device-hours)" in many
    assert " device-days)" in words_of("gpt2", on=group(), tokens=10**11, mfu=0.4)


def test_every_report_counts_the_logits_of_the_loss():
    options = XL | {"attention": "fused"}
    alone, on = xfcost.analyze("gpt2", **options), xfcost.analyze("gpt2", on=group(1), **options)
    step, logits = alone.training.step, 4 * 1024 * 50257
    assert step.loss_logits_bytes == logits
    assert step.total_with_loss_bytes == step.total_bytes + logits == on.training.plan.memory.known
    words = " ".join(report_text(alone).split())
    assert "memory: 2.331 GiB (parameters, gradients, optimizer states, saved activations, 196.3 MiB float32" in words
    assert "total 2.331 GiB" in words
    checked = xf("check", "gpt2", "--mode", "train", "--max-memory", "1GiB").stdout
    assert "2.331 GiB" in checked
    assert "logits of the loss 196.3 MiB" in " ".join(checked.split())
    image = xfcost.analyze("vit-b16", **options)
    assert image.training.step.loss_logits_bytes == 0
    assert "logits of the loss" not in report_text(image)


def test_logits_that_outweigh_all_else_are_no_operation_s():
    parts = {"saved activations": 3, "parameters, gradients and optimizer": 2, "logits of the loss": 5}
    figure = BudgetFigure(10, "memory", parts)
    assert figure.largest == "saved activations"


def test_json_has_every_part_and_compare_s_csv_too():
    options = ("--mode", "train", "--tokens", "1B", "--on", "a100-sxm-80x8", "--dtype", "bf16", "--mfu", "40%")
    plan = json.loads(xf("analyze", "gpt3-xl", *options, "--format", "json").stdout)["training"]["plan"]
    parts = ("parameters", "gradients", "master", "optimizer", "activations", "recomputed", "logits")
    assert sum(plan["memory"][part] for part in parts) == plan["memory"]["total"]
    assert plan["spare_bytes"] == plan["device_bytes"] - plan["memory"]["total"]
    assert (plan["device"], plan["devices"], plan["data"], plan["fits"]) == ("a100-sxm-80", 8, 8, True)
    lines = xf("compare", "gpt3-xl", "gpt2-xl", *options, "--format", "csv").stdout.splitlines()
    columns = dict(zip(lines[0].split(","), lines[1].split(","), strict=True))
    assert int(columns["device_bytes"]) == plan["memory"]["total"]
    assert int(columns["device_optimizer_bytes"]) == plan["memory"]["optimizer"]
    assert float(columns["run_days"]) == pytest.approx(plan["at"][0]["days"])


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_global_batch_is_rounded_to_whole_samples():
    mesh = Mesh(on=group(8), global_batch=10**6)
    assert step_batch(mesh, 1, 2048) == (61, 488)
    assert step_batch(Mesh(on=group(8), pipeline=4), 3, 2048) == (4, 24)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--tensor-parallel 3", "8 devices don't divide by it; expected a product of the two that is 1, 2, 4, 8"),
        ("--tensor-parallel 4 --pipeline 4", "--tensor-parallel 4 x --pipeline 4 = 16: 8 devices don't divide"),
        (
            "--on a100-sxm-80x24 --tensor-parallel 3",
            "`heads` has 16, which don't divide by it; with 24 devices it could",
        ),
        ("--on a100-sxm-80x10 --pipeline 5", "24 blocks don't divide into so many stages; it could be 1, 2, 3, 4, 6"),
        ("--global-batch 100k", "it could be 98,304 (48 samples) or 114,688 (56 samples)"),
        ("--global-batch 3", "it could be 16,384 (8 samples)"),
        ("--sequence-parallel", "add --tensor-parallel 8"),
        ("--N 2047 --tensor-parallel 8 --sequence-parallel", "2047 tokens don't divide by --tensor-parallel 8"),
        ("--zero 4", "--zero 4: expected a ZeRO stage from 0 to 3, as in --zero 1\n"),
        ("--pipeline 0", "--pipeline 0: expected a whole number from 1 to 100000000, as in --pipeline 8\n"),
        ("--tensor-parallel 0", "as in --tensor-parallel 8\n"),
        ("--global-batch 0", "as in --global-batch 1M (128k is 128,000 and 128Ki 131,072; so M, G or B, T)\n"),
        ("--checkpoint half", "--checkpoint half: expected one of full, none, selective"),
        ("--mfu 0", "expected a share of the peak from 0.000001 to 1"),
        ("--mfu 140%", "expected a share of the peak from 0.000001 to 1"),
        ("--mfu 30%:40%:50%", "expected one share or a range of two"),
        ("--mfu 40%:", "--mfu 40%:: expected one share or a range of two, as in --mfu 40% or --mfu 35%:50%"),
        ("--mfu 50%:35%", "--mfu 50%:35%: expected the lower end of a range first, as in --mfu 35%:50%"),
        ("--mfu 90% --checkpoint full", "of their peak even if masked scores are skipped; expected at most 8"),
        ("--gradients fp7", "--gradients fp7: expected one of"),
        ("--peak 312T", "--peak: --on a100-sxm-80 x8 says it already"),
        ("--devices 4", "--devices: --on a100-sxm-80 x8 says it already"),
        ("--dtype float16 --tokens 300Q", "--tokens 300Q: expected a whole number"),
    ],
)
def test_bad_input_ends_in_one_message(options, message):
    given = ["--on", "a100-sxm-80x8", "--dtype", "bf16", *options.split()]
    done = error_of("analyze", "gpt3-xl", "--mode", "train", *given)
    assert message in done
    assert len(done.splitlines()) == 1


def test_options_of_a_plan_need_training_and_devices():
    for name, value in (("zero", 0), ("checkpoint", "full"), ("tensor_parallel", 2), ("sequence_parallel", True)):
        flag = f"--{name.replace('_', '-')}"
        with pytest.raises(UsageError, match=f"{flag}: it is of training; add --mode train"):
            xfcost.analyze("gpt2", trace=False, **{name: value})
        with pytest.raises(UsageError, match=f"{flag}: how devices share a run; say which"):
            xfcost.analyze("gpt2", trace=False, mode="train", **{name: value})
    with pytest.raises(UsageError, match="a range is of --mode train --on DEVICE; with --peak give one"):
        xfcost.analyze("gpt2", trace=False, mode="train", tokens=1e9, peak="1T", mfu="30%:40%")


def test_tensor_parallelism_needs_heads():
    with pytest.raises(UsageError, match=r"it divides attention by heads .* has none"):
        planned("mamba-130m", tensor_parallel=2)
    with pytest.raises(
        UsageError, match=r"`kv_heads` has 8, which don't divide by it; with 16 devices it could be 1, 2"
    ):
        planned("llama3-8b", tensor_parallel=16, on=group(16))
