# %% [markdown]
# # Attention, in notes
#
# Self-attention is four matrix multiplications, a block six. What do they cost in compute and in memory?
# This notebook follows notes *Attention and Transformers* on the lecture of that name (J. Johnson's slides), claim by
# claim. Numbers come from models that xfcost builds in torch and traces; those of cells with `trace=False` only from
# its formulas.

# %%
try:
    import xfcost
except ModuleNotFoundError:
    raise SystemExit("This notebook needs xfcost: run pip install . in its repository, then all cells.") from None

import functools

import torch


@functools.cache
def cost(name, *settings, **options):
    """The ledger of a system: counted in closed form, and equal to the trace of its running model."""
    ledger = xfcost.analyze(name, settings=settings, **options)
    assert ledger.agreement.exact
    return ledger


# %% [markdown]
# ## Attention
#
# **Claim.** In training the decoder predicts all words at once; at inference it writes word by word.
#
# A forward over N tokens, and N decode steps, each with the past cached: about the same MACs, N passes instead of one.

# %%
forward = cost("gpt2", N=512).total("macs")
written = cost("gpt2", N=1, mode="generate", new_tokens=512).generation.with_cache.macs
print(f"one forward {forward / 1e9:.1f} G MACs, 512 steps {written / 1e9:.1f} G MACs: {written / forward:.2f}×")

# %% [markdown]
# Which operations have these MACs:

# %%
cost("gpt2", N=512)

# %% [markdown]
# **Claim.** Scores are divided by √D, because the product of two normal vectors has the variance D.

# %%
torch.manual_seed(0)
for width in (64, 1024):
    q, k = torch.randn(2, 20_000, width, dtype=torch.float64)
    products = (q * k).sum(-1)
    print(f"D = {width:4}: variance / D = {products.var() / width:.1f}")
print([row.title for row in cost("common-full", N=64).rows if row.operation == "scale"])

# %% [markdown]
# **Claim.** Self-attention is permutation equivariant; positions are added for the order.

# %%
small = ["stages.0.dim=64", "stages.0.block.0.heads=4", "input.vocabulary=100", "embed=[{kind: token}]"]


def outputs(numbers, *settings):
    """The outputs of a small model without positions."""
    torch.manual_seed(0)
    built = xfcost.build("common-full", settings=[*small, *settings], N=len(numbers), dtype="float64")
    return built.model(torch.tensor([numbers]))[0]


plain, permuted = outputs([1, 2, 3, 4, 5]), outputs([4, 2, 3, 1, 5])
print("permuted inputs, permuted outputs:", torch.allclose(plain[[3, 1, 2, 0, 4]], permuted))

# %% [markdown]
# **Claim.** A causal mask is no substitute: the last of `abcde` gets the same from `abcd` as from `bdac`.
#
# This is true for one block. **Error** for more: after a causal block the tokens depend on different earlier tokens,
# and the next block sees the order.

# %%
for depth in (1, 2):
    settings = (f"stages.0.depth={depth}", "stages.0.block.0.causal=true")
    last = [outputs(numbers, *settings)[-1] for numbers in ([1, 2, 3, 4, 5], [2, 4, 1, 3, 5])]
    print(f"{depth} causal block(s) without positions: the last output is the same: {torch.allclose(*last)}")

# %% [markdown]
# **Claim.** Several heads cost as much as one.
#
# This is true for MACs. The matrices and the softmax are h times as large.

# %%
for name in ("transformer-base-h1", "transformer-base"):
    ledger = cost(name)
    print(f"{name:20} {ledger.total('macs'):,} MACs, {ledger.total('attention_entries'):,} attention entries")

# %% [markdown]
# **Error.** The notes take the softmax over "dim=1", which of H×N×N are the queries; over the keys it is the last
# dimension. In the running model every row sums to one:

# %%
built = xfcost.build("common-full", settings=[*small, "stages.0.depth=1"], N=8, dtype="float64")
softmax = next(module for path, module in built.model.named_modules() if path.endswith(".softmax"))
matrices = []
softmax.register_forward_hook(lambda module, given, out: matrices.append(out))
built.model(*built.inputs)
for name, dim in (("keys", -1), ("queries", -2)):
    sums = matrices[0].sum(dim)
    print(f"sums over the {name} are one:", torch.allclose(sums, torch.ones_like(sums)))

# %% [markdown]
# ## Complexity
#
# **Claim.** Self-attention is four matrix multiplications: QKV, QKᵀ, AV, output. A block has two more, of the MLP: six.

# %%
block = cost("common-full", N=1024).by("block")["stage 1 · Self-attention"]
for row in block:
    if row.macs:
        print(f"{row.title:22} {row.order:8} {row.macs:>13,} MACs, traced {row.traced.macs:>13,}")

# %%
xfcost.diagram("common-full", N=1024)

# %% [markdown]
# **Claim.** Most of the compute is in these six.

# %%
six = sum(2 * row.macs for row in block)
print(f"{six / sum(row.flops for row in block):.1%} of the FLOPs of a block")

# %% [markdown]
# **Claim.** Compute is O(N²) by the second and third product, memory O(N²) by the attention weights.
# FlashAttention keeps no weights: O(N) memory.
#
# The same MACs. Eager attention keeps the matrices; the fused kernel keeps one number per query.

# %%
for how in ("eager", "fused"):
    for tokens in (4096, 8192):
        ledger = cost("common-full", N=tokens, attention=how)
        memory = ledger.attention_memory()["all_layers"] / 2**20
        print(f"{how} N = {tokens:,}: {ledger.total('macs') / 1e9:,.1f} G MACs, attention memory {memory:,.2f} MiB")

# %% [markdown]
# ## Three ways of processing sequences
#
# **Claim.** An RNN has O(N) compute and memory, and its steps wait for each other.
# A CNN has O(N) compute and memory, *and its steps wait too*.
# Self-attention is parallel, with O(N²) compute and *O(N) memory*.
#
# **Errors.** The CNN's disadvantage is copied from the RNN's: a convolution is parallel, and what it lacks is reach.
# O(N) memory is true for FlashAttention; with stored attention weights (above) it is O(N²).

# %%
for name in ("common-lstm", "common-conv", "common-full"):
    small, large = (cost(name, N=tokens) for tokens in (1024, 2048))
    row = next(row for row in large.rows if row.mixes)
    macs = large.total("macs", lambda row: row.mixes) / small.total("macs", lambda row: row.mixes)
    entries = large.total("attention_entries") / max(small.total("attention_entries"), 1)
    print(f"{name:12} N ×2: mixing MACs ×{macs:.0f}, matrices ×{entries:.0f}; sequential steps {row.sequential:,}")

# %% [markdown]
# How far information travels in one block and in twelve:

# %%
for name in ("common-lstm", "common-conv", "common-full"):
    known = [block.met[0].largest for block in xfcost.reach(name, N=1024).blocks]
    print(f"{name:12} a token knows up to {known[0]:,} of 1,024 tokens after one block, {known[-1]:,} after twelve")

# %% [markdown]
# ## The transformer block
#
# **Claim.** Self-attention is the only interaction between vectors; norms and MLP process each vector separately.
#
# `probe` changes one token of the running block and looks which outputs change.

# %%
for row in cost("common-full", N=64, probe=True).probe.rows:
    if row.found and row.path.startswith("stages") and "residual_add" not in row.path:
        print(f"{row.title:22} {row.found.mixing}")

# %% [markdown]
# **Claim.** A block has 4·D² parameters in attention and 8·D² in the MLP.

# %%
for row in block:
    if row.params and row.macs:
        print(f"{row.title:22} {row.params / 768**2:.1f} × D²")

# %% [markdown]
# **Claim.** The original: 12 blocks, D = 1024, H = 16, N = 512, 213 M parameters. GPT-2: 48, 1600, 25, 1024, 1.5 B.
# GPT-3: 96, 12288, 96, 2048, 175 B.
#
# The 12 are 6 of the encoder and 6 of the decoder, of the big model.

# %%
for name in ("transformer-big", "gpt2-xl", "gpt3"):
    ledger = cost(name)
    stages, heads = ledger.by_stage(), ledger.by("operation")["scores"][0].heads
    depth = " + ".join(str(stage["blocks"]) for stage in stages)
    sizes = f"{depth} blocks, D = {stages[0]['width']}, H = {heads}, N = {stages[0]['tokens']}"
    print(f"{ledger.metadata.name}: {sizes}, {ledger.total('params') / 1e6:,.0f} M parameters")

# %% [markdown]
# **Claim.** A language model starts with a table of V×D and ends with a matrix of D×V.
#
# GPT-2 has one matrix for both.

# %%
gpt2 = cost("gpt2")
for row in gpt2.rows:
    if row.shared or row.stage in {"shared", "head"}:
        print(f"{row.title:28} {row.params:>11,} parameters {row.macs:>15,} MACs")

# %% [markdown]
# **Claim.** A ViT's patches can also be embedded by a convolution with D channels of output.

# %%
row = cost("vit-b16").by("operation")["projection"][0]
print(f"{row.title}: {row.params:,} parameters = 3·16·16·768 + 768")

# %% [markdown]
# ## Tweaks
#
# **Claim.** With the norm outside the residual a block can't be the identity; so the norm moves inside.
#
# What leaves the sub-layers of the first transformer, and of a pre-norm one (`tiny`):

# %%
for name in ("transformer-base", "tiny"):
    steps = xfcost.stream(name, N=4).steps[:2]
    print(f"{name:16}", ", ".join(step.formula for step in steps), f"({steps[0].joins}-norm)")

# %% [markdown]
# **Claim.** RMSNorm divides by the root mean square, with one weight per channel.
#
# Half the parameters of layer norm. **Error.** The sum runs over the D channels, not to N; and the weights γ come
# after, so that vectors have the same norm only before them.

# %%
for name in ("common-full", "llama-7b"):
    row = xfcost.analyze(name, N=64, trace=False).by("operation")["residual_norm"][0]
    print(f"{name}: {row.title}, {row.params:,} parameters")

# %% [markdown]
# **Claim.** SwiGLU has three matrices, and with H = 8D/3 as many parameters as two of D×4D.
#
# **Error.** Only two of the three are D×H; the last is H×D (the notes write D×H for it too).

# %%
for name in ("ffn-gelu", "ffn-swiglu"):
    ledger = cost(name, N=64)
    rows = [row for row in ledger.rows if row.macs and row.path.startswith("stages.0.block.1")]
    print(f"{name:11}", {row.operation: row.params for row in rows}, f"together {sum(row.params for row in rows):,}")

# %% [markdown]
# **Claim.** E experts of which A are active: E times the parameters, A times the compute.
#
# Of the MLPs. Attention, embeddings and head are as before, and the router is added.

# %%
dense, sparse = (xfcost.analyze(name, N=512, trace=False) for name in ("mistral-7b", "mixtral-8x7b"))
for name in ("params", "active_params", "macs"):
    print(f"{name:14} {sparse.total(name) / dense.total(name):.2f}× those of the dense model (E = 8, A = 2)")

# %% [markdown]
# ## Where to go next
#
# [How xfcost counts](../how-it-counts.md); [the residual stream](../residual-stream.md).
