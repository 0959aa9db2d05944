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


# Where the copies of tokens stand among the rows of experts ───────────────────────────────────────────────────────────


def packed_rows(chosen_BNA: Tensor, *, experts: int) -> tuple[Tensor, ...]:
    """Rows sorted by expert, without gaps."""
    chosen_1P = chosen_BNA.reshape(1, -1)
    running_EP = _running_counts(chosen_1P, experts)
    counts_E = running_EP[:, -1]
    before_E = counts_E.cumsum(0) - counts_E
    place_P = (before_E.unsqueeze(1) + running_EP - 1).gather(0, chosen_1P).squeeze(0)
    source_P = torch.zeros_like(place_P).scatter(0, place_P, _tokens(chosen_BNA).flatten())
    return source_P, place_P.reshape(chosen_BNA.shape), counts_E


def filled_slots(chosen_BNA: Tensor, *, experts: int, slots: int) -> tuple[Tensor, ...]:
    """C slots of each expert for each sample. Tokens beyond the capacity are dropped.

    All first choices come before second choices, each in token order (Lepikhin et al. 2021, algorithm 1).
    """
    batch, tokens, active = chosen_BNA.shape
    chosen_B1P = chosen_BNA.transpose(1, 2).reshape(batch, 1, -1)
    rank_BP = (_running_counts(chosen_B1P, experts).gather(1, chosen_B1P) - 1).squeeze(1)
    placed_BP = rank_BP < slots
    sample_B1 = torch.arange(batch, device=rank_BP.device).unsqueeze(1)
    total = experts * batch * slots
    # one more slot, for dropped tokens
    place_BP = (chosen_B1P.squeeze(1) * batch + sample_B1) * slots + rank_BP
    place_BP = torch.where(placed_BP, place_BP, torch.full_like(place_BP, total))
    token_BP = _tokens(chosen_BNA).transpose(1, 2).flatten(1)
    none_S = torch.full((total + 1,), -1, dtype=token_BP.dtype, device=token_BP.device)
    source_ES = none_S.scatter(0, place_BP.flatten(), token_BP.flatten())[:-1].unflatten(0, (experts, -1))
    filled_ES = source_ES >= 0
    place_BNA, placed_BNA = (part.unflatten(1, (active, tokens)).transpose(1, 2) for part in (place_BP, placed_BP))
    place_BNA = place_BNA.masked_fill(placed_BNA.logical_not(), 0)
    return source_ES.masked_fill(filled_ES.logical_not(), 0), place_BNA, filled_ES, placed_BNA


def _running_counts(chosen_X1P: Tensor, experts: int) -> Tensor:
    """The number of copies per expert, up to and including each copy: (…, 1, P) -> (…, E, P)."""
    number_E1 = torch.arange(experts, device=chosen_X1P.device).unsqueeze(1)
    return (chosen_X1P == number_E1).cumsum(-1)


def _tokens(chosen_BNA: Tensor) -> Tensor:
    """The token index of each copy, over all samples: (B, N, A)."""
    batch, tokens, _ = chosen_BNA.shape
    number_BN1 = torch.arange(batch * tokens, device=chosen_BNA.device).reshape(batch, tokens, 1)
    return number_BN1.expand_as(chosen_BNA)
