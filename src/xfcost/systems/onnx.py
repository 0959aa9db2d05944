"""An ONNX file as a system: its graph counted by shapes at the sizes of a run. Nothing runs; torch is not needed."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import msgspec

from xfcost.comparing.fitted import CountedSizes, closed_form
from xfcost.counting.system import AccountOptions, Grown, System
from xfcost.importing.onnx_graphs.file import OnnxInput, read_onnx
from xfcost.importing.onnx_graphs.rows import Sized, graph_ledger
from xfcost.importing.onnx_graphs.shapes import bound
from xfcost.ledger.errors import IncompleteError, SizeError, UsageError, XfcostError, printable, shown
from xfcost.ledger.execution import Mode
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.quantization import UNQUANTISED
from xfcost.parts.serving.bounds import SizedRun
from xfcost.parts.serving.parallel import heads_of_all
from xfcost.spec.open_dimensions import OpenLetter, open_letters
from xfcost.spec.run import Run
from xfcost.spec.targets import SHAPE, SIDES
from xfcost.systems.devices import sized_on_devices

if TYPE_CHECKING:
    from xfcost.counting.reach.result import Reach
    from xfcost.torch_models.timing.systems import OnDevice

# Where a graph leaves them open, and nobody gives them.
_TOKENS: Final = 128
_SIDE: Final = 224
_MOST: Final = 2**20
_LETTERS: Final[dict[str, OpenLetter]] = {"B": "B", "N": "N", "H": "H", "W": "W"}
_WORDS: Final[dict[OpenLetter, str]] = {"B": "the batch", "N": "N", "H": "H", "W": "W"}


class OnnxSystem(System):
    """The graph of a file.

    Args:
        path: of the file.
        texts: `NAME=SHAPE` each, of inputs: numbers for open lengths, or the letters N, B, H and W.
        batch: the number for B; 1 where it is None.

    Raises:
        UsageError: the file holds no graph that can be counted, or a text is of no input.
    """

    def __init__(self, path: str, texts: Sequence[str] = (), batch: int | None = None) -> None:
        self.path, self._texts, self._batch = path, tuple(texts), batch or 1
        file = read_onnx(path)
        inputs = dict(file.inputs)
        self._fixed, self._letters = self._read(inputs)
        self.file = file._replace(inputs=inputs)
        if batch not in (None, 1) and "B" not in self._letters:
            raise self._closed(f"--batch {batch}", "the batch")
        self._known: dict[tuple[int | None, tuple[int, int] | None, int], Ledger] = {}

    def _read(self, inputs: dict[str, OnnxInput]) -> tuple[dict[str, int], dict[OpenLetter, str]]:
        """The open lengths that have a number, and those that have a letter; inputs without a shape get one."""
        fixed, letters = dict[str, int](), dict[OpenLetter, str]()
        for text in self._texts:
            name, _, shape = text.rpartition("=")
            name = next(iter(inputs)) if not name and len(inputs) == 1 else name
            one, found = inputs.get(name), SHAPE.match(shape)
            said = f"--input {printable(text, 200)}"
            if one is None or found is None:
                raise UsageError(
                    f"{said}: expected NAME=SHAPE of an input of {self.name}: {', '.join(map(printable, inputs))}; of "
                    "one of several systems with its number before it, as in --input 1:1x3x64x64"
                )
            given = SIDES.split(found["sides"])
            sides = one.sides if one.sides is not None else tuple(f"{name}_{axis}" for axis in range(len(given)))
            inputs[name] = one._replace(sides=sides)
            if len(given) != len(sides):
                raise UsageError(f"{said}: expected {len(sides)} axes, got {len(given)}")
            for axis, (side, length) in enumerate(zip(sides, given, strict=True)):
                letter = _LETTERS.get(length)
                if letter is not None and isinstance(side, str):
                    letters[letter] = side
                elif not length.isdecimal() or (isinstance(side, int) and int(length) != side):
                    raise UsageError(f"{said}: axis {axis} is {printable(str(side))} in the file, and not {length}")
                elif isinstance(side, str) and fixed.setdefault(side, int(length)) != int(length):
                    raise UsageError(f"{said}: {printable(side)} is {fixed[side]} in another place")
        named = open_letters({
            name: [side if isinstance(side, int) or side not in fixed else 1 for side in one.sides or ()]
            for name, one in inputs.items()
        })  # fmt: skip
        taken = {*letters.values()}
        return fixed, letters | {
            letter: name for name, letter in named.items() if letter not in letters and name not in taken
        }  # fmt: skip

    # ── what it is ──

    @property
    def name(self) -> str:
        return self.path.replace("\\", "/").rpartition("/")[2]

    @property
    def has_tokens(self) -> bool:
        return "N" in self._letters

    @property
    def has_images(self) -> bool:
        return "H" in self._letters and not self.has_tokens

    @property
    def points(self) -> int:
        return 97 if self._counts.evaluated else 17

    def with_samples(self, batch: int) -> OnnxSystem:
        return OnnxSystem(self.path, self._texts, batch)

    # ── counting ──

    def _lengths(self, run: Run) -> tuple[int | None, tuple[int, int] | None]:
        """N, and the sides of its image.

        Raises:
            UsageError: the run has one that the graph does not have open.
        """
        if run.mode != "forward":
            raise UsageError(f"--mode {run.mode}: {self.name} is an ONNX graph, of which one forward is counted")
        if run.tokens is not None and len(run.tokens) > 1:
            raise UsageError(f"--N {shown(','.join(map(str, run.tokens)))}: expected one number")
        if run.tokens is not None and not self.has_tokens:
            raise self._closed("--N", "N")
        if run.size is not None and "H" not in self._letters:
            raise self._closed("--size", "H and W")
        tokens = (run.tokens[0] if run.tokens else _TOKENS) if self.has_tokens else None
        size = (tuple(run.size) if run.size else (_SIDE, _SIDE)) if "H" in self._letters else None
        return tokens, None if size is None else (size[0], size[1])

    def _closed(self, option: str, letters: str) -> UsageError:
        opened = ", ".join(f"{letter} is {printable(name)}" for letter, name in self._letters.items()) or "none is open"
        return UsageError(
            f"{option}: no length of the inputs of {self.name} stands for {letters} ({opened}); letters in a shape say "
            "which does, as in --input ids=1xN"
        )

    def _at(self, tokens: int | None, size: tuple[int, int] | None, batch: int | None = None) -> Ledger:
        batch = batch or self._batch
        key = (tokens, size, batch)
        if key not in self._known:
            given: dict[OpenLetter, int | None] = {"B": batch, "N": tokens}
            if size is not None:
                given |= {"H": size[0], "W": size[1]}
                if "W" not in self._letters and size[0] != size[1]:
                    raise UsageError(f"--size {size[0]}x{size[1]}: {self.name} takes square images")
            numbers = {name: given.get(letter) for letter, name in self._letters.items()}
            sizes = self._fixed | {name: number for name, number in numbers.items() if number is not None}
            sized = Sized(sizes, bound(self.file, sizes), tokens, size)
            self._known[key] = graph_ledger(self.file, self.path, sized)
        return self._known[key]

    def _own(self, run: Run) -> Ledger:
        return self._at(*self._lengths(run))

    def ledger(self, run: Run) -> Ledger:
        tokens, size = self._lengths(run)
        if tokens is not None and self._counts.evaluated:
            found = self._counts.ledger(tokens)
            metadata = msgspec.structs.replace(found.metadata, grid_tokens=tokens, inputs=f"N = {tokens:,}")
            return msgspec.structs.replace(found, metadata=metadata)
        return self._at(tokens, size)

    @cached_property
    def _counts(self) -> CountedSizes:
        """Its ledgers along N, or along the sides of square images."""
        if self.has_tokens:
            return CountedSizes(_TOKENS, lambda tokens: self._at(tokens, self._size), _MOST)
        at_side = lambda side: self._at(None, (side, side))  # noqa: E731 - one line
        return CountedSizes(_SIDE, at_side, _MOST, sides=True)

    @property
    def _size(self) -> tuple[int, int] | None:
        return (_SIDE, _SIDE) if "H" in self._letters else None

    def account(self, run: Run, how: AccountOptions) -> Ledger:
        """Its counts and their closed form, on the devices of the run.

        Raises:
            UsageError: an account is asked for that needs a run, or it has no such sizes.
            IncompleteError: it is strict, and an operator is not counted.
        """
        asked = {
            "--device": how.device, "--predict": how.predict, "--trace": how.trace, "--probe": how.probe,
            "--tokens-of": how.tokens_of, "--cache-in": any(how.cache),
        }  # fmt: skip
        for option, given in asked.items():
            if given:
                raise self.needs_run(option)
        if how.mixing == math.inf:
            raise self.needs_run("mixing kinds")
        formats = {"--weights-dtype": run.weight_format, "--cache-dtype": run.cache_format}
        for option, one in formats.items():
            if one not in (None, UNQUANTISED):
                raise UsageError(f"{option}: {self.name} is an ONNX graph, whose weights are as its file stores them")
        tokens, size = self._lengths(run)
        ledger = self._at(tokens, size)
        if how.strict and ledger.ran.uncounted:
            raise IncompleteError(self.name, ledger.ran.uncounted)
        if how.orders is not False:
            ledger = self._with_form(ledger, tokens, size)
        if (note := self._note(run)) is not None:
            ledger = ledger.with_note(note)
        metadata = msgspec.structs.replace(ledger.metadata, default_note=run.dtype_note)
        return sized_on_devices(msgspec.structs.replace(ledger, metadata=metadata), run, self._sizes, None)

    def _with_form(self, ledger: Ledger, tokens: int | None, size: tuple[int, int] | None) -> Ledger:
        """With its closed form in N, or in the pixels of square images."""
        if tokens is not None:
            return closed_form(tokens, ledger, lambda number: self._at(number, size))
        if size is None or size[0] != size[1]:
            return ledger

        def at_pixels(pixels: int) -> Ledger:
            side = math.isqrt(pixels)
            if side * side != pixels:
                raise SizeError(f"{pixels:,} pixels are not a square image")
            return self._at(None, (side, side))

        return closed_form(size[0] ** 2, ledger, at_pixels, images=True)

    def _note(self, run: Run) -> str | None:
        """Which lengths are open, and what they are where the run does not say."""
        if not self._letters:
            return None
        texts = [f"{_WORDS[letter]} ({printable(name)})" for letter, name in self._letters.items()]
        tokens, size = self._lengths(run)
        usual = [f"N = {tokens}"] if tokens is not None and not run.tokens else []
        usual += [f"{size[0]}×{size[1]} pixels"] if size is not None and run.size is None else []
        return f"open in the file: {', '.join(texts)}" + (f"; {' and '.join(usual)} by default" if usual else "")

    def _sizes(self, ledger: Ledger) -> SizedRun:
        """The run of its ledger at other N and batches."""

        def at(tokens: int, mode: Mode, batch: int) -> Ledger:
            if mode != "forward":
                raise UsageError(f"{self.name} is an ONNX graph, of which one forward is counted")
            return self._at(tokens or None, ledger.metadata.image and ledger.metadata.image[:2], batch)  # type: ignore[arg-type]

        heads = lambda: heads_of_all(ledger, None, self.name)  # noqa: E731 - one line
        return SizedRun(ledger.metadata.grid_tokens, self._batch, at, heads=heads)

    # ── as a system ──

    def input_key(self, run: Run) -> Hashable:
        return self._lengths(run)

    def axes(self, run: Run) -> int:
        self._lengths(run._replace(tokens=run.tokens or (_TOKENS,)))
        return 2 if self._counts.axis.squares else 1

    def token_step(self) -> int:
        return self._counts.axis.grain

    def pixels(self, run: Run) -> int:
        if "H" not in self._letters:
            raise self._closed("--size", "H and W")
        return self._counts.axis.grain

    def grown(self, ledger: Ledger, run: Run) -> Grown | None:
        tokens, size = self._lengths(run)
        with suppress(XfcostError):
            if tokens is not None:
                return Grown(ledger, self._at(2 * tokens, size), 2.0)
            if size is not None:
                return Grown(ledger, self._at(None, (2 * size[0], 2 * size[1])), 4.0)
        return None

    def positions_up_to(self, most: int, run: Run) -> int:
        return 0

    def remarks(self) -> Iterable[str]:
        """Why it is counted at one size alone."""
        if not self.has_tokens and "H" not in self._letters:
            yield "no length of its inputs is open, so it is counted at one size, without growth and crossovers"

    def on_device(self, run: Run, how: AccountOptions) -> OnDevice:
        """Refused: nothing of a graph runs.

        Raises:
            UsageError: always.
        """
        raise self.needs_run("--device")

    def reach(self, run: Run, token: Sequence[int] | None, say: Callable[[str], None]) -> Reach:
        """Refused, as `on_device`.

        Raises:
            UsageError: always.
        """
        raise self.needs_run("reach")

    def needs_run(self, what: str) -> UsageError:
        """The refusal of `what` needs a run."""
        return UsageError(f"{what}: {self.name} is an ONNX graph, which is counted by its shapes and does not run")


def onnx_system(path: str, texts: Sequence[str], build: Sequence[str], batch: Any) -> OnnxSystem:
    """The system of a file; a UsageError of `--build`, which is for code."""
    if build:
        raise UsageError(f"--build {printable(build[0])}: only for Python code; an ONNX graph is built already")
    return OnnxSystem(path, texts, batch)
