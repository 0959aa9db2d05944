"""The forward in bfloat16 with fused attention, of the recorded prefill, is that of a run of the class."""

import msgspec
import pytest

from xfcost.api.systems import module_run, named_module
from xfcost.spec.models import config_of
from xfcost.spec.targets import ModuleTarget
from xfcost.systems.published import published_system
from xfcost.torch_models.any_model.inputs import Lengths
from xfcost.torch_models.any_model.ledger import How

COUNTS = (
    "path", "times", "params", "macs", "flops", "comparisons", "weights_read", "matrix", "core", "pairs", "fused",
    "ran",
)  # fmt: skip


@pytest.mark.rest
@pytest.mark.parametrize(
    ("name", "attention"),
    [("qwen3-0.6b", "fused"), ("gemma-3-1b", "fused"), ("gpt-oss-20b", "eager"), ("qwen3-30b-a3b", "fused")],
)
def test_forward_of_the_prefill_is_that_of_the_class(name, attention):
    run = module_run({"mode": "forward", "dtype": "bfloat16", "attention": attention}, "config")
    module = named_module(ModuleTarget("config", str(config_of(name)), "", name), (), (), 1, run)
    counted = module.with_samples(3).ledger(Lengths(1500), How(trace=False, closed_form=False, mode="forward"))
    stored = published_system(name, 3)
    found = stored.answering(run.dtype, run.attention)
    ledger = found.at(1500, "forward", 3)
    # what a residual add adds costs nothing: stored rows have it by a rule, of the layers of their names
    rows = [msgspec.structs.replace(row, ran=row.ran and msgspec.structs.replace(row.ran, adds="", adds_to=None))
            for row in (*ledger.rows, *counted.rows)]  # fmt: skip
    both = [[getattr(row, field) for field in COUNTS] for row in rows]
    ours, theirs = both[: len(ledger.rows)], both[len(ledger.rows) :]
    assert ours == theirs
    assert ledger.module.eager_bytes == counted.module.eager_bytes
    assert ledger.module.fused_bytes == counted.module.fused_bytes
    assert (ledger.cache, ledger.metadata.logits, ledger.metadata.batch) == (None, None, counted.metadata.batch)
    assert ledger.metadata.inputs == counted.metadata.inputs
