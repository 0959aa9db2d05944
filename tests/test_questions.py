"""Each question is a folder that can be deleted: without it every other one answers."""

import subprocess
import sys
from pathlib import Path

import pytest

import xfcost
from helpers import environment
from xfcost.cli import COMMANDS
from xfcost.spec.load import preset_files

PACKAGE = Path(xfcost.__file__).parent
# `check --against` is a `diff`
LEAVES = sorted({module.partition(".")[0] for module in COMMANDS.values()} - {"diff"})
# Commands that run here; contracts of imports hold of the lines that are not run.
RUN = {"analyze": "analyze gpt2 --no-trace", "compare": "compare vit swin", "reach": "reach vit"}
ALL = """
import importlib, pathlib, sys
from xfcost.cli import app
questions = pathlib.Path(sys.argv[1])
for file in questions.glob("*/[a-z]*.py"):
    importlib.import_module(f"xfcost.questions.{file.parent.name}.{file.stem}")
for words in sys.argv[2:]:
    try:
        app(words.split(), standalone_mode=False)
    except SystemExit as end:
        assert not end.code, (words, end.code)
"""


def linked(folder: Path, target: Path) -> None:
    for one in target.iterdir():
        if one.name != "__pycache__":
            (folder / one.name).symlink_to(one)


@pytest.mark.parametrize("leaf", LEAVES)
def test_every_other_question_answers_without_it(leaf, tmp_path):
    package = tmp_path / "src/xfcost"
    package.mkdir(parents=True)
    (tmp_path / "specs").symlink_to(preset_files()["vit"].parent.parent)
    linked(package, PACKAGE)
    (package / "questions").unlink()
    (package / "questions").mkdir()
    linked(package / "questions", PACKAGE / "questions")
    (package / "questions" / leaf).unlink()
    lines = (PACKAGE / "cli.py").read_text(encoding="utf-8").splitlines(keepends=True)
    (package / "cli.py").unlink()
    kept = [line for line in lines if f'": "{leaf}.' not in line]
    assert len(kept) < len(lines)
    (package / "cli.py").write_text("".join(kept), encoding="utf-8")
    words = [line for question, line in RUN.items() if question != leaf]
    done = subprocess.run(
        [sys.executable, "-c", ALL, str(package / "questions"), *words],
        cwd=tmp_path, env=environment(PYTHONPATH=str(package.parent)), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
