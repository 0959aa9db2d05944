"""The probed account of an architecture: each part is made small, built in float64, and its leaves are perturbed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import NamedTuple

import msgspec
import torch
from torch import nn

from xfcost.formulas.component import Component, Mixer, SubLayer
from xfcost.formulas.layer import Embed, Enter, Head
from xfcost.formulas.residual import component_rows
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.operation import Operation
from xfcost.ledger.probe import Probe, ProbedRow
from xfcost.spec.architecture import Architecture, Part
from xfcost.torch_models.modules import ModuleMaker
from xfcost.torch_models.probing.compare import Readings, compared, example, not_probed, readings
from xfcost.torch_models.probing.hints import hints_for
from xfcost.torch_models.probing.patterns import declared_differences, pattern_differences
from xfcost.torch_models.probing.run import Reading
from xfcost.torch_models.probing.small import Small, made_small
from xfcost.torch_models.shared.leaves import Table
from xfcost.torch_models.shared.recurrent import RecurrentLayer
from xfcost.torch_models.sublayer import SubLayerModel

_STEM = "its input is the model's own, pixels or token numbers; the probe follows vectors of tokens"
_STREAMS = "it joins the two streams of a reversible stage, and the probe follows one"
_NOT_SMALL = "its component has this row at larger sizes only"
_TWO_INPUTS = "it reads an earlier stage's output too, of another grid"


class _Found(NamedTuple):
    """The results of one part: its rows by their own names, and what differs in its pattern."""

    rows: list[ProbedRow]
    differences: tuple[str, ...] = ()
    size: str = ""
    """How it was made small; nothing where it is not probed."""


def probed(architecture: Architecture, ledger: Ledger, say: Callable[[str], None]) -> Ledger:
    """`ledger` with the tokens that each operation of its running model reads. Equal parts are probed once."""
    rows: list[ProbedRow] = []
    sizes: dict[str, str] = {}
    patterns: dict[str, tuple[str, ...]] = {}
    probed_parts: dict[str, _Found] = {}
    for part, *_ in architecture.parts():
        found = probed_part(part, probed_parts, say)
        rows += [msgspec.structs.replace(row, path=f"{part.path}.{row.path}") for row in found.rows]
        sizes |= {part.path: found.size} if found.size else {}
        if isinstance(part.component, Mixer) and found.size:
            patterns[part.path] = (*declared_differences(part.component, part.place), *found.differences)
    rows += [not_probed(row, "a table, which reads no token") for row in ledger.rows if row.component == "shared"]
    return msgspec.structs.replace(ledger, probe=Probe(rows=tuple(rows), sizes=sizes, patterns=patterns))


def probed_part(part: Part, probed_parts: dict[str, _Found], say: Callable[[str], None]) -> _Found:
    """The rows of a part, and its pattern; or rows with the reason why it is not probed."""
    reason = _reason(part.component)
    if reason is None:
        try:
            small = made_small(part.component, part.place)
        except ComponentError as error:
            reason = f"{error.field}: {error.message}"
        else:
            key = repr((small.component, small.places, part.residual))
            if key not in probed_parts:
                say(f"probing {part.path} …")
                probed_parts[key] = _probed(part, small)
            found = {row.path: row for row in probed_parts[key].rows}
            rows = [found.get(row.path) or not_probed(row, _NOT_SMALL) for row in _operations(part)]
            return _Found(rows, probed_parts[key].differences, small.text)
    return _Found([not_probed(row, reason) for row in _operations(part)])


def _reason(component: Component) -> str | None:
    """Why a component cannot be probed alone, or None."""
    if isinstance(component, Embed) and (component.takes != ("embedded",)):
        return _STEM
    if isinstance(component, Enter) and component.reads_stage:
        return _TWO_INPUTS
    return None if isinstance(component, SubLayer | Embed | Enter | Head) else _STREAMS


def _operations(part: Part) -> list[Operation]:
    return list(component_rows(part.component, part.residual, part.place))


def _probed(part: Part, small: Small) -> _Found:
    parts = [part._replace(component=small.component, place=place) for place in small.places]
    seen, differences = zip(*(_readings(one) for one in parts), strict=True)
    rows = (_operations(parts[0]), _operations(parts[1]))
    probed_rows = list(compared(small.component, rows, Readings(*seen), small.places, small.cut))
    return _Found(probed_rows, tuple(chain.from_iterable(differences)))


def _readings(part: Part) -> tuple[dict[str, Reading], list[str]]:
    """The readings of the leaves, of the residual connection too; and what differs in the part's pattern."""
    component, place = part.component, part.place
    torch.manual_seed(0)
    tables = {
        name: Table(*shape).double().requires_grad_(requires_grad=False)
        for name, shape in component.tables(place).items()
    }
    maker = ModuleMaker(tables)
    reads_memory = isinstance(component, SubLayer) and component.reads_memory
    inputs = example(place)[: 2 if reads_memory else 1]
    module, all_inputs = _alone(maker.module(part)), (*inputs, *hints_for(component).past(component, place))
    found = readings(module, all_inputs, component, place)
    differences = (
        list(pattern_differences(component, place, module, all_inputs)) if isinstance(component, Mixer) else []
    )
    if isinstance(component, SubLayer) and (part.residual != "none" or component.special_tokens_only):
        model = SubLayerModel(part, maker)
        grid, width = component.out(place)
        if grid == place.grid and not component.special_tokens_only:
            model.inner, model.reads_memory, inputs = nn.Linear(place.dim, width), False, inputs[:1]
        around = readings(model, inputs, component, place)
        found |= {row: reading for row, reading in around.items() if row.startswith("residual_")}
    return found, differences


def _alone(module: nn.Module) -> nn.Module:
    """The module without its encoder: a recurrence that starts from the encoder's last state starts from zeros."""
    if isinstance(module, RecurrentLayer):
        module.starts_from_encoder = False
    return module
