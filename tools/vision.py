"""Mixing operations of the mechanisms that the survey leaves out: printed into docs/vision-operations.md.

Rows, kinds and orders come from all presets with the mechanism, or from its defaults if no preset has it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

from xfcost.formulas.component import Component, Mixer, Place, SubLayer, tag_of
from xfcost.formulas.letters import order
from xfcost.ledger.grid import Grid
from xfcost.ledger.operation import MIXINGS, Operation
from xfcost.mechanisms import MECHANISMS
from xfcost.mechanisms.residual_blocks import Bottleneck
from xfcost.spec.architecture import Part
from xfcost.spec.load import load, preset_names, presets_with
from xfcost.spec.placement import place
from xfcost.spec.run import Run

# Where a mechanism stands that no preset has.
_PLACE = Place(grid=Grid((512, 512)), dim=768, out_dim=768)


def lines() -> list[dict[str, str]]:
    """One line per mechanism: its summary and its mixing operations by kind."""
    others = _others()
    found = _rows(others)
    return [_line(component, found.get(component)) for component in others]


def _others() -> list[type[Mixer]]:
    """Mechanisms that no preset of the survey has."""
    placed = [place(load(preset), Run()) for preset in presets_with("survey")]
    surveyed = {type(part.component) for architecture in placed for part, *_ in architecture.parts()}
    return [component for component in MECHANISMS.values() if component not in surveyed]


def _rows(kinds: Collection[type[Mixer]]) -> dict[type[Component], list[Operation]]:
    """The rows of these kinds of component with their orders, eager and fused, over all presets."""
    found: dict[type[Component], list[Operation]] = {}
    seen: set[str] = set()  # a component with lists of options has no hash
    for preset in preset_names():
        loaded = load(preset)
        for attention in ("eager", "fused"):
            for part, *_ in place(loaded, Run(attention=attention)).parts():
                for component, component_place in _components(part):
                    if type(component) in kinds and (each := f"{component} {component_place}") not in seen:
                        seen.add(each)
                        found.setdefault(type(component), []).extend(_ordered(component, component_place))
    return found


def _components(part: Part) -> Iterator[tuple[Component, Place]]:
    """A part's component, and the mixer that replaces a bottleneck's convolution."""
    yield part.component, part.place
    if isinstance(part.component, Bottleneck) and part.component.spatial is not None:
        yield part.component.spatial_mixer, part.component.inside(part.place)


def _ordered(component: Component, where: Place) -> Iterator[Operation]:
    component, where = component.in_letters(where)
    for row in (*component.operations(where), *(component.shortcut(where) if isinstance(component, SubLayer) else ())):
        if row.mixes and (row.macs or row.flops or row.comparisons):
            yield msgspec.structs.replace(row, order=order(row))


def _line(component: type[Mixer], found: list[Operation] | None) -> dict[str, str]:
    rows = found or list(_ordered(component(), _PLACE))
    summary = (component.__doc__ or "").strip().splitlines()[0].rstrip(".")
    cells = {"`kind`": f"`{tag_of(component)}`", "what it is": summary}
    for kind in MIXINGS[1:]:
        cells[f"{kind} mixing"] = "<br>".join(_orders(rows, kind)) or "–"
    return cells


def _orders(rows: list[Operation], kind: str) -> list[str]:
    """`content-dependent O(N²·d): scores, weighted_sum` for every order."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row.mixing != kind or row.order is None:
            continue
        weights = "content-dependent" if row.content_dependent else "static"
        names = found.setdefault((weights, row.order.removesuffix(" comparisons")), [])
        names += [] if row.path in names else [row.path]
    return [f"{weights} {growth}: {', '.join(names)}" for (weights, growth), names in found.items()]
