"""Median seconds to import and count a Llama config: both in one process, and as two commands.

Usage: python benchmarks/importing.py [rounds]
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CONFIG = Path(__file__).parents[1] / "tests" / "data" / "configs" / "llama-2-7b.json"
ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 11
IMPORT_AND_COUNT = """
import sys
from pathlib import Path
from xfcost.counting.forward import count
from xfcost.importing import import_config
from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.spec.run import Run

config, spec = map(Path, sys.argv[1:])
spec.write_text(import_config(config).text)
assert count(place(load(str(spec)), Run())).total("params") == 6_738_415_616
assert "torch" not in sys.modules
"""


def seconds(*arguments: str) -> float:
    """Wall time of a Python process."""
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    """Print the medians."""
    with tempfile.TemporaryDirectory() as folder:
        spec = str(Path(folder, "spec.yaml"))
        timed = {
            "import and count, one process": ["-c", IMPORT_AND_COUNT, str(CONFIG), spec],
            "xfcost import": ["-m", "xfcost", "import", str(CONFIG), "-o", spec, "--force"],
            "xfcost analyze --no-trace": ["-m", "xfcost", "analyze", spec, "--no-trace"],
        }
        for name, arguments in timed.items():
            print(f"{name}: {statistics.median(seconds(*arguments) for _ in range(ROUNDS)):.3f} s")


if __name__ == "__main__":
    main()
