"""Stage transitions: merged patches, pooling by attention, up-sampling, concatenation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, ClassVar, Literal

import msgspec

from xfcost.formulas.arithmetic import ceil_div
from xfcost.formulas.component import (
    ComponentError,
    Enter,
    Grid,
    Heads,
    Joining,
    Letter,
    NormKind,
    Number,
    PaddingNote,
    Place,
    Residual,
    Side,
    Sources,
    Width,
    check_heads,
    check_output,
    itself,
)
from xfcost.formulas.conv_kernel import kernel_of
from xfcost.ledger.grid import sides_text
from xfcost.program.attention import attend_to
from xfcost.program.functions import added, beside
from xfcost.program.operations import Functions, Operations
from xfcost.program.symbolic import Tensor


class PatchMerging(Enter, frozen=True, kw_only=True, tag="patch_merging"):
    """2×2 neighbours are concatenated (4d), normalised and reduced to the stage's width (Liu et al. 2021, §3.1).

        norm        N'·4d elements of a layer norm, 8d parameters; after the reduction N'·d' elements, 2d' parameters
        reduction   N'·4d·d' MACs, 4d·d' parameters, no bias

    With `norm: post` (Swin V2; Liu et al. 2022) they are reduced, then normalised.

    N' = ⌈H/2⌉·⌈W/2⌉ of H×W: odd sides are padded by one, as in the public implementation. Groups are disjoint and
    become new tokens: per-token.
    """

    norm: Literal["pre", "post"] = "pre"
    """Whether the norm is before the reduction (`pre`, Swin) or after it (`post`, Swin V2)."""

    def input_sides(self, sides: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(2 * side for side in sides)

    def check(self, place: Place) -> None:
        if len(place.grid.sides) != 2 or place.grid.special:  # noqa: PLR2004 - height and width
            raise ComponentError(
                "kind", f"'patch_merging' needs a 2-D grid without special tokens, not {place.grid.shape_text()}"
            )

    def out(self, place: Place) -> tuple[Grid, Number]:
        return Grid(tuple(ceil_div(side, 2) for side in place.grid.sides)), place.out_dim

    def sources(self, place: Place) -> Sources:
        return Sources(kernel=kernel_of(place.grid, 2, 2, 0))

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        x = t.leaf("gather", merged_neighbours, x, options={"sides": place.grid.sides}, title="Gather 2×2 neighbours")
        x = t.norm("norm", x, "layer_norm") if self.norm == "pre" else x
        x = t.linear("reduction", x, place.out_dim, bias=False, title="Patch merging reduction")
        return t.norm("norm", x, "layer_norm") if self.norm == "post" else x

    def notes(self, place: Place) -> Iterator[str]:
        if any(side % 2 for side in place.grid.sides):
            sides, merged = sides_text(place.grid.sides), sides_text(self.out(place)[0].sides)
            yield PaddingNote(f"odd grid {sides} padded by one row or column to merge into {merged}")


class Upsample(Enter, frozen=True, kw_only=True, tag="upsample"):
    """Tokens repeated `factor` times in place, cut to the length N of an earlier stage, whose output is added.

    The first step of the Funnel Transformer's decoder (Dai et al. 2020, §2.3), from P to N tokens. A separate [CLS] is
    not repeated, and zeros fill positions that the pooling dropped. P·factor·d and N·d elements are written, N·d
    are added.
    """

    factor: Annotated[Side, Letter(None)]
    """How many times each token is repeated."""
    skip: Annotated[int, msgspec.Meta(ge=1, le=2**16)] = 1
    """Number of the earlier stage whose output is added; 1 is the first."""
    separate_cls: bool = True
    """Whether the first token is [CLS], which is not repeated."""

    @property
    def reads_stage(self) -> int | None:
        return self.skip

    def check(self, place: Place) -> None:
        if place.memory is None:
            raise ComponentError("skip", f"{self.skip} is not an earlier stage")
        if (len(place.grid.sides), place.grid.special) != (1, 0):
            raise ComponentError(
                "kind", f"'upsample' needs a sequence without special tokens, got {place.grid.shape_text()} tokens"
            )
        if place.memory_dim != place.dim:
            raise ComponentError("skip", f"stage {self.skip} is {place.memory_dim} wide and this one {place.dim}")
        if place.grid.total * self.factor < place.memory.total:
            raise ComponentError(
                "factor",
                f"{place.grid.total} tokens {self.factor} times over are fewer than stage {self.skip}'s "
                f"{place.memory.total}; expected at least {-(-place.memory.total // place.grid.total)}",
            )

    def out(self, place: Place) -> tuple[Grid, Number]:
        return place.memory or place.grid, place.dim

    def sources(self, place: Place) -> Sources:
        first, pooled = 1 if self.separate_cls else 0, place.grid.total

        def repeated(token: int) -> Sequence[int]:
            read = token if token < first else first + (token - first) // self.factor
            return (read,) if read < pooled else ()

        return Sources(repeated, memory=itself)

    def forward(self, t: Operations, x: Tensor, place: Place, *earlier: Tensor) -> Tensor:
        (other,) = earlier
        cut = {"factor": self.factor, "length": self.out(place)[0].total, "separate_cls": self.separate_cls}
        x = t.leaf("repeat", repeated, x, options=cut, title=f"Repeat tokens {self.factor} times")
        return t.leaf("add", added, x, other, title=f"Add stage {self.skip}")


class Concatenate(Enter, frozen=True, kw_only=True, tag="concatenate"):
    """[y, x]: the output y of an earlier stage, of the same grid, before x (Mehta and Rastegari 2022, figure 1b).

    Widths d' and d become d' + d: N·(d' + d) elements are written. A convolution behind it fuses the two.
    """

    stage: Annotated[int, msgspec.Meta(ge=1, le=2**16)]
    """Number of the earlier stage whose output is concatenated; 1 is the first."""

    @property
    def reads_stage(self) -> int | None:
        return self.stage

    def check(self, place: Place) -> None:
        if place.memory is None:
            raise ComponentError("stage", f"{self.stage} is not an earlier stage")
        if place.memory != place.grid:
            raise ComponentError(
                "stage",
                f"stage {self.stage} leaves {place.memory.shape_text()} tokens, and the input has "
                f"{place.grid.shape_text()}; expected a stage with the same grid",
            )

    def out(self, place: Place) -> tuple[Grid, Number]:
        return place.grid, place.memory_dim + place.dim

    def sources(self, place: Place) -> Sources:
        return Sources(memory=itself)

    def forward(self, t: Operations, x: Tensor, place: Place, *earlier: Tensor) -> Tensor:
        (other,) = earlier
        return t.leaf("concatenate", beside, other, x, title=f"Beside the output of stage {self.stage}")


def merged_neighbours(t: Functions, x: Tensor, *, sides: tuple[int, int]) -> Tensor:
    """2×2 neighbours concatenated, odd grids padded: (B, N, D) -> (B, ⌈N/4⌉, 4D)."""
    height, width = (ceil_div(side, 2) for side in sides)
    x = t.pad_sides(x.unflatten(1, sides), [0, 0, 0, 2 * width - sides[1], 0, 2 * height - sides[0]])
    x = x.unflatten(2, (width, 2)).unflatten(1, (height, 2))  # (B, Y/2, 2, X/2, 2, D)
    return x.permute(0, 1, 3, 4, 2, 5).flatten(3).flatten(1, 2)  # columns before rows, as Swin's weights have it


def repeated(t: Functions, x: Tensor, *, factor: int, length: Number, separate_cls: bool) -> Tensor:
    """(B, P, D) -> (B, N, D). A separate [CLS] is not repeated; missing tokens at the end are zeros."""
    pooled = x.shape[1]
    if not separate_cls:
        return t.repeat_interleave(x, factor, 1).narrow(1, 0, length)
    copies = t.repeat_interleave(x.narrow(1, 1, pooled - 1), factor, 1)
    missing = length - 1 - (pooled - 1) * factor
    if missing > 0:
        return t.cat([x.narrow(1, 0, 1), copies, t.zeros(x.shape[0], missing, x.shape[-1], like=x)], 1)
    return t.cat([x.narrow(1, 0, 1), copies.narrow(1, 0, length - 1)], 1)


class PoolingAttention(Enter, frozen=True, kw_only=True, tag="pooling_attention"):
    """k learned vectors S read N tokens X by multi-head attention; the output is k tokens of the stage's width.

    Set Transformer's PMA (seeds; Lee et al. 2019, §3.2, equation 11), Perceiver's cross-attention (latents; Jaegle et
    al. 2021, §3.1) and Perceiver IO's output queries. N tokens of width d, k vectors of width d', h heads of d_k.

    - post: LN(S + MH(S, X, X)): PMA, whose rFF is then the stage's first sub-layer, {kind: dense}
    - pre: S + MH(LN(S), LN(X), LN(X)): Perceiver, whose MLP is then the stage's first sub-layer
    - res_post: S + LN(MH(S, X, X)), none: MH(S, X, X)

        seeds         k·d' parameters
        q             k·d'·h·d_k MACs, (d' + β)·h·d_k parameters, once for all samples: it works on weights only
        kv            N·d·2h·d_k MACs, (d + β)·2h·d_k parameters
        scores        k·N·h·d_k MACs, h·k·N entries kept
        weighted_sum  k·N·h·d_k MACs
        out           k·h·d_k·d' MACs, (h·d_k + β)·d' parameters, with an `output_projection`
        seeds_norm    k·d' elements, 2d' parameters, where the residual is `pre`
        tokens_norm   N·d elements, 2d parameters, where the residual is `pre`
        norm          k·d' elements, 2d' parameters, where the residual is another with a norm

    β is 1 where projections have biases, else 0.

    PMA's other rFF, on X, is a last block [{kind: dense}] of the stage before (the authors' code has none).
    """

    titles: ClassVar[Mapping[str, str]] = {
        "add": "Residual add",
        "seeds": "Learned queries",
        "seeds_norm": "Layer norm (learned queries)",
        "tokens_norm": "Layer norm (tokens)",
    }
    pools: ClassVar[bool] = True

    count: Annotated[int, msgspec.Meta(ge=1, le=2**20), Letter("k")]
    """Number of learned query vectors k (seeds, latents), which is the number of tokens that leave."""
    heads: Heads
    """Number of attention heads h."""
    head_dim: Annotated[Width | None, Letter("dₖ")] = None
    """Width d_k of a head's queries and keys; d'/h by default."""
    projection_bias: bool = True
    """Whether the query, key, value and output projections have biases."""
    output_projection: bool = True
    """Whether there is an output projection W_O; Set Transformer's public code has none."""
    residual: Joining = Residual(place="post")
    """How the attention's output joins the query vectors; not taken from the stage."""

    def inner(self, place: Place) -> Number:
        """h·d_k, the width of all heads together."""
        return place.out_dim if self.head_dim is None else self.heads * self.head_dim

    def check(self, place: Place) -> None:
        check_heads(self.heads, self.head_dim, place.out_dim)
        check_output(self.inner(place), place.out_dim, projected=self.output_projection)

    def out(self, place: Place) -> tuple[Grid, Number]:
        return Grid((self.count,)), place.out_dim

    def reads(self, grid: Grid, token: int) -> Sequence[int]:
        """The input tokens that output `token` reads: all."""
        return range(grid.total)

    def pairs(self, grid: Grid) -> Number:
        return self.count * grid.total

    def sources(self, place: Place) -> Sources:
        return Sources(lambda token: self.reads(place.grid, token), whole=True)

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        where = "none" if self.residual == "none" else self.residual.place
        kind: NormKind = "none" if self.residual == "none" else self.residual.norm
        seeds = t.table("seeds", 1, self.count, place.out_dim)
        queries = t.norm("seeds_norm", seeds, kind) if where == "pre" else seeds
        tokens = t.norm("tokens_norm", x, kind) if where == "pre" else x
        y = attend_to(
            t, queries, tokens, inner=self.inner(place), heads=self.heads, bias=self.projection_bias, reads="N",
            fused=place.fused, output=place.out_dim if self.output_projection else None,
        )  # fmt: skip
        y = t.norm("norm", y, kind) if where == "res_post" else y
        y = y if where == "none" else t.leaf("add", added, y, seeds)
        return t.norm("norm", y, kind) if where == "post" else y

    def notes(self, place: Place) -> Iterator[str]:
        yield f"{place.grid.total} tokens are pooled into {self.count}: costs after this do not grow with N"
