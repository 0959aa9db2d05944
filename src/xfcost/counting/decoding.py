"""Models that work token by token: what they cache, what one token more reads, and what m new tokens add up to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from xfcost.counting.forward import count
from xfcost.counting.sums import Costs, summed
from xfcost.ledger.errors import SpecError, UsageError
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.modes import Cache, Generation, Step, Work
from xfcost.ledger.operation import Operation, without_trace
from xfcost.ledger.options import Mode
from xfcost.spec.architecture import Architecture
from xfcost.spec.grammar import ImageInput, VideoInput
from xfcost.spec.load import Loaded
from xfcost.spec.walk import Run, place

# So many steps are all traced.
_TRACED: Final = 4
# What steps add up: these quantities of every row.
_SUMMED: Final = ("macs", "flops", "comparisons", "moved")


def with_mode(ledger: Ledger, loaded: Loaded, run: Run, architecture: Architecture) -> Ledger:
    """`ledger` with what its mode says beside its rows."""
    if run.mode == "decode":
        step = Step(
            weight_bytes=ledger.weights_read() * ledger.bytes_per_element,
            cache_bytes=ledger.cached_bytes,
            flops=ledger.total("flops") or 0,
            at_most=run.batch > 1 and any(row.idle_params for row in ledger.rows),
        )
        return msgspec.structs.replace(ledger, cache=cache_of(ledger), step=step)
    if run.mode == "prefill":
        return _with_cache(ledger, loaded, run)
    if run.mode == "generate":
        return _generated(ledger, loaded, run, architecture)
    return ledger


def cache_of(step: Ledger) -> Cache:
    """What the rows of a step keep."""
    states = step.part(row for row in step.rows if not (row.cache and row.cache.per_token))
    return Cache(
        bytes=step.cached_bytes,
        bytes_per_token=(step.total("cached_per_token") or 0) * step.bytes_per_element,
        state_bytes=states.cached_bytes,
    )


def _with_cache(ledger: Ledger, loaded: Loaded, run: Run) -> Ledger:
    """What a prefill leaves: the cache that the next token will find, or a note of why there is none."""
    try:
        step = count(place(loaded, run._replace(mode="decode")), orders=False)
    except SpecError as error:
        return noted(ledger, f"no KV cache: {error}")
    return msgspec.structs.replace(ledger, cache=cache_of(step))


def noted(ledger: Ledger, note: str) -> Ledger:
    """`ledger` with `note` before its others."""
    metadata = msgspec.structs.replace(ledger.metadata, notes=(note, *ledger.metadata.notes))
    return msgspec.structs.replace(ledger, metadata=metadata)


def _generated(prefill: Ledger, loaded: Loaded, run: Run, architecture: Architecture) -> Ledger:
    """The rows of the prefill, and those of all steps together; beside them what it costs without a cache."""
    prompt = architecture.streams[-1].grid.tokens
    last = prompt + run.new_tokens - 1
    encoder = {one.part.path for stream in architecture.streams[:-1] for one in stream.standing()}
    _check_last(last, loaded, run, architecture)

    def anew(tokens: int) -> Costs:
        """A pass over all tokens so far, of the decoder alone, for the next token."""
        passed = count(place(loaded, at(tokens, architecture, run, "prefill")), orders=False)
        return _work(row for row in passed.rows if row.component not in encoder)

    decoded, read = _work(prefill.rows), _work(row for row in prefill.rows if row.component in encoder)
    passes = summed(anew, prompt, last, _lengths(architecture))
    generation = Generation(
        prompt=prompt,
        new_tokens=run.new_tokens,
        prefill=Work(macs=decoded[0], flops=decoded[1]),
        decode=None,
        without_cache=Work(macs=passes[0] + read[0], flops=passes[1] + read[1]),
    )
    try:
        steps, cache = _steps(loaded, run, architecture, (prompt + 1, last))
    except SpecError as error:
        refused = msgspec.structs.replace(generation, refused=str(error))
        note = f"no decode steps; the rows are the prefill's: {error}"
        return noted(msgspec.structs.replace(prefill, generation=refused), note)
    decode = _work(steps)
    # what a trace found is of the prefill alone, and stands in the agreement
    rows = (*(under("prefill", without_trace(row)) for row in prefill.rows), *(under("decode", row) for row in steps))
    generation = msgspec.structs.replace(generation, decode=Work(macs=decode[0], flops=decode[1]))
    return msgspec.structs.replace(prefill, rows=rows, cache=cache, generation=generation)


def _check_last(tokens: int, loaded: Loaded, run: Run, architecture: Architecture) -> None:
    """Can the text be as long as it ends?

    Raises:
        UsageError: pixels come in, and no tokens go out.
        SpecError: there are not so many positions.
    """
    if isinstance(architecture.streams[-1].input, ImageInput | VideoInput):
        raise UsageError(f"--mode generate: {architecture.spec.name} takes images, and writes no tokens after them")
    try:
        place(loaded, at(tokens, architecture, run, "forward"))
    except SpecError as error:
        raise SpecError(f"{error}; the last of --new-tokens {run.new_tokens} reads {tokens:,} tokens") from None


def traced_sizes(generation: Generation) -> tuple[int, ...]:
    """Of which steps a trace is taken: all of a few, else the first, one in between and the last."""
    first, last = generation.prompt + 1, generation.prompt + generation.new_tokens - 1
    every = range(first, last + 1)
    return tuple(every) if len(every) <= _TRACED else (first, (first + last) // 2, last)


def told_traced(ledger: Ledger, sizes: tuple[int, ...]) -> Ledger:
    """`ledger`, told of which steps its agreement is."""
    generation = ledger.generation and msgspec.structs.replace(ledger.generation, traced_at=sizes)
    return msgspec.structs.replace(ledger, generation=generation)


def _work(rows: Iterable[Operation]) -> Costs:
    """MACs and FLOPs, over all blocks."""
    macs = flops = 0
    for row in rows:
        macs += row.macs * row.times
        flops += row.flops * row.times
    return macs, flops


def at(tokens: int, architecture: Architecture, run: Run, mode: Mode) -> Run:
    """`run` with so many tokens in the stream that writes, and as many as before in the one that it reads."""
    others = tuple(stream.grid.tokens for stream in architecture.streams[:-1])
    return run._replace(tokens=(*others, tokens), size=None, mode=mode)


def under(phase: str, row: Operation) -> Operation:
    """`row` as one of a phase: its path, stage and block say so."""
    return msgspec.structs.replace(
        row,
        path=f"{phase}.{row.path}",
        component=f"{phase}.{row.component}",
        stage=f"{phase} · {row.stage}",
        block=f"{phase} · {row.block}",
    )


def _steps(
    loaded: Loaded, run: Run, architecture: Architecture, between: tuple[int, int]
) -> tuple[tuple[Operation, ...], Cache]:
    """The rows of all steps from the first to the last together, without parameters; and the cache as it ends."""
    first, last = between

    def step(tokens: int, *, orders: bool = False) -> Ledger:
        return count(place(loaded, at(tokens, architecture, run, "decode")), orders=orders)

    final = step(max(last, first - 1), orders=True)
    if last < first:
        return (), cache_of(final)

    def stepped(tokens: int) -> Costs:
        return tuple(cost for row in step(tokens).rows for cost in _costs(row))

    all_of = summed(stepped, first, last, _lengths(architecture))
    rows = []
    for number, row in enumerate(final.rows):  # those that work or keep
        costs = all_of[number * len(_SUMMED) : (number + 1) * len(_SUMMED)]
        here = dict(zip(_SUMMED, costs, strict=True)) | {
            "params": 0,
            "idle_params": 0,
            "attention_entries": 0,
            "matrix": None,
            "pairs": None,
        }
        if row.cached or any(costs):
            rows.append(msgspec.structs.replace(row, **here))
    return tuple(rows), cache_of(final)


def _lengths(architecture: Architecture) -> set[int]:
    """Lengths that costs may depend on: whole numbers in the fields of its components, and powers of two (defaults)."""
    fields = (msgspec.structs.astuple(part.component) for part, *_ in architecture.parts())
    written = (value for values in fields for value in values if isinstance(value, int))
    return {*written, *(1 << power for power in range(1, 13))}


def _costs(row: Operation) -> Costs:
    return tuple(getattr(row, quantity) for quantity in _SUMMED)
