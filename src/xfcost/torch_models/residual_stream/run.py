"""The residual stream of an architecture's model, with random weights and inputs: what each sub-layer adds to it.

B batch, N tokens, M memory tokens, D width.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
import torch
from torch import Tensor, nn

from xfcost.comparing.diagram import SUBSCRIPTS, component_title
from xfcost.formulas.component import Mixer, Residual
from xfcost.ledger.grid import Grid
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.operation import MIXINGS
from xfcost.ledger.residual_stream import ChangedRows, Joins, Matrices, Matrix, ResidualStream, StreamStep, SumCheck
from xfcost.ledger.units import BYTES_PER_ELEMENT
from xfcost.program.convolution import TOKENS
from xfcost.program.residual import component_rows
from xfcost.spec.architecture import Architecture, Part
from xfcost.torch_models.build import BuiltModel, SubLayerModel, build
from xfcost.torch_models.memory.peak import bytes_to_run, check_room, peak_bytes
from xfcost.torch_models.memory.shortage import within_torch
from xfcost.torch_models.mixing.perturb import InputUnits, influences
from xfcost.torch_models.program import ProgramModule
from xfcost.torch_models.residual_stream import rounding
from xfcost.torch_models.shared.leaves import Table
from xfcost.torch_models.shared.private_torch import no_compiler
from xfcost.torch_models.timing.devices import on_device

_MEND: Final = (
    "take a smaller --N or --size, or fewer blocks (--set stages.0.depth=2); the width stays as it is, so that what is "
    "measured is this model"
)
# Copies of the widest stream that the measurement holds at once, in float64.
_COPIES: Final = 16
_FLOAT64: Final = 8


class RunningBlock(NamedTuple):
    """A block of the running model."""

    stage: str
    number: int
    """In its stage, from 1."""
    parts: Sequence[Part]
    sublayers: Sequence[SubLayerModel]


def residual_stream(
    architecture: Architecture, ledger: Ledger, seed: int, say: Callable[[str], None]
) -> ResidualStream:
    """Run the model of `architecture` without its head, and measure every sub-layer.

    Raises:
        NoRoomError: it doesn't fit into memory.
        DeviceError: torch has no kernel for it.
    """
    name, headless = ledger.metadata.name, msgspec.structs.replace(architecture, head=None)
    say(f"building {name} …")
    with within_torch(ledger), no_compiler():
        needed = _needed(headless)
    check_room(needed, "cpu", name, "one forward and its measurements", _MEND)
    say(f"running {name} …")
    steps: list[StreamStep] = []
    with torch.random.fork_rng(devices=[]), on_device(name, "cpu", architecture.dtype), torch.no_grad():
        torch.manual_seed(seed)
        live = build(headless, "cpu")
        with ExitStack() as hooks:
            for block in _blocks(headless, live):
                _Watch(block, seed, steps.append, hooks)
            live.model(*live.inputs)
    return ResidualStream(metadata=ledger.metadata, seed=seed, steps=tuple(steps))


def _needed(architecture: Architecture) -> int:
    """Bytes of one forward whose activations are in float64 once, with a copy of the largest sub-layer."""
    live = build(architecture)
    element = BYTES_PER_ELEMENT[architecture.dtype]
    weights = sum(one.nbytes for one in live.model.parameters())
    largest = max(
        sum(one.numel() for one in sublayer.parameters())
        for block in _blocks(architecture, live)
        for sublayer in block.sublayers
    )
    widest = max(
        part.place.grid.total * max(part.place.dim, part.place.out_dim)
        for stream in architecture.streams
        for part in stream.parts()
    )
    activations = bytes_to_run(peak_bytes(live.model, live.inputs), "cpu") - weights
    of_copy = largest * (element + _FLOAT64)
    return weights + activations * _FLOAT64 // element + of_copy + _COPIES * _FLOAT64 * int(widest)


def _blocks(architecture: Architecture, live: BuiltModel) -> Iterator[RunningBlock]:
    """Every block of the model, with the parts that it was built of."""
    streams: Any = live.model.streams
    for stream, stream_model in zip(architecture.streams, streams, strict=True):
        for stage, stage_model in zip(stream.stages, stream_model.stages, strict=True):
            for number, index in enumerate(stage.order):
                parts = stage.blocks[index].parts
                yield RunningBlock(stage.label, number + 1, parts, list(stage_model.run[number]))


# ── where a sub-layer adds to the residual stream ──


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
    residual = part.residual
    if residual != "none":
        leaves = dict(sublayer.named_children())
        norm = leaves.get("residual_norm")
        return ResidualAdd(
            "reversible" if residual.form == "reversible" else residual.place,
            leaves["residual_add"],
            (norm,) if residual.place == "post" and norm is not None else (),
            shortcut=not leaves.keys().isdisjoint({"residual_projection", "residual_pool"}),
        )
    rows = component_rows(part.component, part.place)
    adds = [number for number, row in enumerate(rows) if row.role == "add"]
    if not adds:
        return ResidualAdd("none")
    leaf, *behind = (sublayer.get_submodule(f"inner.{row.path}") for row in rows[adds[-1] :])
    projects = getattr(part.component, "projects", None)
    return ResidualAdd("inside", leaf, tuple(behind), projects is not None and projects(part.place))


# ── the names of what sub-layers read, add and leave: X₁ = X + ΔA(X) ──


def _numbered(letter: str, number: int) -> str:
    return letter + str(number).translate(SUBSCRIPTS)


def symbols(parts: Sequence[Part], adds: Sequence[ResidualAdd]) -> list[str]:
    """`ΔA` of a mixer and `ΔF` of another sub-layer, numbered where a block has several; empty without a Δ."""
    letters = [
        "" if add.joins == "none" else "ΔA" if isinstance(part.component, Mixer) else "ΔF"
        for part, add in zip(parts, adds, strict=True)
    ]
    several, seen, named = Counter(letters), Counter[str](), []
    for letter in letters:
        seen[letter] += 1
        named.append(_numbered(letter, seen[letter]) if letter and several[letter] > 1 else letter)
    return named


def stream_names(add: ResidualAdd, position: int) -> tuple[str, str, str]:
    """What Δ is added to, what it is computed from, and the sum, at the sub-layer at `position` of its block."""
    if add.joins == "reversible":
        return ("X₁", "X₂", "Y₁") if position == 0 else ("X₂", "Y₁", "Y₂")
    x = _numbered("X", position) if position else "X"
    return f"S({x})" if add.shortcut else x, x, _numbered("X", position + 1)


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
    return float(((x * y).sum(-1)[there] / lengths[there]).mean()) if there.any() else None


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


# ── which rows of what a sub-layer adds change, where one token of its input does ──


# A row has changed where a number of it did by more than this share of the largest number. Both runs are in float64: a
# fast Fourier transform leaks less by rounding.
LEAST: Final = 2.0**-36


def in_float64(sublayer: SubLayerModel) -> SubLayerModel:
    """A copy in float64, with the shared tables that it uses and the state that a recurrence starts from.

    Rounding in the model's own dtype would hide a small influence, and show rounding as one.
    """
    copies: dict[int, Any] = {}
    doubled = copy.deepcopy(sublayer, copies).double()
    for one in list(copies.values()):
        if isinstance(one, Table):
            one.double()
        if isinstance(one, ProgramModule):
            one.last_states = tuple(tuple(part.double() for part in state) for state in one.last_states)
    return doubled


def middle(grid: Grid) -> int:
    """The token in the middle of the grid."""
    token = 0
    for side in grid.sides:
        token = token * side + side // 2
    return grid.special + token


def read_by_others(part: Part, token: int) -> bool:
    """Does a mixer declare that another token reads this one, whatever the content is?"""
    component, place = part.component, part.place
    if not isinstance(component, Mixer):
        return True
    outputs = range(component.out(place)[0].total)
    return not component.content_selects_tokens and any(
        token in component.reads(place.grid, other, place.memory) for other in outputs if other != token
    )


# ── the hooks of one block ──


class _Watch:
    """Measures the sub-layers of one block, one forward long; each goes to `found` as it ends."""

    def __init__(self, block: RunningBlock, seed: int, found: Callable[[StreamStep], None], hooks: ExitStack) -> None:
        self.block, self.found = block, found
        self.adds = [residual_add(*one) for one in zip(block.parts, block.sublayers, strict=True)]
        self.symbols = symbols(block.parts, self.adds)
        self.noise = torch.Generator().manual_seed(seed)
        self.copy_runs = False
        self.added: Added | None = None
        self.deltas: list[Tensor] = []
        self.stream: rounding.Worked | None = None
        for position, (sublayer, add) in enumerate(zip(block.sublayers, self.adds, strict=True)):
            hooks.callback(sublayer.register_forward_hook(partial(self._after, position)).remove)
            if add.leaf is not None:
                hooks.callback(add.leaf.register_forward_hook(self._keep).remove)

    def __deepcopy__(self, memo: dict[int, Any]) -> _Watch:
        """Itself: a copy of a sub-layer has the same hooks."""
        return self

    def _keep(self, leaf: nn.Module, operands: Any, output: Tensor) -> None:
        both = (one.flatten(2).transpose(1, 2) if one.dim() > TOKENS else one for one in (*operands, output))
        self.added = Added(*both)

    def _taken(self) -> Added | None:
        """The operands of the latest residual add, once; None without one."""
        latest, self.added = self.added, None
        return latest

    def _after(self, position: int, sublayer: SubLayerModel, inputs: Sequence[Any], out_BND: Tensor) -> None:
        if self.copy_runs:
            return
        added, part, add = self._taken(), self.block.parts[position], self.adds[position]
        self.copy_runs = True
        changed = self._changed(part, sublayer, inputs)
        self.copy_runs = False
        check = self._check(add, inputs[0], added, out_BND)
        self.found(self._step(position, inputs[0], added, out_BND, changed, check))
        self.deltas += [] if added is None else [added.delta_BND]
        if position == len(self.adds) - 1:  # nothing of a block stays behind it
            self.deltas, self.stream = [], None

    def _changed(self, part: Part, sublayer: SubLayerModel, inputs: Sequence[Any]) -> list[ChangedRows]:
        """Of the input, then of the memory where it is read: the rows of Δ that change with its middle token.

        Of a sub-layer that reads only the special tokens, the first of these is changed.
        """
        doubled, given = in_float64(sublayer), [one if one is None else one.double() for one in inputs]
        component, place = part.component, part.place
        special_alone = component.special_tokens_only and not isinstance(component, Mixer)
        tokens = [0 if special_alone else middle(place.grid)]
        if component.reads_memory and place.memory is not None:
            tokens.append(middle(place.memory))
        found = []
        for which, token in enumerate(tokens):

            def written(x_BND: Tensor, which: int = which) -> list[Tensor]:
                out_BND: Tensor = doubled(*given[:which], x_BND, *given[which + 1 :])
                added = self._taken()
                return [out_BND if added is None else added.delta_BND]

            x_BND: Tensor = inputs[which].double()
            units = InputUnits((1,), (x_BND.shape[1],), (1,))
            (rows,) = influences(written, x_BND, units, [(1,)], self.noise, LEAST, [token])
            own = int(rows[token, 0]) if token < len(rows) else 0
            same_grid = which == 0 and component.out(place)[0] == place.grid
            count = int(rows.sum())
            found.append(
                ChangedRows(token=token, rows=count, of_rows=len(rows), others=count - own if same_grid else None)
            )
        return found

    def _check(self, add: ResidualAdd, x_BND: Tensor, added: Added | None, out_BND: Tensor) -> SumCheck | None:
        """The sum since the block began; anew behind a norm, a shortcut, and where f(X) replaces X."""
        if added is None:
            self.stream = None
            return None
        unit = rounding.unit_of(out_BND.dtype)
        if add.shortcut or add.joins == "reversible":
            stream = rounding.entering(added.onto_BND)
        else:
            stream = self.stream or rounding.entering(x_BND)
        total = rounding.plus(stream, added.delta_BND, unit)
        self.stream = None if add.behind else total
        check = rounding.compared(out_BND, rounding.through(total, add.behind, unit))
        if not add.behind:
            return check
        before = rounding.compared(added.sum_BND, total)  # a norm hides the sum's scale
        return msgspec.structs.replace(check, within=check.within and before.within)

    def _step(
        self, position: int, x_BND: Tensor, added: Added | None, out_BND: Tensor, changed: list[ChangedRows],
        check: SumCheck | None,
    ) -> StreamStep:  # fmt: skip
        part, add = self.block.parts[position], self.adds[position]
        component, delta_BND = part.component, None if added is None else added.delta_BND
        x_BND = x_BND if added is None else added.onto_BND
        out_BND = out_BND if delta_BND is None else out_BND[:, : delta_BND.shape[1]]
        x_name, read_name, out_name = stream_names(add, position)
        rows = component_rows(component, part.place, part.residual)
        post = isinstance(part.residual, Residual) and part.residual.place == "post"
        before, behind = ([row for row in rows if (post and row.role == "norm") == last] for last in (False, True))
        mixing, mixing_behind = (
            tuple(dict.fromkeys(row.title for row in some if row.mixes)) for some in (before, behind)
        )
        return StreamStep(
            stage=self.block.stage,
            block=self.block.number,
            path=part.path,
            title=component_title(component),
            symbol=self.symbols[position],
            mixing=max((row.mixing for row in before), key=MIXINGS.index, default="per-token"),
            mixing_operations=mixing,
            mixing_behind=mixing_behind,
            joins=add.joins,
            x_name=x_name,
            read_name=read_name,
            out_name=out_name,
            tokens=out_BND.shape[1],
            width=out_BND.shape[2],
            tokens_compete=component.tokens_compete,
            special_only=component.special_tokens_only,
            shortcut=add.shortcut,
            behind=tuple("relu" if isinstance(module, nn.ReLU) else "norm" for module in add.behind),
            adds_to=(1, 2)[position] if add.joins == "reversible" else None,
            norm_x=mean_norm(x_BND),
            norm_delta=None if delta_BND is None else mean_norm(delta_BND),
            norm_sum=None if added is None else mean_norm(added.sum_BND),
            norm_out=mean_norm(out_BND),
            share=None if added is None else share(added),
            cosine=None if delta_BND is None else mean_cosine(delta_BND, x_BND),
            cosines=() if delta_BND is None else tuple(mean_cosine(delta_BND, one) for one in self.deltas),
            changed=changed[0],
            read_by_others=changed[0].others != 0 or read_by_others(part, changed[0].token),
            changed_by_memory=changed[1] if len(changed) > 1 else None,
            check=check,
            matrices=matrices(x_BND, delta_BND, out_BND),
        )
