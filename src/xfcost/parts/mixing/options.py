"""The option `--probe`."""

# Annotations are evaluated here: the options are read out of them.
from typing import Annotated, TypedDict

from xfcost.ledger.option import Option


class ProbeOption(TypedDict, total=False):
    """Run."""

    probe: Annotated[
        bool,
        Option(
            "Check declared mixing kinds on small grids.",
            default=False,
            python="The ledger's `probe`.",
        ),
    ]
