"""What a mechanism brings to the contract: examples and places to stand. Its slow reference: `references`."""

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, NamedTuple

import msgspec
from hypothesis import assume
from hypothesis import strategies as st
from torch import Tensor, nn

from xfcost.formulas.component import ComponentError, Mixer, Place
from xfcost.ledger.grid import Grid

DIM = 6
# The width of whole specs: 1, 2, 3, 4 and 6 heads divide it.
SPEC_DIM = 12
HEADS = st.sampled_from([1, 2, 3, 4, 6])

# One token, two, an odd prime, one row, oblong, prime square.
GRIDS: tuple[Grid, ...] = tuple(Grid(sides) for sides in [(1,), (2,), (5,), (1, 1), (1, 4), (3, 5), (7, 9), (13, 13)])
GRIDS_WITH_EXTRA: tuple[Grid, ...] = (Grid((1, 1), 1), Grid((3, 4), 1))
# Sequences alone, for mechanisms that see no grid: around the sizes of the examples' blocks.
SEQUENCES: tuple[Grid, ...] = tuple(Grid((n,)) for n in (1, 2, 5, 8, 13, 24))
ON_SEQUENCES: dict[str, Any] = {
    "grids": SEQUENCES, "sides": st.integers(1, 60).map(lambda n: (n,)), "fused": False,
}  # fmt: skip
VOLUME = Grid((2, 3, 4))
MEMORY = Grid((7,))


Letters = dict[str, Any]


def ceil_div(number: int, divisor: int) -> int:
    """⌈number/divisor⌉."""
    return -(-number // divisor)


def whole(number: int, part: int) -> int:
    """The least multiple of `part` that is no less than `number`."""
    return ceil_div(number, part) * part


def hidden_units(component: Any, width: int) -> int:
    """H: as given, or `ratio`·d, or 8d/3 of gated units."""
    return component.hidden or (round(component.ratio * width) if hasattr(component, "ratio") else 8 * width // 3)


def of_hidden(component: Any, place: Place) -> Letters:
    return {"H": hidden_units(component, place.dim), "β": int(getattr(component, "bias", True))}


def kernel_of_grid(component: Any, place: Place) -> Letters:
    letters = {"W": component.size, "r": len(place.grid.sides)}
    if isinstance(heads := getattr(component, "heads", None), int):
        letters["d_k"] = getattr(component, "head_dim", None) or place.dim // heads
    return letters


def doubled(*sides: int) -> tuple[Grid, Grid]:
    """A grid, and one whose first side is twice as long."""
    return Grid(sides), Grid((2 * sides[0], *sides[1:]))


def strided(component: Any, place: Place) -> int:
    """How many tokens leave."""
    return prod(ceil_div(side, component.stride) for side in place.grid.sides)


def local_relation(component: Any, place: Place) -> Letters:
    groups = ceil_div(place.dim, component.share)
    return {
        "r": len(place.grid.sides),
        "W": component.size,
        "N'": strided(component, place),
        "g": groups,
        "m": component.share,
        "u": max(1, groups // 2),
        "P": prod(side + component.size - 1 for side in place.grid.sides),
    }


def _values(field: msgspec.structs.FieldInfo) -> st.SearchStrategy[Any]:
    """Values of its type: small numbers, heads that divide `SPEC_DIM`."""
    if field.name == "heads":
        return HEADS
    info = msgspec.inspect.type_info(field.type)
    of_type: dict[type, Callable[[Any], st.SearchStrategy[Any]]] = {
        msgspec.inspect.NoneType: lambda _: st.none(),
        msgspec.inspect.BoolType: lambda _: st.booleans(),
        msgspec.inspect.IntType: lambda one: st.integers(1 if one.ge is None else one.ge, 9),
        msgspec.inspect.FloatType: lambda one: st.sampled_from([0.25 + (one.ge or 0), 0.5 + (one.ge or 0)]),
        msgspec.inspect.StrType: lambda _: st.just("table"),
        msgspec.inspect.LiteralType: lambda one: st.sampled_from(one.values),
    }
    return st.one_of(of_type[type(one)](one) for one in getattr(info, "types", (info,)))


# Stands for `any_of` the mechanism.
BY_TYPE: st.SearchStrategy[Any] = st.nothing()


@st.composite
def any_of(draw: st.DrawFn, kind: type[Mixer], on: Grid = SEQUENCES[2], **own: st.SearchStrategy[Any]) -> Any:
    """Any configuration, by the types of its fields or `own` values; one refused on the grid takes its default."""
    fields = [one for one in msgspec.structs.fields(kind) if one.name != "residual"]
    component = kind(**{one.name: draw(own[one.name] if one.name in own else _values(one)) for one in fields})
    defaults = {one.name: one.default for one in fields if not one.required}
    while True:
        try:
            component.check(Place(grid=on, dim=SPEC_DIM, out_dim=SPEC_DIM, memory=MEMORY, memory_dim=SPEC_DIM))
        except ComponentError as refused:
            assume(getattr(component, refused.field) != defaults.get(refused.field, getattr(component, refused.field)))
            component = msgspec.structs.replace(component, **{refused.field: defaults[refused.field]})
        else:
            return component


class Frozen(NamedTuple):
    """A torch_module whose choice (buckets, clusters, a sorting) is held as one input made it, and what was chosen."""

    module: nn.Module
    reads: tuple[frozenset[int], ...]
    """For every output token, the tokens that it then reads, found by plain means."""
    lists: int = 1
    """Most lists (clusters, say) that one head of a token reads at once: each as long as the component's rows say."""


class Rows(NamedTuple):
    """Where its rows are held against their leaves; `Component.observed` tells what the leaves show otherwise."""

    grids: Callable[[Any], tuple[Grid, Grid]] | None = None
    """Two grids, the second larger, where its pattern has room; those of `growth` by default."""
    dim: int | None = None
    """Their width, where that of the case is also the length of another axis: a chunk's, say."""
    own_parts: frozenset[str] = frozenset()
    """Rows that put several parts of a token together, each its own: what every list that it is in gave it; or that
    merge disjoint groups, which become new tokens."""


# Sequences in chunks of `chunk` tokens, at a width that is the length of no chunk.
IN_CHUNKS: dict[str, Any] = ON_SEQUENCES | {
    "rows": Rows(dim=36, grids=lambda component: doubled(3 * (component.chunk or 4))),
    "growth": lambda component: doubled(component.chunk or 6),
}


class Theirs(NamedTuple):
    """Somebody else's class, set up as a component is."""

    module: nn.Module
    """(B, N, D) -> (B, N, D), or a tuple that begins with it."""
    weights: Callable[[Any], Mapping[str, Tensor]] = lambda module: {}
    """Of the module: our parameters by name, where it does not call them alike."""
    macs: int | None = None
    """MACs of a sample that torch's own counter sees in it, where they are not ours."""


class MechanismCase(NamedTuple):
    """One mechanism under the contract."""

    examples: tuple[Mixer, ...]
    """Small configurations of it, heads dividing `DIM` or with a head_dim; every option once."""
    components: st.SearchStrategy[Any] = BY_TYPE
    """Any configuration whose heads divide `SPEC_DIM`, for YAML and for pairs in closed form."""
    letters: Callable[[Any, Place], Letters] = lambda component, place: {}
    """The letters of its docstring and of `reads` that the place and heads do not define, in plain arithmetic."""
    letters_of_reads: Callable[[Any, Place], Letters] = lambda component, place: {}
    """Those that stand for something else in `reads`."""
    flags: Mapping[str, str] = {}
    """The rows whose cost each field changes (or several, beside each other), where others' do not: `flags.yaml`."""
    cached: tuple[tuple[Mixer, int, int], ...] = ()
    """Where it has a decode step: an example, the numbers that a token adds to its cache, and those of a fixed size."""
    followed_otherwise: Callable[[Any], set[str]] = lambda component: set()
    """Rows of a decode step that a run which is followed shows otherwise."""
    growth: Callable[[Any], tuple[Grid, Grid]] = lambda component: doubled(6)
    """Two grids on which nothing is padded or clipped, the second with one side (or all) doubled."""
    grids: tuple[Grid, ...] = (*GRIDS, *GRIDS_WITH_EXTRA)
    """Where the contract is tried, awkward ones among them; all the examples must be able to stand there."""
    sides: st.SearchStrategy[Any] = st.lists(st.integers(1, 12), min_size=1, max_size=3).map(tuple)
    """Any grid that `components` can stand on."""
    fused: bool = True
    """Does fused execution change its rows?"""
    memory: bool = False
    """Does it read another stream, or can it?"""
    image: bool = False
    """Does it want a 2-D grid in a whole spec?"""
    symbolic: int = 0
    """So many of the first examples keep symbolic shapes as modules: torch's counter then gives their form in N."""
    length: int = 5
    """Tokens of the whole spec around it."""
    class_token: bool = False
    """Does it want a class token in a whole spec?"""
    dim: int = DIM
    """Width of its places; wide where maxima are taken, so that every token is the largest in some channel."""
    per_token: bool = True
    """Is it projected token by token, at least what goes in and what comes out?"""
    missed_by_torch: Callable[[Any, Place], int] = lambda component, place: 0
    """MACs of a sample that torch's own counter does not count, as those of a triangular system."""
    theirs: Callable[[Any, Place], Theirs] | None = None
    """A class of transformers, say, that computes the same; imported inside, so that it may be missing."""
    contracts: bool = True
    """Has it products to count as MACs? A pool has none, and FLOPs alone."""
    out_dim: Callable[[Any], int] | None = None
    """Width of the stage it stands in, where that may be another one because it widens."""
    channels_first: Callable[[str], bool] = lambda leaf: False
    """Which leaves, by name, hold channels before the grid's axes, as convolutions do?"""
    rounding: float = 0.0
    """Part of the largest number up to which a difference is rounding (an FFT's over all tokens), and no reading."""
    drawn: Callable[[Any, Place], dict[str, Any]] = lambda component, place: {}
    """What the component draws at random for a place: a reference is told the outcome, not how it is drawn."""
    rows: Rows = Rows()
    """What is needed to hold its rows against its leaves."""
    frozen: Callable[[nn.Module, tuple[Tensor, ...]], Frozen] | None = None
    """(torch_module, inputs) -> its choice held; needed where the component `content_selects_tokens`."""


class Case(NamedTuple):
    """A component at a place."""

    component: Mixer
    place: Place

    def __str__(self) -> str:
        """A test's name."""
        options = [f"{key}={value}" for key, value in msgspec.to_builtins(self.component).items() if value is not None]
        grid = "x".join(map(str, self.place.grid.sides)) + (
            f"+{self.place.grid.special}" if self.place.grid.special else ""
        )
        return "-".join([*options, grid, "fused" if self.place.fused else "eager"])
