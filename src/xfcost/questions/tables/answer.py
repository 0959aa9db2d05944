"""Published tables compared with derived ones: layer types, and the survey of efficient attention."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from xfcost.api.measured import rows_of_file
from xfcost.api.options import takes
from xfcost.api.runs import make_run
from xfcost.api.systems import settings_texts
from xfcost.counting.layer_types import LayerSizes, LayerTable, layer_table
from xfcost.ledger.errors import UsageError, shown
from xfcost.ledger.read_numbers import whole_number
from xfcost.questions.tables.published_survey import Survey, survey_lines, times_over_full
from xfcost.spec.run import Run
from xfcost.systems.spec import torch_there

# Paths are composed token by token.
MOST_TOKENS: Final = 2**16
_MOST_WIDTH: Final = 2**20


def layer_types(*, N: Any, d: Any, k: Any = 3, r: Any = None) -> LayerTable:
    """Derive the layer-type table of Vaswani et al. 2017 (Table 1) and compare it with the published one.

    Args:
        N: tokens.
        d: their width, even.
        k: tokens of a convolution's kernel, odd.
        r: tokens of a neighbourhood of restricted self-attention, odd; about √N by default.

    Raises:
        UsageError: one of them can't be.
    """
    n = whole_number("--N", N, least=3, most=MOST_TOKENS, example="1024", what="a whole number of tokens")
    d = whole_number("--d", d, least=2, most=_MOST_WIDTH, example="512", what="an even width")
    if d % 2:
        raise UsageError(
            f"--d {d}: expected an even width, as ByteNet's block works at half of it; try {d - 1} or {d + 1}"
        )
    sizes = LayerSizes(n, d, _centred("--k", k, n), _centred("--r", _near_root(n) if r is None else r, n))
    with torch_there("layers", "running the layers"):
        from xfcost.torch_models.accounts import chain_of

        return layer_table(sizes, chain_of)


def _near_root(n: int) -> int:
    """The odd number of at least 3 next below or at √n."""
    root = int(n**0.5)
    return max(3, root - 1 + root % 2)


def _centred(option: str, given: Any, n: int) -> int:
    """An odd number of tokens, of which there are n."""
    what = "an odd number of tokens, of which one is in the middle,"
    width = whole_number(option, given, least=3, most=n, example="3", what=what)
    if width % 2 == 0:
        raise UsageError(
            f"{option} {shown(str(width))}: expected {what} from 3 to {n:,}; try {width - 1} or {width + 1}"
        )
    return width


@takes()
def survey(*, runs: str | os.PathLike[str] | None = None, settings: Sequence[str] = (), **options: Any) -> Survey:
    """Derive Table 1 of Tay et al. 2022, Efficient Transformers: A Survey, and compare it with the published one.

    Args:
        runs: a file of `xfcost measure`, whose times over full attention's are added.
        settings: overrides of every system, `key.path=value` each.
        **options: `batch`, `dtype` and `attention`, as for `analyze`.

    Raises:
        XfcostError: a setting fits not every system; the file can't be read, or has no row of full attention.
    """
    if not isinstance(runs, str | os.PathLike | None):
        raise UsageError(f"runs: expected a file of `xfcost measure`, got {shown(runs)}")
    texts = settings_texts(settings)
    return survey_of(make_run(**options), texts, None if runs is None else Path(runs), lambda text: None)


def survey_of(run: Run, settings: Sequence[str], file: Path | None, say: Callable[[str], None]) -> Survey:
    """All systems that a spec has a line for; `file` holds rows of `xfcost measure`.

    Raises:
        XfcostError: a setting fits not every system; the file can't be read, or has no row of full attention.
    """
    if file is None:
        return Survey(survey_lines(run, settings), run)
    ratio, timed = times_over_full(rows_of_file(file, say), shown(file, 200))
    return Survey(survey_lines(run, settings, ratio), run, timed)
