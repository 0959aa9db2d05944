"""Ledger -> the table of devices side by side, and the line of the largest batch that is fast enough."""

from __future__ import annotations

from collections.abc import Iterator

from xfcost.ledger import units
from xfcost.ledger.least_work import by_chance
from xfcost.ledger.ledger import Ledger
from xfcost.parts.serving.choices import DeviceChoice
from xfcost.parts.serving.result import output_word
from xfcost.parts.serving.text import (
    AT_MOST,
    EXPECTED,
    cache_answers,
    cache_name,
    memory_text,
    quantised_words,
    rate_basis,
    weights_texts,
)
from xfcost.report.accounts import agreement_texts, run_texts
from xfcost.report.document import DataTable, Document, Gap, Part, TableColumn, TextLines, notes
from xfcost.report.input_description import default_notes

# Columns that a narrow screen has no room for, the first ones hidden first.
_HIDDEN_FIRST = ("bound by", "memory", "of each", f"of each{AT_MOST}", "lower bound", "takes", "limit")


def document(ledger: Ledger, *, verbose: bool = False) -> Document:
    """The run, a line per device, and what the columns mean."""
    return Document(
        parts=lambda: _parts(ledger, verbose=verbose),
        records=lambda: [choice.record() for choice in ledger.choices],
        json=ledger.to_json,
        paper=lambda _: [*run_texts(ledger.metadata), choices_table(ledger), *map(_endnote, _endnotes(ledger))],
    )


def _parts(ledger: Ledger, *, verbose: bool) -> Iterator[Part]:
    yield from run_texts(ledger.metadata)
    yield from cache_answers(ledger)
    yield from weights_texts(ledger)
    found = next((choice.found for choice in ledger.choices if choice.found is not None), None)
    if found is not None:
        yield memory_text(ledger, found.memory)
    yield from agreement_texts(ledger)
    yield from (Gap(), choices_table(ledger), Gap())
    yield from map(_endnote, _endnotes(ledger))
    yield from notes(default_notes([ledger.metadata]), verbose=verbose)
    yield from notes(ledger.metadata.notes, verbose=verbose)


def _endnote(text: str) -> TextLines:
    return TextLines([text], "dim", ended=True)


def choices_table(ledger: Ledger) -> DataTable:
    """A line per device; columns that say nothing of this run are left out."""
    lines = [_cells(choice, ledger) for choice in ledger.choices]
    heads = [head for head in lines[0] if any(cells[head] != units.DASH for cells in lines)]
    columns = [
        TableColumn(
            head,
            right=head not in ("device", "fits", "bound by", "limit"),
            rank=_HIDDEN_FIRST.index(head) if head in _HIDDEN_FIRST else None,
        )
        for head in heads
    ]
    styles = ["bold" if choice.fits and choice is ledger.choices[0] else "" for choice in ledger.choices]
    return DataTable(columns, [[cells[head] for head in heads] for cells in lines], styles)


def _cells(choice: DeviceChoice, ledger: Ledger) -> dict[str, str]:
    """Heading -> text; a dash where there is none."""
    found, rate, batch = choice.found, choice.at_rate, ledger.metadata.batch
    memory = choice.asked.device.memory_bytes
    star = "" if choice.asked.device.memory_kind == "usable" else "*"
    fits = {True: "yes", False: "no", None: units.DASH}[choice.fits]
    cells = {
        "device": choice.asked.name,
        "fits": fits,
        "takes": units.count(choice.takes),
        "memory": units.DASH if memory is None else f"{units.size(memory, 3)}{star}",
    }
    outputs, each, most = choice.outputs_per_second, None, _at_most(ledger)
    if rate is not None:
        each = 1 / rate.seconds if rate.seconds else None
    elif batch > 1 and ledger.metadata.mode in ("decode", "generate"):
        each = outputs and outputs / batch
    cells |= {
        "lower bound": units.seconds(None if found is None else found.seconds),
        "estimate": units.seconds(choice.seconds if found is not None and (found.mfu or found.mbu) else None),
        "bound by": units.DASH if found is None else found.time.bound.removesuffix("-bound"),
    }
    if any(one.at_rate is not None for one in ledger.choices):
        largest = units.DASH if rate is None else "any" if rate.batch is None else f"{rate.batch:,}"
        cells |= {"batch": largest, "limit": rate.limit or units.DASH if rate is not None else units.DASH}
    return cells | {
        f"{_outputs(ledger)}/s{most}": units.count(outputs, 3),
        f"of each{most}": units.count(each, 3),
        f"per unit paid{most}": units.count(choice.outputs_per_price, 3),
    }


def _at_most(ledger: Ledger) -> str:
    """What the headings of rates say where times are lower bounds, and no estimates."""
    found = next((choice.found for choice in ledger.choices if choice.found is not None), None)
    return AT_MOST if found is not None and found.mfu is None and found.mbu is None else ""


def _faster(ledger: Ledger) -> str:
    """`, those with fp8 weights at that of their own dtype where one is known (not of t4)`; empty if none is faster."""
    known = [(choice.asked.name, choice.found) for choice in ledger.choices if choice.found is not None]
    words = [quantised_words(found, ledger) for _, found in known if found.time.quantised_peak is not None]
    if not any(words):
        return ""
    without = [name for name, found in known if found.time.quantised_peak is None]
    where = f" where one is known (not of {', '.join(without)})" if without else ""
    return f", those with {max(words, key=len)} at that of their own dtype{where}"


def _outputs(ledger: Ledger) -> str:
    return output_word(ledger.metadata.mode)


def _endnotes(ledger: Ledger) -> Iterator[str]:
    """What the columns mean, where this run has them."""
    choices = ledger.choices
    known = [choice.found for choice in choices if choice.found is not None]
    cache = f" and {cache_name(ledger.cache)}" if ledger.cache is not None else ""
    products = f"products at the peak of {ledger.metadata.dtype}{_faster(ledger)}"
    rated = next((choice.at_rate for choice in choices if choice.at_rate is not None), None)
    yield (
        "fits: whether the given devices can hold the run; takes: the smallest number of devices that can, if the "
        "model divides perfectly; times: for the given number of devices, or else for the number in takes, without "
        "communication"
    )
    yield (
        f"lower bound: {products}, or weights once{cache} at the memory bandwidth, whichever takes longer"
        f"{f', {EXPECTED}' if by_chance(ledger) else ''}"
    )
    if any(choice.asked.device.memory_kind != "usable" for choice in choices):
        yield "*: memory size on the label; others: memory that the driver reports, before any context"
    if (share := choices[0].asked.device.memory_share) is not None:
        yield f"memory: {100 * share:.3g} % of each device's, which the run may use"
    for basis in dict.fromkeys(rate_basis(found, ledger) for found in known):
        yield f"{_outputs(ledger)}/s: {basis}" + ("" if rated is None else ", of the largest batch")
    if rated is not None:
        yield (
            f"batch: the largest that gives each sample {rated.tokens_per_user:g} tokens/s and fits; limit: the rate "
            "or the memory, whichever limits the batch"
        )
    if any(choice.outputs_per_price for choice in choices):
        yield f"per unit paid: {_outputs(ledger)} for one unit of the currency of the prices; the most come first"
    else:
        yield f"sorted: devices that can hold the run first, then by {_outputs(ledger)}/s"
    remarks: dict[str, list[str]] = {}
    for choice in choices:
        for text in (choice.reason,) if choice.found is None else choice.found.notes:
            remarks.setdefault(text or "", []).append(choice.asked.name)
    for text, names in remarks.items():
        yield f"{', '.join(names)}: {text}"
