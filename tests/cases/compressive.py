"""Compressive attention under the contract."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from cases.base import HEADS, SEQUENCES, MechanismCase, Rows
from cases.relative import with_memory
from xfcost.live.mechanisms.compressive import Past
from xfcost.mechanisms import Compressive
from xfcost.mechanisms.base import Place


def reference(page: Compressive, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    """With zeros for all memories, as the twin stands: what was evicted is compressed and pushes out the oldest."""
    batch, tokens, width = x_BND.shape
    new_BSD = compressed(page, twin, x_BND.new_zeros(batch, tokens, width))
    slots_BCD = torch.cat([x_BND.new_zeros(batch, page.compressed_memory, width), new_BSD], dim=1)
    memory_BPD = x_BND.new_zeros(batch, page.memory, width)
    return with_memory(page, twin, x_BND, torch.cat([slots_BCD[:, -page.compressed_memory :], memory_BPD], dim=1))


def compressed(page: Compressive, twin: nn.Module, evicted_BND: Tensor) -> Tensor:
    """Rae et al. 2020, §3.1, by torch's own convolution and pooling."""
    evicted_BDN, c = evicted_BND.transpose(1, 2), page.compression
    if evicted_BDN.shape[-1] < c:
        return evicted_BND[:, :0]
    if page.function == "conv":
        kernel = twin.compress.weight.unflatten(1, (c, -1)).transpose(1, 2)
        return F.conv1d(evicted_BDN, kernel, twin.compress.bias, stride=c).transpose(1, 2)
    pool = F.avg_pool1d if page.function == "mean" else F.max_pool1d
    return pool(evicted_BDN, c).transpose(1, 2)


def past(page: Compressive, place: Place) -> tuple[Past]:
    """The compressed memory, what the segment before evicted, and the memory."""
    lengths = (page.compressed_memory, place.grid.total, page.past - page.compressed_memory)
    return (Past(*(torch.zeros(1, length, place.dim) for length in lengths)),)


CASE = MechanismCase(
    rows=Rows(
        positional=lambda page: frozenset(
            (
                "position_scores",
                "position_shift",
            )
        ),
        masks=frozenset(("mask",)),
        past=past,
        more={"position_scores": lambda page, place: 0 if page.causal else place.grid.total - 1},
    ),
    page=Compressive,
    examples=(
        Compressive(heads=2, causal=True, memory=4, compressed_memory=3, compression=2),
        Compressive(heads=3, causal=True, compressed_memory=2, compression=3, function="mean"),
        Compressive(heads=1, memory=2, compressed_memory=5, compression=1, function="max", projection_bias=True),
    ),
    pages=st.builds(
        Compressive,
        heads=HEADS,
        causal=st.none() | st.booleans(),
        memory=st.integers(0, 9),
        compressed_memory=st.integers(1, 9),
        compression=st.integers(1, 5),
        function=st.sampled_from(["conv", "mean", "max"]),
    ),
    reference=reference,
    grids=SEQUENCES[:-1],
)
