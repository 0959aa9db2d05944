"""Models of one stream of tokens: embedding, blocks at one width, a head or a last norm; rotary positions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final

import msgspec

from xfcost.formulas.component import Rows
from xfcost.importing.family import Draft, Family
from xfcost.ledger.errors import ComponentError
from xfcost.spec.reader import shown_value

Theta = Annotated[float, msgspec.Meta(ge=1, le=1e12)]
# Keys of rope_scaling and rope_parameters; all but θ and the type are constants of the angle tables.
_TYPES: Final = ("default", "linear", "dynamic", "yarn", "longrope", "su", "llama3")
_CONSTANTS: Final = frozenset({
    "factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow",
    "attention_factor", "mscale", "mscale_all_dim", "short_factor", "long_factor", "truncate", "finetuned",
})  # fmt: skip


def theta_and_remarks(
    theta: float | None, fields: dict[str, dict[str, Any] | None], default: float
) -> tuple[float, list[str]]:
    """θ, and remarks; `fields` are rope_scaling and rope_parameters.

    Raises:
        ComponentError: a key is unknown, or rotary positions apply to a part of the columns.
    """
    remarks = []
    for name, rope in fields.items():
        if rope is None:
            continue
        _check(name, rope)
        own = rope.get("rope_theta")
        if own is not None and theta not in (None, own):
            raise ComponentError(name, f"its rope_theta {own} and the field rope_theta {theta} disagree; leave one out")
        theta = own if own is not None else theta
        form = rope.get("rope_type", rope.get("type", "default"))
        if form != "default":
            remarks.append(f"{name}: rotary positions of type {form} change constants only, and no cost.")
    return default if theta is None else theta, remarks


def _check(name: str, rope: dict[str, Any]) -> None:
    for key, value in rope.items():
        if key in ("rope_type", "type"):
            if value not in _TYPES:
                raise ComponentError(name, f"its {key} is {shown_value(value)}; expected one of {', '.join(_TYPES)}")
        elif key == "rope_theta":
            if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= 1e12:  # noqa: PLR2004
                raise ComponentError(name, f"its rope_theta is {shown_value(value)}; expected a number from 1 to 1e12")
        elif key == "partial_rotary_factor":
            check_partial_rotary(name, value, f"its {key}: ")
        elif key not in _CONSTANTS:
            raise ComponentError(
                name, f"its key {shown_value(key)} is not known; {shown_value(value)} could change a cost"
            )


def check_partial_rotary(name: str, value: Any, key: str = "") -> None:
    """Raise ComponentError if rotary positions apply to a part of the columns; `key` is the key inside the field."""
    if value not in (None, 1):
        raise ComponentError(name, f"{key}expected 1, got {shown_value(value)}: rotary positions apply to all columns")


# N where a config has no length.
DEFAULT_LENGTH: Final = 512
# The table that token embedding and head share.
TABLE: Final = "embedding"

# (times, block) of repeated blocks, in order.
Repeats = Sequence[tuple[int, list[Any]]]


class TextFamily(Family, frozen=True, kw_only=True):
    """A family whose input is one stream of tokens."""

    vocab_size: Rows = 32000
    tie_word_embeddings: bool = True

    def text(  # noqa: PLR0913 - the parts of a spec
        self,
        length: int,
        width: int,
        repeats: Repeats,
        head: dict[str, Any] | None,
        remarks: Iterable[str] = (),
        *,
        norm: str | None = None,
        embed: Iterable[dict[str, Any]] = (),
        residual: dict[str, Any] | None = None,
    ) -> Draft:
        """The spec of a model: a token embedding, then `embed`; the blocks; `head`, or without one the last `norm`."""
        keys: dict[str, Any] = {
            "input": {"kind": "tokens", "vocabulary": self.vocab_size, "length": length},
            **({"residual": residual} if residual else {}),
            "embed": [token(shared=head is not None and "share" in head), *embed],
            "stages": [stage(width, repeats, final_norm=None if head else norm)],
            **({"head": head} if head else {}),
        }
        return Draft(keys, list(remarks))

    def decoder_head(self, architecture: str, norm: str) -> dict[str, Any] | None:
        """The head of a decoder for the task in the name of `architecture`; None without a task."""
        task = "CausalLM" if architecture.endswith("LMHeadModel") else architecture.partition("For")[2]
        return {
            "CausalLM": language_model_head(norm, shared=self.tie_word_embeddings),
            "SequenceClassification": token_classifier(self.num_labels, norm=norm, bias=False),
            "TokenClassification": token_classifier(self.num_labels, norm=norm),
            "QuestionAnswering": token_classifier(2, norm=norm),
        }.get(task)


def stage(dim: int, repeats: Repeats, *, final_norm: str | None = None) -> dict[str, Any]:
    """Repeated blocks, then a norm, if any."""
    present = [(times, block) for times, block in repeats if times]
    norm = [[{"kind": "norm", "norm": final_norm}]] if final_norm else []
    if len(present) == 1:
        depth, block = present[0]
        if not norm:
            return {"dim": dim, "depth": depth, "block": block}
        return {"dim": dim, "blocks": [{"repeat": depth, "blocks": [block]}, *norm]}
    groups: list[Any] = [block if times == 1 else {"repeat": times, "blocks": [block]} for times, block in present]
    return {"dim": dim, "blocks": groups + norm}


def token(*, shared: bool) -> dict[str, Any]:
    """A token embedding; `shared` ties its table to the head."""
    return {"kind": "token"} | ({"share": TABLE} if shared else {})


def language_model_head(norm: str, *, shared: bool, **options: Any) -> dict[str, Any]:
    """A norm and a projection to logits over the vocabulary."""
    return {"kind": "language_model", "norm": norm} | ({"share": TABLE} if shared else {}) | options


def token_classifier(classes: int, *, norm: str = "none", bias: bool = True) -> dict[str, Any]:
    """A classifier of every token."""
    head = {"kind": "classifier", "pool": "none", "norm": norm, "classes": classes}
    return head if bias else head | {"bias": False}


def answer_span_head(num_labels: int) -> dict[str, Any]:
    """Two logits per token: whether an answer starts or ends there.

    Raises:
        ComponentError: `num_labels` is not 2.
    """
    if num_labels != 2:  # noqa: PLR2004 - start and end
        raise ComponentError("num_labels", f"expected 2 (where an answer starts and ends), got {num_labels}")
    return token_classifier(2)
