"""The pictures of the README and the docs: plots, a diagram of two blocks, reach, the residual stream."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"


def draw(*arguments: str) -> None:
    """Run a command that draws a picture."""
    subprocess.run([sys.executable, "-m", "xfcost", *arguments, "--force"], check=True)


PICTURES.mkdir(exist_ok=True)
draw("plot", "vit", "swin", "--metric", "scores", "--N", "49:12544", "-o", str(PICTURES / "scores.svg"))
family = ["common-full", "common-*", "--N", "128:65536"]
draw("plot", *family, "-o", str(PICTURES / "efficient.svg"))
draw("plot", *family, "--metric", "attention-memory", "-o", str(PICTURES / "efficient-memory.svg"))
draw("plot", "vit-b16", "swin-b", "--size", "224:1024", "-o", str(PICTURES / "resolution.svg"))
decoders = ["llama2-7b", "llama3.1-8b", "mistral-7b-sliding", "mamba-2.8b"]
draw("plot", *decoders, "--metric", "cache", "--N", "64:32768", "-o", str(PICTURES / "cache.svg"))
served = ["llama3.1-70b", "mixtral-8x22b", "deepseek-v3", "--mode", "decode", "--N", "32k", "--on", "h100-sxmx32"]
draw("plot", *served, "--metric", "throughput", "-o", str(PICTURES / "throughput.svg"))
draw("diagram", "vit", "swin", "-o", str(PICTURES / "blocks.svg"))
draw("reach", "swin-t", "convnext-t", "deit-s", "-o", str(PICTURES / "reach.svg"))
draw("stream", "tiny", "-o", str(PICTURES / "residual-stream.svg"))
