"""The Python face of the commands: the same ledgers, without a terminal."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from xfcost.counting.comparison import compared
from xfcost.counting.comparison_result import Comparison
from xfcost.counting.decoding import at, told_traced, traced_sizes, with_mode
from xfcost.counting.forward import count, with_rebuilt
from xfcost.counting.run_options import make_run
from xfcost.counting.training import with_training
from xfcost.formulas.component import Logits
from xfcost.ledger import display
from xfcost.ledger.errors import UsageError, shown
from xfcost.ledger.ledger import Ledger
from xfcost.spec.architecture import Architecture, Execution, Mode
from xfcost.spec.load import Loaded, expanded, load
from xfcost.spec.walk import Run, place

if TYPE_CHECKING:
    import torch

    from xfcost.torch_models.tracing.trace import Traced

Progress = Callable[[str], None]


def _ledger_html(ledger: Ledger) -> str:
    from xfcost.report.table import ledger_html

    return ledger_html(ledger)


def _comparison_html(comparison: Comparison) -> str:
    from xfcost.report.compare import comparison_html

    return comparison_html(comparison)


display.register(Ledger, _ledger_html)
display.register(Comparison, _comparison_html)


def analyze(  # noqa: PLR0913 - the options of the command
    spec: str | os.PathLike[str],
    *,
    N: int | str | Sequence[int] | None = None,
    size: int | str | Sequence[int] | None = None,
    batch: int | str = 1,
    dtype: str = "float32",
    attention: Execution = "eager",
    memory_level: int | str | None = None,
    settings: Sequence[str] | None = (),
    trace: bool = True,
    device: str | None = None,
    mode: Mode = "forward",
    new_tokens: int | str | None = None,
    logits: Logits | None = None,
    optimizer: str | None = None,
    tokens: float | str | None = None,
    peak: float | str | None = None,
    mfu: float | str | None = None,
    sustained: float | str | None = None,
    devices: int | str | None = None,
    rate: float | str | None = None,
    progress: Progress | None = None,
) -> Ledger:
    """Count `spec` in closed form; trace the real model and join the two accounts; with `device`, time it too.

    Args:
        spec: a preset's name or a path to a YAML file.
        N: tokens of the first stage (for an encoder-decoder one number for both, or two); the spec's own by default.
            Like all numbers it may be a text: `128k` is 128,000, `128Ki` 131,072.
        size: pixels of the image's side, or height and width (`224x320`), in place of N.
        batch: samples; costs scale with it, parameters don't.
        dtype: float32, float64, bfloat16 or float16 (fp32, fp64, bf16, fp16).
        attention: `eager` keeps the matrix of scores, `fused` runs one kernel that doesn't.
        memory_level: bytes of on-chip memory (`192KiB`, 100000): tells what attention reads from and writes to main
            memory, plain and tiled for so much (FlashAttention).
        settings: overrides, `key.path=value` each.
        trace: False answers without importing torch.
        device: `cpu`, `cuda` or `mps` also runs the model.
        mode: `forward` is one pass over all N tokens; `prefill` tells what it caches too; `decode` is one token more
            where N, it among them, are cached; `generate` is a prefill of N and then token after token; `train` is a
            step of training.
        new_tokens: how many `generate` writes.
        logits: with `prefill` and `generate`: `last` computes those of the last position alone, as public `generate`
            implementations do (the default); `all` those of every position.
        optimizer: with `train`: adamw (the default), sgd, momentum, adafactor or lion.
        tokens: with `train`: of the whole run (300e9, `300B`), which is then told in FLOPs.
        peak: FLOP/s of one device's datasheet (312e12, `312T`), with `mfu`: the run in days, on `devices` of them.
        mfu: model FLOPs utilisation, the share of the peak that the run gets (0.4, `40%`).
        sustained: FLOP/s that one device sustains, in place of `peak` and `mfu`.
        devices: how many devices share the run.
        rate: refused; it did not say which of the two it is.
        progress: called with a line of text before each long step.

    Returns:
        A Ledger: rows, totals, and with a trace `agreement`.

    Raises:
        XfcostError: bad input; the message says what was expected and how to mend it.
    """
    loaded = load(spec_name(spec), settings_texts(settings))
    how: dict[str, Any] = {"attention": attention, "memory_level": memory_level, "mode": mode}
    how |= {"optimizer": optimizer, "tokens": tokens, "devices": devices, "rate": rate}
    how |= {"peak": peak, "mfu": mfu, "sustained": sustained}
    run = make_run(N=N, size=size, batch=batch, dtype=dtype, new_tokens=new_tokens, logits=logits, **how)
    return account(loaded, run, trace=trace, device=device, progress=progress)


def compare(  # noqa: PLR0913 - the options of the command
    *specs: str | os.PathLike[str],
    N: int | str | Sequence[int] | None = None,
    size: int | str | Sequence[int] | None = None,
    batch: int | str = 1,
    dtype: str = "float32",
    attention: Execution = "eager",
    memory_level: int | str | None = None,
    settings: Sequence[str] | None = (),
    trace: bool = False,
    device: str | None = None,
    mode: Mode = "forward",
    new_tokens: int | str | None = None,
    logits: Logits | None = None,
    optimizer: str | None = None,
    tokens: float | str | None = None,
    peak: float | str | None = None,
    mfu: float | str | None = None,
    sustained: float | str | None = None,
    devices: int | str | None = None,
    rate: float | str | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Several systems at the same N: ledgers, ratios against the first, growth exponents, crossovers.

    A pattern (`common-*`) stands for the presets that match it. The arguments are those of `analyze`; the trace, which
    imports torch, is on demand here.
    """
    names = expanded([spec_name(spec) for spec in specs])
    if len(names) < 2:  # noqa: PLR2004 - a comparison has two sides
        raise UsageError("compare: expected two systems or more, as in `xfcost compare vit swin --N 784`")
    how: dict[str, Any] = {"attention": attention, "memory_level": memory_level, "mode": mode}
    how |= {"optimizer": optimizer, "tokens": tokens, "devices": devices, "rate": rate}
    how |= {"peak": peak, "mfu": mfu, "sustained": sustained}
    run = make_run(N=N, size=size, batch=batch, dtype=dtype, new_tokens=new_tokens, logits=logits, **how)
    loaded = [load(name, settings_texts(settings)) for name in names]
    ledgers = [account(one, run, trace=trace, device=device, progress=progress) for one in loaded]
    return compared(loaded, ledgers, run)


def account(
    loaded: Loaded, run: Run, *, trace: bool = True, device: str | None = None, progress: Progress | None = None
) -> Ledger:
    """The ledger of one loaded spec.

    Raises:
        XfcostError: bad input; a DeviceError where memory runs out, with bytes.
    """
    say = progress or (lambda text: None)
    if not trace and device is None:
        return _account(loaded, run, trace=trace, device=device, say=say)
    from xfcost.torch_models.memory.shortage import check_torch_loads, memory_may_run_out

    check_torch_loads()
    with memory_may_run_out(loaded.spec.name, f"running it on {device}" if device else "tracing it"):
        return _account(loaded, run, trace=trace, device=device, say=say)


def _account(loaded: Loaded, run: Run, *, trace: bool, device: str | None, say: Progress) -> Ledger:
    """Counted, then traced and timed where that is asked for."""
    if device is not None:
        from xfcost.torch_models.timing.clock import check_device

        check_device(str(device))
    architecture = place(loaded, run)
    ledger = with_rebuilt(count(architecture), loaded, architecture)
    if run.plan is not None:
        ledger = with_training(ledger, architecture, run.plan)
    if trace:
        from xfcost.torch_models.accounts import traced

        say(f"tracing {ledger.metadata.name} …")
        ledger = traced(architecture, ledger)
    ledger = with_mode(ledger, loaded, run, architecture)
    if trace and ledger.generation is not None and ledger.generation.decode is not None:
        from xfcost.torch_models.accounts import with_traced

        sizes = traced_sizes(ledger.generation)
        for tokens in sizes:
            say(f"tracing the step at {tokens} tokens …")
            ledger = with_traced(ledger, place(loaded, at(tokens, architecture, run, "decode")))
        ledger = told_traced(ledger, sizes)
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
    return timed_text(architecture, place(loaded, at(final, architecture, run, "decode")), ledger, device, say)


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
