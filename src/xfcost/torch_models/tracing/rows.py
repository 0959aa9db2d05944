"""From the modules of a built spec to its rows: whose each leaf is, and one row for all blocks that are alike."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from xfcost.ledger.accounts import Cached
from xfcost.ledger.operation import Operation


def rows_by_path(
    costs: Mapping[str, Mapping[str, int]], leaves: Collection[str], rows: Mapping[str, str]
) -> tuple[list[Operation], list[str]]:
    """One row for each path, from the costs of every module; and as text what no row owns.

    `costs` are by the dotted path of the module that did the work itself; `rows` maps the path of a mechanism's module
    to the path of its row. Repeated blocks become one row: their costs must be alike, and `times` is how many were
    found.
    """
    found: dict[str, list[Mapping[str, int]]] = {}
    loose = []
    for name, each in costs.items():
        path = row_path(name, rows) if name in leaves else None
        if path is not None:
            found.setdefault(path, []).append(each)
        elif any(each.values()):
            work = [f"{count} {quantity}" for quantity, count in each.items() if count]
            loose.append(f"{name or 'the model itself'}: {', '.join(work)} outside the leaves of any mechanism")
    for path, repeated in found.items():
        if any(each != repeated[0] for each in repeated):
            different = sorted({str(dict(each)) for each in repeated})
            loose.append(f"{path}: repeated blocks differ: {', '.join(different)}")
    made = [_row(path, repeated) for path, repeated in found.items()]
    return made, loose


def _row(path: str, repeated: list[Mapping[str, int]]) -> Operation:
    costs: dict[str, Any] = dict(repeated[0])
    cached = costs.pop("cached", 0)
    return Operation(path=path, title=path, times=len(repeated), cache=Cached(cached) if cached else None, **costs)


# Modules inside a config's module whose names say nothing of an operation.
_TRANSPARENT: Final = frozenset(("inner", "core"))


def row_path(module: str, rows: Mapping[str, str]) -> str | None:
    """The row of a leaf: the row of the nearest component around it, then the leaf's own name; None outside all.

    Modules between the two give their names to it, `inner` and `core` apart: `….inner.local.scores` is `local_scores`.
    """
    prefix = module
    while prefix and prefix not in rows:
        prefix = prefix.rpartition(".")[0]
    if not prefix:
        return None
    if prefix == module:
        return rows[prefix]
    *around, leaf = module[len(prefix) + 1 :].split(".")
    names = [name for name in around if name not in _TRANSPARENT]
    return f"{rows[prefix]}.{'_'.join([*names, leaf])}"
