"""The tutorials: their links, and the README's code. Their cog blocks are checked by `make lint`."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers import xf
from repositories import git

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
TUTORIALS = ROOT / "docs" / "tutorials"
NOTEBOOKS = ROOT / "docs" / "notebooks"
PAGES = sorted([*TUTORIALS.glob("*.md"), *NOTEBOOKS.glob("*.py"), ROOT / "README.md"])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page):
    links = re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_tutorial_and_notebook_is_linked_from_the_readme():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    pages = [page.relative_to(ROOT).as_posix() for page in PAGES if page.parent != ROOT]
    assert pages
    assert [name for name in pages if f"({name.replace('.py', '.ipynb')})" not in readme] == []


def test_the_readme_s_python_runs():
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    namespace = {}
    exec(block, namespace)  # noqa: S102 - the README's own code
    assert namespace["ledger"].agreement.exact
    assert f"# {namespace['ledger'].total('macs')}\n" in block


def test_the_readme_s_questions_are_answered_in_a_clone(tmp_path):
    (table,) = re.findall(r"\| question \| command \|\n(.*?)\n\n", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    commands = [command for line in table.splitlines()[1:] for command in re.findall(r"`xfcost (.*?)`", line)]
    assert len(commands) > len(table.splitlines()[1:])  # one question has two
    shutil.copytree(ROOT / "specs" / "vit", tmp_path / "specs" / "vit")
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "specs")
    done = {command: xf(*shlex.split(command), cwd=tmp_path) for command in commands}
    failed = {command: one.stderr for command, one in done.items() if one.returncode}
    assert failed == {}


# What the tutorial and the check-list of mechanisms name, the code defines ────────────────────────────────────────────


# of Python and of other packages
OTHERS = {"len", "math", "nn", "torch", "transformers"}
ADDING = ["docs/add-a-mechanism.md", "docs/tutorials/add-a-mechanism.md"]
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


@pytest.mark.parametrize("page", ADDING)
def test_the_code_defines_every_name_in_backticks(page: str, known: set[str]) -> None:
    files = {file.name for file in FILES}
    ours = {name for name in named(page) if name.partition(".")[0] not in OTHERS and "NAME" not in name}
    unknown = {name for name in ours - known - files if not set(name.split(".")) <= known}
    assert unknown == set(), f"{page}: expected names that src defines; these it doesn't"
    assert len(named(page)) > 10
