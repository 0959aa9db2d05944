"""The header of `analyze`: the system, its run, the answer, how the accounts agree."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Final

from xfcost.comparing.quantities import QUANTITIES
from xfcost.ledger import units
from xfcost.ledger.grid import sides_text
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.model_flops import model_flops
from xfcost.ledger.ran import ClosedForm
from xfcost.parts.mixing.text import kinds_texts
from xfcost.parts.prediction.text import prediction_texts
from xfcost.parts.serving.text import (
    cache_answers,
    cache_name,
    checkpoint_texts,
    fit_texts,
    included_texts,
    mode_texts,
    rate_texts,
    reach_texts,
    speculation_texts,
    step_answers,
    time_texts,
    weights_texts,
)
from xfcost.parts.timing.text import reached_texts, time_answer
from xfcost.parts.training.text import few_tokens_texts, plan_answers, trained_texts, training_answers
from xfcost.report.accounts import agreement_texts, run_texts
from xfcost.report.document import TextLines, line
from xfcost.views.largest import largest_texts, slowest_texts


def header(ledger: Ledger) -> list[TextLines]:
    """Name and run; parameters, MACs, FLOPs; what the mode asks; attention memory; how the accounts agree."""
    checked = kinds_texts(ledger.probe) if ledger.probe is not None and not ledger.probe.detailed else ()
    return [*run_texts(ledger.metadata), *_answers(ledger), *agreement_texts(ledger), *checked]


def active_params(ledger: Ledger) -> int | None:
    """Parameters that a token uses, where those are not all."""
    active = ledger.total("active_params")
    return None if active == ledger.total("params") else active


def at_least(ledger: Ledger) -> str:
    """`at least ` before the totals of a module that runs an operation that nothing counts."""
    return "" if ledger.ran.complete else "at least "


def _answers(ledger: Ledger) -> Iterator[TextLines]:
    yield from few_tokens_texts(ledger)
    yield _totals(ledger)
    yield from trained_texts(ledger)
    yield from plan_answers(ledger)
    yield from reached_texts(ledger) if ledger.training is not None else ()
    yield from training_answers(ledger, at_least(ledger))
    yield from fit_texts(ledger)
    yield from mode_texts(ledger)
    yield from reach_texts(ledger)
    yield from cache_answers(ledger)
    yield from weights_texts(ledger)
    yield from checkpoint_texts(ledger)
    yield from time_texts(ledger)
    yield from rate_texts(ledger)
    yield from speculation_texts(ledger)
    yield from reached_texts(ledger) if ledger.training is None else ()
    yield from prediction_texts(ledger)
    yield from time_answer(ledger)
    yield from slowest_texts(ledger)
    yield from largest_texts(ledger) if ledger.on is not None else ()
    yield from included_texts(ledger)
    yield from step_answers(ledger)
    yield from convention_texts(ledger)
    yield from largest_texts(ledger) if ledger.on is None else ()
    yield from closed_form_texts(ledger, at_least(ledger))
    yield from memory_answers(ledger)
    yield from _outweighs_texts(ledger)


def _outweighs_texts(ledger: Ledger) -> Iterator[TextLines]:
    """From which N on global mixing costs more than what: of images with the square grid and its image."""
    sides: list[int] = ledger.metadata.streams[0]["grid"] if ledger.metadata.streams else []
    image = ledger.metadata.image

    def at(tokens: int) -> str:
        side = math.isqrt(tokens)
        if image is None or len(sides) != 2 or image[-2] % sides[0]:  # noqa: PLR2004 - height and width
            return f"from N = {tokens:,} on"
        pixels = side * image[-2] // sides[0]
        return f"from N = {tokens:,} on ({sides_text((side, side))}, image {sides_text((pixels, pixels))})"

    words = {"all else": ledger.mixing_outweighs, "the feed-forward layers": ledger.mixing_outweighs_feed_forward}
    known = [f"than {what} {at(tokens)}" for what, tokens in words.items() if tokens is not None]
    if known:
        yield line(f"global mixing costs more MACs {', '.join(known)}")


def _totals(ledger: Ledger) -> TextLines:
    if ledger.generation is not None and ledger.generation.with_cache is not None:
        return line(params_text(ledger))  # its MACs and FLOPs are below
    work = {"decode": " per step", "train": " forward"}.get(ledger.metadata.mode, "")
    return line(f"{params_text(ledger)}   {work_text(ledger)}{work}")


def params_text(ledger: Ledger) -> str:
    """`46,702,792,704 parameters (12,879,925,248 active)`."""
    active = active_params(ledger)
    used = f" ({units.exact(active)} active)" if active is not None else ""
    return f"{units.exact(ledger.total('params'))} {QUANTITIES['params'].name}{used}"


def work_text(ledger: Ledger) -> str:
    """`22,405,742,592 MACs   45,187,362,640 FLOPs`."""
    return "   ".join(
        f"{at_least(ledger)}{units.exact(ledger.total(quantity))} {QUANTITIES[quantity].name}"
        for quantity in ("macs", "flops")
    )


def memory_answers(ledger: Ledger) -> Iterator[TextLines]:
    """Attention matrices of a pass in training and in inference; in other modes they answer no question."""
    memory = ledger.attention_memory()
    if ledger.metadata.mode in ("forward", "prefill") and memory["peak"]:
        stored = any(row.matrix is not None and row.matrix.entries for row in ledger.rows)
        name = QUANTITIES["attention_bytes"].name if stored else "attention statistics (fused)"
        yield line(f"{name}: {all_layers(ledger)}; {at_once(ledger)}")


def all_layers(ledger: Ledger) -> str:
    """`… kept for the backward pass in all layers`; where a reversible residual saves less, how much at a time."""
    every, saved = ledger.attention_memory()["all_layers"], ledger.attention_kept_bytes()
    if saved == every:
        return f"{units.size(every)} kept for the backward pass in all layers"
    return f"{units.size(every)} in all layers, of which the backward pass needs {units.size(saved)} at a time"


def at_once(ledger: Ledger) -> str:
    """`at most … at once in inference`, and what that is."""
    largest = max(ledger.rows, key=lambda row: row.matrices_alive)
    both = largest.matrix_entries and largest.matrices_alive == 2 * largest.matrix_entries
    what = " (scores and softmax of one layer)" if both else ""
    return f"at most {units.size(ledger.attention_memory()['peak'])} at once in inference{what}"


# Where masks keep more than this share of the FLOPs, conventions are hardly apart.
_APART: Final = 0.99


def convention_texts(ledger: Ledger) -> Iterator[TextLines]:
    """How far the FLOPs of products are apart by convention, where masks leave out a visible part of them.

    The rule of parameters and tokens is of language models: convolutions use a weight at many positions of an image.
    """
    found = model_flops(ledger)
    if found.kept < _APART * found.dense:
        words = f"{units.count(found.dense)} matrix multiplies alone; {units.count(found.kept)} without masked pairs"
        reads_words = ledger.metadata.image is None and any(row.vocabulary for row in ledger.rows)
        if found.by_params is not None and reads_words and ledger.metadata.lora is None:
            words += f"; {units.count(found.by_params)} by {found.factor}·parameters·tokens"
        yield line(words, head="FLOPs by other conventions: ")


# Other remainders that are listed; json has all.
_MOST_LISTED: Final = 3
# Of more counted sizes the ends are.
_MOST_SIZES: Final = 6


def closed_form_texts(ledger: Ledger, at_least: str) -> Iterator[TextLines]:
    """The MACs as a polynomial in N, where it holds, how they grow; or why there is no polynomial.

    `at_least` comes before it if operations are not counted.
    """
    form = ledger.closed_form
    if form is None:
        return
    of = "N" if form.letter == "N" else "P = H·W"
    if form.macs is None:
        yield line(f"no closed form of the MACs in {of}: {form.refused}", "dim")
        return
    sizes = [f"{size:,}" for size in form.sizes]
    many = f"{len(sizes)} {form.letter} from {sizes[0]} to {sizes[-1]}"
    counted = f"{form.letter} = {', '.join(sizes)}" if len(sizes) <= _MOST_SIZES else many
    macs = f"MACs {'≥' if at_least else '='} {_in_print(form.macs)}"
    yield line(f"{_where(form)}   (through the counts at {counted})", head=macs)
    if form.cache is not None:
        yield line(f"{cache_name(ledger.cache)} = {_in_print(form.cache)} bytes")
    if growth := _growth(form):
        yield line(growth)


def _in_print(form: str) -> str:
    """`1/2·P² + 49932·P` -> `½·P² + 49,932·P`."""
    return re.sub(r"\b1/2(?=·)", "½", re.sub(r"\d{4,}", lambda found: f"{int(found[0]):,}", form))


def _where(form: ClosedForm) -> str:
    """`, where P = H·W pixels and √P is a multiple of 8; 2·P where √P mod 8 = 1`."""
    conditions = ["P = H·W pixels"] if form.letter == "P" else []
    rest = ""
    if form.period > 1:
        of = f"{form.counted_in} mod {form.period}"
        multiple = f"{form.counted_in} is a multiple of {form.period}"
        conditions.append(f"{of} = {form.remainder}" if form.remainder else multiple)
        others = [f"{_in_print(macs)} where {of} = {remainder}" for remainder, macs in form.others.items()]
        rest = "; " + ", ".join(others) if 0 < len(others) <= _MOST_LISTED else ""
    return f", where {' and '.join(conditions)}{rest}" if conditions else ""


def _growth(form: ClosedForm) -> str:
    words = {"macs": "MACs", "attention_bytes": "attention memory"}
    known = {word: form.growth[name] for name, word in words.items() if form.growth.get(name) is not None}
    if not known:
        return ""
    powers = ", ".join(f"{word} ~ {form.letter}^{exponent:.2f}" for word, exponent in known.items())
    low, high = sorted((form.N, form.N * (form.growth["factor"] or 1)))
    return f"growth with {form.letter}: {powers} ({form.letter} = {low:,.0f} to {high:,.0f})"
