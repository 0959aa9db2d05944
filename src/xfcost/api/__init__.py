"""The Python face of the commands: the same results, without a terminal. A notebook shows their reports."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from xfcost.ledger import notebook

# Class of a result -> the module of its report.
_SHOWN: Final = {
    "Ledger": "table",
    "Comparison": "compare",
    "CheckResult": "budgets",
    "Diagram": "diagram",
    "Diff": "differences",
    "RunsDiff": "differences",
    "FindResult": "find",
    "Glance": "glance",
    "LayerTable": "layer_types",
    "Reach": "reach",
    "ResidualStream": "residual_stream",
    "Survey": "survey",
}


def _html(result: Any) -> str:
    from xfcost.report.console import rich_html

    name = type(result).__name__
    module = import_module(f"xfcost.report.{_SHOWN[name]}")
    tables = rich_html(module.document([result] if name == "Reach" else result).terminal)
    if name not in ("Ledger", "Comparison"):
        return tables
    from xfcost.report.shares import shares_svg

    return tables + shares_svg(result)


for _name in _SHOWN:
    notebook.register(_name, _html)
