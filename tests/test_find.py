"""`xfcost find` over the gallery: what fits, in which order, which front, and why the others don't."""

import json
import random

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import xfcost
from helpers import found_memory, screen_of, table_of, xf
from xfcost.counting.devices import read_devices
from xfcost.ledger.budgets import Budget, inference_memory, read_budgets
from xfcost.ledger.device import DeviceGroup
from xfcost.ledger.errors import SpecError, UsageError, combined
from xfcost.questions.find.figure import find_bytes, find_figure
from xfcost.questions.find.result import QUANTITIES, Question
from xfcost.questions.find.selection import FindPart, merged, reason, selected
from xfcost.questions.find.text import document, short_keys

SMALL = ("vit", "swin-t", "gpt2", "bert-base", "mobilenetv2-1.0")


@pytest.fixture(scope="module")
def found():
    return xfcost.find("vit*", "swin*", "bert-base", size=512, max_macs="25G", max_memory="256MiB")


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("options", [{}, {"batch": 3, "dtype": "bfloat16", "attention": "fused"}])
def test_figures_are_the_ledger_s(name, options):
    row = xfcost.find(name, **options).rows[0]
    ledger = xfcost.analyze(name, trace=False, **options)
    for quantity in ("params", "macs", "flops"):
        assert row.figures[quantity] == ledger.total(quantity)
    memory = inference_memory(ledger)
    assert row.figures["memory"] == memory.total
    assert row.figures["attention_bytes"] == memory.attention == ledger.attention_memory()["peak"]


@pytest.mark.parametrize("mode", ["decode", "prefill"])
def test_a_cache_is_memory(mode):
    row = xfcost.find("gpt2", N=1000, mode=mode, batch=2).rows[0]
    ledger = xfcost.analyze("gpt2", N=1000, mode=mode, batch=2, trace=False)
    assert row.figures["cache_bytes"] == ledger.cache.bytes > 0
    assert row.figures["memory"] == inference_memory(ledger).total
    # a recurrent network without a decode step has no cache
    assert xfcost.find("vit", mode="prefill").rows[0].figures["cache_bytes"] == 0


def test_a_budget_of_the_cache_and_of_flops():
    options = {"N": 1000, "mode": "decode", "max_kv_cache": "40MiB"}
    found = xfcost.find("gpt2", "gpt2-medium", **options)
    assert [row.name for row in found.rows] == ["gpt2"]
    assert found.left_out[0].nearest.figures["cache_bytes"] > 40 * 2**20 > found.rows[0].figures["cache_bytes"]
    assert found.run.dtype == "bfloat16"
    # what has a cache writes text, also without a head, and beside what can't run with one
    assert xfcost.find("gpt2", "gpt1-backbone", "vit", mode="decode", N=500).run.dtype == "bfloat16"
    flops = xfcost.find("gpt2", "gpt2-medium", max_flops="400G").rows
    assert [row.name for row in flops] == ["gpt2"]


def test_every_model_fits_or_has_a_reason(found):
    over = {one.name for one in found.not_fitting if one.figures}
    assert found.fits == len(found.rows) == found.searched - len(found.not_fitting)
    assert found.refused == len(found.not_fitting) - len(over) > 0
    for row in found.rows:
        assert row.figures["macs"] <= 25 * 10**9
        assert row.figures["memory"] <= 2**28
    for one in found.not_fitting:
        assert one.figures is None or one.figures["macs"] > 25 * 10**9 or one.figures["memory"] > 2**28
    macs, memory = found.left_out[:2]
    assert macs.count == sum(one.figures["macs"] > 25 * 10**9 for one in found.not_fitting if one.figures)
    assert macs.nearest.figures["macs"] == min(
        one.figures["macs"]
        for one in found.not_fitting
        if one.figures and one.figures["memory"] <= 2**28 and one.figures["macs"] > 25 * 10**9
    )
    assert memory.excess is None or memory.excess > 0


def test_parameters_come_from_the_most_and_costs_from_the_least():
    def values(**options):
        sort = options.get("sort", "params")
        return [row.figures[sort] for row in xfcost.find("vit*", **options).rows]

    assert values() == sorted(values(), reverse=True)
    assert values(sort="macs") == sorted(values(sort="macs"))
    assert values(sort="macs", descending=True) == sorted(values(sort="macs"), reverse=True)
    assert values(descending=False) == sorted(values())


FIGURES = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 40), st.integers(0, 2)), min_size=1, max_size=40
)


REASONS = ("", "the width 8 is too small", "--N 5: no")


def answer(rows, question, first=0):
    models = (
        REASONS[refused] or {"params": params, "macs": macs, "memory": 4 * params + attention}
        for params, macs, attention, refused in rows
    )
    return selected(enumerate(models, first), question)


@given(FIGURES, st.integers(1, 5), st.booleans(), st.integers(0, 40))
@example([(1, 1, 0, 0)] * 2, 2, False, 1)
def test_selection_is_what_brute_force_finds(rows, top, descending, cut):
    question = Question((Budget("macs", 5), Budget("memory", 40)), "params", descending, top)
    part = answer(rows, question)
    valid = [(n, *row) for n, row in enumerate(rows) if not row[3]]
    fits = [row for row in valid if row[2] <= 5 and 4 * row[1] + row[3] <= 40]
    assert part.fits == len(fits)
    ordered = sorted(fits, key=lambda row: (-row[1] if descending else row[1], row[0]))
    assert [one.number for one in part.first] == [row[0] for row in ordered[:top]]

    def beaten(row):
        return any(
            other[1] >= row[1] and other[2] <= row[2] and (other[1], other[2]) != (row[1], row[2]) for other in fits
        )

    best = {(row[1], row[2]) for row in fits if not beaten(row)}
    assert {(one.figures["params"], one.figures["macs"]) for one in part.front} == best
    assert len(part.front) == len(best)
    assert sorted(one.number for one in part.drawn) == [row[0] for row in fits]
    assert part.over[0].models == sum(row[2] > 5 for row in valid)
    alone = [row for row in valid if row[2] > 5 and 4 * row[1] + row[3] <= 40]
    assert part.over[0].alone == len(alone)
    assert (part.over[0].nearest is None) == (not alone)
    if alone:
        assert part.over[0].nearest.figures["macs"] == min(row[2] for row in alone)
    refused = {one.reason: (one.number, one.models) for one in part.refused.values()}
    by_reason = {text: [n for n, row in enumerate(rows) if REASONS[row[3]] == text] for text in REASONS[1:]}
    assert refused == {text: (places[0], len(places)) for text, places in by_reason.items() if places}
    pieces = [(rows[:cut], 0), (rows[cut:], len(rows[:cut]))]
    for order in (pieces, pieces[::-1]):
        whole = FindPart()
        for piece, first in order:
            if piece:
                whole = merged(whole, answer(piece, question, first), question)
        assert whole == part


def test_reasons_that_differ_in_numbers_are_one():
    texts = (
        "size: 14 does not divide 512×512; it could be 1, 2, 4, …",
        "size: 7 does not divide 2,048; it could be 1, 2",
    )
    parts = [selected([(place, text)], Question()) for place, text in enumerate(texts)]
    for order in (parts, parts[::-1]):
        (one,) = merged(*order, Question()).refused.values()
        assert one == (0, texts[0], 2)


def test_of_several_errors_the_first_is_the_reason():
    several = combined(SpecError(f"x.yaml:{line} depth: no", ("x.yaml", line), ("depth",)) for line in (7, 3))
    assert reason(several) == "depth: no"
    assert reason(UsageError("--N 5: no")) == "--N 5: no"


# Reports ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("width", [80, 100])
def test_no_line_is_wider_than_the_terminal(found, width):
    lines = screen_of(document(found, left_out=True), width)
    assert max(map(len, lines)) <= width
    assert "…" not in "\n".join(lines).replace("… and", "").replace("128, …", "")


def test_json_and_csv_have_every_model(found):
    read = json.loads(document(found).text("json"))
    assert read["fits"] == found.fits == len(read["models"])
    assert read["asked"]["budgets"] == {"macs": 25 * 10**9, "memory": 2**28}
    assert {one["preset"] for one in read["front"]} == {row.name for row in found.rows if row.front}
    lines = table_of(document(found).text("csv"))
    assert len(lines) == found.searched
    assert sum(line["fits"] == "True" for line in lines) == found.fits
    assert lines[-1]["reason"]
    frame = found.to_frame()
    assert len(frame) == found.searched
    assert set(QUANTITIES) - {"seconds"} <= set(frame.columns)


def test_the_picture_has_points_front_and_budget(found, tmp_path):
    figure = find_figure(found)
    names = {artist.get_gid() for artist in figure.axes[0].get_children()}
    assert {"models that fit", "front", "models of the front", "--max-macs 25 G"} <= names
    assert find_bytes(found, ".svg") == find_bytes(found, ".svg")
    assert {row.name for row in found.front} <= {text.get_text() for text in figure.axes[0].texts}
    target = tmp_path / "found.svg"
    ran = xf("find", "vit*", "--max-macs", "25G", "-o", target)
    assert ran.returncode == 0
    assert ran.stderr == f"Wrote {target}\n"
    assert b"<svg" in target.read_bytes()


def test_keys_are_as_short_as_tells_them_apart():
    assert short_keys(["stages.2.depth", "stages.1.depth", "stages.*.dim"]) == ["2.depth", "1.depth", "dim"]
    assert short_keys(["**.heads", "stages[0].heads"]) == ["heads", "0.heads"]


def test_a_picture_of_no_model_is_refused_after_the_report(tmp_path):
    ran = xf("find", "vit", "--max-macs", "1", "-o", "x.svg", cwd=tmp_path)
    assert (ran.returncode, ran.stdout != "") == (2, True)
    assert not (tmp_path / "x.svg").exists()


# `xfcost find --on`: what fits in the devices' memory, and the lower bound of the time as a quantity ──────────────────


DEVICE = "a100-sxm-80"


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
        assert row.figures["memory"] == found_memory(on.memory)


SPACES = {
    "gpt2": (
        {"stages.0.dim": [768, 1024], "stages.0.depth": range(2, 13, 2), "**.heads": [8, 16]},
        {"mode": "decode", "batch": 8},
    ),
    "llama3-8b": (
        {"stages.0.depth": range(8, 33, 8), "stages.0.block.0.kv_heads": [1, 8]},
        {"N": 4096, "batch": 2},
    ),
    "swin-t": ({"stages.2.depth": range(2, 19, 4), "stages.*.pattern.*.0.size": [7, 8]}, {"size": 256}),
}


@pytest.mark.parametrize("name", SPACES)
def test_ranges_have_the_bound_of_analyze(name):
    vary, options = SPACES[name]
    options = options | {"dtype": "bfloat16", "attention": "fused", "on": DEVICE}
    found = xfcost.find(name, vary=vary, top=100, **options)
    assert found.fits == found.space
    for row in random.Random(name).sample(found.rows, 6):  # noqa: S311 - no secret
        texts = [f"{key}={value}" for key, value in zip(found.keys, row.values, strict=True)]
        assert row.figures["seconds"] == xfcost.analyze(name, settings=texts, trace=False, **options).on.seconds


def test_what_does_not_fit_in_memory_is_left_out():
    found = xfcost.find("llama2-*", mode="decode", N=4096, batch=8, on="a100-sxm-80")
    over = {one.name: one for one in found.not_fitting}
    assert [row.name for row in found.rows] == ["llama2-13b", "llama2-7b"]
    far = xfcost.find("llama2-7b", mode="decode", N=4096, max_params="500M").not_fitting
    assert [one.reason for one in far] == ["13.48× as much as --max-params 500 M"]  # 6.738 G parameters
    for name in ("llama2-7b", "llama2-13b", "llama2-70b"):
        ledger = xfcost.analyze(name, mode="decode", N=4096, batch=8, on="a100-sxm-80", trace=False)
        assert ledger.on.memory.fits == (name not in over)
    assert "llama2-70b" in {row.name for row in xfcost.find("llama2-*", mode="decode", on="a100-sxm-80x2").rows}
    ranges = xfcost.find("llama2-7b", vary={"stages.0.depth": [32, 64, 320]}, mode="decode", on="a100-sxm-80")
    assert [row.values for row in ranges.rows] == [(64,), (32,)]
    again = xfcost.find("llama2-7b", vary={"stages.0.depth": [32, 64, 320]}, mode="decode", on="a100-sxm-80", jobs=2)
    assert again == ranges


def test_seconds_are_limited_and_sorted():
    options = {"mode": "decode", "N": 512, "on": DEVICE}
    found = xfcost.find("gpt2*", max_seconds="500us", sort="seconds", front="params,seconds", **options)
    seconds = [row.figures["seconds"] for row in found.rows]
    assert seconds == sorted(seconds)
    assert max(seconds) <= 500e-6 < min(one.figures["seconds"] for one in found.not_fitting)
    assert [row.name for row in found.front] == [row.name for row in found.rows]
    assert b"<svg" in find_bytes(found, ".svg")


def test_devices_without_memory_leave_nothing_out_and_say_so():
    unknown = DeviceGroup(device=msgspec.structs.replace(read_devices(DEVICE).device, memory=None))
    found = xfcost.find("llama2-70b", mode="decode", on=unknown)
    assert (found.fits, found.left_out) == (1, ())
    assert ("the memory of a100-sxm-80 is not known, so models are not excluded by memory") in document(found).text(
        "table"
    )


# Budgets: how they are read, and what memory they limit ───────────────────────────────────────────────────────────────


LIMITS = {
    "macs": {"25G": 25 * 10**9, "25 GMACs": 25 * 10**9, 25e9: 25 * 10**9, "1e9": 10**9},
    "params": {"30M": 30 * 10**6, "7B": 7 * 10**9, "30M params": 30 * 10**6},
    "memory": {"2GiB": 2**31, "500 MB": 500 * 10**6, "0.5 GiB": 2**29, "1024B": 1024, 2**31: 2**31},
    "seconds": {"10ms": 0.01, "250 µs": 250e-6, "250us": 250e-6, "5 ns": 5e-9, "1.5s": 1.5, "2": 2.0, 0.5: 0.5},
}


@pytest.mark.parametrize("quantity", LIMITS)
def test_a_budget_is_read_in_its_unit(quantity):
    for given_, limit in LIMITS[quantity].items():
        assert read_budgets({quantity: given_}) == (Budget(quantity, limit),)


UNITS = {
    "memory": ["2G", "2048", "5GMACs", "-2GiB", "B", 0],
    "macs": ["2GiB", "5GFLOPs", True, "-5G", "nan", "0"],
    "params": ["1.5", "30MB"],
    "seconds": ["0", "-1ms", "ms", "fast", "1h", True, float("nan"), "1e400"],
}


@pytest.mark.parametrize(("quantity", "given"), [(name, value) for name, values in UNITS.items() for value in values])
def test_no_unit_or_the_wrong_one_is_refused(quantity, given):
    with pytest.raises(UsageError) as error:
        read_budgets({quantity: given})
    assert str(error.value).startswith(f"--max-{quantity} {given}: ")


def test_what_is_not_given_is_no_budget():
    assert read_budgets({"macs": None, "memory": None}) == ()


def test_a_budget_says_what_is_over_it():
    budget = Budget("memory", 2**31)
    assert budget.text() == "--max-memory 2 GiB"
    assert Budget("memory", 80 * 10**9).text() == "--max-memory 80 GB"
    assert Budget("memory", 3 * 2**29).text() == "--max-memory 1.500 GiB"
    assert Budget("macs", 25 * 10**9).text() == "--max-macs 25 G"
    assert [budget.allows(value) for value in (2**31, 2**31 + 1)] == [True, False]
    assert budget.excess(3 * 2**30) == 0.5


def test_memory_is_weights_attention_and_cache():
    forward = inference_memory(xfcost.analyze("vit", trace=False))
    assert forward.weights == 22055272 * 4
    # scores and their softmax: 6 heads, 785 × 785 tokens, float32
    assert forward.attention == 2 * 6 * 785 * 785 * 4
    assert forward.cache == 0
    step = inference_memory(xfcost.analyze("gpt2", N=1024, batch=2, mode="decode", dtype="bfloat16", trace=False))
    # 12 layers of keys and values, 768 wide, of 2 · 1024 tokens
    assert step.cache == 12 * 2 * 768 * 2 * 1024 * 2
    assert step.total == step.weights + step.attention + step.cache


def test_models_whose_class_does_more_than_a_server_are_named():
    names = ["llama-4-scout", "deepseek-v3.2", "deepseek-r1", "qwen3-0.6b"]
    decode, forward = (xfcost.find(*names, mode=mode, N=64, on="h200-sxmx8") for mode in ("decode", "prefill"))
    assert decode.more_work == ("llama-4-scout", "deepseek-v3.2")
    assert forward.more_work == ("llama-4-scout",)  # V3.2 makes the keys of a prompt once
