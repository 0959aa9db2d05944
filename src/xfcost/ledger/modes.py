"""Results of a run mode in addition to its rows: KV cache, decode step, generation."""

from __future__ import annotations

import msgspec

from xfcost.ledger.units import Count


class CacheBytes(msgspec.Struct, frozen=True, kw_only=True):
    """The KV cache and recurrent states, in bytes."""

    bytes: Count
    """For the whole batch with N tokens."""
    bytes_per_token: Count
    """Bytes that each further token of a sample adds; 0 for states of constant size and full windows."""
    state_bytes: Count
    """The part of `bytes` that does not grow: states, full windows, and an encoder's keys and values."""
    recurrent_bytes: Count
    """The part of `bytes` in recurrent states and the last inputs of convolutions."""
    cross_attention_bytes: Count = 0
    """The part of `state_bytes` that cross-attention reads: keys and values of an encoder's tokens, computed once."""

    def times(self, samples: int, before: int = 1) -> CacheBytes:
        """That of so many samples instead of those `before`."""
        of_batch = ("bytes", "state_bytes", "recurrent_bytes", "cross_attention_bytes")
        return msgspec.structs.replace(self, **{name: getattr(self, name) * samples // before for name in of_batch})


class DecodeStep(msgspec.Struct, frozen=True, kw_only=True):
    """A decode step, one token for every sample of the batch: bytes read and work."""

    weight_bytes: int
    """Weights, once for the whole batch; of a look-up table, the rows read; of experts the expected number.

    Devices that share the model as given read their own: every replica, for each micro-batch of its pipeline.
    """
    cache_bytes: int
    """The whole cache, without the keys and values of earlier chunks where attention runs in chunks."""
    flops: int

    @property
    def bytes_read(self) -> int:
        """Weights and cache; the small activations of one token stay on chip."""
        return self.weight_bytes + self.cache_bytes

    @property
    def intensity(self) -> float | None:
        """Arithmetic intensity, FLOPs per byte read; memory-bound below the ridge point of a device."""
        return self.flops / self.bytes_read if self.bytes_read else None


class GeneratedToken(msgspec.Struct, frozen=True, kw_only=True):
    """What a language model whose forward is counted would cost for the next token: its decode step at the same N."""

    tokens: Count
    """N: the token and those before it."""
    flops: int
    """Of the step, for all samples of the batch."""
    cache: CacheBytes
    dtype: str
    """In which the cache is stored."""


class PassWork(msgspec.Struct, frozen=True, kw_only=True):
    """Work of one or several passes."""

    macs: Count
    flops: Count


class CachedPrefix(msgspec.Struct, frozen=True, kw_only=True):
    """A prefill whose first tokens are in the cache already, and what it would be without them."""

    tokens: Count
    """Of the prefix, for each sample."""
    prompt: Count
    prefill: PassWork
    """Of the other tokens."""
    without: PassWork
    """Of the whole prompt."""
    prefill_seconds: float | None = None
    """Lower bounds on the devices of `--on`; None without, or where the run does not fit."""
    without_seconds: float | None = None


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """m new tokens after a prompt of N: the prefill gives the first, decode steps the others."""

    prompt: Count
    new_tokens: Count
    prefill: PassWork
    decode: PassWork | None
    """All m - 1 decode steps, with N + 1, …, N + m - 1 tokens; None if a mixer has no decode step."""
    without_cache: PassWork
    """m forward passes over N, …, N + m - 1 tokens; an encoder runs once."""
    prefill_seconds: float | None = None
    decode_seconds: float | None = None
    """All steps on the device."""
    traced_at: tuple[int, ...] = ()
    """The numbers of tokens at which a step was traced, in addition to the prefill."""
    refused: str | None = None
    """The reason why there are no decode steps."""

    @property
    def with_cache(self) -> PassWork | None:
        """Prefill and decode steps."""
        if self.decode is None:
            return None
        return PassWork(macs=self.prefill.macs + self.decode.macs, flops=self.prefill.flops + self.decode.flops)
