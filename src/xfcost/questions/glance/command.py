"""`xfcost glance`."""

from __future__ import annotations

from typing import Annotated, Any

from xfcost.api.options import BatchOptions, InputOptions, SettingsOption, SizeOptions
from xfcost.commands import options as shared
from xfcost.report.messages import say


@shared.options(
    SizeOptions, BatchOptions, "dtype", "attention", SettingsOption, InputOptions, "strict", *shared.REPORT,
    **shared.OF_A_FORWARD,
)  # fmt: skip
def run(
    specs: Annotated[list[str], shared.spec_argument(f"Presets or paths. {shared.OR_MODULES}")],
    mixing: shared.FindMixing = True,
    **given: Any,
) -> None:
    """List every named operation on one page.

    For each operation: its mixing kind, its order in N, where it occurs and which parameters it has.

    Example: xfcost glance vit swin
    """
    from xfcost.questions.glance.answer import glance
    from xfcost.questions.glance.text import document

    target = shared.target_of(given)
    target.document(document(glance(*specs, mixing=mixing, progress=say, **given)))
