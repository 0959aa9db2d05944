"""The tutorials: what they run still runs, and prints what they say. Their cog blocks are checked by `make lint`."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TUTORIALS = ROOT / "docs" / "tutorials"
COMPONENTS = sorted([*TUTORIALS.glob("*.md"), *TUTORIALS.glob("*.ipynb"), ROOT / "README.md"])


def tool():
    spec = importlib.util.spec_from_file_location("notebook", ROOT / "tools" / "notebook.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def texts(outputs):
    """The text of every output; a picture is its kind alone."""
    return [
        "".join(one["text"]) if "text" in one else "".join(one["data"].get("text/plain", sorted(one["data"])))
        for one in outputs
    ]


def test_the_notebook_s_outputs_are_those_stored(monkeypatch):
    for name in ("COLUMNS", "NO_COLOR", "TERM"):
        monkeypatch.setenv(name, "")  # restored afterwards
    notebook = tool()
    stored = json.loads((TUTORIALS / "operations_at_a_glance.ipynb").read_text(encoding="utf-8"))
    cells = notebook.code_cells(stored)
    fresh = notebook.executed(stored)
    compared = [cell for cell in cells if notebook.UNTESTED not in cell["metadata"].get("tags", ())]
    assert len(compared) == len(cells) - 1
    for cell, outputs in zip(cells, fresh, strict=True):
        if cell in compared:
            assert texts(outputs) == texts(cell["outputs"]), "".join(cell["source"])
    said = "\n".join(text for cell in cells for text in texts(cell["outputs"]))
    assert "616,225 scores per head" in said
    assert "38,416 scores per head" in said


@pytest.mark.parametrize("page", COMPONENTS, ids=lambda page: page.name)
def test_links_lead_to_files(page):
    links = re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_tutorial_is_linked_from_the_readme():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    pages = [page.name for page in COMPONENTS if page.parent == TUTORIALS]
    assert pages
    assert [name for name in pages if f"(docs/tutorials/{name})" not in readme] == []


def test_the_readme_s_python_runs():
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    namespace = {}
    exec(block, namespace)  # noqa: S102 - the README's own code
    assert namespace["ledger"].agreement.exact
    assert f"# {namespace['ledger'].total('macs')}\n" in block
