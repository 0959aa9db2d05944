"""Which option has no effect with what: one table. Such options are refused, so that none is silently given in vain."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from xfcost.api.options import EVERY, OPTIONS, TIMING_OPTIONS, flag_of
from xfcost.ledger.errors import UsageError, shown
from xfcost.ledger.training import MESH_FIELDS
from xfcost.spec.architecture import PROMPTED
from xfcost.spec.input_shapes import NO_MODULE

_TIMES: Final = ("tokens", "peak", "mfu", "mbu", "sustained", "devices")
_DEVICES: Final = ("on", *MESH_FIELDS)
_TIMING: Final = tuple(TIMING_OPTIONS)
_OF_TRAINING: Final = ("optimizer", "tokens", "peak", "mfu", "sustained", "devices", *MESH_FIELDS)
# Run options that a torch module has too.
_OF_MODULES: Final = ("N", "size", "mode", "optimizer", "on", "mfu", "mbu")


class Refusal(NamedTuple):
    """Options, what they need to have an effect, and the message where that isn't there."""

    options: Sequence[str]
    message: str
    """In braces: `all`, `--on, --zero`, those that are given; `first` of them; `value`, the first with what it has."""
    has_effect: Callable[[Mapping[str, Any]], bool] = lambda given: False
    """Is what they need there, among the options and circumstances?"""


def _is_train(given: Mapping[str, Any]) -> bool:
    return given.get("mode") == "train"


WITHOUT_EFFECT: Final[Mapping[str, Sequence[Refusal]]] = {
    "a run": (
        Refusal(
            ("mbu",), "{value}: a training run has no such share; leave it out", lambda given: not _is_train(given)
        ),
        Refusal(
            ("mbu",),
            "{value}: a share of which memory's bandwidth? Name the devices, as in --on h100-sxm",
            lambda given: given.get("on") is not None,
        ),
        Refusal(
            ("new_tokens",),
            "{value}: only --mode generate writes; add it, or leave --new-tokens out",
            lambda given: given.get("mode") == "generate",
        ),
        Refusal(
            ("logits",),
            f"{{value}}: it is of {' and '.join(f'--mode {name}' for name in PROMPTED)}; forward and train compute the "
            "logits of all positions, decode those of its one token",
            lambda given: given.get("mode") in PROMPTED,
        ),
        Refusal(
            ("mfu",),
            "--mfu: it is of training; add --mode train, or --on with the devices, or leave it out",
            lambda given: _is_train(given) or _named(given, _OF_TRAINING) != ["mfu"],
        ),
        Refusal(
            _OF_TRAINING,
            "{all}: {they are} of training; add --mode train, or leave it out",
            _is_train,
        ),
        Refusal(
            tuple(MESH_FIELDS),
            "{first}: how devices share a run; say which they are, as in --on a100-sxm-80x8",
            lambda given: given.get("on") is not None,
        ),
    ),
    "a run without a timing": (
        Refusal(_TIMING, "{first}: nothing is timed here; add --device cpu (in a plot --metric time too)"),
    ),
    "a prediction": (
        Refusal(
            tuple(name for name in _TIMING if name != "threads"),
            "{first}: nothing is timed here; add --device cpu (in a plot --metric time too)",
        ),
    ),
    "a spec": (
        Refusal(
            ("example_inputs", "example_kwargs"),
            "example_inputs: they are of a torch module; a spec knows its inputs (--N, --size, --batch)",
        ),
        Refusal(("tokens_of",), "--tokens-of: a spec knows its tokens; it is of torch modules"),
        Refusal(("inputs", "build"), NO_MODULE),
        Refusal(
            ("probe", "mixing"),
            "{first}: of --mode {mode} a step reads its cache; probe the forward, without --mode",
            lambda given: given.get("mode") not in ("decode", "generate"),
        ),
    ),
    "specs side by side": (
        Refusal(
            ("mixing", "mixing_time"),
            "{first}: a spec declares how its operations mix tokens; `analyze --probe` checks it",
        ),
    ),
    "measured specs": (Refusal(("mixing",), "--mixing: a spec declares how its operations mix tokens; leave it out"),),
    "a module": (
        Refusal(
            ("settings", "probe", *(name for name in OPTIONS if name not in _OF_MODULES)),
            "{value}: that is of specs; a module is counted as it is, on the inputs that it is given",
        ),
        Refusal(
            ("predict",),
            "--predict: of a torch module a forward is predicted; --device times its training step",
            lambda given: not _is_train(given),
        ),
    ),
    "a module with a cache": (
        Refusal(
            ("device", "predict", "mixing", "mixing_time"),
            "{first}: of --mode {mode} a module is counted alone; leave {first} out",
        ),
    ),
    "a module among systems": (
        Refusal(
            ("mode", "device", "memory_level", "tokens"),
            "{value}: {name} is a torch module, of which {counted} is counted; give specs alone, or leave {first} out",
        ),
        Refusal(
            ("predict",),
            "--predict: of a torch module a forward is predicted; --device times its training step",
            lambda given: not given["trains"],
        ),
    ),
    "roofline": (
        Refusal(("compile",), "--compile: a compiled model has no operations that are timed apart; leave it out"),
    ),
    "roofline --predict": (
        Refusal(
            tuple(name for name in _TIMING if name != "threads"),
            "{first} with --predict: nothing is timed; leave one of them out",
        ),
    ),
    "roofline --on": (
        Refusal(("device", "predict", *_TIMING), "{first} with --on: nothing is run or timed; leave one of them out"),
    ),
    "check": (
        Refusal(_TIMES, "{all}: check holds budgets of counts and bytes, not of times; `xfcost analyze` takes it"),
        Refusal(
            ("memory_level",),
            "{all}: check has no budget of main-memory traffic; `xfcost analyze` takes it",
            lambda given: given["against"],
        ),
        Refusal(
            _DEVICES,
            "{all}: check takes devices with --mode train and --max-memory, the memory of one of them; `xfcost analyze "
            "--on` says whether another run fits",
            lambda given: given["of_memory"] and _is_train(given),
        ),
        Refusal(
            ("global_batch",),
            "{all}: without --pipeline it changes no memory; leave it out, or add --pipeline",
            lambda given: bool(_named(given, ("pipeline",))),
        ),
    ),
    "diff": (
        Refusal(
            (*_DEVICES, *_TIMES),
            "{all}: diff compares counts and bytes of one model, not of devices; `xfcost analyze` does",
        ),
    ),
    "saved runs": (
        Refusal(
            (*OPTIONS, "settings", "predict"),
            "{all}: both sides are saved, and have the runs of their files; leave it out",
        ),
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
                "they are": "it is" if len(names) == 1 else "they are",
            }
            raise UsageError(one.message.format(**known | words))


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
