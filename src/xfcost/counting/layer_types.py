"""The layer types of Vaswani et al. 2017, Table 1: as published, and as derived from mechanisms' formulas and patterns.

Complexity per layer, sequential operations, and maximum path length: how many layers of a stack it takes until every
token has met every other, composed from what each layer reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from xfcost.counting.reach.reached import Intervals, ReadSets, Sets, read_sets
from xfcost.formulas.component import Grid, Mixer, Operation, Place, tag_of
from xfcost.formulas.letters import Polynomial, exact_quotient, form_of
from xfcost.ledger import notebook
from xfcost.ledger.units import number_of
from xfcost.mechanisms.conv import ByteNet, Conv
from xfcost.mechanisms.full import Full
from xfcost.mechanisms.local_attention import LocalAttention
from xfcost.mechanisms.recurrent import Rnn
from xfcost.program.residual import component_rows


class LayerSizes(NamedTuple):
    """n tokens of width d, a kernel of k and a neighbourhood of r tokens."""

    n: int
    d: int
    k: int
    r: int


class Printed(msgspec.Struct, frozen=True, kw_only=True):
    """What the paper prints of a layer type; None where it prints nothing."""

    complexity: str
    sequential: str | None = None
    path: str | None = None
    where: str = "Table 1"


class LayerType(NamedTuple):
    """A layer type: its mechanism at some sizes, and what the paper prints."""

    title: str
    layer: Callable[[LayerSizes], Mixer]
    printed: Printed
    window: str = ""
    """The paper's letter of the tokens that it reads at a time, `k` or `r`; empty where it reads all."""
    dilated: bool = False
    """Is each layer of a stack dilated k times as much as the one before it?"""

    def stacked(self, sizes: LayerSizes, number: int) -> Mixer:
        """Layer `number` of a stack, from 0."""
        layer = self.layer(sizes)
        return msgspec.structs.replace(layer, dilation=sizes.k**number) if self.dilated else layer

    def width(self, sizes: LayerSizes) -> int | None:
        """k or r; None where it reads all."""
        return {"": None, "k": sizes.k, "r": sizes.r}[self.window]


_CONVOLUTION: Final = "O(k·n·d²)"

LAYER_TYPES: Final = (
    LayerType(
        "Self-attention",
        lambda sizes: Full(heads=1, projection_bias=False),
        Printed(complexity="O(n²·d)", sequential="O(1)", path="O(1)"),
    ),
    LayerType("Recurrent", lambda sizes: Rnn(), Printed(complexity="O(n·d²)", sequential="O(n)", path="O(n)")),
    LayerType(
        "Convolutional, dilated",
        lambda sizes: Conv(size=sizes.k, causal=True),
        Printed(complexity=_CONVOLUTION, sequential="O(1)", path="O(logₖ(n))"),
        window="k",
        dilated=True,
    ),
    LayerType(
        "Convolutional, contiguous",
        lambda sizes: Conv(size=sizes.k),
        Printed(complexity=_CONVOLUTION, sequential="O(1)", path="O(n/k)", where="§4"),
        window="k",
    ),
    LayerType(
        "Convolutional, separable",
        lambda sizes: Conv(size=sizes.k, form="separable"),
        Printed(complexity="O(k·n·d + n·d²)", where="§4"),
        window="k",
    ),
    LayerType(
        "Convolutional, with 1×1",
        lambda sizes: ByteNet(size=sizes.k, causal=True),
        Printed(complexity=_CONVOLUTION, sequential="O(1)", path="O(logₖ(n))", where="§4, its reference ByteNet"),
        window="k",
        dilated=True,
    ),
    LayerType(
        "Self-attention, restricted",
        lambda sizes: LocalAttention(size=sizes.r, heads=1, position="none"),
        Printed(complexity="O(r·n·d)", sequential="O(1)", path="O(n/r)"),
        window="r",
    ),
)


# A number of tokens, and a kernel or a neighbourhood, at which a path's growth is seen: powers of the widths.
_WIDTHS: Final = (3, 9)
_POWERS: Final = (2, 4, 6)
_LINEAR: Final = 1.9


def layers_until_met(layer_type: LayerType, sizes: LayerSizes) -> int:
    """Layers after which every token has met every other; of a causal layer, every token all before it."""
    if not layer_type.dilated:
        return _of_equal_layers(layer_type.layer(sizes), sizes.n)
    grid, own = Grid((sizes.n,)), np.arange(sizes.n)
    met: Sets = Intervals.identity(sizes.n)
    for number in range(1, sizes.n + 1):
        mixer = layer_type.stacked(sizes, number - 1)
        reads: list[Sequence[int]] = [mixer.reads(grid, token) for token in range(sizes.n)]
        ones, owner = np.ones(sum(map(len, reads)), np.int64), np.repeat(own, [len(read) for read in reads])
        taps = np.concatenate([np.asarray(read) for read in reads])  # each by itself
        met = met.union(ReadSets(own, sizes.n, owner, taps, ones))
        if _is_whole(met, layer_type.layer(sizes)):
            return number
    raise ArithmeticError(f"{layer_type.title}: {sizes.n} layers don't join all tokens")


def _of_equal_layers(mixer: Mixer, n: int) -> int:
    """By doubling: what 2m layers read is what m layers read of what m layers read."""
    reads = (mixer.reads(Grid((n,)), token) for token in range(n))
    ranges = (range(read[0], read[-1] + 1) if read[-1] - read[0] + 1 == len(read) else read for read in reads)
    relation = read_sets(ranges)
    powers: list[Sets] = [Intervals.identity(n).union(relation)]
    while not _is_whole(powers[-1], mixer):
        if len(powers) > n:
            raise ArithmeticError(f"{mixer.label()}: its layers don't join all tokens")
        powers.append(powers[-1].union(_as_relation(powers[-1])))
    met: Sets = Intervals.identity(n)
    layers = 0
    for power in reversed(range(len(powers) - 1)):  # the most layers that are not enough
        more = met.union(_as_relation(powers[power]))
        if not _is_whole(more, mixer):
            met, layers = more, layers + 2**power
    return layers + 1


def _is_whole(met: Sets, mixer: Mixer) -> bool:
    counts = met.counts()
    n = len(counts)
    return bool((counts == (n if mixer.causality == "none" else np.arange(1, n + 1))).all())


def _as_relation(met: Sets) -> ReadSets:
    """What several layers read, as the pattern of one."""
    if not isinstance(met, Intervals):
        raise TypeError("the layers of the table read neighbours; their stacks read intervals")
    own = np.arange(met.rows)
    return ReadSets(own, met.rows, own, met.low, met.counts())


def path_order(layer_type: LayerType, length: Callable[[LayerSizes], int]) -> str:
    """O(…) of a path: constant, or as n, n/k or logₖ(n) where a kernel's or neighbourhood's width shortens it."""
    narrow, wide = ([length(LayerSizes(3**power, 2, width, width)) for power in _POWERS] for width in _WIDTHS)
    if len({*narrow, *wide}) == 1:
        return "O(1)"
    letter = layer_type.window
    if narrow[-1] - narrow[-2] == narrow[-2] - narrow[-3]:  # as much more for every factor of n
        return "O(logₖ(n))"
    if narrow[-1] < _LINEAR * narrow[-2]:
        raise ArithmeticError(
            f"{layer_type.title}: paths of {narrow} layers grow neither with n nor with its logarithm"
        )
    return f"O(n/{letter})" if narrow[-1] > _LINEAR * wide[-1] else "O(n)"


# The paper's order of factors: k·n·d².
_FACTORS: Final = "krnd"


class CriticalPath(msgspec.Struct, frozen=True, kw_only=True):
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
    chain: CriticalPath
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


class LayerTable(notebook.Reported, msgspec.Struct, frozen=True, kw_only=True):
    """The table at some sizes."""

    n: int
    d: int
    k: int
    r: int
    lines: tuple[LayerLine, ...]

    def __repr__(self) -> str:
        sizes = f"n = {self.n}, d = {self.d}, k = {self.k}, r = {self.r}"
        return notebook.line(self, f"{sizes}: {number_of(len(self.lines), 'layer type')}")


def layer_table(sizes: LayerSizes, chain: Callable[[Mixer], CriticalPath]) -> LayerTable:
    """All layer types at these sizes; `chain` runs a layer's module and gives its longest chain."""
    lines = tuple(_line(layer_type, sizes, chain) for layer_type in LAYER_TYPES)
    return LayerTable(n=sizes.n, d=sizes.d, k=sizes.k, r=sizes.r, lines=lines)


def _line(layer_type: LayerType, sizes: LayerSizes, chain: Callable[[Mixer], CriticalPath]) -> LayerLine:
    layer = layer_type.layer(sizes)
    place = Place(grid=Grid((sizes.n,)), dim=sizes.d, out_dim=sizes.d)
    rows = component_rows(layer, place)
    forms = _forms(layer, place)
    share = ""
    if len(forms[0].terms) == len(forms[1].terms) == 1:  # the projections' MACs over the others, `2·d/n`
        ((powers, number),) = forms[0].terms.items()
        share = repr(forms[1].times(exact_quotient(1, number), -powers))
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
        share=in_papers_letters(share, window),
        chain=chain(layer),
        path=_path(layer_type, sizes),
        path_order=path_order(layer_type, lambda at: _path(layer_type, at)),
    )


def _forms(layer: Mixer, place: Place) -> tuple[Polynomial, Polynomial]:
    """The MACs in letters: those without projections, and the projections'."""
    layer, place = layer.in_letters(place)
    rows = component_rows(layer, place)
    return tuple(form_of(sum(row.macs for row in rows if _projects(row) == one)) for one in (False, True))  # type: ignore[return-value]


def _projects(row: Operation) -> bool:
    """Is it a map of each token, with parameters of its own?"""
    return bool(row.params) and not row.mixes


def _path(layer_type: LayerType, sizes: LayerSizes) -> int:
    place = Place(grid=Grid((sizes.n,)), dim=sizes.d, out_dim=sizes.d)
    steps = max(row.sequential for row in component_rows(layer_type.layer(sizes), place))
    return steps * layers_until_met(layer_type, sizes)


def in_papers_letters(text: str, window: str) -> str:
    """`O(N·W·d²)` -> `O(k·n·d²)`: n tokens, and k or r for the window."""
    renamed = text.replace("N", "n").replace("W", window)

    def in_their_order(term: re.Match[str]) -> str:
        return "·".join(sorted(term[0].split("·"), key=lambda factor: _FACTORS.find(factor[0])))

    return re.sub(r"[^()+ ]*·[^()+ ]*", in_their_order, renamed)


def _terms(order: str) -> set[frozenset[str]]:
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


def explanations(table: LayerTable) -> Iterator[tuple[str, str]]:
    """Layer types and text: why a derived order differs from the printed one, and the closed forms of the paths."""
    for line in table.lines:
        if line.complexity_agrees is None:
            ratio = line.projection_macs / (line.macs - line.projection_macs)
            text = (
                f"the printed order is that of {line.others} MACs and leaves out the projections' {line.projections}, "
                f"{line.share} times as many: {ratio:.3g} times here."
            )
            yield line.title, text
        elif not line.complexity_agrees:
            yield line.title, f"printed {line.printed.complexity}, derived {line.complexity}."
    for order in dict.fromkeys(line.path_order for line in table.lines):
        titles = [line.title for line in table.lines if line.path_order == order]
        yield f"Path {order}, {'; '.join(titles)}", f"{PATHS[order]}."
