"""Feature maps φ of kernel attention. K head width, F features."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xfcost.mechanisms.kernel import EluPlusOne, RandomFeatures

# The ε that the public implementation of FAVOR+ adds to each feature, by function.
EPSILON = {"softmax": 1e-4, "relu": 1e-3}


class EluFeatures(nn.Module):
    """elu(x) + 1."""

    def forward(self, x: Tensor) -> Tensor:
        return F.elu(x) + 1


class ReluFeatures(nn.Module):
    """max(ωx, 0) + ε: (…, F), (…, K) -> (…, F)."""

    def forward(self, projected: Tensor, x: Tensor) -> Tensor:
        return projected.relu() + EPSILON["relu"]


class SoftmaxFeatures(nn.Module):
    """(exp(ωx - |x|²/2 - most) + ε)/√F: (…, F), (…, K) -> (…, F).

    `most` is the largest ωx over the axes `over`, or 0 without axes.
    """

    def __init__(self, count: int, over: tuple[int, ...] | None) -> None:
        super().__init__()
        self.ratio, self.over = count**-0.5, over

    def forward(self, projected: Tensor, x: Tensor) -> Tensor:
        lowered = (x * x).sum(-1, keepdim=True) * 0.5
        if self.over is not None:
            lowered = lowered + projected.amax(self.over, keepdim=True).detach()
        return ((projected - lowered).exp() + EPSILON["softmax"]) * self.ratio


def feature_map(features: EluPlusOne | RandomFeatures, over: tuple[int, ...] | None) -> nn.Module:
    """φ. Its exponent is lowered by the maximum over the axes `over`."""
    if isinstance(features, EluPlusOne):
        return EluFeatures()
    return ReluFeatures() if features.function == "relu" else SoftmaxFeatures(features.count, over)


class Project(nn.Module):
    """ωᵢ·x for all i: (…, K) -> (…, F). The ωᵢ are a buffer."""

    features_FK: Tensor

    def __init__(self, features_FK: Tensor) -> None:
        super().__init__()
        self.register_buffer("features_FK", features_FK)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.features_FK.T


def orthogonal_features(count: int, width: int) -> Tensor:
    """(F, K): rows orthogonal in blocks of K, with Gaussian lengths (Choromanski et al. 2021, §2.4).

    Drawn from torch's generator in float64; on `meta` an empty tensor. The signs that QR chooses depend on the matrix,
    which would bias the directions, and exp(ω·x) with them. A positive diagonal of R makes them uniform (Mezzadri
    2007).
    """
    device = torch.empty(0).device
    if device.type == "meta":
        return torch.empty(count, width)
    with torch.device("cpu"):
        blocks = torch.randn(-(-count // width), width, width, dtype=torch.float64)
        q, r = torch.linalg.qr(blocks)
        directions_FK = (q * r.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)).mT.flatten(0, 1)[:count]
        lengths_F1 = torch.randn(count, width, dtype=torch.float64).norm(dim=-1, keepdim=True)
        features_FK = directions_FK * lengths_F1
    return features_FK.to(device, torch.get_default_dtype())
