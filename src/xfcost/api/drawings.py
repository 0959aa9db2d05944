"""The ledger of a system that is drawn: of a module with its mixing kinds, where it runs on real numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xfcost.api.systems import check_options, mixing_limit
from xfcost.counting.system import AccountOptions, System
from xfcost.ledger.errors import NoNumbersError
from xfcost.ledger.ledger import Ledger
from xfcost.spec.run import Run


def drawn_ledger(system: System, run: Run, options: Mapping[str, Any]) -> Ledger:
    """The ledger of one system, with orders; of a module with its kinds, where it can be run on real numbers.

    Raises:
        XfcostError: it can't have that size, or an option is for specs only.
    """
    check_options(system, run)
    how = AccountOptions(strict=bool(options.get("strict")), progress=options.get("progress"))
    try:
        limit = mixing_limit(options.get("mixing", True), options.get("mixing_limit"))
        return system.account(run, how._replace(mixing=limit))
    except NoNumbersError as error:
        how.say(f"{error}; its kinds are left out here")
        return system.account(run, how)
