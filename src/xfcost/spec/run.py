"""The checked run options that change what is counted, and the dtype and attention of a run that gives none."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final, NamedTuple

from xfcost.ledger.cache_blocks import CacheBlocks
from xfcost.ledger.device import DeviceGroup
from xfcost.ledger.errors import UsageError
from xfcost.ledger.execution import WITH_CACHE, Execution, Logits, Mode
from xfcost.ledger.lora import Lora
from xfcost.ledger.offload import Offload
from xfcost.ledger.parallelism import Parallelism
from xfcost.ledger.quantization import UNQUANTISED, WEIGHT_FORMATS, WeightFormat
from xfcost.ledger.stored import StoredWeights
from xfcost.spec.grammar import Spec, TokenInput

if TYPE_CHECKING:
    from xfcost.parts.training.result import RunPlan


class Run(NamedTuple):
    """Run options: what a run depends on besides the spec."""

    tokens: tuple[int, ...] | None = None
    """N of the first stage (one number per stream, or one for all); the spec's own input where it is None."""
    size: tuple[int, int] | None = None
    """Height and width of the image, or of a video's frames, instead of `tokens`."""
    batch: int = 1
    dtype: str | None = None
    """None is the default of the systems that run (`spec.default_options`); so is that of `attention`."""
    attention: Execution | None = None
    scale: tuple[int, int] = (1, 1)
    """A fraction that multiplies the sides of every input (or of its folded grid)."""
    memory_level: int | None = None
    """Bytes of on-chip memory for which the main-memory traffic of attention is computed."""
    weight_format: str | None = None
    """The quantised format of weights that is given (`ledger.quantization`), or `none`; None: as in the checkpoint."""
    cache_format: str | None = None
    """The same of the cache."""
    cache_blocks: CacheBlocks | None = None
    """The blocks in which memory for the cache is reserved; None: as much as it has."""
    mode: Mode = "forward"
    new_tokens: int = 1
    """m, in the mode `generate`."""
    cached_prefix: int = 0
    """First tokens of a prompt (`prefill`, `generate`) whose cache is there already; 0 of a whole prompt."""
    logits: Logits | None = None
    """The positions of a prompt (`prefill`, `generate`) whose logits are computed; None is the last."""
    lora: Lora | None = None
    """The adapters beside frozen weights; None where all weights are trained."""
    plan: RunPlan | None = None
    """The training run, in the mode `train`."""
    on: DeviceGroup | None = None
    """The devices whose least time and memory are asked for; in the mode `train` the plan has them too."""
    choices: tuple[DeviceGroup, ...] = ()
    """Devices that are set side by side, instead of `on`."""
    tokens_per_user: float | None = None
    """Tokens per second that the largest batch of decode steps gives each sample on them."""
    offload: Offload | None = None
    """The blocks that stay on the host of the devices."""
    parallelism: Parallelism | None = None
    """How they share the model, where that is given."""
    compared: bool = False
    """Is it run by several systems? Those without experts then ignore a degree of expert parallelism."""
    mfu: float | None = None
    """The shares of `on`'s peak and bandwidth that an estimate takes; None where none is asked for."""
    mbu: float | None = None
    extra_tokens: bool = True
    """False leaves out special tokens ([CLS]) and the layers that change them alone, to compare scores on the grid."""
    default_note: str | None = None
    """Why dtype and attention are what they are, where the caller gave none."""
    dtype_note: str | None = None
    """The same of the dtype only, for a system without attention."""


def check_prefix(cached: int, tokens: int) -> None:
    """Check that a prompt of so many `tokens` is longer than its cached prefix.

    Raises:
        UsageError: nothing is left to compute; the last token's logits give the next one.
    """
    if cached >= tokens:
        raise UsageError(
            f"--cached-prefix {cached}: expected fewer tokens than the prompt has, N = {tokens:,}; its last one is "
            "always computed"
        )


def weights_of(run: Run, published: WeightFormat | str | None) -> tuple[WeightFormat | None, tuple[str, ...]]:
    """The format of the weights in `run` of a checkpoint in its own, and warnings of what is not counted of that.

    A deployed run has the checkpoint's, unless one is given. Where nothing is known of a format, a text says what.
    """
    if run.weight_format is not None:
        return WEIGHT_FORMATS.get(run.weight_format), ()
    if published is None or (run.mode == "train" and run.lora is None) or not is_deployed(run):
        return None, ()
    if isinstance(published, WeightFormat):
        return published, tuple(f"quantization_config: {one}" for one in published.remarks)
    return None, (f"quantization_config: {published}; weights are counted in the dtype, --weights-dtype sets a format",)


def tensors_of(published: WeightFormat | str | None) -> StoredWeights | None:
    """The tensors of a checkpoint, where they are known."""
    return published.tensors if isinstance(published, WeightFormat) else None


def cache_of(run: Run, published: WeightFormat | str | None) -> str | None:
    """The format of the cache in `run`: the one given, or that of the checkpoint; None: it is in the dtype."""
    if run.cache_format is not None:
        return None if run.cache_format == UNQUANTISED else run.cache_format
    return published.cache if isinstance(published, WeightFormat) and run.mode in WITH_CACHE else None


# Modes in which language models run in bfloat16 with fused attention, as they do on devices in every mode. A prefill
# writes the cache that decode steps read, so it has their dtype.
LANGUAGE_MODEL_MODES: Final[tuple[Mode, ...]] = (*WITH_CACHE, "train")


def is_deployed(run: Run) -> bool:
    """Do language models run in bfloat16 with fused attention in it, where it gives neither?"""
    return run.mode in LANGUAGE_MODEL_MODES or run.on is not None or bool(run.choices)


class Chosen(NamedTuple):
    """The dtype and the attention of a run, and why they are so, where the caller did not give both."""

    dtype: str
    attention: Execution
    default_note: str | None = None
    dtype_note: str | None = None
    """Why the dtype is so, for a system without attention."""


_USUAL: Final = Chosen("float32", "eager")


def is_language_model(spec: Spec) -> bool:
    """Are its inputs all tokens (`input: {kind: tokens}`, of both streams), and does its head score their vocabulary?

    Such heads are `language_model` and `masked_language_model`.
    """
    inputs = [stream.input or spec.input for stream in (spec.encoder, spec.decoder) if stream] or [spec.input]
    tokens = all(isinstance(one, TokenInput) for one in inputs)
    return tokens and spec.head is not None and spec.head.scores_vocabulary


def chosen_for(systems: Collection[Spec | bool], run: Run) -> Chosen:
    """The dtype and the attention of `run`, the same for all `systems`; of one without a spec: is it a language model?

    Where the run gives none, they are those of language models if all are language models, and else the usual ones.
    What has a cache writes text.
    """
    cached = run.mode in WITH_CACHE
    found = [cached or (one if isinstance(one, bool) else is_language_model(one)) for one in systems]
    by_mode = is_deployed(run) and any(found)
    deployed = _deployed(run)
    default = deployed if by_mode and all(found) else _USUAL
    missing = [name for name in ("dtype", "attention") if getattr(run, name) is None]
    note, dtype_note = run.default_note, run.dtype_note
    if by_mode and missing:
        where = f"in {run.mode}" if run.mode in LANGUAGE_MODEL_MODES else "on devices"
        of_each = missing, [name for name in missing if name == "dtype"]
        note, dtype_note = (
            _note(names, deployed, where, all_of_them=all(found)) if names else None for names in of_each
        )
    return Chosen(run.dtype or default.dtype, run.attention or default.attention, note, dtype_note)


def with_defaults(run: Run, systems: Collection[Spec | bool]) -> Run:
    """`run` as chosen for all `systems`."""
    return run._replace(**chosen_for(systems, run)._asdict())


def _deployed(run: Run) -> Chosen:
    """As language models run: in float16 where no device has a peak in bfloat16."""
    devices = [group.device for group in (*run.choices, *([] if run.on is None else [run.on]))]
    older = bool(devices) and all("bfloat16" not in one.peaks and "float16" in one.peaks for one in devices)
    return Chosen("float16" if older else "bfloat16", "fused")


def _note(missing: Collection[str], deployed: Chosen, where: str, *, all_of_them: bool) -> str:
    own, usual = _words(deployed, missing), _words(_USUAL, missing)
    if not all_of_them:
        return (
            f"{usual}: the default of language models {where} is {own}, but not all of these systems are language "
            "models"
        )
    options = " ".join(f"--{name} {getattr(_USUAL, name)}" for name in missing)
    return f"{own}: the default of language models {where}; or give {options}"


def _words(chosen: Chosen, names: Collection[str]) -> str:
    """`bfloat16 and fused attention`."""
    return " and ".join(getattr(chosen, name) + (" attention" if name == "attention" else "") for name in names)
