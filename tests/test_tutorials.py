"""The tutorials: their links, and the README's code. Their cog blocks are checked by `make lint`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
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
