"""The residual stream of a spec's model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

from xfcost.api.options import Progress, takes
from xfcost.api.runs import make_run
from xfcost.api.systems import is_module, open_one
from xfcost.counting.forward import count
from xfcost.ledger.errors import UsageError, shown
from xfcost.ledger.read_numbers import whole_number
from xfcost.ledger.residual_stream import ResidualStream
from xfcost.spec.placement import place
from xfcost.systems.spec import torch_there

_MOST_SEED: Final = 2**63 - 1
_OF_SPECS: Final = "only a spec says which of its sums are residual adds (`xfcost list` shows presets)"


@takes()
def stream(  # noqa: PLR0913 - options
    spec: str | os.PathLike[str],
    *,
    seed: int | str = 0,
    N: Any = None,
    size: Any = None,
    dtype: str | None = None,
    settings: Sequence[str] | None = (),
    fetch: bool | None = None,
    progress: Progress | None = None,
) -> ResidualStream:
    """Run the model of `spec` on the CPU, and measure what every sub-layer adds to the residual stream.

    Weights are random, as the modules initialise them, and so is the input; both are of `seed`.

    Args:
        spec: a preset's name or a path to a YAML file, or to a config.json of transformers.
        seed: of the weights and the input.
        N: tokens of the first stage; for an encoder-decoder one number for both streams, or two.
        size: image size instead of N.
        dtype: float32 (the default), float16, bfloat16 or float64.
        settings: overrides, `key.path=value` each.
        fetch: may a config of the Hugging Face Hub be fetched?
        progress: called with a line of text before each long step.

    Returns:
        ResidualStream: `steps`, one per sub-layer; `blocks`; `exact`: is every sum what rounding explains, and every
        changed row what is declared?

    Raises:
        XfcostError: bad input; a DeviceError where the model doesn't fit into memory, with bytes.
    """
    checked = whole_number("--seed", seed, least=0, most=_MOST_SEED, example="0")
    run = make_run(N=N, size=size, dtype=dtype)
    if is_module(spec):
        raise UsageError(f"stream: expected a spec, got the torch module {type(spec).__name__}; {_OF_SPECS}")
    system = open_one("stream", spec, {"settings": settings, "fetch": fetch}, progress)
    if system.loaded is None:
        raise UsageError(f"stream {shown(spec, 80)}: expected a spec, got a torch module; {_OF_SPECS}")
    architecture = place(system.loaded, run)
    with torch_there(architecture.spec.name, "running it"):
        from xfcost.torch_models.residual_stream.run import residual_stream

        return residual_stream(
            architecture, count(architecture, orders=False), checked, progress or (lambda text: None)
        )
