"""Writes docs/gallery.csv, one line per preset at its own size: `python tools/gallery.py [--check]`.

A line has our exact counts, the reference of the tests (tests/data/exact*.csv) and published figures. `--check` writes
nothing and ends with exit code 1 if the file would change.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from xfcost.counting.forward import count
from xfcost.formulas.component import tag_of
from xfcost.ledger import units
from xfcost.ledger.ledger import Ledger
from xfcost.spec.load import load, preset_files
from xfcost.spec.placement import place
from xfcost.spec.run import Run

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "docs" / "gallery.csv"
QUANTITIES = ("params", "active_params", "macs", "flops", "attention_entries")


@cache
def lines() -> tuple[dict[str, Any], ...]:
    """One per preset, in the gallery's order; numbers are exact integers."""
    references = _references()
    return tuple(_line(file.parent.name, preset, references.get(preset, {})) for preset, file in preset_files().items())


def families() -> Iterator[dict[str, str]]:
    """A line per family: its number of presets, their range of parameters, and its first preset."""
    found: dict[str, list[dict[str, Any]]] = {}
    for line in lines():
        found.setdefault(line["family"], []).append(line)
    for family, members in found.items():
        sizes = [units.count(size(line["params"] for line in members)) for size in (min, max)]
        yield {
            "family": f"`{family}`",
            "presets": str(len(members)),
            "parameters": " – ".join(dict.fromkeys(sizes)),
            "for example": f"`{members[0]['preset']}`: {members[0]['name']}",
        }


def text() -> str:
    """The CSV."""
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(lines()[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines())
    return out.getvalue()


def _line(family: str, preset: str, reference: dict[str, str]) -> dict[str, Any]:
    loaded = load(preset)
    ledger = count(place(loaded, Run()), orders=False)
    metadata = ledger.metadata
    line: dict[str, Any] = {"family": family, "preset": preset, "name": metadata.name, "paper": metadata.paper or ""}
    line |= {"input": tag_of(type(loaded.spec.input)), "tokens": metadata.tokens, "N": metadata.grid_tokens}
    line |= {quantity: ledger.total(quantity) for quantity in QUANTITIES}
    line |= {f"reference_{quantity}": reference.get(quantity, "") for quantity in ("params", "macs")}
    return line | {"reference": reference.get("source", ""), "published": _published(ledger)}


def _published(ledger: Ledger) -> str:
    """Every published figure with our difference, its source and its convention."""
    figures = []
    for figure in ledger.published_beside_ours():
        value = f"{figure['quantity']} {units.count(figure['published'])} (ours {figure['difference']:+.2%})"
        where = (str(figure[key]) for key in ("source", "convention", "note") if figure.get(key))
        figures.append(", ".join([value, *where]))
    return "; ".join(figures)


def _references() -> dict[str, dict[str, str]]:
    """The exact reference counts of the tests: preset -> params, macs, source."""
    found: dict[str, dict[str, str]] = {}
    for file in sorted((ROOT / "tests" / "data").glob("exact*.csv")):
        with file.open(encoding="utf-8") as stream:
            found |= {row["preset"]: row for row in csv.DictReader(stream)}
    return found


def main() -> int:
    """Write the file, or check it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 where the file differs")
    current = text()
    if not parser.parse_args().check:
        FILE.write_text(current, encoding="utf-8", newline="")
        return 0
    old, new = (FILE.read_text(encoding="utf-8") if FILE.exists() else "").splitlines(), current.splitlines()
    changed = [line for line in new if line not in set(old)] + [line for line in old if line not in set(new)]
    for line in changed[:10]:
        sys.stderr.write(f"docs/gallery.csv: {line[:100]}\n")
    if old != new:
        sys.stderr.write(f"docs/gallery.csv differs from the presets in {len(changed)} lines; `make docs` writes it\n")
    return int(old != new)


if __name__ == "__main__":
    sys.exit(main())
