"""What no formula knows is named, and a user's own counts."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import xfcost
from any_models import Takes, X
from xfcost.ledger.errors import IncompleteError, UsageError
from xfcost.torch_models.any_model.ledger import module_ledger
from xfcost.torch_models.running.costs import operation_costs
from xfcost.torch_models.running.registry import unregister


@pytest.fixture(scope="module")
def scan():
    """A custom operation that no table knows."""

    @torch.library.custom_op("xfcosttest::scan", mutates_args=())
    def scan(x: Tensor) -> Tensor:
        return x.clone()

    scan.register_fake(torch.empty_like)
    return scan


class TestUncounted:
    """What no formula knows is named, and totals are lower bounds."""

    def test_it_is_named(self, scan):
        from helpers import report_text

        ledger = module_ledger(Takes(scan), (X,))
        assert ledger.module.uncounted == {"xfcosttest::scan": 1}
        assert (ledger.module.complete, ledger.agreement.exact) == (False, False)
        table = report_text(ledger, "table")
        assert "at least 192 MACs   at least 384 FLOPs" in table
        assert "not counted, for no formula knows it: xfcosttest::scan (1×)" in table
        assert "at least 192 macs" in report_text(ledger, "markdown")

    def test_strict_refuses_it(self, scan):
        with pytest.raises(IncompleteError, match="xfcosttest::scan") as refusal:
            xfcost.analyze(Takes(scan), example_inputs=X, strict=True)
        assert refusal.value.exit_code == 1

    def test_a_user_counts_it(self, scan):
        xfcost.register("xfcosttest::scan")(lambda x, out: {"macs": x.numel(), "flops": 3 * out.numel()})
        try:
            ledger = xfcost.analyze(Takes(scan), example_inputs=X, strict=True)
            with pytest.raises(UsageError, match="has a count already"):
                xfcost.register("xfcosttest::scan")(len)
        finally:
            unregister("xfcosttest::scan")
        assert (ledger.total("macs"), ledger.total("flops")) == (24 + 192, 72 + 384)

    def test_macs_alone(self, scan):
        @xfcost.register("xfcosttest::scan")
        def count(x, *, out):
            return x.numel()

        try:
            ledger = module_ledger(Takes(scan), (X,))
        finally:
            unregister("xfcosttest::scan")
        assert (ledger.total("macs"), ledger.total("flops")) == (24 + 192, 48 + 384)

    @pytest.mark.parametrize("wrong", [1.5, -3, {"macs": -1}, {"bytes": 3}, None, True])
    def test_a_count_that_is_none_is_refused(self, scan, wrong):
        xfcost.register("xfcosttest::scan")(lambda x, out: wrong)
        try:
            with pytest.raises(UsageError, match="expected MACs as a whole number"):
                module_ledger(Takes(scan), (X,))
        finally:
            unregister("xfcosttest::scan")

    @pytest.mark.parametrize("wrong", ["scan", "a::b::c", 3])
    def test_a_name_that_is_none_is_refused(self, wrong):
        with pytest.raises(UsageError, match="library::operation"):
            xfcost.register(wrong)

    def test_work_in_numpy_is_named(self):
        ledger = module_ledger(Takes(lambda x: torch.from_numpy(x.numpy() * 2)), (X,))
        assert "Tensor.numpy (work outside torch is not seen)" in ledger.module.uncounted

    def test_a_part_of_a_function_that_counts_as_one(self, monkeypatch):
        def of_known(func, args, kwargs, result):
            return None if "rsqrt" in str(func) else operation_costs(func, args, kwargs, result)

        monkeypatch.setattr("xfcost.torch_models.running.recorder.operation_costs", of_known)
        norm = Takes(lambda x: F.rms_norm(x, (8,)))
        assert module_ledger(norm, (X,), trace=False).module.uncounted == {"aten::rsqrt": 1}

    def test_an_operation_without_a_formula(self):
        ledger = module_ledger(Takes(lambda x: torch.linalg.svd(x).Vh), (torch.eye(8),))
        assert ledger.module.uncounted == {"aten::_linalg_svd": 1}
