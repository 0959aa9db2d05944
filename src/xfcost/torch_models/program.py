"""The torch module of a program: a small module for each leaf, and the same `forward`.

The program runs once on symbolic tensors, which make the leaves; in a forward pass it runs on torch's tensors, and each
leaf is its module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xfcost.formulas.component import Component, Place, single_token
from xfcost.ledger.lora import Lora
from xfcost.ledger.tensors import Type
from xfcost.ledger.units import Number
from xfcost.mechanisms.local_attention import GatheredWindows
from xfcost.mechanisms.pooling import OverHeads
from xfcost.program.convolution import AdaptiveMean, Convolution, GridNorm, Pool, Window
from xfcost.program.leaves import (
    Absorbed,
    Act,
    AdapterMap,
    AdapterSum,
    Bookkeeping,
    BucketBias,
    BucketOrder,
    Distances,
    ExpertLinear,
    Function,
    FusedAttention,
    Hash,
    HeadConv,
    IntervalMask,
    KeyValueCache,
    LatentCache,
    Leaf,
    Linear,
    Norm,
    Rotary,
    SortLogits,
    State,
    TalkingHeads,
    TokenBefore,
    TokenOfMemory,
    Weight,
    Worked,
)
from xfcost.program.operations import Operations
from xfcost.program.symbolic import Symbolic
from xfcost.program.tape import Tape
from xfcost.torch_models.shared import (
    attention,
    cache,
    clusters,
    convolution,
    experts,
    fixed_numbers,
    hashing,
    leaves,
    norms,
    windows,
)
from xfcost.torch_models.shared.recurrence import Loops, asks_shapes_alone

INITS: Final[dict[str, Callable[[Tensor], Any]]] = {
    "normal": partial(nn.init.normal_, std=0.02),
    "linear": partial(nn.init.kaiming_uniform_, a=5**0.5),  # as torch draws a linear map
    "linear_maps": lambda tensor: nn.init.uniform_(tensor, -(tensor.shape[-2] ** -0.5), tensor.shape[-2] ** -0.5),
    "standard": nn.init.normal_,
    "near_zero": partial(nn.init.normal_, std=1e-6),
    "zeros": nn.init.zeros_,
    "ones": nn.init.ones_,
    "trunc_normal": partial(nn.init.trunc_normal_, std=0.02),
    "uniform": nn.init.uniform_,
    "fan_in": lambda tensor: nn.init.uniform_(tensor, -(tensor.shape[-1] ** -0.5), tensor.shape[-1] ** -0.5),
    "orthogonal": lambda tensor: tensor.data.copy_(fixed_numbers.orthogonal_features(*tensor.shape)),
    "low_rank": lambda tensor: nn.init.normal_(tensor, std=tensor.shape[-1] ** -0.5),  # Wang et al. 2020, theorem 2
}


class Functions(Loops):
    """What the function of a leaf calls beside methods of tensors."""

    cat = staticmethod(torch.cat)
    eq = staticmethod(torch.eq)

    @staticmethod
    def rfft(x: Tensor, n: int, dim: int) -> Tensor:
        # half precision is converted: torch has no such transform
        return torch.fft.rfft(x if x.dtype in (torch.float32, torch.float64) else x.float(), n=n, dim=dim)

    @staticmethod
    def solved(system: Tensor, x: Tensor) -> Tensor:
        # half precision is converted: torch solves no such system
        wide = (one if x.dtype in (torch.float32, torch.float64) else one.float() for one in (system, x))
        return torch.linalg.solve_triangular(*wide, upper=False, unitriangular=True).to(x.dtype)

    @staticmethod
    def irfft(x: Tensor, n: int, dim: int, *, like: Tensor) -> Tensor:
        return torch.fft.irfft(x, n=n, dim=dim).to(like.dtype)

    elu = staticmethod(F.elu)
    silu = staticmethod(F.silu)
    softplus = staticmethod(F.softplus)

    @staticmethod
    def pad(
        x: Tensor, dim: int | tuple[int, ...], *, before: int = 0, after: int = 0, value: float = 0.0
    ) -> Tensor:  # fmt: skip
        axes = [axis % x.dim() for axis in (dim if isinstance(dim, tuple) else (dim,))]
        # torch takes (before, after) of each axis, last axis first
        each = [(before, after) if axis in axes else (0, 0) for axis in reversed(range(min(axes), x.dim()))]
        return Functions.pad_sides(x, [one for both in each for one in both], value)

    @staticmethod
    def arange(count: int, like: Tensor) -> Tensor:
        return torch.arange(count, device=like.device)

    steps = range

    @staticmethod
    def pad_sides(x: Tensor, sides: Sequence[int], value: float = 0.0) -> Tensor:
        return F.pad(x, [*sides], value=value) if any(sides) else x

    normalize = staticmethod(partial(F.normalize, dim=-1))

    @staticmethod
    def is_half(x: Tensor) -> bool:
        return x.dtype == torch.float16

    @staticmethod
    def least(x: Tensor) -> float:
        return torch.finfo(x.dtype).min

    @staticmethod
    def later(x: Tensor, past: int = 0) -> Tensor:
        return torch.ones(x.shape[-2:], dtype=torch.bool, device=x.device).triu(1 + past)

    where = staticmethod(torch.where)
    grid_sample = staticmethod(partial(F.grid_sample, mode="bilinear", padding_mode="zeros", align_corners=False))

    @staticmethod
    def pooled(x: Tensor, size: int, form: str) -> Tensor:
        return (F.max_pool1d if form == "max" else F.avg_pool1d)(x, size, ceil_mode=True)

    @staticmethod
    def take_rows(table: Tensor, index: Tensor) -> Tensor:
        return table[index]

    @staticmethod
    def zeros(*shape: int, like: Tensor) -> Tensor:
        return like.new_zeros(shape)

    @staticmethod
    def ones(*shape: int, like: Tensor) -> Tensor:
        return like.new_ones(shape)

    repeat_interleave = staticmethod(torch.repeat_interleave)
    embedding = staticmethod(F.embedding)

    @staticmethod
    def layer_norm(x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:])

    @staticmethod
    def rms_norm(x: Tensor, weight: Tensor | None, epsilon: float) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], weight, epsilon)

    @staticmethod
    def loop(name: str, *args: Any) -> Any:
        return getattr(torch.ops.xfcost, name)(*args)


class FunctionLeaf(nn.Module):
    """A function of tensors, with the parameters of its leaf."""

    def __init__(self, leaf: Function, tables: leaves.Tables) -> None:
        super().__init__()
        self.function, self.options, self.weights = leaf.function, leaf.options, leaf.weights
        self.tables = {one.name: tables[one.shared] for one in leaf.weights if one.shared is not None}
        for weight in leaf.weights:
            if weight.name in self.tables:
                continue
            if isinstance(weight.init, Worked):
                made = _worked(weight.init, weight.shape)
                if weight.learns:
                    self.register_parameter(weight.name, nn.Parameter(made))
                else:
                    self.register_buffer(weight.name, made, persistent=False)
            elif weight.learns:
                self.register_parameter(weight.name, _drawn(weight.shape, weight.init))
            else:
                self.register_buffer(weight.name, _drawn(weight.shape, weight.init).data)

    def forward(self, *inputs: Any, **of_call: Any) -> Any:
        held = (self._held(weight, inputs) for weight in self.weights)
        return self.function(Functions, *inputs, *held, **self.options, **of_call)

    def _held(self, weight: Weight, inputs: tuple[Any, ...]) -> Tensor:
        if weight.name in self.tables:
            return self.tables[weight.name].weight
        found: Tensor = getattr(self, weight.name)
        floats = found.is_floating_point() and isinstance(weight.init, Worked) and inputs
        return found.to(inputs[0].dtype) if floats else found


def _drawn(shape: tuple[Any, ...], init: str | float) -> nn.Parameter:
    by = INITS[init] if isinstance(init, str) else partial(nn.init.constant_, val=init)
    return leaves.drawn(*shape, by=by)


def _worked(worked: Worked, shape: tuple[Any, ...]) -> Tensor:
    """The numbers, on the device where tensors are made now."""
    if isinstance(worked.function, str):
        found: Tensor = named(worked.function)(**worked.options)
        return found.to(torch.empty(0).device)
    device, type_ = torch.empty(0).device, torch.get_default_dtype()
    with torch.device("meta" if device.type == "meta" else "cpu"):  # some devices have no float64
        axes = (torch.arange(size, dtype=torch.float64) for size in shape)
        at = (each.view(-1, *[1] * (len(shape) - 1 - axis)) for axis, each in enumerate(axes))
        numbers: Tensor = worked.function(*at, **worked.options)
    made = numbers.to(type_ if worked.type == "model" else getattr(torch, worked.type))
    return made.expand(shape).contiguous().to(device)


_ACTIVATIONS: Final[dict[str, Callable[[], nn.Module]]] = {
    **dict(leaves.ACTIVATIONS.items()),
    "softmax": partial(nn.Softmax, dim=-1),
    "sigmoid": nn.Sigmoid,
    "softplus": nn.Softplus,
    "tanh": nn.Tanh,
}


def _over_heads(leaf: OverHeads, x: Symbolic) -> nn.Module:
    """The module of a pool, which is given the grid of each head."""
    module: nn.Module = MODULES[type(leaf.pool)](leaf.pool, x.transpose(1, -1))
    module.forward = partial(leaf.applied, Functions, module.forward)
    return module


# Of a kind of leaf and the symbolic tensors that enter it: its module. That of a function has the shared tables too.
MODULES: Final[dict[type[Any], Callable[..., Any]]] = {
    Linear: lambda leaf, x: leaves.Linear(x.shape[-1], leaf.outputs, bias=leaf.bias),
    AdapterMap: lambda leaf, x: leaves.AdapterLinear(x.shape[-1], leaf.outputs, bias=False),
    AdapterSum: lambda leaf, *_: leaves.Leaf(leaves.scaled_onto, start=leaf.start),
    Norm: lambda leaf, x: norms.norm(leaf.kind, x.shape[-1]),
    Act: lambda leaf, _: _ACTIVATIONS[leaf.kind](),
    TokenBefore: lambda leaf, x: cache.TokenBefore(x.shape[0], x.shape[-1], learned=leaf.learned),
    TokenOfMemory: lambda leaf: cache.TokenOfMemory(*leaf.shape),
    ExpertLinear: lambda leaf, x, *counts: (experts.ExpertLinear if counts else experts.SlotLinear)(
        leaf.experts, x.shape[-1], leaf.outputs, bias=leaf.bias
    ),
    Bookkeeping: lambda leaf, *_: leaves.Leaf(named(leaf.function), **leaf.options),
    Convolution: lambda leaf, x: convolution.Convolution(
        x.shape[1], leaf.outputs, leaf.kernel, groups=leaf.groups, bias=leaf.bias, dilation=leaf.dilation
    ),
    Pool: lambda leaf, _: convolution.GridPooling(
        leaf.form, leaf.kernel, count_padding=leaf.count_padding, last=leaf.last
    ),
    AdaptiveMean: lambda leaf, _: leaves.Leaf(convolution.adaptive_mean, sides=leaf.sides),
    GatheredWindows: lambda leaf, _: windows.Gather(leaf.windows, leaf.groups, filled=leaf.filled),
    OverHeads: _over_heads,
    GridNorm: lambda _, x: norms.GridNorm(x.shape[1]),
    Window: lambda leaf, x: cache.ConvState(x.shape[0], leaf.taps, x.shape[-1], dilation=leaf.dilation),
    State: lambda leaf, *new: cache.RecurrentState(*(one.shape for one in new), starts=leaf.starts),
    FusedAttention: lambda leaf, *_: leaves.Fused(causal=leaf.causal, scale=leaf.scale, grouped=leaf.grouped),
    Distances: lambda leaf, x: clusters.Distances(x.shape[1], leaf.count, x.shape[-1], leaf.sides),
    Hash: lambda leaf, _: hashing.Hash(leaf.rounds, leaf.factors, leaf.tokens, leaf.padded),
    BucketOrder: lambda *_: leaves.Leaf(hashing.sorted_by_bucket),
    SortLogits: lambda leaf, _: hashing.SortLogits(leaf.factor, leaf.temperature, leaf.epsilon),
    HeadConv: lambda leaf, _: attention.HeadConvolution(leaf.heads, leaf.size),
    IntervalMask: lambda leaf, *_: named(leaf.worked.function)(**leaf.worked.options),
    TalkingHeads: lambda leaf, _: attention.TalkingHeads(leaf.heads, leaf.heads),
    Absorbed: lambda leaf, _: attention.Absorbed(leaf.rank, leaf.heads, leaf.parts),
}
# The same of leaves that depend on the run: its shared tables, the batch of its caches in a decode step.
IN_A_RUN: Final[dict[type[Any], Callable[..., Any]]] = {
    Function: lambda maker, leaf, *_: FunctionLeaf(leaf, maker.tables),
    Rotary: lambda maker, leaf, x: (attention.RotaryAtPosition if maker.decodes else attention.Rotary)(
        leaf.tokens, x.shape[-1], leaf.base
    ),
    BucketBias: lambda maker, leaf: (attention.BucketBiasAtPosition if maker.decodes else attention.BucketBias)(
        leaf.buckets, leaf.tokens, leaf.heads, maker.shared_table(leaf.buckets.share), causal=leaf.causal
    ),
    KeyValueCache: lambda maker, leaf, k, v: cache.KeyValueCache(
        maker.cache_batch, k.shape[1], leaf.rows, (k.shape[-1], v.shape[-1]), classes=leaf.classes
    ),
    LatentCache: lambda maker, leaf, latent, key: cache.LatentCache(
        maker.cache_batch, leaf.rows, latent.shape[-1] + key.shape[-1]
    ),
}


def named(function: str) -> Callable[..., Any]:
    """A function of `torch_models/shared`, as "file:function"."""
    file, _, name = function.partition(":")
    found: Callable[..., Any] = getattr(import_module(f"xfcost.torch_models.shared.{file}"), name)
    return found


class Maker(Tape):
    """Makes the leaves of a module, while its program runs on symbolic tensors.

    `inner` makes the module of a component inside.
    """

    def __init__(
        self, module: nn.Module, inner: Callable[[], nn.Module] | None = None, *,
        tables: leaves.Tables = leaves.NO_TABLES, cache_batch: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(batch=cache_batch or 1, decodes=cache_batch is not None)
        self.module, self.inner, self.tables, self.cache_batch = module, inner, tables, cache_batch
        self.earlier_tokens: list[str] = []
        """Names of buffers with tokens of earlier segments."""

    def shared_table(self, share: str | None) -> leaves.Table | None:
        """The shared table of a name."""
        return None if share is None else self.tables[share]

    def run(self, name: str, leaf: Leaf, *inputs: Any, **facts: Any) -> Any:
        if name.replace(".", "_") not in self.rows:
            kind = type(leaf)
            made = IN_A_RUN[kind](self, leaf, *inputs) if kind in IN_A_RUN else MODULES[kind](leaf, *inputs)
            self._add(name, made)
        return super().run(name, leaf, *inputs, **facts)

    def unused(self, name: str, leaf: Leaf, x: Any) -> None:
        self._add(name, MODULES[type(leaf)](leaf, x))

    def of_memory(self, name: str, compute: Callable[[], tuple[Any, ...]], title: str) -> tuple[Any, ...]:
        given = super().of_memory(name, compute, title)
        if self.cache_batch is not None:
            *shape, width = given[0].shape[1:]
            self._add(name, cache.MemoryCache(self.cache_batch, *shape, width, value_width=given[1].shape[-1]))
        return given

    def constant(
        self, name: str, worked: Worked, *shape: Number, like: Any, so_far: int | None = None
    ) -> Symbolic:  # fmt: skip
        self.module.register_buffer(name, _worked(worked, shape), persistent=False)
        return super().constant(name, worked, *shape, like=like, so_far=so_far)

    def earlier(self, name: str, tokens: Number, *, like: Any) -> Symbolic:
        self.module.register_buffer(name, torch.zeros(1, int(tokens), int(like.shape[-1])), persistent=False)
        self.earlier_tokens.append(name)
        return super().earlier(name, tokens, like=like)

    def component(self, name: str, component: Component, place: Place, *inputs: Any) -> Any:
        if self.inner is None:
            raise TypeError(f"{type(component).__name__} has no module of its own in a program")
        self._add(name, self.inner())
        grid, width = component.out(place)
        tokens = 1 if self.decodes else grid.special if component.special_tokens_only else grid.total
        return self.made((self.batch, tokens, width), *inputs)

    def _add(self, name: str, leaf: nn.Module) -> None:
        *around, last = name.split(".")
        owner = self.module
        for one in around:
            if not hasattr(owner, one):
                owner.add_module(one, nn.Module())
            owner = getattr(owner, one)
        owner.add_module(last, leaf)


NO_OPTIONS: Final[dict[str, Any]] = {}


class Runner(Operations):
    """Runs the leaves of a module."""

    def __init__(self, module: Any, *, decodes: bool = False, lora: Lora | None = None) -> None:
        self.module, self.decodes, self.lora = module, decodes, lora
        self.reads_memory = False
        """Is a decode step given the encoder's output, to keep what all steps read of it?"""

    def run(self, name: str, leaf: Leaf, *inputs: Any, **facts: Any) -> Any:
        options = NO_OPTIONS
        if isinstance(leaf, Absorbed | Function):
            options = leaf.options if isinstance(leaf, Absorbed) else leaf.of_call
        return self.module.get_submodule(name)(*inputs, **options)

    def repeats(self, count: Any) -> Iterator[int]:
        yield from range(count)

    def each_token(
        self, step: Callable[[Any, Any], tuple[Sequence[Any], Any]], x: Any, state: Any
    ) -> tuple[Sequence[Sequence[Any]], Any]:
        found = []
        several = isinstance(x, tuple)
        parts = x if several else (x,)
        tokens = parts[0].shape[1] if asks_shapes_alone(parts[0]) else 1
        for now in zip(*(part.split(tokens, dim=1) for part in parts), strict=True):
            outputs, state = step(now if several else now[0], state)
            found.append(outputs)
        return [list(one) for one in zip(*found, strict=True)], state

    def hand_over(self, *states: Sequence[Any]) -> None:
        self.module.last_states = states if self.module.gives else ()

    def handed_over(self, number: int, shapes: Sequence[Any]) -> Any:
        if self.module.starts_from_zeros:
            return ()
        last = self.module.giver[0].last_states if self.module.giver else ()
        if not last:
            raise RuntimeError("it starts from an encoder's last state, and no encoder ran before it")
        return last[number]

    def computed_before(self, compute: Callable[[], Any]) -> Any:
        return compute() if self.reads_memory or not self.decodes else None

    def of_memory(self, name: str, compute: Callable[[], tuple[Any, ...]], title: str) -> tuple[Any, ...]:
        given: tuple[Any, ...] = self.computed_before(compute)
        if not self.decodes:
            return given
        kept = self.module.get_submodule(name)
        if given is not None:
            kept.keys, kept.values = given
        found: tuple[Any, ...] = kept()
        return found

    def state(self, name: str, *shapes: Any) -> Any:
        return self._kept(name).past

    def started(self, name: str, first: Sequence[Any]) -> Any:
        kept = self._kept(name)
        if self.reads_memory:
            kept(*first)
        return kept.past

    def _kept(self, name: str) -> Any:
        try:
            return self.module.get_submodule(name)
        except AttributeError:
            kind, given = type(self.module.config).__name__, f"t.keep({name!r}, …)"
            raise LookupError(f"{kind}: a decode step reads the state {name!r}; expected {given} to write it") from None

    def keep(self, name: str, *new: Any, **_: Any) -> None:
        if not self.reads_memory:
            self.module.get_submodule(name)(*new)

    def zeros(self, *shape: Any, like: Any, type_: Type = "model") -> Any:
        return like.new_zeros(shape, dtype=torch.long if type_ == "int64" else None)

    def constant(self, name: str, worked: Worked, *shape: Any, like: Any, so_far: int | None = None) -> Any:
        found = getattr(self.module, name)
        found = found.to(like.dtype) if found.is_floating_point() else found
        return found.narrow(so_far, 0, self.module.position + 1) if self.decodes and so_far is not None else found

    def earlier(self, name: str, tokens: Any, *, like: Any) -> Any:
        return getattr(self.module, name).detach()

    def here(self, table: Any, count: Any) -> Any:
        if self.decodes:
            return table.narrow(0, self.module.position, 1)
        return table if count == len(table) else table.narrow(0, 0, count)

    def unused(self, name: str, leaf: Leaf, x: Any) -> None:
        pass

    def component(self, name: str, component: Component, place: Place, *inputs: Any) -> Any:
        return self.module.get_submodule(name)(*inputs)

    def per_sample(self, x: Any, like: Any) -> Any:
        return x.expand(like.shape[0], *x.shape[1:])


class ProgramModule(cache.Positioned):
    """The module of a program: (B, N, D) -> (B, N', D'). In a decode step (B, 1, D) -> (B, 1, D)."""

    def __init__(
        self, config: Component, place: Place, tables: leaves.Tables = leaves.NO_TABLES, cache_batch: int | None = None
    ) -> None:
        super().__init__()
        decodes = cache_batch is not None
        self.config, self.place = config, single_token(place) if decodes and config.token_wise else place
        maker = Maker(self, tables=tables, cache_batch=cache_batch)
        maker.titles, maker.lora = config.titles, place.lora
        x, *memory = maker.inputs(config, self.place)
        config.forward(maker, x, self.place, *memory)
        self.decodes, self.runner = decodes, Runner(self, decodes=decodes, lora=place.lora)
        self.earlier_tokens = maker.earlier_tokens
        self.giver: tuple[ProgramModule, ...] = ()  # in a tuple, so that torch does not register the encoder's layer
        self.gives = self.starts_from_zeros = False
        self.last_states: tuple[Sequence[Tensor], ...] = ()
        """The last state of each direction, where it `gives` that to the decoder."""

    def forward(self, x: Any, *memory: Tensor) -> Any:
        if self.decodes and not memory:  # it finds what it reads of the encoder in a cache
            memory = (None,) * self.config.reads_memory  # type: ignore[assignment]
        return self.config.forward(self.runner, x, self.place, *memory)

    @property
    def remembered(self) -> tuple[Tensor, ...]:
        """The buffers in which tokens of earlier segments lie, (1, tokens, D) each."""
        return tuple(self.get_buffer(name) for name in self.earlier_tokens)

    def read_memory(self, memory: Tensor) -> None:
        """Keep what all decode steps read of the encoder's output (B, M, E)."""
        self.runner.reads_memory = True
        self(memory.new_zeros(len(memory), 1, self.place.dim), memory)
        self.runner.reads_memory = False


def hand_over(encoder: nn.Module, decoder: nn.Module) -> None:
    """Give the decoder's recurrent layers that start from the encoder the encoder's layers of the same number."""
    takers = [layer for layer in _recurrent(decoder) if getattr(layer.config, "start", None) == "encoder"]
    for taker, giver in zip(takers, _recurrent(encoder), strict=False):
        giver.gives = True
        taker.giver = (giver,)


def _recurrent(stream: nn.Module) -> list[ProgramModule]:
    programs = (layer for layer in stream.modules() if isinstance(layer, ProgramModule))
    return [layer for layer in programs if layer.config.takes_state]
