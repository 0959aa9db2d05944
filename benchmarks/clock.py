"""The bars of the clock, as ratios in one run: against a bare script, not attributed, slopes, composed against whole.

Usage: python benchmarks/clock.py [bare | busy | attributed | slopes | composed …]   (all but busy by default)

bare        xfcost's median of a forward over that of a bare torch.utils.benchmark script on the same model, in turns
busy        the same while another process keeps one core busy
attributed  the share of a forward that no operation accounts for, N ≥ 784 and d ≥ 384
slopes      log-log slopes of the time of token mixing between large N: full attention 2, windows 1
composed    a model composed of its distinct blocks, over the whole model, in turns
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import torch
from torch.utils import benchmark

import xfcost
from xfcost.api.runs import make_run
from xfcost.comparing.sweep import slope
from xfcost.ledger.statistics import median
from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.torch_models.build import build
from xfcost.torch_models.timing.devices import cores, threads_set

PAIRS = 8
BARE = (("vit-s16", 784), ("swin-t", 3136), ("gpt2", 196))
ATTRIBUTED = (
    ("vit-s16", 784),
    ("vit-b16", 784),
    ("common-full", 1024),
    ("common-longformer", 1024),
    ("mixer-b16", None),
)
# Every matrix of scores is larger than the processor's caches.
SLOPES = (
    ("vit-s16", (1024, 2116, 4096), {"settings": ["stages.0.depth=1"]}),
    ("swin-t", (12544, 28224, 50176), {"settings": ["stages.2.depth=2"]}),
)

COMPOSED = (("vit-s16", 784), ("swin-t", 3136), ("gpt2", 196), ("mamba-130m", 64))


def ours(name: str, tokens: int | None, **options: object) -> xfcost.Ledger:
    """A timed ledger."""
    return xfcost.analyze(name, N=tokens, trace=False, device="cpu", **options)


def bare(name: str, tokens: int | None) -> float:
    """Median seconds by torch's own timer."""
    with threads_set(cores()):
        live = build(place(load(name), make_run(N=tokens)), "cpu")
        timer = benchmark.Timer("call()", globals={"call": lambda: live.model(*live.inputs)}, num_threads=cores())
        with torch.no_grad():
            return float(timer.blocked_autorange(min_run_time=1.0).median)


def paired(first: Callable[[], float], second: Callable[[], float]) -> str:
    """The median of the ratios of paired turns and its 95 % interval; who goes first alternates."""
    ratios = []
    for number in range(PAIRS):
        if number % 2:
            below = second()
            ratios.append(first() / below)
        else:
            above = first()
            ratios.append(above / second())
    found = median(ratios)
    return f"{found.value:.3f} ({found.interval.low:.3f} to {found.interval.high:.3f}, {PAIRS} pairs)"


def against_bare() -> None:
    """Whole forwards, in turns with a bare script."""
    for name, tokens in BARE:
        noisy = []

        def timed(name: str = name, tokens: int = tokens, noisy: list[str] = noisy) -> float:
            timing = ours(name, tokens, min_time=1).timing
            noisy += [timing.noisy] if timing.noisy else []
            return timing.seconds

        ratio = paired(timed, lambda name=name, tokens=tokens: bare(name, tokens))
        print(f"bare: {name} N={tokens}: {ratio}; said to be noisy {len(noisy)} of {PAIRS} times")


def busy() -> None:
    """The same beside a process that keeps a core busy."""
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        against_bare()
    finally:
        other.kill()


def attributed() -> None:
    """What no operation accounts for."""
    for name, tokens in ATTRIBUTED:
        timing = ours(name, tokens).timing
        print(f"not attributed: {name} N={tokens}: {timing.not_attributed / timing.seconds:.1%}")


def slopes() -> None:
    """Slopes of the time of token mixing."""
    for name, sizes, options in SLOPES:
        ledgers = [ours(name, tokens, max_time=20, **options) for tokens in sizes]
        spent = [ledger.total("seconds", lambda row: row.mixes) for ledger in ledgers]
        print(f"slope of mixing time: {name} N={sizes}: {slope(sizes, spent):.2f}")


def composed() -> None:
    """Composed against whole."""
    for name, tokens in COMPOSED:

        def once(name: str = name, tokens: int = tokens) -> float:
            return ours(name, tokens, composed=True).timing.seconds

        print(f"composed: {name} N={tokens}: {paired(once, lambda n=name, t=tokens: ours(n, t).timing.seconds)}")


PARTS = {"bare": against_bare, "busy": busy, "attributed": attributed, "slopes": slopes, "composed": composed}

if __name__ == "__main__":
    for part in sys.argv[1:] or [name for name in PARTS if name != "busy"]:
        PARTS[part]()
