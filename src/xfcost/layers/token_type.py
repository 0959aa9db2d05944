"""Segment embedding: which of several texts a token belongs to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

from xfcost.formulas.component import Letter, Operation, Place, Rows
from xfcost.formulas.layer import Embed
from xfcost.formulas.rows import elementwise
from xfcost.ledger.accounts import WeightsRead
from xfcost.ledger.tensors import INPUT, OUTPUT, Tensor, Tensors


class TokenType(Embed, frozen=True, kw_only=True, tag="token_type"):
    """x + T: a row of a table of `types` rows, looked up for every token (Devlin et al. 2019, §3 and Figure 2).

    types·d parameters; N·d elements are looked up, whatever the types. One text stands here: all tokens are of type 0.
    """

    token_wise: ClassVar[bool] = True

    types: Annotated[Rows, Letter(None)] = 2
    """Number of token types (segments), one row of the table each."""

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d = place.grid.total, place.dim
        types = Tensor("types", (n,), "int64", held=True)
        looked_up = Tensors((types,), (Tensor(OUTPUT, (n, d)),), makes=(Tensor("types", (n,), "int64"),))
        yield Operation(
            path="lookup",
            title="Token type embedding",
            params=self.types * d,
            moved=n * d,
            weights_read=WeightsRead(d, at_most=d),
            tensors=looked_up,
        )
        yield elementwise("add", "Add token types", "add", n * d, of=(INPUT, "lookup"))
