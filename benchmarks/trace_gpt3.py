"""Tracing GPT-3 175B on `meta`: our trace against bare fvcore on the same model, alternating in one process.

Prints the ratio of the medians (ours over fvcore's) and the process's peak memory after our trace.
"""

from __future__ import annotations

import gc
import logging
import resource
import statistics
import sys
import time
from collections.abc import Callable

from fvcore.nn import FlopCountAnalysis

from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.spec.run import Run
from xfcost.torch_models.build import build
from xfcost.torch_models.tracing.trace import traced_rows

logging.getLogger("fvcore").setLevel(logging.ERROR)
ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 9


def timed(action: Callable[[], object]) -> float:
    """CPU seconds of one call, after a garbage collection."""
    gc.collect()
    start = time.process_time()
    action()
    return time.process_time() - start


live = build(place(load("gpt3"), Run()))
traced_rows(live.model, live.inputs, live.rows)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
FlopCountAnalysis(live.model, live.inputs).total()
ours, bare = [], []
for _ in range(ROUNDS):
    bare.append(timed(lambda: FlopCountAnalysis(live.model, live.inputs).total()))
    ours.append(timed(lambda: traced_rows(live.model, live.inputs, live.rows)))
ratio = statistics.median(ours) / statistics.median(bare)
print(f"{ratio:.2f} {statistics.median(bare):.2f} {peak}")
