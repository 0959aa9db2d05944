"""An operation without a rule: its tokens are changed, one after the other, and what changes depends on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor

from xfcost.torch_models.mixing.call import PER_TOKEN, Call, Finding, Outcome, ids
from xfcost.torch_models.mixing.owners import CONSTANT, content, everywhere, home, vectors
from xfcost.torch_models.mixing.perturb import OwnedUnits, differs, influences, random_like
from xfcost.torch_models.shared.private_torch import aten_operations, pytree, schema_of

_MOST_PLACES: Final = 300
_MOST_OUTPUTS: Final = 20_000_000
_ROUNDING: Final = 1e-9
_CHANGES: Final = 3
# Each channel, along axis 1 of their input, is computed for itself, and as all others.
_BY_CHANNEL: Final = frozenset(
    aten_operations(
        "upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d _upsample_bilinear2d_aa "
        "_upsample_bicubic2d_aa"
    )
)


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
        raise NotImplementedError("it has no rule")
    if call.packet in _BY_CHANNEL and bool((owners[0] == owners[0][:, :1]).all()):
        numbers, owners, result = {0: numbers[0][:, :1]}, [owners[0][:, :1]], result[:, :1]

    call.run.budget.spend(0, _CHANGES * len(places) * result.numel())
    kind = torch.complex128 if any(map(torch.is_complex, numbers.values())) else torch.float64
    parts = [value.numel() for value in numbers.values()]

    def run(lines: Tensor) -> list[Tensor]:
        answers = []
        for line in lines:
            given = leaves.copy()
            for (at, value), part in zip(numbers.items(), line.split(parts), strict=True):
                given[at] = (part if value.is_complex() else part.real).reshape(value.shape)
            answer: Any = call.func(*pytree.tree_unflatten(given, form), **call.kwargs)
            answers.append(answer if isinstance(answer, Tensor) else answer[0])
        return [torch.stack(answers)]

    line = torch.cat([value.to(kind).flatten() for value in numbers.values()])[None]
    units = OwnedUnits(places, torch.cat([one.flatten() for one in owners]))
    noise, axes = torch.Generator().manual_seed(0), range(1, result.dim() + 1)
    (found,) = influences(run, line, units, [axes], noise, _ROUNDING, changes=_CHANGES)
    depends = torch.from_numpy(found.T.copy()).reshape(len(places), *result.shape)
    others = [everywhere(CONSTANT, one.shape) for one in rest]
    if int(depends.sum(0).max()) <= 1:
        table = torch.tensor([*places, CONSTANT])
        at = torch.where(depends.any(0), depends.to(torch.int8).argmax(0), len(places))
        return Outcome([vectors(table[at]).expand(call.result.shape), *others], PER_TOKEN)
    fixed = _is_linear(run, line, home(units.owners) >= 0)
    homes = [home(one) for one in owners if one.shape == result.shape and bool((home(one) >= 0).any())]
    kept = (_kept_tokens(one, depends, places) for one in homes)
    made, finding = next(filter(None, kept), None) or _new_places(call, depends, places, overlap=fixed)
    return Outcome([made.expand(call.result.shape), *others], finding._replace(content_dependent=not fixed))


def _is_inexact(value: Tensor) -> bool:
    return value.is_floating_point() or value.is_complex()


def _is_linear(run: Callable[[Tensor], list[Tensor]], line: Tensor, owned: Tensor) -> bool:
    """Are its weights fixed: do sums of inputs give sums of outputs?"""

    def of_sum(*seeds: int) -> Tensor:
        drawn = [random_like(line, torch.Generator().manual_seed(seed)) for seed in seeds]
        return run(torch.where(owned, sum(drawn, torch.zeros_like(line)), line))[0]

    whole, parts = of_sum(1, 2) + of_sum(), of_sum(1) + of_sum(2)
    return bool(whole.isfinite().all()) and not bool(differs(whole, parts, _ROUNDING).any())


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
        raise NotImplementedError("it has no rule")
    made = call.one_place_each(groups)
    counts = torch.tensor([len(group) for group in groups if group])
    finding = Finding(mixes=True, computed=counts, places=frozenset(places), merges=disjoint)
    return vectors(made[which]).reshape(depends.shape[1:]), finding
