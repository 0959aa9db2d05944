"""The Python face of the commands: the same results, without a terminal. A notebook shows them as their reports do."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from xfcost.ledger import notebook

# Class of a result -> the module of its report, and what that draws at a width.
_SHOWN: Final[dict[str, tuple[str, Callable[[Any, Any, int], Any]]]] = {
    "Ledger": ("table", lambda module, result, width: module.report(result, None, width)),
    "Comparison": ("compare", lambda module, result, width: module.report(result, width)),
    "CheckResult": ("budgets", lambda module, result, width: module.document(result).terminal(width)),
    "Diff": ("differences", lambda module, result, width: module.document(result).terminal(width)),
    "RunsDiff": ("differences", lambda module, result, width: module.document(result).terminal(width)),
    "FindResult": ("find", lambda module, result, width: module.document(result).terminal(width)),
    "LayerTable": ("layer_types", lambda module, result, width: module.document(result).terminal(width)),
    "Reach": ("reach", lambda module, result, width: module.document([result]).terminal(width)),
    "ResidualStream": ("residual_stream", lambda module, result, width: module.document(result).terminal(width)),
    "Survey": ("survey", lambda module, result, width: module.document(result).terminal(width)),
}


def _html(result: Any) -> str:
    from xfcost.report.console import rich_html

    name, draw = _SHOWN[type(result).__name__]
    module = import_module(f"xfcost.report.{name}")
    return rich_html(lambda width: draw(module, result, width))


for _name in _SHOWN:
    notebook.register(_name, _html)
