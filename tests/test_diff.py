"""Differences of specs, of saved reports and of measurements."""

import json
import re

import msgspec
import pytest
import torch

import xfcost
from helpers import stdout_of, totals
from measured import THERE, changed, row, runs_file, timed
from repositories import spec, write
from xfcost.comparing.differences import COUNTED, aligned_operations, parts
from xfcost.comparing.saved_report import ReportOperation, read_report, report_of
from xfcost.ledger.errors import UsageError
from xfcost.questions.diff.answer import diff
from xfcost.questions.diff.text import document

# Operations of two runs side by side: blocks are matched by what is inside them ───────────────────────────────────────


def op(path, macs=10, times=1, title=None):
    return ReportOperation(
        path=path, title=title or path.rpartition(".")[2], mixing="per-token", stage="", block="", times=times,
        params=1, macs=macs, flops=2 * macs,
    )  # fmt: skip


def block(number, width=10):
    return [op(f"stages.0.blocks.{number}.0.{name}", width) for name in ("qkv", "scores", "out")]


def convolution(number):
    return [op(f"stages.0.blocks.{number}.0.{name}", 7) for name in ("depthwise", "pointwise")]


def paths(before, after):
    return [(one and one.path, other and other.path) for one, other in aligned_operations(before, after)]


def named(before, after, *names):
    """Pairs of paths, one under the other."""
    return [(before.format(name), after.format(name)) for name in names]


B0, B1, B2 = (f"stages.0.blocks.{number}.0.{{}}" for number in range(3))
NAMES, KERNELS = ("qkv", "scores", "out"), ("depthwise", "pointwise")


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        # an inserted block is the only new one, also where others are of its kind and width
        (
            [*block(0, 10), *block(1, 20)], [*block(0, 10), *convolution(1), *block(2, 20)],
            [*named(B0, B0, *NAMES), *((None, B1.format(name)) for name in KERNELS), *named(B1, B2, *NAMES)],
        ),
        (
            [*block(0, 10), *block(1, 30)], [*block(0, 10), *block(1, 20), *block(2, 30)],
            [*named(B0, B0, *NAMES), *((None, B1.format(name)) for name in NAMES), *named(B1, B2, *NAMES)],
        ),
        # a removed one stands where it was
        (
            [*block(0, 10), *convolution(1), *block(2, 20)], [*block(0, 10), *block(1, 20)],
            [*named(B0, B0, *NAMES), *((B1.format(name), None) for name in KERNELS), *named(B2, B1, *NAMES)],
        ),
        # of another width they are the same blocks, and in a renamed module the same operations
        (
            [*block(0, 10), *block(1, 10)], [*block(0, 16), *block(1, 16)],
            [*named(B0, B0, *NAMES), *named(B1, B1, *NAMES)],
        ),
        (
            [op(f"attention.{name}") for name in NAMES], [op(f"attn.{name}") for name in NAMES],
            named("attention.{}", "attn.{}", *NAMES),
        ),
        # an operation of another name is another one
        (
            [op("stages.0.blocks.0.0.softmax")], [op("stages.0.blocks.0.0.sigmoid")],
            [(None, B0.format("sigmoid")), (B0.format("softmax"), None)],
        ),
        # repeated blocks that are no longer one
        (
            [op("layers.*.linear", 10, times=12)], [op("layers.0.linear", 16), op("layers.1-11.linear", 10, times=11)],
            [(None, "layers.0.linear"), ("layers.*.linear", "layers.1-11.linear")],
        ),
    ],
    ids=["inserted", "of its kind", "stands_where_it_was", "width", "renamed", "name", "apart"],
)  # fmt: skip
def test_operations_are_aligned(before, after, expected):
    assert paths(before, after) == expected


def test_a_path_that_comes_twice():
    twice = [op("head.add"), op("head.add", 5)]
    assert paths(twice, twice) == [("head.add", "head.add")] * 2
    assert [(one.macs, other.macs) for one, other in aligned_operations(twice, twice)] == [(10, 10), (5, 5)]


def test_every_operation_is_there_once():
    before = [*block(0, 10), *convolution(1), *block(2, 30), op("head.out")]
    after = [op("embed.0.norm"), *block(0, 30), *block(1, 11), *convolution(2)]
    found = aligned_operations(before, after)
    assert sorted(one.path for one, _ in found if one) == sorted(row.path for row in before)
    assert sorted(other.path for _, other in found if other) == sorted(row.path for row in after)


# `xfcost diff`: totals and operations of two specs, saved runs and revisions; what can't be compared is refused ───────


# Specs ───────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_totals_are_those_of_analyze_and_the_operations_add_up_to_them():
    found = diff("vit", "swin", size=224)
    ours = [xfcost.analyze(name, size=224, trace=False) for name in ("vit", "swin")]
    for quantity in ("macs", "flops", "params"):
        before, after = totals(found)[quantity]
        assert (before, after) == tuple(ledger.total(quantity) for ledger in ours)
        assert sum(change.differences[quantity] for change in found.changes) == after - before
        assert sum(part.difference for part in parts(found.changes, quantity)) == after - before
    kept = [ledger.attention_memory()["all_layers"] for ledger in ours]
    assert sum(change.differences["attention_bytes"] for change in found.changes) == kept[1] - kept[0]


def test_changes_are_sorted_by_what_they_cost():
    found = diff("vit", "swin")
    macs = [abs(change.differences["macs"]) for change in found.changes]
    assert macs == sorted(macs, reverse=True)
    work = [(abs(change.differences["macs"]), abs(change.differences["flops"])) for change in found.changes]
    assert work == sorted(work, reverse=True)
    assert len({flops for macs, flops in work if not macs}) > 1
    params = [abs(change.differences["params"]) for change in diff("vit", "swin", sort="params").changes]
    assert params == sorted(params, reverse=True)
    assert params[0] > 0


def test_another_mixing_kind_is_a_change_where_costs_are_the_same(here):
    found = diff("vit", "vit", attention="fused")
    assert found.operations == []
    eager, fused = (xfcost.analyze("vit", trace=False, attention=one) for one in ("eager", "fused"))
    with pytest.raises(UsageError, match="not comparable"):
        diff(eager, fused)


@pytest.mark.parametrize("options", [{"mode": "decode"}, {"mode": "train"}, {"mode": "generate", "new_tokens": 3}])
def test_every_mode_has_its_totals(options):
    found = diff("gpt2", "gpt2-medium", N=64, **options)
    wanted = {"decode": "cache_bytes", "train": "backward_macs", "generate": "macs"}[options["mode"]]
    ledgers = [xfcost.analyze(name, N=64, trace=False, **options) for name in ("gpt2", "gpt2-medium")]
    theirs = {
        "cache_bytes": lambda ledger: ledger.cache.bytes,
        "backward_macs": lambda ledger: ledger.total("backward_macs"),
        "macs": lambda ledger: ledger.generation.with_cache.macs,
    }[wanted]
    assert totals(found)[wanted] == tuple(map(theirs, ledgers))
    if wanted == "backward_macs":
        kept = [ledger.total("kept_bytes") for ledger in ledgers]
        assert totals(found)["kept_bytes"] == tuple(kept)
        assert sum(change.differences["kept_bytes"] for change in found.changes) == kept[1] - kept[0]
    if wanted != "macs":
        assert sum(change.differences[wanted] for change in found.changes) == theirs(ledgers[1]) - theirs(ledgers[0])


def test_a_first_block_without_a_gradient_of_its_input_is_counted_once(here):
    post = "residual: {place: post}\n"  # so that the first projection multiplies the input itself
    write(here, {"a.yaml": spec(depth=3), "b.yaml": spec(depth=3) + post})
    found = diff("a.yaml", "b.yaml", mode="train")
    (before, after), rows = totals(found)["backward_macs"], [change.after for change in found.changes]
    assert any(row.backward_saved for row in rows)
    assert sum(change.differences["backward_macs"] for change in found.changes) == after - before


def test_results_show_as_tables_in_notebooks():
    assert "MLP up-projection" in diff("swin-t", "swin-s")._repr_html_()
    assert "over 1 of 1 budget" in xfcost.check("swin-t", max_macs="1G")._repr_html_()
    assert "Residual add" in xfcost.glance("swin-t")._repr_html_()
    assert "LayerNorm₁" in xfcost.diagram("swin-t")._repr_svg_()


def test_an_image_of_another_size_and_another_n_are_said(here):
    write(here, {"a.yaml": "extends: vit\ninput: {kind: image, size: 256, channels: 3}\n"})
    assert diff("vit", "./a.yaml").notes == ("not the same run: images 224×224 and 256×256",)
    assert diff("vit", "swin").notes == ("N is 784 before and 3,136 after",)


# Formats ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_line_of_several_blocks_counts_all_of_them():
    # Swin-T's stage 3 has three blocks of W-MSA and three of SW-MSA, with the same MLP
    lines = stdout_of("diff", "vit", "swin").splitlines()
    [line] = [one for one in lines if "stage 3" in one and "up-projection" in one]
    assert re.search(r"W-MSA, SW-MSA\s+MLP up-projection\s+6\s+\+693.6 M", line)


def test_json_and_csv_add_up():
    found = diff("swin-t", "swin-s")
    fields = json.loads(document(found).text("json"))
    macs = fields["totals"]["macs"]
    assert macs["after"] - macs["before"] == macs["difference"]
    assert sum(one["macs_difference"] for one in fields["operations"]) == macs["difference"]
    assert sum(one["difference"] for one in fields["by_block"]["macs"]) == macs["difference"]
    assert {f"{name}_difference" for name in COUNTED} <= set(fields["operations"][0])
    assert document(found).text("csv").count("\n") == 1 + len(found.changes)


def test_markdown_fits_a_comment_of_a_pull_request():
    text = document(diff("vit", "swin")).text("markdown")
    assert len(text) < 65_536 / 4
    assert text.count("\n| removed") + text.count("\n| added") <= 20


# The command ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_file_whose_name_has_a_colon_is_a_file(here):
    write(here, {"a:b.yaml": spec()})
    assert diff("./a:b.yaml", "./a:b.yaml").operations == []


def test_a_module_is_compared_by_its_ledger():
    with pytest.raises(UsageError, match="give its ledger"):
        diff(torch.nn.Linear(2, 2), "vit")


# Saved runs ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def saved(name, file, **options):
    file.write_text(xfcost.analyze(name, trace=False, **options).to_json(), encoding="utf-8")
    return str(file)


def test_a_saved_report_is_the_ledger_again(here):
    ledger = xfcost.analyze("swin", trace=False)
    assert read_report(ledger.to_json(), "a.json") == report_of(ledger)
    assert diff(saved("swin", here / "a.json"), "swin").operations == []


@pytest.mark.parametrize(
    "options", [{"batch": 8}, {"dtype": "float16"}, {"size": 448}, {"mode": "train"}, {"memory_level": "1KiB"}], ids=str
)
def test_saved_runs_that_differ_are_refused(here, options):
    first, second = saved("swin", here / "a.json"), saved("swin", here / "b.json", **options)
    with pytest.raises(UsageError, match="not comparable"):
        diff(first, second)
    assert diff(first, saved("vit", here / "c.json")).changes


@pytest.mark.parametrize("number", ["9" * 300, "1e308", "1e-308"])
def test_a_saved_number_on_which_arithmetic_overflows_is_refused(here, number):
    text = xfcost.analyze("swin", trace=False).to_json()
    (here / "a.json").write_text(text.replace('"seconds": null', f'"seconds": {number}', 1), encoding="utf-8")
    with pytest.raises(UsageError, match=r"a\.json: is not a report of .* is beyond every figure of a run"):
        diff("a.json", "swin")


def test_two_saved_runs_take_no_options(here):
    first, second = saved("swin", here / "a.json"), saved("swin", here / "b.json")
    with pytest.raises(UsageError):
        diff(first, second, batch=8, settings=["stages.0.depth=1"])
    assert diff(first, second, batch="1", mode="forward").operations == []


@pytest.mark.parametrize("text", ["", "[" * 100_000, "[]"], ids=["empty", "nested", "a list"])
def test_json_that_is_no_report(here, text):
    (here / "a.json").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=r"a\.json"):
        diff("a.json", "vit")


ONE_TIME = {"device": "cpu", "machine": "m", "seconds": 1.0, "spread": 0.1, "runs": 9, "threads": 1}
SOON = {"device": "cpu", "machine": "m", "threads": 1, "seconds": 0.0, "low": 0.0, "high": 1.0, "calibrated": "now"}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"totals": {"macs": "x"}}, r"at `\$.totals.macs`"),
        ({"totals": {"macs": 0.5}}, r"at `\$.totals.macs`"),
        ({"totals": {"attention_bytes": -1}}, r"at `\$.totals.attention_bytes`"),
        ({"training": {"step": [1]}}, r"at `\$.training.step`"),
        ({"training": {"step": {"optimizer": 1}}}, r"at `\$.training.step.optimizer`"),
        ({"generation": {"prompt": 1, "new_tokens": "1"}}, r"at `\$.generation.new_tokens`"),
        ({"cache": [1]}, r"at `\$.cache`"),
        ({"module": {"inputs": [1]}}, r"at `\$.module.inputs\[0\]`"),
        ({"module": {"uncounted": [1]}}, r"at `\$.module.uncounted`"),
        ({"timing": ONE_TIME | {"seconds": 0}}, r"at `\$.timing.seconds`"),
        ({"timing": ONE_TIME | {"times": [1.0, 1e308]}}, r"at `\$.timing.times\[1\]`"),
        ({"prediction": SOON}, r"at `\$.prediction.seconds`"),
    ],
)
def test_a_damaged_report_is_refused_at_its_place(here, changed, told):
    fields = json.loads(xfcost.analyze("vit", trace=False).to_json())
    whole = json.dumps(fields | {"timing": ONE_TIME, "prediction": SOON | {"seconds": 0.5, "low": 0.1}})
    (here / "whole.json").write_text(whole, encoding="utf-8")
    (here / "a.json").write_text(json.dumps(json.loads(whole) | changed), encoding="utf-8")
    assert diff("whole.json", "whole.json").operations == []
    for both in (("a.json", "whole.json"), ("whole.json", "a.json")):
        with pytest.raises(UsageError, match=f"a.json: is not a report of .*{told}"):
            diff(*both)


def test_seconds_within_their_intervals_are_no_difference(here):
    before = runs_file(here / "a.jsonl", row("A", 64, timed(1.0, 0.9, 1.1)), row("A", 128, timed(2.0, 1.95, 2.05)))
    after = runs_file(here / "b.jsonl", row("A", 64, timed(1.05, 0.95, 1.2)), row("A", 128, timed(3.0, 2.9, 3.1)))
    found = diff(before, after)
    by_n = {one.configuration.N: one for one in found.rows}
    assert by_n[64].seconds.different is False
    assert by_n[128].seconds.different is True
    assert by_n[128].seconds.ratio == pytest.approx(1.5)
    assert [one.configuration.N for one in found.rows] == [128, 64]
    for form in ("json", "csv", "markdown", "latex"):
        assert document(found).text(form)


def test_the_most_changed_in_time_comes_first_and_noise_last(here):
    def file(name, *seconds):
        sizes = (64, 128, 256, 512)
        return runs_file(here / name, *(row("A", n, timed(*one)) for n, one in zip(sizes, seconds, strict=True)))

    before = file("a.jsonl", *[(1.0, 0.99, 1.01)] * 4)
    # 20 % slower; 9 times as slow, with an interval that holds 1; 40 % faster; 30 % slower
    after = file("b.jsonl", (1.2, 1.19, 1.21), (9.0, 0.5, 20.0), (0.6, 0.59, 0.61), (1.3, 1.29, 1.31))
    assert [one.configuration.N for one in diff(before, after).rows] == [256, 512, 64, 128]


def test_seconds_of_another_machine_are_not_compared(here):
    before = runs_file(here / "a.jsonl", row("A", 64, timed(1.0, 0.9, 1.1)))
    after = runs_file(here / "b.jsonl", row("A", 64, timed(9.0, 8.9, 9.1), machine=THERE), row("A", 128))
    found = diff(before, after)
    assert found.rows[0].seconds is None
    assert found.only_after == 1


def test_files_of_measurements_that_have_nothing_in_common(here):
    before = runs_file(here / "a.jsonl", row("A", 64))
    for other in (row("B", 64), changed(row("A", 64), batch=8)):
        with pytest.raises(UsageError, match="no row of one is of the same system and run"):
            diff(before, runs_file(here / "b.jsonl", other))


def report_with(here, name, **more):
    """A saved report with `more` fields."""
    (here / name).write_text(json.dumps(json.loads(xfcost.analyze("vit", trace=False).to_json()) | more), "utf-8")
    return name


def timed_report(here, name, seconds, low, high, **more):
    """A saved report whose run was timed, a hundredth of the time in its first operation."""
    operations = json.loads(xfcost.analyze("vit", trace=False).to_json())["operations"]
    operations[0]["seconds"] = seconds / 100
    timing = msgspec.to_builtins(timed(seconds, low, high).timing) | more
    return report_with(here, name, timing=timing, operations=operations)


def test_timed_reports_have_a_verdict_but_for_other_threads(here):
    first = timed_report(here, "a.json", 1.0, 0.98, 1.02)
    slow = diff(first, timed_report(here, "b.json", 1.2, 1.18, 1.22))
    assert slow.seconds.different is True
    assert [change.kind for change in slow.changes] == ["same"]
    assert slow.changes[0].differences["seconds"] == pytest.approx(0.002)
    same = diff(first, timed_report(here, "c.json", 1.01, 0.97, 1.05))
    assert same.seconds.different is False
    found = diff(first, timed_report(here, "d.json", 1.0, 0.98, 1.02, threads=1))
    assert found.seconds is None
    assert found.changes == ()
    assert any("timed with another number of threads" in note for note in found.notes)


def predicted_report(here, name, seconds, low, high, calibrated="2025-01-31"):
    device = {"device": "cpu", "machine": "P", "threads": 4, "calibrated": calibrated}
    return report_with(here, name, prediction=device | {"seconds": seconds, "low": low, "high": high})


def test_predictions_of_one_calibration_differ_beyond_their_error_or_not(here):
    first = predicted_report(here, "a.json", 1.0, 0.8, 1.25)
    close = diff(first, predicted_report(here, "b.json", 1.1, 0.9, 1.4))
    assert close.predicted_seconds.different is False
    assert "no difference beyond the error of the prediction" in document(close).text("table")
    far = diff(first, predicted_report(here, "c.json", 3.0, 2.4, 3.75))
    assert far.predicted_seconds.different is True
    # both errors at once, each the other way
    assert far.predicted_seconds.interval == pytest.approx((3 / 1.25**2, 3 * 1.25**2))
    found = diff(first, predicted_report(here, "d.json", 1.1, 0.9, 1.4, "2025-02-28"))
    assert found.predicted_seconds is None
    assert any("another calibration" in note for note in found.notes)
