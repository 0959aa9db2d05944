"""The gallery: presets equal the reference to the unit, agree with their trace, and stand beside their papers."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from published import MILLION, PUBLISHED, Judgement, Off, PartOf, RoundedDown, Without
from specs import EXACT, WHOLE, architecture_of, counted, thinned
from tiers import tiered_presets
from xfcost.counting.forward import count
from xfcost.spec.architecture import Architecture
from xfcost.spec.load import gallery, load, preset_files, preset_names
from xfcost.torch_models.accounts import reconciled
from xfcost.torch_models.build import build

ALIASES = {"vit": "vit-s8", "swin": "swin-t", "gpt3": "gpt3-175b"}


def test_the_reference_knows_every_preset_and_no_other():
    assert sorted(EXACT) == sorted(preset_names())


# family -> its presets; a family is one case, so that what its presets extend is loaded once
FAMILIES: dict[str, list[str]] = {}
for _name, _path in preset_files().items():
    FAMILIES.setdefault(_path.parent.name, []).append(_name)
every_family = pytest.mark.parametrize("names", FAMILIES.values(), ids=FAMILIES)


@every_family
def test_counted_equals_the_reference_to_the_unit(names):
    for name in names:
        counts = counted(name)
        for quantity in ("params", "macs", "attention_entries"):
            assert counts.total(quantity) == int(EXACT[name][quantity]), (name, quantity)


@pytest.mark.parametrize("name", tiered_presets(preset_names()))
def test_counted_and_traced_agree_to_the_unit(name):
    agree(architecture_of(name), thinned)


@pytest.mark.rest
@pytest.mark.parametrize("name", WHOLE)
def test_counted_and_traced_agree_at_full_depth(name):
    agree(architecture_of(name), lambda architecture: architecture)


def agree(architecture: Architecture, traced_part: Callable[[Architecture], Architecture]) -> None:
    """Both accounts of what is traced of an architecture, to the unit; and it has the rows of the whole."""
    traced = traced_part(architecture)
    live = build(traced)
    ledger = reconciled(count(traced), *live)
    assert {row.path for row in ledger.rows} == {row.path for row in count(architecture).rows}
    assert ledger.agreement is not None
    assert ledger.agreement.differences == ()
    assert ledger.agreement.uncounted == ()
    assert ledger.agreement.exact
    totals = ledger.totals()
    for quantity in ("params", "macs", "flops"):
        assert totals[f"traced_{quantity}"] == totals[quantity]
    # shared tables once: what torch itself says the model has
    assert sum(parameter.numel() for parameter in live.model.parameters()) == totals["params"]


def last_printed_digit(printed: float) -> float:
    """Its place, to which a figure is rounded: 100,000 of 86.6e6; of an exact count 1, or 10 where that ends on 0."""
    exponent = Decimal(repr(printed)).normalize().as_tuple().exponent
    return float(Decimal(1).scaleb(int(exponent)))


@every_family
def test_published_figures_are_ours_rounded_or_the_reason_is_known(names):
    for name in names:
        for row in counted(name).published_beside_ours():
            figure = name, row["quantity"], row["published"]
            judge(row["ours"], row["published"], PUBLISHED.get(figure, last_printed_digit(row["published"])))
            tell(row, PUBLISHED.get(figure))


def judge(ours: int, printed: float, judged: Judgement) -> None:
    if isinstance(judged, Without):
        assert ours + judged.parameters == printed
    elif isinstance(judged, PartOf):
        assert judged.least <= printed - ours <= judged.most
    elif isinstance(judged, RoundedDown):
        assert printed + judged.unit / 2 < ours < printed + judged.unit, "rounded down, and not to the nearest"
    elif isinstance(judged, (str, Off)):
        judged = judged if isinstance(judged, Off) else Off(MILLION, judged)
        assert abs(ours - printed) > judged.unit / 2, "an exception that the count now gives is none"
        assert abs(ours - printed) < judged.within * printed, "near it all the same"
    else:
        assert abs(ours - printed) <= judged / 2


def tell(row: dict[str, Any], judged: Judgement | None) -> None:
    """Where the print and the count differ, the spec's note says so (a figure within 1 % needs no note)."""
    assert row["source"]
    assert not isinstance(judged, (str, Off)) or abs(row["difference"]) < 0.01 or row["note"]
    assert not isinstance(judged, RoundedDown | Without | PartOf) or row["note"]


def printed(name: str) -> list[tuple[str, str, float]]:
    """(preset, quantity, figure) of every figure in its spec."""
    return [
        (name, quantity, figure)
        for figures in load(name).spec.published
        for quantity, figure in msgspec.to_builtins(figures).items()
        if quantity in ("params", "active_params", "macs", "flops") and figure is not None
    ]


def test_only_published_figures_are_judged():
    judged = {name for name, _, _ in PUBLISHED}
    assert set(PUBLISHED) <= {figure for name in judged for figure in printed(name)}


def test_no_figure_of_a_paper_stands_twice_in_a_spec():
    figures = [figure for name in preset_names() for figure in printed(name)]
    assert len(set(figures)) == len(figures)


def files() -> list[Path]:
    return sorted(gallery().rglob("*.y*ml"))


def test_every_file_of_the_gallery_is_a_preset_in_a_family():
    assert sorted(preset_files().values()) == files()
    assert all(file.parent.parent == gallery() for file in files())
    assert len({file.stem for file in files()}) == len(files())


@every_family
def test_every_file_loads_by_its_path_and_names_its_paper(names):
    for name in names:
        spec = load(str(preset_files()[name])).spec
        assert re.search(r"(19|20)\d\d|lecture", spec.paper or ""), name
        assert spec == load(name).spec


def test_names_are_unique_but_for_the_aliases():
    names = [load(name).spec.name for name in preset_names() if name not in ALIASES]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(("alias", "target"), ALIASES.items())
def test_an_alias_is_its_target_word_for_word(alias, target):
    assert preset_files()[alias].read_text(encoding="utf-8") == f"extends: {target}\n"
    mine, theirs = counted(alias), counted(target)
    assert mine.rows == theirs.rows
    assert mine.metadata.name == theirs.metadata.name
    assert mine.metadata.published == theirs.metadata.published


def test_published_figures_are_not_inherited_by_a_variant():
    assert load("vit-b16").spec.published
    assert load("vit-b8").spec.published == []


def test_the_cost_of_a_count_does_not_depend_on_depth():
    """96 blocks are as many rows as 12."""
    assert len(counted("gpt3").rows) == len(counted("gpt2").rows)
    assert {row.times for row in counted("gpt3").rows} == {1, 96}
