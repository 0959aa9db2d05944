"""Stage entries, which change the grid. B batch, N tokens, D width; S learned queries, E their width."""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.layers.stage_entries import PoolingAttention
from xfcost.torch_models.shared.attention import Reading
from xfcost.torch_models.shared.leaves import Add, Table
from xfcost.torch_models.shared.norms import norm


class PoolingByAttention(nn.Module):
    """(B, N, D) -> (B, S, E)."""

    def __init__(self, config: PoolingAttention, place: Place) -> None:
        super().__init__()
        width, joining = place.out_dim, config.residual
        self.place = None if joining == "none" else joining.place
        kind = "none" if joining == "none" else joining.norm
        self.seeds = Table(1, config.count, width)
        self.seeds_norm = norm(kind, width) if self.place == "pre" else None
        self.tokens_norm = norm(kind, place.dim) if self.place == "pre" else None
        self.inner = Reading(
            (width, place.dim),
            config.inner(place),
            config.heads,
            bias=config.projection_bias,
            fused=place.fused,
            output=config.output_projection,
        )
        self.add = None if joining == "none" else Add()
        self.norm = norm(kind, width) if self.place in ("post", "res_post") else None

    def forward(self, x_BND: Tensor) -> Tensor:
        seeds_1SE = self.seeds()
        queries_1SE = seeds_1SE if self.seeds_norm is None else self.seeds_norm(seeds_1SE)
        y_BSE: Tensor = self.inner(queries_1SE, x_BND if self.tokens_norm is None else self.tokens_norm(x_BND))
        if self.place == "res_post" and self.norm is not None:
            y_BSE = self.norm(y_BSE)
        if self.add is not None:
            y_BSE = self.add(y_BSE, seeds_1SE)
        return self.norm(y_BSE) if self.place == "post" and self.norm is not None else y_BSE
