"""The blocks of a stage: which are written, and which of them runs when."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from xfcost.formulas.component import Mixer
from xfcost.spec.grammar import Group, StageSpec
from xfcost.spec.order import Order
from xfcost.spec.reader import Source, YamlPath

MOST_BLOCKS: Final = 100_000

Written = list[tuple[YamlPath, list[Any]]]
"""Blocks as they are written: where each stands, and its sub-layers."""


def schedule(path: YamlPath, stage: StageSpec, source: Source) -> tuple[Written, Order]:
    """The blocks as written, and which of them runs first, second and so on.

    Raises:
        SpecError: the stage says it in no way, or in two.
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
        return [((*path, "block"), stage.block)], Order((0,), stage.depth)
    pattern = (stage.pattern or [])[: stage.depth]
    written: Written = [((*path, "pattern", number), block) for number, block in enumerate(pattern)]
    numbers = tuple(range(len(pattern)))
    whole, rest = divmod(stage.depth, len(pattern))
    return written, Order((Order(numbers, whole), *numbers[:rest]))


def widens(path: YamlPath, stage: StageSpec, source: Source) -> bool:
    """Does a sub-layer of the stage bring the width to the stage's, so that its `enter` need not?"""
    return any(component.widens for _, block in schedule(path, stage, source)[0] for component in block)


def _nested(path: YamlPath, blocks: list[Any], source: Source, before: int = 0) -> tuple[Written, Order]:
    """The blocks of a group and of those in it, numbered on from `before`."""
    written: Written = []
    items: list[int | Order] = []
    length = 0
    for number, item in enumerate(blocks):
        here = (*path, number)
        if isinstance(item, Group):
            inner, order = _nested((*here, "blocks"), item.blocks, source, before + len(written))
            items.append(Order(order.items, item.repeat))
            written += inner
        else:
            items.append(before + len(written))
            written.append((here, item))
        length += 1 if isinstance(items[-1], int) else len(items[-1])
        if length > MOST_BLOCKS:
            where = (*here, "repeat") if isinstance(item, Group) else here
            raise source.error(where, f"makes more than {MOST_BLOCKS:,} blocks in one stage")
    return written, Order(tuple(items))


def labels(written: Written) -> list[str]:
    """A short name per block: its mixers', numbered where two are called alike."""
    names = [
        " + ".join(component.label() for component in block if isinstance(component, Mixer)) or "no mixer"
        for _, block in written
    ]
    alike, seen = Counter(names), Counter[str]()
    found = []
    for name in names:
        seen[name] += 1
        found.append(name if alike[name] == 1 else f"{name} #{seen[name]}")
    return found
