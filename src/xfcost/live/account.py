"""The live accounts of a spec: its model built, traced and timed, laid beside the counted ledger."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version

import msgspec

from xfcost.ledger import Ledger, join, with_seconds
from xfcost.live.build import build
from xfcost.live.clock import check_device, time_model
from xfcost.live.memory import check_addressable, check_room, peak_bytes
from xfcost.live.trace import traced_rows
from xfcost.spec.architecture import Architecture


def traced(architecture: Architecture, ledger: Ledger) -> Ledger:
    """`ledger` joined with the trace of the real model on `meta`.

    Raises:
        DeviceError: a tensor of the model would be larger than torch can address, even on `meta`.
    """
    check_addressable(ledger)
    live = build(architecture)
    rows, loose = traced_rows(live.model, live.inputs, live.rows)
    return join(_with_versions(ledger), rows, loose)


def timed(architecture: Architecture, ledger: Ledger, device: str, say: Callable[[str], None]) -> Ledger:
    """`ledger` with the seconds of the real model on `device`.

    Raises:
        DeviceError: the device isn't there, or the model doesn't fit; nothing was allocated.
    """
    check_device(device)
    check_addressable(ledger)
    on_meta = build(architecture)
    predicted = peak_bytes(on_meta.model, on_meta.inputs)
    check_room(predicted, device, ledger.facts.name)
    say(f"building {ledger.facts.name} on {device} …")
    live = build(architecture, device)
    seconds, timing = time_model(live, device, predicted, say)
    return with_seconds(_with_versions(ledger), seconds, timing)


def _with_versions(ledger: Ledger) -> Ledger:
    """What ran beside xfcost."""
    versions = {package: version(package) for package in ("torch", "fvcore")}
    facts = msgspec.structs.replace(ledger.facts, versions=ledger.facts.versions | versions)
    return msgspec.structs.replace(ledger, facts=facts)
