"""What only a module's ledger has: how each operation ran, the whole run, its costs as polynomials in N."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from xfcost.ledger.units import Count


class ClosedForm(msgspec.Struct, frozen=True, kw_only=True):
    """The costs of a module as polynomials in N, and how they grow; of a spec with one stream its MACs alone.

    They meet the counts at all `sizes`, more than determine them. Where padding steps, they are those of every N with
    the `remainder` of this one.
    """

    N: int
    """The N of the ledger; of images their pixels. Of a spec the tokens of its first stage, without special ones."""
    letter: Literal["N", "P"] = "N"
    """What the forms are in: N, or the pixels P = H·W of square images."""
    macs: str | None = None
    """All MACs: `256·N² + 32768·N`; None where no polynomial fits."""
    flops: str | None = None
    cache: str | None = None
    """The bytes of the cache, in the modes that have one: `512·N + 161280`."""
    rows: dict[str, str] = {}
    """Path -> the MACs of one block, of every row that has MACs and a polynomial."""
    sizes: tuple[int, ...] = ()
    """The N at which it was counted."""
    period: int = 1
    """Costs step with this period: forms are of N (or √N) with the same remainder."""
    remainder: int = 0
    counted_in: Literal["N", "√N", "√P"] = "N"
    """What the period is of: N, or the side of a square grid or image."""
    others: dict[int, str] = {}
    """The MACs at other remainders, of short periods."""
    growth: dict[str, float | None] = {}
    """`macs`, `attention_bytes`: the exponent in N between N and N·`factor`."""
    refused: str | None = None
    """Why there is none."""


class RanOperation(msgspec.Struct, frozen=True, kw_only=True):
    """The ATen operation of a row, as the dispatcher saw it."""

    aten: str
    """Its name (`aten::addmm`), or that of a function that counts as one operation."""
    input_shapes: str
    output_shapes: str
    calls: int = 1
    """How often it ran in one block; the row's figures are of all its calls."""
    uncounted: int = 0
    """Calls of which nothing is counted, because the operation has no formula."""
    computed_tokens: int | None = None
    """Tokens that it computes for each token, where a mask keeps fewer and both are known."""
    kept_tokens: int | None = None
    """Tokens that the mask keeps of them: the median over tokens."""
    masked: bool = False
    """Is it fused attention with a mask? How many pairs that keeps is not known."""
    kind_missing: str | None = None
    """Why its mixing kind is not known, where it was looked for."""
    adds: str = ""
    """Of a residual add, the module inside its own that made what it adds."""
    adds_to: str | None = None
    """Of a residual add, the operation whose result it adds back, by its path in the innermost numbered block around
    it (`norm1.native_layer_norm`); empty where that is the block's input.
    """


class ModuleRun(msgspec.Struct, frozen=True, kw_only=True):
    """The run of a module that its ledger counts."""

    module: str
    """Its class."""
    inputs: tuple[str, ...]
    """`x: 1×3×224×224 float32` for every tensor of its inputs."""
    tensors: Literal["meta", "fake", "real", "none"]
    """What it ran on: without elements (`meta`, fake), or on real numbers; `none` of a graph, whose shapes are counted.
    """
    reason: str | None = None
    """Why not on `meta`."""
    uncounted: dict[str, Count] = {}
    """Operations without a formula, with how often they ran: totals are lower bounds."""
    uncalled: tuple[str, ...] = ()
    """Modules with parameters that no operation took."""
    eager_bytes: int = 0
    """Bytes of attention matrices saved for training if every softmax(QKᵀ) were written."""
    fused_bytes: int = 0
    """The same if every one were fused: only log-sum-exps."""
    traced: str = ""
    """How fvcore's trace compares: `agrees`, `differs`, or why there is none."""
    recorded: str | None = None
    """The versions of the libraries in which it ran, where its counts were stored then; None where it ran now."""

    @property
    def complete(self) -> bool:
        """Is all work counted?"""
        return not self.uncounted


NOTHING_RAN: Final = ModuleRun(module="", inputs=(), tensors="meta")
"""The run of what is counted in closed form, where nothing is left uncounted."""
