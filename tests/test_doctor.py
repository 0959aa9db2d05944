"""`xfcost doctor`: what is here, what is missing, and how to get it."""

import json
import os
import platform
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from packaging.version import Version

import xfcost
from calibrated import calibration, keep_calibration
from helpers import environment, stdout_of
from xfcost.ledger import tested
from xfcost.ledger.calibration import write_calibration
from xfcost.ledger.tested import TESTED, Releases
from xfcost.questions.doctor import answer as module
from xfcost.questions.doctor.answer import doctor

ROOT = Path(__file__).parents[1]


def state_of(what):
    """What was found of it, and its state; of the first of several."""
    return next((one.found, one.state) for one in doctor() if one.what == what)


def test_versions_are_those_that_run(tmp_path):
    rows = {
        row["what"]: row for row in json.loads(stdout_of("doctor", "--format", "json", XDG_CONFIG_HOME=str(tmp_path)))
    }
    assert (rows["Python"]["found"], rows["Python"]["state"]) == (platform.python_version(), "ok")
    assert rows["torch"]["found"] == version("torch")
    assert rows["calibration"] == {
        "what": "calibration", "found": "", "state": "optional", "get": "xfcost calibrate",
        "use": f"for --predict; kept in {tmp_path / 'xfcost'}",
    }  # fmt: skip
    assert len(stdout_of("doctor", COLUMNS="300", XDG_CONFIG_HOME=str(tmp_path)).splitlines()) == len(rows)


def test_a_missing_program_says_where_to_get_it(tmp_path):
    assert "https://git-scm.com" in stdout_of("doctor", COLUMNS="200", PATH=str(tmp_path))


def test_a_required_library_that_is_missing_or_too_old_is_wrong(monkeypatch):
    needed = ["msgspec>=0.1", "typer>=999", "no-such-library>=2", 'old; python_version < "3"']
    needed += ["distributed>=9999; extra == 'cluster'"]
    monkeypatch.setattr(module, "requires", lambda name: needed)
    rows = {row.what: row for row in doctor()}
    assert rows["typer"].state == rows["no-such-library"].state == "wrong"
    assert rows["no-such-library"].get == "pip install 'no-such-library>=2'"
    assert rows["distributed"].state == "optional"
    assert rows["libraries"].use == "1 of 3 that it requires"
    assert "old" not in rows


@pytest.mark.parametrize(("number", "state"), [("2.10.1", "wrong"), ("2.11.0+cpu", "ok"), ("2.99.0", "optional")])
def test_torch_is_held_against_the_versions_of_the_tests(monkeypatch, number, state):
    monkeypatch.setattr(module, "version", lambda name: number)
    monkeypatch.setattr(module, "requires", lambda name: [])
    assert state_of("torch") == (number, state)


def test_a_release_that_was_not_tested_says_which_were(monkeypatch):
    monkeypatch.setattr(module, "version", {"transformers": "5.99.0", "rich": "13.7.0", "torch": "2.99"}.get)
    monkeypatch.setattr(module, "requires", lambda name: ["rich", "transformers; extra == 'test'"])
    monkeypatch.setattr(tested, "TESTED", TESTED | {"transformers": Releases("4.57.0", "5.23.0")})
    rows = {row.what: row for row in doctor()}
    assert rows["transformers"][1:4] == ("5.99.0", "optional", "not tested (tested: 4.57 to 5.23)")
    assert rows["torch"].use == f"not tested (tested: {TESTED['torch'].text})"
    assert (rows["libraries"].found, "rich" in rows) == ("rich 13.7.0", False)


def test_a_report_has_one_note_of_a_release_that_was_not_tested(monkeypatch):
    monkeypatch.setattr(tested, "TESTED", {"torch": Releases("1.0", "1.5.0")})
    for options in ({}, {"mode": "decode"}):
        ledger = xfcost.analyze("vit" if not options else "gpt2", N=16, **options)
        note = f"torch {version('torch')}: not tested (tested: 1 to 1.5)"
        assert ledger.metadata.notes.count(note) == 1
    monkeypatch.undo()
    assert [tested.untested("torch", release) for release in (*TESTED["torch"], "2.13.0+cpu")] == [None] * 3


def test_the_package_requires_what_was_tested_and_ci_installs_the_newest_of_it():
    required = dict(re.findall(r'"([a-z0-9_]+)>=([^";]+)', (ROOT / "pyproject.toml").read_text()))
    pins = re.findall(r"\n([A-Za-z0-9_]+)==([^;\n]+)(?=\n|; python_version >)", (ROOT / "constraints.txt").read_text())
    installed = {name.lower(): release for name, release in pins}
    for name, (oldest, newest) in TESTED.items():
        assert Version(required[name]) == Version(oldest), name
        assert name == "torch" or installed[name] == newest, name  # torch: the build for CPUs
    for name in ("torch", "transformers"):
        assert f"{name} {TESTED[name].text}" in (ROOT / "README.md").read_text("utf-8")


def test_calibrations_are_listed_with_their_age_or_why_they_are_of_no_use(tmp_path, monkeypatch):
    path = keep_calibration(tmp_path, monkeypatch)
    (found,) = [one for one in doctor() if one.what == "calibration"]
    assert (found.found, found.state) == (str(path), "ok")
    assert found.use.startswith("for --predict on cpu, float32, 1 thread, ")
    path.write_text("{}")
    assert state_of("calibration") == (str(path), "optional")
    write_calibration(path, calibration())
    (found,) = [one for one in doctor() if one.what == "calibration"]
    assert found.state == "optional"
    assert "was measured on a processor" in found.use


WITHOUT_TORCH = """
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Finder())
"""


def test_without_torch_a_command_says_how_to_get_it(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_TORCH)
    here = environment(PYTHONPATH=os.pathsep.join([str(tmp_path), *filter(None, sys.path)]))

    def run(*words):
        words = [sys.executable, "-m", "xfcost", *words]
        return subprocess.run(words, env=here, capture_output=True, text=True, check=False)

    done = run("analyze", "vit")
    assert (done.returncode, done.stdout) == (2, "")
    assert "error: torch is not installed: pip install torch; --no-trace counts a spec without it" in done.stderr
    assert run("analyze", "vit", "--no-trace").returncode == 0


def test_a_library_that_is_not_installed_has_one_row(monkeypatch):
    def version(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(module, "version", version)
    assert [row.state for row in doctor() if row.what == "torch"] == ["wrong"]
