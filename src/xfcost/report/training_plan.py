"""A training plan as text: days by utilisation, a lower bound, does it fit, what recomputation adds; and its tables."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from xfcost.ledger import units
from xfcost.ledger.distributed import TrainingPlan
from xfcost.ledger.ledger import Ledger
from xfcost.report.console import bare_table
from xfcost.report.training import days_text


def plan_answers(ledger: Ledger) -> Iterator[Text]:
    """The header's lines: how long, does it fit, how the devices share the run, what is recomputed."""
    plan = None if ledger.training is None else ledger.training.plan
    if plan is None:
        return
    yield Text.assemble((f"{_what(plan)} on {plan.mesh.on.title}: ", "bold"), _how_long(plan))
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


def share_text(share: float) -> str:
    """0.4 -> `40 %`, 0.524 -> `52.4 %`."""
    return f"{100 * share:.1f}".removesuffix(".0") + " %"


def _what(plan: TrainingPlan) -> str:
    return "one step" if plan.tokens is None else f"{units.count(plan.tokens)} tokens"


def _how_long(plan: TrainingPlan) -> str:
    """`31.55 days (252.4 device-days) at 40 % MFU`; of a range both ends; of none the table's lines."""
    if not plan.mesh.mfus:
        times = ", ".join(f"{_time(plan, one)} at {share_text(one.mfu)}" for one in plan.at)
        return f"{times} MFU{_money(plan)}; --mfu says which"
    ends = plan.at[::-1]
    among = _shared_out(plan)
    dtype = ledger.metadata.dtype
    lines: list[tuple[str, int | None, str]] = [
        ("parameters", memory.parameters, dtype),
        ("gradients", memory.gradients, mesh.gradients or dtype),
        ("master copy", memory.master, "float32"),
        ("optimizer states", memory.optimizer, _optimizer(plan, ledger)),
        ("saved activations", memory.activations, _in_flight(plan)),
        ("recomputed at once", memory.recomputed, f"checkpoint {mesh.checkpoint}"),
        ("logits of the loss", memory.logits, "float32, of one micro-batch"),
    ]
    for name, size, words in lines:
        if size != 0:
            table.add_row(name, units.size(size), ", ".join(filter(None, (words, among.get(name)))))
    total = "all" if memory.complete else "all that is known"
    table.add_row(
        total, units.size(memory.known), "without workspace, communication, fragments", style="bold"
    )
    return table


def _shared_out(plan: TrainingPlan) -> dict[str, str]:
    """The parts that ZeRO shares out -> in words."""
    mesh = plan.mesh
    stages = {"master copy": 1, "optimizer states": 1, "gradients": 2, "parameters": 3}
    words = f"one of {mesh.data:,} shares (ZeRO {mesh.zero})"
    return {part: words for part, stage in stages.items() if mesh.zero >= stage and mesh.data > 1}


def _optimizer(plan: TrainingPlan, ledger: Ledger) -> str:
    name = "" if ledger.training is None else ledger.training.step.optimizer
    if plan.bytes_per_parameter is None:
        return name
    return f"{name}; model states are {plan.bytes_per_parameter:.4g} bytes per parameter of a replica"


def _in_flight(plan: TrainingPlan) -> str:
    mesh = plan.mesh
    flying = min(mesh.pipeline - plan.memory.pipeline_stage + 1, plan.micro_batches)
    several = f"{flying} micro-batches in flight" if flying > 1 else "one micro-batch"
    return f"{several} of {plan.micro_batch}" + ("" if plan.memory.activations is not None else "; --trace finds them")


def _times_table(plan: TrainingPlan) -> Table:
    run = plan.steps is not None
    table = bare_table("model FLOPs utilisation", "HFU", "a step", *(("days", "device-days") if run else ()))
    priced = any(one.cost is not None for one in plan.at)
    if priced:
        table.add_column("cost", justify="right")
    if not plan.mesh.mfus:
        table.add_column("in print, about", overflow="fold")
    for one in plan.at:
        days = [days_text(one.days or 0, ""), days_text(one.device_days or 0, "")] if run else []
        cost = [f"{one.cost:,.0f}"] if one.cost is not None else []
        cells = (share_text(one.mfu), share_text(one.hfu), units.seconds(one.step_seconds), *days, *cost)
        table.add_row(*cells, *([one.in_print] if one.in_print else []))
    return table
