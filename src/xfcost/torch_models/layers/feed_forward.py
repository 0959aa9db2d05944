"""Feed-forward networks, plain, gated or mixtures of experts; linear maps and norms as layers.

B batch, N tokens, D width, D' output width, E experts, A experts per token, G groups, P = B·N·A copies of tokens,
S = B·C slots of each expert, C slots per sample.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.layers.feed_forward import Dense, GatedMlp, Mlp, Norm, NormSubLayer
from xfcost.layers.moe import Groups, Moe
from xfcost.torch_models.shared.experts import ExpertLinear, SlotLinear
from xfcost.torch_models.shared.leaves import ACTIVATIONS, Add, Chain, Leaf, Linear, Multiply, joined, through
from xfcost.torch_models.shared.norms import norm


class DenseLayer(Chain):
    """(B, N, D) -> (B, N, D')."""

    def __init__(self, config: Dense, place: Place) -> None:
        width = config.out(place)[1]
        act = None if config.act == "none" else ACTIVATIONS[config.act]()
        super().__init__(linear=Linear(place.dim, width, bias=config.bias), norm=norm(config.norm, width), act=act)


class NormLayer(Chain):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, config: Norm | NormSubLayer, place: Place) -> None:
        super().__init__(norm=norm(config.norm, place.dim))


class FeedForward(nn.Module):
    """(B, N, D) -> (B, N, D'). Linear maps of another class can take more arguments than x."""

    def __init__(self, config: Mlp, place: Place, linear: Callable[..., nn.Module] = Linear) -> None:
        super().__init__()
        hidden, width = config.inner(place.dim), config.width(place)
        self.widths = (place.dim, width)
        self.fc1 = linear(place.dim, hidden, bias=config.bias)
        self.act = ACTIVATIONS[config.act]()
        self.fc2 = linear(hidden, width, bias=config.bias)
        self.chunks = config.chunks
        self.join = Leaf(joined, dim=1) if config.chunks > 1 else None

    def forward(self, x_BND: Tensor, *more: Tensor) -> Tensor:
        if self.join is None:
            return self._through(x_BND, *more)
        return self.join(*[self._through(part_BND) for part_BND in x_BND.chunk(self.chunks, dim=1)])

    def residual_projection(self) -> nn.Module | None:
        """The projection of the residual stream to the new width."""
        return Linear(*self.widths) if self.widths[0] != self.widths[1] else None

    def _through(self, x_BND: Tensor, *more: Tensor) -> Tensor:
        return self.fc2(self.act(self.fc1(x_BND, *more)), *more)


class GatedFeedForward(nn.Module):
    """(act(xW) ⊗ xV)W₂: (B, N, D) -> (B, N, D). Linear maps of another class can take more arguments than x."""

    def __init__(self, config: GatedMlp, place: Place, linear: Callable[..., nn.Module] = Linear) -> None:
        super().__init__()
        hidden = config.inner(place.dim)
        self.gate = linear(place.dim, hidden, bias=config.bias)
        self.act = ACTIVATIONS[config.activation]()
        self.up = linear(place.dim, hidden, bias=config.bias)
        self.glu = Multiply()
        self.down = linear(hidden, place.dim, bias=config.bias)

    def forward(self, x_BND: Tensor, *more: Tensor) -> Tensor:
        return self.down(self.glu(self.act(self.gate(x_BND, *more)), self.up(x_BND, *more)), *more)


class MixtureOfExperts(nn.Module):
    """(B, N, D) -> (B, N, D). Each expert computes only the tokens that chose it."""

    def __init__(self, config: Moe, place: Place) -> None:
        super().__init__()
        self.router = Linear(place.dim, config.experts, bias=False)
        self.probabilities = nn.Softmax(dim=-1) if config.router == "softmax" else nn.Sigmoid()
        self.correction = Correction(config.experts) if config.correction else None
        self.choose_groups = Leaf(in_best_groups, groups=config.groups) if config.groups else None
        self.choose = Leaf(best_experts, active=config.active)
        self.weights = Leaf(chosen_weights, scale=config.scale, normalize=config.normalize)
        packed = config.capacity is None
        slots = {} if packed else {"slots": config.slots(place.grid.total)}
        self.arrange = Leaf(packed_rows if packed else filled_slots, experts=config.experts, **slots)
        self.gather = Leaf(gathered)
        network = FeedForward if isinstance(config.expert, Mlp) else GatedFeedForward
        maps = ExpertLinear if packed else SlotLinear
        self.experts = network(
            config.expert,  # type: ignore[arg-type]
            place,
            linear=lambda inputs, outputs, *, bias: maps(config.experts, inputs, outputs, bias=bias),
        )
        self.scatter = Leaf(scattered)
        self.weigh = Leaf(weighed)
        self.sum = Leaf(torch.sum, dim=2) if config.active > 1 else None
        self.shared = network(config.shared_network(place.dim), place) if config.shared else None  # type: ignore[arg-type]
        self.shared_add = Add() if config.shared else None

    def forward(self, x_BND: Tensor) -> Tensor:
        probability_BNE = self.probabilities(self.router(x_BND))
        # probabilities choose, plus a bias, -∞ outside the best groups
        chosen_BNA = self.choose(through(probability_BNE, self.correction, self.choose_groups))
        weight_BNA = self.weights(probability_BNE, chosen_BNA)
        arrangement: Arrangement = self.arrange(chosen_BNA)
        outputs = self.experts(self.gather(x_BND, arrangement), *arrangement.counts)
        y_BNAD = self.weigh(self.scatter(outputs, arrangement), weight_BNA)
        y_BND = y_BNAD.squeeze(2) if self.sum is None else self.sum(y_BNAD)
        if self.shared is None or self.shared_add is None:
            return y_BND
        return self.shared_add(y_BND, self.shared(x_BND))


class Arrangement(NamedTuple):
    """The positions of tokens among the rows of experts: packed rows, or slots."""

    source: Tensor
    """The token of each row (P,) or slot (E, S)."""
    place_BNA: Tensor
    """The row or slot of each copy of a token."""
    counts: tuple[Tensor, ...] = ()
    """Packed rows: the number of rows of each expert (E,)."""
    filled_ES: Tensor | None = None
    """Slots: is the slot in use?"""
    placed_BNA: Tensor | None = None
    """Slots: has the copy a slot?"""


class Correction(nn.Module):
    """x + b. The bias b is a buffer: no gradient updates it. (B, N, E) -> (B, N, E)."""

    bias_E: Tensor

    def __init__(self, experts: int) -> None:
        super().__init__()
        self.register_buffer("bias_E", torch.zeros(experts))

    def forward(self, x_BNE: Tensor) -> Tensor:
        return x_BNE + self.bias_E


def in_best_groups(score_BNE: Tensor, *, groups: Groups) -> Tensor:
    """-∞ at experts outside a token's best groups: (B, N, E) -> (B, N, E)."""
    grouped_BNGK = score_BNE.unflatten(-1, (groups.count, -1))
    top_two = groups.score == "top_two"
    best_BNG = grouped_BNGK.topk(2, dim=-1).values.sum(-1) if top_two else grouped_BNGK.amax(-1)
    chosen_BNA1 = best_BNG.topk(groups.active, dim=-1).indices.unsqueeze(-1)
    number_G = torch.arange(groups.count, device=score_BNE.device)
    open_BNG = (chosen_BNA1 == number_G).any(-2)
    closed_BNG1 = open_BNG.logical_not().unsqueeze(-1)
    return grouped_BNGK.masked_fill(closed_BNG1, float("-inf")).flatten(-2)


def best_experts(score_BNE: Tensor, *, active: int) -> Tensor:
    """The A experts with the highest scores: (B, N, E) -> (B, N, A)."""
    if active == 1:
        return score_BNE.argmax(-1, keepdim=True)
    return score_BNE.topk(active, dim=-1).indices


def chosen_weights(probability_BNE: Tensor, chosen_BNA: Tensor, *, scale: float | None, normalize: bool) -> Tensor:
    """The probabilities of the chosen experts, normalised and scaled: (B, N, E), (B, N, A) -> (B, N, A)."""
    weight_BNA = probability_BNE.gather(-1, chosen_BNA)
    if normalize:
        weight_BNA = weight_BNA / weight_BNA.sum(-1, keepdim=True)
    return weight_BNA if scale is None else weight_BNA * scale


def packed_rows(chosen_BNA: Tensor, *, experts: int) -> Arrangement:
    """Rows sorted by expert, without gaps."""
    chosen_1P = chosen_BNA.reshape(1, -1)
    running_EP = _running_counts(chosen_1P, experts)
    counts_E = running_EP[:, -1]
    before_E = counts_E.cumsum(0) - counts_E
    place_P = (before_E.unsqueeze(1) + running_EP - 1).gather(0, chosen_1P).squeeze(0)
    source_P = torch.zeros_like(place_P).scatter(0, place_P, _tokens(chosen_BNA).flatten())
    return Arrangement(source_P, place_P.reshape(chosen_BNA.shape), (counts_E,))


def filled_slots(chosen_BNA: Tensor, *, experts: int, slots: int) -> Arrangement:
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
    return Arrangement(source_ES.masked_fill(filled_ES.logical_not(), 0), place_BNA, (), filled_ES, placed_BNA)


def _running_counts(chosen_X1P: Tensor, experts: int) -> Tensor:
    """The number of copies per expert, up to and including each copy: (…, 1, P) -> (…, E, P)."""
    number_E1 = torch.arange(experts, device=chosen_X1P.device).unsqueeze(1)
    return (chosen_X1P == number_E1).cumsum(-1)


def _tokens(chosen_BNA: Tensor) -> Tensor:
    """The token index of each copy, over all samples: (B, N, A)."""
    batch, tokens, _ = chosen_BNA.shape
    number_BN1 = torch.arange(batch * tokens, device=chosen_BNA.device).reshape(batch, tokens, 1)
    return number_BN1.expand_as(chosen_BNA)


def gathered(x_BND: Tensor, arrangement: Arrangement) -> Tensor:
    """(B, N, D) -> (P, D) or (E, S, D), zeros in empty slots."""
    rows = x_BND.flatten(0, 1)[arrangement.source]
    if arrangement.filled_ES is None:
        return rows
    return rows.masked_fill(arrangement.filled_ES.logical_not().unsqueeze(-1), 0)


def scattered(y: Tensor, arrangement: Arrangement) -> Tensor:
    """(P, D) or (E, S, D) -> (B, N, A, D), zeros for dropped tokens."""
    copies_BNAD = y.flatten(0, -2)[arrangement.place_BNA]
    if arrangement.placed_BNA is None:
        return copies_BNAD
    return copies_BNAD.masked_fill(arrangement.placed_BNA.logical_not().unsqueeze(-1), 0)


def weighed(y_BNAD: Tensor, weight_BNA: Tensor) -> Tensor:
    """(B, N, A, D) times (B, N, A) -> (B, N, A, D)."""
    return y_BNAD * weight_BNA.unsqueeze(-1)
