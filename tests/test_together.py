"""Several sizes in one run of a program: the rows are those of each size, as a run of its own gives them."""

import contextlib
import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specs import architecture_of
from strategies import place_for
from test_orders import EXAMPLES, stands
from xfcost.counting.forward import keep_rows_of
from xfcost.formulas.component import Component
from xfcost.formulas.several import DiffersError, Several, several
from xfcost.ledger.errors import ComponentError, SpecError, UsageError
from xfcost.ledger.execution import Mode
from xfcost.ledger.kept import Kept
from xfcost.program.residual import kept_rows
from xfcost.program.together import keep_rows
from xfcost.spec.load import preset_names

# Kinds that run size by size, some with some options: they need plain numbers, as for a root, or hold a list.
PLAIN = frozenset({"Blockwise", "Deformable", "Hyena", "Lsh", "Routing", "SpatialReduction", "Synthesizer"})


@pytest.mark.parametrize("component", EXAMPLES, ids=str)
def test_rows_of_several_sizes_in_one_run_are_those_of_each(component: Component) -> None:
    kept = 0
    for grid, fused in stands(component):
        for decodes in (False, True):
            sizes = [grid._replace(sides=tuple(side * more for side in grid.sides)) for more in range(1, 8)]
            kept_rows.cache_clear()
            try:
                keep_rows(component, [place_for(component, one, fused=fused) for one in sizes], None, decodes=decodes)
            except ComponentError:
                continue
            for arguments, rows in kept_rows.answers.items():
                assert rows == kept_rows.function(*arguments), arguments
            kept += len(kept_rows.answers)
    assert kept or type(component).__name__ in PLAIN


numbers = st.lists(st.integers(-9, 9).filter(bool), min_size=3, max_size=3)


@given(numbers, numbers, st.integers(1, 9))
def test_numbers_of_several_sizes_are_ints_size_by_size(first: list[int], second: list[int], one: int) -> None:
    for name in ("add", "sub", "mul", "floordiv", "mod"):
        work = getattr(operator, name)
        assert values(work(several(first), several(second))) == [*map(work, first, second)]
        assert values(work(several(first), one)) == [work(value, one) for value in first]
        assert values(work(one, several(first))) == [work(one, value) for value in first]
    assert values(abs(-several(first))) == [abs(value) for value in first]


def values(number: int | Several) -> list[int]:
    return [*number.values] if isinstance(number, Several) else [number] * 3


def test_a_question_whose_answer_differs_from_size_to_size_says_where() -> None:
    number = several([3, 4, 8])
    assert number > 2
    assert bool(number)
    assert several([4, 4]) == 4
    with pytest.raises(DiffersError) as raised:
        _ = number % 4 == 0
    assert raised.value.answers == [False, True, True]
    with pytest.raises(TypeError):
        range(number)  # type: ignore[arg-type]
    with pytest.raises(ArithmeticError):
        f"{number}"


@pytest.mark.parametrize("mode", ["forward", "decode"])
def test_parts_of_presets_run_together_too(mode: Mode) -> None:
    kept = 0
    for preset in preset_names()[::9]:
        architectures = []
        for tokens in (49, 64, 196, 225, 256, 576):
            with contextlib.suppress(SpecError, UsageError):  # a length that it can't have, or no decode step
                architectures.append(architecture_of(preset, tokens=(tokens,), mode=mode))
        kept_rows.cache_clear()
        keep_rows_of(architectures)
        for arguments, rows in kept_rows.answers.items():
            assert rows == kept_rows.function(*arguments), (preset, arguments)
        kept += len(kept_rows.answers)
    assert kept > 400


def test_beyond_the_most_answers_the_older_half_goes() -> None:
    squares = Kept(lambda number: number**2, most=4)
    assert [squares(number) for number in range(6)] == [0, 1, 4, 9, 16, 25]
    assert squares.answers == {(2,): 4, (3,): 9, (4,): 16, (5,): 25}
