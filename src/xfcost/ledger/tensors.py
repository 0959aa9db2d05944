"""The tensors of an operation: those that it reads and writes, and those that autograd saves because of it.

A row declares them where it is made. Tensors have names within their component, so that a storage that several rows
save counts once: a row's output has the row's name, and further names are below. Shapes are those of one sample.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import prod
from typing import Final, Literal

import msgspec

from xfcost.ledger.units import Number

# Names of tensors other than the outputs of rows.
INPUT: Final = "<input>"
"""What comes into the component: behind a `pre` norm its output."""
BEFORE: Final = "<before>"
"""The output of the row before; of a component's first row, `INPUT`."""
RESIDUAL: Final = "<residual>"
"""What comes into the sub-layer, before its norm."""
MEMORY: Final = "<memory>"
"""The encoder's output, or that of an earlier stage."""
SECOND: Final = "<second>"
"""The second stream of a reversible stage."""
OUTPUT: Final = "<output>"
"""What the row itself writes."""

Type = Literal["model", "statistic", "float32", "int64", "bool", "complex"]
"""Type of a tensor's elements: the model's, float32 or the model's if that is wider (`statistic`), two of these
(`complex`), or a fixed one."""
_FIXED: Final = {"float32": 4, "int64": 8, "bool": 1}
_STATISTIC: Final = 4


def width_of(kind: Type, element: int) -> int:
    """Bytes of an element of this type, in a model whose elements have `element` bytes."""
    if kind == "model":
        return element
    wide = max(_STATISTIC, element)
    return {"statistic": wide, "complex": 2 * wide}.get(kind) or _FIXED[kind]


class Tensor(msgspec.Struct, frozen=True, gc=False):
    """A tensor that an operation reads, writes or makes."""

    name: str
    shape: tuple[Number, ...]
    """Of one sample; the product counts. Of a tensor that is read, what the operation sees of it."""
    type: Type = "model"
    once: bool = False
    """Is it the same for all samples?"""
    constant: bool = False
    """Does it need no gradient, whatever it is made of?"""
    held: bool = False
    """Is it a parameter or a buffer, which is no activation?"""
    view_of: str | None = None
    """The tensor whose storage it shares."""
    token_by_token: bool = False
    """Is it a copy after all, where that tensor's grid lies channel by channel?"""
    storage: Number | None = None
    """Elements of its storage, where they are not its own (overlapping windows)."""
    cropped: bool = False
    """Is it what is left of that storage without the padding of each sample? A linear map of several copies it."""
    by_channel: bool = False
    """Does a grid lie channel by channel in memory (a convolution's output), and not token by token?"""
    like: str | None = None
    """The tensor whose order in memory it keeps."""
    expanded: bool = False
    """Is it read once per sample, though it is the same for all?"""

    @property
    def elements(self) -> int:
        """Elements of one sample."""
        return prod(self.shape)


class Strided(msgspec.Struct, frozen=True, gc=False):
    """A product merges batch and `axes` of a part of a storage of `tokens`: a copy, unless they lie in memory as one.

    Of each axis, outermost first: its length, and its step in tokens and in elements beside.
    """

    shape: tuple[Number, ...]
    tokens: Number
    axes: tuple[tuple[Number, Number, Number], ...]
    repeated: bool = False
    """Is the storage the same for all samples, and read by each?"""
    by_channel: bool = False
    """Is there a copy only of a grid that lies channel by channel?"""

    def copies(self, batch: int, elements: int) -> bool:
        """Is a copy made, of a storage with `elements` of one sample?"""
        width = elements // self.tokens
        axes = [(length, tokens * width + beside) for length, tokens, beside in self.axes]
        long = [axis for axis in [(batch, 0 if self.repeated else elements), *axes] if axis[0] > 1]
        return any(step != length * inner for (_, step), (length, inner) in pairwise(long))


def merged_heads(shape: tuple[Number, ...], heads: Number, tokens: Number, groups: Number = 1) -> Strided:
    """A product merges batch and `groups` with heads: in memory (B, G, N, H, K), in the product (B, G, H, N, K)."""
    head = prod(shape) // (groups * tokens * heads)
    return Strided(shape, groups * tokens, ((groups, tokens, 0), (heads, 0, head)))


class Exchanged(msgspec.Struct, frozen=True, gc=False):
    """Axes are exchanged, and the result is made contiguous: a copy, unless one of them is 1."""

    shape: tuple[Number, ...]
    axes: tuple[Number, ...]
    alone: bool = False
    """Is it copied here in a batch of one sample only, and before it in larger ones?"""

    def copies(self, batch: int) -> bool:
        """Is a copy made?"""
        return bool(min(self.axes) > 1 and (batch == 1 or not self.alone))


Copy = Exchanged | Strided


class Widened(msgspec.Struct, frozen=True):
    """Numbers narrower than float32 are copied to float32."""

    shape: tuple[Number, ...]
    """Of the copy, one sample's: the part of the storage that the operation sees."""


class Saved(msgspec.Struct, frozen=True, gc=False):
    """A tensor that autograd saves, whole: its storage counts, also where the operation sees a part of it."""

    name: str
    when: str | None = None
    """The tensor for whose gradient it is saved (a product saves a for the gradient of b); None: always."""
    copied: Copy | Widened | None = None
    """The copy that may be saved in its place."""


class Tensors(msgspec.Struct, frozen=True, gc=False):
    """What an operation reads, writes and has autograd save."""

    reads: tuple[Tensor, ...] = ()
    writes: tuple[Tensor, ...] = ()
    """The first is its output."""
    saves: tuple[Saved, ...] = ()
    """Those of the tensors named above that are saved."""
    makes: tuple[Tensor, ...] = ()
    """Tensors made inside it that are saved: statistics, masks, copies."""
    rearranged: Copy | None = None
    """After it, and outside all rows, its output is copied in another order (heads joined)."""
    between: tuple[Tensor, ...] = ()
    """Copies made before it, outside all rows, which it reads instead of the originals."""
    beside: bool = False
    """Does the next row take the output of an earlier one?"""
    becomes_input: bool = False
    """Is its output the input of the component (a `pre` norm)?"""

    def reading(self, *names: str) -> Tensors:
        """The same with other names of the tensors that are read, in order."""
        new = dict(zip((each.name for each in self.reads), names, strict=False))
        return self.renamed(lambda name: new.get(name, name))

    def renamed(self, rename: Callable[[str], str]) -> Tensors:
        """The same with every tensor's name as `rename` has it."""
        return msgspec.structs.replace(
            self,
            reads=tuple([msgspec.structs.replace(each, name=rename(each.name)) for each in self.reads]),
            writes=tuple([_renamed_output(each, rename) for each in self.writes]),
            saves=tuple([Saved(rename(one.name), one.when and rename(one.when), one.copied) for one in self.saves]),
        )


def _renamed_output(output: Tensor, rename: Callable[[str], str]) -> Tensor:
    """The same with the names that it refers to as `rename` has them."""
    view_of, like = output.view_of and rename(output.view_of), output.like and rename(output.like)
    return msgspec.structs.replace(output, name=rename(output.name), view_of=view_of, like=like)
