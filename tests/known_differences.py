"""Rows whose kind, found without the spec, is known to differ from the declared one, with the reason."""

from __future__ import annotations

from typing import Final


def reason_for(row: str) -> str | None:
    """Why this row (`Lsh.scores`) differs, or None."""
    return next((reason for rows, reason in KNOWN.items() if row in rows), None)


# Rows of components -> the reason.
KNOWN: Final = {
    # Differences of convention: what is found is right too.
    ("Deformable.sample",): "declared is the sum over heads, levels and points; found is what one point reads",
    ("Lsh.scores", "Lsh.mask", "Lsh.logsumexp", "Lsh.softmax", "Lsh.weighted_sum"): (
        "declared is the sum over hashing rounds; found is one round, without the token itself"
    ),
    ("Kernel.prefix_sum", "Kernel.read", "Kernel.normaliser", "Retention.carry", "Retention.read"): (
        "declared is N; the state before the last chunk excludes that chunk"
    ),
    ("Mamba2.spans", "Mamba2.carry", "Mamba2.read"): "declared is N tokens; found are the chunks' ends",
    ("Mamba2.fade",): "declared is the chunk of which the sum is made; found are the token and the chunk's end",
    ("Sparse.join", "Sparse.softmax"): "declared is what is computed; borders remove some, and a key twice read is one",
    ("Kernel.local_normaliser", "Retention.scan"): "found by the operation alone: a sum of weights, a sum of steps",
    ("Full.proj_l", "Full.proj_w"): "a map over heads for each pair: found per-token, as it reads no other pair",
    ("Gru.tanh", "Gru.energies", "Lstm.tanh", "Lstm.energies"): (
        "a function of each pair: found per-token, as it reads no other pair"
    ),
    (
        "Context.add",
    ): "the encoder's token at the same position counts as the token itself; found is one of another input",
    ("Classifier.average",): "the mean of two heads' logits; found as a token that reads another",
    ("Compressive.compress",): "the old memory is an input of its own, and all that is left of it is its groups",
    ("Bottleneck.spatial_pool", "Vgg.pool"): "disjoint groups; the old tokens are not met again",
    # Not followed yet.
    ("Bottleneck.spatial_positions", "Bottleneck.spatial_add_positions"): "a table is added to keys before any score",
    ("Sinkhorn.sort_logits", "Sinkhorn.scores", "Sinkhorn.softmax", "Sinkhorn.weighted_sum"): (
        "a mixture of sorted blocks is followed as the block, without the blocks behind it"
    ),
    ("Funnel.types", "Funnel.type_pick", "Funnel.type_add", "Funnel.residual_add"): (
        "segment types by position of the query, and pooling that leaves [CLS] out"
    ),
    ("Pooling.spread",): "a bias by position is spread by a product with a table of ones",
    ("Synthesizer.synthesis", "Synthesizer.softmax", "Synthesizer.mask"): (
        "weights out of two learned factors look like learned vectors"
    ),
    (
        "Gru.add_context",
        "Gru.recurrence",
        "Gru.readout_add",
        "Lstm.add_context",
        "Lstm.recurrence",
        "Lstm.readout_context",
        "Lstm.readout_add",
    ): "no token asks in the first step: what it sums up is a place of its own, which later steps read",
}
