"""A folder per question: its command, the Python function that answers it, and what the answer looks like.

No leaf question imports another; deleting a folder with its lines in `cli.COMMANDS` and `xfcost._MODULES` breaks none.
"""

from __future__ import annotations

from typing import Final

from xfcost.api import draw_in_notebooks, show_in_notebooks

# Class of a result -> the module of its report.
_SHOWN: Final = {
    "CheckResult": "check.text",
    "Diff": "diff.text",
    "RunsDiff": "diff.text",
    "FindResult": "find.text",
    "Glance": "glance.text",
    "LayerTable": "tables.layers_text",
    "Reach": "reach.text",
    "ResidualStream": "stream.text",
    "Survey": "tables.survey_text",
}
for _name, _module in _SHOWN.items():
    show_in_notebooks(_name, f"xfcost.questions.{_module}")
draw_in_notebooks("Diagram", "xfcost.questions.diagram.text", "diagram_bytes")
