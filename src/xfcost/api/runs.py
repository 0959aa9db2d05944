"""Options as given -> a checked `Run`, its training plan, and the plan of a timing: each option, and all together."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from xfcost.api.options import (
    EVERY,
    MOST_NEW,
    OPTIONS,
    TIMING_OPTIONS,
    BudgetOptions,
    RunOptions,
    read_option,
    single_share,
)
from xfcost.api.refusals import SHARED, is_train, refuse
from xfcost.formulas.optimizers import OPTIMIZERS
from xfcost.ledger.achieved import StepTime
from xfcost.ledger.device import DeviceGroup
from xfcost.ledger.errors import UsageError, nearest, shown
from xfcost.ledger.execution import Convention
from xfcost.ledger.lora import Lora
from xfcost.ledger.offload import Offload
from xfcost.ledger.parallelism import Parallelism
from xfcost.ledger.timing_plan import TimingPlan
from xfcost.parts.serving.options import USUAL_HOST, DraftOptions
from xfcost.parts.training.result import MESH_FIELDS, Mesh, RunPlan
from xfcost.spec.run import Run, is_deployed, with_defaults

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from xfcost.ledger.budgets import Budget
    from xfcost.parts.serving.speculative import Draft


def run_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those among the options of a command that are of the run."""
    return {name: value for name, value in options.items() if name in OPTIONS}


class Choosing(NamedTuple):
    """What `analyze` is given to choose devices by."""

    devices: tuple[DeviceGroup, ...] = ()
    """With their prices; several are set side by side."""
    tokens_per_user: float | None = None

    def applied(self, run: Run) -> Run:
        """`run` on these devices, side by side where they are several."""
        if len(self.devices) > 1:
            run = run._replace(on=None, choices=self.devices)
        return run._replace(tokens_per_user=self.tokens_per_user)


def take_choosing(given: dict[str, Any]) -> Choosing:
    """The devices, the price and the rate among the options of `analyze`; of several devices `on` keeps the first.

    Raises:
        UsageError: one of them can't be, or has no effect with the other options.
    """
    refuse("choosing", given)
    share = read_option("memory_share", given.get("memory_share"))
    price, rate = (read_option(name, given.pop(name, None)) for name in ("price", "tokens_per_user"))
    if given.get("on") is None:
        return Choosing()
    from xfcost.counting.devices import read_several

    devices = read_several(given["on"])
    if len(devices) > 1:
        if is_train(given):
            raise UsageError(f"--on: a training plan takes one kind of device, got {len(devices)}; give one of them")
        refuse("devices side by side", given, devices=len(devices))
    devices = tuple(_counted(one.with_memory_share(share), given) for one in _with_prices(devices, price))
    given["on"], given["devices"] = devices[0], None
    return Choosing(devices, rate)


def _counted(on: DeviceGroup, given: Mapping[str, Any]) -> DeviceGroup:
    """The devices of `--on`; where it names one, `--devices` of it, or as many as share the model.

    Raises:
        UsageError: `--on` and `--devices` give two numbers.
    """
    count = read_option("devices", given.get("devices"))
    if on.count > 1 and count not in {None, on.count}:
        raise UsageError(f"--on {on.name} and --devices {count}: two numbers of devices; give one of them")
    if on.count > 1:
        return on
    tensor, pipeline, expert = (read_option(name, given.get(name)) or 1 for name in SHARED)
    return msgspec.structs.replace(on, count=count or pipeline * max(tensor, expert))


def take_draft(given: dict[str, Any]) -> Draft | None:
    """The draft of speculative decoding among the options of `analyze`; None without one.

    Raises:
        UsageError: one of its options can't be, or has no effect with the others.
    """
    refuse("a draft", given)
    options = {name: read_option(name, given.pop(name, None)) for name in DraftOptions.__annotations__}
    if options["draft"] is None:
        return None
    from xfcost.parts.serving.speculative import Draft

    if given.get("mode") == "generate" and read_option("new_tokens", given.get("new_tokens")) == 1:
        raise UsageError("--new-tokens 1: the prefill gives it, and a draft has nothing to draft; give more of them")
    if not isinstance(options["draft"], str | os.PathLike):
        raise UsageError(
            f"--draft: expected a model's name or the path of its spec, or mtp, eagle, medusa or ngram, got "
            f"{shown(options['draft'])}"
        )
    name, tokens = os.fspath(options["draft"]), options["draft_tokens"] or (1 if options["draft"] == "mtp" else 5)
    accepted, acceptance = options["accepted"], options["acceptance"]
    if accepted is not None and acceptance is not None:
        raise UsageError("--accepted and --acceptance: both say how many drafted tokens are accepted; give one of them")
    if accepted is not None and accepted > tokens:
        raise UsageError(
            f"--accepted {accepted:g}: {tokens} are drafted in a round; expected no more (the target's own token is "
            "not among them), or more --draft-tokens"
        )
    return Draft(name, tokens, accepted, acceptance)


def take_step_time(given: dict[str, Any]) -> StepTime | None:
    """The measured time among the options of `analyze`, and without `--on` the peak, which is taken out; None without.

    Raises:
        UsageError: one of them can't be, or has no effect with the others.
    """
    if given.get("step_time") is None:
        return None
    refuse("a measured step", given)
    seconds = read_option("step_time", given.pop("step_time"))
    if given.get("on") is not None:
        return StepTime(seconds=seconds)
    peak = read_option("peak", given.pop("peak"))
    return StepTime(
        seconds=seconds,
        peak=peak,
        devices=read_option("devices", given.pop("devices", None)) or 1,
        convention=read_option("flops", given.get("flops")) or "dense",
    )


def _with_prices(
    devices: tuple[DeviceGroup, ...], price: float | Mapping[str, float] | None
) -> tuple[DeviceGroup, ...]:
    """The devices with the price of all of them, or each with its own.

    Raises:
        UsageError: a price is of several devices together, or of none of these.
    """
    from xfcost.counting.devices import read_several

    names = [group.device.name for group in devices]
    prices = dict.fromkeys(names, price) if isinstance(price, float) else dict[str, float | None]()
    for text, one in price.items() if isinstance(price, Mapping) else ():
        for group in read_several(text, "--price"):
            if group.count > 1:
                raise UsageError(f"--price {text}: expected the price of one device, {group.device.name}=…")
            if group.device.name not in names:
                raise UsageError(f"--price {text}: --on has no {group.device.name}; {nearest(text, names)}")
            if group.device.name in prices:
                raise UsageError(f"--price {text}: {group.device.name} has two prices; expected one")
            prices[group.device.name] = one
    return tuple(
        msgspec.structs.replace(
            group,
            device=msgspec.structs.replace(
                group.device, price_per_hour=prices.get(group.device.name) or group.device.price_per_hour
            ),
        )
        for group in devices
    )


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
    formats = {f"{name.removesuffix('s')}_format": read_option(name, given[name]) for name in ("weights", "cache")}
    checked = {name: read_option(name, given[name]) for name in names}
    if given["N"] is not None and given["size"] is not None:
        raise UsageError("--N and --size: both set the size of the input; give one of them")
    if given["on"] is not None:
        from xfcost.counting.devices import read_devices

        on = read_devices(given["on"]).with_memory_share(read_option("memory_share", given["memory_share"]))
        given["on"], given["devices"] = _counted(on, given), None
    mode, on = checked["mode"], given["on"]
    logits = read_option("logits", given["logits"])
    estimated = on is not None and mode != "train"  # where the MFU is of the estimate, and of no training run
    refuse("a run", given | {"mfu": None} if estimated else given)
    if mode == "generate" and given["new_tokens"] is None:
        raise UsageError(f"--new-tokens is missing: expected how many tokens to generate, 1 to {MOST_NEW}")
    parallelism = _parallelism(on, given) if on is not None and mode != "train" else None
    run = Run(
        parallelism=parallelism,
        tokens=read_option("N", given["N"]),
        size=read_option("size", given["size"]),
        new_tokens=int(read_option("new_tokens", given["new_tokens"])) if mode == "generate" else 1,
        cached_prefix=read_option("cached_prefix", given["cached_prefix"]) or 0,
        logits=logits,
        lora=read_lora(given),
        plan=make_plan(**given),
        on=on,
        mfu=single_share("mfu", given["mfu"], f"in the mode {mode}")
        if estimated and given["mfu"] is not None
        else None,
        mbu=read_option("mbu", given["mbu"]),
        offload=_offload(given),
        cache_blocks=read_option("cache_blocks", given["cache_blocks"]),
        **checked,
        **formats,
    )
    return run if is_deployed(run) else with_defaults(run, ())


def read_lora(given: Mapping[str, Any]) -> Lora | None:
    """The adapters; None where all weights are trained.

    Raises:
        UsageError: the rank or the names can't be.
    """
    if given.get("lora") is None:
        return None
    return Lora(int(read_option("lora", given["lora"])), EVERY["lora_on"].read("--lora-on", given.get("lora_on")))


def _offload(given: Mapping[str, Any]) -> Offload | None:
    """The blocks that stay on the host; None where none do.

    Raises:
        UsageError: it is no number of blocks, or no one device; or it has no peak that computes.
    """
    if given["offload"] is None:
        return None
    from xfcost.counting.devices import read_devices
    from xfcost.parts.serving.offload import with_memory

    assumed = given["host"] is None
    host = read_devices(USUAL_HOST if assumed else given["host"], "--host")
    if host.count > 1:
        raise UsageError(f"--host {host.name}: expected one device, as in --host {host.device.name}")
    device = with_memory(host.device, read_option("host_memory", given["host_memory"]))
    return Offload(layers=int(read_option("offload", given["offload"])), host=device, assumed=assumed)


def _parallelism(on: DeviceGroup, given: Mapping[str, Any]) -> Parallelism | None:
    """How devices share a model in inference; None where no degree is given.

    Raises:
        UsageError: a degree is no number, or does not divide the devices.
    """
    degrees = {name.removesuffix("_parallel"): read_option(name, given[name]) for name in SHARED if given[name]}
    if not degrees:
        return None
    from xfcost.parts.serving.parallel import check_degrees

    plan = Parallelism(**degrees)
    check_degrees(plan, on)
    return plan


def make_plan(mode: str, **given: Any) -> RunPlan | None:
    """The checked training plan of `--mode train`, of run options; None in other modes.

    Raises:
        UsageError: an option can't be, or contradicts another one.
    """
    if mode != "train":
        return None
    optimizer, tokens, on = given.get("optimizer"), given.get("tokens"), given.get("on")
    flops: Convention = read_option("flops", given.get("flops")) or "dense"
    name = "adamw" if optimizer is None else str(optimizer)
    if name not in OPTIMIZERS:
        raise UsageError(f"--optimizer {shown(optimizer)}: {nearest(name, OPTIMIZERS)}")
    rates = {name: given[name] for name in ("peak", "sustained", "devices", "mfu") if given.get(name) is not None}
    if on is not None:
        if said := [name for name in rates if name != "mfu"]:
            raise UsageError(f"--{said[0]}: --on {on.name} sets it already; give one of the two")
        mesh = _mesh(on, given)
        return RunPlan(
            optimizer=name, tokens=read_option("tokens", tokens), devices=on.count, flops=flops, mesh=mesh,
            recompute=mesh.checkpoint,
        )  # fmt: skip
    if tokens is None and rates:
        last = next(name for name in ("devices", "sustained", "mfu", "peak") if name in rates)
        raise UsageError(f"--{last}: a rate needs the length of the run to compute days, as in --tokens 300e9")
    if "devices" in rates and not ("peak" in rates or "sustained" in rates):
        raise UsageError("--devices: needs the rate of each device, as in --peak 312T --mfu 40%, or --sustained 125T")
    return RunPlan(
        optimizer=name,
        tokens=read_option("tokens", tokens),
        **_rates(rates),
        flops=flops,
        devices=read_option("devices", rates.get("devices", 1)),
        recompute=read_option("checkpoint", given.get("checkpoint")) or "none",
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
            raise UsageError("--sustained: it replaces --peak and --mfu; give it, or the two")
        return {"rate": read_option("sustained", given["sustained"])}
    if "peak" not in given and "mfu" not in given:
        return {}
    if "mfu" not in given:
        raise UsageError(
            "--peak: no device trains at its peak; give the share that it reaches, as in --mfu 40% (published: 21.3% "
            "for GPT-3, 46.2% for PaLM; Chowdhery et al. 2022, table 3)"
        )
    if "peak" not in given:
        raise UsageError(
            "--mfu: needs a device, as in --on a100-sxm-80x8, or its peak, as in --peak 312T (A100, dense bfloat16)"
        )
    peak, share = read_option("peak", given["peak"]), single_share("mfu", given["mfu"], "with --peak")
    return {"rate": peak * share, "peak": peak, "mfu": share}


def taken_budgets(options: dict[str, Any]) -> tuple[Budget, ...]:
    """The budgets among `options`, which are taken out of them.

    Raises:
        UsageError: a limit can't be read.
    """
    from xfcost.ledger.budgets import read_budgets

    return read_budgets({name.removeprefix("max_"): options.pop(name, None) for name in BudgetOptions.__annotations__})


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
    if values.get("lane", "wall") != "wall" and not str(device).startswith("cuda"):
        raise UsageError(f"--lane {values['lane']}: --device {device} has one lane; leave --lane out, or time on cuda")
    if "cuda_graph" in given and not str(device).startswith("cuda"):
        raise UsageError(f"--cuda-graph: --device {device} has no CUDA graphs; leave it out, or time on cuda")
    if "cuda_graph" in given and "composed" in given:
        raise UsageError("--composed and --cuda-graph: a graph captures the whole model; give one of them")
    if "composed" in given and "compile" in given:
        raise UsageError("--composed and --compile: a compiled model has no rows to compose; give one of them")
    if "composed" in given and device == "mps":
        raise UsageError("--composed: --device mps has no seconds of rows to compose; leave it out, or time on cpu")
    stopping = [f"--{name.replace('_', '-')}" for name in ("precision", "max_time", "min_time") if name in given]
    if "runs" in given and stopping:
        raise UsageError(f"--runs and {stopping[0]}: both set how long to measure; give one of them")
    plan = TimingPlan(**values)
    if plan.min_time <= plan.max_time:
        return plan
    if "min_time" in given and "max_time" in given:
        raise UsageError(f"--min-time {plan.min_time:g} is more than --max-time {plan.max_time:g}")
    # the one that is a default gives way
    return plan._replace(max_time=plan.min_time) if "min_time" in given else plan._replace(min_time=plan.max_time)
