"""FNet's token mixing: a Fourier transform instead of attention."""

from __future__ import annotations

from collections.abc import Iterator

from xfcost.formulas.component import Mixer, Operation, Place
from xfcost.formulas.rows import elementwise, matmul, on_raw_input, with_gradient_operands
from xfcost.formulas.tensors import copied, reading
from xfcost.ledger.tensors import INPUT


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

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d = place.grid.total, place.dim
        tensors = copied((n, d), (n, d))  # a product with a fixed matrix saves nothing of x
        mixing = {"mixing": "global", "reads": "N", "reads_tokens": n}
        for part, title in (("cos", "Cosines"), ("sin", "Sines")):
            of_width = matmul(f"{part}_width", f"{title} over the width", n * d * d, tensors=tensors)
            yield reading(on_raw_input(with_gradient_operands(of_width, 1)), INPUT)
            of_tokens = matmul(f"{part}_tokens", f"{title} over tokens", n * n * d, tensors=tensors, **mixing)
            yield on_raw_input(with_gradient_operands(of_tokens, 1))
        yield elementwise("real_part", "Real part", "add", n * d, of=("cos_tokens", "sin_tokens"))
