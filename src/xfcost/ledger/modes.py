"""What a mode of running says beside its rows: what a token more keeps and reads, what generating a text adds up to."""

from __future__ import annotations

import msgspec


class Cache(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of the past so that one token more can be worked out by itself, in bytes."""

    bytes: int
    """Of the whole batch, with N tokens in it."""
    bytes_per_token: int
    """What every further token of a sample adds; 0 where all of it is a state of constant size, or full windows."""
    state_bytes: int
    """The part of `bytes` that no further token adds to: states, full windows, and what was read of an encoder."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One token more for every sample of the batch: what it has to read, and how much work it does with it."""

    weight_bytes: int
    """Weights: each once for the whole batch, of a table the rows that are looked up."""
    cache_bytes: int
    """All that is cached."""
    flops: int
    at_most: bool = False
    """Is `weight_bytes` a bound, samples of the batch being free to ask for the same experts?"""

    @property
    def bytes_read(self) -> int:
        """Weights and cache. Activations of one token are small, and stay on chip."""
        return self.weight_bytes + self.cache_bytes

    @property
    def intensity(self) -> float | None:
        """FLOPs per byte read; below a device's FLOP/s over its bytes/s, memory decides how fast it decodes."""
        return self.flops / self.bytes_read if self.bytes_read else None


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """Work that is done in one go or in many."""

    macs: int
    flops: int


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """m new tokens after a prompt of N: the prefill gives the first, every other needs a step."""

    prompt: int
    new_tokens: int
    prefill: Work
    decode: Work | None
    """All m - 1 steps with a cache, t = N + 1, …, N + m - 1 tokens in it; None where a mixer has no such form."""
    without_cache: Work
    """m passes over all tokens so far, N, …, N + m - 1; an encoder runs once."""
    prefill_seconds: float | None = None
    decode_seconds: float | None = None
    """Of all steps on the device, one after the other."""
    traced_at: tuple[int, ...] = ()
    """At how many tokens a step was traced, beside the prefill."""
    refused: str | None = None
    """Why there are no steps."""

    @property
    def with_cache(self) -> Work | None:
        """Prefill and steps."""
        if self.decode is None:
            return None
        both = self.prefill, self.decode
        return Work(macs=sum(work.macs for work in both), flops=sum(work.flops for work in both))
