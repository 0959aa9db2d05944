"""`xfcost schema`."""

from __future__ import annotations

import sys


def run() -> None:
    """Print the JSON Schema of a spec file.

    Editors use it to complete and check specs, and programs use it to write them.

    Example: xfcost schema
    """
    from xfcost.ledger.json_objects import json_text
    from xfcost.ledger.visible import json_written
    from xfcost.spec.schema import json_schema

    sys.stdout.write(json_written(json_text(json_schema()), sys.stdout))
