"""A run on given devices: the least time that it can take, an estimate at stated efficiencies, and whether it fits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from xfcost.ledger.cache_blocks import CacheBlocks
from xfcost.ledger.device import DeviceGroup
from xfcost.ledger.modes import PassWork
from xfcost.ledger.offload import HostTime, Offload
from xfcost.ledger.parallelism import Exchange, Parallelism
from xfcost.ledger.roofs import Bound
from xfcost.ledger.units import HOUR, number_of, size
from xfcost.parts.serving.evidence import Evidence


class TimeBound(msgspec.Struct, frozen=True, kw_only=True):
    """A lower bound of the time: work that no implementation avoids, at the devices' peak and bandwidth.

    The larger of FLOPs / peak and bytes / bandwidth (Williams et al. 2009), divided perfectly among the devices.
    """

    flops: int
    """Of its products: 2 per multiply-add; of masked attention only what the mask keeps."""
    bytes: int
    """Weights once, and the KV cache: read in a decode step, written by a prefill; of experts the expected number."""
    peak: float
    """FLOP/s of all devices."""
    bandwidth: float
    """Bytes/s of all devices."""
    quantised_flops: int = 0
    """The part of `flops` whose operands have fewer bits, where the devices are faster with these."""
    quantised_peak: float | None = None
    """FLOP/s of that part."""
    link_bytes: int | float = 0
    """Bytes that each device receives from others that share the model, and as expected for experts elsewhere."""
    link_seconds: float = 0.0
    """How long that takes at the full rate of the link; 0 where it is not known, or nothing is shared."""
    host: HostTime | None = None
    """The time of the blocks that stay on the host, which comes on top."""
    experts_seconds: float = 0.0
    """In which one device reads its expected experts, layer after layer: a router chooses when its layer begins."""

    @property
    def compute_seconds(self) -> float:
        """FLOPs at their peaks."""
        if self.quantised_peak is None:
            return self.flops / self.peak
        return (self.flops - self.quantised_flops) / self.peak + self.quantised_flops / self.quantised_peak

    @property
    def mean_peak(self) -> float:
        """FLOP/s of all of `flops`, each at its peak."""
        return self.peak if not self.quantised_flops else self.flops / self.compute_seconds

    @property
    def memory_seconds(self) -> float:
        """Bytes at the full bandwidth, or the experts of one device."""
        return max(self.bytes / self.bandwidth, self.experts_seconds)

    @property
    def seconds(self) -> float:
        """No run takes less."""
        return self.seconds_at(None, None)

    @property
    def on_devices(self) -> float:
        """The devices' own part of it."""
        return self._devices_at(None, None)

    @property
    def bound(self) -> Bound:
        """What it waits for; with blocks on the host, of the side that takes longer."""
        if self.host is not None and self.host.seconds > self.on_devices:
            return self.host.bound
        if self.link_seconds > max(self.compute_seconds, self.memory_seconds):
            return "link-bound"
        return "memory-bound" if self.memory_seconds > self.compute_seconds else "compute-bound"

    def seconds_at(self, mfu: float | None, mbu: float | None) -> float:
        """At shares of the peak and of the bandwidth, the host's too; None is all of it."""
        own = self._devices_at(mfu, mbu)
        return own if self.host is None else own + self.host.seconds_at(mfu, mbu) + self.host.moved_seconds

    def _devices_at(self, mfu: float | None, mbu: float | None) -> float:
        """The devices' own part."""
        rolled = max(self.compute_seconds / (mfu or 1), self.memory_seconds / (mbu or 1))
        if mfu is None and mbu is None:
            return max(rolled, self.link_seconds)
        return rolled + self.link_seconds

    def at(self, mfu: float | None, mbu: float | None) -> TimeEstimate | None:
        """The estimate at shares of the peak and of the bandwidth; None where the share of what bounds it is missing.

        The other one may be missing: even at its full rate it takes less. Communication, at the full rate of the link,
        comes on top: a block waits for the sum of what its devices computed.
        """
        compute = self.compute_seconds / (mfu or 1)
        memory = self.memory_seconds / (mbu or 1)
        bound: Bound = "memory-bound" if memory > compute else "compute-bound"
        share = mbu if bound == "memory-bound" else mfu
        seconds = max(compute, memory) + self.link_seconds
        if self.host is not None:
            if (mbu if self.host.waits_for_memory(mfu, mbu) else mfu) is None:
                return None
            seconds += self.host.seconds_at(mfu, mbu) + self.host.moved_seconds
        return None if share is None else TimeEstimate(seconds=seconds, bound=bound, share=share)


class TimeEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds at a stated efficiency."""

    seconds: float
    bound: Bound
    share: float
    """Of the peak where it is compute-bound (MFU), of the bandwidth where it is memory-bound (MBU)."""


def why_no_time(spare: int | None, available: int | None, words: str) -> str | None:
    """`does not fit: 51.2 GiB too much for 79.1 GiB of each`; None of what fits, or may."""
    if spare is None or available is None or spare >= 0:
        return None
    return f"does not fit: {size(-spare)} too much for {size(available)}{words}"


class MemoryNeed(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes of a run, and those of the devices."""

    weights: int
    cache: int
    """KV cache and recurrent state, at their largest."""
    attention: int
    """The most attention matrices that are alive at once."""
    activations: int | None = None
    """The most activations that are alive at once, attention matrices among them; None where these alone are known: of
    stored counts, and of devices that divide the model as given."""
    available: int | None
    """Of all devices together; None where no figure is known."""
    reserved_cache: int | None = None
    """What whole blocks of the cache take, with `--cache-blocks`; None: no more than the cache."""
    of_each: bool = False
    """Is it of the device that needs most, and not of all together? So it is where they share the model as given."""
    largest_batch: int | None = None
    """The most samples with which a decode step fits; None in other modes, and where nothing grows with the batch."""
    largest_tokens: int | None = None
    """The most tokens with which it fits; None where memory sets no limit."""
    positions: bool = False
    """Do the model's positions end at `largest_tokens`, and not the memory?"""
    fewer_positions: int | None = None
    """The positions that the model states, where they end between N and `largest_tokens`."""
    remedies: tuple[str, ...] = ()
    """Of a run that does not fit: options with each of which it would."""

    @property
    def needed(self) -> int:
        """All parts."""
        return self.weights + self.cache + self.alive

    @property
    def held_cache(self) -> int:
        """The cache, in whole blocks where it has some."""
        return self.cache if self.reserved_cache is None else self.reserved_cache

    @property
    def reserved(self) -> int:
        """All parts, the cache in whole blocks."""
        return self.weights + self.held_cache + self.alive

    @property
    def alive(self) -> int:
        """Activations, or attention matrices where these alone are known."""
        return self.attention if self.activations is None else self.activations

    @property
    def spare(self) -> int | None:
        """Bytes that are left; negative where it doesn't fit."""
        return None if self.available is None else self.available - self.reserved

    @property
    def fits(self) -> bool | None:
        """Does it fit?"""
        return None if self.spare is None else self.spare >= 0

    def within(self, other: MemoryNeed) -> MemoryNeed:
        """This one with the largest batch and N that fit both; `other` is of what it shares the run with."""
        batches = [one for one in (self.largest_batch, other.largest_batch) if one is not None]
        tokens = [one for one in (self, other) if one.largest_tokens is not None]
        least = min(tokens, key=lambda one: one.largest_tokens or 0, default=self)
        names = ("largest_tokens", "positions", "fewer_positions")
        limits = {name: getattr(least, name) for name in names}
        return msgspec.structs.replace(self, largest_batch=min(batches, default=None), **limits)


class Offloaded(msgspec.Struct, frozen=True, kw_only=True):
    """A run some of whose blocks stay on the host."""

    offload: Offload
    blocks: int
    """Of the whole model."""
    memory: MemoryNeed
    """What the host holds."""
    link: str
    """What joins the host and the device."""
    link_assumed: bool
    """Is it not the device's own?"""
    peak_dtype: str
    """The dtype of the host's peak: the run's, or else float32."""


class ComputeBoundBatch(msgspec.Struct, frozen=True, kw_only=True):
    """From which batch on a decode step is compute-bound."""

    batch: int | None
    """None: never. Every sample brings its own cache, whose intensity is below the ridge point."""
    intensity: float | None
    """FLOPs per byte of cache, which the intensity comes near in large batches; None without a cache."""
    ridge_point: float


class PhaseBound(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a generation: the prefill, or all decode steps."""

    name: str
    time: TimeBound


class SharedReads(NamedTuple):
    """What all devices together read and compute of one block's operation, where they share the model as given."""

    weights: int
    """Bytes of weights."""
    cache_copies: float
    """How often they hold, and read, its keys and values."""
    computed: float
    """How often they compute it: 1 where they divide it, on 4 devices 4 where each computes the whole."""
    activations: int
    """How often they read and write its activations."""


def output_word(mode: str) -> str:
    """What a run in `mode` gives: samples, tokens of a prompt or new tokens."""
    return {"forward": "samples", "prefill": "prompt tokens"}.get(mode, "tokens")


class OnDevices(msgspec.Struct, frozen=True, kw_only=True):
    """A run on devices."""

    on: DeviceGroup
    dtype: str
    mfu: float | None
    mbu: float | None
    time: TimeBound
    """Of the whole run; of a generation its phases together."""
    memory: MemoryNeed
    outputs: int | None
    """What the run gives: samples of a forward, new tokens of a decode step or a generation, tokens of a prompt.

    Those of a cached prefix are not among them; None of a module whose number of samples is not known.
    """
    compute_bound_batch: ComputeBoundBatch | None = None
    """Of a decode step."""
    phases: tuple[PhaseBound, ...] = ()
    notes: tuple[str, ...] = ()
    parallelism: Parallelism | None = None
    """How the devices share the model, where that is given; None: perfectly."""
    exchange: Exchange | None = None
    """What they exchange, of the last pass or step."""
    offloaded: Offloaded | None = None
    """What stays on the host."""
    cache_blocks: CacheBlocks | None = None
    """In which memory for the cache is reserved, where they are given."""
    reads: Mapping[str, SharedReads] = {}
    """With `parallelism`, path of a row -> what they read of it."""
    evidence: Evidence | None = None
    """Published runs like it; None of devices side by side, and of a run that does not fit."""

    @property
    def no_time(self) -> str | None:
        """Why it takes no time: `does not fit: 51.2 GiB too much for 79.1 GiB`; None where it may."""
        own = why_no_time(self.memory.spare, self.memory.available, self.memory_words)
        if own is not None or self.offloaded is None:
            return own
        host = self.offloaded.memory
        return why_no_time(host.spare, host.available, " of the host")

    @property
    def where(self) -> str:
        """`NVIDIA L4`; `NVIDIA L4, the first 8 blocks on AMD Ryzen 9 9950X, …`."""
        if self.offloaded is None:
            return self.on.title
        offload = self.offloaded.offload
        return f"{self.on.title}, the first {number_of(offload.layers, 'block')} on {offload.host.title}"

    @property
    def memory_words(self) -> str:
        """What the memory of the devices is a figure of: ` (nominal) of each`."""
        return self.on.device.memory_words + (" of each" if self.memory.of_each else "")

    @property
    def parts(self) -> tuple[TimeBound, ...]:
        """The phases, which run one after the other; else the whole."""
        return tuple(phase.time for phase in self.phases) or (self.time,)

    @property
    def seconds(self) -> float:
        """The lower bound."""
        return sum(part.seconds for part in self.parts)

    @property
    def estimate(self) -> float | None:
        """Seconds at `mfu` and `mbu`; None where a share is missing, and of a run that does not fit."""
        if self.no_time is not None:
            return None
        found = [part.at(self.mfu, self.mbu) for part in self.parts]
        return sum(one.seconds for one in found if one is not None) if all(found) else None

    def price_per_output(self, seconds: float | None) -> float | None:
        """What an output costs at the user's price, of a run of so many seconds; None without any of these."""
        price = self.on.price_per_hour
        if price is None or seconds is None or self.outputs is None:
            return None
        return price * seconds / HOUR / self.outputs

    @property
    def missing(self) -> tuple[str, ...]:
        """The options that an estimate lacks, of `--mfu` and `--mbu`: the shares of what bounds its parts."""
        bounding = {
            "memory" if part.memory_seconds / (self.mbu or 1) > part.compute_seconds / (self.mfu or 1) else "compute"
            for part in self.parts
        }
        hosts = (part.host for part in self.parts if part.host is not None)
        bounding |= {"memory" if one.waits_for_memory(self.mfu, self.mbu) else "compute" for one in hosts}
        lacking = (("--mfu", self.mfu, "compute"), ("--mbu", self.mbu, "memory"))
        return tuple(option for option, share, bound in lacking if share is None and bound in bounding)

    def to_object(self) -> dict[str, Any]:
        """The key `on` of JSON: the lower bound, the estimate and the memory."""
        device, memory, closing = self.on.device, self.memory, self.compute_bound_batch
        fit = {"needed": memory.needed, "spare": memory.spare, "fits": memory.fits}

        def timed(seconds: float) -> float | None:
            return seconds if self.no_time is None else None

        return {
            "device": device.name,
            "count": self.on.count,
            "dtype": self.dtype,
            "quantised_flops": self.time.quantised_flops,
            "quantised_flops_per_second": self.time.quantised_peak,
            "peak_flops_per_second": self.on.peak(self.dtype),
            "bytes_per_second": self.on.bytes_per_second,
            "ridge_point": self.time.mean_peak / self.time.bandwidth,
            "flops": self.time.flops,
            "bytes": self.time.bytes,
            "compute_seconds": timed(self.time.compute_seconds),
            "memory_seconds": timed(self.time.memory_seconds),
            "least_seconds": timed(self.seconds),
            "bound": self.time.bound,
            "phases": {
                one.name: {"least_seconds": timed(one.time.seconds), "bound": one.time.bound} for one in self.phases
            },
            "no_time": self.no_time,
            "outputs": self.outputs,
            "most_outputs_per_second": timed(self.outputs / self.seconds) if self.outputs and self.seconds else None,
            "least_price_per_output": self.price_per_output(timed(self.seconds)),
            "estimated_price_per_output": self.price_per_output(self.estimate),
            "mfu": self.mfu,
            "mbu": self.mbu,
            "estimated_seconds": self.estimate,
            "evidence": self.evidence and self.evidence.to_object(),
            **self._sharing(),
            **self._offload(),
            "memory": self._memory() | fit,
            "compute_bound_batch": None if closing is None else closing.batch,
            "notes": [*self.notes, *device.notes],
        }

    def _memory(self) -> dict[str, Any]:
        """The key `memory` of `on`: what is needed, and with `--cache-blocks` what is reserved beside it."""
        parts: dict[str, Any] = msgspec.to_builtins(self.memory)
        if self.memory.reserved_cache is None:
            del parts["reserved_cache"]
        else:
            blocks = self.cache_blocks
            given = None if blocks is None else blocks.to_object()
            parts |= {"reserved": self.memory.reserved, "cache_blocks": given}
        share = self.on.device.memory_share
        return parts | ({} if share is None else {"share": share}) | {"kind": self.on.device.memory_kind}

    def _offload(self) -> dict[str, Any]:
        """The key `offload`, with blocks that stay on the host: its part of the run; {} without."""
        if self.offloaded is None:
            return {}
        hosted, need = self.offloaded, self.offloaded.memory
        times = [part.host for part in self.parts if part.host is not None]
        sums = {name: sum(getattr(one, name) for one in times) for name in ("flops", "bytes", "moved_bytes")}
        seconds = {
            "seconds": sum(one.seconds for one in times),
            "moved_seconds": sum(one.moved_seconds for one in times),
            "device_seconds": sum(part.on_devices for part in self.parts),
        }
        parts = {name: getattr(need, name) for name in ("weights", "cache", "attention", "activations", "available")}
        if need.reserved_cache is not None:
            parts |= {"reserved_cache": need.reserved_cache, "reserved": need.reserved}
        return {
            "offload": {
                "layers": hosted.offload.layers,
                "blocks": hosted.blocks,
                "host": hosted.offload.host.name,
                "assumed": hosted.offload.assumed,
                "peak_dtype": hosted.peak_dtype,
                "bytes_per_second": hosted.offload.host.bytes_per_second,
                "link": hosted.link,
                "link_assumed": hosted.link_assumed,
                **sums,
                **{name: value if self.no_time is None else None for name, value in seconds.items()},
                "memory": parts | {"needed": need.needed, "spare": need.spare, "fits": need.fits},
            }
        }

    def _sharing(self) -> dict[str, Any]:
        """The keys `parallelism` and `communication`, with degrees of parallelism; {} without."""
        if self.parallelism is None or self.exchange is None:
            return {}
        links = ("link_bytes", "link_seconds")
        exchanged = msgspec.to_builtins(self.exchange) | {name: getattr(self.time, name) for name in links}
        if self.no_time is not None:
            exchanged |= {name: None for name in exchanged if name.endswith("seconds")}
        plan = self.parallelism
        return {
            "parallelism": msgspec.to_builtins(plan) | {"replicas": plan.replicas(self.on.count)},
            "communication": exchanged,
        }


class WithAccepted(msgspec.Struct, frozen=True, kw_only=True):
    """A round of speculative decoding in which so many drafted tokens are accepted on average, for each sample."""

    accepted: float
    acceptance: float
    """α with which tokens one after the other give as many: α + α² + … + α^k."""
    tokens: float
    """Of a round: the accepted ones, and the one that the target gives in any case."""
    flops_per_token: float
    """Of target and draft."""
    seconds_per_token: float | None
    """Of a sample; the lower bound, at its efficiencies where they are given. None without devices, or room."""
    tokens_per_second: float | None
    """Of all samples."""
    speed_up: float | None
    """Against decoding without a draft, both at their bounds, whether they fit or not."""


class Speculation(msgspec.Struct, frozen=True, kw_only=True):
    """Speculative decoding (Leviathan et al. 2023, arXiv:2211.17192, algorithm 1) instead of decode steps.

    In a round the draft gives k tokens, one after the other; the target computes them and the token before them, k + 1
    for each sample, in one pass behind its cache; a of the k are accepted, and the pass gives one token more. vLLM's
    "mean acceptance length" and SGLang's "accept length" are a + 1. If each is accepted with the probability α until
    one is not, (1 - α^(k+1)) / (1 - α) tokens are expected (equation 1).

    The passes run one after the other, so that the bounds of their times are added. Left out: sampling, the acceptance
    test, and that a draft reads tokens anew which it had not computed itself.

    Of a generation a round is the mean of the first and the last one, and so is a step: FLOPs and bytes grow with N
    evenly, or ever more slowly where windows fill.
    """

    draft: str
    method: str
    """draft_model, mtp, eagle, medusa or ngram, as vLLM's speculative_config calls them."""
    draft_tokens: int
    """k."""
    batch: int
    accepted: float | None
    """a, as given or by α; None where neither is given."""
    acceptance: float | None
    """α, where it is given."""
    draft_params: int
    """Without tables that the draft shares with the target."""
    step: PassWork
    """Of the target without a draft."""
    verification: PassWork
    """Of the target on k + 1 tokens of each sample."""
    drafting: PassWork
    """Of all passes of the draft in a round."""
    from_rounds: int = 1
    """Tokens that rounds give each sample: of a generation all but the first, which the prefill gives."""
    prefill: PassWork | None = None
    """Of a generation: target and draft on the prompt; None of a decode step."""
    prefill_times: tuple[TimeBound, ...] = ()
    step_time: TimeBound | None = None
    """Times are None without devices."""
    plain_times: tuple[TimeBound, ...] = ()
    """Of the same tokens without a draft: a step, or the phases of the generation."""
    verification_time: TimeBound | None = None
    draft_times: tuple[TimeBound, ...] = ()
    """Of its passes: of Medusa's heads one, of an n-gram none."""
    memory: MemoryNeed | None = None
    """Of target and draft together, with the tokens of a round in their caches."""
    draft_weights: int = 0
    """Bytes of the draft in `memory`."""
    draft_cache: int = 0
    mfu: float | None = None
    mbu: float | None = None
    experts: bool = False
    """Is an expected number of experts read in the verification?"""
    notes: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Does it fit, or is no memory known?"""
        return self.memory is None or self.memory.fits is not False

    @property
    def times(self) -> tuple[TimeBound, ...]:
        """Of the passes of a round, in their order; () without devices."""
        return () if self.verification_time is None else (*self.draft_times, self.verification_time)

    def seconds(self, *times: TimeBound, estimated: bool = False) -> float | None:
        """Of passes one after the other: their lower bounds, or `estimated`; None where a share for that is missing."""
        found = [one.at(self.mfu, self.mbu) if estimated else one for one in times]
        return sum(one.seconds for one in found if one is not None) if all(found) else None

    @property
    def estimated(self) -> bool:
        """Are all passes estimated at given efficiencies?"""
        known = bool(self.plain_times) and (self.mfu is not None or self.mbu is not None)
        return known and self.seconds(*self.times, *self.prefill_times, *self.plain_times, estimated=True) is not None

    def lasting(self, *times: TimeBound) -> float | None:
        """Seconds of passes, estimated where all are, whether they fit or not; None without devices."""
        return self.seconds(*times, estimated=self.estimated) if self.plain_times else None

    @property
    def break_even(self) -> float | None:
        """With so many accepted tokens it takes as long as without a draft; infinite where a draft's prefill does."""
        one, prefill, plain = (self.lasting(*times) for times in (self.times, self.prefill_times, self.plain_times))
        if one is None or prefill is None or plain is None:
            return None
        return max(0.0, self.from_rounds * one / (plain - prefill) - 1) if plain > prefill else math.inf

    def with_accepted(self, accepted: float) -> WithAccepted:
        """Rounds with so many accepted tokens."""
        rounds, tokens = self.from_rounds / (accepted + 1), self.from_rounds + (self.prefill is not None)
        one, prefill, plain = (self.lasting(*times) for times in (self.times, self.prefill_times, self.plain_times))
        seconds = None if one is None or prefill is None else prefill + rounds * one
        fitting = seconds if self.fits else None
        flops = rounds * (self.verification.flops + self.drafting.flops) + (self.prefill.flops if self.prefill else 0)
        return WithAccepted(
            accepted=accepted,
            acceptance=self.acceptance_of(accepted),
            tokens=accepted + 1,
            flops_per_token=flops / self.batch / tokens,
            seconds_per_token=None if fitting is None else fitting / tokens,
            tokens_per_second=self.batch * tokens / fitting if fitting else None,
            speed_up=plain / seconds if seconds and plain else None,
        )

    def acceptance_of(self, accepted: float) -> float:
        """α with α + α² + … + α^k = a, by halving."""
        low, high = 0.0, 1.0 if accepted else 0.0
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            enough = expected_accepted(middle, self.draft_tokens) >= accepted
            low, high = (low, middle) if enough else (middle, high)
        return high

    def rows(self) -> list[WithAccepted]:
        """Every number of accepted tokens, of many about ten."""
        step = max(1, self.draft_tokens // _MOST_ROWS)
        return [self.with_accepted(a) for a in sorted({*range(0, self.draft_tokens, step), self.draft_tokens})]

    def to_object(self) -> dict[str, Any]:
        """The key `speculation` of JSON."""
        names = ("draft", "method", "draft_tokens", "draft_params")
        works = {name: msgspec.to_builtins(getattr(self, name)) for name in ("step", "verification", "drafting")}
        given = None if self.accepted is None else msgspec.to_builtins(self.with_accepted(self.accepted))
        works |= {} if self.prefill is None else {"prefill": msgspec.to_builtins(self.prefill)}
        found: dict[str, Any] = {name: getattr(self, name) for name in names} | works
        found |= {"with_accepted": given, "by_accepted": [msgspec.to_builtins(one) for one in self.rows()]}
        if self.step_time is None or self.verification_time is None or self.memory is None:
            return found | {"notes": list(self.notes)}
        times = {"step": [self.step_time], "verification": [self.verification_time], "draft": self.draft_times}
        times |= {"round": self.times, "prefill": self.prefill_times, "without_draft": self.plain_times}
        even = self.break_even
        return found | {
            "least_seconds": {name: self.seconds(*one) for name, one in times.items()},
            "estimated_seconds": {name: self.seconds(*one, estimated=True) for name, one in times.items()},
            "step_bound": self.step_time.bound,
            "verification_bound": self.verification_time.bound,
            "break_even_accepted": None if even is None or even > self.draft_tokens else even,
            "memory": {
                **{name: getattr(self.memory, name) for name in ("weights", "cache", "activations", "available")},
                "needed": self.memory.reserved,
                "spare": self.memory.spare,
                "fits": self.memory.fits,
                "draft_weights": self.draft_weights,
                "draft_cache": self.draft_cache,
            },
            "notes": list(self.notes),
        }


# Rows of a table, and steps in which a double is found exactly.
_MOST_ROWS: Final = 10
_HALVINGS: Final = 60


def expected_accepted(acceptance: float, draft_tokens: int) -> float:
    """α + α² + … + α^k: drafted tokens that are accepted, each with α if those before it are."""
    return sum(acceptance**token for token in range(1, draft_tokens + 1))
