"""What the tutorial and the check-list of mechanisms name, the code defines."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# of Python and of other packages
OTHERS = {"len", "math", "nn", "torch", "transformers"}
PAGES = ["docs/add-a-mechanism.md", "docs/tutorials/add-a-mechanism.md"]
FILES = [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests/cases").glob("*.py")]


def defined(node: ast.AST) -> Iterator[str]:
    """Names of classes, functions, arguments, variables, attributes, and values of an option."""
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.arg(arg=name):
            yield name
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            yield name
        case ast.Constant(value=str(name)) if name.isidentifier():
            yield name


@pytest.fixture(scope="module")
def known() -> set[str]:
    """All names that the code defines, and the names of its files and of the docs'."""
    nodes = (node for file in FILES for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    pages = {file.name for file in ROOT.glob("docs/*.md")}
    return {name for node in nodes for name in defined(node)} | pages | {file.stem for file in FILES}


def named(page: str) -> set[str]:
    """Dotted names in backticks outside blocks of code; of a call, the function's."""
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    spans = re.findall(r"`([^`]+)`", text)
    return {found[1] for span in spans if (found := re.fullmatch(r"([A-Za-z_][\w.]+)(?:\(.*\))?", span))}


@pytest.mark.parametrize("page", PAGES)
def test_the_code_defines_every_name_in_backticks(page: str, known: set[str]) -> None:
    files = {file.name for file in FILES}
    ours = {name for name in named(page) if name.partition(".")[0] not in OTHERS and "NAME" not in name}
    unknown = {name for name in ours - known - files if not set(name.split(".")) <= known}
    assert unknown == set(), f"{page}: expected names that src defines; these it doesn't"
    assert len(named(page)) > 10
