"""The base of every mechanism and layer: a frozen struct whose fields are its YAML schema."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec

from xfcost.formulas.lettering import Units, grid_in_letters
from xfcost.formulas.letters import Letter
from xfcost.ledger.errors import ComponentError, divisors_text
from xfcost.ledger.grid import Grid
from xfcost.ledger.number import Number
from xfcost.ledger.operation import Operation
from xfcost.ledger.options import Logits

if TYPE_CHECKING:
    from typing_extensions import Self

# Bounds that catch typing errors (an absurd size is refused, not built) and leave every known model far inside.
Width = Annotated[int, msgspec.Meta(ge=1, le=2**20), Letter("d")]
Heads = Annotated[int, msgspec.Meta(ge=1, le=2**16), Letter("h")]
Side = Annotated[int, msgspec.Meta(ge=1, le=2**16)]
Length = Annotated[int, msgspec.Meta(ge=1, le=2**32)]
Rows = Annotated[int, msgspec.Meta(ge=1, le=2**31)]
Share = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


# What a normalisation can be; "none" leaves it out. `rows.norm` says what each costs.
NormKind = Literal["layer_norm", "rms_norm", "batch_norm", "group_norm", "affine", "none"]
# The activations that layers offer.
ActKind = Literal["gelu", "gelu_quick", "gelu_tanh", "relu", "silu"]


class Residual(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a sub-layer f joins the stream: `pre` x + f(norm(x)); `post` norm(x + f(x)); `res_post` x + norm(f(x)).

    `reversible` has two streams, copies of what enters the stage: y₁ = x₁ + f(norm(x₂)), y₂ = x₂ + g(norm(y₁)) for the
    two sub-layers f, g of a block (Gomez et al. 2017; Kitaev et al. 2020, §3). Training works x₁, x₂ out again from
    y₁, y₂ and keeps no activations. At the stage's end the streams are joined.
    """

    norm: NormKind = "layer_norm"
    """Norm of the residual branch; `none` leaves it out."""
    place: Literal["pre", "post", "res_post"] = "pre"
    """Where the norm stands: `pre` x + f(norm(x)), `post` norm(x + f(x)), `res_post` x + norm(f(x))."""
    form: Literal["ordinary", "reversible"] = "ordinary"
    """`ordinary`: one stream. `reversible`: two streams whose activations training recomputes (Gomez et al. 2017)."""
    join: Literal["concatenate", "mean"] | None = None
    """How two reversible streams end: `concatenate` (the default, 2d wide) or `mean`."""
    layer_scale: Annotated[float, msgspec.Meta(gt=0, le=1e6)] | None = None
    """Initial value of LayerScale's d learned factors of f(x) (Touvron et al. 2021, CaiT, §2); none by default."""
    factor: Annotated[float, msgspec.Meta(gt=0, le=1e6)] | None = None
    """Fixed factor of f(x): ½ in a Conformer's feed-forward networks (Gulati et al. 2020, §2.3); none by default."""


# "approximate": no later token is read, yet later tokens sway what is read (they are hashed, clustered, sorted too).
Causality = Literal["none", "exact", "approximate"]

# How a sub-layer joins the stream: f(x) alone where it is "none".
Joining = Residual | Literal["none"]


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a component stands in an architecture: what comes in, and the width that must come out."""

    grid: Grid
    dim: Number
    """Width d (channels of the image, entries of the vocabulary at a model's stem)."""
    out_dim: Number
    """Width that the stage is to have: what an embedding layer must bring, and what a sub-layer that widens brings."""
    memory: Grid | None = None
    """The tokens of the other stream (the encoder's output), for cross-attention; or of an earlier stage."""
    memory_dim: Number = None
    vocabulary: Number = None
    """Entries of the vocabulary; None for images."""
    fused: bool = False
    """Is attention executed as one fused kernel? An execution choice: same MACs, another memory."""
    logits: Logits = "all"
    """Of a head that predicts the next token: the positions whose logits it computes."""


class Component(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """A named thing in a spec. Subclasses are components; `kind`, their tag, is what YAML calls them."""

    binds_tables: ClassVar[bool] = False
    """Are the shapes of its shared tables bound to the input's size?"""

    memory_letter: ClassVar[str] = "N"
    """What its memory's tokens are in orders: those of an earlier stage, N, or of another stream."""

    token_wise: ClassVar[bool] = False
    """Is what it gives at a token of that token alone, so that one token more is work like any other?"""

    def entering(self, sides: tuple[int, ...]) -> tuple[int, ...]:
        """The grid that must come in for a grid of `sides` to go out; another at stems and stage transitions alone."""
        return sides

    def check(self, place: Place) -> None:
        """Raise ComponentError, naming the field, where the component can't stand at `place`."""

    def out(self, place: Place) -> tuple[Grid, Number]:
        """The grid and the width that come out; by default those that came in."""
        return place.grid, place.dim

    def operations(self, place: Place) -> Iterator[Operation]:
        """The closed-form rows of one sample, their path being the operation's own name, in the order they run."""
        raise NotImplementedError

    def decoding(self, place: Place) -> Iterator[Operation]:
        """The rows of one token more, the last of `place`'s grid, where all that it needs of those before is cached.

        Raises:
            ComponentError: it can't be worked out token by token.
        """
        if not self.token_wise:
            raise ComponentError(
                "kind", f"--mode decode: {tag_of(type(self))!r} is no step of a model that works token by token"
            )
        return self.operations(alone(place))

    def in_letters(self, place: Place) -> tuple[Self, Place]:
        """Itself and its place in letters, for orders: N tokens of width d, fields as they are annotated.

        A component whose letters are bound to each other (a grid of √N patches of side P) says so here.
        """
        units = Units()
        memory = None if place.memory is None else grid_in_letters(place.memory, self.memory_letter)
        widths = {"dim": units.number(place.dim, "d"), "out_dim": units.number(place.out_dim, "d")}
        widths |= {"memory_dim": units.number(place.memory_dim, "d"), "vocabulary": units.number(place.vocabulary, "V")}
        spot = msgspec.structs.replace(place, grid=grid_in_letters(place.grid), memory=memory, **widths)
        return units.struct(self), spot

    def tables(self, place: Place) -> dict[str, tuple[int, int]]:
        """Shared tables that the component uses: name -> (rows, columns)."""
        return {}

    def notes(self, place: Place) -> Iterator[str]:
        """Notes on the component at this place (padding, clipping, tables bound to the resolution)."""
        return iter(())


class SubLayer(Component, frozen=True):
    """A component that can stand in a block: by default residual, as its stage or spec says."""

    residual: Joining | None = None
    """How f(x) joins the residual stream, `none` being f(x) alone; by default as the stage or the spec says."""

    @property
    def reads_memory(self) -> bool:
        """Does it read the other stream's output too?"""
        return False

    @property
    def widens(self) -> bool:
        """Does it bring the width to its stage's, whatever comes in?"""
        return False

    @property
    def extra_alone(self) -> bool:
        """Does it change the extra tokens alone (a class token), while the grid's pass by as they are?"""
        return False

    def in_stream(self, *, decoder: bool) -> Self:
        """Itself, with what it leaves open (causality, say) taken from its stream."""
        return self

    def shortcut(self, place: Place) -> Iterator[Operation]:
        """What a residual does to x, so that f(x) can be added where f changes grid or width; nothing by default."""
        return iter(())


class Mixer(SubLayer, frozen=True):
    """A sub-layer that mixes tokens."""

    memory_letter: ClassVar[str] = "M"
    takes_state: ClassVar[bool] = False
    """Can it start from the last state of an encoder's layer?"""
    chooses: ClassVar[bool] = False
    """Does content decide which tokens are read (hashing, clusters, sorting)? `reads` then lists those that may be."""

    @property
    def causality(self) -> Causality:
        """Does a token's output depend on later tokens: at will, never, or only through what they sway?"""
        causal = getattr(self, "causal", None)
        return "approximate" if causal == "approximate" else "exact" if causal else "none"

    def label(self) -> str:
        """How the field names it, short (`W-MSA`)."""
        raise NotImplementedError

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        """The tokens that `token` reads: the truth for every other view.

        All of them, or, where it is causal, those up to itself; unless the component says otherwise.
        """
        return range(grid.total) if self.causality == "none" else range(token + 1)

    def decoding(self, place: Place) -> Iterator[Operation]:
        kind = tag_of(type(self))
        if self.causality == "none":
            raise ComponentError(
                "kind",
                f"--mode decode: {kind!r} reads later tokens here, so that one token more changes all before it and "
                "nothing can be cached; decode needs a causal model (a decoder, or causal: true)",
            )
        raise ComponentError(
            "kind",
            f"--mode decode: {kind!r} has no form that takes one token more; --mode generate tells what it costs "
            "without a cache",
        )

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        """Query-key pairs per head that the pattern allows, in closed form: the sum of len(reads) over all tokens."""
        n = grid.total
        return n * n if self.causality == "none" else n * (n + 1) // 2


class MultiHead(Mixer, frozen=True, kw_only=True):
    """A mixer with h heads of width d_k, projected from and to the stream."""

    heads: Heads
    """Number of attention heads h."""
    head_dim: Annotated[Width | None, Letter("dₖ")] = None
    """Width d_k of a head's queries and keys; d/h by default."""
    projection_bias: bool = True
    """Whether the query, key, value and output projections have biases."""

    def inner(self, width: Number) -> Number:
        """h·d_k, the width of all heads together."""
        return width if self.head_dim is None else self.heads * self.head_dim

    def check(self, place: Place) -> None:
        check_heads(self.heads, self.head_dim, place.dim)


def alone(place: Place) -> Place:
    """`place` where one token stands, and no other."""
    return msgspec.structs.replace(place, grid=Grid((1,)))


def check_heads(heads: int, head_dim: int | None, width: int) -> None:
    """Heads must divide the width, unless the head's own width is given."""
    if head_dim is None and width % heads:
        raise ComponentError("heads", f"{heads} does not divide the width {width}; it could be {divisors_text(width)}")


def check_extra(field: str, place: Place) -> None:
    """What changes the extra tokens alone needs one."""
    if not place.grid.extra:
        raise ComponentError(
            field, "there is no class token here; put {kind: class_token} into `embed` or `enter` before"
        )


def check_output(inner: Number, width: Number, *, projected: bool) -> None:
    """Without W_O, the heads together must be as wide as what comes out."""
    if not projected and inner != width:
        raise ComponentError(
            "output_projection",
            f"without it the heads together must be as wide as the output ({width}), and they are {inner} wide; "
            "leave `head_dim` or `output_projection` out",
        )


def tag_of(component: type[msgspec.Struct]) -> str:
    """The `kind` of a component (or of an input), as it is written in YAML."""
    config: Any = component.__struct_config__
    return str(config.tag)
