"""`xfcost check`: budgets of the command line and of pyproject.toml, what is over them, and the hook of pre-commit."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import torch
import yaml
from msgspec.structs import replace

import xfcost
from calibrated import keep_calibration
from helpers import environment, stdout_of, table_of, xf
from repositories import LAYERS, MODEL, commit, git, repository, spec, write
from xfcost.cli import command
from xfcost.ledger.budgets import BUDGETS, Budget
from xfcost.ledger.errors import UsageError
from xfcost.ledger.metadata import Agreement
from xfcost.parts.mixing.result import Probe, ProbedMixing, ProbedRow
from xfcost.questions.check.answer import check_all, find_project, planned, read_project
from xfcost.questions.check.result import BudgetFigure, BudgetResult, held_object
from xfcost.questions.check.text import document

TOP = Path(__file__).parents[1]
# Of the toy: 16 tokens of width 8, 2 blocks, an MLP of twice the width.
MACS = xfcost.analyze("vit", trace=False).total("macs")


def held(found, number=0):
    return {one.budget.quantity: one for one in found.checked[number].held}


# Budgets ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_budget_is_kept_to_the_last_mac():
    assert xfcost.check("vit", max_macs=MACS).within
    over = xfcost.check("vit", max_macs=MACS - 1)
    assert not over.within
    assert held(over)["macs"].difference == 1
    assert xfcost.check("vit", max_macs=MACS, max_params="1k").within is False


def test_the_figures_are_those_of_analyze():
    found = held(
        xfcost.check(
            "gpt2", N=64, batch=2, mode="decode", max_macs=1, max_flops=1, max_params=1, max_kv_cache="1B",
            max_memory="1B",
        )
    )  # fmt: skip
    ledger = xfcost.analyze("gpt2", N=64, batch=2, mode="decode", trace=False)
    for quantity in ("macs", "flops", "params"):
        assert found[quantity].figure.value == ledger.total(quantity)
    assert found["kv_cache"].figure.value == ledger.cache.bytes
    parts = found["memory"].figure.parts
    assert parts["weights"] == 2 * ledger.total("params")  # bfloat16
    assert parts["KV cache and state"] == ledger.cache.bytes
    assert found["memory"].figure.value == sum(parts.values())


def test_a_generation_and_a_training_step_are_held_whole():
    generation = xfcost.analyze("gpt2", N=32, mode="generate", new_tokens=4, trace=False).generation
    found = held(xfcost.check("gpt2", N=32, mode="generate", new_tokens=4, max_macs=1, max_flops=1))
    assert found["macs"].figure.value == generation.with_cache.macs
    assert found["flops"].figure.value == generation.with_cache.flops
    step = xfcost.analyze("vit", mode="train", trace=False).training.step
    trained = held(xfcost.check("vit", mode="train", max_macs=1, max_flops=1, max_memory="1B"))
    assert trained["macs"].figure.value == step.forward_macs + step.backward_macs
    assert trained["flops"].figure.value == step.model_flops
    assert trained["memory"].figure.value == step.total_bytes
    rows = xfcost.analyze("vit", mode="train", trace=False).rows
    kept = sorted((row.figure("kept_bytes") for row in rows), reverse=True)
    assert [weight.value for weight in trained["memory"].heaviest] == kept[:5]


@pytest.mark.parametrize(
    ("options", "fits"), [({"on": "l4"}, True), ({"on": "t4"}, False), ({"on": "h100-sxm", "mode": "train"}, False)]
)
def test_devices_without_a_budget_are_those_that_the_run_fits(options, fits):
    options = {"mode": "decode", "trace": False} | options
    [one] = xfcost.check("llama3-8b", **options).checked
    [held] = one.held
    # 8,030,261,248 parameters of 2 bytes and a cache of 2·32·8·128 numbers of 2 bytes for each of 8,192 tokens; a step
    # of training keeps more than 16 bytes of each parameter
    least = 8_030_261_248 * 16 if options["mode"] == "train" else 8_030_261_248 * 2 + 8192 * 2 * 32 * 8 * 128 * 2
    assert least <= held.figure.value < least * 1.7
    memory = 24e9 if options["on"] == "l4" else 16e9 if options["on"] == "t4" else 84_942_979_072
    assert (held.verdict == "within", held.budget.limit) == (fits, memory)


def test_the_heaviest_operations_are_named():
    found = held(xfcost.check("swin", max_macs="1G", max_memory="1MiB"))
    macs = found["macs"].heaviest
    rows = xfcost.analyze("swin", trace=False).rows
    assert [weight.value for weight in macs] == sorted((row.macs * row.times for row in rows), reverse=True)[:5]
    assert macs[0].share == pytest.approx(macs[0].value / found["macs"].figure.value)
    memory = found["memory"].heaviest
    assert memory[0].value == 4 * max(row.params * row.times for row in rows)


def test_a_module_with_something_uncounted_is_not_within():
    class Odd(torch.nn.Module):
        def forward(self, x):
            return torch.linalg.svdvals(x @ x)

    found = xfcost.check(Odd(), example_inputs=torch.zeros(4, 4), max_macs="1G", max_params="1G")
    assert [one.verdict for one in found.checked[0].held] == ["not known", "within"]
    assert not found.within


def test_json_and_csv_have_every_verdict():
    report = document(xfcost.check("swin", max_macs="1G", max_params="30M"))
    fields = json.loads(report.text("json"))
    over, within = fields["targets"][0]["budgets"]
    assert (fields["within"], over["verdict"], within["verdict"]) == (False, "over", "within")
    assert over["ours"] - over["limit"] == over["difference"]
    assert (bool(over["heaviest"]), within["heaviest"]) == (True, [])
    assert [row["verdict"] for row in table_of(report.text("csv"))] == ["over", "within"]


def test_every_budget_has_its_option():
    flags = {option.opts[0] for option in command("check").params}
    assert {one.option for one in BUDGETS.values()} <= flags


def test_a_trace_that_disagrees_is_not_within(monkeypatch):
    ledger = xfcost.analyze("vit", trace=False)
    wrong = Agreement(exact=False, accounts=("traced",))
    monkeypatch.setattr("xfcost.questions.check.answer.analyze", lambda *given, **how: replace(ledger, agreement=wrong))
    found = xfcost.check("vit", trace=True, max_macs="100G")
    assert not found.within
    assert "counted and traced disagree" in document(found).text("table")
    monkeypatch.setattr("xfcost.questions.check.answer.analyze", lambda *given, **how: ledger)
    assert xfcost.check("vit", max_macs="100G").within


def test_kinds_that_differ_are_not_within():
    row = ProbedRow(
        path="head", title="Head", declared=ProbedMixing(mixing="per-token"), found=ProbedMixing(mixing="local")
    )
    ledger = replace(xfcost.analyze("vit", trace=False), probe=Probe(rows=(row,), detailed=False))
    found = xfcost.check(ledger, max_macs="100G")
    assert not found.within
    assert "the kinds declared and those of the running model disagree" in document(found).text("table")


# Against ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_against_a_revision_the_operations_that_grew_are_named(tmp_path, monkeypatch):
    folder = repository(tmp_path, {"specs/toy.yaml": spec(ratio=2)})
    write(folder, {"specs/toy.yaml": spec(ratio=3), "specs/new.yaml": spec(ratio=3)})
    monkeypatch.chdir(folder / "specs")
    found = xfcost.check("toy.yaml", max_macs="1k", against="HEAD")
    grown = held(found)["macs"].grown
    assert [(change.row.title, change.differences["macs"]) for change in grown] == [
        ("MLP up-projection", 2048), ("MLP down-projection", 2048),
    ]  # fmt: skip
    assert "operations that grew in MACs since HEAD" in document(found).text("markdown")
    new = xfcost.check("new.yaml", max_macs="1k", against="HEAD")
    assert held(new)["macs"].grown is None
    assert new.checked[0].notes == ("new.yaml is new: HEAD has no such file",)
    commit(folder, {})
    same = xfcost.check("toy.yaml", max_macs="1k", against="HEAD")
    assert held(same)["macs"].grown == ()
    assert "no operation grew in MACs since HEAD; the largest:" in document(same).text("table")
    # a revision with a file is that file, as in `diff`; one that it does not have is no new target
    named = xfcost.check("toy.yaml", max_macs="1k", max_increase="5%", against="HEAD~1:./toy.yaml")
    assert not named.within
    with pytest.raises(UsageError, match="there is no"):
        xfcost.check("toy.yaml", max_macs="1G", max_increase="5%", against="HEAD:./none.yaml")
    for limit in ("1k", "1G"):  # over the budget and within
        with pytest.raises(UsageError):
            xfcost.check("toy.yaml", max_macs=limit, against="nope")


def test_against_a_saved_report(here):
    (here / "a.json").write_text(xfcost.analyze("swin-t", trace=False).to_json(), encoding="utf-8")
    found = held(xfcost.check("swin-s", max_macs="5G", against="a.json"))
    assert found["macs"].grown[0].differences["macs"] > 0
    with pytest.raises(UsageError):
        xfcost.check("swin-s", max_macs="5G", batch=8, against="a.json")
    assert xfcost.check("swin-s", max_macs="50G", against="a.json").within


def test_a_saved_report_gives_the_target_and_the_inputs_of_a_module(here):
    net = "from torch import nn\nclass Net(nn.Linear):\n    def __init__(self):\n        super().__init__(8, WIDTH)\n"
    (here / "net.py").write_text(net.replace("WIDTH", "4"), encoding="utf-8")
    saved = xf("analyze", "net.py:Net", "--input", "5x7x8", "-o", "a.json", cwd=here)
    assert saved.returncode == 0
    options = ("--baseline", "a.json", "--tolerance", "5%")
    same = xf("check", "net.py:Net", *options, cwd=here)
    assert same.returncode == 0
    assert "5×7×8" in same.stdout
    (here / "net.py").write_text(net.replace("WIDTH", "16"), encoding="utf-8")
    wider = xf("check", "net.py:Net", *options, "--format", "json", cwd=here)
    assert wider.returncode == 1
    # 5·7 tokens of 8 numbers, 16 outputs instead of 4
    [macs] = [one for one in json.loads(wider.stdout)["targets"][0]["budgets"] if one["quantity"] == "macs"]
    assert (macs["ours"], macs["before"]) == (5 * 7 * 8 * 16, 5 * 7 * 8 * 4)
    assert "give its target, as in `xfcost check model.py:Net" in xf("check", *options, cwd=here).stderr
    xf("analyze", "vit", "--no-trace", "-o", "b.json", cwd=here)
    assert xf("check", "--against", "b.json", "--max-increase", "0%", cwd=here).stdout.startswith(
        "within all 3 budgets"
    )


def test_an_increase_is_held_against_the_figures_of_a_revision(tmp_path, monkeypatch):
    """16 tokens of width 8, 2 blocks; biases everywhere.

    MACs of a block: Q, K, V and output 4·16·8² = 4096, scores and AV 2·16²·8 = 4096, MLP 2·16·8·(ratio·8): 4096 at
    ratio 2 and 6144 at 3; so 24,576 before and 28,672 now, one sixth more.
    Parameters that are added: per block 2·8·8 weights and 8 biases: 272 of 1200 in all.
    """
    folder = repository(tmp_path, {"toy.yaml": spec(ratio=2), "model.py": MODEL, "layers.py": LAYERS.format(width=16)})
    write(folder, {"toy.yaml": spec(ratio=3), "new.yaml": spec(ratio=3), "layers.py": LAYERS.format(width=24)})
    monkeypatch.chdir(folder)
    found = held(xfcost.check("toy.yaml", against="main", max_increase="17%"))
    assert list(found) == ["macs", "params", "memory"]
    assert (found["macs"].budget.before, found["macs"].figure.value) == (24_576, 28_672)
    assert (found["params"].budget.before, found["params"].figure.value) == (1200, 1472)
    assert found["macs"].budget.limit == 28_753  # 24,576 · 1.17 = 28,753.92
    assert [one.verdict for one in found.values()] == ["within", "over", "within"]
    # float32 weights, and the scores of one block with their softmax: 2 heads · 16² · 4 bytes · 2
    assert (found["memory"].budget.before, found["memory"].figure.value) == (1200 * 4 + 4096, 1472 * 4 + 4096)
    assert [change.differences["params"] for change in found["params"].grown] == [2 * (64 + 8), 2 * 64]
    new = xfcost.check("new.yaml", against="main", max_increase="0%")
    assert new.within
    commit(folder, {})
    same = xfcost.check("toy.yaml", against="main", max_increase="0%")
    assert same.within


def test_the_lower_bound_is_held_against_that_of_a_saved_report(here):
    """A decode step reads all weights and the cache once: bytes / 3.35 TB/s of an H100."""
    run = {"mode": "decode", "N": 1024, "on": "h100-sxm"}
    (here / "a.json").write_text(xfcost.analyze("gpt2", **run, trace=False).to_json(), encoding="utf-8")
    found = xfcost.check("gpt2-xl", against="a.json", max_increase="2%", **run)
    seconds = held(found)["seconds"]
    for report, value in (("gpt2", seconds.budget.before), ("gpt2-xl", seconds.figure.value)):
        step = xfcost.analyze(report, **run, trace=False).step
        assert value == pytest.approx(step.bytes_read / 3.35e12, rel=1e-3)
    assert seconds.verdict == "over"
    assert seconds.heaviest
    limit = seconds.figure.value
    assert held(xfcost.check("gpt2-xl", max_seconds=limit * 1.01, **run))["seconds"].verdict == "within"
    assert held(xfcost.check("gpt2-xl", max_seconds=limit * 0.99, **run))["seconds"].verdict == "over"
    for on in ("a100-sxm-80", "h100-sxmx2"):
        with pytest.raises(UsageError, match="seconds are not comparable"):
            xfcost.check("gpt2-xl", against="a.json", max_increase="2%", **run | {"on": on})


def test_predicted_seconds_are_held_against_a_budget(tmp_path, monkeypatch):
    keep_calibration(tmp_path, monkeypatch)
    run = {"predict": True, "threads": 1}
    seconds = xfcost.analyze("vit", **run, trace=False).prediction.seconds
    over = xfcost.check("vit", max_seconds=seconds * 0.99, **run)
    assert held(over)["seconds"].figure.value == seconds
    assert not over.within
    assert xfcost.check("vit", max_seconds=seconds * 1.01, **run).within


# The hook ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def hook():
    (one,) = yaml.safe_load((TOP / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    return one


def test_the_manifest_is_one_that_pre_commit_reads(hook):
    clientlib = pytest.importorskip("pre_commit.clientlib")
    (read,) = clientlib.load_manifest(TOP / ".pre-commit-hooks.yaml")
    assert read["id"] == hook["id"] == "xfcost-check"


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
@pytest.mark.parametrize(("limit", "passes"), [(100_000, True), (1_000, False)])
def test_pre_commit_runs_it_on_staged_files(tmp_path, hook, limit, passes):
    pytest.importorskip("pre_commit")
    entry = f"{shlex.quote(sys.executable)} -m {hook['entry']}"
    ours = hook | {"language": "system", "entry": entry}
    table = f'[[tool.xfcost.check]]\ntarget = "toy.yaml"\nmax-macs = {limit}\n'
    config = yaml.safe_dump({"repos": [{"repo": "local", "hooks": [ours]}]})
    folder = repository(tmp_path / "repo", {"pyproject.toml": table, ".pre-commit-config.yaml": config})
    write(folder, {"toy.yaml": spec(), "layers.py": "# a file that is no target\n"})
    git(folder, "add", "toy.yaml", "layers.py")
    quiet = environment(PRE_COMMIT_HOME=str(tmp_path / "home"), GIT_CONFIG_GLOBAL="/dev/null")
    done = subprocess.run(
        [sys.executable, "-m", "pre_commit", "run"], cwd=folder, env=quiet, capture_output=True, text=True, check=False
    )
    assert done.returncode == (0 if passes else 1), done.stdout + done.stderr
    assert ("Passed" if passes else "over 1 of 1 budget") in done.stdout


# `[tool.xfcost]` of a pyproject.toml: targets with their budgets and options ──────────────────────────────────────────


PROJECT = """
[tool.xfcost]
max-params = "30M"

[[tool.xfcost.check]]
target = "specs/toy.yaml"
max-macs = 10_000
batch = 2

[[tool.xfcost.check]]
target = "swin"
size = 448
max-params = "28M"
set = "stages.2.depth=2"
"""


def checks(targets=(), budgets=(), options=None):
    return check_all(planned(targets, budgets, options or {}, find_project(Path.cwd())), None, lambda text: None)


def test_every_table_is_checked_with_its_budgets_and_options(here, monkeypatch):
    write(here, {"pyproject.toml": PROJECT, "specs/toy.yaml": spec(), "sub/x.txt": ""})
    found = checks()
    toy = xfcost.analyze("./specs/toy.yaml", batch=2, trace=False)
    assert held(found)["macs"].figure.value == toy.total("macs")
    assert held(found)["macs"].verdict == "over"
    assert held(found)["params"].budget.limit == 30_000_000
    swin = held(found, 1)
    assert swin["params"].budget.limit == 28_000_000
    assert "image 448×448" in found.checked[1].run
    assert swin["params"].figure.value == xfcost.analyze("swin", trace=False, settings=["stages.2.depth=2"]).total(
        "params"
    )
    monkeypatch.chdir(here / "sub")
    assert checks() == found


def test_a_named_target_takes_its_table_and_the_command_line_goes_first(here, monkeypatch):
    write(here, {"pyproject.toml": PROJECT, "specs/toy.yaml": spec()})
    monkeypatch.chdir(here / "specs")
    done = xf("check", "toy.yaml", "--max-macs", "1M", "--batch", "4", "--format", "json", cwd=here / "specs")
    (one,) = json.loads(done.stdout)["targets"]
    macs = {budget["quantity"]: budget for budget in one["budgets"]}
    assert (macs["macs"]["limit"], macs["params"]["limit"]) == (1_000_000, 30_000_000)
    assert macs["macs"]["ours"] == xfcost.analyze("./toy.yaml", batch=4, trace=False).total("macs")
    other = json.loads(xf("check", "vit", "--format", "json", cwd=here / "specs").stdout)
    assert [budget["quantity"] for budget in other["targets"][0]["budgets"]] == ["params"]


def test_an_n_of_the_command_line_takes_the_place_of_a_size(here):
    write(here, {"pyproject.toml": PROJECT})
    assert "tokens 784" in checks(["swin"], options={"N": "784"}).checked[0].run


CHECKED = '[[tool.xfcost.check]]\ntarget = "vit"\n'


@pytest.mark.parametrize(
    "text",
    [
        "[[tool.xfcost.check]]\n",
        CHECKED,
        f"{CHECKED}max-macs = nan\n",
        f"{CHECKED}max-macs = true\n",
        f'{CHECKED}max-macs = "1G"\nbatch = true\n',
        f'{CHECKED}max-macs = "1G"\ninput = [3]\n',
        f'{CHECKED}max-macs = "1G"\ntrace = "no"\n',
        f'[tool.xfcost]\nmax-macs = "1G"\n{CHECKED}on = "h100-sxmx8"\n',
        '[tool]\nxfcost = "vit"\n',
        "tool = 3\n",
        "[tool.xfcost\n",
        f"x = {'9' * 4400}\n",
        f"x = {'[' * 3000}{']' * 3000}\n",
        '[tool.xfcost]\nmax-increase = "2"\n',
    ],
)
def test_a_table_that_can_not_be_is_refused_with_its_file(here, text):
    write(here, {"pyproject.toml": text})
    with pytest.raises(UsageError, match=r"pyproject\.toml"):
        checks()


def test_a_pyproject_without_a_table_is_passed_over(here):
    write(here, {"pyproject.toml": PROJECT, "specs/toy.yaml": spec(), "sub/pyproject.toml": "[tool.other]\n"})
    assert read_project(here / "sub" / "pyproject.toml") is None
    assert find_project(here / "sub").folder == here


def test_a_module_takes_its_inputs_from_the_table(here):
    table = '[[tool.xfcost.check]]\ntarget = "model.py:build"\nbuild = "depth=4"\nmax-macs = 1\n'
    table += 'input = "Bx5x8"\nbatch = 3\n'
    write(here, {"pyproject.toml": table, "model.py": MODEL, "layers.py": LAYERS.format(width=16)})
    done = xf("check", "--format", "json", cwd=here)
    assert done.returncode == 1
    assert json.loads(done.stdout)["targets"][0]["budgets"][0]["ours"] == 3 * 4 * 2 * 5 * 8 * 16


def test_the_share_over_a_limit_of_nothing_is_null():
    result = BudgetResult(budget=Budget("macs", 0), figure=BudgetFigure(3, "MACs"))
    assert (held_object(result)["excess"], held_object(result)["difference"]) == (None, 3)


def test_targets_that_are_valid_are_named_beside_those_that_are_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("one.yaml").write_text("extends: vit\nname: One\n", encoding="utf-8")
    Path("bad.yaml").write_text("extends: vit\nname: Bad\nset: {stages.0.deepth: 2}\n", encoding="utf-8")
    done = xf("check", "one.yaml", "bad.yaml", "nothing.yaml", "gpt2")
    head, bad, absent = done.stderr.splitlines()
    assert done.returncode == 2
    assert head == "error: 2 valid (one.yaml, gpt2), 2 not:"
    assert bad.startswith("  bad.yaml:3 ")
    assert absent.startswith("  nothing.yaml: no such file")
    alone = xf("check", "bad.yaml")
    assert alone.stderr.startswith("error: bad.yaml:3 ")


@pytest.mark.parametrize(
    "text",
    [
        "model: vit\nmax_params: 30M\nmax_flops: 50 GFLOPs",
        "models:\n- {spec: vit, limits: {params: <= 30M, flops: 50G}}",
        "version: 1\ndefaults: {batch_size: 1}\nchecks:\n- {name: vit, max-params: 30M, max_flops: 50G}",
        "models: {vit: {max_params: 30M, max_flops: 50G}}",
        "budgets:\n- {model: vit, max_params: 30M, max_flops: 50G}",
        "max_params: 30M\nmax_flops: 50G\ncheck: [{target: vit}]",
    ],
)
def test_budgets_may_be_yaml(text, tmp_path):
    (tmp_path / "budgets.yaml").write_text(text)
    for words in (["budgets.yaml"], ["--config", "budgets.yaml"], ["--budget", "budgets.yaml"]):
        said = stdout_of("check", *words, cwd=tmp_path)
        assert said.startswith("within all 2 budgets")
        assert re.search(r"within +parameters +22.06 M +30 M", said)  # 22,055,272 of ViT-S/8
    (tmp_path / "budgets.yaml").write_text(text.replace("30M", "20M"))
    assert xf("check", "budgets.yaml", cwd=tmp_path).returncode == 1


def test_annotations_of_a_pull_request_and_test_cases():
    found = xf("check", "vit", "gpt2", "--max-params", "30M", "--format", "github")
    assert found.returncode == 1
    assert found.stdout.splitlines() == [
        "::error file=gpt2,title=xfcost::GPT-2 (124M): parameters 124.4 M, over the limit of 30 M",
        "::notice title=xfcost::over 1 of 2 budgets",
    ]
    suite = ET.fromstring(xf("check", "vit", "gpt2", "--max-params", "30M", "--format", "junit").stdout)  # noqa: S314 - ours
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    assert [case.get("classname") for case in suite if case.find("failure") is not None] == ["gpt2"]


def test_the_specs_of_a_folder_are_checked(tmp_path):
    (tmp_path / "specs/inner").mkdir(parents=True)
    (tmp_path / "specs/a.yaml").write_text("extends: vit\nname: a")
    (tmp_path / "specs/inner/b.yml").write_text("extends: vit\nname: b\nset: {stages.0.depth: 13}")
    assert {"specs/a.yaml", "specs/inner/b.yml"} <= {*stdout_of("check", "specs", cwd=tmp_path).splitlines()}
    # 13·(12·384² + 13·384) of blocks, against 12 of 22.06 M
    assert xf("check", "specs", "--max-params", "23M", cwd=tmp_path).returncode == 1
