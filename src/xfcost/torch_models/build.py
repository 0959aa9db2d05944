"""Builds the torch model of an architecture, with example inputs.

B batch, N tokens, E special tokens among them, M memory tokens, D width; C channels, T Y X grid axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec
import torch
from torch import Tensor, nn

from xfcost.ledger.errors import UsageError
from xfcost.program.residual import branch, in_residual
from xfcost.spec.architecture import Architecture, BlockOrder, Part, Stage, Stream
from xfcost.spec.grammar import FeatureMapsInput, ImageInput, VectorInput, VideoInput
from xfcost.torch_models.program import Maker, ProgramModule, Runner, hand_over
from xfcost.torch_models.running.surroundings import default_dtype, torch_dtype
from xfcost.torch_models.shared.cache import set_position
from xfcost.torch_models.shared.leaves import Table, Tables
from xfcost.torch_models.shared.reversible import ReversibleRun


class ModuleMaker(NamedTuple):
    """Makes the modules of a stream: for all its tokens, or for one decode step with caches."""

    tables: Tables
    cache_batch: int | None = None
    """The batch size of the caches in a decode step; None for all tokens."""

    def module(self, part: Part) -> ProgramModule:
        """The module of the part's component."""
        return ProgramModule(part.component, part.place, self.tables, self.cache_batch)

    def reads_memory(self, part: Part) -> bool:
        """Does the module take the encoder's output in every call? A decode step reads it from a cache."""
        return self.cache_batch is None and part.component.reads_memory


class Model(nn.Module):
    """One stream, or an encoder and a decoder, and a head."""

    def __init__(self, architecture: Architecture, rows: dict[str, str]) -> None:
        super().__init__()
        tables = {name: Table(*shape) for name, shape in architecture.tables.items()}
        self.shared = nn.ModuleDict(tables)
        rows |= {f"shared.{name}": f"shared.{name}" for name in tables}
        decodes = architecture.mode == "decode"
        makers = [
            ModuleMaker(tables, architecture.batch if decodes and stream in architecture.running else None)
            for stream in architecture.streams
        ]
        self.streams = nn.ModuleList(
            StreamModel(stream, maker, rows, f"streams.{number}")
            for number, (stream, maker) in enumerate(zip(architecture.streams, makers, strict=True))
        )
        if len(architecture.streams) > 1:
            hand_over(*self.streams)
        self.head = makers[-1].module(architecture.head) if architecture.head else None
        rows["head"] = "head"

    def forward(self, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        """The output of the head, two tensors for a head with two outputs; without a head, of the last stream."""
        memory_BMD: Tensor | None = None
        for stream, numbers in zip(self.streams[-len(inputs) :], inputs, strict=True):
            memory_BMD = stream(numbers, memory_BMD)
        return memory_BMD if self.head is None else self.head(memory_BMD)  # type: ignore[return-value]


class StreamModel(nn.Module):
    """Stem or embedding layers, then stages: (B, C, Y, X), (B, C, T, Y, X), (B, N, C) or (B, N) -> (B, N, D)."""

    def __init__(self, stream: Stream, maker: ModuleMaker, rows: dict[str, str], path: str) -> None:
        super().__init__()
        self.embed = nn.ModuleList(maker.module(part) for part in stream.embed)
        rows |= {f"{path}.embed.{number}": part.path for number, part in enumerate(stream.embed)}
        self.stages = nn.ModuleList(
            StageModel(stage, maker, rows, f"{path}.stages.{number}") for number, stage in enumerate(stream.stages)
        )
        self.skips = any(stage.reads for stage in self.stages)  # only then are the outputs of stages saved

    def forward(self, x: Tensor, memory_BMD: Tensor | None) -> Tensor:
        for layer in self.embed:
            x = layer(x)
        earlier: list[Tensor] = []
        for stage in self.stages:
            x = stage(x, memory_BMD, earlier)
            earlier += [x] if self.skips else []
        return x


class StageModel(nn.Module):
    """Its entry layers, then its blocks: (B, N, D) -> (B, N', D')."""

    def __init__(self, stage: Stage, maker: ModuleMaker, rows: dict[str, str], path: str) -> None:
        super().__init__()
        self.enter = nn.ModuleList(maker.module(part) for part in stage.enter)
        self.reads = {
            number: part.component.reads_stage - 1
            for number, part in enumerate(stage.enter)
            if part.component.reads_stage
        }
        rows |= {f"{path}.enter.{number}": part.path for number, part in enumerate(stage.enter)}
        self.exit = maker.module(stage.exit) if stage.exit else None
        if stage.exit:
            rows[f"{path}.exit"] = stage.exit.path
            rows[f"{path}.run"] = f"{stage.exit.path}.join"  # saves both streams after the last block
        self.run = ReversibleRun() if stage.exit else nn.ModuleList()
        for number, index in enumerate(stage.order):
            block = stage.blocks[index]
            self.run.append(BlockModel(SubLayerModel(part, maker) for part in block.parts))
            for position, part in enumerate(block.parts):
                rows[f"{path}.run.{number}.{position}"] = part.path

    def forward(self, x_BND: Tensor, memory_BMD: Tensor | None, earlier: Sequence[Tensor] = ()) -> Tensor:
        for number, layer in enumerate(self.enter):
            x_BND = layer(x_BND, earlier[self.reads[number]]) if number in self.reads else layer(x_BND)
        if self.exit is not None:
            return self.exit(*self.run(x_BND, x_BND, memory_BMD))
        for block in self.run:
            x_BND = block(x_BND, memory_BMD)
        return x_BND


class BlockModel(nn.ModuleList):
    """A sequence of sub-layers: (B, N, D) -> (B, N, D)."""

    def forward(self, x_BND: Tensor, memory_BMD: Tensor | None) -> Tensor:
        for sublayer in self:
            x_BND = sublayer(x_BND, memory_BMD)
        return x_BND


class SubLayerModel(nn.Module):
    """A sub-layer inside its residual connection (`program/residual.py`): (B, N, D) -> (B, N', D').

    In a reversible stage the sum is with `onto`, the other stream.
    """

    def __init__(self, part: Part, maker: ModuleMaker) -> None:
        super().__init__()
        self.reads_memory = maker.reads_memory(part)
        component: Any = part.component
        residual: Any = part.residual
        self.sublayer = component, residual, (place := part.place)
        decodes = maker.cache_batch is not None
        leaves = Maker(self, lambda: maker.module(part), cache_batch=maker.cache_batch)
        leaves.lora = place.lora
        in_residual(leaves, *self.sublayer, leaves.input(1 if decodes else place.grid.total, place.dim))
        self.runner = Runner(self, decodes=decodes, lora=place.lora)
        # in a tuple, so that torch does not register the tables as parameters of the sub-layer
        self.shared_tables = tuple(maker.tables[name] for name in component.tables(place))

    def forward(self, x_BND: Any, memory_BMD: Tensor | None = None, onto_BND: Any = None) -> Any:
        memory = (memory_BMD,) if self.reads_memory else ()
        return in_residual(self.runner, *self.sublayer, x_BND, *memory, onto=onto_BND)

    def branch(self, x_BND: Any, memory_BMD: Tensor | None = None) -> Any:
        """The residual branch: f(norm(x)) or norm(f(x)), scaled."""
        memory = (memory_BMD,) if self.reads_memory else ()
        return branch(self.runner, *self.sublayer, x_BND, *memory)

    def weights(self) -> list[Tensor]:
        """Its own parameters and the shared tables that it uses."""
        return [*self.parameters(), *(table.weight for table in self.shared_tables)]


# The most blocks that are built: Python objects take memory on `meta` too. The deepest published models have hundreds.
MOST_BLOCKS: Final = 10_000


class BuiltModel(NamedTuple):
    """A model, example inputs, and the row path of each component's module."""

    model: nn.Module
    inputs: tuple[Tensor, ...]
    rows: dict[str, str]
    """Module path -> row path (`stages.0.run.3.0` -> `stages.0.block.0`); the longest prefix decides."""


def build(architecture: Architecture, device: str = "meta") -> BuiltModel:
    """The model of `architecture` in evaluation mode on `device`, with random weights (none on `meta`)."""
    blocks = sum(len(stage.order) for stream in architecture.running for stage in stream.stages)
    if blocks > MOST_BLOCKS:
        raise UsageError(
            f"{architecture.spec.name} has {blocks:,} blocks, and at most {MOST_BLOCKS:,} are built for a trace or a "
            "run; --no-trace counts them in closed form"
        )
    dtype = torch_dtype(architecture.dtype)
    rows: dict[str, str] = {}
    # made in their type: cast afterwards, weights would be kept with those of float32
    with torch.device(device), default_dtype(dtype):
        model = Model(architecture, rows).to(dtype).eval().requires_grad_(False)
        inputs = tuple(example_input(stream, architecture, dtype) for stream in architecture.running)
    if architecture.mode == "decode":
        set_position(model, architecture.running[-1].grid.total - 1)
    return BuiltModel(model, inputs, rows)


def thinned(architecture: Architecture) -> tuple[Architecture, dict[str, int]]:
    """The architecture with few of its repeated blocks, and the module path of each -> how many blocks it stands for.

    Blocks of one number have the same components at the same place. Recurrent layers that start from the encoder's
    layer of the same number need all of both.
    """
    stands_for: dict[str, int] = {}
    if any(getattr(one.part.component, "start", None) == "encoder" for one in architecture.parts()):
        return architecture, stands_for

    def thin(stage: Stage, path: str) -> Stage:
        order = list(stage.order.thinned())
        stands_for.update((f"{path}.run.{number}", times) for number, (_, times) in enumerate(order))
        return msgspec.structs.replace(stage, order=BlockOrder(tuple(index for index, _ in order)))

    streams = tuple(
        msgspec.structs.replace(
            stream,
            stages=tuple(thin(stage, f"streams.{first}.stages.{second}") for second, stage in enumerate(stream.stages)),
        )
        for first, stream in enumerate(architecture.streams)
    )
    return msgspec.structs.replace(architecture, streams=streams), stands_for


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
