"""What a running model of a spec is influenced by, and what is composed of its operations, as sets token by token."""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from xfcost.counting.reach.composed import Walk
from xfcost.spec.architecture import Architecture, Stream
from xfcost.spec.grammar import ImageInput, VideoInput
from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.spec.run import Run
from xfcost.torch_models.any_model.inputs import Given
from xfcost.torch_models.build import Model, StreamModel, build
from xfcost.torch_models.mixing.perturb import InputUnits, influences, random_like, with_weights
from xfcost.torch_models.reach.any_reach import outputs_of

# Label of a step, input -> (tokens, units).
Steps = list[tuple[str, dict[str, np.ndarray]]]


def small(
    preset: str, settings: Sequence[str] = (), *, tokens: int | None = None, size: tuple[int, int] | None = None
) -> Architecture:
    """A preset at another size, with these settings."""
    return place(load(preset, list(settings)), Run(tokens=None if tokens is None else (tokens,), size=size))


def composed(architecture: Architecture) -> Steps:
    """The sets of the engine."""
    return [
        (
            f"{block.group} · {block.part}",
            {name: np.stack([state.row(token) for token in range(grid.total)]) for name, state in states.items()},
        )
        for block, grid, states in Walk(architecture).steps()
    ]


def running(architecture: Architecture, seeds: Sequence[int]) -> Steps:
    """The sets of the running model: one unit of its input is changed at a time."""
    walk = Walk(architecture)
    list(walk.steps())
    torch.manual_seed(0)
    built = build(architecture, "cpu")
    found: dict[str, list[np.ndarray]] = {}
    labels: list[str] = []
    rounding = max(one.part.component.observed(one.part.place).rounding for one in architecture.parts())
    for seed, model in with_weights(built.model, max(seeds) + 1):
        if seed not in seeds:
            continue
        watched = _watched(architecture, model)
        labels = list(watched)
        inputs = [one.double() if one.is_floating_point() else one for one in built.inputs]
        for number, stream in enumerate(architecture.streams):
            name = stream.name or "input"
            noise = torch.Generator().manual_seed(seed)
            x, units = random_like(inputs[number], noise), _units(stream, walk.inputs[name].sides)
            seen = influences(_run_of(model, watched, inputs, number), x, units, [(1,)] * len(watched), noise, rounding)
            found[name] = [one | other for one, other in zip(found.get(name, seen), seen, strict=True)]
    return [(label, {name: each[number] for name, each in found.items()}) for number, label in enumerate(labels)]


def _run_of(
    model: torch.nn.Module, watched: dict[str, torch.nn.Module], inputs: Sequence[torch.Tensor], number: int
) -> Callable[[torch.Tensor], list[torch.Tensor]]:
    def run(x: torch.Tensor) -> list[torch.Tensor]:
        others = [one.expand(len(x), *one.shape[1:]).contiguous() for one in inputs]
        given = Given((*others[:number], x, *others[number + 1 :]), {})
        return [one.value for one in outputs_of(model, given, watched, len(watched))]

    return run


def _units(stream: Stream, sides: tuple[int, ...]) -> InputUnits:
    entry = stream.input
    if isinstance(entry, ImageInput | VideoInput):
        axes = tuple(range(2, 2 + len(entry.sides)))
        return InputUnits(axes, sides, tuple(whole // side for whole, side in zip(entry.sides, sides, strict=True)))
    return InputUnits((1,), (int(np.prod(sides)),), (1,))


def _watched(architecture: Architecture, model: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """The steps of the walk -> the modules at their ends."""
    assert isinstance(model, Model)
    watched: dict[str, torch.nn.Module] = {}
    labels = [(block.stream, f"{block.group} · {block.part}") for block, *_ in Walk(architecture).steps()]
    for stream, module in zip(architecture.streams, model.streams, strict=True):
        assert isinstance(module, StreamModel)
        ends = {f"{stream.name or ''} · stem": module.embed[-1] if len(module.embed) else None}
        for stage, its in zip(stream.stages, module.stages, strict=True):
            ends[f"{stage.label} · enter"] = its.enter[-1] if len(its.enter) else None
            for number, block in enumerate(its.run, 1):
                ends[f"{stage.label} · block {number}"] = block
        for name, label in labels:
            if name == (stream.name or "input"):
                end = ends[label]
                assert end is not None
                watched[label] = end
    return watched
