"""The layer-type table: formulas and patterns, with the chains of the running modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from xfcost.api.notebooks import show_as
from xfcost.counting.layer_types.table import LayerTable, layer_table
from xfcost.counting.layer_types.types import Sizes
from xfcost.ledger.errors import UsageError, shown
from xfcost.ledger.quantities import whole_number

if TYPE_CHECKING:
    from rich.console import RenderableType

# Paths are composed token by token.
MOST_TOKENS: Final = 2**16
_MOST_WIDTH: Final = 2**20


def layer_types(*, N: Any, d: Any, k: Any = 3, r: Any = None) -> LayerTable:
    """The layer-type table of Vaswani et al. 2017 (Table 1), derived beside the print.

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
    sizes = Sizes(n, d, _centred("--k", k, n), _centred("--r", _near_root(n) if r is None else r, n))
    from xfcost.torch_models.memory.shortage import check_torch_loads, memory_may_run_out

    check_torch_loads()
    with memory_may_run_out("layers", "running the layers"):
        from xfcost.torch_models.chains import chain_of

        return layer_table(sizes, chain_of)


def _render(found: LayerTable, width: int) -> RenderableType:
    from xfcost.report.layer_types import document

    return document(found).terminal(width)


show_as("LayerTable", _render)


def _near_root(n: int) -> int:
    """The odd number of at least 3 next below or at √n."""
    root = int(n**0.5)
    return max(3, root - 1 + root % 2)


def _centred(option: str, given: Any, n: int) -> int:
    """An odd number of tokens, of which there are n.

    Raises:
        UsageError: it is something else.
    """
    what = "an odd number of tokens, of which one is in the middle,"
    width = whole_number(option, given, least=3, most=n, example="3", what=what)
    if width % 2 == 0:
        raise UsageError(
            f"{option} {shown(str(width))}: expected {what} from 3 to {n:,}; try {width - 1} or {width + 1}"
        )
    return width
