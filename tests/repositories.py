"""A git repository with a spec and a module, for the tests of `xfcost diff` and `xfcost check`."""

import os
import subprocess
from pathlib import Path

# A token model without embedding; `depth` blocks of width 8.
SPEC = """
name: {name}
input: {{kind: vectors, length: 16, channels: 8}}
stages:
  - {{dim: 8, depth: {depth}, pattern: [[{{kind: full, heads: 2}}, {{kind: mlp, ratio: {ratio}}}]]}}
"""
MODEL = """
import torch
from layers import Layer
from torch import nn

example_inputs = torch.zeros(1, 5, 8)


def build(depth=2):
    return nn.Sequential(*[Layer() for _ in range(depth)])
"""
LAYERS = """
from torch import nn


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, {width})
        self.back = nn.Linear({width}, 8)

    def forward(self, x):
        return x + self.back(self.linear(x))
"""


def spec(name: str = "toy", depth: int = 2, ratio: int = 2) -> str:
    return SPEC.format(name=name, depth=depth, ratio=ratio)


def git(folder: Path, *words: str) -> str:
    """`git WORDS` in a folder, as somebody who has a name, with no configuration of the machine's."""
    who = {f"GIT_{role}_{part}": "a@example.org" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}
    quiet = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    done = subprocess.run(
        ["git", *words], cwd=folder, env=os.environ | who | quiet, capture_output=True, text=True, check=True
    )
    return done.stdout


def repository(folder: Path, files: dict[str, str]) -> Path:
    """A repository with one commit of these files, on the branch `main`."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", "-b", "main")
    commit(folder, files)
    return folder


def commit(folder: Path, files: dict[str, str]) -> None:
    """Write these files and commit everything."""
    write(folder, files)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "files")


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
