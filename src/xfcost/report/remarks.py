"""Ledger -> the lines of text around the tables: memory, other work, time, and how the accounts agree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.text import Text

from xfcost.ledger import units
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.metadata import Agreement, Timing
from xfcost.ledger.modes import Generation


def memory_text(ledger: Ledger) -> Text:
    """Attention matrices in bytes: of a head, kept per layer and in all layers by training, alive at once."""
    memory, metadata = ledger.attention_memory(), ledger.metadata
    if not memory["peak"]:
        return Text("attention matrices: none", style="bold")
    text = Text(f"{_what_is_held(ledger)}, batch {metadata.batch}: ", style="bold")
    text.append(f"{units.size(memory['per_head'])} per head", style="not bold")
    if ledger.step is None:  # a step is of inference alone
        text.append(
            f", {units.size(memory['per_layer'])} per layer (the largest), {units.size(memory['all_layers'])} in all "
            f"layers ({_kept(ledger)} training)",
            style="not bold",
        )
    text.append(f", {units.size(memory['peak'])} peak (alive at once in inference)", style="not bold")
    if metadata.extra_tokens:
        text.append(f"; with {_extra(metadata.extra_tokens)}", style="not bold")
    return text


def _what_is_held(ledger: Ledger) -> str:
    """Whole matrices; a number per query where a fused kernel runs; or both, where only some have such a kernel."""
    matrices = [row.matrix for row in ledger.rows if row.matrix is not None]
    dtype, of_kernel = ledger.metadata.dtype, "float64" if ledger.metadata.dtype == "float64" else "float32"
    if not any(matrix.statistics for matrix in matrices):
        return f"attention matrices, {dtype}"
    if any(matrix.entries for matrix in matrices):
        return f"attention matrices, {dtype}, and {of_kernel} statistics where fused"
    return f"attention statistics (fused: no matrix is kept), {of_kernel}"


def _kept(ledger: Ledger) -> str:
    """`kept for`; `64 MiB at a time in` where a reversible residual keeps less than all of them."""
    kept = ledger.attention_kept_bytes()
    return "kept for" if kept == ledger.attention_memory()["all_layers"] else f"{units.size(kept)} at a time in"


def other_work_texts(ledger: Ledger) -> Iterator[Text]:
    """What is neither MACs nor FLOPs: comparisons, moved elements, and (where asked) main-memory traffic."""
    comparisons, moved = ledger.total("comparisons") or 0, ledger.total("moved") or 0
    if comparisons:
        text = Text("comparisons: ", style="bold")
        text.append(f"{units.exact(comparisons)} (sorting, choosing; neither MACs nor FLOPs)", style="not bold")
        yield text
    if moved:
        text = Text("data moved: ", style="bold")
        bytes_ = units.size(moved * ledger.bytes_per_element)
        text.append(f"{bytes_} written by gathers, scatters, rolls, pads, concatenations, look-ups", style="not bold")
        yield text
    if ledger.metadata.memory_level is not None:
        plain, tiled = (ledger.total(f"{how}_traffic_bytes") for how in ("plain", "tiled"))
        text = Text("main-memory traffic of attention: ", style="bold")
        text.append(
            f"{units.size(plain)} with every matrix kept, {units.size(tiled)} tiled for "
            f"{units.size(ledger.metadata.memory_level)} on chip (FlashAttention, Dao et al. 2022, algorithms 0 and 1)",
            style="not bold",
        )
        yield text


def mask_texts(ledger: Ledger) -> Iterator[Text]:
    """How many of the scores that are computed a mask leaves; nothing where it leaves all."""
    rows = [row for row in ledger.rows if row.core is not None and row.pairs is not None]
    computed = sum(row.core.times * row.core.queries * row.core.keys * row.times for row in rows if row.core)
    left = sum((row.pairs or 0) * (row.heads or 1) * ledger.metadata.batch * row.times for row in rows)
    if left < computed:
        text = Text("masks: ", style="bold")
        text.append(
            f"{units.count(left)} of {units.count(computed)} scores are left ({units.percent(left, computed)}); the "
            "dense product runs, and is counted. Every sample has all its N tokens: none is padding",
            style="not bold",
        )
        yield text


def _extra(tokens: int) -> str:
    return "1 extra token" if tokens == 1 else f"{tokens} extra tokens"


def timing_texts(ledger: Ledger) -> Iterator[Text]:
    """How long a forward took, and where; nothing where none was timed."""
    if timing := ledger.timing:
        peak = f", peak {units.size(timing.peak_bytes)}" if timing.peak_bytes else ""
        what = _phases(ledger.generation) if ledger.generation else _runs(timing, _what_runs(ledger))
        where = f"on {timing.device}, {timing.machine}, {timing.threads} thread(s){peak}"
        yield Text(f"time: {units.seconds(timing.seconds)} {what} {where}")
        if process := timing.process_memory:
            sizes = [units.size(held) for held in (process.predicted, process.low, process.high)]
            yield Text("memory of the process: about {} more than before the run, between {} and {}".format(*sizes))


def _what_runs(ledger: Ledger) -> str:
    if ledger.training is not None:
        return f"a step of training, {ledger.training.step.optimizer} in {ledger.metadata.dtype}"
    return "a step" if ledger.step else "a forward"


def _runs(timing: Timing, what: str) -> str:
    spread = f"interquartile range {units.seconds(timing.spread)}"
    return f"{what} (median of {timing.runs}, {spread})"


def _phases(text: Generation) -> str:
    """How long the prefill took, and the steps."""
    both = f"prefill {units.seconds(text.prefill_seconds)}, steps {units.seconds(text.decode_seconds)}"
    return f"for {text.new_tokens:,} new tokens ({both})"


# What an account is called in a sentence.
_ACCOUNTS: Final = {"traced": "trace", "dispatched": "dispatcher"}
_CLOSED_FORM_ALONE: Final = (
    "counted in closed form; --trace checks it on the real torch model (fvcore's trace and torch's dispatcher)"
)


def agreement_texts(ledger: Ledger) -> Iterator[Text]:
    """One line where all accounts agree; else every difference, and all that was not counted."""
    agreement = ledger.agreement
    if agreement is None:
        yield Text(_CLOSED_FORM_ALONE, style="dim")
        return
    joined = " and ".join(_ACCOUNTS[name] for name in agreement.accounts)
    if agreement.exact:
        yield Text(
            f"{joined}: the real torch model agrees exactly, in all {len(ledger.rows)} operations"
            f"{_traced_steps(ledger)}",
            style="bold green",
        )
        return
    yield Text(f"{joined}: {_disagreement(ledger, agreement)}", style="bold red")
    for difference in agreement.differences:
        found = ", ".join(
            f"{name} {units.exact(difference[name])}" for name in ("counted", *agreement.accounts) if name in difference
        )
        yield Text(f"  {difference['path']} {difference['quantity']}: {found}", style="red")
    for line in agreement.uncounted:
        yield Text(f"  not counted: {line}", style="red")


def _disagreement(ledger: Ledger, agreement: Agreement) -> str:
    """`counted and traced DISAGREE in 1 place, and 2 things were not counted`."""
    rows, places, missing = len(ledger.rows), len(agreement.differences), len(agreement.uncounted)
    unlike = [name for name in agreement.accounts if any(name in difference for difference in agreement.differences)]
    accounts = ["counted", *(unlike or agreement.accounts)]
    counted = f"DISAGREE in {_number(places, 'place')}" if places else f"agree in all {_number(rows, 'operation')}"
    more = (
        f", {'and' if places else 'but'} {_number(missing, 'thing')} {'was' if missing == 1 else 'were'} not counted"
        if missing
        else ""
    )
    return f"{', '.join(accounts[:-1])} and {accounts[-1]} {counted}{more}"


def _traced_steps(ledger: Ledger) -> str:
    """Which steps of a generated text were traced."""
    if ledger.generation is None or not ledger.generation.traced_at:
        return ""
    return f" (the prefill, and steps at {', '.join(f'{tokens:,}' for tokens in ledger.generation.traced_at)} tokens)"


def _number(count: int, thing: str) -> str:
    return f"{count} {thing}" + ("" if count == 1 else "s")
