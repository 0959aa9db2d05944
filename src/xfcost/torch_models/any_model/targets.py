"""The ledger of a torch module that a command names: `model.py:Net`, `package.module:Net`, a config.json."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from torch import nn

from xfcost.ledger.errors import SpecError, UsageError, printable
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.options import read_option
from xfcost.ledger.timing_options import USUAL, TimingPlan
from xfcost.ledger.training import Plan
from xfcost.spec.reader import read_value
from xfcost.spec.targets import ModuleTarget
from xfcost.torch_models.any_model.config_target import configured
from xfcost.torch_models.any_model.in_n import ledger_in_n
from xfcost.torch_models.any_model.input_texts import has_letter, inputs_from
from xfcost.torch_models.any_model.inputs import Given, inputs_at
from xfcost.torch_models.any_model.lazy import with_shapes
from xfcost.torch_models.any_model.mixing import Built, check_parameters
from xfcost.torch_models.any_model.python_target import Found, as_a_script, built, found
from xfcost.torch_models.any_model.timing import OnDevice
from xfcost.torch_models.any_model.usual_inputs import text_tokens, usual_inputs

Letters = Mapping[str, int | None]
"""Letters in the shapes of inputs -> what they stand for."""


def target_ledger(  # noqa: PLR0913 - options
    target: ModuleTarget, *, inputs: Sequence[str], build: Sequence[str], tokens: int | None, batch: Any, trace: bool,
    strict: bool, closed_form: bool | None, mixing: bool = False, plan: Plan | None = None,
    device: str | None = None, timing: TimingPlan = USUAL, say: Callable[[str], None] = lambda text: None,
) -> Ledger:  # fmt: skip
    """The ledger of the module that `target` names. It is built on `meta`, and where it needs numbers on the CPU.

    Args:
        target: its code is executed.
        inputs: `[NAME=]SHAPE[:DTYPE]` each; the file's `example_inputs` where there are none.
        build: `key=value` each, arguments of the class or function.
        tokens: the number for N in shapes.
        batch: the number for B.
        trace: also lay fvcore's trace beside.
        strict: refuse a ledger that leaves an operation uncounted.
        mixing: also find how each operation mixes tokens, in the module on the CPU.
        plan: count a training step.
        device: also time it there, built on the CPU, with the numbers that its constructor gives it.
        timing: how long.
        say: called with a line of text before that.
        closed_form: also count it at other N, where N is a letter; None: where that is quick.

    Raises:
        UsageError: it can't be built, or does not run on these inputs.
        IncompleteError: with `strict`, an operation is not counted.
    """
    samples = read_option("batch", batch)
    arguments, failed = _arguments(build), None
    name = printable(target.text, 200)
    with as_a_script(target):
        code = None if target.kind == "config" else found(target)

        def made(device: str) -> tuple[nn.Module, Callable[[int | None], Given], int | None, bool]:
            model, beside = _made(target, code, arguments, device)
            given_at = partial(_inputs, model, beside, inputs, samples, device, name)
            own = _letter(model, beside, inputs, tokens)
            first = tokens if own is None else own
            with_shapes(model, *given_at(first))
            return model, given_at, first, own is not None

        def on_cpu() -> list[Built]:
            model, given_at, first, _ = made("cpu")
            return [(model, given_at(first))]

        for place in ("meta", "cpu"):
            try:
                model, given_at, first, has_n = made(place)
            except UsageError as error:
                failed = error
                continue
            if mixing:
                check_parameters(model, name)
            try:
                return ledger_in_n(
                    model, given_at, first, has_n=has_n, trace=trace, strict=strict, name=target.name or None,
                    closed_form=closed_form, mixing=on_cpu if mixing else None, plan=plan,
                    on=None if device is None else OnDevice(device, on_cpu, say, timing),
                )  # fmt: skip
            except UsageError as error:
                failed = error
    raise failed or UsageError(f"{name}: it can't be built")


def _made(target: ModuleTarget, code: Found | None, arguments: dict[str, Any], device: str) -> tuple[nn.Module, Any]:
    """The module, and the example inputs that stand beside it in its file."""
    name = printable(target.text, 200)
    if code is not None:
        return built(code.value, arguments, device, name), code.inputs
    if arguments:
        raise UsageError(f"{name}: --build passes arguments to Python code; change the config's own fields")
    return configured(target.place, device), None


def _letter(model: nn.Module, beside: Any, texts: Sequence[str], tokens: int | None) -> int | None:
    """The number for N, where the inputs have the letter N."""
    if texts:
        return tokens if has_letter(texts, "N") else None
    if beside is not None:
        return tokens if callable(beside) else None
    return text_tokens(model, tokens) if hasattr(model, "main_input_name") and hasattr(model, "config") else None


def _inputs(  # noqa: PLR0913 - what inputs are made of
    model: nn.Module, beside: Any, texts: Sequence[str], batch: int, device: str, name: str, tokens: int | None
) -> Given:
    letters: Letters = {"N": tokens, "B": batch}
    if texts:
        return inputs_from(texts, letters, device)
    if beside is not None:
        return inputs_at(beside, tokens)
    if hasattr(model, "main_input_name") and hasattr(model, "config"):
        return usual_inputs(model, letters, device)
    raise UsageError(
        f"{name}: expected its inputs: --input 1x3x224x224, or example_inputs in the file (a tensor, a tuple, a "
        "dictionary of keyword inputs, or a function that gives one)"
    )


def _arguments(texts: Sequence[str]) -> dict[str, Any]:
    """`depth=12` as keyword arguments; values are those of YAML.

    Raises:
        UsageError: it is no `key=value`.
    """
    arguments = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.isidentifier():
            raise UsageError(f"--build {printable(text, 200)}: expected key=value, as in --build depth=12")
        try:
            arguments[key] = read_value(value)
        except SpecError as error:
            raise UsageError(f"--build {printable(text, 200)}: {error}") from None
    return arguments
