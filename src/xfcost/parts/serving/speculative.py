"""Speculative decoding: the passes of a draft and the target's pass over what it gave, instead of decode steps.

The target's pass is a prefill behind a cached prefix, counted by the same program: of N + k tokens N - 1 are cached and
k drafted. With k = 0 it would be the decode step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from xfcost.counting.decoding import cache_of, run_at, work_of
from xfcost.counting.forward import count
from xfcost.formulas.component import NormKind, Place
from xfcost.ledger.errors import UsageError
from xfcost.ledger.execution import Mode
from xfcost.ledger.least_work import by_chance
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.modes import PassWork
from xfcost.parts.serving.bounds import SizedRun, on_devices
from xfcost.parts.serving.draft_heads import HiddenJoin, MedusaHead
from xfcost.parts.serving.options import NO_DRAFT_MODEL
from xfcost.parts.serving.parallel import heads_of
from xfcost.parts.serving.result import MemoryNeed, Speculation, TimeBound, expected_accepted
from xfcost.spec.architecture import Architecture, Block, BlockOrder, Part, Stage, Stream
from xfcost.spec.grammar import TokenInput
from xfcost.spec.load import Loaded
from xfcost.spec.placement import place
from xfcost.spec.run import Run

# The titles of drafts that are no model.
_TITLES: Final = {
    "mtp": "the MTP module",
    "eagle": "an EAGLE head",
    "medusa": "Medusa heads",
    NO_DRAFT_MODEL: "an n-gram",
}


class Draft(NamedTuple):
    """The draft as it is given."""

    name: str
    """A model, or one of `DRAFT_HEADS`, or `NO_DRAFT_MODEL`."""
    tokens: int
    """k, tokens of a round."""
    accepted: float | None = None
    """a, those that are accepted on average."""
    acceptance: float | None = None
    """α, from which a follows."""

    @property
    def is_model(self) -> bool:
        """Is it a model of its own?"""
        return self.name not in _TITLES

    def steps(self, run: Run, tokens: int) -> list[Run]:
        """The draft's decode steps of a round behind N - 1 tokens: with N, …, N + k - 1 of them."""
        own = run._replace(size=None, mode="decode", cached_prefix=0, logits=None, compared=True)
        return [own._replace(tokens=(tokens + drafted,)) for drafted in range(self.tokens)]

    def verifying(self, run: Run, tokens: int) -> Run:
        """The target's pass over the last of N tokens and the drafted ones."""
        size = (tokens + self.tokens,)
        return run._replace(tokens=size, size=None, mode="prefill", cached_prefix=tokens - 1, logits="all")


def speculation(
    step: Ledger, verification: Ledger, passes: Sequence[Ledger], draft: Draft, vocabularies: Sequence[int] = ()
) -> Speculation:
    """Rounds of the `passes` of the draft and the target's verification, instead of a decode `step`.

    The `vocabularies` are those of target and draft that are known.
    """
    works = [_work(one) for one in passes]
    shared = [row for row in passes[-1].rows if row.vocabulary] if draft.name in ("mtp", "eagle") else []
    params = sum(row.params * row.times for row in passes[-1].rows) if passes else 0
    found = Speculation(
        draft=passes[-1].metadata.name if draft.is_model else _TITLES[draft.name],
        method="draft_model" if draft.is_model else draft.name,
        draft_tokens=draft.tokens,
        batch=step.metadata.batch,
        accepted=draft.accepted if draft.acceptance is None else expected_accepted(draft.acceptance, draft.tokens),
        acceptance=draft.acceptance,
        draft_params=params - sum(row.params * row.times for row in shared),
        step=_work(step),
        verification=_work(verification),
        experts=by_chance(verification),
        drafting=PassWork(macs=sum(one.macs for one in works), flops=sum(one.flops for one in works)),
        notes=tuple(_notes(step, passes, draft, vocabularies)),
    )
    on, of_pass = step.on, verification.on
    if on is None or of_pass is None:
        return found
    # tokens of a chunk before theirs are not read
    unread = step.unread_cache_bytes * max((one.cache_copies for one in on.reads.values()), default=1)
    time = msgspec.structs.replace(of_pass.time, bytes=of_pass.time.bytes - int(unread))
    need = of_pass.memory
    weights = cache = 0
    if passes and (last := passes[-1].on) is not None:
        held = sum(passes[-1].storage.held_in_all(row) for row in shared)
        degree = on.parallelism.tensor if on.parallelism is not None else 1
        weights, cache = last.memory.weights - held // degree, last.memory.held_cache
        need = _together(need, last.memory, weights)
    return msgspec.structs.replace(
        found,
        step_time=on.time,
        plain_times=(on.time,),
        verification_time=time,
        draft_times=tuple(one.on.time for one in passes if one.on is not None),
        memory=need,
        draft_weights=weights,
        draft_cache=cache,
        mfu=on.mfu,
        mbu=on.mbu,
    )


def of_generation(first: Speculation, last: Speculation, ledger: Ledger, prefill: Ledger | None) -> Speculation:
    """The rounds of a generation, from its first and last ones; `ledger` is without a draft, `prefill` the draft's."""
    generation = ledger.generation
    if generation is None or generation.decode is None:
        raise UsageError("a generation without decode steps has no rounds")
    own = PassWork(macs=0, flops=0) if prefill is None else _work(prefill)
    works = {name: _mean(getattr(first, name), getattr(last, name)) for name in ("step", "verification", "drafting")}
    found = msgspec.structs.replace(
        last,
        **works,
        from_rounds=generation.new_tokens - 1,
        prefill=PassWork(macs=generation.prefill.macs + own.macs, flops=generation.prefill.flops + own.flops),
    )
    on = ledger.on
    if on is None or last.memory is None:
        return found
    alive = [one for one in (on.memory, None if prefill is None or prefill.on is None else prefill.on.memory) if one]
    known = [one.activations for one in (*alive, last.memory) if one.activations is not None]
    most = {"attention": max(one.attention for one in (*alive, last.memory))}
    memory = msgspec.structs.replace(last.memory, **most, activations=max(known, default=None))
    names = ("step_time", "verification_time")
    times: dict[str, Any] = {name: _mean(getattr(first, name), getattr(last, name)) for name in names}
    pairs = zip(first.draft_times, last.draft_times, strict=True)
    prefills = [on.phases[0].time, *([] if prefill is None or prefill.on is None else [prefill.on.time])]
    return msgspec.structs.replace(
        found,
        **times,
        draft_times=tuple(_mean(*pair) for pair in pairs),
        prefill_times=tuple(prefills),
        plain_times=on.parts,
        memory=memory,
    )


Counted = TypeVar("Counted", PassWork, TimeBound)


def _mean(one: Counted, other: Counted) -> Counted:
    """Of two passes that differ in their N: work and bytes, rounded down, and seconds of links."""
    names = ("macs", "flops", "bytes", "quantised_flops", "link_bytes", "link_seconds", "experts_seconds")
    sums = {name: getattr(one, name) + getattr(other, name) for name in names if hasattr(one, name)}
    halves = {name: total // 2 if isinstance(total, int) else total / 2 for name, total in sums.items()}
    return msgspec.structs.replace(one, **halves)


def _work(ledger: Ledger) -> PassWork:
    macs, flops = work_of(ledger.rows)
    return PassWork(macs=macs, flops=flops)


def _together(target: MemoryNeed, draft: MemoryNeed, weights: int) -> MemoryNeed:
    """The memory of both, which run one after the other; the draft's own `weights` are those that it does not share."""
    reserved = None if target.reserved_cache is None else target.held_cache + draft.held_cache
    alive = [one.activations for one in (target, draft) if one.activations is not None]
    return MemoryNeed(
        weights=target.weights + weights,
        cache=target.cache + draft.cache,
        attention=max(target.attention, draft.attention),
        activations=max(alive) if target.activations is not None else None,
        available=target.available,
        reserved_cache=reserved,
        of_each=target.of_each,
    )


def _notes(step: Ledger, passes: Sequence[Ledger], draft: Draft, vocabularies: Sequence[int]) -> Iterator[str]:
    """What no engine runs, and what is assumed of the draft."""
    if len(set(vocabularies)) > 1:
        words = " and ".join(f"{size:,}" for size in vocabularies)
        yield f"target and draft have vocabularies of {words}: engines refuse such a draft"
    if draft.is_model:
        yield from (f"draft: {warning}" for warning in passes[-1].metadata.warnings)
    if passes and passes[-1].on is not None:
        yield "the draft is on the same devices, and divided as the target is"
    if step.cache is not None and step.cache.recurrent_bytes:
        yield "recurrent states after every drafted token, to go back to the last accepted one, are not counted"
    if draft.name == "mtp" and draft.tokens > 1:
        yield f"one MTP module runs {draft.tokens} times in a round, each time on its own last token"
    if draft.name in ("eagle", "medusa"):
        yield "one candidate for each position is drafted; a tree of candidates has more tokens to verify"


def head_passes(loaded: Loaded | None, run: Run, draft: Draft, tokens: int) -> list[Ledger]:
    """The passes in a round of layers on top of the target: of Medusa's heads one, of the others one per token.

    Raises:
        UsageError: the target is no decoder of tokens of one width, or has no spec.
    """
    steps = draft.steps(run, tokens)
    return [head_pass(loaded, one, draft) for one in (steps[:1] if draft.name == "medusa" else steps)]


def head_pass(loaded: Loaded | None, run: Run, draft: Draft) -> Ledger:
    """The layers of a draft on top of the target, in a decode step or a prefill, on the devices of the run.

    Raises:
        UsageError: as `head_passes`.
    """
    if loaded is None:
        raise UsageError(f"--draft {draft.name}: no spec says what its blocks are; give a draft model")
    whole = place(loaded, run)
    tokens: int = whole.streams[-1].grid.tokens

    def counted(size: int, mode: Mode, batch: int) -> Ledger:
        here = place(loaded, run_at(size, whole, run._replace(batch=batch), mode))
        return count(_heads_alone(here, draft), orders=False)

    ledger = counted(tokens, run.mode, run.batch)
    if draft.name == "eagle" and any(row.idle_params for row in ledger.rows):
        raise UsageError(
            f"--draft eagle: the blocks of {loaded.spec.name} have experts, and EAGLE heads of such models have a "
            "dense block of other sizes; describe it as a spec, as in --draft my-head.yaml"
        )
    # fewer activations are alive than in the target, which has as wide ones of more tokens
    step = ledger if run.mode == "decode" else counted(tokens, "decode", run.batch)
    ledger = msgspec.structs.replace(ledger, cache=cache_of(step))
    sizes = SizedRun(tokens, run.batch, counted, heads=partial(heads_of, _heads_alone(whole, draft)))
    return on_devices(ledger, run, sizes, limits=False)


def _heads_alone(target: Architecture, draft: Draft) -> Architecture:
    """The layers that draft: of an MTP module or an EAGLE head the target's ends with its last block between them.

    An MTP module is W[norm(h); norm(e)] and a block of the target, with the target's embedding and head (DeepSeek-V3,
    2024, arXiv:2412.19437, §2.2); an EAGLE head the same without norms (Li et al. 2024, arXiv:2401.15077, §3); Medusa
    heads are a residual block and logits each (Cai et al. 2024, arXiv:2401.10774, §2.1.1).
    """
    stream, *others = target.streams
    stage = stream.stages[-1]
    grid, width = stage.leaves
    if others or len(stream.stages) > 1 or not isinstance(stream.input, TokenInput) or target.logits is None:
        raise UsageError(
            f"--draft {draft.name}: {target.spec.name} is no language model of blocks of one width; give a draft model"
        )
    here = Place(grid=grid, dim=width, out_dim=width, vocabulary=stream.input.vocabulary)
    if draft.name == "medusa":
        head = Block("medusa", "head", (Part("medusa", MedusaHead(), here),), draft.tokens)
        alone = Stage("medusa", "Medusa heads", width, grid, (), (head,), BlockOrder((0,), draft.tokens))
        return _with(target, msgspec.structs.replace(stream, embed=(), stages=(alone,)), head=None)
    last = msgspec.structs.replace(stage.blocks[list(stage.order)[-1]], times=1)
    norm: NormKind = "none"
    if draft.name == "mtp" and target.head is not None:  # as before the logits
        norm = getattr(target.head.component, "norm", norm)
    join = Part("join", HiddenJoin(norm=norm), here)
    alone = msgspec.structs.replace(stage, blocks=(last,), order=BlockOrder((0,)))
    return _with(target, msgspec.structs.replace(stream, embed=(*stream.embed, join), stages=(alone,)))


def _with(target: Architecture, stream: Stream, **more: None) -> Architecture:
    tables = {} if more else target.tables
    return msgspec.structs.replace(target, streams=(stream,), tables=tables, as_written=False, **more)
