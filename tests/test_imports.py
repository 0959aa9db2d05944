"""What a fresh process imports: counting needs none of the heavy libraries, and importing xfcost none at all."""

import os
import subprocess
import sys
import tempfile

import pytest

from xfcost.layers import EMBEDS, ENTERS, HEADS, SUBLAYERS
from xfcost.mechanisms import MECHANISMS

HEAVY = ("torch", "fvcore", "numpy", "pandas", "sympy", "matplotlib", "transformers", "psutil", "joblib", "distributed")

_PAGE = os.path.join(tempfile.gettempdir(), "xfcost-imports-report.html")
COUNTING = [
    ["analyze", "vit", "--no-trace"],
    ["analyze", "swin", "--no-trace", "--by", "mixing"],
    ["analyze", "gpt3", "--no-trace", "--format", "json"],
    ["analyze", "vit", "--no-trace", "--format", "csv"],
    ["analyze", "vit", "--no-trace", "--format", "markdown"],
    ["analyze", "gpt3-xl", "--mode", "train", "--tokens", "300B", "--on", "a100-sxm-80x8", "--dtype", "bf16"],
    ["compare", "vit", "swin", "--N", "784"],
    ["compare", "vit", "swin", "--N", "784", "--format", "json"],
    ["list"],
    ["list", "--totals"],
    ["show", "vit"],
    ["show", "vit", "--full"],
    ["schema"],
    ["import", "tests/data/configs/llama-2-7b.json"],
    ["diagram", "vit", "swin"],
    ["glance", "vit", "swin"],
    ["report", "vit", "swin", "--N", "784", "-f", "-o", _PAGE],
    ["--help"],
    ["analyze", "--help"],
    ["plot", "--help"],
    ["measure", "--help"],
    ["--version"],
]

_RUN = """
import sys
sys.argv = ["xfcost", *{arguments!r}]
from xfcost.cli import main
try:
    main()
except SystemExit as leaving:
    assert not leaving.code, leaving.code
"""
_PROBE = (
    _RUN
    + """
print("HEAVY:", *sorted(set(sys.modules) & set({heavy!r})), file=sys.stderr)
"""
)


def imported(code: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stderr.splitlines()[-1].removeprefix("HEAVY:").split()


@pytest.mark.parametrize("arguments", COUNTING, ids=" ".join)
def test_counting_imports_no_heavy_library(arguments):
    assert imported(_PROBE.format(arguments=arguments, heavy=HEAVY)) == []


def test_the_probe_sees_torch_where_it_is_imported():
    # The test above can fail: tracing does import torch.
    assert "torch" in imported(_PROBE.format(arguments=["analyze", "vit-ti16", "--trace"], heavy=HEAVY))


def test_a_traced_answer_leaves_torch_s_compiler_alone():
    # torch imports it, over a second, to keep it out of its own shape formulas and dispatch modes.
    assert imported(
        _PROBE.format(arguments=["analyze", "vit"], heavy=("torch._dynamo", "torch._meta_registrations"))
    ) == ["torch._meta_registrations"]


def test_a_module_s_answer_leaves_torch_s_compiler_alone():
    words = ["analyze", "torch.nn:Linear", "--build", "in_features=3", "--build", "out_features=4", "--input", "2x3"]
    assert imported(_PROBE.format(arguments=words, heavy=("torch._dynamo", "torch._meta_registrations"))) == [
        "torch._meta_registrations"
    ]


# The kinds that ViT's spec names; `enter`, windows and experts stay unread.
VIT = ["layers.class_token", "layers.classifier", "layers.mlp", "layers.patch", "layers.position", "mechanisms.full"]
_KINDS = (
    _RUN
    + """
kinds = (one for one in sys.modules if one.startswith(("xfcost.layers.", "xfcost.mechanisms.")))
print("HEAVY:", *sorted(one.removeprefix("xfcost.") for one in kinds), file=sys.stderr)
"""
)


@pytest.mark.parametrize(
    ("arguments", "kinds"),
    [(["analyze", "vit", "--no-trace"], VIT), (["--help"], []), (["list"], [])],
    ids=" ".join,
)
def test_only_the_kinds_that_a_spec_names_are_imported(arguments, kinds):
    assert imported(_KINDS.format(arguments=arguments)) == kinds


def test_the_schema_imports_every_kind():
    lists = (MECHANISMS, EMBEDS, ENTERS, SUBLAYERS, HEADS)
    written = {f"{kinds.package}.{name.partition(':')[0]}" for kinds in lists for name, _ in kinds.names.values()}
    found = imported(_KINDS.format(arguments=["schema"]))
    assert {f"xfcost.{one}" for one in found} == written


def test_importing_xfcost_imports_no_heavy_library():
    code = f"import sys, xfcost\nprint('HEAVY:', *sorted(set(sys.modules) & set({HEAVY!r})), file=sys.stderr)"
    assert imported(code) == []


def test_counting_from_python_imports_no_torch():
    code = (
        "import sys, xfcost\nxfcost.analyze('vit', N=784, trace=False)\nxfcost.compare('vit', 'swin', N=784)\n"
        f"print('HEAVY:', *sorted(set(sys.modules) & set({HEAVY!r})), file=sys.stderr)"
    )
    assert imported(code) == []
