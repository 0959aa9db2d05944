"""Inference on several devices that share a model: bytes of each device, bytes that all read, bytes that they exchange.

t·p of the devices hold a replica: its p pipeline stages hold equal shares of the blocks, the first one the embedding
too, the last one the head. The samples are divided among the replicas.

Tensor parallelism divides the matrices of linear maps and experts in blocks, the vocabulary (unpadded) and attention by
heads; norms, routers and projections to latents every device holds whole. A device holds all heads of keys and values
that its heads of queries read: where t does not divide them some are held, cached and read several times. A latent that
all heads read (MLA) is cached on every device.

In a decode step the p stages run one after the other. While micro-batches of B/p samples fill the pipeline, a stage
reads its weights for each: a step takes as long as p stages with B/p samples, and p devices read no faster than one.

Expert parallelism: e of the t·replicas devices of a stage hold each expert once, whole, and read those that the tokens
of all replicas choose. Beyond t, tokens are sent to the replica whose device has their expert. A layer takes as long as
the device that reads most of its experts, which are known when it begins: one whole expert at least, however few tokens
there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import ceil, comb
from typing import Final, NamedTuple

from xfcost.formulas.arithmetic import ceil_div
from xfcost.formulas.component import Mixer, divisors_text
from xfcost.ledger.device import DeviceGroup
from xfcost.ledger.errors import UsageError
from xfcost.ledger.least_work import expected_weights
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.module_rows import is_group
from xfcost.ledger.operation import Operation
from xfcost.ledger.parallelism import Exchange, HeadSharing, Parallelism
from xfcost.parts.serving.result import MemoryNeed
from xfcost.spec.architecture import Architecture

NO_HEADS: Final = (
    "--tensor-parallel: it divides attention by heads (Shoeybi et al. 2019, §3), and {name} has none; leave it out"
)


def heads_of_all(ledger: Ledger, found: HeadSharing | None, name: str) -> dict[str, HeadSharing]:
    """The heads of every attention of a module, by the heads that its config has.

    Raises:
        UsageError: the config does not say.
    """
    if found is None:
        raise UsageError(NO_HEADS.format(name=f"the config of {name}"))
    return {sub_layer_of(row): found for row in ledger.rows if row.heads is not None}


def check_replicas(tensor: int, pipeline: int, on: DeviceGroup) -> None:
    """Refuse devices of which t·p are no part.

    Raises:
        UsageError: they don't divide by it; the message says what would.
    """
    if on.count % (tensor * pipeline):
        degrees = {"--tensor-parallel": tensor, "--pipeline": pipeline}
        given = " x ".join(f"{option} {degree}" for option, degree in degrees.items() if degree > 1)
        product, it = ("", "it") if min(tensor, pipeline) == 1 else (f" = {tensor * pipeline}", "their product")
        raise UsageError(
            f"{given}{product}: {on.count} devices don't divide by it; {it} could be {divisors_text(on.count)}, or "
            f"give {tensor * pipeline * ceil_div(on.count, tensor * pipeline)} devices in --on"
        )


def check_stages(pipeline: int, blocks: int) -> None:
    """Refuse stages that do not hold equal numbers of blocks.

    Raises:
        UsageError: they don't; the message says what would.
    """
    if blocks % pipeline:
        raise UsageError(
            f"--pipeline {pipeline}: {blocks} blocks don't divide into so many stages; it could be "
            f"{divisors_text(blocks)}"
        )


def check_degrees(plan: Parallelism, on: DeviceGroup) -> None:
    """Refuse degrees that do not divide the devices.

    Raises:
        UsageError: they don't; the message says what would.
    """
    check_replicas(plan.tensor, plan.pipeline, on)
    of_stage = on.count // plan.pipeline
    if of_stage % plan.expert:
        raise UsageError(
            f"--expert-parallel {plan.expert}: a pipeline stage has {of_stage} devices, which don't divide by it; it "
            f"could be {divisors_text(of_stage)}"
        )


def heads_of(architecture: Architecture) -> dict[str, HeadSharing]:
    """Path of every mixer in a block -> its heads.

    Raises:
        UsageError: a mixer has none.
    """
    found = {}
    for labelled in architecture.parts():
        component = labelled.part.component
        if not isinstance(component, Mixer) or not labelled.in_block:
            continue
        if (sharing := component.head_sharing(labelled.part.place)) is None:
            raise UsageError(NO_HEADS.format(name=f"{component.label()} ({labelled.part.path})"))
        found[labelled.part.path] = sharing
    return found


def most_experts(ledger: Ledger) -> int:
    """Experts of the layer that has most; 1 without."""
    return int(max((one.count for row in ledger.rows for one in row.weight_matrices), default=1))


class Shares(NamedTuple):
    """How the devices of a run share its rows."""

    plan: Parallelism
    on: DeviceGroup
    heads: Mapping[str, HeadSharing]
    """Component of a row -> its heads; of a module the name of its sub-layer in a block (`self_attn`)."""
    batch: int
    """Samples of all replicas."""

    @property
    def devices(self) -> int:
        """Of a replica."""
        return self.plan.tensor * self.plan.pipeline

    @property
    def replicas(self) -> int:
        """Of the model."""
        return self.plan.replicas(self.on.count)

    def samples(self, batch: int) -> int:
        """The most samples of a replica."""
        return int(ceil_div(batch, self.replicas))

    def check(self, ledger: Ledger) -> None:
        """Refuse degrees that do not divide the model.

        Raises:
            UsageError: heads, blocks or experts don't divide.
        """
        for found in self.heads.values():
            if found.heads % self.plan.tensor:
                raise UsageError(
                    f"--tensor-parallel {self.plan.tensor}: {found.heads} heads don't divide by it; it could be "
                    f"{divisors_text(found.heads)}"
                )
        check_stages(self.plan.pipeline, _blocks(ledger))
        experts = most_experts(ledger)
        if self.plan.expert > 1 and experts == 1:
            raise UsageError(
                f"--expert-parallel {self.plan.expert}: {ledger.metadata.name} has no experts; leave it out"
            )
        if self.plan.expert > experts:
            raise UsageError(f"--expert-parallel {self.plan.expert}: more than the {experts} experts of a layer")

    def sharing(self, row: Operation) -> HeadSharing | None:
        """The heads of the layer of a row."""
        return self.heads.get(row.component if row.ran is None else sub_layer_of(row))

    def of_experts(self, row: Operation) -> bool:
        """Are the matrices of the row experts that are divided whole?"""
        return self.plan.expert > 1 and any(one.count > 1 for one in row.weight_matrices)

    def copies(self, row: Operation) -> Fraction:
        """How often the devices of a pipeline stage of one replica hold the weights of a row, all together."""
        t, found = self.plan.tensor, self.sharing(row)
        if self.of_experts(row):
            return Fraction(t, self.plan.expert)
        if row.vocabulary:
            return Fraction(1)
        if not row.weight_matrices or (found is not None and row.weight_matrices[0].outputs in found.whole):
            return Fraction(t)
        if found is None:
            return Fraction(1)
        outputs = row.weight_matrices[0].outputs
        repeated = Fraction(t * found.held(t), found.kv_heads) - 1
        return 1 + repeated * Fraction(found.of_keys.get(outputs, 0), outputs)

    def computed(self, row: Operation) -> Fraction:
        """How often they compute a row, all together: as often as they hold its weights.

        Heads divide norms of their own, experts the tokens; norms and adds of residuals every device computes whole.
        """
        if row.role is not None:
            return Fraction(self.plan.tensor)
        found = self.sharing(row)
        of_heads = found is not None and not found.whole and not row.weight_matrices
        return Fraction(1) if of_heads or not row.params or self.of_experts(row) else self.copies(row)

    def cache_copies(self, row: Operation | None = None) -> Fraction:
        """How often they hold the keys and values of a row; without one of the layer with the most copies."""
        if row is not None and row.cache is not None and row.cache.recurrent:
            return Fraction(1)
        t, found = self.plan.tensor, self.heads.values() if row is None else filter(None, [self.sharing(row)])
        return max((Fraction(t * one.held(t), one.kv_heads) for one in found), default=Fraction(1))

    def need(self, ledger: Ledger) -> MemoryNeed:
        """The bytes of the device that needs most, of the ledger of all samples of a replica."""
        t, p, stored = self.plan.tensor, self.plan.pipeline, ledger.storage
        blocks = Fraction(0)
        ends = [Fraction(0), Fraction(0)]  # the first stage, and the last one
        seen = False
        for row in ledger.rows:
            held = Fraction(stored.held_in_all(row)) * self.copies(row) / t
            if self.of_experts(row):  # some devices have an expert more
                count = max(one.count for one in row.weight_matrices)
                held *= Fraction(ceil_div(count, self.plan.expert) * self.plan.expert, count)
            if _in_block(row, ledger):
                blocks, seen = blocks + held, True
            elif row.stage == "shared":
                ends = [end + held for end in ends]
            else:
                ends[seen] += held
        weights = blocks / p + (max(ends) if p > 1 else sum(ends) - _shared(ledger, self))
        return MemoryNeed(
            weights=ceil(weights),
            cache=ceil(self.cache_bytes(ledger) / (t * p)),
            attention=ceil_div(ledger.attention_memory()["peak"], t),
            activations=ledger.activations if self.devices == self.plan.expert == 1 else None,
            available=self.on.device.memory_bytes,
            of_each=True,
        )

    def cache_bytes(self, ledger: Ledger) -> Fraction:
        """Bytes of the cache of a replica on all its devices, copies included."""
        cache, cached = ledger.cache, [(row, ledger.cached_bytes_of(row)) for row in ledger.rows]
        if cache is None or cache.bytes == sum(nbytes for _, nbytes in cached):
            return sum((nbytes * self.cache_copies(row) for row, nbytes in cached), Fraction(0))
        return (cache.bytes - cache.recurrent_bytes) * self.cache_copies() + cache.recurrent_bytes

    def cache_read_bytes(self, ledger: Ledger) -> Fraction:
        """Of these what a decode step reads."""
        return self.cache_bytes(ledger) - ledger.unread_cache_bytes * self.cache_copies()

    def weight_bytes(self, ledger: Ledger) -> int:
        """Bytes that all devices of a replica read in a pass."""
        return ceil(sum(row.times * self.weights_read(row, ledger) for row in ledger.rows))

    def together(self, row: Operation) -> int:
        """Replicas that a row's weights serve: experts that the devices of several divide serve all of these."""
        return max(1, self.plan.expert // self.plan.tensor) if self.of_experts(row) and not row.once else 1

    def weights_read(self, row: Operation, ledger: Ledger) -> Fraction:
        """The same of one block's operation."""
        return self._bytes_of_one_copy(row, ledger) * self.copies(row)

    def _bytes_of_one_copy(self, row: Operation, ledger: Ledger) -> int:
        """Bytes that the tokens of all replicas that a row serves read of it: of experts the expected number."""
        together, samples = self.together(row), ledger.metadata.batch
        served = Fraction(min(together * samples, self.batch), samples) if together > 1 else 1
        return int(ledger.storage.read_bytes(row, expected_weights(row, served)))

    def experts_of_a_device(self, ledger: Ledger) -> float:
        """Bytes of expected experts that the device with most of each layer reads, layer after layer.

        Of k experts, which a token chooses, one of e devices has k/e at least, rounded up.
        """
        read = 0.0
        for row in filter(self.of_experts, ledger.rows):
            count = max(one.count for one in row.weight_matrices)
            fewest = Fraction(ledger.storage.held_bytes(row), count) * ceil_div(_chosen(row), self.plan.expert)
            read += row.times * max(float(fewest), self._bytes_of_one_copy(row, ledger) / self.plan.expert)
        return read

    def exchange(self, ledger: Ledger) -> Exchange:
        """What a device exchanges in a pass over the samples of `ledger`."""
        t, p, e = self.plan.tensor, self.plan.pipeline, self.plan.expert
        ends = _ends_of_sub_layers(ledger)
        # the devices of one stage make only the all-reduces of its blocks
        moved = sum(one.width * one.tokens * ledger.bytes_per_element * one.times for one in ends.values())
        width, tokens = next(((one.width, one.tokens) for one in ends.values()), (0, 0))
        vectors = width * tokens * ledger.bytes_per_element
        table = any(row.vocabulary for row in ledger.rows)
        sent = 0.0
        if e > t:
            rows = _first_of_experts(ledger)
            sent = sum(2 * self._remote(row, e // t) * row.times for row in rows) * vectors / (t * p)
        link, rate = self._link(t)
        return Exchange(
            all_reduces=(sum(one.times for one in ends.values()) + table) if t > 1 else 0,
            all_reduce_bytes=(ceil_div(moved, p) + vectors * table) if t > 1 else 0,
            all_to_all_bytes=sent,
            stage_bytes=ceil_div(vectors, t) if p > 1 else 0,
            ring=2 * (t - 1) / t,
            link=link,
            rate=rate,
            stage_seconds=self._stage_seconds(ceil_div(vectors, t)) if p > 1 else 0.0,
            all_to_all_seconds=self._all_to_all_seconds(sent),
        )

    def _link(self, devices: int) -> tuple[str | None, float | None]:
        """What joins so many devices, and the bytes/s of each: a node's devices receive a sum for it together."""
        link, node, network = self.on.device.link, self.on.device.node, self.on.device.network
        if link is None:
            return None, None
        if node is None or network is None or devices <= node or node * network.rate.value >= link.rate.value:
            return link.name, link.among(devices) if devices > 1 else link.rate.value
        return f"{node} × {network.name}", node * network.rate.value

    def _stage_seconds(self, nbytes: int) -> float:
        """Of what a device passes to the next stage: over the network, where a stage is a node or more."""
        link, node, network = self.on.device.link, self.on.device.node, self.on.device.network
        if link is None:
            return 0.0
        beyond = node is not None and network is not None and self.plan.tensor >= node
        return nbytes / (network.rate.value if network is not None and beyond else link.among(2))

    def _all_to_all_seconds(self, sent: float) -> float:
        """Of tokens that a device sends to experts of all replicas: those of other nodes at the network's rate."""
        link, node, network = self.on.device.link, self.on.device.node, self.on.device.network
        if link is None or not sent:
            return 0.0
        groups = self.plan.expert // self.plan.tensor
        near = groups if node is None or network is None else min(groups, max(1, node // self.plan.tensor))
        inside = sent * (near - 1) / (groups - 1)
        return max(inside / link.rate.value, 0.0 if network is None else (sent - inside) / network.rate.value)

    def _remote(self, row: Operation, groups: int) -> float:
        """Replicas, but for its own, that a token is expected to be sent to: its experts are on `groups` of them."""
        experts = max(one.count for one in row.weight_matrices)
        chosen = experts * row.active_params // row.params
        if groups < 2:  # noqa: PLR2004 - all experts are on its own devices
            return 0.0
        none = Fraction(comb(experts - experts // groups, chosen), comb(experts, chosen))
        return float((groups - 1) * (1 - none))


def _shared(ledger: Ledger, shares: Shares) -> Fraction:
    """Bytes of tables that both ends share, on one device."""
    rows = (row for row in ledger.rows if row.stage == "shared")
    return sum((ledger.storage.held_bytes(row) * shares.copies(row) / shares.plan.tensor for row in rows), Fraction(0))


def _in_block(row: Operation, ledger: Ledger) -> bool:
    return row.in_block if ledger.metadata.stages else _block_of(row) is not None


def sub_layer_of(row: Operation) -> str:
    """The part of a module's path below its block: `self_attn`; empty where it is no part of one."""
    parts, place = row.component.split("."), _block_of(row)
    return "" if place is None else ".".join(parts[place + 1 : place + 2])


def _block_of(row: Operation) -> int | None:
    """The place of the block's number in the path of a module's row."""
    parts = row.component.split(".")
    return next((place for place, part in enumerate(parts) if is_group(part) or part.isdecimal()), None)


def _blocks(ledger: Ledger) -> int:
    """Blocks of the model: those of its stages, or of a module the repetitions of its numbered parts."""
    if ledger.metadata.stages:
        return sum(int(stage["blocks"]) for stage in ledger.metadata.stages)
    groups: dict[str, int] = {}
    for row in ledger.rows:
        if (place := _block_of(row)) is not None and row.weight_matrices:
            groups.setdefault(".".join(row.component.split(".")[: place + 1]), row.times)
    return sum(groups.values())


class _End(NamedTuple):
    """The last linear map of a sub-layer, whose results are added over the devices."""

    width: int
    tokens: int
    """Of all samples."""
    times: int


def _ends_of_sub_layers(ledger: Ledger) -> dict[str, _End]:
    """Sub-layer in a block -> its end. In a module matrices that are alone next to the others are two of one MLP."""
    found: dict[str, list[Operation]] = {}
    for row in ledger.rows:
        if not row.weight_matrices or not row.macs or not _in_block(row, ledger):
            continue
        parts = row.component.split(".")
        name = row.component if row.ran is None else ".".join(parts[: (_block_of(row) or 0) + 2])
        found.setdefault(name, []).append(row)
    alone = [name for name, (row, *more) in found.items() if not more and row.ran and len(row.weight_matrices) == 1]
    for name in alone[: len(alone) // 2]:
        del found[name]
    return {
        name: _End(int(rows[-1].weight_matrices[-1].outputs), _tokens(rows), rows[-1].times)
        for name, rows in found.items()
    }


def boundary_elements(ledger: Ledger) -> int:
    """Elements of the activations that one block hands to the next, of all samples: of the first block."""
    return next((one.width * one.tokens for one in _ends_of_sub_layers(ledger).values()), 0)


def _tokens(rows: list[Operation]) -> int:
    """Tokens of all samples that a sub-layer computes: the fewest of its maps', of experts without the copies."""
    maps = [(row, sum(one.inputs * one.outputs for one in row.weight_matrices)) for row in rows]
    return min(int(row.macs // (elements * _chosen(row))) for row, elements in maps)


def _chosen(row: Operation) -> int:
    """Experts of a token."""
    return int(max(one.count for one in row.weight_matrices) * row.active_params // row.params) if row.params else 1


def _first_of_experts(ledger: Ledger) -> list[Operation]:
    """Of each layer of experts the first row, to which tokens are sent."""
    found: dict[str, Operation] = {}
    for row in ledger.rows:
        if row.params and any(one.count > 1 for one in row.weight_matrices):  # steps of a generation have none
            found.setdefault(row.component, row)
    return list(found.values())
