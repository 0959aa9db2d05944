"""Tokens are changed, one after the other: what changes depends on them. So is found what no rule knows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from xfcost.torch_models.mixing.call import PER_TOKEN, Call, Finding, Outcome, ids
from xfcost.torch_models.mixing.owners import CONSTANT, content, everywhere, home, vectors
from xfcost.torch_models.shared.private_torch import pytree, schema_of

# A maximum changes only where a number passes all others: several changes, each of other numbers, see to that.
_CHANGES: Final = 3
# So many times a usual number a change is.
_LARGE: Final = 4.0
# Numbers of a batch of changed samples.
_MOST_NUMBERS: Final = 2**18


def dependents(
    run: Callable[[list[Tensor]], Tensor],
    sample: Sequence[Tensor],
    own: Callable[[Tensor], Sequence[Tensor]],
    tokens: Tensor,
    rounding: float = 0.0,
) -> Iterator[Tensor]:
    """For some of the tokens after the others, (m, …): which outputs change with each of them.

    Changed and unchanged samples are at the same positions of two batches, where equal numbers are computed equally, so
    they are compared bit by bit.

    Args:
        run: takes a batch (m, …) of each input, and gives the outputs (m, …).
        sample: one of each input.
        own: tokens (m) -> for each input, which of its numbers (m, …) are theirs.
        tokens: their numbers.
        rounding: part of the largest output up to which a difference is none.
    """
    noise = torch.Generator().manual_seed(0)
    for some in tokens.split(max(1, _MOST_NUMBERS // max(1, *(one.numel() for one in sample)))):
        batch = [one.expand(len(some), *one.shape).contiguous() for one in sample]
        masks, before = own(some), run(batch)
        differs = torch.zeros((), dtype=torch.bool)
        for _ in range(_CHANGES):
            changes = [torch.randn(one.shape, generator=noise, dtype=torch.float64) * _LARGE for one in sample]
            changed = [
                torch.where(mask, one + change, one) for mask, one, change in zip(masks, batch, changes, strict=True)
            ]
            differs = differs | _differ(run(changed), before, rounding)
        yield differs


def _differ(one: Tensor, other: Tensor, rounding: float) -> Tensor:
    least = rounding * other.abs().nan_to_num().max().clamp(min=1) if rounding else 0.0
    return ((one - other).abs() > least) & ~(one.isnan() & other.isnan())


# ── an operation without a rule ──


_MOST_PLACES: Final = 300
_MOST_OUTPUTS: Final = 20_000_000
_ROUNDING: Final = 1e-9


def by_changes(call: Call) -> Outcome:
    """Owners and finding of any operation that can run again.

    Raises:
        NotImplementedError: it can't, or whose tokens the outputs are does not follow.
    """
    leaves, form = pytree.tree_flatten(call.args)
    numbers = {at: value for at, value in enumerate(leaves) if isinstance(value, Tensor) and _is_inexact(value)}
    owners = [call.owners(value) for value in numbers.values()]
    places = sorted(frozenset[int]().union(*(ids(home(one)) | ids(content(one)) for one in owners)))
    (result, *rest) = call.results
    random = torch.Tag.nondeterministic_seeded in call.func.tags
    runs_again = not random and not schema_of(call.func).is_mutable and _is_inexact(result)
    if not runs_again or not 0 < len(places) <= min(_MOST_PLACES, _MOST_OUTPUTS // max(1, result.numel())):
        raise NotImplementedError("no rule knows it")

    def run(batch: list[Tensor]) -> Tensor:
        answers = []
        for values in zip(*batch, strict=True):
            given = leaves.copy()
            for at, value in zip(numbers, values, strict=True):
                given[at] = value
            answer: Any = call.func(*pytree.tree_unflatten(given, form), **call.kwargs)
            answers.append(answer if isinstance(answer, Tensor) else answer[0])
        return torch.stack(answers)

    def own(some: Tensor) -> list[Tensor]:
        masks = []
        for one in owners:
            place = some.reshape(-1, *[1] * one.dim())
            masks.append((home(one) == place) | (content(one) == place))
        return masks

    sample = [value.to(torch.complex128 if value.is_complex() else torch.float64) for value in numbers.values()]
    depends = torch.cat(list(dependents(run, sample, own, torch.tensor(places), _ROUNDING)))
    others = [everywhere(CONSTANT, one.shape) for one in rest]
    if int(depends.sum(0).max()) <= 1:
        table = torch.tensor([*places, CONSTANT])
        at = torch.where(depends.any(0), depends.to(torch.int8).argmax(0), len(places))
        return Outcome([vectors(table[at]), *others], PER_TOKEN)
    fixed = _is_linear(run, sample, [home(one) >= 0 for one in owners])
    homes = [home(one) for one in owners if one.shape == result.shape and bool((home(one) >= 0).any())]
    kept = (_kept_tokens(one, depends, places) for one in homes)
    found = next(filter(None, kept), None) or _new_places(call, depends, places, overlap=fixed)
    return Outcome([found[0], *others], found[1]._replace(content_dependent=not fixed))


def _is_inexact(value: Tensor) -> bool:
    return value.is_floating_point() or value.is_complex()


def _is_linear(run: Callable[[list[Tensor]], Tensor], sample: list[Tensor], owned: list[Tensor]) -> bool:
    """Are its weights fixed: do sums of inputs give sums of outputs?"""

    def of_sum(*seeds: int) -> Tensor:
        noises = [torch.Generator().manual_seed(seed) for seed in seeds]
        batch = []
        for one, own in zip(sample, owned, strict=True):
            drawn = [torch.randn(one.shape, generator=noise, dtype=torch.float64) for noise in noises]
            batch.append(torch.where(own, sum(drawn, torch.zeros_like(one)), one)[None])
        return run(batch)

    whole, parts = of_sum(1, 2) + of_sum(), of_sum(1) + of_sum(2)
    return bool(whole.isfinite().all()) and not bool(_differ(whole, parts, _ROUNDING).any())


def _kept_tokens(homes: Tensor, depends: Tensor, places: list[int]) -> tuple[Tensor, Finding] | None:
    """Outputs that are the tokens of an input of their shape, `homes`, where each of them depends on its own."""
    index = {place: at for at, place in enumerate(places)}
    counts = []
    for place in sorted(ids(homes)):
        reads = depends[:, homes == place]
        if not bool(reads[index[place]].any()):
            return None
        counts.append(int(reads.any(1).sum()))
    return vectors(homes), Finding(mixes=True, computed=torch.tensor(counts), places=frozenset(places))


def _new_places(call: Call, depends: Tensor, places: list[int], *, overlap: bool) -> tuple[Tensor, Finding]:
    """A new place for each set of tokens that an output depends on."""
    table = torch.tensor(places)
    sets, which = torch.unique(depends.flatten(1).T, dim=0, return_inverse=True)
    groups = [frozenset(table[one].tolist()) for one in sets]
    disjoint = sum(map(len, groups)) == len(frozenset[int]().union(*groups))
    if not disjoint and not overlap:
        raise NotImplementedError("no rule knows it")
    made = call.one_place_each(groups)
    counts = torch.tensor([len(group) for group in groups if group])
    finding = Finding(mixes=True, computed=counts, places=frozenset(places), merges=disjoint)
    return vectors(made[which]).reshape(depends.shape[1:]), finding
