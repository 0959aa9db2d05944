"""Ledger -> ledger with the least time of its run on the devices of `--on`, the memory that it needs, and what fits."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import cache, partial
from math import ceil
from typing import Any, Final, NamedTuple

import msgspec

from xfcost.counting.decoding import cost_lengths, run_at
from xfcost.counting.forward import count
from xfcost.counting.model_record import forward_record
from xfcost.counting.sums import Costs, last_true, sum_over_sizes
from xfcost.formulas.arithmetic import ceil_div
from xfcost.ledger.device import DeviceGroup
from xfcost.ledger.errors import SpecError, UsageError
from xfcost.ledger.execution import MOST_BATCH, MOST_DEVICES, Mode
from xfcost.ledger.grid import MOST_TOKENS
from xfcost.ledger.join import with_operand_bytes
from xfcost.ledger.least_work import kept_macs, kept_shares, weight_bytes
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.offload import Offload
from xfcost.ledger.operation import Operation
from xfcost.ledger.parallelism import HeadSharing, Parallelism
from xfcost.ledger.quantization import WEIGHT_FORMATS
from xfcost.ledger.units import FLOPS_PER_MAC
from xfcost.parts.serving.cache_blocks import in_blocks, with_blocks
from xfcost.parts.serving.evidence import serving_evidence
from xfcost.parts.serving.offload import (
    Blocks,
    Split,
    blocks_of_module,
    blocks_of_spec,
    host_link,
    host_time,
    peak_dtype,
)
from xfcost.parts.serving.parallel import Shares, heads_of, most_experts
from xfcost.parts.serving.result import (
    ComputeBoundBatch,
    MemoryNeed,
    Offloaded,
    OnDevices,
    PhaseBound,
    SharedReads,
    TimeBound,
)
from xfcost.spec.architecture import Architecture
from xfcost.spec.load import Loaded
from xfcost.spec.placement import place
from xfcost.spec.run import Run


def memory_need(ledger: Ledger, available: int | None, shares: Shares | None = None) -> MemoryNeed:
    """The bytes of a pass, a decode step or a generation; of one device where they share the model as given.

    Of a ledger that is `in_blocks` with what the blocks of its cache take.
    """
    need = _exact_need(ledger, available, shares)
    if ledger.metadata.cache_blocks is None:
        return need
    return msgspec.structs.replace(need, reserved_cache=_exact_need(with_blocks(ledger), None, shares).cache)


def _exact_need(ledger: Ledger, available: int | None, shares: Shares | None) -> MemoryNeed:
    if shares is not None:
        return shares.need(ledger)
    return MemoryNeed(
        weights=ledger.held_bytes,
        cache=cache_bytes(ledger),
        attention=ledger.attention_memory()["peak"],
        activations=ledger.activations,
        available=available,
    )


def cache_bytes(ledger: Ledger) -> int:
    """Of the cache that its mode found, or else that its rows read."""
    return ledger.cache.bytes if ledger.cache is not None else ledger.cached_bytes


def cache_read_bytes(ledger: Ledger) -> int:
    """Of the cache what a decode step reads."""
    return cache_bytes(ledger) - ledger.unread_cache_bytes


class SizedRun(NamedTuple):
    """A run at other N, modes and batches."""

    tokens: int
    """N of the run; of a generation that of its prompt."""
    batch: int
    ledger: Callable[[int, Mode, int], Ledger]
    """(N, mode, batch) -> its ledger; a SpecError or UsageError where it can't be."""
    lengths: Collection[int] = ()
    """Lengths at which costs may step."""
    positions: int | None = None
    """The most tokens, of what does not refuse more itself."""
    one_run_each: bool = False
    """Is every size another run, so that few are looked at, and no large batch? It may have real numbers."""
    stated_positions: int | None = None
    """The positions that a spec states, beyond which its N may be."""
    heads: Callable[[], Mapping[str, HeadSharing]] = dict
    """Component of a row -> the heads of its layer, for tensor parallelism; of a module its sub-layer."""
    blocks: Callable[[], Blocks] | None = None
    """The blocks of a spec; None of a module, whose rows have their numbers."""
    shares: Shares | None = None
    """How the devices share the model, where that is given; `batch` is then that of a replica."""


def with_largest(need: MemoryNeed, ledger: Ledger, sizes: SizedRun) -> MemoryNeed:
    """`need` of a decode step, with the largest batch and the largest N that fit."""
    if need.available is None:
        return need
    grows = sizes.one_run_each
    tokens, positions = _largest_by_growth(need, ledger, sizes) if grows else _largest_tokens(need, sizes)
    batch = largest_batch_of_step(need, ledger, sizes)
    need = msgspec.structs.replace(need, largest_batch=batch, largest_tokens=tokens, positions=positions)
    stated = sizes.stated_positions
    if tokens is None or stated is None or not sizes.tokens <= stated < tokens:  # a run beyond them has a warning
        return need
    return msgspec.structs.replace(need, fewer_positions=stated)


def _largest_batch(need: MemoryNeed, sizes: SizedRun) -> int | None:
    """The most samples that fit; None where nothing grows with them, or no memory is known."""
    each = (need.held_cache + need.alive) // sizes.batch  # as many times larger as the batch
    if need.available is None or not each:
        return None
    replicas = 1 if sizes.shares is None else sizes.shares.replicas
    return max(0, min((need.available - need.weights) // each * replicas, MOST_BATCH))


def largest_batch_of_step(need: MemoryNeed, ledger: Ledger, sizes: SizedRun) -> int | None:
    """The same of a decode step; with so many samples torch copies tensors that it does not copy for one."""
    found = _largest_batch(need, sizes)
    if not found or need.activations is None or sizes.one_run_each:
        return found
    replicas = 1 if sizes.shares is None else sizes.shares.replicas
    there = sizes._replace(batch=found // replicas)
    counted = sizes.ledger(sizes.tokens, "decode", there.batch)
    return _largest_batch(memory_need(counted, need.available, sizes.shares), there)


def _largest_tokens(need: MemoryNeed, sizes: SizedRun) -> tuple[int | None, bool]:
    """The largest N that fits; None where every N does. And whether the model has no more positions."""

    @cache
    def at(tokens: int) -> MemoryNeed | None:
        """None where the model has no such positions."""
        try:
            return memory_need(sizes.ledger(tokens, "decode", sizes.batch), need.available, sizes.shares)
        except (SpecError, UsageError):
            return None

    def fits(tokens: int) -> bool:
        found = at(tokens)
        return found is not None and found.fits is True

    largest = largest_true(fits, sizes.tokens, MOST_TOKENS)
    return largest, largest is not None and at(largest + 1) is None


# Runs in the search for the largest N of a module, whose cache grows ever more slowly: windows fill.
_MOST_RUNS: Final = 6


def _largest_by_growth(need: MemoryNeed, ledger: Ledger, sizes: SizedRun) -> tuple[int | None, bool]:
    """The same of a module: from N as far as its growth there goes, again from there, or back where that is too far."""
    tokens, most, available = sizes.tokens, sizes.positions or MOST_TOKENS, need.available or 0
    blocks = ledger.metadata.cache_blocks
    fits: tuple[int, int] | None = None  # N and the bytes there
    exceeds: tuple[int, int] | None = None
    for _ in range(_MOST_RUNS):
        held = memory_need(ledger, available, sizes.shares)
        growth = _growth(held, ledger, sizes, tokens)
        if not growth:
            return None, False
        tokens = tokens if blocks is None else blocks.rounded(tokens)  # a block has room for so many
        if held.reserved <= available:
            fits = tokens, held.reserved
        else:
            exceeds = tokens, held.reserved
        if fits and exceeds:  # an encoder's keys may grow too
            growth = Fraction(exceeds[1] - fits[1], exceeds[0] - fits[0])
        start, bytes_there = fits or (tokens, held.reserved)
        reached = start + math.floor((available - bytes_there) / growth)
        reached -= 0 if blocks is None else reached % blocks.tokens
        if reached >= most:
            return (most, True) if sizes.positions else (None, False)
        if reached == start or reached < 2:  # noqa: PLR2004 - a decode step has a token before it
            return max(reached, 0), False
        tokens = reached
        try:
            ledger = sizes.ledger(tokens, "decode", sizes.batch)
        except UsageError:  # inputs of that N may not fit here
            break
        if ledger.metadata.grid_tokens != tokens:  # of given inputs no other N is known
            break
    return tokens, False


def _growth(held: MemoryNeed, ledger: Ledger, sizes: SizedRun, tokens: int) -> Fraction:
    """Bytes that a token more takes on one device, where its samples have so many `tokens`."""
    matrices = 0 if ledger.metadata.attention == "fused" else held.attention // tokens  # statistics don't grow
    added, blocks = ledger.cache.bytes_per_token if ledger.cache else 0, ledger.metadata.cache_blocks
    if blocks is not None and blocks.whole and blocks.start_elements:  # windows take as much as other layers
        added = blocks.start_elements * ledger.bytes_per_cached
    cached = Fraction(added * sizes.batch)
    if sizes.shares is not None:
        cached = cached * sizes.shares.cache_copies() / sizes.shares.devices
    return cached + matrices


def largest_true(holds: Callable[[int], bool], start: int, most: int) -> int | None:
    """The largest number for which it holds, by doubling and halving; 0 where never, None where up to `most`."""
    low, high = 0, start
    while holds(high):
        if high == most:
            return None
        low, high = high, min(2 * high, most)
    return last_true(holds, low, high)


def with_devices(
    ledger: Ledger, loaded: Loaded, run: Run, architecture: Architecture, *, limits: bool = True
) -> Ledger:
    """`ledger` of a spec on the devices of the run, of several with its activations; as it is in training.

    Raises:
        UsageError: the devices have no peak of the run's dtype.
    """
    if run.mode == "train":
        return ledger
    sizes, record = sizes_of_spec(loaded, run, architecture), forward_record(architecture)
    peak, mode = record.peak_bytes(), ledger.metadata.mode
    if run.on is not None and mode in {"forward", "prefill"}:  # rows of a pass over all tokens
        ledger = with_operand_bytes(ledger, record.operands)
    if mode == "generate" and run.new_tokens > 1:
        last = sizes.ledger(sizes.tokens + run.new_tokens - 1, "decode", sizes.batch)
        peak = max(peak, last.activations or 0)
    return on_devices(msgspec.structs.replace(ledger, activations=peak), run, sizes, limits=limits)


def sizes_of_spec(loaded: Loaded, run: Run, architecture: Architecture) -> SizedRun:
    """The run of a spec at other N, modes and batches, each counted."""

    def counted(tokens: int, mode: Mode, batch: int) -> Ledger:
        placed = place(loaded, run_at(tokens, architecture, run._replace(batch=batch), mode))
        ledger = count(placed, orders=False)
        return msgspec.structs.replace(ledger, activations=forward_record(placed).peak_bytes())

    tokens: int = architecture.streams[-1].grid.tokens
    heads = partial(heads_of, architecture)
    stated = architecture.positions
    return SizedRun(
        tokens, run.batch, counted, cost_lengths(architecture), stated_positions=stated, heads=heads,
        blocks=partial(blocks_of_spec, architecture),
    )  # fmt: skip


def on_devices(ledger: Ledger, run: Run, sizes: SizedRun, *, limits: bool = True) -> Ledger:
    """`ledger` of any system, with the bound, the memory and the `limits` of its run on the devices of `run`.

    Raises:
        UsageError: the devices have no peak of the run's dtype, or do not share the model as given.
    """
    on, plan, mode = run.on, run.parallelism, run.mode
    if on is None:
        return ledger
    on.peak(ledger.metadata.dtype)
    formats, counted = (ledger.metadata.weight_format, ledger.metadata.cache_format), sizes.ledger
    sizes = sizes._replace(ledger=cache(lambda *size: counted(*size).stored_as(*formats)))
    ledger, sizes = with_cache_blocks(ledger, sizes, run)
    if run.offload is not None:
        return _offloaded(ledger, run, sizes, run.offload, limits=limits)
    samples, mine, notes = sizes.batch, ledger, _notes(ledger, on)
    if plan is not None and plan.expert > 1 and run.compared and most_experts(ledger) == 1:
        ledger = ledger.with_note(f"--expert-parallel {plan.expert} has no effect: it has no experts")
        plan = msgspec.structs.replace(plan, expert=1)
    if plan is not None:
        shares = Shares(plan, on, sizes.heads() if plan.tensor > 1 else {}, samples)
        shares.check(ledger)
        sizes, notes = sizes._replace(batch=shares.samples(samples), shares=shares), _notes_on_sharing(shares)
        mine = ledger if sizes.batch == samples else _of_replica(ledger, sizes, mode)
    phases = tuple(_phases(sizes, run.new_tokens, on)) if mode == "generate" else ()
    need, closing = memory_need(mine, on.memory_bytes, sizes.shares), None
    if mode == "decode" and limits:
        need = with_largest(need, mine, sizes)
        with suppress(UsageError):  # of a module with given inputs no other batch is known
            closing = _compute_bound_batch(sizes, ledger, on) if plan is None else None
    if need.fits is False and limits:
        need = msgspec.structs.replace(need, remedies=tuple(_remedies(need, mine, run, sizes)))
    time = _all_phases(phases) if phases else _bound_at(sizes, sizes.tokens, mode, on, mine)
    if time.experts_seconds > time.bytes / time.bandwidth:
        words = "the expected experts are fewer than the devices that divide them: a layer takes as long as one "
        notes = itertools.chain(notes, [words + "device reads a whole expert, while others read none"])
    found = OnDevices(
        on=on,
        dtype=ledger.metadata.dtype,
        mfu=run.mfu,
        mbu=run.mbu,
        time=time,
        memory=need,
        outputs=_outputs(ledger, run, samples, sizes.tokens),
        compute_bound_batch=closing,
        phases=phases,
        notes=tuple(notes),
        parallelism=plan,
        cache_blocks=run.cache_blocks if need.cache else None,
        exchange=None if sizes.shares is None else sizes.shares.exchange(mine),
        reads=_reads_of_sharing(ledger, mine, sizes, mode),
    )
    ledger = msgspec.structs.replace(ledger, on=_with_evidence(found, ledger, run, sizes) if limits else found)
    if ledger.step is None or sizes.shares is None:
        return ledger
    of_rows = [(row.times, found.reads[row.path]) for row in ledger.rows]
    step = msgspec.structs.replace(
        ledger.step,
        weight_bytes=sum(times * read.weights for times, read in of_rows),
        cache_bytes=ceil(sizes.shares.cache_read_bytes(ledger)),
    )
    return msgspec.structs.replace(ledger, step=step)


def _outputs(ledger: Ledger, run: Run, samples: int, tokens: int) -> int | None:
    """What the run gives of so many samples (`OnDevices.outputs`)."""
    if not ledger.metadata.batch_known:
        return None
    return samples * {"generate": run.new_tokens, "prefill": tokens - run.cached_prefix}.get(run.mode, 1)


def with_cache_blocks(ledger: Ledger, sizes: SizedRun, run: Run) -> tuple[Ledger, SizedRun]:
    """The ledger and those at other sizes in the blocks of the run, where it has some.

    Raises:
        UsageError: as `in_blocks`.
    """
    if run.cache_blocks is None:
        return ledger, sizes
    at = sizes.ledger

    @cache
    def counted(*size: Any) -> Ledger:
        return in_blocks(at(*size), run.cache_blocks, at)

    return in_blocks(ledger, run.cache_blocks, at), sizes._replace(ledger=counted)


def _offloaded(ledger: Ledger, run: Run, sizes: SizedRun, offload: Offload, *, limits: bool) -> Ledger:
    """`ledger` with its run on the devices, the model's first blocks being on the host."""
    on, mode, batch = run.on, run.mode, sizes.batch
    if on is None:
        return ledger
    step, host = _last_step(ledger, run, sizes), DeviceGroup(device=offload.host)
    split = Split(offload.layers, None if sizes.blocks is None else sizes.blocks(), sizes.ledger)
    blocks = split.blocks or blocks_of_module(step)
    if not 0 < offload.layers <= blocks.total:
        raise UsageError(
            f"--offload {offload.layers}: expected a number of blocks from 1 to {blocks.total:,}, those of "
            f"{ledger.metadata.name}"
        )
    link, rate, assumed = host_link(on.device)
    # activations and matrices are alive on either side, while it computes
    alive = {"attention": ledger.attention_memory()["peak"], "activations": ledger.activations}

    def needs(split: Split) -> tuple[MemoryNeed, MemoryNeed]:
        """Of the devices, and of the host."""
        mine, other = (
            memory_need(split.part(step, host=at_host), group.memory_bytes)
            for at_host, group in ((False, on), (True, host))
        )
        return msgspec.structs.replace(mine, **alive), msgspec.structs.replace(other, **alive)

    need, of_host = needs(split)
    if mode == "decode" and limits:
        need, of_host = (
            with_largest(one, split.part(ledger, host=at_host), sizes._replace(ledger=_parts_of(split, host=at_host)))
            for one, at_host in ((need, False), (of_host, True))
        )
        need = need.within(of_host)
    if limits and (need.fits is False or of_host.fits is False):
        remedies = _other_split(split, blocks.total, needs)
        need = msgspec.structs.replace(need, remedies=remedies)

    def bound(tokens: int, mode: Mode, whole: Ledger | None = None) -> TimeBound:
        whole = sizes.ledger(tokens, mode, batch) if whole is None else whole
        of_blocks = host_time(split.part(whole, host=True), whole, offload.host, rate)
        return msgspec.structs.replace(step_bound(split.part(whole, host=False), on), host=of_blocks)

    phases = tuple(_phases_on_host(sizes, run.new_tokens, bound)) if mode == "generate" else ()
    found = OnDevices(
        on=on,
        dtype=ledger.metadata.dtype,
        mfu=run.mfu,
        mbu=run.mbu,
        time=_whole_time(phases) if phases else bound(sizes.tokens, mode, ledger),
        memory=need,
        outputs=_outputs(ledger, run, batch, sizes.tokens),
        phases=phases,
        offloaded=Offloaded(
            offload=offload,
            blocks=blocks.total,
            memory=of_host,
            link=link,
            link_assumed=assumed,
            peak_dtype=peak_dtype(offload.host, ledger.metadata.dtype),
        ),
        cache_blocks=run.cache_blocks if need.cache or of_host.cache else None,
    )
    return msgspec.structs.replace(ledger, on=_with_evidence(found, ledger, run, sizes) if limits else found)


def _with_evidence(found: OnDevices, ledger: Ledger, run: Run, sizes: SizedRun) -> OnDevices:
    """`found` with the published runs like it, unless it does not fit."""
    if found.no_time is not None:
        return found
    alone = sum(max(part.compute_seconds, part.memory_seconds) for part in found.parts)
    offloaded, times = found.offloaded is not None, (alone, found.seconds)
    lengths = sizes.tokens, run.new_tokens if run.mode == "generate" else 1
    runs = serving_evidence(ledger, found.on, found.parallelism, lengths, times, offloaded=offloaded)
    return msgspec.structs.replace(found, evidence=runs)


def _last_step(ledger: Ledger, run: Run, sizes: SizedRun) -> Ledger:
    """The decode step that holds most, in modes with a cache; else the pass itself."""
    if run.mode not in ("prefill", "generate"):
        return ledger
    with suppress(SpecError, UsageError):  # no decode step, and so no cache
        return sizes.ledger(sizes.tokens + run.new_tokens - 1, "decode", sizes.batch)
    return sizes.ledger(sizes.tokens, "prefill", sizes.batch)


def _parts_of(split: Split, *, host: bool) -> Callable[[int, Mode, int], Ledger]:
    """The part of a side, at other sizes."""
    return cache(lambda *size: split.part(split.at(*size), host=host))


def _other_split(
    split: Split, blocks: int, needs: Callable[[Split], tuple[MemoryNeed, MemoryNeed]]
) -> tuple[str, ...]:  # fmt: skip
    """`--offload 12`, the fewest blocks on the host with which both sides hold theirs; nothing where none do."""
    for layers in range(blocks + 1):
        if all(one.fits is not False for one in needs(split._replace(layers=layers))):
            return (f"--offload {layers}",) if layers else ("no --offload",)
    return ()


def _phases_on_host(
    sizes: SizedRun, new_tokens: int, bound: Callable[[int, Mode], TimeBound]
) -> Iterator[PhaseBound]:  # fmt: skip
    """As `_phases`: the prefill, and the steps behind it, each with the host's part."""
    prompt = sizes.tokens
    yield PhaseBound(name="prefill", time=bound(prompt, "prefill"))
    if new_tokens == 1:
        return

    def costs(tokens: int) -> Costs:
        one = bound(tokens, "decode")
        hosted = (0, 0) if one.host is None else (one.host.flops, one.host.bytes)
        return (one.flops, one.quantised_flops, one.bytes, *hosted)

    last = prompt + new_tokens - 1
    flops, quantised, moved, host_flops, host_bytes = sum_over_sizes(costs, prompt + 1, last, set(sizes.lengths))
    step = bound(last, "decode")
    host = step.host and msgspec.structs.replace(step.host.times(new_tokens - 1), flops=host_flops, bytes=host_bytes)
    found = {"flops": flops, "quantised_flops": quantised, "bytes": moved, "host": host}
    yield PhaseBound(name="decode", time=msgspec.structs.replace(step, **found))


def _whole_time(phases: Sequence[PhaseBound]) -> TimeBound:
    """Of all phases, the host's part too."""
    whole, hosts = _all_phases(phases), [one.time.host for one in phases if one.time.host is not None]
    sums = {name: sum(getattr(one, name) for one in hosts) for name in ("flops", "bytes", "moved_bytes")}
    return msgspec.structs.replace(whole, host=msgspec.structs.replace(hosts[0], **sums))


def _of_replica(ledger: Ledger, sizes: SizedRun, mode: Mode) -> Ledger:
    """The ledger of the samples of a replica, with its part of the cache."""
    mine, cached = sizes.ledger(sizes.tokens, mode, sizes.batch), ledger.cache
    if cached is None or mine.cache is not None:
        return mine
    return msgspec.structs.replace(mine, cache=cached.times(sizes.batch, ledger.metadata.batch))


# Formats of weights and cache that are tried, the least change first; without fp8 units int8 in its place.
_SMALLER: Final = ((None, "fp8"), ("fp8", None), ("fp8", "fp8"), ("int4", None), ("int4", "fp8"))


def _remedies(need: MemoryNeed, ledger: Ledger, run: Run, sizes: SizedRun) -> Iterator[str]:
    """Options with each of which a run fits that does not: more devices, smaller formats, fewer samples."""
    if more := _more_devices(need, ledger, run, sizes):
        yield more
    own, own_cache = ledger.metadata.weight_format, ledger.metadata.cache_format
    bits = math.inf if own is None else own.bits
    device = None if run.on is None else run.on.device
    eight = "fp8" if device is None or "float8" in device.peaks else "int8"
    for pair in _SMALLER:
        weights, cached = (eight if one == "fp8" else one for one in pair)
        if (weights and WEIGHT_FORMATS[weights].bits >= bits) or (cached and (own_cache or not need.cache)):
            continue
        other = ledger.stored_as(WEIGHT_FORMATS[weights] if weights else own, cached or own_cache)
        if memory_need(other, need.available, sizes.shares).fits:
            yield " ".join([f"--weights-dtype {weights}"] * bool(weights) + [f"--cache-dtype {cached}"] * bool(cached))
            break
    if batch := _largest_batch(need, sizes):
        yield f"--batch {batch}"


def _more_devices(need: MemoryNeed, ledger: Ledger, run: Run, sizes: SizedRun) -> str | None:
    """The fewest of the devices that hold it, in replicas that divide the heads; without heads divided perfectly."""
    on, given, memory = run.on, run.parallelism or Parallelism(), need.available
    if on is None or memory is None:
        return None
    takes = ceil_div(need.reserved, memory // on.count)
    try:
        heads = sizes.heads()
    except UsageError:
        return None if run.parallelism else f"--on {on.device.name}x{takes}"
    found = []
    most = math.gcd(*(one.heads for one in heads.values()))
    for tensor in (degree for degree in range(given.tensor, most + 1) if most % degree == 0):
        plan = msgspec.structs.replace(given, tensor=tensor)
        one = Shares(plan, msgspec.structs.replace(on, count=tensor * plan.pipeline), heads, run.batch)
        held = memory_need(ledger, one.on.device.memory_bytes, one)
        alive = max(held.alive, ledger.activations or 0)  # a device that shares samples may hold all of theirs
        each = ceil_div(held.held_cache + alive, sizes.batch)
        samples = ((held.available or 0) - held.weights) // each if each else run.batch
        if samples > 0:
            replicas = max(ceil_div(run.batch, samples), ceil_div(on.count if run.parallelism else 1, one.devices))
            found.append((replicas * one.devices, tensor))
    fitting = (one for one in found if not one[0] // given.pipeline % given.expert)
    count, tensor = min(fitting, default=(0, 0))
    if not 0 < count <= MOST_DEVICES:
        return None
    devices = f"--on {on.device.name}{f'x{count}' if count > 1 else ''}"
    return " ".join([devices] * (count != on.count) + [f"--tensor-parallel {tensor}"] * (tensor != given.tensor))


def _reads_of_sharing(ledger: Ledger, mine: Ledger, sizes: SizedRun, mode: Mode) -> dict[str, SharedReads]:
    """What devices that share the model as given read of each row: replicas their own weights, micro-batches anew."""
    shares = sizes.shares
    if shares is None:
        return {}
    part, batches = _micro_batch(sizes, sizes.tokens, mode, mine)
    busy = ceil_div(ledger.metadata.batch, sizes.batch)  # replicas that have samples
    found = {}
    for row in part.rows:
        groups = ceil_div(busy, shares.together(row))
        passes = batches * shares.together(row) * groups
        computed = shares.computed(row)
        found[row.path] = SharedReads(
            weights=ceil(passes * shares.weights_read(row, part)),
            cache_copies=float(shares.cache_copies(row)),
            computed=float(computed),
            activations=shares.plan.tensor if computed == shares.plan.tensor else 1,
        )
    return found


def _micro_batch(sizes: SizedRun, tokens: int, mode: Mode, counted: Ledger | None = None) -> tuple[Ledger, int]:
    """The ledger of a micro-batch of a replica, and how many of them it has: in a decode step one for each stage."""
    stages = sizes.shares.plan.pipeline if sizes.shares is not None and mode == "decode" else 1
    samples = ceil_div(sizes.batch, stages)
    whole = counted is not None and samples == sizes.batch
    part = counted if whole and counted is not None else sizes.ledger(tokens, mode, samples)
    return part, ceil_div(sizes.batch, samples)


def _notes_on_sharing(shares: Shares) -> Iterator[str]:
    """Heads of keys and values that several devices hold, links that are not known."""
    t = shares.plan.tensor
    for found in dict.fromkeys((one.heads, one.kv_heads) for one in shares.heads.values()):
        one = HeadSharing(*found)
        copies = t * one.held(t)
        if one.kv_heads == 1:
            yield f"all {one.heads:,} heads read the same keys and values: each of {t} devices holds all of the cache"
        elif copies > one.kv_heads:
            yield f"{one.kv_heads} key and value heads on {t} devices: each holds {one.held(t)}, {copies} in all"
    if shares.on.device.link is None and t * shares.plan.pipeline > 1:
        yield f"{shares.on.device.name}: no link of it is known; communication is not counted"


# What a step exchanges, and the experts of one device, which do not grow with N.
_OF_STEP: Final = ("link_bytes", "link_seconds", "experts_seconds")


def _all_phases(phases: Sequence[PhaseBound]) -> TimeBound:
    times = [one.time for one in phases]
    names = ("flops", "quantised_flops", "bytes", *_OF_STEP)
    return msgspec.structs.replace(times[0], **{name: sum(getattr(one, name) for one in times) for name in names})


def _bound_at(sizes: SizedRun, tokens: int, mode: Mode, on: DeviceGroup, counted: Ledger | None = None) -> TimeBound:
    """The bound of one pass or decode step of all samples; `counted` is that of all samples, or of a replica's."""
    shares = sizes.shares
    if shares is None:
        return step_bound(counted or sizes.ledger(tokens, mode, sizes.batch), on)
    stages = shares.plan.pipeline if mode == "decode" else 1
    part, _ = _micro_batch(sizes, tokens, mode, counted)
    passes = stages * shares.replicas
    read = shares.weight_bytes(part) + ceil(shares.cache_read_bytes(part))
    compute = _compute(part, on, shares.computed)
    for name in ("flops", "quantised_flops"):
        compute |= {name: compute[name] * passes} if name in compute else {}
    link = shares.exchange(part)
    return TimeBound(
        experts_seconds=shares.experts_of_a_device(part) / on.device.bytes_per_second,
        bytes=passes * read,
        bandwidth=on.bytes_per_second,
        link_bytes=stages * (link.bytes + link.all_to_all_bytes),
        link_seconds=stages * (link.seconds + link.all_to_all_seconds),
        **compute,
    )


def step_bound(ledger: Ledger, on: DeviceGroup) -> TimeBound:
    """The bound of one pass or decode step: its weights once, and its cache."""
    read = weight_bytes(ledger) + cache_read_bytes(ledger)
    return TimeBound(bytes=read, bandwidth=on.bytes_per_second, **_compute(ledger, on))


def _compute(
    ledger: Ledger, on: DeviceGroup, computed: Callable[[Operation], Fraction] = lambda _: Fraction(1)
) -> dict[str, Any]:  # fmt: skip
    """FLOPs that no implementation avoids and their peak; those of products with quantised operands, and theirs.

    `computed` says how often the devices compute a row, all together.
    """
    stored, dtype, shares = ledger.storage, ledger.metadata.dtype, kept_shares(ledger.rows, ledger.metadata.batch)
    flops: dict[float, int] = {on.device.peak(dtype): 0}
    for row in ledger.rows:
        if macs := row.times * kept_macs(row, shares):
            peak = stored.peak(row, on.device, dtype)
            flops[peak] = flops.get(peak, 0) + int(FLOPS_PER_MAC * macs * computed(row))
    peak, *faster = flops
    found: dict[str, Any] = {"flops": sum(flops.values()), "peak": on.count * peak}
    if faster:
        found |= {"quantised_flops": sum(flops[one] for one in faster), "quantised_peak": on.count * max(faster)}
    return found


def _phases(sizes: SizedRun, new_tokens: int, on: DeviceGroup) -> Iterator[PhaseBound]:
    """The prefill, which gives the first of m tokens, and the steps that give the others."""
    prompt = sizes.tokens
    first, written = _bound_at(sizes, prompt, "prefill", on), 0
    if sizes.ledger(prompt, "prefill", sizes.batch).cache is None:  # what it writes is read from that of a step
        filled = sizes.ledger(prompt, "decode", sizes.batch)
        written = cache_bytes(filled)
        if sizes.shares is not None:
            written = sizes.shares.replicas * ceil(sizes.shares.cache_bytes(filled))
    yield PhaseBound(name="prefill", time=msgspec.structs.replace(first, bytes=first.bytes + written))
    if new_tokens == 1:
        return

    def costs(tokens: int) -> Costs:
        bound = _bound_at(sizes, tokens, "decode", on)
        return bound.flops, bound.quantised_flops, bound.bytes

    last = prompt + new_tokens - 1
    flops, quantised, moved = sum_over_sizes(costs, prompt + 1, last, set(sizes.lengths))
    step, steps = _bound_at(sizes, last, "decode", on), new_tokens - 1
    found = {"flops": flops, "quantised_flops": quantised, "bytes": moved}
    found |= {name: steps * getattr(step, name) for name in _OF_STEP}
    yield PhaseBound(name="decode", time=msgspec.structs.replace(step, **found))


def _compute_bound_batch(sizes: SizedRun, ledger: Ledger, on: DeviceGroup) -> ComputeBoundBatch:
    """The least batch at which FLOPs take as long as bytes: weights are read once, a cache for every sample.

    B·f / P ≥ (w(B) + B·c) / b, with w(B) of the experts that B tokens are expected to choose. w grows ever more slowly,
    so that what is true for a batch stays true for larger ones.
    """
    single = ledger if sizes.batch == 1 else sizes.ledger(sizes.tokens, "decode", 1)
    one, cache = step_bound(single, on), cache_read_bytes(single)

    def memory_bound(batch: int) -> bool:
        moved = weight_bytes(single, batch) + batch * cache
        return moved / one.bandwidth > batch * one.compute_seconds

    last = largest_true(memory_bound, 1, MOST_BATCH)
    return ComputeBoundBatch(
        batch=None if last is None else last + 1,
        intensity=one.flops / cache if cache else None,
        ridge_point=one.mean_peak / one.bandwidth,
    )


def _notes(ledger: Ledger, on: DeviceGroup) -> Iterator[str]:
    """Matrices that count whole, heads that the devices do not divide, and a cache that all heads read."""
    eager = any(row.ran and row.attention_entries and not row.fused for row in ledger.rows)
    if ledger.metadata.mode == "prefill" and eager:
        yield "eager attention counts all pairs in the bound; a kernel that skips what a mask leaves out may take less"
    if on.count == 1:
        return
    # a decode step's core runs once for each head of keys and values, which several heads of queries share
    cores = [
        (row.heads, int(row.core.times) // ledger.metadata.batch, row.core.queries)
        for row in ledger.rows if row.core and row.heads and ledger.metadata.mode == "decode"
    ]  # fmt: skip
    grouped = {heads for heads, times, queries in cores if heads == times and queries > 1}  # a kernel of these alone
    found = {row.heads for row in ledger.rows if row.heads is not None and (row.mixes or row.fused)} - grouped
    if odd := _odd(found, on):
        yield f"{on.count} devices do not divide {odd} heads: some would hold more of them, or copies"
    cached = {(heads, times) for heads, times, _ in cores if times not in found and (times < heads or heads in grouped)}
    if odd := _odd({times for _, times in cached if times > 1}, on):
        yield f"{on.count} devices do not divide {odd} key and value heads: some would hold more of them, or copies"
    for heads in sorted(heads for heads, times in cached if times == 1):
        yield (
            f"all {heads:,} heads read the same cache: each of {on.count} devices would hold a copy, unless they share "
            "out the samples"
        )


def _odd(heads: set[int], on: DeviceGroup) -> str:
    """`8 or 12`: those that the devices do not divide."""
    return " or ".join(str(number) for number in sorted(heads) if number % on.count)
