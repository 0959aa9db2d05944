"""MLP-Mixer's token mixing: an MLP over the tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from xfcost.formulas.component import ActKind, Letter, Operation, Place, Width
from xfcost.formulas.mixers import StaticGlobalMixer
from xfcost.formulas.rows import elementwise, linear_over_tokens


class TokenMlp(StaticGlobalMixer, frozen=True, kw_only=True, tag="token_mlp"):
    """MLP-Mixer's token mixing: W₂ act(W₁x + b₁) + b₂ over the tokens, alike in all channels (Tolstikhin et al. 2021).

    N tokens of width d, k hidden units (the paper's D_S), chosen whatever N is: linear in N, and low-rank.

        fc1   d·N·k MACs, N·k + k parameters: a hidden unit reads all N tokens
        act   k·d elements
        fc2   d·k·N MACs, k·N + N parameters: a token reads the k hidden units

    Both tables grow with N, and another N needs new ones.
    """

    short_name = "Token-mixing MLP"

    hidden: Annotated[Width, Letter("k")]
    """Hidden units k, independent of N (the paper's D_S)."""
    act: ActKind = "gelu"
    """Activation function between the two linear maps."""
    bias: bool = True
    """Whether the two linear maps have biases."""

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d, hidden = place.grid.total, place.dim, self.hidden
        yield linear_over_tokens("fc1", "Tokens to hidden units", d, n, hidden, bias=self.bias)
        yield elementwise("act", "Activation", self.act, hidden * d)
        yield linear_over_tokens("fc2", "Hidden units to tokens", d, hidden, n, reads="k", bias=self.bias)
