"""The ledger of a torch module that a command names: `model.py:Net`, `package.module:Net`, a config.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from xfcost.ledger.errors import SpecError, UsageError, printable, shown
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.options import read_option
from xfcost.spec.reader import read_value
from xfcost.spec.targets import ModuleTarget
from xfcost.torch_models.any_model.config_target import configured, usual_inputs
from xfcost.torch_models.any_model.input_texts import inputs_from
from xfcost.torch_models.any_model.inputs import Given, example_inputs
from xfcost.torch_models.any_model.ledger import module_ledger
from xfcost.torch_models.any_model.mixing import check_parameters
from xfcost.torch_models.any_model.python_target import Found, built, found

Letters = Mapping[str, int | None]
"""Letters in the shapes of inputs -> what they stand for."""


def target_ledger(  # noqa: PLR0913 - options
    target: ModuleTarget, *, inputs: Sequence[str], build: Sequence[str], tokens: Any, batch: Any, trace: bool,
    strict: bool, mixing: bool = False,
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

    Raises:
        UsageError: it can't be built, or does not run on these inputs.
        IncompleteError: with `strict`, an operation is not counted.
    """
    letters: Letters = {"N": _one_number(tokens), "B": read_option("batch", batch)}
    arguments, failed = _arguments(build), None
    code = None if target.kind == "config" else found(target)
    name = printable(target.text, 200)

    def made(device: str) -> tuple[nn.Module, Given]:
        model, beside = _made(target, code, arguments, device)
        return model, _inputs(model, beside, inputs, letters, device, name)

    for device in ("meta", "cpu"):
        try:
            model, given = made(device)
        except UsageError as error:
            failed = error
            continue
        if mixing:
            check_parameters(model, name)
        on_cpu = (lambda: [made("cpu")]) if mixing else None
        try:
            return module_ledger(
                model, given.args, given.kwargs, trace=trace, strict=strict, name=target.name or None, mixing=on_cpu
            )
        except UsageError as error:
            failed = error
    raise failed or UsageError(f"{name}: it can't be built")


def _one_number(given: Any) -> int | None:
    numbers = read_option("N", given)
    if numbers is not None and len(numbers) != 1:
        raise UsageError(f"--N {shown(given)}: expected one number, which stands for N in --input")
    return int(numbers[0]) if numbers else None


def _made(target: ModuleTarget, code: Found | None, arguments: dict[str, Any], device: str) -> tuple[nn.Module, Any]:
    """The module, and the example inputs that stand beside it in its file."""
    name = printable(target.text, 200)
    if code is not None:
        return built(code.value, arguments, device, name), code.inputs
    if arguments:
        raise UsageError(f"{name}: --build passes arguments to Python code; change the config's own fields")
    return configured(target.place, device), None


def _inputs(model: nn.Module, beside: Any, texts: Sequence[str], letters: Letters, device: str, name: str) -> Given:
    if texts:
        return inputs_from(texts, letters, device)
    if beside is not None:
        return example_inputs(beside)
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
