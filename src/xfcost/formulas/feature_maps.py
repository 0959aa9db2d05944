"""Feature maps φ of kernel attention."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec

from xfcost.formulas.letters import Letter
from xfcost.ledger.number import Number


class Features(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """A feature map φ, applied to the queries and keys of every head."""

    epsilon: ClassVar[float] = 0.0
    """Added to the normaliser φ(q)·Σφ(k)."""

    def width(self, head_dim: Number) -> Number:
        """Features m."""
        raise NotImplementedError


class EluPlusOne(Features, frozen=True, kw_only=True, tag="elu_plus_one"):
    """φ(x) = elu(x) + 1: m = d_k features, no scaling (Katharopoulos et al. 2020, equation 7)."""

    epsilon: ClassVar[float] = 1e-6  # elu(x) + 1 rounds to 0 for x below -17, and the public implementation adds it too

    def width(self, head_dim: Number) -> Number:
        return head_dim


class RandomFeatures(Features, frozen=True, kw_only=True, tag="random"):
    """FAVOR+: m orthogonal random features of x/d_k^¼ (Choromanski et al. 2021, §2.3 and §2.4).

    softmax: φ(x) = exp(ωᵢ·x - |x|²/2)/√m, whose products estimate the softmax kernel; relu: max(ωᵢ·x, 0). The m×d_k
    matrix of the ωᵢ is drawn and not learned: a buffer, no parameters.
    """

    count: Annotated[int, msgspec.Meta(ge=1, le=2**20), Letter("k")] = 256
    """Number of random features m."""
    function: Literal["softmax", "relu"] = "softmax"
    """Kernel that the features estimate: `softmax`, or `relu`."""

    def width(self, head_dim: Number) -> Number:
        return self.count
