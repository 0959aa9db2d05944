"""Are the kinds found in modules without their spec those that the spec declares? `python tools/ownership_survey.py`.

Each part of each preset (or of those that are named) is made small and its module is looked at as anybody's: kind,
reads and content-dependence of every leaf, beside the declared ones. Equal parts are looked at once. Prints every row
that differs, the first time; ends with exit code 1 if one differs that `tests/known_differences.py` does not name,
or if one named there agrees by now.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from found_kinds import Comparison, of_part, parts_of
from known_differences import KNOWN, reason_for
from xfcost.spec.load import load, preset_names
from xfcost.spec.placement import place
from xfcost.spec.run import Run


def main(names: list[str]) -> int:
    """Print all differences, and the sums."""
    counts: Counter[str] = Counter()
    differing: set[str] = set()
    for name, kind, comparison in compared(names or preset_names()):
        row = f"{kind}.{comparison.row.path}"
        if comparison.difference is None:
            counts["agree"] += 1
            continue
        reason = reason_for(row)
        counts["differ, known" if reason else "differ"] += 1
        if row not in differing:
            print(f"{name} {row}: {comparison.difference}{f' ({reason})' if reason else ''}", flush=True)
        differing.add(row)
    stale = [] if names else sorted(row for rows in KNOWN for row in rows if row not in differing)
    print(", ".join(f"{number:,} {what}" for what, number in sorted(counts.items())))
    if stale:
        print(f"no longer differ: {', '.join(stale)}")
    return 1 if counts["differ"] or stale else 0


def compared(names: list[str]) -> Iterator[tuple[str, str, Comparison]]:
    """Every row of different parts: the preset, the component's class, and what was found."""
    seen: set[str] = set()
    for name in names:
        for part, small in parts_of(place(load(name), Run())):
            key = repr((small.component, small.places, part.residual))
            if key not in seen:
                seen.add(key)
                yield from ((name, type(part.component).__name__, one) for one in of_part(part, small))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
