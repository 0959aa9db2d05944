"""A training plan as text: days by utilisation, a lower bound, does it fit, what recomputation adds; and its tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from xfcost.counting.distributed import SHARED_OUT
from xfcost.ledger import units
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.training import AtUtilisation, DeviceMemory, TrainingPlan
from xfcost.report.console import bare_table
from xfcost.report.on_devices import WITHOUT_TF32
from xfcost.report.training import days_text, device_days_text, scientific, steps_text

_WHICH: Final = "; --mfu says which"


def plan_answers(ledger: Ledger) -> Iterator[Text]:
    """The header's lines: how long, does it fit, how the devices share the run, what is recomputed."""
    plan = None if ledger.training is None else ledger.training.plan
    if plan is None:
        return
    what = "one step" if plan.tokens is None else f"{units.count(plan.tokens)} tokens"
    tf32 = plan.with_tf32
    dtype = "" if tf32 is None else f" {WITHOUT_TF32}"
    yield Text.assemble((f"{what} on {plan.mesh.on.title}{dtype}: ", "bold"), _how_long(plan))
    if tf32 is not None:
        yield Text.assemble(("  with TF32: ", "bold"), _how_long(tf32).removesuffix(_WHICH))
    yield Text(f"  {_lower_bound(plan, ledger.metadata.dtype)}")
    yield Text.assemble(("memory of a device: ", "bold"), _fits(plan))
    yield Text.assemble(("each step: ", "bold"), _layout(plan))
    if plan.recomputed_flops:
        yield Text.assemble(("recomputation: ", "bold"), _recomputation(plan, ledger))


def plan_parts(ledger: Ledger) -> Iterator[RenderableType]:
    """The tables: memory of a device by part, days by utilisation."""
    plan = None if ledger.training is None else ledger.training.plan
    if plan is not None:
        yield from (Text(), _memory_table(plan, ledger), Text(), _times_table(plan))
        if plan.with_tf32 is not None:
            yield from (Text(), _times_table(plan.with_tf32, " of TF32"))


def share_text(share: float) -> str:
    """0.4 -> `40 %`, 0.524 -> `52.4 %`."""
    return f"{100 * share:.1f}".removesuffix(".0") + " %"


def _how_long(plan: TrainingPlan) -> str:
    """`31.55 days (252.4 device-days) at 40 % MFU`; of a range both ends; of none the table's lines."""
    if not plan.mesh.mfus:
        times = ", ".join(f"{_time(plan, one)} at {share_text(one.mfu)}" for one in plan.at)
        return f"{times} MFU{_money(plan)}{_WHICH}"
    ends = plan.at[::-1]
    shared = device_days_text([one.device_days for one in ends if one.device_days is not None])
    several = f" ({shared})" if shared and plan.mesh.on.count > 1 else ""
    shares = " to ".join(share_text(one.mfu) for one in ends)
    return f"{' to '.join(_time(plan, one) for one in ends)}{several} at {shares} MFU{_money(plan)}"


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
        flops, steps = plan.least_run_flops, f" in {steps_text(plan.steps or 0)}"
    kept = "of pairs that masks keep, " if plan.least_step_flops < plan.step_flops else ""
    least, peak, tf32 = _least(plan), f"{units.count(plan.peak)}FLOP/s ({dtype})", plan.with_tf32
    if tf32 is not None:
        least = f"{least} {WITHOUT_TF32}, {_least(tf32)} with TF32"
        peak = f"{peak} or {units.count(tf32.peak)}FLOP/s (TF32)"
    unreached = ", which no run reaches" if plan.mesh.on.device.calibrated is None and tf32 is None else ""
    return (
        f"lower bound {least}: {scientific(flops)} FLOPs{steps} ({kept}without recomputation) at the peak of "
        f"{peak} on every device{unreached}"
    )


def _least(plan: TrainingPlan) -> str:
    return units.seconds(plan.bound_step_seconds) if plan.bound_days is None else days_text(plan.bound_days)


def _fits(plan: TrainingPlan) -> str:
    memory = plan.memory
    needed = units.size(memory.known) if memory.complete else f"at least {units.size(memory.known)}"
    missing = "" if memory.complete else f"; {_unknown(memory)}: --trace finds them"
    if plan.spare_bytes is None or plan.device_bytes is None:
        return f"{needed}{missing}"
    whole = f"{needed} of {units.size(plan.device_bytes)}"
    if plan.spare_bytes < 0:
        mend = f"; it would with {' '.join(plan.remedies)}" if plan.remedies else ""
        return f"{whole}: does not fit, {units.size(-plan.spare_bytes)} too much{mend}{missing}"
    if not memory.complete:
        return f"{whole}{missing}"
    return f"{whole}: fits, {units.size(plan.spare_bytes)} left for workspace and fragments"


def _unknown(memory: DeviceMemory) -> str:
    parts = {"optimizer states": memory.optimizer, "saved activations": memory.activations}
    return " and ".join(name for name, size in parts.items() if size is None) + " are not known"


def _layout(plan: TrainingPlan) -> str:
    mesh = plan.mesh
    sizes = f"tensor {mesh.tensor} x pipeline {mesh.pipeline} x data {mesh.data}"
    sizes += ", sequence parallel" if mesh.sequence_parallel else ""
    batches = "micro-batches" if plan.micro_batches > 1 else "micro-batch"
    bubble = f", bubble {100 * (mesh.pipeline - 1) / plan.micro_batches:.3g} %" if mesh.pipeline > 1 else ""
    samples = f"{plan.step_tokens:,} tokens = {plan.step_sequences:,} sample" + "s" * (plan.step_sequences > 1)
    return (
        f"{samples}; {sizes}; {plan.micro_batches:,} {batches} of {plan.micro_batch} per replica{bubble}; ZeRO "
        f"{mesh.zero}, checkpoint {mesh.checkpoint}"
    )


def _recomputation(plan: TrainingPlan, ledger: Ledger) -> str:
    one = plan.at[0] if plan.mesh.mfus else plan.at[len(plan.at) // 2]
    words = f"+{100 * plan.recomputation:.1f} % FLOPs ({_again(plan, ledger)}): {share_text(one.mfu)} MFU is "
    words += f"{share_text(one.hfu)} HFU"
    if max(each.hfu for each in plan.at) > 1:
        words += " (above 100 % only if masked scores are skipped)"
    if one.recomputation_days is not None:
        words += f", and {days_text(one.recomputation_days)} of {days_text(one.days or 0)} recompute"
    return words


def _again(plan: TrainingPlan, ledger: Ledger) -> str:
    """What is recomputed."""
    causes = {
        "checkpointed attention": plan.mesh.checkpoint == "selective" and plan.memory.recomputed != 0,
        "checkpointed blocks": plan.mesh.checkpoint == "full",
        "scores inside fused attention": any(row.fused for row in ledger.rows),
        "reversible residuals": any(row.recomputed for row in ledger.rows),
    }
    return ", ".join(name for name, is_one in causes.items() if is_one)


def _memory_table(plan: TrainingPlan, ledger: Ledger) -> Table:
    memory, mesh = plan.memory, plan.mesh
    where = f", pipeline stage {memory.pipeline_stage}" if mesh.pipeline > 1 else ""
    table = bare_table(f"memory of a device{where}", "bytes")
    table.add_column("", overflow="fold")
    dtype, shared_out = ledger.metadata.dtype, _shared_out(plan)
    lines: list[tuple[str, int | None, str]] = [
        ("parameters", memory.parameters, dtype),
        ("gradients", memory.gradients, mesh.gradients or dtype),
        ("master copy", memory.master, "float32"),
        ("optimizer states", memory.optimizer, "" if ledger.training is None else ledger.training.step.optimizer),
        ("saved activations", memory.activations, _in_flight(plan)),
        ("recomputed at once", memory.recomputed, f"checkpoint {mesh.checkpoint}"),
        ("logits of the loss", memory.logits, "float32, of one micro-batch"),
    ]
    for name, size, words in lines:
        if size != 0:
            table.add_row(name, units.size(size), ", ".join(filter(None, (words, shared_out.get(name)))))
    total, words = "all" if memory.complete else "all that is known", "without workspace, communication, fragments"
    if plan.bytes_per_parameter is not None:
        words += f"; a replica has {plan.bytes_per_parameter:.4g} bytes of states per parameter"
    table.add_row(total, units.size(memory.known), words, style="bold")
    return table


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
    several = f"{flying} micro-batches in flight, each of {samples}" if flying > 1 else f"one micro-batch of {samples}"
    return several + ("" if plan.memory.activations is not None else "; --trace finds them")


def _times_table(plan: TrainingPlan, of: str = "") -> Table:
    run = plan.steps is not None
    table = bare_table(f"model FLOPs utilisation{of}", "HFU", "a step", *(("days", "device-days") if run else ()))
    if any(one.cost is not None for one in plan.at):
        table.add_column("cost", justify="right")
    printed = not plan.mesh.mfus and not of
    if printed:
        table.add_column("in print, about", overflow="fold")
    for one in plan.at:
        days = [days_text(one.days or 0, ""), days_text(one.device_days or 0, "")] if run else []
        cost = [f"{one.cost:,.0f}"] if one.cost is not None else []
        cells = (share_text(one.mfu), share_text(one.hfu), units.seconds(one.step_seconds), *days, *cost)
        table.add_row(*cells, *([one.in_print] if printed else []))
    return table
