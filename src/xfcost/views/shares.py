"""Where the MACs sit, as a picture in a notebook: bars of operations, or of systems, in the colours of mixing kinds."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from xfcost.comparing.comparison import Comparison
from xfcost.ledger import units
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.operation import MIXINGS, Mixing
from xfcost.ledger.visible import one_line
from xfcost.report.console import COLOURS
from xfcost.report.style import FIGURE, TERMINAL, WORDS

# Operations with a bar of their own; letters of a name.
_MOST_BARS, _MOST_LETTERS = 8, 36
# Pixels: of the names, of the longest bar, of the whole, from one bar to the next.
_NAMES, _LONGEST, _WIDTH, _STEP = 250, 360, 720, 22

Bars = Mapping[str, Mapping[Mixing, int]]


def shares_svg(found: Ledger | Comparison) -> str:
    """The MACs of a system's operations, the most first; of several systems, a bar of each. Empty without MACs."""
    bars = _of_operations(found) if isinstance(found, Ledger) else _of_systems(found)
    most = max((sum(parts.values()) for parts in bars.values()), default=0)
    if not most:
        return ""
    kinds = list(dict.fromkeys(kind for parts in bars.values() for kind, value in parts.items() if value))
    drawn, y = ["MACs"], 14
    lines = [f'<text x="0" y="{y}">MACs</text>']
    for place, kind in enumerate(kinds):
        left = _NAMES + place * 125
        lines.append(f'<rect x="{left}" y="{y - 9}" width="10" height="10" fill="{_colour(kind)}"/>')
        lines.append(f'<text x="{left + 15}" y="{y}">{WORDS[kind]}</text>')
    for name, parts in bars.items():
        x, y, value = float(_NAMES), y + _STEP, units.count(sum(parts.values()))
        label = one_line(name)
        label = label if len(label) <= _MOST_LETTERS else f"{label[: _MOST_LETTERS - 1]}…"
        lines.append(f'<text x="{_NAMES - 8}" y="{y}" text-anchor="end">{escape(label)}</text>')
        for kind, part in parts.items():
            width = _LONGEST * part / most
            lines.append(f'<rect x="{x:.1f}" y="{y - 12}" width="{width:.1f}" height="15" fill="{_colour(kind)}"/>')
            x += width
        lines.append(f'<text x="{x + 6:.1f}" y="{y}">{value}</text>')
        drawn.append(f"{label} {value}")
    size = f'viewBox="0 0 {_WIDTH} {y + 10}" width="{_WIDTH}" style="max-width:100%;font:13px sans-serif"'
    words = escape("; ".join(drawn))
    return f'<svg class="xfcost" role="img" aria-label="{words}" {size} fill="currentColor">{"".join(lines)}</svg>'


def _colour(kind: Mixing) -> str:
    """The colour of the reader's theme, which the style sheet of the tables sets."""
    name = TERMINAL[kind]
    return f"var(--xfcost-{name},{COLOURS[name][2]})" if name else FIGURE[kind]


def _of_operations(ledger: Ledger) -> Bars:
    found: dict[tuple[str, Mixing], int] = {}
    for row in ledger.rows:
        if macs := row.times_over("macs"):
            found[row.title, row.mixing] = found.get((row.title, row.mixing), 0) + macs
    ordered = sorted(found, key=lambda one: -found[one])
    bars: dict[str, dict[Mixing, int]] = {}
    for title, kind in ordered[:_MOST_BARS]:
        bars.setdefault(title, {})[kind] = found[title, kind]
    if others := ordered[_MOST_BARS:]:
        rest = bars[f"{len(others)} other{'s' if len(others) > 1 else ''}"] = {}
        for one in others:
            rest[one[1]] = rest.get(one[1], 0) + found[one]
    return bars


def _of_systems(comparison: Comparison) -> Bars:
    bars: dict[str, dict[Mixing, int]] = {}
    for name, ledger in comparison.by_name.items():
        parts = bars[name] = dict.fromkeys(MIXINGS, 0)
        for row in ledger.rows:
            parts[row.mixing] = parts.get(row.mixing, 0) + (row.times_over("macs") or 0)
    return bars
