"""What the references share: plain data in, and the few formulas that every paper takes for granted."""

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

Spot = tuple[int, ...]
Linear = Any  # weights with `.weight` (out, in) and `.bias`, or None for it


class Options:
    """What a spec may say of a mechanism, by the names that it has there; `kind` is its tag."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.__dict__.update(fields)


class Place(NamedTuple):
    """Where a mechanism stands: tokens of a grid in raster order, behind `special` ones; or of maps, one by one."""

    sides: Spot
    special: int
    dim: int
    out_dim: int
    levels: tuple[Spot, ...] = ()

    @property
    def total(self) -> int:
        """All tokens."""
        return math.prod(self.sides) + self.special


class Weights:
    """Tensors by dotted names, as attributes; None where there is none."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self.tensors = tensors

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in self.tensors:
            return self.tensors[name]
        inside = {rest[len(name) + 1 :]: tensor for rest, tensor in self.tensors.items() if rest.startswith(f"{name}.")}
        return Weights(inside) if inside else None


def spots(sides: Spot) -> list[Spot]:
    """Where tokens stand, in raster order."""
    return list(itertools.product(*(range(side) for side in sides)))


def numbered(sides: Spot) -> dict[Spot, int]:
    """Where a token stands -> its number."""
    return {spot: number for number, spot in enumerate(spots(sides))}


def linear(leaf: Linear, x: Tensor) -> Tensor:
    """x Wᵀ + b."""
    y = x @ leaf.weight.T
    return y if leaf.bias is None else y + leaf.bias


def sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + (-x).exp())


def silu(x: Tensor) -> Tensor:
    return x * sigmoid(x)


def gelu(x: Tensor) -> Tensor:
    """X·Φ(x)."""
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


def gelu_quick(x: Tensor) -> Tensor:
    """x·sigmoid(1.702·x) (Hendrycks and Gimpel 2016, §2)."""
    return x * sigmoid(1.702 * x)


def gelu_tanh(x: Tensor) -> Tensor:
    """x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))/2 (Hendrycks and Gimpel 2016, §2)."""
    return x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


def relu(x: Tensor) -> Tensor:
    """max(0, x), whose slope at 0 is 0."""
    return torch.where(x > 0, x, 0.0)


def relu6(x: Tensor) -> Tensor:
    """min(max(0, x), 6), whose slope at 0 and at 6 is 0."""
    return torch.where(x < 6, relu(x), 6.0)


ACTS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": gelu,
    "gelu_quick": gelu_quick,
    "gelu_tanh": gelu_tanh,
    "silu": silu,
    "relu": relu,
    "relu6": relu6,
    "none": lambda x: x,
}


def layer_norm(leaf: Any, x: Tensor) -> Tensor:
    """(x - mean) / √(variance + 10⁻⁵) over the channels, scaled and shifted."""
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * leaf.weight + leaf.bias


def batch_norm(leaf: Any, x: Tensor) -> Tensor:
    """With running statistics: (x - mean) / √(variance + 10⁻⁵), scaled and shifted."""
    return (x - leaf.running_mean) / (leaf.running_var + 1e-5).sqrt() * leaf.weight + leaf.bias


def rms_norm(leaf: Any, x: Tensor) -> Tensor:
    """x / √(mean(x²) + ε), ε being what the type tells from 0 beside 1, as torch's own norm has it."""
    return x / (x.square().mean(-1, keepdim=True) + torch.finfo(x.dtype).eps).sqrt() * leaf.weight


def group_norm(leaf: Any, x: Tensor) -> Tensor:
    """One group: mean and variance of all of a sample's numbers."""
    centred = x - x.mean((1, 2), keepdim=True)
    return centred / (centred.square().mean((1, 2), keepdim=True) + 1e-5).sqrt() * leaf.weight + leaf.bias


def normed(kind: str, leaf: Any, x: Tensor) -> Tensor:
    """The norm of that name; x where it is "none"."""
    if kind == "none":
        return x
    if kind == "affine":
        return x * leaf.weight + leaf.bias
    norms = {"layer_norm": layer_norm, "batch_norm": batch_norm, "rms_norm": rms_norm, "group_norm": group_norm}
    return norms[kind](leaf, x)


def table(queries: int, keys: int, reads: Callable[[int, int], bool]) -> Tensor:
    """(N, M): does query n read key m?"""
    return torch.tensor([[reads(n, m) for m in range(keys)] for n in range(queries)], dtype=torch.bool)


def everything(n: int, m: int) -> bool:
    return True


def up_to_itself(n: int, m: int) -> bool:
    return m <= n


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    heads: int,
    reads: Callable[[int, int], bool] | Tensor = everything,
    bias: Tensor | None = None,
) -> Tensor:
    """softmax(QKᵀ/√K + bias)V, head after head, over what is read; zeros for who reads nothing.

    Queries (B, N, h·K), keys (B, M, h·K), values (B, M, h·V), a bias (h, N, M) or (h, B, N, M) -> (B, N, h·V).
    """
    read = reads if isinstance(reads, Tensor) else table(q.shape[1], k.shape[1], reads)
    some = read.any(-1, keepdim=True)
    width, out = q.shape[-1] // heads, v.shape[-1] // heads
    answers = []
    for head in range(heads):
        mine, values = slice(head * width, (head + 1) * width), slice(head * out, (head + 1) * out)
        scores = torch.einsum("bnk,bmk->bnm", q[..., mine], k[..., mine]) / math.sqrt(width)
        if bias is not None:
            scores = scores + bias[head]
        weights = scores.masked_fill(some & ~read, -math.inf).softmax(-1) * some
        answers.append(torch.einsum("bnm,bmv->bnv", weights, v[..., values]))
    return torch.cat(answers, -1)


def thirds(leaf: Linear, x: Tensor, parts: int = 3) -> tuple[Tensor, ...]:
    """Equal parts of a linear map's answer: queries, keys, values."""
    y = linear(leaf, x)
    width = y.shape[-1] // parts
    return tuple(y[..., at * width : (at + 1) * width] for at in range(parts))
