"""A search with `--on`: models must fit in the devices' memory, and have a least time there."""

from __future__ import annotations

from typing import Final

from xfcost.counting.find.result import Question
from xfcost.ledger.budgets import Budget
from xfcost.ledger.device import DeviceGroup
from xfcost.ledger.errors import UsageError

_SECONDS: Final = {"seconds", "tf32_seconds"}


def checked_on(on: DeviceGroup | None, dtype: str, question: Question) -> Question:
    """`question`, with the memory of the devices as a budget, where it is known.

    Raises:
        UsageError: seconds are asked for without devices, or these have no peak of the dtype, or no TF32.
    """
    if on is None:
        _refuse_seconds(question)
        return question
    on.peak(dtype)
    if on.tf32_peak(dtype) is None and "tf32_seconds" in (question.sort, *question.front):
        raise UsageError(f"tf32_seconds: {on.name} has no TF32 that is faster than {dtype}; ask for seconds")
    if on.memory_bytes is None:
        return question
    return question._replace(budgets=(*question.budgets, Budget("device_memory", on.memory_bytes, on.name)))


def _refuse_seconds(question: Question) -> None:
    asked = [budget.option for budget in question.budgets if budget.quantity == "seconds"]
    asked += [f"--sort {question.sort}"] if question.sort in _SECONDS else []
    asked += [f"--front {','.join(question.front)}"] if _SECONDS & {*question.front} else []
    if asked:
        raise UsageError(f"{asked[0]}: seconds on which device? Name it, as in --on h100-sxm (`xfcost devices`)")
