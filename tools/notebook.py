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
PICTURE = "image/svg+xml"
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
    """A value as the notebook shows it: its picture or its HTML where it has one."""
    for kind, name in ((PICTURE, "_repr_svg_"), ("text/html", "_repr_html_")):
        shown = getattr(value, name)() if hasattr(value, name) else None
        if shown is not None:
            text = _compact(shown) if kind == PICTURE else shown
            return {kind: text.splitlines(keepends=True)}
    return {"text/plain": repr(value).splitlines(keepends=True)}


def _compact(svg: str) -> str:
    """A picture of matplotlib in a third fewer letters: one line, no metadata, five digits, short names of glyphs."""
    svg = re.sub(r"<\?xml.*?\?>|<!DOCTYPE.*?>|<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"@media \(prefers-color-scheme: dark\) \{.*?\}\}", "", svg)  # in a page it would turn every icon dark
    svg = re.sub(r"\s*\n\s*", " ", svg.strip()).replace("> <", "><").replace("DejaVuSans-", "d")
    svg = re.sub(r"-?\d+\.\d{3,}", lambda number: f"{float(number[0]):.5g}", svg)
    return re.sub(r'transform="translate\((-?[\d.]+) 0\)"/>', r'x="\1"/>', svg)


def compared(made: dict[str, Any]) -> dict[str, Any]:
    """A notebook with only the texts of its pictures: releases of matplotlib draw the same letters differently."""
    made = json.loads(json.dumps(made))
    for cell in made["cells"]:
        for one in cell.get("outputs", ()):
            if PICTURE in one.get("data", {}):
                one["data"][PICTURE] = re.findall("<!-- (.*?) -->", "".join(one["data"][PICTURE]))
    return made


def text_of(made: dict[str, Any]) -> str:
    """A notebook as its file has it."""
    return json.dumps(made, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def main(arguments: list[str]) -> int:
    """Write or check notebooks; the exit code."""
    check = "--check" in arguments
    chosen = [Path(one).resolve() for one in arguments if one != "--check"] or scripts()
    stale = 0
    for script in chosen:
        made = executed(script.read_text(encoding="utf-8"))
        target = script.with_suffix(".ipynb")
        if not check:
            target.write_text(text_of(made), encoding="utf-8")
        elif not target.exists() or compared(json.loads(target.read_text(encoding="utf-8"))) != compared(made):
            stale += 1
            print(f"{target.name} is not what its script gives today: make docs", file=sys.stderr)
    return int(stale > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
