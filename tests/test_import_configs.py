"""`xfcost import` on configs as the public models' are: parameters to the unit beside the model transformers builds."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from hugging_face import CONFIGS, ours, theirs
from transformers_models import parameters

NAMES = sorted(path.stem for path in CONFIGS.glob("*.json"))


@pytest.mark.parametrize("name", NAMES)
def test_a_full_config_has_their_parameters(name: str, tmp_path: Path) -> None:
    path = Path(shutil.copy(CONFIGS / f"{name}.json", tmp_path))
    values = json.loads(path.read_text())
    assert ours(path).total("params") == parameters(theirs(values, values["architectures"][0]))
