"""The torch module of every component, by the written lists; its file is imported when it is looked up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from torch import nn

from xfcost.formulas.component import Component
from xfcost.formulas.residual import TwoStreams
from xfcost.layers import EMBEDS, ENTERS, HEADS, SUBLAYERS
from xfcost.mechanisms import MECHANISMS
from xfcost.torch_models.shared.reversible import StreamsJoined

_LISTS = (MECHANISMS, EMBEDS, ENTERS, SUBLAYERS, HEADS)


class ModuleClasses(Mapping[type[Component], type[nn.Module]]):
    """Component -> the class of its module, made of (component, place, shared tables)."""

    def __init__(self) -> None:
        # (file of the component, its class) -> the module's class, in the file of the same name here
        self.names = {
            (f"{kinds.package}.{kind}", component): module
            for kinds in _LISTS
            for kind, (component, module) in kinds.names.items()
        }

    def __getitem__(self, component: type[Component]) -> type[nn.Module]:
        if component is TwoStreams:
            return StreamsJoined
        name = self.names[component.__module__, component.__name__]
        file = component.__module__.removeprefix("xfcost.")
        found: type[nn.Module] = getattr(import_module(f"xfcost.torch_models.{file}"), name)
        return found

    def __iter__(self) -> Iterator[type[Component]]:
        return iter({component: None for kinds in _LISTS for component in kinds.values()} | {TwoStreams: None})

    def __len__(self) -> int:
        return len(self.names) + 1


MODULES = ModuleClasses()
