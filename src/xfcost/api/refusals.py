"""Options that have no effect with what else is given: one table refuses them, and none is silently given in vain."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, Final, NamedTuple

from xfcost.api.options import EVERY, OPTIONS, TIMING_OPTIONS, flag_of
from xfcost.ledger.errors import UsageError, shown
from xfcost.ledger.execution import WITH_CACHE
from xfcost.parts.training.result import MESH_FIELDS
from xfcost.spec.architecture import PROMPTED
from xfcost.spec.targets import NO_MODULE

_TIMES: Final = ("tokens", "peak", "mfu", "flops", "mbu", "sustained", "devices")
_DEVICES: Final = ("on", *MESH_FIELDS)
_TIMING: Final = tuple(TIMING_OPTIONS)
_TIMED_ALONE: Final = tuple(name for name in _TIMING if name != "threads")
_RESERVED: Final = ("memory_share", "cache_blocks")
_HOSTED: Final = ("offload", "host", "host_memory")
SHARED: Final = ("tensor_parallel", "pipeline", "expert_parallel")
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


def is_train(given: Mapping[str, Any]) -> bool:
    """Is it a training step?"""
    return given.get("mode") == "train"


def _is_no_train(given: Mapping[str, Any]) -> bool:
    return not is_train(given)


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
            lambda given: not _named(given, SHARED),
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
            is_train,
        ),
        Refusal(
            ("mfu",),
            "--mfu: only for --mode train or --on; add one of them, or leave --mfu out",
            lambda given: is_train(given) or _named(given, OF_TRAINING) != ["mfu"],
        ),
        Refusal(
            ("expert_parallel",),
            "{value}: a training plan divides experts as other linear maps; leave it out",
            _is_no_train,
        ),
        Refusal(
            tuple(name for name in OF_TRAINING if name not in SHARED),
            "{all}: only for --mode train; add it, or leave {all} out",
            is_train,
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
            lambda given: not _named(given, SHARED),
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
            lambda given: _has_devices(given) or (is_train(given) and given.get("peak") is not None),
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
            "{all}: check takes devices without a budget, to check that the run fits; with --max-seconds or "
            "--max-increase, for their lower bound; and with --mode train and --max-memory, the memory of one of them; "
            "`xfcost analyze` takes them always",
            lambda given: given["fits"] or given["of_seconds"] or (given["of_memory"] and is_train(given)),
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
        Refusal(SHARED, "{value}: find divides work perfectly among devices; `xfcost analyze` takes it"),
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
    counts = [str(given.get(name)) for name in SHARED]
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
