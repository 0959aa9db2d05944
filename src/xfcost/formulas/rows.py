"""Constructors of rows: linear map, norm, matmul, convolution, element-wise, sort, data movement, cache write.

N tokens, d input width, d' output width, k kernel positions, W kernel side, g groups. The further keyword arguments of
a constructor are fields of `Operation`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Any, Final, NamedTuple

import msgspec

from xfcost.formulas.arithmetic import ceil_log2
from xfcost.formulas.component import NormKind, Number, Operation
from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.formulas.tensors import Shape, by_element, convolved, mapped, normed, of_input
from xfcost.ledger.accounts import Cached, WeightsRead
from xfcost.ledger.quantization import WeightMatrix
from xfcost.ledger.tensors import BEFORE, OUTPUT, Tensor, Tensors


def linear(path: str, title: str, tokens: Number, inputs: Number, outputs: Number, *, bias: bool = True) -> Operation:
    """y = xW + b per token: N·d_in·d_out MACs, d_in·d_out (+ d_out) parameters."""
    macs = tokens * inputs * outputs
    return Operation(
        path=path,
        title=title,
        params=inputs * outputs + (outputs if bias else 0),
        macs=macs,
        flops=2 * macs + (tokens * outputs * FLOPS_PER_ELEMENT["add"] if bias else 0),
        tensors=mapped((tokens, inputs), (tokens, outputs)),
        weight_matrices=(WeightMatrix(inputs, outputs),),
    )


def matmul(path: str, title: str, macs: Number, *, work: Number = 0, **attributes: Any) -> Operation:
    """A product of two tensors: `macs` multiply-accumulates, no parameters; `work` more FLOPs, element-wise."""
    return Operation(path=path, title=title, macs=macs, flops=2 * macs + work, **attributes)


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
    """The norm `kind` of N tokens of width d; no row for `none`.

    layer_norm   2d parameters (Ba et al. 2016)
    rms_norm     d parameters (Zhang and Sennrich 2019)
    batch_norm   2d parameters, with running statistics, which are buffers (Ioffe and Szegedy 2015)
    affine       2d parameters: a scale and a shift, no statistics (Touvron et al. 2021, ResMLP, §2)
    group_norm   2d parameters; one group, with statistics over all tokens: global mixing (Wu and He 2018)
    """
    if kind == "none":
        return
    norm_row = _NORMS[kind]
    reads = {"reads_tokens": tokens} if norm_row.mixing else {}
    flops = tokens * width * FLOPS_PER_ELEMENT[kind]
    yield Operation(
        path=path,
        title=norm_row.title,
        params=norm_row.tables * width,
        flops=flops,
        tensors=normed(kind, tokens, width),
        **norm_row.mixing,
        **reads,
    )


def convolution(  # noqa: PLR0913 - one formula, in its letters
    path: str, title: str, inputs: Shape, outputs: Shape, kernel: Sequence[Number], *,
    groups: Number = 1, bias: bool = True, overlaps: bool = True,
) -> Operation:  # fmt: skip
    """A convolution from `inputs`, (positions, d), to `outputs`, (N, d'): N·k·(d/g)·d' MACs, k·(d/g)·d' (+ d') weights.

    Local mixing with static weights. A kernel of one position, or kernels that do not overlap (disjoint groups become
    new tokens), are per-token.
    """
    positions, width, (tokens, out_width) = prod(kernel), inputs[1], outputs
    weights = positions * (width // groups) * out_width
    row = linear(path, title, tokens, weights, 1, bias=False)
    row = msgspec.structs.replace(
        row,
        params=weights + (out_width if bias else 0),
        flops=row.flops + (tokens * out_width * FLOPS_PER_ELEMENT["add"] if bias else 0),
        tensors=convolved(inputs, outputs),
        weight_matrices=(),
    )
    if not overlaps or all(side == 1 for side in kernel):
        return row
    return msgspec.structs.replace(row, mixing="local", reads=letter_power("W", len(kernel)), reads_tokens=positions)


def with_gradient_operands(row: Operation, operands: int) -> Operation:
    """`row` with `operands` of its two operands needing a gradient; the others are constants.

    The backward pass has one product of the forward's size per operand.
    """
    return msgspec.structs.replace(row, backward_macs=operands * row.macs)


def on_raw_input(row: Operation) -> Operation:
    """`row`, whose operand is the raw input of its component."""
    return msgspec.structs.replace(of_input(row), takes_input=True)


def letter_power(letter: str, rank: int) -> str:
    """`W`, `W²`, `W³`: the tokens of a window or kernel on a grid of `rank` axes, in letters."""
    return letter + {1: "", 2: "²", 3: "³"}.get(rank, f"^{rank}")


def elementwise(
    path: str,
    title: str,
    work: str,
    elements: Number,
    *,
    of: tuple[str, ...] = (BEFORE,),
    tensors: Tensors | None = None,
    **attributes: Any,
) -> Operation:
    """An element-wise operation; `work` names its FLOPs per element in `FLOPS_PER_ELEMENT`: `silu`, `exp + add`.

    It reads the activations `of`, by default the row before alone. Where `work` does not say what is saved, `tensors`
    do.
    """
    flops = elements * sum(FLOPS_PER_ELEMENT[part] for part in work.split(" + "))
    tensors = tensors or by_element(work, elements, of)
    return Operation(path=path, title=title, flops=flops, tensors=tensors, **attributes)


# The rotated keys; the queries have the row's own name.
ROTATED_KEYS: Final = "rotary keys"


def rotary(tokens: Number, queries: Number, keys: Number) -> Operation:
    """Rotary position embedding of columns of queries and keys: x·cos + x'·sin, x' holding each pair's other column."""
    elements = tokens * (queries + keys)
    both = ((tokens, queries), (tokens, keys))
    writes = (Tensor(OUTPUT, both[0]), Tensor(ROTATED_KEYS, both[1]))
    tensors = Tensors(tuple(Tensor(BEFORE, shape) for shape in both), writes)
    return elementwise("rotary", "Rotary positions of Q and K", "rotary", elements, moved=elements, tensors=tensors)


def sort(path: str, title: str, lists: Number, length: Number, **attributes: Any) -> Operation:
    """A sort or top-k of `lists` lists of `length` elements: ⌈log₂ length⌉ comparisons per element."""
    return Operation(path=path, title=title, comparisons=lists * length * ceil_log2(length), **attributes)


def maximum(path: str, title: str, elements: Number, **attributes: Any) -> Operation:
    """A maximum or argmax: one comparison per input element."""
    return Operation(path=path, title=title, comparisons=elements, **attributes)


def state_write(title: str, elements: Number, *, path: str = "state") -> Operation:
    """A decode step's write of a recurrent state of `elements` numbers, whatever N is."""
    return move(path, title, elements, cache=Cached(elements, recurrent=True))


def global_mixing(tokens: Number) -> dict[str, Any]:
    """Attributes of a globally mixing, content-dependent row."""
    return {"mixing": "global", "reads": "N", "reads_tokens": tokens, "content_dependent": True}


def static_weights(positions: dict[str, Any]) -> dict[str, Any]:
    """`mixing` with static weights: a sum, a mask, learned or constant factors."""
    return positions | {"content_dependent": False}


def decode_step(rows: Iterable[Operation], tokens: Number) -> Iterator[Operation]:
    """A decode step from the rows of a single token; globally mixing rows read `tokens` tokens through a state."""
    for row in rows:
        for step_row in (row,) if row.in_decode is None else row.in_decode:
            reads = step_row.mixing == "global" and step_row.reads == "N"
            yield msgspec.structs.replace(step_row, reads_tokens=tokens, in_decode=None) if reads else step_row


def recurrence(row: Operation, tokens: Number, elements: Number) -> Operation:
    """`row` as a recurrence of `tokens` sequential steps, whose state has `elements` numbers."""
    step = msgspec.structs.replace(row, moved=0)  # one token, nothing to concatenate
    next_state = state_write("State for the next token", elements)
    return msgspec.structs.replace(row, sequential=tokens, in_decode=(step, next_state))


def without_work(row: Operation) -> Operation:
    """`row` with its parameters only: it does not run in this pass."""
    nothing = dict.fromkeys(("macs", "flops", "attention_entries", "comparisons", "moved"), 0)
    return msgspec.structs.replace(row, weights_read=WeightsRead(0), pairs=None, core=None, matrix=None, **nothing)


def move(path: str, title: str, moved: Number = 0, **attributes: Any) -> Operation:
    """Data movement: no parameters, 0 FLOPs by convention.

    `moved` elements are written by a gather, roll, pad or concatenation; views write none.
    """
    return Operation(path=path, title=title, moved=moved, **attributes)
