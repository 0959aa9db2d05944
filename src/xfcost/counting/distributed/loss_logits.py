"""The float32 logits of the loss, which a training step holds beside what the model saves."""

from __future__ import annotations

from typing import Final

from xfcost.spec.architecture import Architecture
from xfcost.spec.grammar import TokenInput

# A loss over a vocabulary computes its logits in float32 (Korthikanti et al. 2022, §4.3).
_LOGIT_BYTES: Final = 4


def loss_logits_bytes(architecture: Architecture) -> int:
    """Of one batch, where a head predicts tokens; else 0."""
    stream = architecture.streams[-1]
    if architecture.head is None or architecture.logits is None or not isinstance(stream.input, TokenInput):
        return 0
    return _LOGIT_BYTES * int(stream.grid.total) * architecture.batch * int(stream.input.vocabulary)
