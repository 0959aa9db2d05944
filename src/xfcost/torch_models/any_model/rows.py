"""From the recorded operations of a run to the rows of a ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import msgspec

from xfcost.ledger.accounts import RUN, AccountFigures, TrainingFigures, WeightsRead
from xfcost.ledger.operation import Mixing, Operation
from xfcost.ledger.ran import RanOperation
from xfcost.torch_models.any_model.work import Work, shapes_text

PARAMETERS = "parameters"
# What an operation and its row call the same.
_SAME_FIELDS: Final = (
    "mixing", "content_dependent", "reads_tokens", "matrix", "core", "heads", "seconds", "predicted_seconds",
)  # fmt: skip


def module_rows(
    works: Sequence[Work], elements: Mapping[str, int], traced: Mapping[str, Mapping[str, int]], name: str, *,
    training: bool = False,
) -> tuple[list[Operation], list[str]]:  # fmt: skip
    """A row per operation of a module, repeated blocks as one; and the names of parameters that nothing took.

    A parameter lives in the row of the first operation of its own module that takes it; those that none takes have a
    row of their own. `elements` are theirs by name; `traced` has the trace of each module that has one; with
    `training` every row has its backward pass.
    """
    home: dict[str, Work] = {}
    for work in works:
        for weight in work.weights:
            if weight.rpartition(".")[0] == work.path:
                home.setdefault(weight, work)
    numbers: Counter[int] = Counter()
    loose: Counter[str] = Counter()
    for weight, number in elements.items():
        if weight in home:
            numbers[id(home[weight])] += number
        else:
            loose[weight.rpartition(".")[0]] += number
    rows = [_placed(work, numbers[id(work)], elements, training=training) for work in works]
    looked = any(work.mixing != "unknown" or work.kind_missing for work in works)
    for path, number in loose.items():
        _insert(rows, path, number, "per-token" if looked else "unknown")
    rows = _with_trace(_named(rows), traced)
    taken = {weight for work in works for weight in work.weights}
    return [_labelled(one, name) for one in collapsed(rows)], [one for one in elements if one not in taken]


def _parts(path: str) -> tuple[str, ...]:
    return tuple(path.split(".")) if path else ()


def _placed(work: Work, params: int, elements: Mapping[str, int], *, training: bool) -> Placed:
    costs: dict[str, Any] = {quantity: work.costs[quantity] for quantity in RUN}
    costs |= {name: getattr(work, name) for name in _SAME_FIELDS}
    read = sum(elements[name] for name in work.weights)
    if work.name == "embedding" and work.outputs:
        read = min(read, work.costs["moved"])
    if training:
        figures = TrainingFigures(recomputed_macs=work.recomputed_macs, kept_bytes=work.kept_bytes)
        costs |= {"backward_macs": work.backward_macs, "recomputed": work.recomputed, "training": figures}
    clocked = work.seconds is not None or work.predicted_seconds is not None
    foreign = [name for name in work.weights if name.rpartition(".")[0] != work.path]
    row = Operation(
        path=work.name,
        title=work.name,
        reads=None if work.reads_tokens is None else str(work.reads_tokens),
        params=params,
        attention_entries=work.entries,
        fused=bool(work.fused_entries),
        shared=foreign[0] if foreign and not params else None,
        operand_bytes=work.operand_bytes if clocked and not training else None,  # a backward pass's are not known
        weights_read=None if read == params else WeightsRead(read),
        ran=RanOperation(
            aten=work.operation,
            input_shapes=shapes_text(work.inputs) + (" (first call)" if work.varied else ""),
            output_shapes=shapes_text(work.outputs),
            calls=work.calls,
            uncounted=sum(work.uncounted.values()),
            kind_missing=work.kind_missing,
            computed_tokens=work.computed_tokens,
            kept_tokens=work.kept_tokens,
        ),
        **costs,
    )
    here = f"{work.path}." if work.path else ""
    weights = tuple(weight.removeprefix(here) if weight.startswith(here) else "" for weight in work.weights)
    return Placed(_parts(work.path), row, (work.same_as(), params, weights))


def _insert(rows: list[Placed], path: str, number: int, mixing: Mixing) -> None:
    """Insert a row for parameters of a module in which no operation takes them, after what runs around it."""
    parts = _parts(path)
    row = Operation(path=PARAMETERS, title=PARAMETERS, mixing=mixing, params=number, weights_read=WeightsRead(0))
    depths = range(len(parts), -1, -1)
    around = ([n for n, one in enumerate(rows, 1) if one.parts[:depth] == parts[:depth]] for depth in depths)
    end = next((inside[-1] for inside in around if inside), 0)
    rows.insert(end, Placed(parts, row, (PARAMETERS, number)))


def _named(rows: Sequence[Placed]) -> list[Placed]:
    """Operations of the same name in a module get numbers: `bmm`, `bmm_2`."""
    seen: Counter[tuple[tuple[str, ...], str]] = Counter()
    named = []
    for one in rows:
        seen[one.parts, one.row.path] += 1
        number = seen[one.parts, one.row.path]
        name = one.row.path if number == 1 else f"{one.row.path}_{number}"
        row = msgspec.structs.replace(one.row, path=name, title=name)
        named.append(one._replace(row=row, same=(one.same, name)))
    return named


def _with_trace(rows: Sequence[Placed], traced: Mapping[str, Mapping[str, int]]) -> list[Placed]:
    """The rows with the trace's figures.

    A trace is by module: where it agrees, every row's figures are its own; where it doesn't, the module's are in its
    last row.
    """
    paths = [".".join(one.parts) for one in rows]
    last = {path: place for place, path in enumerate(paths)}
    own: Counter[tuple[str, str]] = Counter()
    for path, one in zip(paths, rows, strict=True):
        own.update({(path, quantity): getattr(one.row, quantity) for quantity in RUN})
    result = []
    for place, (path, one) in enumerate(zip(paths, rows, strict=True)):
        figures: dict[str, int] = {}
        for quantity in RUN if path in traced else ():
            theirs = traced[path].get(quantity, 0)
            if theirs == own[path, quantity]:
                figures[quantity] = getattr(one.row, quantity)
            elif place == last[path]:
                figures[quantity] = theirs
        measured = AccountFigures(**figures) if figures else None
        same = (one.same, tuple(figures.items()))
        result.append(one._replace(row=msgspec.structs.replace(one.row, traced=measured), same=same))
    return result


def _labelled(one: Placed, name: str) -> Operation:
    """A row with its paths: of its module, of the repeated block that it is in, and its title there."""
    parts, operation = one.parts, one.row.path
    groups = [place for place, part in enumerate(parts) if is_group(part)]
    of_block = groups[-1] + 1 if groups else min(len(parts), 1)
    component, rest = ".".join(parts), ".".join(parts[of_block:])
    return msgspec.structs.replace(
        one.row,
        path=f"{component}.{operation}" if component else operation,
        title=f"{rest} {operation}" if rest else operation,
        component=component,
        stage=parts[0] if parts else name,
        block=".".join(parts[:of_block]) or name,
    )


def costs_by_module(works: Sequence[Work]) -> dict[str, Counter[str]]:
    """The costs of every module, its children left out."""
    found: dict[str, Counter[str]] = {}
    for work in works:
        found.setdefault(work.path, Counter()).update(work.costs)
    return found


def names_of(inputs: Sequence[tuple[str, Any]]) -> Iterator[str]:
    """`x: 1×3×224×224 float32` of every tensor."""
    for name, tensor in inputs:
        sizes = "×".join(map(str, tensor.shape)) or "()"
        yield f"{name}: {sizes} {str(tensor.dtype).removeprefix('torch.')}"


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


def is_group(part: str) -> bool:
    """Does a part of a path stand for several siblings?"""
    return part == ALL or (part[:1].isdecimal() and not part.isdecimal())
