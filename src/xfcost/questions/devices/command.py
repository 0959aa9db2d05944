"""`xfcost devices`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from xfcost.commands import options as shared

Names = Annotated[
    list[str] | None,
    typer.Argument(
        help="Devices, as in --on (default: all).", autocompletion=shared.devices_from, metavar="[DEVICE]..."
    ),
]


@shared.options(*shared.REPORT)
def run(names: Names = None, **given: Any) -> None:
    """List the devices that `--on` accepts, with their figures.

    Memory, bandwidth, dense peaks per dtype and links; for one device, every figure with its source. Your own devices
    and prices are read from devices.yaml in the settings folder. This machine is listed after `xfcost calibrate`.

    Example: xfcost devices h100-sxm
    """
    from xfcost.counting.devices import device, device_names, read_devices
    from xfcost.questions.devices.text import document

    target = shared.target_of(given)
    found = [read_devices(name, "devices").device for name in names] if names else [*map(device, device_names())]
    target.document(document(found))
