"""A ledger in the formats of a run and on its devices, whatever sort of system was counted."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from xfcost.ledger.ledger import Ledger
from xfcost.ledger.quantization import WeightFormat
from xfcost.ledger.stored_rows import checkpoint_warnings
from xfcost.parts.serving.bounds import SizedRun, on_devices
from xfcost.parts.serving.choosing import with_choices
from xfcost.parts.training.plan import with_training_plan
from xfcost.spec.run import Run, cache_of, tensors_of, weights_of


def sized_on_devices(
    ledger: Ledger, run: Run, sizes_of: Callable[[Ledger], SizedRun], published: WeightFormat | str | None, *,
    limits: bool = True,
) -> Ledger:  # fmt: skip
    """A ledger in the formats of the run, on its devices if it has some; `sizes_of` gives its run at other sizes.

    Of the weights that is the `published` format, where the run gives none.
    """
    weights, warnings = weights_of(run, published)
    stored = tensors_of(published)
    warnings += checkpoint_warnings(ledger.rows, weights, stored, ledger.bytes_per_element)
    metadata = msgspec.structs.replace(ledger.metadata, checkpoint=stored)
    ledger = msgspec.structs.replace(ledger, metadata=metadata)
    ledger = ledger.stored_as(weights, cache_of(run, published)).with_warnings(warnings)
    if weights is not None and ledger.training is not None:
        step, plain = ledger.training.step, (ledger.total("params") or 0) * ledger.bytes_per_element
        step = msgspec.structs.replace(step, params_bytes=step.params_bytes - plain + ledger.held_bytes)
        training = msgspec.structs.replace(ledger.training, step=step)
        ledger = msgspec.structs.replace(ledger, training=training)
    if run.plan is not None:
        return with_training_plan(ledger, None, run.plan)
    if run.on is None and not run.choices:
        return ledger
    sizes = sizes_of(ledger)
    return with_choices(on_devices(ledger, run, sizes, limits=limits), run, sizes)
