"""The versions of the libraries that a torch account depends on."""

from __future__ import annotations

from importlib.metadata import version

import msgspec

from xfcost.ledger.ledger import Ledger


def with_versions(ledger: Ledger) -> Ledger:
    """`ledger` with the versions of torch and fvcore."""
    versions = {package: version(package) for package in ("torch", "fvcore")}
    metadata = msgspec.structs.replace(ledger.metadata, versions=ledger.metadata.versions | versions)
    return msgspec.structs.replace(ledger, metadata=metadata)
