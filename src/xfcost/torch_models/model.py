"""The model of an architecture: streams of stages of blocks, and a head.

B batch, N tokens, M memory tokens, D width.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from xfcost.formulas.layer import Enter
from xfcost.spec.architecture import Architecture, Stage, Stream
from xfcost.torch_models.modules import ModuleMaker
from xfcost.torch_models.shared.leaves import Table
from xfcost.torch_models.shared.recurrent import hand_over
from xfcost.torch_models.shared.reversible import ReversibleRun
from xfcost.torch_models.sublayer import SubLayerModel


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
            if isinstance(part.component, Enter) and part.component.reads_stage
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
