"""The torch module of a program: a small module for each leaf, and the same `forward`.

The program runs once on symbolic tensors, which make the leaves; in a forward pass it runs on torch's tensors, and each
leaf is its module.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, Final

import torch
from torch import Tensor, nn

from xfcost.formulas.component import Component, Place, SubLayer, single_token
from xfcost.program.leaves import Act, Bookkeeping, ExpertLinear, Function, Leaf, Linear, Norm, Weight
from xfcost.program.operations import Operations
from xfcost.program.tape import Program, Tape
from xfcost.torch_models.shared import experts, leaves
from xfcost.torch_models.shared.norms import norm

INITS: Final[dict[str, Callable[[Tensor], Any]]] = {
    "normal": partial(nn.init.normal_, std=0.02),
    "zeros": nn.init.zeros_,
    "ones": nn.init.ones_,
}


class Functions:
    """What the function of a leaf calls beside methods of tensors."""

    cat = staticmethod(torch.cat)
    eq = staticmethod(torch.eq)

    @staticmethod
    def arange(count: int, like: Tensor) -> Tensor:
        return torch.arange(count, device=like.device)

    @staticmethod
    def take_rows(table: Tensor, index: Tensor) -> Tensor:
        return table[index]


class FunctionLeaf(nn.Module):
    """A function of tensors, with the parameters of its leaf."""

    def __init__(self, leaf: Function) -> None:
        super().__init__()
        self.function, self.options = leaf.function, leaf.options
        self.names = [weight.name for weight in leaf.weights]
        for weight in leaf.weights:
            made = _drawn(weight)
            if weight.learns:
                self.register_parameter(weight.name, made)
            else:
                self.register_buffer(weight.name, made.data)

    def forward(self, *inputs: Any) -> Any:
        held = (getattr(self, name) for name in self.names)
        return self.function(Functions, *inputs, *held, **self.options)


def _drawn(weight: Weight) -> nn.Parameter:
    by = INITS[weight.init] if isinstance(weight.init, str) else partial(nn.init.constant_, val=weight.init)
    return leaves.drawn(*weight.shape, by=by)


_ACTIVATIONS: Final[dict[str, Callable[[], nn.Module]]] = {
    **dict(leaves.ACTIVATIONS.items()),
    "softmax": partial(nn.Softmax, dim=-1),
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
}
# Of a kind of leaf and the symbolic tensors that enter it: its module.
MODULES: Final[dict[type[Any], Callable[..., Any]]] = {
    Linear: lambda leaf, x: leaves.Linear(x.shape[-1], leaf.outputs, bias=leaf.bias),
    Norm: lambda leaf, x: norm(leaf.kind, x.shape[-1]),
    Act: lambda leaf, _: _ACTIVATIONS[leaf.kind](),
    Function: lambda leaf, *_: FunctionLeaf(leaf),
    ExpertLinear: lambda leaf, x, *counts: (experts.ExpertLinear if counts else experts.SlotLinear)(
        leaf.experts, x.shape[-1], leaf.outputs, bias=leaf.bias
    ),
    Bookkeeping: lambda leaf, *_: leaves.Leaf(_named(leaf.function), **leaf.options),
}


def _named(function: str) -> Callable[..., Any]:
    """A function of `torch_models/shared`, as "file:function"."""
    file, _, name = function.partition(":")
    found: Callable[..., Any] = getattr(import_module(f"xfcost.torch_models.shared.{file}"), name)
    return found


class Maker(Tape):
    """Makes the leaves of a module, while its program runs on symbolic tensors.

    `inner` makes the module of a component inside.
    """

    def __init__(
        self, module: nn.Module, inner: Callable[[], nn.Module] | None = None, *, decodes: bool = False
    ) -> None:  # fmt: skip
        super().__init__(decodes=decodes)
        self.module, self.inner = module, inner

    def run(self, name: str, leaf: Leaf, *inputs: Any, **facts: Any) -> Any:
        if name.replace(".", "_") not in self.rows:
            self._add(name, MODULES[type(leaf)](leaf, *inputs))
        return super().run(name, leaf, *inputs, **facts)

    def component(self, name: str, component: Component, place: Place, *inputs: Any) -> Any:
        if self.inner is None:
            raise TypeError(f"{type(component).__name__} has no module of its own in a program")
        self._add(name, self.inner())
        return self.leaving(component, place, *inputs)

    def shortcut(self, component: SubLayer, place: Place, given: Any, own: Any) -> Any:
        if isinstance(component, Program):
            return super().shortcut(component, place, given, own)
        for name in _SHORTCUTS:  # made by the module of a kind that is no program yet
            made = getattr(self.module.get_submodule("inner"), name, lambda: None)()
            if made is not None:
                self._add(name, made)
        return self.leaving(component, place, given)

    def _add(self, name: str, leaf: nn.Module) -> None:
        *around, last = name.split(".")
        owner = self.module
        for one in around:
            if not hasattr(owner, one):
                owner.add_module(one, nn.Module())
            owner = getattr(owner, one)
        owner.add_module(last, leaf)


_SHORTCUTS: Final = ("residual_projection", "residual_pool")


class Runner(Operations):
    """Runs the leaves of a module."""

    def __init__(self, module: nn.Module, *, decodes: bool = False) -> None:
        self.module, self.decodes = module, decodes

    def run(self, name: str, leaf: Leaf, *inputs: Any, **facts: Any) -> Any:
        return self.module.get_submodule(name)(*inputs)

    def component(self, name: str, component: Component, place: Place, *inputs: Any) -> Any:
        return self.module.get_submodule(name)(*inputs)

    def shortcut(self, component: SubLayer, place: Place, given: Any, own: Any) -> Any:
        if isinstance(component, Program):
            return component.skip(self, given, own, place)
        projection, pool = (getattr(self.module, name, None) for name in _SHORTCUTS)
        stream = own if projection is None else projection(given)
        return stream if pool is None else pool(stream)


class ProgramModule(nn.Module):
    """The module of a program: (B, N, D) -> (B, N', D'). In a decode step (B, 1, D) -> (B, 1, D)."""

    def __init__(self, config: Program, place: Place, cache_batch: int | None = None) -> None:
        super().__init__()
        decodes = cache_batch is not None
        self.config, self.place = config, single_token(place) if decodes and config.token_wise else place
        maker = Maker(self, decodes=decodes)
        maker.titles = config.titles
        config.forward(maker, maker.input(*config.entering(self.place)), self.place)
        self.runner = Runner(self, decodes=decodes)

    def forward(self, x: Tensor, *memory: Tensor) -> Any:
        return self.config.forward(self.runner, x, self.place, *memory)
