"""`tools/planted_errors.yaml` still fits the code; `tools/plant_errors.py` plants its errors."""

import shlex
from pathlib import Path

from plant_errors import planted_errors

ROOT = Path(__file__).resolve().parent.parent


def test_every_planted_error_can_be_planted() -> None:
    errors = planted_errors()
    assert all(error.planted(ROOT) for error in errors)  # raises where a text is not there once
    for error in errors:
        files = [word.partition("::")[0] for word in shlex.split(error.tests) if word.startswith("tests/")]
        assert files, error.what
        assert all((ROOT / file).is_file() for file in files), error.what


def test_there_are_about_sixty_of_all_kinds() -> None:
    errors = planted_errors()
    assert len({error.what for error in errors}) == len(errors)
    assert {error.kind for error in errors} >= {
        "formula", "pattern", "kind", "module", "handle", "backward", "cache", "unit", "column",
    }  # fmt: skip
    assert len(errors) >= 60
