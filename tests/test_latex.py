"""LaTeX: a paper's table that pdflatex compiles, whatever the characters of a name."""

import functools
import re
import shutil
import subprocess

import pytest

import xfcost
from helpers import error_of, stdout_of, xf
from xfcost.comparing.quantities import QUANTITIES
from xfcost.report.latex import MOST_ROWS, RowGroup, formula, latex, latex_table, number, title

# All commands that the tables may use: those of LaTeX itself, and booktabs' rules.
KNOWN = {
    *("begin", "end", "toprule", "midrule", "bottomrule", "addlinespace", "multicolumn", "textit", "quad", "mathrm"),
    *("textbackslash", "textasciicircum", "textasciitilde", "ldots", "S", "surd", "sqrt", "cdot", "times", "top"),
    *("log", "Delta", "tau", "phi", "varphi", "circ", "lceil", "rceil", "lfloor", "rfloor", "infty", "delta", "min"),
    *("usepackage", "endhead", "linewidth"),
    *("Sigma", "omega", "gamma", "sigma", "theta", "pi", "frac", "mbox", "rightarrow", "leq", "max", "otimes"),
    *("langle", "rangle"),
}
REPORTS = [
    "analyze swin --no-trace", "analyze deepseek-v3 --no-trace", "analyze gpt2 --mode train --no-trace",
    "analyze swin --no-trace --by mixing", "compare vit swin --N 784", "compare vit swin deit-s pvt-tiny --N 784",
    "compare mixtral-8x7b llama3-8b --mode decode",
    "reach swin-t t5-small", "glance vit mamba-130m", "diff vit swin", "stream vit", "survey", "devices h100-sxm",
]  # fmt: skip


@functools.cache
def report_of(words):
    return stdout_of(*words.split(), "--format", "latex")


def document(body):
    head = r"\documentclass{article}\usepackage{booktabs,longtable}\begin{document}"
    return f"{head}\n{body}\n\\end{{document}}\n"


@pytest.mark.parametrize("report", REPORTS)
def test_a_table_is_ascii_with_known_commands_and_closed_formulas(report):
    text = report_of(report)
    assert text.isascii()
    used = set(re.findall(r"\\([A-Za-z]+)", text))
    assert used <= KNOWN, used - KNOWN
    for line in text.splitlines():
        plain = re.sub(r"\\.", "", line)
        assert plain.count("$") % 2 == 0, line
        assert plain.count("{") == plain.count("}"), line
    assert not re.search(r"\^\{[^}]*\}\^|_\{[^}]*\}_", text)  # double scripts stop pdflatex


@pytest.mark.parametrize("report", REPORTS)
def test_every_row_has_every_cell(report):
    found = tables(report_of(report))
    assert found
    for table in found:
        columns = re.match(r"\\begin\{(?:tabular|longtable)\}\{@\{\}((?:[lr]|p\{0\.4.linewidth\})+)@\{\}\}", table)
        assert columns
        number_of = len(re.findall(r"p\{|[lr](?!i)", columns[1].replace("linewidth", "")))
        body = table.partition(r"\toprule")[2].partition(r"\bottomrule")[0]
        rows = [line for line in body.splitlines() if line.endswith(r"\\") and r"\multicolumn" not in line]
        assert rows
        for row in rows:
            assert len(re.findall(r"(?<!\\)&", row)) == number_of - 1, row


def tables(text):
    return re.findall(r"\\begin\{(?:tabular|longtable)\}.*?\\end\{(?:tabular|longtable)\}", text, re.DOTALL)


def test_columns_are_chosen_by_their_headings():
    for form, mark in (("latex", "&"), ("markdown", "|")):
        for chosen, heads in (("FLOPs,operation", ["FLOPs", "operation"]), ("FLOPs", ["operation", "FLOPs"])):
            text = stdout_of("analyze", "vit", "--no-trace", "--format", form, "--columns", chosen)
            head = next(line for line in text.splitlines() if "FLOPs" in line and f" {mark} " in line)
            assert [word.strip(" |\\") for word in head.strip("| ").split(mark)] == heads
        found = stdout_of("find", "vit", "--format", form, "--columns", "macs")
        assert any(line.strip(" |\\").split() == ["preset", mark, "MACs"] for line in found.splitlines())
    columns = "operation,mixing,order,reads,params,MACs,backward MACs,FLOPs,share"
    wide = stdout_of("analyze", "gpt2", "--mode", "train", "--no-trace", "--format", "latex", "--columns", columns)
    assert len(tables(wide)) > 1  # all that were asked for, in several tables


def table_rows(text, form):
    """The cells of its table, without the rule below the headings."""
    mark = {"latex": "&", "markdown": "|"}[form]
    lines = [line for line in text.splitlines() if f"{mark} " in line and not line.startswith("%")]
    marked = [line.removesuffix(r" \\").strip(" |") for line in lines]
    rows = [re.split(rf"\s*(?<!\\)[{mark}]\s*", line) for line in marked]
    return [row for row in rows if not row[0].startswith("--")]


@pytest.mark.parametrize("form", ["latex", "markdown"])
def test_systems_of_a_comparison_are_the_rows_of_one_table(form, tmp_path):
    heads, *rows = table_rows(stdout_of("compare", "vit", "swin", "mixer-s16", "--format", form), form)
    # all three see the same image, which a comment names
    assert heads == ["Model", "N", "Params (M)", "MACs (G)", "FLOPs (G)", "Attention memory (MiB)"]
    found = xfcost.compare("vit", "swin", "mixer-s16").figures
    assert [row[0] for row in rows] == list(found)
    for (_, tokens, *cells), figures in zip(rows, found.values(), strict=True):
        assert int(tokens.replace(",", "")) == figures["tokens"]
        named = {"params": 1e6, "macs": 1e9, "flops": 1e9, "attention_bytes": 2**20}
        for cell, (name, unit) in zip(cells, named.items(), strict=True):
            assert float(cell) == pytest.approx(figures[name] / unit, rel=5e-4)
    target = tmp_path / {"latex": "t.tex", "markdown": "t.md"}[form]
    stdout_of("compare", "vit", "swin", "-o", target)
    assert [row[0] for row in table_rows(target.read_text(), form)] == ["Model", "ViT-S/8", "Swin-T"]


def test_its_columns_are_quantities_by_heading_or_key():
    words = ("compare", "gpt2", "llama3-8b", "--format", "markdown", "--columns")
    heads, small, large = table_rows(stdout_of(*words, "attention_bytes, flops,×first,MACs n^,global MACs"), "markdown")
    assert heads == ["Model", "Attention memory", "FLOPs", "×first", "MACs N^", "Global MACs"]
    assert (small[3], large[2].endswith(" T"), small[2].endswith(" G")) == ("1×", True, True)  # units apart stay
    assert "no table here has it" in error_of(*words, "windows")
    row = table_rows(stdout_of(*words[:3], "--format", "markdown", "--columns", "macs_crossover"), "markdown")[2]
    assert row[1] == "at none counted"
    every = [quantity.head for quantity in QUANTITIES.values()]
    assert len(set(every)) == len(every)
    assert not any("," in head for head in every)


@pytest.mark.parametrize("label", ["name", "model", "system", "label"])
def test_the_column_that_names_the_rows_is_chosen_by_what_it_is_too(label):
    words = ("compare", "gpt2", "bert", "--N", "64", "--format", "markdown", "--columns")
    assert table_rows(stdout_of(*words, f"params,{label}"), "markdown")[0] == ["Params (M)", "Model"]
    assert table_rows(stdout_of(*words, label), "markdown")[0] == ["Model"]
    rows = table_rows(xf("diff", "vit", "swin", *words[5:], f"{label},blocks").stdout, "markdown")
    assert ["operation", "blocks"] in rows
    assert len(rows[0]) > 2  # the table of totals, which has no blocks, is whole, and not its names alone


def test_a_column_that_no_table_has_is_refused_in_one_line_with_all_that_there_are():
    message = error_of("compare", "vit", "swin", "--format", "markdown", "--columns", "nothing")
    assert message.count("\n") == 1
    heads = {quantity.head for name, quantity in QUANTITIES.items() if name in ("params", "macs", "attention_bytes")}
    assert all(f"{head}," in message for head in heads)
    assert "…" not in message


def test_what_a_mode_asks_is_in_its_table():
    def heads(*words):
        return table_rows(stdout_of("compare", *words, "--format", "markdown"), "markdown")[0]

    experts = heads("mixtral-8x7b", "llama3-8b", "--mode", "decode")
    assert experts == ["Model", "N", "Params (G)", "Active params (G)", "Cache", "Read/step (GiB)"]
    on_devices = heads("llama3-8b", "mistral-7b", "--mode", "decode", "--on", "h100-sxm", "--N", "4k")
    assert on_devices == ["Model", "N", "Params (G)", "Cache (MiB)", "Read/step (GiB)", "Lower bound (ms)"]
    trained = heads("gpt2", "gpt2-xl", "--mode", "train")
    assert trained == ["Model", "N", "Params", "Step FLOPs", "Step memory (GiB)"]


def test_names_of_systems_are_escaped(tmp_path):
    for place, name in enumerate(("50 % a_b & #c", "~x^{2}$")):
        (tmp_path / f"{place}.yaml").write_text(f"extends: vit-ti16\nname: {name!r}\n")
    words = ("compare", tmp_path / "0.yaml", tmp_path / "1.yaml", "--no-trace", "--format")
    latex_rows, rows = (table_rows(stdout_of(*words, form), form)[1:] for form in ("latex", "markdown"))
    assert [row[0] for row in latex_rows] == [
        r"50 \% a\_b \& \#c", r"\textasciitilde{}x\textasciicircum{}\{2\}\$",
    ]  # fmt: skip
    assert {len(row) for row in rows + latex_rows} == {6}


WITHOUT_LATEX = (
    shutil.which("kpsewhich") is None
    or not subprocess.run(["kpsewhich", "booktabs.sty"], capture_output=True, text=True, check=False).stdout
)


@pytest.mark.skipif(
    WITHOUT_LATEX, reason="pdflatex with booktabs is not installed (texlive-latex-recommended of Debian)"
)
def test_pdflatex_compiles_every_table(tmp_path):
    bodies = [report_of(words) for words in REPORTS] + [latex("".join(map(chr, range(33, 0x3000))))]
    compiled(tmp_path, "\n\n".join(bodies))


def compiled(folder, body):
    """What pdflatex prints of a plain document with this body."""
    file = folder / "tables.tex"
    file.write_text(document(body), encoding="ascii")
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", file.name],
        cwd=folder, capture_output=True, text=True, errors="replace", check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:]
    return done.stdout


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("QKᵀ", r"QK$^{\top}$"), ("a × b · c", r"a $\times$ b $\cdot$ c"),
        ("5 % of $x_1 & #2 {~^}\\", r"5 \% of \$x\_1 \& \#2 \{\textasciitilde{}\textasciicircum{}\}\textbackslash{}"),
        ("Nyströmformer, é, ç, ã", r"""Nystr\"{o}mformer, \'{e}, \c{c}, \~{a}"""),
        ("e\u0301", r"\'{e}"),
        ("Zając, ę\u0328", "Zajac, e"),  # a plain document has no ogonek
        ("x\u0338", "x[U+0338]"), ("1–2…", r"1--2\ldots{}"), ("--N ---", r"-{}-N -{}-{}-"),
        ("注意😀", "[U+6CE8][U+610F][U+1F600]"), ("a\nb\x1b", r"a b\textbackslash{}x1b"),
    ],
)  # fmt: skip
def test_characters(text, written):
    assert latex(text) == written


def test_every_character_is_written_in_ascii():
    every = [chr(point) for point in range(0x3000) if not 0xD800 <= point < 0xE000]
    assert [character for character in every if not latex(character).isascii()] == []
    for character in every:
        plain = re.sub(r"\\.", "", latex(character))
        assert plain.count("$") % 2 == 0
        assert plain.count("{") == plain.count("}")


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("O(N·d²)", r"$O(N\cdot d^{2})$"), ("O(N·√N·d)", r"$O(N\cdot \sqrt{N}\cdot d)$"),
        ("O(N·dₖ·log N)", r"$O(N\cdot d_{k}\cdot \log  N)$"), ("10⁻⁶", "$10^{-6}$"), ("O(N_c²)", "$O(N_{c}^{2})$"),
        ("N·N_max", r"$N\cdot N_{max}$"), ("a_b_c", "$a_{b}{}_{c}$"), ("–", "--"),
    ],
)  # fmt: skip
def test_formulas(text, written):
    assert formula(text) == written


def test_numbers_titles_and_tables():
    assert number("22.41 G") == r"22.41\,G"
    assert title("Scale queries 1/√d_k") == r"Scale queries 1/$\sqrt{d_{k}}$"
    assert title("Output projection W_O") == r"Output projection $W_{O}$"
    assert latex_table(["a"], [True], []).splitlines() == [
        r"% needs \usepackage{booktabs}",
        r"\begin{tabular}{@{}r@{}}", r"\toprule", r"a \\", r"\midrule", r"\bottomrule", r"\end{tabular}",
    ]  # fmt: skip


def test_a_table_of_more_rows_than_a_page_has_goes_on_on_the_next():
    def table(rows):
        return latex_table(["a", "b"], [False, True], [RowGroup("", [["x", "1"]] * rows)])

    assert "longtable" not in table(MOST_ROWS)
    needs, begin, top, heads, middle, repeated, *body = table(MOST_ROWS + 1).splitlines()
    assert needs == r"% needs \usepackage{booktabs,longtable}"
    assert begin == r"\begin{longtable}{@{}lr@{}}"
    assert (top, heads, middle, repeated) == (r"\toprule", r"a & b \\", r"\midrule", r"\endhead")
    assert body == [r"x & 1 \\"] * (MOST_ROWS + 1) + [r"\bottomrule", r"\end{longtable}"]
