"""A sweep that is killed at random moments and given again, against one that nobody disturbs.

Usage: python benchmarks/resume.py [kills] [seed]

Five systems at eight sizes. The process of the sweep is killed (SIGKILL) at random moments, spread over the time that
the undisturbed sweep took, and the same command is given again. In the end both files must have the same rows, each
once, and no process of a configuration may outlive its sweep.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

SYSTEMS = ["common-full", "common-linear", "common-sliding", "common-linformer", "common-performer"]
SWEEP = [*SYSTEMS, "--set", "stages.0.depth=1", "--N", "64:512", "--points", "8", "--runs", "1", "--threads", "1"]
ROWS = 40
# A process of a configuration that still runs so long after its sweep was killed is left behind.
ORPHAN_SECONDS = 30


def started(file: Path) -> subprocess.Popen[bytes]:
    """The sweep, with its rows in `file`."""
    command = [sys.executable, "-m", "xfcost", "measure", *SWEEP, "--save", str(file)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def lines(file: Path) -> list[bytes]:
    """The whole lines after the header."""
    return file.read_bytes().split(b"\n")[1:-1] if file.exists() else []


def configurations(file: Path) -> Counter[str]:
    """How often each configuration that was measured has a row."""
    rows = [json.loads(line) for line in lines(file)]
    return Counter(
        json.dumps(row["configuration"], sort_keys=True) for row in rows if row["outcome"]["status"] == "measured"
    )


def killed(file: Path, seconds: float) -> tuple[int, int]:
    """A sweep that is killed after so many seconds: rows of the file then, processes left behind."""
    process = started(file)
    time.sleep(seconds)
    own = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs(own, timeout=ORPHAN_SECONDS)
    return len(lines(file)), len(alive)


def main() -> None:
    """Print each kill, and the verdict; exit code 1 if rows are missing, twice, or processes left behind."""
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    chance = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 0)  # noqa: S311, PLR2004 - moments, no secrets
    with TemporaryDirectory() as folder:
        undisturbed, disturbed = Path(folder, "undisturbed.jsonl"), Path(folder, "disturbed.jsonl")
        before = time.perf_counter()
        started(undisturbed).wait()
        taken = time.perf_counter() - before
        print(f"undisturbed: {sum(configurations(undisturbed).values())} rows in {taken:.0f} s", flush=True)
        orphans = 0
        for number in range(1, kills + 1):
            moment = chance.uniform(0.2, 1.6) * taken / (kills + 1)
            rows, alive = killed(disturbed, moment)
            orphans += alive
            print(f"kill {number} after {moment:.1f} s: {rows} rows, {alive} processes left behind", flush=True)
        started(disturbed).wait()
        expected, found = configurations(undisturbed), configurations(disturbed)
        same = found == expected and len(found) == ROWS and set(found.values()) == {1}
        print(f"\nafter {kills} kills: {len(found)} rows, {'the same, each once' if same else 'not the same'}; "
              f"{orphans} processes left behind")  # fmt: skip
        sys.exit(0 if same and not orphans else 1)


if __name__ == "__main__":
    main()
