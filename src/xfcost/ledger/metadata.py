"""Metadata of a whole ledger: spec and run options, agreement of the accounts, timing, prediction."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from xfcost.ledger.accounts import RUN
from xfcost.ledger.cache_blocks import CacheBlocks
from xfcost.ledger.lora import Lora
from xfcost.ledger.quantization import WeightFormat
from xfcost.ledger.roofs import Roofs
from xfcost.ledger.stored import StoredWeights
from xfcost.ledger.units import Seconds

if TYPE_CHECKING:
    from xfcost.ledger.operation import Operation


class Metadata(msgspec.Struct, frozen=True, kw_only=True):
    """The spec, the run options and the input of a ledger."""

    name: str
    tokens: str
    """Tokens of the first stage, as text: `784 (28×28) + 1`."""
    grid_tokens: int
    """0 of a module whose inputs have no N."""
    extra_tokens: int = 0
    batch: int = 1
    batch_known: bool = True
    """False of a module whose inputs do not say how many samples they are; its heads are then those of all."""
    dtype: str = "float32"
    attention: str = "eager"
    default_note: str | None = None
    """Why dtype and attention are what they are, where the caller gave none."""
    attends: bool = True
    """Is there an attention matrix, or a fused kernel in its place?"""
    mode: str = "forward"
    cached_prefix: int = 0
    """First tokens of the prompt that are cached, and not computed, with `--cached-prefix`."""
    logits: str | None = None
    """The positions whose logits are computed, `last` or `all`; None where no head predicts the next token."""
    weight_format: WeightFormat | None = None
    """The quantised format of weights and that of the cache (`ledger.quantization`); None: the dtype."""
    cache_format: str | None = None
    cache_blocks: CacheBlocks | None = None
    """The blocks in which memory for the cache is reserved, where the run has devices and some are given."""
    checkpoint: StoredWeights | None = None
    """The tensors of the checkpoint that was named; None of a config or a spec alone."""
    memory_level: int | None = None
    """Bytes of on-chip memory that attention is tiled for, with `--memory-level`."""
    source: str = ""
    """The preset's name or the file."""
    preset: bool = False
    """Is the source a preset?"""
    paper: str | None = None
    warnings: tuple[str, ...] = ()
    """Notes that stand first: more tokens than the model has positions for, a format that is not known."""
    notes: tuple[str, ...] = ()
    """What a reader must know: padding, clipped windows, tables of one resolution."""
    padded: bool = False
    """Are tokens padded to whole windows, blocks or chunks, so that costs grow in steps?"""
    cropped: bool = False
    """Do the last tokens go into no patch or kernel, so that costs grow in steps?"""
    published: tuple[dict[str, Any], ...] = ()
    image: tuple[int, ...] | None = None
    """Height and width of the input image (a video's frames before them); None of other inputs."""
    streams: tuple[dict[str, Any], ...] = ()
    """{name, tokens, extra_tokens, grid} of every stream's first stage."""
    stages: tuple[dict[str, Any], ...] = ()
    """{stage, tokens, extra_tokens, grid, width, blocks} of every stage; tokens and width are those that leave it."""
    mixers: int = 0
    """Number of sub-layers that mix tokens, repeated ones included."""
    sequential_steps: int = 0
    """Sequential steps of all mixers: one each, N of a recurrence over N tokens."""
    parallel_width: float | None = None
    """Tokens that a mixer processes in parallel, averaged over the steps; None where nothing mixes."""
    lora: Lora | None = None
    """The adapters beside frozen weights; None where all are trained."""
    settings: tuple[str, ...] = ()
    """The `--set` options, `key=value` each."""
    published_left_out: int = 0
    """Number of published figures left out: they are of the unchanged spec at its own size with a batch of 1."""
    inputs: str | None = None
    """The input tensors of a module, `x: 1×3×224×224 float32`; None of a spec."""
    versions: dict[str, str] = {}

    @property
    def published_cache(self) -> bool:
        """Is the format of the cache that of the checkpoint, by its config?"""
        own = self.weight_format.cache if self.weight_format is not None else None
        return own is not None and own == self.cache_format

    @property
    def steps(self) -> bool:
        """Do costs grow in steps, for tokens are padded or left out?"""
        return self.padded or self.cropped


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """The result of joining other accounts with the counted one; `exact` if every row agrees on every quantity."""

    exact: bool
    accounts: tuple[str, ...] = ()
    """The joined accounts: traced, dispatched."""
    differences: tuple[dict[str, Any], ...] = ()
    """{path, quantity, counted, and the account that differs: traced or dispatched}"""
    uncounted: tuple[str, ...] = ()
    """Work outside the named operations, or of operators without a handle."""

    @property
    def holds(self) -> bool:
        """Do the counts in closed form hold against the other accounts?"""
        return self.exact

    def differing(self, rows: Iterable[Operation]) -> frozenset[str]:
        """The paths of the `rows` that differ."""
        return frozenset(str(one["path"]) for one in self.differences)


class RunAgreement(Agreement, frozen=True, kw_only=True):
    """The same of a module that ran: nothing is counted in closed form, and a trace differs in modules, not in rows."""

    @property
    def holds(self) -> bool:
        return True

    def differing(self, rows: Iterable[Operation]) -> frozenset[str]:
        ran = (row for row in rows if row.ran is not None)  # parameters only have no trace
        return frozenset(
            row.path for row in ran if any(row.figure(f"traced_{name}") != getattr(row, name) for name in RUN)
        )


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What disturbed a measurement: means over its duration. None where the system does not report it."""

    others: float | None = None
    """Cores that other processes kept busy, of those that this process may use."""
    cores: int | None = None
    """The cores that this process may use."""
    stolen: float | None = None
    """Cores that the host of a virtual machine gave to others."""
    withheld: float | None = None
    """The share of the time in which the cgroup's quota stopped this process."""
    frequency: float | None = None
    """The processor's frequency over its maximum."""


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """A part of what was timed: the prefill or all decode steps of a generation."""

    name: str
    seconds: float
    """The median."""
    interval: tuple[float, float] | None = None


Lane = Literal["wall", "host", "device"]
"""Seconds of the whole call, until the host has issued everything, or of all kernels."""


class Lanes(msgspec.Struct, frozen=True, kw_only=True):
    """The two lanes of a run on a GPU, in seconds: the longer one is about what the run takes."""

    host: float
    """Until the host had issued everything; it did not wait for the GPU."""
    kernels: float
    """Of all kernels, copies and fills on the GPU."""
    copies: float
    """Those of copies and fills that no operation launched."""
    launches: int
    """The number of kernels, copies and fills."""
    wall: float | None = None
    """Of the whole call; of reports that don't have it, their `seconds` are."""
    host_times: tuple[float, ...] = ()
    """Those of the host, by turn."""
    kernel_times: tuple[float, ...] = ()
    """Those of all kernels, by turn that was profiled: the first ones."""

    @property
    def host_bound(self) -> bool:
        """Does the GPU wait for the host?"""
        return self.host > self.kernels


class CudaGraph(msgspec.Struct, frozen=True, kw_only=True):
    """A run captured as a CUDA graph, whose kernels the GPU launches without the host."""

    seconds: float | None = None
    """The median of its replays, between two events on the GPU; None where the run can't be captured."""
    not_captured: str | None = None
    """Why it can't be captured: the first line of torch's error."""


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """The real model on a real device: median seconds of a forward, and their spread (interquartile range)."""

    device: str
    machine: str
    seconds: Seconds
    """Of the whole call, or of the `lane`; so are the spread, the interval and the times."""
    spread: float
    runs: int
    """The number of measurements; a forward of microseconds is repeated within each."""
    threads: int
    peak_bytes: int | None = None
    """Peak of live tensor bytes during a forward, parameters included."""
    predicted_peak_bytes: int | None = None
    """The same, predicted on the `meta` device before the run."""
    interval: tuple[Seconds, Seconds] | None = None
    """The 95 % interval of the median, from order statistics; None of fewer than six measurements."""
    precision: float | None = None
    """How far the interval reaches from the median, as a share of it."""
    times: tuple[Seconds, ...] = ()
    """Every measurement, in order. Of systems timed in turns, those at the same place are of the same turn."""
    in_turns: bool = False
    """Was it timed in turns with the other systems of the comparison?"""
    warm_up_seconds: float | None = None
    """Of the first call, which is not measured; with `compiled`, compilation included."""
    compiled: bool = False
    """Was the model compiled by torch.compile?"""
    composed: bool = False
    """Were its distinct blocks run once each, and the rest composed of them?"""
    load: Load | None = None
    noisy: str | None = None
    """Why the figure is not to be trusted, and what to do; None where nothing speaks against it."""
    phases: tuple[Phase, ...] = ()
    """Prefill and decode steps of a generation."""
    update_seconds: float | None = None
    """Of the optimizer, in a training step."""
    not_attributed: float | None = None
    """`whole` less the seconds of all rows; negative where measuring them costs more than what runs between them."""
    lanes: Lanes | None = None
    """On a GPU, the seconds of the host and of the kernels; the seconds of rows are those of their kernels then."""
    cuda_graph: CudaGraph | None = None
    """With --cuda-graph: the same run, captured and replayed."""
    lane: Lane = "wall"
    """Of which lane of a GPU the seconds are."""
    roofs: Roofs | None = None
    """What the machine was calibrated to reach; None where that is not known."""
    not_calibrated: str | None = None
    """Why it is not known, where it was looked for."""

    @property
    def wall(self) -> float:
        """The seconds of the whole call, of whichever lane `seconds` are."""
        return self.seconds if self.lanes is None or self.lanes.wall is None else self.lanes.wall

    @property
    def whole(self) -> float:
        """The seconds that the rows are parts of: of all kernels, or of the run."""
        return self.seconds if self.lanes is None else self.lanes.kernels

    @property
    def share_base(self) -> float:
        """The seconds that those of the rows are shares of: `whole`, or the sum of the rows where that is more."""
        return self.whole - min(self.not_attributed or 0.0, 0.0)
