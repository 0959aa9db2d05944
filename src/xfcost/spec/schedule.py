"""The blocks of a stage as they are written, and the order in which they run."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from xfcost.formulas.component import Mixer
from xfcost.spec.block_order import BlockOrder
from xfcost.spec.grammar import Group, StageSpec
from xfcost.spec.reader import Source, YamlPath

MOST_BLOCKS: Final = 100_000

Written = list[tuple[YamlPath, list[Any]]]
"""Blocks as they are written: the path and the sub-layers of each."""


def schedule(path: YamlPath, stage: StageSpec, source: Source) -> tuple[Written, BlockOrder]:
    """The blocks as written, and their order.

    Raises:
        SpecError: the stage gives its blocks in no way, or in two.
    """
    given = [name for name in ("block", "pattern", "blocks") if getattr(stage, name) is not None]
    if len(given) != 1:
        got = " and ".join(f"`{name}`" for name in given) or "none"
        raise source.error(path, f"expected one of `block`, `pattern` or `blocks`, got {got}")
    if stage.blocks is not None:
        if stage.depth is not None:
            raise source.error((*path, "depth"), "`blocks` says itself how many there are; leave `depth` out")
        return _nested((*path, "blocks"), stage.blocks, source)
    if stage.depth is None:
        raise source.error(path, f"the key 'depth' is missing: how many blocks does `{given[0]}` make?")
    if stage.block is not None:
        return [((*path, "block"), stage.block)], BlockOrder((0,), stage.depth)
    pattern = (stage.pattern or [])[: stage.depth]
    written: Written = [((*path, "pattern", number), block) for number, block in enumerate(pattern)]
    numbers = tuple(range(len(pattern)))
    whole, rest = divmod(stage.depth, len(pattern))
    return written, BlockOrder((BlockOrder(numbers, whole), *numbers[:rest]))


def widens(path: YamlPath, stage: StageSpec, source: Source) -> bool:
    """Does a sub-layer of the stage widen its tokens, so that the stage's `enter` need not?"""
    return any(component.widens for _, block in schedule(path, stage, source)[0] for component in block)


def _nested(path: YamlPath, blocks: list[Any], source: Source, first: int = 0) -> tuple[Written, BlockOrder]:
    """The blocks of nested groups, numbered from `first`."""
    written: Written = []
    items: list[int | BlockOrder] = []
    length = 0
    for number, item in enumerate(blocks):
        item_path = (*path, number)
        if isinstance(item, Group):
            inner, order = _nested((*item_path, "blocks"), item.blocks, source, first + len(written))
            items.append(BlockOrder(order.items, item.repeat))
            written += inner
        else:
            items.append(first + len(written))
            written.append((item_path, item))
        length += 1 if isinstance(items[-1], int) else len(items[-1])
        if length > MOST_BLOCKS:
            wrong = (*item_path, "repeat") if isinstance(item, Group) else item_path
            raise source.error(wrong, f"makes more than {MOST_BLOCKS:,} blocks in one stage")
    return written, BlockOrder(tuple(items))


def labels(written: Written) -> list[str]:
    """A short name per block: its mixers', numbered where two blocks have the same name."""
    names = [
        " + ".join(component.label() for component in block if isinstance(component, Mixer)) or "no mixer"
        for _, block in written
    ]
    totals, numbers = Counter(names), Counter[str]()
    result = []
    for name in names:
        numbers[name] += 1
        result.append(name if totals[name] == 1 else f"{name} #{numbers[name]}")
    return result
