"""Kinds found in running modules without their spec, beside those that the spec's rows declare."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from followed import run_followed
from xfcost.counting.forward import count
from xfcost.formulas.component import SubLayer
from xfcost.formulas.layer import Embed, Enter, Head
from xfcost.formulas.residual import component_rows
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.operation import Operation
from xfcost.spec.architecture import Architecture, Part
from xfcost.torch_models.build import build
from xfcost.torch_models.mixing.follower import Follower
from xfcost.torch_models.mixing.verdict import FoundOperation, verdicts
from xfcost.torch_models.modules import ModuleMaker
from xfcost.torch_models.probing.compare import example
from xfcost.torch_models.probing.hints import hints_for
from xfcost.torch_models.probing.small import Small, made_small
from xfcost.torch_models.running.by_row import row_path
from xfcost.torch_models.shared.leaves import Table
from xfcost.torch_models.shared.recurrent import RecurrentLayer
from xfcost.torch_models.sublayer import SubLayerModel

# Of the operations in one leaf, the first of these decides.
_ORDER: Final = ("unknown", "global", "local", "per-token")


class Comparison(NamedTuple):
    """A row as declared, and the operations that were found in its leaf."""

    row: Operation
    found: list[FoundOperation]

    @property
    def kind(self) -> str | None:
        """The kind of the leaf; None if nothing in it costs anything."""
        kinds = {one.kind for one in self.found}
        return next((kind for kind in _ORDER if kind in kinds), None)

    @property
    def difference(self) -> str | None:
        """What differs, or None."""
        row, kind = self.row, self.kind
        if kind is None:
            return None if not row.mixes or row.only_moves else f"{self.declared}; nothing found"
        deciding = [one for one in self.found if one.kind == kind]
        found = f"found {kind} {_text(deciding)}".rstrip()
        if kind != row.mixing:
            reasons = " ".join(sorted({one.reason for one in deciding if one.reason}))
            return f"{self.declared}; {found} {reasons}".rstrip()
        if not row.mixes:
            return None
        numbers = {one.reads.largest for one in deciding if one.reads}
        numbers |= {one.computed.largest for one in deciding if one.computed}
        numbers |= {one.represents for one in deciding if one.represents is not None}
        content = {one.content_dependent for one in deciding}
        return None if row.reads_tokens in numbers and row.content_dependent in content else f"{self.declared}; {found}"

    @property
    def declared(self) -> str:
        """`declared local, reads 9, content-dependent`."""
        row = self.row
        weights = "content-dependent" if row.content_dependent else "static"
        return f"declared {row.mixing}" + (f", reads {row.reads_tokens}, {weights}" if row.mixes else "")


def _text(deciding: list[FoundOperation]) -> str:
    reads = sorted({one.reads.largest for one in deciding if one.reads})
    weights = sorted({"content-dependent" if one.content_dependent else "static" for one in deciding if one.reads})
    return f"reads {reads} {'/'.join(weights)}" if reads else ""


def noisy(module: nn.Module) -> nn.Module:
    """The module in float64 with noise in place of its weights, so that zeros of an initialisation hide nothing."""
    noise = torch.Generator().manual_seed(0)
    for parameter in module.parameters():
        parameter.data = 0.1 * torch.randn(parameter.shape, generator=noise, dtype=torch.float64)
    for one in module.modules():
        if isinstance(one, RecurrentLayer):
            one.starts_from_encoder = False
    return module.double().eval()


def parts_of(architecture: Architecture) -> Iterator[tuple[Part, Small]]:
    """The parts that can stand alone on vectors of tokens, each with its small form."""
    for part, *_ in architecture.parts():
        component = part.component
        image = isinstance(component, Embed) and component.takes != ("embedded",)
        joins = isinstance(component, Enter) and component.reads_stage
        if image or joins or not isinstance(component, SubLayer | Embed | Enter | Head):
            continue
        try:
            yield part, made_small(component, part.place)
        except ComponentError:
            continue


def of_part(part: Part, small: Small) -> list[Comparison]:
    """The rows of a part at its small places, and what is found in its module."""
    parts = [part._replace(component=small.component, place=place) for place in small.places]
    (module, run), (_, larger) = (_followed(one) for one in parts)
    names = {name: _row_of(name, {"it": "it"}, "it.") for name, _ in module.named_modules() if name}
    rows = component_rows(parts[0].component, parts[0].residual, parts[0].place)
    return _compared([row for row in rows if row.path in names.values()], verdicts(run, larger), names)


def _followed(part: Part) -> tuple[nn.Module, Follower]:
    component, place = part.component, part.place
    tables = {name: Table(*shape).double() for name, shape in component.tables(place).items()}
    maker = ModuleMaker(tables)
    past = hints_for(component).past(component, place)
    alone = past or not isinstance(component, SubLayer)
    module = noisy(maker.module(part) if alone else SubLayerModel(part, maker))
    reads_memory = isinstance(component, SubLayer) and component.reads_memory
    shapes = (*example(place)[: 2 if reads_memory else 1], *past)
    noise = torch.Generator().manual_seed(1)

    def filled(tensor: Tensor) -> Tensor:
        return torch.randn(tensor.shape, generator=noise, dtype=torch.float64)

    return module, run_followed(module, tree_map(filled, shapes), {})


def of_model(small: Architecture, large: Architecture) -> list[Comparison]:
    """The rows of a whole model at two sizes, and what is found in it."""
    runs = []
    for architecture in (small, large):
        live = build(architecture, "cpu")
        inputs = tuple(tensor.double() if tensor.is_floating_point() else tensor for tensor in live.inputs)
        runs.append((live, run_followed(noisy(live.model), inputs, {})))
    (live, run), (_, larger) = runs
    names = {name: _row_of(name, live.rows, "") for name, _ in live.model.named_modules() if name}
    return _compared(list(count(small, orders=False).rows), verdicts(run, larger), names)


def _row_of(module: str, rows: dict[str, str], prefix: str) -> str | None:
    path = row_path(prefix + module, rows)
    return None if path is None else path.removeprefix(prefix)


def _compared(rows: list[Operation], found: list[FoundOperation], names: dict[str, str | None]) -> list[Comparison]:
    by_row: dict[str | None, list[FoundOperation]] = {}
    for one in found:
        if one.kind is not None:
            by_row.setdefault(names.get(one.module), []).append(one)
    return [Comparison(row, by_row.get(row.path, [])) for row in rows]
