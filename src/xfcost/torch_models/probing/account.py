"""The probed account of an architecture: each part is made small, and which tokens its operations read is followed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Final, NamedTuple

import msgspec
import torch
from torch import Tensor, nn

from xfcost.formulas.component import Component, Embed, Enter, Head, Mixer, Observed, SubLayer
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.operation import KINDS, Mixing, Operation
from xfcost.parts.mixing.result import Probe, ProbedMixing, ProbedRow
from xfcost.program.residual import component_rows
from xfcost.spec.architecture import Architecture, Part
from xfcost.torch_models.build import ModuleMaker, SubLayerModel
from xfcost.torch_models.mixing.follower import Budget, Follower, LimitReached, own_inputs
from xfcost.torch_models.mixing.verdict import FoundOperation, verdicts
from xfcost.torch_models.probing.patterns import declared_differences, pattern_differences
from xfcost.torch_models.probing.small import Small, made_small
from xfcost.torch_models.program import ProgramModule
from xfcost.torch_models.running.by_row import row_path
from xfcost.torch_models.running.surroundings import without_fast_path
from xfcost.torch_models.shared.leaves import Table
from xfcost.torch_models.shared.running_modules import running_modules

# ── one run of a module in which the tokens behind every number are followed ──


def prepared(module: nn.Module) -> nn.Module:
    """The module in float64 and evaluation mode, with noise of unit gain for weights: no zero hides anything."""
    noise = torch.Generator().manual_seed(0)
    for parameter in module.double().eval().parameters():
        gain = prod(parameter.shape[1:]) ** -0.5
        parameter.data = gain * torch.randn(parameter.shape, generator=noise, dtype=torch.float64)
    for one in module.modules():
        if isinstance(one, ProgramModule):
            one.starts_from_zeros = True  # alone, it has no encoder to start from
    return module


class ProbedLeaf(NamedTuple):
    """What is found of one leaf of a module at one size."""

    mixing: Mixing
    numbers: tuple[int, ...]
    """Tokens read: by dependence, as computed in spite of masks, behind the groups read, and groups read."""
    merges: int
    """Of a per-token operation, the tokens that it merges into a new one."""
    content_dependent: bool
    reason: str | None = None
    """Why its kind is not known."""


def leaves_of(
    modules: Sequence[nn.Module], inputs: Sequence[tuple[Tensor, ...]], budget: Budget, *, paired: bool = False
) -> list[dict[str, ProbedLeaf]]:
    """Row name -> leaf, of the same module at a small and at a larger size.

    Args:
        modules: of both sizes, `prepared`.
        inputs: their inputs, (1, N, D) each; noise takes the place of their numbers.
        budget: what following them is spent of.
        paired: the tokens of both inputs are the same ones.
    """
    small, large = (_followed(*one, budget, paired=paired) for one in zip(modules, inputs, strict=True))
    leaves = [
        _leaves(module, found) for module, found in zip(modules, (verdicts(small, large), verdicts(large)), strict=True)
    ]
    kinds = {row: _kind(operations) for row, operations in leaves[0].items()}
    first = {
        row: _leaf(kinds[row], [one for one in operations if one.kind in {None, "per-token", kinds[row]}])
        for row, operations in leaves[0].items()
    }
    return [first, {row: _leaf(kinds.get(row, "per-token"), operations) for row, operations in leaves[1].items()}]


def _followed(module: nn.Module, inputs: tuple[Tensor, ...], budget: Budget, *, paired: bool) -> Follower:
    follower, noise = Follower(budget), torch.Generator().manual_seed(1)
    for tensor in (*inputs, *_remembered(module)):
        tensor.copy_(torch.randn(tensor.shape, generator=noise, dtype=torch.float64))
    own_inputs(follower, (*inputs[: 1 if paired else None], *_remembered(module)), {})
    if paired:
        follower.own_as(inputs[1], inputs[0])
    with torch.no_grad(), without_fast_path(), running_modules(module, follower.running), follower:
        module(*inputs)
    return follower


def _remembered(module: nn.Module) -> list[Tensor]:
    """The buffers in which a module has its past: tokens of their own."""
    return [buffer for one in module.modules() for buffer in getattr(one, "remembered", ())]


def _leaves(module: nn.Module, found: Sequence[FoundOperation]) -> dict[str, list[FoundOperation]]:
    """Row name -> the operations of its leaf."""
    names = {name: row_path(f"it.{name}", {"it": "it"}) for name, _ in module.named_modules() if name}
    leaves: dict[str, list[FoundOperation]] = {}
    for one in found:
        if path := names.get(one.module):
            leaves.setdefault(path.removeprefix("it."), []).append(one)
    return leaves


def _kind(operations: Sequence[FoundOperation]) -> Mixing:
    """The widest kind of the operations in one leaf; what only moves numbers reads no other token."""
    return max((one.kind or "per-token" for one in operations), key=KINDS.index)


def _leaf(kind: Mixing, operations: Sequence[FoundOperation]) -> ProbedLeaf:
    numbers = [
        (one.reads.largest, (one.computed or one.reads).largest, one.represents or 0, one.places or 0)
        for one in operations
        if one.reads is not None
    ]
    return ProbedLeaf(
        kind,
        tuple(map(max, zip(*numbers, strict=True))),
        max((one.places or 0 for one in operations), default=0),
        any(one.content_dependent for one in operations),
        next((one.reason for one in operations if one.kind == "unknown"), None),
    )


# ── the rows of a component, compared with what is found in its leaves ──


_CUT_OFF: Final = "no grid that is small enough has room for the component's pattern"


def _compared(
    rows: tuple[Sequence[Operation], Sequence[Operation]],
    leaves: Sequence[Mapping[str, ProbedLeaf]],
    observed: Sequence[Observed],
    tokens: tuple[int, ...],
    cut: frozenset[str],
) -> Iterator[ProbedRow]:
    cut_off = any(one.path in cut and one.reads_tokens != other.reads_tokens for one, other in zip(*rows, strict=True))
    for pair in zip(*rows, strict=True):
        small, large = pair
        found = [of_size.get(small.path) for of_size in leaves]
        reason = _CUT_OFF if cut_off and small.mixes else _reason(pair, found, observed[0])
        if reason:
            yield not_probed(large, reason, tokens)
            continue
        declared, seen = _declared_and_found(pair, [one for one in found if one], observed)
        yield ProbedRow(path=small.path, title=small.title, declared=declared, found=seen, tokens=tokens)


def not_probed(row: Operation, reason: str, tokens: tuple[int, ...] = ()) -> ProbedRow:
    """A row as declared, with the reason why its leaf was not compared."""
    declared = ProbedMixing(
        mixing=row.mixing, reads_tokens=row.reads_tokens, content_dependent=row.content_dependent if row.mixes else None
    )
    return ProbedRow(path=row.path, title=row.title, declared=declared, tokens=tokens, reason=reason)


def _reason(rows: tuple[Operation, Operation], leaves: Sequence[ProbedLeaf | None], observed: Observed) -> str | None:
    """Why a row cannot be compared with its leaf, or None."""
    small, large = rows
    if small.path in observed.left_out:
        return observed.left_out[small.path]
    leaf = leaves[0]
    if leaf is None or leaves[1] is None:
        return "it runs nothing at these sizes: it is a table, or has nothing to pad"
    if leaf.mixing == "unknown":
        return leaf.reason
    if small.mixes and small.only_moves and leaf.mixing == "per-token":
        return "it only moves numbers"
    if max(small.reads_tokens or 0, large.reads_tokens or 0) == 1:
        return "it reads only one token here: a softmax of one number is 1"
    return None


def _declared_and_found(
    rows: tuple[Operation, Operation], leaves: Sequence[ProbedLeaf], observed: Sequence[Observed]
) -> tuple[ProbedMixing, ProbedMixing]:
    """The declared and the found values of a row, as far as they are comparable."""
    row, kind = rows[0], leaves[0].mixing
    declared = [(one.reads_tokens or 0) - at.unread.get(row.path, 0) for one, at in zip(rows, observed, strict=True)]
    found = _agreeing([leaf.numbers for leaf in leaves], declared)
    if (kind, row.mixing) == ("per-token", "local") and [leaf.merges for leaf in leaves] == declared:
        kind, found = "local", declared  # disjoint groups, each of which becomes a new token
    if row.path in observed[0].at_most and kind != "per-token" and all(map(int.__le__, found, declared)):
        kind, found = row.mixing, declared
    if kind != row.mixing:
        alone = kind == "per-token"
        return (
            ProbedMixing(mixing=row.mixing, reads_tokens=rows[1].reads_tokens),
            ProbedMixing(mixing=kind, reads_tokens=None if alone else found[1]),
        )
    if not row.mixes:
        return ProbedMixing(mixing=kind), ProbedMixing(mixing=kind)
    at = 0 if declared[0] != found[0] else 1  # the size at which they differ
    content = any(leaf.content_dependent for leaf in leaves)
    return (
        ProbedMixing(mixing=kind, reads_tokens=declared[at], content_dependent=row.content_dependent),
        ProbedMixing(mixing=kind, reads_tokens=found[at], content_dependent=content),
    )


def _agreeing(numbers: Sequence[tuple[int, ...]], declared: list[int]) -> list[int]:
    """The first way of counting that gives the declared numbers at both sizes; else the tokens depended on."""
    ways = [list(one) for one in zip(*numbers, strict=False)]
    return next((one for one in ways if one == declared), ways[0] if ways else [0, 0])


# ── an architecture, part by part ──


_STEM = "its input is the model's own, pixels or token numbers; the probe follows vectors of tokens"
_STREAMS = "it joins the two streams of a reversible stage, and the probe follows one"
_NOT_SMALL = "its component has this row at larger sizes only"
_LIMIT = "the limit of --mixing-limit was reached"
_TWO_INPUTS = "it reads an earlier stage's output too, of another grid"


class _Found(NamedTuple):
    """The results of one part: its rows by their own names, and what differs in its pattern."""

    rows: list[ProbedRow]
    differences: tuple[str, ...] = ()
    size: str = ""
    """How it was made small; nothing where it is not probed."""


def probed(
    architecture: Architecture, ledger: Ledger, say: Callable[[str], None], *, detailed: bool = True, limit: float
) -> Ledger:
    """`ledger` with the tokens that each operation of its running model reads. Equal parts are probed once.

    Args:
        architecture: its parts are probed one after the other.
        ledger: counted, of the same architecture.
        say: takes a line of text before each part, if `detailed`.
        detailed: also hold the tokens that whole mixers read, and their pairs, against those declared.
        limit: of the elements that are followed; rows of the parts that are left say that it was reached.
    """
    budget = Budget(limit)
    rows: list[ProbedRow] = []
    sizes: dict[str, str] = {}
    patterns: dict[str, tuple[str, ...]] = {}
    probed_parts: dict[str, _Found] = {}
    for part, *_ in architecture.parts():
        found = probed_part(part, probed_parts, say, budget, detailed=detailed)
        rows += [msgspec.structs.replace(row, path=f"{part.path}.{row.path}") for row in found.rows]
        sizes |= {part.path: found.size} if found.size else {}
        if detailed and isinstance(part.component, Mixer) and found.size:
            patterns[part.path] = (*declared_differences(part.component, part.place), *found.differences)
    rows += [not_probed(row, "a table, which reads no token") for row in ledger.rows if row.component == "shared"]
    return msgspec.structs.replace(
        ledger, probe=Probe(rows=tuple(rows), detailed=detailed, sizes=sizes, patterns=patterns)
    )


def probed_part(
    part: Part,
    probed_parts: dict[str, _Found],
    say: Callable[[str], None],
    budget: Budget,
    *,
    detailed: bool = True,
) -> _Found:
    """The rows of a part, and its pattern; or rows with the reason why it is not probed."""
    reason = _not_alone(part.component)
    if reason is None:
        try:
            small = made_small(part.component, part.place)
        except ComponentError as error:
            reason = f"{error.field}: {error.message}"
        else:
            key = repr((small.component, small.places, part.residual))
            if key not in probed_parts:
                say(f"probing {part.path} …")
                try:
                    probed_parts[key] = _probed(part, small, budget, detailed=detailed)
                except LimitReached:
                    return _Found([not_probed(row, _LIMIT) for row in _operations(part)])
            found = {row.path: row for row in probed_parts[key].rows}
            rows = [found.get(row.path) or not_probed(row, _NOT_SMALL) for row in _operations(part)]
            return _Found(rows, probed_parts[key].differences, small.text)
    return _Found([not_probed(row, reason) for row in _operations(part)])


def _not_alone(component: Component) -> str | None:
    """Why a component cannot be probed alone, or None."""
    if isinstance(component, Embed) and component.takes != ("embedded",):
        return _STEM
    if component.reads_stage:
        return _TWO_INPUTS
    return None if isinstance(component, SubLayer | Embed | Enter | Head) else _STREAMS


def _operations(part: Part) -> list[Operation]:
    return list(component_rows(part.component, part.place, part.residual))


def _probed(part: Part, small: Small, budget: Budget, *, detailed: bool) -> _Found:
    budget.spend(1)
    parts = (
        part._replace(component=small.component, place=small.places[0]),
        part._replace(component=small.component, place=small.places[1]),
    )
    differences: list[str] = []
    if detailed and isinstance(small.component, Mixer):
        for one in parts:
            inner: nn.Module = _module(one).get_submodule("inner")
            differences += pattern_differences(small.component, one.place, inner, example(one))
    return _Found(list(probed_rows(parts, budget, small.cut)), tuple(differences))


def probed_rows(parts: tuple[Part, Part], budget: Budget, cut: frozenset[str] = frozenset()) -> Iterator[ProbedRow]:
    """The rows of a part at a small and at a larger place, compared with what is found in its module.

    Of the rows `cut`, the places may cut off what they read; where they do, no row that mixes tokens can be judged.
    """
    component, places = parts[0].component, (parts[0].place, parts[1].place)
    modules, inputs = [_module(one) for one in parts], [example(one) for one in parts]
    leaves = leaves_of(modules, inputs, budget, paired=component.observed(places[0]).paired)
    yield from _compared(
        (_operations(parts[0]), _operations(parts[1])),
        leaves,
        [component.observed(place) for place in places],
        tuple(place.grid.total for place in places),
        cut,
    )


def _module(part: Part) -> nn.Module:
    torch.manual_seed(0)
    tables = {name: Table(*shape).double() for name, shape in part.component.tables(part.place).items()}
    maker = ModuleMaker(tables)
    return prepared(SubLayerModel(part, maker) if isinstance(part.component, SubLayer) else maker.module(part))


def example(part: Part) -> tuple[Tensor, ...]:
    """Inputs of zeros: x, and the memory if it is read."""
    component, place = part.component, part.place
    shapes = [(1, place.grid.total, place.dim)]
    if component.reads_memory and place.memory:
        shapes.append((1, place.memory.total, place.memory_dim))
    return tuple(torch.zeros(shape, dtype=torch.float64) for shape in shapes)
