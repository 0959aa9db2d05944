"""A published model as a system: its stored counts, at any N and batch."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from xfcost import __version__
from xfcost.comparing.fitted import closed_form
from xfcost.counting.generation import generated
from xfcost.counting.prefix import beside_whole, prefill_behind
from xfcost.counting.recorded import RecordedCounts, filled, head_of, letters_at, with_fused_attention
from xfcost.counting.system import AccountOptions, Grown, System
from xfcost.importing.configs import config_text, weights_at
from xfcost.ledger.errors import UsageError, XfcostError, printable
from xfcost.ledger.execution import WITH_CACHE, Mode
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.quantization import WeightFormat
from xfcost.ledger.units import TF32
from xfcost.parts.serving.bounds import SizedRun
from xfcost.parts.serving.parallel import heads_of_all
from xfcost.spec.architecture import PROMPTED
from xfcost.spec.checkpoints import positions_of_config, published_weights
from xfcost.spec.hub import config_label
from xfcost.spec.models import RECORDED_WITH, config_of, counts_of, models
from xfcost.spec.run import Run, cache_of, check_prefix, weights_of
from xfcost.spec.targets import ModuleTarget
from xfcost.systems.devices import sized_on_devices

if TYPE_CHECKING:
    from xfcost.counting.reach.result import Reach
    from xfcost.torch_models.timing.systems import OnDevice

# The modes of the file that another one is made of.
_COUNTED_IN: Final[dict[Mode, tuple[Mode, ...]]] = {"generate": ("prefill", "decode")}


class PublishedSystem(System):
    """A model of the list that has counts, with a batch, and in a mode; a system of a comparison or a plot.

    Args:
        name: its name in the list.
        counts: its file.
        batch: samples.
        mode: the mode of `ledger` and `costs`.
        eager: count the matrices of its class's eager attention also where a kernel serves it?
        target: a config with the fields of the model's, or a checkpoint with one, in whose place it answers.
    """

    has_images: Final = False

    def __init__(
        self, name: str, counts: RecordedCounts, batch: int = 1, mode: Mode = "forward", *, eager: bool = False,
        target: ModuleTarget | None = None,
    ) -> None:  # fmt: skip
        self.key, self.counts, self.batch, self.mode, self.eager = name, counts, batch, mode, eager
        self._target = target
        self._asked = None if target is None else target.place
        self._known: dict[tuple[int, Mode, int], Ledger] = {}
        # Is a forward that of the prefill, with the logits of all tokens?
        self.of_prefill = False
        # Are float32 products in TF32?
        self.tf32 = False

    @property
    def name(self) -> str:
        return models()[self.key].title

    @property
    def config(self) -> str:
        """The path of its config, or of the one in whose place it answers."""
        return self._asked or str(config_of(self.key))

    @cached_property
    def _config(self) -> dict[str, Any]:
        return msgspec.json.decode(config_of(self.key).read_bytes(), type=dict[str, Any])

    @cached_property
    def weights(self) -> WeightFormat | str | None:
        """The format of its checkpoint's weights, or what is not known of that."""
        if self._target is None:
            return published_weights(self._own_config, self.key)
        return weights_at(self._target, self._own_config)

    @cached_property
    def _own_config(self) -> dict[str, Any]:
        """That of the file in whose place it answers."""
        values: dict[str, Any] = json.loads(config_text(self.config))
        return values

    @property
    def has_tokens(self) -> bool:
        return self.counts.tokens > 0

    @property
    def remakes_keys(self) -> bool:
        return models()[self.key].step_note is not None and self.mode in ("decode", "generate")

    def answering(self, dtype: str | None, attention: str | None) -> PublishedSystem | None:
        """The model whose runs were in this mode, dtype and attention, None of which is the default; or None.

        Raises:
            UsageError: the mode is one of a cache, and its class has none.
        """
        if self.mode in WITH_CACHE and "decode" not in self.counts.modes:
            raise UsageError(f"--mode {self.mode}: {self.name} has no cache; expected --mode forward or train")
        if not set(_COUNTED_IN.get(self.mode, (self.mode,))) <= self.counts.modes.keys():
            return None
        metadata = self._at(self.counts.tokens).metadata
        if dtype in (None, metadata.dtype) and attention in (None, metadata.attention):
            return self
        if self.mode != "forward" or "prefill" not in self.counts.modes:
            return None
        prefill = self.counts.ledger("prefill", self.counts.tokens, self.batch)
        alike = dtype == prefill.metadata.dtype and attention in (None, prefill.metadata.attention)
        if not alike or head_of(prefill) is None:
            return None
        derived = self.with_samples(self.batch)
        derived.of_prefill = True
        return derived

    def with_samples(self, samples: int) -> PublishedSystem:
        other = PublishedSystem(self.key, self.counts, samples, self.mode, eager=self.eager, target=self._target)
        other.of_prefill, other.tf32 = self.of_prefill, self.tf32
        return other

    def account(self, run: Run, how: AccountOptions) -> Ledger:
        """Its stored counts at the N of the run, with their closed form, on the devices of the run."""
        tokens, cached = self._tokens(run), run.cached_prefix
        ledger = self._behind(cached, tokens, "prefill", self.batch) if cached else self._at(tokens)
        if run.logits == "all":
            ledger = self._with_all_logits(ledger, tokens, tokens - cached)
        last = tokens
        if self.mode == "generate":
            pieces = self.counts.modes["prefill"]
            lengths = {length for piece in pieces for length in piece.chunks.values()}
            ledger = generated(ledger, run.new_tokens, lambda size, mode: self.at(size, mode, self.batch), lengths)
            last += run.new_tokens - 1
        elif how.orders is not False and self.has_tokens and not cached:
            ledger = closed_form(tokens, ledger, self._at)
        of_run = run.default_note if ledger.metadata.attention == run.attention else run.dtype_note
        metadata = msgspec.structs.replace(ledger.metadata, default_note=of_run)
        ledger = msgspec.structs.replace(ledger, metadata=metadata)
        if self._asked is not None:
            ledger = ledger.with_note(
                f"{printable(config_label(self._asked), 200)} has the fields of {self.key}, whose stored counts these "
                "are"
            )
        if self.remakes_keys and (note := models()[self.key].step_note):
            ledger = ledger.with_note(filled(note, letters_at(last, self.batch, {}, {}, models()[self.key].step_caps)))
        ledger = ledger.at_positions(last, positions_of_config(self._own_config) if self.has_tokens else None)
        ledger = sized_on_devices(ledger, run, self._sizes, self.weights, limits=how.limits)
        if not cached:
            return ledger
        other = self.with_samples(self.batch)
        other.mode = "prefill"
        whole = run._replace(mode="prefill", new_tokens=1, cached_prefix=0)
        return beside_whole(ledger, other.account(whole, how._replace(orders=False)))

    def _behind(self, cached: int, tokens: int, mode: Mode, batch: int) -> Ledger:
        """As `at`, of prefills with a cached prefix."""
        if mode != "prefill":
            return self.at(tokens, mode, batch)
        check_prefix(cached, tokens)
        return prefill_behind(cached, tokens, lambda size, mode: self.at(size, mode, batch))

    def _with_all_logits(self, ledger: Ledger, tokens: int, new: int) -> Ledger:
        """A prefill with the logits of all of its `new` tokens: its head runs as for so many samples more.

        Raises:
            UsageError: its head is no product alone.
        """
        if (head := head_of(ledger)) is None:
            raise UsageError(f"{self.name}: the stored counts don't say what the logits of several positions cost")
        wide = self.at(tokens, "prefill", self.batch * new)
        metadata = msgspec.structs.replace(ledger.metadata, logits="all")
        return msgspec.structs.replace(ledger, rows=(*ledger.rows[:head], *wide.rows[head:]), metadata=metadata)

    def _sizes(self, ledger: Ledger) -> SizedRun:
        """The run of its ledger at other N, modes and batches."""
        heads = partial(heads_of_all, ledger, self.counts.heads, self.name)
        tokens, cached = ledger.metadata.grid_tokens, ledger.metadata.cached_prefix
        at = partial(self._behind, cached) if cached else self.at
        return SizedRun(tokens, self.batch, at, positions=self.counts.positions, one_run_each=True, heads=heads)

    def at(self, tokens: int, mode: Mode, batch: int) -> Ledger:
        """The ledger of a run; errors are those of its counts."""
        key = (tokens, mode, batch)
        if key not in self._known:
            found = models()[self.key]
            if mode == "forward" and self.of_prefill:
                ledger = self.counts.forward_of_prefill(tokens, batch)
            else:
                ledger = self.counts.ledger(mode, tokens, batch)
            metadata = msgspec.structs.replace(
                ledger.metadata,
                **found.metadata,
                source=self.key,
                versions={"xfcost": __version__, **RECORDED_WITH},
            )
            versions = ", ".join(f"{name} {version}" for name, version in RECORDED_WITH.items())
            if self.tf32 and metadata.dtype == "float32":
                metadata = msgspec.structs.replace(metadata, dtype=TF32)
            run = ledger.module and msgspec.structs.replace(ledger.module, recorded=versions, traced="")
            rows = tuple(
                row if row.component else msgspec.structs.replace(row, stage=found.title, block=found.title)
                for row in ledger.rows
            )
            ledger = msgspec.structs.replace(ledger, metadata=metadata, rows=rows, module=run, agreement=None)
            if found.kernel is not None and mode in WITH_CACHE and not self.eager:
                ledger = with_fused_attention(ledger, self._config).with_note(
                    f"attention is counted as one kernel: {found.kernel}; its class in transformers was run eager, "
                    "and --attention eager counts its matrices"
                )
            self._known[key] = ledger
        return self._known[key]

    def forward(self, tokens: int | None, batch: int) -> Ledger:
        """The ledger of a forward, of its own N where that is None."""
        return self.at(tokens or self.counts.tokens, "forward", batch)

    def _at(self, tokens: int) -> Ledger:
        """In the mode `generate` that of the prefill."""
        return self.at(tokens, "prefill" if self.mode == "generate" else self.mode, self.batch)

    def _tokens(self, run: Run) -> int:
        if run.size is not None:
            return self.pixels(run)
        if run.tokens is not None and not self.has_tokens:
            raise self._at_its_inputs("--N")
        if run.tokens is not None and len(run.tokens) > 1:
            raise UsageError(f"--N {','.join(map(str, run.tokens))}: expected one number, the tokens of the text")
        return run.tokens[0] if run.tokens else self.counts.tokens

    # ── as a system ──

    def ledger(self, run: Run) -> Ledger:
        tokens = self._tokens(run)
        cached = run.cached_prefix if self.mode in PROMPTED else 0
        ledger = self._behind(cached, tokens, "prefill", self.batch) if cached else self._at(tokens)
        ledger = ledger.stored_as(weights_of(run, self.weights)[0], cache_of(run, self.weights))
        return ledger.at_positions(tokens, positions_of_config(self._own_config) if self.has_tokens else None)

    def input_key(self, run: Run) -> Hashable:
        return self._tokens(run)

    def axes(self, run: Run) -> int:
        self._tokens(run)
        return 1

    def pixels(self, run: Run) -> int:
        if self.has_tokens:
            raise UsageError(f"--size: {self.name} reads tokens, which have no height and width; give --N")
        raise self._at_its_inputs("--size")

    def _at_its_inputs(self, option: str) -> UsageError:
        inputs = self._at(self.counts.tokens).metadata.inputs
        return UsageError(
            f"{option}: {self.name} is counted on the inputs of its config, {inputs}; expected no {option}, or others "
            "by --input, on which its class runs"
        )

    def grown(self, ledger: Ledger, run: Run) -> Grown | None:
        """To twice as many tokens, where it has so many."""
        if not self.has_tokens:
            return None
        if self.mode == "generate":
            ledger = self.ledger(run)
        with suppress(XfcostError):
            formats = weights_of(run, self.weights)[0], cache_of(run, self.weights)
            more = self._at(2 * self._tokens(run)).stored_as(*formats)
            return Grown(ledger, more, 2.0)
        return None

    def positions_up_to(self, most: int, run: Run) -> int:
        """Of a model without positions as many."""
        return min(self.counts.positions or most, most) if "decode" in self.counts.modes else 0

    def on_device(self, run: Run, how: AccountOptions) -> OnDevice:
        """Never: what is timed is its class, a module."""
        raise TypeError(f"{self.name}: stored counts do not run")

    def reach(self, run: Run, token: Sequence[int] | None, say: Callable[[str], None]) -> Reach:
        """Never: what is followed is its class, a module."""
        raise TypeError(f"{self.name}: stored counts do not run")


def published_system(
    name: str, batch: int = 1, mode: Mode = "forward", *, eager: bool = False, target: ModuleTarget | None = None
) -> PublishedSystem | None:
    """A model of the list with its counts, which also answer for a `target` with its fields; None where it has none."""
    if (file := counts_of(name)) is None:
        return None
    counts = msgspec.json.decode(file.read_bytes(), type=RecordedCounts)
    return PublishedSystem(name, counts, batch, mode, eager=eager, target=target)
