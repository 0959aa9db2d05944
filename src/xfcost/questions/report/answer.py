"""One HTML page of several systems: ledgers, growth, closed forms, blocks, rooflines, written to a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from xfcost.api.analysis import account_options
from xfcost.api.options import CompareOptions, takes
from xfcost.api.roofline import bounded_roofline, under_roofs
from xfcost.api.runs import make_run, run_options
from xfcost.api.systems import check_mixing, open_systems, shared_run, system_ledgers, with_remarks
from xfcost.comparing.comparison import Comparison, compared
from xfcost.comparing.diagram import MOST_DRAWN, Diagram, diagram
from xfcost.comparing.sweep import default_span, size_list
from xfcost.counting.system import AccountOptions, System
from xfcost.ledger.errors import UsageError, XfcostError, shown
from xfcost.ledger.execution import ONE_PASS
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.read_numbers import whole_numbers
from xfcost.ledger.roofline import Roofline
from xfcost.questions.report.page.system_view import PageContent, PageSizes
from xfcost.questions.report.sizes import TOTAL, counted_sizes
from xfcost.report.output import check_target, ending_of, write_whole
from xfcost.spec.placement import place
from xfcost.spec.run import Run

if TYPE_CHECKING:
    import torch
    from typing_extensions import Unpack

# Operations of a system: as many take seconds, and 7 MB of HTML.
MOST_ROWS: Final = 5_000
_OF: Final = {
    "forward": "of one forward pass",
    "prefill": "of the prefill of N tokens",
    "decode": "of one decode step, with N tokens in all",
    "generate": "of the prefill of N tokens",
    "train": "of the forward pass of a step",
}


@takes(CompareOptions)
def write_report(
    *specs: str | os.PathLike[str] | torch.nn.Module | tuple[torch.nn.Module, Any],
    output: str | os.PathLike[str],
    slider: str | Sequence[int] | None = None,
    force: bool = False,
    **options: Unpack[CompareOptions],
) -> Comparison:
    """Write one HTML page of one or several systems, which loads nothing: costs, growth with a slider for N, blocks.

    Args:
        *specs: systems as `compare` takes them; one is enough.
        output: an .html file.
        slider: the lowest and the highest N of the slider, (256, 65536) or "256:65536"; from N/16 to 64·N by default.
        force: overwrite the file where it exists.
        **options: as for `compare`.

    Returns:
        The Comparison that the page shows.

    Raises:
        XfcostError: bad input; the message says what was expected and how to mend it.
    """
    from xfcost.questions.report.page.page import page_html

    target = Path(output)
    ending_of(target, (".html", ".htm"))
    check_target(target, force=force)
    ends = whole_numbers(slider, ":")
    if slider is not None and (len(ends) != 2 or not 1 <= ends[0] < ends[1]):  # noqa: PLR2004 - a pair
        raise UsageError(f"slider: expected the lowest and the highest N, as in (256, 65536), got {shown(slider)}")
    how, run = account_options(options), make_run(**run_options(options))
    systems = open_systems(specs, {**options, "on": run.on}, how.progress, counted=True)
    check_mixing(systems, options)
    content = page_content(systems, run, how, None if slider is None else (ends[0], ends[1]))
    write_whole(target, page_html(content).encode(), force=force)
    return content.comparison


def page_content(
    systems: Sequence[System], run: Run, how: AccountOptions, span: tuple[int, int] | None = None
) -> PageContent:
    """All parts of the page; `span` is the range of N to choose from.

    Raises:
        XfcostError: a system can't have the size of the run, or an option can't be.
        UsageError: a system has more than `MOST_ROWS` operations.
    """
    run = shared_run(run, systems)
    ledgers = system_ledgers(systems, run, how)
    for ledger in ledgers:
        if len(ledger.rows) > MOST_ROWS:
            raise UsageError(
                f"{ledger.metadata.name} has {len(ledger.rows):,} operations, and a page shows {MOST_ROWS:,} of a "
                "system at most; `xfcost analyze` lists more"
            )
    noted = [with_remarks(one, ledger) for one, ledger in zip(systems, ledgers, strict=True)]
    return PageContent(
        comparison=compared(systems, noted, run, thorough=False),
        diagram=_diagram(systems[:MOST_DRAWN], ledgers[:MOST_DRAWN], run),
        not_drawn=max(len(systems) - MOST_DRAWN, 0),
        sizes=_sizes(systems, ledgers, run, span),
        rooflines=_rooflines(systems, ledgers, run, how),
    )


def _diagram(systems: Sequence[System], ledgers: Sequence[Ledger], run: Run) -> Diagram:
    """The blocks of a forward pass."""
    forward = run._replace(mode="forward", plan=None, logits=None, new_tokens=1, cached_prefix=0)
    return diagram(
        [
            ledger if one.loaded is None else place(one.loaded, forward)
            for one, ledger in zip(systems, ledgers, strict=True)
        ]
    )


def _sizes(
    systems: Sequence[System], ledgers: Sequence[Ledger], run: Run, span: tuple[int, int] | None
) -> PageSizes | str:
    """The costs at many N; or why there are none."""
    for one in systems:
        if not one.has_tokens:
            return f"the inputs of {one.name} have no N."
    own = list(dict.fromkeys(ledger.metadata.grid_tokens for ledger in ledgers))
    try:
        tokens = tuple(size_list(systems, run, own, span or default_span(own)))
        at = tokens.index(own[0])
        found = tuple(counted_sizes(one, run, tokens, ledger, at) for one, ledger in zip(systems, ledgers, strict=True))
    except XfcostError as error:
        return f"{error}."
    alike = len(own) == 1 and all(
        one.figures[TOTAL, "macs"][at] == ledger.total("macs") for one, ledger in zip(found, ledgers, strict=True)
    )
    return PageSizes(tokens, at, alike, found, _OF[run.mode])


def _rooflines(
    systems: Sequence[System], ledgers: Sequence[Ledger], run: Run, how: AccountOptions
) -> list[Roofline] | str:
    """Of specs that were timed or predicted, or on the devices of the run; modules have none. Or why there are none."""
    if run.mode not in ONE_PASS or any(one.loaded is None for one in systems):
        return []
    try:
        if how.device or how.predict:
            return under_roofs(ledgers, systems, run, how)
        return [] if run.on is None else [bounded_roofline(ledger) for ledger in ledgers]
    except UsageError as error:
        return f"{str(error).removeprefix('roofline').removeprefix(' --on').removeprefix(': ')}."
