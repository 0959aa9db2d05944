"""Rows with the bytes that they read and write, in closed form: their tensors' and their weights, each once."""

from __future__ import annotations

from typing import Final

from xfcost.counting.saved_activations import saved_activations
from xfcost.ledger.join import with_operand_bytes
from xfcost.ledger.ledger import Ledger
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
    return with_operand_bytes(ledger, found.operands)
