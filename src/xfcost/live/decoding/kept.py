"""What a model that works token by token keeps of the past, as leaves.

B batch, G heads of keys and values, K head width, R rows of a cache, C residue classes (a window's dilation), D width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Positioned(nn.Module):
    """What does otherwise at every position."""

    position: int = 0
    """The token that comes next, 0 being the first; all before it have come."""


class Kept(Positioned):
    """A leaf whose buffers outlive a token: all that they hold is counted as cached."""

    def keeps(self, name: str, *shape: int) -> None:
        """A buffer of that shape: numbers of a past that nobody asks for, until they are written."""
        past = torch.zeros(shape) if torch.get_default_device().type == "meta" else torch.randn(shape)
        self.register_buffer(name, past, persistent=False)


class KeyValueCache(Kept):
    """Keys and values (B, G, 1, K) of one token into their slots -> those of all tokens that it reads: (B, G, M, K).

    It holds the last R tokens of each of C residue classes, as a ring: with C = 1 and R = N the whole past.
    """

    keys_BGSK: Tensor
    values_BGSK: Tensor

    def __init__(self, batch: int, heads: int, rows: int, width: int, *, classes: int = 1) -> None:
        super().__init__()
        self.rows, self.classes = rows, classes
        self.keeps("keys_BGSK", batch, heads, rows * classes, width)
        self.keeps("values_BGSK", batch, heads, rows * classes, width)

    def forward(self, k_BG1K: Tensor, v_BG1K: Tensor) -> tuple[Tensor, Tensor]:
        turn, kind = divmod(self.position, self.classes)
        slot = turn % self.rows * self.classes + kind
        index = torch.arange(slot, slot + 1, device=k_BG1K.device)
        there = slice(kind, None, self.classes), slice(min(turn + 1, self.rows))
        self.keys_BGSK.index_copy_(2, index, k_BG1K)
        self.values_BGSK.index_copy_(2, index, v_BG1K)
        return tuple(kept[:, :, there[0]][:, :, there[1]] for kept in (self.keys_BGSK, self.values_BGSK))  # type: ignore[return-value]


class Remembered(Kept):
    """Keys and values (B, H, M, K) of the other stream's tokens, worked out once."""

    keys_BHMK: Tensor
    values_BHMK: Tensor

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.keeps("keys_BHMK", *shape)
        self.keeps("values_BHMK", *shape)

    def forward(self) -> tuple[Tensor, Tensor]:
        return self.keys_BHMK, self.values_BHMK


def stand_at(model: nn.Module, position: int) -> None:
    """Let the next token be number `position`, 0 being the first."""
    for module in model.modules():
        if isinstance(module, Positioned):
            module.position = position
