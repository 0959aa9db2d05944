"""The README's pictures: the comparison as the terminal shows it, the scaling plot, the two blocks side by side."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

import xfcost
from xfcost.report.compare import report

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"


def comparison() -> None:
    """`xfcost compare vit swin --N 784 --trace` as an SVG."""
    console = Console(file=io.StringIO(), record=True, width=92, highlight=False, force_terminal=True)
    console.print(report(xfcost.compare("vit", "swin", N=784, trace=True), console.width))
    # Without rich's web fonts: the reader's own monospace font, and nothing fetched.
    form = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL).replace("Fira Code, ", "")
    title = "xfcost compare vit swin --N 784 --trace"
    console.save_svg(str(PICTURES / "compare.svg"), title=title, unique_id="compare", code_format=form)


def drawn(*arguments: str) -> None:
    """A command that draws."""
    subprocess.run([sys.executable, "-m", "xfcost", *arguments, "--force"], check=True)


PICTURES.mkdir(exist_ok=True)
comparison()
drawn("plot", "vit", "swin", "--N", "49:12544", "-o", str(PICTURES / "scaling.svg"))
drawn("plot", "vit", "swin", "--metric", "scores", "--N", "49:12544", "-o", str(PICTURES / "scores.svg"))
family = ["common-full", "common-*", "--N", "128:65536"]
drawn("plot", *family, "-o", str(PICTURES / "efficient.svg"))
drawn("plot", *family, "--metric", "attention-memory", "-o", str(PICTURES / "efficient-memory.svg"))
drawn("plot", "vit-b16", "swin-b", "--size", "224:1024", "-o", str(PICTURES / "resolution.svg"))
decoders = ["llama2-7b", "llama3-8b", "mistral-7b-sliding", "mamba-2.8b"]
drawn("plot", *decoders, "--metric", "cache", "--N", "64:65536", "-o", str(PICTURES / "cache.svg"))
drawn("diagram", "vit", "swin", "-o", str(PICTURES / "blocks.svg"))
