"""Gives systems the depth with which they cost as much as the first: equal parameters, MACs or FLOPs in comparisons."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final

from xfcost.api.analysis import analyze
from xfcost.api.options import Progress
from xfcost.ledger import units
from xfcost.ledger.errors import UsageError, XfcostError, printable
from xfcost.spec.load import canonical, load
from xfcost.spec.reader import value_at

WORDS: Final = {"params": "parameters", "macs": "MACs", "flops": "FLOPs"}
"""What can be matched, and its words."""


def matched(specs: Sequence[str], quantity: str, options: Mapping[str, Any], say: Progress) -> list[str]:
    """The specs, those after the first with the depth of their deepest stage with which they come closest to it.

    Args:
        specs: presets or paths.
        quantity: one of `WORDS`.
        options: those of the run.
        say: gets a line per spec, with its depth and how far it is from the first.

    Raises:
        XfcostError: one is no spec, or can't be counted.
    """
    run = {name: value for name, value in options.items() if name in ("N", "size", "batch", "mode", "settings")}

    @cache
    def cost(spec: str) -> int:
        return analyze(spec, trace=False, mixing=False, **run).total(quantity) or 0

    first, wanted, found = canonical(specs[0]), cost(specs[0]), [specs[0]]
    for spec in specs[1:]:
        place, depth = _deepest(spec)
        best = _closest(cost, f"{spec}:{place}", depth, wanted)
        found.append(f"{spec}:{place}={best}")
        ours = cost(found[-1])
        apart = f"{100 * abs(ours / wanted - 1):.1f} % {'more' if ours > wanted else 'less'} than {first}"
        say(
            f"{canonical(spec)}: {place} {best} instead of {depth}, for {units.count(ours)} {WORDS[quantity]}: "
            f"{f'as many as {first}' if ours == wanted else apart}"
        )
    return found


def _closest(cost: Callable[[str], int], place: str, depth: int, wanted: int) -> int:
    """The depth at `place` that costs closest to `wanted`; costs grow by the same with every block, or nearly."""
    one, own = cost(f"{place}=1"), cost(f"{place}={max(depth, 2)}")
    each = (own - one) / (max(depth, 2) - 1)
    middle = round(1 + (wanted - one) / each) if each > 0 else depth
    near = [max(1, middle + step) for step in (-1, 0, 1)]
    return min(near, key=lambda blocks: abs(cost(f"{place}={blocks}") - wanted))


def _deepest(spec: str) -> tuple[str, int]:
    """The path of the largest `depth` of a spec, and that.

    Raises:
        UsageError: it has none.
    """
    try:
        data = load(spec).data
    except XfcostError as error:
        raise UsageError(f"--match: {printable(spec, 80)} has no depth to change: {error}") from None
    streams = [path for path in (("stages",), ("encoder", "stages"), ("decoder", "stages")) if value_at(data, path)]
    stages = [(*path, place) for path in streams for place in range(len(value_at(data, path)))]
    depths = {path: value_at(data, (*path, "depth")) for path in stages}
    known = {path: depth for path, depth in depths.items() if isinstance(depth, int)}
    if not known:
        raise UsageError(f"--match: {printable(spec, 80)} has no stage with a `depth`; change its blocks yourself")
    path = max(known, key=lambda one: known[one])
    return ".".join(map(str, (*path, "depth"))), known[path]
