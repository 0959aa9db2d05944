"""Programs whose rows are declared wrongly, while their models run as they should."""

from collections.abc import Callable
from typing import Any

import msgspec

from xfcost.ledger.operation import Operation
from xfcost.program.tape import Tape


def declared_wrongly(forward: Any, path: str, **wrong: Callable[[Operation], Any]) -> Any:
    """The `forward` of a program, whose row `path` has other fields on a tape."""

    def changed(self: Any, t: Any, *inputs: Any) -> Any:
        answer = forward(self, t, *inputs)
        if isinstance(t, Tape):
            fields = {name: value(t.rows[path]) for name, value in wrong.items()}
            t.rows[path] = msgspec.structs.replace(t.rows[path], **fields)
        return answer

    return changed
