"""A training plan in reports: does it fit, the answer first, every part in JSON; and what is refused."""

from __future__ import annotations

import json

import pytest

import xfcost
from helpers import xf
from plans import GIB, XL, group, planned
from xfcost.counting.distributed.divisibility import step_batch
from xfcost.ledger.distributed import Mesh
from xfcost.ledger.errors import UsageError
from xfcost.report.table import ledger_plain

# ── does it fit ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_it_fits_or_the_first_remedy_is_named():
    assert planned(on=group(memory=40 * GIB)).fits is True
    tight = planned(on=group(memory=20 * GIB))
    assert (tight.fits, tight.remedies) == (False, ("--zero 1",))
    assert tight.spare_bytes == 20 * GIB - tight.memory.known < 0
    assert planned(on=group(memory=8 * GIB)).remedies == ("--zero 3", "--checkpoint selective")
    assert planned(on=group(memory=GIB)).remedies == ()


def test_without_a_trace_a_model_of_undeclared_tensors_says_what_it_does_not_know():
    plan = planned("gpt3-xl", optimizer="adafactor")
    assert (plan.memory.optimizer, plan.memory.states, plan.fits, plan.bytes_per_parameter) == (None,) * 4
    assert planned("gpt3-xl", optimizer="adafactor", on=group(memory=GIB)).fits is False


# ── reports ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_answer_is_in_the_first_ten_lines():
    text = xf("analyze", "gpt3-xl", "--mode", "train", "--tokens", "300B", "--on", "a100-sxm-80x8")
    first = "\n".join(text.stdout.splitlines()[:10])
    assert "300.0 G tokens on 8 × NVIDIA A100 SXM 80 GB: 42.07 days at 30 %, 31.55 days at 40 %, 25.24 days at" in first
    assert "lower bound 12.9 days" in first
    assert "which no run reaches" in first
    assert ": fits, " in first
    assert "sustained" not in text.stdout
    assert "tracing" not in text.stderr


def test_a_range_money_and_a_lack_of_memory_in_words():
    options = XL | {"tokens": 300e9, "mfu": "35%:50%", "checkpoint": "full", "zero": 1}
    lines = ledger_plain(xfcost.analyze("gpt3-xl", on=group(memory=7 * GIB, price=2), **options))
    words = " ".join(lines.split())
    assert "78.76 days to 112.5 days (630.1 to 900.1 device-days) at 50 % to 35 % MFU; it costs" in words
    assert "at 2 per device-hour (your price)" in words
    assert "too much; it would with --zero 2" in words
    assert "recomputation: +31.1 % FLOPs (checkpointed blocks): 35 % MFU is 45.9 % HFU" in words
    assert "one of 8 shares (ZeRO 1)" in words


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
        ("--zero 4", "expected a ZeRO stage from 0 to 3"),
        ("--checkpoint half", "--checkpoint half: expected one of full, none, selective"),
        ("--mfu 0", "expected a share of the peak up to 1"),
        ("--mfu 140%", "expected a share of the peak up to 1"),
        ("--mfu 30%:40%:50%", "expected one share or a range of two"),
        ("--mfu 90% --checkpoint full", "120.0% of their peak; expected at most 75.0%"),
        ("--gradients fp7", "--gradients fp7: expected one of"),
        ("--peak 312T", "--peak: --on a100-sxm-80 x8 says it already"),
        ("--devices 4", "--devices: --on a100-sxm-80 x8 says it already"),
        ("--dtype float16 --tokens 300Q", "--tokens 300Q: expected a whole number"),
    ],
)
def test_bad_input_ends_in_one_message(options, message):
    given = ["--on", "a100-sxm-80x8", "--dtype", "bf16", *options.split()]
    done = xf("analyze", "gpt3-xl", "--mode", "train", *given)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


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
