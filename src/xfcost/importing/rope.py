"""Rotary positions in a config: θ, and the ways in which it is stretched, which change constants alone."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from xfcost.ledger.errors import ComponentError
from xfcost.spec.reader import shown_value

Theta = Annotated[float, msgspec.Meta(ge=1, le=1e12)]
# What rope_scaling and rope_parameters may say; every key but θ and the type is a constant of the tables of angles.
_TYPES: Final = ("default", "linear", "dynamic", "yarn", "longrope", "su", "llama3")
_CONSTANTS: Final = frozenset({
    "factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow",
    "attention_factor", "mscale", "mscale_all_dim", "short_factor", "long_factor", "truncate", "finetuned",
})  # fmt: skip


def theta_and_remarks(
    theta: float | None, fields: dict[str, dict[str, Any] | None], default: float
) -> tuple[float, list[str]]:
    """θ, and what must be said of it; `fields` are rope_scaling and rope_parameters.

    Raises:
        ComponentError: a part of the columns alone is turned, or in a way that isn't known.
    """
    remarks = []
    for name, rope in fields.items():
        if rope is None:
            continue
        _check(name, rope)
        own = rope.get("rope_theta")
        if own is not None and theta not in (None, own):
            raise ComponentError(name, f"its rope_theta {own} and the field rope_theta {theta} disagree; leave one out")
        theta = own if own is not None else theta
        form = rope.get("rope_type", rope.get("type", "default"))
        if form != "default":
            remarks.append(f"{name}: rotary positions of type {form} change constants alone, and no cost.")
    return default if theta is None else theta, remarks


def _check(name: str, rope: dict[str, Any]) -> None:
    for key, value in rope.items():
        if key in ("rope_type", "type"):
            if value not in _TYPES:
                raise ComponentError(name, f"its {key} is {shown_value(value)}; expected one of {', '.join(_TYPES)}")
        elif key == "rope_theta":
            if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= 1e12:  # noqa: PLR2004
                raise ComponentError(name, f"its rope_theta is {shown_value(value)}; expected a number from 1 to 1e12")
        elif key == "partial_rotary_factor":
            check_partial(name, value, f"its {key}: ")
        elif key not in _CONSTANTS:
            raise ComponentError(
                name, f"its key {shown_value(key)} is not known; {shown_value(value)} could change a cost"
            )


def check_partial(name: str, value: Any, what: str = "") -> None:
    """Raise ComponentError where a part of the columns alone is turned; `what` of the field says so."""
    if value not in (None, 1):
        raise ComponentError(name, f"{what}expected 1, got {shown_value(value)}: all columns turn here")
