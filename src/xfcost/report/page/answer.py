"""The first lines of the page: what the systems cost, where the cost sits, how it grows, which costs less."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, Literal

from xfcost.counting.comparison import Comparison
from xfcost.counting.crossovers import MOST_PAIRED
from xfcost.ledger import units
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.operation import KINDS
from xfcost.report.compare import cost_texts, exponent_text, figure_text, growth_words
from xfcost.report.crossovers import crossover_texts, forward_part, size_crossover_texts
from xfcost.report.document import Lines
from xfcost.report.header import header
from xfcost.report.input_description import input_warnings, names_text
from xfcost.report.style import WORDS, lowered
from xfcost.report.timing import compared_prediction_texts

Quantity = Literal["params", "macs", "attention_bytes", "mixing_macs", "cache_bytes"]


# The quantities of a whole system, with their words.
TOTAL_WORDS: Final[dict[Quantity, str]] = {
    "params": "parameters",
    "macs": "MACs",
    "mixing_macs": "mixing MACs",
    "attention_bytes": "attention memory",
    "cache_bytes": "KV cache and state",
}
# Operations that are named as the dearest.
_DEAREST: Final = 3


def comparison_lines(comparison: Comparison) -> list[str]:
    """Which system costs less and by how much; nothing of one system. Of many, the least and the most."""
    if len(comparison.names) == 1:
        return []
    metadata = {name: ledger.metadata for name, ledger in zip(comparison.names, comparison.ledgers, strict=True)}
    if len(comparison.names) > MOST_PAIRED:
        return [*_extremes(comparison), *input_warnings(metadata)]
    texts = (*cost_texts(comparison), *compared_prediction_texts(comparison))
    return [*_plain(texts), *input_warnings(metadata)]


def crossover_lines(comparison: Comparison) -> list[str]:
    """The N, and the image sizes, at which one system overtakes another; nothing of one system."""
    if len(comparison.names) == 1:
        return []
    return [
        *_plain(crossover_texts(comparison, verbose=False)),
        *_plain(size_crossover_texts(comparison, verbose=False)),
    ]


def _extremes(comparison: Comparison) -> Iterator[str]:
    """`attention memory: none in FNet; Perceiver has the least, 84 MiB, GShard the most, 9 GiB (110×)`."""
    for quantity, word in TOTAL_WORDS.items():
        values = {name: comparison.figures[name].get(quantity) for name in comparison.names}
        zero = [name for name, value in values.items() if value == 0]
        some = {name: value for name, value in values.items() if value}
        if len(some) > 1:
            least, most = min(some, key=lambda name: some[name]), max(some, key=lambda name: some[name])
            low, high = (figure_text(quantity, some[name]) for name in (least, most))
            none = f"none in {names_text(zero)}; of the others " if zero else ""
            times = units.ratio(some[most] / some[least])
            yield f"{word}: {none}{least} has the least, {low}, {most} the most, {high} ({times})"


def _plain(texts: Iterable[Lines]) -> Iterator[str]:
    for text in texts:
        yield text.plain.strip()


def system_lines(comparison: Comparison, place: int) -> list[str]:
    """One system: its input, what its mode asks, its totals, where its cost sits, how it grows."""
    ledger = comparison.ledgers[place]
    _, *lines = header(ledger)
    return [*(spaced(line.plain) for line in lines), *_where(ledger), *_growth(comparison, place)]


def spaced(line: str) -> str:
    """A line of a terminal, whose figures blanks keep apart, as text of a page, which would join them."""
    return re.sub(r"\s{2,}", "; ", line.strip())


def _where(ledger: Ledger) -> Iterator[str]:
    """`MACs: 74.7 % per-token, 25.3 % global mixing; most in MLP up-projection (25.8 %), …`."""
    macs = ledger.total("macs")
    if not macs:
        return
    of_kind = {kind: sum(row.macs * row.times for row in ledger.rows if row.mixing == kind) for kind in KINDS}
    kinds = ", ".join(f"{units.percent(value, macs)} {WORDS[kind]}" for kind, value in of_kind.items() if value)
    titles: dict[str, int] = {}
    for row in ledger.rows:
        titles[row.title] = titles.get(row.title, 0) + row.macs * row.times
    dearest = sorted(titles, key=lambda title: -titles[title])[:_DEAREST]
    most = ", ".join(f"{lowered(title)} ({units.percent(titles[title], macs)})" for title in dearest)
    yield f"MACs: {kinds}; most in {most}"


def _growth(comparison: Comparison, place: int) -> Iterator[str]:
    """`growth, e of cost ~ N^e from N to 4·N: MACs 1.41, …`; nothing where no other N fits."""
    growth, ledger = comparison.growth[comparison.names[place]], comparison.ledgers[place]
    factor = growth["factor"]
    if factor is None:
        return
    span = f"from N to {units.ratio(factor)[:-1]}·N" if factor > 1 else f"from N/{units.ratio(1 / factor)[:-1]} to N"
    words = growth_words([ledger]).items()
    exponents = ", ".join(f"{word} {exponent_text(growth[quantity])}" for quantity, word in words)
    yield f"growth{forward_part(comparison)}, e of cost ~ N^e {span}: {exponents}"
