"""The file of measurements: rows appended one by one, torn lines mended, other files and processes left alone."""

import errno
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from measured import HEADER, THERE, measured, row
from xfcost.ledger import runs_file
from xfcost.ledger.errors import OutputError, UsageError
from xfcost.ledger.measurements import Measurement
from xfcost.ledger.runs_file import RunsFile, read_runs


def opened(path: Path, said: list[str] | None = None) -> RunsFile:
    return RunsFile(path, HEADER, (said if said is not None else []).append)


def written(path: Path, *rows: Measurement) -> bytes:
    """A file with these rows, and its bytes."""
    file = opened(path)
    for one in rows:
        file.append(one)
    file.close()
    return path.read_bytes()


def test_a_row_is_a_line_after_the_header_and_is_read_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    content = written(path, row("A"), row("B", 128))
    first, *lines = content.decode().splitlines()
    assert first.startswith('{"tool":"xfcost","format":"measurements","version":1,"machine":{"host":"here"')
    assert len(lines) == 2
    found = read_runs(path)
    assert found.header == HEADER
    assert found.rows == [row("A"), row("B", 128)]
    assert found.whole_bytes == len(content)


def test_of_rows_of_the_same_configuration_the_last_one_counts(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    written(path, row("A", outcome=measured(1.0)), row("B"), row("A", outcome=measured(2.0)), row("A", machine=THERE))
    rows = read_runs(path).rows
    assert [(one.configuration.system, one.machine.host) for one in rows] == [
        ("A", "here"),
        ("B", "here"),
        ("A", "there"),
    ]
    assert rows[0].outcome == measured(2.0)


@pytest.mark.parametrize("lost", [1, 2, 100])
def test_a_torn_last_line_is_cut_off_and_said(tmp_path: Path, lost: int) -> None:
    path = tmp_path / "runs.jsonl"
    whole = written(path, row("A"))
    torn = msgspec.json.encode(row("B"))
    path.write_bytes(whole + torn[:-lost])
    assert read_runs(path).rows == [row("A")]
    said: list[str] = []
    opened(path, said).close()
    assert said == [f"{path}: its last line was torn; {len(torn) - lost:,} bytes of it are cut off"]
    assert path.read_bytes() == whole


def test_a_torn_header_is_written_again(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    header = written(path)
    for length in (0, 3, 30, len(header) - 1):
        path.write_bytes(header[:length])
        opened(path).close()
        assert path.read_bytes() == header


OTHERS = {
    "a line without its end": b'{"weights": [1, 2, 3]}',
    "lines of another tool": b'{"tool":"other","format":"measurements","version":1}\n{}\n',
    "another format": b'{"tool":"xfcost","format":"graph","version":1}\n',
    "no JSON": b"system,N\nA,64\n",
    "no object": b"[1, 2]\n",
    "nothing but an end": b"\n",
    "brackets without an end": b"[" * 100_000 + b"\n",
}


@pytest.mark.parametrize("content", OTHERS.values(), ids=OTHERS)
def test_another_s_file_is_refused_and_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.json"
    path.write_bytes(content)
    for action in (lambda: opened(path), lambda: read_runs(path)):
        with pytest.raises(UsageError, match="is not a file of measurements and stays unchanged"):
            action()
    assert path.read_bytes() == content


def test_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    content = written(path, row()).replace(b'"version":1', b'"version":2', 1)
    path.write_bytes(content)
    with pytest.raises(UsageError, match="version 2"):
        opened(path)
    assert path.read_bytes() == content


def not_utf_8(line: bytes) -> bytes:
    return line.replace(b'"}', b'\xff"}', 1)


@pytest.mark.parametrize(
    ("line", "damage", "told"),
    [
        (1, not_utf_8, ":1 is not a header of measurements.*can't decode byte 0xff"),
        (2, not_utf_8, ":2 is not a row of measurements.*can't decode byte 0xff"),
        (2, lambda line: line[:40] + b"\n", ":2 is not a row of measurements .*delete that line"),
    ],
)
def test_a_damaged_line_is_named_and_nothing_is_lost(
    tmp_path: Path, line: int, damage: Callable[[bytes], bytes], told: str
) -> None:
    path = tmp_path / "runs.jsonl"
    lines = written(path, row("A"), row("B")).splitlines(keepends=True)
    damaged = damage(lines[line - 1])
    assert damaged != lines[line - 1]
    lines[line - 1] = damaged
    path.write_bytes(b"".join(lines))
    for action in (lambda: opened(path), lambda: read_runs(path)):
        with pytest.raises(UsageError, match=f"runs.jsonl{told}"):
            action()
    assert path.read_bytes() == b"".join(lines)


def test_two_processes_do_not_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    file = opened(path)
    script = (
        "import sys; from pathlib import Path; from measured import HEADER; from xfcost.ledger.runs_file import *\n"
        "try: RunsFile(Path(sys.argv[1]), HEADER, print)\n"
        "except OutputError as error: print(error)"
    )
    words = [sys.executable, "-c", script, str(path)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=Path(__file__).parent)
    assert "another xfcost measure is writing it" in done.stdout
    file.close()
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=Path(__file__).parent)
    assert done.stdout == ""


def test_a_full_disk_is_one_error_and_the_file_is_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "runs.jsonl"
    before = written(path, row("A"))
    file = opened(path)
    write = os.write

    def half(descriptor: int, content: bytes) -> int:
        if len(content) < 100:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, content[:-50])

    monkeypatch.setattr(runs_file.os, "write", half)
    with pytest.raises(OutputError, match=r"--save .*runs.jsonl: can't be written: No space left on device"):
        file.append(row("B"))
    assert path.read_bytes() == before
    assert file.rows == [row("A")]
    monkeypatch.undo()
    file.append(row("B"))
    file.close()
    assert read_runs(path).rows == [row("A"), row("B")]


def test_a_write_in_parts_is_one_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "runs.jsonl"
    file, write = opened(path), os.write
    monkeypatch.setattr(runs_file.os, "write", lambda descriptor, content: write(descriptor, content[:100]))
    file.append(row("A"))
    file.close()
    assert read_runs(path).rows == [row("A")]


@pytest.mark.parametrize("name", ["missing/runs.jsonl", ""], ids=["no folder", "a folder"])
def test_a_place_that_can_t_be_written_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(OutputError):
        opened(tmp_path / name)


def test_a_pipe_is_waited_for_after_a_line_that_says_so(tmp_path: Path) -> None:
    pipe, said = tmp_path / "pipe.jsonl", list[str]()
    os.mkfifo(pipe)
    with pytest.raises(UsageError, match="is a pipe or a device"):
        read_runs(pipe)
    content = b"".join(msgspec.json.encode(one) + b"\n" for one in (HEADER, row()))
    with ThreadPoolExecutor(1) as pool:
        pool.submit(pipe.write_bytes, content)
        assert read_runs(pipe, said.append).rows == [row()]
    assert said == [f"{pipe}: is a pipe; waiting until its writer closes it …"]


@pytest.mark.parametrize("name", ["/dev/zero", ".", "socket"])
def test_what_could_be_read_for_ever_or_is_no_file_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with closing(socket.socket(socket.AF_UNIX)) as server:
        server.bind("socket")
        with pytest.raises(UsageError, match=r"is a pipe or a device, which could|is a directory; expected a file"):
            read_runs(Path(name), lambda _: None)


def test_a_file_has_a_largest_size(tmp_path: Path) -> None:
    large = tmp_path / "large.jsonl"
    with large.open("wb") as stream:
        stream.truncate(256_000_001)  # without a byte on the disk
    with pytest.raises(UsageError):
        read_runs(large)
    with pytest.raises(OutputError):
        opened(large)


def edited(content: bytes, path: tuple[str, ...], value: Any) -> bytes:
    """The file with one value of its first row changed by hand."""
    header, line = content.splitlines()
    fields = msgspec.json.decode(line)
    part = fields
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    return header + b"\n" + msgspec.json.encode(fields) + b"\n"


IMPOSSIBLE = {
    "outcome.timing": [None],
    "outcome.timing.seconds": [0.0, -1.0, 1e308],
    "outcome.timing.times": [[0.5, 0.0]],
    "outcome.timing.interval": [[2.0, 0.1], [0.6, 0.7]],
    "outcome.timing.roofs": [{"flops_per_second": 1e9, "bytes_per_second": 0.0}],
    "outcome.memory.predicted": [-4],
    "outcome.seconds_by_mixing": [{"global": -0.5}, {"global": 1e308}],
    "outcome.points": [[["Norm", "local", 0.5, 0.5, 4, 0]]],
    "counted.macs": [-1],
    "counted.by_mixing": [{"global": {"macs": -7}}],
    "configuration.N": [0],
    "configuration.size": [[64, -64]],
    "configuration.batch": [0],
    "configuration.threads": [0],
    "configuration.system": ["\x1b[31mA"],
    "configuration.run_options": [{"x": 1}],
    "machine.host": ["\x1b[31mA"],
}


@pytest.mark.parametrize(("path", "value"), [(path, value) for path, values in IMPOSSIBLE.items() for value in values])
def test_a_row_that_no_measurement_gives_is_an_error(tmp_path: Path, path: str, value: Any) -> None:
    file = tmp_path / "runs.jsonl"
    content = edited(written(file, row("A")), tuple(path.split(".")), value)
    file.write_bytes(content)
    told = rf"{re.escape(str(file))}:2 is not a row of measurements \(.*{path.rpartition('.')[2].split('_')[0]}"
    for action in (lambda: read_runs(file), lambda: opened(file)):
        with pytest.raises(UsageError, match=told):
            action()
    assert file.read_bytes() == content
