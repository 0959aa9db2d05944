"""RWKV-4's time and channel mixing: a decaying mean over earlier tokens, and a gated feed-forward network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xfcost.formulas.arithmetic import lesser
from xfcost.formulas.component import Grid, Number, Operation, Place, Width
from xfcost.formulas.mixers import AlwaysCausalMixer
from xfcost.formulas.rows import elementwise, global_mixing, linear, move, recurrence, state_write
from xfcost.formulas.tensors import copied, exponential_of_weights, gated, reading
from xfcost.ledger.tensors import BEFORE, INPUT, OUTPUT, Saved, Tensor, Tensors


class TokenShiftMixer(AlwaysCausalMixer, frozen=True, kw_only=True):
    """A mixer that starts with a token shift: μ∘x_t + (1 - μ)∘x_{t-1}, a learned μ of d per use."""

    def shift(self, place: Place, uses: int) -> Iterator[Operation]:
        """The previous tokens, N·d elements written; the mixtures, uses·d parameters, (1 + 2·uses)·N·d FLOPs."""
        elements = place.grid.total * place.dim
        cached = state_write("Token shift", place.dim, path="shift")
        tensors = copied((elements,), (elements,), INPUT)
        yield move("shift", "Token shift", elements, in_decode=(cached,), tensors=tensors)
        work, title = "add" + uses * " + multiply + add", "Mix with the token before"
        params = uses * place.dim
        facts = {"params": params, "mixing": "local", "reads": "2", "reads_tokens": 2}
        # What sets a token apart from the one before is saved, for the gradients of the shares
        reads = tuple(Tensor(name, (elements,)) for name in (INPUT, "shift"))
        writes = tuple(Tensor(mixture(use) if use else OUTPUT, (elements,)) for use in range(uses))
        tensors = Tensors(reads, writes, makes=(Tensor("apart", (elements,)),))
        yield elementwise("mix", title, work, elements, tensors=tensors, **facts)

    def gated(self, place: Place, name: str) -> Operation:
        """σ(r)∘x, x the row `name`."""
        elements = place.grid.total * place.dim
        tensors = gated(name, "receptance", elements, act="sigmoid")
        return elementwise("gate", "Receptance gate", "sigmoid + multiply", elements, tensors=tensors)


def mixture(use: int) -> str:
    """The tensor of a use's mixture."""
    return "mix" if use == 0 else f"mixture {use}"


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
        # A step saves eight numbers of a channel, and the next step the three of the state; the first state is two
        shape = (n, d)
        reads = (Tensor("key", shape), Tensor("value", shape), Tensor("decay", (d,), once=True))
        made = Tensor("steps", (8 * n + 3 * (n - 1) + 2, d))
        tensors = Tensors(reads, (Tensor(OUTPUT, shape),), (Saved("key"), Saved("value")), (made,))
        facts = {"params": d, "comparisons": 2 * n * d, "moved": n * d, "tensors": tensors}
        wkv = elementwise("wkv", "WKV recurrence", "wkv", n * d, **facts, **global_mixing(n))
        yield recurrence(wkv, n, 3 * d)  # numerator, denominator and largest exponent
        yield self.gated(place, "wkv")
        yield linear("output", "Output projection", n, d, d, bias=False)

    def notes(self, place: Place) -> Iterator[str]:
        yield (
            f"{place.grid.total:,} sequential steps per time mixing; what was read is carried in a state of "
            f"{4 * place.dim:,} numbers, the last token among them, whatever N is"
        )


class RwkvChannel(TokenShiftMixer, frozen=True, kw_only=True, tag="rwkv_channel"):
    """Channel mixing (Peng et al. 2023, equations 18 to 20): σ(R x')∘V·relu(K x'')².

    x' and x'' are mixed with the token before. N tokens of width d, H = `hidden` (4·d where it isn't given); no biases.

        key          N·d·H MACs
        value        N·H·d MACs
        receptance   N·d² MACs
    """

    short_name = "RWKV channel mixing"

    hidden: Width | None = None
    """Hidden width H; 4d by default."""

    def inner(self, width: Number) -> Number:
        """H."""
        return 4 * width if self.hidden is None else self.hidden

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        return range(max(token - 1, 0), token + 1)

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        return 2 * grid.total - lesser(grid.total, 1)

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d = place.grid.total, place.dim
        hidden = self.inner(d)
        yield from self.shift(place, uses=2)
        yield reading(linear("key", "Key projection", n, d, hidden, bias=False), mixture(0))
        yield elementwise("act", "ReLU", "relu", n * hidden)
        read, written = Tensor(BEFORE, (n, hidden)), Tensor(OUTPUT, (n, hidden))
        squared = Tensors((read,), (written,), (Saved(BEFORE),))
        yield elementwise("square", "Square", "multiply", n * hidden, tensors=squared)
        yield linear("value", "Value projection", n, hidden, d, bias=False)
        yield reading(linear("receptance", "Receptance projection", n, d, d, bias=False), mixture(1))
        yield self.gated(place, "value")
