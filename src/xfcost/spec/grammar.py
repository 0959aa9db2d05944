"""The grammar of a spec file as types: every file is validated against it, and `xfcost schema` prints it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

import msgspec

from xfcost.formulas.component import Embed, Enter, Head, Length, Residual, Rows, Side, SubLayer, Takes, Width
from xfcost.layers import EMBEDS, ENTERS, HEADS, SUBLAYERS
from xfcost.ledger.grid import Grid, maps_grid
from xfcost.mechanisms import MECHANISMS
from xfcost.spec.kinds import one_of
from xfcost.spec.survey import SurveyEntry

if TYPE_CHECKING:
    AnyEmbed = Embed
    AnyEnter = Embed | Enter
    AnySubLayer = SubLayer
    AnyHead = Head
else:
    AnyEmbed = one_of("AnyEmbed", EMBEDS)
    AnyEnter = one_of("AnyEnter", ENTERS)
    AnySubLayer = one_of("AnySubLayer", MECHANISMS, SUBLAYERS)
    AnyHead = one_of("AnyHead", HEADS)
COMPONENT_FIELDS: Final[tuple[Any, ...]] = (AnyEmbed, AnyEnter, AnySubLayer, AnyHead)


class ImageInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="image"):
    """Pixels: height and width (one number for a square), and channels."""

    gives: ClassVar[Takes] = "image"

    # Not tuple[Side, Side]: msgspec 0.22 corrupts memory on a union of a bounded int and a fixed-length tuple.
    size: Side | Annotated[list[Side], msgspec.Meta(min_length=2, max_length=2)] = 224
    """Height and width in pixels: one number for a square, or [height, width]."""
    channels: Annotated[int, msgspec.Meta(ge=1, le=2**16)] = 3
    """Channels of a pixel."""

    @property
    def sides(self) -> tuple[int, int]:
        """(height, width)."""
        if isinstance(self.size, int):
            return self.size, self.size
        height, width = self.size
        return height, width

    @property
    def width(self) -> int:
        """Numbers per pixel."""
        return self.channels


class VideoInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="video"):
    """Frames of pixels: how many, their height and width (one number for a square), and channels.

    `--N` changes height and width, and keeps the number of frames.
    """

    gives: ClassVar[Takes] = "video"

    frames: Side
    """Number of frames."""
    size: Side | Annotated[list[Side], msgspec.Meta(min_length=2, max_length=2)] = 224
    """Height and width in pixels: one number for a square, or [height, width]."""
    channels: Annotated[int, msgspec.Meta(ge=1, le=2**16)] = 3
    """Channels of a pixel."""

    @property
    def sides(self) -> tuple[int, int, int]:
        """(frames, height, width)."""
        if isinstance(self.size, int):
            return self.frames, self.size, self.size
        height, width = self.size
        return self.frames, height, width

    @property
    def width(self) -> int:
        """Numbers per pixel."""
        return self.channels


class TokenInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="tokens"):
    """Token numbers below `vocabulary`; `length` is N, unless `--N` sets it."""

    gives: ClassVar[Takes] = "tokens"

    vocabulary: Rows
    """Number of vocabulary entries V."""
    length: Length = 512
    """Sequence length N, unless `--N` sets it."""

    @property
    def sides(self) -> tuple[int]:
        """(length,)."""
        return (self.length,)

    @property
    def width(self) -> int:
        """Entries of the vocabulary."""
        return self.vocabulary


class VectorInput(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="vectors"
):
    """A set or sequence of `length` vectors of `channels` real numbers: points, frames, features."""

    gives: ClassVar[Takes] = "embedded"

    channels: Width
    """Numbers in a vector."""
    length: Length = 512
    """Number of vectors N, unless `--N` sets it."""

    @property
    def sides(self) -> tuple[int]:
        """(length,)."""
        return (self.length,)

    @property
    def width(self) -> int:
        """Numbers per vector."""
        return self.channels


class FeatureMapsInput(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="feature_maps"
):
    """Feature maps of a backbone as tokens: `levels` maps one after the other, each in raster order.

    Every map is half as high and wide as the one before, rounded up, as a convolution of stride 2 makes it. N is the
    tokens of all maps.
    """

    gives: ClassVar[Takes] = "embedded"

    size: Side | Annotated[list[Side], msgspec.Meta(min_length=2, max_length=2)]
    """Height and width of the largest map: one number for a square, or [height, width]."""
    levels: Annotated[int, msgspec.Meta(ge=1, le=16)] = 1
    """Number of maps."""
    channels: Width
    """Channels of every map."""

    @property
    def grid(self) -> Grid:
        """One map as a grid; several as a sequence."""
        height, width = (self.size, self.size) if isinstance(self.size, int) else self.size
        return maps_grid((height, width), self.levels)

    @property
    def sides(self) -> tuple[int, ...]:
        """(height, width) of one map, (N,) of several."""
        return self.grid.sides

    @property
    def length(self) -> int:
        """N."""
        return int(self.grid.tokens)

    @property
    def width(self) -> int:
        """Numbers per token."""
        return self.channels


AnyInput = ImageInput | VideoInput | TokenInput | VectorInput | FeatureMapsInput


def grid_of(entry: AnyInput) -> Grid:
    """The tokens, pixels or vectors of an input."""
    return entry.grid if isinstance(entry, FeatureMapsInput) else Grid(entry.sides)


BlockSpec = Annotated[list[AnySubLayer], msgspec.Meta(min_length=1)]
Repeat = Annotated[int, msgspec.Meta(ge=1, le=100_000)]


class Group(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`{repeat: k, blocks: [...]}`: blocks, or groups of them, repeated k times."""

    blocks: Annotated[list[BlockSpec | Group], msgspec.Meta(min_length=1)]
    """Blocks, or nested groups of them."""
    repeat: Repeat = 1
    """How many times the blocks are repeated."""


class StageSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run of blocks at one width: exactly one of `block`, `pattern` (both with `depth`) and `blocks`."""

    dim: Width
    """Width d of the stage's tokens."""
    depth: Repeat | None = None
    """Number of blocks, with `block` or `pattern`."""
    block: BlockSpec | None = None
    """One block, repeated `depth` times: a list of sub-layers."""
    pattern: Annotated[list[BlockSpec], msgspec.Meta(min_length=1)] | None = None
    """Several blocks, cycled until there are `depth`."""
    blocks: Annotated[list[BlockSpec | Group], msgspec.Meta(min_length=1)] | None = None
    """Blocks and nested groups, as written."""
    enter: list[AnyEnter] = []
    """Stage entry: steps before the first block, which may change grid and width."""
    residual: Residual | Literal["none"] | None = None
    """How the stage's sub-layers join the residual stream; the spec's `residual` by default."""


class StreamSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An encoder or a decoder: its own embedding layers and stages."""

    embed: list[AnyEmbed] = []
    """Stem and embedding of the stream, in order."""
    stages: Annotated[list[StageSpec], msgspec.Meta(min_length=1)]
    """Stages of the stream, in order."""
    input: AnyInput | None = None
    """Input of the stream; the spec's input by default."""


Figure = Annotated[float, msgspec.Meta(gt=0, le=1e30)]


class Published(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Published figures, with their source and counting convention."""

    params: Figure | None = None
    """Published number of parameters."""
    active_params: Figure | None = None
    """Published number of active parameters, those that one token uses, of a mixture of experts."""
    macs: Figure | None = None
    """Published number of MACs."""
    flops: Figure | None = None
    """Published number of FLOPs, two per MAC."""
    source: str
    """Where the figures are printed: a table, a section, a repository."""
    convention: str | None = None
    """The source's counting convention, where it differs from xfcost's."""
    note: str | None = None
    """Why xfcost's count differs from the figure."""


# One line of text without control characters, which a terminal would interpret.
PRINTABLE = r"^[^\x00-\x1f\x7f-\x9f]*$"


class Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One architecture; or, with `extends`, a variant of another."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=200, pattern=PRINTABLE)]
    """Name of the architecture."""
    input: AnyInput
    """What the model reads: an image, a video, tokens, vectors or feature maps."""
    embed: list[AnyEmbed] = []
    """Stem and embedding: steps that turn the input into tokens of width d, in order."""
    stages: Annotated[list[StageSpec], msgspec.Meta(min_length=1)] | None = None
    """Stages of a model with one stream, in order."""
    encoder: StreamSpec | None = None
    """Encoder stream, in place of `embed` and `stages`."""
    decoder: StreamSpec | None = None
    """Decoder stream, causal by default; its cross-attention reads the encoder's output."""
    head: AnyHead | None = None
    """Head after the last stage; none by default."""
    residual: Residual | Literal["none"] = Residual()
    """How sub-layers join the residual stream, unless their stage or they themselves set it; `none` is f(x) alone."""
    paper: str | None = None
    """Paper that describes the architecture."""
    notes: str | None = None
    """Free text about the spec."""
    published: list[Published] = []
    """Published figures, which reports show beside xfcost's."""
    survey: SurveyEntry | None = None
    """Its line in the table of a survey of efficient attention; `xfcost survey` prints them all."""
    extends: str | None = None
    """Preset or file (relative to this one) that this spec changes; mappings are merged, lists replaced."""
    set: dict[str, Any] = {}
    """Single keys changed after `extends`, by path: `stages.2.depth: 18`. `*` is every item, `each` every item with its
    own value, `**` any way down."""
