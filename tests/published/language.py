"""Language models and efficient attention."""

from __future__ import annotations

from published.judged import Judged, Without

PUBLISHED: Judged = {
    ("gpt2", "params", 117e6): "the paper's table; no count of the released model gives it",
    ("gpt2-medium", "params", 345e6): "the paper's table; no count of the released model gives it",
    ("gpt2-large", "params", 762e6): "the paper's table; no count of the released model gives it",
    ("gpt2-xl", "params", 1542e6): "the paper's table; no count of the released model gives it",
    ("transformer-base", "params", 65e6): "wants a vocabulary of about 40k; the text says about 37k",
    ("transformer-big", "params", 213e6): "wants a vocabulary of about 36k; the text says about 37k",
    ("routing-lm", "params", 38_621_216): Without(6 * 768),
    ("routing-lm", "macs", 60_481_863_680): 1.0,
    ("etc-base", "params", 166e6): "relative position labels, about 0.6M, are left out",
    ("etc-large", "params", 558e6): "relative position labels are left out",
    ("sinkhorn-lm", "params", 39_479_840): Without((16 + 128) * 512 + 6 * 512),
    ("sinkhorn-lm", "macs", 63_049_564_160): 1.0,
}
