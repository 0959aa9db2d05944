"""The linear maps of experts, on rows packed without gaps or on slots.

P rows (copies of tokens) of all experts, E experts, S slots of each, D input width, H output width.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xfcost.torch_models.shared.leaves import drawn
from xfcost.torch_models.shared.recurrence import sequential


def _rows(x_PD: Tensor, weight_EHD: Tensor, *_: Tensor | None) -> Tensor:
    return x_PD.new_empty(x_PD.shape[0], weight_EHD.shape[1])


@sequential("grouped_linear(Tensor x, Tensor weight, Tensor? bias, Tensor counts) -> Tensor", _rows)
def grouped_linear(x_PD: Tensor, weight_EHD: Tensor, bias_EH: Tensor | None, counts_E: Tensor) -> Tensor:
    """The first counts[0] rows times the first expert's matrix, the next counts[1] times the second's: (P, H).

    Each row meets one matrix: P·D·H multiply-accumulates. On `meta` the counts have no values, so all rows meet the
    first matrix. The final concatenation exists only in this loop; a grouped kernel writes rows in place.
    """
    if x_PD.is_meta:
        return F.linear(x_PD, weight_EHD.unbind()[0], None if bias_EH is None else bias_EH.unbind()[0])
    return _by_expert(x_PD, weight_EHD, bias_EH, counts_E.tolist())


def evenly(x_PD: Tensor, weight_EHD: Tensor, bias_EH: Tensor | None, counts_E: Tensor) -> Tensor:
    """The same of rows that are spread over the experts as evenly as can be: what runs on `meta`, without counts."""
    rows, experts = len(x_PD), len(weight_EHD)
    return _by_expert(x_PD, weight_EHD, bias_EH, [(rows + one) // experts for one in range(experts)])


def _by_expert(x_PD: Tensor, weight_EHD: Tensor, bias_EH: Tensor | None, counts: list[int]) -> Tensor:
    biases = [None] * len(weight_EHD) if bias_EH is None else bias_EH.unbind()
    parts = zip(x_PD.split(counts), weight_EHD.unbind(), biases, strict=True)
    return torch.cat([F.linear(part, weight, bias) for part, weight, bias in parts if len(part)])


class ExpertLinear(nn.Module):
    """E linear maps on rows sorted by expert: (P, D), number of rows of each (E) -> (P, H)."""

    def __init__(self, experts: int, inputs: int, outputs: int, *, bias: bool) -> None:
        super().__init__()
        draw = partial(nn.init.uniform_, a=-(inputs**-0.5), b=inputs**-0.5)  # as nn.Linear's
        self.weight = drawn(experts, outputs, inputs, by=draw)
        self.bias = drawn(experts, outputs, by=draw) if bias else None

    def forward(self, x_PD: Tensor, counts_E: Tensor) -> Tensor:
        mapped_PH: Tensor = torch.ops.xfcost.grouped_linear(x_PD, self.weight, self.bias, counts_E)
        return mapped_PH


class SlotLinear(ExpertLinear):
    """E linear maps on S slots each: (E, S, D) -> (E, S, H)."""

    def forward(self, x_ESD: Tensor) -> Tensor:  # type: ignore[override]
        mapped_ESH = x_ESD @ self.weight.transpose(1, 2)
        return mapped_ESH if self.bias is None else mapped_ESH + self.bias.unsqueeze(1)
