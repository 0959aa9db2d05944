"""Code of users that raises, prints and ends what it should not: a message and exit code 2, and JSON stays JSON."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

import xfcost
from helpers import environment, stdout_of, words_of, xf
from xfcost.ledger.errors import UsageError

CODE = """
import os, sys, torch
from torch import nn

{at_import}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        {at_making}
        self.fc = nn.Linear(8, 8, bias=False)

    def forward(self, x):
        {at_running}
        return self.fc(x)

example_inputs = torch.zeros(1, 4, 8)
"""
PLACES = ("at_import", "at_making", "at_running")
# A budget far above its 4·8·8 = 256 MACs, and one below.
WITHIN, OVER = ("--max-macs", "1G"), ("--max-macs", "1")

RAISES = {
    "a custom BaseException": ("raise type('Stop', (BaseException,), {})('two\\nlines')", "raised Stop: two ("),
    "pytest": ("import pytest; pytest.skip('not here', allow_module_level=True)", "raised Skipped: not here ("),
    "SystemExit": ("sys.exit(0)", "SystemExit: 0 ("),
    "GeneratorExit": ("raise GeneratorExit", "raised GeneratorExit ("),
    "os._exit": ("os._exit(0)", "SystemExit: it called os._exit ("),
    "os.exec": ("os.execvp('true', ['true'])", "SystemExit: it called os.execv ("),
    "the module below os": ("import posix; posix._exit(0)", "SystemExit: it called os._exit ("),
    "an error without a text": ("raise type('Odd', (Exception,), {'__str__': lambda self: 1 / 0})", "Odd ("),
    "an error whose text exits": (
        "raise type('Odd', (Exception,), {'__str__': lambda self: sys.exit(0)})",
        "SystemExit: 0 (",
    ),
    "an error with a name of two lines": ("raise type('A\\n::error::', (Exception,), {})", r"'A\n::error::' ("),
}
PRINTS = {
    "print": "print('SPOILT')",
    "sys.__stdout__": "sys.__stdout__.write('SPOILT\\n')",
    "a descriptor": "os.write(1, b'SPOILT\\n')",
    "a program": "os.system('echo SPOILT')",
    "native code": "import ctypes; ctypes.CDLL(None).printf(b'SPOILT\\n')",
    "at the end": "import atexit; atexit.register(print, 'SPOILT')",
    "no stdout left": "print('SPOILT', file=sys.stderr); sys.stdout = sys.stderr = None",
    "stdout closed": "print('SPOILT', file=sys.stderr); os.close(1)",
}
# What is flushed, or runs, as an interpreter ends: a forked process ends without.
AT_THE_END = {"sys.__stdout__", "at the end"}
posix = pytest.mark.skipif(os.name != "posix", reason="other programs, native code")


def module(folder: Path, **code: str) -> str:
    (folder / "model.py").write_text(CODE.format(**dict.fromkeys(PLACES, "pass") | code), encoding="utf-8")
    return "model.py:Net"


def fresh(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command in an interpreter of its own."""
    return subprocess.run(words_of(*words), cwd=cwd, env=environment(), capture_output=True, text=True, check=False)


@posix
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("what", RAISES)
def test_whatever_it_raises_is_one_line_and_exit_code_2(tmp_path: Path, what: str, place: str) -> None:
    code, told = RAISES[what]
    done = xf("check", module(tmp_path, **{place: code}), *WITHIN, "--format", "json", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr
    assert re.search(r"\(\S*model\.py:\d+\)", done.stderr)
    assert len(done.stderr.splitlines()) == 1


@posix
@pytest.mark.parametrize("command", [["analyze"], ["analyze", "--mixing"], ["compare", "vit"], ["report"]])
def test_other_commands_refuse_alike(tmp_path: Path, command: list[str]) -> None:
    name = module(tmp_path, at_running="os._exit(0)")
    done = xf(command[0], name, *command[1:], cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "it called os._exit" in done.stderr.splitlines()[-1]


@posix
@pytest.mark.parametrize(
    "code",
    [
        "import atexit; atexit.register(lambda: os._exit(0))",
        "import atexit; atexit.register(os._exit, 0)",
        "import atexit; atexit.register(sys.exit, 0)",
        "import threading; end = threading.Thread(target=os._exit, args=(0,)); end.start(); end.join()",
        "sys.excepthook = lambda *_: os._exit(0)",
    ],
)
def test_no_exit_of_its_own_hides_that_it_is_over_its_budget(tmp_path: Path, code: str) -> None:
    done = fresh("check", module(tmp_path, at_import=code), *OVER, "--format", "json", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["within"] is False


@posix
def test_processes_that_it_forks_still_end(tmp_path: Path) -> None:
    fork = (
        "pid = os.fork()\nif pid == 0:\n    os._exit(7)\nassert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7"
    )
    stdout_of("check", module(tmp_path, at_import=fork), *WITHIN, cwd=tmp_path)


@posix
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("what", PRINTS)
def test_whatever_it_prints_goes_to_stderr(tmp_path: Path, what: str, place: str) -> None:
    words = ("check", module(tmp_path, **{place: PRINTS[what]}), *WITHIN, "--format", "json")
    done = (fresh if what in AT_THE_END else xf)(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["within"] is True
    assert "SPOILT" in done.stderr


@posix
def test_an_interrupt_is_one(tmp_path: Path) -> None:
    done = xf("check", module(tmp_path, at_running="raise KeyboardInterrupt"), *WITHIN, cwd=tmp_path)
    assert done.returncode == 130


def test_methods_that_raise_are_the_code_s_own(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(
        "from torch import nn\nclass Net(nn.Linear):\n    def eval(self):\n        raise ValueError('no')\n"
    )
    with pytest.raises(UsageError, match=r"model.py:Net: its code raised ValueError: no \(.*model.py:4\)"):
        xfcost.analyze(f"{tmp_path}/model.py:Net", inputs=["1x8"], build=["in_features=8", "out_features=8"])


def test_an_error_of_ours_is_not_the_module_s(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(
        "from torch import nn\nfrom xfcost.ledger.objects import json_text\n"
        "class Net(nn.Linear):\n    def eval(self):\n        json_text(float('inf'))\n"
    )
    with pytest.raises(ValueError, match="not JSON compliant"):
        xfcost.analyze(f"{tmp_path}/model.py:Net", inputs=["1x8"], build=["in_features=8", "out_features=8"])


def test_the_folder_and_the_process_are_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    end, errors = os._exit, os.sys.stderr
    name = module(tmp_path, at_import="os.chdir('/'); sys.stderr = None")
    assert xfcost.analyze(name, trace=False).total("macs") == 4 * 8 * 8
    assert (Path.cwd(), os._exit, os.sys.stderr) == (tmp_path, end, errors)
