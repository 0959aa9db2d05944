"""`xfcost WORDS` in a process forked from one that has imported torch, the other libraries and what commands import.

A command in a fresh interpreter takes the same way, a second later. What is imported when is tests/test_start.py's.
"""

import io
import multiprocessing
import os
import runpy
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from xfcost.cli import COMMANDS

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        "torch", "torch._dynamo", "torch.onnx", "torch.distributed", "torch.fx.experimental.symbolic_shapes",
        "fvcore.nn", "typer", "rich.console", "rich.table", "msgspec", "yaml", "pandas", "PIL.Image",
        "matplotlib.figure", "matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg",
        *(f"xfcost.questions.{module}" for module in COMMANDS.values()),
        "xfcost.api.analysis", "xfcost.views.compare", "xfcost.views.analyze",
        "xfcost.torch_models.accounts", "xfcost.torch_models.any_model.targets",
    ]
)  # fmt: skip


# CPU seconds of all commands that have run
seconds = 0.0


def run(
    words: Sequence[str], cwd: str | os.PathLike[str] | None, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """The command, run to its end: its exit code, standard output and standard error."""
    with TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("stdout", "stderr")]
        process = _FORKS.Process(target=_command, args=(words, cwd, dict(environment), *map(str, files)))
        process.start()
        process.join()
        stdout, stderr = (file.read_text(encoding=_encoding(environment)[0]) for file in files)
        with suppress(OSError, ValueError):  # a command that was killed tells none
            global seconds  # noqa: PLW0603 - a sum over all commands of this process
            seconds += float(Path(folder, "seconds").read_text(encoding="utf-8"))
    return subprocess.CompletedProcess(list(words), process.exitcode, stdout, stderr)


def _command(words: Sequence[str], cwd: str | None, environment: Mapping[str, str], stdout: str, stderr: str) -> None:
    """In the forked process: `python -m xfcost WORDS` with this environment and these streams."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd or ".")
    encoding, errors = _encoding(environment)
    sys.stdout = sys.__stdout__ = _stream(1, stdout, encoding, errors or "strict")
    sys.stderr = sys.__stderr__ = _stream(2, stderr, encoding, "backslashreplace")
    sys.argv = ["xfcost", *words]
    end = os._exit
    try:
        runpy.run_module("xfcost", run_name="__main__", alter_sys=True)
    finally:
        Path(stdout).with_name("seconds").write_text(str(sum(os.times()[:4])), encoding="utf-8")
        os._exit = end  # the command refuses it until its process is gone; multiprocessing ends this one by it


def _encoding(environment: Mapping[str, str]) -> tuple[str, str]:
    """What PYTHONIOENCODING says: the encoding, and how errors are handled."""
    encoding, _, errors = environment.get("PYTHONIOENCODING", "utf-8").partition(":")
    return encoding, errors


def _stream(descriptor: int, path: str, encoding: str, errors: str) -> io.TextIOWrapper:
    """The file at `path`, in place of an open descriptor."""
    with open(path, "wb") as file:
        os.dup2(file.fileno(), descriptor)
    return io.TextIOWrapper(
        io.FileIO(descriptor, "wb", closefd=False), encoding=encoding, errors=errors, line_buffering=descriptor == 2
    )
