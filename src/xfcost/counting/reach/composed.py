"""How far information travels in an architecture, composed from what each of its operations reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from xfcost.counting.reach.bits import TooManyTokens
from xfcost.counting.reach.maps import Drawn
from xfcost.counting.reach.notes import notes_of
from xfcost.counting.reach.reached import Reached
from xfcost.counting.reach.receptive import receptive_field
from xfcost.counting.reach.result import BlockReach, InputGrid, Met, Reach, met_of
from xfcost.counting.reach.walk import Step, Walk
from xfcost.formulas.component import Mixer
from xfcost.formulas.recurrent import Recurrent
from xfcost.spec.architecture import Architecture, Stream
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
    causal = {_name(stream): _is_causal(stream) for stream in architecture.streams}
    drawn = Drawn(walk.inputs, _name(architecture.streams[-1]), token)
    steps: list[BlockReach] = []
    numbers = dict.fromkeys(causal, 0)
    for step in walk.steps():
        drawn.add(step, len(steps) + 1)
        numbers[step.stream] += step.is_block
        number = numbers[step.stream] if step.is_block else None
        steps.append(_block(step, walk.inputs, number, causal=causal[step.stream]))
    return Reach(
        name=architecture.spec.name,
        inputs=tuple(walk.inputs.values()),
        maps=tuple(drawn.maps()),
        steps=tuple(steps),
        causal_streams=tuple(name for name, is_causal in causal.items() if is_causal),
        receptive_field=receptive_field(architecture),
        notes=(*notes, *notes_of(architecture)),
    )


def _name(stream: Stream) -> str:
    return stream.name or "input"


def _is_causal(stream: Stream) -> bool:
    """Does no mixing layer read later tokens of its own stream?"""
    mixers = [part.component for part in stream.parts() if isinstance(part.component, Mixer)]
    own = [mixer for mixer in mixers if isinstance(mixer, Recurrent) or not mixer.reads_memory]
    return bool(own) and all(mixer.causality != "none" for mixer in own)


def _block(step: Step, inputs: Mapping[str, InputGrid], number: int | None, *, causal: bool) -> BlockReach:
    own_first = sorted(step.states, key=lambda name: name != step.stream)
    return BlockReach(
        path=step.path,
        group=step.group,
        part=step.part,
        kinds=step.kinds,
        stream=step.stream,
        number=number,
        tokens=step.grid.total,
        sequential=step.sequential,
        met=tuple(_met(inputs[name], step.states[name], causal=causal and name == step.stream) for name in own_first),
    )


def _met(grid: InputGrid, state: Reached, *, causal: bool) -> Met:
    counts = state.counts()
    own = state.own() if causal and len(counts) == grid.units else 0
    return met_of(grid, counts, own, causal=causal)
