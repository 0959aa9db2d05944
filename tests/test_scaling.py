"""Counting is linear in what a spec writes, whatever its depths are."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import report_text
from specs import counted
from xfcost.api.analysis import analyze
from xfcost.ledger.errors import UsageError
from xfcost.spec.architecture import BlockOrder

HEADER = "name: x\ninput: {kind: tokens, vocabulary: 100, length: 64}\nembed: [{kind: token}]\nstages:\n"


def orders() -> st.SearchStrategy[BlockOrder]:
    def order(items: st.SearchStrategy[int | BlockOrder]) -> st.SearchStrategy[BlockOrder]:
        return st.builds(
            lambda found, times: BlockOrder(tuple(found), times), st.lists(items, max_size=3), st.integers(0, 7)
        )

    return st.recursive(
        order(st.integers(0, 3)), lambda inner: order(st.one_of(st.integers(0, 3), inner)), max_leaves=5
    )


@given(order=orders())
@settings(deadline=None, max_examples=200)
def test_an_order_says_what_its_numbers_written_out_say(order: BlockOrder) -> None:
    plain = list(order)
    assert len(order) == len(plain)
    assert +order.counts() == Counter(plain)
    last = list(dict.fromkeys(reversed(plain)))
    assert list(dict.fromkeys(order.backwards())) == last
    thinned = Counter()
    for number, stands_for in order.thinned():
        thinned[number] += stands_for
    assert thinned == Counter(plain)


@given(order=orders(), table=st.lists(st.integers(0, 4), min_size=20, max_size=20))
@settings(deadline=None, max_examples=300)
def test_a_walk_is_that_of_every_number_one_after_another(order: BlockOrder, table: list[int]) -> None:
    """`table` is any machine of five states and four numbers."""

    def step(number: int, state: int) -> tuple[int, int]:
        return 5 * number + state, table[5 * number + state]

    state, expected = 0, []
    for number in order:
        made, state = step(number, state)
        expected.append(made)
    walked, end = order.mapped(0, step)
    assert (list(walked), end) == (expected, state)


def test_a_depth_costs_no_steps() -> None:
    """100,000 blocks are walked in two steps: the first, and the one that is seen to begin as it did."""
    steps = []

    def step(number: int, state: str) -> tuple[int, str]:
        steps.append(number)
        return number, state

    walked, _ = BlockOrder((0,), 10**12).mapped("one state", step)
    assert (len(walked), steps) == (10**12, [0])


def test_stages_by_alias_are_as_many_as_they_say(tmp_path) -> None:
    file = tmp_path / "alias.yaml"
    stage = "- &a {dim: 8, depth: 100000, block: [{kind: full, heads: 1}]}\n"
    file.write_text(HEADER + stage + "- *a\n" * 239)
    ledger = counted(str(file))
    # four maps of 8·8 with biases and a norm of 2·8, in 240 stages of 100,000 blocks; the table has 100·8
    assert ledger.total("params") == 240 * 100_000 * (4 * (64 + 8) + 16) + 800


def test_what_can_only_be_counted_is_not_built(tmp_path) -> None:
    file = tmp_path / "deep.yaml"
    file.write_text(HEADER + "- dim: 8\n  blocks:\n  - repeat: 3\n    blocks:\n" + "    - [{kind: mlp}]\n" * 3334)
    with pytest.raises(UsageError, match=r"has 10,002 blocks, and at most 10,000 are built .*--no-trace counts them"):
        analyze(file)


def test_thousands_of_rows_are_printed_as_few_are(tmp_path) -> None:
    """Each block's lines are those that it has alone: the same columns, filled and aligned the same."""
    file = tmp_path / "many.yaml"
    blocks = [f"  - [{{kind: mlp, hidden: {number % 7 + 1}}}]\n" for number in range(2000)]
    file.write_text(HEADER + "- dim: 64\n  blocks:\n" + "".join(blocks))
    lines = report_text(analyze(file, trace=False)).splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("stage 1 · no mixer #")]
    assert len(starts) == 2000
    # without the column of shares, which are of the whole model
    tables = ["\n".join(line[:66] for line in lines[at + 1 : at + 6]) for at in starts]
    assert len(set(tables)) == 7
    assert all(table == tables[number % 7] for number, table in enumerate(tables))
