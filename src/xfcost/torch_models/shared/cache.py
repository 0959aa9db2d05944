"""What a model that works token by token keeps of the past, as leaves.

B batch, G heads of keys and values, K head width, V of values, R rows of a cache, C residue classes (a window's
dilation), D width, W taps of a convolution.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Positioned(nn.Module):
    """What does otherwise at every position."""

    position: int = 0
    """The token that comes next, 0 being the first; all before it have come."""


class Kept(Positioned):
    """A leaf whose buffers outlive a token: all that they hold is counted as cached."""

    def keeps(self, name: str, *shape: int, start: float | None = None) -> None:
        """A buffer of that shape: `start` before the first token, or where it is None what nobody asks for then."""
        if start is not None:
            past = torch.full(shape, start)
        else:
            past = torch.zeros(shape) if torch.get_default_device().type == "meta" else torch.randn(shape)
        self.register_buffer(name, past, persistent=False)


class KeyValueCache(Kept):
    """A token's keys (B, G, 1, K) and values (B, G, 1, V) into their slots -> those of all M tokens that it reads.

    It holds the last R tokens of each of C residue classes, as a ring: with C = 1 and R = N the whole past.
    """

    keys_BGSK: Tensor
    values_BGSV: Tensor

    def __init__(self, batch: int, heads: int, rows: int, widths: tuple[int, int], *, classes: int = 1) -> None:
        super().__init__()
        self.rows, self.classes = rows, classes
        self.keeps("keys_BGSK", batch, heads, rows * classes, widths[0])
        self.keeps("values_BGSV", batch, heads, rows * classes, widths[1])

    def forward(self, k_BG1K: Tensor, v_BG1V: Tensor) -> tuple[Tensor, Tensor]:
        turn, kind = divmod(self.position, self.classes)
        slot = turn % self.rows * self.classes + kind
        index = torch.arange(slot, slot + 1, device=k_BG1K.device)
        there = slice(kind, None, self.classes), slice(min(turn + 1, self.rows))
        self.keys_BGSK.index_copy_(2, index, k_BG1K)
        self.values_BGSV.index_copy_(2, index, v_BG1V)
        return tuple(kept[:, :, there[0]][:, :, there[1]] for kept in (self.keys_BGSK, self.values_BGSV))  # type: ignore[return-value]


class Remembered(Kept):
    """Keys and values of the other stream's M tokens, worked out once: (B, …, M, K), the values perhaps wider."""

    keys: Tensor
    values: Tensor

    def __init__(self, *shape: int, value_width: int | None = None) -> None:
        super().__init__()
        self.keeps("keys", *shape)
        self.keeps("values", *shape[:-1], shape[-1] if value_width is None else value_width)

    def forward(self) -> tuple[Tensor, Tensor]:
        return self.keys, self.values


class State(Kept):
    """Tensors (B, …), all rewritten with every token: as they are after it. `past` is how the token finds them."""

    def __init__(self, *shapes: tuple[int, ...], starts: Sequence[float] = ()) -> None:
        super().__init__()
        self.batch = shapes[0][0]
        self.names = tuple(f"state_{number}" for number in range(len(shapes)))
        for name, shape, start in zip(self.names, shapes, starts or (0.0,) * len(shapes), strict=True):
            self.keeps(name, *shape, start=start)

    @property
    def past(self) -> tuple[Tensor, ...]:
        """As the token before left them; not to be used once they are rewritten."""
        return tuple(getattr(self, name) for name in self.names)

    def forward(self, *new: Tensor) -> None:
        every = torch.arange(self.batch, device=new[0].device)
        for kept, tensor in zip(self.past, new, strict=True):
            kept.index_copy_(0, every, tensor)


class Window(Kept):
    """The last (W - 1)·δ inputs of a causal convolution: a new one (B, 1, D) -> those of its taps, (B, W, D).

    A ring: the oldest is the first tap's, and the new one takes its place.
    """

    past_BRD: Tensor

    def __init__(self, batch: int, taps: int, width: int, *, dilation: int = 1) -> None:
        super().__init__()
        self.rows, self.dilation = (taps - 1) * dilation, dilation
        self.keeps("past_BRD", batch, self.rows, width, start=0.0)

    def forward(self, x_B1D: Tensor) -> Tensor:
        slots = [(self.position + back) % self.rows for back in range(0, self.rows, self.dilation)]
        index = torch.tensor(slots, device=x_B1D.device)
        window_BWD = torch.cat([self.past_BRD.index_select(1, index), x_B1D], dim=1)
        self.past_BRD.index_copy_(1, index[:1], x_B1D)
        return window_BWD


def window(batch: int, taps: int, width: int, *, dilation: int = 1) -> Window | None:
    """What a convolution of more than one tap keeps."""
    return Window(batch, taps, width, dilation=dilation) if taps > 1 else None


def stand_at(model: nn.Module, position: int) -> None:
    """Let the next token be number `position`, 0 being the first."""
    for module in model.modules():
        if isinstance(module, Positioned):
            module.position = position
