"""Finds and makes the torch module of a component. A module's file is imported when the module is looked up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from inspect import signature
from typing import Any, NamedTuple

from torch import nn

from xfcost.formulas.component import Component, SubLayer, single_token
from xfcost.layers import EMBEDS, ENTERS, HEADS, SUBLAYERS
from xfcost.mechanisms import MECHANISMS
from xfcost.program.residual import TwoStreams
from xfcost.program.tape import Program
from xfcost.spec.architecture import Part
from xfcost.torch_models.program import ProgramModule
from xfcost.torch_models.shared.leaves import Tables

_LISTS = (MECHANISMS, EMBEDS, ENTERS, SUBLAYERS, HEADS)


class ModuleClasses(Mapping[type[Component], type[nn.Module]]):
    """Component class -> module class. A module is made of a component, a place, and its `optional_arguments`."""

    def __init__(self) -> None:
        # xfcost.layers.stems:Patch -> xfcost.torch_models.layers.stems:PatchEmbedding
        self.names = {
            f"{kinds.package}.{component}": f"{kinds.package.replace('xfcost', 'xfcost.torch_models')}.{module}"
            for kinds in _LISTS
            for component, module in kinds.names.values()
            if module is not None
        }

    def __getitem__(self, component: type[Component]) -> type[nn.Module]:
        if issubclass(component, Program):
            return ProgramModule
        file, _, name = self.names[f"{component.__module__}:{component.__name__}"].partition(":")
        found: type[nn.Module] = getattr(import_module(file), name)
        return found

    def __iter__(self) -> Iterator[type[Component]]:
        return iter({component: None for kinds in _LISTS for component in kinds.values()} | {TwoStreams: None})

    def __len__(self) -> int:
        return sum(1 for _ in self)


MODULES = ModuleClasses()


def optional_arguments(module: type[nn.Module]) -> frozenset[str]:
    """Of `tables` (shared tables) and `cache_batch` (batch size of its caches), those that the constructor takes."""
    return frozenset({"tables", "cache_batch"} & signature(module).parameters.keys())


class ModuleMaker(NamedTuple):
    """Makes the modules of a stream: for all its tokens, or for one decode step with caches."""

    tables: Tables
    cache_batch: int | None = None
    """The batch size of the caches in a decode step; None for all tokens."""

    def module(self, part: Part) -> nn.Module:
        """The module of the part's component. In a decode step, a module without a cache takes a single token."""
        module_class = MODULES[type(part.component)]
        options = optional_arguments(module_class)
        one_token = self.cache_batch is not None and "cache_batch" not in options
        make: Callable[..., nn.Module] = module_class
        chosen: dict[str, Any] = {name: getattr(self, name) for name in options}
        return make(part.component, single_token(part.place) if one_token else part.place, **chosen)

    def reads_memory(self, part: Part) -> bool:
        """Does the module take the encoder's output in every call? A decode step reads it from a cache."""
        return self.cache_batch is None and isinstance(part.component, SubLayer) and part.component.reads_memory
