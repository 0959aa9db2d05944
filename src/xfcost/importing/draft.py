"""A spec made by a family, and the parts that several families share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from xfcost.ledger.errors import ComponentError, divisors_text

# N where a config has no length.
DEFAULT_LENGTH: Final = 512
# The table that token embedding and head share.
TABLE: Final = "embedding"


class Draft(NamedTuple):
    """The keys of a spec without name and paper, in the grammar's order."""

    keys: dict[str, Any]
    remarks: list[str]
    """Sentences for the comment at the top: assumptions, fields without a cost, omissions."""


def stage(dim: int, depth: int, block: list[Any], *, final_norm: str | None = None) -> dict[str, Any]:
    """One block `depth` times, then a norm if the model has no head that norms."""
    if final_norm is None:
        return {"dim": dim, "depth": depth, "block": block}
    return {"dim": dim, "blocks": [{"repeat": depth, "blocks": [block]}, [{"kind": "norm", "norm": final_norm}]]}


def stage_of_repeats(
    dim: int, repeats: Sequence[tuple[int, list[Any]]], *, final_norm: str | None = None
) -> dict[str, Any]:
    """(times, block) pairs in order, then a norm, if any."""
    present = [(times, block) for times, block in repeats if times]
    if len(present) == 1:
        return stage(dim, *present[0], final_norm=final_norm)
    groups: list[Any] = [block if times == 1 else {"repeat": times, "blocks": [block]} for times, block in present]
    return {"dim": dim, "blocks": groups + ([[{"kind": "norm", "norm": final_norm}]] if final_norm else [])}


def token(*, shared: bool) -> dict[str, Any]:
    """A token embedding; `shared` ties its table to the head."""
    return {"kind": "token"} | ({"share": TABLE} if shared else {})


def language_model_head(norm: str, *, shared: bool, **options: Any) -> dict[str, Any]:
    """A norm and a projection to logits over the vocabulary."""
    return {"kind": "language_model", "norm": norm} | ({"share": TABLE} if shared else {}) | options


def token_classifier(classes: int, *, norm: str = "none", bias: bool = True) -> dict[str, Any]:
    """A classifier of every token."""
    head = {"kind": "classifier", "pool": "none", "norm": norm, "classes": classes}
    return head if bias else head | {"bias": False}


def answer_span_head(num_labels: int) -> dict[str, Any]:
    """Two logits per token: whether an answer starts or ends there.

    Raises:
        ComponentError: `num_labels` is not 2.
    """
    if num_labels != 2:  # noqa: PLR2004 - start and end
        raise ComponentError("num_labels", f"expected 2 (where an answer starts and ends), got {num_labels}")
    return token_classifier(2)


def check_heads(field: str, heads: int, width_field: str, width: int) -> None:
    """Raise ComponentError if `heads` don't divide the width."""
    if width % heads:
        divisors = divisors_text(width)
        raise ComponentError(
            field, f"{heads} heads don't divide the width {width} ({width_field}); it could be {divisors}"
        )
