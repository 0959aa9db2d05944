"""Caches and states of a decode step, as leaves.

B batch, G heads of keys and values, K head width, V width of values, R rows of a cache, C residue classes (a window's
dilation), D width, W taps of a convolution.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from xfcost.torch_models.shared.leaves import Table


class Positioned(nn.Module):
    """A module of a decode step whose work depends on the token's position."""

    position: int = 0
    """The next token's, 0 for the first."""


class Cache(Positioned):
    """A leaf whose buffers persist from token to token. All their elements count as cached."""

    def add_buffer(self, name: str, *shape: int, start: float | None = None) -> None:
        """A buffer of that shape, filled with `start`. None: random numbers, overwritten before the first read."""
        if start is not None:
            past = torch.full(shape, max(start, torch.finfo(torch.get_default_dtype()).min))
        else:
            past = torch.zeros(shape) if torch.get_default_device().type == "meta" else torch.randn(shape)
        self.register_buffer(name, past, persistent=False)


class KeyValueCache(Cache):
    """Stores a token's keys (B, G, 1, K) and values (B, G, 1, V) -> those of the M tokens that it reads.

    A ring of the last R tokens of each of C residue classes; C = 1 and R = N cache all tokens.
    """

    keys_BGSK: Tensor
    values_BGSV: Tensor

    def __init__(self, batch: int, heads: int, rows: int, widths: tuple[int, int], *, classes: int = 1) -> None:
        super().__init__()
        self.rows, self.classes = rows, classes
        self.add_buffer("keys_BGSK", batch, heads, rows * classes, widths[0])
        self.add_buffer("values_BGSV", batch, heads, rows * classes, widths[1])

    def forward(self, k_BG1K: Tensor, v_BG1V: Tensor) -> tuple[Tensor, Tensor]:
        turn, residue = divmod(self.position, self.classes)
        slot = turn % self.rows * self.classes + residue
        index = torch.arange(slot, slot + 1, device=k_BG1K.device)
        same_class, written = slice(residue, None, self.classes), slice(min(turn + 1, self.rows))
        self.keys_BGSK.index_copy_(2, index, k_BG1K)
        self.values_BGSV.index_copy_(2, index, v_BG1V)
        return tuple(cache[:, :, same_class][:, :, written] for cache in (self.keys_BGSK, self.values_BGSV))  # type: ignore[return-value]


class LatentCache(Cache):
    """Stores a token's latent (B, 1, C) and rotary key (B, 1, 1, R) -> those of M tokens, (B, 1, M, C + R)."""

    latents_BNX: Tensor

    def __init__(self, batch: int, tokens: int, width: int) -> None:
        super().__init__()
        self.add_buffer("latents_BNX", batch, tokens, width)

    def forward(self, latent_B1C: Tensor, key_B11R: Tensor) -> Tensor:
        width = latent_B1C.shape[-1]
        index = torch.arange(self.position, self.position + 1, device=latent_B1C.device)
        self.latents_BNX[..., :width].index_copy_(1, index, latent_B1C)
        self.latents_BNX[..., width:].index_copy_(1, index, key_B11R.squeeze(1))
        return self.latents_BNX[:, : self.position + 1].unsqueeze(1)


class MemoryCache(Cache):
    """Keys (B, …, M, K) and values of the encoder's M tokens, computed once. `value_width` defaults to K."""

    keys: Tensor
    values: Tensor

    def __init__(self, *shape: int, value_width: int | None = None) -> None:
        super().__init__()
        self.add_buffer("keys", *shape)
        self.add_buffer("values", *shape[:-1], shape[-1] if value_width is None else value_width)

    def forward(self) -> tuple[Tensor, Tensor]:
        return self.keys, self.values


class RecurrentState(Cache):
    """Tensors (B, …) that each token overwrites. `past` holds those of the previous token."""

    def __init__(self, *shapes: tuple[int, ...], starts: Sequence[float] = ()) -> None:
        super().__init__()
        self.batch = shapes[0][0]
        self.names = tuple(f"state_{number}" for number in range(len(shapes)))
        for name, shape, start in zip(self.names, shapes, starts or (0.0,) * len(shapes), strict=True):
            self.add_buffer(name, *shape, start=start)

    @property
    def past(self) -> tuple[Tensor, ...]:
        """The states after the previous token. Read them before overwriting them."""
        return tuple(getattr(self, name) for name in self.names)

    def forward(self, *new: Tensor) -> None:
        every_sample = torch.arange(self.batch, device=new[0].device)
        for past, tensor in zip(self.past, new, strict=True):
            past.index_copy_(0, every_sample, tensor)


class ConvState(Cache):
    """The last (W - 1)·δ inputs of a causal convolution: a new one (B, 1, D) -> the inputs of all taps, (B, W, D).

    A ring: the new input overwrites the oldest one, which is the first tap's.
    """

    past_BRD: Tensor

    def __init__(self, batch: int, taps: int, width: int, *, dilation: int = 1) -> None:
        super().__init__()
        self.rows, self.dilation = (taps - 1) * dilation, dilation
        self.add_buffer("past_BRD", batch, self.rows, width, start=0.0)

    def forward(self, x_B1D: Tensor) -> Tensor:
        slots = [(self.position + back) % self.rows for back in range(0, self.rows, self.dilation)]
        index = torch.tensor(slots, device=x_B1D.device)
        taps_BWD = torch.cat([self.past_BRD.index_select(1, index), x_B1D], dim=1)
        self.past_BRD.index_copy_(1, index[:1], x_B1D)
        return taps_BWD


class TokenBefore(Cache):
    """Caches the new token and returns the previous one, or the start: (B, 1, D) -> (B, 1, D)."""

    past_B1D: Tensor

    def __init__(self, batch: int, width: int, *, learned: bool) -> None:
        super().__init__()
        self.batch = batch
        self.weight = Table(width).weight if learned else None
        self.add_buffer("past_B1D", batch, 1, width, start=0.0)

    def forward(self, x_B1D: Tensor) -> Tensor:
        every_sample = torch.arange(self.batch, device=x_B1D.device)
        before_B1D = self.past_B1D.index_select(0, every_sample)
        self.past_B1D.index_copy_(0, every_sample, x_B1D)
        return before_B1D if self.position or self.weight is None else self.weight.expand_as(x_B1D)


class TokenOfMemory(Cache):
    """The memory token at the current position: -> (B, 1, D)."""

    memory_BND: Tensor

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.add_buffer("memory_BND", *shape)

    def forward(self) -> Tensor:
        return self.memory_BND[:, self.position : self.position + 1]


def set_position(model: nn.Module, position: int) -> None:
    """Set the position of the next token, 0 for the first."""
    for module in model.modules():
        if isinstance(module, Positioned):
            module.position = position
