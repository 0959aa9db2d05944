"""What is true of a whole ledger, whatever its rows: circumstances, how two accounts agree, how long it took."""

from __future__ import annotations

from typing import Any

import msgspec


class Metadata(msgspec.Struct, frozen=True, kw_only=True):
    """What is true of the whole ledger."""

    name: str
    tokens: str
    """Tokens of the first stage, as text: `784 (28×28) + 1`."""
    grid_tokens: int
    extra_tokens: int = 0
    batch: int = 1
    dtype: str = "float32"
    attention: str = "eager"
    mode: str = "forward"
    logits: str | None = None
    """The positions whose logits are computed, `last` or `all`; None where no head predicts the next token."""
    memory_level: int | None = None
    """Bytes of on-chip memory that attention is tiled for, where that was asked."""
    source: str = ""
    """The preset's name or the file."""
    preset: bool = False
    """Is the source a preset?"""
    paper: str | None = None
    notes: tuple[str, ...] = ()
    """What a reader must be told: padding, clipped windows, tables bound to the resolution."""
    padded: bool = False
    """Are tokens padded to whole windows, blocks or chunks, so that costs grow in steps?"""
    published: tuple[dict[str, Any], ...] = ()
    image: tuple[int, ...] | None = None
    """Height and width of the image that comes in (a video's frames before them); None where none does."""
    streams: tuple[dict[str, Any], ...] = ()
    """{name, tokens, extra_tokens, grid} of every stream's first stage."""
    stages: tuple[dict[str, Any], ...] = ()
    """{stage, tokens, extra_tokens, grid, width, blocks} of every stage, as they leave it."""
    mixers: int = 0
    """Sub-layers that mix tokens, repeated ones too."""
    sequential_steps: int = 0
    """Steps of all mixers that can only run one after the other: one for each, N for a recurrence over N tokens."""
    parallel_width: float | None = None
    """Tokens that a mixer works out at once, on average over the steps; None where nothing mixes."""
    settings: tuple[str, ...] = ()
    """What `--set` changed, `key=value` each."""
    published_left_out: int = 0
    """Figures in print that are of one forward of the spec at its own size, a batch of 1, no settings; not of this."""
    versions: dict[str, str] = {}


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """What joining other accounts with the counted one found: `exact` only where every row agrees on every quantity."""

    exact: bool
    accounts: tuple[str, ...] = ()
    """Those that were joined: traced, dispatched."""
    differences: tuple[dict[str, Any], ...] = ()
    """{path, quantity, counted, and the account that differs: traced or dispatched}"""
    uncounted: tuple[str, ...] = ()
    """Work that no named operation owns, or that no handle knows."""


class ProcessMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that a process grows by on the CPU while it builds a model and runs it, before it ran."""

    predicted: int
    low: int
    """Tensors alive and workspace: a heap that gives back every byte."""
    high: int
    """A heap as scattered as in the worst run, and code that the run is the first to touch: what must be free."""


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """The real model on a real device: median seconds of a forward, their spread (interquartile range).

    `runs` is over how many measurements; a forward of microseconds is repeated within each.
    """

    device: str
    machine: str
    seconds: float
    spread: float
    runs: int
    threads: int
    peak_bytes: int | None = None
    """Peak of live tensor bytes during a forward, parameters included."""
    predicted_peak_bytes: int | None = None
    """The same, walked on the `meta` device before anything ran."""
    process_memory: ProcessMemory | None = None
    """What the process was predicted to take, on the CPU; None on other devices."""
