"""`--batch 1,2,4,8`, `--N 512,1024,2048`, `--size 224,384,512`: one or several systems at these, a line each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec import UNSET

from xfcost.comparing.quantities import QUANTITIES, Counted, figure_text
from xfcost.comparing.sweep import slope
from xfcost.ledger import units
from xfcost.ledger.errors import UsageError, shown
from xfcost.ledger.json_objects import json_text, ledger_object
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.read_numbers import whole
from xfcost.parts.serving.result import MemoryNeed, Speculation, output_word
from xfcost.parts.serving.text import AT_MOST, included_texts, reach_texts
from xfcost.report.accounts import run_texts
from xfcost.report.document import DataTable, Document, Gap, Part, TableColumn, TextLines, notes
from xfcost.report.input_description import default_notes, input_warnings
from xfcost.views.compare import power_text

_MOST_RUNS: Final = 100
# Parameters of the largest of several models over those of the smallest, from which a line says that they differ.
_UNLIKE: Final = 1.5
_LEAST_SIZES: Final = 3
# Columns that make room for those of devices.
_OF_COUNTS: Final = ("macs", "flops", "attention_peak_bytes")
_COLUMNS: Final = (
    *_OF_COUNTS, "cache_bytes", "intensity", "kept_bytes", "step_bytes", "needed_bytes", "fits", "least_seconds",
    "bound", "estimated_seconds", "most_outputs_per_second", "draft_outputs_per_second", "draft_speed_up",
    "break_even_accepted", "seconds",
)  # fmt: skip

_FITS: Final = {True: "yes", False: "no", None: units.DASH}


class _Column(NamedTuple):
    """A figure of a run."""

    head: str
    key: str
    """In CSV."""
    values: list[Any]
    """Of each run; None where it has none."""
    texts: list[str]


def _gain(name: str) -> Callable[[Speculation], Any]:
    """A figure of rounds with the accepted tokens that are given."""
    return lambda one: None if one.accepted is None else getattr(one.with_accepted(one.accepted), name)


def _break_even(one: Speculation) -> float | None:
    """With how many accepted tokens rounds take as long as steps, where none are given."""
    even = None if one.accepted is not None else one.break_even
    return None if even is None or even > one.draft_tokens else even


# Columns of speculative decoding: key -> heading, value, text.
_ROUNDS: Final[dict[str, tuple[str, Callable[[Speculation], Any], Callable[[Any], str]]]] = {
    "draft_outputs_per_second": ("drafted", _gain("tokens_per_second"), units.count),
    "draft_speed_up": ("speed-up", _gain("speed_up"), lambda ratio: units.ratio(ratio, 3)),
    "break_even_accepted": ("even at", _break_even, lambda accepted: f"{accepted:.2f} accepted"),
}


def _columns(ledgers: Sequence[Ledger]) -> Iterator[_Column]:
    """Those that some run has."""
    every, on_devices = [Counted(ledger) for ledger in ledgers], ledgers[0].on is not None
    several = len({ledger.metadata.name for ledger in ledgers}) > 1
    for key in (*(["params"] if several else []), *_COLUMNS):
        if (quantity := QUANTITIES.get(key)) is not None:
            values = [None if (value := quantity.of(one)) is UNSET else value for one in every]
            if key == "needed_bytes" and on_devices:
                values = [memory.reserved for memory in _memories(ledgers)]
            if any(values) and not (on_devices and key in _OF_COUNTS):
                yield _Column(quantity.head, key, values, [figure_text(key, value) for value in values])
            if key == "macs" and not on_devices and all(ledger.has_kinds for ledger in ledgers):
                yield _global_share(every)
        elif key in _ROUNDS:
            head, of, text = _ROUNDS[key]
            found = [ledger.speculation for ledger in ledgers]
            if key == "draft_outputs_per_second" and not any(one is not None and one.estimated for one in found):
                head += AT_MOST
            values = [None if one is None else of(one) for one in found]
            if any(value is not None for value in values):
                yield _Column(head, key, values, [units.DASH if value is None else text(value) for value in values])
        elif on_devices:
            yield _of_devices(key, ledgers, ledgers[0].metadata.mode)


def _global_share(every: Sequence[Counted]) -> _Column:
    """The share of the MACs that global mixing costs."""
    parts, wholes = ([QUANTITIES[key].of(one) for one in every] for key in ("macs_global", "macs"))
    texts = [units.percent(part, whole) for part, whole in zip(parts, wholes, strict=True)]
    return _Column("global", "macs_global", parts, texts)


def _memories(ledgers: Sequence[Ledger]) -> list[MemoryNeed]:
    """Of the model, and of its draft where it has one."""
    return [(None if one.speculation is None else one.speculation.memory) or one.on.memory for one in ledgers if one.on]


def _of_devices(key: str, ledgers: Sequence[Ledger], mode: str) -> _Column:
    """What compares no systems: whether a run fits, its bound, and its rate where it fits."""
    found = [ledger.on for ledger in ledgers if ledger.on is not None]
    if key == "fits":
        fits = [memory.fits for memory in _memories(ledgers)]
        return _Column("fits", key, fits, [_FITS[one] for one in fits])
    if key == "bound":
        bounds = [on.time.bound for on in found]
        return _Column("bound by", key, bounds, [one.removesuffix("-bound") for one in bounds])
    rates = [None if on.no_time is not None or on.outputs is None else on.outputs / on.seconds for on in found]
    return _Column(f"{output_word(mode)}/s{AT_MOST}", key, rates, list(map(units.count, rates)))


def read_runs(option: str, given: str) -> list[int]:
    """`1,2,4,8` -> its numbers, in order.

    Raises:
        UsageError: one is no batch or size.
    """
    found = [whole(one) for one in given.split(",")]
    if any(one is None or one < 1 for one in found) or len(found) > _MOST_RUNS:
        raise UsageError(f"{option} {shown(given)}: expected up to {_MOST_RUNS} whole numbers, as in 1,2,4,8")
    return [one for one in found if one is not None]


def varied(given: Mapping[str, Any]) -> str | None:
    """The option of `analyze` that has several values: `batch`, `N` or `size`; None where none has.

    Two numbers of N may be those of two streams, which the system knows, and of a size a height and a width; 1,000,000
    is one number.

    Raises:
        UsageError: two of them have several.
    """
    found = ["batch"] if "," in str(given["batch"]) else []
    for name in ("N", "size"):
        parts = str(given[name] or "").replace(" ", "").split(",")
        several = len(parts) >= _LEAST_SIZES and all(map(whole, parts))
        found += [name] if several and not any(part.startswith("0") for part in parts) else []
    if len(found) > 1:
        one, other = (f"--{name} {given[name]}" for name in found[:2])
        raise UsageError(f"{one} and {other}: a table has one of these; leave one of them out")
    return found[0] if found else None


def document(
    ledgers: Sequence[Ledger], values: Sequence[int], option: str, *, several: bool = False, verbose: bool = False
) -> Document:  # fmt: skip
    """The run, and a line for each of the `values` of an `option`: `batch`, `N` or `size`.

    Args:
        ledgers: one for each of the values; of `several` systems those of all values of the first, then of the next.
        values: those of one system.
        option: without hyphens.
        several: are there several systems, which each line names?
        verbose: with all notes.
    """
    every = [*values] * (len(ledgers) // len(values))

    def records() -> list[dict[str, Any]]:
        columns = list(_columns(ledgers))
        return [
            ({"system": ledger.metadata.name} if several else {})
            | {option: value}
            | ({"N": ledger.metadata.grid_tokens} if option == "size" else {})
            | {column.key: column.values[place] for column in columns}
            for place, (value, ledger) in enumerate(zip(every, ledgers, strict=True))
        ]

    return Document(
        parts=lambda: _parts(ledgers, values, option, several=several, verbose=verbose),
        records=records,
        json=lambda: json_text({_JSON.get(option, "sizes"): [ledger_object(ledger) for ledger in ledgers]}),
    )


_JSON: Final = {"batch": "batches"}


def _parts(
    ledgers: Sequence[Ledger], values: Sequence[int], option: str, *, several: bool, verbose: bool
) -> Iterator[Part]:  # fmt: skip
    columns, first = list(_columns(ledgers)), ledgers[0]
    heads = [TableColumn(one.head, right=one.key not in ("fits", "bound")) for one in columns]
    each, told = len(values), [f"{value:,}" for value in values]
    cells = [told * (len(ledgers) // each), *(one.texts for one in columns)]
    if option == "size":
        heads.insert(0, TableColumn("N", right=True))
        cells.insert(1, [f"{ledger.metadata.grid_tokens:,}" for ledger in ledgers])
    heads.insert(0, TableColumn(option, right=True))
    systems = ledgers[::each]
    for ledger in systems:
        for text in run_texts(ledger.metadata):
            yield text._replace(texts=[_told(one, ledger, told, option) for one in text.texts])
    if several:
        yield TextLines(list(input_warnings({one.metadata.name: one.metadata for one in systems})))
    rows = list(zip(*cells, strict=True))
    if several:  # value by value, so that systems stand one below the other
        heads.insert(1, TableColumn("system", fold=8))
        rows = [(row[0], ledger.metadata.name, *row[1:]) for row, ledger in zip(rows, ledgers, strict=True)]
        rows = [rows[place + each * number] for place in range(each) for number in range(len(systems))]
    yield from (Gap(), DataTable(heads, rows))
    if option != "batch" and each > 1:
        yield TextLines([_growth(ledgers[first : first + each]) for first in range(0, len(ledgers), each)])
    yield TextLines(list(_unlike(systems)) if several else [])
    below: list[TextLines] = []
    if option != "batch":  # what the largest size is warned of
        largest = [ledgers[place : place + each][-1].metadata for place in range(0, len(ledgers), each)]
        said = [f"{one.name}: {text}" if several else text for one in largest for text in one.warnings]
        below += [TextLines(list(dict.fromkeys(said)), "bold yellow")] if said else []
    if option == "batch" and not several:  # what these say is of one size of one system
        below += reach_texts(first)
        below += (text for text in included_texts(first) if not text.plain.startswith(("memory", "bound")))
    below += notes(default_notes([one.metadata for one in systems]), verbose=verbose)
    own = [(one.metadata.name, note) for one in systems for note in one.metadata.notes]
    below += notes(dict.fromkeys(f"{name}: {note}" if several else note for name, note in own), verbose=verbose)
    if any(text.texts for text in below):
        yield Gap()
        yield from below


def _unlike(systems: Sequence[Ledger]) -> Iterator[str]:
    """That models differ in size, and their costs for that reason too."""
    least, most = (pick(one.params or 0 for one in systems) for pick in (min, max))
    if most > _UNLIKE * least:
        yield (
            f"These models differ in size ({units.count(least)} to {units.count(most)} parameters): exponents compare "
            "the mechanisms, and --match params gives them equal sizes."
        )


def _growth(ledgers: Sequence[Ledger]) -> str:
    """How the figures of one system grow between the largest of its sizes and the one before it."""
    low, high = sorted(ledgers, key=lambda one: one.metadata.grid_tokens)[-2:]
    ends = [one.metadata.grid_tokens for one in (low, high)]
    if not ends[0]:  # a module's images have no grid
        return ""
    figures = {"MACs": "macs", "FLOPs": "flops", "attention at once": "attention_peak_bytes"}
    totals = [one.totals() for one in (low, high)]
    found = {words: slope(ends, [one[name] for one in totals]) for words, name in figures.items()}
    grown = [power_text(words, exponent) for words, exponent in found.items() if exponent is not None]
    between = f"(N = {ends[0]:,} to {ends[1]:,})"
    return f"{high.metadata.name}: {', '.join(grown)} {between}" if grown else ""


def _told(text: str, first: Ledger, names: Sequence[str], option: str) -> str:
    """A line of the first run with the values of all: `batch 1, 2, 4`, `tokens 512, 1,024`, `image 224, 384`."""
    every = ", ".join(names)
    if option == "batch":
        return text.replace(f"batch {first.metadata.batch:,} ", f"batch {every} ")
    if not text.startswith(("image ", "tokens ")):
        return text
    return f"{'image' if option == 'size' else 'tokens'} {every}   batch {text.partition('   batch ')[2]}"
