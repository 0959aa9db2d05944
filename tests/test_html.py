"""Results at Python's prompt, a short line each, and in a notebook, on light and dark themes."""

import re

import pytest
from rich.text import Text

import xfcost
from pages import contrast
from xfcost.report.console import COLOURS, rich_html, style_sheet

# Backgrounds of outputs: the browser, JupyterLab, VS Code and GitHub.
LIGHT = ("#ffffff", "#f8f8f8")
DARK = ("#111111", "#1e1e1e", "#0d1117")


def test_the_measure_is_wcag_s():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)


@pytest.mark.parametrize("name", COLOURS)
def test_colours_are_readable_on_their_theme_and_without_one(name):
    light, dark, either = COLOURS[name]
    assert min(contrast(light, paper) for paper in LIGHT) >= 4.5
    assert min(contrast(dark, paper) for paper in DARK) >= 4.5
    assert min(contrast(either, paper) for paper in (*LIGHT, *DARK)) >= 3


def variables(selector):
    """The colours that a rule of the style sheet sets."""
    (body,) = re.findall(re.escape(selector) + r"\{([^{}]*)\}", style_sheet())
    return [colour for _, colour in sorted(re.findall(r"--xfcost-(\w+):(#\w{6})", body))]


@pytest.mark.parametrize(
    ("selector", "at"),
    [
        ('[data-jp-theme-light="true"] .xfcost,.vscode-light .xfcost', 0),
        ('[data-jp-theme-light="false"] .xfcost,.vscode-dark .xfcost', 1),
        ("@media (prefers-color-scheme:dark){.xfcost", 1),
    ],
)
def test_every_theme_has_its_colours(selector, at):
    assert variables(selector) == [COLOURS[name][at] for name in sorted(COLOURS)]


def test_without_a_theme_colours_are_the_light_ones():
    assert style_sheet().startswith(f".xfcost{{--xfcost-blue:{COLOURS['blue'][0]};")


def test_styles_become_css_and_text_stays_text():
    text = Text.assemble(("a<b", "bold red"), ("&", "dim"), " plain")
    body = rich_html(lambda width: text).partition("<pre")[2].partition(">")[2]
    assert body == (
        '<span style="color:var(--xfcost-red,#cc5200);font-weight:bold">a&lt;b</span>'
        '<span style="opacity:.75">&amp;</span> plain\n</pre>'
    )


@pytest.mark.parametrize("result", [lambda: xfcost.analyze("swin", trace=False), lambda: xfcost.compare("vit", "swin")])
def test_a_result_has_no_colour_of_its_own(result):
    """The page's own text and background, and of ours only variables with what stands in for them."""
    page = result()._repr_html_().partition("</style>")[2]
    assert re.findall(r"background:(\w+)", page) == ["transparent"]
    assert len(re.findall(r"color:", page)) == 1 + len(re.findall(r"color:var\(--xfcost-\w+,#\w{6}\)", page))
    assert "color:var(" in page


RESULTS = {
    "Ledger ViT-S/8, N = 784 (28×28) + 1: 22.06 M parameters, 22.41 G MACs; 20 operations": lambda: xfcost.analyze(
        "vit", trace=False
    ),
    "Operation stages.0.block.0.scores: Attention scores QKᵀ, global, 2.840 G MACs in 12 blocks": lambda: (
        xfcost.analyze("vit", trace=False).rows[7]
    ),
    "Comparison 2 systems; ViT-S/8: 22.41 G MACs, Swin-T: 4.491 G MACs": lambda: xfcost.compare("vit", "swin"),
    "Diff vit -> swin: 170 changes, 0 the same; macs 22.41 G -> 4.491 G, flops 45.19 G -> 9.059 G, "
    "params 22.06 M -> 28.29 M": lambda: xfcost.diff("vit", "swin"),
    "Report ViT-S/8: 20 operations": lambda: xfcost.diff("vit", "swin").before,
    "Change removed: stages.0.block.1.fc1": lambda: xfcost.diff("vit", "swin").changes[0],
    "FindResult 1 model searched, 0 fit": lambda: xfcost.find("vit", max_macs="1G"),
    "LayerTable n = 10, d = 4, k = 3, r = 3: 7 layer types": lambda: xfcost.layer_types(N=10, d=4),
    "Reach ViT-S/8: 12 steps": lambda: xfcost.reach("vit"),
    "ResidualStream ViT-Ti/16: 24 sub-layers, seed 0": lambda: xfcost.stream("vit-ti16"),
    "Survey 26 systems": xfcost.survey,
    "CheckResult 0 of 1 target within budget": lambda: xfcost.check("vit", max_macs="1G"),
}


@pytest.mark.parametrize("line", RESULTS, ids=lambda line: line.split()[0])
def test_a_result_is_a_line(line):
    result = RESULTS[line]()
    assert repr(result) == f"<{line}>"
    # what has a report of its own prints that
    assert (str(result) == repr(result)) == (line.split()[0] in ("Operation", "Report", "Change"))


def test_a_line_is_short_and_printable_whatever_the_name():
    ledger = xfcost.analyze("vit", trace=False)
    named = ledger.metadata.__class__(name="x\n\x1b[2J" * 1000, tokens="1", grid_tokens=1)
    line = repr(ledger.__class__(metadata=named, rows=()))
    assert line.isprintable()
    assert len(line) < 250
