"""The docs: links, the README's code, names that the code defines, notebooks."""

import ast
import importlib.util
import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

import xfcost
from helpers import stdout_of, xf
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


def questions():
    """The README's table: a question and its commands."""
    (table,) = re.findall(r"\| question \| command \|\n(.*?)\n\n", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    return [(line.split("|")[1].strip(), (*re.findall(r"`xfcost (.*?)`", line),)) for line in table.splitlines()[1:]]


def test_xfcost_alone_prints_the_readme_s_commands_and_questions():
    (block,) = re.findall(
        r"^## Three commands\n.*?```sh\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    three = [(line.split("# ")[1].capitalize(), line.split("#")[0].strip()) for line in block.splitlines()]
    shown = stdout_of()
    assert shown.startswith("".join(f"{question}\n  {command}\n" for question, command in three))
    for question, commands in questions():
        assert "\n".join(["", question, *(f"  xfcost {command}" for command in commands), ""]) in shown


@pytest.mark.rest
def test_the_readme_s_questions_are_answered_in_a_clone(tmp_path):
    commands = [command for _, several in questions() for command in several]
    shutil.copytree(ROOT / "specs" / "vit", tmp_path / "specs" / "vit")
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "specs")
    done = {command: xf(*shlex.split(command), cwd=tmp_path) for command in commands}
    failed = {command: one.stderr for command, one in done.items() if one.returncode}
    assert failed == {}


@pytest.mark.rest
def test_the_recipes_run_one_after_the_other(tmp_path):
    page = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    lines = [
        line.split("  #")[0] for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) for line in block.splitlines()
    ]
    commands = [line.removeprefix("xfcost ") for line in lines if line.startswith("xfcost ") and "model.py" not in line]
    assert len(commands) > 10
    if "--lora " not in stdout_of("analyze", "--help", "all"):
        commands = [command for command in commands if "--lora" not in command]
    git(tmp_path, "init", "-q", "-b", "main")
    failed = {}
    for command in commands:
        done = xf(*shlex.split(command), cwd=tmp_path)
        failed |= {command: done.stderr} if done.returncode else {}
        if command.startswith("new "):
            git(tmp_path, "add", ".")
            git(tmp_path, "commit", "-q", "-m", "the spec")
    assert failed == {}


# What the tutorial and the check-list of mechanisms name, the code defines ────────────────────────────────────────────


# of Python and of other packages
OTHERS = {"len", "math", "nn", "torch", "transformers"}
ADDING = ["docs/add-a-mechanism.md", "docs/tutorials/add-a-mechanism.md"]
FILES = [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests/cases").glob("*.py")]


def defined(node):
    """Names of classes, functions, arguments, variables, attributes, and values of an option."""
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.arg(arg=name):
            yield name
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            yield name
        case ast.Constant(value=str(name)) if name.isidentifier():
            yield name


@pytest.fixture(scope="module")
def known():
    """All names that the code defines, and the names of its files and of the docs'."""
    nodes = (node for file in FILES for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    pages = {file.name for file in ROOT.glob("docs/*.md")}
    return {name for node in nodes for name in defined(node)} | pages | {file.stem for file in FILES}


def named(page):
    """Dotted names in backticks outside blocks of code; of a call, the function's."""
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    spans = re.findall(r"`([^`]+)`", text)
    return {found[1] for span in spans if (found := re.fullmatch(r"([A-Za-z_][\w.]+)(?:\(.*\))?", span))}


@pytest.mark.parametrize("page", ADDING)
def test_the_code_defines_every_name_in_backticks(page, known):
    files = {file.name for file in FILES}
    ours = {name for name in named(page) if name.partition(".")[0] not in OTHERS and "NAME" not in name}
    unknown = {name for name in ours - known - files if not set(name.split(".")) <= known}
    assert unknown == set(), f"{page}: expected names that src defines; these it doesn't"
    assert len(named(page)) > 5


# The notebooks of docs/notebooks/: they are what their scripts give today, with the numbers of the lectures ───────────


def tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TOOL = tool("notebook")
every_script = pytest.mark.parametrize("script", TOOL.scripts(), ids=lambda script: script.stem)


def stored(script):
    return json.loads(script.with_suffix(".ipynb").read_text(encoding="utf-8"))


def printed(made):
    """All text that the cells print."""
    outputs = [one for cell in made["cells"] for one in cell.get("outputs", ())]
    return "".join(line for one in outputs for line in one.get("text", ()))


# the others use what it uses, of more presets: `make docs` runs all
@pytest.mark.parametrize("script", TOOL.scripts()[4:], ids=lambda script: script.stem)
def test_the_notebook_is_what_its_script_gives_today(script):
    fresh, there = (TOOL.compared(one) for one in (TOOL.executed(script.read_text(encoding="utf-8")), stored(script)))
    for cell, kept in zip(fresh["cells"], there["cells"], strict=True):
        assert cell == kept, "".join(cell["source"])


@every_script
def test_outputs_are_small_and_the_same_everywhere(script):
    """No seconds, no path of a machine; 20 lines of print in a cell at most, a result with its chart, or a picture."""
    made = stored(script)
    outputs = [cell["outputs"] for cell in made["cells"] if cell["cell_type"] == "code"]
    shown = [(kind, "".join(text)) for cell in outputs for one in cell for kind, text in one.get("data", {}).items()]
    pages = [text for kind, text in shown if kind == "text/html"]
    pictures = [text for kind, text in shown if kind == TOOL.PICTURE]
    assert pictures
    assert max(map(len, pictures)) < 110_000
    (chart,) = [page for page in pages if "<svg" in page]
    assert "per-token" in chart
    assert max(len(one["text"]) for cell in outputs for one in cell if "text" in one) <= 20
    texts = [re.sub(r"<style>.*?</style>|<[^>]+>", "", page, flags=re.DOTALL) for page in pages]
    assert re.findall(r"\d ?(?:ms|µs|s)\b|/(?:home|tmp|work|usr)\b", "".join([printed(made), *texts])) == []


@every_script
def test_a_notebook_stops_with_a_sentence_where_xfcost_is_not_installed(script, monkeypatch):
    monkeypatch.setitem(sys.modules, "xfcost", None)
    with pytest.raises(SystemExit, match=r"This notebook needs xfcost: run pip install"):
        TOOL.executed(script.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("1-operations-at-a-glance", ("all pairs 614,656, in windows 38,416, ratio 16", "616,225 scores per head")),
        ("3-attention", ("768 GiB", "38,416 entries, 150.06 KiB; all 112.55 MiB", "all 192.00 MiB")),
        ("5-attention-notes", ("Q, K, V projections", "Output projection W_O", "MLP down-projection")),
    ],
)
def test_the_numbers_of_the_lectures_come_out(name, numbers):
    text = printed(stored(ROOT / "docs" / "notebooks" / f"{name}.py"))
    assert [number for number in numbers if number not in text] == []


def test_a_stale_notebook_is_found(tmp_path, capsys):
    script = tmp_path / "one.py"
    script.write_text("# %%\nprint(1)\n")
    assert TOOL.main([str(script), "--check"]) == 1
    assert TOOL.main([str(script)]) == 0
    assert TOOL.main([str(script), "--check"]) == 0
    script.write_text("# %%\nprint(2)\n")
    assert TOOL.main([str(script), "--check"]) == 1
    assert "one.ipynb is not what its script gives today" in capsys.readouterr().err


# Pages and their anchors ──────────────────────────────────────────────────────────────────────────────────────────────


def headings(page):
    """The texts of the headings of a page, without those in blocks of code."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"^#{1,6} (.+)$", text, flags=re.MULTILINE)


def anchors(page):
    """The anchors of a page as GitHub makes them: of its headings, repeated ones numbered, and those in its HTML."""
    found = re.findall(r'<a id="([^"]+)"', page.read_text(encoding="utf-8"))
    slugs = [re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-") for heading in headings(page)]
    repeated = [slugs[:at].count(slug) for at, slug in enumerate(slugs)]
    return {*found, *(f"{slug}-{times}" if times else slug for slug, times in zip(slugs, repeated, strict=True))}


DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: page.name)
def test_anchors_lead_to_headings(page):
    links = re.findall(r"\]\(([\w./-]*\.md|)#([^)]+)\)", page.read_text(encoding="utf-8"))
    targets = [(page.parent / file if file else page, anchor) for file, anchor in links]
    assert [f"{target.name}#{anchor}" for target, anchor in targets if anchor not in anchors(target)] == []


def test_the_page_of_python_has_every_public_name():
    page = {heading.replace("`", "").removeprefix("xfcost.") for heading in headings(ROOT / "docs" / "python.md")}
    assert set(xfcost.__all__) - page == set()
