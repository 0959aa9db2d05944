"""What a family makes of a config: the keys of a spec, and what a reader must be told; and parts that many make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from xfcost.ledger.errors import ComponentError, divisors_text

# N where a config says nothing of a length.
DEFAULT_LENGTH: Final = 512
# The name of the table that token embedding and head share.
TABLE: Final = "embedding"


class Draft(NamedTuple):
    """A spec but for its name and its paper, in the grammar's order."""

    keys: dict[str, Any]
    remarks: list[str]
    """Sentences for the comment at the top: what was assumed, what changes no cost, what the grammar leaves out."""


def stage(dim: int, depth: int, block: list[Any], *, end: str | None = None) -> dict[str, Any]:
    """`depth` times one block, and behind them a norm `end` (of a model without a head), if any."""
    if end is None:
        return {"dim": dim, "depth": depth, "block": block}
    return {"dim": dim, "blocks": [{"repeat": depth, "blocks": [block]}, [{"kind": "norm", "norm": end}]]}


def stage_of_runs(dim: int, runs: Sequence[tuple[int, list[Any]]], *, end: str | None = None) -> dict[str, Any]:
    """Blocks one after the other, each as often as its number says, and behind them a norm `end`, if any."""
    standing = [(times, block) for times, block in runs if times]
    if len(standing) == 1:
        return stage(dim, *standing[0], end=end)
    groups: list[Any] = [block if times == 1 else {"repeat": times, "blocks": [block]} for times, block in standing]
    return {"dim": dim, "blocks": groups + ([[{"kind": "norm", "norm": end}]] if end else [])}


def token(*, shared: bool) -> dict[str, Any]:
    """Token embedding, its table shared with the head or not."""
    return {"kind": "token"} | ({"share": TABLE} if shared else {})


def scores(norm: str, *, shared: bool, **more: Any) -> dict[str, Any]:
    """A language model's head."""
    return {"kind": "language_model", "norm": norm} | ({"share": TABLE} if shared else {}) | more


def every_token(classes: int, *, norm: str = "none", bias: bool = True) -> dict[str, Any]:
    """A classifier of every token."""
    head = {"kind": "classifier", "pool": "none", "norm": norm, "classes": classes}
    return head if bias else head | {"bias": False}


def answers(num_labels: int) -> dict[str, Any]:
    """A head that says of every token whether an answer starts or ends there.

    Raises:
        ComponentError: other labels than these two.
    """
    if num_labels != 2:  # noqa: PLR2004 - start and end
        raise ComponentError("num_labels", f"expected 2 (where an answer starts and ends), got {num_labels}")
    return every_token(2)


def check_heads(field: str, heads: int, width_field: str, width: int) -> None:
    """Raise ComponentError where `heads` don't divide the width."""
    if width % heads:
        could = divisors_text(width)
        raise ComponentError(
            field, f"{heads} heads don't divide the width {width} ({width_field}); it could be {could}"
        )
