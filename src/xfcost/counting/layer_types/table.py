"""The layer-type table: complexity per layer, sequential operations and maximum path length, as printed and derived."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from xfcost.counting.layer_types.paths import layers_until_met, path_order
from xfcost.counting.layer_types.types import LAYER_TYPES, LayerType, Printed, Sizes
from xfcost.formulas.component import Grid, Mixer, Operation, Place, tag_of
from xfcost.formulas.lettered import form_of
from xfcost.formulas.polynomial import Polynomial, exact_quotient
from xfcost.ledger import notebook
from xfcost.ledger.units import number_of

# The paper's order of factors: k·n·d².
_FACTORS: Final = "krnd"


class Chain(msgspec.Struct, frozen=True, kw_only=True):
    """The longest chain of operations in a module, each of which needs the one before: `per_token`·n + `always`."""

    per_token: int
    always: int

    @property
    def order(self) -> str:
        """O(1) or O(n)."""
        return "O(n)" if self.per_token else "O(1)"

    def __str__(self) -> str:
        if not self.per_token:
            return f"{self.always}"
        return f"{self.per_token}·n" + (f" + {self.always}" if self.always else "")

    def at(self, n: int) -> int:
        """Operations at n tokens."""
        return self.per_token * n + self.always


class LayerLine(msgspec.Struct, frozen=True, kw_only=True):
    """One layer type: what is printed, what is derived, and the numbers at some sizes."""

    title: str
    kind: str
    printed: Printed
    complexity: str
    """Of all its MACs, in the paper's letters."""
    mixing: str
    """Of the MACs without projections."""
    macs: int
    projection_macs: int
    projections: str
    """These as a polynomial in the paper's letters, and the other MACs."""
    others: str
    share: str
    """The projections' over the other MACs, as a formula."""
    chain: Chain
    path: int
    """Sequential steps that the longest path takes: layers, times the steps of a layer that wait for one another."""
    path_order: str

    @property
    def complexity_agrees(self) -> bool | None:
        """Is the printed order that of the whole layer? None where it is that of the MACs without projections."""
        printed = _terms(self.printed.complexity)
        if printed == _terms(self.complexity):
            return True
        return None if printed == _terms(self.mixing) else False

    @property
    def sequential_agrees(self) -> bool | None:
        """None where nothing is printed."""
        return None if self.printed.sequential is None else self.printed.sequential == self.chain.order

    @property
    def path_agrees(self) -> bool | None:
        """None where nothing is printed."""
        return None if self.printed.path is None else self.printed.path == self.path_order


class LayerTable(msgspec.Struct, frozen=True, kw_only=True):
    """The table at some sizes."""

    n: int
    d: int
    k: int
    r: int
    lines: tuple[LayerLine, ...]

    def __repr__(self) -> str:
        sizes = f"n = {self.n}, d = {self.d}, k = {self.k}, r = {self.r}"
        return notebook.line(self, f"{sizes}: {number_of(len(self.lines), 'layer type')}")

    def _repr_html_(self) -> str | None:
        """The tables that a notebook shows."""
        return notebook.html(self)


def layer_table(sizes: Sizes, chain: Callable[[Mixer], Chain]) -> LayerTable:
    """All layer types at these sizes; `chain` runs a layer's module and gives its longest chain."""
    lines = tuple(_line(layer_type, sizes, chain) for layer_type in LAYER_TYPES)
    return LayerTable(n=sizes.n, d=sizes.d, k=sizes.k, r=sizes.r, lines=lines)


def _line(layer_type: LayerType, sizes: Sizes, chain: Callable[[Mixer], Chain]) -> LayerLine:
    layer = layer_type.layer(sizes)
    place = Place(grid=Grid((sizes.n,)), dim=sizes.d, out_dim=sizes.d)
    rows = list(layer.operations(place))
    forms = _forms(layer, place)
    window = layer_type.window
    return LayerLine(
        title=layer_type.title,
        kind=tag_of(type(layer)),
        printed=layer_type.printed,
        complexity=in_papers_letters((forms[0] + forms[1]).joint_order(), window),
        mixing=in_papers_letters(forms[0].joint_order(), window),
        macs=sum(row.macs for row in rows),
        projection_macs=sum(row.macs for row in rows if _projects(row)),
        projections=in_papers_letters(repr(forms[1]), window),
        others=in_papers_letters(repr(forms[0]), window),
        share=in_papers_letters(_share(*forms), window),
        chain=chain(layer),
        path=_path(layer_type, sizes),
        path_order=path_order(layer_type, lambda at: _path(layer_type, at)),
    )


def _forms(layer: Mixer, place: Place) -> tuple[Polynomial, Polynomial]:
    """The MACs in letters: those without projections, and the projections'."""
    layer, place = layer.in_letters(place)
    rows = list(layer.operations(place))
    return tuple(form_of(sum(row.macs for row in rows if _projects(row) == one)) for one in (False, True))  # type: ignore[return-value]


def _projects(row: Operation) -> bool:
    """Is it a map of each token, with parameters of its own?"""
    return bool(row.params) and not row.mixes


def _share(others: Polynomial, projections: Polynomial) -> str:
    """The projections' MACs over the others, `2·d/n`; empty where either has several terms or none."""
    if len(others.terms) != 1 or len(projections.terms) != 1:
        return ""
    ((powers, number),) = others.terms.items()
    return repr(projections.times(exact_quotient(1, number), -powers))


def _path(layer_type: LayerType, sizes: Sizes) -> int:
    """Layers until all have met, times the steps of one layer."""
    place = Place(grid=Grid((sizes.n,)), dim=sizes.d, out_dim=sizes.d)
    steps = max(row.sequential for row in layer_type.layer(sizes).operations(place))
    return steps * layers_until_met(layer_type, sizes)


def in_papers_letters(text: str, window: str) -> str:
    """`O(N·W·d²)` -> `O(k·n·d²)`: n tokens, and k or r for the window."""
    renamed = text.replace("N", "n").replace("W", window)
    return re.sub(r"[^()+ ]*·[^()+ ]*", lambda term: _in_papers_order(term[0]), renamed)


def _in_papers_order(term: str) -> str:
    return "·".join(sorted(term.split("·"), key=lambda factor: _FACTORS.find(factor[0])))


def _terms(order: str) -> set[frozenset[str]]:
    """The terms of an order, whatever the order of factors."""
    return {frozenset(term.split("·")) for term in order.removeprefix("O(").removesuffix(")").split(" + ")}


# Order of a path -> why, with the closed form that the composed numbers follow.
PATHS: Final = {
    "O(1)": "one layer reads every token",
    "O(n)": "one layer, whose n steps wait for one another",
    "O(n/k)": "a centred kernel reaches (k − 1)/2 tokens to either side: ⌈2(n − 1)/(k − 1)⌉ layers",
    "O(n/r)": "a centred neighbourhood reaches (r − 1)/2 tokens to either side: ⌈2(n − 1)/(r − 1)⌉ layers",
    "O(logₖ(n))": (
        "causal kernels dilated by 1, k, k² and so on: L layers read k^L tokens, so ⌈logₖ(n)⌉ layers; centred ones "
        "take up to twice as many, as borders cut the widest"
    ),
}


def closed_form(order: str, sizes: Sizes) -> int:
    """The path that these formulas give."""
    if order == "O(1)":
        return 1
    if order == "O(n)":
        return sizes.n
    if order in {"O(n/k)", "O(n/r)"}:
        width = sizes.k if order == "O(n/k)" else sizes.r
        return -(-2 * (sizes.n - 1) // (width - 1))
    layers, width = 0, 1
    while width < sizes.n:
        layers, width = layers + 1, width * sizes.k
    return layers


def explanations(table: LayerTable) -> Iterator[tuple[str, str]]:
    """Layer types and text: why a derived order differs from the printed one, and the closed forms of the paths."""
    for line in table.lines:
        if line.complexity_agrees is None:
            yield line.title, _beside_projections(line)
        elif not line.complexity_agrees:
            yield line.title, f"printed {line.printed.complexity}, derived {line.complexity}."
    for order in dict.fromkeys(line.path_order for line in table.lines):
        titles = [line.title for line in table.lines if line.path_order == order]
        yield f"Path {order}, {'; '.join(titles)}", f"{PATHS[order]}."


def _beside_projections(line: LayerLine) -> str:
    ratio = line.projection_macs / (line.macs - line.projection_macs)
    return (
        f"the printed order is that of {line.others} MACs and leaves out the projections' {line.projections}, "
        f"{line.share} times as many: {ratio:.3g} times here."
    )
