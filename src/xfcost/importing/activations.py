"""transformers' names of activations, and the grammar's; the gated networks that each can have."""

from __future__ import annotations

from typing import Any, Final, Literal

from xfcost.formulas.component import ActKind
from xfcost.ledger.errors import ComponentError

Activation = Literal[
    "gelu", "gelu_python", "gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_fast", "gelu_accurate",
    "quick_gelu", "relu", "silu", "swish",
]  # fmt: skip
# gelu_fast and gelu_accurate are the tanh formula, its factors in another order.
OURS: Final[dict[str, ActKind]] = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "quick_gelu": "gelu_quick",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


def act(name: str) -> dict[str, ActKind]:
    """`{act: …}` as a spec writes it: nothing where it is GELU, the default of every component."""
    return {} if OURS[name] == "gelu" else {"act": OURS[name]}


def mlp(hidden: int, name: str, *, bias: bool = True) -> dict[str, Any]:
    """A plain feed-forward network."""
    return {"kind": "mlp", "hidden": hidden} | act(name) | ({} if bias else {"bias": False})


def gated(field: str, name: str, hidden: int, *, bias: bool = False) -> dict[str, Any]:
    """A gated feed-forward network.

    Raises:
        ComponentError: nothing in the grammar is gated so; it names `field`.
    """
    ours = OURS[name]
    more = {"bias": True} if bias else {}
    if ours == "silu":
        return {"kind": "swiglu", "hidden": hidden} | more
    if ours in ("gelu", "gelu_tanh"):
        return {"kind": "geglu", "hidden": hidden} | act(name) | more
    raise ComponentError(
        field, f"expected a gate of silu or gelu, got {name!r}: no other gated network is counted here"
    )
