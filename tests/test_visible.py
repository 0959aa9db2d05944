"""Text of a spec is shown, never obeyed: by a terminal, a spreadsheet, a page of Markdown or HTML, or a figure."""

import json
import os
import re
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import error_of, report_text, stdout_of, table_of, xf
from measured import HEADER, row
from xfcost.api.analysis import analyze, compare
from xfcost.ledger.runs_file import RunsFile
from xfcost.ledger.visible import json_visible, markdown, visible
from xfcost.report import document
from xfcost.report.document import to_csv, to_markup

BAD = "\\e]0;owned\\a\\e[2J\\u202Egnp.exe\\u2066\\x7f\\x9b31m\\u200b"
# What the text above must not leave: controls but for line ends, overrides, characters that are not there.
OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
# What a runner of continuous integration would execute: GitHub's commands, those of Azure Pipelines and of TeamCity.
COMMAND = re.compile(r"(?m)^\s*::|##\w*\[")

SPEC = """
name: plain
paper: "PAPER BAD"
notes: "NOTES BAD"
input: {kind: tokens, vocabulary: 100, length: 8}
embed: [{kind: token, share: table}]
stages: [{dim: 8, depth: 2, block: [{kind: full, heads: 1}]}]
head: {kind: language_model, share: table}
published: [{params: 5, source: "SOURCE BAD", note: "=1+1"}]
""".replace("BAD", BAD)


@given(st.text(st.sampled_from(":#[a \n\t")) | st.text())
def test_nothing_that_is_obeyed_is_left(text: str) -> None:
    shown = visible(text)
    assert all(character == "\n" or character.isprintable() or character.isspace() for character in shown)
    assert not OBEYED.search(shown)
    assert not COMMAND.search(shown)
    assert visible(shown) == shown
    if text.isprintable() and not COMMAND.search(text):
        assert shown == text


@given(st.text(st.sampled_from(":#[a ")) | st.text(st.characters(exclude_categories=["Cs"])))
def test_json_says_what_it_said(text: str) -> None:
    written = json_visible(json.dumps({text: text}, ensure_ascii=False))
    assert json.loads(written) == {text: text}
    assert not OBEYED.search(written)
    assert not COMMAND.search(written)


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    file = tmp_path / "bad.yaml"
    file.write_text(SPEC)
    return file


# A command at the start of a line, behind a line end in a file's name, and one that runners find anywhere.
LOUD = "::error::a\n::error title=x::b\u202e ##[error]c"


@pytest.fixture
def loud(tmp_path: Path) -> Path:
    """Specs, a module, a report and a file of measurements, their names as loud as a system lets them be."""
    name = LOUD.replace("\n", " ")  # a name is one line
    (tmp_path / f"{LOUD}.yaml").write_text(SPEC.replace("plain", json.dumps(name)), encoding="utf-8")
    (tmp_path / "plain.yaml").write_text(SPEC, encoding="utf-8")
    (tmp_path / f"{LOUD}.py").write_text(
        "import torch\nexample_inputs = torch.zeros(1, 4, 8)\ndef build(): return torch.nn.Linear(8, 8)\n"
    )
    fields = json.loads(analyze(tmp_path / "plain.yaml", trace=False).to_json())
    (tmp_path / f"{LOUD}.json").write_text(json.dumps(fields | {"name": LOUD}))
    with closing(RunsFile(tmp_path / f"{LOUD}.jsonl", HEADER, lambda text: None)) as runs:
        for N in (64, 128):
            runs.append(row(name, N))
    return tmp_path


FILE, MODULE, REPORT, RUNS = f"{LOUD}.yaml", f"./{LOUD}.py:build", f"./{LOUD}.json", f"./{LOUD}.jsonl"
TEXTS = ("table", "csv", "markdown", "latex", "json")


@pytest.mark.skipif(os.name != "posix", reason="names of files with control characters")
@pytest.mark.parametrize(
    "words",
    [
        *(["analyze", "--no-trace", FILE, "--format", form] for form in TEXTS),
        ["analyze", MODULE],
        ["analyze", FILE, "--no-trace", "-o", f"new {LOUD}.json"],
        ["analyze", "plain.yaml", "--no-trace", "--set", f"notes={json.dumps(LOUD)}"],
        *(["compare", FILE, "plain.yaml", "--format", form] for form in TEXTS),
        ["compare", "--from", RUNS],
        ["find", FILE, "--max-macs", "1G"],
        ["plot", FILE, "plain.yaml", "--N", "16:64"],
        ["plot", "--from", RUNS],
        ["report", FILE, "plain.yaml", "-o", "new.html"],
        ["report", FILE, "-o", f"new {LOUD}.html"],
        ["measure", FILE, "--N", "8", "--save", f"new {LOUD}.jsonl"],
        *([verb, FILE] for verb in ("diagram", "glance", "reach", "stream", "show")),
        ["glance", FILE, "--format", "markdown"],
        ["show", FILE, "--file"],
        *(["diff", FILE, "plain.yaml", "--format", form] for form in TEXTS),
        ["diff", REPORT, FILE],
        ["diff", RUNS, RUNS],
        ["diff", MODULE, "plain.yaml"],
        *(["check", FILE, MODULE, "--max-macs", "1", "--format", form] for form in TEXTS),
        ["check", FILE, "--max-macs", "1", "--against", REPORT],
        # and what is refused
        ["diff", RUNS, FILE],
        ["analyze", f"none {FILE}"],
        ["analyze", FILE, f"--{LOUD}"],
        ["analyze", FILE, "--set", f"{LOUD}=1"],
        ["check", FILE, "--max-macs", "1", "--against", RUNS],
        ["import", FILE],
        [LOUD],
    ],
    ids=lambda words: " ".join(word for word in words if "::" not in word),
)
def test_no_name_is_obeyed_in_a_log(loud: Path, words: list[str]) -> None:
    done = xf(*words, cwd=loud)
    assert done.returncode in (0, 1, 2), done.stderr
    for written in (done.stdout, done.stderr):
        assert not COMMAND.search(written)
        assert not OBEYED.search(written)


@pytest.mark.skipif(os.name != "posix", reason="names of files with control characters")
@pytest.mark.parametrize(
    ("words", "target"),
    [
        *(([verb, FILE], "new.svg") for verb in ("diagram", "plot", "reach", "stream")),
        (["find", FILE, "--max-macs", "1G"], "new.svg"),
        (["plot", "--from", RUNS], "new.svg"),
        (["roofline", FILE, "--on", "h100-sxm"], "new.svg"),
        (["report", FILE, "plain.yaml"], "new.html"),
    ],
    ids=lambda given: given if isinstance(given, str) else " ".join(word for word in given if "::" not in word),
)
def test_no_picture_or_page_has_it(loud: Path, words: list[str], target: str) -> None:
    stdout_of(*words, "-o", target, cwd=loud)
    text = (loud / target).read_text(encoding="utf-8")
    assert not OBEYED.search(text)
    assert r"\u202e" in text
    if target.endswith("html"):
        assert LOUD[-12:] not in json.dumps(json.loads(text.partition('id="figures">')[2].partition("</script>")[0]))


@pytest.mark.parametrize("key", ["kind", "name", "foo", "extends", "set"])
def test_no_error_has_it(tmp_path: Path, key: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(f'"{key}": "{BAD}"\n"{BAD}": 1\n')
    assert not OBEYED.search(error_of("analyze", file))


@pytest.mark.skipif(os.name != "posix", reason="names of files with control characters")
def test_no_file_name_has_it(tmp_path: Path) -> None:
    (tmp_path / "\x1b[2J\u202e.yaml").write_text("name: 1\n")
    for name in ("\x1b[2J\u202e.yaml", "no\x1b[2J.yaml"):
        assert not OBEYED.search(error_of("analyze", tmp_path / name))


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_a_cell_is_no_formula(start: str) -> None:
    text = to_csv([{"name": f"{start}cmd|' /C calc'!A0", "number": -5, "ratio": -0.5, "none": None, "plain": "a=b"}])
    (row,) = table_of(text)
    assert row["name"].startswith("'")
    assert (row["number"], row["ratio"], row["none"], row["plain"]) == ("-5", "-0.5", "", "a=b")


def test_a_name_ends_no_cell_of_markdown_and_begins_no_tag() -> None:
    name = "a|b\n<script>alert(1)</script>[x](javascript:y)\\|"
    lines = to_markup(document.table_of([{name: name, "n": "1"}]), "markdown").splitlines()
    assert [len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in lines] == [3, 3, 3]
    assert not any(mark in line for line in lines for mark in ("<", ">", "]("))
    assert markdown("QKᵀ / O(N·d²) [CLS] 50 %") == "QKᵀ / O(N·d²) [CLS] 50 %"


def test_a_name_is_no_command_of_latex() -> None:
    cell = to_markup(document.table_of([{"name": r"\input{x} $y$ 5% a_b & #1"}]), "latex").splitlines()[5]
    assert cell == r"\textbackslash{}input\{x\} \$y\$ 5\% a\_b \& \#1 \\"


def test_a_name_is_no_tag_in_a_notebook_nor_a_formula_in_a_figure(spec: Path, tmp_path: Path) -> None:
    spec.write_text(SPEC.replace("name: plain", "name: '_<script>x</script> $a_{$ &amp;'"))
    page = analyze(spec, trace=False)._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    chart = compare(spec, "vit", trace=False)._repr_html_().partition("<svg")[2]
    assert "<script>" not in chart
    assert "&lt;script&gt;" in chart
    target = tmp_path / "x.svg"
    stdout_of("plot", spec, "vit", "--N", "49:196", "-o", target)
    assert "<script>" not in target.read_text()
    stdout_of("diagram", spec, "-o", tmp_path / "d.svg")


def test_the_preamble_is_escaped_too(spec: Path) -> None:
    spec.write_text(SPEC.replace("name: plain", "name: 'a|b <script>'"))
    ledger = analyze(spec, trace=False)
    assert report_text(ledger, "markdown").startswith(r"a\|b &lt;script&gt;: ")
    assert report_text(ledger, "latex").startswith("% a$|$b $<$script$>$: ")
