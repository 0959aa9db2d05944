"""Do the counted, the traced and the dispatched account agree on every preset? `python tools/check_presets.py decode`.

Every block of a preset is built at most twice, as in `tests/test_presets.py`; more repetitions only take time. Mode
`train` also traces the backward pass. Presets that a mode refuses count as refused; any disagreement ends with exit
code 1. The tests check all presets in mode forward, and one of every family in the other modes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from test_presets import thinned
from xfcost.api.runs import make_run
from xfcost.counting.forward import count
from xfcost.ledger.errors import XfcostError
from xfcost.ledger.ledger import Ledger
from xfcost.parts.training.step import with_training
from xfcost.spec.load import load, preset_names
from xfcost.spec.placement import place
from xfcost.spec.run import Run
from xfcost.torch_models.accounts import traced


def joined(name: str, run: Run) -> Ledger:
    """The preset's three accounts; in training, with the backward pass."""
    architecture = thinned(place(load(name), run))
    ledger = count(architecture)
    if run.plan is not None:
        ledger = with_training(ledger, architecture, run.plan)
    return traced(architecture, ledger)


def main() -> None:
    """Check the presets named, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=["forward", "decode", "prefill", "train"])
    parser.add_argument("presets", nargs="*", help="default: all")
    parser.add_argument("--dtype", help="default: the preset's in that mode")
    parser.add_argument("--attention", help="eager or fused; default: the preset's in that mode")
    options = parser.parse_args()
    run = make_run(mode=options.mode, dtype=options.dtype, attention=options.attention)
    agree, refused, differ = 0, 0, 0
    for name in options.presets or preset_names():
        try:
            agreement = joined(name, run).agreement
        except XfcostError:
            refused += 1
            continue
        if agreement is not None and agreement.exact:
            agree += 1
            continue
        differ += 1
        print(name, agreement)
    print(f"{options.mode}: {agree} agree, {refused} refused, {differ} differ")
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()
