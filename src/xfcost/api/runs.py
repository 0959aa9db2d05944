"""Options as given -> a checked `Run`, its training plan, and the plan of a timing: each option, and all together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from xfcost.api.options import (
    MOST_NEW,
    OPTIONS,
    TIMING_OPTIONS,
    BudgetOptions,
    RunOptions,
    read_option,
    single_share,
)
from xfcost.api.without_effect import refuse
from xfcost.formulas.conventions import OPTIMIZERS
from xfcost.ledger.device import DeviceGroup
from xfcost.ledger.errors import UsageError, nearest, shown
from xfcost.ledger.timing_plan import TimingPlan
from xfcost.ledger.training import MESH_FIELDS, Mesh, RunPlan
from xfcost.spec.run import LANGUAGE_MODEL_MODES, Run, with_defaults

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from xfcost.ledger.budgets import Budget

# `--rate` is refused: it could be a sustained rate or a peak.
_RATE_REMOVED: Final = (
    "say which rate it is: --sustained 125T is what a device really does in training, "
    "--peak 312T --mfu 40% a datasheet's peak and the share of it that model FLOPs get"
)


def run_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those among the options of a command that are of the run."""
    return {name: value for name, value in options.items() if name in OPTIONS}


def make_run(**options: Unpack[RunOptions]) -> Run:
    """The checked run: N (one number or one per stream) or the image's size, a batch, a dtype, a mode and the rest.

    A dtype and an attention that are not given stay None where they depend on the system.

    Raises:
        UsageError: any of them can't be.
        TypeError: there is no such option.
    """
    for name in options:
        if name not in OPTIONS:
            raise TypeError(f"unexpected keyword argument {name!r}")
    given: dict[str, Any] = {name: option.default for name, option in OPTIONS.items()} | dict(options)
    names = ("dtype", "attention", "mode", "batch", "memory_level")
    checked = {name: read_option(name, given[name]) for name in names}
    if given["N"] is not None and given["size"] is not None:
        raise UsageError("--N and --size: both say how large the input is; give one of them")
    if given["on"] is not None:
        from xfcost.counting.devices import read_devices

        given["on"] = read_devices(given["on"])
    mode, on = checked["mode"], given["on"]
    logits = read_option("logits", given["logits"])
    estimated = on is not None and mode != "train"  # where the MFU is of the estimate, and of no training run
    refuse("a run", given | {"mfu": None} if estimated else given)
    if mode == "generate" and given["new_tokens"] is None:
        raise UsageError(f"--new-tokens is missing: expected how many tokens to generate, 1 to {MOST_NEW}")
    run = Run(
        tokens=read_option("N", given["N"]),
        size=read_option("size", given["size"]),
        new_tokens=int(read_option("new_tokens", given["new_tokens"])) if mode == "generate" else 1,
        logits=logits,
        plan=make_plan(**given),
        on=on,
        mfu=single_share("mfu", given["mfu"], f"in the mode {mode}")
        if estimated and given["mfu"] is not None
        else None,
        mbu=read_option("mbu", given["mbu"]),
        **checked,
    )
    return run if run.mode in LANGUAGE_MODEL_MODES else with_defaults(run, ())


def make_plan(mode: str, **given: Any) -> RunPlan | None:
    """The checked training plan of `--mode train`, of run options; None in other modes.

    Raises:
        UsageError: an option can't be, or contradicts another one.
    """
    if given.get("rate") is not None:
        raise UsageError(f"--rate {shown(given['rate'])}: {_RATE_REMOVED}")
    if mode != "train":
        return None
    optimizer, tokens, on = given.get("optimizer"), given.get("tokens"), given.get("on")
    name = "adamw" if optimizer is None else str(optimizer)
    if name not in OPTIMIZERS:
        raise UsageError(f"--optimizer {shown(optimizer)}: {nearest(name, OPTIMIZERS)}")
    rates = {name: given[name] for name in ("peak", "sustained", "devices", "mfu") if given.get(name) is not None}
    if on is not None:
        if said := [name for name in rates if name != "mfu"]:
            raise UsageError(f"--{said[0]}: --on {on.name} says it already; give one of the two")
        mesh = _mesh(on, given)
        return RunPlan(optimizer=name, tokens=read_option("tokens", tokens), devices=on.count, mesh=mesh)
    if tokens is None and rates:
        last = next(name for name in ("devices", "sustained", "mfu", "peak") if name in rates)
        raise UsageError(f"--{last}: a rate makes days of a whole run; say how long it is, as in --tokens 300e9")
    if "devices" in rates and not ("peak" in rates or "sustained" in rates):
        raise UsageError(
            "--devices: they share a run's FLOPs; say what each does, as in --peak 312T --mfu 40%, or --sustained 125T"
        )
    return RunPlan(
        optimizer=name,
        tokens=read_option("tokens", tokens),
        **_rates(rates),
        devices=read_option("devices", rates.get("devices", 1)),
    )


def _mesh(on: DeviceGroup, given: Mapping[str, Any]) -> Mesh:
    """How devices share a run."""
    fields = {
        field: read_option(name, given[name])
        for name, field in MESH_FIELDS.items()
        if given.get(name) is not None and given[name] is not False
    }
    return Mesh(on=on, mfus=() if given.get("mfu") is None else read_option("mfu", given["mfu"]), **fields)


def _rates(given: Mapping[str, Any]) -> dict[str, Any]:
    """`rate`, a sustained rate as given or peak · mfu, and in the second case `peak` and `mfu`.

    Raises:
        UsageError: `peak` or `mfu` is missing, or both ways are given.
    """
    if "sustained" in given:
        if "peak" in given or "mfu" in given:
            raise UsageError("--sustained: it stands in place of --peak and --mfu; give it, or the two")
        return {"rate": read_option("sustained", given["sustained"])}
    if "peak" not in given and "mfu" not in given:
        return {}
    if "mfu" not in given:
        raise UsageError(
            "--peak: no device trains at the peak of its datasheet; say what share of it the model's FLOPs get, as in "
            "--mfu 40% (in print: 21.3% for GPT-3, 46.2% for PaLM; Chowdhery et al. 2022, table 3)"
        )
    if "peak" not in given:
        raise UsageError(
            "--mfu: a share of what? Give the device, as in --on a100-sxm-80x8, or its peak, as in --peak 312T (A100, "
            "dense bfloat16)"
        )
    peak, share = read_option("peak", given["peak"]), single_share("mfu", given["mfu"], "with --peak")
    return {"rate": peak * share, "peak": peak, "mfu": share}


def taken_budgets(options: dict[str, Any], *more: str) -> tuple[Budget, ...]:
    """The budgets among `options`, `more` of a search, which are taken out of them.

    Raises:
        UsageError: a limit can't be read.
    """
    from xfcost.ledger.budgets import read_budgets

    names = [*BudgetOptions.__annotations__, *more]
    return read_budgets({name.removeprefix("max_"): options.pop(name, None) for name in names})


def timing_plan(device: str | None, options: Mapping[str, Any], *, predict: bool = False) -> TimingPlan:
    """The checked plan of the options of a timing among `options`; those that are None keep their defaults.

    A prediction has threads, and nothing else of a timing.

    Raises:
        UsageError: one of them can't be, two contradict each other, or nothing is timed.
    """
    given = {
        name: options[name] for name in TIMING_OPTIONS if options.get(name) is not None and options[name] is not False
    }
    if device is None:
        refuse("a prediction" if predict else "a run without a timing", given)
    values = {name: read_option(name, value) for name, value in given.items()}
    if "composed" in given and "compile" in given:
        raise UsageError("--composed and --compile: a compiled model has no rows to compose; give one of them")
    stopping = [f"--{name.replace('_', '-')}" for name in ("precision", "max_time", "min_time") if name in given]
    if "runs" in given and stopping:
        raise UsageError(f"--runs and {stopping[0]}: both say how long to time; give one of them")
    plan = TimingPlan(**values)
    if plan.min_time <= plan.max_time:
        return plan
    if "min_time" in given and "max_time" in given:
        raise UsageError(f"--min-time {plan.min_time:g} is more than --max-time {plan.max_time:g}")
    # the one that is a default gives way
    return plan._replace(max_time=plan.min_time) if "min_time" in given else plan._replace(min_time=plan.max_time)
