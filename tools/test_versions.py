"""Run the quick tier of the tests with every advertised version: the oldest and the newest torch, and each Python.

`make test-versions` runs it. An environment is made per version, under the folder of `--folder`, and kept there:
torch's wheels for CUDA are 3 GB, and import without a GPU.

With `--smoke` commands run instead of tests: twenty of them, in a minute. Each must end with its exit code and print a
figure or a sentence that could be another. `make release-check` runs them from a built wheel and from the sdist
(`--built dist/*`), each in an environment that has nothing else: every Python with the pinned torch.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
PINS: Final = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
PINNED: Final = next(pin.partition("==")[2] for pin in PINS if pin.startswith("torch=="))


def _torches() -> list[str]:
    """The oldest and the newest torch of the range that the package states."""
    text = (ROOT / "src/xfcost/torch_models/shared/private_torch.py").read_text(encoding="utf-8")
    return re.findall(r'^(?:OLDEST|NEWEST): Final = "([\d.]+)"', text, re.MULTILINE)


def _pythons() -> list[str]:
    """The versions of Python that pyproject.toml advertises."""
    return re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text(encoding="utf-8"))


class Versions(NamedTuple):
    """A Python and a torch."""

    python: str
    torch: str


class Command(NamedTuple):
    """A command of xfcost, its exit code, and what its output must contain."""

    words: str
    prints: str
    code: int = 0


def _vit(patches: int) -> int:
    """A ViT-S/8: 12 blocks of 12·N·d² + 2·N²·d MACs with d = 384, the patches' map P·192·d, the classifier d·1000."""
    n, d = patches + 1, 384
    return 12 * (12 * n * d**2 + 2 * n**2 * d) + patches * 192 * d + d * 1000


_VIT: Final = _vit(784)
_VIT_16: Final = _vit(16)
_AGREES: Final = "the real torch model agrees exactly"
MODEL: Final = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(2, 3, 1)
        self.norm = nn.LayerNorm(3)
        self.fc = nn.Linear(3, 4)

    def forward(self, x):
        return self.fc(self.norm(self.conv(x).mT))


class Branches(nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: x @ x, lambda x: x @ x @ x, (x,))
"""
SMOKE: Final = (
    Command("--version", "xfcost"),
    Command("list", "vit-b16"),
    Command("analyze vit", _AGREES),
    Command("analyze vit --format json", f'"macs": {_VIT},'),
    Command("analyze swin", _AGREES),
    Command("analyze gpt2 --N 128 --attention fused", _AGREES),
    Command("analyze gpt3", _AGREES),
    Command("analyze resnet-50", _AGREES),
    Command("analyze mixtral-8x7b --N 64", _AGREES),
    Command("analyze mamba2-130m --N 64", _AGREES),
    Command("analyze llama3-8b --mode decode --N 256", _AGREES),
    Command("analyze vit --mode train", _AGREES),
    Command("analyze vit --probe", "the running model agrees, in all 18 operations that could be probed"),
    Command("compare vit swin --trace", "agree"),
    Command("measure vit --N 16 --save runs.csv", f"{_VIT_16 / 1e6:.1f} M"),
    Command("reach swin", "every token depends on every other after block 7 of 12"),
    Command("analyze model.py:Net --input 1x2x5", "90 MACs"),  # 5 places of 2·3 + 3·4
    Command(
        "analyze model.py:Net --input 1x2x5 --mode train", "(90 + 150 MACs)"
    ),  # no gradient of the input: 3·4 twice, 2·3 once
    Command("analyze model.py:Branches --input 8x8", "512 MACs"),  # x @ x
    Command("analyze no-such-preset", "there is no preset 'no-such-preset'", code=2),
)


def environment(versions: Versions, folder: Path, what: Sequence[str]) -> Path | None:
    """The Python of a virtual environment with these versions and `what` pip installs; None where none can be made."""
    base = _pyenv(versions.python) or shutil.which(f"python{versions.python}")
    if base is None:
        print(f"not run: there is no Python {versions.python} on this machine", flush=True)
        return None
    place = folder / f"python{versions.python}-torch{versions.torch}"
    python = place / "bin" / "python"
    pins = place / "constraints.txt"
    try:
        if not python.exists():
            subprocess.run([base, "-m", "venv", str(place)], check=True)
        pins.write_text(
            "\n".join(pin for pin in PINS if not pin.startswith("torch==")) + f"\ntorch=={versions.torch}\n"
        )
        install = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "-q", "-c", str(pins)]
        subprocess.run([*install, "torch"], check=True)
        subprocess.run([*install, *what], check=True)
    except subprocess.CalledProcessError as error:
        print(f"not run: no environment of {_named(versions)} can be made: {error}", flush=True)
        return None
    return python


def _pyenv(python: str) -> str | None:
    """pyenv's Python of this version, if it has one."""
    found = sorted(Path.home().glob(f".pyenv/versions/{python}.*/bin/python"))
    return str(found[-1]) if found else None


def _named(versions: Versions) -> str:
    return f"Python {versions.python}, torch {versions.torch}"


def smoke(python: Path) -> list[str]:
    """What the commands of `SMOKE` do otherwise than they should, in a folder of their own."""
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "model.py").write_text(MODEL)
        for command in SMOKE:
            words = [str(python), "-m", "xfcost", *command.words.split()]
            environ = os.environ | {"COLUMNS": "200"}
            done = subprocess.run(words, cwd=folder, env=environ, capture_output=True, text=True, check=False)
            if done.returncode != command.code or command.prints not in done.stdout + done.stderr:
                last = (done.stderr.splitlines() or [""])[-1]
                expected = f"expected exit code {command.code} and {command.prints!r}"
                failed.append(f"xfcost {command.words}: {expected}, got exit code {done.returncode}: {last}")
    return failed


def main() -> int:
    """One environment after another; 1 where one fails, or where tests can't run for want of one."""
    oldest, newest = _torches()
    middle = f"{sys.version_info.major}.{sys.version_info.minor}"
    others = (Versions(python, PINNED) for python in _pythons() if python != middle)
    runs = [Versions(middle, oldest), Versions(middle, newest), *others]
    every = [Versions(python, PINNED) for python in _pythons()]
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--folder", type=Path, default=ROOT / ".venv-versions", help="where environments are kept")
    options.add_argument("--smoke", action="store_true", help="run commands instead of tests")
    options.add_argument("--oldest", action="store_true", help="with the oldest torch alone")
    options.add_argument("--built", type=Path, nargs="+", metavar="FILE", help="run commands from this wheel or sdist")
    options.add_argument("tests", nargs="*", help="files and options of pytest; the whole quick tier without")
    given = options.parse_args()
    code = 0
    for what in given.built or [None]:
        install = ["-e", f"{ROOT}[test]"] if what is None else [str(what.resolve())]
        for versions in every if what else runs[:1] if given.oldest else runs:
            print(f"== {_named(versions)}{f', {what.name}' if what else ''}", flush=True)
            python = environment(versions, given.folder.resolve() / (what.name if what else ""), install)
            if python is None:
                code |= what is not None or not given.smoke
                continue
            failed = smoke(python) if what or given.smoke else _tested(python, given.tests)
            print("\n".join(f"{_named(versions)}: {one}" for one in failed or ["passed"]), flush=True)
            code |= bool(failed)
    return code


def _tested(python: Path, tests: Sequence[str]) -> list[str]:
    words = [str(python), "-m", "pytest", "-n", "auto", "--tier", "quick", *tests]
    done = subprocess.run(words, cwd=ROOT, check=False)
    return [] if done.returncode == 0 else [f"pytest ended with {done.returncode}"]


if __name__ == "__main__":
    sys.exit(main())
