"""Rows that many components have: a linear map, a norm, a product, an element-wise step, sorting, moving data.

Each is one formula in one place; components say which rows they have and how large.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Any, Final, NamedTuple

import msgspec

from xfcost.formulas.arithmetic import ceil_log2
from xfcost.formulas.component import NormKind
from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.ledger.accounts import Cached, WeightsRead
from xfcost.ledger.number import Number
from xfcost.ledger.operation import Operation


def linear(path: str, title: str, tokens: Number, inputs: Number, outputs: Number, *, bias: bool = True) -> Operation:
    """y = xW + b per token: N·d_in·d_out MACs, d_in·d_out (+ d_out) parameters."""
    macs = tokens * inputs * outputs
    return Operation(
        path=path,
        title=title,
        params=inputs * outputs + (outputs if bias else 0),
        macs=macs,
        flops=2 * macs + (tokens * outputs * FLOPS_PER_ELEMENT["add"] if bias else 0),
    )


def over_tokens(  # noqa: PLR0913 - one formula, in its letters
    path: str, title: str, channels: Number, inputs: Number, outputs: Number, *, reads: str = "N", bias: bool = True
) -> Operation:
    """One linear map over tokens for all of `channels` channels: d·N·N' MACs, N·N' (+ N') parameters.

    It mixes globally with static weights, and their shape is bound to the number of tokens.
    """
    row = linear(path, title, channels, inputs, outputs, bias=bias)
    return msgspec.structs.replace(row, mixing="global", reads=reads, reads_tokens=inputs, bound=True)


def product(path: str, title: str, macs: Number, **more: Any) -> Operation:
    """A product of two tensors (matmul): `macs` multiply-accumulates, no parameters of its own.

    `more` says what else is true of the row: `mixing`, `reads`, `content_dependent`, `attention_entries`, …
    """
    return Operation(path=path, title=title, macs=macs, flops=2 * macs, **more)


class _Norm(NamedTuple):
    title: str
    tables: int
    """Learned vectors of width d."""
    mixing: dict[str, Any] = {}  # noqa: RUF012 - never written to


_NORMS: Final[dict[NormKind, _Norm]] = {
    "layer_norm": _Norm("Layer norm", 2),
    "rms_norm": _Norm("RMS norm", 1),
    "batch_norm": _Norm("Batch norm", 2),
    "affine": _Norm("Affine", 2),
    "group_norm": _Norm("Group norm", 2, {"mixing": "global", "reads": "N", "content_dependent": True}),
}


def norm(kind: NormKind, path: str, tokens: Number, width: Number) -> Iterator[Operation]:
    """The normalisation `kind`, if any, of N tokens of width d.

    layer_norm   2d parameters (Ba et al. 2016)
    rms_norm     d parameters (Zhang and Sennrich 2019)
    batch_norm   2d parameters; its running mean and variance are none, and it applies them (Ioffe and Szegedy 2015)
    affine       2d parameters: a scale and a shift, no statistics (Touvron et al. 2021, ResMLP, §2)
    group_norm   2d parameters; one group, whose mean and variance are over all tokens: it mixes them (Wu and He 2018)
    """
    if kind == "none":
        return
    known = _NORMS[kind]
    read = {"reads_tokens": tokens} if known.mixing else {}
    flops = tokens * width * FLOPS_PER_ELEMENT[kind]
    yield Operation(path=path, title=known.title, params=known.tables * width, flops=flops, **known.mixing, **read)


def convolution(  # noqa: PLR0913 - one formula, in its letters
    path: str,
    title: str,
    *,
    outputs: Number,
    kernel: Sequence[Number],
    width: Number,
    out_width: Number,
    groups: Number = 1,
    bias: bool = True,
    overlaps: bool = True,
) -> Operation:
    """A convolution of `outputs` positions, each of which reads `kernel` neighbours of width d.

        N·k·(d/g)·d' MACs, k·(d/g)·d' (+ d') parameters, k the kernel's positions, g groups

    It mixes locally with static weights, but where the kernel is one position, or where kernels don't overlap (the
    stride is the kernel: disjoint groups become new tokens).
    """
    reach = prod(kernel)
    weights = reach * (width // groups) * out_width
    row = linear(path, title, outputs, weights, 1, bias=False)
    row = msgspec.structs.replace(
        row,
        params=weights + (out_width if bias else 0),
        flops=row.flops + (outputs * out_width * FLOPS_PER_ELEMENT["add"] if bias else 0),
    )
    if not overlaps or all(side == 1 for side in kernel):
        return row
    return msgspec.structs.replace(row, mixing="local", reads=power("W", len(kernel)), reads_tokens=reach)


def depthwise(
    path: str, title: str, outputs: Number, kernel: Sequence[Number], width: Number, *, bias: bool = True
) -> Operation:
    """A convolution with a kernel of its own for every channel: N·k·d MACs, k·d (+ d) parameters."""
    channels = {"width": width, "out_width": width, "groups": width}
    return convolution(path, title, outputs=outputs, kernel=kernel, bias=bias, **channels)


def causal_depthwise(tokens: Number, taps: Number, channels: Number) -> Operation:
    """A causal depthwise convolution padded by W - 1 on both sides, then cropped: N + W - 1 positions are computed.

    A decode step computes one, on the cached last inputs.
    """
    kernel, title = (taps,), "Causal depthwise convolution"
    one = depthwise("conv", title, 1, kernel, channels)
    row = depthwise("conv", title, tokens + taps - 1, kernel, channels)
    return msgspec.structs.replace(row, in_decode=(*window(channels, taps), one))


def gradients(row: Operation, operands: int) -> Operation:
    """`row`, of whose two operands only so many need a gradient: the others are fixed numbers, or learn nothing.

    Its backward pass then has one product of the forward's size for each of them, and not two.
    """
    return msgspec.structs.replace(row, backward_macs=operands * row.macs)


def of_input(row: Operation) -> Operation:
    """`row`, which multiplies the raw input of its component."""
    return msgspec.structs.replace(row, takes_input=True)


def power(letter: str, rank: int) -> str:
    """`W`, `W²`, `W³`: tokens of a window or kernel along `rank` axes."""
    return letter + {1: "", 2: "²", 3: "³"}.get(rank, f"^{rank}")


def elementwise(path: str, title: str, work: str, elements: Number, **more: Any) -> Operation:
    """`work` (a row of the conventions' table) on `elements` elements."""
    return Operation(path=path, title=title, flops=elements * FLOPS_PER_ELEMENT[work], **more)


def unit_length(path: str, title: str, vectors: Number, width: Number, **more: Any) -> Operation:
    """`vectors` of `width` brought to length 1: x / max(|x|, ε); the length, then a bound, then a division."""
    each = FLOPS_PER_ELEMENT["norm"] + FLOPS_PER_ELEMENT["multiply"]
    return Operation(path=path, title=title, flops=vectors * (width * each + FLOPS_PER_ELEMENT["clamp"]), **more)


def rotary(tokens: Number, width: Number) -> Operation:
    """Rotary positions of `width` columns of queries and keys: x·cos + x'·sin, x' written with its pairs exchanged."""
    elements = tokens * width
    return elementwise("rotary", "Rotary positions of Q and K", "rotary", elements, moved=elements)


def sort(path: str, title: str, lists: Number, length: Number, **more: Any) -> Operation:
    """`lists` lists of `length` elements sorted (or their top k chosen): ⌈log₂ length⌉ comparisons per element."""
    return Operation(path=path, title=title, comparisons=lists * length * ceil_log2(length), **more)


def choose(path: str, title: str, elements: Number, **more: Any) -> Operation:
    """Argmax or maximum: one comparison per element that enters."""
    return Operation(path=path, title=title, comparisons=elements, **more)


def cache(title: str, elements: Number, tokens: Number, *, path: str = "cache") -> Operation:
    """`elements` of one token more, written beside those that `tokens` tokens (it too) leave to be read."""
    kept = elements * tokens
    return move(path, title, elements, cache=Cached(kept, elements))


def state(title: str, elements: Number, *, path: str = "state") -> Operation:
    """A state of `elements` numbers, rewritten with every token: as many for any N."""
    return move(path, title, elements, cache=Cached(elements))


def window(channels: Number, taps: Number, dilation: Number = 1) -> Iterator[Operation]:
    """What a causal convolution keeps, (W - 1)·δ inputs of `channels`, where it has more than one tap.

    W - 1 of them are gathered and written beside the new one, which then takes the place of the oldest.
    """
    if taps > 1:
        kept, moved = (taps - 1) * dilation * channels, 2 * taps * channels
        yield move("window", "Last inputs of the convolution, and the new one", moved, cache=Cached(kept))


def in_all(tokens: Number) -> dict[str, Any]:
    """What is true of rows that read all N tokens, each alone or through a state, by what is in them."""
    return {"mixing": "global", "reads": "N", "reads_tokens": tokens, "content_dependent": True}


def in_chunk(tokens: Number) -> dict[str, Any]:
    """What is true of rows that read the tokens of their chunk, by what is in them."""
    return {"mixing": "local", "reads": "b", "reads_tokens": tokens, "content_dependent": True}


def fixed(reach: dict[str, Any]) -> dict[str, Any]:
    """`reach` where what is read is combined with fixed weights: a sum, a mask, learned or constant factors."""
    return reach | {"content_dependent": False}


def decode_step(rows: Iterable[Operation], tokens: Number) -> Iterator[Operation]:
    """A decode step from the rows of one token alone: those which read all N tokens read `tokens`, through a state."""
    for row in rows:
        for each in (row,) if row.in_decode is None else row.in_decode:
            reads = each.mixing == "global" and each.reads == "N"
            yield msgspec.structs.replace(each, reads_tokens=tokens, in_decode=None) if reads else each


def recurrence(row: Operation, tokens: Number, elements: Number) -> Operation:
    """`row`, which walks a state of `elements` numbers along the tokens; a decode step writes it for the next token."""
    one = msgspec.structs.replace(row, moved=0)  # nothing to put side by side
    step = (one, state("State for the next token", elements))
    return msgspec.structs.replace(row, sequential=tokens, in_decode=step)


def of_memory(row: Operation, cached: Operation | None = None) -> Operation:
    """`row`, which works on the other stream alone: it is done before the first decode step, and may be `cached`."""
    rows = (idle(row),) if cached is None else (idle(row), cached)
    return msgspec.structs.replace(row, in_decode=rows)


def idle(row: Operation) -> Operation:
    """`row` where it does not run: its parameters are there, and neither work nor reading."""
    nothing = dict.fromkeys(("macs", "flops", "attention_entries", "comparisons", "moved"), 0)
    return msgspec.structs.replace(row, weights_read=WeightsRead(0), pairs=None, core=None, matrix=None, **nothing)


def move(path: str, title: str, moved: Number = 0, **more: Any) -> Operation:
    """Data that only moves: no parameters, 0 FLOPs by convention, yet named, so that nothing stays hidden.

    `moved` elements are written, where they are gathered, rolled, padded or concatenated and not merely viewed.
    """
    return Operation(path=path, title=title, moved=moved, **more)
