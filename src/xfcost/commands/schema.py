"""`xfcost schema`."""

from __future__ import annotations

import sys


def run() -> None:
    """The JSON Schema of a spec file.

    For editors that complete and check, and for programs that write specs.

    Example: xfcost schema
    """
    from xfcost.ledger.objects import json_text
    from xfcost.ledger.visible import json_written
    from xfcost.spec.schema import json_schema

    sys.stdout.write(json_written(json_text(json_schema()), sys.stdout))
