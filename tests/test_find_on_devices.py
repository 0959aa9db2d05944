"""`xfcost find --on`: what fits in the devices' memory, and the lower bound of the time as a quantity."""

from __future__ import annotations

import json
import random

import msgspec
import numpy as np
import pytest

import xfcost
from helpers import xf
from xfcost.counting.devices.find import read_devices
from xfcost.counting.find.costs import totals
from xfcost.counting.find.quantities import figures_of
from xfcost.counting.find.space import Builder
from xfcost.counting.find.variables import read_variables
from xfcost.ledger.budgets import read_budgets
from xfcost.ledger.device import DeviceGroup
from xfcost.ledger.errors import UsageError
from xfcost.report.find import document
from xfcost.report.find_figure import find_bytes
from xfcost.spec.load import load
from xfcost.spec.run import Run

DEVICE = "a100-sxm-80"


def without_memory() -> DeviceGroup:
    """A device whose memory is not known."""
    return DeviceGroup(device=msgspec.structs.replace(read_devices(DEVICE).device, memory=None))


@pytest.mark.parametrize("mode", ["forward", "prefill", "decode"])
@pytest.mark.parametrize("options", [{}, {"batch": 3, "dtype": "bfloat16", "attention": "fused"}])
def test_the_bound_and_the_memory_are_those_of_analyze(mode, options):
    names = "gpt2", "mixtral-8x7b", "longformer-base-4096", "mamba-130m", "vit"
    found = xfcost.find(*names, mode=mode, on="h200x8", N=512 if mode == "decode" else None, **options)
    assert found.rows
    given = {"dtype": found.run.dtype, "attention": found.run.attention, "batch": found.run.batch}
    for row in found.rows:
        size = found.run.tokens and found.run.tokens[0]
        on = xfcost.analyze(row.name, trace=False, mode=mode, on="h200x8", N=size, **given).on
        assert row.figures["seconds"] == on.seconds > 0
        assert row.figures["memory"] == on.memory.needed


SPACES = {
    "gpt2": (["stages.0.dim=768,1024", "stages.0.depth=2:12:2", "**.heads=8,16"], Run(mode="decode", batch=8)),
    "llama3-8b": (["stages.0.depth=8:32:8", "stages.0.block.0.kv_heads=1,8"], Run(tokens=(4096,), batch=2)),
    "swin-t": (["stages.2.depth=2:18:4", "stages.*.pattern.*.0.size=7,8"], Run(size=(256, 256))),
}


@pytest.mark.parametrize("name", SPACES)
def test_ranges_have_the_bound_of_analyze(name):
    keys, run = SPACES[name]
    variables, on, dtype = read_variables(keys), read_devices(DEVICE), "bfloat16"
    run = run._replace(dtype=dtype, attention="fused")
    sizes = tuple(len(variable.values) for variable in variables)
    space = Builder(load(name), run, list(enumerate(variables)), sizes).space()
    draw = random.Random(name)  # noqa: S311 - no secret
    drawn = [tuple(draw.randrange(size) for size in sizes) for _ in range(6)]
    costs, reasons = space.terms.at([np.array(column) for column in zip(*drawn, strict=True)])
    assert not reasons.any()
    seconds = figures_of(totals(costs, dtype, on))["seconds"]
    for at, one in enumerate(drawn):
        texts = [f"{v.key}={json.dumps(v.values[n])}" for v, n in zip(variables, one, strict=True)]
        ledger = xfcost.analyze(
            name, settings=texts, trace=False, mode=run.mode, batch=run.batch, dtype=dtype, attention="fused",
            N=run.tokens and run.tokens[0], size=run.size, on=DEVICE,
        )  # fmt: skip
        assert seconds[at] == ledger.on.seconds


def test_what_does_not_fit_in_memory_is_left_out():
    found = xfcost.find("llama2-*", mode="decode", N=4096, batch=8, on="a100-sxm-80")
    over = {one.name: one for one in found.not_fitting}
    assert [row.name for row in found.rows] == ["llama2-13b", "llama2-7b"]
    assert over["llama2-70b"].reason == "74.7 % over the 79.26 GiB of a100-sxm-80"
    for name in ("llama2-7b", "llama2-13b", "llama2-70b"):
        ledger = xfcost.analyze(name, mode="decode", N=4096, batch=8, on="a100-sxm-80", trace=False)
        assert ledger.on.memory.fits == (name not in over)
    assert "llama2-70b" in {row.name for row in xfcost.find("llama2-*", mode="decode", on="a100-sxm-80x2").rows}
    ranges = xfcost.find("llama2-7b", vary={"stages.0.depth": [32, 64, 320]}, mode="decode", on="a100-sxm-80")
    assert [row.values for row in ranges.rows] == [(64,), (32,)]
    assert ranges.left_out[0].reason == "the 79.26 GiB of a100-sxm-80"
    again = xfcost.find("llama2-7b", vary={"stages.0.depth": [32, 64, 320]}, mode="decode", on="a100-sxm-80", jobs=2)
    assert again == ranges


def test_seconds_are_limited_and_sorted():
    options = {"mode": "decode", "N": 512, "on": DEVICE}
    found = xfcost.find("gpt2*", max_seconds="500us", sort="seconds", front="params,seconds", **options)
    seconds = [row.figures["seconds"] for row in found.rows]
    assert seconds == sorted(seconds)
    assert max(seconds) <= 500e-6 < min(one.figures["seconds"] for one in found.not_fitting)
    assert found.left_out[0].reason == "--max-seconds 500 µs"
    assert [row.name for row in found.front] == [row.name for row in found.rows]
    lines = document(found).text("table").splitlines()
    assert "fit --max-seconds 500 µs and the 79.26 GiB of a100-sxm-80" in lines[0]
    assert lines[1].startswith("least time bound: gpt2 (")
    assert "time bound" in lines[3]
    assert b"<svg" in find_bytes(found, ".svg")


def test_the_command():
    words = ["--vary", "stages.0.depth=2:24:2", "--on", "h100-sxm x2", "--max-seconds", "40 µs", "--sort", "seconds"]
    ran = xf("find", "vit", "--dtype", "bf16", *words, "--format", "json")
    assert ran.returncode == 0, ran.stderr
    asked = json.loads(ran.stdout)
    assert asked["asked"]["on"] == "h100-sxm x2"
    assert asked["asked"]["budgets"]["seconds"] == 40e-6
    best = asked["models"][0]
    on = xfcost.analyze("vit", dtype="bf16", settings=best["settings"], trace=False, on="h100-sxm x2").on
    assert best["seconds"] == on.seconds
    # without devices nothing is said of them
    assert "seconds" not in json.loads(xf("find", "vit", "--format", "json").stdout)["models"][0]


def test_devices_without_memory_leave_nothing_out_and_say_so():
    found = xfcost.find("llama2-70b", mode="decode", on=without_memory())
    assert (found.fits, found.left_out) == (1, ())
    assert "the memory of a100-sxm-80 is not known: models are not left out for it" in document(found).text("table")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_seconds": "10ms"}, "--max-seconds: seconds on which device? Name it, as in --on h100-sxm"),
        ({"sort": "seconds"}, "--sort seconds: seconds on which device?"),
        ({"front": "params,seconds"}, "--front params,seconds: seconds on which device?"),
        ({"on": "h100-smx"}, "--on h100-smx: there is no such device; did you mean h100-sxm"),
        ({"on": "tpu-v5e", "dtype": "float64"}, "tpu-v5e: no float64 peak of it is known"),
        ({"on": DEVICE, "max_seconds": "10GB"}, "--max-seconds 10GB: expected seconds, or a time in s, ms, µs or ns"),
    ],
)
def test_bad_input(options, message):
    for vary in ({}, {"stages.0.no.such.key": [1]}):  # refused before anything is counted
        with pytest.raises(UsageError) as caught:
            xfcost.find("vit", vary=vary, **options)
        assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10ms", 0.01), ("250 µs", 250e-6), ("250us", 250e-6), ("5 ns", 5e-9), ("1.5s", 1.5), ("2", 2.0), (0.5, 0.5)],
)
def test_times_are_read(text, seconds):
    (budget,) = read_budgets({"seconds": text})
    assert budget.limit == seconds


@pytest.mark.parametrize("text", ["0", "-1ms", "ms", "fast", "1h", True, float("nan"), "1e400"])
def test_other_times_are_refused(text):
    with pytest.raises(UsageError, match="--max-seconds"):
        read_budgets({"seconds": text})
