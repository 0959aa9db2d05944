"""What the contract runs: a component's module, its inputs, and its rows counted and traced."""

from collections.abc import Iterable
from typing import Any

import msgspec
import torch
from hypothesis import assume
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from cases import CASES
from cases.base import SPEC_DIM, Case
from cases.layers import LayerCase
from modules import Holder
from strategies import exact, place_for
from xfcost.counting.forward import batched
from xfcost.formulas.component import Mixer, Place, Residual, SubLayer
from xfcost.layers import EMBEDS, ENTERS, HEADS, SUBLAYERS
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import Grid
from xfcost.ledger.join import with_backward
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.metadata import Metadata
from xfcost.ledger.operation import Operation
from xfcost.mechanisms.full import Cross
from xfcost.mechanisms.recurrent import Recurrent
from xfcost.parts.training.step import with_backward_macs
from xfcost.program.residual import component_rows
from xfcost.spec.architecture import Part
from xfcost.spec.placement import place
from xfcost.spec.run import Run
from xfcost.torch_models.accounts import reconciled
from xfcost.torch_models.build import BuiltModel, ModuleMaker, SubLayerModel, build
from xfcost.torch_models.program import ProgramModule
from xfcost.torch_models.running.by_row import dispatch, row_path, trained_rows
from xfcost.torch_models.shared.cache import TokenOfMemory, set_position


def make(case: Case, device: str = "cpu") -> nn.Module:
    """The torch_module at its place, in float64."""
    torch.manual_seed(0)
    with torch.device(device):
        return ProgramModule(case.component, case.place).double().eval()


def example(place: Place, batch: int, device: str = "cpu") -> tuple[Tensor, ...]:
    """x, and the memory where there is one."""
    noise = torch.Generator().manual_seed(1)
    shapes = [(batch, place.grid.total, place.dim)]
    if place.memory:
        shapes.append((batch, place.memory.total, place.memory_dim))
    return tuple(torch.randn(shape, generator=noise, dtype=torch.float64).to(device) for shape in shapes)


class OneStage(Holder):
    """A stage without a memory."""

    def forward(self, x_BND: Tensor) -> Tensor:
        return self.it(x_BND, None)


def joined(component: SubLayer, place: Place, batch: int, residual: Residual | str) -> Ledger:
    """Closed form and trace of `component` inside its residual, row by row."""
    rows = [
        msgspec.structs.replace(batched(row, batch), path=f"it.{row.path}")
        for row in component_rows(component, place, residual)
    ]
    counted = Ledger(metadata=Metadata(name="one", tokens="", grid_tokens=place.grid.tokens), rows=tuple(rows))
    with torch.device("meta"):
        model = (
            Holder(SubLayerModel(Part("it", component, place, residual), ModuleMaker({})))
            .eval()
            .requires_grad_(requires_grad=False)
        )
    inputs = tuple(tensor.float() for tensor in example(place, batch, "meta"))
    return reconciled(counted, model, inputs, {"it": "it"})


class LargestTensor(TorchDispatchMode):
    """The most elements of any tensor that is made."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in tree_iter(result):
            if isinstance(value, Tensor):
                self.elements = max(self.elements, value.numel(), value.untyped_storage().nbytes() // value.itemsize)
        return result


MOST_TOKENS = 24


def drawn(data: st.DataObject, mechanism: type[Mixer]) -> Case:
    """Any configuration that needs no table of another one's, on a small grid."""
    known = CASES[mechanism]
    component, sides = data.draw(known.components), data.draw(known.sides)
    while torch.Size(sides).numel() > MOST_TOKENS:
        sides = tuple(max(1, side // 2) for side in sides)
    place = place_for(component, Grid(sides, int(known.class_token)), dim=max(SPEC_DIM, known.dim))
    try:
        component.check(place)
    except ComponentError:
        assume(condition=False)
    assume(not component.tables(place))
    return Case(component, place)


def on_meta(case: LayerCase, batch: int) -> tuple[torch.nn.Module, tuple[Tensor, ...]]:
    """Its module in a holder, and inputs."""
    with torch.device("meta"):
        module = Holder(ProgramModule(case.layer, case.place)).eval().requires_grad_(requires_grad=False)
    inputs = case.inputs(batch)
    return module, tuple((one.float() if one.is_floating_point() else one).to("meta") for one in inputs)


def agree(case: LayerCase) -> None:
    """Counted, traced and dispatched, row by row."""
    for batch in (1, 3):
        module, inputs = on_meta(case, batch)
        rows = tuple(
            msgspec.structs.replace(batched(row, batch), path=f"it.{row.path}")
            for row in component_rows(case.layer, case.place)
        )
        metadata = Metadata(name="one", tokens="", grid_tokens=case.place.grid.tokens)
        ledger = exact(reconciled(Ledger(metadata=metadata, rows=rows), module, inputs, {"it": "it"}))
        assert ledger.total("dispatched_flops") == ledger.total("traced_flops") == ledger.total("flops")
        assert sum(one.numel() for one in module.parameters()) == ledger.total("params")


def in_order(rows: Iterable[Operation], module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """Rows whose leaves run stand in the order in which these first run."""
    leaves = [(name, leaf) for name, leaf in module.named_modules() if next(leaf.children(), None) is None]
    began = dict[str | None, None]()
    for name, leaf in leaves:
        path = row_path(f"it.{name}", {"it": "it"})
        leaf.register_forward_pre_hook(lambda *_, path=path: began.setdefault(path))
    with torch.no_grad():
        module(*inputs)
    paths = [f"it.{row.path}" for row in rows]
    assert [path for path in paths if path in began] == [path for path in began if path in paths]


class Steps(nn.Module):
    """A decode step, run for one token after the other: (B, N, D) -> (B, N, D)."""

    def __init__(self, step: nn.Module) -> None:
        super().__init__()
        self.inner = step

    def forward(self, x_BND: Tensor, *memory: Tensor) -> Tensor:
        if memory:
            cache_memory(self.inner, *memory)
        answers = []
        for token in range(x_BND.shape[1]):
            set_position(self.inner, token)
            answers.append(self.inner(x_BND[:, token : token + 1]))
        return torch.cat(answers, dim=1)


def driven_back(
    part: Part, rows: Iterable[Operation], module: nn.Module, inputs: tuple[Tensor, ...], *, learned: bool
) -> Ledger:
    """Both accounts of a backward pass; is what comes into the module `learned`, or as fixed as pixels?"""
    counted = [
        msgspec.structs.replace(
            with_backward_macs(batched(row, len(inputs[0])), input_gradient=learned or not row.takes_input),
            path=f"it.{row.path}",
        )
        for row in rows
    ]
    metadata = Metadata(name="one", tokens="", grid_tokens=part.place.grid.tokens)
    live = BuiltModel(Holder(module).eval(), inputs, {"it": "it"})
    ran = trained_rows(live.model, dispatch(live.model, live.inputs, backward=True), live.rows)
    return with_backward(Ledger(metadata=metadata, rows=tuple(counted)), *ran)


def logits_step_by_step(spec: Any, sizes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """(B, N, V) of the whole forward, and of N steps with the same weights."""
    torch.manual_seed(0)
    run = Run(tokens=sizes, batch=BATCH, dtype="float64")
    whole = build(place(spec, run), "cpu")
    step = build(place(spec, run._replace(mode="decode")), "cpu")
    step.model.load_state_dict(whole.model.state_dict())
    numbers, answers = whole.inputs[-1], []
    with torch.no_grad():
        expected = whole.model(*whole.inputs)
        if len(sizes) > 1:
            memory = step.model.streams[0](whole.inputs[0], None)
            cache_memory(step.model.streams[1], memory)
        for token in range(numbers.shape[1]):
            set_position(step.model, token)
            answers.append(step.model(numbers[:, token : token + 1]))
    return expected, torch.cat(answers, dim=1)


BATCH = 2


def cache_memory(decoder: nn.Module, memory: Tensor) -> None:
    """Compute what every token reads of the encoder's output, and the states that start from it."""
    for module in decoder.modules():
        match module:
            case ProgramModule(config=Cross(), decodes=True):
                module.read_memory(memory)
            case TokenOfMemory():
                module.memory_BND = memory
            case ProgramModule(config=Recurrent(reads_memory=True), decodes=True):
                module.read_memory(memory)


LAYERS = dict.fromkeys(layer for kinds in (EMBEDS, ENTERS, SUBLAYERS, HEADS) for layer in kinds.values())
