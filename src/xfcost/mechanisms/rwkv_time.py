"""RWKV-4's time mixing: a decaying weighted mean over earlier tokens, as a recurrence."""

from __future__ import annotations

from collections.abc import Iterator

from xfcost.formulas.component import Number, Operation, Place
from xfcost.formulas.mixers import TokenShiftMixer, mixture
from xfcost.formulas.rows import elementwise, global_mixing, linear, recurrence
from xfcost.formulas.tensors import exponential_of_weights, reading
from xfcost.ledger.tensors import OUTPUT, Saved, Tensor, Tensors


class RwkvTime(TokenShiftMixer, frozen=True, kw_only=True, tag="rwkv_time"):
    """Time mixing (Peng et al. 2023, equations 11 to 17): keys and values in a mean that decays with distance.

    N tokens of width d; no biases.

        shift, mix               the token before, three mixtures
        key, value, receptance   N·d² MACs each
        decay                    w = -exp(·), d numbers, once
        wkv                      Σ_j exp((t-1-j)w + k_j) v_j + exp(u + k_t) v_t over the sum of its weights, scaled by
                                 the largest of them: by convention 21 FLOPs and 2 comparisons per channel and
                                 step, which counters of products see nothing of, in N steps
        gate, output             N·d² MACs
    """

    short_name = "RWKV time mixing"

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d = place.grid.total, place.dim
        yield from self.shift(place, uses=3)
        for use, name in enumerate(("key", "value", "receptance")):
            yield reading(linear(name, f"{name.capitalize()} projection", n, d, d, bias=False), mixture(use))
        facts = {"params": d, "once": True, "tensors": exponential_of_weights(d)}
        yield elementwise("decay", "Decay w = -exp(·)", "exp + multiply", d, **facts)
        facts = {"params": d, "comparisons": 2 * n * d, "moved": n * d, "tensors": _recurrent(n, d)}
        wkv = elementwise("wkv", "WKV recurrence", "wkv", n * d, **facts, **global_mixing(n))
        yield recurrence(wkv, n, 3 * d)  # numerator, denominator and largest exponent
        yield self.gated(place, "wkv")
        yield linear("output", "Output projection", n, d, d, bias=False)

    def notes(self, place: Place) -> Iterator[str]:
        yield (
            f"{place.grid.total:,} sequential steps per time mixing; what was read is carried in a state of "
            f"{4 * place.dim:,} numbers, the last token among them, whatever N is"
        )


def _recurrent(tokens: Number, width: Number) -> Tensors:
    """A step saves eight numbers of a channel, and the next step the three of the state; the first state is two."""
    shape = (tokens, width)
    reads = (Tensor("key", shape), Tensor("value", shape), Tensor("decay", (width,), once=True))
    made = Tensor("steps", (8 * tokens + 3 * (tokens - 1) + 2, width))
    return Tensors(reads, (Tensor(OUTPUT, shape),), (Saved("key"), Saved("value")), (made,))
