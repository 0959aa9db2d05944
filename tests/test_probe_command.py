"""`analyze --probe`: every row of a spec held against its running model; a wrong declaration ends with exit code 1."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import xfcost
from helpers import table_of
from wrong_rows import declared_wrongly
from xfcost.cli import app
from xfcost.mechanisms.window import Window

PIXELS = "its input is the model's own, pixels or token numbers; the probe follows vectors of tokens"
# Reasons that no mixing row of a preset may have: no place was found, nothing ran.
UNEXPECTED = ("kind:", "no grid", "it runs nothing")


@pytest.fixture
def tiny() -> str:
    return str(Path(__file__).with_name("golden") / "files" / "two_windows.yaml")


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window's scores are declared global."""
    monkeypatch.setattr(Window, "forward", declared_wrongly(Window.forward, "scores", mixing=lambda row: "global"))


def one_less(reads: Any) -> Any:
    return lambda self, grid, token, memory=None: reads(self, grid, token, memory)[1:]


def one_more(pairs: Any) -> Any:
    return lambda self, grid, memory=None: pairs(self, grid, memory) + 1


def other_letter(forward: Any) -> Any:
    return declared_wrongly(forward, "scores", reads=lambda row: "h²")


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["analyze", *arguments])


# Those whose options left out, blocks or paddings a small grid once showed wrongly. Every row of every mechanism is
# probed in test_special_tokens.py.
QUICK = ("swin-t", "common-linear")
PRESETS = {
    *QUICK,
    *("longformer-base-4096", "mamba-130m", "performer", "linear-transformer-cifar10", "etc-base", "nystromformer-512"),
    *("mobilevit-s", "gshard-600b", "swinv2-b-w24-384", "retnet-7b", "routing-lm", "llama3.2-3b"),
    *("axial-transformer-imagenet64", "seq2seq-lstm", "set-transformer", "mvitv2-b-hwin", "mixtral-8x22b"),
}


@pytest.mark.parametrize(
    "preset", [pytest.param(name, marks=() if name in QUICK else pytest.mark.rest) for name in sorted(PRESETS)]
)
def test_the_rows_of_a_preset_are_what_its_model_does(preset: str) -> None:
    ledger = xfcost.analyze(preset, trace=False, probe=True)
    assert ledger.probe is not None
    assert [(row.path, row.declared, row.found) for row in ledger.probe.differences] == []
    assert {row.path for row in ledger.probe.rows} == {row.path for row in ledger.rows}
    assert all(row.reason for row in ledger.probe.left_out)
    mixing = {row.path for row in ledger.rows if row.mixes}
    reasons = {row.reason or "" for row in ledger.probe.left_out if row.path in mixing}
    assert not [reason for reason in reasons if reason.startswith(UNEXPECTED)]


@pytest.mark.parametrize(
    ("name", "plant", "text"),
    [
        ("reads", one_less, "token 1 of 36 (6×6): declared to read 1, 2, 6, 7, 8, 12, 13, 14; reads 0, 1, 2, 6, 7, 8,"),
        ("pairs", one_more, "pairs of 36 (6×6) tokens: declared 325; reads lists 324"),
        ("forward", other_letter, "scores: reads h² is declared; its number is W² in letters"),
    ],
    ids=["the set", "the pairs", "the letter"],
)
def test_a_pattern_declared_wrongly_is_named_and_ends_with_1(
    name: str, plant: Any, text: str, tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (
        "the tokens and pairs read are the declared ones in all 3 mixers" in run(tiny, "--no-trace", "--probe").output
    )
    monkeypatch.setattr(Window, name, plant(getattr(Window, name)))
    done = run(tiny, "--no-trace", "--probe")
    assert done.exit_code == 1
    printed = " ".join(done.output.split())
    assert "probe: the tokens read DIFFER from those declared in 3 of 3 mixers" in printed
    assert f"stages.1.block.0: {text}" in printed
    told = json.loads(run(tiny, "--no-trace", "--probe", "--format", "json").stdout)["probe"]
    assert told["exact"] is False
    assert any(each.startswith(text) for each in told["patterns"]["stages.1.block.0"])


@pytest.mark.usefixtures("planted")
def test_json_and_csv_carry_it_only_where_it_ran(tiny: str) -> None:
    done = run(tiny, "--no-trace", "--probe", "--format", "json")
    told = json.loads(done.stdout)["probe"]
    assert (done.exit_code, told["exact"]) == (1, False)
    rows = {row["path"]: row for row in told["rows"]}
    assert rows["stages.1.block.0.scores"]["found"]["mixing"] == "local"
    assert rows["embed.0.projection"]["reason"] == PIXELS
    table = table_of(run(tiny, "--no-trace", "--probe", "--format", "csv").stdout)
    scores = next(row for row in table if row["path"] == "stages.1.block.0.scores")
    assert (scores["mixing"], scores["probed_mixing"], scores["probed_agrees"]) == ("global", "local", "False")
    plain = json.loads(run(tiny, "--no-trace", "--format", "json").stdout)
    assert "probe" not in plain
    assert not any(key.startswith("probed") for key in plain["operations"][0])
    assert "probed_mixing" not in run(tiny, "--no-trace", "--format", "csv").stdout


def test_a_trace_checks_the_kinds(tiny: str) -> None:
    checked, whole = run(tiny), xfcost.analyze(tiny, trace=False, probe=True).probe
    assert checked.exit_code == 0
    assert whole is not None
    count = len(whole.rows) - len(whole.left_out)
    assert 0 < count < len(whole.rows)
    text = f"kinds: the running model agrees in {count} of {len(whole.rows)} operations"
    assert text in " ".join(checked.output.split())
    for left_out in (("--no-mixing",), ("--mixing-limit", "0"), ("--no-trace",)):
        assert "kinds:" not in run(tiny, *left_out).output
    assert text in " ".join(run(tiny, "--no-trace", "--mixing").output.split())
    assert "kinds:" not in run("gpt2", "--mode", "decode", "--N", "16").output


@pytest.mark.usefixtures("planted")
def test_a_kind_declared_wrongly_ends_a_traced_report_with_1(tiny: str) -> None:
    done = run(tiny)
    assert done.exit_code == 1
    text = " ".join(done.output.split())
    assert "kinds: the running model DISAGREES in 3 of" in text
    assert "stages.1.block.0.scores: declared global, reads 9; found local, reads 9" in text
    told = json.loads(run(tiny, "--format", "json").stdout)
    assert told["kinds"]["exact"] is False
    assert [row["path"].rpartition(".")[2] for row in told["kinds"]["differences"]] == ["scores"] * 3
    assert "probe" not in told
    assert not any(key.startswith("probed") for key in told["operations"][0])


def test_what_the_limit_does_not_allow_is_not_checked(tiny: str) -> None:
    probe = xfcost.analyze(tiny, mixing_limit=1).probe  # reached before the first part
    assert probe is not None
    over = {row.path for row in probe.left_out if row.reason == "the limit of --mixing-limit was reached"}
    assert {"stages.0.pattern.0.0.scores", "head.linear"} <= over
    assert len(probe.left_out) == len(probe.rows)
    assert (
        f"kinds: none of {len(probe.rows)} operations checked on the running model"
        in run(tiny, "--mixing-limit", "1").output
    )
