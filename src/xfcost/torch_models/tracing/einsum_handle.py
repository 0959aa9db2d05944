"""What an einsum costs: the products and sums that torch makes of it, one pair of operands after the other.

torch lays the axes of all operands side by side, one per letter, those without the letter having a side of 1. It then
takes the operands by pairs: from left to right, or along the path that opt_einsum found and the trace recorded. Sides
that no other operand and not the output need are summed before the product where one of the pair has them, and by it
where both have them. A letter that both have with a side of 1 is summed by it too: a product of width 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Final

from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.torch_models.tracing.graph import (
    Counts,
    Value,
    contraction,
    elements_of,
    given,
    is_complex,
    shape,
    whole_numbers,
)

ELLIPSIS: Final = "..."
# A letter, or the place of an axis that `...` stands for, the last being 0; with the size of its axis.
Letter = str | int
Sides = dict[Letter, int]


def einsum(inputs: list[Value], outputs: list[Value]) -> Counts:
    """Each product of a pair that sums is a matrix product; one that doesn't is element by element."""
    shapes = [shape(value) for value in elements_of(inputs[1])]
    operands, kept = _operands(inputs[0].toIValue().replace(" ", ""), shapes)
    path = whole_numbers(inputs[2]) if len(inputs) > 2 and given(inputs[2]) else None  # noqa: PLR2004
    multiply = FLOPS_PER_ELEMENT["complex_multiply" if is_complex(outputs[0]) else "multiply"]
    macs = products = sums = 0
    for left, right in _pairs(operands, path):
        needed = kept.union(*operands)
        sums += _summed_alone(left, right, needed) + _summed_alone(right, left, needed)
        both = {letter: max(left.get(letter, 1), right.get(letter, 1)) for letter in left | right}
        together = (left.keys() & right.keys()) - needed
        macs += prod(both.values()) if together else 0
        products += 0 if together else prod(both.values())
        operands.insert(len(operands) if path else 0, {one: both[one] for one in both if one not in together})
    sums += _summed_alone(operands[0], {}, kept)
    return contraction(outputs[0], macs, products * multiply + sums * FLOPS_PER_ELEMENT["sum"])


def _operands(equation: str, shapes: list[list[int]]) -> tuple[list[Sides], frozenset[Letter]]:
    """Each operand's sides by letter, and the letters of the output."""
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    operands: list[Sides] = [
        dict(zip(_letters(term, len(sizes)), sizes, strict=True)) for term, sizes in zip(terms, shapes, strict=True)
    ]
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


def _pairs(operands: list[Sides], path: list[int] | None) -> Iterator[tuple[Sides, Sides]]:
    """Pairs that leave `operands`, each to be followed by their product's return to it."""
    for step in range(len(operands) - 1):
        first, second = sorted(path[2 * step : 2 * step + 2]) if path else (0, 1)
        right = operands.pop(second)
        yield operands.pop(first), right


def _summed_alone(one: Sides, other: Sides, needed: frozenset[Letter]) -> int:
    """The elements of `one` that are summed before the product, which leaves their sides out of it."""
    alone = {letter for letter, size in one.items() if letter not in needed and other.get(letter, 1) == 1 != size}
    entering = prod(one.values()) if alone else 0
    for letter in alone:
        del one[letter]
        other.pop(letter, None)
    return entering
