"""`[tool.xfcost]` of a pyproject.toml: targets with their budgets and options."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import xfcost
from helpers import xf
from repositories import LAYERS, MODEL, spec, write
from xfcost.api.checking.project import check_all, find_project, planned, read_project
from xfcost.ledger.errors import SpecError, UsageError


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def held(found, number=0):
    return {one.budget.quantity: one for one in found.checked[number].held}


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


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[tool.xfcost]\n", "nothing to check"),
        ("[tool.xfcost]\nmax-mac = 3\n", r"\[tool.xfcost\]: unknown key 'max-mac'; did you mean 'max-macs'"),
        ("[[tool.xfcost.check]]\n", r"\[\[tool.xfcost.check\]\] 1: has no target"),
        ('[[tool.xfcost.check]]\ntarget = "vit"\n', "1: vit has no budget"),
        ('[[tool.xfcost.check]]\ntarget = 3\nmax-macs = "1G"\n', "target: expected a text, got 3"),
        ('[[tool.xfcost.check]]\ntarget = "vit"\nmax-macs = -1\n', "max-macs -1: expected a number"),
        ('[[tool.xfcost.check]]\ntarget = "vit"\nmax-macs = nan\n', "max-macs nan: expected a number"),
        ('[[tool.xfcost.check]]\ntarget = "vit"\nmax-macs = true\n', "max-macs True: expected a number"),
        ('[[tool.xfcost.check]]\ntarget = "vit"\nmax-memory = 2\n', "max-memory 2: has no unit"),
        ('[[tool.xfcost.check]]\ntarget = "vit"\nmax-macs = "1G"\nbatch = "x"\n', "1: --batch x: expected"),
        ('[[tool.xfcost.check]]\ntarget = "vit"\nmax-macs = "1G"\nbatch = true\n', "batch: expected a number"),
        ('[[tool.xfcost.check]]\ntarget = "vit"\nmax-macs = "1G"\ninput = [3]\n', "input: expected a text or a list"),
        ('[[tool.xfcost.check]]\ntarget = "vit"\nmax-macs = "1G"\ntrace = "no"\n', "trace: expected true or false"),
        ('[tool.xfcost]\ncheck = "vit"\n', r"tool.xfcost.check: expected tables"),
        ('[tool]\nxfcost = "vit"\n', r"expected a table, \[tool.xfcost\]"),
        ("[tool.xfcost\n", "is no TOML"),
        ('[tool.xfcost]\nmax-seconds = "1s"\n', "unknown key 'max-seconds'"),
        ("tool = 3\n", r"tool: expected tables, \[tool.xfcost\] and others, got 3"),
        (
            '[tool.xfcost]\nmax-macs = "1G"\n[[tool.xfcost.check]]\ntarget = "vit"\non = "h100-sxmx8"\n',
            r"\[\[tool.xfcost.check\]\] 1 \(vit\): --on: check takes devices with --mode train",
        ),
        (
            '[tool.xfcost]\nmfu = 0.4\nmax-macs = "1G"\n[[tool.xfcost.check]]\ntarget = "vit"\n',
            r"\[\[tool.xfcost.check\]\] 1 \(vit\): --mfu: check holds budgets of counts and bytes",
        ),
        (
            '[tool.xfcost]\nmax-kv-cache = "1GiB"\n[[tool.xfcost.check]]\ntarget = "gpt2"\n',
            r"\[\[tool.xfcost.check\]\] 1 \(gpt2\): --max-kv-cache: --mode forward keeps no cache",
        ),
    ],
)  # fmt: skip
def test_a_table_that_can_not_be_is_refused_with_file_and_key(here, text, told):
    write(here, {"pyproject.toml": text})
    with pytest.raises(UsageError, match=told) as caught:
        checks()
    assert "pyproject.toml" in str(caught.value)


def test_a_target_without_file_is_named_with_its_table(here):
    write(here, {"pyproject.toml": '[[tool.xfcost.check]]\ntarget = "nope.yaml"\nmax-macs = "1G"\n'})
    with pytest.raises(SpecError, match=r"pyproject.toml: \[\[tool.xfcost.check\]\] 1 \(nope.yaml\): nope.yaml: no"):
        checks()


def test_a_pyproject_that_is_a_folder_is_refused(here):
    (here / "pyproject.toml").mkdir()
    with pytest.raises(SpecError, match=r"pyproject\.toml: is a directory; expected a TOML file"):
        checks()


def test_devices_stand_in_a_table(here):
    table = 'target = "gpt2"\nmode = "train"\non = "h100-sxmx8"\ntensor-parallel = 2\nsequence-parallel = true\n'
    write(here, {"pyproject.toml": f'[[tool.xfcost.check]]\n{table}max-memory = "80GB"\n'})
    one = checks().checked[0]
    assert one.run.endswith("on h100-sxm x8, --tensor-parallel 2 --sequence-parallel")
    assert one.held[0].figure.words == "memory of a device"


def test_a_pyproject_without_a_table_is_passed_over(here, monkeypatch):
    write(here, {"pyproject.toml": PROJECT, "specs/toy.yaml": spec(), "sub/pyproject.toml": "[tool.other]\n"})
    assert read_project(here / "sub" / "pyproject.toml") is None
    assert find_project(here / "sub").folder == here
    monkeypatch.chdir(here)
    done = xf("check", "--config", "sub/pyproject.toml", cwd=here)
    assert (done.returncode, "has no table [tool.xfcost]" in done.stderr) == (2, True)


def test_a_module_takes_its_inputs_from_the_table(here):
    table = '[[tool.xfcost.check]]\ntarget = "model.py:build"\nbuild = "depth=4"\nmax-macs = 1\n'
    table += 'input = "Bx5x8"\nbatch = 3\n'
    write(here, {"pyproject.toml": table, "model.py": MODEL, "layers.py": LAYERS.format(width=16)})
    done = xf("check", "--format", "json", cwd=here)
    assert done.returncode == 1
    assert json.loads(done.stdout)["targets"][0]["budgets"][0]["ours"] == 3 * 4 * 2 * 5 * 8 * 16
