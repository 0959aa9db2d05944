"""What two runs must have in common to be compared, and what is said where they don't."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from xfcost.ledger.errors import shown
from xfcost.ledger.grid import sides_text
from xfcost.ledger.saved_report import Report

# Field of a run -> the option that sets it.
_RUN: Final = {
    "batch": "--batch",
    "dtype": "--dtype",
    "attention": "--attention",
    "mode": "--mode",
    "logits": "--logits",
    "memory_level": "--memory-level",
}


def other_runs(before: Report, after: Report) -> list[str]:
    """How the runs of two reports differ: `batch 1 and 8`. Costs at different runs are not compared."""
    differing = [name for name in _RUN if getattr(before, name) != getattr(after, name)]
    if "no" in (before.attention, after.attention):  # a module that was seen to run none
        differing = [name for name in differing if name != "attention"]
    texts = [f"{name} {shown(getattr(before, name))} and {shown(getattr(after, name))}" for name in differing]
    return [*texts, *_inputs(before, after), *_of_modes(before, after)]


def _of_modes(before: Report, after: Report) -> Iterator[str]:
    """What a generation writes, and the optimizer of a training step."""
    new = [report.generation and report.generation.new_tokens for report in (before, after)]
    steps = [report.training and report.training.step for report in (before, after)]
    optimizers = [step and step.optimizer for step in steps]
    for word, (first, second) in (("new tokens", new), ("optimizer", optimizers)):
        if first != second and before.mode == after.mode:
            yield f"{word} {first} and {second}"


def _inputs(before: Report, after: Report) -> Iterator[str]:
    """The input that is not the same; of the same image another N is a change of the model, and is compared."""
    if before.image is not None and after.image is not None:
        if before.image != after.image:
            yield f"images {sides_text(before.image)} and {sides_text(after.image)}"
    elif before.module is not None and after.module is not None:
        first, second = (", ".join(module.inputs) for module in (before.module, after.module))
        if first != second:
            yield f"inputs ({first}) and ({second})"
    elif before.module is None and after.module is None and before.image != after.image:
        image, tokens = (before, after) if before.image else (after, before)
        sides = sides_text(image.image or ())
        yield f"an image ({sides}) and {tokens.tokens:,} tokens, which are not comparable as input"
    elif before.tokens is not None and after.tokens is not None and before.tokens != after.tokens:
        yield f"N {before.tokens:,} and {after.tokens:,}"


def another_n(before: Report, after: Report) -> str | None:
    """What is said where one image has another N in the other run."""
    if before.tokens == after.tokens or before.tokens is None or after.tokens is None:
        return None
    if before.image is None or before.image != after.image:  # said already, as another input
        return None
    return f"N is {before.tokens:,} before and {after.tokens:,} after"


def not_timed_alike(before: Report, after: Report) -> str | None:
    """Why the measured seconds of two reports are not compared; None where they are, or there are none."""
    first, second = before.timing, after.timing
    if first is None or second is None:
        if first is second:
            return None
        return f"only the run {'before' if first else 'after'} was timed: seconds are not compared"
    return _another("timed", first, second, ("machine", "device", "threads", "compiled", "composed"))


def not_predicted_alike(before: Report, after: Report) -> str | None:
    """Why the predicted seconds of two reports are not compared."""
    first, second = before.prediction, after.prediction
    if first is None or second is None:
        return None
    return _another("predicted", first, second, ("machine", "device", "threads", "calibrated"))


def _another(verb: str, first: object, second: object, names: Sequence[str]) -> str | None:
    """The first of `names` in which the seconds of two reports were taken otherwise; None where all are the same."""
    for name in names:
        one, other = getattr(first, name), getattr(second, name)
        if one != other:
            word = "calibration" if name == "calibrated" else name
            return f"{verb} with another {word} ({one}, and then {other}): seconds are not compared"
    return None
