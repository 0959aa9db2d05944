"""The closed form of a module in N, recovered from its counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import xfcost
from any_models import GEMMA, Attention
from helpers import xf
from xfcost.ledger.errors import UsageError
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.ran import ClosedForm
from xfcost.report.header import at_least, closed_form_texts
from xfcost.torch_models.any_model import ledger as ledgers


class Windows(nn.Module):
    """Attention of d = 8 in windows, the last one padded."""

    def __init__(self, side: int):
        super().__init__()
        self.attention, self.side = Attention(), side

    def forward(self, x: Tensor) -> Tensor:
        padded = F.pad(x, (0, 0, 0, -x.shape[1] % self.side))
        return self.attention(padded.view(-1, self.side, 8))


class Halves(nn.Module):
    """A map of the tokens up to the largest power of two: no polynomial."""

    def __init__(self):
        super().__init__()
        self.map = nn.Linear(8, 8, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.map(x[:, : 2 ** (x.shape[1].bit_length() - 1)])


class Grid(nn.Module):
    """A convolution of stride 2 over a square grid of tokens."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(8, 3, 2, stride=2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        side = round(x.shape[1] ** 0.5)
        return self.conv(x.mT.view(-1, 8, side, side))


def tokens(N: int) -> Tensor:
    return torch.zeros(1, N, 8, device="meta")


def analyzed(model: nn.Module, N: int, inputs: Any = tokens, **options: Any) -> Ledger:
    model = model.to("meta")
    return xfcost.analyze(model, example_inputs=inputs, N=N, trace=False, closed_form=True, **options)


def form(ledger: Ledger) -> ClosedForm:
    assert ledger.module is not None
    assert ledger.module.closed_form is not None
    return ledger.module.closed_form


def test_attention_is_quadratic_and_its_maps_are_linear() -> None:
    ledger = analyzed(Attention(), 784)
    # Q, K, V and the projection 4·d²·N, scores and their mean of the values 2·N²·d; softmax 5 FLOPs an entry
    assert form(ledger).macs == "16·N² + 256·N"
    assert form(ledger).flops == "37·N² + 512·N"
    assert form(ledger).rows == {"qkv.mm": "192·N", "bmm": "8·N²", "bmm_2": "8·N²", "out.mm": "64·N"}
    orders = {row.path: row.order for row in ledger.rows}
    assert orders == {"qkv.mm": "192·N", "bmm": "8·N²", "_softmax": "5·N²", "bmm_2": "8·N²", "out.mm": "64·N"}
    # e of N = 784 to 1,568: log2(16·1568² + 256·1568) - log2(16·784² + 256·784)
    assert form(ledger).growth == {"macs": pytest.approx(1.98550, abs=1e-5), "attention_bytes": 2.0, "factor": 2.0}


@pytest.mark.parametrize(("side", "N"), [(7, 784), (11, 100), pytest.param(49, 784, marks=pytest.mark.rest), (6, 20)])
def test_padded_windows_step_with_their_side(side: int, N: int) -> None:
    # 4·d²·M + 2·w·d·M of M padded tokens; at N = M - rest they are a line of their own
    each, rest = 4 * 64 + 2 * side * 8, -N % side
    more = f" + {each * rest}" if rest else ""
    found = form(analyzed(Windows(side), N))
    assert (found.macs, found.period, found.remainder, found.counted_in) == (f"{each}·N{more}", side, N % side, "N")
    if side == 7:
        assert found.others == {r: f"{each}·N + {each * (7 - r)}" for r in range(1, 7)}


def test_a_stride_is_a_period_of_two() -> None:
    def signal(N: int) -> Tensor:
        return torch.zeros(1, 3, N, device="meta")

    # ⌈N/2⌉ places, 3·4 channels, a kernel of 3
    found = form(analyzed(nn.Conv1d(3, 4, 3, stride=2, padding=1), 10, signal))
    assert (found.macs, found.period, found.remainder, found.others) == ("18·N", 2, 0, {1: "18·N + 18"})


def test_a_square_grid_is_counted_at_squares() -> None:
    # N/4 places, 8·3 channels, a kernel of 2×2; of odd sides the last row and column is left out
    found = form(analyzed(Grid(), 36))
    assert (found.macs, found.period, found.counted_in) == ("24·N", 2, "√N")
    assert all(round(size**0.5) ** 2 == size for size in found.sizes)


def test_where_even_n_run_alone_it_is_counted_at_even_n() -> None:
    class Pairs(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            pairs = x.view(1, -1, 2, 8)
            return pairs @ pairs.mT

    # N/2 pairs, 2·2·8 products each
    found = form(analyzed(Pairs(), 20))
    assert (found.macs, found.period, found.sizes) == ("16·N", 1, (20, 22, 40, 62, 106))


def test_a_recurrence_is_linear() -> None:
    def sequence(N: int) -> Tensor:
        return torch.zeros(N, 1, 4, device="meta")

    # four gates: 4·(4 + 5)·5 a step
    found = form(analyzed(nn.LSTM(4, 5), 10, sequence))
    assert (found.macs, found.period) == ("180·N", 1)


def test_what_is_no_polynomial_is_said() -> None:
    ledger = analyzed(Halves(), 100)
    assert form(ledger).macs is None
    assert "no polynomial in N of a small degree fits" in str(form(ledger).refused)
    assert [row.order for row in ledger.rows] == [None]


def test_a_window_that_is_not_full_is_counted_at_smaller_sizes() -> None:
    class Clipped(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = Attention()

        def forward(self, x: Tensor) -> Tensor:
            return self.attention(x[:, -100:])

    found = form(analyzed(Clipped(), 90))
    assert (found.macs, max(found.sizes)) == ("16·N² + 256·N", 90)
    assert form(analyzed(Clipped(), 120)).macs == str(16 * 100**2 + 256 * 100)


def test_a_limit_of_positions_is_kept() -> None:
    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.map, self.table = nn.Linear(8, 8, bias=False), nn.Parameter(torch.zeros(64, 8))

        def forward(self, x: Tensor) -> Tensor:
            return self.map(x) + self.table[: x.shape[1]]

    found = form(analyzed(Positions(), 64))
    assert (found.macs, max(found.sizes), found.growth["factor"]) == ("64·N", 64, 0.5)


def test_the_text_of_a_config_of_transformers_has_n_tokens(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "config.json").write_text(json.dumps(GEMMA))
    found = form(xfcost.analyze(str(tmp_path / "config.json"), N=40, trace=False, closed_form=True))
    # a token: Q and its projection 2·8·8, K and V 2·8·4, three maps of the MLP 3·8·12, in two layers; logits 8·11.
    # pairs: 2 heads of 4, twice, in two layers
    assert found.macs == f"32·N² + {2 * (2 * 64 + 2 * 32 + 3 * 96) + 88}·N"


CODE = """
import torch
from torch import nn

def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=8, n_head=2, vocab_size=11, n_positions=64))

class Net(nn.Linear):
    def __init__(self):
        super().__init__(4, 4, bias=False)

def example_inputs(N):
    return torch.zeros(1, N, 4)
"""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    (tmp_path / "model.py").write_text(CODE)
    return tmp_path / "model.py"


def test_the_report_prints_it_and_json_has_it(code: Path) -> None:
    told = xf("analyze", f"{code}:Net", "--input", "1xNx4", "--N", "16", "--no-trace", "--verbose").stdout
    assert "in N: 16·N MACs   counted at N = 16, 17, 32, 49, 83" in told
    assert "MACs 1.00" in told
    assert "16·N " in told.partition("growth")[2], "the order of the row"
    found = json.loads(xfcost.analyze(f"{code}:Net", N=16, trace=False, closed_form=True).to_json())
    assert found["module"]["closed_form"]["macs"] == "16·N"
    assert found["operations"][0]["order"] == "16·N"


def test_without_the_letter_there_is_none(code: Path) -> None:
    ledger = xfcost.analyze(f"{code}:Net", inputs=["1x5x4"], trace=False, closed_form=True)
    assert ledger.module is not None
    assert ledger.module.closed_form is None
    off = xfcost.analyze(f"{code}:Net", N=16, trace=False, closed_form=False)
    assert off.module is not None
    assert (off.module.closed_form, off.total("macs")) == (None, 256)


def test_a_slow_run_is_not_repeated_unless_asked(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledgers, "_QUICK", 0.0)
    found = form(xfcost.analyze(f"{code}:Net", N=16, trace=False))
    assert found.macs is None
    assert "--verbose also counts it at other N" in str(found.refused)
    assert form(xfcost.analyze(f"{code}:Net", N=16, trace=False, closed_form=True)).macs == "16·N"


def test_a_first_run_that_loads_code_is_timed_again(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([0.0, 5.0, 5.0, 5.1])
    monkeypatch.setattr(ledgers, "perf_counter", lambda: next(ticks))
    assert form(xfcost.analyze(f"{code}:Net", N=16, trace=False)).macs == "16·N"


def test_what_is_not_counted_makes_it_a_lower_bound() -> None:
    class Unknown(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return torch.linalg.svdvals(super().forward(x))

    ledger = analyzed(Unknown(8, 8, bias=False), 16)
    assert next(str(text) for text in closed_form_texts(ledger, at_least(ledger))).startswith(
        "in N: at least 64·N MACs"
    )


def test_what_is_wrong_with_n_is_said(code: Path) -> None:
    with pytest.raises(UsageError, match="it is a function of N, and N has no number; give --N"):
        xfcost.analyze(f"{code}:Net")
    with pytest.raises(UsageError, match="expected one number"):
        xfcost.analyze(Attention(), example_inputs=tokens, N="4,5")
    with pytest.raises(UsageError, match=r"example_inputs\(4\) raised ZeroDivisionError"):
        xfcost.analyze(Attention(), example_inputs=lambda N: N / 0, N=4)
