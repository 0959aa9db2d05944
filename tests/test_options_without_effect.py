"""No option of `check` and `diff` is silently without effect: it changes a figure, or is refused."""

from typing import Any

import pytest

import xfcost
from helpers import xf
from xfcost.api.difference import diff
from xfcost.api.options import EVERY, OPTIONS
from xfcost.api.runs import WITHOUT_EFFECT
from xfcost.ledger.errors import UsageError
from xfcost.report.budgets import document

EIGHT = ["--mode", "train", "--on", "h100-sxmx8"]
# Options that no figure of theirs depends on -> with what they are given.
DEVICES: dict[str, dict[str, Any]] = {
    name: {"on": "h100-sxmx8"} | more
    for name, more in {
        "on": {}, "zero": {"zero": 3}, "checkpoint": {"checkpoint": "full"}, "tensor_parallel": {"tensor_parallel": 2},
        "sequence_parallel": {"tensor_parallel": 2, "sequence_parallel": True}, "pipeline": {"pipeline": 2},
        "gradients": {"gradients": "float32"}, "global_batch": {"global_batch": "1M"}, "mfu": {"mfu": "40%"},
        "mbu": {"mbu": "60%"}, "expert_parallel": {"expert_parallel": 8},
    }.items()
}  # fmt: skip
RATES: dict[str, dict[str, Any]] = {
    name: {"tokens": "1B"} | more
    for name, more in {
        "tokens": {}, "peak": {"peak": "312T", "mfu": "40%"}, "sustained": {"sustained": "1T"},
        "devices": {"sustained": "1T", "devices": 8},
    }.items()
}  # fmt: skip
# Those that change figures of both commands.
OF_COUNTS = {
    "N", "size", "batch", "dtype", "attention", "mode", "new_tokens", "logits", "optimizer", "memory_level", "rate",
}  # fmt: skip
# Those that change bytes of `check`; `diff` refuses them.
OF_BYTES = {"weights": "int8", "cache": "fp8"}


def test_every_option_is_looked_at():
    assert {*DEVICES, *RATES, *OF_COUNTS, *OF_BYTES} == set(OPTIONS)


@pytest.mark.parametrize(("name", "given"), OF_BYTES.items())
def test_quantised_bytes_are_of_check_alone(name, given):
    plain, quantised = (
        xfcost.check("gpt2", max_memory="1TiB", mode="decode", N=64, trace=False, **options).checked[0].held[0]
        for options in ({}, {name: given})
    )
    assert quantised.figure.value < plain.figure.value
    with pytest.raises(UsageError, match=f"--{name}: diff compares counts .*`xfcost analyze`"):
        diff("gpt2", "gpt2-m", mode="decode", **{name: given})


def test_the_table_names_options():
    for where, rows in WITHOUT_EFFECT.items():
        assert {name for row in rows for name in row.options} <= {*EVERY}, where


@pytest.mark.parametrize(("name", "options"), (DEVICES | RATES).items())
def test_what_changes_no_figure_is_refused(name, options):
    flag = f"--{name.replace('_', '-')}"
    with pytest.raises(UsageError, match=f"{flag}\\b.*: check .*`xfcost analyze"):
        xfcost.check("gpt2", max_params="1G", mode="train", **options)
    with pytest.raises(UsageError, match=f"{flag}\\b.*: diff compares counts .*`xfcost analyze`"):
        diff("gpt2", "gpt2-m", mode="train", **options)


def test_traffic_has_no_budget():
    with pytest.raises(UsageError, match="--memory-level: check has no budget of main-memory traffic"):
        xfcost.check("gpt2", max_params="1G", memory_level="192KiB")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["gpt2", "--mode", "decode", "--on", "h100-sxm", "--max-memory", "80GB"], "--on: check takes devices with"),
        (["gpt2", *EIGHT, "--max-memory", "80GB", "--mfu", "40%"], "--mfu: check holds the lower bound of --on"),
        (["gpt2", *EIGHT, "--max-memory", "80GB", "--global-batch", "1M"], "--global-batch: without --pipeline"),
        (["gpt2", *EIGHT, "--max-memory", "80GB", "--tensor-parallel", "5"], "--tensor-parallel 5"),
    ],
)
def test_devices_are_of_the_memory_of_a_training_step(words, told):
    done = xf("check", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr


def test_the_memory_of_a_device_is_that_of_its_training_plan():
    """Parameters, gradients, master copy and Adam's moments: 16 bytes a parameter, shared among 8 with ZeRO 3."""
    how = {"mode": "train", "on": "h100-sxmx8", "zero": 3, "checkpoint": "full"}
    [found] = xfcost.check("gpt2", max_memory="400MiB", **how).checked[0].held
    plan = xfcost.analyze("gpt2", trace=False, **how).training.plan
    assert (found.figure.value, found.figure.words) == (plan.memory.known, "memory of a device")
    assert found.figure.parts["parameters, gradients and optimizer"] == 16 * 124_439_808 // 8
    assert sum(found.figure.parts.values()) == plan.memory.known
    assert found.verdict == "over"
    assert sum(weight.share for weight in found.heaviest) < 1
    text = document(xfcost.check("gpt2", max_memory="400MiB", **how)).text("table")
    assert "on h100-sxm x8, --zero 3 --checkpoint full" in " ".join(text.split())
    assert "of the whole model, before devices share it" in " ".join(text.split())
