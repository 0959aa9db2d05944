"""LaTeX: a paper's table that pdflatex compiles, whatever the characters of a name."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import xfcost
from helpers import xf
from xfcost.counting.gallery import gallery_rows
from xfcost.report.export import comparison_text, ledger_text
from xfcost.report.latex import formula, latex, latex_table, number, title

# All commands that the tables may use: those of LaTeX itself, and booktabs' rules.
KNOWN = {
    *("begin", "end", "toprule", "midrule", "bottomrule", "addlinespace", "multicolumn", "textit", "quad", "mathrm"),
    *("textbackslash", "textasciicircum", "textasciitilde", "ldots", "S", "surd", "sqrt", "cdot", "times", "top"),
    *("log", "Delta", "tau", "phi", "varphi", "circ", "lceil", "rceil", "lfloor", "rfloor", "infty", "delta", "min"),
    *("Sigma", "omega", "gamma", "sigma", "theta", "pi", "frac", "mbox", "rightarrow", "leq", "max", "otimes"),
}
REPORTS = {
    "swin": lambda: ledger_text(xfcost.analyze("swin", trace=False), "latex"),
    "deepseek": lambda: ledger_text(xfcost.analyze("deepseek-v3", trace=False), "latex"),
    "train": lambda: ledger_text(xfcost.analyze("gpt2", mode="train", trace=False), "latex"),
    "by": lambda: ledger_text(xfcost.analyze("swin", trace=False), "latex", "mixing"),
    "compare": lambda: comparison_text(xfcost.compare("vit", "swin", N=784), "latex"),
    "reach": lambda: xf("reach", "swin-t", "t5-small", "--format", "latex").stdout,
    "glance": lambda: xf("glance", "vit", "mamba-130m", "--format", "latex").stdout,
}


def document(body: str) -> str:
    head = r"\documentclass{article}\usepackage{booktabs}\begin{document}"
    return f"{head}\n{body}\n\\end{{document}}\n"


@pytest.mark.parametrize("report", REPORTS)
def test_a_table_is_ascii_with_known_commands_and_closed_formulas(report: str) -> None:
    text = REPORTS[report]()
    assert text.isascii()
    used = set(re.findall(r"\\([A-Za-z]+)", text))
    assert used <= KNOWN, used - KNOWN
    for line in text.splitlines():
        plain = re.sub(r"\\.", "", line)
        assert plain.count("$") % 2 == 0, line
        assert plain.count("{") == plain.count("}"), line
    assert not re.search(r"\^\{[^}]*\}\^|_\{[^}]*\}_", text)  # double scripts stop pdflatex


@pytest.mark.parametrize("report", REPORTS)
def test_every_row_has_every_cell(report: str) -> None:
    text = REPORTS[report]()
    columns = re.search(r"\\begin\{tabular\}\{([lr]+)\}", text)
    assert columns
    body = text.partition(r"\toprule")[2].partition(r"\bottomrule")[0]
    rows = [line for line in body.splitlines() if line.endswith(r"\\") and r"\multicolumn" not in line]
    assert rows
    for row in rows:
        assert len(re.findall(r"(?<!\\)&", row)) == len(columns[1]) - 1, row


def test_an_ogonek_is_left_out_since_a_plain_document_has_none() -> None:
    assert latex("Zając, ę\u0328") == "Zajac, e"


WITHOUT_LATEX = (
    shutil.which("kpsewhich") is None
    or not subprocess.run(["kpsewhich", "booktabs.sty"], capture_output=True, text=True, check=False).stdout
)


@pytest.mark.skipif(
    WITHOUT_LATEX, reason="pdflatex with booktabs is not installed (texlive-latex-recommended of Debian)"
)
def test_pdflatex_compiles_every_table(tmp_path: Path) -> None:
    bodies = [REPORTS[name]() for name in REPORTS] + [latex("".join(map(chr, range(33, 0x3000))))]
    file = tmp_path / "tables.tex"
    file.write_text(document("\n\n".join(bodies)), encoding="ascii")
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", file.name],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:]


def test_numbers_stand_right_and_repeated_blocks_once() -> None:
    text = ledger_text(xfcost.analyze("vit", trace=False), "latex")
    assert r"\begin{tabular}{llllrrrr}" in text
    assert text.count("Attention scores") == 1
    assert r"\multicolumn{8}{l}{\textit{stage 1 $\cdot$ Self-attention $\times$12}} \\" in text
    assert r"total &  &  &  & 22.06\,M & 22.41\,G & 45.19\,G & 100\,\% \\" in text
    alternating = ledger_text(xfcost.analyze("swin", trace=False), "latex")
    assert r"\textit{stage 1 $\cdot$ W-MSA and stage 1 $\cdot$ SW-MSA}" in alternating
    assert alternating.count("Attention scores") == 4  # one per stage
    traced = ledger_text(xfcost.analyze("vit-ti16"), "latex")
    assert "traced MACs" in traced
    assert "traced MACs" not in text


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("QKᵀ", r"QK$^{\top}$"),
        ("a × b · c", r"a $\times$ b $\cdot$ c"),
        ("5 % of $x_1 & #2 {~^}\\", r"5 \% of \$x\_1 \& \#2 \{\textasciitilde{}\textasciicircum{}\}\textbackslash{}"),
        ("Nyströmformer, é, ç, ã", r"""Nystr\"{o}mformer, \'{e}, \c{c}, \~{a}"""),
        ("e\u0301", r"\'{e}"),
        ("x\u0338", "x[U+0338]"),
        ("1–2…", r"1--2\ldots{}"),
        ("注意😀", "[U+6CE8][U+610F][U+1F600]"),
        ("a\nb\x1b", r"a b\textbackslash{}x1b"),
    ],
)
def test_characters(text: str, written: str) -> None:
    assert latex(text) == written


def test_every_character_is_written_in_ascii() -> None:
    every = [chr(point) for point in range(0x3000) if not 0xD800 <= point < 0xE000]
    assert [character for character in every if not latex(character).isascii()] == []
    for character in every:
        plain = re.sub(r"\\.", "", latex(character))
        assert plain.count("$") % 2 == 0
        assert plain.count("{") == plain.count("}")


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("O(N·d²)", r"$O(N\cdot d^{2})$"),
        ("O(N·√N·d)", r"$O(N\cdot \sqrt{N}\cdot d)$"),
        ("O(N·dₖ·log N)", r"$O(N\cdot d_{k}\cdot \log  N)$"),
        ("10⁻⁶", "$10^{-6}$"),
        ("–", "--"),
    ],
)
def test_formulas(text: str, written: str) -> None:
    assert formula(text) == written


def test_numbers_titles_and_tables() -> None:
    assert number("22.41 G") == r"22.41\,G"
    assert title("Scale queries 1/√d_k") == r"Scale queries 1/$\sqrt{d_{k}}$"
    assert title("Output projection W_O") == r"Output projection $W_{O}$"
    assert latex_table(["a"], [True], []).splitlines() == [
        r"\begin{tabular}{r}", r"\toprule", r"a \\", r"\midrule", r"\bottomrule", r"\end{tabular}",
    ]  # fmt: skip


def test_names_of_presets_are_ascii_too() -> None:
    for row in gallery_rows(totals=False):
        assert latex(str(row["preset"])).isascii()
