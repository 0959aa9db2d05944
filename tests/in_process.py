"""`xfcost WORDS` in this process: what the command does from its first line on, without starting one.

Start-up, signals, the ends of processes and closed streams are those of `preloaded` and of tests/test_start.py.
"""

import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from unittest import mock

import pytest

import xfcost.cli
from xfcost.ledger.process_end import refuse_sudden_ends


def run(
    words: Sequence[str], cwd: str | os.PathLike[str] | None, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """The command, run to its end: its exit code, standard output and standard error."""
    encoding, _, errors = environment.get("PYTHONIOENCODING", "utf-8").partition(":")
    code = 0
    with (
        tempfile.TemporaryFile("w+", encoding=encoding, errors=errors or "strict") as stdout,
        tempfile.TemporaryFile("w+", encoding=encoding, errors="backslashreplace") as stderr,
        mock.patch.dict(os.environ, environment, clear=True),
        mock.patch.multiple(sys, argv=["xfcost", *words], stdout=stdout, stderr=stderr),
        ends_refused(),
        warnings.catch_warnings(),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.chdir(cwd or ".")
        warnings.resetwarnings()
        warnings.simplefilter("ignore", DeprecationWarning)  # as in a command: only its own file shows them
        try:
            xfcost.cli.main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        texts = []
        for stream in (stdout, stderr):
            stream.flush()
            stream.seek(0)
            texts.append(stream.read())
    return subprocess.CompletedProcess(list(words), code, *texts)


@contextmanager
def ends_refused() -> Iterator[None]:
    """Inside it, what a command refuses to end its process by is refused; afterwards it works as ever."""
    undone = []

    def refuse() -> None:
        undone.append(refuse_sudden_ends())

    with mock.patch.object(xfcost.cli, "refuse_sudden_ends", refuse):
        try:
            yield
        finally:
            for undo in reversed(undone):
                undo()
