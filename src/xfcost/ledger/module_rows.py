"""Rows of a module, by the path of the module in which each ran -> those of its ledger: repeated blocks as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import msgspec

from xfcost.ledger.accounts import RUN, AccountFigures, TrainingFigures, WeightsRead
from xfcost.ledger.operation import Mixing, Operation

PARAMETERS: Final = "parameters"
ALL: Final = "*"
_NOTHING: Final = Counter[str]()


class ModuleRow(NamedTuple):
    """A row with the path of its module in parts, and the names in that module of the parameters that it takes."""

    parts: tuple[str, ...]
    row: Operation
    weights: tuple[str, ...] = ()

    def same(self) -> Hashable:
        """What makes it the same as the row of another block; what a residual adds is not told apart by it."""
        ran = self.row.ran and msgspec.structs.replace(self.row.ran, adds="", adds_to=None)
        return msgspec.structs.replace(self.row, ran=ran, **_OF_ONE_BLOCK), self.weights


# Of equal blocks the first may save nothing, and a clock may tell them apart.
_OF_ONE_BLOCK: Final[dict[str, Any]] = {
    "backward_macs": None, "recomputed": False, "training": None, "seconds": None, "predicted_seconds": None,
    "operand_bytes": None, "shared": None, "role": None,
}  # fmt: skip


def parts_of(path: str) -> tuple[str, ...]:
    """The names in the path of a module; none of the model itself."""
    return tuple(path.split(".")) if path else ()


def with_parameters(rows: Sequence[ModuleRow], loose: Mapping[str, int]) -> list[ModuleRow]:
    """The rows with one for the parameters of each module in which no operation takes them, after what runs around it.

    `loose` has their number by the path of the module.
    """
    looked = any(one.row.mixing != "unknown" or (one.row.ran and one.row.ran.kind_missing) for one in rows)
    mixing: Mixing = "per-token" if looked else "unknown"
    places: dict[tuple[int, ...], ModuleRow] = {(place,): one for place, one in enumerate(rows)}
    last = {one.parts[:depth]: place for place, one in places.items() for depth in range(len(one.parts) + 1)}
    for before, (path, number) in enumerate(loose.items()):
        parts = parts_of(path)
        around = [parts[:depth] for depth in range(len(parts), -1, -1)]
        # of several after one row the newest is first
        place = (*next((last[one] for one in around if one in last), ()), -before)
        row = Operation(path=PARAMETERS, title=PARAMETERS, mixing=mixing, params=number, weights_read=WeightsRead(0))
        places[place] = ModuleRow(parts, row)
        last |= {one: max(place, last.get(one, place)) for one in around}
    return [places[place] for place in sorted(places)]


def with_trace(
    rows: Sequence[ModuleRow], own: Mapping[str, Counter[str]], traced: Mapping[str, Mapping[str, int]]
) -> list[ModuleRow]:
    """The rows with the trace's figures.

    A trace is by module: where it agrees with the module's `own` figures, every row's are its own; where it doesn't,
    the module's are in its last row.
    """
    paths = [".".join(one.parts) for one in rows]
    last = {path: place for place, path in enumerate(paths)}
    result = []
    for place, (path, one) in enumerate(zip(paths, rows, strict=True)):
        figures: dict[str, int] = {}
        for quantity in RUN if path in traced else ():
            theirs = traced[path].get(quantity, 0)
            if theirs == own.get(path, _NOTHING)[quantity]:
                figures[quantity] = getattr(one.row, quantity)
            elif place == last[path]:
                figures[quantity] = theirs
        measured = AccountFigures(**figures) if figures else None
        result.append(one._replace(row=msgspec.structs.replace(one.row, traced=measured)))
    return result


def labelled(one: ModuleRow, name: str) -> Operation:
    """A row with its paths: of its module, and of the repeated block that it is in."""
    parts, operation = one.parts, one.row.path
    groups = [place for place, part in enumerate(parts) if is_group(part)]
    of_block = groups[-1] + 1 if groups else min(len(parts), 1)
    component = ".".join(parts)
    return msgspec.structs.replace(
        one.row,
        path=f"{component}.{operation}" if component else operation,
        component=component,
        stage=parts[0] if parts else name,
        block=".".join(parts[:of_block]) or name,
    )


def collapsed(rows: Sequence[ModuleRow], depth: int = 0) -> list[ModuleRow]:
    """The rows with repeated blocks as one, in the order in which each first ran."""
    children: dict[str, list[ModuleRow]] = {}
    order: list[ModuleRow | str] = []
    for one in rows:
        if len(one.parts) == depth:
            order.append(one)
        else:
            if one.parts[depth] not in children:
                order.append(one.parts[depth])
            children.setdefault(one.parts[depth], []).append(one)
    inner = {name: collapsed(theirs, depth + 1) for name, theirs in children.items()}
    groups = _groups(inner, depth)
    result: list[ModuleRow] = []
    for item in order:
        if isinstance(item, ModuleRow):
            result.append(item)
        elif item in groups:
            blocks = zip(*(inner[name] for name in groups[item]), strict=True)
            result += [_repeated(same, depth, groups[item], len(children)) for same in blocks]
    return result


def _groups(inner: dict[str, list[ModuleRow]], depth: int) -> dict[str, list[str]]:
    """First name of a group -> the names of all siblings with the same rows; others than numbers are alone.

    Siblings without modules inside belong together only if they follow each other: linear, ReLU, linear stays so.
    """
    groups: dict[str, list[str]] = {}
    first: dict[Hashable, str] = {}
    before = None
    for name, rows in inner.items():
        same = tuple((one.parts[depth + 1 :], one.same()) for one in rows)
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


def _repeated(blocks: Sequence[ModuleRow], depth: int, names: Sequence[str], siblings: int) -> ModuleRow:
    """The same row of several blocks as one."""
    one = blocks[0]
    if len(names) == 1:
        return one
    parts = (*one.parts[:depth], names_text(names, siblings), *one.parts[depth + 1 :])
    rows = [block.row for block in blocks]
    times = one.row.times * len(names)
    changed: dict[str, Any] = {"times": times}
    for name in ("seconds", "predicted_seconds"):  # of one block, such that all together take what was found
        known = [spent for spent in (getattr(row, name) for row in rows) if spent is not None]
        changed[name] = sum(known) / len(rows) if known else None
    if one.row.backward_macs is not None:  # that of the dearest block, and what the others save (the first one often)
        most = max(row.backward_macs or 0 for row in rows)
        figures = TrainingFigures(
            saved_macs=most * times - sum(row.times_over("backward_macs") or 0 for row in rows),
            recomputed_macs=sum(row.figure("recomputed_macs") for row in rows),
            kept_bytes=sum(row.figure("kept_bytes") for row in rows),
        )
        recomputed = any(row.recomputed for row in rows)
        changed |= {"backward_macs": most, "training": figures, "recomputed": recomputed}
    return one._replace(parts=parts, row=msgspec.structs.replace(one.row, **changed))


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


def block_of(parts: Sequence[str]) -> tuple[str, ...]:
    """The part of a module's path up to its innermost numbered block; nothing of one in none."""
    numbered = [place for place, part in enumerate(parts) if part.isdecimal() or is_group(part)]
    return tuple(parts[: numbered[-1] + 1]) if numbered else ()


def is_group(part: str) -> bool:
    """Does a part of a path stand for several siblings?"""
    return part == ALL or (part[:1].isdecimal() and not part.isdecimal())
