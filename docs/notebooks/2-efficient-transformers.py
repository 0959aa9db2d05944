# %% [markdown]
# # Efficient transformers
#
# Full attention costs N². What do the alternatives cost, what do their tokens read, and what do they give up?
# This notebook follows notes on the survey of Tay et al. (*Efficient Transformers: A Survey*, ACM Computing Surveys
# 55(6), 2022), claim by claim. Numbers come from models that xfcost builds in torch and traces; those of cells with
# `trace=False` come only from its formulas.
#
# The presets `common-…` are one encoder (12 blocks, d = 768, 12 heads) in which only the mixer differs.

# %%
try:
    import xfcost
except ModuleNotFoundError:
    raise SystemExit("This notebook needs xfcost: run pip install . in its repository, then all cells.") from None

import functools

import pandas as pd
import torch


@functools.cache
def cost(name, *settings, **options):
    """The ledger of a system: counted in closed form, and equal to the trace of its running model."""
    ledger = xfcost.analyze(name, settings=settings, **options)
    assert ledger.agreement.exact
    return ledger


def mixing(ledger):
    """MACs of the operations that mix tokens."""
    return ledger.total("macs", lambda row: row.mixes)


# %% [markdown]
# ## Base model
#
# **Claim.** The feed-forward network is one MLP for every position; it widens, then narrows.

# %%
full = cost("common-full", N=1024)
for name in ("fc1", "fc2"):
    row = full.by("operation")[name][0]
    print(f"{row.title:20} {row.mixing}, {row.order}, {row.params:,} parameters whatever N is")

# %% [markdown]
# **Claim.** Compute and memory are quadratic in N.
#
# This is true for the mixing operations and their matrices. For all MACs it is true only if N is far above
# 6·d = 4,608: for smaller N the per-token operations, which are linear, have more.

# %%
for tokens in (1024, 4096, 16384):
    growth = xfcost.compare("common-full", "common-full", N=tokens).growth["Full attention"]
    powers = {"mixing": growth["mixing_macs"], "matrices": growth["attention_bytes"], "all MACs": growth["macs"]}
    print(f"N = {tokens:6,}:", ", ".join(f"{name} ~ N^{power:.2f}" for name, power in powers.items()))

# %% [markdown]
# **Claim.** An encoder reads both ways; a decoder is causal, with a triangular mask; an encoder-decoder has both.
#
# Pairs of tokens that the masks keep, of one head. The dense product computes the masked pairs too.

# %%
for name in ("bert-base", "gpt2", "transformer-base"):
    rows = [row for row in cost(name, N=512).rows if row.pairs]
    print(f"{name:16}", ", ".join(f"{row.pairs:,} of {row.core.queries * row.core.keys:,}" for row in rows))
print(f"512·513/2 = {512 * 513 // 2:,}")

# %% [markdown]
# ## Classes
#
# **Claim.** Fixed patterns (FP), learnable patterns (LP), memory (M), low rank (LR), kernels (KR), recurrence (RC) and
# downsampling (DS) avoid the quadratic cost in different ways.
#
# `xfcost survey` has every system, with its published and its derived order. One of each class:

# %%
# !xfcost survey --format csv > survey.csv
systems = pd.read_csv("survey.csv", keep_default_na=False).drop_duplicates("class")
print(systems[["system", "class", "printed", "derived", "agrees"]].to_string(index=False))

# %% [markdown]
# Not every class avoids N². The exponent of the mixing MACs in N, from 16,384 tokens to twice as many, with all
# parameters fixed:

# %%
classes = {
    "FP": ("blockwise", "axial", "sparse-strided"),
    "LP": ("routing", "sinkhorn"),
    "M": ("set-transformer", "compressed"),
    "LR": ("linformer", "synthesizer"),
    "KR": ("performer", "linear"),
    "RC": ("transformer-xl", "compressive"),
    "DS": ("funnel", "perceiver"),
}
names = {f"common-{name}": name for group in classes.values() for name in group}
found = xfcost.compare("common-full", *names, N=16384, thorough=False)
powers = dict(zip(names, (growth["mixing_macs"] for growth in list(found.growth.values())[1:]), strict=True))
for kind, group in classes.items():
    print(f"{kind:3}", ", ".join(f"{name} N^{powers[f'common-{name}']:.2f}" for name in group))

# %% [markdown]
# Full attention, and one mechanism each of five classes, over N:

# %%
chosen = ("sliding", "routing", "set-transformer", "linformer", "performer")
xfcost.plot("common-full", *(f"common-{name}" for name in chosen), N="128:65536")

# %% [markdown]
# The mechanisms change only the part that mixes tokens. At 16,384 tokens, this compares full attention with one that
# reads a window and one that projects keys and values to fewer.

# %%
xfcost.compare("common-full", "common-sliding", "common-linformer", N=16384, thorough=False)

# %% [markdown]
# **Claim** (memory). The Set Transformer compresses into learned vectors and restores by cross-attention; information
# may be lost.
#
# k vectors read all N tokens, then N tokens read the k vectors.

# %%
rows = cost("common-set-transformer", N=4096).by("operation")
for row in [row for group in rows.values() for row in group if row.mixes and row.core]:
    print(f"{row.title:44} {row.core.queries:5,} queries read {row.core.keys:5,} keys, {row.order}")

# %% [markdown]
# ## Image Transformer
#
# **Claim.** A block of queries reads one memory block: the cost is linear, and the global receptive field is lost.

# %%
for tokens in (1024, 4096):
    row = cost("common-blockwise", N=tokens).by("operation")["scores"][0]
    print(f"N = {tokens:,}: a token reads {row.reads_tokens}, {row.order}")

# %% [markdown]
# ## Memory-compressed attention
#
# **Claim.** A convolution of stride k makes N/k keys. The cost, N·N/k, is often no significant improvement, since N and
# N/k are of like size.
#
# With the paper's k = 3 the matrices are three times smaller, and still quadratic.

# %%
small, large = (cost("common-compressed", N=tokens) for tokens in (4096, 8192))
ratio = cost("common-full", N=4096).total("attention_entries") / small.total("attention_entries")
print(f"matrices {ratio:.2f}× smaller than full attention's")
print(f"twice the tokens: {large.total('attention_entries') / small.total('attention_entries'):.2f}× the entries")

# %% [markdown]
# ## Sparse Transformer
#
# **Claim.** Strided attention has two patterns of √N tokens each: O(N√N).
#
# This is true for a stride l = √N, which the paper chooses. With a fixed stride the long pattern reads N/l tokens.
# (The local one needs l tokens; the running model gathers three blocks of l.)

# %%
for tokens, stride in ((1024, 32), (4096, 64), (16384, 128), (16384, 64)):
    sparse = xfcost.analyze("common-sparse-strided", settings=[f"**.stride={stride}"], N=tokens, trace=False)
    reads = {row.title: row.reads_tokens for row in sparse.rows if row.core}
    print(f"N = {tokens:6,}, stride {stride:3}: {reads}")

# %% [markdown]
# **Claim.** The two patterns in turn keep the receptive field: whatever one block leaves out, the next one reads.
#
# `reach` composes what the blocks read: how many tokens have reached one token after each block, in the median.


# %%
def met(name, *settings, tokens=1024):
    """Of how many tokens a token knows after the first blocks, and after which block it knows all."""
    found = xfcost.reach(name, N=tokens, settings=settings)
    known = " → ".join(f"{block.met[0].median:,.0f}" for block in found.blocks[:4])
    after = "never, in 12 blocks" if found.path_length is None else f"after block {found.path_length}"
    return f"{name:22} {known} → …; all {tokens:,}: {after}"


print(met("common-sparse-strided", "**.stride=32"))
print(met("common-axial"))
print(met("common-blockwise", tokens=8192))

# %% [markdown]
# ## Axial Transformer
#
# **Claim.** Attention along one axis of an image saves a factor of √N.

# %%
for tokens in (1024, 4096, 16384):
    full, axial = (xfcost.analyze(name, N=tokens, trace=False) for name in ("common-full", "common-axial"))
    print(f"N = {tokens:6,}: {mixing(full) / mixing(axial):.0f}× fewer mixing MACs, √N = {tokens**0.5:.0f}")

# %% [markdown]
# ## Longformer and BigBird
#
# **Claim.** Sliding windows see far only through many layers. Tokens that read all and that all read are crucial.
# BigBird adds random blocks.

# %%
for name in ("common-sliding", "common-longformer", "common-bigbird"):
    print(met(name, tokens=8192))

# %% [markdown]
# ## Routing Transformer
#
# **Claim.** k-means sorts tokens into clusters, whose centroids queries and keys share. With √N clusters: O(N√N).

# %%
rows = cost("common-routing", N=4096).by("operation")
for name in ("scores", "weighted_sum"):
    print(f"{rows[name][0].title}: a token reads {rows[name][0].reads_tokens}, {rows[name][0].order}")
print(f"{rows['distances'][0].title}: {rows['distances'][0].order}")

# %% [markdown]
# ## Reformer
#
# **Claim.** Tokens attend within buckets of a hash, in several rounds.
#
# Every round costs as much as the first, and a token reads two buckets in each.

# %%
for rounds in (1, 2, 4):
    lsh = cost("common-reformer", f"stages.0.block.0.rounds={rounds}", N=4096)
    row = lsh.by("operation")["scores"][0]
    print(f"{rounds} rounds: a token reads {row.reads_tokens}, {row.reads}; {row.macs:,} MACs")

# %% [markdown]
# **Claim.** Reversible layers save memory for activations and pay with computation.

# %%
for form in ("ordinary", "reversible"):
    step = cost("common-reformer", f"residual.form={form}", N=4096, mode="train").training.step
    kept = f"{step.kept_bytes / 2**30:.2f} GiB of activations"
    print(f"{form:10} keeps {kept}, backward {step.backward_macs / 1e12:.2f} T MACs")

# %% [markdown]
# ## Linformer
#
# **Claim.** Keys and values are projected from N to k: O(N·k), and causal masking is a difficulty.
#
# There is no causal form at all, because projected keys mix all tokens. The projections have parameters for every
# position.

# %%
for tokens in (1024, 4096):
    ledger = cost("common-linformer", N=tokens)
    row = ledger.by("operation")["scores"][0]
    print(f"N = {tokens:,}: {row.order}, {ledger.bound_params:,} parameters depend on N")
try:
    cost("common-linformer", "stages.0.block.0.causal=true", N=1024)
except xfcost.XfcostError as error:
    print(str(error).partition("causal: ")[2].partition("; ")[0])

# %% [markdown]
# **Claim** (low rank). After the softmax the attention matrix does not have full rank.
#
# **Error.** This is true before the softmax: the scores have rank d_k at most. The softmax is not linear, and its
# matrix has full rank. Linformer's claim is that few singular values have most of the weight.

# %%
torch.manual_seed(0)
built = xfcost.build("common-full", settings=["stages.0.depth=1", "input.vocabulary=1000"], N=256, dtype="float64")
matrices = {}
for path, module in built.model.named_modules():
    name = path.rpartition(".")[2]
    module.register_forward_hook(lambda module, given, out, name=name: matrices.setdefault(name, out))
built.model(*built.inputs)
for name in ("scores", "softmax"):
    values = torch.linalg.svdvals(matrices[name][0, 0])
    share = (values**2).cumsum(0) / (values**2).sum()
    rank = torch.linalg.matrix_rank(matrices[name][0, 0])
    print(f"{name:7}: rank {rank} of 256, {int((share < 0.99).sum()) + 1} singular values hold 99 %")

# %% [markdown]
# ## Performer
#
# **Claim.** Random features make attention linear: φ(Q)(φ(K)ᵀV). The causal form is slower, since masking takes
# further steps that can't run in parallel.
#
# **Error.** The prefix sums over tokens can be computed chunk by chunk: the causal model has more MACs and the same
# number of sequential steps.

# %%
for causal in ("false", "true"):
    model = cost("common-performer", f"stages.0.block.0.causal={causal}", N=4096)
    steps = max(row.sequential for row in model.rows)
    print(f"causal: {causal:5}  {mixing(model) / 1e9:.1f} G mixing MACs, {steps} sequential step")

# %% [markdown]
# ## Linear Transformer
#
# **Claim.** Linear time; as a decoder it is an RNN with constant memory.

# %%
for name in ("gpt2", "linear-transformer-mnist"):
    memory = [cost(name, N=tokens, mode="decode", dtype="float32").cache.bytes for tokens in (256, 512)]
    print(f"{name:24} keeps {memory[0]:,} bytes after 256 tokens, {memory[1]:,} after 512")

# %% [markdown]
# **Claim.** With φ(x) = elu(x) + 1, whose width is that of the keys, the cost is O(N·d²).
#
# This is true for one head of width d. With h heads it is O(N·d·d_k), with d_k = d/h.

# %%
rows = cost("common-linear", N=4096).by("operation")
for name in ("state", "read"):
    print(f"{rows[name][0].title:20} {rows[name][0].order}, {rows[name][0].macs:,} = 4,096·768·64 MACs")

# %% [markdown]
# ## Sparse models
#
# **Claim.** Experts activate a part of the parameters: more parameters for the same FLOPs.

# %%
for name in ("t5-base", "switch-base-8", "switch-base-128"):
    model = xfcost.analyze(name, N=512, trace=False)
    print(
        f"{name:16} {model.total('params') / 1e9:5.2f} G parameters, {model.total('active_params') / 1e9:.2f} G active,"
        f" {model.total('macs') / 1e9:.0f} G MACs"
    )

# %% [markdown]
# ## Where to go next
#
# [Efficient attention](../efficient-attention.md): every system's order, derived and published.
# [Language models](../language.md): decoding and caches.
