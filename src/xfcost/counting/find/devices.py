"""A search with `--on`: models must fit in the devices' memory, and have a least time there."""

from __future__ import annotations

from xfcost.counting.find.result import Question
from xfcost.ledger.budgets import Budget
from xfcost.ledger.device import DeviceGroup
from xfcost.ledger.errors import UsageError


def checked_on(on: DeviceGroup | None, dtype: str, question: Question) -> Question:
    """`question`, with the memory of the devices as a budget, where it is known.

    Raises:
        UsageError: seconds are asked for without devices, or these have no peak of the dtype.
    """
    if on is None:
        _refuse_seconds(question)
        return question
    on.peak(dtype)
    if on.memory_bytes is None:
        return question
    return question._replace(budgets=(*question.budgets, Budget("device_memory", on.memory_bytes, on.name)))


def _refuse_seconds(question: Question) -> None:
    asked = [budget.option for budget in question.budgets if budget.quantity == "seconds"]
    asked += ["--sort seconds"] if question.sort == "seconds" else []
    asked += [f"--front {','.join(question.front)}"] if "seconds" in question.front else []
    if asked:
        raise UsageError(f"{asked[0]}: seconds on which device? Name it, as in --on h100-sxm (`xfcost devices`)")
