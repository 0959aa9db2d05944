"""The cost of an einsum: torch's sequence of products and sums of operand pairs.

torch gives all operands one axis per letter; a missing letter is an axis of size 1. It contracts pairs of operands,
from left to right or along the path of opt_einsum that the trace recorded. Letters that no other operand and not the
output need are summed before the product if only one operand has them with size above 1, otherwise by the product.
Letters of size 1 in both operands are summed by it too: a product of width 1.
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
# A letter, or the index of an axis in `...`, counted from the last (0), with the size of its axis.
Letter = str | int
Sides = dict[Letter, int]


def einsum(inputs: list[Value], outputs: list[Value]) -> Counts:
    """Each pair costs a matrix product if it sums a letter, otherwise an element-wise product."""
    shapes = [shape(value) for value in elements_of(inputs[1])]
    operands, in_output = _operands(inputs[0].toIValue().replace(" ", ""), shapes)
    path = whole_numbers(inputs[2]) if len(inputs) > 2 and given(inputs[2]) else None  # noqa: PLR2004
    multiply = FLOPS_PER_ELEMENT["complex_multiply" if is_complex(outputs[0]) else "multiply"]
    macs = products = sums = 0
    for left, right in _pairs(operands, path):
        needed = in_output.union(*operands)
        sums += _summed_alone(left, right, needed) + _summed_alone(right, left, needed)
        sizes = {letter: max(left.get(letter, 1), right.get(letter, 1)) for letter in left | right}
        summed = (left.keys() & right.keys()) - needed
        macs += prod(sizes.values()) if summed else 0
        products += 0 if summed else prod(sizes.values())
        operands.insert(
            len(operands) if path else 0, {operand: sizes[operand] for operand in sizes if operand not in summed}
        )
    sums += _summed_alone(operands[0], {}, in_output)
    return contraction(outputs[0], macs, products * multiply + sums * FLOPS_PER_ELEMENT["sum"])


def _operands(equation: str, shapes: list[list[int]]) -> tuple[list[Sides], frozenset[Letter]]:
    """The sizes of each operand by letter, and the letters of the output."""
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    operands: list[Sides] = [
        dict(zip(_letters(term, len(sizes)), sizes, strict=True)) for term, sizes in zip(terms, shapes, strict=True)
    ]
    letters = [letter for term in terms for letter in term if letter.isalpha()]
    written = right if arrow else ELLIPSIS + "".join(letter for letter in set(letters) if letters.count(letter) == 1)
    in_output: set[Letter] = {letter for letter in written if letter.isalpha()}
    if ELLIPSIS in written:
        in_output |= {letter for sides in operands for letter in sides if isinstance(letter, int)}
    return operands, frozenset(in_output)


def _letters(term: str, rank: int) -> list[Letter]:
    """The letter of every axis."""
    if ELLIPSIS not in term:
        return list(term)
    before, _, after = term.partition(ELLIPSIS)
    hidden = rank - len(before) - len(after)
    return [*before, *reversed(range(hidden)), *after]


def _pairs(operands: list[Sides], path: list[int] | None) -> Iterator[tuple[Sides, Sides]]:
    """Pairs taken from `operands`. The caller appends each product before it asks for the next pair."""
    for step in range(len(operands) - 1):
        first, second = sorted(path[2 * step : 2 * step + 2]) if path else (0, 1)
        right = operands.pop(second)
        yield operands.pop(first), right


def _summed_alone(operand: Sides, other: Sides, needed: frozenset[Letter]) -> int:
    """The number of elements summed before the product; the summed letters are deleted from `operand`."""
    alone = {letter for letter, size in operand.items() if letter not in needed and other.get(letter, 1) == 1 != size}
    entering = prod(operand.values()) if alone else 0
    for letter in alone:
        del operand[letter]
        other.pop(letter, None)
    return entering
