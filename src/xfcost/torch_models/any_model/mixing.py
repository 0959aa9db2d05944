"""How each operation of a module mixes tokens, found by runs with real numbers at small sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from functools import partial
from typing import Any, Final
from warnings import catch_warnings, simplefilter

from torch import Tensor, nn

from xfcost.formulas.component import merging_note
from xfcost.ledger.errors import NoNumbersError, UsageError, XfcostError
from xfcost.torch_models.any_model.inputs import Given
from xfcost.torch_models.any_model.row_kinds import Look, Seen, fill
from xfcost.torch_models.any_model.run import RecordedModule, reached, run_on
from xfcost.torch_models.any_model.small_sizes import GIVEN_SIZE, Sizes, numbers_made, small_sizes, window_at
from xfcost.torch_models.any_model.token_axes import Axes, axes_of, axes_text, part_of, refilled, resized
from xfcost.torch_models.any_model.user_errors import original, raised
from xfcost.torch_models.any_model.work import Work
from xfcost.torch_models.mixing.follower import Budget, Follower, LimitReached, own_inputs
from xfcost.torch_models.mixing.verdict import verdicts
from xfcost.torch_models.running.on_meta import TooManyCallsError
from xfcost.torch_models.shared.environment import collector_paused
from xfcost.torch_models.shared.private_torch import pytree
from xfcost.torch_models.timing.devices import threads_set

MOST_BYTES: Final = 2 * 2**30
# Without a word: random numbers for so many take a second.
_USUAL_BYTES: Final = 640 * 2**20
# FLOPs of a run with numbers that take as long as an element that is followed.
_FLOPS: Final = 5000
# The same of numbers that it makes: those of masks are looked through.
_NUMBERS: Final = 8
Built = tuple[nn.Module, Given]
"""A module with real numbers, and its inputs."""
OnCPU = Callable[[], Sequence[Built]]
"""Gives the module; or, where it is made for one size alone, the module made for several, smallest first."""

_WIDER: Final = "a window wider than these counts as global"
_SEEDS: Final = (1, 2)
_ALL: Final = "what reads all tokens for each of them counts as global"


def find_mixing(  # noqa: PLR0913 - options
    full: RecordedModule, model: nn.Module, name: str, on_cpu: OnCPU, limit: float, said: Axes,
    longer: Given | None = None,
) -> list[str]:  # fmt: skip
    """Fill in the kinds of `full`'s operations from runs of the same module with real numbers; notes of what was found.

    What is not found stays unknown, and `kind_missing` says why.

    Args:
        full: the run that the ledger counts.
        model: the module that ran.
        name: what it is called.
        on_cpu: gives it with real numbers.
        limit: of the elements that are followed; with `inf` a module whose kinds can't be looked for is refused.
        said: the axes of tokens of inputs that somebody named.
        longer: the inputs at another N, where they are a function of N.

    Raises:
        NoNumbersError: its parameters take too much memory.
        UsageError: it has no numbers, or is not on the CPU.
    """
    try:
        check_parameters(model, name, MOST_BYTES if limit == math.inf else _USUAL_BYTES)
        with catch_warnings(), collector_paused(), threads_set(1):  # threads wait for each other: tensors are small
            simplefilter("ignore")  # what its code warns of was seen in the run before
            return _found(full, on_cpu(), Budget(limit), said, longer)
    except XfcostError as error:
        if limit == math.inf:
            raise
        _nothing(full, str(error))
    except (LimitReached, TooManyCallsError):
        _nothing(full, f"finding them follows more than {limit:,} tensor elements; --mixing-limit raises that")
    except Exception as error:  # noqa: BLE001 - the ledger stands without kinds, and the reason is reported
        _nothing(full, f"a run to find them raised {raised(error)}")
    return []


def _found(full: RecordedModule, built: Sequence[Built], budget: Budget, said: Axes, longer: Given | None) -> list[str]:
    built = sorted(built, key=lambda one: sum(tensor.numel() for tensor in reached(one[1])))
    models = [original(model) for model, _ in built]
    for model in models:
        _check_device(model)
    model, given = models[0], built[0][1]
    if any(isinstance(leaf, Tensor) and leaf.is_nested for leaf in pytree.tree_leaves((given.args, given.kwargs))):
        _nothing(full, "the rows of a nested tensor have lengths of their own")
        return []
    names = given.places(model)
    axes = axes_of(given, model, full.works, longer) | said
    if not any(axes.values()):
        _nothing(full, "no input has an axis of tokens")
        return []
    attempts = [Sizes([one for _, one in built], f"{len(built)} builds of it")]
    if len(built) == 1:
        attempts = [small_sizes(model, given, axes, full, budget.spend, budget.operations)]
        if len(attempts[0].inputs) > 1:  # an input may name others by number, as a graph's edges do: they fit one size
            attempts.append(Sizes([resized(given, axes, {}, None)], GIVEN_SIZE, numbers_made(full.works)))
    failed = ""
    for inputs, text, numbers in attempts:
        budget.spend(0, numbers // _NUMBERS)  # before they are made, which may take gigabytes
        try:
            looks = _looks(models, inputs, axes, given if len(built) == 1 else None, budget)
        except Exception as error:  # noqa: BLE001 - the ledger stands without kinds, and the reason is reported
            failed = raised(error)
            continue
        fill(full.works, looks, partial(window_at, model), max(map(len, axes.values())))
        reason = _WIDER if len(inputs) > 1 else _ALL
        merging = [work.path or work.name for work in full.works if work.merges_all and work.costs["macs"]]
        notes = [merging_note(list(dict.fromkeys(merging)))] if merging else []
        return [f"mixing kinds are found from {text}; tokens lie along {axes_text(axes, names)}; {reason}", *notes]
    _nothing(full, f"a run to find them raised {failed}")
    return []


def check_parameters(model: nn.Module, name: str, most: int = MOST_BYTES) -> None:
    """Refuse a module whose parameters take more than `most` bytes, or too much memory, to be filled with numbers.

    Raises:
        NoNumbersError: they do.
    """
    size = sum(one.numel() * one.element_size() for one in (*model.parameters(), *model.buffers()))
    if most < size <= MOST_BYTES:
        raise NoNumbersError(
            f"its parameters take {size / 2**20:,.0f} MiB, and up to {most / 2**20:,.0f} MiB are filled with numbers; "
            "--mixing fills them"
        )
    if size > MOST_BYTES:
        fewer = "a copy of its config with fewer layers and experts, as in num_hidden_layers: 2"
        raise NoNumbersError(
            f"kinds are found by running it with real numbers, in up to {MOST_BYTES // 2**30} GiB, and the parameters "
            f"of {name} take {size / 2**30:,.1f} GiB; a smaller one has the same kinds: "
            + (fewer if hasattr(model, "main_input_name") else "--build depth=2")
        )


def _check_device(model: nn.Module) -> None:
    devices = {one.device.type for one in (*model.parameters(), *model.buffers())}
    if "meta" in devices:
        raise UsageError("mixing: the module is on `meta`, and finding masks needs numbers; build it on the CPU")
    if devices - {"cpu"}:
        raise UsageError(f"mixing: the module is on {', '.join(sorted(devices))}; it is found on the CPU: module.cpu()")


def _nothing(full: RecordedModule, reason: str) -> None:
    for work in full.works:
        work.kind_missing = reason


def _looks(
    models: Sequence[nn.Module], inputs: Sequence[Given], axes: Axes, given: Given | None, budget: Budget
) -> list[Look]:
    """What is found on these inputs, and on others where tokens are chosen by what they hold."""
    models = models if given is None else [models[0]] * len(inputs)
    parts = [None if given is None else part_of(given, one, axes) for one in inputs]
    looks = [_look(models, inputs, axes, parts, budget)]
    if looks[0].chooses:  # other content may choose other tokens
        others = ([refilled(one, axes, seed) for one in inputs] for seed in _SEEDS)
        looks += [_look(models, other, axes, parts, budget) for other in others]
    return looks


def _look(
    models: Sequence[nn.Module], inputs: Sequence[Given], axes: Axes, parts: Sequence[Fraction | None], budget: Budget
) -> Look:
    """What is found in one run of each size."""
    runs = [_followed(model, one, axes, budget) for model, one in zip(models, inputs, strict=True)]
    followers = [follower for _, follower in runs]
    found = [verdicts(one, larger) for one, larger in zip(followers, [*followers[1:], None], strict=True)]
    deciding = max(0, len(runs) - 2)
    chooses = any(noted.chooses for noted in followers[deciding].noted)
    sizes = [Seen(works, one, part) for (works, _), one, part in zip(runs, found, parts, strict=True)]
    return Look(sizes, deciding, chooses)


def _followed(model: nn.Module, given: Given, axes: Axes, budget: Budget) -> tuple[list[Work], Follower]:
    follower = Follower(budget)

    @contextmanager
    def beside(args: tuple[Any, ...], kwargs: dict[str, Any], running: list[str]) -> Iterator[None]:
        follower.running = running
        own_inputs(follower, args, kwargs, axes)
        with follower:
            yield

    ran = run_on("real", model, given.args, given.kwargs, beside)
    budget.spend(0, sum(work.costs["flops"] for work in ran.works) // _FLOPS)
    if ran.ran != len(follower.noted):
        raise RuntimeError(f"of {ran.ran} operations {len(follower.noted)} were followed")
    for work in ran.works:
        for number in work.sequence:
            follower.noted[number] = follower.noted[number]._replace(site=work.site)
    return ran.works, follower
