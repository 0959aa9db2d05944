"""Ledger -> the lines of inference: the cache, a decode step; on given devices does it fit, and how fast is it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from xfcost.ledger import units
from xfcost.ledger.device import DeviceGroup
from xfcost.ledger.least_work import by_chance, extreme_weight_bytes, weight_bytes
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.metadata import Metadata
from xfcost.ledger.modes import CacheBytes, CachedPrefix, DecodeStep, Generation, PassWork
from xfcost.ledger.parallelism import Exchange, Parallelism
from xfcost.ledger.quantization import CACHE_FORMATS
from xfcost.ledger.roofs import Bound
from xfcost.parts.serving.evidence import Evidence, PublishedRun
from xfcost.parts.serving.result import (
    ComputeBoundBatch,
    MemoryNeed,
    Offloaded,
    OnDevices,
    Speculation,
    output_word,
    why_no_time,
)
from xfcost.report.document import DataTable, TextLines, line, numbers

EXPECTED: Final = "with the expected experts"
# A smaller share of the memory is no part of it in a report.
_VISIBLE: Final = 0.001
# Behind the heading of rates at the lower bound of the time.
AT_MOST: Final = " ≤"


def cache_answers(ledger: Ledger) -> Iterator[TextLines]:
    """The header's lines of the cache, and of the total of a generation."""
    if ledger.generation is not None:
        yield generation_text(ledger.generation)
    if ledger.prefix is not None:
        yield prefix_text(ledger.prefix)
    if ledger.cache is not None:
        yield cache_text(ledger.cache, ledger.metadata)
        if (cross := ledger.cache.cross_attention_bytes) > 0:
            yield line(
                f"{units.size(cross)} ({units.percent(cross, ledger.cache.bytes)} of it), filled once by the encoder; "
                "new tokens add nothing",
                head="cross-attention in the cache: ",
            )


def weights_texts(ledger: Ledger) -> Iterator[TextLines]:
    """How quantised weights are stored, and which ones are."""
    weights = ledger.metadata.weight_format
    if weights is None or not weights.words:
        return
    stored, dtype = ledger.storage, ledger.metadata.dtype
    found = [one for row in ledger.rows for one in stored.quantised(row)]
    matrices = sum(one.matrix.elements * one.blocks for one in found)
    params = ledger.total("params") or 0
    kinds = {"experts" if one.matrix.count > 1 else "linear layers" for one in found}
    which = " and ".join(sorted(kinds, reverse=True)) or "none"
    words = f"{units.size(ledger.held_bytes)}; {units.percent(matrices, params)} of the parameters, the matrices of "
    words += f"{which}, in {weights.words}; others in {units.stored_in(dtype)}"
    if weights.published:
        yield line(f"{weights.name}, as published: {words}", head="weights: ")
    else:
        yield line(words, head=f"{weights.name} weights: ")


def checkpoint_texts(ledger: Ledger) -> Iterator[TextLines]:
    """The bytes of a checkpoint on the disk: those of operations, those that a step reads, those of none and why."""
    stored, found = ledger.metadata.checkpoint, ledger.joined_weights
    if stored is None or found is None:
        return
    files = "1 file" if stored.files == 1 else f"{stored.files:,} files"
    words = f"{units.size(stored.bytes)} in {files} ({_dtypes(stored.dtypes)}), "
    words += "all used" if found.bytes == stored.bytes else f"{units.size(found.bytes)} of it used"
    weights = ledger.metadata.weight_format
    if ledger.step is not None and weights is not None and weights.tensors is not None:
        words += f"; a step reads {units.size(ledger.step.weight_bytes)}"
    if others := sum(found.others.values()):
        reasons = sorted(found.others.items(), key=lambda item: -item[1])
        why = reasons[0][0] if len(reasons) == 1 else ", ".join(f"{one} {units.size(held)}" for one, held in reasons)
        words += f"; {units.size(others)} belong to no operation: {why}"
    yield line(words, head="checkpoint: ")


# Types of tensors that are listed.
_MOST_TYPES: Final = 4


def _dtypes(dtypes: Mapping[str, int]) -> str:
    """`Q4_K 3.9 GiB, Q6_K 0.7 GiB`; `BF16` where all have one."""
    if len(dtypes) == 1:
        return next(iter(dtypes))
    shown = [f"{name} {units.size(nbytes)}" for name, nbytes in dtypes.items()]
    more = len(shown) - _MOST_TYPES
    return ", ".join(shown[:_MOST_TYPES]) + (f" and {more} more types" if more > 0 else "")


def step_answers(ledger: Ledger) -> Iterator[TextLines]:
    """The header's lines of a decode step: bytes read, intensity."""
    if ledger.step is not None:
        ridge = "" if ledger.on is not None else ": memory-bound wherever the ridge point is higher"
        yield from step_texts(ledger.step, cache_name(ledger.cache), ridge, experts=by_chance(ledger))


def cache_name(*caches: CacheBytes | None) -> str:
    """`KV cache`, `recurrent state`, or both, of one system or several."""
    known = [cache for cache in caches if cache is not None]
    recurrent = any(cache.recurrent_bytes for cache in known)
    if not recurrent or any(cache.bytes > cache.recurrent_bytes for cache in known):
        return "KV cache and recurrent state" if recurrent else "KV cache"
    return "recurrent state"


def cache_text(cache: CacheBytes, metadata: Metadata) -> TextLines:
    """Its bytes, and how they grow with N."""
    growth = "it does not grow with N" if cache.bytes else "nothing is cached"
    if cache.bytes > cache.recurrent_bytes + cache.cross_attention_bytes:  # what could grow
        growth = f"the windows of attention are full, and {growth}"
    if cache.bytes_per_token:
        growth = f"{units.size(cache.bytes_per_token)} more per token of a sample"
        constant = cache.state_bytes - cache.cross_attention_bytes
        growth += f"; {units.size(constant)} do not grow with N" if constant else ""
    dtype = metadata.cache_format or units.stored_in(metadata.dtype)
    dtype += ", as published" if metadata.published_cache else ""
    if metadata.cache_format is not None and cache.recurrent_bytes:
        dtype += f" ({units.size(cache.recurrent_bytes)} of recurrent state in {units.stored_in(metadata.dtype)})"
    size = f"{units.size(cache.bytes)} {dtype}, batch {metadata.batch}"
    return line(f"{size}; {growth}", head=f"{cache_name(cache)}: ")


def step_texts(step: DecodeStep, cache: str, ridge: str, *, experts: bool) -> Iterator[TextLines]:
    """Bytes that one decode step reads; FLOPs per byte, and where no devices say it, when that is memory-bound."""
    yield line(
        f"{'expected ' if experts else ''}{units.size(step.bytes_read)} "
        f"({units.size(step.weight_bytes)} of weights, {units.size(step.cache_bytes)} of {cache})",
        head="bytes read per step: ",
    )
    if step.intensity is not None:
        yield line(
            f"{intensity_number(step.intensity)} FLOP/byte{f' {EXPECTED}' if experts else ''}{ridge}",
            head="arithmetic intensity ",
        )


def experts_texts(ledger: Ledger) -> Iterator[TextLines]:
    """The weights that a pass reads, of which an expected number of experts is a part, and their extremes."""
    if by_chance(ledger):
        same, most = map(units.size, extreme_weight_bytes(ledger))
        yield line(
            f"{units.size(weight_bytes(ledger))} {EXPECTED}; {same} if all tokens choose the same ones, {most} if they "
            "choose as many as they can",
            head="weights read once: ",
        )


def intensity_number(intensity: float) -> str:
    """`0.50`, `151`: three digits, two of them behind the point where it is small."""
    return f"{intensity:.2f}" if intensity < 10 else f"{intensity:,.4g}"  # noqa: PLR2004 - two digits behind the point


def prefix_text(prefix: CachedPrefix) -> TextLines:
    """What the prefill behind a cached prefix costs, and what it would be without one."""
    new, more = prefix.prompt - prefix.tokens, _times_more(prefix.prefill.flops, prefix.without.flops)
    words = f"{prefix.tokens:,} of {prefix.prompt:,} tokens; the prefill of the other {new:,} takes "
    words += f"{units.count(prefix.prefill.flops)}FLOPs{_bounded(prefix.prefill_seconds)}; without it "
    words += f"{units.count(prefix.without.flops)}FLOPs ({more}){_bounded(prefix.without_seconds)}"
    return line(words, head="cached prefix: ")


def _bounded(seconds: float | None) -> str:
    return "" if seconds is None else f", {units.seconds(seconds)} at least"


def generation_text(generation: Generation) -> TextLines:
    """The total of prompt and new tokens, and how much more it is without a cache."""
    m, n = generation.new_tokens, generation.prompt
    total = generation.with_cache
    work = total or generation.without_cache
    words = f"{units.exact(work.macs)} MACs   {units.exact(work.flops)} FLOPs"
    if total is None:
        return line(words, head=f"{units.number_of(m, 'new token')} after {n:,}, without a cache: ")
    more = _times_more(total.macs, generation.without_cache.macs)
    return line(f"{words} ({more} without a cache)", head=f"{units.number_of(m, 'new token')} after {n:,}: ")


def generation_table(generation: Generation) -> DataTable:
    """With a cache, and without one."""
    m, n = generation.new_tokens, generation.prompt
    lines: list[tuple[str, PassWork | None, str]] = [("  prefill (gives the first)", generation.prefill, "")]
    if generation.decode is not None:
        lines += [(f"  {units.number_of(m - 1, 'decode step')}", generation.decode, "")]
        lines += [("with a cache", generation.with_cache, "bold")]
    passes = "1 pass" if m == 1 else f"{m:,} passes"
    lines += [(f"without a cache: {passes} over all tokens so far", generation.without_cache, "bold")]
    rows = [
        [words, units.count(None if work is None else work.macs), units.count(None if work is None else work.flops)]
        for words, work, _ in lines
    ]
    if generation.with_cache is not None:
        cached, anew = generation.with_cache, generation.without_cache
        rows.append(["", _times_more(cached.macs, anew.macs), _times_more(cached.flops, anew.flops)])
    columns = numbers(f"{units.number_of(m, 'new token')} after {n:,}", "MACs", "FLOPs")
    return DataTable(columns, rows, [*(style for _, _, style in lines), ""])


def _times_more(less: int, more: int) -> str:
    if less == more:
        return "as much"
    return f"{units.ratio(more / less)} as many" if less else units.DASH


_EXAMPLE: Final = {"--mfu": "--mfu 40%", "--mbu": "--mbu 60%"}
_UTILISATION: Final = {"--mfu": "FLOPs utilisation", "--mbu": "bandwidth utilisation"}


def fit_texts(ledger: Ledger) -> Iterator[TextLines]:
    """`8 × NVIDIA H100 SXM 80 GB: fits, 188.9 GiB to spare`, or by how much it doesn't."""
    if ledger.on is not None:
        yield TextLines([fit_words(ledger.on)], head=f"{ledger.on.on.title}: ", advice=fit_advice(ledger.on))


def mode_texts(ledger: Ledger) -> Iterator[TextLines]:
    """Which modes show what serving a language model takes: a forward shows neither its memory nor its time.

    Without devices a line for the next token.
    """
    if (token := ledger.generated_token) is not None:
        samples = ledger.metadata.batch
        each = "" if samples == 1 else f" of each of {samples} samples"
        held = f"{units.size(token.cache.bytes)} {token.dtype} at N = {token.tokens:,}"
        yield line(
            f"{units.count(token.flops)} FLOPs; {cache_name(token.cache)}: {held} (--mode decode)",
            head=f"one generated token{each}: ",
        )
    elif ledger.metadata.mode == "forward" and ledger.on is None and ledger.metadata.inputs and _generates(ledger):
        yield line("one generated token and the KV cache: --mode decode")
    if ledger.on is not None and ledger.metadata.mode == "forward" and _generates(ledger):
        words = "a forward of all positions, without a KV cache; to serve: --mode prefill (time to first token) or "
        yield line(f"{words}--mode decode (tokens/s, KV cache)")


def _generates(ledger: Ledger) -> bool:
    """Does it predict the next token? Of a model without a spec its causal mask and its scores of words say so."""
    metadata, scores = ledger.metadata, ledger.scores()
    if metadata.inputs is None:
        return metadata.logits is not None
    of_config = ":" not in metadata.source or metadata.source.startswith("transformers.")  # else the class of a module
    masked = scores.causal and scores.kept < scores.computed
    return of_config and masked and any(row.vocabulary and row.macs for row in ledger.rows)


def reach_texts(ledger: Ledger) -> Iterator[TextLines]:
    """Up to which batch and N it fits."""
    if ledger.on is not None and (reaches := _reaches(ledger.on.memory, ledger.metadata.batch)):
        fills = ledger.on.on.device.memory_share is None and ledger.on.memory.largest_batch
        reaches = f"without the draft it {reaches}" if ledger.speculation is not None else reaches
        yield TextLines([reaches + (_NOTHING_KEPT if fills else "")])


# What memory that a run fills has no room for.
_NOTHING_KEPT: Final = (
    "; no memory is kept free there for CUDA's context and an engine's workspace (--memory-share 90%)"
)


def fit_advice(found: OnDevices) -> str:
    """`it would fit with --on h100-sxmx4`, of what doesn't fit."""
    return f"it would fit with {', or '.join(found.memory.remedies)}" if found.memory.remedies else ""


def fit_words(found: OnDevices) -> str:
    """`fits, 188.9 GiB of 632.9 GiB to spare`; `does not fit: 51.2 GiB too much for 79.1 GiB`."""
    need = found.memory
    if need.spare is None or need.available is None:
        return f"takes {units.size(need.reserved)}; its memory is not known"
    whole = f"{units.size(need.available)}{found.memory_words}"
    return found.no_time or f"fits, {units.size(need.spare)} of {whole} to spare"


def time_texts(ledger: Ledger) -> Iterator[TextLines]:
    """The lower bound, and the estimate at the efficiencies that were given.

    None of a run that does not fit. Why there is no estimate is left out where the time is predicted.
    """
    found = ledger.on
    if found is None or found.no_time is not None:
        return
    mode, batch = ledger.metadata.mode, ledger.metadata.batch
    what = _bounds_text(part.bound for part in found.parts)
    if len(found.phases) > 1 and found.outputs:
        first, others = (phase.time.seconds for phase in found.phases)
        each = units.seconds(others / (found.outputs / batch - 1))
        what = f"{units.seconds(first)} to the first token (prefill), then {each} per token"
    experts = f" {EXPECTED}" if by_chance(ledger) else ""
    yield _time_line(f"lower bound{experts}: ", found.seconds, what, found, (mode, batch))
    if found.estimate is not None:
        yield _time_line(f"estimate at {shares_text(found)}: ", found.estimate, "", found, (mode, batch))
    elif ledger.prediction is None:
        yield TextLines(["No run takes less time"], advice=no_estimate(found))
    evidence = found.evidence
    if evidence is not None and mode != "forward":  # published runs are of prompts and of generation
        times = seconds_range(evidence) + (" per step" if mode == "decode" else "")
        rates = "" if evidence.seconds is None else _rates(found, evidence.seconds, (mode, batch))
        yield evidence_text(evidence, f"{times}, {rates}" if rates else times)


def evidence_text(evidence: Evidence, times: str) -> TextLines:
    """`published runs like this reach 41 to 69 % of the bound (17 runs; decode, 1 sample, …): 26 to 43 ms, …`."""
    head = "published runs like this"
    count = units.number_of(len(evidence.runs), "run")
    if evidence.shares is None:
        found = f"{count}, too few for a range" if evidence.runs else "none"
        return line(f"{found} ({evidence.why_none})", head=f"{head}: ")
    alone = "" if evidence.bound_seconds == evidence.least_seconds else " without communication"
    shares = value_range(*(f"{100 * share:.0f} %" for share in evidence.shares))
    words = f" reach {shares} of the bound{alone} ({count}; {', '.join(evidence.alike)}): {times}"
    return line(words, head=head)


def seconds_range(evidence: Evidence) -> str:
    """`26 to 43 ms`; empty without a range."""
    return "" if evidence.seconds is None else value_range(*map(units.seconds, evidence.seconds))


def speculation_texts(ledger: Ledger) -> Iterator[TextLines]:
    """Draft and target, their memory, a round's time, what the verification waits for, and what is gained."""
    one, found = ledger.speculation, ledger.on
    if one is None:
        return
    verb = "draft" if one.method == "medusa" else "drafts"
    words = f"{one.draft} {verb} {units.number_of(one.draft_tokens, 'token')} per round, and {ledger.metadata.name} "
    words += f"verifies {one.draft_tokens + 1:,} of each sample in one pass, with "
    words += f"{units.ratio(one.verification.flops / (one.step.flops or 1), 3)} the FLOPs of a step"
    if one.drafting.flops:
        words += f"; drafting takes {units.percent(one.drafting.flops, one.step.flops)} of a step's FLOPs"
        if one.step_time is not None and (drafting := one.lasting(*one.draft_times)) is not None:
            words += f", and {units.percent(drafting, one.lasting(one.step_time) or 0.0)} of its time"
    yield line(words, head="speculative decoding: ")
    if one.memory is not None and found is not None and (one.draft_weights or not one.fits):
        more = [f"weights {units.size(one.draft_weights)}"] if one.draft_weights else []
        more += [f"{cache_name(ledger.cache)} {units.size(one.draft_cache)}"] if one.draft_cache else []
        spare, available = one.memory.spare, one.memory.available
        fits = why_no_time(spare, available, found.memory_words)
        if spare is not None and fits is None:
            fits = f"fits, {units.size(spare)} of {units.size(available)}{found.memory_words} to spare"
        words = f"{' + '.join(more)} more; " if more else ""
        yield line(words + (fits or "the memory is not known"), head="memory with the draft: ")
    if found is not None and one.fits:
        basis = f"estimated at {shares_text(found)}" if one.estimated else "at the bound"
        yield from _round_texts(one, f"{basis} {EXPECTED}" if one.experts else basis)
    yield from _accepted_texts(one)


# From here on a verification takes visibly longer than a step; with fewer accepted tokens than that a round is as long.
_LONGER: Final = 1.05
_FEW: Final = 0.01
# The share of the drafted tokens that examples have accepted.
_OFTEN: Final = 0.64


def _round_texts(one: Speculation, basis: str) -> Iterator[TextLines]:
    """`round: 13.7 ms at the bound, 12.0 ms of it verification, which stays memory-bound; a step takes 12.0 ms`."""
    if one.step_time is None or one.verification_time is None:
        return
    step, verification, whole, prefill = (
        one.lasting(*times) or 0.0 for times in ([one.step_time], [one.verification_time], one.times, one.prefill_times)
    )
    before, now = one.step_time.bound, one.verification_time.bound
    more = ": more tokens choose more experts" if one.experts and before == now == "memory-bound" else ""
    words = f"{units.seconds(whole)} {basis}, {units.seconds(verification)} of it the verification; a step takes "
    words += units.seconds(step)
    if one.prefill is not None:
        words += f"; the prefill of both {units.seconds(prefill)}"
    yield line(words, head="round: " if one.prefill is None else "round (mean of the first and the last): ")
    longer = (
        f"takes {units.ratio(verification / step, 3)} as long as a step{more}"
        if verification > _LONGER * step
        else "takes as long as a step"
    )
    yield line(f"the verification {'stays' if before == now else 'becomes'} {now}, and {longer}")


def _accepted_texts(one: Speculation) -> Iterator[TextLines]:
    """What is gained with the accepted tokens that are given, or how to give them; from how many on anything is."""
    even = "" if one.break_even is None else _break_even(one, one.break_even)
    if one.accepted is None:
        example = f"--accepted {_OFTEN * one.draft_tokens:.2g}"
        advice = f"pass how many tokens are accepted: {example} (vLLM's mean acceptance length less 1), or "
        advice += "--acceptance 80%" + ("" if even else "; for the speed-up, add devices, such as --on h100-sxm")
        yield TextLines([even or "the gain depends on the draft"], advice=advice)
        return
    gained = one.with_accepted(one.accepted)
    words, advice = f"{gained.tokens:.3g} tokens per round", ""
    if gained.speed_up is None:
        words += f", {units.count(gained.flops_per_token)}FLOPs per token"
        advice = "for the speed-up, add devices, such as --on h100-sxm"
    else:
        if gained.tokens_per_second is not None:
            each = f", {units.count(gained.tokens_per_second / one.batch, 3)} of each sample" if one.batch > 1 else ""
            most = "" if one.estimated else "at most "
            words += f"; {most}{units.count(gained.tokens_per_second, 3)} tokens/s{each}"
        words += f", {units.ratio(gained.speed_up, 3)} as fast as without a draft"
        words += "" if one.estimated else ", both at their bounds"
    yield TextLines([words], head=f"with {one.accepted:.3g} of {one.draft_tokens} accepted: ", advice=advice)
    if even:
        yield line(even)


def _break_even(one: Speculation, accepted: float) -> str:
    """From how many accepted tokens on a round gives more than steps in its time."""
    if accepted < _FEW:
        return "faster than without a draft as soon as any token is accepted"
    if accepted > one.draft_tokens:
        return f"slower than without a draft even if all {one.draft_tokens} are accepted"
    rate = 100 * one.acceptance_of(accepted)
    return f"faster than without a draft from {accepted:.2g} accepted tokens on (acceptance rate {rate:.2g} %)"


def speculation_table(ledger: Ledger) -> DataTable | None:
    """A row for every number of accepted tokens; None without a draft."""
    one = ledger.speculation
    if one is None:
        return None
    heads = ["tokens/round", "FLOPs/token", *([] if one.break_even is None else ["speed-up"])]
    rate, per_sample = (name if one.estimated else f"{name}{AT_MOST}" for name in ("tokens/s", "per sample"))
    if one.break_even is not None and one.fits:
        heads = ["per token", rate, *([per_sample] if one.batch > 1 else []), "speed-up"]
    rows = []
    for row in one.rows():
        cells = {
            "tokens/round": f"{row.tokens:g}",
            "FLOPs/token": units.count(row.flops_per_token),
            "per token": units.seconds(row.seconds_per_token),
            rate: units.count(row.tokens_per_second),
            per_sample: units.count(row.tokens_per_second and row.tokens_per_second / one.batch),
            "speed-up": units.ratio(row.speed_up, 3),
        }
        first = [f"{row.accepted:g} of {one.draft_tokens}", f"{100 * row.acceptance:.3g} %"]
        rows.append([*first, *(cells[head] for head in heads)])
    return DataTable(numbers("accepted", "acceptance", *heads), rows)


def value_range(low: str, high: str) -> str:
    """`26 ms`, `43 ms` -> `26 to 43 ms`; of two that are the same that one."""
    number, _, unit = low.partition(" ")
    return high if low == high else f"{number if high.endswith(f' {unit}') else low} to {high}"


def evidence_table(evidence: Evidence) -> DataTable:
    """The published runs under their sources, of each those that reach most of their bound first."""
    first, *figures = numbers("published runs like this", "devices", "bits", "of the bound")
    rows, styles = [], []
    for source in dict.fromkeys(run.source for run in evidence.runs):
        own = sorted((run for run in evidence.runs if run.source == source), key=lambda run: -run.share)
        rows.append([source if own[0].engine in source else f"{own[0].engine}: {source}", "", "", ""])
        rows += [
            [f"  {_run_words(run)}", f"{run.devices} × {run.device}", f"{run.bits:g}", f"{100 * run.share:.0f} %"]
            for run in own
        ]
        styles += ["bold", *[""] * len(own)]
    return DataTable([first._replace(fold=30), *figures], rows, styles)


def _run_words(run: PublishedRun) -> str:
    """`Llama-2-70B, generation, batch 64, 2,048 + 128 tokens`."""
    again = "no" if run.recomputation == "none" else run.recomputation
    words = {"generate": "generation", "train": again and f"{again} recomputation"}.get(run.phase, run.phase)
    batch = "" if run.phase == "train" else f"batch {run.batch:,}"
    tokens = f"{run.tokens:,}{f' + {run.new_tokens:,}' if run.new_tokens else ''} tokens"
    return ", ".join(filter(None, (run.model, words, batch, tokens)))


def _bounds_text(bounds: Iterable[Bound]) -> str:
    one, *others = dict.fromkeys(bounds)
    return "the prefill and each decode step at its bound" if others else one


def no_estimate(found: OnDevices) -> str:
    """`for an estimate, pass the bandwidth utilisation that you expect, such as --mbu 60%`."""
    what = " and the ".join(_UTILISATION[option] for option in found.missing)
    example = " ".join(_EXAMPLE[option] for option in found.missing)
    return f"for an estimate, pass the {what} that you expect, such as {example}"


def _time_line(head: str, seconds: float, what: str, found: OnDevices, run: tuple[str, int]) -> TextLines:
    """`lower bound: 17.7 ms per step, memory-bound; at most 452 tokens/s, 56.5 of each sample`; and their price.

    Of what `what` bounds, the rate is the most, and the price the least.
    """
    mode, _ = run
    per = " per step" if mode == "decode" else ""
    if found.outputs is None:
        return line(f"{units.seconds(seconds)} per {'step' if per else 'run'}{f', {what}' if what else ''}", head=head)
    rate = _rates(found, (seconds, seconds), run) if seconds else ""
    most, least = ("at most ", "at least ") if what else ("", "")
    rate = f"{most}{rate}" if rate else ""
    if (price := found.price_per_output(seconds)) is not None:
        rate += f"; {least}{1e6 * price:,.3g} per million {output_word(mode)}"
    return line(f"{units.seconds(seconds)}{per}{f', {what}' if what else ''}; {rate}", head=head)


def _rates(found: OnDevices, seconds: tuple[float, float], run: tuple[str, int]) -> str:
    """`816 to 1.33 k tokens/s, 51.0 to 83.3 of each sample` of the least and the most seconds; empty where unknown."""
    mode, batch = run
    if found.outputs is None:
        return ""
    least, most = seconds

    def rates(outputs: float) -> str:
        return value_range(units.count(outputs / most, 3), units.count(outputs / least, 3))

    words = f"{rates(found.outputs)} {output_word(mode)}/s"
    if batch > 1 and mode in {"decode", "generate"}:
        words += f", {rates(found.outputs / batch)} of each sample"
    return words


def rate_texts(ledger: Ledger) -> Iterator[TextLines]:
    """`30 tokens/s of each sample, at the bound: up to batch 51, where memory ends; 2.03 k tokens/s together`."""
    found, rate = ledger.on, next((choice.at_rate for choice in ledger.choices), None)
    if found is None or rate is None:
        return
    limits = {"memory": rate.by_memory, "rate": rate.by_rate}
    other = limits["rate" if rate.limit == "memory" else "memory"]
    if rate.limit is None:
        words = "at every batch"
    elif not rate.batch:
        words = f"not even at batch 1: one sample {'gets fewer' if rate.limit == 'rate' else 'does not fit'}"
    else:
        words = f"up to batch {rate.batch:,}, {_ENDS[rate.limit]}; {'' if found.mfu or found.mbu else 'at most '}"
        words += f"{units.count(rate.outputs_per_second, 3)} tokens/s"
        words += f" together ({_OTHER[rate.limit]} {'at every batch' if other is None else f'up to {other:,}'})"
    yield line(words, head=f"{rate.tokens_per_user:g} tokens/s of each sample, {rate_basis(found, ledger)}: ")


# A limit of the batch -> where it ends by it, and how far the other one goes.
_ENDS: Final = {"memory": "where memory ends", "rate": "where a step takes longer"}
_OTHER: Final = {"memory": "fast enough", "rate": "fits"}


def rate_basis(found: OnDevices, ledger: Ledger) -> str:
    """Which time rates are taken of: `at the bound`, `estimated at 60 % MBU and the full peak`."""
    many = any(choice.at_rate is not None for choice in ledger.choices)  # a batch may choose more experts
    experts = f" {EXPECTED}" if by_chance(ledger) or (many and any(row.idle_params for row in ledger.rows)) else ""
    if found.mfu is None and found.mbu is None:
        return f"at the bound{experts}"
    full = " and the full peak" if found.mfu is None else " and the full bandwidth" if found.mbu is None else ""
    return f"estimated at {shares_text(found)}{full}{experts}"


def shares_text(found: OnDevices) -> str:
    """`40 % MFU and 60 % MBU`: those that were given."""
    given = (("MFU", found.mfu), ("MBU", found.mbu))
    return " and ".join(f"{100 * share:.3g} % {name}" for name, share in given if share is not None)


def included_texts(ledger: Ledger) -> Iterator[TextLines]:
    """The parts of the memory, when a step is compute-bound, what the bounds leave out."""
    found = ledger.on
    if found is None:
        return
    yield memory_text(ledger, found.memory)
    if found.offloaded is not None:
        yield line(_hosted(ledger, found.offloaded), head="on the host: ")
    if found.parallelism is not None and found.exchange is not None:
        yield line(_sharing(found.parallelism, found.on), head="shared: ")
        yield line(_exchanged(found, found.exchange, ledger), head="communication: ")
    if found.no_time is None:
        yield from _time_bases(found, ledger)
    for note in (*found.notes, *found.on.device.notes):
        yield line(note, "dim")


def _time_bases(found: OnDevices, ledger: Ledger) -> Iterator[TextLines]:
    """When a step is compute-bound, the price of the devices, and what the bound counts and leaves out."""
    if found.offloaded is not None:
        yield line(_sides(found, found.offloaded), head="one after the other: ")
    if found.compute_bound_batch is not None:
        expected = f" {EXPECTED}" if ledger.step is not None and any(row.idle_params for row in ledger.rows) else ""
        yield line(_closing(found.compute_bound_batch, cache_name(ledger.cache), expected))
    if found.on.price_per_hour is not None:
        yield line(f"{found.on.price_per_hour:,.4g} per hour", head="price: ")
    yield line(_assumed(found, ledger), "dim")


def memory_text(ledger: Ledger, need: MemoryNeed) -> TextLines:
    """`memory: weights 131.4 GiB + KV cache 156.2 GiB + activations 2.1 MiB`."""
    words = _memory_parts(ledger, need)
    each = " of the device that needs most" if need.of_each else ""
    others = (
        "" if need.activations is not None else f" ({'' if _no_part(need) else 'other '}activations are not counted)"
    )
    return line(f"{words}{others}", head=f"memory{each}: ")


def _no_part(need: MemoryNeed) -> bool:
    """Are the attention matrices, where these activations alone are known, next to nothing?"""
    return need.activations is None and need.alive < _VISIBLE * need.reserved


def _memory_parts(ledger: Ledger, need: MemoryNeed) -> str:
    """`weights 131.4 GiB + KV cache 156.2 GiB + activations 2.1 MiB`."""
    alive = "attention matrices" if need.activations is None else "activations"
    parts = {"weights": need.weights, cache_name(ledger.cache): need.held_cache}
    parts |= {} if _no_part(need) else {alive: need.alive}
    exact = {cache_name(ledger.cache): _reserved(ledger, need)}
    return " + ".join(f"{name} {units.size(size)}{exact.get(name, '')}" for name, size in parts.items() if size)


def _reserved(ledger: Ledger, need: MemoryNeed) -> str:
    """` in blocks of 16 tokens (6.094 GiB needed)`, where memory for the cache is reserved in blocks."""
    blocks = ledger.metadata.cache_blocks
    if need.reserved_cache is None or blocks is None:
        return ""
    return f" {blocks.words} ({units.size(need.cache)} needed)"


def _sharing(plan: Parallelism, on: DeviceGroup) -> str:
    """`tensor-parallel 4 × pipeline 2, 2 replicas with a part of the samples each`."""
    degrees = {"tensor-parallel": plan.tensor, "pipeline": plan.pipeline}
    words = [f"{name} {degree}" for name, degree in degrees.items() if degree > 1]
    replicas = plan.replicas(on.count)
    texts = [" × ".join(words)] if words else []
    texts += [f"{replicas} replicas, each with its part of the samples"] if replicas > 1 else []
    texts += [f"whole experts on {plan.expert} devices"] if plan.expert > 1 else []
    return ", ".join(texts) or "one device"


def _exchanged(found: OnDevices, exchange: Exchange, ledger: Ledger) -> str:
    """What each device receives, and how long that takes at least."""
    time, per = found.time, " per step" if ledger.metadata.mode == "decode" else ""
    parts = []
    if exchange.all_reduces:
        parts.append(f"{exchange.all_reduces} all-reduces (a ring moves {exchange.ring:.3g}× as much)")
    parts += ["activations from stage to stage"] if exchange.stage_bytes else []
    parts += ["tokens to experts and back, as expected"] if exchange.all_to_all_bytes else []
    if not parts:
        return "none"
    size = f"each device receives {units.size(round(time.link_bytes))}{per}: {', '.join(parts)}"
    if exchange.rate is None or exchange.link is None:
        return f"{size}; its link is not known"
    where = f"at {units.count(exchange.rate)}B/s ({exchange.link})"
    device = found.on.device
    if device.node is None or (device.network is None and found.on.count > device.node):
        where += ", if it connects all of them"
    elif exchange.all_to_all_bytes and device.network is not None and found.on.count > device.node:
        where += f", beyond {device.node} devices {units.count(device.network.rate.value)}B/s ({device.network.name})"
    return f"{size}; {units.seconds(time.link_seconds)} {where}"


def _reaches(need: MemoryNeed, batch: int) -> str | None:
    """`fits up to batch 12, or up to N = 205,397 at batch 8; the model has 8,192 positions`."""
    ends = []
    if need.largest_batch is not None:
        ends.append(f"up to batch {need.largest_batch:,}" if need.largest_batch else "at no batch size")
    if need.largest_tokens is not None:
        why = ", where the model's positions end" if need.positions else ""
        why = why if need.fewer_positions is None else f"; the model has {need.fewer_positions:,} positions"
        ends.append(f"up to N = {need.largest_tokens:,} at batch {batch:,}{why}")
    return (
        f"fits {', or '.join(ends)}"
        if ends and need.largest_batch != 0
        else "does not fit at any batch size"
        if ends
        else None
    )


def _closing(found: ComputeBoundBatch, cache: str, expected: str) -> str:
    """From which batch on a step is compute-bound, or why it never is."""
    if found.batch is not None:
        ridge = f"ridge point {found.ridge_point:,.4g} FLOP/byte"
        return f"compute-bound from batch {found.batch:,} on{expected} ({ridge})"
    if found.intensity is None or found.intensity > found.ridge_point:
        return f"memory-bound at every batch size up to the largest{expected}"
    return (
        f"memory-bound at every batch size: a sample adds {found.intensity:,.3g} FLOPs per byte of its {cache}, below "
        f"the ridge point of {found.ridge_point:,.4g}"
    )


def _assumed(found: OnDevices, ledger: Ledger) -> str:
    """The FLOPs and bytes that the bound and the estimate divide, and what they leave out."""
    mode, name = ledger.metadata.mode, cache_name(ledger.cache)
    filled = "read and written" if ledger.metadata.cached_prefix else "written"
    cache = {"decode": f" and {name} once", "prefill": f" once, {name} {filled}", "generate": f" and {name}"}
    cache = cache if ledger.cache is not None else {}
    device, dtype = found.on.device, found.dtype
    measured = "" if device.calibrated is None else ", as calibrated"
    shared = "" if found.on.count == 1 else f", divided perfectly among {found.on.count:,}; without communication"
    if found.parallelism is not None:
        shared = "; the longest of products, memory and communication"
    each = 1 if found.parallelism is None else found.on.count
    cached = None if ledger.generation is None else ledger.generation.with_cache
    macs = ledger.total("macs") if cached is None else cached.macs
    fewer = found.offloaded is None and found.time.flops < 2 * (macs or 0)
    kept = " of pairs that the masks keep" if fewer else ""
    rate = f"{units.count(device.peak(dtype))}FLOP/s {dtype}"
    products = f"{units.count(found.time.flops / each)}FLOPs of products{kept} at {rate}"
    if (faster := found.time.quantised_peak) is not None:
        share = units.percent(found.time.quantised_flops, found.time.flops)
        rate = f"{units.count(faster / found.on.count)}FLOP/s"
        products += f", {share} of them with {quantised_words(found, ledger)} at {rate}"
    what = "bound" if found.estimate is None else "bound and estimate"
    return (
        f"{what}{' per device' if each > 1 else ''}: {products}; "
        f"{units.size(round(found.time.bytes / each))}, weights{cache.get(mode, ' once')}, at "
        f"{units.count(device.bytes_per_second)}B/s{measured}{shared}{_host_rates(found)}"
    )


def _host_rates(found: OnDevices) -> str:
    """`; on the host 1.2 GFLOPs at 5.84 TFLOP/s float32, 61.2 GiB at 89.6 GB/s`."""
    hosts, hosted = [part.host for part in found.parts if part.host is not None], found.offloaded
    if hosted is None or not hosts:
        return ""
    flops, moved = sum(one.flops for one in hosts), sum(one.bytes for one in hosts)
    return (
        f"; on the host {units.count(flops)}FLOPs at {units.count(hosts[0].peak)}FLOP/s {hosted.peak_dtype}, "
        f"{units.size(moved)} at {units.count(hosts[0].bandwidth)}B/s"
    )


def _hosted(ledger: Ledger, hosted: Offloaded) -> str:
    """`the first 40 of 80 blocks (AMD Ryzen 9 9950X; --host names another): weights 64 GiB + …; fits, …`."""
    host, need = hosted.offload.host, hosted.memory
    named = f"{host.title}{', assumed: --host names another' if hosted.offload.assumed else ''}"
    if need.spare is None or need.available is None:
        room = "its memory is not known: --host-memory states it"
    elif need.spare < 0:
        room = f"{units.size(-need.spare)} too much for {units.size(need.available)}"
    else:
        room = f"fits, {units.size(need.spare)} of {units.size(need.available)} to spare"
    parts = _memory_parts(ledger, need)
    return f"the first {hosted.offload.layers:,} of {hosted.blocks:,} blocks ({named}): {parts}; {room}"


def _sides(found: OnDevices, hosted: Offloaded) -> str:
    """`12 ms on the devices, 824 ms on the host, 1 µs of activations over PCIe 4.0 x16`."""
    hosts = [part.host for part in found.parts if part.host is not None]
    own = sum(part.on_devices for part in found.parts)
    on_host, moved = (sum(values) for values in zip(*((one.seconds, one.moved_seconds) for one in hosts), strict=True))
    link = f"{hosted.link}{' (assumed)' if hosted.link_assumed else ''}"
    return (
        f"{units.seconds(own)} on {found.on.device.name}, {units.seconds(on_host)} on {hosted.offload.host.name}, "
        f"{units.seconds(moved)} of activations over {link}"
    )


def quantised_words(found: OnDevices, ledger: Ledger) -> str:
    """`fp8 weights and fp8 cache`: those whose products the device computes faster."""
    metadata, device = ledger.metadata, found.on.device
    weights = None if metadata.weight_format is None else metadata.weight_format.products
    cache = None if metadata.cache_format is None else CACHE_FORMATS[metadata.cache_format]
    name = metadata.weight_format and metadata.weight_format.name
    known = ((weights, f"{name} weights"), (cache, f"{metadata.cache_format} cache"))
    peak = device.peak(found.dtype)
    return " and ".join(words for dtype, words in known if dtype in device.peaks and device.peak(dtype) > peak)
