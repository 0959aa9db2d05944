"""Mixture of experts: a router sends every token to a few of many feed-forward networks."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Annotated, Final, Literal, NamedTuple

import msgspec

from xfcost.formulas.arithmetic import ceil_div, ceil_log2, lesser
from xfcost.formulas.component import (
    ComponentError,
    Grid,
    Letter,
    Number,
    Operation,
    PerToken,
    Place,
    Width,
    divisors_text,
)
from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.formulas.rows import elementwise, linear, maximum, move, on_raw_input, sort
from xfcost.formulas.tensors import Shape, copied, product, within
from xfcost.layers.feed_forward import Geglu, Mlp, Swiglu
from xfcost.ledger.accounts import WeightsRead
from xfcost.ledger.tensors import BEFORE, INPUT, OUTPUT, Saved, Tensor, Tensors

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
        if self.experts % groups.count:
            raise ComponentError(
                "groups",
                f"{self.experts} experts don't divide into {groups.count} groups; `count` could be "
                f"{divisors_text(self.experts)}",
            )
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

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d = place.grid.total, place.dim
        t = _ExpertTensors(n, d, self.experts, self.active, self.computed(n), slots=self.capacity is not None)
        yield from self._routing(n, d, t)
        # Integers, without a gradient
        tensors = Tensors((Tensor("choose", t.copies, "int64"),), t.arrangement)
        yield move("arrange", "Places of the tokens' copies with their experts", tensors=tensors)
        rows = self.computed(n)
        # The tokens of the rows are saved, and a mask of the empty slots
        reads = (Tensor(INPUT, (t.tokens, t.width)), *t.read_arrangement)
        empty = (Tensor("empty", (t.computed,), "bool"),) if t.slots else ()
        tensors = Tensors(reads, (Tensor(OUTPUT, (t.computed, t.width)),), (Saved("arrange"),), empty)
        yield move("gather", "Tokens to their experts", rows * d, tensors=tensors)
        for row in self.expert.operations(msgspec.structs.replace(place, grid=Grid((rows,)))):
            yield self._of_each(t.of_each(row), n)
        copies = n * self.active * d
        # The places of the copies are saved, and a mask of those that were dropped
        reads = (Tensor(BEFORE, (t.computed, t.width)), *t.read_arrangement)
        dropped = (Tensor("dropped", t.copies, "bool"),) if t.slots else ()
        tensors = Tensors(reads, (Tensor(OUTPUT, (*t.copies, t.width)),), (Saved(_PLACE),), dropped)
        yield move("scatter", "Experts' answers to their tokens", copies, tensors=tensors)
        weighed = product(Tensor(BEFORE, (copies,)), Tensor("weights", (n, self.active)), (copies,))
        yield elementwise("weigh", "Answers times their weights", "multiply", copies, tensors=weighed)
        if self.active != 1:
            summed = copied((n, self.active, d), (n, d))
            yield elementwise("sum", "Sum over a token's experts", "sum", copies, tensors=summed)
        if self.shared is not None:
            yield from self._shared(place)

    def _shared(self, place: Place) -> Iterator[Operation]:
        for row in self.shared_network(place.dim).operations(place):
            yield msgspec.structs.replace(within(row, "shared_", INPUT), title=f"{row.title} (shared experts)")
        both = ("weigh" if self.active == 1 else "sum", BEFORE)
        yield elementwise("shared_add", "Add the shared experts", "add", place.grid.total * place.dim, of=both)

    def _of_each(self, row: Operation, tokens: Number) -> Operation:
        """A network's row, for all experts: each has weights of its own, and a token uses those of A.

        N tokens choose N·A experts at most; where slots are computed, filled or not, all E of them are read.
        """
        every = row.params * self.experts
        chosen = row.params * self.active * tokens
        slots = self.capacity is not None
        return msgspec.structs.replace(
            row,
            title=f"{row.title} (experts)",
            params=every,
            weight_matrices=tuple(msgspec.structs.replace(one, count=self.experts) for one in row.weight_matrices),
            idle_params=row.params * (self.experts - self.active),
            weights_read=WeightsRead(every if slots else lesser(chosen, every), every, None if slots else tokens),
        )

    def _routing(self, n: Number, d: Number, t: _ExpertTensors) -> Iterator[Operation]:
        every = n * self.experts
        router = on_raw_input(linear("router", "Router", n, d, self.experts, bias=False))
        yield msgspec.structs.replace(router, weight_matrices=())  # no format quantises it
        yield elementwise("probabilities", f"Router's {self.router}", self.router, every)
        if self.correction:
            yield elementwise("correction", "Bias of the choice", "add", every)
        if self.groups is not None:
            yield self._group_choice(self.groups, n, t)
        yield (
            maximum("choose", "Choice of the expert", every, tensors=t.choice)
            if self.active == 1
            else sort("choose", "Choice of the experts (top A)", n, self.experts, tensors=t.choice)
        )
        each = FLOPS_PER_ELEMENT["sum"] + FLOPS_PER_ELEMENT["multiply"] if self.normalize else 0
        each += FLOPS_PER_ELEMENT["multiply"] if self.scale is not None else 0
        # All probabilities and the choice are saved; the chosen ones and their sum, where they are divided by it
        every = msgspec.structs.replace(t.every, name="probabilities")
        chosen = Tensor("choose", t.copies, "int64")
        makes = (Tensor("chosen", t.copies), Tensor("sum", (t.tokens,))) if self.normalize else ()
        tensors = Tensors((every, chosen), (Tensor(OUTPUT, t.copies),), (Saved(every.name), Saved("choose")), makes)
        yield Operation(
            path="weights",
            title="Weights of the chosen",
            flops=n * self.active * each,
            moved=n * self.active,
            tensors=tensors,
        )

    def _group_choice(self, groups: Groups, n: Number, t: _ExpertTensors) -> Operation:
        """Scores of the groups, then the best of them; the experts of all others are masked."""
        top_two = groups.score == "top_two"
        # The groups that are chosen and a mask of the others are saved, and what the groups' scores are made of
        score = (
            (Tensor("best two", (t.tokens, groups.count, 2), "int64"),)
            if top_two
            else (Tensor("scores", (t.tokens, groups.count)),)
        )
        chosen = Tensor("groups", (t.tokens, groups.active), "int64")
        closed = Tensor("closed", (t.tokens, groups.count), "bool")
        writes = (msgspec.structs.replace(t.every, name=OUTPUT),)
        tensors = Tensors((t.every,), writes, () if top_two else (Saved(BEFORE),), (*score, chosen, closed))
        of_groups = sort("choose_groups", "Choice of the groups (top)", n, groups.count, tensors=tensors)
        if not top_two:
            return msgspec.structs.replace(of_groups, comparisons=of_groups.comparisons + n * self.experts)
        within = n * self.experts * ceil_log2(self.experts // groups.count)
        sums = 2 * n * groups.count * FLOPS_PER_ELEMENT["sum"]
        return msgspec.structs.replace(of_groups, comparisons=of_groups.comparisons + within, flops=sums)

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


_PLACE: Final = "place"
_COUNTS: Final = "counts"
_FILLED: Final = "filled"
_PLACED: Final = "placed"


class _ExpertTensors(NamedTuple):
    """N tokens of width d, each with A of E experts, and the pairs of token and expert that are computed."""

    tokens: Number
    width: Number
    experts: int
    active: int
    computed: Number
    slots: bool
    """Has an expert a fixed number of slots?"""

    @property
    def copies(self) -> Shape:
        return self.tokens, self.active

    @property
    def every(self) -> Tensor:
        return Tensor(BEFORE, (self.tokens, self.experts))

    @property
    def arrangement(self) -> tuple[Tensor, ...]:
        """Tokens of the rows, places of the copies; then rows of each expert, or which slots and copies have one."""
        rows, places = Tensor(OUTPUT, (self.computed,), "int64"), Tensor(_PLACE, self.copies, "int64")
        if self.slots:
            return rows, places, Tensor(_FILLED, (self.computed,), "bool"), Tensor(_PLACED, self.copies, "bool")
        return rows, places, self.counts

    @property
    def counts(self) -> Tensor:
        return Tensor(_COUNTS, (self.experts,), "int64", once=True)

    @property
    def read_arrangement(self) -> tuple[Tensor, ...]:
        first, *others = self.arrangement
        return msgspec.structs.replace(first, name="arrange"), *others

    @property
    def choice(self) -> Tensors:
        """A top-A saves its numbers, a maximum doesn't."""
        chosen = Tensor(OUTPUT, self.copies, "int64", constant=True)
        return Tensors((self.every,), (chosen,), (Saved(OUTPUT),) if self.active > 1 else ())

    def of_each(self, row: Operation) -> Operation:
        """A row of the network, of all experts: its maps read how many rows each expert has."""
        row = within(row, "experts_", "gather")
        if self.slots or not row.params or row.tensors is None:
            return row
        tensors = msgspec.structs.replace(row.tensors, reads=(*row.tensors.reads, self.counts))
        return msgspec.structs.replace(row, tensors=tensors)
