"""Which tokens a whole module really reads, found by changing one token and looking at what changes.

It takes any nn.Module with example inputs, and knows nothing of specs, mechanisms or formulas.
"""

import copy
from math import prod
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn

from xfcost.ledger.operation import Mixing

# Numbers of the perturbed input that go through the module at once; attention on them keeps N/D times as many.
MOST_NUMBERS: Final = 2**17


class Probed(NamedTuple):
    """What a module was seen to read."""

    reads: tuple[frozenset[int], ...]
    """For every output token, the input tokens whose change changes it."""
    inputs: int
    """Input tokens that were changed, one after the other."""

    @property
    def most(self) -> int:
        """The most tokens that one output token reads."""
        return max(map(len, self.reads), default=0)

    @property
    def pairs(self) -> int:
        """Pairs (output token, input token read)."""
        return sum(map(len, self.reads))

    @property
    def disjoint(self) -> bool:
        """Is every input token read by at most one output token?"""
        return self.pairs == len(frozenset[int]().union(*self.reads))


def probe(
    module: nn.Module,
    inputs: tuple[Tensor, ...],
    *,
    which: int = 0,
    tokens: tuple[int, ...] = (1,),
    out_tokens: tuple[int, ...] | None = None,
    fresh_weights: bool = True,
    rounding: float = 0,
) -> Probed:
    """Which tokens of `inputs[which]` every output token of `module` reads.

    A copy of the module runs in float64 and evaluation mode. One token at a time is replaced by noise, many such inputs
    beside each other in the batch. They are compared bit by bit with as many unchanged inputs at the same places of a
    batch of the same size, where equal numbers take equal paths: any difference at all is a reading.

    Args:
        module: any module whose inputs have the batch for their first axis; its first output is looked at.
        inputs: example inputs; only their shapes matter where they are floats, for fresh noise is put in their place.
        which: the input whose tokens are changed (1 for the memory of a cross-attention).
        tokens: the axes of that input that number its tokens, in raster order.
        out_tokens: the same for the output; as for the input where it isn't given.
        fresh_weights: put noise in place of the weights too, so that zeros and ones of an initialisation hide nothing.
        rounding: differences up to this part of the largest number are none. Where content decides which tokens share
            a product (an expert's, say), its size decides how it rounds, and others are seen in the last bit.

    Raises:
        ValueError: the module stands on `meta`, the input holds no floats, or the output holds NaN.
    """
    noise = torch.Generator().manual_seed(0)
    module = _prepared(module, noise if fresh_weights else None)
    example = inputs[which]
    if not example.is_floating_point():
        raise ValueError("token numbers can't be changed a little; probe what follows their embedding")
    batch = example.shape[0]
    singles = [_single(tensor, batch, noise) for tensor in inputs]
    axes = [axis % example.ndim for axis in tokens]
    changed = _changed(singles[which], axes, noise)
    size = max(1, MOST_NUMBERS // max(singles[which].numel(), 1))
    seen: list[Tensor] = []
    unchanged = torch.empty(0)
    with torch.no_grad():
        for chunk in torch.split(changed, size):
            if unchanged.shape[0] != chunk.shape[0]:
                unchanged = _run(module, _batched(singles, inputs, which, singles[which].expand_as(chunk)))
            answer = _run(module, _batched(singles, inputs, which, chunk))
            seen.append(_differs(answer, unchanged, out_tokens or tokens, rounding))
    differs_MN = torch.cat(seen)
    reads = tuple(frozenset(column.nonzero().flatten().tolist()) for column in differs_MN.T)
    return Probed(reads, differs_MN.shape[0])


def _prepared(module: nn.Module, noise: torch.Generator | None) -> nn.Module:
    if any(tensor.is_meta for tensor in (*module.parameters(), *module.buffers())):
        raise ValueError("a module on `meta` has no numbers to probe; build it on the CPU")
    module = copy.deepcopy(module).cpu().double().eval().requires_grad_(requires_grad=False)
    for parameter in module.parameters() if noise else ():
        gain = prod(parameter.shape[1:]) ** -0.5
        parameter.copy_(torch.randn(parameter.shape, generator=noise, dtype=torch.float64) * gain)
    return module


def kind_of(small: Probed, large: Probed) -> Mixing:
    """The mixing kind that two probes of one module tell, on a grid of tokens and on a larger one.

    per-token: no input token goes into two output tokens, and no output token reads more where there are more tokens;
    global: the reading grows with the tokens; local: it doesn't.

    Raises:
        ValueError: the second grid is not the larger.
    """
    if large.inputs <= small.inputs:
        raise ValueError(f"two sizes are needed: {large.inputs} tokens are not more than {small.inputs}")
    if large.most > small.most:
        return "global"
    return "per-token" if small.disjoint and large.disjoint else "local"


def _single(tensor: Tensor, batch: int, noise: torch.Generator) -> Tensor:
    """One sample (1, …) of noise for floats; an input without the batch keeps its shape."""
    shape = (1, *tensor.shape[1:]) if tensor.ndim and tensor.shape[0] == batch else tensor.shape
    if tensor.is_floating_point():
        return torch.randn(shape, generator=noise, dtype=torch.float64)
    return tensor[: shape[0]].cpu() if shape else tensor.cpu()


def _changed(x: Tensor, axes: list[int], noise: torch.Generator) -> Tensor:
    """(1, …) -> (M, …): in the m-th, token m is new noise."""
    sizes = [x.shape[axis] for axis in axes]
    numbers = torch.arange(prod(sizes)).reshape(sizes).permute(*(axes.index(axis) for axis in sorted(axes)))
    numbers = numbers.reshape([size if axis in axes else 1 for axis, size in enumerate(x.shape)])
    mine = numbers == torch.arange(prod(sizes)).reshape(-1, *[1] * (x.ndim - 1))
    return torch.where(mine, torch.randn(x.shape, generator=noise, dtype=torch.float64), x)


def _batched(singles: list[Tensor], inputs: tuple[Tensor, ...], which: int, chunk: Tensor) -> list[Tensor]:
    """`chunk` for the input `which`, as many copies of the others that have a batch, and the rest as it is."""
    batch = inputs[which].shape[0]
    return [
        chunk.contiguous()
        if number == which
        else single.expand(chunk.shape[0], *single.shape[1:]).contiguous()
        if single.ndim and inputs[number].shape[0] == batch
        else single
        for number, single in enumerate(singles)
    ]


def _run(module: nn.Module, inputs: list[Tensor]) -> Tensor:
    answer: Any = module(*inputs)
    while not isinstance(answer, Tensor):
        answer = next(iter(answer.values())) if isinstance(answer, dict) else answer[0]
    if answer.isnan().any():
        raise ValueError("the output holds NaN, which equals nothing")
    return answer


def _differs(answer: Tensor, unchanged: Tensor, axes: tuple[int, ...], rounding: float) -> Tensor:
    """(M, …) -> (M, N): does output token n differ anywhere in sample m?"""
    axes = tuple(axis % answer.ndim for axis in axes)
    others = [axis for axis in range(1, answer.ndim) if axis not in axes]
    differs = answer != unchanged
    if rounding:
        differs &= (answer - unchanged).abs() > rounding * unchanged.abs().max()
    differs = differs.permute(0, *axes, *others)
    return differs.reshape(answer.shape[0], prod(answer.shape[axis] for axis in axes), -1).any(-1)
