"""The header of `analyze`: the system, its run, the answer, how the accounts agree; and what the probe found."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from xfcost.ledger import units
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.metadata import Agreement, Metadata
from xfcost.ledger.probe import Probe, ProbedMixing, ProbedRow
from xfcost.ledger.ran import ClosedForm, ModuleRun
from xfcost.report.document import DataTable, Gap, Part, TableColumn, TextLines, line
from xfcost.report.input_description import circumstances
from xfcost.report.largest import largest_texts, slowest_texts
from xfcost.report.on_devices import (
    cache_answers,
    cache_name,
    fit_texts,
    included_texts,
    rate_texts,
    step_answers,
    time_texts,
    weights_texts,
)
from xfcost.report.timing import prediction_texts, reached_texts, time_answer
from xfcost.report.training import few_tokens_texts, plan_answers, training_answers


def header(ledger: Ledger) -> list[TextLines]:
    """Name and run; what the mode asks; parameters, MACs, FLOPs; attention memory; how the accounts agree."""
    checked = kinds_texts(ledger.probe) if ledger.probe is not None and not ledger.probe.detailed else ()
    return [*run_texts(ledger.metadata), *_answers(ledger), *agreement_texts(ledger), *checked]


def run_texts(metadata: Metadata) -> list[TextLines]:
    """The system's name, its run, and what a reader must know first."""
    title = TextLines([""], head=metadata.name, tail=f"   {metadata.paper}" if metadata.paper else "")
    warnings = (line(one, "bold yellow") for one in metadata.warnings)
    return [title, *map(line, circumstances(metadata).split("\n")), *warnings]


def active_params(ledger: Ledger) -> int | None:
    """Parameters that a token uses, where those are not all."""
    active = ledger.total("active_params")
    return None if active == ledger.total("params") else active


def at_least(ledger: Ledger) -> str:
    """`at least ` before the totals of a module that runs an operation that nothing counts."""
    return "at least " if ledger.module is not None and not ledger.module.complete else ""


def _answers(ledger: Ledger) -> Iterator[TextLines]:
    yield from few_tokens_texts(ledger)
    yield from plan_answers(ledger)
    yield from reached_texts(ledger) if ledger.training is not None else ()
    yield from training_answers(ledger, at_least(ledger))
    yield from fit_texts(ledger)
    yield from cache_answers(ledger)
    yield from weights_texts(ledger)
    yield from time_texts(ledger)
    yield from rate_texts(ledger)
    yield from reached_texts(ledger) if ledger.training is None else ()
    yield from prediction_texts(ledger)
    yield from time_answer(ledger)
    yield from slowest_texts(ledger)
    yield from largest_texts(ledger) if ledger.on is not None else ()
    yield from included_texts(ledger)
    yield from step_answers(ledger)
    yield _totals(ledger)
    yield from largest_texts(ledger) if ledger.on is None else ()
    yield from closed_form_texts(ledger, at_least(ledger))
    memory = ledger.attention_memory()
    if ledger.metadata.mode in ("forward", "prefill") and memory["peak"]:
        yield line(
            f"attention memory: {units.size(memory['all_layers'])} in all layers (training), "
            f"{units.size(memory['peak'])} peak (inference)"
        )


def _totals(ledger: Ledger) -> TextLines:
    active = active_params(ledger)
    used = f" ({units.exact(active)} active)" if active is not None else ""
    work = {"decode": " per step", "train": " forward"}.get(ledger.metadata.mode, "")
    params = f"{units.exact(ledger.total('params'))} parameters{used}"
    if ledger.generation is not None and ledger.generation.with_cache is not None:
        return line(params)  # its MACs and FLOPs are above
    macs, flops = (f"{at_least(ledger)}{units.exact(ledger.total(quantity))}" for quantity in ("macs", "flops"))
    return line(f"{params}   {macs} MACs   {flops} FLOPs{work}")


# What an account is called in a sentence.
_ACCOUNTS: Final = {"traced": "trace", "dispatched": "dispatcher"}
COUNTED_ONLY: Final = "counted only; --trace checks it"
NOT_TRACED: Final = "trace: not traced"


def agreement_texts(ledger: Ledger) -> Iterator[TextLines]:
    """One line where all accounts agree; else every difference, and everything that was not counted."""
    agreement = ledger.agreement
    if ledger.module is not None and ledger.module.recorded is not None:
        name = ledger.module.module.rpartition(".")[2]
        yield line(f"recorded from a run of {name} on meta tensors: {ledger.module.recorded}", "dim")
        return
    if agreement is None:
        yield line(COUNTED_ONLY, "dim")
        return
    if ledger.module is not None:
        yield from _module_texts(ledger.module, agreement, "" if ledger.training is None else " and its backward pass")
        return
    joined = " and ".join(_ACCOUNTS[name] for name in agreement.accounts)
    if agreement.exact:
        text, steps = f"{joined}: the real torch model agrees exactly, in all {len(ledger.rows)} operations", ""
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
        yield _dispatched(run, backward)
    for operation, times in run.uncounted.items():
        yield line(f"  not counted, because no formula is known: {operation} ({times:,}×)", "red")
    if run.uncalled:
        yield line(f"  parameters that no operation used: {', '.join(run.uncalled)}", "dim")
    if run.traced:
        yield line(f"trace: {run.traced}", "" if agreement.differences else "green")
    for difference in agreement.differences[:_MOST_DIFFERENCES]:
        figures = f"dispatched {units.exact(difference['counted'])}, traced {units.exact(difference['traced'])}"
        yield line(f"  {difference['path'] or 'the model itself'} {difference['quantity']}: {figures}")
    if (more := len(agreement.differences) - _MOST_DIFFERENCES) > 0:
        yield line(f"  and {units.number_of(more, 'difference')} more; json has all")


def _dispatched(run: ModuleRun, backward: str) -> TextLines:
    tensors = {"meta": "meta tensors", "fake": "fake tensors", "real": "real tensors"}[run.tensors]
    why = f", because it does not run on meta ({run.reason})" if run.reason else ""
    return line(f"dispatcher: every ATen operation of one forward{backward} on {tensors}{why}", "bold green")


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


# Other remainders that are listed; json has all.
_MOST_LISTED: Final = 3


def closed_form_texts(ledger: Ledger, at_least: str) -> Iterator[TextLines]:
    """The MACs as a polynomial in N, where it holds, how they grow; or why there is no polynomial.

    `at_least` comes before it if operations are not counted.
    """
    form = None if ledger.module is None else ledger.module.closed_form
    if form is None:
        return
    of = "N" if form.letter == "N" else "P = H·W"
    if form.macs is None:
        yield line(f"in {of}: no closed form; {form.refused}", "dim")
        return
    counted = ", ".join(f"{size:,}" for size in form.sizes)
    yield line(f"{_where(form)}   counted at {form.letter} = {counted}", head=f"in {of}: {at_least}{form.macs} MACs")
    if form.cache is not None:
        yield line(f"{cache_name(ledger.cache)} in {of}: {form.cache} bytes")
    if growth := _growth(form):
        yield line(growth)


def _where(form: ClosedForm) -> str:
    if form.period == 1:
        return ""
    of = f"{form.counted_in} mod {form.period}"
    others = [f"{macs} where it is {remainder}" for remainder, macs in form.others.items()]
    rest = "; " + ", ".join(others) if 0 < len(others) <= _MOST_LISTED else ""
    return f" where {of} = {form.remainder}{rest}"


def _growth(form: ClosedForm) -> str:
    words = {"macs": "MACs", "attention_bytes": "attention memory"}
    known = {word: form.growth[name] for name, word in words.items() if form.growth.get(name) is not None}
    if not known:
        return ""
    told = ", ".join(f"{word} {exponent:.2f}" for word, exponent in known.items())
    low, high = sorted((form.N, form.N * (form.growth["factor"] or 1)))
    return f"growth, exponent e in cost ~ {form.letter}^e between {form.letter} = {low:,.0f} and {high:,.0f}: {told}"


def probe_parts(ledger: Ledger) -> Iterator[Part]:
    """The table, the rows that differ, the rows that could not be probed, the sizes; nothing without `--probe`."""
    if ledger.probe is None or not ledger.probe.detailed:
        return
    yield from (Gap(), _table(ledger.probe), Gap())
    yield from _verdict_texts(ledger.probe)
    reasons, sizes = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for row in ledger.probe.left_out:
        reasons[row.reason or ""].append(row.path)
    for path, size in ledger.probe.sizes.items():
        sizes[size].append(path)
    yield from (line(f"not probed, {reason}: {', '.join(paths)}") for reason, paths in reasons.items())
    yield from (line(f"probed {size}: {', '.join(paths)}", "dim") for size, paths in sizes.items())


def _table(probe: Probe) -> DataTable:
    """One line for all rows that are alike."""
    columns = [TableColumn("operation", fold=12), TableColumn("declared"), TableColumn("found")]
    columns += [TableColumn("rows", right=True), TableColumn("agrees")]
    cells, styles = [], []
    alike: dict[tuple[object, ...], list[ProbedRow]] = {}
    for row in probe.rows:
        alike.setdefault((row.title, row.declared, row.found), []).append(row)
    for row, *others in alike.values():
        styles.append("bold red" if row.agrees is False else "dim" if row.found is None else "")
        found = "not probed" if row.found is None else _cell(row.found)
        agrees = {True: "=", False: "≠", None: units.DASH}[row.agrees]
        cells.append([row.title, _cell(row.declared), found, str(1 + len(others)), agrees])
    return DataTable(columns, cells, styles)


def _cell(mixes: ProbedMixing) -> str:
    """`local 49 by content`: the mixing kind, the tokens read per token, and where the weights come from."""
    return " ".join(filter(None, _words(mixes)))


def _words(mixes: ProbedMixing) -> tuple[str, str, str]:
    reads = "" if mixes.reads_tokens is None else str(mixes.reads_tokens)
    return mixes.mixing, reads, {True: "by content", False: "fixed", None: ""}[mixes.content_dependent]


def _sentence(mixes: ProbedMixing) -> str:
    """`local, reads 49, weights by content`."""
    mixing, reads, weights = _words(mixes)
    return ", ".join([mixing, *([f"reads {reads}"] if reads else []), *([f"weights {weights}"] if weights else [])])


def _verdict_texts(probe: Probe) -> Iterator[TextLines]:
    """One line where all rows agree, else every one that differs; then the patterns of mixers."""
    count = len(probe.rows) - len(probe.left_out)
    yield from _difference_texts(probe, "probe", f"agrees, in all {count} operations that could be probed", count)
    yield from _pattern_texts(probe.patterns)


def kinds_texts(probe: Probe) -> Iterator[TextLines]:
    """The check of kinds in a traced run: one line if all agree, otherwise every row that differs."""
    number, count = len(probe.rows), len(probe.rows) - len(probe.left_out)
    operations = units.number_of(number, "operation")
    if not count:
        yield line(f"kinds: none of {operations} could be checked (--probe shows why)", "dim")
        return
    share = f"all {operations}" if count == number else f"{count} of {operations} (--probe lists the others)"
    yield from _difference_texts(probe, "kinds", f"agrees, in {share}", count)


def _difference_texts(probe: Probe, head: str, agrees: str, count: int) -> Iterator[TextLines]:
    number = len(probe.differences)
    verdict = f"DISAGREES in {number} of {units.number_of(count, 'operation')}" if number else agrees
    yield line(f"{head}: the running model {verdict}", "bold red" if number else "bold green")
    for row in probe.differences:
        if row.found is not None:
            yield line(f"  {row.path}: declared {_sentence(row.declared)}; found {_sentence(row.found)}", "red")


def _pattern_texts(patterns: dict[str, tuple[str, ...]]) -> Iterator[TextLines]:
    """One line where the tokens and pairs of all mixers are those declared, else every one that differs."""
    different = {path: texts for path, texts in patterns.items() if texts}
    if different:
        number = f"{len(different)} of {len(patterns)}"
        yield line(f"probe: the tokens read DIFFER from those declared in {number} mixers", "bold red")
    elif patterns:
        yield line(f"probe: the tokens and pairs read are the declared ones in all {len(patterns)} mixers", "green")
    for path, texts in different.items():
        yield from (line(f"  {path}: {text}", "red") for text in texts)
