"""One forward of a module, recorded: on `meta`; where its code looks at values, on fake tensors, else on real ones.

In training its backward pass follows.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor, nn

from xfcost.ledger.errors import UsageError, XfcostError
from xfcost.torch_models.any_model.operations import Operations
from xfcost.torch_models.any_model.outputs import finished
from xfcost.torch_models.any_model.parameters import sizes
from xfcost.torch_models.any_model.stand_in import (
    How,
    copied_inputs,
    copier,
    learning,
    needs_elements,
    reached,
    shared_parameters,
    stand_in,
)
from xfcost.torch_models.any_model.user_errors import OwnError, message, refused
from xfcost.torch_models.any_model.work import Key, Work
from xfcost.torch_models.running.recorder import Recorder
from xfcost.torch_models.shared.no_compiler import no_compiler
from xfcost.torch_models.shared.private_torch import (
    FAKE_TENSOR_LOGGER,
    as_written,
    children_of,
    compiler_is_loaded,
    fake_tensor_mode,
    is_compiled,
    original,
)
from xfcost.torch_models.tracing.fast_path import without_fast_path
from xfcost.torch_models.tracing.meta import shapes_on_meta
from xfcost.torch_models.tracing.outside import handed_to_numpy
from xfcost.torch_models.tracing.unchanged import unchanged

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
_IGNORED: Final = "meta tensors ignore autocast"
Beside = Callable[[Args, Kwargs, list[str]], AbstractContextManager[Any]]


class Run(NamedTuple):
    """What a run did, and on which tensors."""

    works: list[Work]
    how: How
    reason: str | None
    """Why it did not run on `meta`."""
    elements: dict[str, int]
    """The names of the parameters, with their elements."""
    ran: int = 0
    """How many ATen operations ran."""
    learned: frozenset[str] = frozenset()
    """In training, the names of the parameters that a gradient reached."""
    keys: Mapping[int, Key] = {}
    """`id` of a call of its record -> the operation that it belongs to, while the record lives."""


def run(model: nn.Module, args: Args, kwargs: Kwargs, *, training: bool = False, keeps_free: bool = False) -> Run:
    """One forward of `model(*args, **kwargs)`, first without elements, then with them if its code looks at them.

    Code that raises the same on `meta` and on fake tensors looks at no elements: the error is its own.

    With `training` the model is in training mode, and a backward pass follows. `keeps_free`: as `Operations` takes it.

    Raises:
        UsageError: the module does not run on these inputs; an OwnError where real numbers would not help.
    """
    on_meta = _on_meta(model, (args, kwargs))
    reason = needs_elements(model, (args, kwargs))
    attempts: list[How] = ["real"] if reason else ["meta", "fake"] if on_meta else ["meta", "fake", "real"]
    failed: BaseException | None = None
    for how in attempts:
        try:
            found = run_on(how, model, args, kwargs, training=training, keeps_free=keeps_free)
            return found._replace(reason=reason)
        except XfcostError:
            raise
        except (Exception, SystemExit) as error:
            raised = f"{type(error).__name__}: {message(error).partition(chr(10))[0]}"
            if how == "fake" and raised == reason:
                raise refused(model, error, kind=OwnError) from error
            reason = reason or raised
            failed = failed if failed is not None and on_meta else error
    if failed is None:
        raise RuntimeError("no attempt was made")
    hint = "; its parameters are on `meta`, and code that looks at values needs real ones" if on_meta else ""
    raise refused(model, failed, hint) from failed


def _on_meta(model: nn.Module, inputs: Any) -> bool:
    return any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers(), *reached(inputs)))


def run_on(  # noqa: PLR0913 - options
    how: How, model: nn.Module, args: Args, kwargs: Kwargs, beside: Beside | None = None, *, training: bool = False,
    keeps_free: bool = False, recorder: Recorder | None = None,
) -> Run:  # fmt: skip
    """One recorded run on such tensors. What the model raises passes through.

    `beside` gives another dispatch mode for the inputs that the run works on; it sees the same operations.
    `recorder` records in place of the usual one.
    """
    outside = Work("", "outside")
    faking = fake_tensor_mode() if how == "fake" else nullcontext()
    with stand_ins(how, model, args, kwargs, faking, training=training) as given, ExitStack() as stack:
        own_args, own_kwargs = given
        recorder = recorder or Recorder(model if training else None)
        stack.enter_context(no_compiler())
        stack.enter_context(_quiet() if how == "fake" else nullcontext())
        stack.enter_context(faking)
        if how == "meta":
            stack.enter_context(shapes_on_meta())
            stack.enter_context(_without_autocast())
        stack.enter_context(handed_to_numpy(outside.uncounted))
        stack.enter_context(beside(own_args, own_kwargs, recorder.running) if beside else nullcontext())
        stack.enter_context(recorder.of(model))
        learned = _ran(recorder, model, own_args, own_kwargs, outside.uncounted, training=training)
        elements = sizes(model)
    operations = Operations(recorder.run, keeps_free=keeps_free)
    outside.uncounted.update(operations.uncounted)
    works = [*operations.works.values(), *([outside] if outside.uncounted else [])]
    return Run(works, how, None, elements, recorder.run.ran, learned, operations.keys)


def _ran(
    recorder: Recorder, model: nn.Module, args: Args, kwargs: Kwargs, missing: Counter[str], *, training: bool
) -> frozenset[str]:  # fmt: skip
    """Run the forward, and in training the backward pass; the names of the parameters that have a gradient then."""
    if not training:
        finished(model(*args, **kwargs), missing)
        return frozenset()
    with recorder.saving():
        outputs = finished(model(*args, **kwargs), missing)
    recorder.differentiate(learned_from(outputs))
    return frozenset(name for name, parameter in model.named_parameters() if parameter.grad is not None)


def learned_from(outputs: Any) -> list[Tensor]:
    """The loss, if a model returns one, else everything with a gradient.

    Raises:
        UsageError: nothing has a gradient.
    """
    loss = outputs.get("loss") if isinstance(outputs, Mapping) else getattr(outputs, "loss", None)
    is_one = isinstance(loss, Tensor) and loss.requires_grad and loss.numel() == 1
    tensors: list[Tensor] = [loss] if is_one else reached(outputs)  # type: ignore[list-item]
    found = {id(one): one for one in tensors if one.requires_grad}
    if not found:
        raise UsageError(
            "--mode train: nothing that the module returns has a gradient: no parameter that requires one leads to it "
            "by differentiable operations"
        )
    return list(found.values())


@contextmanager
def stand_ins(  # noqa: PLR0913 - options
    how: How, model: nn.Module, args: Args, kwargs: Kwargs, fake_mode: Any = None, *, training: bool = False,
    device: str | None = None,
) -> Iterator[tuple[Args, Kwargs]]:  # fmt: skip
    """Let `model` work on copies of its tensors, and give copies of its inputs; at the end everything is as it was.

    With `training` gradients are on, and a model in evaluation mode is in training mode; of one that is in training
    mode already, parts in evaluation mode stay so. Real tensors may be put on another `device`.
    """
    with unchanged(model), uncompiled(model), without_fast_path(), torch.set_grad_enabled(training):
        made = copier(how, fake_mode, device)
        stand_in(model, made, shared_parameters(how, device, training=training))
        if training and not model.training:
            model.train()
        yield copied_inputs((args, kwargs), learning(made) if training else made)


@contextmanager
def _without_autocast() -> Iterator[None]:
    """Refuse the autocast of the CPU, which `meta` ignores: fake tensors have its dtypes."""
    entered = torch.autocast.__enter__

    def enter(self: torch.autocast) -> Any:
        result = entered(self)
        if torch.is_autocast_enabled("cpu"):
            self.__exit__(None, None, None)
            raise TypeError(_IGNORED)
        return result

    if torch.is_autocast_enabled("cpu"):
        raise TypeError(_IGNORED)
    with patch.object(torch.autocast, "__enter__", enter):
        yield


@contextmanager
def _quiet() -> Iterator[None]:
    """torch logs what a fake run raises; the next attempt tells whether that matters."""
    logger = logging.getLogger(FAKE_TENSOR_LOGGER)
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def uncompiled(model: nn.Module) -> Iterator[None]:
    """Run what is compiled as it was written: modules, modules compiled in place, and functions."""
    for module in model.modules():
        children = children_of(module)
        for name, child in children.items():  # `unchanged` puts the child back
            if child is not None and is_compiled(child):
                children[name] = original(child)
        as_written(module)
    with torch.compiler.set_stance("force_eager") if compiler_is_loaded() else nullcontext():
        yield
