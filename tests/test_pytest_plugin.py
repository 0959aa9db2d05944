"""The fixture `assert_cost`, in a run of pytest of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from helpers import environment
from test_start import HEAVY

PLUGIN = "xfcost.pytest_plugin"
TESTS = """
import pytest, torch, xfcost

class TestCost:
    # 2 samples of 3 numbers -> 4: 2 * 3 * 4 = 24 MACs; 3 * 4 + 4 = 16 parameters
    model, x = torch.nn.Linear(3, 4), torch.zeros(2, 3)

    def test_within(self, assert_cost):
        assert_cost(self.model, example_inputs=(self.x,), max_macs=24, max_params=16)

    def test_over(self, assert_cost):
        assert_cost(self.model, example_inputs=(self.x,), max_macs=23, max_params=16)

    def test_bad_limit(self, assert_cost):
        with pytest.raises(xfcost.XfcostError, match="max-macs"):
            assert_cost("vit", max_macs="many")
"""


@pytest.mark.rest
def test_a_test_fails_with_the_report_where_a_model_is_over_its_budget(tmp_path):
    (tmp_path / "test_it.py").write_text(TESTS)
    words = [sys.executable, "-m", "pytest", "-p", PLUGIN, "-p", "no:cacheprovider", "test_it.py"]
    done = subprocess.run(
        words,
        cwd=tmp_path,
        env=environment(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    report = done.stdout.partition("TestCost.test_over")[2]
    assert "over 1 of 2 budgets" in report
    assert "1 over (4.35 %)" in report  # 24 / 23 = 1.0435
    assert "AssertionError: over" in report
    assert "pytest_plugin.py" not in report


def test_the_entry_point_names_it():
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    assert f'\n[project.entry-points.pytest11]\nxfcost = "{PLUGIN}"\n' in text


def test_to_load_it_imports_nothing_else_of_xfcost():
    code = f"import sys, pytest; before = {{*sys.modules}}; import {PLUGIN}; print(*({{*sys.modules}} - before))"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    found = {*done.stdout.split()}
    assert {one for one in found if one.startswith("xfcost")} == {"xfcost", PLUGIN}
    assert found.isdisjoint(HEAVY)
