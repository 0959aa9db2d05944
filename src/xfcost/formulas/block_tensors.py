"""Tensors of query blocks and their memory blocks (`formulas/query_blocks.py`)."""

from __future__ import annotations

from math import prod

from xfcost.formulas.query_blocks import Blocks
from xfcost.formulas.tensors import copied, reading, view
from xfcost.ledger.number import Number
from xfcost.ledger.operation import Operation
from xfcost.ledger.tensors import BEFORE, OUTPUT, Copy, Merged, Saved, Strided, Tensor, Tensors


def _is_row(blocks: Blocks) -> bool:
    """Are blocks runs of a sequence, which are cut without a copy?"""
    return bool(blocks.sides[0] == 1 and blocks.block[0] == 1)


def has_margins(blocks: Blocks) -> bool:
    """Do memory blocks overlap?"""
    return any(margin != 0 for margin in (*blocks.before, *blocks.after))


def query_blocks(blocks: Blocks, width: Number, of: str) -> Tensors:
    """Queries of `width`, a part of the tensor `of`, padded and cut."""
    tokens = blocks.sides[0] * blocks.sides[1]
    reads, writes = (tokens, width), (blocks.padded, width)
    return view(reads, writes, of) if _is_row(blocks) and blocks.padded == tokens else copied(reads, writes, of)


def memory_blocks(blocks: Blocks, width: Number, of: str) -> Tensors:
    """Keys and values of `width` together, a part of `of`: views of the padded sequence, copies of a grid."""
    tokens = blocks.sides[0] * blocks.sides[1]
    reads, writes = (tokens, width), (blocks.groups, blocks.keys, width)
    if not _is_row(blocks):
        return copied(reads, writes, of)
    if blocks.padded == tokens and not has_margins(blocks):
        return view(reads, writes, of)
    return Tensors((Tensor(of, reads),), (Tensor(OUTPUT, writes, storage=blocks.frame * width),))


def overlapping(blocks: Blocks, width: Number) -> Copy | None:
    """Copy of overlapping keys or values, whose blocks a fused kernel is given as samples."""
    if not (_is_row(blocks) and has_margins(blocks)):
        return None
    return Strided((blocks.groups, blocks.keys, width), blocks.frame, ((blocks.groups, blocks.queries, 0),))


def merged(blocks: Blocks, width: Number) -> Tensors:
    """Blocks joined, and the padding cropped: a view of a sequence, a copy of a grid, cropped as a view of rows."""
    reads, writes = (blocks.padded, width), (blocks.sides[0] * blocks.sides[1], width)
    if _is_row(blocks):
        return view(reads, writes)
    whole_rows = blocks.counts[1] * blocks.block[1] == blocks.sides[1]
    return Tensors((Tensor(BEFORE, reads),), (Tensor(OUTPUT, writes, storage=prod(reads if whole_rows else writes)),))


def of_cropped(row: Operation, tokens: Number, padded: Number, width: Number, name: str = BEFORE) -> Operation:
    """`row`, a map of `tokens` out of `padded` of the tensor `name`, which several samples copy."""
    if tokens == padded:
        return reading(row, name)
    return reading(row, name, saves=(Saved(name, copied=Merged((tokens, width), tokens, padded)),))
