"""FNet's token mixing: a Fourier transform instead of attention."""

from __future__ import annotations

from math import pi
from typing import Any

from xfcost.formulas.component import Mixer, Place
from xfcost.program.functions import difference, product
from xfcost.program.leaves import Weight, Worked
from xfcost.program.operations import Functions, Operations
from xfcost.program.symbolic import Tensor


class FourierMixing(Mixer, frozen=True, kw_only=True, tag="fourier_mixing"):
    """The real part of a 2-D discrete Fourier transform over tokens and width (Lee-Thorp et al. 2022, §3.2).

    N tokens, width d. It is computed as products with fixed cosine and sine matrices C and S, the form that the paper
    uses for short sequences: Re(F_N x F_d) = C_N x C_d - S_N x S_d.

        cos_width, sin_width      N·d² MACs each
        cos_tokens, sin_tokens    N²·d MACs each

    It has no parameters and no heads. Its weights over the tokens are fixed, and are computed for any N: where the
    input needs no gradient, no row does.
    """

    short_name = "Fourier mixing"

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        mixed = []
        for part, waves, title in (("cos", cosines, "Cosines"), ("sin", sines, "Sines")):
            of_width, of_tokens = (
                Weight((size, size), Worked(waves, {"size": size}, "float64"), "matrix", learns=False)
                for size in (place.dim, place.grid.total)
            )
            y = t.leaf(f"{part}_width", product, x, weights=[of_width], title=f"{title} over the width")
            mixing: dict[str, Any] = {"mixing": "global", "reads": "N", "reads_tokens": place.grid.total}
            y = t.leaf(f"{part}_tokens", over_tokens, y, weights=[of_tokens], title=f"{title} over tokens", **mixing)
            mixed.append(y)
        return t.leaf("real_part", difference, *mixed, title="Real part")


def over_tokens(t: Functions, x: Tensor, matrix: Tensor) -> Tensor:
    """W x: (B, N, D), (N, N) -> (B, N, D)."""
    return matrix @ x


def cosines(row: Any, column: Any, *, size: int) -> Any:
    """cos(2π·i·j/s) of s = `size`; i·j modulo s, so that large products stay exact."""
    return (row * column % size * (2 * pi / size)).cos()


def sines(row: Any, column: Any, *, size: int) -> Any:
    """sin(2π·i·j/s)."""
    return (row * column % size * (2 * pi / size)).sin()
