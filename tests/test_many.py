"""Many systems at once: patterns of presets, and the overview with one line each."""

from __future__ import annotations

import json
import re

import pytest

from helpers import xf
from xfcost.api import compare
from xfcost.errors import UsageError
from xfcost.report.compare import comparison_plain, report
from xfcost.report.console import plain_text
from xfcost.spec.load import expanded, preset_names


def test_a_pattern_stands_for_the_presets_that_match_it() -> None:
    swins = [name for name in preset_names() if name.startswith("swin-")]
    assert len(swins) > 4
    assert expanded(["vit", "swin-*"]) == ["vit", *swins]
    assert expanded(["swin-t", "swin-*"]) == ["swin-t", *(name for name in swins if name != "swin-t")]
    assert expanded(["vit-s?"]) == ["vit-s8"]
    assert expanded(["./odd*name.yaml"]) == ["./odd*name.yaml"]  # a path stays a path
    with pytest.raises(UsageError, match=r"nothing-\*: no preset matches"):
        expanded(["vit", "nothing-*"])


def test_many_systems_stand_below_each_other_and_against_the_first() -> None:
    comparison = compare("vit-s16", "swin-*", N=784)
    assert {cross["systems"][0] for cross in comparison.crossovers} <= {"ViT-S/16"}
    text = comparison_plain(comparison)
    lines = [line for line in text.splitlines() if line.startswith(("vit-s", "swin-"))]
    assert len([line for line in lines if re.match(r"\S+  +\d", line)]) == len(comparison.names)
    assert "each against vit-s16" in text
    # Swin-T mixes windows: linear; ViT quadratic.
    assert re.search(r"^vit-s16 .* 2\.00 ", text, re.MULTILINE)


def test_crossovers_with_the_first_are_named_in_the_line() -> None:
    # Linear attention overtakes full attention; with more tokens of its own, full attention never does.
    comparison = compare("common-full", "common-linear", "common-axial", "common-memory-tokens", "common-blockwise")
    text = comparison_plain(comparison)
    asked = {name: ledger.facts.source for name, ledger in zip(comparison.names, comparison.ledgers, strict=True)}
    found = {cross["systems"][1]: cross for cross in comparison.crossovers if cross["quantity"] == "macs"}
    assert found
    for name, cross in found.items():
        since = f"≥ {cross['N']:,}" if cross["cheaper_above"] == name else f"≤ {cross['last_below']:,}"
        assert re.search(rf"^{asked[name]} .*{since}", text, re.MULTILINE), name
    for name in set(comparison.names[1:]) - set(found):
        assert re.search(rf"^{asked[name]} .*(always|never)$", text, re.MULTILINE), name
    assert re.search(rf"^{asked[comparison.names[0]]} .*–$", text, re.MULTILINE)


@pytest.mark.parametrize("width", [40, 60, 80, 100, 140])
def test_the_overview_fits_any_screen(width: int) -> None:
    comparison = compare("vit-s16", "swin-*", N=784)
    text = plain_text(lambda _: report(comparison, width))
    table = text.split("\n\n")[1]
    assert all(len(line.rstrip()) <= width for line in table.splitlines())
    assert "MACs" in table


def test_the_commands_take_patterns(tmp_path) -> None:
    done = xf("compare", "vit-s16", "swin-*", "--N", "784")
    assert done.returncode == 0
    assert "each against vit-s16" in done.stdout
    told = json.loads(xf("compare", "vit-s16", "swin-*", "--N", "784", "--format", "json").stdout)
    assert len(told["systems"]) == 1 + len(expanded(["swin-*"]))
    refused = xf("compare", "nothing-*")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "no preset matches" in refused.stderr
    drawn = xf("plot", "vit-ti*", "--N", "64:1024", cwd=tmp_path)
    assert drawn.returncode == 0
    assert (tmp_path / "vit-ti-mixing.svg").is_file()
    crowded = xf("diagram", "swin-*")
    assert crowded.returncode == 2
    assert "don't fit side by side" in crowded.stderr
