"""Are the kinds found in modules without their spec those that the spec declares? `python tools/ownership_survey.py`.

Each part of each preset (or of those that are named) is made small and its module is looked at as anybody's: kind,
reads and content-dependence of every leaf, beside the declared ones. Equal parts are looked at once. Prints every row
that differs, the first time; ends with exit code 1 if one differs that `tests/known_differences.py` does not name.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from found_kinds import of_part, parts_of
from known_differences import reason_for
from xfcost.spec.load import load, preset_names
from xfcost.spec.placement import place
from xfcost.spec.run import Run


def main(names: list[str]) -> int:
    """Print all differences, and the sums."""
    seen: set[str] = set()
    counts: Counter[str] = Counter()
    differences: Counter[tuple[str, str]] = Counter()
    for name in names or preset_names():
        for part, small in parts_of(place(load(name), Run())):
            key = repr((small.component, small.places, part.residual))
            if key in seen:
                continue
            seen.add(key)
            kind = type(part.component).__name__
            for one in of_part(part, small):
                if one.difference is None:
                    counts["agree"] += 1
                    continue
                reason = reason_for(kind, one.row.path)
                counts["differ, known" if reason else "differ"] += 1
                row = f"{kind}.{one.row.path}"
                if not differences[row, reason or ""]:
                    print(f"{name} {row}: {one.difference}{f' ({reason})' if reason else ''}", flush=True)
                differences[row, reason or ""] += 1
    print(", ".join(f"{number:,} {what}" for what, number in sorted(counts.items())))
    return 1 if counts["differ"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
