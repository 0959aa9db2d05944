"""The kinds of leaves: what a linear map, a norm, an activation costs and has autograd save.

`torch_models/program.py` has the module of each. Whatever a program does otherwise is a `Function` of its inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from xfcost.formulas.component import NormKind
from xfcost.ledger.accounts import Cached, WeightsRead
from xfcost.ledger.quantization import WeightMatrix
from xfcost.ledger.tensors import Type
from xfcost.ledger.units import Number
from xfcost.program.symbolic import Origin, contiguous_strides

if TYPE_CHECKING:
    from xfcost.program.symbolic import Symbolic
    from xfcost.program.tape import Tape


class Leaf(Protocol):
    """A kind of leaf with its options."""

    def traced(self, t: Tape, *inputs: Any) -> Any:
        """What it makes of symbolic tensors, with its costs noted on the tape."""
        ...


class Worked(NamedTuple):
    """Numbers by a formula, worked out when the module is made."""

    function: str | Callable[..., Any]
    """Plain arithmetic on positions: of the numbers along each axis, 0, 1, …, float64 tensors that broadcast.

    Or, of what needs torch, a function of the options alone, `file:function` of `torch_models/shared`.
    """
    options: Mapping[str, Any] = {}
    type: Type = "model"
    """Where a leaf has inputs, float64 is rounded to their type in every call, and not before."""


class Weight(NamedTuple):
    """A parameter of a leaf."""

    shape: tuple[Number, ...]
    init: str | float | Worked = "normal"
    """How torch draws it (`torch_models/program.py`), a constant, or how fixed numbers are worked out."""
    name: str = "weight"
    learns: bool = True
    """Is it a parameter, and not a buffer?"""
    shared: str | None = None
    """The name of the table that the whole model shares; it is then no parameter of the leaf."""


class Linear(NamedTuple):
    """xW + b: (…, D) -> (…, D'): N·D·D' MACs, D·D' (+ D') parameters."""

    outputs: Number
    bias: bool = True

    def traced(self, t: Tape, x: Symbolic) -> Symbolic:
        weight, bias = t.weight(self.outputs, x.shape[-1]), t.weight(self.outputs) if self.bias else None
        return t.linear_map(x, weight, bias)


class AdapterMap(NamedTuple):
    """xW of an adapter, A or B of LoRA, which is trained beside frozen weights: (…, D) -> (…, D')."""

    outputs: Number

    def traced(self, t: Tape, x: Symbolic) -> Symbolic:
        weight = t.weight(self.outputs, x.shape[-1], adapts=True)
        t.note(adapter=True)
        return t.linear_map(x, weight, stored_in_dtype=True)


class AdapterSum(NamedTuple):
    """y + α/r·u on the columns of u, from `start` on, in place: (…, D'), (…, K) -> (…, D')."""

    start: Number

    def traced(self, t: Tape, y: Symbolic, update: Symbolic) -> Symbolic:
        part = y.narrow(-1, self.start, update.shape[-1])
        t.call("aten::add_", (part, update * 1.0), part.shape)
        result = y.view_of(y.shape, y.strides)
        if update.learns:
            origins = [one.storage.origin for one in (y, update) if one.learns]
            result.learns, y.storage.origin = True, Origin(origins)
        return result


# Title, learned vectors.
_NORMS: Final[dict[str, tuple[str, int]]] = {
    "layer_norm": ("Layer norm", 2),
    "rms_norm": ("RMS norm", 1),
    "batch_norm": ("Batch norm", 2),
    "affine": ("Affine", 2),
    "group_norm": ("Group norm", 2),
}


class Norm(NamedTuple):
    """A norm of the last axis: (…, D) -> (…, D).

    layer_norm   2d parameters (Ba et al. 2016); x, mean and 1/σ of each token are saved
    rms_norm     d parameters (Zhang and Sennrich 2019); x and x/rms in float32 or wider, and 1/rms of each token
    batch_norm   2d parameters, with running statistics, which are buffers (Ioffe and Szegedy 2015); x, mean and 1/σ of
                 each channel, of the whole batch
    affine       2d parameters: a scale and a shift, no statistics (Touvron et al. 2021, ResMLP, §2); x
    group_norm   2d parameters; one group, with statistics over all tokens: global mixing (Wu and He 2018); x channel by
                 channel, mean and 1/σ of the sample
    """

    kind: NormKind

    def traced(self, t: Tape, x: Symbolic) -> Symbolic:
        (title, vectors), width = _NORMS[self.kind], x.shape[-1]
        weights = [t.weight(width) for _ in range(vectors)]
        t.note(title=title)
        norm: Callable[..., Symbolic] = getattr(self, f"_{self.kind}")
        return norm(t, x, *weights)

    @staticmethod
    def _layer_norm(t: Tape, x: Symbolic, *weights: Symbolic) -> Symbolic:
        return t.layer_norm(x, *weights)

    @staticmethod
    def _rms_norm(t: Tape, x: Symbolic, weight: Symbolic) -> Symbolic:
        return t.rms_norm(x, weight)

    @staticmethod
    def _batch_norm(t: Tape, x: Symbolic, *weights: Symbolic) -> Symbolic:
        flat, width = x.flatten(0, -2), x.shape[-1]
        y = t.call("aten::_native_batch_norm_legit_no_training", (flat, *weights), flat.shape, like=flat)
        t.save(y, flat, *([t.made((width, 2), *weights, type_="statistic")] if y.learns else []))
        return y.reshape(*x.shape)

    @staticmethod
    def _affine(t: Tape, x: Symbolic, scale: Symbolic, shift: Symbolic) -> Symbolic:
        return x * scale + shift

    @staticmethod
    def _group_norm(t: Tape, x: Symbolic, *weights: Symbolic) -> Symbolic:
        tokens = x.shape[1]
        t.note(mixing="global", reads="N", reads_tokens=tokens, content_dependent=True)
        by_channel = x.transpose(1, 2).contiguous()
        y = t.call("aten::group_norm", (by_channel, *weights), by_channel.shape)
        t.save(y, by_channel, t.made((x.shape[0], 2), x))
        return y.transpose(1, 2)


class Act(NamedTuple):
    """An activation function, element by element."""

    kind: str

    def traced(self, t: Tape, x: Symbolic) -> Symbolic:
        if self.kind == "gelu_quick":  # x·sigmoid(1.702·x)
            return x * (x * 1.702).sigmoid()
        return t.elementwise(self.kind, x)


class Function(NamedTuple):
    """A function of tensors: its operations are those of its row."""

    function: Callable[..., Any]
    weights: tuple[Weight, ...]
    options: Mapping[str, Any]
    turn: int | None = None
    """The number of the call, where the function takes it."""

    @property
    def of_call(self) -> dict[str, int]:
        """What each call of its module is given."""
        return {} if self.turn is None else {"turn": self.turn}

    def traced(self, t: Tape, *inputs: Symbolic) -> Any:
        held = [t.weight(*one.shape, learns=one.learns, shared=one.shared) for one in self.weights]
        options = self.options if self.turn is None else {**self.options, "turn": self.turn}
        return self.function(t, *inputs, *held, **options)


class Rotary(NamedTuple):
    """x·cos + x'·sin, x' holding the other column of each pair: (…, N, K) (Su et al. 2021, §3.2.2); angles are tables.

    In a decode step the token is one of `tokens`.
    """

    tokens: Number
    base: float

    def traced(self, t: Tape, x: Symbolic) -> Symbolic:
        cos, sin = (t.held(x.shape[-2], x.shape[-1]) for _ in range(2))
        return x * cos + x.roll(1, -1) * sin


class State(NamedTuple):
    """What a decode step keeps for the next one, whatever N is: it takes the place of what the step before has kept."""

    starts: tuple[float, ...] = ()

    def traced(self, t: Tape, *new: Symbolic) -> None:
        elements = sum(one.numel() for one in new) // t.batch
        t.note(cache=Cached(elements, recurrent=True))
        for one in new:
            t.call("aten::index_copy_", (one,), one.shape)


class FusedAttention(NamedTuple):
    """softmax(QKᵀ·scale + bias)V in one kernel: (B, H, N, K), (B, H/J, M, K), (B, H/J, M, V) -> (B, H, N, V).

    Queries, keys, values, the output, the bias and a log-sum-exp per query are saved; a boolean mask as zeros and -∞ of
    the queries' type.
    """

    causal: bool
    scale: float | None = None
    """None is 1/√K."""
    grouped: bool = False

    def traced(self, t: Tape, q: Symbolic, k: Symbolic, v: Symbolic, bias: Symbolic | None = None) -> Symbolic:
        args = (q, k, v, bias, 0.0, self.causal, self.scale)
        like = q
        if t.follows_memory and v.shape[-1] != q.shape[-1]:  # another kernel, which writes token by token
            batch, heads, tokens, _ = q.shape
            shape = (batch, tokens, heads, v.shape[-1])
            like = q.view_of(shape, contiguous_strides(shape)).transpose(1, 2)
        y = t.call("aten::scaled_dot_product_attention", args, (*q.shape[:-1], v.shape[-1]), like=like)
        entries = prod(q.shape[:-1]) * k.shape[-2]
        t.gradient(entries * (3 * q.shape[-1] + 2 * v.shape[-1]))
        t.note(statistics=prod(q.shape[:-1]) // t.batch)
        saved = (q, k, v, y, t.made(q.shape[:-1], q, type_="statistic"))
        if bias is not None and not bias.is_floating_point():
            bias = t.made(bias.shape, bias)
        t.save(y, *saved, *(() if bias is None else (bias,)))
        return y


class KeyValueCache(NamedTuple):
    """The cache of a decode step: (B, H, 1, K) and (B, H, 1, V) of a token -> those of the M tokens that it reads.

    A ring of the last `rows` tokens of each of `classes` residue classes; it `grows` with the tokens that there are.
    Behind a cached prefix several tokens are added at once, whose ledger has the cache of the step after them.
    """

    rows: Number
    classes: Number = 1
    grows: bool = True

    def traced(self, t: Tape, *new: Symbolic) -> tuple[Symbolic, ...]:
        elements = sum(one.numel() for one in new) // t.batch
        per_token = elements if self.grows else 0
        tokens = self.rows * self.classes
        if t.decodes:
            t.note(cache=Cached(elements * tokens, per_token, tokens=tokens))
        t.cost("moved", elements * t.batch)
        return tuple(t.past(*one.shape[:-2], self.rows, one.shape[-1]) for one in new)


class LatentCache(NamedTuple):
    """The same of a latent (B, 1, C) and a key (B, 1, 1, R) beside each other -> (B, 1, M, C + R)."""

    rows: Number

    def traced(self, t: Tape, latent: Symbolic, key: Symbolic) -> Symbolic:
        width = latent.shape[-1] + key.shape[-1]
        if t.decodes:
            t.note(cache=Cached(width * self.rows, width, tokens=self.rows))
        t.cost("moved", width * latent.shape[-2] * t.batch)
        return t.past(latent.shape[0], 1, self.rows, width)


class IntervalMask(NamedTuple):
    """-∞, in place, at keys outside their query's interval of positions: (…, G, H, T, M); without scores, what is open.

    It holds positions and compares them in every call, so that no buffer has the size of the scores.
    """

    shape: tuple[Number, Number, Number]
    """Groups, queries and keys."""
    worked: Worked
    """What makes its module."""

    def traced(self, t: Tape, scores: Symbolic | None = None) -> Symbolic:
        groups, queries, keys = self.shape
        at = t.held(groups, keys).unsqueeze(1)
        first, last = (t.held(groups, queries).unsqueeze(2) for _ in range(2))
        shut = (at < first).logical_or(at > last).unsqueeze(1)
        return shut.logical_not() if scores is None else scores.masked_fill_(shut, float("-inf"))


class TalkingHeads(NamedTuple):
    """A map of the heads of each pair of tokens, without a copy of the matrix: (B, H, N, M) -> (B, H, N, M)."""

    heads: Number

    def traced(self, t: Tape, pairs: Symbolic) -> Symbolic:
        weight, bias = t.weight(self.heads, self.heads), t.weight(self.heads)
        t.note(weight_matrices=(WeightMatrix(self.heads, self.heads),))
        mixed = weight.expand(pairs.shape[0], -1, -1) @ pairs.flatten(2) + bias.unsqueeze(-1)
        return mixed.unflatten(2, pairs.shape[2:])


class Absorbed(NamedTuple):
    """Maps out of a latent of width C, on queries instead of on keys: (B, H, 1, K) -> (B, H, 1, C).

    `to_values`: on what was read of the latents, (B, H, 1, C) -> (B, H, 1, V).
    """

    rank: Number
    heads: Number
    parts: tuple[Number, Number]
    to_values: bool = False

    @property
    def options(self) -> dict[str, bool]:
        """What each call of its module is given."""
        return {"values": self.to_values}

    def traced(self, t: Tape, x: Symbolic) -> Symbolic:
        outputs = self.heads * sum(self.parts)
        weight = t.weight(outputs, self.rank).unflatten(0, (self.heads, -1))
        t.note(weight_matrices=(WeightMatrix(self.rank, outputs),))
        keys, values = weight.split(self.parts, 1)
        return x @ (values.mT if self.to_values else keys)


class BucketBias(NamedTuple):
    """A learned number per bucket of distances and head, of all pairs of N tokens: -> (H, N, N), a view (T5's).

    In a decode step of the last token and all tokens: -> (H, 1, N); behind P cached tokens -> (H, N - P, N).
    """

    buckets: Any
    tokens: Number
    heads: Number
    causal: bool

    def traced(self, t: Tape) -> Symbolic:
        n, share = self.tokens, self.buckets.share
        table = t.weight(self.buckets.count, self.heads, shared=share)
        if t.decodes:
            t.note(weights_read=WeightsRead(n * self.heads))
            return t.take_rows(table, t.held(n)).transpose(0, 1).unsqueeze(1)
        queries = n - t.cached
        by_distance = t.take_rows(table, t.held(n + queries - 1)).transpose(0, 1)
        return t.call("aten::flip", (by_distance,), (self.heads, queries, n))


class HeadConv(NamedTuple):
    """A convolution of each head along the tokens, without bias: (B, H, N, K) -> (B, H, N, K)."""

    heads: Number
    size: Number

    def traced(self, t: Tape, x: Symbolic) -> Symbolic:
        weight = t.weight(self.heads, 1, self.size, 1)
        return t.save(t.call("aten::convolution", (x, weight, None), x.shape, factors=(x, weight)), x)


class ExpertLinear(NamedTuple):
    """Linear maps of E experts: (P, D), rows sorted by expert, and how many each has (E,) -> (P, D').

    Or of S slots of each: (E, S, D) -> (E, S, D'). Each row meets one matrix: P·D·D' MACs, E·D·D' (+ E·D') parameters.
    """

    experts: Number
    outputs: Number
    bias: bool

    def traced(self, t: Tape, x: Symbolic, *counts: Symbolic) -> Symbolic:
        inputs = x.shape[-1]
        weight = t.weight(self.experts, self.outputs, inputs)
        bias = t.weight(self.experts, self.outputs) if self.bias else None
        t.note(weight_matrices=(WeightMatrix(inputs, self.outputs, count=self.experts),))
        if not counts:
            y = x @ weight.mT
            return y if bias is None else y + bias.unsqueeze(1)
        shape = (*x.shape[:-1], self.outputs)
        y = t.call("xfcost::grouped_linear", (x, weight, bias, *counts), shape, factors=(x, weight))
        return t.save(y, *([x] if weight.learns else []))


class TokenBefore(NamedTuple):
    """Of a decode step the token before, which a cache keeps; of the first token zeros, or a learned start."""

    learned: bool

    def traced(self, t: Tape, x: Symbolic) -> Symbolic:
        start = t.weight(x.shape[-1]) if self.learned else None
        t.call("aten::index_copy_", (x,), x.shape)
        return t.call("aten::index_select", (x, start), x.shape)


class TokenOfMemory(NamedTuple):
    """Of a decode step the token of the memory, (B, M, D) in a cache, at the current position: -> (B, 1, D)."""

    shape: tuple[Number, ...]

    def traced(self, t: Tape) -> Symbolic:
        batch, _, width = self.shape
        return t.zeros(batch, 1, width)


class Distances(NamedTuple):
    """Cosines to the centroids of clusters: (B, H, N, K) -> (B, H, N, C). They only choose tokens: no gradient passes.

    Those to one centroid lie beside each other, for the search. Training moves the centroids towards all `sides`, which
    are queries and keys, or both in one.
    """

    count: Number
    sides: int

    def traced(self, t: Tape, x: Symbolic) -> Symbolic:
        heads, _, width = x.shape[1:]
        return (t.held(heads, self.count, width) @ x.detach().mT).mT


class Hash(NamedTuple):
    """argmax([x; -x]) of every round and factor, as one bucket number: (B, H, P, r) -> (B, H, R, P).

    Tokens from `tokens` on are padding, which has a bucket of its own.
    """

    rounds: Number
    factors: tuple[Number, ...]
    tokens: Number
    padded: Number

    def traced(self, t: Tape, x: Symbolic) -> Symbolic:
        x, start = x.unflatten(-1, (self.rounds, -1)), 0
        shape = x.shape[:-1]
        for factor in self.factors:
            part = x.narrow(-1, start, factor // 2)
            t.call("aten::max", (part,), shape)
            least = t.call("aten::min", (part,), shape)
            t.call("aten::neg", (least,), shape)
            start = start + factor // 2
        return t.made(shape, x, type_="int64").transpose(-2, -1)


class BucketOrder(NamedTuple):
    """Tokens sorted by bucket, then by position: (B, H, R, P) -> the order (B, H, R, P), and where each token stands.

    That is its place in the orders of all rounds one after the other: (B, H, P, R).
    """

    def traced(self, t: Tape, bucket: Symbolic) -> tuple[Symbolic, Symbolic]:
        order = t.call("aten::argsort", (bucket, -1), bucket.shape, like=bucket, type_="int64")
        return order, t.made(bucket.shape, bucket, type_="int64").transpose(-2, -1)


class SortLogits(NamedTuple):
    """log(relu(x·factor) + ε) / temperature, with Gumbel noise in training: (B, H, U, U)."""

    factor: float
    temperature: float
    epsilon: float

    def traced(self, t: Tape, x: Symbolic) -> Symbolic:
        return ((x * self.factor).relu() + self.epsilon).log() / self.temperature


class Made(NamedTuple):
    """A tensor of integers or truth values."""

    shape: tuple[Number, ...]
    type: Type = "int64"


class Bookkeeping(NamedTuple):
    """Integers and truth values that a function of torch's side works out (`file:function`): no FLOPs, no gradient."""

    function: str
    outputs: tuple[Made, ...]
    options: Mapping[str, Any]

    def traced(self, t: Tape, *inputs: Symbolic) -> tuple[Symbolic, ...]:
        return tuple(t.made(one.shape, *inputs, type_=one.type) for one in self.outputs)
