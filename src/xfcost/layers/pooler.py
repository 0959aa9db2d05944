"""BERT's pooler: one vector for all tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from xfcost.formulas.component import ActKind, Letter, NormKind, Operation, Place, Rows, Width
from xfcost.formulas.layer import Head
from xfcost.formulas.rows import elementwise, linear, move, norm
from xfcost.formulas.tensors import view
from xfcost.ledger.tensors import BEFORE, INPUT


class Pooler(Head, frozen=True, kw_only=True, tag="pooler"):
    """act(W x₀ + b) of the first token, a class token where there is one (BERT's public code; Devlin et al. 2019).

    norm      N·d elements, if any (ViT's in transformers)
    linear    d·d' MACs, d·d' + d' parameters
    act       d' elements
    classify  d'·classes MACs, d'·classes + classes parameters, where `classes` are asked for (fine-tuned BERT)
    """

    norm: NormKind = "none"
    """Norm before the first token is taken."""
    width: Width | None = None
    """Output width d' of the linear map; d by default."""
    act: ActKind | Literal["tanh"] = "tanh"
    """Activation function after the linear map."""
    classes: Annotated[Rows | None, Letter("K")] = None
    """Number of classes K of a classifier after the pooler; none by default."""

    def operations(self, place: Place) -> Iterator[Operation]:
        width = place.dim if self.width is None else self.width
        yield from norm(self.norm, "norm", place.grid.total, place.dim)
        n, d = place.grid.total, place.dim
        taken = view((n, d), (d,), INPUT if self.norm == "none" else BEFORE)
        yield move("pool", "Take the first token", tensors=taken)
        yield linear("linear", "Pooler", 1, place.dim, width)
        yield elementwise("act", "Activation of the pooler", self.act, width)
        if self.classes is not None:
            yield linear("classify", "Classifier", 1, width, self.classes)
