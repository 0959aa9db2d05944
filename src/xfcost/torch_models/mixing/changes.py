"""An operation without a rule: the tokens are changed, one after the other, and what changes depends on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor

from xfcost.torch_models.mixing.call import PER_TOKEN, Call, Finding, Outcome, ids
from xfcost.torch_models.mixing.owners import CONSTANT, content, everywhere, home, vectors
from xfcost.torch_models.shared.private_torch import pytree, schema_of

_MOST_PLACES: Final = 300
_MOST_NUMBERS: Final = 20_000_000
_TOLERANCE: Final = 1e-9
_TRIES: Final = 2


def by_changes(call: Call) -> Outcome:
    """Owners and finding of any operation that can run again.

    Raises:
        NotImplementedError: it can't, or whose tokens the outputs are does not follow.
    """
    owned = [
        value for value in _tensors(call.args) if _is_inexact(value) and bool((home(call.owners(value)) >= 0).any())
    ]
    places = sorted(frozenset[int]().union(*(_places(call, value) for value in owned)))
    (result, *rest) = call.results
    if not _can_run_again(call) or not 0 < len(places) <= min(_MOST_PLACES, _MOST_NUMBERS // max(1, result.numel())):
        raise NotImplementedError("no rule knows it")
    before = _run(call, lambda value, _: value)
    depends = torch.stack([_changed(call, before, place) for place in places])
    others = [everywhere(CONSTANT, one.shape) for one in rest]
    if int(depends.sum(0).max()) <= 1:
        table = torch.tensor([*places, CONSTANT])
        at = torch.where(depends.any(0), depends.to(torch.int8).argmax(0), len(places))
        return Outcome([vectors(table[at]), *others], PER_TOKEN)
    fixed = _is_linear(call)
    owners, finding = _kept_tokens(call, owned, depends, places) or _new_places(call, depends, places, overlap=fixed)
    return Outcome([owners, *others], finding._replace(content_dependent=not fixed))


def _tensors(args: Any) -> list[Tensor]:
    return [value for value in pytree.tree_leaves(args) if isinstance(value, Tensor) and _is_inexact(value)]


def _is_inexact(value: Tensor) -> bool:
    return value.is_floating_point() or value.is_complex()


def _places(call: Call, value: Tensor) -> frozenset[int]:
    owners = call.owners(value)
    return ids(home(owners)) | ids(content(owners))


def _can_run_again(call: Call) -> bool:
    random = torch.Tag.nondeterministic_seeded in call.func.tags
    return not random and not schema_of(call.func).is_mutable and _is_inexact(call.result)


def _run(call: Call, change: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Its first output, in float64, where `change(numbers, owners)` stands in place of its arguments."""

    def argument(value: Any) -> Any:
        if not isinstance(value, Tensor) or not _is_inexact(value):
            return value
        return change(value.to(torch.complex128 if value.is_complex() else torch.float64), call.owners(value))

    answer = call.func(*pytree.tree_map(argument, call.args), **call.kwargs)
    found: Tensor = answer if isinstance(answer, Tensor) else answer[0]
    return found


def _changed(call: Call, before: Tensor, place: int) -> Tensor:
    """Which outputs another content of a place changes."""
    noise = torch.Generator().manual_seed(place)

    def changed(value: Tensor, owners: Tensor) -> Tensor:
        own = (home(owners) == place) | (content(owners) == place)
        return torch.where(own, value + torch.randn(value.shape, generator=noise, dtype=torch.float64), value)

    return torch.stack([_differ(_run(call, changed), before) for _ in range(_TRIES)]).any(0)


def _differ(one: Tensor, other: Tensor) -> Tensor:
    scale = other.abs().nan_to_num().max().clamp(min=1)
    return ((one - other).abs() > _TOLERANCE * scale) & ~(one.isnan() & other.isnan())


def _is_linear(call: Call) -> bool:
    """Are its weights fixed: do sums of inputs give sums of outputs?"""

    def of_sum(*seeds: int) -> Tensor:
        noises = [torch.Generator().manual_seed(seed) for seed in seeds]

        def changed(value: Tensor, owners: Tensor) -> Tensor:
            drawn = [torch.randn(value.shape, generator=noise, dtype=torch.float64) for noise in noises]
            return torch.where(home(owners) >= 0, sum(drawn, torch.zeros_like(value)), value)

        return _run(call, changed)

    whole, parts = of_sum(1, 2) + of_sum(), of_sum(1) + of_sum(2)
    return bool(whole.isfinite().all()) and not bool(_differ(whole, parts).any())


def _kept_tokens(call: Call, owned: list[Tensor], depends: Tensor, places: list[int]) -> tuple[Tensor, Finding] | None:
    """Outputs that are the tokens of an input of their shape, which each of them depends on."""
    for value in owned:
        homes = home(call.owners(value))
        if homes.shape != depends.shape[1:]:
            continue
        index = {place: at for at, place in enumerate(places)}
        counts = []
        for place in sorted(ids(homes)):
            reads = depends[:, homes == place]
            if not bool(reads[index[place]].any()):
                break
            counts.append(int(reads.any(1).sum()))
        else:
            return vectors(homes), Finding(mixes=True, computed=torch.tensor(counts), places=frozenset(places))
    return None


def _new_places(call: Call, depends: Tensor, places: list[int], *, overlap: bool) -> tuple[Tensor, Finding]:
    """A new place for each set of tokens that an output depends on."""
    table = torch.tensor(places)
    sets, which = torch.unique(depends.flatten(1).T, dim=0, return_inverse=True)
    groups = [frozenset(table[one].tolist()) for one in sets]
    disjoint = sum(map(len, groups)) == len(frozenset[int]().union(*groups))
    if not disjoint and not overlap:
        raise NotImplementedError("no rule knows it")
    made = torch.tensor([_place(call, group) for group in groups])
    counts = torch.tensor([len(group) for group in groups if group])
    finding = Finding(mixes=True, computed=counts, places=frozenset(places), merges=disjoint)
    return vectors(made[which]).reshape(depends.shape[1:]), finding


def _place(call: Call, group: frozenset[int]) -> int:
    if len(group) <= 1:
        return next(iter(group), CONSTANT)
    return call.places.merged(call.sequence, group)
