"""What the record of a spec's model says of its rows: their costs, backward passes and saved activations."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import ExitStack, nullcontext
from typing import Any, Final

import torch
from torch import nn

from xfcost.ledger.accounts import RUN, Cached
from xfcost.ledger.operation import Operation
from xfcost.torch_models.running.record import RunRecord
from xfcost.torch_models.running.recorder import Recorder
from xfcost.torch_models.running.surroundings import handed_to_numpy, shapes_on_meta

ALL: Final[Mapping[str, int]] = {}
"""Every block of the model is built, and stands for itself alone."""


def rows_by_path(
    costs: Mapping[str, Mapping[str, int]], rows: Mapping[str, str], stands_for: Mapping[str, int] = ALL
) -> tuple[list[Operation], list[str]]:
    """One row per path from the costs of each module, and texts about work outside all rows.

    `costs` has the dotted path of the module that did the work; `rows` maps those of leaves to the paths of their rows.
    Repeated blocks become one row: their costs must be equal, and `times` is their number; a leaf `stands_for` those of
    so many blocks.
    """
    found: dict[str, list[Mapping[str, int]]] = {}
    times = Counter[str]()
    loose = []
    for name, each in costs.items():
        if name in rows:
            found.setdefault(rows[name], []).append(each)
            times[rows[name]] += stands_for.get(name, 1)
        elif any(each.values()):
            work = [f"{count} {quantity}" for quantity, count in each.items() if count]
            loose.append(f"{name or 'the model itself'}: {', '.join(work)} outside the leaves of any mechanism")
    made = []
    for path, repeated in found.items():
        if any(each != repeated[0] for each in repeated):
            different = sorted({str(dict(each)) for each in repeated})
            loose.append(f"{path}: repeated blocks differ: {', '.join(different)}")
        own: dict[str, Any] = dict(repeated[0])
        cache = Cached(cached) if (cached := own.pop("cached", 0)) else None
        made.append(Operation(path=path, title=path, times=times[path], cache=cache, **own))
    return made, loose


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


def dispatch(model: nn.Module, inputs: tuple[Any, ...], *, backward: bool = False) -> RunRecord:
    """One forward of `model(*inputs)`, or also the backward pass of the sum of its outputs.

    A graph contains only what its result needs, and shows a loop as one node. The dispatcher sees all operations, also
    those with unused results, and each step of a loop. Nothing is allocated on `meta`.
    """
    recorder = Recorder(model if backward else None)
    with ExitStack() as stack:
        stack.enter_context(shapes_on_meta())
        stack.enter_context(handed_to_numpy(recorder.run.missing))
        stack.enter_context(recorder.of(model))
        stack.enter_context(torch.set_grad_enabled(backward))
        with recorder.saving() if backward else nullcontext():
            outputs = model(*inputs)
        if backward:
            recorder.differentiate(outputs)
    return recorder.run


def dispatched_rows(
    model: nn.Module, inputs: tuple[Any, ...], rows: Mapping[str, str], stands_for: Mapping[str, int] = ALL
) -> tuple[list[Operation], list[str]]:
    """The dispatched account of a model built from a spec: rows by path, and work outside all rows."""
    found, paths = dispatch(model, inputs), leaf_rows(model, rows)
    ran = {name: Counter[str]() for name in paths} | found.costs_by_module()
    costs = {name: {quantity: each[quantity] for quantity in RUN} for name, each in ran.items()}
    rows_found, outside = rows_by_path(costs, paths, stands_for)
    unknown = [
        f"the dispatcher saw {name} {times} time(s), and no formula is known"
        for name, times in found.uncounted().items()
    ]
    return rows_found, [*unknown, *outside]


def trained_rows(
    model: nn.Module, found: RunRecord, rows: Mapping[str, str], stands_for: Mapping[str, int] = ALL
) -> tuple[dict[str, list[int]], dict[str, int], list[str]]:
    """By row: backward MACs of each block, and bytes saved by all blocks; and texts about work outside all rows."""
    blocks: dict[str, list[int]] = defaultdict(list)
    saved: dict[str, int] = defaultdict(int)
    leaves, backward, kept = leaf_rows(model, rows), found.backward_by_module(), found.saved_by_module()
    for name, path in leaves.items():
        times = stands_for.get(name, 1)
        blocks[path] += [backward[name]] * times
        saved[path] += kept[name] * times
    outside = [
        f"{name or 'the model itself'}: {macs} backward_macs outside the leaves of any mechanism"
        for name, macs in backward.items()
        if macs and name not in leaves
    ]
    for name in kept.keys() & rows.keys() - leaves.keys():  # the two streams of a reversible stage
        saved[rows[name]] += kept[name]
    return blocks, saved, outside
