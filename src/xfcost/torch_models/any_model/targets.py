"""The ledger of a torch module that a command names: `model.py:Net`, `package.module:Net`, a config.json."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, Final

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from xfcost.ledger.errors import NoRoomError, SpecError, UsageError, printable
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.measurements import MeasuredMemory
from xfcost.spec.reader import read_value
from xfcost.spec.targets import ModuleTarget
from xfcost.torch_models.any_model.inputs import (
    Given,
    Lengths,
    inputs_at,
    inputs_from,
    letters_in,
    letters_of,
    text_tokens,
    usual_inputs,
)
from xfcost.torch_models.any_model.ledger import How, ledger_at_lengths
from xfcost.torch_models.any_model.mixing import Built, OnCPU
from xfcost.torch_models.any_model.run import run
from xfcost.torch_models.any_model.target_code import Found, as_a_script, built, configured, fingerprint, found
from xfcost.torch_models.any_model.timing import ModuleOnDevice
from xfcost.torch_models.any_model.user_errors import OwnError, refused
from xfcost.torch_models.memory.peak import check_room, within_room
from xfcost.torch_models.shared.private_torch import fake_tensor_mode
from xfcost.torch_models.timing.growth import memory_of

_REAL: Final = "weights with real numbers"
_WITHOUT_NUMBERS: Final = (
    "take a smaller --N, --batch or config, or code that does not look at the numbers in tensors, which is counted on "
    "`meta`"
)


class GivenModule:
    """A module with its example inputs: values, or a function of N, or of H and W."""

    def __init__(self, module: nn.Module, inputs: Any, keywords: Mapping[str, Any] | None = None) -> None:
        self.module, self.inputs, self.keywords = module, inputs, keywords
        self.title = type(module).__name__

    def ledger(self, lengths: Lengths, how: How) -> Ledger:
        """Its ledger on inputs of these lengths; errors are those of `ledger_at_lengths`."""
        on_cpu, letters = lambda: [self._built(lengths)], letters_of(self.inputs)
        return ledger_at_lengths(lambda _: self.module, self._given_at, lengths, letters, how, on_cpu)

    @contextmanager
    def on_cpu(self, lengths: Lengths) -> Iterator[Built]:
        yield self._built(lengths)

    def _built(self, lengths: Lengths) -> Built:
        return self.module, self._given_at(lengths)

    def _given_at(self, lengths: Lengths) -> Given:
        return inputs_at(self.inputs, lengths, self.keywords)


class NamedModule:
    """The module that a target names, whose code is executed, at any size of its inputs.

    It is built on `meta`, and where it needs numbers on the CPU.

    Args:
        target: where it is.
        inputs: `[NAME=]SHAPE[:DTYPE]` each; the file's `example_inputs` where there are none.
        build: `key=value` each, arguments of the class or function; N, H and W stand for the lengths.
        batch: the number for B in shapes.
    """

    def __init__(self, target: ModuleTarget, inputs: Sequence[str], build: Sequence[str], batch: int) -> None:
        self.target, self.texts, self.samples = target, tuple(inputs), batch
        self.name = printable(target.text, 200)
        self.title = target.name or os.path.basename(target.place)
        self.build, self._arguments = tuple(build), _arguments(build)
        self._letters = {name: one for name, one in self._arguments.items() if one in ("N", "H", "W")}
        self._devices: tuple[str, ...] = ("meta", "cpu")
        self._built: dict[tuple[str, Lengths], tuple[nn.Module, Any]] = {}

    @cached_property
    def _code(self) -> Found | None:
        return None if self.target.kind == "config" else found(self.target)

    def ledger(self, lengths: Lengths, how: How) -> Ledger:
        """Its ledger on inputs of these lengths; a UsageError where it can't be built."""
        failed: UsageError | None = None
        with as_a_script(self.target):
            for device in self._devices:
                try:
                    ledger = self._ledger_on(device, lengths, how)
                except OwnError:
                    raise
                except UsageError as error:
                    failed = error
                    continue
                except NoRoomError as error:
                    if failed is None:
                        raise
                    raise NoRoomError(f"{failed}; {error}", error.needed, error.left) from error
                self._devices = (device,)
                return ledger
        raise failed or UsageError(f"{self.name}: it can't be built")

    def _ledger_on(self, device: str, lengths: Lengths, how: How) -> Ledger:
        _, given_at, first, letters = self._made(device, lengths)
        on_cpu, name = self._on_cpu(lengths, several=bool(how.mixing)), self.target.name or None
        model_at: Callable[[Lengths], nn.Module] = lambda at: self._made(device, at)[0]  # noqa: E731
        return ledger_at_lengths(model_at, given_at, first, letters, how, on_cpu, name=name)

    @contextmanager
    def on_cpu(self, lengths: Lengths) -> Iterator[Built]:
        """The module with real numbers, with its inputs; inside, its code runs as a script."""
        with as_a_script(self.target):
            yield self._on_cpu(lengths)()[0]

    def memory(self, lengths: Lengths, ledger: Ledger, device: str, begin: Callable[[], None]) -> MeasuredMemory:
        """Predicted and measured peak of building it and running it, or training steps where `ledger` is of one.

        `begin` and errors are those of `memory_of`; what does not fit was allocated if it was made on the CPU.
        """
        optimizer = None if ledger.training is None else ledger.training.step.optimizer
        tensors = "real" if ledger.module is None else ledger.module.tensors

        @contextmanager
        def as_counted() -> Iterator[Built]:
            with as_a_script(self.target):
                yield self._with_inputs(self._devices[0], lengths)

        def forget_and_begin() -> None:
            self._built.clear()
            begin()

        built = partial(self.on_cpu, lengths)
        own = ModuleOnDevice(self.title, ledger.metadata.dtype, tensors, optimizer, device, built, counted=as_counted)
        return memory_of(own, device, forget_and_begin, backward=optimizer is not None)

    def fingerprint(self) -> str:
        """16 hexadecimal digits: other code, parameters, buffers, inputs or arguments have others. Counted before.

        Where its arguments have letters, every length has parameters of its own, and none count.
        """
        with as_a_script(self.target):
            model = nn.Module() if self._letters else self._model(self._devices[0], Lengths())[0]
            return fingerprint(self.target, model, (*self.texts, "--build", *self.build))

    def _on_cpu(self, lengths: Lengths, *, several: bool = False) -> OnCPU:
        """The module with real numbers; also at another length, if its arguments have letters and it is for several."""

        def built_there() -> list[Built]:
            found = [self._with_inputs("cpu", lengths)]
            for factor in _FACTORS if several and self._letters else ():
                try:
                    other, given = self._with_inputs("cpu", _scaled(lengths, factor))
                    run(other, *given)
                except (UsageError, NoRoomError):  # it has no such size
                    continue
                return [*found, (other, given)]
            return found

        return built_there

    def _with_inputs(self, device: str, lengths: Lengths) -> Built:
        model, given_at, first, _ = self._made(device, lengths)
        return model, given_at(first)

    def _made(
        self, device: str, lengths: Lengths
    ) -> tuple[nn.Module, Callable[[Lengths], Given], Lengths, frozenset[str]]:
        """The module, its inputs at any lengths, these lengths as they apply to it, and the letters in its inputs.

        Its inputs are those that the command gives, else those beside its code, else the usual ones of transformers.
        """
        model, beside = self._model(device, lengths)
        tokens, usual = lengths.tokens, hasattr(model, "main_input_name") and hasattr(model, "config")
        if self.texts or beside is not None:
            letters = letters_in(self.texts) if self.texts else letters_of(beside)
        elif usual:  # N is the length of its text
            tokens = text_tokens(model, tokens)
            letters = frozenset("N" if tokens is not None else "")
        else:
            raise UsageError(
                f"{self.name}: expected its inputs: --input 1x3x224x224, or example_inputs in the file (a tensor, a "
                "tuple, a dictionary of keyword inputs, or a function that gives one)"
            )
        if lengths.size is not None and "H" not in letters and "W" not in letters:
            raise UsageError(
                f"{self.name}: --size is of inputs with the letters H and W, as in --input 1x3xHxW, or of an "
                "example_inputs that is a function of H and W"
            )

        def given_at(at: Lengths) -> Given:
            numbers = at.letters | {"B": self.samples}
            if self.texts:
                return inputs_from(self.texts, numbers, device)
            return usual_inputs(model, numbers, device) if beside is None else inputs_at(beside, at)

        first = lengths._replace(tokens=tokens)
        if any(is_lazy(tensor) for tensor in (*model.parameters(), *model.buffers())):
            args, kwargs = given_at(first)  # lazy modules take their shapes from the first inputs that they see
            try:
                with torch.no_grad():
                    model(*args, **kwargs)
            except (Exception, SystemExit) as error:
                raise refused(model, error) from error
        return model, given_at, first, letters

    def _model(self, device: str, lengths: Lengths) -> tuple[nn.Module, Any]:
        """The module, built once on a device, and the example inputs that stand beside it in its file."""
        key = (device, lengths if self._letters else Lengths())
        if key not in self._built:
            watched: AbstractContextManager[Any] = nullcontext()
            if device == "cpu" and (held := self._weight_bytes(lengths)) is not None:
                check_room(held, device, self.title, _REAL, _WITHOUT_NUMBERS)
            elif device == "cpu":
                watched = within_room(device, self.title, _REAL, _WITHOUT_NUMBERS)
            with watched:
                self._built[key] = self._new(device, lengths)
        return self._built[key]

    def _new(self, device: str, lengths: Lengths) -> tuple[nn.Module, Any]:
        numbers = {name: lengths.letters[letter] for name, letter in self._letters.items()}
        if self._code is None:
            if self._arguments:
                raise UsageError(
                    f"{self.name}: --build passes arguments to Python code; change the config's own fields"
                )
            return configured(self.target.place, device), None
        for name, letter in self._letters.items():
            if numbers[name] is None:
                option = "--N" if letter == "N" else "--size"
                raise UsageError(f"--build {name}={letter}: {letter} has no number; give {option}")
        return built(self._code.value, self._arguments | numbers, device, self.name), self._code.inputs

    def _weight_bytes(self, lengths: Lengths) -> int | None:
        """Bytes of its weights, found without them; None where its constructor runs with real numbers alone."""
        found = self._built.get(("meta", lengths if self._letters else Lengths()))
        try:
            with fake_tensor_mode() if found is None else nullcontext():
                model, _ = found or self._new("cpu", lengths)
                return sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))
        except UsageError:
            return None


# Of a module that is made for one size: other sizes, of which the first that runs is looked at too.
_FACTORS: Final = (Fraction(1, 4), Fraction(1, 2), Fraction(2))


def _scaled(lengths: Lengths, factor: Fraction) -> Lengths:
    tokens = None if lengths.tokens is None else int(lengths.tokens * factor)
    size = None if lengths.size is None else (int(lengths.size[0] * factor), int(lengths.size[1] * factor))
    return Lengths(tokens, size)


def _arguments(texts: Sequence[str]) -> dict[str, Any]:
    """`depth=12` as keyword arguments; values are those of YAML."""
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
