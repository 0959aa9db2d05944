"""xfcost: what an architecture costs, where the cost sits, how it grows with N, and whether the answer is true.

>>> import xfcost
>>> ledger = xfcost.analyze("vit", N=784, trace=False)
>>> ledger.total("params")
22055272
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xfcost.api import analyze, compare, trace
    from xfcost.ledger.errors import XfcostError
    from xfcost.ledger.ledger import Ledger
    from xfcost.ledger.operation import Operation

__version__ = "0.1.0"
__all__ = ["Ledger", "Operation", "XfcostError", "analyze", "compare", "trace"]

_HOMES = {
    "analyze": "xfcost.api",
    "compare": "xfcost.api",
    "trace": "xfcost.api",
    "Ledger": "xfcost.ledger.ledger",
    "Operation": "xfcost.ledger.ledger",
    "XfcostError": "xfcost.ledger.errors",
}


def __getattr__(name: str) -> Any:
    """Public names are imported when first asked for, so that `import xfcost` costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'xfcost' has no attribute {name!r}; public names: {', '.join(__all__)}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
