"""Architecture -> the real torch model, every config's module at its place, and where each module's row stands.

B batch, N tokens, E extra ones among them, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import signature
from typing import Final, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from xfcost.formulas.component import Mixer, SubLayer, single_token
from xfcost.formulas.layer import Enter
from xfcost.ledger.errors import UsageError
from xfcost.spec.architecture import Architecture, Part, Stage, Stream
from xfcost.spec.grammar import ImageInput, VectorInput, VideoInput
from xfcost.torch_models.modules import MODULES
from xfcost.torch_models.shared.cache import set_position
from xfcost.torch_models.shared.leaves import Add, Scale, Table, Tables
from xfcost.torch_models.shared.norms import LayerScale, norm
from xfcost.torch_models.shared.recurrent import hand_over
from xfcost.torch_models.shared.reversible import ReversibleRun

# Blocks of a model that is built: those of the deepest in print are some hundreds.
MOST_BLOCKS: Final = 10_000


class Live(NamedTuple):
    """A model, example inputs, and the row path of every module that stands for a config."""

    model: nn.Module
    inputs: tuple[Tensor, ...]
    rows: dict[str, str]
    """Module path -> row path (`stages.0.run.3.0` -> `stages.0.block.0`); the longest prefix decides."""


def build(architecture: Architecture, device: str = "meta") -> Live:
    """The model of `architecture` in evaluation mode, on `device`, randomly initialised (on `meta`: no memory).

    Raises:
        UsageError: it has more than `MOST_BLOCKS` blocks, each of which is objects of Python, on `meta` too.
    """
    blocks = sum(len(stage.order) for stream in architecture.running for stage in stream.stages)
    if blocks > MOST_BLOCKS:
        raise UsageError(
            f"{architecture.spec.name} has {blocks:,} blocks, and at most {MOST_BLOCKS:,} are built for a trace or a "
            "run; --no-trace counts them in closed form"
        )
    dtype = getattr(torch, architecture.dtype)
    rows: dict[str, str] = {}
    with torch.device(device):
        model = Model(architecture, rows).to(dtype).eval().requires_grad_(False)
        inputs = tuple(example_input(stream, architecture, dtype) for stream in architecture.running)
    if architecture.mode == "decode":
        set_position(model, architecture.running[-1].grid.total - 1)
    return Live(model, inputs, rows)


def example_input(stream: Stream, architecture: Architecture, dtype: torch.dtype) -> Tensor:
    """Random pixels (B, C, [T,] Y, X), vectors (B, N, C) or token numbers (B, N), on the current device.

    Of a model that decodes, one token (B, 1, …).
    """
    entry, batch = stream.input, architecture.batch
    if isinstance(entry, ImageInput | VideoInput):
        return torch.randn(batch, entry.channels, *entry.sides, dtype=dtype)
    length = 1 if architecture.mode == "decode" else entry.length
    if isinstance(entry, VectorInput):
        return torch.randn(batch, length, entry.channels, dtype=dtype)
    return torch.randint(entry.vocabulary, (batch, length))


class Modules(NamedTuple):
    """Makes the modules of components, of all tokens, or of one token with caches."""

    tables: Tables
    cache_batch: int | None = None
    """The batch size of the caches, where the stream decodes token by token."""

    def of(self, part: Part) -> nn.Module:
        """The component's module. Decoding, one without a cache works on its token alone."""
        config, place = part.component, part.place
        module = MODULES[type(config)]
        make: Callable[..., nn.Module] = module
        if self.cache_batch is None:
            return make(config, place, self.tables)
        if takes_cache(module):
            return make(config, place, self.tables, self.cache_batch)
        return make(config, single_token(place), self.tables)

    def reads_memory(self, part: Part) -> bool:
        """Is the module given the encoder's output in every call? Decoding, what it reads of it is cached."""
        return self.cache_batch is None and isinstance(part.component, SubLayer) and part.component.reads_memory


def takes_cache(module: type[nn.Module]) -> bool:
    """Does a step of the module need anything of the tokens before?"""
    return "cache_batch" in signature(module).parameters


class Model(nn.Module):
    """One stream or two, and a head."""

    def __init__(self, architecture: Architecture, rows: dict[str, str]) -> None:
        super().__init__()
        tables = {name: Table(*shape) for name, shape in architecture.tables.items()}
        self.shared = nn.ModuleDict(tables)
        rows |= {f"shared.{name}": f"shared.{name}" for name in tables}
        decodes = architecture.mode == "decode"
        makers = [
            Modules(tables, architecture.batch if decodes and stream in architecture.running else None)
            for stream in architecture.streams
        ]
        self.streams = nn.ModuleList(
            StreamModel(stream, maker, rows, f"streams.{number}")
            for number, (stream, maker) in enumerate(zip(architecture.streams, makers, strict=True))
        )
        if len(architecture.streams) > 1:
            hand_over(*self.streams)
        self.head = makers[-1].of(architecture.head) if architecture.head else None
        rows["head"] = "head"

    def forward(self, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        """What the head answers: two tensors where it has two answers."""
        memory_BMD: Tensor | None = None
        for stream, numbers in zip(self.streams[-len(inputs) :], inputs, strict=True):
            memory_BMD = stream(numbers, memory_BMD)
        return memory_BMD if self.head is None else self.head(memory_BMD)  # type: ignore[return-value]


class StreamModel(nn.Module):
    """Embedding layers, then stages: (B, C, Y, X), (B, C, T, Y, X), (B, N, C) or (B, N) -> (B, N, D)."""

    def __init__(self, stream: Stream, make: Modules, rows: dict[str, str], path: str) -> None:
        super().__init__()
        self.embed = nn.ModuleList(make.of(part) for part in stream.embed)
        rows |= {f"{path}.embed.{number}": part.path for number, part in enumerate(stream.embed)}
        self.stages = nn.ModuleList(
            StageModel(stage, make, rows, f"{path}.stages.{number}") for number, stage in enumerate(stream.stages)
        )
        self.skips = any(stage.reads for stage in self.stages)  # else no stage's output is kept

    def forward(self, x: Tensor, memory_BMD: Tensor | None) -> Tensor:
        for layer in self.embed:
            x = layer(x)
        earlier: list[Tensor] = []
        for stage in self.stages:
            x = stage(x, memory_BMD, earlier)
            earlier += [x] if self.skips else []
        return x


class StageModel(nn.Module):
    """Its entry, then blocks in their order: (B, N, D) -> (B, N', D')."""

    def __init__(self, stage: Stage, make: Modules, rows: dict[str, str], path: str) -> None:
        super().__init__()
        self.enter = nn.ModuleList(make.of(part) for part in stage.enter)
        self.reads = {
            number: part.component.reads_stage - 1
            for number, part in enumerate(stage.enter)
            if isinstance(part.component, Enter) and part.component.reads_stage
        }
        rows |= {f"{path}.enter.{number}": part.path for number, part in enumerate(stage.enter)}
        self.exit = make.of(stage.exit) if stage.exit else None
        if stage.exit:
            rows[f"{path}.exit"] = stage.exit.path
            rows[f"{path}.run"] = f"{stage.exit.path}.join"  # the two streams, which are saved at the end of all blocks
        self.run = ReversibleRun() if stage.exit else nn.ModuleList()
        for number, index in enumerate(stage.order):
            block = stage.blocks[index]
            self.run.append(BlockModel(SubLayerModel(part, make) for part in block.parts))
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
    """Sub-layers, one after the other: (B, N, D) -> (B, N, D)."""

    def forward(self, x_BND: Tensor, memory_BMD: Tensor | None) -> Tensor:
        for sublayer in self:
            x_BND = sublayer(x_BND, memory_BMD)
        return x_BND


@runtime_checkable
class Shortens(Protocol):
    """A module that may change the grid: what a residual does to x then (a new leaf), or None where it doesn't."""

    def residual_pool(self) -> nn.Module | None: ...


@runtime_checkable
class Widens(Protocol):
    """A module that may change the width: a projection (a new leaf) of what f takes, in place of x, or None."""

    def residual_projection(self) -> nn.Module | None: ...


class Rejoin(nn.Module):
    """Extra tokens, changed, back before the others: (B, E, D), (B, N, D) -> (B, N, D)."""

    def __init__(self, extra: int) -> None:
        super().__init__()
        self.extra = extra

    def forward(self, extra_BED: Tensor, x_BND: Tensor) -> Tensor:
        return torch.cat([extra_BED, x_BND[:, self.extra :]], dim=1)


class SubLayerModel(nn.Module):
    """x + f(norm(x)), norm(x + f(x)), x + norm(f(x)) or f(x): (B, N, D) -> (B, N', D').

    Where f pools, so is x; where f changes the width, what f takes (norm(x), or x) is projected in the place of x.

    In a reversible stage `onto` + f(norm(x)), or `onto` + norm(f(x)), where `onto` is the other stream. Where f changes
    the extra tokens alone, x is those: a mixer reads all the others too, and they pass by as they are.
    """

    def __init__(self, part: Part, make: Modules) -> None:
        super().__init__()
        self.crosses = make.reads_memory(part)
        self.inner = make.of(part)
        alone = isinstance(part.component, SubLayer) and part.component.special_tokens_only
        self.residual_rejoin = Rejoin(part.place.grid.extra) if alone else None
        self.narrow = alone and not isinstance(part.component, Mixer)
        self.joins = part.residual != "none"
        if part.residual != "none":
            joining, width = part.residual, part.component.out(part.place)[1]
            self.place = joining.place
            self.residual_norm = norm(joining.norm, part.place.dim if joining.place == "pre" else width)
            self.residual_projection = self.inner.residual_projection() if isinstance(self.inner, Widens) else None
            self.residual_pool = self.inner.residual_pool() if isinstance(self.inner, Shortens) else None
            self.residual_layer_scale = LayerScale(width, joining.layer_scale) if joining.layer_scale else None
            self.residual_factor = Scale(joining.factor) if joining.factor else None
            self.residual_add = Add()
        # in a tuple: a sub-layer that merely uses a table must not own it
        self.borrowed = tuple(make.tables[name] for name in part.component.tables(part.place))

    def forward(self, x_BND: Tensor, memory_BMD: Tensor | None = None, onto_BND: Tensor | None = None) -> Tensor:
        if self.residual_rejoin is None:
            return self._joined(x_BND, x_BND, memory_BMD, onto_BND)
        extra_BED = x_BND[:, : self.residual_rejoin.extra]
        read_BND = extra_BED if self.narrow else x_BND
        return self.residual_rejoin(self._joined(read_BND, extra_BED, memory_BMD, None), x_BND)

    def _joined(self, x_BND: Tensor, kept_BND: Tensor, memory_BMD: Tensor | None, onto_BND: Tensor | None) -> Tensor:
        memory = (memory_BMD,) if self.crosses else ()
        if not self.joins:
            return self.inner(x_BND, *memory)
        taken_BND = self._normed(x_BND) if self.place == "pre" else x_BND
        y_BND = self.inner(taken_BND, *memory)
        onto_BND = self._kept(kept_BND, taken_BND) if onto_BND is None else onto_BND
        if self.place == "post":
            return self._normed(self.residual_add(onto_BND, self._scaled(y_BND)))
        return self.residual_add(onto_BND, self._branch(y_BND))

    def branch(self, x_BND: Tensor, memory_BMD: Tensor | None = None) -> Tensor:
        """f(norm(x)) or norm(f(x)), scaled: what is added to a stream."""
        memory = (memory_BMD,) if self.crosses else ()
        return self._branch(self.inner(self._normed(x_BND) if self.place == "pre" else x_BND, *memory))

    def _branch(self, y_BND: Tensor) -> Tensor:
        return self._scaled(self._normed(y_BND) if self.place == "res_post" else y_BND)

    def _kept(self, x_BND: Tensor, taken_BND: Tensor) -> Tensor:
        """What f(x) is added to: x, or what f takes projected to f's width; pooled where f pools."""
        if self.residual_projection is not None:
            x_BND = self.residual_projection(taken_BND)
        return x_BND if self.residual_pool is None else self.residual_pool(x_BND)

    def weights(self) -> list[Tensor]:
        """All that it learns: its own, and the shared tables that it uses."""
        return [*self.parameters(), *(table.weight for table in self.borrowed)]

    def _normed(self, x_BND: Tensor) -> Tensor:
        return x_BND if self.residual_norm is None else self.residual_norm(x_BND)

    def _scaled(self, y_BND: Tensor) -> Tensor:
        if self.residual_layer_scale is not None:
            y_BND = self.residual_layer_scale(y_BND)
        return y_BND if self.residual_factor is None else self.residual_factor(y_BND)
