"""Times of whole processes as ratios to a bare fvcore script: the table of docs/benchmarks.md.

Usage: python benchmarks/run.py [rounds]
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 7
BARE = [str(HERE / "bare_fvcore.py")]
OURS = {
    "`xfcost analyze vit --no-trace`": ["-m", "xfcost", "analyze", "vit", "--no-trace"],
    "`xfcost compare vit swin --N 784`": ["-m", "xfcost", "compare", "vit", "swin", "--N", "784"],
    "`xfcost analyze gpt3 --no-trace`": ["-m", "xfcost", "analyze", "gpt3", "--no-trace"],
    "`xfcost list --totals`": ["-m", "xfcost", "list", "--totals"],
    "`xfcost --help`": ["-m", "xfcost", "--help"],
    "`xfcost analyze vit` (traced)": ["-m", "xfcost", "analyze", "vit"],
}


def seconds(arguments: list[str]) -> float:
    """Wall time of one whole process."""
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    """Print the table."""
    times: dict[str, list[float]] = {name: [] for name in ("bare", *OURS)}
    for _ in range(ROUNDS):
        times["bare"].append(seconds(BARE))
        for name, arguments in OURS.items():
            times[name].append(seconds(arguments))
    bare = statistics.median(times["bare"])
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, medians of {ROUNDS} runs.\n")
    print("| command | ratio to the bare script | as a fraction |\n|---|---|---|")
    print(f"| bare script: import fvcore, count a torch ViT | 1 | {bare:.2f} s |")
    for name in OURS:
        ratio = statistics.median(times[name]) / bare
        print(f"| {name} | {ratio:.3f} | 1/{1 / ratio:.1f} |")
    traced = subprocess.run(
        [sys.executable, str(HERE / "trace_gpt3.py")], check=True, capture_output=True, text=True
    ).stdout.split()
    print(
        f"\nTracing GPT-3 175B on `meta`: {traced[0]} of bare fvcore's time on the same model ({traced[1]} s),", end=" "
    )
    print(f"peak memory of the process {int(traced[2]) / 1e6:.0f} MB.")


if __name__ == "__main__":
    main()
