"""Run options as given -> a checked `Run`: each option by itself, and all of them together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xfcost.counting.training_plan import MESH_OPTIONS, make_plan
from xfcost.ledger.device import DeviceGroup
from xfcost.ledger.errors import UsageError, shown
from xfcost.ledger.options import MOST_NEW, OPTIONS, Logits, RunOptions, read_option, single_share
from xfcost.spec.architecture import PROMPTED
from xfcost.spec.default_options import LANGUAGE_MODEL_MODES, with_defaults
from xfcost.spec.run import Run

if TYPE_CHECKING:
    from typing_extensions import Unpack

_TRAINING = ("optimizer", "tokens", "peak", "mfu", "sustained", "devices", "rate", *MESH_OPTIONS)


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
    on = _devices(given["on"])
    training = {name: given[name] for name in _TRAINING}
    shares = _efficiencies(given, checked["mode"], on)
    if shares["mfu"] is not None:
        training["mfu"] = None
    run = Run(
        tokens=read_option("N", given["N"]),
        size=read_option("size", given["size"]),
        new_tokens=_new_tokens(given["new_tokens"], checked["mode"]),
        logits=_logits(given["logits"], checked["mode"]),
        plan=make_plan(checked["mode"], on=on, **training),
        on=on,
        mfu=shares["mfu"],
        mbu=shares["mbu"],
        **checked,
    )
    return run if run.mode in LANGUAGE_MODEL_MODES else with_defaults(run, ())


def _devices(given: Any) -> DeviceGroup | None:
    """The devices of `--on`; their file is read where they are given.

    Raises:
        XfcostError: there are no such devices.
    """
    if given is None:
        return None
    from xfcost.counting.devices import read_devices

    return read_devices(given)


def _efficiencies(given: dict[str, Any], mode: str, on: DeviceGroup | None) -> dict[str, float | None]:
    """The shares of the devices' peak and bandwidth that an estimate takes; of a training run its plan has them.

    Raises:
        UsageError: one is no share, or there is nothing that it is a share of.
    """
    if given["mbu"] is not None and (on is None or mode == "train"):
        trained = "a training run has no such share; leave it out"
        why = "a share of which memory's bandwidth? Name the devices, as in --on h100-sxm"
        raise UsageError(f"--mbu {shown(given['mbu'])}: {trained if mode == 'train' else why}")
    if on is None or mode == "train":
        return {"mfu": None, "mbu": None}
    mfu = None if given["mfu"] is None else single_share("mfu", given["mfu"], f"in the mode {mode}")
    return {"mfu": mfu, "mbu": read_option("mbu", given["mbu"])}


def _new_tokens(given: Any, mode: str) -> int:
    """m of `--mode generate`, which needs one; 1 in other modes, which have none.

    Raises:
        UsageError: it is missing, given in another mode, or no number.
    """
    if mode != "generate":
        if given is not None:
            raise UsageError(
                f"--new-tokens {shown(given)}: only --mode generate writes; add it, or leave --new-tokens out"
            )
        return 1
    if given is None:
        raise UsageError(f"--new-tokens is missing: expected how many tokens to generate, 1 to {MOST_NEW}")
    return int(read_option("new_tokens", given))


def _logits(given: Any, mode: str) -> Logits | None:
    """`last` or `all`, in the modes that read a prompt; None where the option isn't given.

    Raises:
        UsageError: it is neither, or the mode has no such choice.
    """
    positions: Logits | None = read_option("logits", given)
    if positions is not None and mode not in PROMPTED:
        raise UsageError(
            f"--logits {given}: it is of {' and '.join(f'--mode {name}' for name in PROMPTED)}; forward and train "
            "compute the logits of all positions, decode those of its one token"
        )
    return positions
