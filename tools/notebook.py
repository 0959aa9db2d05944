"""Build the notebooks of docs/notebooks/ from their scripts, and run them without jupyter.

A notebook is written as a percent script, as jupytext reads it: `# %% [markdown]` starts a cell of text, `# %%` one of
code, and in code `# !xfcost …` is a command of the shell.

`python tools/notebook.py` writes every notebook beside its script, with the outputs of today; with paths, only those.
`--check` writes nothing, and exits 1 where a notebook differs from what its script gives.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def scripts() -> list[Path]:
    """The script of every notebook."""
    return sorted(FOLDER.glob("*.py"))


def notebook(script: str) -> dict[str, Any]:
    """The notebook of a percent script, not yet run."""
    head, *parts = re.split(r"^# %%(.*)$", script, flags=re.MULTILINE)
    if head.strip():
        raise ValueError(f"a script starts with a cell, `# %%`; got {head.strip()!r}")
    texts = enumerate(zip(parts[::2], parts[1::2], strict=True))
    cells = [_cell(number, title.strip() == "[markdown]", text.strip("\n")) for number, (title, text) in texts]
    about = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": about, "nbformat": 4, "nbformat_minor": 5}


def _cell(number: int, is_text: bool, text: str) -> dict[str, Any]:
    source = re.sub(r"^# ?" if is_text else r"^(\s*)# (?=!)", "" if is_text else r"\1", text, flags=re.MULTILINE)
    cell: dict[str, Any] = {"cell_type": "markdown" if is_text else "code", "id": f"cell-{number}", "metadata": {}}
    return cell | {"source": source.splitlines(keepends=True)} | ({} if is_text else {"execution_count": None})


def executed(script: str) -> dict[str, Any]:
    """The notebook of a script with its outputs, run in an empty folder, 100 columns wide and without colour."""
    made = notebook(script)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    code = [cell for cell in made["cells"] if cell["cell_type"] == "code"]
    with _empty_folder():
        for number, cell in enumerate(code, start=1):
            cell |= {"execution_count": number, "outputs": _outputs("".join(cell["source"]), namespace)}
    return made


@contextlib.contextmanager
def _empty_folder() -> Iterator[None]:
    """In an empty folder, where `xfcost` is the one of this Python."""
    before, environment = Path.cwd(), dict(os.environ)
    with tempfile.TemporaryDirectory() as folder:
        command = Path(folder, "bin", "xfcost")
        command.parent.mkdir()
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m xfcost "$@"\n')
        command.chmod(0o755)
        path = f"{command.parent}{os.pathsep}{environment.get('PATH', '')}"
        os.environ |= {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb", "PATH": path}
        try:
            os.chdir(folder)
            yield
        finally:
            os.chdir(before)
            os.environ.clear()
            os.environ |= environment


def _outputs(source: str, namespace: dict[str, Any]) -> list[dict[str, Any]]:
    """What one cell prints, and the value of its last line, as notebooks store them."""
    namespace["_shell"] = _shell
    python = re.sub(r"^(\s*)!(.*)$", lambda found: f"{found[1]}_shell({found[2]!r})", source, flags=re.MULTILINE)
    tree = ast.parse(python)
    last = ast.Expression(tree.body.pop().value) if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), namespace)  # noqa: S102 - that is what a cell is for
        value = None if last is None else eval(compile(last, "cell", "eval"), namespace)  # noqa: S307
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        lines = printed.getvalue().splitlines(keepends=True)
        outputs.append({"name": "stdout", "output_type": "stream", "text": lines})
    if value is not None:
        outputs.append({"data": _data(value), "metadata": {}, "output_type": "display_data"})
    return outputs


def _shell(command: str) -> None:
    """Run a command as `!command` does in a notebook."""
    done = subprocess.run(command, shell=True, capture_output=True, text=True, encoding="utf-8", check=False)  # noqa: S602
    if done.returncode or ("|" in command and not done.stdout):  # of a pipe only the last code is known
        raise RuntimeError(f"{command}: exit code {done.returncode}\n{done.stderr}")
    print(done.stdout, end="")


def _data(value: Any) -> dict[str, Any]:
    """A value as the notebook shows it: its HTML where it has one."""
    html = value._repr_html_() if hasattr(value, "_repr_html_") else None
    kind, text = ("text/plain", repr(value)) if html is None else ("text/html", html)
    return {kind: text.splitlines(keepends=True)}


def text_of(made: dict[str, Any]) -> str:
    """A notebook as its file has it."""
    return json.dumps(made, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def main(arguments: list[str]) -> int:
    """Write or check notebooks; the exit code."""
    check = "--check" in arguments
    chosen = [Path(one).resolve() for one in arguments if one != "--check"] or scripts()
    stale = 0
    for script in chosen:
        made = text_of(executed(script.read_text(encoding="utf-8")))
        target = script.with_suffix(".ipynb")
        same = target.exists() and target.read_text(encoding="utf-8") == made
        if check and not same:
            stale += 1
            print(f"{target.name} is not what its script gives today: make docs", file=sys.stderr)
        elif not same:
            target.write_text(made, encoding="utf-8")
    return int(stale > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
