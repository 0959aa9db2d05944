# %% [markdown]
# # Attention and transformers
#
# From recurrent encoders and decoders to the transformer, and from there to images.
# This notebook follows lecture 8 of *COMP541 Deep Learning* (A. Erdem, Koç University, 2025), slide by slide.
# Numbers come from models that xfcost builds in torch and traces; those of cells with `trace=False` come only from its
# formulas.

# %%
try:
    import xfcost
except ModuleNotFoundError:
    raise SystemExit("This notebook needs xfcost: run pip install . in its repository, then all cells.") from None

import functools
import math

import pandas as pd
import torch


@functools.cache
def cost(name, *settings, **options):
    """The ledger of a system: counted in closed form, and equal to the trace of its running model."""
    ledger = xfcost.analyze(name, settings=settings, **options)
    assert ledger.agreement.exact
    return ledger


# %% [markdown]
# ## Sequence to sequence with RNNs
#
# **Claim.** Encoder and decoder are joined by one vector of fixed length, a bottleneck.
# With attention the decoder looks at all of the source, at every step.
#
# Which tokens of the source do the operations of the decoder read?

# %%
for name in ("seq2seq-lstm", "rnnsearch"):
    rows = [row for row in cost(name).rows if row.stage == "decoder" and row.mixes and row.macs]
    print(f"{name:12}", {row.title: f"{row.reads} = {row.reads_tokens}" for row in rows})

# %% [markdown]
# M are the tokens of the source, N those of the target: without attention nothing but the first state comes from M.
#
# **Claim** (captions). A new context at every word is a weighted sum of the regions of the image.

# %%
words = cost("show-attend-tell")
for row in words.rows:
    if row.stage == "decoder" and row.reads == "M" and row.macs:
        print(f"{row.title:36} reads {row.reads_tokens} regions (14×14) for each word")

# %% [markdown]
# **Claim.** In a recurrence the influence of early elements is diluted; attention reaches all of them directly.
#
# How much does the last output of one block change when the first token is another one? With random weights a
# recurrence forgets exponentially. Attention dilutes too: each of N tokens has about 1/N of the weight.


# %%
def influence(name, tokens, *settings):
    """The change of the last output over its size, when the first token changes."""
    torch.manual_seed(0)
    small = ["stages.0.dim=64", "stages.0.depth=1", "input.vocabulary=100", *settings]
    built = xfcost.build(name, settings=small, N=tokens, dtype="float64")
    (numbers,) = built.inputs
    other = numbers.clone()
    other[0, 0] = (numbers[0, 0] + 1) % 100
    last, changed = (built.model(given)[0, -1] for given in (numbers, other))
    return float((last - changed).norm() / last.norm())


for tokens in (8, 16, 32):
    full = influence("common-full", tokens, "stages.0.block.0.heads=4", "embed=[{kind: token}]")
    print(f"N = {tokens:2}: attention {full:.2f}, LSTM {influence('common-lstm', tokens):.0e}")

# %% [markdown]
# A mean over tokens gives each of them exactly 1/N. The softmax can do better: how far must one score be above the
# others to hold half of the weight? By ln(N - 1), which grows slowly.

# %%
for tokens in (64, 1024, 16384):
    scores = torch.zeros(tokens, dtype=torch.float64)
    scores[0] = math.log(tokens - 1)
    weight = scores.softmax(0)[0]
    print(f"N = {tokens:6,}: mean 1/N = {1 / tokens:.5f}; a lead of {scores[0]:.1f} holds {weight:.0%}")

# %% [markdown]
# ## Three ways of processing sequences
#
# **Claim.** A recurrence sees the whole sequence after one layer, step after step. A convolution is parallel, and many
# layers are needed. Self-attention is parallel and sees all. It takes much memory.

# %%
for name in ("common-lstm", "common-conv", "common-full"):
    ledger = cost(name, N=1024)
    row = next(row for row in ledger.rows if row.mixes)
    memory = ledger.attention_memory()["all_layers"] / 2**20
    print(f"{name:12} reads {row.reads_tokens:5,}, sequential steps {row.sequential:5,}, matrices {memory:4.0f} MiB")

# %% [markdown]
# The mixing MACs of the three over N: attention alone grows quadratically.

# %%
xfcost.plot("common-full", "common-lstm", "common-conv", N="64:16384")

# %% [markdown]
# **Error.** The slide on self-attention marks "good at long sequences" as a disadvantage, (-); it is an advantage, (+).
#
# Over many layers `reach` counts the tokens that have reached one token, in the median:

# %%
for name in ("common-lstm", "common-conv", "common-full"):
    found = xfcost.reach(name, N=1024)
    known = [block.met[0].median for block in found.blocks]
    print(f"{name:12} after one block {known[0]:6,.1f} of 1,024 tokens, after twelve {known[-1]:6,.1f}")

# %% [markdown]
# In a recurrence a token depends on the tokens before it: the last token on all of them, the median token on half.
#
# **Claim.** Self-attention works on sets: without positions, permuted inputs give permuted outputs.

# %%
small = ["stages.0.dim=64", "stages.0.depth=2", "stages.0.block.0.heads=4", "input.vocabulary=100"]


def outputs(numbers, *settings):
    """The outputs of a small encoder without positions."""
    torch.manual_seed(0)
    built = xfcost.build("common-full", settings=[*small, *settings], N=len(numbers), dtype="float64")
    return built.model(torch.tensor([numbers]))[0]


order = [3, 1, 2, 0, 4]
plain = outputs([10, 20, 30, 40, 50], "embed=[{kind: token}]")
permuted = outputs([40, 20, 30, 10, 50], "embed=[{kind: token}]")
print("permuted inputs, permuted outputs:", torch.allclose(plain[order], permuted))

# %% [markdown]
# ## From gated units to attention
#
# **Claim** (side-note). Unrolled, h_t is a sum of all candidates, in which h̃_i has the weight
# ∏_{j=i}^{t-i+1} u_j · ∏_{k=1}^{i-1} (1 - u_k).
#
# **Error.** The recurrence on the slide before it gives (1 - u_i) · ∏_{j=i+1}^{t} u_j. For u = 0.9 and t = 4:

# %%
u, t = 0.9, 4
state = [0.0] * t
for i in range(t):
    state = [u * weight for weight in state]
    state[i] += 1 - u
print("recurrence      ", [round(weight, 4) for weight in state])
print("corrected       ", [round((1 - u) * u ** (t - i), 4) for i in range(1, t + 1)])
print("as on the slide ", [round(u ** max(t - 2 * i + 2, 0) * (1 - u) ** (i - 1), 4) for i in range(1, t + 1)])

# %% [markdown]
# **Claim.** Scaled dot-product attention is faster and takes less space than additive attention.
#
# Their products are of the same order. But additive attention takes a tanh of d numbers for every pair of tokens, and
# holds them; the dot product is one matrix multiplication.

# %%
for name, operations in (("rnnsearch", ("tanh", "energies")), ("transformer-base", ("scores",))):
    rows = [row for row in cost(name).rows if row.reads == "M" and row.operation in operations]
    print(f"{name:16}", {row.title: row.order for row in rows})

# %% [markdown]
# ## Multi-head attention
#
# **Claim.** Heads have d_k = d/h = 64 dimensions, and together they cost about as much as one head of full width.
#
# The same MACs; the matrices, one per head, take h times the memory.

# %%
for heads, name in ((1, "transformer-base-h1"), (8, "transformer-base"), (32, "transformer-base-h32")):
    ledger = cost(name)
    memory = ledger.attention_memory()["all_layers"] / 2**20
    print(f"{heads:2} heads of {512 // heads:3}: {ledger.total('macs'):,} MACs, matrices {memory:.0f} MiB")

# %% [markdown]
# ## Why self-attention: the table of layer types
#
# **Claim.** Complexity per layer, sequential operations and maximum path length of Vaswani et al., table 1.
#
# The table has derived and published orders, the sequential operations of the running layer, and path lengths composed
# from what the layers read, at n = 256 and d = 512 (n < d, as on the slide).
#
# **Error.** The slide's O(log_k n) is the path of dilated convolutions; contiguous ones need O(n/k), as the text of
# the paper says. "Lower complexity" is true for the products of pairs, n²·d; the projections' n·d² are more if n < 2·d.

# %%
# !xfcost layers --N 256 --d 512 --format csv > layers.csv
layers = pd.read_csv("layers.csv", index_col="layer").rename_axis(None).iloc[[0, 1, 2, 3, 6]]
for columns in (["printed_complexity", "complexity", "macs"], ["printed_path", "path", "path_length"]):
    print(layers[columns].to_string())
print(layers[["printed_sequential", "sequential", "sequential_operations"]].to_string())

# %% [markdown]
# ## The transformer from the ground up
#
# All operations of the encoder and the decoder, and where their MACs are:

# %%
cost("transformer-base")

# %% [markdown]
# A block of the encoder, and one of the decoder:

# %%
xfcost.diagram("transformer-base")

# %% [markdown]
# **Claim.** Some 37,000 words become vectors of 512 numbers; the embedding is essentially a linear layer.
#
# As a matrix it is; as work it is a look-up: parameters and no MACs.

# %%
base = cost("transformer-base")
table, look_up = (base.by("operation")[name][0] for name in ("embedding", "lookup"))
print(f"{table.title}: {table.params:,} parameters = 37,000 × 512; look-up: {look_up.macs} MACs")

# %% [markdown]
# **Claim.** d_ff = 2048 = 4·d. Six encoder and six decoder layers; a decoder layer has cross-attention besides.

# %%
for stage in base.by_stage():
    for row in base.by("stage")[stage["stage"]]:
        if row.params and row.macs:
            print(f"{stage['stage']}, {row.times} blocks: {row.title:22} {row.params:>9,} parameters")

# %% [markdown]
# **Claim** (misconception 2). Cross-attention reads the encoder's last output, not the layer at the same depth.
#
# In the running model, what the decoder gets is the tensor that leaves the encoder's last block.

# %%
torch.manual_seed(0)
shrink = ["encoder.stages.0.dim=32", "decoder.stages.0.dim=32", "input.vocabulary=100", "**.hidden=64"]
built = xfcost.build("transformer-base", settings=shrink, N=6, dtype="float64")
ends = []
stages = [stream.stages[-1] for stream in built.model.streams]
stages[0].register_forward_hook(lambda module, given, out: ends.append(out))
stages[1].register_forward_hook(lambda module, given, out: ends.append(given[1]))
built.model(*built.inputs)
print("the decoder gets the encoder's last output and nothing else:", ends[0] is ends[1])

# %% [markdown]
# **Claim.** The decoder's mask hides later positions; it is implemented as a rolling window.
#
# **Error.** As a triangle: every position reads its whole past. A rolling window is another mechanism.

# %%
for name in ("gpt2", "mistral-7b-sliding"):
    tokens = 1024 if name == "gpt2" else 8192
    row = xfcost.analyze(name, N=tokens, trace=False).by("operation")["scores"][0]
    print(f"{name:18} N = {tokens:,}: a token reads up to {row.reads_tokens:,} ({row.reads}); {row.pairs:,} pairs")

# %% [markdown]
# **Claim** (results). Training took 3.3·10¹⁸ FLOPs for the base model and 2.3·10¹⁹ for the big one.
#
# The paper multiplies hours, GPUs and what a GPU sustains. A step has 25,000 source and as many target tokens
# (§5.1), in sentences of some 25; what the model itself computes is less.

# %%
printed = {"transformer-base": (100_000, 3.3e18), "transformer-big": (300_000, 2.3e19)}
for name, (steps, flops) in printed.items():
    run = xfcost.analyze(name, N=25, mode="train", tokens=steps * 50_000, trace=False).training.run
    print(f"{name}: model FLOPs {run.flops:.1e}, {run.flops / flops:.0%} of the printed {flops:.1e}")

# %% [markdown]
# ## Attention for images
#
# **Claim** (idea 1). Self-attention between the blocks of a ResNet; the model is still a CNN.

# %%
for name in ("resnet-50", "resnet-50-nl1", "resnet-50-nl5"):
    ledger = cost(name)
    macs = [sum(row.times_over("macs") for row in ledger.by("mixing")[kind]) / 1e9 for kind in ("local", "global")]
    print(f"{name:14} {ledger.total('macs') / 1e9:.2f} G MACs; local mixing {macs[0]:.2f} G, global {macs[1]:.2f} G")

# %% [markdown]
# **Claim** (idea 2). LR-Net-50 has local attention instead of convolutions: 23.3 M parameters and 4.3 G FLOPs, and
# ResNet-50 has 25.5 M and 4.3 G.
#
# The parameters are those without batch norms. The "FLOPs" are MACs, 5 % and 7 % above those of the contractions.

# %%
for name in ("resnet-50", "lr-net-50"):
    ledger = cost(name)
    params = [ledger.total("params", kind) / 1e6 for kind in (None, lambda row: row.title != "Batch norm")]
    macs = f"{ledger.total('macs') / 1e9:.2f} G MACs"
    print(f"{name}: {params[0]:.1f} M parameters, {params[1]:.1f} M without batch norms, {macs}")

# %% [markdown]
# **Claim** (idea 3). Attention over the pixels of an R×R image needs R⁴ entries per matrix. R = 128 with 48 layers of
# 16 heads takes 768 GB.
#
# Exactly 768 GiB, in float32.

# %%
pixels = cost("pixels-128")
memory = pixels.attention_memory()
print(f"{memory['per_head'] // 4:,} entries per matrix = 128⁴ = {128**4:,}")
print(f"{memory['all_layers'] / 2**30:g} GiB in 48 layers of 16 heads")

# %% [markdown]
# **Claim** (ViT). 14×14 patches: 14⁴ = 38,416 entries, 150 KB per matrix, and 112 MB in 48 layers of 16 heads.
# 16×16 patches: 65,536 entries, 256 KB and 192 MB.
#
# In KiB and MiB, without a class token (197² = 38,809).

# %%
for name in ("patches-224", "patches-256"):
    ledger = cost(name)
    memory = ledger.attention_memory()
    print(
        f"{ledger.metadata.tokens}: {memory['per_head'] // 4:,} entries, {memory['per_head'] / 1024:.2f} KiB; "
        f"all {memory['all_layers'] / 2**20:.2f} MiB"
    )

# %% [markdown]
# **Claim.** In a ViT all blocks have the same resolution and width (isotropic); in most CNNs resolution falls and width
# grows (hierarchical), and in Swin too.

# %%
for name in ("vit-b16", "resnet-50", "swin-b"):
    stages = [f"{stage['tokens']:,} × {stage['width']:,}" for stage in cost(name).by_stage()]
    print(f"{name:10}", " → ".join(stages))

# %% [markdown]
# ## Swin
#
# **Claim.** 56×56 patches: a full matrix has 56⁴ = 9.8 M entries. Windows of M×M have M²·H·W in all, linear in the
# image's size.

# %%
row = cost("swin-t").by("operation")["scores"][0]
print(f"full {56**4:,}; windows {row.attention_entries // row.heads:,} = 7²·56·56, {56**4 // (49 * 56 * 56)}× fewer")
for size in (224, 448, 896):
    large = xfcost.analyze("swin-t", size=size, trace=False)
    print(f"{size}×{size}: {large.total('attention_entries'):,} entries in all stages and heads")

# %% [markdown]
# **Claim.** Shifted windows leave windows at edges and corners that are not square.
#
# In stage 1 the 8×8 windows become 9×9, of sides 3, 7 and 4. They are computed as 8×8 full ones with a mask: the same
# MACs, fewer pairs.

# %%
swin = cost("swin-t")
for row in swin.by("operation")["scores"][:2]:
    pairs = f"{row.pairs:,} of {row.attention_entries // row.heads:,} pairs"
    print(f"{row.block}: {row.macs:,} MACs; the mask keeps {pairs}")
print(f"(3² + 7·7² + 4²)² = {(3**2 + 7 * 7**2 + 4**2) ** 2:,}")

# %% [markdown]
# **Claim.** Swin learns a bias B of M²×M² entries.
#
# **Error.** B has M⁴ = 2,401 entries; learned are the (2M - 1)² = 169 offsets of each head, from which B is gathered.
# The formula divides by √D, but each head has width D/h: the divisor is √d_k.

# %%
row = swin.by("operation")["relative_bias"][0]
print(f"{row.title}: {row.params} parameters = {swin.by('operation')['scores'][0].heads} heads × {(2 * 7 - 1) ** 2}")

# %% [markdown]
# ## Pre-training
#
# **Claim.** Decoder-only, encoder-only and encoder-decoder models differ in what a token may read. Speech adds a third
# kind of block, with convolutions.

# %%
for name in ("gpt2", "bert-base", "t5-small", "conformer-s"):
    blocks = {block for block in cost(name).by("block") if "·" in block}
    print(f"{name:12}", ", ".join(sorted(blocks)))

# %% [markdown]
# **Claim.** 224×224 pixels are a sequence of 50 k, too long.

# %%
tokens = xfcost.analyze("pixels-224", trace=False).metadata.grid_tokens
print(f"{tokens:,} pixels, {tokens**2:,} pairs; 16×16 patches: {tokens // 256}, {(tokens // 256) ** 2:,} pairs")

# %% [markdown]
# **Claim.** ViTs train and run faster than CNNs of the same FLOPs. This depends on the machine, and no time is kept
# here: `xfcost compare vit-s16 resnet-50 --device cpu` times both on yours.

# %% [markdown]
# ## Where to go next
#
# [How xfcost counts](../how-it-counts.md); [vision](../vision.md); [training](../training.md).
