"""How far information travels in an architecture, composed from what each of its operations reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from xfcost.counting.reach.receptive import receptive_field
from xfcost.counting.reach.result import BlockReach, Map, Reach, checked_token, token_at
from xfcost.counting.reach.sets import TooManyTokens
from xfcost.counting.reach.walk import Walk, name_of
from xfcost.formulas.component import Mixer
from xfcost.layers.moe import Moe
from xfcost.ledger.grid import Grid
from xfcost.spec.architecture import Architecture
from xfcost.spec.load import Loaded
from xfcost.spec.placement import place
from xfcost.spec.run import Run

# How often an input is halved until its sets fit.
_MOST_HALVINGS: Final = 12


def reach(system: Architecture | Loaded, run: Run | None = None, token: Sequence[int] | None = None) -> Reach:
    """After each block: how many input tokens can influence a token; and the block at which all have met.

    Composed from what every operation reads, exactly, as sets: intervals or bits, along each axis of a grid where the
    pattern is one of each axis. A token's own input counts. The unit is a token of the first stage; where the stem
    mixes (overlapping convolutions), a pixel.

    Args:
        system: an architecture; or a spec, whose input is halved until the sets fit into memory, which a note says.
        run: of a spec, the size of its input.
        token: the place whose `maps` are drawn, in units of the last stream's input; the middle by default.

    Raises:
        UsageError: there is no such place; the sets of an architecture don't fit.
    """
    if isinstance(system, Architecture):
        return _reach(system, token, ())
    run = run or Run()
    for halved in range(_MOST_HALVINGS):
        architecture = place(system, run._replace(scale=(run.scale[0], run.scale[1] << halved)))
        try:
            notes = [f"reduced: the input's sides are 1/{1 << halved} of what was asked for"] if halved else []
            return _reach(architecture, token, notes)
        except TooManyTokens as error:
            refused = error
    raise refused


def _reach(architecture: Architecture, token: Sequence[int] | None, notes: Sequence[str]) -> Reach:
    walk = Walk(architecture)
    steps, maps = _walked(walk, name_of(architecture.streams[-1]), token)
    return Reach(
        name=architecture.spec.name,
        inputs=tuple(walk.inputs.values()),
        maps=maps,
        steps=steps,
        causal_streams=tuple(name for name, is_causal in walk.causal.items() if is_causal),
        receptive_field=receptive_field(architecture),
        notes=tuple(dict.fromkeys((*notes, *_notes(architecture)))),
    )


def _walked(walk: Walk, last: str, token: Sequence[int] | None) -> tuple[tuple[BlockReach, ...], tuple[Map, ...]]:
    """The steps; and maps of the middle token of every stream, of the last stream's the one that is asked for."""
    steps: list[BlockReach] = []
    tokens: dict[str, tuple[int, ...]] = {}
    first: dict[tuple[str, str], np.ndarray] = {}
    for block, grid, states in walk.steps():
        steps.append(block)
        stream, own = block.stream, walk.inputs[block.stream]
        if stream not in tokens:
            given = token if stream == last else None
            tokens[stream] = checked_token([side // 2 for side in own.sides] if given is None else given, own)
            first[stream, stream] = np.full(own.units, -1)
            first[stream, stream][token_at(tokens[stream], own.sides, Grid(own.sides))] = 0
        here = token_at(tokens[stream], own.sides, grid)
        for name, state in states.items():
            found = first.setdefault((stream, name), np.full(walk.inputs[name].units, -1))
            if (found < 0).any():
                found[(found < 0) & state.row(here)] = len(steps)
    maps = (Map(stream=one, input=name, token=tokens[one], first=found) for (one, name), found in first.items())
    return tuple(steps), tuple(maps)


def _notes(architecture: Architecture) -> Iterator[str]:
    """What it leaves out, or takes at its largest: choices by content, competition, earlier segments."""
    for part, *_ in architecture.parts():
        component = part.component
        if isinstance(component, Mixer):
            name = component.label()
            if component.content_selects_tokens:
                yield (
                    f"{name}: content selects the tokens that are read; counted are all that it can select, over all "
                    "contents"
                )
            if component.causality == "approximate":
                yield f"{name}: later tokens sway which tokens are read; that is not counted as influence"
            if getattr(component, "past", 0):
                yield f"{name}: it also reads earlier segments, which are not counted"
        if isinstance(component, Moe) and component.capacity is not None:
            yield "experts of a limited capacity: that a token takes another's slot is not counted as influence"
        if part.residual != "none" and part.residual.norm == "group_norm":
            yield "a group norm's mean and variance are over all tokens: through it every token is influenced by all"
