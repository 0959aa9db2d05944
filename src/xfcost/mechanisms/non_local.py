"""Non-local blocks: attention over a feature map between 1×1 convolutions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec

from xfcost.formulas.component import (
    ComponentError,
    Grid,
    Mixer,
    NormKind,
    Number,
    Place,
    Side,
    Width,
    check_divides,
)
from xfcost.formulas.conv_kernel import ConvKernel, kernel_of, unread_note
from xfcost.formulas.grid_axes import numbers
from xfcost.formulas.letters import Letter
from xfcost.formulas.mixers import letter_power
from xfcost.program import convolution
from xfcost.program.attention import attend
from xfcost.program.functions import multiplied
from xfcost.program.leaves import Weight
from xfcost.program.operations import Operations
from xfcost.program.symbolic import Tensor


class PooledKeyMixer(Mixer, frozen=True, kw_only=True):
    """A mixer whose keys and values can be max-pooled, in disjoint pools; a rest at the far border is left out."""

    if TYPE_CHECKING:
        pool: int | list[int]

    def key_pool(self, grid: Grid) -> ConvKernel | None:
        """The pool of keys and values; None where nothing is pooled."""
        kernel = kernel_of(grid, self.pool, self.pool, None)
        return kernel if any(side != 1 for side in kernel.sides) else None

    def check(self, place: Place) -> None:
        try:
            kernel = self.key_pool(place.grid)
            if kernel is not None:
                kernel.check(place.grid)
        except ComponentError as error:
            raise ComponentError("pool", error.message) from None

    def key_count(self, grid: Grid) -> Number:
        """M, the number of keys."""
        kernel = self.key_pool(grid)
        return grid.total if kernel is None else prod(kernel.out(grid.sides))

    def keys_in_letters(self, grid: Grid) -> str:
        """Keys read per query."""
        kernel = self.key_pool(grid)
        return "N" if kernel is None else f"N/{letter_power('W', sum(side != 1 for side in kernel.sides))}"

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        kernel = self.key_pool(grid)
        if kernel is None:
            return range(grid.total)
        pooled_sides = (out * side for out, side in zip(kernel.out(grid.sides), kernel.sides, strict=True))
        return numbers(map(range, pooled_sides), grid.sides)

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        kernel = self.key_pool(grid)
        return grid.total * self.key_count(grid) * (1 if kernel is None else prod(kernel.sides))

    def pooled(self, t: Operations, name: str, x: Tensor, place: Place) -> Tensor:
        """x max-pooled, or as it is: local, content-dependent mixing."""
        kernel, sides = self.key_pool(place.grid), place.grid.sides
        if kernel is None:
            return x
        facts: dict[str, Any] = {"mixing": "local", "content_dependent": True, "reads_tokens": prod(kernel.sides)}
        facts["reads"] = letter_power("W", sum(side != 1 for side in kernel.sides))
        grid = convolution.on_grid(x, sides)
        return convolution.in_rows(convolution.pool(t, name, grid, "max", kernel, kernel.out(sides), **facts))

    def attended(
        self, t: Operations, q: Tensor, k: Tensor, v: Tensor, place: Place, *, scaled: bool = True
    ) -> Tensor:  # fmt: skip
        """Attention with one head: (B, N, K), (B, M, K), (B, M, V) -> (B, N, V)."""
        # a pooled key stands for several tokens: entries are no pairs of tokens then
        pairs = self.pairs(place.grid) if self.key_pool(place.grid) is None else None
        mixing = {"mixing": "global", "reads": self.keys_in_letters(place.grid)}
        q, k, v = (part.unsqueeze(1) for part in (q, k, v))
        return attend(t, q, k, v, fused=place.fused, pairs=pairs, mixing=mixing, scaled=scaled).squeeze(1)

    def notes(self, place: Place) -> Iterator[str]:
        kernel = self.key_pool(place.grid)
        if kernel is not None:
            yield from unread_note(kernel, place.grid)


class NonLocal(PooledKeyMixer, frozen=True, kw_only=True, tag="non_local"):
    """The non-local operation, embedded Gaussian (Wang et al. 2018, §3.2 and §3.3): z = W_z·softmax(θᵀφ/√d')·g + x.

    N positions on a grid of one, two or three axes (space, or space and time), width d, inner width d'. Keys and values
    may be made of the map max-pooled (§3.3, "subsampling trick"): M positions then, else M = N.

        pool           M·d·k comparisons, with pools of k positions
        theta          N·d·d' MACs, (d + β)·d' parameters
        phi, g         M·d·d' MACs, (d + β)·d' parameters each
        scores         N·M·d' MACs, N·M entries kept
        weighted_sum   N·M·d' MACs
        w_z            N·d'·d MACs, (d' + β)·d parameters
        norm           N·d elements, 2d parameters, where there is a norm (batch norm in the public code)

    All four maps are 1×1 convolutions, β is 1 where they have biases, else 0. The sum with x is the block's residual:
    `residual: {norm: none}`.
    """

    short_name = "Non-local block"

    width: Width | None = None
    """Inner width d'; d/2 by default."""
    pool: Annotated[Side | Annotated[list[Side], msgspec.Meta(min_length=2, max_length=3)], Letter("W", least=2)] = 1
    """Positions along every axis (or along each) that are max-pooled to one key and value; 1 pools nothing."""
    projection_bias: bool = True
    """Whether the four 1×1 convolutions have biases."""
    norm: NormKind = "batch_norm"
    """Norm after W_z."""

    def inner(self, width: Number) -> Number:
        """d'."""
        return width // 2 if self.width is None else self.width

    def check(self, place: Place) -> None:
        if self.width is None and place.dim % 2:
            raise ComponentError(
                "width", f"is half the width where it isn't given, and {place.dim} is odd; give a width"
            )
        super().check(place)

    titles: ClassVar[Mapping[str, str]] = {
        "theta": "θ, queries",
        "pool": "Max-pool for keys and values",
        "phi": "φ, keys",
        "g": "g, values",
        "w_z": "Output W_z",
    }

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        inner, bias = self.inner(place.dim), self.projection_bias
        q = t.linear("theta", x, inner, bias=bias)
        read = self.pooled(t, "pool", x, place)
        k, v = t.linear("phi", read, inner, bias=bias), t.linear("g", read, inner, bias=bias)
        y = t.linear("w_z", self.attended(t, q, k, v, place), place.dim, bias=bias)
        return t.norm("norm", y, self.norm)


class Sagan(PooledKeyMixer, frozen=True, kw_only=True, tag="sagan"):
    """Self-attention of SAGAN (Zhang et al. 2019, §3): y = γ·v(softmax(f(x)ᵀg(x))·h(x)) + x, γ one learned number.

    N positions on a grid, width d, keys d/r wide (r = 8), values d/s wide. Scores are not scaled. The paper has two
    versions, and the public code is a third:

    - arXiv v1: h: d -> d, no output map (value_reduction: 1, output_projection: false)
    - arXiv v2: h: d -> d/8, then v: d/8 -> d (the defaults)
    - public code: h: d -> d/2, keys and values max-pooled (value_reduction: 2, pool: 2)

        f, g           N·d·(d/r) MACs, d·(d/r) parameters each, no biases
        h              N·d·(d/s) MACs, d·(d/s) parameters, no bias
        scores         N·M·d/r MACs, N·M entries kept, M = N or the pooled positions
        weighted_sum   N·M·d/s MACs
        v              N·(d/s)·d MACs, (d/s)·d parameters, with an `output_projection`
        gamma          1 parameter, which starts at 0 in the paper (here at 1, so that the layer does something)

    Keys and values are pooled after their maps, unlike the non-local block's. The sum with x is the block's residual:
    `residual: {norm: none}`.
    """

    short_name = "SAGAN self-attention"

    reduction: Annotated[Width, Letter(None)] = 8
    """Reduction r: queries and keys are d/r wide."""
    value_reduction: Annotated[Width, Letter(None)] = 8
    """Reduction s of the values, which are d/s wide."""
    output_projection: bool = True
    """Whether the output map v brings d/s back to d."""
    pool: Annotated[Side | Annotated[list[Side], msgspec.Meta(min_length=2, max_length=3)], Letter("W", least=2)] = 1
    """Positions along every axis (or along each) that are max-pooled to one key and value; 1 pools nothing."""

    def check(self, place: Place) -> None:
        for field in ("reduction", "value_reduction"):
            check_divides(field, getattr(self, field), place.dim, f"the width {place.dim}")
        if not self.output_projection and self.value_reduction != 1:
            raise ComponentError(
                "output_projection",
                f"without it values must be as wide as the output ({place.dim}), and they are "
                f"{place.dim // self.value_reduction} wide; write value_reduction: 1",
            )
        super().check(place)

    titles: ClassVar[Mapping[str, str]] = {
        "f": "f, queries",
        "g": "g, keys",
        "h": "h, values",
        "pool_keys": "Max-pool keys",
        "pool_values": "Max-pool values",
        "v": "v, output",
        "gamma": "Scale by γ",
    }

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        d, keys = place.dim, place.dim // self.reduction
        q, k = t.linear("f", x, keys, bias=False), t.linear("g", x, keys, bias=False)
        v = t.linear("h", x, d // self.value_reduction, bias=False)
        k, v = self.pooled(t, "pool_keys", k, place), self.pooled(t, "pool_values", v, place)
        y = self.attended(t, q, k, v, place, scaled=False)
        y = t.linear("v", y, d, bias=False) if self.output_projection else y
        return t.leaf("gamma", multiplied, y, weights=(Weight((1,), "ones"),))
