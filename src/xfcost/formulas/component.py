"""Base classes of mechanisms and layers: frozen structs whose fields are the YAML schema.

A kind's file imports from here what every kind is written in: its base, the types of its fields, grids, numbers, rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar

import msgspec

from xfcost.formulas.letters import Letter, Units, grid_in_letters
from xfcost.ledger.errors import ComponentError, divisors_text
from xfcost.ledger.execution import Logits
from xfcost.ledger.grid import Grid
from xfcost.ledger.lora import Lora
from xfcost.ledger.operation import Operation
from xfcost.ledger.parallelism import HeadSharing
from xfcost.ledger.tensors import Type
from xfcost.ledger.units import Number

if TYPE_CHECKING:
    from typing_extensions import Self

    from xfcost.formulas.conv_kernel import ConvKernel
    from xfcost.program.operations import Operations
    from xfcost.program.symbolic import Shape, Tensor


# Notes ───────────────────────────────────────────────────────────────────────────────────────────────────────────────


def merging_note(rows: Sequence[str]) -> str:
    """The note on products over flattened tokens, by the names of their rows."""
    first, *others = rows
    more = f" and {len(others)} more" if others else ""
    return (
        f"all tokens are merged into one vector, a new token, in {first}{more}: per-token, though it depends on all of "
        "them"
    )


# Notes that are of a kind which reports must know ────────────────────────────────────────────────────────────────────


class PaddingNote(str):
    """A note that tokens are padded to whole windows, blocks or chunks: costs then grow in steps."""

    __slots__ = ()


class CroppingNote(str):
    """A note that the last tokens go into no patch or kernel: costs then grow in steps."""

    __slots__ = ()


# Whose tokens the outputs of a component depend on, as it says itself ────────────────────────────────────────────────


# Number of an output token -> the numbers of the tokens that it reads.
Reads = Callable[[int], Sequence[int]]
# Axes -> outputs along the axis -> the places that each reads.
Product = Sequence[Sequence[Sequence[int]]]


def itself(token: int) -> Sequence[int]:
    """The token alone."""
    return (token,)


class Sources(NamedTuple):
    """What every output token of a component reads, beside what its residual connection hands on."""

    own: Reads = itself
    """Of the tokens that come in."""
    memory: Reads | None = None
    """Of the place's `memory`; None: nothing."""
    whole: bool = False
    """Does every output read all tokens that come in?"""
    kernel: ConvKernel | None = None
    """Instead of `own`: a kernel along every axis."""
    products: Sequence[Product] = ()
    """What `own` reads of the grid, as products whose union it is; all special tokens are read too."""
    shortcut: ConvKernel | None = None
    """The pool of the residual connection, where `products` are given; None: each token as it is."""


__all__ = [
    "ActKind", "Causality", "Component", "ComponentError", "Grid", "Heads", "Joining", "Length", "Letter", "Mixer",
    "MultiHead", "NormKind", "Number", "Observed", "Operation", "Place", "Residual", "Rows", "Share", "Side", "Sources",
    "SubLayer", "Width", "behind", "check_class_token", "check_divides", "check_heads", "check_no_special_tokens",
    "check_odd", "check_output", "divisors_text", "single_token", "tag_of",
]  # fmt: skip

# Bounds that refuse typing errors; published models are far below them.
Width = Annotated[int, msgspec.Meta(ge=1, le=2**20), Letter("d")]
Heads = Annotated[int, msgspec.Meta(ge=1, le=2**16), Letter("h")]
Side = Annotated[int, msgspec.Meta(ge=1, le=2**16)]
Length = Annotated[int, msgspec.Meta(ge=1, le=2**32)]
Rows = Annotated[int, msgspec.Meta(ge=1, le=2**31)]
Share = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


# Norms; "none" leaves the norm out. `rows.norm` has their costs.
NormKind = Literal["layer_norm", "rms_norm", "batch_norm", "group_norm", "affine", "none"]
# Activation functions of layers.
ActKind = Literal["gelu", "gelu_quick", "gelu_tanh", "relu", "relu6", "silu"]


class Residual(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Residual connection of a sub-layer f: `pre` x + f(norm(x)); `post` norm(x + f(x)); `res_post` x + norm(f(x)).

    `reversible` has two residual streams, copies of the stage's input: y₁ = x₁ + f(norm(x₂)), y₂ = x₂ + g(norm(y₁)) for
    the two sub-layers f, g of a block (Gomez et al. 2017; Kitaev et al. 2020, §3). The backward pass recomputes x₁, x₂
    from y₁, y₂; no activations are saved. At the stage's end the streams are joined.
    """

    norm: NormKind = "layer_norm"
    """Norm of the residual branch; `none` leaves it out."""
    place: Literal["pre", "post", "res_post"] = "pre"
    """Place of the norm: `pre` x + f(norm(x)), `post` norm(x + f(x)), `res_post` x + norm(f(x))."""
    form: Literal["ordinary", "reversible"] = "ordinary"
    """`ordinary`: one stream. `reversible`: two streams whose activations training recomputes (Gomez et al. 2017)."""
    join: Literal["concatenate", "mean"] | None = None
    """How two reversible streams end: `concatenate` (the default, 2d wide) or `mean`."""
    layer_scale: Annotated[float, msgspec.Meta(gt=0, le=1e6)] | None = None
    """Initial value of LayerScale's d learned factors of f(x) (Touvron et al. 2021, CaiT, §2); none by default."""
    factor: Annotated[float, msgspec.Meta(gt=0, le=1e6)] | None = None
    """Fixed factor of f(x): ½ in a Conformer's feed-forward networks (Gulati et al. 2020, §2.3); none by default."""


# "approximate": no later token is read, yet later tokens change which tokens are read (hashing, clustering, sorting).
Causality = Literal["none", "exact", "approximate"]

# Residual connection of a sub-layer; "none": only f(x).
Joining = Residual | Literal["none"]


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A component's place in an architecture: its input's grid and width, and the stage's width."""

    grid: Grid
    dim: Number
    """Input width d (at the stem the image's channels)."""
    out_dim: Number
    """Width of the stage: the output width of its embedding layers and of sub-layers that change the width."""
    memory: Grid | None = None
    """Grid of the encoder's output (cross-attention), or of an earlier stage's output (skip connections)."""
    memory_dim: Number = None
    memory_letter: Literal["M", "N"] = "M"
    """The memory's tokens in orders: M of the other stream, N of an earlier stage."""
    vocabulary: Number = None
    """Entries of the vocabulary; None for images."""
    fused: bool = False
    """Is attention executed as one fused kernel? Same MACs, less memory."""
    logits: Logits = "all"
    """Positions whose logits a language-model head computes."""
    lora: Lora | None = None
    """The adapters of its linear maps, whose own weights are frozen, as are all others; None where all are trained."""


class Observed(NamedTuple):
    """What the running module shows otherwise than the rows declare it; rows by their own names."""

    unread: Mapping[str, int] = {}
    """Rows of whose tokens some are never read at this place: across the border of a chunk, in other hashing rounds."""
    at_most: frozenset[str] = frozenset()
    """Rows whose number of tokens is the most that content, or where the token lies, lets them read."""
    left_out: Mapping[str, str] = {}
    """Rows that can't be held against their leaf, each with the reason."""
    paired: bool = False
    """Are the tokens of the memory those of the stream, one for one?"""
    whole: int = 1
    """Sides of a grid that are multiples of it are not padded."""
    rounding: float = 0.0
    """Part of the largest number up to which a difference is rounding (an FFT's over all tokens), and no reading."""
    letters: Mapping[str, str] = {}
    """Letters in the text of the tokens read -> those that the fields behind them have."""


class Component(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """A mechanism or layer of a spec, a program that every machine runs; its tag is the `kind` in YAML."""

    titles: ClassVar[Mapping[str, str]] = {}
    """Titles of leaves by name, where these differ from `program/titles.py`."""
    entering_type: ClassVar[Type] = "model"
    """The type of what comes in."""
    token_wise: ClassVar[bool] = False
    """Does its output at a token depend on that token alone, so that a decode step runs it on one token?"""
    decodes: ClassVar[bool] = False
    """Has its program a decode step, with what earlier tokens left?"""
    continues: ClassVar[bool] = False
    """Can its program run on the tokens behind a cached prefix, with what that left?"""
    binds_tables: ClassVar[bool] = False
    """Do the shapes of its shared tables depend on the input's size?"""
    takes_state: ClassVar[bool] = False
    """Can it start from the last state of an encoder layer?"""
    only_norm: ClassVar[bool] = False
    """Is it a norm of the stream, so that it alone is no block?"""
    feed_forward: ClassVar[bool] = False
    """Is it the feed-forward network of a block, or experts that are?"""

    @property
    def reads_memory(self) -> bool:
        """Does it read the encoder's output too?"""
        return False

    @property
    def reads_stage(self) -> int | None:
        """Number of the earlier stage (1 is the first) whose output it reads, its place's `memory`."""
        return None

    @property
    def special_tokens_only(self) -> bool:
        """Does it update only the special tokens (class attention), and pass the grid's tokens through?"""
        return False

    @property
    def tokens_compete(self) -> bool:
        """Can a token be dropped because others fill the room that it would take (experts with a capacity)?"""
        return False

    def forward(self, t: Operations, x: Tensor, place: Place, *others: Any, **options: Any) -> Any:
        """(B, N, D) -> (B, N', D'); behind the place the encoder's output (B, M, E), where it is read."""
        raise NotImplementedError

    def entering(self, place: Place) -> Shape:
        """The shape of a sample that comes in."""
        return place.grid.total, place.dim

    def input_sides(self, sides: tuple[int, ...]) -> tuple[int, ...]:
        """Sides of the input grid that give an output grid of `sides`; they differ at stems and stage transitions."""
        return sides

    def check(self, place: Place) -> None:
        """Raise ComponentError, naming the field, where the component does not fit `place`."""

    def out(self, place: Place) -> tuple[Grid, Number]:
        """Output grid and width; by default those of the input."""
        return place.grid, place.dim

    def sources(self, place: Place) -> Sources:
        """The tokens that its outputs read; by default each its own."""
        return Sources()

    def check_decodes(self, place: Place) -> None:
        """Raise ComponentError where it has no decode step of the last token of `place`'s grid."""
        if not (self.token_wise or self.decodes):
            raise ComponentError("kind", f"--mode decode: {tag_of(type(self))!r} can't run token by token")
        if getattr(self, "norm", None) == "group_norm":
            raise ComponentError("norm", "--mode decode: a group norm averages over all tokens, later ones too")

    def check_continues(self, place: Place) -> None:
        """Raise ComponentError where it can't run on the tokens behind a cached prefix of `place`'s sequence."""
        try:
            self.check_decodes(place)
        except ComponentError as error:
            raise ComponentError(error.field, error.message.replace("--mode decode", "--cached-prefix")) from None
        if not (self.token_wise or self.continues):
            reason = f"--cached-prefix: {tag_of(type(self))!r} is counted over whole prompts only; leave it out"
            raise ComponentError("kind", reason)

    @property
    def has_windows(self) -> bool:
        """Is W, in its letters, the side of a window? Else it is that of a kernel."""
        return False

    def in_letters(self, place: Place) -> tuple[Self, Place]:
        """The component and its place in letters, for orders: N tokens of width d, fields as annotated.

        Overridden where letters depend on each other (a grid of √N patches of side P).
        """
        units = Units()
        memory = None if place.memory is None else grid_in_letters(place.memory, place.memory_letter)
        widths = {"dim": units.number(place.dim, "d"), "out_dim": units.number(place.out_dim, "d")}
        widths |= {"memory_dim": units.number(place.memory_dim, "d"), "vocabulary": units.number(place.vocabulary, "V")}
        lettered_place = msgspec.structs.replace(place, grid=grid_in_letters(place.grid), memory=memory, **widths)
        return units.struct(self), lettered_place

    def tables(self, place: Place) -> dict[str, tuple[int, int]]:
        """Shapes of the shared tables that it uses: name -> (rows, columns)."""
        return {}

    def observed(self, place: Place) -> Observed:
        """What a run shows otherwise than the rows declare it; by default nothing."""
        return Observed()

    def notes(self, place: Place) -> Iterator[str]:
        """Notes for the report: padding, clipping, tables whose shape depends on the resolution."""
        return iter(())


class SubLayer(Component, frozen=True):
    """A component of a block, with the residual connection of its stage or spec by default."""

    residual: Joining | None = None
    """How f(x) joins the residual stream; `none` is only f(x). The default is that of the stage or the spec."""

    @property
    def widens(self) -> bool:
        """Is its output as wide as its stage, whatever the input's width?"""
        return False

    def out(self, place: Place) -> tuple[Grid, Number]:
        return place.grid, place.out_dim if self.widens else place.dim

    def with_stream_defaults(self, *, decoder: bool) -> Self:
        """The component with options that depend on its stream filled in: a decoder's mixers are causal by default."""
        return self

    def skip(self, t: Operations, given: Any, x: Any, place: Place) -> Any:
        """What f(x) is added to, x itself where it has its shape; `given` is what f reads, x or its norm."""
        return x


class Mixer(SubLayer, frozen=True):
    """A sub-layer that mixes tokens."""

    content_selects_tokens: ClassVar[bool] = False
    """Does content select the tokens that are read (hashing, clusters, sorting)? `reads` then lists the candidates."""
    short_name: ClassVar[str]
    """Its short name in the literature (`Token-mixing MLP`), whatever its options."""

    @property
    def causality(self) -> Causality:
        """`none`: a token reads later tokens; `exact`: its output never depends on them."""
        causal = getattr(self, "causal", None)
        return "approximate" if causal == "approximate" else "exact" if causal else "none"

    def with_stream_defaults(self, *, decoder: bool) -> Self:
        return msgspec.structs.replace(self, causal=decoder) if getattr(self, "causal", False) is None else self

    def head_sharing(self, place: Place) -> HeadSharing | None:
        """What several devices that divide its heads must know; None where it has none."""
        heads = getattr(self, "heads", None)
        return HeadSharing(heads, heads) if isinstance(heads, int) else None

    def label(self) -> str:
        """Short name in the literature (`W-MSA`); overridden where options change it."""
        return self.short_name

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        """The tokens that `token` reads; by default all, or causal, those up to itself."""
        return range(grid.total) if self.causality == "none" else range(token + 1)

    def sources(self, place: Place) -> Sources:
        grid, memory = place.grid, place.memory
        if self.reads_memory and memory is not None:
            return Sources(memory=lambda token: self.reads(grid, token, memory))
        updated = grid.special if self.special_tokens_only else grid.total
        whole = self.pairs(grid) == grid.total * self.out(place)[0].total
        return Sources(lambda token: self.reads(grid, token) if token < updated else (token,), whole=whole)

    def check_decodes(self, place: Place) -> None:
        kind = tag_of(type(self))
        if self.causality == "none":
            raise ComponentError(
                "kind",
                f"--mode decode: {kind!r} reads later tokens, so nothing can be cached; "
                "decode needs a causal model (a decoder, or causal: true)",
            )
        if not self.decodes:
            reason = f"--mode decode: {kind!r} has no decode step; --mode generate counts it without a cache"
            raise ComponentError("kind", reason)

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        """Query-key pairs per head, in closed form: Σ len(reads) over all tokens."""
        n = grid.total
        return n * n if self.causality == "none" else n * (n + 1) // 2

    def pairs_behind(self, cached: int, grid: Grid) -> Number:
        """The same of the tokens of `grid` behind `cached` ones, whose pairs no later token changes."""
        if not cached:
            return self.pairs(grid)
        return self.pairs(Grid((cached + grid.total,))) - self.pairs(Grid((cached,)))


class MultiHead(Mixer, frozen=True, kw_only=True):
    """A mixer with h heads of width d_k.

    Where its projections are of these names, and it says nothing else:

        qkv      (d + β)·3h·d_k parameters, where there is one map
        q, k, v  (d + β)·h·d_k parameters each, where there are several
        kv       (d + β)·2h·d_k parameters, where there are two
        out      (h·d_k + β)·d parameters, where there is an output projection

    β is 1 where there is a `projection_bias`, else 0.
    """

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


def single_token(place: Place) -> Place:
    """`place` with a grid of one token."""
    return msgspec.structs.replace(place, grid=Grid((1,)))


def behind(place: Place, cached: int) -> Place:
    """`place` with the tokens of its sequence behind the first `cached` ones."""
    return msgspec.structs.replace(place, grid=Grid((place.grid.total - cached,))) if cached else place


def check_heads(heads: int, head_dim: int | None, width: int) -> None:
    """Raise ComponentError where the heads do not divide the width and no head width is given."""
    if head_dim is None:
        check_divides("heads", heads, width, f"the width {width}")


def check_divides(field: str, divisor: int, number: int, name: str) -> None:
    """Raise ComponentError where `divisor` does not divide `number`, in words `name`."""
    if number % divisor:
        raise ComponentError(field, f"{divisor} does not divide {name}; it could be {divisors_text(number)}")


def check_odd(field: str, size: int, reason: str = "the kernel is centred", *, otherwise: str = "") -> None:
    """Raise ComponentError where `size` is even."""
    if size % 2 == 0:
        raise ComponentError(field, f"{size} is even, and {reason}; try {size - 1} or {size + 1}{otherwise}")


def check_class_token(field: str, place: Place) -> None:
    """Raise ComponentError where there is no class token."""
    if not place.grid.special:
        raise ComponentError(field, "there is no class token; add {kind: class_token} to `embed` or `enter` before it")


def check_no_special_tokens(grid: Grid, reason: str, *, field: str = "kind", hint: str = "; leave them out") -> None:
    """Raise ComponentError where special tokens ([CLS], global tokens) come with the grid."""
    if grid.special:
        raise ComponentError(field, f"{reason}: expected no special tokens, got {grid.special}{hint}")


def check_output(inner: Number, width: Number, *, projected: bool) -> None:
    """Raise ComponentError where there is no W_O and the heads together are not as wide as the output."""
    if not projected and inner != width:
        raise ComponentError(
            "output_projection",
            f"without it the heads together must have the output's width {width}, and they have {inner}; "
            "leave `head_dim` or `output_projection` out",
        )


def tag_of(component: type[msgspec.Struct]) -> str:
    """The `kind` of a component or an input in YAML."""
    config: Any = component.__struct_config__
    return str(config.tag)


# The bases of layers: embedding layers, stage transitions, heads, and sub-layers that mix no tokens ──────────────────


Takes = Literal["image", "video", "tokens", "embedded"]


class Embed(Component, frozen=True):
    """An embedding layer, a step of `embed:`: pixels or token ids become tokens of width d."""

    takes: ClassVar[tuple[Takes, ...]] = ("embedded",)
    """Inputs that it accepts: the model's input as the first step, or `embedded`, tokens of width d."""
    axes: ClassVar[int] = 1
    """Axes of its output grid, where its input is a sequence."""
    distillation: ClassVar[bool] = False
    """Does it add a distillation token?"""
    folds: ClassVar[bool] = False
    """Does it fold the grid's last axis into the width? N then counts along the other axes."""


class Enter(Component, frozen=True):
    """A stage transition, a step of `enter:`, which may change the grid and the width."""

    pools: ClassVar[bool] = False
    """Is its number of output tokens fixed? At the first stage, N then counts its input tokens."""


class Head(Component, frozen=True):
    """A head (`head:`)."""

    predicts_next: ClassVar[bool] = False
    """Do its logits predict the next token, so that a prompt needs only those of its last position?"""
    scores_vocabulary: ClassVar[bool] = False
    """Are its outputs logits over the vocabulary of the input's tokens?"""

    @property
    def distilled(self) -> bool:
        """Does it have a second classifier, trained by distillation?"""
        return False

    def without_extra_tokens(self) -> Head:
        """The head without special tokens, to compare only on the grid."""
        return self


class PerToken(SubLayer, frozen=True):
    """A sub-layer whose output at a token depends on that token alone."""

    token_wise: ClassVar[bool] = True


# The hidden width of a feed-forward network: `hidden`, or `ratio` times the input width ──────────────────────────────


Ratio = Annotated[float, msgspec.Meta(gt=0, le=1024)]


class HiddenUnits(SubLayer, frozen=True, kw_only=True):
    """A sub-layer with H hidden units."""

    if TYPE_CHECKING:
        ratio: float
        hidden: int | None

    def inner(self, width: Number) -> Number:
        """H: `hidden`, else ratio·width in decimal arithmetic: 1.1 is eleven tenths, not the nearest float.

        An int where the product is whole.
        """
        if self.hidden is not None:
            return self.hidden
        integer = int(self.ratio)
        if integer == self.ratio:
            return integer * width
        from fractions import Fraction

        exact = Fraction(str(self.ratio))
        product = exact.numerator * width
        return product / exact.denominator if product % exact.denominator else product // exact.denominator

    def check(self, place: Place) -> None:
        super().check(place)
        inner = self.inner(place.dim)
        if not (isinstance(inner, int) and inner > 0):
            raise ComponentError("ratio", f"{self.ratio}·{place.dim} is not a whole width; give `hidden` instead")


# Written lists of kinds; the file of a kind is imported when the kind is looked up ───────────────────────────────────


ComponentT = TypeVar("ComponentT", bound=Component)


class Kinds(Mapping[str, type[ComponentT]]):
    """Kind -> class, in the order of the list: `names` are "file:class" of kinds, the files in `package`."""

    def __init__(self, package: str, names: Mapping[str, str]) -> None:
        self.package, self.names = package, dict(names)
        self._loaded: dict[str, type[ComponentT]] = {}

    def __getitem__(self, kind: str) -> type[ComponentT]:
        if kind not in self._loaded:
            file, _, name = self.names[kind].partition(":")
            self._loaded[kind] = getattr(import_module(f"{self.package}.{file}"), name)
        return self._loaded[kind]

    def __contains__(self, kind: object) -> bool:
        return kind in self.names

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def some(self, *kinds: str) -> dict[str, str]:
        """The lines of `kinds`, for another list."""
        return {kind: self.names[kind] for kind in kinds}
