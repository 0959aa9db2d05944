"""What the page of `xfcost report` shows: its answer, then every system, as plain values for the templates."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple, get_args

from xfcost.comparing.comparison import Comparison
from xfcost.comparing.crossovers import MOST_PAIRED
from xfcost.comparing.diagram import Diagram
from xfcost.comparing.quantities import QUANTITIES, figure_text
from xfcost.counting.system import GROWING
from xfcost.formulas.operation_names import own_name
from xfcost.ledger import units
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.operation import KINDS, Mixing, Operation
from xfcost.ledger.roofline import Roofline
from xfcost.parts.prediction.text import compared_prediction_texts
from xfcost.questions.report.sizes import TOTAL, SizeFigures, row_figures
from xfcost.report.accounts import COUNTED_ONLY
from xfcost.report.input_description import input_warnings, names_text
from xfcost.report.style import WORDS, letters_text
from xfcost.views.analyze import order_cell
from xfcost.views.compare import cost_texts, growth_range, growth_text, growth_words
from xfcost.views.crossovers import crossover_texts, forward_part, size_crossover_texts
from xfcost.views.header import header


class PageSizes(NamedTuple):
    """The N that a reader can choose, and the systems' costs at each."""

    tokens: tuple[int, ...]
    own: int
    """The place of the (first) system's own N."""
    common: bool
    """Do all systems have that N, in the page's figures?"""
    systems: tuple[SizeFigures, ...]
    of: str
    """The part of the work that they are of: `of one forward pass`."""


class PageContent(NamedTuple):
    """The parts of the page."""

    comparison: Comparison
    """Of one system too."""
    diagram: Diagram
    not_drawn: int
    """Systems that the diagram leaves out."""
    sizes: PageSizes | str
    """Or why there is no choice of N."""
    rooflines: Sequence[Roofline] | str
    """Of what was timed or predicted, or of the devices of `--on`; none without. Or why these have none."""


Quantity = Literal["params", "macs", "mixing_macs", "attention_bytes", "cache_bytes"]


# The quantities of a whole system, with their words.
TOTAL_WORDS: Final[dict[Quantity, str]] = {name: QUANTITIES[name].name for name in get_args(Quantity)}


def comparison_lines(comparison: Comparison, *, options: bool) -> list[str]:
    """Which system costs less and by how much; nothing of one system. Of many, the least and the most.

    With `options` warnings name the options that mend them: in a terminal, not on the page.
    """
    if len(comparison.names) == 1:
        return []
    metadata = {name: ledger.metadata for name, ledger in comparison.by_name.items()}
    if len(comparison.names) > MOST_PAIRED:
        return [*_extremes(comparison), *input_warnings(metadata, options=options)]
    texts = (*cost_texts(comparison), *compared_prediction_texts(comparison.by_name))
    return [*(text.plain.strip() for text in texts), *input_warnings(metadata, options=options)]


def crossover_lines(comparison: Comparison) -> list[str]:
    """The N, and the image sizes, at which one system overtakes another; nothing of one system."""
    if len(comparison.names) == 1:
        return []
    texts = (*crossover_texts(comparison, verbose=False), *size_crossover_texts(comparison, verbose=False))
    return [text.plain.strip() for text in texts]


def _extremes(comparison: Comparison) -> Iterator[str]:
    """`attention memory: none in FNet; the others from 84 MiB (Perceiver) to 9 GiB (GShard, 110×)`."""
    for quantity, word in TOTAL_WORDS.items():
        values = {name: comparison.figures[name].get(quantity) for name in comparison.names}
        zero = [name for name, value in values.items() if value == 0]
        some = {name: value for name, value in values.items() if value}
        if len(some) > 1:
            least, most = min(some, key=lambda name: some[name]), max(some, key=lambda name: some[name])
            low, high = (figure_text(quantity, some[name]) for name in (least, most))
            none = f"none in {names_text(zero)}; the others " if zero else ""
            times = units.ratio(some[most] / some[least], 3)
            yield f"{word}: {none}from {low} ({least}) to {high} ({most}, {times})"


def system_lines(comparison: Comparison, place: int) -> list[str]:
    """One system: its input, what its mode asks, its totals, how it grows."""
    ledger = comparison.ledgers[place]
    _, *lines = header(ledger)
    return [*(spaced(line.plain) for line in lines), *_growth(comparison, place)]


def spaced(line: str) -> str:
    """A line of a terminal, whose figures blanks keep apart, as text of a page, which would join them."""
    return re.sub(r"\s{2,}", "; ", line.strip())


def _growth(comparison: Comparison, place: int) -> Iterator[str]:
    """`growth with N: MACs ~ N^1.41, … (from N to 4·N)`; nothing where no other N fits."""
    growth, ledger = comparison.growth[comparison.names[place]], comparison.ledgers[place]
    if growth["factor"] is None:
        return
    powers = growth_text(growth, growth_words([ledger]))
    yield f"growth with N{forward_part(comparison)}: {powers} ({growth_range(growth, ledger)})"


def system_view(content: PageContent, place: int) -> dict[str, Any]:
    """The view of the system at `place`, as the templates take it."""
    comparison, sizes, ledger = content.comparison, content.sizes, content.comparison.ledgers[place]
    figures = Figures(ledger, place)
    kinds = [kind for kind in KINDS if any(row.mixing == kind for row in ledger.rows)]
    alike: dict[tuple[str, Mixing, str, str], list[int]] = {}
    for at, row in enumerate(ledger.rows):
        if not row.only_moves:
            alike.setdefault((row.title, row.mixing, order_cell(row), row.reads or units.DASH), []).append(at)
    operations = [
        {"title": title, "times": sum(ledger.rows[at].times for at in places), "kind": kind, "kind_word": WORDS[kind]}
        | {"order": order, "reads": reads, "params": figures.of_rows("params", places)}
        | {"macs": figures.of_rows("macs", places), "memory": figures.of_rows("attention_bytes", places)}
        for (title, kind, order, reads), places in alike.items()
    ]
    return {
        "place": place,
        "name": comparison.names[place],
        "paper": ledger.metadata.paper or "",
        "source": ledger.metadata.source,
        "lines": [line for line in system_lines(comparison, place) if line != COUNTED_ONLY],
        "totals": {quantity: figures.total(quantity) for quantity in TOTAL_WORDS},
        "kinds": [
            {"kind": kind, "word": WORDS[kind]}
            | {"macs": figures.of_kind("macs", kind), "params": figures.of_kind("params", kind)}
            for kind in kinds
        ],
        "operations": operations,
        "letters": letters_text(row.order for row in ledger.rows),
        "tree": tree(ledger, figures),
        "forms": [] if isinstance(sizes, str) else list(_forms(sizes, sizes.systems[place])),
        "notes": [*ledger.metadata.warnings, *ledger.metadata.notes],
        "moved": sum(row.only_moves for row in ledger.rows),
    }


def _forms(sizes: PageSizes, found: SizeFigures) -> Iterator[dict[str, str]]:
    """The closed forms of the totals that hold at the page's own N, in letters, and where they hold."""
    for quantity, word in TOTAL_WORDS.items():
        if (form := found.forms.get(quantity)) is not None:
            span = f"{sizes.tokens[form.first]:,} to {sizes.tokens[form.last]:,}"
            where = f"counted and equal at {form.last - form.first + 1:,} N from {span}"
            yield {"word": word, "text": form.text, "where": where}


class Figures:
    """The figures of one system: of the whole, of a mixing kind, or summed over some rows, as the templates take them.

    `system` is the system's place, `whole` is `total` or the mixing kind, `rows` the places of the rows (`0 3 7`), and
    `share` that of the system's MACs.
    """

    def __init__(self, ledger: Ledger, place: int) -> None:
        self._ledger, self._place = ledger, place
        self._rows = [row_figures(row, ledger.bytes_per_element) for row in ledger.rows]
        self._macs = ledger.total("macs") or 0

    def of_rows(self, quantity: Literal["params", "macs", "attention_bytes"], places: Sequence[int]) -> dict[str, Any]:
        """`quantity` over the rows at these places."""
        value = sum(self._rows[place][quantity] for place in places)
        return self._figure(quantity, value) | {"rows": " ".join(map(str, places))}

    def of_kind(self, quantity: Literal["params", "macs"], kind: Mixing) -> dict[str, Any]:
        """`quantity` of all operations of a mixing kind."""
        value = self._ledger.total(quantity, lambda row: row.mixing == kind) or 0
        return self._figure(quantity, value) | {"whole": kind}

    def total(self, quantity: Quantity) -> dict[str, Any]:
        """`quantity` of the whole."""
        value = self._ledger.total("params") or 0 if quantity == "params" else GROWING[quantity](self._ledger)
        return self._figure(quantity, value) | {"whole": TOTAL}

    def _figure(self, quantity: Quantity, value: int | None) -> dict[str, Any]:
        share = units.percent(value or 0, self._macs) if quantity == "macs" else ""
        text = "0" if value == 0 else figure_text(quantity, value)  # of bytes too
        given = {"text": text, "value": value, "quantity": quantity, "system": self._place, "share": share}
        return given | {"whole": "", "rows": ""}


def tree(ledger: Ledger, figures: Figures) -> list[dict[str, Any]]:
    """The nodes below the whole system: stages, blocks, modules and operations."""
    places = [(_parents(row, ledger), place) for place, row in enumerate(ledger.rows) if not row.only_moves]
    return list(_nodes(places, 0, ledger.rows, figures))


def _parents(row: Operation, ledger: Ledger) -> list[str]:
    """The names above an operation, from the outermost."""
    if not ledger.metadata.stages:  # a module has modules in modules
        return (row.component or ledger.metadata.name).split(".")
    return [row.stage, *([row.block.removeprefix(f"{row.stage} · ")] if row.block != row.stage else [])]


def _nodes(
    places: Sequence[tuple[list[str], int]], depth: int, rows: Sequence[Operation], figures: Figures
) -> Iterator[dict[str, Any]]:
    """Those at one depth, in order of first appearance; operations, which have a kind, where no name is left.

    `times` is how often a node is there, 1 where its operations differ in that.
    """

    def node(name: str, own: list[int], times: int, kind: str = "") -> dict[str, Any]:
        macs, params = figures.of_rows("macs", own), figures.of_rows("params", own)
        return {"name": name, "times": times, "macs": macs, "params": params, "inside": [], "kind": kind}

    groups: dict[str, list[tuple[list[str], int]]] = {}
    for parents, place in places:
        if len(parents) > depth:
            groups.setdefault(parents[depth], []).append((parents, place))
        else:
            row = rows[place]
            yield node(row.title if row.ran is None else own_name(row), [place], 1, row.mixing)
    for name, inside in groups.items():
        own = [place for _, place in inside]
        repeated = {rows[place].times for place in own}
        times = repeated.pop() if len(repeated) == 1 else 1
        yield node(name, own, times) | {"inside": list(_nodes(inside, depth + 1, rows, figures))}
