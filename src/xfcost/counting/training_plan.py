"""The options of a training run, checked: optimizer, tokens, devices and their rate, how devices share it."""

from __future__ import annotations

from typing import Any, Final

from xfcost.formulas.conventions import OPTIMIZERS
from xfcost.ledger.device import DeviceGroup
from xfcost.ledger.errors import UsageError, nearest, shown
from xfcost.ledger.options import read_option, single_share
from xfcost.ledger.training import Mesh, RunPlan

# Options of a mesh -> the field of `Mesh`.
MESH_OPTIONS: Final[dict[str, str]] = {
    "zero": "zero",
    "checkpoint": "checkpoint",
    "tensor_parallel": "tensor",
    "pipeline": "pipeline",
    "sequence_parallel": "sequence_parallel",
    "global_batch": "global_batch",
    "gradients": "gradients",
}


def make_mesh(on: DeviceGroup | None, mfu: Any, given: dict[str, Any]) -> Mesh | None:
    """The mesh of a run on devices; None without devices. `given` are the options of `MESH_OPTIONS`.

    Raises:
        UsageError: an option can't be, or there are no devices for it.
    """
    named = {name: value for name, value in given.items() if value is not None and value is not False}
    if on is None:
        if named:
            first = f"--{next(iter(named)).replace('_', '-')}"
            raise UsageError(f"{first}: how devices share a run; say which they are, as in --on a100-sxm-80x8")
        return None
    fields = {MESH_OPTIONS[name]: read_option(name, value) for name, value in named.items()}
    return Mesh(on=on, mfus=() if mfu is None else read_option("mfu", mfu), **fields)


# `--rate` is refused: it could be a sustained rate or a peak.
_RATE_REMOVED: Final = (
    "say which rate it is: --sustained 125T is what a device really does in training, "
    "--peak 312T --mfu 40% a datasheet's peak and the share of it that model FLOPs get"
)
_DEVICES_WITHOUT_RATE: Final = (
    "--devices: they share a run's FLOPs; say what each does, as in --peak 312T --mfu 40%, or --sustained 125T"
)


def make_plan(
    mode: str, *, optimizer: str | None = None, tokens: Any = None, on: DeviceGroup | None = None, **given: Any
) -> RunPlan | None:
    """The checked plan of `--mode train`; None in other modes, which take none of these options but `on`.

    `on` are the devices of `--on`, which other modes have too; `given` the options of a rate (`peak`, `mfu`,
    `sustained`, `devices`; `rate` is refused) and those of `MESH_OPTIONS`.

    Raises:
        UsageError: any of them can't be.
    """
    if (rate := given.pop("rate", None)) is not None:
        raise UsageError(f"--rate {shown(rate)}: {_RATE_REMOVED}")
    speed = {name: given.pop(name, None) for name in ("peak", "mfu", "sustained", "devices")}
    peak, mfu, sustained, devices = speed.values()
    every = {"optimizer": optimizer, "tokens": tokens} | speed | given
    named = [f"--{name.replace('_', '-')}" for name, value in every.items() if value is not None and value is not False]
    if mode != "train":
        if not named:
            return None
        verb = "it is" if len(named) == 1 else "they are"
        devices_too = ", or --on with the devices" if named == ["--mfu"] else ""
        raise UsageError(f"{', '.join(named)}: {verb} of training; add --mode train{devices_too}, or leave it out")
    name = "adamw" if optimizer is None else str(optimizer)
    if name not in OPTIMIZERS:
        raise UsageError(f"--optimizer {shown(optimizer)}: {nearest(name, OPTIMIZERS)}")
    if on is not None:
        for option in ("peak", "sustained", "devices"):
            if speed[option] is not None:
                raise UsageError(f"--{option}: --on {on.name} says it already; give one of the two")
        made = make_mesh(on, mfu, given)
        return RunPlan(optimizer=name, tokens=read_option("tokens", tokens), devices=on.count, mesh=made)
    make_mesh(None, None, given)
    if tokens is None and any(value is not None for value in speed.values()):
        named = [f"--{option}" for option, value in speed.items() if value is not None]
        raise UsageError(f"{named[-1]}: a rate makes days of a whole run; say how long it is, as in --tokens 300e9")
    if devices is not None and peak is None and sustained is None:
        raise UsageError(_DEVICES_WITHOUT_RATE)
    return RunPlan(
        optimizer=name,
        tokens=read_option("tokens", tokens),
        **_rates(peak, mfu, sustained),
        devices=read_option("devices", 1 if devices is None else devices),
    )


def _rates(peak: Any, mfu: Any, sustained: Any) -> dict[str, Any]:
    """`rate`, a sustained rate as given or peak · mfu, and in the second case `peak` and `mfu`.

    Raises:
        UsageError: `peak` or `mfu` is missing, or both ways are given.
    """
    if sustained is not None and (peak is not None or mfu is not None):
        raise UsageError("--sustained: it stands in place of --peak and --mfu; give it, or the two")
    if sustained is not None:
        return {"rate": read_option("sustained", sustained)}
    if peak is None and mfu is None:
        return {}
    if mfu is None:
        raise UsageError(
            "--peak: no device trains at the peak of its datasheet; say what share of it the model's FLOPs get, as in "
            "--mfu 40% (in print: 21.3% for GPT-3, 46.2% for PaLM; Chowdhery et al. 2022, table 3)"
        )
    if peak is None:
        raise UsageError(
            "--mfu: a share of what? Give the device, as in --on a100-sxm-80x8, or its peak, as in --peak 312T (A100, "
            "dense bfloat16)"
        )
    high, share = read_option("peak", peak), single_share("mfu", mfu, "with --peak")
    return {"rate": high * share, "peak": high, "mfu": share}
