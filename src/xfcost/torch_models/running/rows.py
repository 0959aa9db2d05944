"""From the costs of modules to rows: each leaf has a row, and equal blocks share one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from torch import nn

from xfcost.ledger.accounts import Cached
from xfcost.ledger.operation import Operation


def rows_by_path(
    costs: Mapping[str, Mapping[str, int]], leaves: Collection[str], rows: Mapping[str, str]
) -> tuple[list[Operation], list[str]]:
    """One row per path from the costs of each module, and texts about work outside all rows.

    `costs` has the dotted path of the module that did the work; `rows` maps the path of a component's module to the
    path of its row. Repeated blocks become one row: their costs must be equal, and `times` is their number.
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


def leaf_rows(model: nn.Module, rows: Mapping[str, str]) -> dict[str, str]:
    """The dotted path of each leaf that has a row -> the row's path."""
    leaves = (name for name, module in model.named_modules() if next(module.children(), None) is None)
    return {name: path for name in leaves if (path := row_path(name, rows)) is not None}


# Names of inner modules that are not part of a row's name.
_TRANSPARENT: Final = frozenset(("inner", "core"))


def row_path(module: str, rows: Mapping[str, str]) -> str | None:
    """The row of a leaf: the row of the innermost component around it, then the leaf's name; None outside all.

    Modules between the two are part of the name, except `inner` and `core`: `….inner.local.scores` is `local_scores`.
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
