"""How devices share a model in inference: tensor, pipeline and expert parallelism, and the bytes that they exchange."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec


class Parallelism(msgspec.Struct, frozen=True, kw_only=True):
    """Degrees of parallelism; t·p devices hold a replica, and the samples are divided among the replicas."""

    tensor: int = 1
    """t devices divide heads, linear maps and vocabulary (Shoeybi et al. 2019)."""
    pipeline: int = 1
    """p stages hold equal shares of the blocks (Huang et al. 2019)."""
    expert: int = 1
    """So many devices of a stage divide whole experts among them (Lepikhin et al. 2021); 1: each is divided by t."""

    def replicas(self, devices: int) -> int:
        """Of the model, among so many devices."""
        return devices // (self.tensor * self.pipeline)


class HeadSharing(NamedTuple):
    """What tensor parallelism must know of an attention layer."""

    heads: int
    kv_heads: int
    """Heads of keys and values; 1 where all heads read the same latent."""
    of_keys: Mapping[int, int] = {}
    """Outputs of a projection -> how many of them are keys and values."""
    whole: frozenset[int] = frozenset()
    """Outputs of projections to latents, which every device computes whole."""

    def held(self, tensor: int) -> int:
        """The most heads of keys and values of one of t devices, which has consecutive heads of queries."""
        own, group = self.heads // tensor, self.heads // self.kv_heads
        return max(((at + 1) * own - 1) // group - at * own // group + 1 for at in range(tensor))


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """What the devices of a step or pass send each other, and the link between them."""

    all_reduces: int
    """Of tensor parallelism: one after each attention and each MLP of a block, one behind the embedding."""
    all_reduce_bytes: int
    """Bytes of all of these, of which each device receives as many at least."""
    all_to_all_bytes: int | float
    """Expected bytes of tokens that a device sends to experts on other replicas' devices, and gets back."""
    stage_bytes: int
    """Bytes that a pipeline stage passes on to the next."""
    ring: float
    """How many times more a ring moves in an all-reduce: 2·(t - 1)/t (Patarasuk and Yuan 2009)."""
    link: str | None
    rate: float | None
    """Bytes/s of one direction, for each device; None where it is not known. All-reduces beyond a node: of a node."""
    stage_seconds: float = 0.0
    """Where a stage is a node or more, those of the network."""
    all_to_all_seconds: float = 0.0
    """Beyond a node, those of its network."""

    @property
    def seconds(self) -> float:
        """Without tokens sent to experts, at the full rate."""
        return 0.0 if self.rate is None else self.all_reduce_bytes / self.rate + self.stage_seconds

    @property
    def bytes(self) -> int:
        """That a device receives, without tokens sent to experts."""
        return self.all_reduce_bytes + self.stage_bytes
