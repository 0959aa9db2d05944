"""Options as given -> a checked `Run`, its training plan, and the plan of a timing: each option, and all together.

An option that has no effect with what else is given is refused, by one table, so that none is silently given in vain.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from xfcost.api.options import (
    EVERY,
    MOST_NEW,
    OPTIONS,
    TIMING_OPTIONS,
    BudgetOptions,
    RunOptions,
    flag_of,
    read_option,
    single_share,
)
from xfcost.formulas.optimizers import OPTIMIZERS
from xfcost.ledger.achieved import StepTime
from xfcost.ledger.device import DeviceGroup
from xfcost.ledger.errors import UsageError, nearest, shown
from xfcost.ledger.execution import WITH_CACHE, Convention
from xfcost.ledger.lora import Lora
from xfcost.ledger.offload import Offload
from xfcost.ledger.parallelism import Parallelism
from xfcost.ledger.timing_plan import TimingPlan
from xfcost.parts.serving.options import USUAL_HOST, DraftOptions
from xfcost.parts.training.result import MESH_FIELDS, Mesh, RunPlan
from xfcost.spec.architecture import PROMPTED
from xfcost.spec.run import Run, is_deployed, with_defaults
from xfcost.spec.targets import NO_MODULE

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from xfcost.ledger.budgets import Budget
    from xfcost.parts.serving.speculative import Draft


_TIMES: Final = ("tokens", "peak", "mfu", "flops", "mbu", "sustained", "devices")
_DEVICES: Final = ("on", *MESH_FIELDS)
_TIMING: Final = tuple(TIMING_OPTIONS)
_TIMED_ALONE: Final = tuple(name for name in _TIMING if name != "threads")
_RESERVED: Final = ("memory_share", "cache_blocks")
_HOSTED: Final = ("offload", "host", "host_memory")
_SHARED: Final = ("tensor_parallel", "pipeline", "expert_parallel")
# What draft and target together are not counted with; vLLM has no pipelines with a draft either.
_NO_ROUNDS: Final = ("pipeline", "offload", "tokens_per_user", "device", "predict", "step_time")
_UNTIMED: Final = "{first}: applies only to timed runs; add --device cpu (in a plot also --metric time)"
_ONE_FORWARD: Final = "--predict: of a torch module a forward is predicted; --device times its training step"
_ADAPTERS: Final = ("lora", "lora_on")
OF_TRAINING: Final = ("optimizer", "tokens", "peak", "mfu", "flops", "sustained", "devices", *MESH_FIELDS)
_IN_PROMPTS: Final = " and ".join(f"--mode {name}" for name in PROMPTED)
# Run options that a torch module has too.
_OF_MODULES: Final = (
    "N", "size", "mode", "new_tokens", "cached_prefix", "on", "mbu", "weights", "cache", "expert_parallel",
    *_ADAPTERS, *_RESERVED, *_HOSTED, *OF_TRAINING,
)  # fmt: skip


class Refusal(NamedTuple):
    """Options, what they need to have an effect, and the message where that isn't there."""

    options: Sequence[str]
    message: str
    """In braces: `all`, `--on, --zero`, those that are given; `first` of them; `value`, the first with what it has;
    `enough`, devices for a plan that shares a model among as many as are given."""
    has_effect: Callable[[Mapping[str, Any]], bool] = lambda given: False
    """Is what they need there, among the options and circumstances?"""


def _is_train(given: Mapping[str, Any]) -> bool:
    return given.get("mode") == "train"


def _is_no_train(given: Mapping[str, Any]) -> bool:
    return not _is_train(given)


def _has_adapters(given: Mapping[str, Any]) -> bool:
    return given.get("lora") is not None


def _has_devices(given: Mapping[str, Any]) -> bool:
    return given.get("on") is not None


WITHOUT_EFFECT: Final[Mapping[str, Sequence[Refusal]]] = {
    "a run": (
        Refusal(("mbu",), "{value}: does not apply to a training run; leave it out", _is_no_train),
        Refusal(("mbu",), "{value}: needs devices, as in --on h100-sxm", _has_devices),
        Refusal(("lora_on",), "{value}: needs the rank of the adapters, as in --lora 8", _has_adapters),
        Refusal(
            ("weights",),
            "{value}: a training run computes in --dtype; leave it out, or freeze these weights, as in --lora 8",
            lambda given: _is_no_train(given) or _has_adapters(given),
        ),
        Refusal(("cache",), "{value}: a training run computes in --dtype; leave it out", _is_no_train),
        Refusal(
            ("cache",),
            "{value}: --mode {mode} has no cache; add --mode decode, prefill or generate, or leave it out",
            lambda given: given.get("mode") not in ("forward", None),
        ),
        Refusal((*_RESERVED, *_HOSTED), "{value}: needs devices, as in --on h100-sxm", _has_devices),
        Refusal(
            ("cache_blocks",),
            "{value}: --mode {mode} has no cache; add --mode decode, prefill or generate, or leave it out",
            lambda given: given.get("mode") in WITH_CACHE,
        ),
        Refusal(_HOSTED, "{value}: does not apply to a training run; leave it out", _is_no_train),
        Refusal(
            ("host", "host_memory"),
            "{value}: needs blocks that stay on the host, as in --offload 8",
            lambda given: given.get("offload") is not None,
        ),
        Refusal(
            _HOSTED,
            "{value}: assumes devices that divide the other blocks perfectly; leave out how they share the model",
            lambda given: not _named(given, _SHARED),
        ),
        Refusal(
            ("new_tokens",),
            "{value}: applies only to --mode generate; add it, or leave --new-tokens out",
            lambda given: given.get("mode") == "generate",
        ),
        Refusal(
            ("cached_prefix",),
            f"{{value}}: only for {_IN_PROMPTS}, which compute a prompt; a decode step has all earlier tokens cached",
            lambda given: given.get("mode") in PROMPTED,
        ),
        Refusal(
            ("logits",),
            f"{{value}}: only for {_IN_PROMPTS}; forward and train compute "
            "the logits of all positions, decode those of its one token",
            lambda given: given.get("mode") in PROMPTED,
        ),
        Refusal(
            ("flops",),
            "{value}: only for --mode train, whose MFU counts them; elsewhere an MFU is of the pairs that masks keep, "
            "and a report has the FLOPs by every convention",
            _is_train,
        ),
        Refusal(
            ("mfu",),
            "--mfu: only for --mode train or --on; add one of them, or leave --mfu out",
            lambda given: _is_train(given) or _named(given, OF_TRAINING) != ["mfu"],
        ),
        Refusal(
            ("expert_parallel",),
            "{value}: a training plan divides experts as other linear maps; leave it out",
            _is_no_train,
        ),
        Refusal(
            tuple(name for name in OF_TRAINING if name not in _SHARED),
            "{all}: only for --mode train; add it, or leave {all} out",
            _is_train,
        ),
        Refusal(
            # a torch module recomputes without devices too
            (*(name for name in MESH_FIELDS if name != "checkpoint"), "expert_parallel"),
            "{first}: needs devices, as in --on {enough}",
            _has_devices,
        ),
    ),
    "choosing": (
        Refusal(("price", "tokens_per_user"), "{value}: needs devices, as in --on h100-sxm,l40s", _has_devices),
        Refusal(
            ("tokens_per_user",),
            "{value}: applies only to --mode decode; add it, or leave it out",
            lambda given: given.get("mode") == "decode",
        ),
        Refusal(
            ("tokens_per_user",),
            "{value}: assumes devices that divide everything perfectly; leave out how they share the model",
            lambda given: not _named(given, _SHARED),
        ),
        Refusal(
            ("tokens_per_user",),
            "{value}: all blocks are on the devices in it; leave --offload out",
            lambda given: given.get("offload") is None,
        ),
    ),
    "a draft": (
        Refusal(
            ("draft_tokens", "accepted", "acceptance"),
            "{value}: is of speculative decoding; add its draft, as in --draft llama3.2-1b or --draft ngram",
            lambda given: given.get("draft") is not None,
        ),
        Refusal(
            ("draft",),
            "{value}: applies only to --mode decode and --mode generate; add one of them, or leave --draft out",
            lambda given: given.get("mode") in ("decode", "generate"),
        ),
        Refusal(
            _NO_ROUNDS,
            "{value}: rounds of --draft are counted without it; leave one of them out",
            lambda given: given.get("draft") is None,
        ),
    ),
    "a measured step": (
        Refusal(
            ("mfu", "mbu", "sustained"),
            "{value} and --step-time: the measured time gives the utilisation; leave one of them out",
        ),
        Refusal(
            ("device", "predict"),
            "{value} and --step-time: both say how long the run takes; leave one of them out",
        ),
        Refusal(
            ("step_time",),
            "{value}: needs the peak that it is a share of, as in --on h100-sxm, or in training --peak 312T",
            lambda given: _has_devices(given) or (_is_train(given) and given.get("peak") is not None),
        ),
    ),
    "devices side by side": (
        Refusal(
            (
                "device",
                "predict",
                "step_time",
                "probe",
                "memory_level",
                "draft",
                *MESH_FIELDS,
                "expert_parallel",
                *_HOSTED,
            ),
            "{first}: needs one device, and --on has {devices}; give one in --on, or leave {first} out",
        ),
    ),
    "a cached prefix": (
        Refusal(
            ("trace", "device", "predict", "probe", "mixing"),
            "{first}: what runs is a whole prompt, and --cached-prefix is counted in closed form; leave one of them "
            "out",
        ),
    ),
    "a run without a timing": (Refusal(_TIMING, _UNTIMED),),
    "a prediction": (Refusal(_TIMED_ALONE, _UNTIMED),),
    "a spec": (
        Refusal(
            ("example_inputs", "example_kwargs"),
            "example_inputs: only for torch modules; a spec has its inputs (--N, --size, --batch)",
        ),
        Refusal(("tokens_of",), "--tokens-of: only for torch modules; a spec declares its tokens"),
        Refusal(("cache_in", "cache_out"), "{first}: only for torch modules; a spec declares its cache"),
        Refusal(("inputs", "build"), NO_MODULE),
        Refusal(
            ("probe", "mixing"),
            "{first}: does not support --mode {mode}, whose steps read a cache; probe the forward, without --mode",
            lambda given: given.get("mode") not in ("decode", "generate"),
        ),
    ),
    "specs side by side": (
        Refusal(
            ("mixing", "mixing_limit"),
            "{first}: a spec declares how its operations mix tokens; `analyze --probe` checks it",
        ),
    ),
    "a measured spec": (
        Refusal(("checkpoint",), "{value}: only for torch modules; a spec's step is measured without, leave it out"),
    ),
    "measured specs": (Refusal(("mixing",), "--mixing: a spec declares how its operations mix tokens; leave it out"),),
    "a module": (
        Refusal(
            ("settings", "probe", *(name for name in OPTIONS if name not in _OF_MODULES)),
            "{value}: only specs take it; a module is counted as it is, on the inputs that it is given",
        ),
        Refusal(
            ("tensor_parallel", "pipeline", "sequence_parallel"),
            "{first}: for specs only; every device runs all of a torch module, and --zero 1, 2 or 3 shares out its "
            "optimizer states, gradients and parameters",
            _is_no_train,
        ),
        Refusal(("predict",), _ONE_FORWARD, _is_no_train),
        Refusal(
            ("cache_in", "cache_out"),
            "{value}: only --mode prefill, decode and generate have a cache; add one of them, or leave it out",
            lambda given: given.get("mode") in WITH_CACHE,
        ),
    ),
    "a given module": (
        Refusal(
            ("inputs", "build"),
            "{all}: only for modules that are named, as in model.py:Net; one that is given is built, and has "
            "example_inputs",
        ),
    ),
    "a module with a cache": (
        Refusal(
            ("device", "predict", "mixing", "mixing_limit"),
            "{first}: does not support --mode {mode} of a module, which is only counted; leave {first} out",
        ),
    ),
    "a module among systems": (
        Refusal(
            ("mode", "device", "memory_level"),
            "{value}: {name} is a torch module, of which {counted} is counted; give only specs, or leave {first} out",
        ),
        Refusal(("predict",), _ONE_FORWARD, lambda given: not given["trains"]),
    ),
    "roofline": (
        Refusal(("compile",), "--compile: a compiled model has no separate operations to time; leave it out"),
    ),
    "roofline --predict": (Refusal(_TIMED_ALONE, "{first} with --predict: nothing is timed; leave one of them out"),),
    "roofline --on": (
        Refusal(("device", "predict", *_TIMING), "{first} with --on: nothing is run or timed; leave one of them out"),
    ),
    "check": (
        Refusal(
            _TIMES,
            "{all}: check holds the lower bound of --on or a prediction against --max-seconds, and no estimate; "
            "`xfcost analyze` takes it",
        ),
        Refusal(
            ("memory_level",),
            "{all}: check has no budget of main-memory traffic; `xfcost analyze` takes it",
            lambda given: given["against"],
        ),
        Refusal(
            (*_DEVICES, "expert_parallel", *_RESERVED, *_HOSTED),
            "{all}: check takes devices with --max-seconds or --max-increase, their lower bound, and with --mode train "
            "and --max-memory, the memory of one of them; `xfcost analyze --on` says whether another run fits",
            lambda given: given["of_seconds"] or (given["of_memory"] and _is_train(given)),
        ),
        Refusal(
            ("predict",),
            "{first}: a prediction is of seconds; add --max-seconds 10ms, or --max-increase 2% with --against",
            lambda given: given["of_seconds"],
        ),
        Refusal(
            ("global_batch",),
            "{all}: without --pipeline it changes no memory; leave it out, or add --pipeline",
            lambda given: bool(_named(given, ("pipeline",))),
        ),
    ),
    "diff": (
        Refusal(
            (*_DEVICES, *_TIMES, "weights", "cache", "expert_parallel", *_RESERVED, *_HOSTED),
            "{all}: diff compares counts and bytes of one model, not of devices; `xfcost analyze` does",
        ),
    ),
    "saved runs": (
        Refusal(
            (*OPTIONS, "settings", "predict"),
            "{all}: both sides are saved, and have the runs of their files; leave it out",
        ),
    ),
    "a run on a device": (
        Refusal(
            ("weights", "cache"), "{value}: what runs here is in --dtype; leave out {first}, or --device and --predict"
        ),
    ),
    "find": (
        Refusal(("cache",), "{value}: find counts caches in --dtype; `xfcost analyze` takes it"),
        Refusal(_SHARED, "{value}: find divides work perfectly among devices; `xfcost analyze` takes it"),
        Refusal(_HOSTED, "{value}: find has all blocks on the devices; `xfcost analyze` takes it"),
    ),
    "plot": (Refusal(_HOSTED, "{value}: a plot has all blocks on the devices; `xfcost analyze` takes it"),),
    "find --vary N": (
        Refusal(("N", "size"), "{value} and --vary N: both say how long the input is; give one of them"),
    ),
    "find --vary batch": (
        Refusal(("batch",), "{value} and --vary batch: both say how many samples there are; give one of them"),
    ),
    "find without --vary": (
        Refusal(
            ("limit", "scheduler", "jobs"), "{first}: it is of a search over ranges; add --vary, or leave {first} out"
        ),
    ),
}


def refuse(where: str, given: Mapping[str, Any], **circumstances: Any) -> None:
    """Refuse those of the options `given` that have no effect in `where`, a row of the table.

    Raises:
        UsageError: one is given.
    """
    known = {**given, **circumstances}
    for one in WITHOUT_EFFECT[where]:
        names = _named(given, one.options)
        if names and not one.has_effect(known):
            flags = [flag_of(name).partition("/")[0] for name in names]
            words = {
                "all": ", ".join(flags),
                "first": flags[0],
                "value": _with_value(names[0], flags[0], given[names[0]]),
                "enough": _enough(given),
            }
            raise UsageError(one.message.format(**known | words))


def _enough(given: Mapping[str, Any]) -> str:
    """`h100x4` of `--tensor-parallel 4`; eight devices where no number says how many."""
    counts = [str(given.get(name)) for name in _SHARED]
    number = prod(int(one) for one in counts if one.isdecimal())
    return f"h100x{number}" if number > 1 else "a100-sxm-80x8"


def _with_value(name: str, flag: str, value: Any) -> str:
    if value is True:
        return flag
    return f"{flag} {' '.join(map(shown, value)) if name == 'settings' else shown(value)}"


def _named(given: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Those of `names` that are given another value than that of a run without the option."""
    found = []
    for name in names:
        value, default = given.get(name), EVERY[name].default if name in EVERY else None
        absent = value is None or value is False or (isinstance(value, list | tuple) and not value)
        if not absent and (default is None or str(value) != str(default)):
            found.append(name)
    return found


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
        if _is_train(given):
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
    tensor, pipeline, expert = (read_option(name, given.get(name)) or 1 for name in _SHARED)
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
    degrees = {name.removesuffix("_parallel"): read_option(name, given[name]) for name in _SHARED if given[name]}
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
