"""The residual stream in sentences: how its sub-layers join it, whether its sums hold, what moves between positions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from xfcost.ledger.residual_stream import Joins, ResidualStream, StreamStep

_JOINS: Final[dict[Joins, str]] = {
    "pre": "Δ(X) = f(norm(X))",
    "post": "post-norm: Δ(X) = f(X), and the norm is on the sum, so that X′ is not X + Δ",
    "res_post": "residual-post-norm: Δ(X) = norm(f(X))",
    "reversible": "reversible: two streams, X₁ and X₂, both the stage's input at first; each sub-layer reads one and "
    "adds to the other",
    "inside": "the residual connection is the block's own: Δ(X) = f(X)",
    "none": "no residual connection: f(X) replaces X",
}
_ONE: Final = "One token of the sub-layer's input changed, the middle one"
# Contradictions that are listed.
_MOST: Final = 8


def block_sums(found: ResidualStream) -> Iterator[str]:
    """What leaves a block, in formulas, for each kind of block; and what Δ is."""
    kinds = Counter(tuple(step.formula for step in block) for block in found.blocks)
    for formulas, times in kinds.items():
        yield f"{times} block{'s' if times > 1 else ''}: {',  '.join(formulas)}"
    joins = list(dict.fromkeys(step.joins for step in found.steps))
    yield "; ".join(_JOINS[one] for one in joins) + (
        "; S is the shortcut, which brings X to the new grid and width" if any(s.shortcut for s in found.steps) else ""
    )


def sentences(found: ResidualStream) -> Iterator[str]:
    """What the sums and the changed rows say."""
    if sums := _sums(found):
        yield sums
    yield from _moves([step for step in found.steps if step.norm_delta != 0])
    if silent := list(dict.fromkeys(step.title for step in found.steps if step.norm_delta == 0)):
        yield f"{', '.join(silent)}: Δ is 0 with these weights."
    if pushed := [step for step in found.steps if step.tokens_compete and step.changed.others]:
        yield f"{_names(pushed)}: each token is computed alone, and one can push another out of a full expert."
    yield from (f"note: {note}" for note in found.notes)


def contradiction_texts(found: ResidualStream) -> Iterator[str]:
    """The first contradictions, and how many more there are."""
    every = list(found.contradictions)
    yield from every[:_MOST]
    if len(every) > _MOST:
        yield f"… and {len(every) - _MOST:,} more"


def _sums(found: ResidualStream) -> str | None:
    checks = found.checks
    if not checks:
        return None
    largest, bound = max(check.difference for check in checks), max(check.bound for check in checks)
    every = all(check.within for check in checks)
    verdict = "to rounding in every block" if every else "NOT to rounding"
    return (
        f"These sums hold {verdict}: the largest difference is {largest:.2g}, and rounding to {found.metadata.dtype} "
        f"explains up to {bound:.2g}."
    )


def _moves(steps: Sequence[StreamStep]) -> Iterator[str]:
    """Which sub-layers move information between positions, by the rows that changed."""
    moving = [step for step in steps if step.changed.others]
    still = [step for step in steps if step.changed.others == 0 and step.changed_by_memory is None]
    reading = [step for step in steps if step.changed_by_memory is not None and step.changed_by_memory.rows]
    if moving:
        yield (
            f"{_ONE}: {_names(moving)} changed in {_range([step.changed.rows for step in moving])} rows"
            + (f", {_names(still)} in {_own(still)}" if still else "")
            + f": {_who(moving, still)} information between positions."
        )
    elif still:
        yield f"{_ONE}: {_names(still)} changed in {_own(still)}."
    if reading:
        rows = _range([step.changed_by_memory.rows for step in reading if step.changed_by_memory is not None])
        yield (
            f"{_names(reading)}: one token of the encoder's output changed {rows} rows, one of its own stream "
            f"{_range([step.changed.rows for step in reading])}: it brings information from the encoder."
        )
    for step in {step.title: step for step in moving if step.symbol.startswith("ΔF")}.values():
        yield f"{step.title} moves information too, by: {', '.join(step.mixing_operations)}."
    if behind := list(dict.fromkeys(title for step in steps for title in step.mixing_behind)):
        yield f"Behind the sum information moves too, by: {', '.join(behind)}."


def _own(still: Sequence[StreamStep]) -> str:
    """A token that an expert drops changes no row."""
    every = all(step.changed.rows for step in still)
    return f"that token's row {'alone' if every else 'at most'}"


def _who(moving: Sequence[StreamStep], still: Sequence[StreamStep]) -> str:
    if not all(step.symbol.startswith("ΔA") and not step.mixing_behind for step in moving):
        return "these move"
    return "only ΔA moves" if still else "ΔA moves"


def _names(steps: Sequence[StreamStep]) -> str:
    """`ΔA (W-MSA, SW-MSA)`."""
    groups: dict[str, dict[str, None]] = {}
    for step in steps:
        groups.setdefault(step.symbol[:2] or "f", {})[step.title] = None
    return " and ".join(f"{symbol} ({', '.join(titles)})" for symbol, titles in groups.items())


def _range(rows: Sequence[int]) -> str:
    """`4`, `25 to 49`."""
    return f"{min(rows):,}" if min(rows) == max(rows) else f"{min(rows):,} to {max(rows):,}"
