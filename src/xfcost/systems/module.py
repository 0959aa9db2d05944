"""A torch module as a system: counted, traced, predicted and timed at the N, or the image size, of a run."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from xfcost.comparing.fitted import CountedSizes
from xfcost.counting.generation import generated
from xfcost.counting.system import AccountOptions, Grown, System
from xfcost.ledger.errors import NoNumbersError, SizeError, UsageError, XfcostError, shown
from xfcost.ledger.execution import Mode
from xfcost.ledger.grid import sides_text
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.lora import UNMERGED
from xfcost.ledger.operation import Operation
from xfcost.parts.serving.bounds import SizedRun
from xfcost.parts.serving.parallel import heads_of_all
from xfcost.spec.run import Run, cache_of, weights_of
from xfcost.systems.devices import sized_on_devices
from xfcost.systems.predictions import predictors
from xfcost.torch_models.any_model.inputs import Lengths
from xfcost.torch_models.any_model.ledger import How, ModuleOnDevice
from xfcost.torch_models.any_model.run import USUAL_NAMES, CacheNames, TensorKind, work_done
from xfcost.torch_models.memory.shortage import memory_may_run_out
from xfcost.torch_models.timing.turns import REAL, Meters

if TYPE_CHECKING:
    from xfcost.counting.reach.result import Reach
    from xfcost.torch_models.any_model.targets import GivenModule, NamedModule

# Runs on real numbers take their memory: N no larger than so many times the own.
_MOST_TIMES_ON_NUMBERS: Final = 2
_MOST_TOKENS: Final = 2**20
_MOST_SIDE: Final = 2048
# The largest size at which it is counted, where no polynomial gives one.
_MOST_COUNTED: Final = 2**16
# Points of a line: of polynomials, and where each is counted.
_POINTS: Final = 97
_COUNTED_POINTS: Final = 17
# Operations of a run above which a module is not counted at every point of a search.
_SLOW: Final = 2_000


def counted(module: GivenModule | NamedModule, lengths: Lengths, how: How, new_tokens: int) -> Ledger:
    """The ledger of a module; in the mode `generate` that of its prompt and of the decode steps after it together."""
    if how.mode != "generate":
        return module.ledger(lengths, how)
    bare = How(trace=False, closed_form=False, cache=how.cache)

    def at(tokens: int, mode: Mode) -> Ledger:
        return module.ledger(lengths._replace(tokens=tokens), bare._replace(mode=mode))

    return generated(module.ledger(lengths, how._replace(mode="prefill", closed_form=False)), new_tokens, at)


class ModuleSystem(System):
    """A module, its inputs of the N or the image size of a run.

    Args:
        module: the module with its inputs.
        patient: count it at every size that is asked for, however long that takes.
        work_done: gives the operations of all runs so far.
        meters: clocks of timed runs.
    """

    def __init__(
        self, module: GivenModule | NamedModule, *, patient: bool = False, work_done: Callable[[], int] = work_done,
        meters: Meters = REAL,
    ) -> None:  # fmt: skip
        self.module, self.patient, self._work_done, self._meters = module, patient, work_done, meters
        self._work = 0
        self._own: Ledger | None = None
        self._first: Lengths | None = None
        self._cache = USUAL_NAMES
        self._kinds: tuple[Operation, ...] = ()
        self._mode: Mode = "forward"

    @property
    def name(self) -> str:
        return self.module.title

    @property
    def config(self) -> str | None:
        return self.module.config

    @property
    def letters(self) -> frozenset[str] | None:
        return self.module.letters

    def account(self, run: Run, how: AccountOptions) -> Ledger:
        """Its ledger at the size of the run and on its devices; other sizes are counted from the first such size.

        Errors are those of the module's `ledger`; a DeviceError where memory runs out.
        """
        if run.cached_prefix:
            raise UsageError(
                f"--cached-prefix {run.cached_prefix}: {self.name} is a torch module, which is counted over whole "
                "prompts only; a spec and most published models take it"
            )
        with memory_may_run_out(self.name, "running it"):
            if run.mode == "generate":
                how.say(f"counting decode steps of {self.name} …")
            ledger = self._account(run, self._how(run, how))
            metadata = msgspec.structs.replace(ledger.metadata, default_note=run.dtype_note, lora=run.lora)
            ledger = msgspec.structs.replace(ledger, metadata=metadata)
            if run.lora is not None and run.mode != "train":
                ledger = ledger.with_note(UNMERGED)
            last = ledger.metadata.grid_tokens + run.new_tokens - 1
            ledger = ledger.at_positions(last, self.module.positions)
            return sized_on_devices(ledger, run, partial(self._sizes, run, how), self.module.weights)

    def _how(self, run: Run, how: AccountOptions) -> How:
        """The accounts of the module."""
        cache_in, cache_out = how.cache
        return How(
            trace=how.trace, strict=how.strict, closed_form=how.orders,
            mixing=0 if run.mode == "decode" else how.mixing, plan=run.plan, mode=run.mode, device=how.device,
            timing=how.timing, say=how.say, tokens_of=tuple(how.tokens_of),
            predict=None if how.predict is None else predictors(how.predict, how.timing.threads),
            meters=self._meters, cache=CacheNames(cache_in, cache_out or cache_in),
        )  # fmt: skip

    def _account(self, run: Run, how: How) -> Ledger:
        """Its ledger at the size of the run. Mixing kinds that it finds are those at every size."""
        lengths = lengths_of(run)
        self._mode = "prefill" if how.mode == "generate" else how.mode
        ledger = counted(self.module, lengths, how, run.new_tokens)
        if how.mixing:
            self._kinds = ledger.rows
        ledger = ledger.with_kinds_of(self._kinds)
        if self._first is None:
            self._own = None if how.mode in {"train", "generate"} else ledger
            self._first = lengths._replace(tokens=ledger.metadata.grid_tokens or lengths.tokens)
            self._cache = how.cache
        return ledger

    def _sizes(self, run: Run, how: AccountOptions, ledger: Ledger) -> SizedRun:
        """The run of its ledger at other N, modes and batches, each counted."""
        module, lengths, cache = self.module, lengths_of(run), self._how(run, how).cache
        tokens, batch = ledger.metadata.grid_tokens, ledger.metadata.batch

        def at(tokens: int, mode: Mode, samples: int) -> Ledger:
            of = module if samples == batch else module.with_samples(samples)
            how = How(trace=False, closed_form=False, mode=mode, cache=cache)
            return of.ledger(lengths._replace(tokens=tokens), how)

        heads = lambda: heads_of_all(ledger, module.heads, module.title)  # noqa: E731 - one line
        return SizedRun(tokens, batch, at, positions=module.positions, one_run_each=True, heads=heads)

    def on_device(self, run: Run, how: AccountOptions) -> ModuleOnDevice:
        lengths, own = lengths_of(run), self._how(run, how)
        bare = self.module.ledger(lengths, How(trace=False, strict=how.strict, closed_form=False, plan=run.plan))
        tensors = cast("TensorKind", bare.ran.tensors)
        return ModuleOnDevice(
            self.name, bare.metadata.dtype, tensors, own, lambda: self.module.on_cpu(lengths),
            ledger=lambda taken: self._account(run, own._replace(taken=taken)),
        )  # fmt: skip

    def positions_up_to(self, most: int, run: Run) -> int:
        return min(self.module.positions or 0, most)

    def with_samples(self, batch: int) -> ModuleSystem:
        """The same with this batch.

        Raises:
            UsageError: the module is given with inputs of its own batch.
        """
        return ModuleSystem(self.module.with_samples(batch), patient=self.patient)

    def start(self, runs: Sequence[Run], how: AccountOptions) -> None:
        failed: UsageError | None = None
        for run in runs:
            try:
                ledger = self.account(run, how)
            except NoNumbersError:
                raise
            except UsageError as error:
                failed = failed or error
                continue
            for note in ledger.metadata.notes:
                how.say(f"{self.name}: {note}")
            return
        if failed is not None:
            raise failed

    def reach(self, run: Run, token: Sequence[int] | None, say: Callable[[str], None]) -> Reach:
        """Found by changing one token at a time."""
        with memory_may_run_out(self.name, "running it"):
            from xfcost.torch_models.reach.any_reach import reach_of_module

            say(f"changing one token of {self.name} at a time …")
            lengths, longer = lengths_of(run), None
            if lengths.tokens is not None:
                with suppress(XfcostError), self.module.on_cpu(lengths._replace(tokens=2 * lengths.tokens)) as built:
                    longer = built[1]
            with self.module.on_cpu(lengths) as (model, given):
                return reach_of_module(model, given, self.name, token, longer=longer)

    @property
    def own(self) -> Ledger:
        """The bare ledger at the first size; in the mode `generate` that of its prefill."""
        if self._first is None:
            raise RuntimeError(f"{self.name} has not been counted")
        self._own = self._own or self._at(self._first)
        return self._own

    @property
    def has_tokens(self) -> bool:
        return self.own.metadata.grid_tokens > 0

    @property
    def has_images(self) -> bool:
        return self._first is not None and self.own.metadata.image is not None

    @property
    def points(self) -> int:
        """Fewer where no polynomial fits, and each is counted."""
        return _POINTS if all(counts.evaluated for counts in self._counts.values()) else _COUNTED_POINTS

    def ledger(self, run: Run) -> Ledger:
        """Counted, or evaluated from polynomials through its counts.

        Raises:
            SizeError: the module does not run there.
        """
        lengths, weights = lengths_of(run), self.module.weights
        formats = weights_of(run, weights)[0], cache_of(run, weights)
        try:
            if lengths.size is not None and self.has_images:
                side = lengths.size[0]
                square = lengths.size == (side, side)
                counted = self._counts["side"].ledger(side) if square else self._at(lengths)
                return _at_lengths(counted, lengths).stored_as(*formats)
            if lengths.tokens is not None and self.has_tokens:
                counted = _at_lengths(self._counts["N"].ledger(lengths.tokens), lengths).stored_as(*formats)
                return counted.at_positions(lengths.tokens, self.module.positions if run.mode == "decode" else None)
        except XfcostError as error:
            raise SizeError(str(error)) from error
        if lengths.size is not None:
            self._check_images()
        return self.own.stored_as(*formats)

    def _check_images(self) -> None:
        if not self.has_images:
            raise UsageError(f"--size: the inputs of {self.name} have no letters H and W, as in --input 1x3xHxW")

    def costs(self, run: Run) -> tuple[int, dict[str, int]]:
        """As of other systems; a SizeError where counting takes too long."""
        if self._is_slow(self._counts.get("N" if run.size is None else "side")):
            raise SizeError(f"{self.name}: a run has {self._work:,} operations, and no polynomial fits its costs")
        return super().costs(run)

    def input_key(self, run: Run) -> Hashable:
        return lengths_of(run)

    def axes(self, run: Run) -> int:
        """2 if it runs only with square numbers of tokens."""
        if not self.has_tokens:
            raise UsageError(
                f"--N: the inputs of {self.name} have no letter N, as in --input 1xNx768, and no "
                "example_inputs that is a function of N"
            )
        return 2 if self._counts["N"].axis.squares else 1

    def token_step(self) -> int:
        return self._counts["N"].axis.grain

    def pixels(self, run: Run) -> int:
        self._check_images()
        return self._counts["side"].axis.grain

    def grown(self, ledger: Ledger, run: Run) -> Grown | None:
        """From its own N to twice as many tokens, four times on a grid or an image; else half, or a quarter."""
        ledger = self.own if run.mode == "generate" else ledger
        first = self._first or Lengths()
        own: tuple[int, ...] = (first.tokens or 0,) if self.has_tokens else first.size or ()
        axes = self.axes(run) if self.has_tokens else 1
        for factor in (Fraction(2), Fraction(1, 2)) if self.has_tokens or self.has_images else ():
            scaled = [one * factor**axes for one in own]
            if all(one.denominator == 1 for one in scaled):
                sizes: Any = tuple(map(int, scaled))
                tokens, size = (sizes, None) if self.has_tokens else (None, sizes)
                with suppress(XfcostError):
                    other = self.ledger(run._replace(tokens=tokens, size=size))
                    return Grown(ledger, other, float(factor ** (axes * len(sizes))))
        return None

    def remarks(self) -> Iterator[str]:
        """What crossovers with it are made of, where that is not a polynomial through its counts."""
        with memory_may_run_out(self.name, "running it"):
            if not self.has_tokens and not self.has_images:
                yield "its inputs have no letter N, H or W, so it is counted at one size, without growth and crossovers"
                return
            for name, counts in self._counts.items():
                if counts.evaluated:
                    continue
                how = f"no polynomial in {name} of a small degree fits its costs, and "
                if self._is_slow(counts):
                    skipped = "crossovers are skipped; --verbose searches for them"
                    yield f"{how}a run has {self._work:,} operations: {skipped}"
                else:
                    yield how + f"it is counted at every {name} that is looked at, up to {counts.most:,}"

    def _is_slow(self, counts: CountedSizes | None) -> bool:
        return counts is not None and not self.patient and not counts.evaluated and self._work > _SLOW

    @cached_property
    def _counts(self) -> dict[str, CountedSizes]:
        """Its ledgers along N and along the sides of square images, where it has them."""
        first, found, done = self._first or Lengths(), dict[str, CountedSizes](), self._work_done
        on_numbers = self.own.ran.tensors == "real"
        if self.has_tokens:
            own = first.tokens or 0
            most = _MOST_TIMES_ON_NUMBERS * own if on_numbers else _MOST_TOKENS
            at_n = lambda n: self._at(first._replace(tokens=n))  # noqa: E731 - one line
            found["N"] = CountedSizes(own, at_n, most, counted=_MOST_COUNTED, work_done=done)
        if self.has_images:
            own = max(first.size or (1, 1))
            most = _MOST_TIMES_ON_NUMBERS * own if on_numbers else _MOST_SIDE
            at_side = lambda n: self._at(first._replace(size=(n, n)))  # noqa: E731 - one line
            found["side"] = CountedSizes(own, at_side, most, counted=_MOST_COUNTED, sides=True, work_done=done)
        return found

    def _at(self, lengths: Lengths) -> Ledger:
        """The bare ledger at some lengths, with the kinds found before."""
        before = self._work_done()
        mode = "forward" if self._mode == "train" else self._mode
        ledger = self.module.ledger(lengths, How(trace=False, closed_form=False, mode=mode, cache=self._cache))
        self._work = self._work_done() - before
        return ledger.with_kinds_of(self._kinds)


def _at_lengths(ledger: Ledger, lengths: Lengths) -> Ledger:
    """An evaluated ledger is of these lengths, and not of those that it was evaluated from."""
    metadata = ledger.metadata
    if metadata.grid_tokens:
        metadata = msgspec.structs.replace(metadata, grid_tokens=lengths.tokens, inputs=f"N = {lengths.tokens:,}")
    if metadata.image is not None and lengths.size is not None:
        size = sides_text(lengths.size)
        metadata = msgspec.structs.replace(metadata, image=lengths.size, inputs=f"image {size}")
    return msgspec.structs.replace(ledger, metadata=metadata)


def lengths_of(run: Run) -> Lengths:
    """N, and the image's size, of a run."""
    if run.tokens is not None and len(run.tokens) > 1:
        raise UsageError(
            f"--N {shown(','.join(map(str, run.tokens)))}: expected one number, which stands for N in --input"
        )
    return Lengths(run.tokens[0] if run.tokens else None, run.size)
