"""Operations of two runs side by side: blocks are matched by what is inside them."""

from __future__ import annotations

from xfcost.counting.differences import aligned_operations
from xfcost.ledger.saved_report import ReportOperation


def op(path, macs=10, times=1, title=None):
    return ReportOperation(
        path=path, title=title or path.rpartition(".")[2], mixing="per-token", stage="", block="", times=times,
        params=1, macs=macs, flops=2 * macs,
    )  # fmt: skip


def block(number, width=10):
    return [op(f"stages.0.blocks.{number}.0.{name}", width) for name in ("qkv", "scores", "out")]


def convolution(number):
    return [op(f"stages.0.blocks.{number}.0.{name}", 7) for name in ("depthwise", "pointwise")]


def paths(before, after):
    return [(one and one.path, other and other.path) for one, other in aligned_operations(before, after)]


def test_the_same_rows_are_side_by_side():
    rows = [op("embed.0.projection"), *block(0), *block(1)]
    assert paths(rows, rows) == [(row.path, row.path) for row in rows]


def test_an_inserted_block_is_the_only_new_one():
    before = [*block(0, 10), *block(1, 20), *block(2, 30)]
    after = [*block(0, 10), *convolution(1), *block(2, 20), *block(3, 30)]
    found = paths(before, after)
    assert [other for one, other in found if one is None] == [row.path for row in convolution(1)]
    assert all(other is not None for _, other in found)
    assert ("stages.0.blocks.2.0.qkv", "stages.0.blocks.3.0.qkv") in found


def test_an_inserted_block_of_the_same_kind_moves_those_of_its_own_width():
    before = [*block(0, 10), *block(1, 30)]
    after = [*block(0, 10), *block(1, 20), *block(2, 30)]
    found = paths(before, after)
    assert [other for one, other in found if one is None] == [row.path for row in block(1)]


def test_a_removed_block_stands_where_it_was():
    before = [*block(0, 10), *convolution(1), *block(2, 20)]
    after = [*block(0, 10), *block(1, 20)]
    found = paths(before, after)
    same = [(row.path, row.path) for row in block(0)]
    moved = [(one.path, other.path) for one, other in zip(block(2), block(1), strict=True)]
    assert found == [*same, *((row.path, None) for row in convolution(1)), *moved]


def test_blocks_of_another_width_are_the_same_blocks():
    found = paths([*block(0, 10), *block(1, 10)], [*block(0, 16), *block(1, 16)])
    assert found == [(row.path, row.path) for row in [*block(0), *block(1)]]


def test_an_operation_of_another_name_is_another_operation():
    before, after = [op("stages.0.blocks.0.0.softmax")], [op("stages.0.blocks.0.0.sigmoid")]
    assert sorted(paths(before, after), key=str) == [
        ("stages.0.blocks.0.0.softmax", None), (None, "stages.0.blocks.0.0.sigmoid"),
    ]  # fmt: skip


def test_a_renamed_module_is_the_same_one():
    before = [op(f"attention.{name}") for name in ("qkv", "scores", "out")]
    after = [op(f"attn.{name}") for name in ("qkv", "scores", "out")]
    assert paths(before, after) == [(f"attention.{name}", f"attn.{name}") for name in ("qkv", "scores", "out")]


def test_repeated_blocks_that_are_no_longer_one():
    before = [op("layers.*.linear", 10, times=12)]
    after = [op("layers.0.linear", 16), op("layers.1-11.linear", 10, times=11)]
    assert sorted(paths(before, after), key=str) == [
        ("layers.*.linear", "layers.1-11.linear"), (None, "layers.0.linear"),
    ]  # fmt: skip


def test_a_path_that_comes_twice():
    twice = [op("head.add"), op("head.add", 5)]
    assert paths(twice, twice) == [("head.add", "head.add")] * 2
    assert [(one.macs, other.macs) for one, other in aligned_operations(twice, twice)] == [(10, 10), (5, 5)]


def test_every_operation_is_there_once():
    before = [*block(0, 10), *convolution(1), *block(2, 30), op("head.out")]
    after = [op("embed.0.norm"), *block(0, 30), *block(1, 11), *convolution(2)]
    found = aligned_operations(before, after)
    assert sorted(one.path for one, _ in found if one) == sorted(row.path for row in before)
    assert sorted(other.path for _, other in found if other) == sorted(row.path for row in after)
