"""The mixing kinds of any module's rows, found without a spec."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import xfcost
from followed import run_followed
from helpers import error_of, xf
from modules import Module
from ownership_cases import D, attention, window_mask
from xfcost.ledger.errors import UsageError
from xfcost.ledger.ledger import Ledger
from xfcost.torch_models.any_model import mixing
from xfcost.torch_models.mixing.follower import Budget
from xfcost.torch_models.timing.devices import threads_set


def linear() -> nn.Linear:
    return nn.Linear(D, D, bias=False)


TOKENS = torch.randn(4, 40, D)


def analyzed(module: nn.Module, inputs: Any) -> Ledger:
    torch.manual_seed(0)
    return xfcost.analyze(module, example_inputs=inputs, mixing=True, trace=False)


def kinds(ledger: Ledger) -> list[tuple[str, str, int | None, bool]]:
    return [
        (row.path, row.mixing, row.reads_tokens, row.content_dependent)
        for row in ledger.rows
        if row.mixing != "per-token"
    ]


def dense_synthesizer(self: Any, x: Tensor) -> Tensor:
    """Tay et al. 2021, §3.1.1: the weights of a token are computed from that token alone."""
    return self.weights(x).softmax(-1) @ x


def random_synthesizer(self: Any, x: Tensor) -> Tensor:
    """§3.1.4: the weights are a product of two learned matrices, whatever the input."""
    return (self.left.weight @ self.right.weight.T).softmax(-1) @ x


def latents(self: Any, x: Tensor) -> Tensor:
    """Jaegle et al. 2021: learned queries, and keys and values out of the tokens."""
    return (self.queries(self.left.weight) @ x.mT).softmax(-1) @ x


def depend_on_content(weighted: Callable[..., Any], self: Any, x: Tensor) -> bool:
    """Is a sum of values more than a fixed linear map of them? Then f(x) + f(y) is not f(x + y)."""
    with torch.no_grad():
        both = weighted(self, x) + weighted(self, x.roll(1, 1))
        return not torch.allclose(both, weighted(self, x + x.roll(1, 1)), atol=1e-3)


@pytest.mark.parametrize(
    ("weighted", "expected"), [(dense_synthesizer, True), (random_synthesizer, False), (latents, True)]
)
def test_weights_depend_on_content_unless_all_of_them_is_learned(weighted: Callable[..., Any], expected: bool) -> None:
    maps = {"weights": nn.Linear(D, 40), "queries": linear(), "left": nn.Embedding(40, D), "right": nn.Embedding(40, D)}
    module = Module(weighted, **maps)
    last = [row for row in analyzed(module, TOKENS).rows if row.macs][-1]
    assert (last.mixing, last.reads_tokens, last.content_dependent) == ("global", 40, expected)
    assert depend_on_content(weighted, module, TOKENS) == expected


@pytest.mark.parametrize("place", [4, 5])
def test_weights_depend_on_content_where_they_do_for_the_given_input(place: int) -> None:
    # other inputs, which have their largest token anywhere, are looked at too
    def chosen(self: Any, x: Tensor) -> Tensor:
        """Dense weights where the largest token stands at an even (odd) place like the given one's, else learned."""
        n = x.shape[1]
        both = torch.stack([self.left.weight[:n, :n].expand(len(x), -1, -1), self.weights(x)[..., :n]])
        dense = ((x.sum(-1).argmax(1) - place) % 2 == 0).long()
        return both[dense, torch.arange(len(x))].softmax(-1) @ x

    x = torch.randn(1, 40, D)
    x[:, place] = 9.0
    module = Module(chosen, weights=nn.Linear(D, 40), left=nn.Embedding(40, 40))
    last = [row for row in analyzed(module, x).rows if row.macs][-1]
    assert (last.mixing, last.content_dependent) == ("global", True)


def test_totals_by_kind_add_up_and_costs_are_those_without_kinds() -> None:
    module = Module(lambda self, x: attention(self.q, x), q=linear())
    found, plain = analyzed(module, TOKENS), xfcost.analyze(module, example_inputs=TOKENS, trace=False, mixing=False)
    macs = {kind: sum(row.macs for row in rows) for kind, rows in found.by("mixing").items()}
    assert macs == {"per-token": 4 * 40 * D * D, "local": 0, "global": 2 * 4 * 40 * 40 * D}
    assert found.totals() == plain.totals()
    assert {row.mixing for row in plain.rows} == {"unknown"}


def test_masks_and_positions_among_the_inputs_are_no_tokens() -> None:
    def summed(self: Any, x: Tensor, position_ids: Tensor, attention_mask: Tensor) -> Tensor:
        x = x + self.places(position_ids)
        return attention(self.q, x, (1.0 - attention_mask)[:, None] * -1e9)

    module = Module(summed, q=linear(), places=nn.Embedding(40, D))
    module.forward = lambda x, position_ids, attention_mask: summed(module, x, position_ids, attention_mask)
    x, places, mask = torch.randn(1, 40, D), torch.arange(40)[None], torch.ones(1, 40)
    found = {row.path: row.mixing for row in analyzed(module, (x, places, mask)).rows}
    assert found["add"] == found["places.embedding"] == "per-token"
    assert found["bmm"] == found["bmm_2"] == "global"


UNKNOWN: dict[str, tuple[nn.Module, Any, str]] = {
    "no rule": (Module(lambda self, x: torch.pdist(x[0])), TOKENS, "it has no rule"),
    "no tokens": (nn.Embedding(9, D), torch.zeros(7, dtype=torch.int64), "no input has an axis of tokens"),
    "one size": (
        Module(lambda self, x: attention(self.fixed, x, window_mask(40)), fixed=linear()),
        TOKENS,
        "whether it grows with N is not known from one size",
    ),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_not_found_is_unknown_with_its_reason(name: str) -> None:
    module, inputs, reason = UNKNOWN[name]
    ledger = analyzed(module, inputs)
    missing = [row for row in ledger.rows if row.mixing == "unknown"]
    assert missing
    assert {row.ran.kind_missing for row in missing if row.ran} == {reason}
    assert any(reason in note for note in ledger.metadata.notes)
    assert len(ledger.by("mixing")["unknown"]) == len(missing)


def test_a_window_wider_than_the_sizes_is_not_taken_for_global() -> None:
    module = Module(lambda self, x: attention(self.q, x), q=linear())
    module.sliding_window = 4096
    assert {row.mixing for row in analyzed(module, TOKENS).rows} == {"per-token", "unknown"}


@pytest.mark.parametrize(
    ("side", "window", "kinds"),
    [
        (16, 3, {"per-token", "global"}),  # 4×4 tokens, and windows of 3×3, which do not hold them all
        (16, 4, {"per-token", "unknown"}),
        (16, 7, {"per-token", "unknown"}),
        (64, 15, {"per-token", "global"}),  # 16×16 tokens
        (64, 16, {"per-token", "unknown"}),
    ],
)
def test_a_window_of_an_image_holds_its_square_of_tokens(side: int, window: int, kinds: set[str]) -> None:
    def of_patches(self: Any, image: Tensor) -> Tensor:
        return attention(self.q, self.patches(image).flatten(2).mT)

    module = Module(of_patches, patches=nn.Conv2d(3, D, 4, 4), q=linear())
    module.window_size, module.window_stride = window, 1
    assert {row.mixing for row in analyzed(module, torch.randn(1, 3, side, side)).rows} == kinds


def test_a_declared_window_is_filled_by_the_sizes() -> None:
    def banded(self: Any, x: Tensor) -> Tensor:
        far = (torch.arange(x.shape[1])[:, None] - torch.arange(x.shape[1])).abs()
        return attention(self.q, x, torch.where(far <= self.window, 0.0, float("-inf")))

    module = Module(banded, q=linear())
    module.window = 15
    found = kinds(analyzed(module, torch.randn(1, 200, D)))
    assert [(kind, reads) for _, kind, reads, _ in found] == [("local", 31)] * 4


CODE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.q = nn.Linear(width, width, bias=False)

    def forward(self, x):
        return (self.q(x) @ x.mT).softmax(-1) @ x + torch.pdist(x[0]).mean()

example_inputs = torch.zeros(1, 40, 8)
"""


@pytest.fixture
def target(tmp_path: Path) -> str:
    (tmp_path / "net.py").write_text(CODE)
    return f"{tmp_path / 'net.py'}:Net"


def test_the_command_builds_the_module_again_on_the_cpu(target: str) -> None:
    found = json.loads(xf("analyze", target, "--mixing", "--no-trace", "--format", "json").stdout)
    assert found["by_mixing"]["global"]["macs"] == 2 * 40 * 40 * 8
    assert found["by_mixing"]["per-token"]["macs"] == 40 * 8 * 8
    assert found["module"]["tensors"] == "meta"
    assert "letters" not in xf("analyze", target, "--no-trace").stdout  # what is read is a number


def test_unknown_rows_are_a_line_of_the_totals(target: str) -> None:
    report = xf("analyze", target, "--mixing", "--no-trace", "--by", "mixing").stdout
    assert "unknown" in report
    text = "3 of 7 rows, with 0.0 % of the MACs, have no known mixing kind: it has no rule (1 row); its input is"
    assert text in " ".join(report.split())


def test_a_module_with_too_many_parameters_is_refused_before_it_is_built(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mixing, "MOST_BYTES", 2**28)
    with pytest.raises(UsageError, match=r"up to 0 GiB, and the parameters of .* take 0\.3 GiB.*--build depth=2"):
        xfcost.analyze(target, build=["width=9000"], inputs=["1x4x9000"], mixing=True, trace=False)


def with_reasons(**how: Any) -> set[tuple[str, str | None]]:
    """The kinds of a module's rows, each with why it is unknown."""
    ledger = xfcost.analyze(linear(), example_inputs=TOKENS, trace=False, **how)
    return {(row.mixing, row.ran.kind_missing if row.ran else None) for row in ledger.rows}


def test_kinds_are_found_without_being_asked_for() -> None:
    assert with_reasons() == {("per-token", None)}
    assert with_reasons(mixing=False) == with_reasons(mixing_limit=0) == {("unknown", None)}


def of_block(self: Any, x: Tensor) -> Tensor:
    return x + attention(self.q, F.layer_norm(x, x.shape[-1:]), self.mask[: x.shape[1], : x.shape[1]])


class Stack(nn.Module):
    """Blocks with the same operations; each block's mask is its own."""

    def __init__(self, *masks: Tensor) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Module(of_block, q=linear()) for _ in masks)
        for block, mask in zip(self.blocks, masks, strict=True):
            block.register_buffer("mask", mask)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            try:
                x = block(x)
            except Exception:  # noqa: BLE001, S112 - a limit of the search is none of its own errors
                continue
        return x


WINDOW, EVERYTHING = window_mask(40), torch.zeros(40, 40)


def test_blocks_that_differ_only_in_the_values_of_their_masks_have_their_own_kinds() -> None:
    found = analyzed(Stack(WINDOW, EVERYTHING, WINDOW, EVERYTHING), TOKENS)
    scores = [(row.path, row.mixing, row.reads_tokens) for row in found.rows if row.operation == "bmm"]
    assert scores == [("blocks.0-2:2.bmm", "local", 3), ("blocks.1-3:2.bmm", "global", 40)]


def test_equal_blocks_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    spent: list[int] = []
    monkeypatch.setattr(Budget, "spend", lambda self, operations, elements=0: spent.append(elements))
    analyzed(Stack(WINDOW), TOKENS)
    of_one, spent[:] = sum(spent), []
    analyzed(Stack(*[WINDOW] * 9), TOKENS)
    assert of_one < sum(spent) < 2 * of_one


def test_channels_of_an_interpolation_are_followed_once() -> None:
    """Each of 16 pixels is changed three times, and 64 outputs of one channel are looked at."""
    double = Module(lambda _, x: F.interpolate(x, scale_factor=2, mode="bilinear"))
    one, many = (run_followed(double, (torch.randn(1, channels, 4, 4),), {}) for channels in (1, 64))
    assert one.budget.spent == many.budget.spent == 10_000 + 3 * 16 * 64
    (found,), (of_many,) = one.noted, many.noted
    assert found.finding is not None
    assert of_many.finding is not None
    assert found.finding.computed is not None
    assert found.finding.computed.tolist() == of_many.finding.computed.tolist()  # type: ignore[union-attr]


def test_channels_with_tokens_of_their_own_are_followed_each() -> None:
    """Two channels are eight tokens: in each 4 outputs of 8 read one, at the ends and beside them, the others two."""
    double = Module(lambda _, x: F.interpolate(x, scale_factor=2, mode="linear"))
    follower = run_followed(double, (torch.randn(1, 2, 4),), {}, {0: (1, 2)})
    assert follower.budget.spent == 10_000 + 3 * 8 * 16


def test_kinds_are_found_with_one_thread() -> None:
    threads: list[int] = []
    asks = Module(lambda _, x: (threads.append(torch.get_num_threads()), x * 2)[1])
    with threads_set(2):
        analyzed(asks, TOKENS)
        assert torch.get_num_threads() == 2
    assert threads[0] == 2
    assert threads[-1] == 1


def test_large_tensors_are_work_that_is_known_before_they_are_made() -> None:
    """It runs at N = 3,000 alone, where two operations make N·N numbers four times: 72 million."""
    devices: list[str] = []

    def wide(self: Any, x: Tensor) -> Tensor:
        devices.append(x.device.type)
        y = x + self.table.weight
        return torch.stack([(y * y.mT * 2).sum() for _ in range(4)])

    module, tokens = Module(wide, table=nn.Embedding(3_000, 1)), torch.randn(1, 3_000, 1)
    found = xfcost.analyze(module, example_inputs=tokens, trace=False, mixing_limit="8M")
    assert any("follows more than 8,000,000 tensor elements" in note for note in found.metadata.notes)
    assert set(devices) == {"meta"}


def test_a_limit_of_work_ends_a_long_run_on_meta() -> None:
    steps = []

    def loop(self: Any, x: Tensor) -> Tensor:
        for step in range(200):
            steps.append(step)
            x = x + 1
        return x

    ledger = xfcost.analyze(Module(loop), example_inputs=TOKENS, trace=False, mixing_limit="500k")
    assert any("more than 500,000 tensor elements" in note for note in ledger.metadata.notes)
    assert len(steps) == 200 + 51  # an operation counts as 10,000 elements


def test_a_limit_of_work_leaves_out_all_kinds_and_splits_no_blocks() -> None:
    module = Stack(*[EVERYTHING] * 4)
    whole, limited = (
        xfcost.analyze(module, example_inputs=TOKENS, trace=False, mixing_limit=limit) for limit in ("400M", "800k")
    )
    assert [row.path for row in limited.rows] == [row.path for row in whole.rows]
    assert all(row.path.startswith("blocks.*.") and row.times == 4 for row in limited.rows)
    assert {row.mixing for row in limited.rows} == {"unknown"}
    (note,) = (note for note in limited.metadata.notes if "--mixing-limit" in note)
    assert note.startswith("7 of 7 rows, with 100.0 % of the MACs, have no known mixing kind: finding them follows")


def test_a_module_that_cannot_be_looked_at_is_counted_without_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    found = xfcost.analyze(linear().to("meta"), example_inputs=TOKENS, trace=False)
    assert {row.mixing for row in found.rows} == {"unknown"}
    assert any("build it on the CPU" in note for note in found.metadata.notes)
    monkeypatch.setattr(mixing, "_USUAL_BYTES", 2**7)
    ((kind, reason),) = with_reasons()
    assert (kind, str(reason)[:20]) == ("unknown", "its parameters take ")
    with pytest.raises(UsageError, match=r"--mixing-limit -1: expected a number of tensor elements from 0"):
        with_reasons(mixing_limit=-1)


def test_a_module_without_numbers_is_refused() -> None:
    with pytest.raises(UsageError, match=r"on `meta`.*build it on the CPU"):
        analyzed(linear().to("meta"), TOKENS)


def test_mixing_that_is_not_known_is_not_called_zero(tmp_path: Path) -> None:
    code = CODE.partition("        return")[0] + "        return self.q(torch.pdist(x[0])[:8])\n"
    (tmp_path / "net.py").write_text(code)
    said = error_of("plot", "net.py:Net", "--input", "1xNx8", "--N", "8:32", "--metric", "mixing", cwd=tmp_path)
    assert "--metric mixing: is not known for Net" in said


# Runs that look at numbers, and kernels that torch also decomposes ───────────────────────────────────────────────────


def asks(self, x):
    mask = torch.ones(x.shape[:2], device=x.device)
    return self.attend(x, x, x) if mask.all() else x


def test_kinds_are_found_of_a_module_that_reads_the_numbers_of_what_it_makes():
    """Its runs of other sizes on `meta` keep those numbers, as the first does."""
    attention = Module(lambda self, q, k, v: torch.softmax(q @ k.mT, -1) @ v)
    ledger = xfcost.analyze(Module(asks, attend=attention), torch.randn(1, 64, 8))
    assert ledger.ran.tensors == "meta"
    assert {row.mixing for row in ledger.rows if row.macs} == {"global"}


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_the_nearest_pixel_is_one_kernel_that_copies(mode, axes):
    up = Module(lambda self, x: torch.nn.functional.interpolate(x, scale_factor=2, mode=mode))
    ledger = xfcost.analyze(up, torch.randn(1, 2, *[4] * axes), trace=True)
    (row,) = ledger.rows
    assert (row.flops, row.moved, row.mixing) == (0, 2 * 8**axes, "per-token")
    assert ledger.agreement.exact
