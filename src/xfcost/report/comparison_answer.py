"""The answer of `compare`: which system costs less, by how much, and how costs grow with N."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.text import Text

from xfcost.counting.comparison import Comparison
from xfcost.ledger import units
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.on_devices import OnDevices
from xfcost.report.crossovers import CURVE_WORDS, forward_part
from xfcost.report.decoding import EXPECTED, cache_name
from xfcost.report.figures import bounded, figure_text, recurs
from xfcost.report.input_description import common_tokens, names_text
from xfcost.report.on_devices import WITHOUT_TF32, fit_words, no_estimate
from xfcost.report.time_comparison import time_texts
from xfcost.report.timing import share_text

# Mode -> the quantities that answer its question, in order, with their words; a cache's are those of its kind.
_QUESTIONS: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "forward": (("macs", "MACs"), ("attention_bytes", "attention memory")),
    "prefill": (("macs", "MACs"), ("cache_bytes", "")),
    "decode": (("read_bytes", "bytes read per step"), ("cache_bytes", ""), ("macs", "MACs")),
    "generate": (("macs", "MACs"), ("cache_bytes", "")),
    "train": (
        ("step_flops", "FLOPs of a step"),
        ("step_bytes", "memory of a step, without the loss"),
        ("run_days", "time of the run (days)"),
    ),
}


def answer_texts(comparison: Comparison) -> Iterator[Text]:
    """What costs less, then the growth of every system."""
    yield from cost_texts(comparison)
    yield from growth_texts(comparison)


def cost_texts(comparison: Comparison) -> Iterator[Text]:
    """One line per quantity that the mode asks for, then the devices of `--on` and the times."""
    for quantity, told in _QUESTIONS[comparison.ledgers[0].metadata.mode]:
        words = told or _cache_words(comparison.ledgers)
        yield from _least_texts(comparison, quantity, words)
    yield from _on_devices(comparison)
    yield from time_texts(comparison)


def _on_devices(comparison: Comparison) -> Iterator[Text]:
    """Which system the devices of `--on` could run fastest, and which fit."""
    ledgers = dict(zip(comparison.names, comparison.ledgers, strict=True))
    found = {name: ledger.on for name, ledger in ledgers.items() if ledger.on is not None}
    if not found:
        return
    title = next(iter(found.values())).on.title
    for quantity, words in (("least_seconds", "lower bound"), ("estimated_seconds", "estimate")):
        tf32 = any(one.with_tf32 for one in found.values())
        yield from _least_texts(comparison, quantity, f"{words} on {title}{f' {WITHOUT_TF32}' if tf32 else ''}")
        yield from _least_texts(comparison, f"tf32_{quantity}", f"{words} on {title} with TF32")
    yield from map(Text, no_estimates(comparison))
    width = max(map(len, ledgers))
    for name in ledgers:
        words = (
            f"{_bound_words(found[name])}; {fit_words(found[name])}" if name in found else "a torch module: no bound"
        )
        reached = {key.upper(): comparison.figures[name].get(key) for key in ("mfu", "mbu")}
        shares = [f"{share_text(share)} {key}" for key, share in reached.items() if share is not None]
        yield Text(f"  {name:<{width}}  {words}{'; reached ' if shares else ''}{' and '.join(shares)}")


def _bound_words(found: OnDevices) -> str:
    return f"{found.time.expected_bound} {EXPECTED}" if found.expected else found.time.bound


def no_estimates(comparison: Comparison) -> list[str]:
    """`no estimate: …`: which shares are missing, and of which systems where others have an estimate."""
    reasons: dict[str, list[str]] = {}
    systems = [(name, ledger.on) for name, ledger in zip(comparison.names, comparison.ledgers, strict=True)]
    bounded = [(name, on) for name, on in systems if on is not None]
    for name, on in bounded:
        if on.estimate is None:
            reasons.setdefault(no_estimate(on), []).append(name)
    return [
        f"no estimate{f' of {names_text(names)}' if len(names) < len(bounded) else ''}: {reason}"
        for reason, names in reasons.items()
    ]


def on_text(comparison: Comparison) -> str:
    """The devices of `--on`, and how many of the systems fit; empty without them."""
    found = [ledger.on for ledger in comparison.ledgers if ledger.on is not None]
    if not found:
        return ""
    fitting = sum(one.memory.fits is not False for one in found)
    dtype = f" {WITHOUT_TF32}" if any(one.with_tf32 for one in found) else ""
    return f"least time: the lower bound on {found[0].on.title}{dtype}; {fitting} of {len(found)} fit"


def _least_texts(comparison: Comparison, quantity: str, words: str) -> Iterator[Text]:
    """The line of a quantity that two systems or more have; none where it is zero throughout."""
    values = {name: comparison.figures[name].get(quantity) for name in comparison.names}
    known = {name: value for name, value in values.items() if value is not None}
    if len(known) > 1 and any(known.values()):
        yield Text.assemble((f"{words}: ", "bold"), _least(comparison, quantity, known))


def _least(comparison: Comparison, quantity: str, values: dict[str, int | float]) -> str:
    """`Swin-T has the least at N = 784: 1.180 G, 18.99× less than ViT-S/8 (22.41 G)`; `none in ResNet-50; …`."""
    ledgers = dict(zip(comparison.names, comparison.ledgers, strict=True))
    figures = {
        name: f"{bounded(ledgers[name], quantity)}{figure_text(quantity, value)}" for name, value in values.items()
    }
    if not all(values.values()):
        none = ", ".join(name for name, value in values.items() if not value)
        return f"none in {none}; {', '.join(f'{figures[name]} in {name}' for name in values if values[name])}"
    tokens = common_tokens(ledger.metadata for ledger in comparison.ledgers)
    at = f" at N = {tokens:,}" if tokens else ""
    least, *others = sorted(values, key=lambda name: values[name])
    if len(set(values.values())) == 1:
        return f"the same{at}, {figures[least]}"
    against = (f"{_times_less(values[least], values[name])} {name} ({figures[name]})" for name in others)
    return f"{least} has the least{at}, {figures[least]}: {', '.join(against)}"


def _times_less(less: float, more: float) -> str:
    """`16× less than`, `as much as`, `hardly less than`."""
    if less == more:
        return "as much as"
    times = units.ratio(more / less)
    return "hardly less than" if times == "1×" else f"{times} less than"


def growth_texts(comparison: Comparison) -> Iterator[Text]:
    """Growth exponents in N, a line per system."""
    words = growth_words(comparison.ledgers)
    yield Text(f"growth{forward_part(comparison)}, e of cost ~ N^e:", style="bold")
    width = max(map(len, comparison.names))
    for name in comparison.names:
        growth = comparison.growth[name]
        exponents = ", ".join(f"{word} {exponent_text(growth[quantity])}" for quantity, word in words.items())
        yield Text(f"  {name:<{width}}  {exponents}{_between(growth['factor'])}")


def growth_words(ledgers: Sequence[Ledger]) -> dict[str, str]:
    """The quantities whose growth is reported of some systems, with their words."""
    words = dict(CURVE_WORDS)
    words |= {"sequential_steps": "sequential steps"} if any(map(recurs, ledgers)) else {}
    return words | ({"cache_bytes": _cache_words(ledgers)} if any(ledger.step for ledger in ledgers) else {})


def _cache_words(ledgers: Sequence[Ledger]) -> str:
    return cache_name(*(ledger.cache for ledger in ledgers))


def exponent_text(value: float | None) -> str:
    """`1.41`; a dash where nothing grows."""
    return units.DASH if value is None else f"{value:.2f}"


def _between(factor: float | None) -> str:
    """Between which N the exponents are taken."""
    if factor is None:
        return " (no other N fits)"
    return f" (to {units.ratio(factor)[:-1]}·N)" if factor > 1 else f" (from N/{units.ratio(1 / factor)[:-1]})"
