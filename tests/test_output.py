"""Files are written whole or not at all, keep what they were, and stderr decides nothing."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import environment, words_of
from xfcost.ledger.errors import OutputError
from xfcost.report import output
from xfcost.report.output import write_whole

posix = pytest.mark.skipif(os.name != "posix", reason="permissions and signals of POSIX")


@posix
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o755])
def test_what_is_overwritten_keeps_its_permissions(tmp_path: Path, mode: int) -> None:
    target = tmp_path / "report.csv"
    target.write_text("old")
    target.chmod(mode)
    write_whole(target, b"new", force=True)
    assert (target.read_bytes(), stat.S_IMODE(target.stat().st_mode)) == (b"new", mode)


@pytest.mark.parametrize("unnamed", [True, False])
def test_a_new_file_gets_those_of_any_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unnamed: bool) -> None:
    if not unnamed:
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    (tmp_path / "any").touch()
    write_whole(tmp_path / "new", b"new", force=False)
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "any").stat().st_mode
    assert sorted(path.name for path in tmp_path.iterdir()) == ["any", "new"]


@pytest.mark.parametrize("unnamed", [True, False])
def test_what_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unnamed: bool) -> None:
    if not unnamed:
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(output.os, "replace", full)
    (tmp_path / "old").write_text("old")
    with pytest.raises(OutputError, match="No space left"):
        write_whole(tmp_path / "old", b"new", force=True)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("old", "old")]


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="unnamed files of Linux")
def test_a_killed_write_leaves_nothing(tmp_path: Path) -> None:
    """Killed where all is written but nothing is named: by itself, so that nobody need wait for the moment."""
    program = (
        "import os, pathlib, signal\n"
        "from xfcost.report import output\n"
        "output.os.link = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"output.write_whole(pathlib.Path({str(tmp_path / 'report')!r}), b'x' * 100_000, force=False)\n"
    )
    killed = subprocess.run([sys.executable, "-c", program], env=environment(), check=False)
    assert killed.returncode == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a full device")
@pytest.mark.parametrize("stderr", ["2>/dev/full", "2>&-", "2>/dev/null"])
@pytest.mark.parametrize(
    ("words", "code"), [(["analyze", "vit", "--no-trace", "-o", "x.csv"], 0), (["analyze", "nothing"], 2), (["x"], 2)]
)
def test_stderr_decides_nothing(tmp_path: Path, stderr: str, words: list[str], code: int) -> None:
    command = " ".join([*words_of(*words), stderr])
    done = subprocess.run(["/bin/sh", "-c", command], cwd=tmp_path, env=environment(), capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (code, b"")
    assert [path.name for path in tmp_path.iterdir()] == (["x.csv"] if code == 0 else [])
