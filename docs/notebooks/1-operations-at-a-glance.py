# %% [markdown]
# # Operations at a glance
#
# Which operations of a transformer move information between tokens, and what does that cost?
# This notebook follows the lecture *Notebook 7: Operations at a Glance*, claim by claim.
# Numbers come from models that xfcost builds in torch and traces; those of cells with `trace=False` come only from its
# formulas.
#
# You need a clone of this repository with `make demo` run once, and a notebook: `.venv/bin/pip install jupyterlab`.

# %%
try:
    import xfcost
except ModuleNotFoundError:
    raise SystemExit("This notebook needs xfcost: run pip install . in its repository, then all cells.") from None

import functools

from xfcost.ledger.grid import Grid
from xfcost.mechanisms.window import Window


@functools.cache
def cost(name, *settings, **options):
    """The ledger of a system: counted in closed form, and equal to the trace of its running model."""
    ledger = xfcost.analyze(name, settings=settings, **options)
    assert ledger.agreement.exact
    return ledger


vit, swin = models = [cost(name, N=784) for name in ("vit", "swin")]
for model in models:
    about = model.metadata
    print(f"{about.name}: {about.tokens} tokens, {model.total('macs'):,} MACs counted and traced")

# %% [markdown]
# N is the number of tokens, d their width, h the number of heads, W the side of a window.
# Both models get 28×28 = 784 tokens in their first stage; ViT adds a class token.
#
# A ledger is a table of operations, with a chart of those that have most of the MACs.

# %%
vit

# %% [markdown]
# ## Section 1: three kinds of operation
#
# **Claim.** Every operation is per-token, global mixing or local mixing.
# ViT mixes globally in every block, Swin locally in every block.

# %%
for model in models:
    print(model.metadata.name)
    for kind, rows in model.by("mixing").items():
        titles = dict.fromkeys(row.title for row in rows if row.macs and row.in_block)
        print(f"  {kind}: {', '.join(titles) or 'none'}")

# %% [markdown]
# **Claim.** Per-token operations cost O(N) or O(N·d).
#
# **Error.** This is true for norms, activations and residual adds. Projections and MLPs are per-token too, and cost
# O(N·d²): linear in N, quadratic in d. They have most of the MACs at this N.

# %%
for model in models:
    rows = [row for row in model.by("mixing")["per-token"] if row.order == "O(N·d²)"]
    share = sum(row.times_over("macs") for row in rows) / model.total("macs")
    print(f"{model.metadata.name}: per-token operations of O(N·d²) have {share:.1%} of all MACs")

# %% [markdown]
# **Claim.** The mixing weights of attention are computed from the input. Those of an MLP or a CNN are fixed.
#
# `probe` runs every operation of the model and changes its input token by token, so it finds what the model does.

# %%
systems = {"ViT-S/8": "vit", "MLP-Mixer": "mixer-s16", "ConvNeXt-T": "convnext-t"}
for title, name in systems.items():
    for row in cost(name, probe=True).probe.rows:
        if row.found and row.found.mixing != "per-token" and row.path.startswith("stages.0.block.0"):
            weights = "content-dependent" if row.found.content_dependent else "fixed"
            print(f"{title:10}  {row.title:24} {row.found.mixing:6} {weights}")

# %% [markdown]
# **Claim.** Tokens interact in attention and in nothing else. Projections, norms, MLPs and patch merging are per-token.
#
# This is true for every row of ViT and Swin. Patch merging is a special case: it makes each new token from four old
# ones. It reads no other tokens, so it counts as per-token, although it combines the four old ones.

# %%
for row in swin.by("stage")["stage 2"][:3]:
    print(f"{row.title:24} {row.mixing:9}  {row.macs:>10,} MACs  {row.params:>6,} parameters")
print("tokens × width that leave each stage:", [f"{one['tokens']} × {one['width']}" for one in swin.by_stage()])

# %% [markdown]
# **Claim.** More depth adds per-token capacity for free.
#
# **Error.** The lecture means that mixing happens once per block. But depth is not free: twice the blocks cost twice as
# much.

# %%
for depth in (12, 24):
    deep = cost("vit", f"stages.0.depth={depth}", N=784)
    print(f"{depth} blocks: {deep.total('params') / 1e6:.1f} M parameters, {deep.total('macs') / 1e9:.1f} G MACs")

# %% [markdown]
# ## Section 2: cost and the mixing operations
#
# **Claim.** At N = 784 each head of a block computes 784² ≈ 614,000 scores. Windows of 7×7 need 784 × 49 = 38,416:
# 16 times fewer.

# %%
scores = {model.metadata.name: model.by("operation")["scores"][0] for model in models}
print(f"all pairs {784 * 784:,}, in windows {784 * 49:,}, ratio {784 // 49}")
for name, row in scores.items():
    print(f"{name}: {row.attention_entries // row.heads:,} scores per head, {row.order}")

# %% [markdown]
# **Error.** ViT also has the class token of section 1: 785 tokens, and 616,225 scores per head. The lecture's
# 784² = 614,656 leaves it out.
#
# **Claim.** On logarithmic axes full attention is a line of slope 2, windowed attention one of slope 1.

# %%
comparison = xfcost.compare("vit", "swin", N=784)
for name, growth in comparison.growth.items():
    print(f"{name}: mixing MACs grow as N^{growth['mixing_macs']:.2f} from 784 to {784 * growth['factor']:,.0f} tokens")

# %%
xfcost.plot("vit", "swin", metric="scores", N="49:12544")

# %% [markdown]
# **Claim.** The mixing operations have no parameters; nearly all parameters are in per-token operations.
#
# **Error.** This is true for QKᵀ, softmax and AV. The lecture's table also lists Swin's relative position bias as
# mixing, and this bias is learned.

# %%
for model in models:
    held = {row.title: row.params for row in model.rows if row.mixes and row.params}
    share = model.total("params", lambda row: not row.mixes) / model.total("params")
    print(f"{model.metadata.name}: {share:.2%} per-token; mixing operations with parameters: {list(held) or 'none'}")

# %% [markdown]
# **Claim** (the table). QKᵀ costs O(N²·d_k) per head, softmax O(N²), AV O(N²·d_v), both windows O(N·W²·d_k).
# The table of the relative bias is O(W⁴), and applying it O(N·W²).
#
# xfcost's orders are of all heads, so h·d_k = d replaces d_k.
#
# **Error.** A table has one entry per offset, (2W - 1)² = 169 for each head: O(W²). W⁴ = 2,401 is the matrix of
# 49×49 biases that one window looks up in it.

# %%
for model in models:
    for title, order in {row.title: row.order for row in model.rows if row.mixes and row.order}.items():
        print(f"{model.metadata.name:8} {title:24} {order}")
bias = swin.by("operation")["relative_bias"][0]
print(f"{bias.title}: {bias.params} parameters = 3 heads × {13 * 13}")

# %% [markdown]
# **Claim** (takeaway 2). The quadratic cost comes only from QKᵀ.
#
# **Error.** AV costs exactly as much. Mixing has less than half of the MACs until N is about 6·d = 2,304.

# %%
rows = vit.by("operation")
print(f"QKᵀ {rows['scores'][0].macs:,} MACs, AV {rows['weighted_sum'][0].macs:,} MACs")
for tokens in (784, 2304, 9216):
    model = cost("vit", N=tokens)
    mixing = model.total("macs", lambda row: row.mixes) / model.total("macs")
    print(f"N = {tokens:5,}: mixing has {mixing:.0%} of all MACs")

# %% [markdown]
# ## Section 3: a block in full
#
# **Claim.** A ViT block and a Swin block differ only in their attention.

# %%
kinds = {"vit": "stage 1 · Self-attention", "swin": "stage 1 · W-MSA"}
blocks = [model.by("block")[block] for model, block in zip(models, kinds.values(), strict=True)]
arithmetic = [[row.title for row in block if not row.mixes and not row.only_moves] for block in blocks]
print(f"{len(arithmetic[0])} per-token operations, the same in the same order: {arithmetic[0] == arithmetic[1]}")

# %% [markdown]
# Both blocks, box by box, coloured by kind:

# %%
xfcost.diagram("vit", "swin", N=784)

# %% [markdown]
# **Claim.** Residual adds are per-token sums without parameters.

# %%
for model in models:
    adds = model.by("operation")["residual_add"]
    kinds, orders = ({getattr(row, name) for row in adds} for name in ("mixing", "order"))
    print(f"{model.metadata.name}: {kinds}, {orders}, {sum(row.params for row in adds)} parameters")

# %% [markdown]
# **Claim.** A pair of W-MSA and SW-MSA lets every patch attend across the borders of its window.
#
# **Error.** This is true for nearly every patch. In the corners of the image the shifted window lies inside the first
# one.

# %%
grid = Grid(sides=(56, 56))
plain, shifted = (Window(heads=3, size=7, shift=shift) for shift in (0, 3))
inside = [token for token in range(56 * 56) if set(shifted.reads(grid, token)) <= set(plain.reads(grid, token))]
print(f"{len(inside)} of {56 * 56:,} patches of Swin-T's first stage meet nobody new in SW-MSA")

# %% [markdown]
# ## Section 4: the residual stream
#
# **Claim.** X₁ = X + ΔA(X) and X₂ = X₁ + ΔF(X₁). Only ΔA brings information from other positions.
#
# `stream` runs the model with random weights, adds up the deltas of its sub-layers, and changes one token.

# %%
found = xfcost.stream("vit-ti16")
for step in found.blocks[0]:
    print(
        f"{step.formula}: one token changed, {step.changed.rows} of {step.changed.of_rows} rows of {step.symbol} change"
    )
print("all sums hold to rounding:", all(check.within for check in found.checks))

# %% [markdown]
# **Claim.** No block overwrites the stream; what it adds stays.
#
# **Error** for other transformers. The first transformer normalises the sum, so every sub-layer rescales the stream.
# Swin's patch merging makes a new stream of fewer, wider tokens.

# %%
for name, size in (("transformer-base", {"N": 16}), ("swin-t", {"size": 56})):
    found = xfcost.stream(name, **size)
    shapes = dict.fromkeys(f"{step.tokens} × {step.width}" for step in found.steps)
    print(f"{name}: {found.steps[0].formula}; stream of", " → ".join(shapes))

# %% [markdown]
# **Claim.** The panels X → X₁ → X₂ of four tokens with d = 4 show this in numbers.

# %%
# !env -u FORCE_COLOR xfcost stream tiny | head -19

# %% [markdown]
# ## Where to go next
#
# - [Efficient transformers](2-efficient-transformers.ipynb), [attention and transformers](3-attention.ipynb),
#   [vision transformers](4-vision-transformers.ipynb), [attention, in notes](5-attention-notes.ipynb)
# - [Will my language model fit, and how long will it train?](../tutorials/fit-and-train.md)
# - [An architecture of your own](../tutorials/your-architecture.md)
