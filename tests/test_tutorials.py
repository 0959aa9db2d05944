"""The tutorials: their links, and the README's code. Their cog blocks are checked by `make lint`."""

from __future__ import annotations

import re
import shlex
import shutil
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
