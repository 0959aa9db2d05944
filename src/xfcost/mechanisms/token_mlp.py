"""Mixing along the sequence by learned, fixed weights: MLP-Mixer's token-mixing MLP, ResMLP's linear map."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from xfcost.formulas.component import ActKind, Mixer, Place, Width
from xfcost.formulas.letters import Letter
from xfcost.formulas.rows import elementwise, over_tokens
from xfcost.ledger.grid import Grid
from xfcost.ledger.number import Number
from xfcost.ledger.operation import Operation


def bound_to(place: Place) -> str:
    """The note of a component whose weights over tokens are for one number of tokens."""
    return f"the weights over tokens are for {place.grid.total} tokens: another N needs new weights"


class StaticGlobal(Mixer, frozen=True):
    """A mixer whose every output mixes all tokens, by weights that do not depend on them."""

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        return range(grid.total)

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        return grid.total * grid.total

    def notes(self, place: Place) -> Iterator[str]:
        yield bound_to(place)


class TokenMlp(StaticGlobal, frozen=True, kw_only=True, tag="token_mlp"):
    """MLP-Mixer's token mixing: W₂ act(W₁x + b₁) + b₂ over the tokens, alike in all channels (Tolstikhin et al. 2021).

    N tokens of width d, k hidden units (the paper's D_S), chosen whatever N is: linear in N, and low-rank.

        fc1   d·N·k MACs, N·k + k parameters: a hidden unit reads all N tokens
        act   k·d elements
        fc2   d·k·N MACs, k·N + N parameters: a token reads the k hidden units

    Both tables grow with N, and another N needs new ones.
    """

    hidden: Annotated[Width, Letter("k")]
    """k."""
    act: ActKind = "gelu"
    bias: bool = True

    def label(self) -> str:
        return "Token-mixing MLP"

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d, hidden = place.grid.total, place.dim, self.hidden
        yield over_tokens("fc1", "Tokens to hidden units", d, n, hidden, bias=self.bias)
        yield elementwise("act", "Activation", self.act, hidden * d)
        yield over_tokens("fc2", "Hidden units to tokens", d, hidden, n, reads="k", bias=self.bias)


class TokenLinear(StaticGlobal, frozen=True, kw_only=True, tag="token_linear"):
    """ResMLP's cross-patch sub-layer: one N×N map over the tokens, alike in all channels (Touvron et al. 2021, §2).

        linear   d·N² MACs, N² + N parameters

    As attention it mixes N² pairs, with weights that are learned and fixed; another N needs new ones.
    """

    bias: bool = True

    def label(self) -> str:
        return "Token-mixing linear"

    def operations(self, place: Place) -> Iterator[Operation]:
        n = place.grid.total
        yield over_tokens("linear", "Linear over tokens", place.dim, n, n, bias=self.bias)
