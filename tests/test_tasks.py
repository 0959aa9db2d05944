"""The questions of tests/data/tasks.yaml are answered by the first command, in its first ten lines of 80 columns."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers import xf

DATA = Path(__file__).parent / "data"
TASKS = yaml.safe_load((DATA / "tasks.yaml").read_text(encoding="utf-8"))
MODEL = """
from torch import nn

Net = nn.Sequential(nn.Embedding(5, 8), nn.Linear(8, 2, bias=False))
"""


@pytest.mark.rest
@pytest.mark.parametrize("task", TASKS, ids=[one["question"] for one in TASKS])
def test_a_task_is_solved_by_the_first_command(task: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL, encoding="utf-8")
    (tmp_path / "config.json").write_text((DATA / "configs" / "llama-3.2-1b.json").read_text(encoding="utf-8"))
    done = xf(*shlex.split(task["command"]), cwd=tmp_path, COLUMNS="80", NO_COLOR="1")
    assert done.returncode == task.get("exit", 0), done.stderr
    answer = " ".join((done.stdout or done.stderr).splitlines()[: task.get("first", 10)])
    assert re.search(task["says"], answer), answer


def test_every_user_has_tasks() -> None:
    assert len(TASKS) == 23
    assert len({one["user"] for one in TASKS}) == 4
