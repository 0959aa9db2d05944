"""What the contract is tried on: grids that are awkward, and small configurations of every page that mixes tokens.

A new mechanism joins by an entry in `EXAMPLES` and one in `GROWTH`; `test_every_mechanism` fails where one is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import yaml
from hypothesis import strategies as st

from xfcost.grid import Grid
from xfcost.mechanisms import MECHANISMS, Cross, Full, Window
from xfcost.mechanisms.base import Mixer, Place, SubLayer

DIM = 6

# One token, two, an odd prime, one row, oblong, prime square, and with a class token where windows don't forbid it.
GRIDS: tuple[Grid, ...] = tuple(Grid(sides) for sides in [(1,), (2,), (5,), (1, 1), (1, 4), (3, 5), (7, 9), (13, 13)])
GRIDS_WITH_EXTRA: tuple[Grid, ...] = (Grid((1, 1), 1), Grid((3, 4), 1))
VOLUME = Grid((2, 3, 4))
MEMORY = Grid((7,))

EXAMPLES: dict[type[Mixer], tuple[Mixer, ...]] = {
    Full: (
        Full(heads=2),
        Full(heads=3, causal=True),
        Full(heads=1, head_dim=5, projection_bias=False),
    ),
    Cross: (
        Cross(heads=2),
        Cross(heads=3, head_dim=4, projection_bias=False),
    ),
    Window: (
        Window(heads=2, size=3),
        Window(heads=3, size=4, shift=1, bias="none"),
        Window(heads=2, size=7, shift=3),
        Window(heads=1, size=2, shift=1, projection_bias=False),
    ),
}

# Two grids, the second the first with one side doubled, on which a page's cost grows as its order says: nothing is
# padded or clipped on either.
GROWTH: dict[type[Mixer], Any] = {
    Full: lambda page: (Grid((6,)), Grid((12,))),
    Cross: lambda page: (Grid((6,)), Grid((12,))),
    Window: lambda page: (Grid((2 * page.size, page.size)), Grid((4 * page.size, page.size))),
}


class Case(NamedTuple):
    """A page at a place."""

    page: Mixer
    place: Place

    def __str__(self) -> str:
        """A test's name."""
        options = [f"{key}={value}" for key, value in msgspec.to_builtins(self.page).items() if value is not None]
        grid = "x".join(map(str, self.place.grid.sides)) + (
            f"+{self.place.grid.extra}" if self.place.grid.extra else ""
        )
        return "-".join([*options, grid, "fused" if self.place.fused else "eager"])


def place_for(page: SubLayer, grid: Grid, *, fused: bool = False, dim: int = DIM) -> Place:
    """A place for `page`: only a cross-attention is given a memory, of another width."""
    memory = {"memory": MEMORY, "memory_dim": dim + 2} if isinstance(page, Cross) else {}
    return Place(grid=grid, dim=dim, out_dim=dim, fused=fused, **memory)


def grids_for(page: Mixer) -> tuple[Grid, ...]:
    """Where `page` can stand."""
    return (*GRIDS, VOLUME) if isinstance(page, Window) else (*GRIDS, *GRIDS_WITH_EXTRA)


def cases(*, fused: tuple[bool, ...] = (False, True)) -> Iterator[Case]:
    """Every example of every mechanism on every grid."""
    for mechanism in MECHANISMS:
        for page in EXAMPLES.get(mechanism, ()):
            for grid in grids_for(page):
                for way in fused:
                    yield Case(page, place_for(page, grid, fused=way))


# Widths that 1, 2, 3, 4 and 6 heads divide.
HEADS = st.sampled_from([1, 2, 3, 4, 6])
SPEC_DIM = 12


@st.composite
def _windows(draw: st.DrawFn) -> Window:
    size = draw(st.integers(1, 9))
    return Window(
        heads=draw(HEADS),
        size=size,
        shift=draw(st.integers(0, size - 1)),
        bias=draw(st.sampled_from(["relative", "none"])),
        projection_bias=draw(st.booleans()),
    )


PAGES: dict[type[Mixer], st.SearchStrategy[Mixer]] = {
    Full: st.builds(
        Full,
        heads=HEADS,
        head_dim=st.none() | st.integers(1, 64),
        causal=st.none() | st.booleans(),
        projection_bias=st.booleans(),
    ),
    Cross: st.builds(Cross, heads=HEADS, head_dim=st.none() | st.integers(1, 64), projection_bias=st.booleans()),
    Window: _windows(),
}
SIDES = st.lists(st.integers(1, 12), min_size=1, max_size=3).map(tuple)


def spec_of(page: Mixer) -> dict[str, Any]:
    """A whole spec around `page`, as plain data: of two streams where the page needs a memory."""
    sides = [10] * 2 if isinstance(page, Window) else None
    entry = {"kind": "image", "size": sides} if sides else {"kind": "tokens", "vocabulary": 11, "length": 5}
    embed = [{"kind": "patch", "size": 1} if sides else {"kind": "token"}]
    spec: dict[str, Any] = {"name": f"one {type(page).__name__}", "input": entry}
    around = {"embed": embed, "stages": [{"dim": SPEC_DIM, "depth": 2, "block": [msgspec.to_builtins(page)]}]}
    if not isinstance(page, Cross):
        return spec | around
    before = {"embed": embed, "stages": [{"dim": SPEC_DIM, "depth": 1, "block": [{"kind": "mlp"}]}]}
    return spec | {"encoder": before, "decoder": around}


def as_yaml(data: dict[str, Any]) -> str:
    """One key per line, in the order of `data`, without aliases."""

    class Plain(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    return yaml.dump(data, Dumper=Plain, sort_keys=False, allow_unicode=True)
