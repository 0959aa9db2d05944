"""Rows with the bytes that they read and write, in closed form: their tensors' and their weights, each once."""

from __future__ import annotations

from typing import Final

import msgspec

from xfcost.counting.saved_activations import saved_activations
from xfcost.ledger.least_work import weights_read
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.operation import Operation
from xfcost.spec.architecture import Architecture

# Modes whose rows are those of a pass over all tokens, whose tensors are declared.
_PASSES: Final = ("forward", "prefill")


def with_row_bytes(ledger: Ledger, architecture: Architecture) -> Ledger:
    """`ledger` with the bytes of every row's operands; as it is in other modes, or where a kind declares no tensors."""
    if ledger.metadata.mode not in _PASSES:
        return ledger
    found = saved_activations(ledger, architecture)
    if found is None:
        return ledger
    rows = (_known(row, found.operands[row.path], ledger.bytes_per_element) for row in ledger.rows)
    return msgspec.structs.replace(ledger, rows=tuple(rows))


def _known(row: Operation, activations: int, element: int) -> Operation:
    """`row` with its bytes in one block; parameters among its tensors are not counted again."""
    if row.operand_bytes is not None or row.tensors is None:
        return row
    held = sum(each.elements for each in (*row.tensors.reads, *row.tensors.writes) if each.held)
    weights = max(0, weights_read(row) - held) * element
    return msgspec.structs.replace(row, operand_bytes=activations // row.times + weights)
