"""The grammar of a spec file as types: every file is validated against it, and `xfcost schema` prints it.

A field that holds one of many kinds of components imports a kind's class when a spec names it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, TypeVar

import msgspec

from xfcost.formulas.component import (
    Component,
    Embed,
    Enter,
    Head,
    Kinds,
    Length,
    Residual,
    Rows,
    Side,
    SubLayer,
    Takes,
    Width,
)
from xfcost.layers import EMBEDS, ENTERS, HEADS, SUBLAYERS
from xfcost.ledger.errors import printable
from xfcost.ledger.grid import Grid, maps_grid
from xfcost.mechanisms import MECHANISMS

T = TypeVar("T")


class OneOf(type):
    """The type of such a field: a custom type for msgspec, which `converted` decodes."""

    lists: tuple[Kinds[Any], ...]

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, Component)

    def kinds(cls) -> list[str]:
        """The kinds that the field may hold."""
        return [kind for kinds in cls.lists for kind in kinds]

    def component(cls, kind: object) -> type[Component] | None:
        """The class of `kind`; None where the field may not hold it."""
        if not isinstance(kind, str):
            return None
        return next((kinds[kind] for kinds in cls.lists if kind in kinds), None)

    def components(cls) -> list[type[Component]]:
        """All classes that the field may hold."""
        return [component for kinds in cls.lists for component in kinds.values()]


def one_of(name: str, *lists: Kinds[Any]) -> OneOf:
    """The type of a field that holds a component of one of `lists`."""
    return OneOf(name, (), {"lists": lists})


class _ComponentError(ValueError):
    """The validator's message with a path inside the component; msgspec appends the path to the component."""


def converted(value: Any, hint: type[T]) -> T:
    """`msgspec.convert`, with components decoded by their kinds.

    Raises:
        msgspec.ValidationError: with the message that msgspec gives for a union of all classes.
    """
    try:
        return msgspec.convert(value, hint, dec_hook=_component)
    except msgspec.ValidationError as error:
        if not isinstance(error.__cause__, _ComponentError):
            raise
        joined = _joined(str(error.__cause__), str(error))
    except UnicodeEncodeError as error:
        joined = f"{printable(error.object)}: a key that is no text"
    raise msgspec.ValidationError(joined)


def _component(hint: Any, value: Any) -> Component:
    if not isinstance(value, dict):
        raise _ComponentError(f"Expected `object`, got `{type(value).__name__}`")
    if "kind" not in value:
        raise _ComponentError("Object missing required field `kind`")
    struct: type[Component] | None = hint.component(value["kind"])
    if struct is None:
        raise _ComponentError(f"Invalid value {value['kind']!r} - at `$.kind`")
    try:
        return msgspec.convert(value, struct)
    except msgspec.ValidationError as error:
        raise _ComponentError(str(error)) from None


def _joined(inner: str, outer: str) -> str:
    """Both paths as one: `… - at `$.heads` - at `$.head`` -> `… - at `$.head.heads``."""
    to_component = split_path(outer.removeprefix(inner))[1]
    message, in_component = split_path(inner)
    return f"{message} - at `${to_component}{in_component}`" if to_component or in_component else message


def split_path(message: str) -> tuple[str, str]:
    """The validator's message, and the path at its end: "… - at `$.head.heads`" -> ("…", ".head.heads")."""
    text, at, path = message.rpartition(" - at `$")
    return (text, path.removesuffix("`")) if at and path.endswith("`") else (message, "")


SurveyClass = Literal["FP", "CP", "LP", "M", "LR", "KR", "RC", "DS", "Sparse"]

CLASSES: Final[dict[SurveyClass, str]] = {
    "FP": "fixed patterns",
    "CP": "combined patterns",
    "LP": "learned patterns",
    "M": "memory",
    "LR": "low rank",
    "KR": "kernels",
    "RC": "recurrence",
    "DS": "downsampling",
    "Sparse": "sparse activation of parameters",
}

# The value of a key that grows as √N, in a spec.
ROOT_OF_TOKENS: Final = "√N"
_ShortText = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
MechanismKeys = dict[str, Literal["√N"] | int | list[int] | None]


class Otherwise(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Other values of the mechanism's keys, under which its order is another: those of the paper, or of public code."""

    keys: MechanismKeys
    """Keys of the mechanism and their values; `√N` grows with N."""
    where: _ShortText
    """The same in words: `l = √N`."""


class SurveyEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A system's published line in Table 1 of Tay et al. 2022; reports compare it with what xfcost derives."""

    system: _ShortText
    """Name of the system."""
    classes: list[SurveyClass] = []
    """Classes of the system in the table; none if the table does not list it."""
    complexity: _ShortText | None = None
    """Complexity in the table."""
    decodes: bool | None = None
    """Whether the table says that it can decode autoregressively."""
    decoder: MechanismKeys | None = None
    """Keys of the mechanism in a decoder, where its causal form needs others than this spec has."""
    otherwise: Otherwise | None = None
    """A second choice of the mechanism's keys, with an order of its own."""
    note: str
    """Why the derived order is what it is, and in what it differs from the printed one."""


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


# Not tuple[Side, Side]: msgspec 0.22 corrupts memory on a union of a bounded int and a fixed-length tuple.
Size = Side | Annotated[list[Side], msgspec.Meta(min_length=2, max_length=2)]


def height_and_width(size: int | list[int]) -> tuple[int, int]:
    """Of a size that is one number for a square, or [height, width]."""
    height, width = (size, size) if isinstance(size, int) else size
    return height, width


class ImageInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="image"):
    """Pixels: height and width (one number for a square), and channels."""

    gives: ClassVar[Takes] = "image"

    size: Size = 224
    """Height and width in pixels: one number for a square, or [height, width]."""
    channels: Annotated[int, msgspec.Meta(ge=1, le=2**16)] = 3
    """Channels of a pixel."""

    @property
    def sides(self) -> tuple[int, int]:
        """(height, width)."""
        return height_and_width(self.size)


class VideoInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="video"):
    """Frames of pixels: how many, their height and width (one number for a square), and channels.

    `--N` changes height and width, and keeps the number of frames.
    """

    gives: ClassVar[Takes] = "video"

    frames: Side
    """Number of frames."""
    size: Size = 224
    """Height and width in pixels: one number for a square, or [height, width]."""
    channels: Annotated[int, msgspec.Meta(ge=1, le=2**16)] = 3
    """Channels of a pixel."""

    @property
    def sides(self) -> tuple[int, int, int]:
        """(frames, height, width)."""
        return self.frames, *height_and_width(self.size)


class TokenInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="tokens"):
    """Token numbers below `vocabulary`; `length` is N, unless `--N` sets it."""

    gives: ClassVar[Takes] = "tokens"

    vocabulary: Rows
    """Number of vocabulary entries V."""
    length: Length = 512
    """Sequence length N, unless `--N` sets it."""
    positions: Length | None = None
    """The most tokens of a language model; `length` where it is left out."""

    @property
    def sides(self) -> tuple[int]:
        """(length,)."""
        return (self.length,)


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


class FeatureMapsInput(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="feature_maps"
):
    """Feature maps of a backbone as tokens: `levels` maps one after the other, each in raster order.

    Every map is half as high and wide as the one before, rounded up, as a convolution of stride 2 makes it. N is the
    tokens of all maps.
    """

    gives: ClassVar[Takes] = "embedded"

    size: Size
    """Height and width of the largest map: one number for a square, or [height, width]."""
    levels: Annotated[int, msgspec.Meta(ge=1, le=16)] = 1
    """Number of maps."""
    channels: Width
    """Channels of every map."""

    @property
    def grid(self) -> Grid:
        """One map as a grid; several as a sequence."""
        return maps_grid(height_and_width(self.size), self.levels)

    @property
    def sides(self) -> tuple[int, ...]:
        """(height, width) of one map, (N,) of several."""
        return self.grid.sides

    @property
    def length(self) -> int:
        """N."""
        return int(self.grid.tokens)


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
    weights: Literal["int4", "fp8", "mxfp4", "int8"] | None = None
    """Format of the published weights, one of `--weights-dtype`; runs on devices or with a cache count them in it."""
    source: str
    """Where the figures were published: a table, a section, a repository."""
    convention: str | None = None
    """The source's counting convention, if it differs from xfcost's."""
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
    """Encoder stream, instead of `embed` and `stages`."""
    decoder: StreamSpec | None = None
    """Decoder stream, causal by default; its cross-attention reads the encoder's output."""
    head: AnyHead | None = None
    """Head after the last stage; none by default."""
    residual: Residual | Literal["none"] = Residual()
    """How sub-layers join the residual stream, unless their stage or they themselves set it; `none` is only f(x)."""
    paper: str | None = None
    """Paper that describes the architecture."""
    notes: str | None = None
    """Free text about the spec."""
    published: list[Published] = []
    """Published figures, which reports compare with xfcost's."""
    survey: SurveyEntry | None = None
    """Its line in the table of a survey of efficient attention; `xfcost survey` prints them all."""
    extends: str | None = None
    """Preset or file (relative to this one) that this spec changes; mappings are merged, lists replaced."""
    set: dict[str, Any] = {}
    """Single keys changed after `extends`, by path: `stages.2.depth: 18`. `*` is every item, `each` every item with its
    own value, `**` any way down."""
