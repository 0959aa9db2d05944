"""A prompt and the decode steps after it, of a module that is counted at any N: exact sums over N of its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Any, Final

import msgspec

from xfcost.counting.decoding import in_phase, work_of
from xfcost.counting.sums import Costs, last_true, sum_over_sizes
from xfcost.ledger.accounts import RUN
from xfcost.ledger.errors import UsageError
from xfcost.ledger.execution import Mode
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.modes import Generation, PassWork
from xfcost.ledger.operation import Operation, without_trace

# Of the prompt: rows of steps hold none of them again.
_ONCE: Final[dict[str, Any]] = {
    "params": 0, "idle_params": 0, "attention_entries": 0, "matrix": None, "pairs": None, "weights_read": None,
}  # fmt: skip
# Where models of transformers take token ids; a decoder's first.
TOKEN_IDS: Final = ("decoder_input_ids", "input_ids")


def generated(
    prefill: Ledger, new_tokens: int, at: Callable[[int, Mode], Ledger], lengths: Iterable[int] = ()
) -> Ledger:
    """The rows of a `prefill` and of the decode steps after it together, and the work without a cache.

    `at` counts the module at an N in a mode; its costs may step at multiples of `lengths`. The first of the new tokens
    is the prefill's, which may have a cached prefix.

    Raises:
        UsageError: its inputs are those of one N, or an encoder reads the same N.
    """
    _check_grows(prefill, at)
    prompt, last = prefill.metadata.grid_tokens, prefill.metadata.grid_tokens + new_tokens - 1
    step = cache(lambda tokens: at(tokens, "decode"))

    def one_pass(tokens: int) -> Costs:
        known = tokens == prompt and not prefill.metadata.cached_prefix
        rows = [row for row in (prefill if known else at(tokens, "prefill")).rows if not of_encoder(row)]
        return work_of(rows)

    passes = sum_over_sizes(one_pass, prompt, last, lengths)
    encoder, first = work_of(row for row in prefill.rows if of_encoder(row)), work_of(prefill.rows)
    steps = _summed(step, prompt + 1, last)
    decode = work_of(steps)
    peaks = [one.activations for one in (prefill, *((step(last),) if new_tokens > 1 else ()))]
    return msgspec.structs.replace(
        prefill,
        metadata=msgspec.structs.replace(prefill.metadata, mode="generate"),
        rows=(
            *(in_phase("prefill", without_trace(row)) for row in prefill.rows),
            *(in_phase("decode", row) for row in steps),
        ),
        cache=step(last).cache if new_tokens > 1 else prefill.cache,
        activations=None if None in peaks else max(one or 0 for one in peaks),
        generation=Generation(
            prompt=prompt,
            new_tokens=new_tokens,
            prefill=PassWork(macs=first[0], flops=first[1]),
            decode=PassWork(macs=decode[0], flops=decode[1]),
            without_cache=PassWork(macs=passes[0] + encoder[0], flops=passes[1] + encoder[1]),
        ),
    )


def _check_grows(prefill: Ledger, at: Callable[[int, Mode], Ledger]) -> None:
    if all(any(text.startswith(f"{name}:") for text in prefill.ran.inputs) for name in TOKEN_IDS):
        raise UsageError(
            f"--mode generate: N of {prefill.metadata.name} is the length of its encoder's text and of its decoder's; "
            "--mode prefill and --mode decode count it at one N"
        )
    more = prefill.metadata.grid_tokens + 2  # the step after a given prompt is at one more
    if at(more, "decode").metadata.grid_tokens != more:
        raise UsageError(
            f"--mode generate: the inputs of {prefill.metadata.name} are given and have no letter N, as in --input "
            "input_ids=1xN:int64, or in example_inputs that are a function of N"
        )


def of_encoder(row: Operation) -> bool:
    """Is it in a module of the name `encoder`?"""
    return "encoder" in row.component.split(".")


def _summed(step: Callable[[int], Ledger], first: int, last: int) -> list[Operation]:
    """The rows of all steps from first to last together. Once windows are full, other layers may be alike."""
    found: dict[Any, Operation] = {}
    while first <= last:
        alike = partial(_alike, step, first)
        end = last if alike(last) else last_true(alike, first, last)
        sums = iter(sum_over_sizes(partial(_row_costs, step, first), first, end))
        for row in step(end).rows:
            before = found.get((row.path, row.times))
            added = {one: next(sums) + (getattr(before, one) if before else 0) for one in RUN}
            found[row.path, row.times] = msgspec.structs.replace(row, **added, **_ONCE)
        first = end + 1
    return [row for row in found.values() if any(getattr(row, one) for one in RUN)]


def _alike(step: Callable[[int], Ledger], first: int, tokens: int) -> bool:
    """Have the steps at two N the same rows?"""
    one, other = ([(row.path, row.times) for row in step(at).rows] for at in (first, tokens))
    return one == other


def _row_costs(step: Callable[[int], Ledger], first: int, tokens: int) -> Costs:
    if not _alike(step, first, tokens):
        raise UsageError(
            f"--mode generate: the operations of the steps at N = {first:,} and {tokens:,} differ; take fewer "
            "--new-tokens"
        )
    return tuple(getattr(row, quantity) for row in step(tokens).rows for quantity in RUN)
