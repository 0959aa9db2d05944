"""A prefill whose first tokens are in the cache already: of stored counts, and beside that of the whole prompt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

import msgspec

from xfcost.counting.decoding import work_of
from xfcost.ledger.errors import UsageError
from xfcost.ledger.execution import Mode
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.modes import CachedPrefix, PassWork
from xfcost.ledger.module_rows import ALL, is_group
from xfcost.ledger.operation import Operation

# Tokens of the shortest prompts that are stored; one alone is a step.
_FEWEST: Final = 2
# Tokens of whole chunks of all mixers that work in chunks.
_WHOLE_CHUNKS: Final = 256


def beside_whole(ledger: Ledger, whole: Ledger) -> Ledger:
    """`ledger`, whose prompt has a cached prefix, with what the prefill of the `whole` prompt costs."""
    generation, on, on_whole = ledger.generation, ledger.on, whole.on
    macs, flops = work_of(ledger.rows) if generation is None else msgspec.structs.astuple(generation.prefill)
    macs_of_whole, flops_of_whole = work_of(whole.rows)
    timed = on is not None and on_whole is not None and on.no_time is None and on_whole.no_time is None
    found = CachedPrefix(
        tokens=ledger.metadata.cached_prefix,
        prompt=ledger.metadata.grid_tokens,
        prefill=PassWork(macs=macs, flops=flops),
        without=PassWork(macs=macs_of_whole, flops=flops_of_whole),
        prefill_seconds=on.parts[0].seconds if timed and on is not None else None,
        without_seconds=on_whole.seconds if timed and on_whole is not None else None,
    )
    return msgspec.structs.replace(ledger, prefix=found)


def prefill_behind(cached: int, tokens: int, at: Callable[[int, Mode], Ledger]) -> Ledger:
    """The prefill of a prompt of so many `tokens` whose first `cached` ones are in the cache.

    Made of runs of other sizes, which `at` counts: the rows are those of a prompt as long as the new tokens, and an
    attention kernel reads the cached keys too, as many as the decode step behind the prefix reads. Layers that are
    alike while their windows are not full are those of the whole prompt.

    Raises:
        UsageError: a row grows otherwise than with the tokens, and is no attention kernel; or layers are alike at one
            of the sizes and differ at another one.
    """
    if min(cached, tokens - cached) < _FEWEST:
        raise UsageError(
            f"--cached-prefix {cached}: stored counts are of {_FEWEST} cached and {_FEWEST} new tokens or more; of one "
            "new token that is --mode decode"
        )
    whole = at(tokens, "prefill")
    sizes = _sizes(tokens - cached, tokens)
    same = [_by_path(at(size, "prefill")) for size in sizes]
    own, step, prefix = (
        _by_path(at(*size)) for size in ((tokens - cached, "prefill"), (cached + 1, "decode"), (cached, "prefill"))
    )
    rows = []
    for end in whole.rows:
        row = _like(end, own)
        if row is not None and row.fused and row.core is not None:
            others = [_like(end, one) for one in (step, prefix)]
            alike = all(one is not None and one.times == row.times for one in others)
            found = _reading(row, others[0], others[1], end) if alike else None
        else:
            found = row if row is not None and _is_linear(row, [_like(end, one) for one in same], sizes) else None
        if found is None:
            raise UsageError(
                f"--cached-prefix {cached}: the stored counts of {whole.metadata.name} don't say what {end.path} costs "
                "behind cached tokens; leave it out, or try another length"
            )
        rows.append(found)
    metadata = msgspec.structs.replace(whole.metadata, cached_prefix=cached)
    return msgspec.structs.replace(whole, rows=tuple(rows), metadata=metadata, closed_form=None)


def _sizes(new: int, tokens: int) -> tuple[int, int, int]:
    """Three numbers of tokens at which chunks are whole, from `new` ones on, up to all of them where that is far."""
    first = -(-new // _WHOLE_CHUNKS) * _WHOLE_CHUNKS
    last = max(tokens // _WHOLE_CHUNKS * _WHOLE_CHUNKS, first + 2 * _WHOLE_CHUNKS)
    return first, (first + last) // 2 // _WHOLE_CHUNKS * _WHOLE_CHUNKS, last


def _by_path(ledger: Ledger) -> dict[str, Operation]:
    return {row.path: row for row in ledger.rows}


def _like(row: Operation, rows: Mapping[str, Operation]) -> Operation | None:
    """The same row of another size; where layers are alike there that differ here, that of all of them, for these."""
    if row.path in rows:
        return rows[row.path]
    widened = ".".join(ALL if is_group(part) else part for part in row.path.split("."))
    found = rows.get(widened)
    names = ("path", "component", "stage", "block", "title", "times")
    return found and msgspec.structs.replace(found, **{name: getattr(row, name) for name in names})


def _is_linear(row: Operation, same: Sequence[Operation | None], sizes: tuple[int, int, int]) -> bool:
    """Does its work grow by as much with every token? Sorting may take more comparisons."""
    first, middle, last = sizes
    one, two, three = same
    if one is None or two is None or three is None or {one.times, two.times, three.times} != {row.times}:
        return False
    return all(
        (getattr(two, work) - getattr(one, work)) * (last - middle)
        == (getattr(three, work) - getattr(two, work)) * (middle - first)
        for work in ("macs", "flops", "moved")
    )


def _reading(row: Operation, step: Operation | None, prefix: Operation | None, whole: Operation | None) -> Any:
    """The kernel of the new tokens, which reads cached keys too; None where it is not known."""
    cores = [None if one is None else one.core for one in (row, step, whole)]
    if prefix is None or whole is None or any(core is None for core in cores):
        return None
    own, of_step, all_ = (int(core.keys) for core in cores if core is not None)
    keys = own + of_step - 1  # the step's own key is none of the cached ones
    # FLOPs of N queries and N keys are aN² + bN: by the pairs, and by the queries
    by_pairs = Fraction(Fraction(whole.flops, all_) - Fraction(row.flops, own), all_ - own)
    macs, flops = Fraction(row.macs * keys, own), row.flops + by_pairs * own * (keys - own)
    if macs.denominator != 1 or flops.denominator != 1:
        return None
    pairs = None if whole.pairs is None or prefix.pairs is None else whole.pairs - prefix.pairs
    core = row.core and msgspec.structs.replace(row.core, keys=keys)
    return msgspec.structs.replace(row, macs=int(macs), flops=int(flops), core=core, pairs=pairs, reads_tokens=None)
