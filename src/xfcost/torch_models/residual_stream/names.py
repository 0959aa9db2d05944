"""The names of what sub-layers read, add and leave: X₁ = X + ΔA(X)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from torch import nn

from xfcost.formulas.component import Mixer
from xfcost.spec.architecture import Part
from xfcost.torch_models.residual_stream.adds import ResidualAdd

_SUBSCRIPTS: Final = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def symbols(parts: Sequence[Part], adds: Sequence[ResidualAdd]) -> list[str]:
    """`ΔA` of a mixer and `ΔF` of another sub-layer, numbered where a block has several; empty without a Δ."""
    letters = [
        "" if add.joins == "none" else "ΔA" if isinstance(part.component, Mixer) else "ΔF"
        for part, add in zip(parts, adds, strict=True)
    ]
    several = {letter for letter, count in Counter(letters).items() if letter and count > 1}
    seen: Counter[str] = Counter()
    named = []
    for letter in letters:
        seen[letter] += 1
        named.append(letter + _subscript(seen[letter]) if letter in several else letter)
    return named


def behind(add: ResidualAdd) -> tuple[str, ...]:
    """What follows the sum, in a word each."""
    return tuple("relu" if isinstance(module, nn.ReLU) else "norm" for module in add.behind)


class StreamNames(NamedTuple):
    """X + Δ(input) = X₁, by name."""

    x: str
    """What Δ is added to."""
    read: str
    """What Δ is computed from."""
    out: str


def stream_names(add: ResidualAdd, position: int) -> StreamNames:
    """The names at the sub-layer at `position` of its block."""
    if add.joins == "reversible":
        return StreamNames("X₁", "X₂", "Y₁") if position == 0 else StreamNames("X₂", "Y₁", "Y₂")
    x = "X" + (_subscript(position) if position else "")
    return StreamNames(f"S({x})" if add.shortcut else x, x, "X" + _subscript(position + 1))


def _subscript(number: int) -> str:
    return str(number).translate(_SUBSCRIPTS)
