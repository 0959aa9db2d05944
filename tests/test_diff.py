"""`xfcost diff`: totals and operations of two specs, saved runs and revisions; what can't be compared is refused."""

from __future__ import annotations

import json

import pytest
import torch

import xfcost
from helpers import error_of, stdout_of
from repositories import spec, write
from xfcost.api.difference import diff
from xfcost.counting.differences import COUNTED, grown, parts
from xfcost.ledger.errors import UsageError
from xfcost.report.differences import document


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def totals(found):
    return {total.quantity: (total.before, total.after) for total in found.totals}


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


def test_a_deeper_model_is_more_blocks_of_the_same_operations(here):
    write(here, {"a.yaml": spec(depth=2), "b.yaml": spec(depth=5)})
    found = diff("a.yaml", "b.yaml")
    assert found.same == 0
    assert {change.kind for change in found.changes} == {"changed"}
    assert {(change.before.times, change.after.times) for change in found.changes} == {(2, 5)}
    before, after = totals(found)["macs"]
    assert after * 2 == before * 5


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


def test_grown_are_those_that_grew_the_most_first(here):
    write(here, {"a.yaml": spec(ratio=2), "b.yaml": spec(ratio=3)})
    more = grown(diff("a.yaml", "b.yaml").changes, "macs")
    # 16 tokens x 8 x (24 - 16) hidden units in each of 2 blocks
    assert [(change.row.title, change.differences["macs"]) for change in more] == [
        ("MLP up-projection", 2048),
        ("MLP down-projection", 2048),
    ]


def test_the_same_spec_is_no_difference():
    found = diff("swin", "swin")
    assert found.operations == []
    assert found.same == len(xfcost.analyze("swin", trace=False).rows)
    assert "no difference: all 154 operations are the same" in document(found).text("table")
    assert "no difference" in document(found).text("markdown")


def test_another_mixing_kind_is_a_change_where_costs_are_the_same(here):
    found = diff("vit", "vit", attention="fused")
    assert found.operations == []
    eager, fused = (xfcost.analyze("vit", trace=False, attention=one) for one in ("eager", "fused"))
    with pytest.raises(UsageError, match="attention eager and fused"):
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


def test_an_image_of_another_size_and_another_n_are_said(here):
    write(here, {"a.yaml": "extends: vit\ninput: {kind: image, size: 256, channels: 3}\n"})
    assert diff("vit", "./a.yaml").notes == ("not the same run: images 224×224 and 256×256",)
    assert diff("vit", "swin").notes == ("N is 784 before and 3,136 after",)


def test_both_inputs_are_told_where_they_differ(here):
    found = diff("swin-t", "gpt2")
    assert "an image (224×224) and 1,024 tokens, which are not comparable as input" in found.notes[-1]
    assert diff("gpt2", "swin-t").notes[-1] == found.notes[-1]
    for form, between in (("table", "   "), ("markdown", ", ")):
        before, after = (" ".join(line.split()) for line in document(found).text(form).splitlines()[1:3])
        words = ["before: image 224×224", "tokens 3,136 (56×56)", "batch 1", "float32", "eager attention"]
        assert before == " ".join(between.join(words).split())
        assert after == " ".join(between.join(["after: tokens 1,024", *words[2:]]).split())
    assert "before:" not in document(diff("swin-t", "swin-s")).text("table")


# Formats ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("form", ["table", "json", "csv", "markdown", "latex"])
def test_every_format(form):
    text = document(diff("swin-t", "swin-s")).text(form)
    assert "MLP up-projection" in text
    if form == "json":
        fields = json.loads(text)
        macs = fields["totals"]["macs"]
        assert macs["after"] - macs["before"] == macs["difference"]
        assert sum(one["macs_difference"] for one in fields["operations"]) == macs["difference"]
        assert sum(one["difference"] for one in fields["by_block"]["macs"]) == macs["difference"]
        assert {f"{name}_difference" for name in COUNTED} <= set(fields["operations"][0])
    if form == "csv":
        assert text.count("\n") == 1 + len(diff("swin-t", "swin-s").changes)
    if form == "latex":
        assert "\\toprule" in text


@pytest.mark.parametrize("columns", [80, 100])
def test_the_totals_come_first_and_fit(columns):
    done = stdout_of("diff", "swin-t", "swin-s", COLUMNS=str(columns))
    lines = done.splitlines()
    assert max(map(len, lines)) <= columns
    assert lines[3].split()[:2] == ["MACs", "+94.6"]
    assert "stage 3 · W-MSA +2.125 G" in " ".join(" ".join(lines[3:6]).split())


def test_markdown_fits_a_comment_of_a_pull_request():
    text = document(diff("vit", "swin")).text("markdown")
    assert len(text) < 65_536 / 4
    assert text.count("\n| removed") + text.count("\n| added") <= 20
    assert "smaller changes more" in text
    assert "smaller changes more" not in document(diff("vit", "swin"), verbose=True).text("markdown")


# The command ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_file_whose_name_has_a_colon_is_a_file(here):
    write(here, {"a:b.yaml": spec()})
    assert diff("./a:b.yaml", "./a:b.yaml").operations == []


def test_bad_input_is_one_message(here):
    for words in (["vit"], ["vit", "nope"], ["vit", "swin", "--sort", "x"], ["vit", "swin", "--input", "1x3"]):
        assert "Traceback" not in error_of("diff", *words)
    module = torch.nn.Linear(2, 2)
    with pytest.raises(UsageError, match="give its ledger"):
        diff(module, "vit")
