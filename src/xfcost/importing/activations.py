"""Activations: transformers' names, the grammar's names, and gated networks."""

from __future__ import annotations

from typing import Any, Final, Literal

from xfcost.formulas.component import ActKind
from xfcost.ledger.errors import ComponentError

Activation = Literal[
    "gelu", "gelu_python", "gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_fast", "gelu_accurate",
    "quick_gelu", "relu", "silu", "swish",
]  # fmt: skip
# gelu_fast and gelu_accurate are the tanh formula with its factors in another order.
ACTIVATIONS: Final[dict[str, ActKind]] = {
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
    """`{act: …}` of a spec; empty for GELU, the default of every component."""
    return {} if ACTIVATIONS[name] == "gelu" else {"act": ACTIVATIONS[name]}


def mlp(hidden: int, name: str, *, bias: bool = True) -> dict[str, Any]:
    """A plain feed-forward network."""
    return {"kind": "mlp", "hidden": hidden} | act(name) | ({} if bias else {"bias": False})


def gated(field: str, name: str, hidden: int, *, bias: bool = False) -> dict[str, Any]:
    """A gated feed-forward network.

    Raises:
        ComponentError: the grammar has no network with this gate; the error names `field`.
    """
    gate = ACTIVATIONS[name]
    biases = {"bias": True} if bias else {}
    if gate == "silu":
        return {"kind": "swiglu", "hidden": hidden} | biases
    if gate in ("gelu", "gelu_tanh"):
        return {"kind": "geglu", "hidden": hidden} | act(name) | biases
    raise ComponentError(
        field, f"expected a gate of silu or gelu, got {name!r}: the grammar has no other gated network"
    )
