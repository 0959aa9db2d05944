"""Options of a run that change no figure of `check` and `diff`: refused, so that none is silently without effect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from xfcost.counting.training_plan import MESH_OPTIONS
from xfcost.ledger.budgets import Budget
from xfcost.ledger.errors import UsageError
from xfcost.ledger.options import OPTIONS

_OF_TIMES: Final = ("tokens", "peak", "mfu", "mbu", "sustained", "devices")
_OF_DEVICES: Final = ("on", *MESH_OPTIONS)


def refuse_in_check(options: Mapping[str, Any], budgets: Sequence[Budget], *, against: bool) -> None:
    """Refuse what changes no figure that the budgets hold.

    Devices are of the memory of a training step alone. `against` says whether there is another run to be like.

    Raises:
        UsageError: one of the options is given in vain.
    """
    given = {name: value for name, value in options.items() if _is_given(name, value)}
    if vain := _named(given, _OF_TIMES):
        raise UsageError(f"{vain}: check holds budgets of counts and bytes, not of times; `xfcost analyze` takes it")
    if not against and (vain := _named(given, ("memory_level",))):
        raise UsageError(f"{vain}: check has no budget of main-memory traffic; `xfcost analyze` takes it")
    of_memory = any(budget.quantity == "memory" for budget in budgets)
    if not (of_memory and given.get("mode") == "train") and (vain := _named(given, _OF_DEVICES)):
        raise UsageError(
            f"{vain}: check takes devices with --mode train and --max-memory, the memory of one of them; `xfcost "
            "analyze --on` says whether another run fits"
        )
    if "pipeline" not in given and (vain := _named(given, ("global_batch",))):
        raise UsageError(f"{vain}: without --pipeline it changes no memory; leave it out, or add --pipeline")


def refuse_in_diff(options: Mapping[str, Any]) -> None:
    """Refuse what changes no figure of two runs that are compared.

    Raises:
        UsageError: one of the options is given in vain.
    """
    if vain := _named(options, (*_OF_DEVICES, *_OF_TIMES)):
        raise UsageError(f"{vain}: diff compares counts and bytes of one model, not of devices; `xfcost analyze` does")


def refuse_of_saved(options: Mapping[str, Any], **others: Any) -> None:
    """Refuse options beside two files, whose runs are what they are; `others` are those of no run.

    Raises:
        UsageError: one is given.
    """
    given = [f"--{name}" for name, value in others.items() if value]
    if vain := ", ".join(filter(None, (_named(options, tuple(OPTIONS)), *given))):
        raise UsageError(f"{vain}: both sides are saved, and have the runs of their files; leave it out")


def _is_given(name: str, value: Any) -> bool:
    """Is it another value than that of a run without the option?"""
    return name not in OPTIONS or (value is not None and str(value) != str(OPTIONS[name].default))


def _named(options: Mapping[str, Any], names: Sequence[str]) -> str:
    """`--on, --zero`: those of `names` that are given."""
    given = [name for name in names if name in options and _is_given(name, options[name])]
    return ", ".join(f"--{name.replace('_', '-')}" for name in given)
