"""The grammar of a spec file, as types: what `xfcost schema` prints and what every file is checked against."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec

from xfcost.formulas.component import Length, Residual, Rows, Side, Width
from xfcost.formulas.layer import Takes
from xfcost.layers import AnyEmbed, AnyEnter, AnyHead, AnySubLayer
from xfcost.mechanisms import Mechanism


class ImageInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="image"):
    """Pixels: height and width (one number for a square), and channels."""

    gives: ClassVar[Takes] = "image"

    # Not tuple[Side, Side]: msgspec 0.22 corrupts memory on a union of a bounded int and a fixed-length tuple.
    size: Side | Annotated[list[Side], msgspec.Meta(min_length=2, max_length=2)] = 224
    channels: Annotated[int, msgspec.Meta(ge=1, le=2**16)] = 3

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

    The frames stay as they are where `--N` asks for another number of tokens.
    """

    gives: ClassVar[Takes] = "video"

    frames: Side
    size: Side | Annotated[list[Side], msgspec.Meta(min_length=2, max_length=2)] = 224
    channels: Annotated[int, msgspec.Meta(ge=1, le=2**16)] = 3

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
    """Token numbers below `vocabulary`; `length` is N where `--N` doesn't say otherwise."""

    gives: ClassVar[Takes] = "tokens"

    vocabulary: Rows
    length: Length = 512

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
    length: Length = 512

    @property
    def sides(self) -> tuple[int]:
        """(length,)."""
        return (self.length,)

    @property
    def width(self) -> int:
        """Numbers per vector."""
        return self.channels


AnyInput = ImageInput | VideoInput | TokenInput | VectorInput
BlockSpec = Annotated[list[Mechanism | AnySubLayer], msgspec.Meta(min_length=1)]
Repeat = Annotated[int, msgspec.Meta(ge=1, le=100_000)]


class Group(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`{repeat: k, blocks: [...]}`: blocks, or groups of them, k times over."""

    blocks: Annotated[list[BlockSpec | Group], msgspec.Meta(min_length=1)]
    repeat: Repeat = 1


class StageSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run of blocks at one width: exactly one of `block`, `pattern` (both with `depth`) and `blocks`."""

    dim: Width
    depth: Repeat | None = None
    """Number of blocks, for `block` and `pattern`."""
    block: BlockSpec | None = None
    """One block, repeated."""
    pattern: Annotated[list[BlockSpec], msgspec.Meta(min_length=1)] | None = None
    """Several blocks, cycled until `depth` of them stand."""
    blocks: Annotated[list[BlockSpec | Group], msgspec.Meta(min_length=1)] | None = None
    """Blocks and nested groups, as written."""
    enter: list[AnyEnter] = []
    residual: Residual | Literal["none"] | None = None


class StreamSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An encoder or a decoder: its own embedding layers and stages."""

    embed: list[AnyEmbed] = []
    stages: Annotated[list[StageSpec], msgspec.Meta(min_length=1)]
    input: AnyInput | None = None
    """Where it isn't given: the spec's."""


Figure = Annotated[float, msgspec.Meta(gt=0, le=1e30)]


class Published(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Figures as printed, with their source and their convention."""

    params: Figure | None = None
    active_params: Figure | None = None
    """Parameters that one token uses, of a mixture of experts."""
    macs: Figure | None = None
    flops: Figure | None = None
    source: str
    convention: str | None = None
    note: str | None = None


# One line of text: no control characters, which a terminal would obey.
PRINTABLE = r"^[^\x00-\x1f\x7f-\x9f]*$"


class Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One architecture, alone and completely; or, with `extends`, a variant of another."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=200, pattern=PRINTABLE)]
    input: AnyInput
    embed: list[AnyEmbed] = []
    stages: Annotated[list[StageSpec], msgspec.Meta(min_length=1)] | None = None
    encoder: StreamSpec | None = None
    decoder: StreamSpec | None = None
    head: AnyHead | None = None
    residual: Residual | Literal["none"] = Residual()
    paper: str | None = None
    notes: str | None = None
    published: list[Published] = []
    extends: str | None = None
    """A preset or a file (relative to this one) whose keys stand where this one has none; lists are replaced whole."""
    set: dict[str, Any] = {}
    """Keys set one by one, after `extends`: `stages.2.depth: 18`; `*` is every item of a list, `**` any way down,
    `each` every item with its own value: `stages.each.depth: [2, 2, 18, 2]`."""
