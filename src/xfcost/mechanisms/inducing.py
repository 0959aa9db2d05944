"""Attention through inducing points: a few learned points read all tokens, and every token reads the points."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from xfcost.formulas.attention import CrossAttention
from xfcost.formulas.component import Letter, NormKind, Number, Operation, Place, check_output
from xfcost.formulas.mixers import NonCausalMixer
from xfcost.formulas.rows import elementwise, linear, norm
from xfcost.formulas.tensors import weights
from xfcost.ledger.tensors import BEFORE, INPUT

Points = Annotated[int, msgspec.Meta(ge=1, le=2**20)]


class Inducing(NonCausalMixer, frozen=True, kw_only=True, tag="inducing"):
    """The attention of Set Transformer's ISAB: MH(X, H, H), H = MAB(I, X) (Lee et al. 2019, §3.1, equations 9, 10).

    N tokens X (special ones included), k learned points I, width d, h heads of width d_k. The points read all tokens,

        MAB(I, X) = LN(Z + rFF(Z)), Z = LN(I + MH(I, X, X)), rFF one linear map and a ReLU,

    and every token reads the k answers. With {kind: dense, act: relu} after it, and `residual: {place: post}`, a block
    is ISAB(X) = MAB(X, H).

        induced_q     k·d·h·d_k MACs, once for all samples: it works on weights alone
        induced_kv    N·d·2h·d_k MACs
        induced_…     2·k·N·h·d_k MACs, h·k·N entries kept: the points' scores and weighted sum
        induced_out   k·h·d_k·d MACs
        induced_rff   k·d² MACs
        q, out        N·d·h·d_k MACs each
        kv            k·d·2h·d_k MACs
        scores, …     2·N·k·h·d_k MACs, h·N·k entries kept

    Queries are scaled by 1/√d_k per head; the authors' code divides by √d, and adds the projected queries in place of
    I and X: the same cost.
    """

    non_causal_reason: ClassVar[str] = "every point reads all tokens, later ones too"

    points: Annotated[Points, Letter("k")]
    """Number of inducing points k."""
    induce: Literal["mab", "attention"] = "mab"
    """How the points read: by a whole MAB, or by its attention MH(I, X, X) alone (package isab-pytorch)."""
    norm: NormKind = "layer_norm"
    """Norm of the points' MAB; the authors' code has none by default."""
    output_projection: bool = True
    """Whether both attentions have an output projection W_O; the authors' code has none."""

    def check(self, place: Place) -> None:
        super().check(place)
        check_output(self.inner(place.dim), place.dim, projected=self.output_projection)

    def label(self) -> str:
        return f"Induced attention ({self.points} points)"

    def operations(self, place: Place) -> Iterator[Operation]:
        n, k, d = place.grid.total, self.points, place.dim
        shared: dict[str, Any] = {
            "width": d,
            "memory_width": d,
            "inner": self.inner(d),
            "heads": self.heads,
            "bias": self.projection_bias,
            "output": self.output_projection,
            "fused": place.fused,
        }
        yield Operation(path="points", title="Inducing points", params=k * d, tensors=weights((k, d)))
        induced = [
            *CrossAttention(
                queries=k,
                keys=n,
                reads="N",
                learned=True,
                raw_input="memory",
                prefix="induced_",
                label="points read tokens",
                reads_from=("points", INPUT),
                **shared,
            ).rows()
        ]
        if self.induce == "mab":
            induced += self._rest_of_mab(d)
        yield from induced
        shared["reads_from"] = (INPUT, induced[-1].path)
        yield from CrossAttention(queries=n, keys=k, reads="k", label="tokens read points", **shared).rows()

    def _rest_of_mab(self, d: Number) -> Iterator[Operation]:
        """LN(Z + rFF(Z)), Z = LN(I + …), on k points."""
        k = self.points
        yield elementwise("induced_add", "Residual add (points)", "add", k * d, of=(BEFORE, "points"))
        yield from norm(self.norm, "induced_norm", k, d)
        both = ("induced_add" if self.norm == "none" else "induced_norm", "induced_act")
        yield linear("induced_rff", "rFF (points)", k, d, d)
        yield elementwise("induced_act", "rFF activation (points)", "relu", k * d)
        yield elementwise("induced_rff_add", "rFF residual add (points)", "add", k * d, of=both)
        yield from norm(self.norm, "induced_rff_norm", k, d)

    def notes(self, place: Place) -> Iterator[str]:
        if self.points >= place.grid.total:
            yield (
                f"{self.points} inducing points for {place.grid.total} tokens: "
                "full attention reads as much with less work"
            )
