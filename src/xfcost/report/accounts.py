"""Ledger -> the lines of every report on a run: the system and its input, and how its accounts agree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from xfcost.ledger import units
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.metadata import Agreement, Metadata
from xfcost.ledger.ran import ModuleRun
from xfcost.report.document import TextLines, line
from xfcost.report.input_description import circumstances


def run_texts(metadata: Metadata) -> list[TextLines]:
    """The system's name, its run, and what a reader must know first."""
    title = TextLines([""], head=metadata.name, tail=f"   {metadata.paper}" if metadata.paper else "")
    warnings = (line(one, "bold yellow") for one in metadata.warnings)
    return [title, *map(line, circumstances(metadata).split("\n")), *warnings]


# What an account is called in a sentence.
_ACCOUNTS: Final = {"traced": "fvcore's trace", "dispatched": "torch's dispatcher"}
COUNTED_ONLY: Final = "Counted from formulas. Add --trace to check them against the torch model."
NOT_TRACED: Final = "trace: not traced"


def agreement_texts(ledger: Ledger) -> Iterator[TextLines]:
    """One line where all accounts agree; else every difference, and everything that was not counted."""
    agreement, ran = ledger.agreement, ledger.ran
    if ran.recorded is not None:
        name = ran.module.rpartition(".")[2]
        yield line(f"recorded from a run of {name} on meta tensors: {ran.recorded}", "dim")
        return
    if agreement is None:
        yield line("Counted from formulas." if ledger.metadata.cached_prefix else COUNTED_ONLY, "dim")
        return
    if ran.module:
        yield from _module_texts(ran, agreement, "" if ledger.training is None else " and its backward pass")
        return
    joined = " and ".join(_ACCOUNTS[name] for name in agreement.accounts)
    if agreement.exact:
        moves, steps = sum(row.only_moves for row in ledger.rows), ""
        agree = "agree" if len(agreement.accounts) > 1 else "agrees"
        text = f"checked: {joined} on the real torch model {agree} exactly in all {len(ledger.rows)} operations"
        if moves:
            text += f" ({moves} without arithmetic {'is' if moves == 1 else 'are'} not listed)"
        if ledger.generation is not None and ledger.generation.traced_at:
            at = ", ".join(f"{tokens:,}" for tokens in ledger.generation.traced_at)
            steps = f" (the prefill, and steps at {at} tokens)"
        yield line(text + steps, "bold green")
        return
    yield line(f"{joined}: {_disagreement(ledger, agreement)}", "bold red")
    for difference in agreement.differences:
        found = ", ".join(
            f"{name} {units.exact(difference[name])}" for name in ("counted", *agreement.accounts) if name in difference
        )
        yield line(f"  {difference['path']} {difference['quantity']}: {found}", "red")
    yield from (line(f"  not counted: {one}", "red") for one in agreement.uncounted)


# Of a module's differences between trace and dispatcher, this many are listed.
_MOST_DIFFERENCES: Final = 5


def _module_texts(run: ModuleRun, agreement: Agreement, backward: str) -> Iterator[TextLines]:
    """What a module's ledger counts, what it leaves out, and how fvcore's trace compares."""
    if run.tensors == "none":
        yield line(f"graph: every operator of one pass, by its shapes; nothing runs ({run.module})", "bold green")
    else:
        tensors = {"meta": "meta tensors", "fake": "fake tensors", "real": "real tensors"}[run.tensors]
        why = f", because it does not run on meta ({run.reason})" if run.reason else ""
        yield line(f"dispatcher: every ATen operation of one forward{backward} on {tensors}{why}", "bold green")
    why = "" if run.tensors == "none" else ", because no formula is known"
    for operation, times in run.uncounted.items():
        yield line(f"  not counted{why}: {operation} ({times:,}×)", "red")
    if run.uncalled:
        yield line(f"  parameters that no operation used: {', '.join(run.uncalled)}", "dim")
    if run.traced:
        used = "; the report has the dispatcher's counts, of what ran" if agreement.differences else ""
        yield line(f"trace: {run.traced}{used}", "" if agreement.differences else "green")
    for difference in agreement.differences[:_MOST_DIFFERENCES]:
        figures = f"dispatched {units.exact(difference['counted'])}, traced {units.exact(difference['traced'])}"
        yield line(f"  {difference['path'] or 'the model itself'} {difference['quantity']}: {figures}")
    if (more := len(agreement.differences) - _MOST_DIFFERENCES) > 0:
        yield line(f"  and {units.number_of(more, 'difference')} more; json has all")


def _disagreement(ledger: Ledger, agreement: Agreement) -> str:
    """`counted and traced DISAGREE in 1 place, and 2 things were not counted`."""
    rows, places, missing = len(ledger.rows), len(agreement.differences), len(agreement.uncounted)
    unlike = [name for name in agreement.accounts if any(name in difference for difference in agreement.differences)]
    accounts = ["counted", *(unlike or agreement.accounts)]
    counted = (
        f"DISAGREE in {units.number_of(places, 'place')}"
        if places
        else f"agree in all {units.number_of(rows, 'operation')}"
    )
    text = f"{', '.join(accounts[:-1])} and {accounts[-1]} {counted}"
    if missing:
        were = "was" if missing == 1 else "were"
        text += f", {'and' if places else 'but'} {units.number_of(missing, 'thing')} {were} not counted"
    return text
