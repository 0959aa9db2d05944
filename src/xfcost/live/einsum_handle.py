"""What an einsum costs: the products and sums that torch makes of it, one pair of operands after the other.

torch lays the axes of all operands side by side, one per letter, those without the letter having a side of 1. It then
takes the operands by pairs: from left to right, or along the path that opt_einsum found and the trace recorded. Sides
that no other operand and not the output need are summed before the product where one of the pair has them, and by it
where both have them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from math import prod
from typing import Final

from xfcost.conventions import FLOPS_PER_ELEMENT
from xfcost.live.graph import Counts, Value, contraction, elements_of, given, is_complex, shape, whole_numbers

ELLIPSIS: Final = "..."
# A letter, or the place of an axis that `...` stands for, the last being 0; with the size of its axis, 1 left out.
Letter = str | int
Sides = dict[Letter, int]


def einsum(inputs: list[Value], outputs: list[Value]) -> Counts:
    """Each product of a pair that sums is a matrix product; one that doesn't is element by element."""
    shapes = [shape(value) for value in elements_of(inputs[1])]
    operands, kept = _operands(inputs[0].toIValue().replace(" ", ""), shapes)
    path = whole_numbers(inputs[2]) if len(inputs) > 2 and given(inputs[2]) else None  # noqa: PLR2004
    macs = flops = 0
    for left, right in _pairs(operands, kept, path):
        needed = kept.union(*operands)
        sums = _summed_alone(left, right, needed) + _summed_alone(right, left, needed)
        together = (left.keys() & right.keys()) - needed
        work = prod((left | right).values())
        operands.insert(len(operands) if path else 0, _without(left | right, together))
        macs += work if together else 0
        multiply = FLOPS_PER_ELEMENT["complex_multiply" if is_complex(outputs[0]) else "multiply"]
        flops += sums * FLOPS_PER_ELEMENT["sum"] + (0 if together else work * multiply)
    left_over = operands[0].keys() - kept
    flops += prod(operands[0].values()) * FLOPS_PER_ELEMENT["sum"] if left_over else 0
    return contraction(outputs[0], macs, flops)


def _operands(equation: str, shapes: list[list[int]]) -> tuple[list[Sides], frozenset[Letter]]:
    """Each operand's sides by letter, and the letters of the output."""
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    operands = []
    for term, sizes in zip(terms, shapes, strict=True):
        operands.append({letter: size for letter, size in zip(_letters(term, len(sizes)), sizes, strict=True) if size != 1})
    letters = [letter for term in terms for letter in term if letter.isalpha()]
    written = right if arrow else ELLIPSIS + "".join(letter for letter in set(letters) if letters.count(letter) == 1)
    kept: set[Letter] = {letter for letter in written if letter.isalpha()}
    if ELLIPSIS in written:
        kept |= {letter for sides in operands for letter in sides if isinstance(letter, int)}
    return operands, frozenset(kept)


def _letters(term: str, rank: int) -> list[Letter]:
    """The letter of every axis."""
    if ELLIPSIS not in term:
        return list(term)
    before, _, after = term.partition(ELLIPSIS)
    hidden = rank - len(before) - len(after)
    return [*before, *reversed(range(hidden)), *after]


def _pairs(operands: list[Sides], kept: frozenset[Letter], path: list[int] | None) -> Iterator[tuple[Sides, Sides]]:
    """Pairs that leave `operands`, each to be followed by their product's return to it."""
    for step in count():
        if len(operands) == 1:
            return
        first, second = sorted(path[2 * step : 2 * step + 2]) if path else (0, 1)
        right = operands.pop(second)
        yield operands.pop(first), right


def _summed_alone(one: Sides, other: Sides, needed: frozenset[Letter]) -> int:
    """The elements of `one` that are summed before the product, which leaves their sides out of it."""
    alone = one.keys() - other.keys() - needed
    entering = prod(one.values()) if alone else 0
    for letter in alone:
        del one[letter]
    return entering


def _without(sides: Sides, letters: set[Letter]) -> Sides:
    return {letter: size for letter, size in sides.items() if letter not in letters}
