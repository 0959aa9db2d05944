"""`xfcost diff`: totals and operations of two specs, saved runs and revisions; what can't be compared is refused."""

from __future__ import annotations

import json
import os
import subprocess

import msgspec
import pytest

import xfcost
from helpers import environment, words_of, xf
from measured import HEADER, THERE, row
from repositories import LAYERS, MODEL, commit, git, repository, spec, write
from test_measured_series import timed
from xfcost.api.difference import diff
from xfcost.counting.differences.changes import COUNTED, grown, parts
from xfcost.ledger.errors import UsageError, XfcostError
from xfcost.ledger.saved_report import read_report, report_of
from xfcost.report.differences import diff_text


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def repo(tmp_path_factory):
    """Two commits: a spec that extends another, and a module that imports its layers."""
    folder = tmp_path_factory.mktemp("repo")
    first = {"specs/base.yaml": spec(ratio=2), "specs/toy.yaml": "extends: ./base.yaml\nname: toy\n"}
    repository(folder, {**first, "model.py": MODEL, "layers.py": LAYERS.format(width=16), ".gitignore": "*.json\n"})
    commit(folder, {"specs/base.yaml": spec(ratio=3), "layers.py": LAYERS.format(width=24)})
    return folder


@pytest.fixture
def inside(repo, monkeypatch):
    monkeypatch.chdir(repo)
    return repo


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
    assert "no difference: all 154 operations are the same" in diff_text(found, "table")
    assert "no difference" in diff_text(found, "markdown")


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
    if wanted != "macs":
        assert sum(change.differences[wanted] for change in found.changes) == theirs(ledgers[1]) - theirs(ledgers[0])


def test_an_image_of_another_size_and_another_n_are_said(here):
    write(here, {"a.yaml": "extends: vit\ninput: {kind: image, size: 256, channels: 3}\n"})
    assert diff("vit", "./a.yaml").notes == ("not the same run: images 224×224 and 256×256",)
    assert diff("vit", "swin").notes == ("N is 784 before and 3,136 after",)


# Formats ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("form", ["table", "json", "csv", "markdown", "latex"])
def test_every_format(form):
    text = diff_text(diff("swin-t", "swin-s"), form)
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
    done = xf("diff", "swin-t", "swin-s", COLUMNS=str(columns))
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= columns
    assert lines[3].split()[:2] == ["MACs", "+94.6"]
    assert "stage 3 · W-MSA +2.125 G" in " ".join(" ".join(lines[3:6]).split())


def test_markdown_fits_a_comment_of_a_pull_request():
    text = diff_text(diff("vit", "swin"), "markdown")
    assert len(text) < 65_536 / 4
    assert text.count("\n| removed") + text.count("\n| added") <= 20
    assert "smaller changes more" in text
    assert "smaller changes more" not in diff_text(diff("vit", "swin"), "markdown", verbose=True)


# Saved runs ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def saved(name, file, **options):
    file.write_text(xfcost.analyze(name, trace=False, **options).to_json(), encoding="utf-8")
    return str(file)


def test_a_saved_report_is_the_ledger_again(here):
    ledger = xfcost.analyze("swin", trace=False)
    assert read_report(ledger.to_json(), "a.json") == report_of(ledger)
    assert diff(saved("swin", here / "a.json"), "swin").operations == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"batch": 8}, "batch 1 and 8"),
        ({"dtype": "float16"}, "dtype float32 and float16"),
        ({"size": 448}, "images 224×224 and 448×448"),
        ({"mode": "train"}, "mode forward and train"),
    ],
)
def test_saved_runs_that_differ_are_refused(here, options, told):
    first, second = saved("swin", here / "a.json"), saved("swin", here / "b.json", **options)
    with pytest.raises(UsageError, match=f"not comparable: .*{told}"):
        diff(first, second)
    assert diff(first, saved("vit", here / "c.json")).changes


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "cut, or no JSON"),
        ('{"name": "a", "operations": [', "cut, or no JSON"),
        ("[]", "no operations, and may be of another tool"),
        ('{"benchmark": 3}', "may be of another tool"),
        ('{"operations": [], "totals": {}}', "missing required field"),
        ('{"systems": []}', "but of `xfcost compare`"),
    ],
)
def test_json_that_is_no_report(here, text, told):
    (here / "a.json").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=told):
        diff("a.json", "vit")


def test_a_report_with_figures_that_can_not_be(here):
    fields = json.loads(xfcost.analyze("vit", trace=False).to_json())
    fields["operations"][0]["macs"] = -5
    (here / "a.json").write_text(json.dumps(fields), encoding="utf-8")
    with pytest.raises(UsageError, match=r"is no report.*operations\[0\].macs"):
        diff("a.json", "vit")


def runs_file(path, *rows):
    lines = [HEADER, *rows]
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    return str(path)


def test_seconds_within_their_intervals_are_no_difference(here):
    before = runs_file(here / "a.jsonl", row("A", 64, timed(1.0, 0.9, 1.1)), row("A", 128, timed(2.0, 1.95, 2.05)))
    after = runs_file(here / "b.jsonl", row("A", 64, timed(1.05, 0.95, 1.2)), row("A", 128, timed(3.0, 2.9, 3.1)))
    found = diff(before, after)
    by_n = {one.configuration.N: one for one in found.rows}
    assert by_n[64].seconds.different is False
    assert by_n[128].seconds.different is True
    assert by_n[128].seconds.ratio == pytest.approx(1.5)
    assert [one.configuration.N for one in found.rows] == [128, 64]
    text = diff_text(found, "table")
    assert "1 slower, 0 faster, 1 without a difference beyond noise" in text
    assert "no difference beyond noise" in text
    for form in ("json", "csv", "markdown", "latex"):
        assert diff_text(found, form)


def test_seconds_of_another_machine_are_not_compared(here):
    before = runs_file(here / "a.jsonl", row("A", 64, timed(1.0, 0.9, 1.1)))
    after = runs_file(here / "b.jsonl", row("A", 64, timed(9.0, 8.9, 9.1), machine=THERE), row("A", 128))
    found = diff(before, after)
    assert found.rows[0].seconds is None
    assert found.only_after == 1
    text = diff_text(found, "table")
    assert "another machine" in text
    assert "their seconds are not compared" in text


def test_files_of_measurements_that_have_nothing_in_common(here):
    before, after = runs_file(here / "a.jsonl", row("A", 64)), runs_file(here / "b.jsonl", row("B", 64))
    with pytest.raises(UsageError, match="no row of one is of the same system and run"):
        diff(before, after)
    with pytest.raises(UsageError, match="has no rows"):
        diff(before, runs_file(here / "c.jsonl"))
    with pytest.raises(UsageError, match="holds measurements, which have no operations"):
        diff(before, "vit")


def timed_report(here, name, seconds, low, high, **more):
    """A saved report whose run was timed, a hundredth of the time in its first operation."""
    fields = json.loads(xfcost.analyze("vit", trace=False).to_json())
    timing = timed(seconds, low, high, **more).timing
    fields["timing"] = msgspec.to_builtins(timing)
    fields["operations"][0]["seconds"] = seconds / 100
    (here / name).write_text(json.dumps(fields), encoding="utf-8")
    return name


def test_timed_reports_have_a_verdict(here):
    first = timed_report(here, "a.json", 1.0, 0.98, 1.02)
    slow = diff(first, timed_report(here, "b.json", 1.2, 1.18, 1.22))
    assert slow.seconds.different is True
    assert "slower, by" in diff_text(slow, "table")
    assert [change.kind for change in slow.changes] == ["same"]
    assert slow.changes[0].differences["seconds"] == pytest.approx(0.002)
    same = diff(first, timed_report(here, "c.json", 1.01, 0.97, 1.05))
    assert same.seconds.different is False
    assert "no difference beyond noise" in diff_text(same, "table")


def test_a_report_timed_with_other_threads_says_so(here):
    first = timed_report(here, "a.json", 1.0, 0.98, 1.02)
    fields = json.loads((here / "a.json").read_text(encoding="utf-8"))
    fields["timing"]["threads"] = 1
    (here / "b.json").write_text(json.dumps(fields), encoding="utf-8")
    found = diff(first, "b.json")
    assert found.seconds is None
    assert found.changes == ()
    assert any("timed with another threads" in note for note in found.notes)


# Revisions ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_spec_at_a_revision_extends_the_files_of_that_revision(inside):
    found = diff("HEAD~1:specs/toy.yaml", "HEAD:specs/toy.yaml")
    assert {change.row.title for change in found.changes if change.differences["macs"]} == {
        "MLP up-projection", "MLP down-projection",
    }  # fmt: skip
    assert totals(diff("main:specs/toy.yaml", "specs/toy.yaml"))["macs"] == (totals(found)["macs"][1],) * 2
    assert git(inside, "status", "--porcelain") == ""


def test_code_at_a_revision_imports_what_that_revision_has(inside):
    found = diff("HEAD~1:model.py:build", "main:model.py:build")
    # 5 tokens x 8 x (24 - 16), twice in each of 2 layers
    assert totals(found)["macs"][1] - totals(found)["macs"][0] == 2 * 2 * 5 * 8 * 8
    assert git(inside, "status", "--porcelain") == ""


def test_code_that_is_not_committed_is_compared_with_its_revision(tmp_path):
    folder = repository(tmp_path, {"model.py": MODEL, "layers.py": LAYERS.format(width=16)})
    write(folder, {"layers.py": LAYERS.format(width=8)})
    done = xf("diff", "HEAD:model.py:build", "model.py:build", "--format", "json", cwd=folder)
    macs = json.loads(done.stdout)["totals"]["macs"]
    assert (macs["before"], macs["after"]) == (2 * 2 * 5 * 8 * 16, 2 * 2 * 5 * 8 * 8)
    assert (folder / "layers.py").read_text(encoding="utf-8") == LAYERS.format(width=8)


def test_code_that_imports_from_the_working_tree_is_refused(tmp_path):
    folder = repository(tmp_path / "repo", {"model.py": MODEL, ".gitignore": "layers.py\n"})
    write(folder, {"layers.py": LAYERS.format(width=8)})
    fresh = environment(PYTHONPATH=os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(folder)]))
    done = subprocess.run(
        words_of("diff", "HEAD:model.py:build", "vit"), cwd=folder, env=fresh, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "No module named 'layers'" in done.stderr  # the folder of the working tree is not searched


def test_an_error_at_a_revision_has_its_name_and_not_the_folder_s(inside):
    with pytest.raises(UsageError, match=r"^HEAD:model.py:nothing: "):
        diff("HEAD:model.py:nothing", "vit")
    git(inside, "checkout", "-q", "-b", "broken")
    try:
        commit(inside, {"specs/base.yaml": "name: [\n"})
        with pytest.raises(XfcostError, match=r"^broken:specs/base.yaml") as caught:
            diff("broken:specs/base.yaml", "vit")
        assert "/tmp" not in str(caught.value)
    finally:
        git(inside, "checkout", "-q", "main")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nope:specs/toy.yaml", "nope: there is no such revision"),
        ("mian:specs/toy.yaml", "did you mean main"),
        ("HEAD:specs/toys.yaml", "did you mean specs/toy.yaml"),
        ("HEAD:specs.yaml", "there is no specs.yaml at that revision"),
        ("HEAD:swin", "expected a file at a revision"),
        (":specs/toy.yaml", "expected a revision before the colon"),
        ("HEAD:package.module:Net", "there is no package/module at that revision"),
        ("--output=x:specs/toy.yaml", "there is no such revision"),
    ],
)
def test_what_is_no_file_at_a_revision(inside, text, told):
    with pytest.raises(UsageError, match=told):
        diff(text, "specs/toy.yaml")


def test_paths_begin_at_the_top_or_with_a_dot_in_this_folder(repo, monkeypatch):
    monkeypatch.chdir(repo / "specs")
    assert diff("HEAD:./toy.yaml", "HEAD:specs/toy.yaml").operations == []
    with pytest.raises(UsageError, match=r"\./toy.yaml is the one in this folder"):
        diff("HEAD:toy.yaml", "toy.yaml")


def test_no_repository_and_no_git(here, monkeypatch):
    write(here, {"a.yaml": spec()})
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(here.parent))
    with pytest.raises(UsageError, match="is in no git repository"):
        diff("HEAD:a.yaml", "a.yaml")
    monkeypatch.setenv("PATH", str(here))
    with pytest.raises(UsageError, match="git is not installed"):
        diff("HEAD:a.yaml", "a.yaml")


# The command ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_file_whose_name_has_a_colon_is_a_file(here):
    write(here, {"a:b.yaml": spec()})
    assert diff("./a:b.yaml", "./a:b.yaml").operations == []


def test_bad_input_is_one_message(here):
    for words in (["vit"], ["vit", "nope"], ["vit", "swin", "--sort", "x"], ["vit", "swin", "--input", "1x3"]):
        done = xf("diff", *words)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
    with pytest.raises(UsageError, match="give its ledger"):
        import torch

        diff(torch.nn.Linear(2, 2), "vit")


def test_specs_are_compared_without_torch(inside):
    code = (
        "import sys; from xfcost.api.difference import diff;"
        "diff('HEAD~1:specs/toy.yaml', 'specs/toy.yaml'); print('torch' in sys.modules)"
    )
    done = subprocess.run(words_of()[:1] + ["-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
