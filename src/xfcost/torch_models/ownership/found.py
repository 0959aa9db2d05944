"""What is found of one operation that ran."""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["per-token", "local", "global", "unknown"]
Shape = tuple[int, ...]


class Reads(NamedTuple):
    """Tokens read per output token: the smallest, the (lower) median and the largest number."""

    smallest: int
    median: int
    largest: int


class FoundOperation(NamedTuple):
    """One ATen operation that ran, and what its outputs read."""

    sequence: int
    """Its number in the order they ran."""
    module: str
    """Dotted path of the innermost running module; the model itself is ""."""
    name: str
    """`aten.bmm`."""
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    kind: Kind | None
    """None of data movement, and of operations on parameters and constants alone."""
    reads: Reads | None = None
    """What a token depends on; None of operations that don't mix tokens."""
    computed: Reads | None = None
    """What is computed for it, where a mask keeps fewer."""
    kept: Reads | None = None
    """What the mask keeps of that: `reads`, unless the mask itself depends on all that is computed."""
    represents: int | None = None
    """The most tokens behind the places that a token reads, where they are groups or states."""
    content_dependent: bool | None = None
    """Are the weights computed from the input? None of operations that don't mix tokens."""
    reason: str | None = None
    """Why it is unknown."""
