"""What the quick tier chooses: every pair of factors, and something of everything."""

import itertools
from pathlib import Path
from typing import Any

import pytest

import tier
from cases import CASES
from cases.base import Case
from slow_tests import CASES_IN_QUICK
from strategies import cases, examples
from tiers import covering, marked, of_preset, options, pairs, tiered, tiered_cases, tiered_examples, tiered_presets
from xfcost.formulas.component import Mixer
from xfcost.mechanisms import MECHANISMS
from xfcost.spec.load import preset_files, preset_names


def quick(parameters: list[Any]) -> list[Any]:
    """The values of those that the quick tier holds."""
    return [
        one.values[0] if len(one.values) == 1 else one.values for one in parameters if pytest.mark.rest not in one.marks
    ]


def test_pairs_by_hand() -> None:
    assert pairs({"b": 1, "a": 2, "c": 3}) == {
        (("a", 2), ("b", 1)), (("a", 2), ("c", 3)), (("b", 1), ("c", 3)),
    }  # fmt: skip


def test_four_cases_meet_every_pair_of_three_factors_of_two_values() -> None:
    rows = [dict(zip("abc", values, strict=True)) for values in itertools.product((0, 1), repeat=3)]
    assert covering([pairs(row) for row in rows]) == [0, 3, 5, 6]


def test_a_covering_takes_what_has_most_and_of_equals_the_first() -> None:
    needs = [frozenset("ab"), frozenset("cd"), frozenset("abc"), frozenset("cd"), frozenset()]
    assert covering(needs) == [1, 2]


def test_a_covering_has_every_need() -> None:
    names = preset_names()
    needs = [of_preset(name) for name in names]
    chosen = covering(needs)
    assert frozenset().union(*(needs[number] for number in chosen)) == frozenset().union(*needs)
    assert 0 < len(chosen) < len(names) / 2


def test_values_keep_their_order_and_tuples_are_several_arguments() -> None:
    parameters = marked([("x", 1), ("y", 1), ("z", 2)], lambda value: frozenset(value[1:]))
    assert [one.values for one in parameters] == [("x", 1), ("y", 1), ("z", 2)]
    assert quick(parameters) == [("x", 1), ("z", 2)]


def met(found: list[Case]) -> set[tuple[object, ...]]:
    """What mechanisms stand on, two by two; of one token nothing is paired."""
    of = [(type(case.component), case.place) for case in found]
    return {
        (mechanism, pair)
        for mechanism, place in of
        for pair in ((len(place.grid.sides), place.fused), (place.grid.special, f"fused={place.fused}"))
        if place.grid.total > 1
    } | {(mechanism, "one token") for mechanism, place in of if place.grid.total == 1}


@pytest.mark.parametrize("fused", [(False,), (True,), (False, True)])
def test_every_example_of_every_mechanism_is_in_the_quick_tier(fused: tuple[bool, ...]) -> None:
    found, known = quick(tiered_cases(fused=fused)), list(cases(fused=fused))
    assert {str(case.component) for case in found} == {str(case.component) for case in known}
    assert met(found) == met(known)
    assert len(found) < len(known)


def test_every_mechanism_has_large_grids_in_the_quick_tier() -> None:
    large = {type(case.component) for case in quick(tiered_cases()) if case.place.grid.total >= 12}
    assert large == {
        mechanism for mechanism in MECHANISMS.values() if max(grid.total for grid in CASES[mechanism].grids) >= 12
    }


def test_every_option_of_every_mechanism_runs_and_every_mechanism_eager_and_fused() -> None:
    def met_by(found: list[tuple[Mixer, bool]]) -> set[object]:
        return {(type(one), option) for one, _ in found for option in options(one).items()} | {
            (type(one), fused) for one, fused in found
        }

    found, known = quick(tiered_examples()), list(examples())
    assert met_by(found) == met_by(known)
    assert len(found) < len(known)


def test_slow_tests_keep_cases_and_are_there() -> None:
    for test, kept in CASES_IN_QUICK.items():
        file, _, function = test.partition("::")
        assert f"def {function}(" in Path(__file__).with_name(file).read_text(encoding="utf-8"), test
        assert kept >= 0


def test_every_family_has_presets_in_the_quick_tier() -> None:
    files = preset_files()
    assert {files[name].parent for name in quick(tiered_presets(preset_names()))} == {
        file.parent for file in files.values()
    }


def test_the_tiers_have_every_test_once(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {}
    for name in ("quick", "rest", "all"):
        monkeypatch.setattr(tier, "chosen", name)
        kept[name] = [rest for rest in (True, False) if tier.runs(rest=rest)]
    assert kept == {"quick": [False], "rest": [True], "all": [True, False]}


def test_what_a_tier_leaves_out_is_not_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    values = ["a", "ab", "b"]
    found = {}
    for name in ("quick", "rest", "all"):
        monkeypatch.setattr(tier, "chosen", name)
        found[name] = [one.values[0] for one in tiered(values, frozenset)]
    assert found == {"quick": ["ab"], "rest": ["a", "b"], "all": values}
