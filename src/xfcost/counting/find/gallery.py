"""Which presets fit."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import numpy as np

from xfcost.counting.find.costs import Costs, check_asked, model_costs, totals
from xfcost.counting.find.devices import checked_on
from xfcost.counting.find.quantities import figures_of, limited
from xfcost.counting.find.reasons import ReasonNumbers
from xfcost.counting.find.result import Found, NotFitting, Question, Row
from xfcost.counting.find.selection import Candidate, Reasons, left_out, selected
from xfcost.counting.find.tables import exact_array, most_bytes
from xfcost.counting.find.units import message
from xfcost.counting.on_devices.bounds import FLOPS_PER_MAC
from xfcost.ledger.errors import UsageError, XfcostError, nearest, shown
from xfcost.spec.default_options import LANGUAGE_MODEL_MODES, chosen_for, with_defaults
from xfcost.spec.grammar import ImageInput
from xfcost.spec.inputs import takes_images
from xfcost.spec.load import Loaded, expanded, is_path, load, preset_files
from xfcost.spec.placement import place
from xfcost.spec.run import Run

# A spectrogram: not every image is a picture.
_FOLDED: Final = "--size: it keeps one side of its image, folded into the width; give --N"


class _Counted(NamedTuple):
    name: str
    family: str | None
    costs: Costs
    refused: str | None


def presets_of(names: Sequence[str], families: Collection[str]) -> list[str]:
    """The presets called `names` (all, where there are none), of some families.

    Raises:
        UsageError: there is no such preset or family.
    """
    files = preset_files()
    known = {file.parent.name for file in files.values()}
    for family in families:
        if family not in known:
            raise UsageError(f"--family {shown(family)}: {nearest(family, known)}")
    chosen = expanded(names) if names else list(files)
    return [name for name in chosen if not families or _family(name) in families]


def _family(name: str) -> str | None:
    file = preset_files().get(name)
    return None if file is None or is_path(name) else file.parent.name


def find_in_gallery(names: Sequence[str], run: Run, question: Question, settings: Sequence[str] = ()) -> Found:
    """Which of these presets fit.

    Raises:
        UsageError: the mode has several passes.
        XfcostError: a spec can't be read, where it is named.
    """
    check_asked(run, question.budgets)
    specs = [load(name, settings) for name in names]
    run = with_defaults(run, [one.spec for one in specs if run.mode not in LANGUAGE_MODEL_MODES or _runs(one, run)])
    dtype = chosen_for([], run).dtype
    question = checked_on(run.on, dtype, question)
    counted = [_counted(loaded, run) for loaded in specs]
    reasons = ReasonNumbers()
    numbers = np.array([reasons.number(one.refused) for one in counted], dtype=np.int64)
    costs = Costs(*(exact_array(column) for column in zip(*(one.costs for one in counted), strict=True)))
    all_totals = totals(_wide(costs), dtype, run.on)
    every = question._replace(top=max(len(names), 1))  # the report lists the first of them
    part = selected(all_totals, Reasons(numbers, reasons.texts), lambda place: place, every)
    on_front = {candidate.number for candidate in part.front}

    def row(candidate: Candidate) -> Row:
        one = counted[candidate.number]
        return Row(name=one.name, family=one.family, figures=candidate.figures, front=candidate.number in on_front)

    rows = tuple(map(row, part.first))
    more, less = question.front
    return Found(
        question=question,
        run=run,
        searched=part.searched,
        fits=part.fits,
        rows=rows,
        front=tuple(map(row, part.front)),
        left_out=tuple(left_out(part, question, row)),
        cloud=tuple((one.figures[more], one.figures[less]) for one in rows),
        not_fitting=tuple(_not_fitting(counted, run, question)),
    )


def _runs(loaded: Loaded, run: Run) -> bool:
    """Does it run so at all? Others have no say in the default dtype."""
    try:
        place(loaded, run)
    except XfcostError:
        return False
    return True


def _counted(loaded: Loaded, run: Run) -> _Counted:
    name = loaded.name
    if run.size is not None and isinstance(loaded.spec.input, ImageInput) and not takes_images(loaded):
        return _Counted(name, _family(name), Costs(), _FOLDED)
    try:
        return _Counted(name, _family(name), model_costs(loaded, run), None)
    except XfcostError as error:
        return _Counted(name, _family(name), Costs(), message(error).replace(loaded.spec.name, "it"))


def _wide(costs: Costs) -> Costs:
    """The same as Python's integers, where bytes or FLOPs could pass what int64 holds."""
    largest = {name: int(column.max()) for name, column in costs._asdict().items()}
    fits = max(most_bytes(largest), FLOPS_PER_MAC * largest["kept_macs"]) < 2**63
    return costs if fits else Costs(*(column.astype(object) for column in costs))


def _not_fitting(counted: Sequence[_Counted], run: Run, question: Question) -> list[NotFitting]:
    dtype, found = chosen_for([], run).dtype, []
    for one in counted:
        family = one.family or ""
        if one.refused is not None:
            found.append(NotFitting(name=one.name, family=family, reason=one.refused))
            continue
        figures = figures_of(totals(one.costs, dtype, run.on))
        over = [budget for budget in question.budgets if not budget.allows(figures[limited(budget)])]
        if over:
            reason = "; ".join(
                f"{100 * budget.excess(figures[limited(budget)]):.3g} % over {budget.text()}" for budget in over
            )
            found.append(NotFitting(name=one.name, family=family, reason=reason, figures=figures))
    return found
