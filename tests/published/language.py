"""Language models and efficient attention."""

from __future__ import annotations

from published.judged import MILLION, TENTH_OF_A_BILLION, Judged, Without

PUBLISHED: Judged = {
    ("gpt2", "params", 117e6): "the paper's table; no count of the released model gives it",
    ("gpt2", "params", 124e6): MILLION,
    ("gpt2-medium", "params", 345e6): "the paper's table; no count of the released model gives it",
    ("gpt2-medium", "params", 355e6): MILLION,
    ("gpt2-large", "params", 762e6): "the paper's table; no count of the released model gives it",
    ("gpt2-large", "params", 774e6): MILLION,
    ("gpt2-xl", "params", 1542e6): "the paper's table; no count of the released model gives it",
    ("gpt2-xl", "params", 1558e6): MILLION,
    ("gpt3", "params", 174.6e9): TENTH_OF_A_BILLION,
    ("transformer-xl-enwik8", "params", 41e6): MILLION,
    ("transformer-xl-enwik8-24l", "params", 277e6): MILLION,
    ("transformer-xl-wt103", "params", 151e6): MILLION,
    ("reformer-enwik8", "params", 149182722): 1,
    ("sparse-transformer-enwik8", "params", 95e6): MILLION,
    ("sparse-transformer-cifar10", "params", 59e6): MILLION,
    ("sparse-transformer-imagenet64", "params", 152e6): MILLION,
    ("transformer-base", "params", 65e6): "wants a vocabulary of about 40k; the text says about 37k",
    ("transformer-big", "params", 213e6): "wants a vocabulary of about 36k; the text says about 37k",
    ("routing-lm", "params", 38_621_216): Without(6 * 768),
    ("routing-lm", "macs", 60_481_863_680): 1.0,
    ("etc-base", "params", 166e6): "relative position labels, about 0.6M, are left out",
    ("etc-base-shared", "params", 109e6): MILLION,
    ("etc-large", "params", 558e6): "relative position labels are left out",
    ("sinkhorn-lm", "params", 39_479_840): Without((16 + 128) * 512 + 6 * 512),
    ("sinkhorn-lm", "macs", 63_049_564_160): 1.0,
}
