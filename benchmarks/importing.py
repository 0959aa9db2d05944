"""A Llama config imported and counted, each as a whole process and both as one: seconds, medians.

Usage: python benchmarks/importing.py [turns]
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CONFIG = Path(__file__).parents[1] / "tests" / "data" / "configs" / "llama-2-7b.json"
TURNS = int(sys.argv[1]) if len(sys.argv) > 1 else 11
BOTH = """
import sys
from pathlib import Path
from xfcost.counting.forward import count
from xfcost.importing import imported
from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.spec.run import Run

config, spec = map(Path, sys.argv[1:])
spec.write_text(imported(config).text)
assert count(place(load(str(spec)), Run())).total("params") == 6_738_415_616
assert "torch" not in sys.modules
"""


def seconds(*arguments: str) -> float:
    """Wall time of one whole process of Python."""
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    """Print the medians."""
    with tempfile.TemporaryDirectory() as folder:
        spec = str(Path(folder, "spec.yaml"))
        timed = {
            "import and count, one process": ["-c", BOTH, str(CONFIG), spec],
            "xfcost import": ["-m", "xfcost", "import", str(CONFIG), "-o", spec, "--force"],
            "xfcost analyze --no-trace": ["-m", "xfcost", "analyze", spec, "--no-trace"],
        }
        for name, arguments in timed.items():
            print(f"{name}: {statistics.median(seconds(*arguments) for _ in range(TURNS)):.3f} s")


if __name__ == "__main__":
    main()
