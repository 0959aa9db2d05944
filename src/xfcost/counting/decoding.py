"""The modes prefill, decode and generate: KV cache or recurrent state, decode steps, and m new tokens in all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from xfcost.counting.forward import batched, count, part_rows
from xfcost.counting.model_record import forward_record
from xfcost.counting.sums import Costs, sum_over_sizes, sum_parts
from xfcost.ledger.accounts import RUN
from xfcost.ledger.errors import SpecError, UsageError
from xfcost.ledger.execution import Mode
from xfcost.ledger.join import weights_read
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.modes import CacheBytes, Generation, PassWork
from xfcost.ledger.operation import Operation, without_trace
from xfcost.spec.architecture import Architecture, LabelledPart
from xfcost.spec.grammar import ImageInput, VideoInput
from xfcost.spec.load import Loaded
from xfcost.spec.placement import place
from xfcost.spec.run import Run

# Up to this many decode steps are all traced.
_MOST_TRACED: Final = 4


def with_mode(ledger: Ledger, loaded: Loaded, run: Run, architecture: Architecture) -> Ledger:
    """`ledger` with the results of its mode: cache, decode step, generation."""
    if run.mode == "decode":
        return msgspec.structs.replace(ledger, cache=cache_of(ledger), step=ledger.decode_step())
    if run.mode == "prefill":
        try:
            step_of_next = count(place(loaded, run._replace(mode="decode")), orders=False)
        except SpecError as error:
            return ledger.with_note(f"no KV cache: {error}")
        return msgspec.structs.replace(ledger, cache=cache_of(step_of_next))
    if run.mode == "generate":
        return _generated(ledger, loaded, run, architecture)
    return ledger


def cache_of(step: Ledger) -> CacheBytes:
    """The KV cache and recurrent state of a decode step's rows."""
    states = step.part(row for row in step.rows if not (row.cache and row.cache.per_token))
    recurrent = step.part(row for row in step.rows if row.cache and row.cache.recurrent)
    cross = step.part(row for row in step.rows if row.cache and row.cache.cross_attention)
    return CacheBytes(
        bytes=step.cached_bytes,
        bytes_per_token=(step.total("cached_per_token") or 0) * step.bytes_per_cached,
        state_bytes=states.cached_bytes,
        recurrent_bytes=recurrent.cached_bytes,
        cross_attention_bytes=cross.cached_bytes,
    )


def _generated(prefill: Ledger, loaded: Loaded, run: Run, architecture: Architecture) -> Ledger:
    """The rows of the prefill and of all decode steps together, and the work without a cache."""
    prompt, last = architecture.streams[-1].grid.tokens, _last(architecture, run)
    encoder = {labelled.part.path for stream in architecture.streams[:-1] for labelled in stream.labelled_parts()}

    def full_pass(tokens: int) -> dict[str, _PartRun]:
        """A pass of the decoder over all tokens so far, for the next token."""
        whole = run._replace(cached_prefix=0)
        parts = _parts(place(loaded, run_at(tokens, architecture, whole, "prefill")))
        return {name: part for name, part in parts.items() if name not in encoder}

    prefill_work, encoder_work = work_of(prefill.rows), work_of(row for row in prefill.rows if row.component in encoder)

    def part_work(part: _PartRun) -> Costs:
        return tuple(part.labelled.times * value for value in work_of(part.rows()))

    works = sum_parts(full_pass, part_work, prompt, last, cost_lengths(architecture)).values()
    passes = [sum(values) for values in zip(*works, strict=True)]
    generation = Generation(
        prompt=prompt,
        new_tokens=run.new_tokens,
        prefill=PassWork(macs=prefill_work[0], flops=prefill_work[1]),
        decode=None,
        without_cache=PassWork(macs=passes[0] + encoder_work[0], flops=passes[1] + encoder_work[1]),
    )
    try:
        steps, cache = _steps(loaded, run, architecture, (prompt + 1, last))
    except SpecError as error:
        refused = msgspec.structs.replace(generation, refused=str(error))
        note = f"no decode steps; the rows are the prefill's: {error}"
        return msgspec.structs.replace(prefill, generation=refused).with_note(note)
    decode = work_of(steps)
    # only the prefill is traced; the agreement has the result
    rows = (
        *(in_phase("prefill", without_trace(row)) for row in prefill.rows),
        *(in_phase("decode", row) for row in steps),
    )
    generation = msgspec.structs.replace(generation, decode=PassWork(macs=decode[0], flops=decode[1]))
    return msgspec.structs.replace(prefill, rows=rows, cache=cache, generation=generation)


def check_generation(loaded: Loaded, run: Run, architecture: Architecture) -> None:
    """Check, before anything is traced, that the mode `generate` can be run to the sequence's final length.

    Raises:
        UsageError: the model reads images and generates no tokens.
        SpecError: the model has fewer positions.
    """
    if run.mode != "generate":
        return
    tokens = _last(architecture, run)
    if isinstance(architecture.streams[-1].input, ImageInput | VideoInput):
        raise UsageError(f"--mode generate: {architecture.spec.name} takes images, and writes no tokens after them")
    try:
        place(loaded, run_at(tokens, architecture, run, "forward"))
    except SpecError as error:
        raise SpecError(f"{error}; the last of --new-tokens {run.new_tokens} reads {tokens:,} tokens") from None


def _last(architecture: Architecture, run: Run) -> int:
    prompt: int = architecture.streams[-1].grid.tokens
    return prompt + run.new_tokens - 1


def traced_steps(generation: Generation) -> tuple[int, ...]:
    """The decode steps to trace, by their number of tokens: all of a few, else the first, a middle one and the last."""
    first, last = generation.prompt + 1, generation.prompt + generation.new_tokens - 1
    every = range(first, last + 1)
    return tuple(every) if len(every) <= _MOST_TRACED else (first, (first + last) // 2, last)


def with_traced_steps(ledger: Ledger, steps: tuple[int, ...]) -> Ledger:
    """`ledger` with the decode steps that were traced, by their number of tokens."""
    generation = ledger.generation and msgspec.structs.replace(ledger.generation, traced_at=steps)
    return msgspec.structs.replace(ledger, generation=generation)


class _PartRun(NamedTuple):
    labelled: LabelledPart
    mode: Mode
    batch: int

    def rows(self) -> Iterator[Operation]:
        return (batched(row, self.batch) for row in part_rows(self.labelled, self.mode))


def _parts(architecture: Architecture) -> dict[str, _PartRun]:
    return {
        labelled.part.path: _PartRun(labelled, architecture.mode, architecture.batch)
        for labelled in architecture.parts()
    }


def work_of(rows: Iterable[Operation]) -> Costs:
    """MACs and FLOPs of all blocks."""
    macs = flops = 0
    for row in rows:
        macs += row.macs * row.times
        flops += row.flops * row.times
    return macs, flops


def run_at(tokens: int, architecture: Architecture, run: Run, mode: Mode) -> Run:
    """`run` with `tokens` tokens in the decoder and the same encoder input."""
    encoder_tokens = tuple(stream.grid.tokens for stream in architecture.streams[:-1])
    return run._replace(tokens=(*encoder_tokens, tokens), size=None, mode=mode)


def in_phase(phase: str, row: Operation) -> Operation:
    """`row` with the phase (prefill, decode) in its path, stage and block."""
    return msgspec.structs.replace(
        row,
        path=f"{phase}.{row.path}",
        component=f"{phase}.{row.component}",
        stage=f"{phase} · {row.stage}",
        block=f"{phase} · {row.block}",
    )


def _steps(
    loaded: Loaded, run: Run, architecture: Architecture, between: tuple[int, int]
) -> tuple[tuple[Operation, ...], CacheBytes]:
    """The rows of all decode steps from first to last together, without parameters; and the final cache."""
    first, last = between

    def step(tokens: int, *, orders: bool = False) -> Ledger:
        return count(place(loaded, run_at(tokens, architecture, run, "decode")), orders=orders)

    final = step(max(last, first - 1), orders=True)
    if last < first:
        return (), cache_of(final)

    def step_parts(tokens: int) -> dict[str, _PartRun]:
        return _parts(place(loaded, run_at(tokens, architecture, run, "decode")))

    def step_costs(part: _PartRun) -> Costs:
        return tuple(getattr(row, quantity) for row in part.rows() for quantity in RUN)

    sums = sum_parts(step_parts, step_costs, first, last, cost_lengths(architecture))
    values = {name: iter(sums) for name, sums in sums.items()}
    not_summed: dict[str, Any] = dict.fromkeys(("params", "idle_params", "attention_entries"), 0)
    not_summed |= dict.fromkeys(("matrix", "pairs"))
    rows = []
    for row in final.rows:
        if row.component not in values:  # a shared table does no work
            continue
        row_sums = {quantity: next(values[row.component]) for quantity in RUN}
        if row.cached or any(row_sums.values()):
            rows.append(msgspec.structs.replace(row, **row_sums, **not_summed))
    return tuple(rows), cache_of(final)


def operands_of_steps(step_at: Callable[[int], Architecture], first: int, last: int) -> dict[str, int]:
    """Bytes that the rows of all decode steps, of `first` to `last` tokens, read and write.

    Weights are among them, but for one step's of rows that say which they read. Empty where too many steps differ to be
    summed.
    """
    if last < first:
        return {}
    final = step_at(last)
    ledger, paths = count(final, orders=False), [*forward_record(final).operands]

    def operands(tokens: int) -> Costs:
        found = forward_record(step_at(tokens)).operands
        return tuple(found[path] for path in paths)

    try:
        sums = sum_over_sizes(operands, first, last, cost_lengths(final))
    except UsageError:
        return {}
    steps, found = last - first + 1, Counter(dict(zip(paths, sums, strict=True)))
    for row in ledger.rows:
        if row.path in found:
            times = row.times * (steps - (row.weights_read is not None))
            found[row.path] += weights_read(row) * times * ledger.bytes_per_element
    return found


def cost_lengths(architecture: Architecture) -> set[int]:
    """Lengths that costs may depend on.

    Whole numbers in the fields of components, these plus 1 (a band's blocks), and powers of two (defaults).
    """
    fields = (msgspec.structs.astuple(part.component) for part, *_ in architecture.parts())
    numbers = {value for values in fields for value in values if isinstance(value, int)}
    return {*numbers, *(number + 1 for number in numbers), *(1 << power for power in range(1, 13))}
