"""A torch module that somebody gives or names: `model.py:Net`, `package.module:Net`, a config.json.

The code that a name stands for is executed. Modules are built on `meta`, and where they need numbers on the CPU.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import hashlib
import importlib
import importlib.util
import itertools
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property, partial
from importlib.machinery import PathFinder
from importlib.metadata import version
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple, cast

import msgspec
import torch
from torch import nn
from torch.nn.parameter import is_lazy

from xfcost.importing.configs import config_text, weights_at
from xfcost.ledger.errors import NoRoomError, SpecError, UsageError, XfcostError, nearest, printable
from xfcost.ledger.execution import Execution
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.lora import Lora
from xfcost.ledger.measurements import MeasuredMemory
from xfcost.ledger.parallelism import HeadSharing
from xfcost.ledger.process_end import refuse_sudden_ends
from xfcost.ledger.quantization import WeightFormat
from xfcost.ledger.units import TF32
from xfcost.parts.training.result import RunPlan
from xfcost.spec.hub import config_label, hub_notes, hub_source
from xfcost.spec.reader import read_value
from xfcost.spec.targets import ModuleTarget
from xfcost.torch_models.any_model.adapters import with_adapters
from xfcost.torch_models.any_model.alike_layers import AlikeLayers
from xfcost.torch_models.any_model.inputs import (
    Lengths,
    OwnInputs,
    at_usual_size,
    head_sharing_of,
    inputs_at,
    inputs_from,
    letters_in,
    letters_of,
    positions_of,
    supposed_input,
    text_tokens,
    usual_inputs,
    usual_letters,
)
from xfcost.torch_models.any_model.ledger import How, ModuleOnDevice, ledger_at_lengths
from xfcost.torch_models.any_model.mixing import Built
from xfcost.torch_models.any_model.offline import has_backbone, left_out_note, offline, without_backbone, without_hub
from xfcost.torch_models.any_model.program_archive import graph_text, program_of, with_numbers
from xfcost.torch_models.any_model.run import TensorKind, run
from xfcost.torch_models.any_model.user_errors import (
    OwnError,
    check_modules,
    is_about_meta,
    is_own,
    is_users,
    own_line,
    raised,
    refused,
)
from xfcost.torch_models.build import MOST_BLOCKS
from xfcost.torch_models.memory.peak import check_room, within_room
from xfcost.torch_models.running.surroundings import (
    default_dtype,
    random_states_kept,
    torch_dtype,
    torch_warnings_hidden,
)
from xfcost.torch_models.shared.private_torch import collector_passes_over, fake_tensor_mode
from xfcost.torch_models.timing.growth import memory_of

_REAL: Final = "weights with real numbers"
_WITHOUT_NUMBERS: Final = (
    "take a smaller --N, --batch or config, or code that does not look at the numbers in tensors, which is counted on "
    "`meta`"
)
# (N, or None for the own one; batch) -> the ledger of a forward
Stored = Callable[[int | None, int], Ledger]
# Of a module that is made for one size: other sizes, of which the first that runs is looked at too.
_FACTORS: Final = (Fraction(1, 4), Fraction(1, 2), Fraction(2))


class GivenModule:
    """A module with its example inputs: values, or a function of N, or of H and W."""

    def __init__(
        self, module: nn.Module, inputs: Any, keywords: Mapping[str, Any] | None = None, *, tf32: bool = False,
        samples: int | None = None,
    ) -> None:  # fmt: skip
        self._samples = samples
        self._supposed = None if inputs is not None or keywords else supposed_input(module)
        self.inputs = inputs if self._supposed is None else self._supposed.function(module)
        self.module, self.keywords, self._tf32 = module, keywords, tf32
        self.title = type(module).__name__
        self._alike = AlikeLayers()

    weights: Final = None
    """No checkpoint is known of it."""
    config: Final = None
    """It is made of no config."""

    @property
    def letters(self) -> frozenset[str]:
        """The letters in its inputs."""
        return letters_of(self.inputs)

    @property
    def positions(self) -> int | None:
        """The most tokens that a model of transformers has positions for."""
        return positions_of(self.module)

    @property
    def heads(self) -> HeadSharing | None:
        """Its heads of attention, of a model of transformers."""
        return head_sharing_of(self.module)

    def with_samples(self, samples: int) -> GivenModule:
        """The same with another batch, of a module whose inputs nobody gives.

        Raises:
            UsageError: its inputs are given.
        """
        if self._supposed is not None and "B" in self._supposed.letters:
            return GivenModule(self.module, None, tf32=self._tf32, samples=samples)
        raise UsageError(f"{self.title}: its inputs are given, and have their own batch, not {samples}")

    def ledger(self, lengths: Lengths, how: How) -> Ledger:
        """Its ledger on inputs of these lengths; errors are those of `ledger_at_lengths`."""
        return at_usual_size(lambda at: self._ledger(at, how), lambda: self._supposed, lengths)

    def _ledger(self, lengths: Lengths, how: How) -> Ledger:
        on_cpu = lambda: [self._built(lengths)]  # noqa: E731 - one line
        own = lengths if self._supposed is None else self._supposed.lengths(lengths)
        has_batch = self._supposed is not None and "B" in self._supposed.letters
        how = how._replace(tf32=self._tf32, samples=(self._samples or 1) if has_batch else None)
        ledger = ledger_at_lengths(self._built, own, letters_of(self.inputs), how, on_cpu, alike=self._alike)
        note = None if self._supposed is None else self._supposed.note
        return ledger if note is None else ledger.with_note(note)

    def on_cpu(self, lengths: Lengths) -> contextlib.AbstractContextManager[Built]:
        return contextlib.nullcontext(self._built(lengths))

    def _built(self, lengths: Lengths) -> Built:
        if self._supposed is None:
            return self.module, inputs_at(self.module, self.inputs, lengths, self.keywords)
        device = str(next((one.device for one in self.module.parameters()), "cpu"))
        return self.module, self._supposed.values(self._supposed.lengths(lengths), device, self._samples)


class ConfigOptions(NamedTuple):
    """How transformers builds the model of a config."""

    dtype: str | None = None
    """float32 where it is None; any other module has its own, and tf32 is of its products."""
    attention: Execution | None = None
    """The best that the class has where it is None."""
    has_head: bool = False
    """Without an `architectures` field: the model with its language model's head?"""
    lora: Lora | None = None
    """Adapters of the linear maps of any module, beside frozen weights."""


class NamedModule:
    """The module that a target names, at any size of its inputs.

    Args:
        target: where it is.
        inputs: `[NAME=]SHAPE[:DTYPE]` each; the file's `example_inputs` where there are none.
        build: `key=value` each, arguments of the class or function; N, H and W stand for the lengths.
        batch: the number for B in shapes; None is 1, and of an exported program that of its example inputs.
        config: how the model of a config is built, and the adapters of any module.
        stored: the stored counts of its forward, where it is a published model: these need no run.
    """

    def __init__(
        self, target: ModuleTarget, inputs: Sequence[str], build: Sequence[str], batch: int | None,
        config: ConfigOptions | None = None, stored: Stored | None = None,
    ) -> None:  # fmt: skip
        self._config = config or ConfigOptions()
        self.stored = stored
        self.target, self.texts, self.samples = target, tuple(inputs), batch
        self.name = printable(config_label(target.text), 200)
        published, model = target.published, hub_source(target.place)
        own = model.repo if model else target.name or os.path.basename(target.named_by)
        self.title = published.title if published else own
        self.build, self._arguments = tuple(build), dict[str, Any]()
        for text in build:
            key, equals, value = text.partition("=")
            if not equals or not key.isidentifier():
                raise UsageError(f"--build {printable(text, 200)}: expected key=value, as in --build depth=12")
            try:
                self._arguments[key] = read_value(value)
            except SpecError as error:
                raise UsageError(f"--build {printable(text, 200)}: {error}") from None
        self._letters = {name: one for name, one in self._arguments.items() if one in ("N", "H", "W")}
        self._devices: tuple[str, ...] = ("meta", "cpu")
        self._supposed: OwnInputs | None = None
        self._models: dict[tuple[str, Lengths], tuple[nn.Module, Any]] = {}
        self._alike = AlikeLayers()

    @cached_property
    def _code(self) -> LoadedCode | None:
        return None if self.target.kind in ("config", "program") else found(self.target)

    @property
    def config(self) -> str | None:
        """The path of the config that it is made of."""
        return self.target.config

    @cached_property
    def weights(self) -> WeightFormat | str | None:
        """The format of the weights of a config's checkpoint, or what is not known of that."""
        if self.target.kind != "config":
            return None
        return weights_at(self.target, _read(self.target.place)[0])

    @property
    def letters(self) -> frozenset[str] | None:
        """The letters in the inputs that the command gives."""
        return letters_in(self.texts) if self.texts else None

    @property
    def positions(self) -> int | None:
        """The most tokens that a model of transformers has positions for; it was counted before."""
        return positions_of(self._model(self._devices[0], Lengths())[0]) if not self._letters else None

    @property
    def heads(self) -> HeadSharing | None:
        """Its heads of attention, of a model of transformers; it was counted before."""
        return head_sharing_of(self._model(self._devices[0], Lengths())[0]) if not self._letters else None

    def with_samples(self, samples: int) -> NamedModule:
        """The same module with another batch."""
        other = copy.copy(self)
        other.samples = samples
        return other

    def ledger(self, lengths: Lengths, how: How) -> Ledger:
        """Its ledger on inputs of these lengths; a UsageError where it can't be built."""
        return at_usual_size(lambda at: self._ledger(at, how), lambda: self._supposed, lengths)

    def _ledger(self, lengths: Lengths, how: How) -> Ledger:
        forward = self.stored and self.stored(lengths.tokens, self.samples or 1)
        if forward and how.is_bare and how.mode == "forward":
            return forward
        how = how._replace(mixing=0 if forward else how.mixing, tf32=self._config.dtype == TF32)
        failed: UsageError | None = None
        with as_a_script(self.target):
            for device in self._devices:
                built_at = lambda at: self._made(device, at)[0]()  # noqa: B023, E731 - used in this turn
                on_cpu = partial(self._on_cpu, lengths, several=bool(how.mixing))
                try:
                    _, own, letters = self._made(device, lengths)
                    how = how._replace(samples=(self.samples or 1) if "B" in letters else None)
                    alike, published = None if self._letters else self._alike, self.target.published
                    name = published.title if published else self.target.name or None
                    with collector_passes_over():
                        ledger = ledger_at_lengths(built_at, own, letters, how, on_cpu, name=name, alike=alike)
                    if published is not None:
                        metadata = msgspec.structs.replace(ledger.metadata, **published.metadata)
                        ledger = msgspec.structs.replace(ledger, metadata=metadata)
                    ledger = ledger.with_kinds_of(forward.rows) if forward else ledger
                except OwnError as error:
                    raise self._explained(error) from error
                except UsageError as error:
                    failed = self._explained(error)
                    continue
                except NoRoomError as error:
                    if failed is None:
                        raise
                    raise NoRoomError(f"{failed}; {error}", error.needed, error.left) from error
                self._devices = (device,)
                if self.target.kind == "config" and (left_out := _read(self.target.place)[1]):
                    ledger = ledger.with_note(left_out_note(left_out))
                for note in (*hub_notes(self.target.place), None if self._supposed is None else self._supposed.note):
                    ledger = ledger if note is None else ledger.with_note(note)
                return ledger
        raise failed or UsageError(f"{self.name}: it can't be built")

    def _explained(self, error: UsageError) -> UsageError:
        """`error`, which may come of a backbone that was left out of the config."""
        left_out = _read(self.target.place)[1] if self.target.kind == "config" else []
        return type(error)(f"{error}; {without_backbone(left_out)}") if has_backbone(left_out) else error

    @contextlib.contextmanager
    def on_cpu(self, lengths: Lengths) -> Iterator[Built]:
        """The module with real numbers, with its inputs; inside, its code runs as a script."""
        with as_a_script(self.target):
            yield self._made("cpu", lengths)[0]()

    def memory(self, lengths: Lengths, ledger: Ledger, device: str, plan: RunPlan | None) -> MeasuredMemory:
        """Predicted and measured peak of building it and running it, or training steps of a plan; it is counted.

        Errors are those of `memory_of`; what does not fit was allocated if it was made on the CPU.
        """

        @contextlib.contextmanager
        def as_counted() -> Iterator[Built]:
            with as_a_script(self.target):
                yield self._made(self._devices[0], lengths)[0]()

        built = partial(self.on_cpu, lengths)
        how, tensors = How(device=device, plan=plan), cast("TensorKind", ledger.ran.tensors)
        own = ModuleOnDevice(self.title, ledger.metadata.dtype, tensors, how, built, counted=as_counted)
        return memory_of(own, device, backward=plan is not None, begin=self._models.clear)

    def fingerprint(self) -> str:
        """16 hexadecimal digits: other code, parameters, buffers, inputs or arguments have others. Counted before.

        Comments and the layout of the code do not change them, and what it imports neither. Of parameters and buffers
        names, shapes and dtypes count; of a config also the version of transformers. Where its arguments have letters,
        every length has parameters of its own, and none count.
        """
        target, is_path = self.target, self.target.kind != "package"
        with as_a_script(target):
            model = nn.Module() if self._letters else self._model(self._devices[0], Lengths())[0]
            place = target.place if is_path else getattr(sys.modules.get(target.place), "__file__", None)
            code = str(place)  # of a compiled module
            if place is not None and (target.kind == "config" or place.endswith(".py")):
                is_config = target.kind == "config"
                text = config_text(place) if is_config else Path(place).read_bytes().decode("utf-8", "replace")
                code = version("transformers") + text if is_config else ast.dump(ast.parse(text))
            if target.kind == "program":
                code = graph_text(target.place)
            digest = hashlib.sha256(code.encode())
            digest.update(repr((*self.texts, "--build", *self.build)).encode())
            for name, tensor in itertools.chain(model.named_parameters(), model.named_buffers()):
                shape = "lazy" if is_lazy(tensor) else "x".join(map(str, tensor.shape))
                digest.update(f"{name} {shape} {tensor.dtype}\n".encode())
            return digest.hexdigest()[:16]

    def _on_cpu(self, lengths: Lengths, *, several: bool) -> list[Built]:
        """The module with real numbers; also at another length, if its arguments have letters and it is for several."""
        built = self._made("cpu", lengths)[0]()
        for factor in _FACTORS if several and self._letters else ():
            tokens = None if lengths.tokens is None else int(lengths.tokens * factor)
            size = None if lengths.size is None else (int(lengths.size[0] * factor), int(lengths.size[1] * factor))
            with contextlib.suppress(UsageError, NoRoomError):  # it may have no such size
                other, given = self._made("cpu", Lengths(tokens, size))[0]()
                run(other, *given)
                return [built, (other, given)]
        return [built]

    def _made(self, device: str, lengths: Lengths) -> tuple[Callable[[], Built], Lengths, frozenset[str]]:
        """The module with its inputs of these lengths, the lengths as they apply to it, and the letters in its inputs.

        Its inputs are those that the command gives, else those in its file, else the usual ones of transformers.
        """
        model, beside = self._model(device, lengths)
        supposed = self._supposed = None
        if self.texts or beside is not None:
            letters = letters_in(self.texts) if self.texts else letters_of(beside)
        elif hasattr(model, "main_input_name") and hasattr(model, "config"):  # N is the length of its text
            lengths = lengths._replace(tokens=text_tokens(model, lengths))
            letters = usual_letters(model, lengths)
        elif (supposed := supposed_input(model)) is not None:
            self._supposed = supposed
            lengths, letters = supposed.lengths(lengths), supposed.letters
        else:
            raise UsageError(
                f"{self.name}: expected its inputs: --input 1x3x224x224, or example_inputs in the file (a tensor, a "
                "tuple, a dictionary of keyword inputs, or a function that gives one)"
            )
        self._check_lengths(lengths, letters, given=bool(self.texts) or beside is not None)

        def built() -> Built:
            if self.texts:
                return model, inputs_from(self.texts, lengths.letters | {"B": self.samples or 1}, device, model)
            if supposed is not None:
                return model, supposed.values(lengths, device, self.samples)
            if beside is not None:
                return model, inputs_at(model, beside, lengths)
            return model, usual_inputs(model, lengths, self.samples or 1, device)

        if any(is_lazy(tensor) for tensor in (*model.parameters(), *model.buffers())):
            _, (args, kwargs) = built()  # lazy modules take their shapes from the first inputs that they see
            try:
                with torch.no_grad():
                    model(*args, **kwargs)
            except (Exception, SystemExit) as error:
                raise refused(model, error) from error
        return built, lengths, letters

    def _model(self, device: str, lengths: Lengths) -> tuple[nn.Module, Any]:
        """The module, built once on a device, and the example inputs in its file."""
        key = (device, lengths if self._letters else Lengths())
        if key not in self._models:
            watched: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
            if device == "cpu" and (held := self._weight_bytes(key[1], lengths)) is not None:
                check_room(held, device, self.title, _REAL, _WITHOUT_NUMBERS)
            elif device == "cpu":
                watched = within_room(device, self.title, _REAL, _WITHOUT_NUMBERS)
            with watched:
                self._models[key] = self._new(device, lengths)
        return self._models[key]

    def _check_lengths(self, lengths: Lengths, letters: frozenset[str], *, given: bool) -> None:
        """Refuse a size of inputs that have none; and N of an image that is not `given`, but found."""
        if lengths.size is not None and not letters & {"H", "W"}:
            raise UsageError(
                f"{self.name}: --size is of inputs with the letters H and W, as in --input 1x3xHxW, or of an "
                "example_inputs that is a function of H and W"
            )
        if not given and lengths.tokens is not None and "N" not in letters and "H" in letters:
            raise UsageError(f"--N {lengths.tokens}: the input of {self.name} is an image; give its --size instead")

    def _new(self, device: str, lengths: Lengths) -> tuple[nn.Module, Any]:
        """A new one, with the same random weights every time: they choose experts."""
        with random_states_kept([]):
            torch.default_generator.manual_seed(0)  # it is made on `meta` or the CPU
            model, beside = self._seeded(device, lengths)
            lora = self._config.lora
            return model if lora is None else with_adapters(model, lora, self.title), beside

    def _seeded(self, device: str, lengths: Lengths) -> tuple[nn.Module, Any]:
        if self._code is None:
            if self._arguments:
                mend = "change the config's own fields" if self.config else "an exported program has none"
                raise UsageError(f"{self.name}: --build passes arguments to Python code; {mend}")
            if self.target.kind == "program":
                module = program_of(self.target.place)
                return module if device == "meta" else with_numbers(module), None
            return configured(self.target.place, device, self._config), None
        numbers = {name: lengths.letters[letter] for name, letter in self._letters.items()}
        for name, letter in self._letters.items():
            if numbers[name] is None:
                option = "--N" if letter == "N" else "--size"
                raise UsageError(f"--build {name}={letter}: {letter} has no number; give {option}")
        return built(self._code.value, self._arguments | numbers, device, self.name), self._code.inputs

    def _weight_bytes(self, key: Lengths, lengths: Lengths) -> int | None:
        """Bytes of its weights, found without them; None where its constructor runs with real numbers only."""
        known = self._models.get(("meta", key))
        try:
            with fake_tensor_mode() if known is None else contextlib.nullcontext():
                model, _ = known or self._new("cpu", lengths)
                return sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))
        except UsageError:
            return None


# ── the code that a target names ──


class LoadedCode(NamedTuple):
    """What a target's name stands for, and the example inputs next to it."""

    value: Any
    inputs: Any
    """The code's `example_inputs`, called where it is a function of nothing; None where there are none."""


_MOST_BYTES: Final = 16_000_000


def found(target: ModuleTarget) -> LoadedCode:
    """Execute the target's code and look its name up."""
    shown = printable(target.text, 200)
    if target.kind == "file" and not os.path.isfile(target.place):
        raise UsageError(f"{shown}: there is no file {printable(target.place, 200)}")
    if target.kind == "file" and os.path.getsize(target.place) > _MOST_BYTES:
        raise UsageError(f"{shown}: is larger than {_MOST_BYTES:,} bytes; expected a file of Python code")
    folder, dotted = _imported_as(target)
    missing = f"{shown}: there is no module {target.place}"
    with _raising(f"{shown}: importing it", missing=missing, of=target.place), _imports_from(folder):
        code = importlib.import_module(dotted) if dotted else _from_file(target.place)
    value: Any = code
    for part in target.name.split("."):
        with _raising(f"{shown}: importing {part}"):  # a package may import it only now
            has = hasattr(value, part)
        if not has:
            raise UsageError(f"{shown}: {nearest(part, [name for name in vars(value) if not name.startswith('_')])}")
        value = getattr(value, part)
    inputs = getattr(code, "example_inputs", None)
    if callable(inputs) and not signature(inputs).parameters:
        with _raising(f"{shown}: its example_inputs"):
            inputs = inputs()
    return LoadedCode(value, inputs)


@contextlib.contextmanager
def _raising(what: str, more: str = "", *, missing: str = "", of: str = "") -> Iterator[None]:
    """Say that `what` raised whatever is raised inside; or that the package `of` is `missing`."""
    try:
        yield
    except (Exception, SystemExit) as error:
        if of and isinstance(error, ModuleNotFoundError) and error.name == of.partition(".")[0]:
            raise UsageError(f"{missing} here or in this environment") from None
        raise UsageError(f"{what} raised {_told(error)}{more}") from error


@contextlib.contextmanager
def _imports_from(folder: str) -> Iterator[None]:
    """Let code import the modules of its folder, also where one of the same name was imported from another folder."""
    shadowed = set[str]()
    for name, module in list(sys.modules.items()):
        place = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), "<built in>")
        outside = "." not in name and is_users(place) and not Path(place).is_relative_to(folder)
        if outside and PathFinder.find_spec(name, [folder]) is not None:
            shadowed.add(name)

    def of_shadowed() -> dict[str, ModuleType]:
        return {name: module for name, module in sys.modules.items() if name.partition(".")[0] in shadowed}

    hidden = of_shadowed()
    for name in hidden:
        del sys.modules[name]
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(folder)
        for name in of_shadowed():
            del sys.modules[name]
        sys.modules.update(hidden)


def _imported_as(target: ModuleTarget) -> tuple[str, str | None]:
    """The folder to import from, and the dotted name there; none of a file that is in no package."""
    if target.kind == "package":
        return os.getcwd(), target.place
    path = Path(os.path.abspath(target.place))
    names, folder = [path.stem], path.parent
    while (folder / "__init__.py").is_file() and folder.name.isidentifier():
        names.insert(0, folder.name)
        folder = folder.parent
    inside = len(names) > 1 and path.stem.isidentifier()
    return (str(folder), ".".join(names)) if inside else (str(path.parent), None)


def _from_file(path: str) -> ModuleType:
    name = f"xfcost_target_{Path(path).stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"Python can't import {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickles look their module up
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def as_a_script(target: ModuleTarget) -> Iterator[None]:
    """Let the target's code run as a script without arguments; what it prints goes to stderr, and not into a report.

    Raises:
        UsageError: its code raises what nothing else turned into an error, SystemExit and the like too.
    """
    arguments, errors = sys.argv, sys.stderr
    sys.argv = [target.place]
    undo, process = refuse_sudden_ends(), os.getpid()
    try:
        folder = os.getcwd()
    except FileNotFoundError:  # it was deleted
        folder = ""
    try:
        with contextlib.redirect_stdout(sys.stderr), offline() if target.kind == "config" else contextlib.nullcontext():
            yield
    except (XfcostError, MemoryError):
        raise
    except BaseException as error:
        # where Ctrl-C raises this too, nobody can tell the two apart; the command line's handler of it raises nothing
        pressed = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if (isinstance(error, KeyboardInterrupt) and pressed) or (isinstance(error, Exception) and not is_own(error)):
            raise
        raise UsageError(f"{printable(target.text, 200)}: its code raised {_told(error)}") from error
    finally:
        if os.getpid() != process:  # it forked: the report is that of the first process
            os._exit(0)
        undo()
        sys.argv, sys.stderr = arguments, errors
        with contextlib.suppress(OSError):
            os.chdir(folder)


def built(value: Any, arguments: Mapping[str, Any], device: str, shown: str) -> nn.Module:
    """The module: `value` itself, or what the class or function makes of `arguments` on `device`, to evaluate."""
    if isinstance(value, nn.Module):
        if arguments:
            raise UsageError(f"{shown}: --build passes arguments to a class or function, and this is a module already")
        return value
    if not callable(value):
        raise UsageError(
            f"{shown}: expected a torch module, or a class or function that makes one, got {type(value).__name__}"
        )
    raising = _raising(f"{shown}: making it", "; --build key=value passes arguments")
    with raising, torch_warnings_hidden(), torch.device(device):
        made = value(**arguments)
    if not isinstance(made, nn.Module):
        raise UsageError(f"{shown}: expected a torch module from it, got {type(made).__name__}")
    check_modules(made)
    return made.eval()


def _told(error: BaseException) -> str:
    line = own_line(error)
    return f"{raised(error)} ({line})" if line else raised(error)


# What makes models that write text: mapping of configs -> the class that makes them.
_WITH_HEADS: Final = {
    "MODEL_FOR_CAUSAL_LM_MAPPING": "AutoModelForCausalLM",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING": "AutoModelForImageTextToText",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING": "AutoModelForSeq2SeqLM",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING": "AutoModelForSpeechSeq2Seq",
}


def configured(path: str, device: str, options: ConfigOptions | None = None) -> nn.Module:
    """The model of the config at `path`, which has a model_type, without weights."""
    shown = printable(config_label(path), 200)
    try:
        import transformers
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "transformers":
            raise UsageError(
                f"{shown}: no spec can be made of it, and its own code is in transformers, which is not installed: "
                "pip install transformers"
            ) from None
        raise UsageError(f"{shown}: importing transformers raised {raised(error)}") from error
    values, _ = _read(path)
    _check_depth(values, shown)
    named = values.get("architectures")
    make: Any = None
    if named:
        name = named[0] if isinstance(named, list) else named
        make = getattr(transformers, name, None) if isinstance(name, str) else None
        if not isinstance(make, type) or not issubclass(make, nn.Module):
            raise UsageError(
                f"{shown}: transformers {transformers.__version__} has no model {printable(str(name or named), 80)}; "
                "architectures names the class to look at"
            )
    options = options or ConfigOptions()
    if options.attention is not None:
        values["attn_implementation"] = {"fused": "sdpa", "eager": "eager"}[options.attention]
    dtype = torch_dtype(options.dtype or "float32")
    try:
        config = transformers.AutoConfig.for_model(**values)
        if make is None:
            known = [name for one, name in _WITH_HEADS.items() if type(config) in getattr(transformers, one)]
            last = getattr(config, "is_encoder_decoder", False)  # its causal class leaves the encoder out
            name = (known or ["AutoModel"])[-1 if last else 0] if options.has_head else "AutoModel"
            make = partial(getattr(transformers, name).from_config, dtype=dtype)
        with torch.device(device), default_dtype(dtype):
            return make(config).eval()
    except Exception as error:
        if type(error).__name__ == "OfflineModeIsEnabled":
            raise UsageError(
                f"{shown}: it names a model on the Hub, and xfcost opens no connection; describe that model in the "
                "config, as in backbone_config"
            ) from error
        kind = UsageError if is_about_meta(error) else OwnError
        raise kind(f"{shown}: transformers refuses it: {raised(error)}") from error


def _read(path: str) -> tuple[dict[str, Any], list[str]]:
    """The fields of a config, and the names of those that are left out."""
    return without_hub(json.loads(config_text(path), object_hook=_numbers))


def _numbers(values: dict[str, Any]) -> Any:
    """`{"__float__": "Infinity"}`, as transformers writes it, as a number."""
    return float(values["__float__"]) if values.keys() == {"__float__"} else values


# `num_hidden_layers`, `n_layer`, `depths`; not `vocab_size_per_layer_input`
_OF_LAYERS: Final = re.compile(r"(^|_)(layers?|depths?)$")


def _check_depth(values: Any, shown: str, place: str = "") -> None:
    """Refuse numbers of layers that would be built without end."""
    for key, value in values.items() if isinstance(values, dict) else ():
        _check_depth(value, shown, f"{place}{key}.")
        counts = [one for one in (value if isinstance(value, list) else [value]) if type(one) is int]
        if _OF_LAYERS.search(key) and max(counts, default=0) > MOST_BLOCKS:
            raise UsageError(
                f"{shown}: {place}{key}: expected at most {MOST_BLOCKS:,} layers, which are built one by one, got "
                f"{max(counts):,}"
            )
