"""Watches the sub-layers of a running model: what each adds to the stream, and which rows of it change with a token.

B batch, N tokens, M memory tokens, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import msgspec
import torch
from torch import Tensor, nn

from xfcost.counting.boxes import component_title
from xfcost.formulas.component import Residual, SubLayer
from xfcost.formulas.residual import component_rows
from xfcost.ledger.operation import MIXINGS, Mixing
from xfcost.ledger.residual_stream import ChangedRows, StreamStep, SumCheck
from xfcost.spec.architecture import Part
from xfcost.torch_models.residual_stream import names, rounding, sizes
from xfcost.torch_models.residual_stream.adds import Added, Tap, residual_add
from xfcost.torch_models.residual_stream.changes import (
    changed_rows,
    changed_token,
    in_float64,
    keeps_grid,
    middle,
    read_by_others,
    with_changed,
)
from xfcost.torch_models.sublayer import SubLayerModel


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
        self.symbols = names.symbols(place.parts, self.adds)
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
        called, declared = names.stream_names(add, self.position), mixes(part)
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
            behind=names.behind(add),
            adds_to=(1, 2)[self.position] if add.joins == "reversible" else None,
            norm_x=sizes.mean_norm(x_BND),
            norm_delta=None if delta_BND is None else sizes.mean_norm(delta_BND),
            norm_sum=None if added is None else sizes.mean_norm(added.sum_BND),
            norm_out=sizes.mean_norm(out_BND),
            share=None if added is None else sizes.share(added),
            cosine=None if delta_BND is None else sizes.mean_cosine(delta_BND, x_BND),
            cosines=() if delta_BND is None else tuple(sizes.mean_cosine(delta_BND, one) for one in self.block.deltas),
            changed=changed[0],
            read_by_others=changed[0].others != 0 or read_by_others(part, changed[0].token),
            changed_by_memory=changed[1] if len(changed) > 1 else None,
            check=check,
            matrices=sizes.matrices(x_BND, delta_BND, out_BND),
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
