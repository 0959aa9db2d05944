"""LaTeX: a paper's table that pdflatex compiles, whatever the characters of a name."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import xfcost
from helpers import error_of, report_text, xf
from xfcost.counting.gallery import gallery_rows
from xfcost.report.latex import MOST_ROWS, RowGroup, formula, latex, latex_table, number, title, width

# All commands that the tables may use: those of LaTeX itself, and booktabs' rules.
KNOWN = {
    *("begin", "end", "toprule", "midrule", "bottomrule", "addlinespace", "multicolumn", "textit", "quad", "mathrm"),
    *("textbackslash", "textasciicircum", "textasciitilde", "ldots", "S", "surd", "sqrt", "cdot", "times", "top"),
    *("log", "Delta", "tau", "phi", "varphi", "circ", "lceil", "rceil", "lfloor", "rfloor", "infty", "delta", "min"),
    *("usepackage", "raggedright", "tabularnewline", "endhead"),
    *("Sigma", "omega", "gamma", "sigma", "theta", "pi", "frac", "mbox", "rightarrow", "leq", "max", "otimes"),
    *("langle", "rangle"),
}
REPORTS = {
    "swin": lambda: report_text(xfcost.analyze("swin", trace=False), "latex"),
    "deepseek": lambda: report_text(xfcost.analyze("deepseek-v3", trace=False), "latex"),
    "train": lambda: report_text(xfcost.analyze("gpt2", mode="train", trace=False), "latex"),
    "by": lambda: report_text(xfcost.analyze("swin", trace=False), "latex", "mixing"),
    "compare": lambda: report_text(xfcost.compare("vit", "swin", N=784), "latex"),
    "reach": lambda: xf("reach", "swin-t", "t5-small", "--format", "latex").stdout,
    "glance": lambda: xf("glance", "vit", "mamba-130m", "--format", "latex").stdout,
    "four": lambda: report_text(xfcost.compare("vit", "swin", "deit-s", "pvt-tiny", N=784), "latex"),
    "diff": lambda: xf("diff", "vit", "swin", "--format", "latex").stdout,
    "stream": lambda: xf("stream", "vit", "--format", "latex").stdout,
    "survey": lambda: xf("survey", "--format", "latex").stdout,
    "device": lambda: xf("devices", "h100-sxm", "--format", "latex").stdout,
}


def document(body: str) -> str:
    head = r"\documentclass{article}\usepackage{booktabs,longtable}\begin{document}"
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
    found = tables(text)
    assert found
    for table in found:
        columns = re.match(r"\\begin\{(?:tabular|longtable)\}\{@\{\}((?:[lr]|p\{[\d.]+pt\})+)@\{\}\}", table)
        assert columns
        number_of = len(re.findall("[lrp](?!t)", columns[1]))
        body = table.partition(r"\toprule")[2].partition(r"\bottomrule")[0]
        rows = [line for line in body.splitlines() if line.endswith(ENDS) and r"\multicolumn" not in line]
        assert rows
        for row in rows:
            assert len(re.findall(r"(?<!\\)&", row)) == number_of - 1, row


def tables(text: str) -> list[str]:
    return re.findall(r"\\begin\{(?:tabular|longtable)\}.*?\\end\{(?:tabular|longtable)\}", text, re.DOTALL)


ENDS = (r"\\", r"\tabularnewline")


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_no_table_is_wider_than_a_page_s_text(tmp_path: Path) -> None:
    """TeX's own measure of each table in a box, in a plain article, whose text is 345 pt wide."""
    every = [table for name in REPORTS for table in tables(REPORTS[name]())]
    every = [re.sub(r"\\endhead", "", table.replace("{longtable}", "{tabular}")) for table in every]
    boxes = [rf"\setbox0=\hbox{{{table}}}\typeout{{WIDTH \the\wd0}}" for table in every]
    text = compiled(tmp_path, "\n".join([*boxes, r"\typeout{PAGE \the\textwidth}x"]))
    widths = [float(width) for width in re.findall(r"^WIDTH ([\d.]+)pt", text, re.MULTILINE)]
    assert len(widths) == len(every)
    assert "PAGE 345.0pt" in text
    assert max(widths) <= 345


@pytest.mark.parametrize(
    ("cell", "points"),
    [
        ("Hand", 7.50 + 5.00 + 5.56 + 5.56),  # advances of cmr10 at 10 pt, from its file of metrics
        (r"22.41\,G", 5 + 5 + 2.78 + 5 + 5 + 1.67 + 7.85),
        ("$d^{2}$", 5.20 + 4.49),  # d of cmmi10, and 2 of cmr7 at 7 pt, with the space after a script
    ],
)
def test_widths_are_those_of_computer_modern(cell: str, points: float) -> None:
    assert width(cell) == pytest.approx(points, rel=0.06)


def test_columns_are_chosen_by_their_headings() -> None:
    for form, mark in (("latex", " & "), ("markdown", " | ")):
        done = xf("analyze", "vit", "--no-trace", "--format", form, "--columns", "FLOPs,operation")
        assert done.returncode == 0, done.stderr
        head = next(line for line in done.stdout.splitlines() if "FLOPs" in line and mark in line)
        assert [word.strip(" |\\") for word in head.strip("| ").split(mark.strip())] == ["FLOPs", "operation"]
        done = xf("analyze", "vit", "--no-trace", "--format", form, "--columns", "FLOPs")
        head = next(line for line in done.stdout.splitlines() if "FLOPs" in line and mark in line)
        assert [word.strip(" |\\") for word in head.strip("| ").split(mark.strip())] == ["operation", "FLOPs"]
        found = xf("find", "vit", "--format", form, "--columns", "macs").stdout
        assert any(line.strip(" |\\").split() == ["preset", mark.strip(), "MACs"] for line in found.splitlines())
    wide = xf("analyze", "gpt2", "--mode", "train", "--no-trace", "--format", "latex", "--columns",
              "operation,mixing,order,reads,params,MACs,backward MACs,FLOPs,share")  # fmt: skip
    assert len(tables(wide.stdout)) > 1  # all that were asked for, in several tables


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--format", "latex", "--columns", "nothing"], "--columns nothing: no table here has it; expected one of"),
        (["--format", "latex", "--columns", "operatoin"], "--columns operatoin: no table here has it; did you mean"),
        (["--columns", "operation"], "--columns: only for --format markdown and latex, not table"),
    ],
)
def test_columns_that_no_table_has_are_refused(words: list[str], message: str) -> None:
    said = error_of("analyze", "vit", "--no-trace", *words)
    assert said.startswith(f"error: {message}")
    assert said.count("\n") == 1


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
    compiled(tmp_path, "\n\n".join(bodies))


def compiled(folder: Path, body: str) -> str:
    """What pdflatex prints of a plain document with this body."""
    file = folder / "tables.tex"
    file.write_text(document(body), encoding="ascii")
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", file.name],
        cwd=folder, capture_output=True, text=True, errors="replace", check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:]
    return done.stdout


def test_numbers_stand_right_and_repeated_blocks_once() -> None:
    text = report_text(xfcost.analyze("vit", trace=False), "latex")
    assert r"\begin{tabular}{@{}lllr@{}}" in text
    assert "% needs \\usepackage{booktabs}" in text
    assert text.count("Attention scores") == 1
    assert r"\multicolumn{4}{@{}l@{}}{\textit{stage 1 $\cdot$ Self-attention $\times$12}} \\" in text
    assert r"total &  &  & 22.41\,G \\" in text
    alternating = report_text(xfcost.analyze("swin", trace=False), "latex")
    assert r"\textit{stage 1 $\cdot$ W-MSA and stage 1 $\cdot$ SW-MSA}" in alternating
    assert alternating.count("Attention scores") == 4  # one per stage
    traced = report_text(xfcost.analyze("vit-ti16"), "latex")
    assert "traced MACs" in traced.partition(r"\begin")[0]  # among those for which there is no room
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
        ("--N ---", r"-{}-N -{}-{}-"),
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
        ("O(N_c²)", "$O(N_{c}^{2})$"),
        ("N·N_max", r"$N\cdot N_{max}$"),
        ("a_b_c", "$a_{b}{}_{c}$"),
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
        r"% needs \usepackage{booktabs}",
        r"\begin{tabular}{@{}r@{}}", r"\toprule", r"a \\", r"\midrule", r"\bottomrule", r"\end{tabular}",
    ]  # fmt: skip


def test_a_table_of_more_rows_than_a_page_has_goes_on_on_the_next() -> None:
    def table(rows: int) -> str:
        return latex_table(["a", "b"], [False, True], [RowGroup("", [["x", "1"]] * rows)])

    assert "longtable" not in table(MOST_ROWS)
    needs, begin, top, heads, middle, repeated, *body = table(MOST_ROWS + 1).splitlines()
    assert needs == r"% needs \usepackage{booktabs,longtable}"
    assert begin == r"\begin{longtable}{@{}lr@{}}"
    assert (top, heads, middle, repeated) == (r"\toprule", r"a & b \\", r"\midrule", r"\endhead")
    assert body == [r"x & 1 \\"] * (MOST_ROWS + 1) + [r"\bottomrule", r"\end{longtable}"]


def test_names_of_presets_are_ascii_too() -> None:
    for row in gallery_rows(totals=False):
        assert latex(str(row["preset"])).isascii()


def test_of_many_systems_a_paper_has_a_row_of_each():
    names = [f"vit-{size}" for size in ("ti16", "s16", "b16", "b32", "l16")]
    text = xf("compare", *names, "--size", "224", "--format", "latex").stdout
    rows = [line.split(" & ")[:2] for line in text.splitlines() if line.startswith("vit-")]
    # MACs of Touvron et al. 2021 (Ti 1.3 G, S 4.6 G) and Dosovitskiy et al. 2021 (B/16 17.6 G, B/32 4.4 G, L/16 61.6 G)
    printed = [1.3, 4.6, 17.6, 4.4, 61.6]
    assert [name for name, _ in rows[:5]] == names
    assert [float(macs.removesuffix(r"\,G")) for _, macs in rows[:5]] == pytest.approx(printed, abs=0.06)
    markdown = xf("compare", *names, "--size", "224", "--format", "markdown").stdout
    assert [line.split("|")[1].strip() for line in markdown.splitlines() if line.startswith("| vit-")] == names
