"""A user's own counts of custom operations: `xfcost.register("library::operation")`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from xfcost.ledger.accounts import RUN
from xfcost.ledger.errors import UsageError, shown

# The arguments of the operation and `out`, its result -> MACs, or {"macs", "flops", "comparisons", "moved"}.
Count = TypeVar("Count", bound=Callable[..., Any])
_NAME: Final = re.compile(r"\w+::\w+")
_COUNTS: dict[str, Callable[..., Any]] = {}


def register(operation: str) -> Callable[[Count], Count]:
    """A decorator: the function counts the operation `ns::op` wherever a module runs it.

    Raises:
        UsageError: that is no name of an operation, or it has a count already.
    """
    if not isinstance(operation, str) or not _NAME.fullmatch(operation):
        raise UsageError(
            f"register: expected the name of an operation as in 'library::operation', got {shown(operation)}"
        )

    def registered(count: Count) -> Count:
        if not callable(count):
            raise UsageError(f"register: expected a function that counts {operation}, got {shown(count)}")
        if operation in _COUNTS:
            raise UsageError(
                f"register: {operation} has a count already; take it back first: unregister({operation!r})"
            )
        _COUNTS[operation] = count
        return count

    return registered


def unregister(operation: str) -> None:
    """Take the count of `operation` back; nothing where it has none."""
    _COUNTS.pop(operation, None)


def registered_costs(
    operation: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any
) -> Counter[str] | None:
    """The user's count of a call of `operation`; None without one."""
    count = _COUNTS.get(operation)
    if count is None:
        return None
    found = count(*args, out=result, **kwargs)
    counts = {"macs": found} if isinstance(found, int) else found
    if isinstance(counts, Mapping) and set(counts) <= set(RUN) and all(map(_is_count, counts.values())):
        return Counter({"flops": 2 * counts.get("macs", 0), **counts})
    raise UsageError(
        f"the count of {operation} returned {shown(found)}; expected MACs as a whole number, "
        f"or a dictionary of whole numbers with keys among {', '.join(RUN)}"
    )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
