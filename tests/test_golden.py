"""What commands print, whole: each file of golden/ holds commands of one report, and their answers.

`pytest tests/test_golden.py --rewrite-golden` writes the answers again, for a reader of the diff. No other test holds
the words of a sentence, and this one holds no figure alone: figures of a report's rows add up to its totals, and those
totals are in the text.

A file is a list of blocks: `$ xfcost WORDS`, with settings of the environment before it where there are any, in a
folder that has the files of golden/files/. Then follow standard output, standard error behind `! `, and `exit CODE`
where that is not 0.
"""

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from helpers import xf

FOLDER = Path(__file__).with_name("golden")
REPORTS = sorted(FOLDER.glob("*.txt"))
_VERSIONS = re.compile(r"\b(torch|transformers|xfcost) \d+(?:\.\d+)+")


class Block(NamedTuple):
    """A command and what it printed."""

    line: str
    answer: str

    def words(self) -> tuple[dict[str, str], list[str]]:
        """The settings of the environment, and the words behind `xfcost`."""
        words = shlex.split(self.line)
        start = words.index("xfcost")
        return dict(word.split("=", 1) for word in words[:start]), words[start + 1 :]

    def answered(self, folder: Path) -> str:
        """What it prints today."""
        settings, words = self.words()
        done = xf(*words, cwd=folder, **{"XDG_CONFIG_HOME": str(folder)} | settings)
        lines = done.stdout.splitlines() + [f"! {line}".rstrip() for line in done.stderr.splitlines()]
        lines += [f"exit {done.returncode}"] if done.returncode else []
        return _VERSIONS.sub(r"\1 VERSION", "".join(f"{line}\n" for line in lines))


def blocks_of(file):
    """The blocks of a file."""
    parts = re.split(r"^\$ (.*)\n", file.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return [Block(line, answer.rstrip("\n") + "\n") for line, answer in zip(parts[::2], parts[1::2], strict=True)]


@pytest.fixture
def folder(tmp_path):
    return Path(shutil.copytree(FOLDER / "files", tmp_path / "here"))


@pytest.mark.parametrize("file", REPORTS, ids=lambda file: file.stem)
def test_commands_print_what_they_printed(file, folder, request):
    blocks = blocks_of(file)
    today = [block._replace(answer=block.answered(folder)) for block in blocks]
    if request.config.getoption("--rewrite-golden"):
        text = "\n".join(f"$ {block.line}\n{block.answer}" for block in today)
        file.write_text(text, encoding="utf-8")
        return
    for before, now in zip(blocks, today, strict=True):
        assert now.answer == before.answer, f"{file}: $ {before.line}; --rewrite-golden writes it again"


# The exact totals of a report's heading.
_TOTALS = re.compile(r"^([\d,]+) parameters   ([\d,]+) MACs   ([\d,]+) FLOPs", re.MULTILINE)
_HEADED = [block for file in REPORTS for block in blocks_of(file) if _TOTALS.search(block.answer)]


@pytest.mark.parametrize("block", _HEADED, ids=lambda block: block.line)
def test_the_totals_of_a_heading_are_the_sums_of_the_rows(block, folder):
    settings, words = block.words()
    rows = json.loads(xf(*words, "--format", "json", cwd=folder, **settings).stdout)["operations"]
    sums = [sum(row[name] * row["times"] for row in rows) for name in ("params", "macs", "flops")]
    shown = _TOTALS.search(block.answer)
    assert [int(number.replace(",", "")) for number in shown.groups()] == sums
