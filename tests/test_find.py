"""`xfcost find` over the gallery: what fits, in which order, which front, and why the others don't."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import xfcost
from helpers import xf
from xfcost.counting.find.costs import Costs, totals
from xfcost.counting.find.quantities import QUANTITIES
from xfcost.counting.find.result import Question
from xfcost.counting.find.selection import Part, Reasons, merged, selected
from xfcost.ledger.budgets import Budget, inference_memory
from xfcost.ledger.errors import UsageError
from xfcost.report.find import document, short_keys

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
    assert "bfloat16 and fused attention: the default of language models in decode" in document(found).text("table")
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
    assert found.left_out[-1].reason == "--size: it takes tokens, which have no height and width; give --N"


def test_parameters_come_from_the_most_and_costs_from_the_least():
    def values(**options):
        sort = options.get("sort", "params")
        return [row.figures[sort] for row in xfcost.find("vit*", **options).rows]

    assert values() == sorted(values(), reverse=True)
    assert values(sort="macs") == sorted(values(sort="macs"))
    assert values(sort="macs", descending=True) == sorted(values(sort="macs"), reverse=True)
    assert values(descending=False) == sorted(values())


def test_families_and_sizes():
    assert {row.family for row in xfcost.find(family=["swin", "vit"]).rows} == {"swin", "vit"}
    # a spectrogram is no picture
    left_out = xfcost.find("conformer-m", size=512).left_out
    assert "folded into the width" in left_out[0].reason


FIGURES = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 40), st.integers(0, 2)), min_size=1, max_size=40
)


def answer(rows, question, first=0):
    params, macs, attention, refused = (np.array(column) for column in zip(*rows, strict=True))
    zero = np.zeros_like(params)
    counted = totals(Costs(params, macs, macs, zero, attention), "float32")
    return selected(counted, Reasons(refused, ["", "one", "two"]), lambda place: first + place, question)


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
    assert sorted(part.cloud) == sorted((row[1], row[2]) for row in fits)
    assert part.over[0][0] == sum(row[2] > 5 for row in valid)
    alone = [row for row in valid if row[2] > 5 and 4 * row[1] + row[3] <= 40]
    assert part.over[0][1] == len(alone)
    assert (part.over[0][2] is None) == (not alone)
    if alone:
        assert part.over[0][2].figures["macs"] == min(row[2] for row in alone)
    assert part.reasons == {
        word: count for n, word in ((1, "one"), (2, "two")) if (count := sum(row[3] == n for row in rows))
    }
    pieces = [(rows[:cut], 0), (rows[cut:], len(rows[:cut]))]
    for order in (pieces, pieces[::-1]):
        whole = Part()
        for piece, first in order:
            if piece:
                whole = merged(whole, answer(piece, question, first), question)
        assert whole._replace(cloud=()) == part._replace(cloud=())


def test_larger_than_int64_is_exact():
    huge = np.array([2**70, 2**70 + 1, 2**70 - 1], dtype=object)
    small = np.array([1, 1, 1], dtype=object)
    counted = totals(Costs(huge, huge, huge, small, small), "float32")
    part = selected(counted, Reasons(np.zeros(3, int), [""]), int, Question((Budget("macs", 2**70),), top=2))
    assert [one.figures["params"] for one in part.first] == [2**70, 2**70 - 1]
    assert part.over[0][2].figures["macs"] == 2**70 + 1


# Reports ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_answer_comes_first():
    ran = xf("find", "vit*", "--size", 512, "--max-macs", "25G", "--max-memory", "2GiB")
    assert (ran.returncode, ran.stderr) == (0, "")
    lines = ran.stdout.splitlines()
    assert lines[0].endswith("fit --max-macs 25 G and --max-memory 2 GiB")
    assert lines[1] == "most parameters: vit-b32 (88.38 M parameters, 23.65 G MACs, 343.2 MiB)"
    assert lines[4].split() == ["*", "vit-b32", "vit", "88.38", "M", "23.65", "G", "343.2", "MiB"]
    assert "over --max-macs 25 G (" in ran.stdout
    assert "nearest: " in ran.stdout
    assert "memory: weights + attention matrices alive at once, batch 1, float32, eager" in ran.stdout


@pytest.mark.parametrize("width", [80, 100])
def test_no_line_is_wider_than_the_terminal(found, width):
    from rich.console import Console

    with (console := Console(width=width, file=io.StringIO())).capture() as text:
        console.print(document(found, left_out=True).terminal(width))
    assert max(map(len, text.get().splitlines())) <= width
    assert "…" not in text.get().replace("… and", "").replace("128, …", "")


def test_json_and_csv_have_every_model(found):
    read = json.loads(document(found).text("json"))
    assert read["fits"] == found.fits == len(read["models"])
    assert read["asked"]["budgets"] == {"macs": 25 * 10**9, "memory": 2**28}
    assert {one["preset"] for one in read["front"]} == {row.name for row in found.rows if row.front}
    lines = list(csv.DictReader(io.StringIO(document(found).text("csv"))))
    assert len(lines) == found.searched
    assert sum(line["fits"] == "True" for line in lines) == found.fits
    assert lines[-1]["reason"]
    frame = found.to_frame()
    assert len(frame) == found.searched
    assert set(QUANTITIES) - {"seconds", "tf32_seconds"} <= set(frame.columns)


@pytest.mark.parametrize("form", ["markdown", "latex", "table"])
def test_every_format_has_the_table(found, form):
    text = document(found, left_out=True).text(form)
    assert found.rows[0].name in text
    assert "refused" in text


def test_the_front_alone(found):
    text = document(found, front_only=True).text("table")
    table = [line for line in text.splitlines() if line.startswith(("*  ", "   s"))]
    assert len(table) == len(found.front)


def test_the_picture_has_points_front_and_budget(found, tmp_path):
    from xfcost.report.find_figure import find_bytes, find_figure

    figure = find_figure(found)
    names = {artist.get_gid() for artist in figure.axes[0].get_children()}
    assert {"models that fit", "front", "models of the front", "--max-macs 25 G"} <= names
    assert find_bytes(found, ".svg") == find_bytes(found, ".svg")
    target = tmp_path / "found.svg"
    ran = xf("find", "vit*", "--max-macs", "25G", "-o", target)
    assert ran.returncode == 0
    assert ran.stderr == f"Wrote {target}\n"
    assert b"<svg" in target.read_bytes()


def test_a_notebook_shows_the_table(found):
    assert "most parameters" in found._repr_html_()


def test_keys_are_as_short_as_tells_them_apart():
    assert short_keys(["stages.2.depth", "stages.1.depth", "stages.*.dim"]) == ["2.depth", "1.depth", "dim"]
    assert short_keys(["**.heads", "stages[0].heads"]) == ["heads", "0.heads"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--max-memory", "2G"], "--max-memory 2G: has no unit"),
        (["--max-macs", "2GiB"], "--max-macs 2GiB: expected a number of MACs"),
        (["--sort", "parms"], "--sort parms: did you mean 'params'?"),
        (["--front", "params"], "--front params: expected two quantities"),
        (["--family", "swim"], "--family swim: did you mean 'swin' or"),
        (["swim-t"], "there is no preset 'swim-t'; did you mean 'swin-t'"),
        (["--mode", "train"], "--mode train: find counts one pass"),
        (["--max-kv-cache", "2GiB"], "--max-kv-cache: --mode forward keeps no cache"),
        (["--limit", "5"], "--limit: it is of a search over ranges"),
        (["--jobs", "2"], "--jobs: it is of a search over ranges"),
        (["--top", "0"], "--top 0: expected a whole number"),
        (["vit", "--max-macs", "1", "-o", "x.svg"], "-o: no model fits"),
    ],
)
def test_bad_input_is_one_line(words, message, tmp_path):
    ran = xf("find", *words, cwd=tmp_path)
    assert ran.returncode == 2
    assert ran.stderr.startswith(f"error: {message}")
    assert ran.stderr.count("\n") == 1


def test_a_mode_of_several_passes_is_refused():
    with pytest.raises(UsageError, match="find counts one pass"):
        xfcost.find("gpt2", mode="generate", new_tokens=3)
