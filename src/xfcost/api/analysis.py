"""The Python face of the commands: the same ledgers, without a terminal."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from xfcost.api.options import AnalyzeOptions, CompareOptions, RunOptions, takes
from xfcost.api.refusals import refuse
from xfcost.api.runs import make_run, run_options, take_choosing, take_draft, take_step_time, timing_plan
from xfcost.api.systems import (
    check_mixing,
    decoding,
    is_module,
    is_program,
    mixing_limit,
    open_one,
    open_systems,
    own_run,
    settings_texts,
    shared_run,
    spec_name,
    system_ledgers,
    vocabulary_of,
    with_config_dtype,
    with_remarks,
)
from xfcost.counting.system import AccountOptions, System
from xfcost.ledger.calibration import shipped_devices
from xfcost.ledger.device import THIS_MACHINE, DeviceGroup
from xfcost.ledger.errors import SpecError, UsageError, XfcostError
from xfcost.ledger.execution import Mode
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.modes import GeneratedToken
from xfcost.ledger.quantization import UNQUANTISED
from xfcost.ledger.units import stored_in
from xfcost.spec.load import load
from xfcost.spec.models import is_listed
from xfcost.spec.run import Run, is_language_model
from xfcost.systems.spec import SpecSystem

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram
    from typing_extensions import Unpack

    from xfcost.comparing.comparison import Comparison
    from xfcost.parts.serving.result import Speculation
    from xfcost.parts.serving.speculative import Draft
    from xfcost.torch_models.build import BuiltModel
    from xfcost.torch_models.tracing.trace import Traced

__all__ = ["analyze", "build", "compare", "register", "trace"]

Made = TypeVar("Made", bound=Callable[..., Any])


def _checked(run: Run, how: AccountOptions) -> Run:
    """The run; what is timed or predicted has weights in its dtype, whatever its checkpoint has.

    Refused is a timed run with a bound for several devices or another dtype: it runs on one device, in its own dtype.

    Raises:
        UsageError: there are several, or weights or cache are quantised.
    """
    device = how.device
    if device is not None or how.predict is not None:
        formats = {"weights": run.weight_format, "cache": run.cache_format}
        given = {name: None if one == UNQUANTISED else one for name, one in formats.items()}
        refuse("a run on a device", given)
        run = run._replace(weight_format=UNQUANTISED, cache_format=UNQUANTISED)
    if (device is not None or how.predict is not None) and run.offload is not None:
        raise UsageError(
            f"--offload {run.offload.layers}: what runs here has all blocks on one device; leave out --offload, or "
            "--device and --predict"
        )
    if device is not None and run.on is not None and run.on.count > 1:
        raise UsageError(
            f"--device {device} with --on {run.on.name}: one device is run and timed; give --on {run.on.device.name} "
            "for its bound, or leave --device out"
        )
    return run


def account_options(options: Mapping[str, Any]) -> AccountOptions:
    """What the keywords of `analyze` and `compare` say of accounts.

    Raises:
        UsageError: the options of a timing can't be, or no calls were recorded on the device to predict.
    """
    if options.get("cached_prefix") is not None:
        refuse("a cached prefix", options)
    device, predict = options.get("device"), bool(options.get("predict"))
    timing = timing_plan(device, options, predict=predict)
    on, recorded = options.get("on"), shipped_devices()
    on = on.name if isinstance(on, DeviceGroup) else on
    if predict and device is None and on is not None and on not in recorded and not on.startswith(THIS_MACHINE):
        raise UsageError(
            f"--predict --on {on}: seconds are predicted on one device whose calls were recorded, "
            f"{' or '.join(recorded)}; --on {on} without --predict gives the lower bound of a run there, and --predict "
            "without --on is of this machine"
        )
    return AccountOptions(
        trace=bool(options.get("trace")),
        device=device,
        predict=(device or (on if on in recorded else "cpu")) if predict else None,
        timing=timing,
        progress=options.get("progress"),
        strict=bool(options.get("strict")),
        mixing=mixing_limit(options.get("mixing"), options.get("mixing_limit")),
        orders=options.get("closed_form"),
        tokens_of=tuple(options.get("tokens_of") or ()),
        cache=(options.get("cache_in"), options.get("cache_out")),
    )


@takes(AnalyzeOptions)
def analyze(
    spec: str | os.PathLike[str] | torch.nn.Module | ExportedProgram,
    *tensors: Any,
    **options: Unpack[AnalyzeOptions],
) -> Ledger:
    """Count what one model costs with formulas, and check the counts on the torch model; with `device`, time it too.

    Args:
        spec: a preset (`vit`), the path of a YAML file, a torch module or an exported program; or, as on the command
            line, a module's name (`model.py:Net` or `package.module:Net`, whose code is executed), a config.json of
            transformers, a checkpoint, a `.pt2` or `.onnx` file, or a model of the list or the Hub.
        *tensors: the inputs of a torch module, as in `analyze(model, x)`; the same as `example_inputs`.
        **options: by name. `trace=False` counts without importing torch; this is the default with `on`, and for
            models of the list. Other specs are traced by default, and modules if their runs are short; `trace=True`
            traces every module.

    Returns:
        A Ledger: rows, totals, and with a trace `agreement`.

    Raises:
        XfcostError: bad input; the message says what was expected and how to mend it.
    """
    given: dict[str, Any] = dict(options)
    given["settings"] = settings_texts(given.get("settings"))  # read twice
    if tensors:
        if not is_module(spec) or given.get("example_inputs") is not None:
            raise UsageError("analyze: expected inputs of a torch module here, once; options are given by name")
        given["example_inputs"] = tensors[0] if len(tensors) == 1 else tensors
    draft = take_draft(given)
    choosing, named = take_choosing(given), not is_module(spec) or is_program(spec)
    if draft is not None and len(choosing.devices) > 1:
        refuse("devices side by side", {"draft": draft.name}, devices=len(choosing.devices))
    step_time = take_step_time(given)
    how = account_options(given)
    if given.get("trace") is None and given.get("on") is None and given.get("cached_prefix") is None:
        how = how._replace(trace=None)
    system = open_one("analyze", spec, given, how.progress, counted=True)
    if how.trace is None and system.loaded is not None and is_listed(system.loaded.name):
        how = how._replace(trace=False)  # tests hold the models of the list to their classes
    how = how._replace(probe=bool(given.get("probe")), check=how.trace is not False or bool(given.get("mixing")))
    run = _checked(choosing.applied(own_run(system, given, named=named)), how)
    ledger = with_config_dtype(system, system.account(run, how), given.get("dtype"))
    if step_time is not None:
        from xfcost.parts.training.plan import with_step_time

        ledger = with_step_time(ledger, step_time)
    if run.mode == "forward" and run.on is None and not run.choices and how.device is None and not how.predict:
        ledger = _with_generated_token(_with_forms(ledger, system, run, how), system, spec, given)
    if draft is not None:
        return _with_draft(ledger, system, spec, draft, (run, given))
    if ledger.timing is None:
        return ledger
    from xfcost.api.roofline import with_roofs

    return with_roofs(ledger, how.timing)


def _with_forms(ledger: Ledger, system: System, run: Run, how: AccountOptions) -> Ledger:
    """`ledger`, of a forward, with the MACs of a spec as a polynomial in N, and where global mixing outweighs."""
    from xfcost.api.mixing_share import mixing_outweighs
    from xfcost.api.spec_form import closed_form_of_spec

    form = ledger.closed_form if how.orders is False else closed_form_of_spec(system, run, ledger) or ledger.closed_form
    everything, feed_forward = mixing_outweighs(system, run, ledger)
    return msgspec.structs.replace(
        ledger, closed_form=form, mixing_outweighs=everything, mixing_outweighs_feed_forward=feed_forward
    )


def _with_generated_token(ledger: Ledger, system: System, spec: Any, given: Mapping[str, Any]) -> Ledger:
    """`ledger`, of a forward, with the decode step of a language model at its N, where no class has to run for it."""
    writes = ledger.ran.recorded is not None if system.loaded is None else is_language_model(system.loaded.spec)
    if not writes or len(ledger.metadata.streams) > 1:
        return ledger
    names = ("fetch", "batch", "dtype", "attention", "settings")
    options = {name: given[name] for name in names if given.get(name) is not None} | {"mode": "decode"}
    tokens = ledger.metadata.grid_tokens
    with suppress(XfcostError):  # it has no cache, or none of so many tokens
        if (opened := decoding(system, spec, {**options, "N": tokens})) is not None:
            run = make_run(**run_options(options))._replace(tokens=(tokens,))
            step = opened.account(run, AccountOptions(orders=False, limits=False))
            if step.cache is not None:
                dtype = step.metadata.cache_format or stored_in(step.metadata.dtype)
                token = GeneratedToken(tokens=tokens, flops=step.flops or 0, cache=step.cache, dtype=dtype)
                return msgspec.structs.replace(ledger, generated_token=token)
    return ledger


def _with_draft(ledger: Ledger, target: System, spec: Any, draft: Draft, asked: tuple[Run, dict[str, Any]]) -> Ledger:
    """`ledger`, a decode step or a generation of `spec`, with the rounds of a draft and this target.

    `asked` are its run and options.

    Raises:
        UsageError: the target or the draft can't be counted so.
    """
    from xfcost.parts.serving.options import DRAFT_HEADS
    from xfcost.parts.serving.speculative import head_pass, head_passes, of_generation, speculation

    run, given = asked
    tokens, counted = ledger.metadata.grid_tokens, AccountOptions(orders=False, limits=False)
    step_run = run._replace(mode="decode", new_tokens=1, cached_prefix=0, size=None)
    own = {**given, "trace": None, "new_tokens": None, "cached_prefix": None}
    of_draft = {name: given.get(name) for name in ("fetch", "batch", "dtype", "attention", "on")}

    @functools.cache  # a generation counts two rounds of each
    def opened(mode: Mode) -> System:
        return open_one("analyze", spec, {**own, "mode": mode}, None, counted=True)

    @functools.cache
    def drafter(mode: Mode) -> System:
        return open_one("analyze", draft.name, {**of_draft, "mode": mode}, None, counted=True)

    def passes(size: int) -> list[Ledger]:
        if draft.is_model:
            model = drafter("decode")
            return [model.account(one, counted) for one in draft.steps(step_run, size)]
        return head_passes(target.loaded, step_run, draft, size) if draft.name in DRAFT_HEADS else []

    def rounds(size: int, step: Ledger) -> Speculation:
        verification = opened("prefill").account(draft.verifying(step_run, size), counted)
        drafted, both = passes(size), [target, *([drafter("decode")] if draft.is_model else [])]
        sizes = list(filter(None, map(vocabulary_of, both)))
        return speculation(step, verification, drafted, draft, sizes)

    try:
        if run.mode == "decode":
            return msgspec.structs.replace(ledger, speculation=rounds(tokens, ledger))
        last = tokens + max(1, run.new_tokens - 1 - draft.tokens)  # where the last round may begin
        steps = {
            size: opened("decode").account(step_run._replace(tokens=(size,)), counted) for size in (tokens + 1, last)
        }
        ends = [rounds(size, step) for size, step in steps.items()]
        prompt = run._replace(mode="prefill", tokens=(tokens,), size=None, new_tokens=1, compared=True)
        prefill: Ledger | None = None
        if draft.is_model:
            prefill = drafter("prefill").account(prompt, counted)
        elif draft.name in ("mtp", "eagle"):  # Medusa's heads have no cache
            prefill = head_pass(target.loaded, prompt, draft)
        return msgspec.structs.replace(ledger, speculation=of_generation(ends[0], ends[-1], ledger, prefill))
    except (SpecError, UsageError) as error:
        text = re.sub(r"--cached-prefix( \d+)?: ", "", str(error)).removeprefix(f"--draft {draft.name}: ")
        raise UsageError(f"--draft {draft.name}: {text}") from None


@takes(CompareOptions)
def compare(
    *specs: str | os.PathLike[str] | torch.nn.Module | ExportedProgram | tuple[torch.nn.Module | ExportedProgram, Any],
    thorough: bool = True,
    sort: str | None = None,
    **options: Unpack[CompareOptions],
) -> Comparison:
    """Compare systems at the same N: their ledgers, ratios to the first, growth exponents and crossovers.

    Args:
        *specs: two or more systems, each as `analyze` takes it. A pattern (`common-*`) is replaced by the presets that
            match it. A pair (module, inputs) gives a module its own inputs; the other modules get `example_inputs`. If
            these are functions of N, or of H and W, modules are also counted at other sizes, for growth and crossovers.
        thorough: False searches for crossovers at fewer points, and leaves out the order of each row.
        sort: the quantity by which the systems stand, from the least on ("flops", "attention-memory"); as given by
            default. Ratios are to the first.
        **options: as for `analyze`, but models are traced only with `trace=True`. In `inputs`, `2:1xNx768` is an input
            of the second system only.

    Raises:
        XfcostError: bad input; the message says what was expected and how to mend it.
    """
    from xfcost.comparing.comparison import compared

    how = account_options(options)._replace(orders=None if thorough else False)
    run = make_run(**run_options(options))
    systems = open_systems(specs, {**options, "on": run.on}, how.progress, patient=thorough, counted=True)
    if len(systems) < 2:  # noqa: PLR2004 - a comparison has two sides
        raise UsageError("compare: expected two systems or more, as in `xfcost compare vit swin --N 784`")
    run = shared_run(run, systems)._replace(compared=True)
    run = _checked(run, how)
    check_mixing(systems, options)
    ledgers = system_ledgers(systems, run, how)
    degree = 1 if run.parallelism is None else run.parallelism.expert
    if degree > 1 and all(one.on and one.on.parallelism and one.on.parallelism.expert == 1 for one in ledgers):
        raise UsageError(f"--expert-parallel {degree}: none of these systems has experts; leave it out")
    noted = [
        with_config_dtype(one, with_remarks(one, ledger), options.get("dtype"))
        for one, ledger in zip(systems, ledgers, strict=True)
    ]
    return compared(systems, noted, run, thorough=thorough, sort=sort)


@takes(RunOptions)
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
        **options: the run's, as for `analyze`; the model runs a whole prompt, without a `cached_prefix`.

    Returns:
        BuiltModel: `model`, `inputs`, and `rows`, the path of the rows that each component's module is counted in.

    Raises:
        XfcostError: bad input; a NoRoomError where the weights don't fit, with bytes.
    """
    if options.get("cached_prefix") is not None:
        refuse("a cached prefix", {"device": device})
    return SpecSystem(load(spec_name(spec), settings_texts(settings))).built(make_run(**options), device)


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
