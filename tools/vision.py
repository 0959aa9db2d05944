"""What mixes in the mechanisms that the survey leaves out, most of them vision's: printed into docs/vision.md.

Nothing is typed in: rows, kinds and orders are those of each page's own formula, on the examples of the derivation.
"""

from __future__ import annotations

from typing import Any

from derive_orders import order
from order_examples import examples
from survey import others

from xfcost.ledger import MIXINGS
from xfcost.mechanisms.base import Mixer, SubLayer, tag_of


def lines() -> list[dict[str, str]]:
    """One line per mechanism: what it is, and its operations that mix, by kind."""
    known = examples()
    return [_line(page, known[page]) for page in others()]


def _line(page: type[Mixer], spots: list[Any]) -> dict[str, str]:
    summary = (page.__doc__ or "").strip().splitlines()[0].rstrip(".")
    cells = {"`kind`": f"`{tag_of(page)}`", "what it is": summary}
    for kind in MIXINGS[1:]:
        cells[f"{kind} mixing"] = "<br>".join(_told(spots, kind)) or "–"
    return cells


def _told(spots: list[Any], kind: str) -> list[str]:
    """`content-dependent O(N²·d): scores, weighted_sum` for every order, operations with the most MACs first."""
    found: dict[tuple[str, str], list[str]] = {}
    for page, place in spots:
        shortcut = page.shortcut(place) if isinstance(page, SubLayer) else ()
        for row in (*page.operations(place), *shortcut):
            cost = row.macs or row.flops or row.comparisons
            if row.mixing != kind or not cost:
                continue
            weights = "content-dependent" if row.content_dependent else "static"
            names = found.setdefault((weights, order(cost)), [])
            names += [] if row.path in names else [row.path]
    return [f"{weights} {grows}: {', '.join(names)}" for (weights, grows), names in found.items()]
