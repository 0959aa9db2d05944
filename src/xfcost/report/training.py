"""A step of training and a whole run as text: FLOPs, bytes that are kept, days; and the same as plain data."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from xfcost.formulas.conventions import OPTIMIZERS
from xfcost.ledger import units
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.training import TrainingStep, WholeRun


def training_parts(ledger: Ledger) -> Iterator[RenderableType]:
    """The step's work, what it keeps, the whole run; nothing in every other mode."""
    if ledger.training is None:
        return
    step, run = ledger.training.step, ledger.training.run
    yield Text()
    yield _work(step)
    yield Text()
    yield _memory(ledger, step)
    if run is not None:
        yield Text()
        yield _whole_run(run)


def scientific(value: float, digits: int = 4) -> str:
    """256331521749889843200 -> `2.563e20`."""
    mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def _table(title: str, *columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(title)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    return table


def _work(step: TrainingStep) -> Table:
    table = _table(f"a step over {step.tokens:,} tokens", "MACs", "FLOPs")
    again = step.recomputed_macs
    told = f"{units.count(again)} MACs of them the forward worked out again (reversible)" if again else ""
    for name, macs, more in (("forward", step.forward_macs, ""), ("backward", step.backward_macs, told)):
        table.add_row(name, units.count(macs), units.count(2 * macs), more)
    macs = step.forward_macs + step.backward_macs
    table.add_row("both", units.count(macs), units.count(step.model_flops), "element-wise work left out", style="bold")
    each = OPTIMIZERS[step.optimizer].flops
    table.add_row(f"update, {step.optimizer}", units.DASH, units.count(step.update_flops), f"{each} per parameter")
    return table


def _memory(ledger: Ledger, step: TrainingStep) -> Table:
    table = _table("what a step keeps", "bytes")
    number, dtype = units.exact(ledger.total("params")), ledger.metadata.dtype
    table.add_row("parameters", units.size(step.params_bytes), f"{number}, {dtype}")
    table.add_row("gradients", units.size(step.gradients_bytes), dtype)
    if step.master_bytes:
        table.add_row("master copy", units.size(step.master_bytes), "the parameters in float32, which are updated")
    table.add_row("optimizer states", units.size(step.optimizer_bytes), _states(step))
    table.add_row("activations", units.size(step.kept_bytes), _activations(ledger, step))
    if step.total_bytes is not None:
        table.add_row("in all", units.size(step.total_bytes), "and the workspace of single operations", style="bold")
    return table


def _states(step: TrainingStep) -> str:
    known = OPTIMIZERS[step.optimizer]
    if known.numbers is None:
        shapes = "rows and columns of every matrix"
        return shapes if step.optimizer_bytes is not None else f"{shapes}: of the real model, leave out --no-trace"
    several = "" if known.numbers == 1 else "s"
    return f"{step.optimizer}: {known.numbers} number{several} per parameter, float32 or wider"


def _activations(ledger: Ledger, step: TrainingStep) -> str:
    if step.kept_bytes is None:
        return "what autograd keeps is walked on the real model: leave out --no-trace (or give --trace)"
    what = f"kept by autograd, batch {ledger.metadata.batch}"
    if not step.attention_kept_bytes:
        return what
    return f"{what}; attention matrices are {units.size(step.attention_kept_bytes)} of them"


def _whole_run(run: WholeRun) -> Text:
    text = Text("the whole run: ", style="bold")
    text.append(f"{units.count(run.tokens)} tokens, {run.steps:,} steps, ", style="not bold")
    text.append(f"{scientific(run.flops)} FLOPs")
    text.append(f"\n  {_beside_the_estimate(run)}", style="not bold")
    if run.rate is not None and run.days is not None and run.device_days is not None:
        shared = f", {days_text(run.device_days, 'device-days')}" if run.devices > 1 else ""
        text.append(f"\n  on {speed_text(run)}: {days_text(run.days)}{shared}", style="not bold")
    return text


def speed_text(run: WholeRun) -> str:
    """`8 devices, each at 125.0 TFLOP/s sustained`; `one device at 124.8 TFLOP/s (40.0 % of a peak of …)`."""
    several = f"{run.devices:,} devices, each" if run.devices > 1 else "one device"
    rate = f"{several} at {units.count(run.rate)}FLOP/s"
    if run.peak is None or run.mfu is None:
        return f"{rate} sustained"
    return f"{rate} ({units.percent(run.mfu, 1)} of a peak of {units.count(run.peak)}FLOP/s)"


def _beside_the_estimate(run: WholeRun) -> str:
    """How far 6·P·D is, and by what: products without parameters, and parameters that multiply nothing."""
    attention = run.without_params_flops / run.estimate
    rest = (run.with_params_flops - run.estimate) / run.estimate
    return (
        f"6·P·D is {scientific(run.estimate)} (P: parameters that a token uses), and the count "
        f"{run.flops / run.estimate - 1:+.2%} of it: "
        f"{attention:+.2%} products of activations with each other (attention), which it leaves out; {rest:+.2%} "
        "parameters that multiply tokens more or less than once (look-up tables, norms, convolutions, streams)"
    )


def days_text(days: float, words: str = "days") -> str:
    """`1.189 days`, `12,345 days`."""
    number = f"{days:,.4g}" if days < 10_000 else f"{days:,.0f}"  # noqa: PLR2004 - no exponents
    return f"{number} {words}".rstrip()
