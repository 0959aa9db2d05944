"""The header of `analyze`: the system, its run, and the answer to the mode's question."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from xfcost.ledger import units
from xfcost.ledger.ledger import Ledger
from xfcost.report.agreement import agreement_texts
from xfcost.report.closed_form import closed_form_texts
from xfcost.report.decoding import cache_answers, step_answers
from xfcost.report.input_description import circumstances
from xfcost.report.on_devices import fit_texts, included_texts, time_texts
from xfcost.report.probe import kinds_texts
from xfcost.report.timing import reached_texts
from xfcost.report.training import training_answers
from xfcost.report.training_plan import plan_answers


def header(ledger: Ledger) -> list[Text]:
    """Name and run; what the mode asks; parameters, MACs, FLOPs; attention memory; how the accounts agree."""
    metadata = ledger.metadata
    title = Text(metadata.name, style="bold")
    if metadata.paper:
        title.append(f"   {metadata.paper}", style="not bold dim")
    run = map(Text, circumstances(metadata).split("\n"))
    checked = kinds_texts(ledger.probe) if ledger.probe is not None and not ledger.probe.detailed else ()
    return [title, *run, *_answers(ledger), *agreement_texts(ledger), *checked]


def active_params(ledger: Ledger) -> int | None:
    """Parameters that a token uses, where those are not all."""
    active = ledger.total("active_params")
    return None if active == ledger.total("params") else active


def at_least(ledger: Ledger) -> str:
    """`at least ` before the totals of a module that runs an operation that nothing counts."""
    return "at least " if ledger.module is not None and not ledger.module.complete else ""


def _answers(ledger: Ledger) -> Iterator[Text]:
    yield from plan_answers(ledger)
    yield from reached_texts(ledger) if ledger.training is not None else ()
    yield from training_answers(ledger, at_least(ledger))
    yield from fit_texts(ledger)
    yield from cache_answers(ledger)
    yield from time_texts(ledger)
    yield from reached_texts(ledger) if ledger.training is None else ()
    yield from included_texts(ledger)
    yield from step_answers(ledger)
    yield _totals(ledger)
    yield from closed_form_texts(ledger, at_least(ledger))
    memory = ledger.attention_memory()
    if ledger.metadata.mode in ("forward", "prefill") and memory["peak"]:
        yield Text(
            f"attention memory: {units.size(memory['all_layers'])} in all layers (training), "
            f"{units.size(memory['peak'])} peak (inference)"
        )


def _totals(ledger: Ledger) -> Text:
    active = active_params(ledger)
    used = f" ({units.exact(active)} active)" if active is not None else ""
    work = {"decode": " per step", "train": " forward"}.get(ledger.metadata.mode, "")
    params = f"{units.exact(ledger.total('params'))} parameters{used}"
    if ledger.generation is not None and ledger.generation.with_cache is not None:
        return Text(params)  # its MACs and FLOPs are above
    macs, flops = (f"{at_least(ledger)}{units.exact(ledger.total(quantity))}" for quantity in ("macs", "flops"))
    return Text(f"{params}   {macs} MACs   {flops} FLOPs{work}")
