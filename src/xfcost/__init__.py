"""xfcost: cost analysis of transformer architectures: total cost, cost per operation, growth with N, verification.

>>> import xfcost
>>> ledger = xfcost.analyze("vit", N=784, trace=False)
>>> ledger.total("params")
22055272
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xfcost.api.analysis import analyze, build, compare, register, trace
    from xfcost.api.check import check
    from xfcost.api.difference import diff
    from xfcost.api.drawings import diagram, glance
    from xfcost.api.find import find
    from xfcost.api.measuring.measure import measure
    from xfcost.api.paper_tables import layer_types, survey
    from xfcost.api.plot import plot
    from xfcost.api.predictions import calibrate
    from xfcost.api.reach import reach
    from xfcost.api.report_page import write_report
    from xfcost.api.residual_stream import stream
    from xfcost.api.roofline import roofline
    from xfcost.api.summary import summary
    from xfcost.ledger.errors import XfcostError
    from xfcost.ledger.ledger import Ledger
    from xfcost.ledger.operation import Operation
    from xfcost.ledger.residual_stream import ResidualStream

__version__ = "0.1.0"
__all__ = [
    "Ledger", "Operation", "ResidualStream", "XfcostError", "analyze", "build", "calibrate", "check",
    "compare", "diagram", "diff", "find", "glance", "layer_types", "measure", "plot", "reach", "register", "roofline",
    "stream", "summary", "survey", "trace", "write_report",
]  # fmt: skip

_MODULES = {
    "analyze": "xfcost.api.analysis",
    "build": "xfcost.api.analysis",
    "calibrate": "xfcost.api.predictions",
    "check": "xfcost.api.check",
    "compare": "xfcost.api.analysis",
    "diagram": "xfcost.api.drawings",
    "diff": "xfcost.api.difference",
    "find": "xfcost.api.find",
    "glance": "xfcost.api.drawings",
    "layer_types": "xfcost.api.paper_tables",
    "measure": "xfcost.api.measuring.measure",
    "plot": "xfcost.api.plot",
    "reach": "xfcost.api.reach",
    "register": "xfcost.api.analysis",
    "roofline": "xfcost.api.roofline",
    "stream": "xfcost.api.residual_stream",
    "summary": "xfcost.api.summary",
    "survey": "xfcost.api.paper_tables",
    "trace": "xfcost.api.analysis",
    "write_report": "xfcost.api.report_page",
    "Ledger": "xfcost.ledger.ledger",
    "Operation": "xfcost.ledger.ledger",
    "ResidualStream": "xfcost.ledger.residual_stream",
    "XfcostError": "xfcost.ledger.errors",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that `import xfcost` is fast."""
    if name not in _MODULES:
        raise AttributeError(f"module 'xfcost' has no attribute {name!r}; public names: {', '.join(__all__)}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
