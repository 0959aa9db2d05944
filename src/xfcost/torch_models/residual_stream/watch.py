"""Watches the sub-layers of a running model: what each adds to the stream, and which rows of it change with a token.

B batch, N tokens, M memory tokens, D width.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Final, NamedTuple

import msgspec
import torch
from torch import Tensor, nn

from xfcost.counting.boxes import component_title
from xfcost.formulas.component import Mixer, Residual, SubLayer
from xfcost.formulas.conv_block import ConvBlock
from xfcost.formulas.residual import component_rows
from xfcost.ledger.grid import Grid
from xfcost.ledger.operation import MIXINGS, Mixing
from xfcost.ledger.residual_stream import ChangedRows, Joins, Matrices, Matrix, StreamStep, SumCheck
from xfcost.spec.architecture import Part
from xfcost.torch_models.build import SubLayerModel
from xfcost.torch_models.residual_stream import rounding
from xfcost.torch_models.shared.convolution import TOKENS, in_rows
from xfcost.torch_models.shared.leaves import Table
from xfcost.torch_models.shared.recurrent import RecurrentLayer

# ── where a sub-layer adds to the residual stream, and the tensors that meet there ──


class Added(NamedTuple):
    """The operands of a residual add, and their sum: (B, N, D) each."""

    onto_BND: Tensor
    delta_BND: Tensor
    sum_BND: Tensor


class ResidualAdd(NamedTuple):
    """The residual add of a sub-layer."""

    joins: Joins
    leaf: nn.Module | None = None
    """None where f(X) replaces X."""
    behind: tuple[nn.Module, ...] = ()
    """What follows the sum."""
    shortcut: bool = False
    """Is X brought to another grid or width before?"""


def residual_add(part: Part, sublayer: SubLayerModel) -> ResidualAdd:
    """The residual add of `sublayer`: around its component, or inside it as in residual networks."""
    if part.residual == "none":
        return _inside(part, sublayer.inner)
    residual = part.residual
    norm = sublayer.residual_norm
    return ResidualAdd(
        "reversible" if residual.form == "reversible" else residual.place,
        sublayer.residual_add,
        (norm,) if residual.place == "post" and norm is not None else (),
        shortcut=sublayer.residual_projection is not None or sublayer.residual_pool is not None,
    )


def _inside(part: Part, component: nn.Module) -> ResidualAdd:
    """The residual add of the component's own, with the leaves that follow it."""
    paths = [(row.path, row.role) for row in part.component.operations(part.place)]
    adds = [number for number, (_, role) in enumerate(paths) if role == "add"]
    if not adds:
        return ResidualAdd("none")
    leaf, *behind = (component.get_submodule(path) for path, _ in paths[adds[-1] :])
    block = part.component
    return ResidualAdd("inside", leaf, tuple(behind), isinstance(block, ConvBlock) and block.projects(part.place))


class Tap:
    """Keeps the operands of the latest call of a residual add."""

    def __init__(self, leaf: nn.Module | None) -> None:
        self._latest: Added | None = None
        self._hook = None if leaf is None else leaf.register_forward_hook(self._keep)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tap:
        """Itself: a copy of the leaf is heard too."""
        return self

    def _keep(self, leaf: nn.Module, operands: Any, output: Tensor) -> None:
        onto, delta = operands
        self._latest = Added(*(in_rows(one) if one.dim() > TOKENS else one for one in (onto, delta, output)))

    def taken(self) -> Added | None:
        """The operands of the latest call, once; None without an add."""
        latest, self._latest = self._latest, None
        return latest

    def remove(self) -> None:
        """Take the hook off."""
        if self._hook is not None:
            self._hook.remove()


# ── which rows of what a sub-layer adds change, where one token of its input does. B batch, N tokens, D width ──


# A row has changed where a number of it did by more than this share of the largest number. Both runs are in float64: a
# fast Fourier transform leaks less by rounding.
LEAST: Final = 2.0**-36


def in_float64(sublayer: nn.Module) -> nn.Module:
    """A copy in float64, with the shared tables that it uses and the state that a recurrence starts from.

    Rounding in the model's own dtype would hide a small influence, and show rounding as one.
    """
    copies: dict[int, Any] = {}
    doubled = copy.deepcopy(sublayer, copies).double()
    for one in list(copies.values()):
        if isinstance(one, Table):
            one.double()
        if isinstance(one, RecurrentLayer):
            one.last = tuple(tuple(part.double() for part in state) for state in one.last)
    return doubled


def middle(grid: Grid) -> int:
    """The token in the middle of the grid."""
    token = 0
    for side in grid.sides:
        token = token * side + side // 2
    return grid.special + token


def changed_token(part: Part) -> int:
    """The token that is changed: the middle one; the first, where the sub-layer reads the special tokens alone."""
    component = part.component
    alone = isinstance(component, SubLayer) and component.special_tokens_only and not isinstance(component, Mixer)
    return 0 if alone else middle(part.place.grid)


def with_changed(x_BND: Tensor, token: int, generator: torch.Generator) -> Tensor:
    """A copy of x with noise, as large as the token itself, on that token."""
    changed_BND, row_BD = x_BND.clone(), x_BND[:, token]
    size = float(row_BD.square().mean().sqrt()) or 1.0
    noise_BD = torch.randn(row_BD.shape, generator=generator, dtype=torch.float64) * size
    changed_BND[:, token] = row_BD + noise_BD
    return changed_BND


def changed_rows(delta_BND: Tensor, again_BND: Tensor, token: int, *, own_grid: bool) -> ChangedRows:
    """The rows that differ between two runs; `own_grid`: rows are tokens of the grid of the changed one."""
    least = LEAST * max(float(delta_BND.abs().max()), float(again_BND.abs().max()))
    differs = (delta_BND - again_BND).abs().amax(dim=(0, 2)) > least
    rows = int(differs.sum())
    own = int(differs[token]) if token < len(differs) else 0
    return ChangedRows(token=token, rows=rows, of_rows=len(differs), others=rows - own if own_grid else None)


def read_by_others(part: Part, token: int) -> bool:
    """Does a mixer declare that another token reads this one, whatever the content is?"""
    component, place = part.component, part.place
    if not isinstance(component, Mixer):
        return True
    outputs = range(component.out(place)[0].total)
    return not component.content_selects_tokens and any(
        token in component.reads(place.grid, other, place.memory) for other in outputs if other != token
    )


def keeps_grid(part: Part) -> bool:
    """Are the rows that leave the sub-layer tokens of the grid that enters it?"""
    return bool(part.component.out(part.place)[0] == part.place.grid)


# ── norms, shares and cosines of tokens. (B, N, D) tensors, in float64 ──


# A matrix of at most so many rows and columns is part of the result.
MOST_SIDE = 8


def mean_norm(x_BND: Tensor) -> float:
    """The L2 norm of a token, on average."""
    return float(x_BND.double().norm(dim=-1).mean())


def mean_cosine(x_BND: Tensor, y_BND: Tensor) -> float | None:
    """The cosine of the angle between the two vectors of a token, on average.

    Tokens with a vector of zeros are left out; None where all are, or the vectors are of different tokens.
    """
    if x_BND.shape != y_BND.shape:
        return None
    x, y = x_BND.double(), y_BND.double()
    lengths = x.norm(dim=-1) * y.norm(dim=-1)
    there = lengths > 0
    if not there.any():
        return None
    return float(((x * y).sum(-1)[there] / lengths[there]).mean())


def share(added: Added) -> float | None:
    """⟨Δ, X + Δ⟩ / ⟨X + Δ, X + Δ⟩; None where the sum is zero."""
    total = added.onto_BND.double() + added.delta_BND.double()
    squares = float(total.square().sum())
    return float((added.delta_BND.double() * total).sum()) / squares if squares else None


def matrices(x_BND: Tensor, delta_BND: Tensor | None, out_BND: Tensor) -> Matrices | None:
    """The matrices of a sub-layer; None where they don't fit a screen."""
    if any(max(one.shape[1:]) > MOST_SIDE for one in (x_BND, out_BND)):
        return None
    return Matrices(x=_matrix(x_BND), delta=None if delta_BND is None else _matrix(delta_BND), out=_matrix(out_BND))


def _matrix(x_BND: Tensor) -> Matrix:
    return tuple(tuple(map(float, row)) for row in x_BND[0].double())


# ── the names of what sub-layers read, add and leave: X₁ = X + ΔA(X) ──


_SUBSCRIPTS: Final = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def symbols(parts: Sequence[Part], adds: Sequence[ResidualAdd]) -> list[str]:
    """`ΔA` of a mixer and `ΔF` of another sub-layer, numbered where a block has several; empty without a Δ."""
    letters = [
        "" if add.joins == "none" else "ΔA" if isinstance(part.component, Mixer) else "ΔF"
        for part, add in zip(parts, adds, strict=True)
    ]
    several = {letter for letter, count in Counter(letters).items() if letter and count > 1}
    seen: Counter[str] = Counter()
    named = []
    for letter in letters:
        seen[letter] += 1
        named.append(letter + _subscript(seen[letter]) if letter in several else letter)
    return named


def behind(add: ResidualAdd) -> tuple[str, ...]:
    """What follows the sum, in a word each."""
    return tuple("relu" if isinstance(module, nn.ReLU) else "norm" for module in add.behind)


class StreamNames(NamedTuple):
    """X + Δ(input) = X₁, by name."""

    x: str
    """What Δ is added to."""
    read: str
    """What Δ is computed from."""
    out: str


def stream_names(add: ResidualAdd, position: int) -> StreamNames:
    """The names at the sub-layer at `position` of its block."""
    if add.joins == "reversible":
        return StreamNames("X₁", "X₂", "Y₁") if position == 0 else StreamNames("X₂", "Y₁", "Y₂")
    x = "X" + (_subscript(position) if position else "")
    return StreamNames(f"S({x})" if add.shortcut else x, x, "X" + _subscript(position + 1))


def _subscript(number: int) -> str:
    return str(number).translate(_SUBSCRIPTS)


# ── watches the sub-layers of a running model: what each adds, and which rows of it change with a token ──


class BlockPlace(NamedTuple):
    """A block of the running model."""

    stage: str
    number: int
    """In its stage, from 1."""
    parts: Sequence[Part]
    sublayers: Sequence[SubLayerModel]


class BlockWatch:
    """Watches the sub-layers of one block, one forward long; each goes to `found` as it ends."""

    def __init__(self, place: BlockPlace, seed: int, found: Callable[[StreamStep], None]) -> None:
        self.place, self.found = place, found
        self.adds = [residual_add(*one) for one in zip(place.parts, place.sublayers, strict=True)]
        self.symbols = symbols(place.parts, self.adds)
        self.generator = torch.Generator().manual_seed(seed)
        self.repeats = False
        self.changed: list[ChangedRows] = []
        self.deltas: list[Tensor] = []
        self.stream: rounding.Worked | None = None

    def hooked(self, hooks: ExitStack) -> None:
        """Watch until `hooks` are taken off."""
        for position, sublayer in enumerate(self.place.sublayers):
            tap = Tap(self.adds[position].leaf)
            one = _SubLayerWatch(self, position, tap)
            hooks.callback(tap.remove)
            hooks.callback(sublayer.register_forward_pre_hook(one.before).remove)
            hooks.callback(sublayer.register_forward_hook(one.after).remove)


class _SubLayerWatch:
    """The hooks of one sub-layer."""

    def __init__(self, block: BlockWatch, position: int, tap: Tap) -> None:
        self.block, self.position, self.tap = block, position, tap
        self.part, self.add = block.place.parts[position], block.adds[position]

    def __deepcopy__(self, memo: dict[int, Any]) -> _SubLayerWatch:
        """Itself: a copy of the sub-layer is watched by the same hooks."""
        return self

    def before(self, sublayer: nn.Module, inputs: tuple[Any, ...]) -> None:
        """Run a copy of the sub-layer on the input, and on inputs with another token."""
        block = self.block
        if block.repeats:
            return
        block.repeats = True
        doubled, given = in_float64(sublayer), [one if one is None else one.double() for one in inputs]
        delta_BND = self._written(doubled, given)
        tokens = [changed_token(self.part)]
        if self._reads_memory() and self.part.place.memory is not None:
            tokens.append(middle(self.part.place.memory))
        block.changed = []
        for which, token in enumerate(tokens):
            other = [*given]
            other[which] = with_changed(inputs[which].double(), token, block.generator)
            own_grid = which == 0 and keeps_grid(self.part)
            block.changed.append(changed_rows(delta_BND, self._written(doubled, other), token, own_grid=own_grid))
        block.repeats = False

    def after(self, sublayer: nn.Module, inputs: tuple[Any, ...], out_BND: Tensor) -> None:
        """Measure what the real run added."""
        if self.block.repeats:
            return
        added, block = self.tap.taken(), self.block
        written_BND = out_BND if added is None else added.delta_BND
        x_BND = inputs[0] if added is None else added.onto_BND
        check = self._check(inputs[0], added, out_BND)
        delta_BND = None if added is None else added.delta_BND
        block.found(self._step(x_BND, added, out_BND[:, : written_BND.shape[1]], block.changed, check))
        block.deltas += [] if delta_BND is None else [delta_BND]
        if self.position == len(block.adds) - 1:  # nothing of a block stays behind it
            block.changed, block.deltas, block.stream = [], [], None

    def _written(self, sublayer: nn.Module, inputs: Sequence[Tensor | None]) -> Tensor:
        """What the sub-layer adds; its output, where that replaces the stream."""
        out_BND: Tensor = sublayer(*inputs)
        added = self.tap.taken()
        return out_BND if added is None else added.delta_BND

    def _reads_memory(self) -> bool:
        component = self.part.component
        return isinstance(component, SubLayer) and component.reads_memory

    def _check(self, x_BND: Tensor, added: Added | None, out_BND: Tensor) -> SumCheck | None:
        """The sum since the block began; anew behind a norm, a shortcut, and where f(X) replaces X."""
        block, unit = self.block, rounding.unit_of(out_BND.dtype)
        if added is None:
            block.stream = None
            return None
        if self.add.shortcut or self.add.joins == "reversible":
            stream = rounding.entering(added.onto_BND)
        else:
            stream = block.stream or rounding.entering(x_BND)
        total = rounding.plus(stream, added.delta_BND, unit)
        block.stream = None if self.add.behind else total
        check = rounding.compared(out_BND, rounding.through(total, self.add.behind, unit))
        if not self.add.behind:
            return check
        before = rounding.compared(added.sum_BND, total)  # a norm hides the sum's scale
        return msgspec.structs.replace(check, within=check.within and before.within)

    def _step(
        self, x_BND: Tensor, added: Added | None, out_BND: Tensor, changed: list[ChangedRows], check: SumCheck | None
    ) -> StreamStep:
        part, add, place = self.part, self.add, self.block.place
        delta_BND = None if added is None else added.delta_BND
        called, declared = stream_names(add, self.position), mixes(part)
        return StreamStep(
            stage=place.stage,
            block=place.number,
            path=part.path,
            title=component_title(part.component),
            symbol=self.block.symbols[self.position],
            mixing=declared.mixing,
            mixing_operations=declared.operations,
            mixing_behind=declared.behind,
            joins=add.joins,
            x_name=called.x,
            read_name=called.read,
            out_name=called.out,
            tokens=out_BND.shape[1],
            width=out_BND.shape[2],
            tokens_compete=isinstance(part.component, SubLayer) and part.component.tokens_compete,
            special_only=isinstance(part.component, SubLayer) and part.component.special_tokens_only,
            shortcut=add.shortcut,
            behind=behind(add),
            adds_to=(1, 2)[self.position] if add.joins == "reversible" else None,
            norm_x=mean_norm(x_BND),
            norm_delta=None if delta_BND is None else mean_norm(delta_BND),
            norm_sum=None if added is None else mean_norm(added.sum_BND),
            norm_out=mean_norm(out_BND),
            share=None if added is None else share(added),
            cosine=None if delta_BND is None else mean_cosine(delta_BND, x_BND),
            cosines=() if delta_BND is None else tuple(mean_cosine(delta_BND, one) for one in self.block.deltas),
            changed=changed[0],
            read_by_others=changed[0].others != 0 or read_by_others(part, changed[0].token),
            changed_by_memory=changed[1] if len(changed) > 1 else None,
            check=check,
            matrices=matrices(x_BND, delta_BND, out_BND),
        )


class Mixes(NamedTuple):
    """How a sub-layer is declared to mix tokens."""

    mixing: Mixing
    """The most that any operation before the sum is."""
    operations: tuple[str, ...]
    """The titles of those that mix."""
    behind: tuple[str, ...]
    """Those of the norm behind the sum."""


def mixes(part: Part) -> Mixes:
    """What the rows of the component and its residual connection declare."""
    rows = list(component_rows(part.component, part.residual, part.place))
    post = isinstance(part.residual, Residual) and part.residual.place == "post"
    before, behind = ([row for row in rows if (post and row.role == "norm") == last] for last in (False, True))
    titles = [tuple(dict.fromkeys(row.title for row in some if row.mixes)) for some in (before, behind)]
    return Mixes(max((row.mixing for row in before), key=MIXINGS.index, default="per-token"), titles[0], titles[1])
