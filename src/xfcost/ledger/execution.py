"""How a model is run: words for its mode, its attention, the logits that are computed, what is recomputed."""

from __future__ import annotations

from typing import Final, Literal, get_args

# How attention is run: `eager` keeps the matrix of scores, `fused` is one kernel that doesn't. Same MACs.
Execution = Literal["eager", "fused"]

# What is run: all N tokens at once (`forward`; `prefill`, which fills the cache); a decode step, the N-th token, with
# all others cached (`decode`); a prefill and then decode steps (`generate`); a training step (`train`).
Mode = Literal["forward", "prefill", "decode", "generate", "train"]
# Modes that are one pass.
ONE_PASS: Final[tuple[Mode, ...]] = ("forward", "prefill", "decode")
# Those of them that write or read a cache.
CACHED: Final[tuple[Mode, ...]] = ("prefill", "decode")
# All modes that do.
WITH_CACHE: Final[tuple[Mode, ...]] = (*CACHED, "generate")

# Positions whose logits a language model computes: all, or only the last, which predicts the next token.
Logits = Literal["all", "last"]

# What is recomputed in the backward pass: nothing, attention matrices, or all of a block but its input. Of a torch
# module the option also takes paths of its modules.
Checkpoint = Literal["none", "selective", "full"]
Convention = Literal["dense", "kept", "6nd"]
"""Which model FLOPs a utilisation (MFU) counts: all pairs of attention, those that masks keep, or 6·P·D."""
CHECKPOINTS: Final = get_args(Checkpoint)

# Numbers above these are typing errors: no run has so many samples or devices.
MOST_BATCH: Final = 2**24
MOST_DEVICES: Final = 10**8
