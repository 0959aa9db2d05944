"""Run tests and commands with the oldest and the newest releases of all libraries, and with each Python.

`make test-versions`, `make test-newest` and `make test-oldest` run it. An environment is made per setting, under the
folder of `--folder`, and kept there: torch's wheels for CUDA are 3 GB, and import without a GPU. The oldest releases
are those that src/xfcost/ledger/tested.py records, and the newest those that the registry serves.

A table of versions is printed. Where something fails, the exit code is 1, unless a release is newer than every one that
is recorded: the table says so. A newer release that passes is recorded by the next change.

With `--smoke` commands run instead of tests, in a minute or two. Each must end with its exit code and print a figure or
a sentence that could be another. `make release-check` runs them from a built wheel and from the sdist (`--built
dist/*`), each in an environment that has nothing else: every Python with the pinned releases.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
TESTED: Final = runpy.run_path(str(ROOT / "src/xfcost/ledger/tested.py"))["TESTED"]
# The libraries whose releases change what xfcost reads or prints; with the newest, the tests that name one run.
_WATCHED: Final = ("transformers", "fvcore", "typer", "rich", "pandas")


def _pythons() -> list[str]:
    """The versions of Python that pyproject.toml advertises."""
    return re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text(encoding="utf-8"))


class Setting(NamedTuple):
    """A Python, and which releases of libraries."""

    python: str
    releases: Literal["oldest", "newest", "pinned"]

    def __str__(self) -> str:
        return f"Python {self.python}, the {self.releases} releases"

    @property
    def pins(self) -> str:
        """What pip is held to."""
        if self.releases == "pinned":
            return (ROOT / "constraints.txt").read_text(encoding="utf-8")
        if self.releases == "newest":
            return ""
        numpy = "numpy<2\n"  # what pandas 2.0 and matplotlib 3.7 are built for, though they allow every NumPy
        return numpy + "".join(f"{name}=={tested.oldest}\n" for name, tested in TESTED.items())


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
_AGREES: Final = "on the real torch model agree"
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
    Command("analyze vit", _AGREES),
    Command("--version", "xfcost"),
    Command("list", "vit-b16"),
    Command("analyze vit --format json", f'"macs": {_VIT},'),
    Command("analyze swin", _AGREES),
    Command("analyze gpt2 --N 128 --attention fused", _AGREES),
    Command("analyze gpt3", _AGREES),
    Command("analyze resnet-50", _AGREES),
    Command("analyze mixtral-8x7b --N 64", _AGREES),
    Command("analyze mamba2-130m --N 64", _AGREES),
    Command("analyze llama3-8b --mode decode --N 256", _AGREES),
    Command("analyze vit --mode train", _AGREES),
    Command("analyze vit --probe", "the running model agrees in all 18 operations that could be probed"),
    Command("compare vit swin --trace", "agree"),
    Command("measure vit --N 16 --save runs.csv", f"{_VIT_16 / 1e6:.1f} M"),
    Command("reach swin", "every token depends on every other after block 7 of 12"),
    Command("analyze model.py:Net --input 1x2x5", "90 MACs"),  # 5 places of 2·3 + 3·4
    Command(
        "analyze model.py:Net --input 1x2x5 --mode train", "(90 + 150 MACs)"
    ),  # no gradient of the input: 3·4 twice, 2·3 once
    Command("analyze model.py:Branches --input 8x8", "512 MACs"),  # x @ x
    Command("analyze", "analyze: expected SPEC", code=2),
    Command("analyze no-such-preset", "there is no preset 'no-such-preset'", code=2),
)
# Keys and values of a token are 2·2·4 numbers of 4 bytes; the head has 16·29 MACs for a token, of a prompt the last.
CONFIG: Final = """
{"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_size": 16, "num_hidden_layers": 1, "head_dim": 4,
 "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 24, "vocab_size": 29}
"""
# An encoder of 10 tokens and a decoder, each of width 16.
SPEECH: Final = """
{"model_type": "whisper", "architectures": ["WhisperForConditionalGeneration"], "d_model": 16, "num_mel_bins": 8,
 "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
 "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "vocab_size": 29, "max_source_positions": 10, "max_target_positions": 64,
 "decoder_start_token_id": 1, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
"""
_OF_CONFIG: Final = "analyze qwen3.json --N 8 --dtype float32 --format json --mode"
CONFIGS: Final = (
    Command(f"{_OF_CONFIG} forward", f'"macs": {8 * 16 * 29},'),
    Command(f"{_OF_CONFIG} prefill", f'"bytes": {8 * 2 * 2 * 4 * 4},'),
    Command(f"{_OF_CONFIG} decode", f'"bytes": {8 * 2 * 2 * 4 * 4},'),
    Command(f"{_OF_CONFIG} generate --new-tokens 2", f'"bytes": {9 * 2 * 2 * 4 * 4},'),  # the last token is not kept
    Command(f"{_OF_CONFIG} decode".replace("qwen3", "speech"), f'"bytes": {(8 + 10) * 2 * 16 * 4},'),
)


def environment(setting: Setting, folder: Path, what: Sequence[str]) -> Path | None:
    """The Python of a virtual environment with these releases and `what` pip installs; None where none can be made."""
    base = _pyenv(setting.python) or shutil.which(f"python{setting.python}")
    if base is None:
        print(f"not run: there is no Python {setting.python} on this machine", flush=True)
        return None
    place = folder / f"python{setting.python}-{setting.releases}"
    python, pins = place / "bin" / "python", place / "constraints.txt"
    try:
        if not python.exists():
            subprocess.run([base, "-m", "venv", str(place)], check=True)
        pins.write_text(setting.pins)
        install = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "-qq", "-c", str(pins)]
        if setting.releases == "newest":
            install += ["--upgrade", "--upgrade-strategy", "eager"]
        subprocess.run([*install, "torch"], check=True)  # first and by name: another build of it could be fetched
        subprocess.run([*install, *what], check=True)
    except subprocess.CalledProcessError as error:
        print(f"not run: no environment of {setting} can be made: {error}", flush=True)
        return None
    return python


def _pyenv(python: str) -> str | None:
    """pyenv's Python of this version, if it has one."""
    found = sorted(Path.home().glob(f".pyenv/versions/{python}.*/bin/python"))
    return str(found[-1]) if found else None


_VERSIONS: Final = """
import json
from importlib.metadata import PackageNotFoundError, version
from xfcost.ledger.tested import TESTED, untested
found = {}
for name in TESTED:
    try:
        found[name] = version(name), untested(name, version(name))
    except PackageNotFoundError:
        pass
print(json.dumps(found))
"""


def versions(python: Path) -> dict[str, tuple[str, str | None]]:
    """Library -> its release in an environment, and what is said of one that is not recorded as tested."""
    done = subprocess.run([str(python), "-c", _VERSIONS], check=True, capture_output=True, text=True)
    found: dict[str, tuple[str, str | None]] = json.loads(done.stdout)
    return found


def table(found: Mapping[str, tuple[str, str | None]]) -> str:
    """A line of every library."""
    return "\n".join(f"  {name:13} {release:20} {why or ''}".rstrip() for name, (release, why) in found.items())


def verdict(found: Mapping[str, tuple[str, str | None]], *, failed: bool) -> tuple[int, str]:
    """The exit code, and what is to be done about releases that are not recorded."""
    strange = ", ".join(f"{name} {release}" for name, (release, why) in found.items() if why)
    if not strange:
        return (1, "failed") if failed else (0, "passed")
    if failed:
        return 0, f"failed, with releases that were not tested: {strange}; the next change mends it and records them"
    return 0, f"passed, with releases that were not tested: {strange}; record them in src/xfcost/ledger/tested.py"


# Each command is forked from one process that has imported the libraries; the first one starts a Python.
_COMMANDS: Final = """
import json, os, subprocess, sys
import preloaded

environment = os.environ | {"COLUMNS": "200"}
first, *others = json.load(sys.stdin)
words = [sys.executable, "-m", "xfcost", *first]
done = subprocess.run(words, env=environment, capture_output=True, encoding="utf-8")
for one in (done, *(preloaded.run(words, None, environment) for words in others)):
    print(json.dumps([one.returncode, one.stdout, one.stderr]), flush=True)
"""


def smoke(python: Path, commands: Sequence[Command]) -> list[str]:
    """What commands do otherwise than they should, in a folder of their own."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "model.py").write_text(MODEL)
        (Path(folder) / "qwen3.json").write_text(CONFIG)
        (Path(folder) / "speech.json").write_text(SPEECH)
        given = json.dumps([command.words.split() for command in commands])
        environ = os.environ | {"PYTHONPATH": str(ROOT / "tests"), "PYTHONIOENCODING": "utf-8"}
        script = [str(python), "-c", _COMMANDS]
        ran = subprocess.run(
            script, cwd=folder, env=environ, input=given, stdout=subprocess.PIPE, text=True, check=False
        )
    if ran.returncode:
        return [f"the process of the commands ended with {ran.returncode}"]
    found = zip(commands, ran.stdout.splitlines(), strict=True)
    return [wrong for command, line in found if (wrong := _wrong(command, *json.loads(line)))]


def _wrong(command: Command, code: int, stdout: str, stderr: str) -> str | None:
    if code == command.code and command.prints in stdout + stderr:
        return None
    last = (stderr.splitlines() or [""])[-1]
    expected = f"expected exit code {command.code} and {command.prints!r}"
    return f"xfcost {command.words}: {expected}, got exit code {code}: {last}"


def _tested(python: Path, tests: Sequence[str]) -> list[str]:
    words = [str(python), "-m", "pytest", "-n", "auto", "--tier", "quick", *tests]
    done = subprocess.run(words, cwd=ROOT, check=False)
    return [] if done.returncode == 0 else [f"pytest ended with {done.returncode}"]


def _watched_tests() -> list[str]:
    """The files of tests that name a library whose releases change what xfcost reads or prints."""
    named = re.compile(rf"\b({'|'.join(_WATCHED)})")
    files = sorted((ROOT / "tests").glob("test_*.py"))
    return [str(file) for file in files if named.search(file.read_text(encoding="utf-8"))]


def main() -> int:
    """One environment after another; 1 where one fails, or where tests can't run for want of one."""
    middle = f"{sys.version_info.major}.{sys.version_info.minor}"
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--folder", type=Path, default=ROOT / ".venv-versions", help="where environments are kept")
    options.add_argument("--smoke", action="store_true", help="run commands instead of tests")
    options.add_argument("--oldest", action="store_true", help="with the oldest releases alone")
    options.add_argument("--newest", action="store_true", help="with the newest releases alone")
    options.add_argument("--built", type=Path, nargs="+", metavar="FILE", help="run commands from this wheel or sdist")
    options.add_argument("tests", nargs="*", help="files and options of pytest; the whole quick tier without")
    given = options.parse_args()
    ends = [Setting(middle, one) for one in ("oldest", "newest") if getattr(given, one)]
    pinned = [Setting(python, "pinned") for python in _pythons()]
    every = [Setting(middle, "oldest"), Setting(middle, "newest"), *(one for one in pinned if one.python != middle)]
    code = 0
    for what in given.built or [None]:
        install = ["-e", f"{ROOT}[test]"] if what is None else [str(what.resolve())]
        for setting in pinned if what else ends or every:
            print(f"== {setting}{f', {what.name}' if what else ''}", flush=True)
            python = environment(setting, given.folder.resolve() / (what.name if what else ""), install)
            if python is None:
                code |= what is not None or not given.smoke
                continue
            found = versions(python)
            print(table(found), flush=True)
            failed = smoke(python, SMOKE if what else (*SMOKE, *CONFIGS))
            if not what and not given.smoke:
                watched = _watched_tests() if ends == [Setting(middle, "newest")] else []
                failed += _tested(python, given.tests or watched)
            red, said = verdict(found, failed=bool(failed))
            print("\n".join([*failed, f"{setting}: {said}"]), flush=True)
            code |= red
    return code


if __name__ == "__main__":
    sys.exit(main())
