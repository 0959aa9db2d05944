"""Builds the torch model of an architecture, with example inputs. B batch, N tokens, C channels, T Y X grid axes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import torch
from torch import Tensor, nn

from xfcost.ledger.errors import UsageError
from xfcost.spec.architecture import Architecture, Stream
from xfcost.spec.grammar import FeatureMapsInput, ImageInput, VectorInput, VideoInput
from xfcost.torch_models.model import Model
from xfcost.torch_models.shared.cache import set_position

# The most blocks that are built. The deepest published models have some hundreds.
MOST_BLOCKS: Final = 10_000


class BuiltModel(NamedTuple):
    """A model, example inputs, and the row path of each component's module."""

    model: nn.Module
    inputs: tuple[Tensor, ...]
    rows: dict[str, str]
    """Module path -> row path (`stages.0.run.3.0` -> `stages.0.block.0`); the longest prefix decides."""


def build(architecture: Architecture, device: str = "meta") -> BuiltModel:
    """The model of `architecture` in evaluation mode on `device`, with random weights (none on `meta`).

    Raises:
        UsageError: the architecture has more than `MOST_BLOCKS` blocks; Python objects take memory on `meta` too.
    """
    blocks = sum(len(stage.order) for stream in architecture.running for stage in stream.stages)
    if blocks > MOST_BLOCKS:
        raise UsageError(
            f"{architecture.spec.name} has {blocks:,} blocks, and at most {MOST_BLOCKS:,} are built for a trace or a "
            "run; --no-trace counts them in closed form"
        )
    dtype = getattr(torch, architecture.dtype)
    rows: dict[str, str] = {}
    with torch.device(device), _made_in(dtype):
        model = Model(architecture, rows).to(dtype).eval().requires_grad_(False)
        inputs = tuple(example_input(stream, architecture, dtype) for stream in architecture.running)
    if architecture.mode == "decode":
        set_position(model, architecture.running[-1].grid.total - 1)
    return BuiltModel(model, inputs, rows)


@contextmanager
def _made_in(dtype: torch.dtype) -> Iterator[None]:
    """Weights are made in their type: cast afterwards, they would stand beside those of float32."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def example_input(stream: Stream, architecture: Architecture, dtype: torch.dtype) -> Tensor:
    """Random pixels (B, C, [T,] Y, X), vectors (B, N, C) or token numbers (B, N), on the current device.

    A decode step takes one token: (B, 1, …).
    """
    source, batch = stream.input, architecture.batch
    if isinstance(source, ImageInput | VideoInput):
        return torch.randn(batch, source.channels, *source.sides, dtype=dtype)
    length = 1 if architecture.mode == "decode" else source.length
    if isinstance(source, VectorInput | FeatureMapsInput):
        return torch.randn(batch, length, source.channels, dtype=dtype)
    return torch.randint(source.vocabulary, (batch, length))
