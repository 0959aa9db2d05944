"""The Python face of the commands: the same ledgers, without a terminal."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from xfcost.api.arguments import arguments_checked
from xfcost.api.modules import (
    check_letters,
    check_texts,
    given_module,
    imported,
    is_module,
    mixing_seconds,
    module_account,
    module_plan,
    named_module,
    refuse_class,
)
from xfcost.api.notebooks import show_as
from xfcost.api.predictions import predictors
from xfcost.api.specs import Progress, account, built, settings_texts, spec_name, with_probe
from xfcost.counting.run_options import make_run
from xfcost.ledger.errors import UsageError
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.options import OPTION_TYPES, RunOptions, spelled_out
from xfcost.ledger.timing_options import TIMING_OPTIONS, TIMING_TYPES, TimingOptions, TimingPlan, timing_plan
from xfcost.spec.input_shapes import NO_MODULE
from xfcost.spec.load import load
from xfcost.spec.run import Run
from xfcost.spec.targets import module_target

if TYPE_CHECKING:
    import torch
    from rich.console import RenderableType
    from typing_extensions import Unpack

    from xfcost.counting.comparison import Comparison
    from xfcost.torch_models.build import BuiltModel
    from xfcost.torch_models.tracing.trace import Traced

__all__ = ["account", "analyze", "build", "compare", "register", "trace"]

Made = TypeVar("Made", bound=Callable[..., Any])


def _ledger(ledger: Ledger, width: int) -> RenderableType:
    from xfcost.report.table import report

    return report(ledger, None, width)


def _comparison(comparison: Comparison, width: int) -> RenderableType:
    from xfcost.report.compare import report

    return report(comparison, width)


show_as("Ledger", _ledger)
show_as("Comparison", _comparison)


class _Options(RunOptions, TimingOptions, total=False):
    """The options of a run and of its timing."""


def _with_options(function: Made) -> Made:
    """`function(…, **options)` with every option in its signature, and in its docstring in place of `**options`."""
    declared = OPTION_TYPES | TIMING_TYPES
    spelled_out(function, declared, lambda name, option, kind: (option.default, kind), evaluated=False)
    told = "\n".join(
        f"        {name}: {one.__metadata__[0].help} {one.__metadata__[0].python}".rstrip()
        for name, one in declared.items()
    )
    function.__doc__ = re.sub(r" +\*\*options: .*", lambda _: told, function.__doc__ or "")
    return function


def _parted(device: str | None, options: Mapping[str, Any], *, predict: bool) -> tuple[TimingPlan, dict[str, Any]]:
    """The plan of a timing, and the options of the run.

    Raises:
        UsageError: the options of a timing can't be.
    """
    timing = {name: value for name, value in options.items() if name in TIMING_OPTIONS}
    if predict and device is None:  # a prediction has threads, and nothing else of a timing
        timing_plan(None, {name: value for name, value in timing.items() if name != "threads"})
        device = "cpu"
    return timing_plan(device, timing), {name: value for name, value in options.items() if name not in timing}


def _check_one(run: Run, device: str | None) -> None:
    """Refuse a timed run beside the bound of several devices: it is of one.

    Raises:
        UsageError: there are several.
    """
    if device is not None and run.on is not None and run.on.count > 1:
        raise UsageError(
            f"--device {device} with --on {run.on.name}: one device is run and timed; give --on {run.on.device.name} "
            "for its bound, or leave --device out"
        )


def _with_roofs(ledger: Ledger, timing: TimingPlan) -> Ledger:
    """A timed ledger with the roofs of its machine."""
    if ledger.timing is None:
        return ledger
    from xfcost.api.roofline import with_roofs

    return with_roofs(ledger, timing)


@arguments_checked
@_with_options
def analyze(  # noqa: PLR0913 - options
    spec: str | os.PathLike[str] | torch.nn.Module,
    *,
    example_inputs: Any = None,
    example_kwargs: Mapping[str, Any] | None = None,
    inputs: Sequence[str] = (),
    build: Sequence[str] = (),
    strict: bool = False,
    mixing: bool | None = None,
    mixing_time: float | None = None,
    tokens_of: Sequence[str] = (),
    closed_form: bool | None = None,
    settings: Sequence[str] | None = (),
    trace: bool | None = None,
    device: str | None = None,
    predict: bool = False,
    probe: bool = False,
    progress: Progress | None = None,
    **options: Unpack[_Options],
) -> Ledger:
    """Count `spec` in closed form; trace the real model and join the two accounts; with `device`, time it too.

    Args:
        spec: a preset's name or a path to a YAML file; or a torch module, with inputs; or the name of one:
            `model.py:Net` or `package.module:Net`, whose code is executed, or a config.json of transformers.
        example_inputs: of a module: one tensor, a tuple of positional inputs or a dictionary of keyword ones; or a
            function of N that gives them.
        example_kwargs: of a module: keyword inputs beside positional ones.
        inputs: of a named module: `1x3x224x224` or `input_ids=1xN:int64`, each input; N and batch stand for letters.
        build: of a named class or function: its arguments, `depth=12` each.
        strict: refuse a ledger that leaves an operation of the module uncounted.
        mixing: True finds how each operation of the module mixes tokens, by runs with real numbers at small sizes,
            whatever time it takes; None where it can be run so and time allows; False leaves it out. Of a spec these
            runs check the kinds that it declares, by default where it is traced.
        mixing_time: the seconds that this may take, 10 by default.
        tokens_of: the axes along which the tokens of inputs lie, for mixing kinds: `x:1`, `image:2,3`, `cond:none`; of
            other inputs they are found.
        closed_form: of a module whose inputs have an N: also count it at other N, and give its costs as polynomials in
            N. None: where one run takes no more than two seconds.
        settings: overrides, `key.path=value` each.
        trace: False answers without importing torch; by default True, unless `on` is given.
        device: `cpu`, `cuda` or `mps` also runs the model.
        predict: also predict the seconds on `device` (the CPU without one) from its calibration, without a run.
        probe: True also runs every component on small grids, and sees how it mixes tokens: the ledger's `probe`.
        progress: called with a line of text before each long step.
        **options: the run's and its timing's, each as on the command line; numbers may be texts there as here (`128k`).

    Returns:
        A Ledger: rows, totals, and with a trace `agreement`.

    Raises:
        XfcostError: bad input; the message says what was expected and how to mend it.
    """
    on = device or "cpu"
    timing, given = _parted(device, options, predict=predict)
    trace = options.get("on") is None if trace is None else trace
    how: dict[str, Any] = {"trace": trace, "strict": strict, "closed_form": closed_form}
    how |= {"mixing": mixing_seconds(mixing, mixing_time), "tokens_of": tuple(tokens_of)}
    how |= {"device": device, "timing": timing, "say": progress or (lambda text: None)}
    how |= {"predict": predictors(on, timing.threads) if predict else None}
    if not isinstance(spec, str | os.PathLike) and is_module(spec):
        lengths = {"N": given.pop("N", None), "size": given.pop("size", None)}
        how["plan"] = module_plan(settings=settings or (), probe=probe, predict=predict, **given)
        check_letters(example_inputs, lengths)
        ledger = module_account(given_module(spec, example_inputs, example_kwargs), lengths, how)
        return _with_roofs(ledger, timing)
    refuse_class(spec)
    if example_inputs is not None or example_kwargs is not None:
        raise UsageError("example_inputs: they are of a torch module; a spec knows its inputs (--N, --size, --batch)")
    name = spec_name(spec)
    target = module_target(name)
    loaded = imported(target, settings, progress) if target is not None and target.kind == "config" else None
    if target is not None and loaded is None:
        lengths = {"N": given.pop("N", None), "size": given.pop("size", None)}
        batch = given.pop("batch", 1)
        how["plan"] = module_plan(settings=settings or (), probe=probe, predict=predict, **given)
        named = named_module(target, inputs, build, batch)
        check_texts(inputs, lengths["N"])
        return _with_roofs(module_account(named, lengths, how), timing)
    if tokens_of:
        raise UsageError("--tokens-of: a spec knows its tokens; it is of torch modules")
    if inputs or build:
        raise UsageError(NO_MODULE)
    loaded, run = loaded or load(name, settings_texts(settings)), make_run(**given)
    _check_one(run, device)
    steps = run.mode in {"decode", "generate"}
    if (probe or mixing) and steps:
        option = "--probe" if probe else "--mixing"
        raise UsageError(f"{option}: of --mode {run.mode} a step reads its cache; probe the forward, without --mode")
    ledger = account(
        loaded, run, trace=trace, device=device, predict=on if predict else None, timing=timing, progress=progress
    )
    ledger = _with_roofs(ledger, timing)
    if probe:
        return with_probe(loaded, run, ledger, how["say"])
    if not how["mixing"] or steps or not (trace or mixing):
        return ledger
    return with_probe(loaded, run, ledger, lambda text: None, detailed=False, seconds=how["mixing"])


@arguments_checked
@_with_options
def compare(  # noqa: PLR0913 - options
    *specs: str | os.PathLike[str] | torch.nn.Module | tuple[torch.nn.Module, Any],
    example_inputs: Any = None,
    example_kwargs: Mapping[str, Any] | None = None,
    inputs: Sequence[str] = (),
    build: Sequence[str] = (),
    strict: bool = False,
    mixing: bool | None = None,
    mixing_time: float | None = None,
    settings: Sequence[str] | None = (),
    trace: bool = False,
    device: str | None = None,
    predict: bool = False,
    progress: Progress | None = None,
    thorough: bool = True,
    **options: Unpack[_Options],
) -> Comparison:
    """Several systems at the same N: ledgers, ratios against the first, growth exponents, crossovers.

    Systems are specs and torch modules, named as for `analyze` or given. A pattern (`common-*`) stands for the presets
    that match it. A pair (module, inputs) is a module with inputs of its own; `example_inputs` are of the others. With
    functions of N, or of H and W, modules are counted at other sizes too, for growth and crossovers. Of named ones
    `2:1xNx768` is an input of the second system alone.

    The arguments are those of `analyze`; the trace, which imports torch, is on demand here. Where it isn't `thorough`,
    crossovers are looked for at fewer points, and no row has an order.
    """
    from xfcost.api.systems import OfModules, open_systems, shared_run, system_ledgers, with_remarks
    from xfcost.counting.comparison import compared
    from xfcost.counting.system import SpecSystem

    on = device or "cpu"
    timing, given = _parted(device, options, predict=predict)
    run = make_run(**given)
    of = OfModules(inputs, build, example_inputs, example_kwargs, given.get("batch", 1), patient=thorough)
    systems = open_systems(specs, of, settings, progress)
    if len(systems) < 2:  # noqa: PLR2004 - a comparison has two sides
        raise UsageError("compare: expected two systems or more, as in `xfcost compare vit swin --N 784`")
    run = shared_run(run, systems)
    _check_one(run, device)
    seconds = mixing_seconds(mixing, mixing_time, of_specs=all(isinstance(one, SpecSystem) for one in systems))
    how: dict[str, Any] = {"trace": trace, "device": device, "predict": on if predict else None, "timing": timing}
    how |= {"progress": progress, "orders": thorough}
    ledgers = system_ledgers(systems, run, strict=strict, mixing=seconds, **how)
    noted = [with_remarks(one, ledger) for one, ledger in zip(systems, ledgers, strict=True)]
    return compared(systems, noted, run, thorough=thorough)


@arguments_checked
def build(
    spec: str | os.PathLike[str],
    *,
    settings: Sequence[str] | None = (),
    device: str = "cpu",
    **options: Unpack[RunOptions],
) -> BuiltModel:
    """The torch model of a spec, in evaluation mode with random weights, and example inputs.

    Args:
        spec: a preset's name or a path to a YAML file.
        settings: overrides, `key.path=value` each.
        device: `cpu`, `cuda`, `mps`, or `meta`, where tensors have shapes and no memory.
        **options: the run's, as for `analyze`.

    Returns:
        BuiltModel: `model`, `inputs`, and `rows`, the path of the rows that each component's module is counted in.

    Raises:
        XfcostError: bad input; a NoRoomError where the weights don't fit, with bytes.
    """
    return built(load(spec_name(spec), settings_texts(settings)), make_run(**options), device)


def trace(model: torch.nn.Module, *inputs: torch.Tensor) -> Traced:
    """Trace any torch module: MACs, FLOPs and parameters module by module, and what they leave out.

    Args:
        model: on the CPU, where it runs once, or on `meta`, where it takes no memory. It is left as it was; what is
            compiled runs uncompiled.
        inputs: tensors, as `model` takes them.

    Returns:
        Traced: `macs`, `flops`, `params`, `modules` by dotted path; `unsupported`, the operations that are not counted.
        Where there are any, `complete` is False and the totals are lower bounds, printed as "at least".

    Raises:
        UsageError: `model` is no module, an input is no tensor, or a module can't be traced: it is scripted, lazy and
            not yet run, or torch's tracer fails on it. What the model itself raises passes through.
    """
    from xfcost.torch_models.any_model.user_errors import original
    from xfcost.torch_models.tracing.trace import trace as trace_module

    return trace_module(original(model), inputs)


def register(operation: str) -> Callable[[Made], Made]:
    """A decorator for a function that counts a custom operation `ns::op` wherever a module runs it.

    The function takes the operation's arguments and `out`, its result: tensors, of which only shapes may be read. It
    returns MACs, or a dictionary with any of `macs`, `flops`, `comparisons` and `moved`.

    Raises:
        UsageError: that is no name of an operation, or it has a count already.
    """
    from xfcost.torch_models.running.registry import register as registered

    return registered(operation)
