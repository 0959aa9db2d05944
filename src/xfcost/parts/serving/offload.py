"""Ledger -> its part on the devices, or on the host, where the model's first blocks stay on the host.

Blocks are numbered in the order in which they run. Embedding, head and what else is in no block stay on the devices.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Final, NamedTuple

import msgspec

from xfcost.counting.decoding import cache_of
from xfcost.ledger.device import Device, DeviceFigure
from xfcost.ledger.errors import SpecError, UsageError
from xfcost.ledger.execution import Mode
from xfcost.ledger.least_work import kept_macs, kept_shares, weight_bytes
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.modes import CacheBytes
from xfcost.ledger.module_rows import ALL, is_group
from xfcost.ledger.offload import HostTime
from xfcost.ledger.operation import Operation
from xfcost.ledger.quantization import StoredAs
from xfcost.ledger.units import FLOPS_PER_MAC
from xfcost.parts.serving.parallel import boundary_elements
from xfcost.spec.architecture import Architecture

# What joins a host with devices whose own link is among themselves: the fastest that they have.
_LINK: Final = ("PCIe 5.0 x16", 63e9)
_RANGE: Final = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")


class Blocks(NamedTuple):
    """The blocks of a model, from 0 in the order in which they run."""

    of: Mapping[str, Sequence[int]]
    """Component of a row -> the numbers of its blocks; none of what is in no block."""
    total: int


def blocks_of_spec(architecture: Architecture) -> Blocks:
    """Those of a spec's stages."""
    found: dict[str, list[int]] = {}
    total = 0
    for stream in architecture.streams:
        for stage in stream.stages:
            for number in stage.order:
                for part in stage.blocks[number].parts:
                    found.setdefault(part.path, []).append(total)
                total += 1
    return Blocks(found, total)


def block_of(row: Operation) -> str | None:
    """The path of the block of a module's row, up to its number; None of a row in no block."""
    parts = row.component.split(".")
    place = next((place for place, part in enumerate(parts) if is_group(part) or part.isdecimal()), None)
    return None if place is None else ".".join(parts[: place + 1])


def blocks_of_module(ledger: Ledger) -> Blocks:
    """Those of a module's numbered parts, by the paths of its rows: `model.layers.0-22:2` has every second one."""
    lists: dict[str, dict[str, Sequence[int]]] = {}
    for row in ledger.rows:
        if (path := block_of(row)) is not None:
            parent, _, number = path.rpartition(".")
            numbers = range(row.times) if number == ALL else _numbers(number)
            known = lists.setdefault(parent, {})
            # of an operation that runs several times in a block the fewest are its blocks
            known[path] = min(known.get(path, numbers), numbers, key=len)
    found: dict[str, Sequence[int]] = {}
    total = 0
    for of_list in lists.values():
        every = sorted({number for numbers in of_list.values() for number in numbers})
        places = {number: total + place for place, number in enumerate(every)}
        found |= {path: [places[number] for number in numbers] for path, numbers in of_list.items()}
        total += len(every)
    of_rows = ((row.component, block_of(row)) for row in ledger.rows)
    return Blocks({component: found[path] for component, path in of_rows if path is not None}, total)


def _numbers(text: str) -> list[int]:
    """`0,2,4-9`, `0-22:2`."""
    found: list[int] = []
    for first, last, step in _RANGE.findall(text):
        found += range(int(first), int(last or first) + 1, int(step or 1))
    return found


class Split(NamedTuple):
    """What splits the ledgers of a run: its first `layers` blocks for the host, the others for the devices."""

    layers: int
    blocks: Blocks | None
    """Of a spec; a module's are those of each of its ledgers."""
    at: Callable[[int, Mode, int], Ledger]
    """The whole run at another N, mode and batch."""

    def part(self, ledger: Ledger, *, host: bool) -> Ledger:
        """The rows, weights and cache of one side; activations are those of the whole run.

        Raises:
            UsageError: a spec has other blocks at another N.
        """
        blocks = blocks_of_module(ledger) if self.blocks is None else self.blocks
        on_host = {row.path: self._times_on_host(row, blocks, ledger) for row in ledger.rows}
        times = on_host if host else {row.path: row.times - on_host[row.path] for row in ledger.rows}
        mine = (msgspec.structs.replace(row, times=times[row.path]) for row in ledger.rows if times[row.path])
        found = msgspec.structs.replace(ledger, rows=tuple(mine), step=None)
        if ledger.cache is not None or ledger.metadata.mode in ("prefill", "decode"):
            found = self._with_cache(found, ledger, host=host)
        vars(found)["storage"] = _stored(ledger, on_host, host=host)
        return found

    def _times_on_host(self, row: Operation, blocks: Blocks, ledger: Ledger) -> int:
        """How often an operation runs there."""
        numbers = blocks.of.get(row.component, ())
        if row.in_block and not numbers:
            raise UsageError(f"--offload: the blocks of {ledger.metadata.name} are others at another N; leave it out")
        return row.times * sum(number < self.layers for number in numbers) // len(numbers) if numbers else 0

    def _with_cache(self, part: Ledger, whole: Ledger, *, host: bool) -> Ledger:
        """`part` with its cache: that of its rows, of a prefill that of the step behind it."""
        if whole.metadata.mode == "prefill":
            try:
                step = self.at(_tokens(whole), "decode", whole.metadata.batch)
            except (SpecError, UsageError):  # no decode step, and so no cache
                return part
            return msgspec.structs.replace(part, cache=self.part(step, host=host).cache)
        if whole.metadata.stages:  # of a spec, whose rows write it
            return msgspec.structs.replace(part, cache=cache_of(msgspec.structs.replace(part, cache=None)))
        if whole.cache is None:
            return part
        return msgspec.structs.replace(self._in_blocks(part, whole), cache=_cache_of_module(part, whole, whole.cache))

    def _in_blocks(self, part: Ledger, whole: Ledger) -> Ledger:
        """What a token adds to a part of the layers, before a window is full."""
        blocks = whole.metadata.cache_blocks
        if blocks is None or blocks.start_elements is None:
            return part
        every = sum(map(_token_elements, whole.rows))
        mine = Fraction(sum(map(_token_elements, part.rows)), every or 1)
        blocks = msgspec.structs.replace(blocks, start_elements=int(blocks.start_elements * mine))
        return msgspec.structs.replace(part, metadata=msgspec.structs.replace(part.metadata, cache_blocks=blocks))


def _tokens(ledger: Ledger) -> int:
    streams = ledger.metadata.streams
    return int(streams[-1]["tokens"]) if streams else ledger.metadata.grid_tokens


def _stored(whole: Ledger, on_host: Mapping[str, int], *, host: bool) -> StoredAs:
    """How the whole is stored, for the rows of a part: of several blocks as many are quantised in proportion."""
    stored = whole.storage
    if stored.modules is None:
        return stored
    times, modules = {row.path: row.times for row in whole.rows}, {}
    for path, found in stored.modules.items():
        of_host = [one.blocks * on_host.get(path, 0) // times.get(path, 1) for one in found]
        mine = of_host if host else [one.blocks - hosted for one, hosted in zip(found, of_host, strict=True)]
        modules[path] = tuple(one._replace(blocks=blocks) for one, blocks in zip(found, mine, strict=True))
    return stored._replace(modules=modules)


def _token_elements(row: Operation) -> int:
    """Elements of keys and values that a token adds in all blocks of a row."""
    return int(row.core.times * row.core.key_value_width) * row.times if row.core is not None else 0


def _cache_of_module(part: Ledger, whole: Ledger, cache: CacheBytes) -> CacheBytes:
    """The part's share of a module's cache, whose rows have none of their own.

    Keys and values that grow with N, and those of full windows, are shared by the attention that reads them; states by
    the blocks without attention, or, where all have some, by all of them.
    """
    longest = max((row.core.keys for row in whole.rows if row.core is not None), default=0)
    windows = cache.state_bytes - cache.recurrent_bytes - cache.cross_attention_bytes

    def read(ledger: Ledger, *, in_windows: bool) -> int:
        rows = (row for row in ledger.rows if row.core is not None)
        return sum(_token_elements(row) for row in rows if row.core and (row.core.keys < longest) == in_windows)

    def share(*, in_windows: bool) -> Fraction:
        every = read(whole, in_windows=in_windows)
        return Fraction(read(part, in_windows=in_windows), every) if every else _share_of_blocks(part, whole)

    growing = share(in_windows=False)
    growth = int((cache.bytes - cache.state_bytes) * growing)
    of_windows = int(windows * (share(in_windows=True) if windows else 0))
    states = int(cache.recurrent_bytes * _share_of_states(part, whole))
    cross = int(cache.cross_attention_bytes * growing)
    return CacheBytes(
        bytes=growth + of_windows + states + cross,
        bytes_per_token=int(cache.bytes_per_token * growing),
        state_bytes=of_windows + states + cross,
        recurrent_bytes=states,
        cross_attention_bytes=cross,
    )


def _share_of_blocks(part: Ledger, whole: Ledger) -> Fraction:
    """Of the blocks, by the weights that they have."""
    every = sum(row.params * row.times for row in whole.rows if block_of(row) is not None)
    return Fraction(sum(row.params * row.times for row in part.rows if block_of(row) is not None), every or 1)


def _share_of_states(part: Ledger, whole: Ledger) -> Fraction:
    """Of the blocks that have a recurrent state: those without attention, where there are some."""
    attending = {block_of(row) for row in whole.rows if row.core is not None}

    def blocks(ledger: Ledger) -> int:
        of_blocks = {block_of(row): row.times for row in ledger.rows if row.params}
        return sum(times for block, times in of_blocks.items() if block is not None and block not in attending)

    every = blocks(whole)
    return Fraction(blocks(part), every) if every else _share_of_blocks(part, whole)


def host_time(part: Ledger, whole: Ledger, host: Device, link_rate: float) -> HostTime:
    """The time of the host's part of a pass; the activations of a block go there and back."""
    shares = kept_shares(part.rows, part.metadata.batch)
    macs = sum(row.times * kept_macs(row, shares) for row in part.rows)
    cached = 0 if part.cache is None else part.cache.bytes - part.unread_cache_bytes
    return HostTime(
        flops=FLOPS_PER_MAC * macs,
        bytes=weight_bytes(part) + cached,
        peak=host.peaks[peak_dtype(host, part.metadata.dtype)].value,
        bandwidth=host.bytes_per_second,
        moved_bytes=2 * boundary_elements(whole) * whole.bytes_per_element,
        link_rate=link_rate,
    )


def peak_dtype(host: Device, dtype: str) -> str:
    """The dtype whose peak a host computes at: that of the run, or float32, to which it converts others.

    Raises:
        UsageError: it has neither.
    """
    found = next((one for one in (dtype, "float32") if one in host.peaks), None)
    if found is None:
        raise UsageError(f"--host {host.name}: no peak of it is known in {dtype} or float32")
    return found


def host_link(device: Device) -> tuple[str, float, bool]:
    """What joins a device with its host, its bytes/s in one direction, and whether it is assumed."""
    link = device.link
    if link is not None and link.name.startswith("PCIe"):
        return link.name, link.rate.value, False
    return *_LINK, True


def with_memory(host: Device, nbytes: int | None) -> Device:
    """A host with so many bytes of memory, where that is given."""
    if nbytes is None:
        return host
    figure = DeviceFigure(value=nbytes, sources=("own",))
    return msgspec.structs.replace(host, memory=figure, memory_kind="usable")
