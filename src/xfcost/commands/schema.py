"""`xfcost schema`."""

from __future__ import annotations

import json
import sys


def run() -> None:
    """The JSON Schema of a spec file.

    For editors that complete and check, and for programs that write specs.
    """
    from xfcost.spec.schema import json_schema

    sys.stdout.write(json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n")
