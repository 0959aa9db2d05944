"""The closed form of a module in N and in pixels, recovered from its counts."""

import itertools
import shutil
from functools import partial
from math import isqrt
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import xfcost
from any_models import Attention, two_blocks
from modules import Call, Module
from polynomials import read
from xfcost.comparing.fitted import CountedSizes, closed_form
from xfcost.counting.forward import count
from xfcost.counting.system import AccountOptions
from xfcost.ledger.errors import UsageError, XfcostError
from xfcost.ledger.ledger import Ledger
from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.spec.run import Run
from xfcost.systems.module import ModuleSystem
from xfcost.torch_models.any_model import ledger as ledgers
from xfcost.torch_models.any_model.inputs import Lengths
from xfcost.torch_models.any_model.ledger import How, module_ledger
from xfcost.torch_models.build import build
from xfcost.torch_models.timing.devices import threads_set
from xfcost.views.header import at_least, closed_form_texts

FILES = Path(__file__).with_name("golden") / "files" / "nets"

# The closed form of a module in N, recovered from its counts ──────────────────────────────────────────────────────────


class Windows(nn.Module):
    """Attention of d = 8 in windows, the last one padded."""

    def __init__(self, side: int):
        super().__init__()
        self.attention, self.side = Attention(), side

    def forward(self, x: Tensor) -> Tensor:
        padded = F.pad(x, (0, 0, 0, -x.shape[1] % self.side))
        return self.attention(padded.view(-1, self.side, 8))


def largest_power_of_two(self: Any, x: Tensor) -> Tensor:
    """A map of the tokens up to the largest power of two: no polynomial."""
    return self.map(x[:, : 2 ** (x.shape[1].bit_length() - 1)])


def on_squares(self: Any, x: Tensor) -> Tensor:
    """A convolution of stride 2 over a square grid of tokens."""
    side = round(x.shape[1] ** 0.5)
    return self.conv(x.mT.view(-1, 8, side, side))


def grid() -> Module:
    return Module(on_squares, conv=nn.Conv2d(8, 3, 2, stride=2, bias=False))


def tokens(N):
    return torch.zeros(1, N, 8, device="meta")


def analyzed(model, N, inputs=tokens, **options):
    model = model.to("meta")
    return xfcost.analyze(model, example_inputs=inputs, N=N, trace=False, closed_form=True, **options)


def form(ledger):
    assert ledger.closed_form is not None
    return ledger.closed_form


def test_attention_is_quadratic_and_its_maps_are_linear():
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
def test_padded_windows_step_with_their_side(side, N):
    # 4·d²·M + 2·w·d·M of M padded tokens; at N = M - rest they are a line of their own
    each, rest = 4 * 64 + 2 * side * 8, -N % side
    more = f" + {each * rest}" if rest else ""
    found = form(analyzed(Windows(side), N))
    assert (found.macs, found.period, found.remainder, found.counted_in) == (f"{each}·N{more}", side, N % side, "N")
    if side == 7:
        assert found.others == {r: f"{each}·N + {each * (7 - r)}" for r in range(1, 7)}


class Pairs(nn.Module):
    """Products of pairs of tokens: of even numbers of tokens alone."""

    def forward(self, x: Tensor) -> Tensor:
        pairs = x.view(1, -1, 2, 8)
        return pairs @ pairs.mT


@pytest.mark.parametrize(
    ("module", "shape", "N", "expected"),
    [
        # ⌈N/2⌉ places, 3·4 channels, a kernel of 3
        (nn.Conv1d(3, 4, 3, stride=2, padding=1), lambda N: (1, 3, N), 10, ("18·N", 2, {1: "18·N + 18"}, "N")),
        # N/4 places, 8·3 channels, a kernel of 2×2; of odd sides the last row and column is left out
        (grid(), lambda N: (1, N, 8), 36, ("24·N", 2, None, "√N")),
        # N/2 pairs, 2·2·8 products each
        (Pairs(), lambda N: (1, N, 8), 20, ("16·N", 1, {}, "N")),
        # four gates: 4·(4 + 5)·5 a step
        (nn.LSTM(4, 5), lambda N: (N, 1, 4), 10, ("180·N", 1, {}, "N")),
    ],
    ids=["stride", "square grid", "even N", "recurrence"],
)
def test_periods_and_sizes(module, shape, N, expected):
    found = form(analyzed(module, N, lambda N: torch.zeros(*shape(N), device="meta")))
    others = found.others if expected[2] is not None else None
    assert (found.macs, found.period, others, found.counted_in) == expected
    if isinstance(module, Pairs):
        assert found.sizes == (20, 22, 40, 62, 106)
    if found.counted_in == "√N":
        assert all(round(size**0.5) ** 2 == size for size in found.sizes)


def test_what_is_no_polynomial_is_said():
    ledger = analyzed(Module(largest_power_of_two, map=nn.Linear(8, 8, bias=False)), 100)
    assert form(ledger).macs is None
    assert [row.order for row in ledger.rows] == [None]


def test_a_window_that_is_not_full_is_counted_at_smaller_sizes():
    clipped = Module(lambda self, x: self.attention(x[:, -100:]), attention=Attention())
    found = form(analyzed(clipped, 90))
    assert (found.macs, max(found.sizes)) == ("16·N² + 256·N", 90)
    assert form(analyzed(clipped, 120)).macs == str(16 * 100**2 + 256 * 100)


def test_a_limit_of_positions_is_kept():
    parts = {"map": nn.Linear(8, 8, bias=False), "table": nn.Parameter(torch.zeros(64, 8))}
    found = form(analyzed(Module(lambda self, x: self.map(x) + self.table[: x.shape[1]], **parts), 64))
    assert (found.macs, max(found.sizes), found.growth["factor"]) == ("64·N", 64, 0.5)


@pytest.fixture
def code(tmp_path):
    return Path(shutil.copy(FILES / "formula.py", tmp_path / "model.py"))


def test_without_the_letter_there_is_none(code):
    ledger = xfcost.analyze(f"{code}:Net", inputs=["1x5x4"], trace=False, closed_form=True)
    assert ledger.closed_form is None
    off = xfcost.analyze(f"{code}:Net", N=16, trace=False, closed_form=False)
    assert (off.closed_form, off.total("macs")) == (None, 256)


def test_a_slow_run_is_not_repeated_unless_asked(code, monkeypatch):
    monkeypatch.setattr(ledgers, "_QUICK", 0)
    found = form(xfcost.analyze(f"{code}:Net", N=16, trace=False))
    assert found.macs is None
    assert form(xfcost.analyze(f"{code}:Net", N=16, trace=False, closed_form=True)).macs == "16·N"


class Reads(nn.Module):
    """A map that reads a number, so that it needs real ones, and notes on which tensors and threads it runs."""

    ran: ClassVar[list[tuple[str, int]]] = []

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.map = nn.Linear(8, width)
        self.ran.clear()

    def forward(self, x: Tensor) -> Tensor:
        kind = "meta" if x.is_meta else "real" if type(x) is Tensor else "fake"
        self.ran.append((kind, torch.get_num_threads()))
        return self.map(x) + int(x.sum())


def test_runs_at_other_sizes_begin_with_the_tensors_of_the_first():
    module = Reads()
    inputs = lambda N: torch.zeros(1, N, 8)  # noqa: E731 - one line
    ledger = xfcost.analyze(module, example_inputs=inputs, N=16, trace=False, mixing=False)
    assert form(ledger).macs == "64·N"
    kinds = [kind for kind, _ in module.ran]
    assert kinds[:4] == ["meta", "meta", "fake", "real"]
    assert set(kinds[4:]) == {"real"}


@pytest.mark.parametrize(("width", "threads"), [(8, 1), (2**19, 2)])
def test_small_real_tensors_have_one_thread(width, threads):
    module = Reads(width)
    with threads_set(2):
        xfcost.analyze(module, example_inputs=torch.zeros(1, 8), mixing=False)
        assert torch.get_num_threads() == 2
    assert {number for kind, number in module.ran if kind == "real"} == {threads}


def test_what_is_not_counted_makes_it_a_lower_bound():
    class Unknown(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return torch.linalg.svdvals(super().forward(x))

    ledger = analyzed(Unknown(8, 8, bias=False), 16)
    assert next(text.head for text in closed_form_texts(ledger, at_least(ledger))) == "MACs ≥ 64·N"


def test_an_error_of_the_inputs_is_named():
    with pytest.raises(UsageError, match=r"example_inputs\(4\) raised ZeroDivisionError"):
        xfcost.analyze(Attention(), example_inputs=lambda N: N / 0, N=4)


# The closed form of a module in the pixels P = H·W of its images ──────────────────────────────────────────────────────


def image(H, W):
    return torch.zeros(1, 3, H, W, device="meta")


def patches() -> Module:
    """Patches of 4×4, attention without projections, a linear map."""

    def attended(self: Any, x: Tensor) -> Tensor:
        x = self.stem(x).flatten(2).transpose(1, 2)
        return self.out((x @ x.transpose(1, 2)).softmax(-1) @ x)

    return Module(attended, stem=nn.Conv2d(3, 8, 4, stride=4), out=nn.Linear(8, 5))


def form_of(make, side, inputs=image):
    with torch.device("meta"):
        module = make()
    found = xfcost.analyze(module, example_inputs=inputs, size=side, trace=False, closed_form=True)
    return found, found.closed_form


def test_a_convolution_costs_as_much_for_every_pixel():
    # 3·3·3 weights of each of 8 outputs: 216 MACs a pixel
    ledger, form = form_of(lambda: nn.Conv2d(3, 8, 3, padding=1), 32)
    assert (form.letter, form.macs, form.period) == ("P", "216·P", 1)
    assert ledger.total("macs") == 216 * 32 * 32
    assert form.growth["macs"] == pytest.approx(1)


def test_borders_are_a_part_of_it():
    # no padding: (√P - 2)² positions of 216 MACs: 216·P - 864·√P + 864
    _, form = form_of(lambda: nn.Conv2d(3, 8, 3), 32)
    assert form.macs == "216·P - 864·√P + 864"


def test_patches_step_and_their_attention_is_quadratic():
    # N = P/16 patches: 3·16·8 MACs each, 5·8 of the map, 2·8·N² of the two products: P²/16 + 26.5·P
    ledger, form = form_of(patches, 32)
    tokens = 64
    assert ledger.total("macs") == tokens * (3 * 16 * 8 + 5 * 8) + 2 * 8 * tokens**2
    assert form.macs == "1/16·P² + 53/2·P"
    assert (form.counted_in, form.period, form.remainder) == ("√P", 4, 0)
    # counted at another size: 28×28
    other, _ = form_of(patches, 28)
    pixels = 28 * 28
    assert other.total("macs") == pixels**2 / 16 + 53 * pixels / 2


def test_a_period_of_whole_patches_is_one_of_pixels():
    def windows(self: Any, x: Tensor) -> Tensor:
        """Windows of 2×2 patches of 4×4 pixels, padded up: whole patches alone."""
        return self.stem(F.pad(x.unflatten(-1, (-1, 4)).flatten(-2), (0, -x.shape[-1] % 8, 0, -x.shape[-2] % 8)))

    _, form = form_of(lambda: Module(windows, stem=nn.Conv2d(3, 8, 4, stride=4, bias=False)), 32)
    # 3·8 MACs a pixel; a side of 8·k + 4 is padded to 8·k + 8
    assert (form.macs, form.counted_in, form.period, form.remainder) == ("24·P", "√P", 8, 0)
    assert form.others == {4: "24·P + 192·√P + 384"}


# The closed forms of presets, recovered from their modules alone, are those of their formulas ─────────────────────────


@pytest.mark.rest
@pytest.mark.parametrize("preset", ["vit-ti16", "gpt2", "t5-small", "mamba-130m"])
def test_presets_have_the_closed_forms_of_their_formulas(preset):
    loaded = load(preset)

    def ledger_at(N):
        live = build(place(loaded, Run(tokens=(N,))))
        return module_ledger(live.model, tuple(live.inputs), trace=False)

    def formulas_at(N):
        try:
            return count(place(loaded, Run(tokens=(N,))), orders=False).total("macs")
        except XfcostError:
            return None

    own = place(loaded, Run()).grid.tokens
    found = closed_form(own, ledger_at(own), ledger_at).closed_form
    assert found.macs is not None
    points = range(own if found.counted_in == "N" else isqrt(own), 1 << 20, found.period)
    sizes = [point if found.counted_in == "N" else point * point for point in points[:100:11]]
    known = {N: formulas_at(N) for N in [*sizes, own // 4, own // 2, own - found.period] if min(found.sizes) <= N}
    expected = {N: macs for N, macs in known.items() if macs is not None}
    assert len(expected) > 2
    assert {N: read(found.macs, N) for N in expected} == expected


# The ledgers of a module along N: counted at some sizes, evaluated from polynomials between them ──────────────────────


def costs_at(ledger):
    return {name: ledger.total(name) or 0 for name in ("params", "macs", "flops", "moved")} | ledger.attention_memory()


@pytest.mark.parametrize("attention", ["eager", "fused"])
def test_evaluated_ledgers_are_those_that_would_be_counted(tmp_path, attention):
    path = tmp_path / "text.yaml"
    path.write_text(two_blocks("Text", {"kind": "full", "heads": 2}))
    loaded = load(str(path))

    def ledger_at(N):
        live = build(place(loaded, Run(tokens=(N,), attention=attention)))
        return module_ledger(live.model, tuple(live.inputs), trace=False)

    along = CountedSizes(16, ledger_at)
    assert along.evaluated
    for N in (5, 77, 12345):
        assert costs_at(along.ledger(N)) == costs_at(ledger_at(N))
        assert [row.core for row in along.ledger(N).rows] == [row.core for row in ledger_at(N).rows]


def along(module, shape, own):
    """Its ledgers from `own` on, and the sizes at which it was counted."""
    sizes = []

    def ledger_at(N):
        sizes.append(N)
        return module_ledger(module, (torch.empty(shape(N), device="meta"),), trace=False)

    return CountedSizes(own, ledger_at), sizes


def test_where_no_polynomial_fits_every_size_is_counted():
    found, sizes = along(Windows(6), lambda N: (1, N, 8), 12)
    assert not found.evaluated
    # 4·d² + 2·6·d of every padded token
    assert [found.ledger(N).total("macs") for N in (12, 13, 18, 1000)] == [
        352 * tokens for tokens in (12, 18, 18, 1002)
    ]
    assert 1000 in sizes


def twice_as_wide(x: torch.Tensor) -> torch.Tensor:
    """A product that is twice as wide from 300 tokens on."""
    return x @ torch.empty(4, 4 if x.shape[1] < 300 else 8, device=x.device)


def test_polynomials_end_where_a_count_does_not_meet_them():
    found, sizes = along(Call(twice_as_wide), lambda N: (1, N, 4), 40)
    assert found.evaluated
    before = len(sizes)
    assert found.ledger(150).total("macs") == 150 * 16
    assert len(sizes) == before
    assert found.ledger(5000).total("macs") == 5000 * 32
    assert len(sizes) == before + 1


def test_the_sizes_at_which_a_module_runs():
    even, squares = (along(one, lambda N: (1, N, 8), 16)[0] for one in (Pairs(), grid()))
    assert (even.axis.grain, even.axis.squares) == (2, False)
    assert even.ledger(100).total("macs") == 16 * 100
    assert (squares.axis.grain, squares.axis.squares) == (1, True)
    assert squares.ledger(10000).total("macs") == 24 * 10000
    for found in (even, squares):
        with pytest.raises(XfcostError):
            found.ledger(99)


class NeverFits:
    """A module without a polynomial."""

    title = "Padded"
    weights = positions = config = letters = None

    def ledger(self, lengths: Lengths, how: How) -> Ledger:
        ledger = module_ledger(Windows(6), (torch.empty(1, lengths.tokens or 1, 8, device="meta"),), trace=False)
        metadata = msgspec.structs.replace(ledger.metadata, grid_tokens=lengths.tokens)
        return msgspec.structs.replace(ledger, metadata=metadata)


def test_a_slow_module_without_a_polynomial_is_counted_on_demand_alone():
    work = itertools.count(step=3000)
    slow, patient = (ModuleSystem(NeverFits(), patient=one, work_done=partial(next, work)) for one in (False, True))
    for one in (slow, patient):
        one.account(Run(tokens=(12,)), AccountOptions(orders=False))
    assert "3,000 operations" in next(slow.remarks())
    with pytest.raises(XfcostError):
        slow.costs(Run(tokens=(13,)))
    assert patient.costs(Run(tokens=(13,)))[1]["macs"] == 352 * 18
