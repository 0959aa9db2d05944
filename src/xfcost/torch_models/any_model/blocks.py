"""Collapses repeated blocks: numbered siblings with the same rows become one, `layers.*`, with `times`."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from xfcost.ledger.accounts import TrainingFigures
from xfcost.ledger.operation import Operation

ALL: Final = "*"


class Placed(NamedTuple):
    """A row with the path of its module in parts, and what makes it the same as another."""

    parts: tuple[str, ...]
    row: Operation
    same: Hashable


def collapsed(rows: Sequence[Placed], depth: int = 0) -> list[Placed]:
    """The rows with repeated blocks as one, in the order in which each first ran."""
    children: dict[str, list[Placed]] = {}
    order: list[Placed | str] = []
    for one in rows:
        if len(one.parts) == depth:
            order.append(one)
        else:
            if one.parts[depth] not in children:
                order.append(one.parts[depth])
            children.setdefault(one.parts[depth], []).append(one)
    inner = {name: collapsed(theirs, depth + 1) for name, theirs in children.items()}
    groups = _groups(inner, depth)
    result: list[Placed] = []
    for item in order:
        if isinstance(item, Placed):
            result.append(item)
        elif item in groups:
            blocks = zip(*(inner[name] for name in groups[item]), strict=True)
            result += [_repeated(same, depth, groups[item], len(children)) for same in blocks]
    return result


def _groups(inner: dict[str, list[Placed]], depth: int) -> dict[str, list[str]]:
    """First name of a group -> the names of all siblings with the same rows; others than numbers are alone.

    Siblings without modules inside belong together only if they follow each other: linear, ReLU, linear stays so.
    """
    groups: dict[str, list[str]] = {}
    first: dict[Hashable, str] = {}
    before = None
    for name, rows in inner.items():
        same = tuple((one.parts[depth + 1 :], one.same, one.row.times) for one in rows)
        leads = first.get(same)
        follows = leads is not None and before is not None and groups[leads][-1] == before
        has_modules = any(len(one.parts) > depth + 1 for one in rows)
        if name.isdecimal() and leads is not None and (has_modules or follows):
            groups[leads].append(name)
        else:
            groups[name] = [name]
            if name.isdecimal():
                first[same] = name
        before = name
    return groups


def _repeated(blocks: Sequence[Placed], depth: int, names: Sequence[str], siblings: int) -> Placed:
    """The same row of several blocks as one."""
    one = blocks[0]
    if len(names) == 1:
        return one
    parts = (*one.parts[:depth], names_text(names, siblings), *one.parts[depth + 1 :])
    rows = [block.row for block in blocks]
    seconds = _mean([row.seconds for row in rows])
    predicted = _mean([row.predicted_seconds for row in rows])
    row = msgspec.structs.replace(
        one.row, times=one.row.times * len(names), seconds=seconds, predicted_seconds=predicted
    )
    return one._replace(parts=parts, row=_trained(row, rows))


def _mean(seconds: Sequence[float | None]) -> float | None:
    """Seconds of one block, such that all blocks together take what was measured or predicted."""
    known = [one for one in seconds if one is not None]
    return sum(known) / len(seconds) if known else None


def _trained(row: Operation, rows: Sequence[Operation]) -> Operation:
    """The backward pass of several blocks: that of the dearest one, and what the others save (the first one often)."""
    if row.backward_macs is None:
        return row
    most = max(one.backward_macs or 0 for one in rows)
    total = sum(one.times_over("backward_macs") or 0 for one in rows)
    figures = TrainingFigures(
        saved_macs=most * row.times - total,
        recomputed_macs=sum(one.figure("recomputed_macs") for one in rows),
        kept_bytes=sum(one.figure("kept_bytes") for one in rows),
    )
    recomputed = any(one.recomputed for one in rows)
    return msgspec.structs.replace(row, backward_macs=most, training=figures, recomputed=recomputed)


def names_text(names: Sequence[str], siblings: int) -> str:
    """`*` of all, `1-11` of neighbours, `0-10:2` of every second, else `0,2,5`."""
    if len(names) == siblings:
        return ALL
    numbers = [int(name) for name in names]
    steps = {later - earlier for earlier, later in pairwise(numbers)}
    if len(steps) > 1:
        return ",".join(names)
    step = steps.pop()
    return f"{numbers[0]}-{numbers[-1]}" + ("" if step == 1 else f":{step}")


def is_group(part: str) -> bool:
    """Does a part of a path stand for several siblings?"""
    return part == ALL or (part[:1].isdecimal() and not part.isdecimal())
