"""The checked run options that change what is counted: input size, batch, dtype, attention, mode."""

from __future__ import annotations

from typing import NamedTuple

from xfcost.ledger.device import DeviceGroup
from xfcost.ledger.execution import Execution, Logits, Mode
from xfcost.ledger.training import RunPlan


class Run(NamedTuple):
    """Run options: how a spec is run, beside the spec itself."""

    tokens: tuple[int, ...] | None = None
    """N of the first stage (one number per stream, or one for all); the spec's own input where it is None."""
    size: tuple[int, int] | None = None
    """Height and width of the image, or of a video's frames, in place of `tokens`."""
    batch: int = 1
    dtype: str | None = None
    """None is the default of the systems that run (`spec.default_options`); so is that of `attention`."""
    attention: Execution | None = None
    scale: tuple[int, int] = (1, 1)
    """A fraction that multiplies the sides of every input (or of its folded grid)."""
    memory_level: int | None = None
    """Bytes of on-chip memory for which the main-memory traffic of attention is computed."""
    mode: Mode = "forward"
    new_tokens: int = 1
    """m, in the mode `generate`."""
    logits: Logits | None = None
    """The positions of a prompt (`prefill`, `generate`) whose logits are computed; None is the last."""
    plan: RunPlan | None = None
    """The training run, in the mode `train`."""
    on: DeviceGroup | None = None
    """The devices whose least time and memory are asked for; in the mode `train` the plan has them too."""
    mfu: float | None = None
    """The shares of `on`'s peak and bandwidth that an estimate takes; None where none is asked for."""
    mbu: float | None = None
    extra_tokens: bool = True
    """False leaves out special tokens ([CLS]) and the layers that change them alone, to compare scores on the grid."""
    default_note: str | None = None
    """Why dtype and attention are what they are, where the caller gave none."""
    dtype_note: str | None = None
    """The same of the dtype alone, for a system without attention."""
