"""What the contract is tried on: every example of every mechanism at its places, and whole specs around a component."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

import tier
from cases import CASES
from cases.base import DIM, MEMORY, SPEC_DIM, Case, MechanismCase
from xfcost.counting.forward import count
from xfcost.formulas.component import Mixer, Place, SubLayer
from xfcost.ledger.grid import Grid
from xfcost.ledger.ledger import Ledger
from xfcost.mechanisms import MECHANISMS
from xfcost.spec.architecture import Architecture
from xfcost.spec.load import Loaded, load
from xfcost.spec.placement import place
from xfcost.spec.run import Run
from xfcost.torch_models.accounts import reconciled
from xfcost.torch_models.build import build


def place_for(component: SubLayer, grid: Grid, *, fused: bool = False, dim: int | None = None) -> Place:
    """A place for `component`: only what reads another stream is given a memory, of another size and width."""
    if dim is None:
        dim = CASES[type(component)].dim if isinstance(component, Mixer) else DIM
    memory = {}
    if component.reads_memory:
        mixes = isinstance(component, Mixer)
        memory = {"memory": MEMORY if mixes else grid, "memory_dim": dim + 2 if mixes else dim}
    widened = CASES[type(component)].out_dim if isinstance(component, Mixer) else None
    return Place(grid=grid, dim=dim, out_dim=widened(component) if widened else dim, fused=fused, **memory)


def cases(*, fused: tuple[bool, ...] = (False, True)) -> Iterator[Case]:
    """Of every mechanism the first example on every grid, each other on a third of them (`stands_on`).

    Where that changes something, every second of them is fused too. With `--spec` those of the spec.
    """
    if tier.spec is not None:
        parts = {str(Case(one.component, one.place)): one for one, *_ in place(load(tier.spec), Run()).parts()}
        for part in parts.values():
            if isinstance(part.component, Mixer):
                for way in fused if CASES[type(part.component)].fused else fused[:1]:
                    yield Case(part.component, msgspec.structs.replace(part.place, fused=way))
        return
    for mechanism in MECHANISMS.values():
        known = CASES[mechanism]
        for number, component in enumerate(known.examples):
            stands = stands_on(known, number)
            for at, grid in enumerate(known.grids):
                for way in fused:
                    if grid in stands and (not way or (known.fused and (number + at) % 2)):
                        yield Case(component, place_for(component, grid, fused=way))


# An error in an angle, a bias or an order of tokens shows where there are so many; and takes no more to be seen.
MANY: Final = 8
ENOUGH: Final = 64


def stands_on(known: MechanismCase, number: int) -> tuple[Grid, ...]:
    """The grids of an example: every third, and the largest of `ENOUGH` tokens at most."""
    if not number:
        return known.grids
    largest = max((grid for grid in known.grids if grid.total <= ENOUGH), key=lambda grid: grid.total)
    return (*known.grids[-number % 3 :: 3], largest)


def examples(*, fused: tuple[bool, ...] = (False, True)) -> Iterator[tuple[Mixer, bool]]:
    """Every example, eager and (where that changes something) fused."""
    for mechanism in MECHANISMS.values():
        for component in CASES[mechanism].examples:
            for way in fused:
                if CASES[mechanism].fused or not way:
                    yield component, way


def answers(component: SubLayer, place: Place) -> int:
    """How many tokens its module gives: those that leave, or the special ones where it changes those alone."""
    grid = component.out(place)[0]
    return grid.special if component.special_tokens_only else grid.total


def spec_of(component: Mixer) -> dict[str, Any]:
    """A whole spec around `component`, as plain data: of two streams where the component needs a memory."""
    case = CASES[type(component)]
    entry = (
        {"kind": "image", "size": [10, 10]}
        if case.image
        else {"kind": "tokens", "vocabulary": 11, "length": case.length}
    )
    embed = [{"kind": "patch", "size": 1} if case.image else {"kind": "token"}]
    embed += [{"kind": "class_token"}] if case.class_token else []
    spec: dict[str, Any] = {"name": f"one {type(component).__name__}", "input": entry}
    around = {"embed": embed, "stages": [{"dim": SPEC_DIM, "depth": 2, "block": [msgspec.to_builtins(component)]}]}
    if not component.reads_memory:
        return spec | around
    before = {"embed": embed, "stages": [{"dim": SPEC_DIM, "depth": 1, "block": [{"kind": "mlp"}]}]}
    return spec | {"encoder": before, "decoder": around}


def as_yaml(data: dict[str, Any]) -> str:
    """One key per line, in the order of `data`, without aliases."""

    class Plain(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    return yaml.dump(data, Dumper=Plain, sort_keys=False, allow_unicode=True)


def stack(
    *block: Any, dim: int = 8, depth: int = 1, length: int = 8, vocabulary: int = 11, **more: Any
) -> dict[str, Any]:
    """A spec of one stage over token numbers, as plain data; `more` stands beside its keys or instead of them."""
    return {
        "name": "a spec of a test",
        "input": {"kind": "tokens", "vocabulary": vocabulary, "length": length},
        "embed": [{"kind": "token"}],
        "stages": [{"dim": dim, "depth": depth, "block": [*block]}],
    } | more


def stored(data: dict[str, Any], folder: Path, file: str = "spec.yaml") -> str:
    """The path of a file that holds the spec."""
    (folder / file).write_text(as_yaml({"name": "a spec of a test"} | data), encoding="utf-8")
    return str(folder / file)


def loaded(data: dict[str, Any], folder: Path) -> Loaded:
    """A spec that is given as plain data."""
    return load(stored(data, folder))


def placed(data: dict[str, Any], folder: Path, **run: Any) -> Architecture:
    """The spec with the options of a run."""
    return place(loaded(data, folder), Run(**run))


def counted_spec(data: dict[str, Any], folder: Path) -> Ledger:
    """The spec's counted account."""
    return count(placed(data, folder))


def both_accounts(architecture: Architecture) -> Ledger:
    """The counted account, beside the traced one."""
    return reconciled(count(architecture), *build(architecture))


def exact(ledger: Ledger) -> Ledger:
    """The ledger, whose accounts agree in every row."""
    assert ledger.agreement is not None
    differing = [", ".join(f"{key} {value}" for key, value in one.items()) for one in ledger.agreement.differences]
    differing += [f"uncounted: {one}" for one in ledger.agreement.uncounted]
    assert ledger.agreement.exact, "\n".join(["rows that differ:", *differing])
    return ledger


def same_rows(declared: Mapping[str, Any], found: Mapping[str, Any], what: str) -> None:
    """Every row has what its leaf was found to have; a failure lists the rows that have not."""
    differing = [
        f"{path}: {what} declared {declared.get(path)}, in the running module {found.get(path)}"
        for path in declared | found
        if declared.get(path) != found.get(path)
    ]
    assert not differing, "\n".join(["rows that differ:", *differing])
