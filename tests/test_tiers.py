"""What the quick tier chooses: every pair of factors, and something of everything."""

import itertools
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from plant_errors import planted_errors

import conftest
import durations
import tier
from cases import CASES
from cases.base import Case
from selection import left_to_rest, modules_of_tests, selection
from strategies import cases, examples
from tiers import (
    covering,
    covering_presets,
    marked,
    of_distinct_presets,
    of_preset,
    options,
    pairs,
    tiered,
    tiered_cases,
    tiered_examples,
)
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


@pytest.mark.parametrize(
    ("cases", "each", "kept"), [(10, 0.1, 10), (10, 0.5, 6), (10, 3.0, 1), (10, 3.1, 0), (1, 9.0, 0)]
)
def test_as_many_cases_run_as_fit_into_three_seconds(cases: int, each: float, kept: int) -> None:
    assert durations.in_quick(cases, each, 3.0) == kept


def test_nothing_is_left_out_of_the_tests_that_have_every_example() -> None:
    one_by_one = [name for name in durations.recorded() if name.partition("[")[0] in durations.OF_ONE_CASE]
    assert one_by_one
    assert {name.partition("::")[0] for name in one_by_one} == {"test_golden.py"}


# Seconds of CPU in the rest tier from which a test says what it catches there.
SLOW = 15.0


def test_a_slow_test_catches_a_planted_error_that_its_quick_cases_do_not(request: pytest.FixtureRequest) -> None:
    """Its cases of the rest tier are counted where that tier runs."""
    catches = yaml.safe_load((durations.FILE.parent / "slow_tests.yaml").read_text(encoding="utf-8"))
    tests = {error.what: error.tests for error in planted_errors()}
    for test, what in catches.items():
        assert f"tests/{test.partition('::')[0]}" in tests[what]
    left = Counter(durations.timed_as(item) for item in request.session.items if left_to_rest(item))
    each = durations.recorded()
    slow = {test for test, number in left.items() if number * each.get(test, 0) > SLOW}
    assert slow <= catches.keys()


def test_recorded_tests_are_there_and_those_that_ran_are_recorded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for test in durations.recorded():
        file, _, function = test.partition("[")[0].partition("::")
        assert f"def {function}(" in Path(__file__).with_name(file).read_text(encoding="utf-8"), test
    monkeypatch.setattr(durations, "FILE", tmp_path / "durations.json")
    durations.FILE.write_text('{"a.py::old": 5.0, "a.py::faster": 2.0}')
    durations.write([("a.py::new", 0.75), ("a.py::new", 0.85), ("a.py::faster", 0.3), ("a.py::fast", 0.1)])
    assert durations.recorded() == {"a.py::new": 0.8, "a.py::old": 5.0}


def test_every_family_has_presets_in_the_quick_tier() -> None:
    files = preset_files()
    assert {files[name].parent for name in covering_presets()} == {file.parent for file in files.values()}


def test_distinct_presets_are_the_covering_ones_and_others(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {}
    for name in ("quick", "rest"):
        monkeypatch.setattr(tier, "chosen", name)
        found[name] = {one.values[0]: bool(one.marks) for one in of_distinct_presets()}
    assert found["quick"] == dict.fromkeys(covering_presets(), False)
    assert found["rest"] == {name: name not in covering_presets() for name in found["rest"]}
    assert len(preset_names()) > len(found["rest"]) > len(found["quick"])


def test_what_a_tier_leaves_out_is_not_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    values = ["a", "ab", "b"]
    found = {}
    for name in ("quick", "rest", "all"):
        monkeypatch.setattr(tier, "chosen", name)
        found[name] = [one.values[0] for one in tiered(values, frozenset)]
    assert found == {"quick": ["ab"], "rest": values, "all": values}


def made(parameters: list[Any]) -> list[Any]:
    """What is made of a test of a file that is given, with these parameters."""
    calls = [
        SimpleNamespace(id=one.values[0], params={}, marks=[mark.mark for mark in one.marks]) for one in parameters
    ]
    test = SimpleNamespace(path=Path("test_x.py"), name="test_it", get_closest_marker=lambda name: None)
    config = SimpleNamespace(stash={conftest.CHOSEN: None}, args=["tests/test_x.py"])
    metafunc: Any = SimpleNamespace(config=config, definition=test, _calls=calls, module=None)
    assert list(conftest.pytest_generate_tests(metafunc)) == [None]
    return metafunc._calls


def test_every_case_is_made_in_one_of_the_tiers_if_each_takes_long_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(conftest.RECORDED, "test_x.py::test_it", 1.5)
    found = {}
    for name in ("quick", "rest", "all"):
        monkeypatch.setattr(tier, "chosen", name)
        found[name] = [(one.id, bool(one.marks)) for one in made(tiered(["a", "b", "c", "d", "ab"], frozenset))]
    # of the three with every letter two take all its seconds
    assert found["quick"] == [("c", False), ("d", False)]
    assert found["rest"] == [("a", True), ("b", True), ("ab", True)]
    assert found["all"] == [("a", True), ("b", True), ("c", False), ("d", False), ("ab", True)]


def test_of_a_test_without_a_case_in_the_tier_one_is_made_which_the_rest_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any it would be made once, without its parameters."""
    monkeypatch.setitem(conftest.RECORDED, "test_x.py::test_it", 3.1)
    monkeypatch.setattr(tier, "chosen", "quick")
    assert [(one.id, one.marks) for one in made([pytest.param("a"), pytest.param("b")])] == [
        ("a", [pytest.mark.rest.mark])
    ]


@pytest.mark.parametrize(
    ("changed", "kinds", "files"),
    [
        (["src/xfcost/mechanisms/retention.py"], {"retention", "rwkv_time", "rwkv_channel"}, set()),
        (["src/xfcost/mechanisms/sparse.py"], {"sparse"}, set()),
        (["src/xfcost/report/latex.py", "CHANGELOG.md"], set(), {"test_latex.py", "test_cli.py"}),
        (["tests/test_units.py"], set(), {"test_units.py"}),
        (["tests/growth.py"], set(), {"test_orders.py", "test_every_mechanism.py"}),
        (["tools/planted_errors.yaml"], set(), {"test_planted_errors.py"}),
        (["docs/reach.md"], set(), {"test_docs.py"}),
    ],
)
def test_a_change_reaches_its_kinds_and_the_files_that_import_or_name_it(
    changed: list[str], kinds: set[str], files: set[str]
) -> None:
    found = selection(changed)
    assert found is not None
    assert found.kinds == kinds
    assert found.files >= files
    assert len(found.files) < len(modules_of_tests())
    assert "test_statistics.py" not in found.files


@pytest.mark.parametrize("changed", [[], ["pyproject.toml"], ["docs/reach.md", chr(9731)]])
def test_a_clean_tree_and_what_no_test_names_run_everything(changed: list[str]) -> None:
    assert selection(changed) is None
