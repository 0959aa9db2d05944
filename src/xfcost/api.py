"""The Python face of the commands: the same ledgers, without a terminal."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from xfcost.counting.decoding import run_at, traced_steps, with_mode, with_traced_steps
from xfcost.counting.forward import count, with_rebuilt_note
from xfcost.counting.run_options import make_run
from xfcost.counting.training import with_training
from xfcost.ledger import notebook
from xfcost.ledger.errors import UsageError, shown
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.options import OPTIONS, RunOptions, spelled_out
from xfcost.spec.architecture import Architecture
from xfcost.spec.load import Loaded, expanded, load
from xfcost.spec.placement import place
from xfcost.spec.run import Run

if TYPE_CHECKING:
    import torch
    from typing_extensions import Unpack

    from xfcost.counting.comparison_result import Comparison
    from xfcost.torch_models.tracing.trace import Traced

Progress = Callable[[str], None]
Made = TypeVar("Made", bound=Callable[..., Any])


def _ledger_html(ledger: Ledger) -> str:
    from xfcost.report.table import ledger_html

    return ledger_html(ledger)


def _comparison_html(comparison: Comparison) -> str:
    from xfcost.report.compare import comparison_html

    return comparison_html(comparison)


notebook.register("Ledger", _ledger_html)
notebook.register("Comparison", _comparison_html)


def _with_run_options(function: Made) -> Made:
    """`function(…, **options)` with every run option in its signature, and in its docstring in place of `**options`."""
    spelled_out(function, [*OPTIONS], lambda name, option, kind: (option.default, kind), evaluated=False)
    told = "\n".join(f"        {name}: {option.help} {option.python}".rstrip() for name, option in OPTIONS.items())
    function.__doc__ = re.sub(r" +\*\*options: .*", lambda _: told, function.__doc__ or "")
    return function


@_with_run_options
def analyze(
    spec: str | os.PathLike[str],
    *,
    settings: Sequence[str] | None = (),
    trace: bool = True,
    device: str | None = None,
    probe: bool = False,
    progress: Progress | None = None,
    **options: Unpack[RunOptions],
) -> Ledger:
    """Count `spec` in closed form; trace the real model and join the two accounts; with `device`, time it too.

    Args:
        spec: a preset's name or a path to a YAML file.
        settings: overrides, `key.path=value` each.
        trace: False answers without importing torch.
        device: `cpu`, `cuda` or `mps` also runs the model.
        probe: True also runs every component on small grids, and sees how it mixes tokens: the ledger's `probe`.
        progress: called with a line of text before each long step.
        **options: the run's, each as on the command line; numbers may be texts there as here (`128k`).

    Returns:
        A Ledger: rows, totals, and with a trace `agreement`.

    Raises:
        XfcostError: bad input; the message says what was expected and how to mend it.
    """
    loaded, run = load(spec_name(spec), settings_texts(settings)), make_run(**options)
    if probe and run.mode in {"decode", "generate"}:
        raise UsageError(
            f"--probe: of --mode {run.mode} a step reads its cache; probe the forward, and leave --mode out"
        )
    ledger = account(loaded, run, trace=trace, device=device, progress=progress)
    return _probed(loaded, run, ledger, progress or (lambda text: None)) if probe else ledger


@_with_run_options
def compare(
    *specs: str | os.PathLike[str],
    settings: Sequence[str] | None = (),
    trace: bool = False,
    device: str | None = None,
    progress: Progress | None = None,
    thorough: bool = True,
    **options: Unpack[RunOptions],
) -> Comparison:
    """Several systems at the same N: ledgers, ratios against the first, growth exponents, crossovers.

    A pattern (`common-*`) stands for the presets that match it. The arguments are those of `analyze`; the trace, which
    imports torch, is on demand here. Where it isn't `thorough`, crossovers are looked for at fewer points, and no row
    has an order.
    """
    from xfcost.counting.comparison import compared

    names = expanded([spec_name(spec) for spec in specs])
    if len(names) < 2:  # noqa: PLR2004 - a comparison has two sides
        raise UsageError("compare: expected two systems or more, as in `xfcost compare vit swin --N 784`")
    run = make_run(**options)
    loaded = [load(name, settings_texts(settings)) for name in names]
    ledgers = [account(one, run, trace=trace, device=device, progress=progress, orders=thorough) for one in loaded]
    return compared(loaded, ledgers, run, thorough=thorough)


def _probed(loaded: Loaded, run: Run, ledger: Ledger, say: Progress) -> Ledger:
    """`ledger` with what the running model was seen to read."""
    from xfcost.torch_models.memory.shortage import check_torch_loads, memory_may_run_out

    check_torch_loads()
    with memory_may_run_out(loaded.spec.name, "probing it"):
        from xfcost.torch_models.probing.account import probed

        return probed(place(loaded, run), ledger, say)


def account(
    loaded: Loaded,
    run: Run,
    *,
    trace: bool = True,
    device: str | None = None,
    progress: Progress | None = None,
    orders: bool = True,
) -> Ledger:
    """The ledger of one loaded spec, its rows with their orders or without.

    Raises:
        XfcostError: bad input; a DeviceError where memory runs out, with bytes.
    """
    say = progress or (lambda text: None)
    if not trace and device is None:
        return _account(loaded, run, trace=trace, device=device, say=say, orders=orders)
    from xfcost.torch_models.memory.shortage import check_torch_loads, memory_may_run_out

    check_torch_loads()
    with memory_may_run_out(loaded.spec.name, f"running it on {device}" if device else "tracing it"):
        return _account(loaded, run, trace=trace, device=device, say=say, orders=orders)


def _account(loaded: Loaded, run: Run, *, trace: bool, device: str | None, say: Progress, orders: bool) -> Ledger:
    """Counted, then traced and timed where that is asked for."""
    if device is not None:
        from xfcost.torch_models.timing.clock import check_device

        check_device(str(device))
    architecture = place(loaded, run)
    ledger = with_rebuilt_note(count(architecture, orders=orders), loaded, architecture)
    if run.plan is not None:
        ledger = with_training(ledger, architecture, run.plan)
    if trace:
        from xfcost.torch_models.accounts import traced

        say(f"tracing {ledger.metadata.name} …")
        ledger = traced(architecture, ledger)
    ledger = with_mode(ledger, loaded, run, architecture)
    if trace and ledger.generation is not None and ledger.generation.decode is not None:
        from xfcost.torch_models.accounts import with_traced

        sizes = traced_steps(ledger.generation)
        for tokens in sizes:
            say(f"tracing the step at {tokens} tokens …")
            ledger = with_traced(ledger, place(loaded, run_at(tokens, architecture, run, "decode")))
        ledger = with_traced_steps(ledger, sizes)
    return ledger if device is None else _timed(architecture, ledger, loaded, run, str(device), say)


def _timed(architecture: Architecture, ledger: Ledger, loaded: Loaded, run: Run, device: str, say: Progress) -> Ledger:
    """`ledger` with the seconds of what its mode runs."""
    from xfcost.torch_models.accounts import timed, timed_text

    generation = ledger.generation
    if generation is None:
        return timed(architecture, ledger, device, say)
    if generation.decode is None:
        raise UsageError(f"--device {device}: there are no steps to time: {generation.refused}")
    final = max(generation.prompt + generation.new_tokens - 1, generation.prompt)
    return timed_text(architecture, place(loaded, run_at(final, architecture, run, "decode")), ledger, device, say)


def trace(model: torch.nn.Module, *inputs: torch.Tensor) -> Traced:
    """Trace any torch module: MACs, FLOPs and parameters module by module, and what they leave out.

    Args:
        model: on the CPU, where it runs once, or on `meta`, where it takes no memory. It is left as it was.
        inputs: tensors, as `model` takes them.

    Returns:
        Traced: `macs`, `flops`, `params`, `modules` by dotted path; `unsupported`, the operations that are not counted.
        Where there are any, `complete` is False and the totals are lower bounds, printed as "at least".

    Raises:
        UsageError: `model` is no module, an input is no tensor, or a module can't be traced: it is scripted or
            compiled, lazy and not yet run, or torch's tracer fails on it. What the model itself raises passes through.
    """
    from xfcost.torch_models.tracing.trace import trace as trace_module

    return trace_module(model, inputs)


def spec_name(spec: str | os.PathLike[str]) -> str:
    """A preset's name or a path, as text.

    Raises:
        UsageError: it is neither.
    """
    if isinstance(spec, str | os.PathLike):
        name = os.fspath(spec)
        return name if isinstance(spec, str) else os.path.join(".", name)
    raise UsageError(f"expected a preset's name or a path to a YAML file, got {shown(spec)}")


def settings_texts(settings: Sequence[str] | None) -> tuple[str, ...]:
    """`key=value` texts, as after `--set`; None is none.

    Raises:
        UsageError: they are something else.
    """
    given = (settings,) if isinstance(settings, str) else tuple(settings or ())
    for setting in given:
        if not isinstance(setting, str):
            raise UsageError(f"settings: expected texts like 'stages.0.depth=4', got {shown(setting)}")
    return given
