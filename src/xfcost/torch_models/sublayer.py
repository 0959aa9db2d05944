"""A sub-layer: a mixer or a feed-forward network with its norm and residual connection.

B batch, N tokens, E special tokens among them, M memory tokens, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xfcost.formulas.component import Mixer, SubLayer
from xfcost.spec.architecture import Part
from xfcost.torch_models.modules import ModuleMaker
from xfcost.torch_models.shared.leaves import Add, Scale
from xfcost.torch_models.shared.norms import LayerScale, norm


class ReplaceSpecial(nn.Module):
    """Updated special tokens in place of the old ones: (B, E, D), (B, N, D) -> (B, N, D)."""

    def __init__(self, special: int) -> None:
        super().__init__()
        self.special = special

    def forward(self, special_BED: Tensor, x_BND: Tensor) -> Tensor:
        return torch.cat([special_BED, x_BND[:, self.special :]], dim=1)


class SubLayerModel(nn.Module):
    """x + f(norm(x)), norm(x + f(x)), x + norm(f(x)) or f(x): (B, N, D) -> (B, N', D').

    A module f that pools has x pooled too. A module that changes the width has its input, norm(x) or x, projected in
    place of x. In a reversible stage the sum is `onto` + f(norm(x)) or `onto` + norm(f(x)); `onto` is the other stream.

    A component that updates the special tokens alone has only those as x. A mixer still reads all tokens.
    """

    def __init__(self, part: Part, maker: ModuleMaker) -> None:
        super().__init__()
        self.reads_memory = maker.reads_memory(part)
        self.inner = maker.module(part)
        special_only = isinstance(part.component, SubLayer) and part.component.special_tokens_only
        self.residual_rejoin = ReplaceSpecial(part.place.grid.special) if special_only else None
        self.takes_special_only = special_only and not isinstance(part.component, Mixer)
        self.has_residual = part.residual != "none"
        if part.residual != "none":
            residual, width = part.residual, part.component.out(part.place)[1]
            self.place = residual.place
            self.residual_norm = norm(residual.norm, part.place.dim if residual.place == "pre" else width)
            # a module that may change the width, or shorten the grid, makes the leaf for the residual stream, or None
            self.residual_projection = getattr(self.inner, "residual_projection", lambda: None)()
            self.residual_pool = getattr(self.inner, "residual_pool", lambda: None)()
            self.residual_layer_scale = LayerScale(width, residual.layer_scale) if residual.layer_scale else None
            self.residual_factor = Scale(residual.factor) if residual.factor else None
            self.residual_add = Add()
        # in a tuple, so that torch does not register the tables as parameters of the sub-layer
        self.shared_tables = tuple(maker.tables[name] for name in part.component.tables(part.place))

    def forward(self, x_BND: Tensor, memory_BMD: Tensor | None = None, onto_BND: Tensor | None = None) -> Tensor:
        if self.residual_rejoin is None:
            return self._with_residual(x_BND, x_BND, memory_BMD, onto_BND)
        special_BED = x_BND[:, : self.residual_rejoin.special]
        read_BND = special_BED if self.takes_special_only else x_BND
        return self.residual_rejoin(self._with_residual(read_BND, special_BED, memory_BMD, None), x_BND)

    def _with_residual(
        self, x_BND: Tensor, residual_BND: Tensor, memory_BMD: Tensor | None, onto_BND: Tensor | None
    ) -> Tensor:
        memory = (memory_BMD,) if self.reads_memory else ()
        if not self.has_residual:
            return self.inner(x_BND, *memory)
        input_BND = self._normed(x_BND) if self.place == "pre" else x_BND
        y_BND = self.inner(input_BND, *memory)
        onto_BND = self._residual(residual_BND, input_BND) if onto_BND is None else onto_BND
        if self.place == "post":
            return self._normed(self.residual_add(onto_BND, self._scaled(y_BND)))
        return self.residual_add(onto_BND, self._normed_and_scaled(y_BND))

    def branch(self, x_BND: Tensor, memory_BMD: Tensor | None = None) -> Tensor:
        """The residual branch: f(norm(x)) or norm(f(x)), scaled."""
        memory = (memory_BMD,) if self.reads_memory else ()
        return self._normed_and_scaled(self.inner(self._normed(x_BND) if self.place == "pre" else x_BND, *memory))

    def _normed_and_scaled(self, y_BND: Tensor) -> Tensor:
        return self._scaled(self._normed(y_BND) if self.place == "res_post" else y_BND)

    def _residual(self, x_BND: Tensor, input_BND: Tensor) -> Tensor:
        """The residual stream: x, or f's input projected to f's output width; pooled if f pools."""
        if self.residual_projection is not None:
            x_BND = self.residual_projection(input_BND)
        return x_BND if self.residual_pool is None else self.residual_pool(x_BND)

    def weights(self) -> list[Tensor]:
        """Its own parameters and the shared tables that it uses."""
        return [*self.parameters(), *(table.weight for table in self.shared_tables)]

    def _normed(self, x_BND: Tensor) -> Tensor:
        return x_BND if self.residual_norm is None else self.residual_norm(x_BND)

    def _scaled(self, y_BND: Tensor) -> Tensor:
        if self.residual_layer_scale is not None:
            y_BND = self.residual_layer_scale(y_BND)
        return y_BND if self.residual_factor is None else self.residual_factor(y_BND)
