"""Units -> tables of exact costs, and the sums of these for any configurations.

A table has an axis for every variable that its units depend on. A configuration's costs are one item of each table,
added. Tables hold int64 where no sum can pass 2⁶³, and Python's integers otherwise: they are exact either way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np

from xfcost.counting.find.costs import Costs
from xfcost.counting.on_devices.bounds import FLOPS_PER_MAC
from xfcost.ledger.errors import UsageError
from xfcost.ledger.units import BYTES_PER_ELEMENT

Array = Any
"""A numpy array of whole numbers."""
SUMMED: Final = ("params", "macs", "flops", "cache", "kept_macs", "weights_read")
_LARGEST: Final = 2**63
# Cells of one table: more means that too many keys meet in one part of the model.
MOST_CELLS: Final = 2**24
# Tables are joined up to so many cells: fewer tables are faster to add.
_JOINED_CELLS: Final = 2**16


class Term(NamedTuple):
    """What one or several units add to the costs."""

    axes: tuple[int, ...]
    """The variables that it depends on, ascending."""
    costs: Costs
    """Of each cell."""
    reasons: Array
    """Of each cell: 0, or the number of the reason why it can't be."""


class Terms(NamedTuple):
    """All terms of a space, and what is needed to read them."""

    sizes: tuple[int, ...]
    """The number of values of every variable."""
    terms: tuple[Term, ...]

    def at(self, indices: Sequence[Array]) -> tuple[Costs, Array]:
        """The costs of configurations, given by the number of the value of each variable; and their reasons."""
        costs, reasons = Costs(), 0
        for term in self.terms:
            cells = flat_cells(indices, term.axes, self.sizes)
            picked = [table.take(cells) for table in term.costs]
            costs = _added(costs, Costs(*picked))
            reasons = first_reason(reasons, term.reasons.take(cells))
        return costs, reasons


def flat_cells(indices: Sequence[Array], axes: Sequence[int], sizes: Sequence[int]) -> Array:
    """The numbers of the cells of a table with these axes."""
    cells: Any = 0
    for axis in axes:
        cells = cells * sizes[axis] + indices[axis]
    return cells if axes else np.zeros(len(indices[0]) if len(indices) else 1, dtype=np.int64)


def _added(one: Costs, other: Costs) -> Costs:
    sums = {name: array_of(getattr(one, name) + getattr(other, name)) for name in SUMMED}
    return Costs(**sums, attention=array_of(np.maximum(one.attention, other.attention)))


def first_reason(one: Array, other: Array) -> Array:
    """The reasons of the first, and where it has none those of the other."""
    return np.where(one, one, other)


def spread(table: Array, own: Sequence[int], axes: Sequence[int], sizes: Sequence[int]) -> Array:
    """`table` with the axes `own`, as one with more `axes`."""
    shaped = table.reshape([sizes[axis] if axis in own else 1 for axis in axes])
    return np.broadcast_to(shaped, [sizes[axis] for axis in axes])


def exact_array(values: Iterable[int]) -> Array:
    """int64, or Python's integers where one is too large."""
    every = list(values)
    return np.array(every, dtype=np.int64 if max(every, default=0) < _LARGEST else object)


def array_of(value: Any) -> Array:
    """An array; of one without axes numpy makes a number, of Python's integers a Python integer."""
    return np.asarray(value, dtype=object) if isinstance(value, int) else np.asarray(value)


def check_cells(axes: Sequence[int], sizes: Sequence[int], keys: Mapping[int, str]) -> None:
    """Refuse a table of too many cells; `keys` are the names of its axes.

    Raises:
        UsageError: it is one.
    """
    cells = prod(sizes[axis] for axis in axes)
    if cells > MOST_CELLS:
        names = ", ".join(keys[axis] for axis in axes)
        raise UsageError(
            f"--vary: {cells:,} combinations of {names} meet in one part of the model, more than {MOST_CELLS:,}; vary "
            "fewer keys at once, or with longer steps"
        )


def joined(terms: Sequence[Term], sizes: tuple[int, ...]) -> Terms:
    """The terms in as few tables as is fast, none of whose sums can pass the largest number that it holds."""
    terms = _wide_enough(terms)
    found: list[Term] = []
    for term in sorted(terms, key=lambda one: -len(one.axes)):
        for number, other in enumerate(found):
            axes = tuple(sorted({*term.axes, *other.axes}))
            if axes == other.axes or prod(sizes[axis] for axis in axes) <= _JOINED_CELLS:
                found[number] = _join(other, term, axes, sizes)
                break
        else:
            found.append(term)
    flat = (Term(one.axes, Costs(*(table.ravel() for table in one.costs)), one.reasons.ravel()) for one in found)
    return Terms(sizes, tuple(flat))


def _wide_enough(terms: Sequence[Term]) -> list[Term]:
    """Terms as Python's integers, of quantities whose sums could pass 2⁶³ (bytes and FLOPs of these too)."""
    largest = {name: sum(int(getattr(term.costs, name).max()) for term in terms) for name in Costs._fields}
    wide = {name for name in Costs._fields if largest[name] >= _LARGEST}
    wide |= {"params", "cache", "attention", "weights_read"} if most_bytes(largest) >= _LARGEST else set()
    wide |= {"kept_macs"} if FLOPS_PER_MAC * largest["kept_macs"] >= _LARGEST else set()
    if not wide:
        return list(terms)
    return [
        term._replace(costs=term.costs._replace(**{name: getattr(term.costs, name).astype(object) for name in wide}))
        for term in terms
    ]


def most_bytes(largest: Mapping[str, int]) -> int:
    """No sum of bytes is larger, where a quantity is at most `largest`."""
    element = max(BYTES_PER_ELEMENT.values())
    return element * (largest["params"] + largest["weights_read"] + largest["cache"]) + largest["attention"]


def _join(one: Term, other: Term, axes: tuple[int, ...], sizes: tuple[int, ...]) -> Term:
    first, second = (Costs(*(spread(table, term.axes, axes, sizes) for table in term.costs)) for term in (one, other))
    reasons = [spread(term.reasons, term.axes, axes, sizes) for term in (one, other)]
    return Term(axes, _added(first, second), first_reason(*reasons))
