"""Mixture of experts: a router sends every token to a few of many feed-forward networks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from xfcost.formulas.arithmetic import ceil_div, lesser
from xfcost.formulas.component import (
    ComponentError,
    Letter,
    Number,
    PerToken,
    Place,
    Width,
    check_divides,
)
from xfcost.layers.feed_forward import Geglu, Mlp, Swiglu
from xfcost.ledger.accounts import WeightsRead
from xfcost.program.functions import added, weighed
from xfcost.program.leaves import ExpertLinear, Made, Weight
from xfcost.program.operations import Functions, Operations, Part
from xfcost.program.symbolic import Tensor

Experts = Annotated[int, msgspec.Meta(ge=1, le=2**16)]


class Groups(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Experts in `count` groups of equal size; a token's experts come only from its `active` best groups.

    A group is as good as its best expert (DeepSeek-V2, §2.2.2), or as its two best together (DeepSeek-V3, §2.1.2).
    """

    count: Experts
    """Number of groups that the experts are divided into."""
    active: Experts
    """Number of best groups that a token's experts come from."""
    score: Literal["max", "top_two"] = "max"
    """A group's score: that of its best expert (`max`) or the sum of its two best (`top_two`)."""


class Shared(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`count` more experts that every token uses (DeepSeekMoE, Dai et al. 2024, §3.2).

    They are run as public code does: as one network of count·hidden.
    """

    count: Experts = 1
    """Number of shared experts."""
    hidden: Width | None = None
    """Hidden width of one shared expert; that of the routed experts by default."""


class Moe(PerToken, frozen=True, kw_only=True, tag="moe"):
    """y = Σ gᵢ(x)·fᵢ(x) over the A best of E experts (Shazeer et al. 2017, §2; Fedus et al. 2022, §2; Mixtral, §2.1).

    N tokens, width d, E experts fᵢ, each an `expert` network with its own weights, of which a token uses A.

        router         N·d·E MACs, d·E parameters
        probabilities  N·E elements of a softmax over the experts, or of a sigmoid each
        correction     N·E additions of a bias that sways the choice alone, with `correction` (DeepSeek-V3, §2.1.2)
        choose_groups  N·G·⌈log₂ G⌉ + N·E comparisons, with G groups; N·G·⌈log₂ G⌉ + N·E·⌈log₂ E/G⌉ comparisons and
                       2·N·G additions where their two best experts count, else 0 additions
        choose         N·E·⌈log₂ E⌉ comparisons of a top-A, N·E comparisons of a maximum
        weights        the A chosen probabilities: 2·N·A FLOPs where they are made to sum to 1, N·A FLOPs of a `scale`,
                       3·N·A FLOPs of both, 0 FLOPs of neither
        gather         T·d elements written: the tokens, an expert's after another's
        scatter        N·A·d elements written, back to their tokens
        weigh          N·A·d multiplications
        sum            N·A·d additions, where A > 1
        shared_add     N·d additions, with `shared` experts

    Compute grows with A, parameters with E: exactly T = N·A pairs of token and expert are computed, each by a network
    of H hidden units, an `mlp` or one with a gate. β is 1 where it has biases, else 0:

        experts_fc1, experts_gate, experts_up  T·d·H MACs, E·(d + β)·H parameters each, of a network with such a map
        experts_act                            T·H elements of SiLU, GELU or ReLU
        experts_glu                            T·H multiplications, with a gate
        experts_fc2, experts_down              T·H·d MACs, E·(H + β)·d parameters, of a network with such a map

    The shared experts are one network of H_s hidden units, which every token uses:

        shared_fc1, shared_gate, shared_up     N·d·H_s MACs, (d + β)·H_s parameters each, with `shared` experts
        shared_fc2, shared_down                N·H_s·d MACs, (H_s + β)·d parameters, with `shared` experts

    With a `capacity` C each expert has ⌈C·A·N/E⌉ slots per sample; T is E times as many, all of which
    are computed, filled or not, and tokens that find theirs full are dropped: the residual alone carries them. A
    sample's first choices come before its second ones, and earlier tokens before later (GShard, algorithm 1).

    The positions of the copies are integer arithmetic, which counts no FLOPs.
    """

    feed_forward: ClassVar[bool] = True

    titles: ClassVar[Mapping[str, str]] = {
        "router": "Router",
        "choose_groups": "Choice of the groups (top)",
        "weights": "Weights of the chosen",
        "arrange": "Places of the tokens' copies with their experts",
        "gather": "Tokens to their experts",
        "scatter": "Experts' answers to their tokens",
        "weigh": "Answers times their weights",
        "sum": "Sum over a token's experts",
        "shared_add": "Add the shared experts",
    }

    experts: Annotated[Experts, Letter("E")] = 8
    """Number of routed experts E."""
    active: Annotated[Experts, Letter("A")] = 2
    """Number of experts A that each token uses."""
    router: Literal["softmax", "sigmoid"] = "softmax"
    """How the router turns logits into probabilities: a softmax over all experts, or a sigmoid for each."""
    expert: Mlp | Swiglu | Geglu = Swiglu()
    """Feed-forward network of one expert."""
    shared: Shared | None = None
    """Experts that every token uses in addition to the routed ones; none by default."""
    normalize: bool = True
    """Whether a token's A routing weights are made to sum to 1."""
    scale: Annotated[float, msgspec.Meta(gt=0, le=1e6)] | None = None
    """Fixed factor of the routing weights (DeepSeek's routed scaling factor); none by default."""
    groups: Groups | None = None
    """Groups of experts that limit the choice (DeepSeek-V2, §2.2.2); none by default."""
    correction: bool = False
    """Whether a bias, trained without a gradient, is added to the probabilities where experts are chosen (DeepSeek-V3,
    §2.1.2)."""
    capacity: Annotated[float, msgspec.Meta(gt=0, le=1e6)] | None = None
    """Capacity factor C: an expert has ⌈C·A·N/E⌉ slots per sample. By default no token is dropped and no slot is empty.
    """

    def check(self, place: Place) -> None:
        if self.active > self.experts:
            raise ComponentError(
                "active", f"a token can't use {self.active} of {self.experts} experts; at most all of them"
            )
        # An expert is a network alone: what says how a sub-layer is placed in a block has no meaning for it
        for field, default in {"residual": None, "chunks": 1, "tokens": "all", "out_width": None}.items():
            if getattr(self.expert, field, default) != default:
                raise ComponentError("expert", f"an expert takes no {field!r}; leave it out")
        try:
            self.expert.check(place)
        except ComponentError as error:
            raise ComponentError("expert", f"{error.field}: {error.message}") from None
        if self.groups is not None:
            self._check_groups(self.groups)

    def _check_groups(self, groups: Groups) -> None:
        check_divides("groups", groups.count, self.experts, f"the {self.experts} experts")
        if groups.active > groups.count:
            raise ComponentError(
                "groups", f"{groups.active} of {groups.count} groups can't be active; at most all of them"
            )
        each = self.experts // groups.count
        if self.active > groups.active * each:
            raise ComponentError(
                "groups",
                f"{groups.active} groups of {each} experts hold {groups.active * each}, and a token uses "
                f"{self.active}; give more `active` groups or fewer `active` experts",
            )
        if groups.score == "top_two" and each < 2:  # noqa: PLR2004 - two of them make the score
            raise ComponentError("groups", "a group of one expert has no two best; write score: max")

    def slots(self, tokens: Number) -> Number:
        """⌈C·A·N/E⌉: how many tokens of a sample of N an expert has room for, where it has a capacity.

        C is taken as it is written, 1.1 being 11/10.
        """
        factor = Fraction(repr(self.capacity))
        return ceil_div(factor.numerator * self.active * tokens, factor.denominator * self.experts)

    def computed(self, tokens: Number) -> Number:
        """Pairs of a token and an expert that are computed for a sample of N, those of empty slots among them."""
        return self.active * tokens if self.capacity is None else self.experts * self.slots(tokens)

    def shared_network(self, width: Number) -> Mlp | Swiglu | Geglu:
        """All shared experts as one network.

        Raises:
            ValueError: there are none.
        """
        if self.shared is None:
            raise ValueError("there are no shared experts")
        hidden = self.shared.count * (self.shared.hidden or self.expert.inner(width))
        return msgspec.structs.replace(self.expert, hidden=hidden)

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        logits = t.linear("router", x, self.experts, bias=False, weight_matrices=())  # no format quantises it
        probability = t.act("probabilities", logits, self.router, title=f"Router's {self.router}")
        score = probability  # it chooses, plus a bias, -∞ outside the best groups
        if self.correction:
            bias = Weight((self.experts,), "zeros", "bias_E", learns=False)
            score = t.leaf("correction", added, score, weights=(bias,), title="Bias of the choice")
        if self.groups is not None:
            score = t.leaf("choose_groups", in_best_groups, score, options={"groups": self.groups})
        title = "Choice of the expert" if self.active == 1 else "Choice of the experts (top A)"
        chosen = t.leaf("choose", best_experts, score, options={"active": self.active}, title=title)
        options = {"scale": self.scale, "normalize": self.normalize}
        weights = t.leaf("weights", chosen_weights, probability, chosen, options=options)
        y = self._routed(t, x, chosen, weights, place)
        if self.shared is None:
            return y
        network = self.shared_network(place.dim)
        shared = t.part("shared", "shared experts", network.titles)
        return t.leaf("shared_add", added, y, network.forward(shared, x, place))

    def _routed(self, t: Operations, x: Tensor, chosen: Tensor, weights: Tensor, place: Place) -> Tensor:
        """Tokens to their experts, and the experts' answers to their tokens, weighed: (B, N, D) -> (B, N, D)."""
        batch, tokens, _ = x.shape
        copies, computed = (batch, tokens, self.active), batch * self.computed(tokens)
        if self.capacity is None:
            options: dict[str, Any] = {"experts": self.experts}
            outputs = [Made((computed,)), Made(copies), Made((self.experts,))]
            source, place_of, *counts = t.bookkeeping("arrange", "experts:packed_rows", chosen, *outputs, **options)
            filled, placed = [], []
        else:
            slots = self.slots(tokens)
            lists = (self.experts, batch * slots)
            outputs = [Made(lists), Made(copies), Made(lists, "bool"), Made(copies, "bool")]
            options = {"experts": self.experts, "slots": slots}
            source, place_of, *empty = t.bookkeeping("arrange", "experts:filled_slots", chosen, *outputs, **options)
            counts, filled, placed = [], empty[:1], empty[1:]
        rows = t.leaf("gather", gathered, x, source, *filled)
        answers = self.expert.forward(_Experts(t, self, tokens, counts), rows, place)
        answers = t.leaf("scatter", scattered, answers, place_of, *placed)
        y = t.leaf("weigh", weighed, answers, weights)
        return y.squeeze(2) if self.active == 1 else t.leaf("sum", summed, y)

    @property
    def tokens_compete(self) -> bool:
        """With a capacity a token whose expert is full is dropped."""
        return self.capacity is not None

    def notes(self, place: Place) -> Iterator[str]:
        if self.correction:
            yield (
                f"the router's bias, {self.experts:,} numbers per block, is moved by the balance of the load, not by a "
                "gradient: a buffer, as in transformers, and no parameter"
            )
        if self.normalize and self.active == 1:
            yield "one expert's normalized weight is always 1: the router learns nothing from it; see `normalize`"
        if self.capacity is not None:
            n, slots = place.grid.total, self.slots(place.grid.total)
            each = "1 slot" if slots == 1 else f"{slots:,} slots"
            copies = "1 copy of a token" if n * self.active == 1 else f"{n * self.active:,} copies of tokens"
            competing = (
                "a token whose expert is full is dropped, so that the tokens of a sample compete"
                if n > 1
                else "one token by itself is never dropped, as it may be where all of a sample compete"
            )
            yield (
                f"capacity {self.capacity:g}: {each} for each of {self.experts:,} experts, "
                f"{self.experts * slots:,} for {copies}; all are computed and counted, filled or not, and {competing}"
            )


class _Experts(Part):
    """The leaves of a network of all experts: each has weights of its own, and a token uses those of A.

    N tokens choose N·A experts at most; where slots are computed, filled or not, all E of them are read.
    """

    def __init__(self, whole: Operations, moe: Moe, tokens: Number, counts: Sequence[Tensor]) -> None:
        super().__init__(whole, "experts", "experts", moe.expert.titles)
        self.moe, self.tokens, self.counts = moe, tokens, counts

    def linear(self, name: str, x: Tensor, outputs: Number, *, bias: bool = True, **facts: Any) -> Tensor:
        moe = self.moe
        each = x.shape[-1] * outputs + (outputs if bias else 0)
        every, slots = each * moe.experts, moe.capacity is not None
        read = every if slots else lesser(each * moe.active * self.tokens, every)
        facts["idle_params"] = each * (moe.experts - moe.active)
        facts["weights_read"] = WeightsRead(read, every, None if slots else self.tokens)
        return self.run(name, ExpertLinear(moe.experts, outputs, bias), x, *self.counts, **facts)


def in_best_groups(t: Functions, score: Tensor, *, groups: Groups) -> Tensor:
    """-∞ at experts outside a token's best groups: (B, N, E) -> (B, N, E)."""
    grouped = score.unflatten(-1, (groups.count, -1))
    best = grouped.topk(2, -1)[0].sum(-1) if groups.score == "top_two" else grouped.amax(-1)
    chosen = best.topk(groups.active, -1)[1].unsqueeze(-1)
    is_open = t.eq(chosen, t.arange(groups.count, score)).any(-2)
    return grouped.masked_fill(is_open.logical_not().unsqueeze(-1), float("-inf")).flatten(-2)


def best_experts(t: Functions, score: Tensor, *, active: int) -> Tensor:
    """The A experts with the highest scores: (B, N, E) -> (B, N, A)."""
    return score.argmax(-1, keepdim=True) if active == 1 else score.topk(active, -1)[1]


def chosen_weights(
    t: Functions, probability: Tensor, chosen: Tensor, *, scale: float | None, normalize: bool
) -> Tensor:  # fmt: skip
    """The probabilities of the chosen experts, normalised and scaled: (B, N, E), (B, N, A) -> (B, N, A)."""
    weight = probability.gather(-1, chosen)
    if normalize:
        weight = weight / weight.sum(-1, keepdim=True)
    return weight if scale is None else weight * scale


def gathered(t: Functions, x: Tensor, source: Tensor, filled: Tensor | None = None) -> Tensor:
    """(B, N, D) -> rows (P, D) sorted by expert, or slots (E, S, D), zeros in the empty ones."""
    return _kept(t.take_rows(x.flatten(0, 1), source), filled)


def scattered(t: Functions, y: Tensor, place: Tensor, placed: Tensor | None = None) -> Tensor:
    """(P, D) or (E, S, D) -> (B, N, A, D), zeros for dropped tokens."""
    return _kept(t.take_rows(y.flatten(0, -2), place), placed)


def _kept(rows: Tensor, are_kept: Tensor | None) -> Tensor:
    return rows if are_kept is None else rows.masked_fill(are_kept.logical_not().unsqueeze(-1), 0)


def summed(t: Functions, y: Tensor) -> Tensor:
    """The sum over a token's experts: (B, N, A, D) -> (B, N, D)."""
    return y.sum(2)
