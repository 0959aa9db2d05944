"""Run the code cells of a notebook in one namespace and store their outputs, without jupyter.

`python tools/notebook.py docs/tutorials/NAME.ipynb` runs it and writes its outputs into it.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

UNTESTED = "timed"
"""The tag of a cell whose output is another one every time."""


class Picture:
    """`IPython.display.Image` of a file, where IPython is not installed."""

    def __init__(self, filename: str) -> None:
        self.png = base64.b64encode(Path(filename).read_bytes()).decode()


def executed(notebook: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """The outputs of every code cell, run in an empty folder, 100 columns wide and without colour."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    display = types.ModuleType("IPython.display")
    display.Image = Picture  # type: ignore[attr-defined]
    saved = {name: sys.modules.get(name) for name in ("IPython", "IPython.display")}
    sys.modules |= {"IPython": types.ModuleType("IPython"), "IPython.display": display}
    before = Path.cwd()
    os.environ |= {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
    try:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            return [_outputs("".join(cell["source"]), namespace) for cell in code_cells(notebook)]
    finally:
        os.chdir(before)
        for name, module in saved.items():
            sys.modules.pop(name) if module is None else sys.modules.update({name: module})


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """Its cells of code."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def _outputs(source: str, namespace: dict[str, Any]) -> list[dict[str, Any]]:
    """What one cell prints, and the value of its last line, as notebooks store them."""
    tree = ast.parse(source)
    last = ast.Expression(tree.body.pop().value) if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), namespace)  # noqa: S102 - that is what a cell is for
        value = None if last is None else eval(compile(last, "cell", "eval"), namespace)  # noqa: S307
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        lines = printed.getvalue().splitlines(keepends=True)
        outputs.append({"output_type": "stream", "name": "stdout", "text": lines})
    if value is not None:
        outputs.append({"output_type": "display_data", "metadata": {}, "data": _data(value)})
    return outputs


def _data(value: Any) -> dict[str, Any]:
    if isinstance(value, Picture):
        return {"image/png": value.png}
    return {"text/plain": repr(value).splitlines(keepends=True)}


def store(path: Path) -> None:
    """Run a notebook and write it again with its outputs."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for number, (cell, outputs) in enumerate(zip(code_cells(notebook), executed(notebook), strict=True), start=1):
        cell |= {"execution_count": number, "outputs": outputs}
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    store(Path(sys.argv[1]).resolve())
