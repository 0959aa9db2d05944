"""Published training runs like a plan, and the shares of the lower bound of a step that they reach."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from xfcost.ledger.ledger import Ledger
from xfcost.ledger.units import BYTES_PER_ELEMENT, count
from xfcost.parts.serving.evidence import (
    BITS,
    GENERATION,
    Collection,
    Evidence,
    Feature,
    RunFeatures,
    read_runs,
    unlike_devices,
)

if TYPE_CHECKING:
    from xfcost.parts.training.result import TrainingPlan

_NODE: Final = 8
_SHORT: Final = 4096


def _recomputation(run: RunFeatures) -> str:
    return f"{'no' if run.recomputation == 'none' else run.recomputation or 'unstated'} recomputation"


NODES: Final = Feature("devices", lambda run: f"{'up to' if run.devices <= _NODE else 'more than'} {_NODE} devices")
RECOMPUTATION: Final = Feature("recomputation", _recomputation)
LENGTH: Final = Feature("length", lambda run: f"{'up to' if run.tokens <= _SHORT else 'more than'} {_SHORT:,} tokens")

LEVELS: Final[tuple[tuple[Feature, ...], ...]] = (
    (BITS, LENGTH, GENERATION, RECOMPUTATION, NODES),
    (BITS, LENGTH, GENERATION, RECOMPUTATION),
    (BITS, LENGTH, GENERATION),
    (BITS, LENGTH),
    (BITS, GENERATION),
    (BITS,),
)
"""The features that must be equal in training, the most first; where lengths have one framework alone, all lengths."""


@cache
def published_training() -> Collection:
    """Measured runs of training; tools/evidence.py writes them from tests/data/training-runs/."""
    return Collection(read_runs(Path(__file__).with_name("published_runs.csv")), LEVELS)


def training_evidence(ledger: Ledger, plan: TrainingPlan) -> Evidence:
    """Of one step of a plan, whether it fits or not."""
    bound, mesh = plan.bound_step_seconds, plan.mesh
    runs, params = published_training(), ledger.total("params") or 0
    smallest = min((run.params for run in runs.runs), default=0)
    why_none = _unlike_all(ledger) or unlike_devices(mesh.on)
    if why_none is None and params < smallest:
        why_none = f"with {count(params)} parameters: models of published runs have {count(smallest)} or more"
    if why_none is not None:
        return Evidence(runs=(), why_none=why_none, bound_seconds=bound, least_seconds=bound)
    asked = RunFeatures(
        phase="train",
        devices=mesh.on.count,
        generation=mesh.on.device.generation or "",
        bits=8 * BYTES_PER_ELEMENT[ledger.metadata.dtype],
        batch=plan.step_sequences,
        tokens=plan.step_tokens // plan.step_sequences,
        recomputation=mesh.checkpoint,
        params=params,
    )
    return runs.evidence(asked, bound, bound)


def _unlike_all(ledger: Ledger) -> str | None:
    """What no published run has: they are of transformers that predict tokens, without experts."""
    if ledger.training is not None and ledger.training.step.mostly_frozen(ledger.total("params") or 0):
        return "with frozen weights"
    if ledger.training is not None and ledger.training.step.tokens is None:
        return "of a module whose number of tokens is not known"
    if ledger.training is None or not ledger.training.step.loss_logits_bytes:
        return f"of a {'module that returns no logits' if ledger.module else 'model without a vocabulary to predict'}"
    if not ledger.metadata.attends:
        return "without attention"
    return "with experts" if any(row.idle_params for row in ledger.rows) else None
