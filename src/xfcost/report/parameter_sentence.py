"""Do mixing operations hold parameters? One sentence about the systems of a glance."""

from __future__ import annotations

from collections.abc import Iterable

from xfcost.counting.glance import Entry, Glance
from xfcost.ledger import units
from xfcost.report.style import lowered


def parameter_sentence(page: Glance) -> str:
    """Which mixing operations hold parameters in these systems, and how many."""
    mixing = [entry for entry in page.entries if entry.mixing != "per-token"]
    holders = [entry for entry in mixing if any(one.params for one in entry.occurrences)]
    if not mixing:
        return "No operation here mixes tokens."
    if not holders:
        all_params = " and ".join(f"{units.exact(params)} of {name}" for name, params in page.params.items())
        return f"Mixing operations hold no parameters: all {all_params} stand in per-token operations."
    titles = dict.fromkeys(entry.title for entry in holders)
    if len(titles) > len({entry.title for entry in mixing} - titles.keys()):
        return f"Here mixing operations do hold parameters ({_shares(holders, page)}), in: {', '.join(titles)}."
    exceptions = [
        f"the {lowered(title)} ({_shares([entry for entry in holders if entry.title == title], page)})"
        for title in titles
    ]
    number = "one exception" if len(exceptions) == 1 else f"{len(exceptions)} exceptions"
    return (
        f"Mixing operations hold no parameters, with {number}: {' and '.join(exceptions)}. "
        "All other parameters stand in per-token operations."
    )


def _shares(entries: Iterable[Entry], page: Glance) -> str:
    """`Swin-T: 23,322 of 28,288,354, 0.1 %`."""
    params: dict[str, int] = {}
    for entry in entries:
        for one in entry.occurrences:
            if one.params:
                params[one.system] = params.get(one.system, 0) + one.params
    return "; ".join(
        f"{name}: {params[name]:,} of {total:,}, {units.percent(params[name], total)}"
        for name, total in page.params.items()
        if name in params
    )
