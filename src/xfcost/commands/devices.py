"""`xfcost devices`."""

from __future__ import annotations

from typing import Annotated

import typer

from xfcost.commands import options as shared
from xfcost.report.output import check_target


def _completed(incomplete: str) -> list[str]:
    from xfcost.counting.devices.find import device_names

    return [name for name in device_names() if name.startswith(incomplete)]


Names = Annotated[
    list[str] | None,
    typer.Argument(help="Devices, as after --on; all by default.", autocompletion=_completed, metavar="[DEVICE]..."),
]


def run(
    names: Names = None,
    format_: shared.FormatOption = None,
    columns: shared.Columns = None,
    output: shared.Output = None,
    force: shared.Force = False,
) -> None:
    """The devices that `--on` knows, with their figures.

    Memory, bandwidth, dense peaks per dtype, links. Of one device all figures with their sources. Your own devices and
    prices are read from devices.yaml in the folder of the program's settings; this machine is listed once it is
    calibrated (`xfcost calibrate`).
    """
    from xfcost.counting.devices.find import device, device_names, read_devices
    from xfcost.report.devices import document

    form = shared.chosen_format(format_, output)
    check_target(output, force=force)
    found = [read_devices(name, "devices").device for name in names] if names else [*map(device, device_names())]
    report = document(found)
    shared.deliver_report(report.terminal, lambda: report.text(form), form, output, force=force)
