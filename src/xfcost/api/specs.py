"""The ledger of a spec: counted, traced, timed, probed."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from xfcost.counting.decoding import check_generation, run_at, traced_steps, with_mode, with_traced_steps
from xfcost.counting.forward import count, with_rebuilt_note
from xfcost.counting.training import with_training
from xfcost.ledger.errors import UsageError, shown
from xfcost.ledger.ledger import Ledger
from xfcost.spec.architecture import Architecture
from xfcost.spec.load import Loaded
from xfcost.spec.placement import place
from xfcost.spec.run import Run

Progress = Callable[[str], None]


def account(
    loaded: Loaded,
    run: Run,
    *,
    trace: bool = True,
    device: str | None = None,
    progress: Progress | None = None,
    orders: bool = True,
) -> Ledger:
    """The ledger of one loaded spec: counted (its rows with their orders or without), then traced and timed.

    Raises:
        XfcostError: bad input; a DeviceError where memory runs out, with bytes.
    """
    say = progress or (lambda text: None)
    doing = f"running it on {device}" if device else "tracing it"
    with _torch(loaded, doing) if trace or device is not None else nullcontext():
        if device is not None:
            from xfcost.torch_models.timing.clock import check_device

            check_device(str(device))
        architecture = place(loaded, run)
        check_generation(loaded, run, architecture)
        ledger = with_rebuilt_note(count(architecture, orders=orders), loaded, architecture)
        if run.plan is not None:
            ledger = with_training(ledger, architecture, run.plan)
        ledger = (
            _traced(ledger, loaded, run, architecture, say) if trace else with_mode(ledger, loaded, run, architecture)
        )
        return ledger if device is None else _timed(architecture, ledger, loaded, run, str(device), say)


def _traced(ledger: Ledger, loaded: Loaded, run: Run, architecture: Architecture, say: Progress) -> Ledger:
    """`ledger` joined with the trace, and with the results of its mode; of a generation, some steps are traced."""
    from xfcost.torch_models.shared.collector import collector_paused

    say(f"tracing {ledger.metadata.name} …")
    with collector_paused():
        from xfcost.torch_models.accounts import traced, with_traced

        ledger = traced(architecture, ledger)
    ledger = with_mode(ledger, loaded, run, architecture)
    if ledger.generation is None or ledger.generation.decode is None:
        return ledger
    sizes = traced_steps(ledger.generation)
    for tokens in sizes:
        say(f"tracing the step at {tokens} tokens …")
        ledger = with_traced(ledger, place(loaded, run_at(tokens, architecture, run, "decode")))
    return with_traced_steps(ledger, sizes)


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


def with_probe(loaded: Loaded, run: Run, ledger: Ledger, say: Progress) -> Ledger:
    """`ledger` with what the running model was seen to read."""
    with _torch(loaded, "probing it"):
        from xfcost.torch_models.probing.account import probed

        return probed(place(loaded, run), ledger, say)


def _torch(loaded: Loaded, doing: str) -> AbstractContextManager[None]:
    """Inside it torch is there, and memory that runs out is a DeviceError with bytes."""
    from xfcost.torch_models.memory.shortage import check_torch_loads, memory_may_run_out

    check_torch_loads()
    return memory_may_run_out(loaded.spec.name, doing)


def spec_name(spec: Any) -> str:
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
