"""Runs of a model with only the first of its alike layers; the operations and caches of the others are like theirs.

Layers of a list are alike if their modules have the same classes and attributes, if lists of the config that are as
long have equal entries for them, and if they ran the same operations in a run of all layers. A model is shortened only
where that run, repeated so, gives the same operations and the same cache, and of a prompt or a step the same peak.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import replace
from typing import Any, Final, NamedTuple

import torch
from torch import nn

from xfcost.ledger.execution import CACHED, Mode
from xfcost.torch_models.any_model.inputs import Given
from xfcost.torch_models.any_model.mixing import Built
from xfcost.torch_models.any_model.run import USUAL_NAMES, CacheNames, RecordedModule, TensorKind, run, work_done
from xfcost.torch_models.any_model.user_errors import original
from xfcost.torch_models.any_model.work import Work
from xfcost.torch_models.running.on_meta import TooManyCallsError
from xfcost.torch_models.shared.private_torch import children_of

_INDEX: Final = re.compile(r"\[(\d+)\]")
_PLAIN: Final = (bool, int, float, str, type(None), tuple, torch.dtype)
# What an operation is, beside its module and its weights.
_FIELDS: Final = (
    "site", "costs", "uncounted", "calls", "inputs", "outputs", "varied", "entries", "fused_entries",
    "fused_statistics", "matrix", "core", "heads", "pairs", "masked", "operand_bytes",
)  # fmt: skip


# A longer run on `meta`, as of loops over tokens, is of the first alike layers.
_MOST_CALLS: Final = 20_000
_FEW_TOKENS: Final = 31


class LayerList(NamedTuple):
    """A list of layers, of which the first few have all kinds.

    One more runs: what comes into the first is often alive in all others.
    """

    path: str
    module: nn.ModuleList
    first_alike: Sequence[int]
    """For each layer the first one that is like it."""

    @property
    def kept(self) -> int:
        return min(max(self.first_alike) + 2, len(self.first_alike))

    @contextmanager
    def shortened(self) -> Iterator[None]:
        """The list has only its first layers."""
        children = children_of(self.module)
        layers = dict(children)
        for name in list(layers)[self.kept :]:
            del children[name]
        try:
            yield
        finally:
            children.clear()
            children.update(layers)

    def keeps(self, path: str) -> bool:
        """Is what has this path in a layer that stays, or elsewhere?"""
        number = _number_in(self.path, path)
        return number is None or number < self.kept

    def renamed(self, place: int, name: str) -> str | None:
        """The name in another layer of what is in the layer of this place; None of what is elsewhere."""
        before = f"{self.path}.{self.first_alike[place]}"
        return f"{self.path}.{place}{name[len(before) :]}" if f"{name}.".startswith(f"{before}.") else None

    def all_works(self, works: Sequence[Work]) -> list[Work]:
        """The operations of a shortened run, with those of the layers that did not run."""
        last = max((n for n, one in enumerate(works) if self._holds(self.kept - 1, one.path)), default=None)
        if last is None:
            return list(works)
        others = [
            self._work_of(place, one, path)
            for place in range(self.kept, len(self.first_alike)) for one in works
            if (path := self.renamed(place, one.path)) is not None
        ]  # fmt: skip
        return [*works[: last + 1], *others, *works[last + 1 :]]

    def _work_of(self, place: int, one: Work, path: str) -> Work:
        """What `one` is in the layer of this place, where it has this path."""
        found, name_of = copy(one), lambda name: self.renamed(place, name) or name
        found.path, found.place = path, one.place and (path, *one.place[1:])
        found.weights = dict.fromkeys(map(name_of, one.weights))
        found.reads = {(name_of(name), view): read for (name, view), read in one.reads.items()}
        found.rows = Counter({name_of(name): rows for name, rows in one.rows.items()})
        found.matrices = {name_of(name): each for name, each in one.matrices.items()}
        return found

    def all_costs(self, modules: Mapping[str, dict[str, int]]) -> dict[str, dict[str, int]]:
        """The costs of every module of a shortened run, its children left out, with those that did not run."""
        others = {
            path: costs
            for place in range(self.kept, len(self.first_alike)) for name, costs in modules.items()
            if (path := self.renamed(place, name)) is not None
        }  # fmt: skip
        return {**modules, **others}

    def _holds(self, place: int, path: str) -> bool:
        return f"{path}.".startswith(f"{self.path}.{place}.")

    def all_caches(self, cache: Mapping[str, int]) -> dict[str, int]:
        """The bytes of a shortened run's cache by name, with those of the layers that did not run."""
        found = dict[str, int]()
        for name, nbytes in cache.items():
            number = _INDEX.search(name)
            if number is None:
                found[name] = nbytes
            for place, first in enumerate(self.first_alike) if number else ():
                if number is not None and first == int(number[1]):
                    found[f"{name[: number.start(1)]}{place}{name[number.end(1) :]}"] = nbytes
        return found


class Shortened(NamedTuple):
    """A model whose lists have only their first layers."""

    lists: Sequence[LayerList]
    cached: LayerList | None
    """The list whose layers the cache is of."""
    elements: dict[str, int]
    """Of the parameters of all layers."""
    has_peak: bool = False
    """Are as many activations alive at once as in a run of all layers?"""

    def whole(self, found: RecordedModule) -> RecordedModule:
        """A shortened run as a run of all layers."""
        works = found.works
        for one in self.lists:
            works = one.all_works(works)
        alive = found.activations if self.has_peak else None
        return found._replace(works=works, elements=self.elements, cache=self.cache(found.cache), activations=alive)

    def cache(self, cache: Mapping[str, int]) -> Mapping[str, int]:
        return cache if self.cached is None else self.cached.all_caches(cache)


class FullRun(NamedTuple):
    """A run of all layers."""

    of: AlikeLayers
    mode: Mode
    model: nn.Module
    again: Callable[[], Built]
    names: CacheNames

    def whole(self, found: RecordedModule) -> RecordedModule:
        """`found` as it is; the first run in a mode shows which layers are alike."""
        if self.mode not in self.of.seen and original(self.model) is self.model:
            works = [replace(one) for one in found.works]  # later accounts write to its operations
            self.of.seen[self.mode] = self, found._replace(works=works, keys={})
        return found

    def cache(self, cache: Mapping[str, int]) -> Mapping[str, int]:
        return cache


LayersRun = Shortened | FullRun


class AlikeLayers:
    """The alike layers of a model, once a run of all of them has shown them."""

    def __init__(self) -> None:
        self.seen: dict[Mode, tuple[FullRun, RecordedModule]] = {}
        self._known: dict[Mode, Shortened | None] = {}
        self.long_work: int | None = None
        """The work of a forward of the first alike layers, where that of all was too long to finish."""

    def run(self, model: nn.Module, given: Given, at: Callable[[int], Built], first: TensorKind) -> RecordedModule:
        """A forward; of many operations, of the first alike layers, which a run of few tokens shows.

        `at` gives the model with inputs of so many tokens; the tensors of `first` are tried first.
        """
        try:
            return run(model, *given, most=_MOST_CALLS, first=first)
        except TooManyCallsError:
            few = at(_FEW_TOKENS)
        if few[0] is not model:
            return run(model, *given)
        with self.running("forward", lambda: at(_FEW_TOKENS), USUAL_NAMES, shortened=False) as (_, full):
            full.whole(run(model, *few[1]))
        with self.running("forward", lambda: (model, given), USUAL_NAMES, shortened=True) as (_, layers):
            before = work_done()
            found = run(model, *given)
            self.long_work = work_done() - before
            return layers.whole(found)

    @contextmanager
    def running(
        self, mode: Mode, built: Callable[[], Built], names: CacheNames, *, shortened: bool
    ) -> Iterator[tuple[Built, LayersRun]]:
        """The model and its inputs, inside with only the first alike layers, if it is to be and can be shortened."""
        if shortened and mode in self.seen and mode not in self._known:
            self._known[mode] = _shortened_like(*self.seen[mode])
        short = self._known.get(mode) if shortened else None
        with ExitStack() as stack:
            for one in short.lists if short else ():
                stack.enter_context(one.shortened())
            found = built()
            yield found, short or FullRun(self, mode, found[0], built, names)


def _shortened_like(full: FullRun, seen: RecordedModule) -> Shortened | None:
    """The model shortened; None where that repeats the full run otherwise."""
    lists = list(layer_lists(full.model, seen.works))
    if not lists:
        return None
    try:
        with ExitStack() as stack:
            for one in lists:
                stack.enter_context(one.shortened())
            model, given = full.again()
            found = run(model, *given, cache=full.names, first=seen.how)
    except (Exception, SystemExit):  # noqa: BLE001 - its code may take each layer by its number; then all run
        return None
    for cached in (None, *lists):
        short = Shortened(lists, cached, seen.elements, found.activations == seen.activations)
        whole = short.whole(found)
        if whole.cache == seen.cache:
            same = list(map(_signature, whole.works)) == list(map(_signature, seen.works))
            same = same and (short.has_peak or full.mode not in CACHED)
            return short if same else None
    return None


def layer_lists(model: nn.Module, works: Sequence[Work]) -> Iterator[LayerList]:
    """The outermost lists that can be shortened."""
    inside = "."
    for path, module in model.named_modules():
        if not isinstance(module, nn.ModuleList) or f"{path}.".startswith(inside):
            continue
        entries = [*_entries(getattr(model, "config", None), len(module))]
        same = list(zip(_attributes(module), *entries, _ran(path, len(module), works), strict=True))
        found = LayerList(path, module, [same.index(one) for one in same])
        if found.first_alike and found.kept < len(module):
            inside = f"{path}."
            yield found


def _entries(config: Any, length: int) -> Iterator[Sequence[Any]]:
    """Lists of a config, and of the configs in it, that have an entry for each of so many layers."""
    for value in vars(config).values() if hasattr(config, "to_dict") else ():
        if isinstance(value, list | tuple) and len(value) == length and not _are_numbers([*enumerate(value)]):
            yield value
        elif hasattr(value, "to_dict"):
            yield from _entries(value, length)


def _attributes(layers: nn.ModuleList) -> list[Any]:
    """For each layer the classes of its modules with their plain attributes; the layer's own number is none."""
    found = [
        {
            (name, key): value
            for name, module in layer.named_modules()
            for key, value in [("", type(module)), *vars(module).items()]
            if isinstance(value, (*_PLAIN, type))
        }
        for layer in layers
    ]
    places: dict[Any, list[tuple[int, Any]]] = defaultdict(list)
    for place, one in enumerate(found):
        for key, value in one.items():
            places[key].append((place, value))
    numbers = {key for key, each in places.items() if _are_numbers(each)}
    return [{key: value for key, value in one.items() if key not in numbers} for one in found]


def _are_numbers(values: Sequence[tuple[int, Any]]) -> bool:
    """Is the value of each layer its own number, from 0, 1 or any other on?"""
    return len(values) > 1 and all(
        type(value) is int and value - place == values[0][1] - values[0][0] for place, value in values
    )


def _ran(path: str, length: int, works: Sequence[Work]) -> list[Any]:
    """For each layer the operations that ran in it."""
    found: list[list[Any]] = [[] for _ in range(length)]
    for one in works:
        number = _number_in(path, one.path)
        if number is not None and number < length:
            found[number].append(_signature(one, f"{path}.{number}."))
    return found


def _number_in(layers: str, path: str) -> int | None:
    """The number of the layer that `path` is in; None of what is outside the list of this path."""
    number = path[len(layers) + 1 :].partition(".")[0] if path.startswith(f"{layers}.") else ""
    return int(number) if number.isdecimal() else None


def _signature(work: Work, inside: str = "") -> tuple[Any, ...]:
    """What it does; names are those `inside` a layer."""
    names = [name.removeprefix(inside) for name in work.weights]
    reads = sorted((name.removeprefix(inside), *read) for name, read in work.elements_read().items())
    own = (f"{work.path}.".removeprefix(inside), names, reads, list(work.matrices.values()))
    return (*own, *(getattr(work, name) for name in _FIELDS))
