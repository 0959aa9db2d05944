"""The options of `--on` in training, checked."""

from __future__ import annotations

from typing import Any, Final

from xfcost.ledger.device import DeviceGroup
from xfcost.ledger.distributed import Mesh
from xfcost.ledger.errors import UsageError
from xfcost.ledger.options import read_option

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
