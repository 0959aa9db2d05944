"""Runs the model of an architecture with random weights on a random input, and measures its residual stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Final

import msgspec
import torch

from xfcost.ledger.ledger import Ledger
from xfcost.ledger.residual_stream import ResidualStream, StreamStep
from xfcost.ledger.units import BYTES_PER_ELEMENT
from xfcost.spec.architecture import Architecture
from xfcost.torch_models.build import BuiltModel, build
from xfcost.torch_models.memory.peak import bytes_to_run, check_room, peak_bytes
from xfcost.torch_models.memory.shortage import within_torch
from xfcost.torch_models.residual_stream.watch import BlockPlace, BlockWatch
from xfcost.torch_models.shared.no_compiler import no_compiler
from xfcost.torch_models.timing.devices import on_device

_MEND: Final = (
    "take a smaller --N or --size, or fewer blocks (--set stages.0.depth=2); the width stays as it is, so that what is "
    "measured is this model"
)
# Copies of the widest stream that the measurement holds at once, in float64.
_COPIES: Final = 16
_FLOAT64: Final = 8


def residual_stream(
    architecture: Architecture, ledger: Ledger, seed: int, say: Callable[[str], None]
) -> ResidualStream:
    """Run the model of `architecture` without its head, and measure every sub-layer.

    Raises:
        NoRoomError: it doesn't fit into memory.
        DeviceError: torch has no kernel for it.
    """
    name, headless = ledger.metadata.name, msgspec.structs.replace(architecture, head=None)
    say(f"laying out {name} …")
    with within_torch(ledger), no_compiler():
        needed = _needed(headless)
    check_room(needed, "cpu", name, "one forward and what is measured of it", _MEND)
    say(f"running {name} …")
    steps: list[StreamStep] = []
    with torch.random.fork_rng(devices=[]), on_device(name, "cpu", architecture.dtype), torch.no_grad():
        torch.manual_seed(seed)
        live = build(headless, "cpu")
        with ExitStack() as hooks:
            for place in _blocks(headless, live):
                BlockWatch(place, seed, steps.append).hooked(hooks)
            live.model(*live.inputs)
    return ResidualStream(metadata=ledger.metadata, seed=seed, steps=tuple(steps))


def _needed(architecture: Architecture) -> int:
    """Bytes of one forward whose activations are in float64 once, with a copy of the largest sub-layer."""
    live = build(architecture)
    element = BYTES_PER_ELEMENT[architecture.dtype]
    weights = sum(one.nbytes for one in live.model.parameters())
    largest = max(
        sum(one.numel() for one in sublayer.parameters())
        for place in _blocks(architecture, live)
        for sublayer in place.sublayers
    )
    widest = max(
        part.place.grid.total * max(part.place.dim, part.place.out_dim)
        for stream in architecture.streams
        for part in stream.parts()
    )
    activations = bytes_to_run(peak_bytes(live.model, live.inputs), "cpu") - weights
    of_copy = largest * (element + _FLOAT64)
    return weights + activations * _FLOAT64 // element + of_copy + _COPIES * _FLOAT64 * int(widest)


def _blocks(architecture: Architecture, live: BuiltModel) -> Iterator[BlockPlace]:
    """Every block of the model, with the parts that it was built of."""
    streams: Any = live.model.streams
    for stream, stream_model in zip(architecture.streams, streams, strict=True):
        for stage, stage_model in zip(stream.stages, stream_model.stages, strict=True):
            for number, index in enumerate(stage.order):
                parts = stage.blocks[index].parts
                yield BlockPlace(stage.label, number + 1, parts, list(stage_model.run[number]))
