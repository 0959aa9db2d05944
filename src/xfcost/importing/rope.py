"""Rotary positions in a config: θ, and scaling types, which change constants only."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from xfcost.ledger.errors import ComponentError
from xfcost.spec.reader import shown_value

Theta = Annotated[float, msgspec.Meta(ge=1, le=1e12)]
# Keys of rope_scaling and rope_parameters; all but θ and the type are constants of the angle tables.
_TYPES: Final = ("default", "linear", "dynamic", "yarn", "longrope", "su", "llama3")
_CONSTANTS: Final = frozenset({
    "factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow",
    "attention_factor", "mscale", "mscale_all_dim", "short_factor", "long_factor", "truncate", "finetuned",
})  # fmt: skip


def theta_and_remarks(
    theta: float | None, fields: dict[str, dict[str, Any] | None], default: float
) -> tuple[float, list[str]]:
    """θ, and remarks; `fields` are rope_scaling and rope_parameters.

    Raises:
        ComponentError: a key is unknown, or rotary positions apply to a part of the columns.
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
            remarks.append(f"{name}: rotary positions of type {form} change constants only, and no cost.")
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
            check_partial_rotary(name, value, f"its {key}: ")
        elif key not in _CONSTANTS:
            raise ComponentError(
                name, f"its key {shown_value(key)} is not known; {shown_value(value)} could change a cost"
            )


def check_partial_rotary(name: str, value: Any, key: str = "") -> None:
    """Raise ComponentError if rotary positions apply to a part of the columns; `key` is the key inside the field."""
    if value not in (None, 1):
        raise ComponentError(name, f"{key}expected 1, got {shown_value(value)}: rotary positions apply to all columns")
