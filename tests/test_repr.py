"""Results at Python's prompt: one short line each, whatever they hold."""

from contextlib import closing

import pytest

import xfcost
from measured import HEADER, row
from xfcost.ledger.runs_file import RunsFile

RESULTS = {
    "Ledger ViT-S/8, N = 784 (28×28) + 1: 22.06 M parameters, 22.41 G MACs; 20 operations": lambda: xfcost.analyze(
        "vit", trace=False
    ),
    "Operation stages.0.block.0.scores: Attention scores QKᵀ, global, 2.840 G MACs in 12 blocks": lambda: (
        xfcost.analyze("vit", trace=False).rows[7]
    ),
    "Comparison 2 systems; ViT-S/8: 22.41 G MACs, Swin-T: 4.491 G MACs": lambda: xfcost.compare("vit", "swin"),
    "Diff vit -> swin: 170 changes, 0 the same; macs 22.41 G -> 4.491 G, flops 45.19 G -> 9.059 G, "
    "params 22.06 M -> 28.29 M": lambda: xfcost.diff("vit", "swin"),
    "Report ViT-S/8: 20 operations": lambda: xfcost.diff("vit", "swin").before,
    "Change removed: stages.0.block.1.fc1": lambda: xfcost.diff("vit", "swin").changes[0],
    "FindResult 1 model searched, 0 fit": lambda: xfcost.find("vit", max_macs="1G"),
    "LayerTable n = 10, d = 4, k = 3, r = 3: 7 layer types": lambda: xfcost.layer_types(N=10, d=4),
    "Reach ViT-S/8: 12 steps": lambda: xfcost.reach("vit"),
    "ResidualStream ViT-Ti/16: 24 sub-layers, seed 0": lambda: xfcost.stream("vit-ti16"),
    "Survey 26 systems": xfcost.survey,
    "CheckResult 0 of 1 target within budget": lambda: xfcost.check("vit", max_macs="1G"),
}


@pytest.mark.parametrize("line", RESULTS, ids=lambda line: line.split()[0])
def test_a_result_is_a_line(line):
    result = RESULTS[line]()
    assert repr(result) == str(result) == f"<{line}>"


def test_a_diff_of_measurements_is_a_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, sizes in (("a.jsonl", (64, 128)), ("b.jsonl", (64,))):
        with closing(RunsFile(tmp_path / name, HEADER, lambda text: None)) as runs:
            for size in sizes:
                runs.append(row("A", size))
    assert repr(xfcost.diff("a.jsonl", "b.jsonl")) == (
        "<RunsDiff a.jsonl -> b.jsonl: 1 row of both, 1 only before, 0 only after>"
    )


def test_a_line_is_short_and_printable_whatever_the_name():
    ledger = xfcost.analyze("vit", trace=False)
    named = ledger.metadata.__class__(name="x\n\x1b[2J" * 1000, tokens="1", grid_tokens=1)
    line = repr(ledger.__class__(metadata=named, rows=()))
    assert line.isprintable()
    assert len(line) < 250
