"""Training as text: FLOPs and memory of a step, FLOPs and days of a run; and the options of a comparison's run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from xfcost.formulas.optimizers import OPTIMIZERS
from xfcost.ledger import units
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.model_flops import COUNTED_WORDS, recomputed_scores
from xfcost.parts.serving.evidence import Evidence
from xfcost.parts.serving.text import evidence_text, seconds_range, value_range
from xfcost.parts.training.plan import SHARED_OUT
from xfcost.parts.training.result import AtUtilisation, TrainingPlan, TrainingStep, WholeRun
from xfcost.report.document import DataTable, Gap, Part, TableColumn, TextLines, line, numbers

# Units of long times, in days.
_DAY, _SECONDS = "day", "second"
_UNITS: Final = ((1, _DAY), (1 / 24, "hour"), (1 / 1440, "minute"))
_SYMBOLS: Final = {_DAY: "", "hour": "h", "minute": "min"}
# The share of a run's tokens from which on filling its last step is reported: a digit of the percentage next to it.
_VISIBLE: Final = 0.001
# Why a count differs from 6·P·D; smaller shares of it than `_SHOWN` are left out.
_CAUSES: Final = {
    "attention": "attention matmuls",
    "without_params": "products without parameters",
    "repeated": "weights applied more than once per token",
    "fewer_tokens": "weights that see fewer tokens",
    "tables": "embeddings and norms",
    "biases": "biases",
    "input_gradient": "inputs without a gradient",
    "frozen": "frozen weights",
    "recomputed": "recomputation",
}
_SHOWN: Final = 0.0005
# A run with so many times fewer tokens than parameters may be a typing error.
_FEW: Final = 10_000
# Fewer tokens than these may lack their unit.
_NO_UNIT: Final = 1000


def few_tokens_texts(ledger: Ledger) -> Iterator[TextLines]:
    """A question where a run has hardly any tokens: `300` may stand for 300B."""
    run, params = None if ledger.training is None else ledger.training.run, ledger.total("params") or 0
    if run is not None and run.tokens * _FEW < params:
        words = f"{run.tokens:,} tokens are few for a model with {units.count(params)} parameters"
        meant = f"did you mean --tokens {run.tokens}B?" if run.tokens < _NO_UNIT else "--tokens counts the whole run"
        yield TextLines([words], "bold yellow", advice=meant)


def training_answers(ledger: Ledger, at_least: str) -> Iterator[TextLines]:
    """The header's lines: FLOPs and memory of a step, FLOPs and days of the run."""
    if ledger.training is None:
        return
    step, run = ledger.training.step, ledger.training.run
    if ledger.training.plan is not None:  # its lines say the rest
        if run is not None:
            yield line(f"  {_beside_the_estimate(run.without_recomputation)}")
        return
    yield line(
        f"{at_least}{units.count(step.model_flops)} FLOPs forward and backward ({units.count(step.forward_macs)} + "
        f"{units.count(step.backward_macs)} MACs)",
        head=f"{_one_step(step)}: ",
    )
    yield line(_memory_words(step), head="memory: ")
    if run is not None:
        yield from _run_answers(run)


def trained_texts(ledger: Ledger) -> Iterator[TextLines]:
    """How many parameters a gradient reaches, where it does not reach all: `4,194,304 of 6,742,609,920 (0.06 %)`."""
    params = ledger.total("params") or 0
    if ledger.training is not None and (trained := ledger.training.step.trained_params) < params:
        yield line(f"{trained:,} of {params:,} ({100 * trained / params:.2g} %)", head="trainable parameters: ")


def training_parts(ledger: Ledger) -> Iterator[Part]:
    """The tables of a step: its work, its memory; nothing in every other mode."""
    if ledger.training is None:
        return
    step = ledger.training.step
    yield from (Gap(), _work(step, _recomputation(ledger, step)))
    if ledger.training.plan is None:
        yield from (Gap(), _memory(ledger, step))


def _recomputation(ledger: Ledger, step: TrainingStep) -> str:
    """What the backward pass computes again: forward passes, and the scores of fused attention."""
    checkpointed = ledger.total("recomputed_macs") or 0
    parts = {
        "the forward (checkpointing)": checkpointed,
        "the forward (reversible)": step.recomputed_macs - checkpointed,
        "scores (fused attention)": sum(recomputed_scores(row) for row in ledger.rows),
    }
    return "; ".join(f"{units.count(macs)} of the MACs recompute {what}" for what, macs in parts.items() if macs)


def _one_step(step: TrainingStep) -> str:
    return "one step" if step.tokens is None else f"one step ({step.tokens:,} tokens)"


def _memory_words(step: TrainingStep) -> str:
    """The total; without a trace, what is known of it."""
    activations = "saved and recomputed activations" if step.recomputed_bytes else "saved activations"
    parts = f"parameters, gradients, optimizer states, {activations}"
    if step.total_with_loss_bytes is not None:
        logits = f", {units.size(step.loss_logits_bytes)} float32 logits of the loss" if step.loss_logits_bytes else ""
        return f"{units.size(step.total_with_loss_bytes)} ({parts}{logits})"
    if step.fixed_bytes is None:
        return "--trace computes it (optimizer states and saved activations depend on the real model)"
    return f"{units.size(step.fixed_bytes)} and saved activations, which --trace computes"


def _run_answers(run: WholeRun) -> Iterator[TextLines]:
    again = f" ({scientific(run.recomputed_flops, 3)} of them recompute)" if run.recomputed_flops else ""
    days, advice = "", "--on DEVICE, or --peak and --mfu, give days"
    if run.days is not None and run.device_days is not None:
        shared = f" ({device_days_text([run.device_days])})" if run.devices > 1 else ""
        model = " of model FLOPs, without recomputation," if run.recomputed_flops else ""
        if run.convention != "dense":
            model = f" of {scientific(run.model_flops)} FLOPs, {COUNTED_WORDS[run.convention]},"
        days, advice = f", {days_text(run.days)}{shared}{model} on {speed_text(run)}", ""
    text = f"{scientific(run.flops)} FLOPs{again} in {units.number_of(run.steps, 'step')}{days}"
    yield TextLines([text], head=f"{units.count(run.tokens)} tokens: ", advice=advice)
    yield line(f"  {_beside_the_estimate(run)}")


def scientific(value: float, digits: int = 4) -> str:
    """256331521749889843200 -> `2.563e20`."""
    mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def run_texts(ledger: Ledger) -> Iterator[TextLines]:
    """What all systems of a comparison share and no header shows: new tokens, memory level, optimizer, length."""
    if ledger.generation is not None:
        m, n = ledger.generation.new_tokens, ledger.generation.prompt
        yield line(f"MACs and FLOPs: {units.number_of(m, 'new token')} after {n:,}, with a cache", "dim")
    if ledger.metadata.memory_level is not None:
        level = units.size(ledger.metadata.memory_level)
        yield line(f"attention traffic: main memory, plain and tiled for {level} on chip (FlashAttention)", "dim")
    if ledger.training is None:
        return
    yield line(f"optimizer: {ledger.training.step.optimizer}", "dim")
    run = ledger.training.run
    if run is not None:
        planned, speed = ledger.training.plan, "" if run.rate is None else f" on {speed_text(run)}"
        if planned is not None:
            shares = " to ".join(units.percent(one, 1) for one in planned.mesh.mfus)
            speed = f" on {planned.mesh.on.title}" + (f" at {shares} MFU" if shares else "")
            speed += f" ({COUNTED_WORDS[planned.convention]})" if planned.convention != "dense" else ""
        yield line(f"run: {units.count(run.tokens)} tokens{speed}", "dim")


def _work(step: TrainingStep, recomputation: str) -> DataTable:
    passes = (("forward", step.forward_macs, ""), ("backward", step.backward_macs, recomputation))
    rows = [[name, units.count(macs), units.count(2 * macs), more] for name, macs, more in passes]
    macs = step.forward_macs + step.backward_macs
    rows.append(["forward and backward", units.count(macs), units.count(step.model_flops), "without element-wise work"])
    each = OPTIMIZERS[step.optimizer].flops
    rows.append([f"update, {step.optimizer}", units.DASH, units.count(step.update_flops), f"{each} per parameter"])
    return DataTable([*numbers(_one_step(step), "MACs", "FLOPs"), _MORE], rows, ["", "", "bold", ""])


# What figures are, behind them.
_MORE: Final = TableColumn("", fold=20)


def _memory(ledger: Ledger, step: TrainingStep) -> DataTable:
    number, dtype = units.exact(ledger.total("params")), units.stored_in(ledger.metadata.dtype)
    of_some = "" if step.trained_params == ledger.total("params") else ", of the parameters that a gradient reaches"
    lines = [
        ("parameters", step.params_bytes, f"{number}, {_held_in(ledger)}"),
        ("gradients", step.gradients_bytes, f"{dtype}{of_some}"),
        (
            "master copy",
            step.master_bytes or 0,
            f"{'those' if of_some else 'parameters'} in float32, updated by the optimizer",
        ),
        ("optimizer states", step.optimizer_bytes, _states(step)),
        ("saved activations", step.kept_bytes, _activations(ledger, step)),
        ("recomputed at once", step.recomputed_bytes or 0, "saved by the largest part that is recomputed, while it is"),
        ("logits of the loss", step.loss_logits_bytes or 0, "float32; not in the walked step"),
    ]
    rows = [[name, units.size(size), words] for name, size, words in lines if size != 0 or name not in _OF_SOME]
    if step.total_with_loss_bytes is not None:
        rows.append(["total", units.size(step.total_with_loss_bytes), "without the workspace of single operations"])
    styles = ["bold" if row[0] == "total" else "" for row in rows]
    return DataTable([*numbers("memory of a step", "bytes"), _MORE], rows, styles)


def _held_in(ledger: Ledger) -> str:
    """`bfloat16`; `nf4 and bfloat16` of quantised weights."""
    weights, dtype = ledger.metadata.weight_format, units.stored_in(ledger.metadata.dtype)
    return dtype if weights is None else f"{weights.name} and {dtype}"


# Parts of the memory that many steps have not.
_OF_SOME: Final = ("master copy", "recomputed at once", "logits of the loss")


def _states(step: TrainingStep) -> str:
    known = OPTIMIZERS[step.optimizer]
    if known.numbers is None:
        shapes = "rows and columns of every matrix"
        return shapes if step.optimizer_bytes is not None else f"{shapes}; --trace computes them"
    return f"{step.optimizer}: {units.number_of(known.numbers, 'number')} per parameter, float32 or wider"


def _activations(ledger: Ledger, step: TrainingStep) -> str:
    if step.kept_bytes is None:
        return "--trace computes them with the real model"
    what = "saved by autograd" + (f", batch {ledger.metadata.batch}" if ledger.metadata.inputs is None else "")
    if not step.attention_kept_bytes or step.recomputed_bytes:  # those of a block that is recomputed are not saved
        return what
    return f"{what}; attention matrices are {units.size(step.attention_kept_bytes)} of them"


def speed_text(run: WholeRun) -> str:
    """`8 devices, each at 125.0 TFLOP/s sustained`; `one device at 124.8 TFLOP/s (40.0 % of a peak of …)`."""
    several = f"{run.devices:,} devices, each" if run.devices > 1 else "one device"
    rate = f"{several} at {units.count(run.rate)}FLOP/s"
    if run.peak is None or run.mfu is None:
        return f"{rate} sustained"
    return f"{rate} ({units.percent(run.mfu, 1)} of a peak of {units.count(run.peak)}FLOP/s)"


def _beside_the_estimate(run: WholeRun) -> str:
    """How far the count is from 6·P·D, and what makes the difference."""
    excess = run.excess_over_estimate
    side = "above" if excess >= 0 else "below"
    filled = ""
    if run.filled_tokens - run.tokens > _VISIBLE * run.tokens:
        filled = f", D = {run.filled_tokens:,} tokens: the last step is filled"
    parts = run.parts_over_estimate
    shown = max(map(abs, parts.values()))
    causes = ", ".join(
        f"{_CAUSES[cause]} {_signed(share)}" for cause, share in parts.items() if abs(share) >= min(_SHOWN, shown)
    )
    return (
        f"the exact count is {100 * abs(excess):.1f} % {side} 6·P·D ({scientific(run.filled_estimate)}{filled})"
        f"{': ' if causes else ''}{causes}"
    )


def _signed(share: float) -> str:
    """`+15.2 %`, `−0.7 %`; `−0.02 %` where one digit would be zero."""
    digits = 1 if abs(share) >= 0.0005 or not share else 2  # noqa: PLR2004 - half of 0.1 %
    return f"{100 * share:+.{digits}f} %".replace("-", "−")


def device_days_text(each: Sequence[float]) -> str:
    """`252.4 device-days, 6,058 device-hours`, `15.1 to 21.6 device-hours`; below a minute `21.9 ms of one device`."""
    unit, name = _unit(max(each, default=0))
    if name == _SECONDS:
        return f"{' to '.join(days_text(days) for days in each)} of one device" if each else ""
    words = f"{' to '.join(_number(days / unit) for days in each)} device-{name}s"
    return f"{words}, {' to '.join(map(_device_hours, each))} device-hours" if name == _DAY else words


def _device_hours(days: float) -> str:
    return _number(days * units.DAY / units.HOUR)


def days_text(days: float, words: str = "day") -> str:
    """`1.189 days`, `16.4 hours`, `2.95 ms`; under a heading of days, without `words`, `1.189`, `16.4 h`."""
    unit, name = _unit(days)
    if name == _SECONDS:
        return units.seconds(days * units.DAY)
    number = _number(days / unit)
    if not words:
        return f"{number} {_SYMBOLS[name]}".rstrip()
    return f"{number} {name}{'' if number == '1' else 's'}"


def _unit(days: float) -> tuple[float, str]:
    """The largest unit that is not longer, in days; seconds below a minute."""
    return next(((unit, name) for unit, name in _UNITS if days >= unit), (1 / units.DAY, _SECONDS))


def _number(value: float) -> str:
    return f"{value:,.4g}" if value < 10_000 else f"{value:,.0f}"  # noqa: PLR2004 - no exponents


def plan_answers(ledger: Ledger) -> Iterator[TextLines]:
    """The header's lines: how long, does it fit, how the devices share the run, what is recomputed."""
    plan = None if ledger.training is None else ledger.training.plan
    if plan is None:
        return
    what = "one step" if plan.tokens is None else f"{units.count(plan.tokens)} tokens"
    what += f" on {plan.mesh.on.title}"
    fit_advice = "; ".join(_fit_advice(plan))
    if plan.fits is False:
        yield TextLines([_fits(plan)], head=f"{what}: ", advice=fit_advice)
    head = "time if it fitted: " if plan.fits is False else f"{what}: "
    yield TextLines([_how_long(plan)], head=head, advice="" if plan.mesh.mfus else "--mfu sets the share")
    yield line(f"  {_lower_bound(plan, ledger.metadata.dtype)}")
    if (found := plan.evidence) is not None:
        yield evidence_text(found, seconds_range(found) if plan.steps is None else _days_range(plan.steps, found))
    if plan.fits is not False:
        yield TextLines([_fits(plan)], head="memory of a device: ", advice=fit_advice)
    yield line(_layout(plan), head="each step: ")
    if plan.recomputed_flops:
        yield line(_plan_recomputation(plan, ledger), head="recomputation: ")


def plan_parts(ledger: Ledger) -> Iterator[Part]:
    """The tables: memory of a device by part, days by utilisation."""
    plan = None if ledger.training is None else ledger.training.plan
    if plan is not None:
        yield from (Gap(), _memory_table(plan, ledger), Gap(), _times_table(plan))


def share_text(share: float) -> str:
    """0.4 -> `40 %`, 0.524 -> `52.4 %`."""
    return f"{100 * share:.1f}".removesuffix(".0") + " %"


def _how_long(plan: TrainingPlan) -> str:
    """`31.55 days (252.4 device-days, …) at 40 % MFU`; of a range both ends; of none the table's lines."""
    if not plan.mesh.mfus:
        times = ", ".join(f"{_time(plan, one)} at {share_text(one.mfu)}" for one in plan.at)
        return f"{times} MFU{_of_flops(plan)}{_money(plan)}"
    ends = plan.at[::-1]
    shared = device_days_text([one.device_days for one in ends if one.device_days is not None])
    several = f" ({shared})" if shared and plan.mesh.on.count > 1 else ""
    shares = " to ".join(share_text(one.mfu) for one in ends)
    return f"{' to '.join(_time(plan, one) for one in ends)}{several} at {shares} MFU{_of_flops(plan)}{_money(plan)}"


def _of_flops(plan: TrainingPlan) -> str:
    """The model FLOPs of which the utilisation is a share: those by its convention, and nothing that is recomputed."""
    pairs = f", {COUNTED_WORDS['dense']}" if plan.least_step_flops < plan.step_flops else ""
    if plan.convention != "dense":
        pairs = f", {COUNTED_WORDS[plan.convention]}"
    return f" of {scientific(plan.counted_flops)} model FLOPs{pairs}"


def _time(plan: TrainingPlan, one: AtUtilisation) -> str:
    return units.seconds(one.step_seconds) if plan.steps is None else days_text(one.days or 0)


def _money(plan: TrainingPlan) -> str:
    costs = [f"{one.cost:,.0f}" for one in plan.at if one.cost is not None]
    price = plan.mesh.on.device.price_per_hour
    if not costs or price is None:
        return ""
    ordered = costs[::-1] if plan.mesh.mfus else costs
    return f"; it costs {' to '.join(ordered)} at {price:,g} per device-hour (your price)"


def _lower_bound(plan: TrainingPlan, dtype: str) -> str:
    flops, steps = plan.least_step_flops, ""
    if plan.least_run_flops is not None:
        flops, steps = plan.least_run_flops, f" in {units.number_of(plan.steps or 0, 'step')}"
    kept = "of pairs that masks keep, " if plan.least_step_flops < plan.step_flops else ""
    unreached = ", which no run reaches" if plan.mesh.on.device.calibrated is None else ""
    return (
        f"lower bound {_least(plan)}: {scientific(flops)} FLOPs{steps} ({kept}without recomputation) at the peak of "
        f"{units.count(plan.peak)}FLOP/s ({dtype}) on every device{unreached}"
    )


def _days_range(steps: int, evidence: Evidence) -> str:
    """`12.1 to 20.4 days` of so many steps."""
    low, high = (days_text(steps * seconds / units.DAY) for seconds in evidence.seconds or (0.0, 0.0))
    return value_range(low, high)


def _least(plan: TrainingPlan) -> str:
    return units.seconds(plan.bound_step_seconds) if plan.bound_days is None else days_text(plan.bound_days)


def _fit_advice(plan: TrainingPlan) -> Iterator[str]:
    if not plan.memory.complete:
        yield "--trace finds them"
    if plan.fits is False and plan.remedies:
        yield f"it would fit with {' '.join(plan.remedies)}"


def _fits(plan: TrainingPlan) -> str:
    memory = plan.memory
    needed = units.size(memory.known) if memory.complete else f"at least {units.size(memory.known)}"
    states = {"optimizer states": memory.optimizer, "saved activations": memory.activations}
    unknown = " and ".join(name for name, size in states.items() if size is None)
    missing = "" if memory.complete else f"; {unknown} are not known"
    if plan.spare_bytes is None or plan.device_bytes is None:
        return f"{needed}{missing}"
    whole = f"{needed} of {units.size(plan.device_bytes)}{plan.mesh.on.device.memory_words}"
    if plan.spare_bytes < 0:
        return f"does not fit as planned, {whole} per device{missing}"
    if not memory.complete:
        return f"{whole}{missing}"
    return f"{whole}: fits, {units.size(plan.spare_bytes)} left for workspace and fragmentation"


def _layout(plan: TrainingPlan) -> str:
    mesh = plan.mesh
    sizes = f"tensor {mesh.tensor} x pipeline {mesh.pipeline} x data {mesh.data}"
    sizes += ", sequence parallel" if mesh.sequence_parallel else ""
    batches = "micro-batches" if plan.micro_batches > 1 else "micro-batch"
    bubble = f", bubble {100 * (mesh.pipeline - 1) / plan.micro_batches:.3g} %" if mesh.pipeline > 1 else ""
    how = f"ZeRO {mesh.zero}" + (f", recompute {mesh.checkpoint}" if mesh.checkpoint != "none" else "")
    if not plan.batch_known:  # which no devices divide
        each = "the batch that is given" + (f", on each of {mesh.data:,} replicas" if mesh.data > 1 else "")
        return f"{each}; {how}"
    samples = f"{plan.step_sequences:,} sample" + "s" * (plan.step_sequences > 1)
    if not plan.step_tokens:  # of a module that reads no token ids
        each = f", {plan.micro_batch:,} on each of {mesh.data:,} replicas" if mesh.data > 1 else ""
        return f"{samples}{each}; {how}"
    samples = f"{plan.step_tokens:,} tokens = {samples}"
    return f"{samples}; {sizes}; {plan.micro_batches:,} {batches} of {plan.micro_batch} per replica{bubble}; {how}"


def _plan_recomputation(plan: TrainingPlan, ledger: Ledger) -> str:
    one = plan.at[0] if plan.mesh.mfus else plan.at[len(plan.at) // 2]
    words = f"+{100 * plan.recomputation:.1f} % FLOPs for {_again(plan, ledger)}"
    rates = f": {share_text(one.mfu)} MFU is {share_text(one.hfu)} HFU"
    words += rates if plan.mesh.mfus else ", which HFU counts and MFU does not"
    if max(each.hfu for each in plan.at) > 1:
        words += " (above 100 % only if masked scores are skipped)"
    if one.recomputation_days is not None:
        words += f"; it takes {days_text(one.recomputation_days)} of {days_text(one.days or 0)}"
    return words


def _again(plan: TrainingPlan, ledger: Ledger) -> str:
    """What is recomputed."""
    causes = {
        "checkpointed attention": plan.mesh.checkpoint == "selective" and plan.memory.recomputed != 0,
        "checkpointed blocks": plan.mesh.checkpoint == "full" or any(row.recomputed and row.ran for row in ledger.rows),
        "scores inside fused attention": any(row.fused for row in ledger.rows),
        "reversible residuals": any(
            row.recomputed and row.macs and not row.ran and not row.figure("recomputed_macs") for row in ledger.rows
        ),
    }
    return " and ".join(name for name, is_one in causes.items() if is_one)


def _memory_table(plan: TrainingPlan, ledger: Ledger) -> DataTable:
    memory, mesh = plan.memory, plan.mesh
    where = f", pipeline stage {memory.pipeline_stage}" if mesh.pipeline > 1 else ""
    dtype, shared_out = units.stored_in(ledger.metadata.dtype), _shared_out(plan)
    trained = [] if ledger.training is None else [ledger.training.step.trained_params]
    of_some = "" if trained == [ledger.total("params")] else ", of the parameters that a gradient reaches"
    lines: list[tuple[str, int | None, str]] = [
        ("parameters", memory.parameters, _held_in(ledger)),
        ("gradients", memory.gradients, f"{mesh.gradients or dtype}{of_some}"),
        ("master copy", memory.master, "float32"),
        ("optimizer states", memory.optimizer, "" if ledger.training is None else ledger.training.step.optimizer),
        ("saved activations", memory.activations, _in_flight(plan)),
        ("recomputed at once", memory.recomputed, _recomputed_by(mesh.checkpoint)),
        ("logits of the loss", memory.logits, "float32, of one micro-batch"),
    ]
    rows = [
        [name, units.size(size), ", ".join(filter(None, (words, shared_out.get(name))))]
        for name, size, words in lines
        if size != 0
    ]
    total = "all" if memory.complete else "all known parts"
    words = "without workspace, communication and fragmentation"
    if plan.bytes_per_parameter is not None:
        words += f"; a replica has {plan.bytes_per_parameter:.4g} bytes of states per parameter"
    rows.append([total, units.size(memory.known), words])
    styles = [*[""] * (len(rows) - 1), "bold"]
    return DataTable([*numbers(f"memory of a device{where}", "bytes"), _MORE], rows, styles)


def _recomputed_by(checkpoint: str) -> str:
    return "by the model's own code" if checkpoint == "none" else f"recompute {checkpoint}"


def _shared_out(plan: TrainingPlan) -> dict[str, str]:
    """The parts that ZeRO shares out -> in words."""
    mesh = plan.mesh
    names = {"master": "master copy", "optimizer": "optimizer states"}
    words = f"one of {mesh.data:,} shares (ZeRO {mesh.zero})"
    return {names.get(part, part): words for part, zero in SHARED_OUT.items() if mesh.zero >= zero and mesh.data > 1}


def _in_flight(plan: TrainingPlan) -> str:
    mesh = plan.mesh
    flying = mesh.in_flight(plan.memory.pipeline_stage, plan.micro_batches)
    samples = f"{plan.micro_batch} sample" + "s" * (plan.micro_batch > 1)
    if not plan.batch_known:
        return "of the batch that is given"
    several = f"{flying} micro-batches in flight, each of {samples}" if flying > 1 else f"one micro-batch of {samples}"
    return several + ("" if plan.memory.activations is not None else "; --trace computes them")


def _times_table(plan: TrainingPlan) -> DataTable:
    run = plan.steps is not None
    heads = ["HFU", "a step", *(("days", "device-hours") if run else ())]
    heads += ["cost"] if any(one.cost is not None for one in plan.at) else []
    printed = any(one.in_print for one in plan.at)
    rows = []
    for one in plan.at:
        days = [days_text(one.days or 0, ""), _device_hours(one.device_days or 0)] if run else []
        cost = [f"{one.cost:,.0f}"] if one.cost is not None else []
        cells = (share_text(one.mfu), share_text(one.hfu), units.seconds(one.step_seconds), *days, *cost)
        rows.append([*cells, *([one.in_print or ""] if printed else [])])
    columns = numbers("model FLOPs utilisation", *heads)
    return DataTable([*columns, *([TableColumn("published, about", fold=20)] if printed else [])], rows)
