"""The kinds of leaves: what a linear map, a norm, an activation costs and has autograd save.

`torch_models/program.py` has the module of each. Whatever a program does otherwise is a `Function` of its inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from xfcost.formulas.component import NormKind
from xfcost.ledger.quantization import WeightMatrix
from xfcost.ledger.tensors import Type
from xfcost.ledger.units import Number

if TYPE_CHECKING:
    from xfcost.program.symbolic import Symbolic
    from xfcost.program.tape import Tape


class Leaf(Protocol):
    """A kind of leaf with its options."""

    def traced(self, t: Tape, *inputs: Any) -> Any:
        """What it makes of symbolic tensors, with its costs noted on the tape."""
        ...


class Weight(NamedTuple):
    """A parameter of a leaf."""

    shape: tuple[Number, ...]
    init: str | float = "normal"
    """How torch draws it (`torch_models/program.py`), or a constant."""
    name: str = "weight"
    learns: bool = True
    """Is it a parameter, and not a buffer?"""


class Linear(NamedTuple):
    """xW + b: (…, D) -> (…, D'): N·D·D' MACs, D·D' (+ D') parameters."""

    outputs: Number
    bias: bool = True

    def traced(self, t: Tape, x: Symbolic) -> Symbolic:
        inputs = x.shape[-1]
        weight, bias = t.weight(self.outputs, inputs), t.weight(self.outputs) if self.bias else None
        t.note(weight_matrices=(WeightMatrix(inputs, self.outputs),))
        flat = x.reshape(-1, inputs)
        y = t.call("aten::linear", (x, weight, bias), (*x.shape[:-1], self.outputs), factors=(x, weight))
        t.save(y, flat)
        return y


# Title, learned vectors.
_NORMS: Final[dict[str, tuple[str, int]]] = {
    "layer_norm": ("Layer norm", 2),
    "rms_norm": ("RMS norm", 1),
    "batch_norm": ("Batch norm", 2),
    "affine": ("Affine", 2),
    "group_norm": ("Group norm", 2),
}
_FLOAT32: Final = 4


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
        y = t.call("aten::layer_norm", (x, *weights), x.shape)
        t.save(y, x, t.made((*x.shape[:-1], 2), x, type_="statistic"))
        return y

    @staticmethod
    def _rms_norm(t: Tape, x: Symbolic, weight: Symbolic) -> Symbolic:
        y = t.call("aten::rms_norm", (x, weight), x.shape, like=x)
        wide = x if t.element >= _FLOAT32 else t.made(x.shape, x, type_="float32")
        normed = t.made(x.shape, x, type_="statistic")
        t.save(y, wide, normed, t.made(x.shape[:-1], x, type_="statistic"))
        return y

    @staticmethod
    def _batch_norm(t: Tape, x: Symbolic, *weights: Symbolic) -> Symbolic:
        flat, width = x.flatten(0, -2), x.shape[-1]
        y = t.call("aten::_native_batch_norm_legit_no_training", (flat, *weights), flat.shape, like=flat)
        t.save(y, flat, t.made((width, 2), *weights, type_="statistic"))
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

    def traced(self, t: Tape, *inputs: Symbolic) -> Any:
        held = (t.weight(*one.shape, learns=one.learns) for one in self.weights)
        return self.function(t, *inputs, *held, **self.options)


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
        t.save(y, x)
        return y


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
