"""The list of planted errors (`tools/plant_errors.py`) still fits the code; running it is a script's business."""

import shlex
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

from plant_errors import Planted, planted_errors  # noqa: E402


@pytest.mark.parametrize("error", planted_errors(), ids=lambda error: error.what)
def test_every_planted_error_can_be_planted(error: Planted) -> None:
    assert error.planted(ROOT)
    files = [word for word in shlex.split(error.tests) if word.startswith("tests/")]
    assert files
    assert all((ROOT / file.partition("::")[0]).is_file() for file in files)


def test_there_are_about_sixty_of_all_kinds() -> None:
    errors = planted_errors()
    assert len({error.what for error in errors}) == len(errors)
    assert {error.kind for error in errors} >= {
        "formula", "pattern", "kind", "module", "handle", "backward", "cache", "unit", "column",
    }  # fmt: skip
    assert len(errors) >= 60
