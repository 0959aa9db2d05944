"""Blocks of a model that stay on the host: weights and caches lie in its memory, and its processor computes them."""

from __future__ import annotations

import msgspec

from xfcost.ledger.device import Device
from xfcost.ledger.roofs import Bound


class Offload(msgspec.Struct, frozen=True, kw_only=True):
    """How many blocks stay on the host, and which host that is."""

    layers: int
    """The first ones of the model; llama.cpp's `-ngl` is the number of the others."""
    host: Device
    assumed: bool = False
    """Was no host given?"""


class HostTime(msgspec.Struct, frozen=True, kw_only=True):
    """The time of the host in a pass, or in all passes of a phase: one side computes while the other waits.

    The larger of FLOPs / peak and bytes / bandwidth, as on devices; and the activations of a token go there and back.
    """

    flops: int
    bytes: int
    """Weights once, and the KV cache, of its blocks."""
    peak: float
    bandwidth: float
    moved_bytes: int
    """Activations over the link, in both directions."""
    link_rate: float
    """Bytes/s of the link in one direction."""

    @property
    def compute_seconds(self) -> float:
        """FLOPs at the peak."""
        return self.flops / self.peak

    @property
    def memory_seconds(self) -> float:
        """Bytes at the bandwidth."""
        return self.bytes / self.bandwidth

    @property
    def seconds(self) -> float:
        """At the full rates, without the link."""
        return self.seconds_at(None, None)

    @property
    def moved_seconds(self) -> float:
        """Activations over the link, one direction after the other."""
        return self.moved_bytes / self.link_rate

    @property
    def bound(self) -> Bound:
        """What it waits for."""
        return "memory-bound" if self.memory_seconds > self.compute_seconds else "compute-bound"

    def waits_for_memory(self, mfu: float | None, mbu: float | None) -> bool:
        """Do its bytes take longer than its FLOPs, at shares of bandwidth and peak?"""
        return self.memory_seconds / (mbu or 1) > self.compute_seconds / (mfu or 1)

    def seconds_at(self, mfu: float | None, mbu: float | None) -> float:
        """Its products or bytes at shares of its peak and bandwidth, without the link; None is all of it."""
        return max(self.compute_seconds / (mfu or 1), self.memory_seconds / (mbu or 1))

    def times(self, passes: int) -> HostTime:
        """That of so many passes."""
        scaled = {name: getattr(self, name) * passes for name in ("flops", "bytes", "moved_bytes")}
        return msgspec.structs.replace(self, **scaled)
