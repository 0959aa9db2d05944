"""What mixes in the mechanisms that the survey leaves out, most of them vision's: printed into docs/vision.md.

Nothing is typed in: rows, kinds and orders are those of every preset of the gallery that has the mechanism;
of one that none has, its defaults'.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import msgspec
from survey import SQUARE, d, others

from xfcost.formulas.component import Component, Mixer, Place, SubLayer, tag_of
from xfcost.formulas.orders import order
from xfcost.ledger.operation import MIXINGS, Operation
from xfcost.mechanisms.bottleneck import Bottleneck
from xfcost.spec.architecture import Part
from xfcost.spec.load import load, preset_names
from xfcost.spec.placement import place
from xfcost.spec.run import Run


def lines() -> list[dict[str, str]]:
    """One line per mechanism: what it is, and its operations that mix, by kind."""
    return [_line(component) for component in others()]


@cache
def _rows() -> dict[type[Component], list[Operation]]:
    """The rows of every kind of component with their orders, eager and fused, over all presets."""
    found: dict[type[Component], list[Operation]] = {}
    for preset in preset_names():
        loaded = load(preset)
        for way in ("eager", "fused"):
            for part, *_ in place(loaded, Run(attention=way)).parts():
                for component, spot in _pages(part):
                    found.setdefault(type(component), []).extend(_ordered(component, spot))
    return found


def _pages(part: Part) -> Iterator[tuple[Component, Place]]:
    """A part's component; and the one that stands inside a bottleneck, in place of its convolution."""
    yield part.component, part.place
    if isinstance(part.component, Bottleneck) and part.component.spatial is not None:
        yield part.component.instead, part.component.inside(part.place)


def _ordered(component: Component, spot: Place) -> Iterator[Operation]:
    component, spot = component.in_letters(spot)
    for row in (*component.operations(spot), *(component.shortcut(spot) if isinstance(component, SubLayer) else ())):
        if row.mixes and (row.macs or row.flops or row.comparisons):
            yield msgspec.structs.replace(row, order=order(row))


def _line(component: type[Mixer]) -> dict[str, str]:
    rows = _rows().get(component) or list(_ordered(component(), Place(grid=SQUARE, dim=d, out_dim=d)))
    summary = (component.__doc__ or "").strip().splitlines()[0].rstrip(".")
    cells = {"`kind`": f"`{tag_of(component)}`", "what it is": summary}
    for kind in MIXINGS[1:]:
        cells[f"{kind} mixing"] = "<br>".join(_told(rows, kind)) or "–"
    return cells


def _told(rows: list[Operation], kind: str) -> list[str]:
    """`content-dependent O(N²·d): scores, weighted_sum` for every order."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row.mixing != kind or row.order is None:
            continue
        weights = "content-dependent" if row.content_dependent else "static"
        names = found.setdefault((weights, row.order.removesuffix(" comparisons")), [])
        names += [] if row.path in names else [row.path]
    return [f"{weights} {grows}: {', '.join(names)}" for (weights, grows), names in found.items()]
