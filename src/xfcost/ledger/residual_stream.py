"""The residual stream of a model that was run: what every sub-layer adds to it, how much, and in which direction.

‖·‖ is the mean over tokens of the L2 norm; a cosine is a mean over tokens too.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from xfcost.ledger import notebook
from xfcost.ledger.metadata import Metadata
from xfcost.ledger.operation import Mixing
from xfcost.ledger.units import number_of

if TYPE_CHECKING:
    import pandas as pd

Matrix = tuple[tuple[float, ...], ...]

# How f(X) joins the stream: X + f(norm(X)), norm(X + f(X)), X + norm(f(X)), another stream + f(norm(X)), a residual
# connection inside the component, or none: f(X) replaces X.
Joins = Literal["pre", "post", "res_post", "reversible", "inside", "none"]


class ChangedRows(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of Δ (of the output, where there is no Δ) that changed when one token of the input did."""

    token: int
    """The token that was changed, from 0, special tokens first."""
    rows: int
    of_rows: int
    others: int | None
    """Changed rows of other tokens; None where rows are tokens of another grid."""


class SumCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What left a sub-layer, compared with the input of its block plus every Δ since, added in float64."""

    difference: float
    """The largest."""
    bound: float
    """The largest that rounding explains."""
    within: bool
    """Is the difference of every element within the bound of that element?"""


class Matrices(msgspec.Struct, frozen=True, kw_only=True):
    """The matrices of a sub-layer, a row per token."""

    x: Matrix
    delta: Matrix | None
    out: Matrix


class StreamStep(msgspec.Struct, frozen=True, kw_only=True):
    """One sub-layer: X is what its Δ is added to, X′ what leaves it."""

    stage: str
    block: int
    """The block's number in its stage, from 1."""
    path: str
    title: str
    symbol: str
    """`ΔA` of a mixer, `ΔF` of another sub-layer, numbered where its block has several; empty without a Δ."""
    mixing: Mixing
    """The most that any of its operations before the sum is declared to mix."""
    mixing_operations: tuple[str, ...] = ()
    """The titles of those that mix tokens."""
    mixing_behind: tuple[str, ...] = ()
    """The titles of operations behind the sum that mix tokens: a norm over all of them."""
    joins: Joins
    x_name: str
    """What Δ is added to: `X`, `X₁`; `S(X)` behind a shortcut."""
    read_name: str
    """What Δ is computed from: another stream in a reversible block."""
    out_name: str
    tokens: int
    """Rows of Δ: only those of the special tokens if the sub-layer updates only these."""
    width: int
    tokens_compete: bool = False
    """Can a token push another out, as experts with a capacity let them?"""
    special_only: bool = False
    """Does it update only the special tokens?"""
    shortcut: bool = False
    """Is X brought to another grid or width before Δ is added?"""
    behind: tuple[str, ...] = ()
    """What follows the sum: the norm of a post-norm, the activation of a residual network."""
    adds_to: Literal[1, 2] | None = None
    """The stream that it adds to, of the two of a reversible block; it reads the other one."""
    norm_x: float
    norm_delta: float | None
    norm_sum: float | None
    """‖X + Δ‖."""
    norm_out: float
    share: float | None
    """⟨Δ, X + Δ⟩ / ⟨X + Δ, X + Δ⟩ over all tokens; X has the rest."""
    cosine: float | None
    """Between Δ and X; None where no token has both."""
    cosines: tuple[float | None, ...] = ()
    """Between Δ and every earlier Δ of the block."""
    changed: ChangedRows
    read_by_others: bool = True
    """Is another token declared to read the one that was changed?"""
    changed_by_memory: ChangedRows | None = None
    """The same when one token of the encoder's output changed, where it is read."""
    check: SumCheck | None = None
    """None where no sum was made."""
    matrices: Matrices | None = None
    """Only for small models."""

    @property
    def formula(self) -> str:
        """What leaves the sub-layer: `X₂ = X₁ + ΔF(X₁)`."""
        if not self.symbol:
            return f"{self.out_name} = f({self.read_name})"
        total = f"{self.x_name} + {self.symbol}({self.read_name})"
        for word in self.behind:
            total = f"{word}({total})"
        return f"{self.out_name} = {total}" + (" only on the special tokens" if self.special_only else "")

    @property
    def contradiction(self) -> str | None:
        """How the rows that changed contradict the declared mixing; None where they don't."""
        others = self.changed.others
        if self.mixing == "per-token" and others and not self.tokens_compete:
            return f"declared per-token, and {others:,} row{'s' if others > 1 else ''} of other tokens changed"
        memory = self.changed_by_memory
        silent = others == 0 and (memory is None or not memory.rows) and self.changed.of_rows > 1
        if self.mixing != "per-token" and silent and self.read_by_others and self.norm_delta != 0:
            return "declared mixing, and no row of another token changed"
        return None


class ResidualStream(notebook.Reported, msgspec.Struct, frozen=True, kw_only=True):
    """The result of `xfcost stream`."""

    metadata: Metadata
    seed: int
    steps: tuple[StreamStep, ...]
    """Sub-layers in the order in which they run."""
    notes: tuple[str, ...] = ()

    @property
    def blocks(self) -> list[tuple[StreamStep, ...]]:
        """The sub-layers of every block, block after block."""
        return [tuple(steps) for _, steps in groupby(self.steps, key=lambda step: (step.stage, step.block))]

    @property
    def checks(self) -> list[SumCheck]:
        """Of every sub-layer that adds."""
        return [step.check for step in self.steps if step.check is not None]

    @property
    def contradictions(self) -> Iterator[str]:
        """Sums that rounding doesn't explain, and rows that changed against what is declared."""
        for step in self.steps:
            where = f"{step.stage} · block {step.block}, {step.title}"
            if step.check is not None and not step.check.within:
                yield f"{where}: what leaves is not the sum: it differs by {step.check.difference:.2g}"
            if found := step.contradiction:
                yield f"{where}: {found}"

    @property
    def exact(self) -> bool:
        """Is every sum what rounding explains, and every changed row what is declared?"""
        return not any(self.contradictions)

    def to_frame(self) -> pd.DataFrame:
        """One line per sub-layer, columns as in the CSV report. Imports pandas."""
        import pandas as pd

        return pd.DataFrame.from_records(records(self))

    def to_json(self) -> str:
        """The JSON object of `xfcost stream --format json`."""
        from xfcost.ledger.json_objects import json_text

        return json_text(stream_object(self))

    def __repr__(self) -> str:
        return notebook.line(self, f"{self.metadata.name}: {number_of(len(self.steps), 'sub-layer')}, seed {self.seed}")


def stream_object(stream: ResidualStream) -> dict[str, Any]:
    """The object of `--format json`."""
    metadata = stream.metadata
    steps = [msgspec.to_builtins(step) | {"formula": step.formula} for step in stream.steps]
    return {
        "system": metadata.name,
        "N": metadata.grid_tokens,
        "extra_tokens": metadata.extra_tokens,
        "dtype": metadata.dtype,
        "seed": stream.seed,
        "norm": "mean over tokens of the L2 norm",
        "sublayers": steps,
        "exact": stream.exact,
        "contradictions": list(stream.contradictions),
        "notes": list(stream.notes),
    }


def records(stream: ResidualStream) -> list[dict[str, Any]]:
    """One plain dict per sub-layer, in the order of the CSV's columns."""
    run = {"system": stream.metadata.name, "seed": stream.seed, "dtype": stream.metadata.dtype}
    return [run | _record(step) for step in stream.steps]


_WORDS = ("stage", "block", "path", "title", "symbol", "mixing", "joins", "formula", "tokens", "width")
_NUMBERS = ("norm_x", "norm_delta", "norm_sum", "norm_out", "share", "cosine")


def _record(step: StreamStep) -> dict[str, Any]:
    memory, check = step.changed_by_memory, step.check
    return {
        **{name: getattr(step, name) for name in (*_WORDS, *_NUMBERS)},
        "cosines": " ".join("" if one is None else repr(one) for one in step.cosines) or None,
        "changed_token": step.changed.token,
        "changed_rows": step.changed.rows,
        "of_rows": step.changed.of_rows,
        "changed_others": step.changed.others,
        "changed_by_memory": None if memory is None else memory.rows,
        "difference": None if check is None else check.difference,
        "bound": None if check is None else check.bound,
        "within": None if check is None else check.within,
    }
