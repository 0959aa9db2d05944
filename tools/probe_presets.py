"""Does every part of every preset read the tokens that its rows declare? `python tools/probe_presets.py [presets]`.

Each part is probed as `--probe` does, equal parts once. Prints every row that differs, the first time, and the rows
that are not held against their leaf by their reasons; ends with exit code 1 if a row or a pattern differs.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict

from xfcost.spec.load import load, preset_names
from xfcost.spec.placement import place
from xfcost.spec.run import Run
from xfcost.torch_models.mixing.follower import Budget
from xfcost.torch_models.probing.account import probed_part


def main(names: list[str]) -> int:
    """Print all differences, and the sums."""
    counts: Counter[str] = Counter()
    reasons: defaultdict[str, set[str]] = defaultdict(set)
    seen: set[str] = set()
    parts: dict[str, object] = {}
    for name in names or preset_names():
        for part, *_ in place(load(name), Run()).parts():
            before = len(parts)
            found = probed_part(part, parts, lambda text: None, Budget())
            if len(parts) == before:
                continue
            kind = type(part.component).__name__
            counts["patterns differ" if found.differences else "patterns agree"] += 1
            for text in found.differences:
                print(f"{name} {kind}: {text}", flush=True)
            for row in found.rows:
                counts["not probed" if row.agrees is None else "agree" if row.agrees else "differ"] += 1
                if row.reason:
                    reasons[row.reason].add(f"{kind}.{row.path}")
                if row.agrees is False and f"{kind}.{row.path}" not in seen:
                    seen.add(f"{kind}.{row.path}")
                    print(f"{name} {kind}.{row.path}: declared {row.declared}, found {row.found}", flush=True)
    for reason, rows in sorted(reasons.items()):
        print(f"not probed, {reason}: {', '.join(sorted(rows))}")
    print(", ".join(f"{number:,} {what}" for what, number in sorted(counts.items())))
    return 1 if counts["differ"] or counts["patterns differ"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
