# %% [markdown]
# # Vision transformers
#
# Attention in CNNs and instead of convolution, patches, distillation, windows, pooling, and no attention at all.
# This notebook follows the chapter *Lecture 18: Vision Transformers*, section by section.
# Numbers come from models that xfcost builds in torch and traces; those of cells with `trace=False` come only from its
# formulas.

# %%
try:
    import xfcost
except ModuleNotFoundError:
    raise SystemExit("This notebook needs xfcost: run pip install . in its repository, then all cells.") from None

import functools
import math


@functools.cache
def cost(name, *settings, **options):
    """The ledger of a system: counted in closed form, and equal to the trace of its running model."""
    ledger = xfcost.analyze(name, settings=settings, **options)
    assert ledger.agreement.exact
    return ledger


def line(name, ledger):
    """Its tokens, parameters and MACs."""
    params, macs = (ledger.total(quantity) for quantity in ("params", "macs"))
    return f"{name:18} {ledger.metadata.tokens:16} {params / 1e6:7.2f} M parameters {macs / 1e9:7.2f} G MACs"


# %% [markdown]
# ## 18.2: attention in CNNs
#
# **Claim.** Attention layers add parameters and computation, and their pairs grow quadratically with the pixels.

# %%
for size in (224, 448):
    for name in ("resnet-50", "resnet-50-nl5"):
        ledger = cost(name, size=size)
        pairs = ledger.total("macs", lambda row: row.mixing == "global")
        print(f"{line(f'{name}, {size}', ledger)}, global mixing {pairs / 1e9:.2f} G")

# %% [markdown]
# ## 18.3: local attention instead of convolution
#
# **Claim.** The weights of a convolution are the same everywhere; local attention computes them from the content.
#
# `probe` finds it by changing the input of the running operation.

# %%
for name in ("resnet-26", "sasa-26"):
    for row in cost(name, probe=True).probe.rows[:16]:
        if row.found and row.found.mixing != "per-token":
            dependent = "content-dependent" if row.found.content_dependent else "static"
            print(f"{name:10} {row.title:24} {row.found.mixing} mixing, {dependent}")

# %% [markdown]
# **Claim.** A convolution costs O(HW·C_in·C_out·K²), local attention O(HW·D·K²).
#
# 9·3,136·64² = 115,605,504 for the 3×3 convolution of ResNet-50's first block.
#
# **Error.** Local attention has projections too, 3·D² per position; with D = 64 and K = 7 they cost twice as much as
# the scores and sums.

# %%
for name in ("resnet-50", "sasa-50"):
    block = cost(name).by("block")
    rows = next(rows for title, rows in block.items() if title.startswith("stage 1"))
    chosen = ("conv2", "spatial_qkv", "spatial_scores", "spatial_weighted_sum")
    for row in rows:
        if row.operation in chosen:
            print(f"{name:10} {row.title:22} {row.macs:>11,} MACs, {row.order}")

# %% [markdown]
# **Claim** (18.3.4). Local operators reach far only after many layers; global attention at once.
#
# `reach` composes what the blocks read: the share of the image that has reached a token, in the median.

# %%
for name in ("resnet-50", "sasa-50", "vit-b16"):
    found = xfcost.reach(name)
    known = " → ".join(f"{block.met[0].share:.0%}" for block in found.blocks[:6])
    after = "not in its blocks" if found.path_length is None else f"after block {found.path_length}"
    print(f"{name:10} {known}; all {after}; receptive field {found.receptive_field or 'global'}")

# %% [markdown]
# ## 18.4: from pixels to patches
#
# **Claim.** R = 128 with 48 layers of 16 heads needs 768 GB for the attention matrices.

# %%
print(f"{cost('pixels-128').attention_memory()['all_layers'] / 2**30:g} GiB")

# %% [markdown]
# The chapter ascribes this to the paper on iGPT (its [83]). The number is correct, but that paper has no such model:
# its images have at most 64×64 positions:

# %%
for name in ("igpt-l", "igpt-l-48", "igpt-l-64"):
    ledger = xfcost.analyze(name, trace=False)
    memory = ledger.attention_memory()["all_layers"] / 2**30
    print(f"{name:10} {ledger.metadata.tokens} positions, {memory:g} GiB in {ledger.by_stage()[0]['blocks']} layers")

# %% [markdown]
# **Claim** (18.4.2, 18.4.5). 224×224 pixels are 50,176 tokens, 16×16 patches 196: 256 times fewer, and
# 65,536 times fewer attention computations.
#
# **Error.** Pairs fall 65,536 times (64,875 with the class token, which the chapter adds). The model's cost falls
# less, since most of it is per-token.

# %%
pixels, patches = (xfcost.analyze(name, trace=False) for name in ("pixels-224", "vit-b16"))
for title, kind in (("mixing", lambda row: row.mixes), ("per-token", lambda row: not row.mixes), ("all", None)):
    print(f"{title:10} {pixels.total('macs', kind) / patches.total('macs', kind):10,.0f}× fewer MACs")

# %% [markdown]
# **Claim** (18.4.1). A patch is projected by one linear map, or by a convolution with the stride of a patch.
#
# xfcost's model is the convolution; the matrix has as many parameters and MACs.

# %%
row = cost("vit-b16").by("operation")["projection"][0]
print(f"{row.params:,} parameters = 16·16·3·768 + 768: {16 * 16 * 3 * 768 + 768:,}")
print(f"{row.macs:,} MACs = 196·768·768: {196 * 768 * 768:,}")

# %% [markdown]
# **Claim** (18.4.7). Smaller patches and larger models cost more.

# %%
for name in ("vit-ti16", "vit-s16", "vit-b32", "vit-b16", "vit-l16", "vit-h14"):
    print(line(name, cost(name)))

# %% [markdown]
# **Error** (18.4.7). Data sets "30–300 times larger" than ImageNet: by the chapter's own numbers (18.4.6), 14 M and
# 300 M images against 1.3 M, it is 11 and 231 times.
#
# ## 18.5: DeiT
#
# **Claim** (18.5.1). With P = (0.50, 0.49, 0.01): CE(Q₁) = CE(Q₂) = 0.693, KL(P‖Q₁) = 0.025, KL(P‖Q₂) = 1.862.
#
# **Error.** The two divergences are 0.026 and 1.868.

# %%
teacher = (0.50, 0.49, 0.01)
for student in ((0.50, 0.45, 0.05), (0.50, 0.01, 0.49)):
    kl = sum(p * math.log(p / q) for p, q in zip(teacher, student, strict=True))
    print(f"Q = {student}: CE {-math.log(student[0]):.3f}, KL {kl:.4f}")

# %% [markdown]
# **Claim** (18.5, 18.5.2). The distillation token costs nothing at inference but a second head.
#
# **Error.** One token more in every block: 0.5 % of the MACs, nearly all of it outside the head.

# %%
plain, distilled = (cost(name) for name in ("deit-b", "deit-b-distilled"))
more = distilled.total("macs") - plain.total("macs")
head = [row.macs for row in distilled.rows if row.operation == "distillation_linear"]
print(f"{more:,} MACs more ({more / plain.total('macs'):.1%}), of which the second head has {head[0]:,}")
print(f"{distilled.total('params') - plain.total('params'):,} parameters = head 769,000 + token 768 + position 768")

# %% [markdown]
# **Claim** (18.5.2). At 384 pixels with the same patches the sequence is longer, and the position table is
# interpolated: nothing else changes shape.

# %%
small, large = (cost(name) for name in ("deit-b", "deit-b-384"))
ratio = large.total("macs") / small.total("macs")
print(f"{small.metadata.tokens} → {large.metadata.tokens} tokens, {ratio:.2f}× the MACs")
print(f"{large.total('params') - small.total('params'):,} parameters more = (576 - 196) × 768 = {(576 - 196) * 768:,}")

# %% [markdown]
# **Claim** (18.5.3). Ti, S and B have widths 192, 384 and 768 with 3, 6 and 12 heads of 64.
# The teacher, RegNetY-16GF, is of similar size as DeiT-B.

# %%
for name in ("deit-ti", "deit-s", "deit-b"):
    ledger = cost(name)
    heads, width = ledger.by("operation")["scores"][0].heads, ledger.by_stage()[0]["width"]
    print(f"{line(name, ledger)}, {heads} heads of {width // heads}")
print(line("regnety-16gf", cost("regnety-16gf")))

# %% [markdown]
# **Claim** (18.5.4). DeiT III scales every residual branch by a learned number per channel (LayerScale).

# %%
row = cost("deit3-b").by("operation")["residual_layer_scale"][0]
print(f"{row.title}: {row.params} parameters, {row.order}, twice in each of {row.times} blocks")

# %% [markdown]
# **Claim** (18.5.4). ViT and DeiT are isotropic; with a fixed patch their attention grows quadratically with the
# number of patches.

# %%
for size in (224, 448, 896):
    rows = [xfcost.analyze(name, size=size, trace=False) for name in ("deit-b", "swin-b")]
    text = (f"{row.metadata.name} {row.attention_memory()['all_layers'] / 2**20:7,.0f} MiB" for row in rows)
    print(f"{size}×{size}: matrices of", ", ".join(text))

# %% [markdown]
# The MACs of both over the side of the image:

# %%
xfcost.plot("deit-b", "swin-b", metric="macs", size="224:1024")

# %% [markdown]
# ## 18.6: Swin
#
# **Claim** (18.6.2). A window costs O(M⁴·C), all of them O(N·M²·C), with N = HW/16 tokens.

# %%
row = cost("swin-t").by("operation")["scores"][0]
print(f"{row.macs:,} MACs = 64 windows × 49² × 96: {64 * 49**2 * 96:,}; {row.order}")

# %% [markdown]
# **Claim** (18.6.4). Windows alone never meet; shifted by ⌊M/2⌋ = 3 they pass information on, block by block, and
# patch merging shortens the way.
#
# One window after W-MSA, four after SW-MSA. Without merging (24 blocks in stage 1) the same takes longer.

# %%
for title, settings in (("Swin-T", []), ("without merging", ["stages.0.depth=24"])):
    found = xfcost.reach("swin-t", settings=settings)
    known = " → ".join(f"{block.met[0].median:,.0f}" for block in found.blocks[:7])
    print(f"{title}: {known}; all 3,136 after block {found.path_length}")

# %% [markdown]
# **Claim** (18.6.5). The cyclic shift needs no padding: as many windows as before, and a mask.
#
# Plain shifting would need 9×9 windows instead of 8×8.

# %%
swin = cost("swin-t")
for row in swin.by("operation")["scores"][:2]:
    print(f"{row.block}: {row.macs:,} MACs, {row.pairs / (row.attention_entries // row.heads):.0%} of the pairs kept")
print(f"81 windows instead of 64: {81 / 64:.2f}× the MACs")

# %% [markdown]
# **Claim** (18.6.6). Merging joins 2×2 patches and maps 4C to 2C.

# %%
row = swin.by("operation")["reduction"][0]
print(f"{row.title}: {row.params:,} parameters = (4·96) × (2·96), {row.order}, {row.macs:,} MACs")
print(" → ".join(f"{stage['tokens']:,} × {stage['width']}" for stage in swin.by_stage()))

# %% [markdown]
# **Claim** (18.6.7). The relative bias is a table of (2M - 1)² = 169 entries. It does not depend on the image's size,
# where ViT's position table does.
#
# Each head has a table. (The formula divides by √C in Swin's section and calls C the width of a head only later, in
# V2's: it is √(C/h).)

# %%
row = swin.by("operation")["relative_bias"][0]
print(f"stage 1: {row.params} parameters = 3 heads × 169")
for name in ("swin-t", "vit-b16"):
    print(f"{name}: {cost(name).bound_params:,} parameters depend on the image's size")

# %% [markdown]
# **Claim** (18.6.8, table). Grids, widths, blocks and heads of Swin-T, -S, -B and -L.

# %%
for name in ("swin-t", "swin-s", "swin-b", "swin-l"):
    ledger = cost(name)
    heads = {row.stage: row.heads for row in ledger.by("operation")["scores"]}
    stages = [(one["grid"][0], one["width"], one["blocks"], heads[one["stage"]]) for one in ledger.by_stage()]
    print(f"{name}: (side, width, blocks, heads):", *stages)

# %% [markdown]
# **Claim** (18.6.8). Swin compared with DeiT, EfficientNet and RegNetY: its windows let it scale to high resolution
# without a quadratic cost.
#
# So do the two CNNs; DeiT does not. [Vision](../vision.md) compares all sizes, with published accuracy and speed.

# %%
for name, size in (("swin-t", 448), ("deit-s", 448), ("efficientnet-b4", 760), ("regnety-4.0gf", 448)):
    small, large = cost(name), xfcost.analyze(name, size=size, trace=False)
    growth = large.total("macs") / small.total("macs")
    print(f"{line(name, small)}; four times the pixels: {growth:.2f}× the MACs")

# %% [markdown]
# ## 18.7: successors
#
# **Claim** (18.7.1). Swin V2 computes its biases by a small network: the parameters no longer grow with M².
#
# This is true. But the network, 2→512→h, is larger than the table of (2M - 1)²·h until M is 12, with 3 heads until 17.

# %%
for window, name in ((8, "swinv2-t-w8-256"), (16, "swinv2-t-w16-256")):
    rows = [row for row in cost(name).by("stage")["stage 1"] if row.operation.startswith("cpb")][:4]
    network = sum(row.params for row in rows)
    print(f"M = {window:2}: network {network:,} parameters, a table would have {(2 * window - 1) ** 2 * 3:,}")

# %% [markdown]
# **Claim** (18.7.1). Cosine attention has a learned temperature; the norm is after the branch; the largest models have
# one more on the main branch every 6 blocks.

# %%
row = cost("swinv2-t-w8-256").by("operation")["cosine_temperature"][0]
print(f"{row.title}: {row.params} parameters, one per head")
print(xfcost.stream("swinv2-t-w8-256", size=64).steps[0].formula, "with ΔA(X) = norm(f(X))")
norms = [row for row in xfcost.analyze("swinv2-h-w12-192", trace=False).rows if row.title == "Layer norm"]
extra = [row for row in norms if row.role is None and row.stage == "stage 3" and row.times == 3]
print(f"SwinV2-H, stage 3: {sum(row.times for row in extra)} more norms in 18 blocks")

# %% [markdown]
# **Claim** (18.7.2). MViT pools queries to build stages, and keys and values to save compute; attention stays global.
#
# A query reads all pooled keys: in stage 1, 197 instead of 3,137.

# %%
mvit = cost("mvit-b-16")
for stage in mvit.by_stage():
    row = next(row for row in mvit.by("stage")[stage["stage"]] if row.operation == "scores")
    leaves = f"{stage['tokens']:,} × {stage['width']} leave it"
    print(f"{stage['stage']}: {leaves}; a query reads {row.reads_tokens} keys, {row.order}")

# %% [markdown]
# **Claim** (18.7.2). The first block of a stage pools and widens: (56×56, 96) → (28×28, 192).
#
# **Error.** This is true for MViTv2. In MViT the width doubles in the last MLP of the stage before (192 above).

# %%
mvit2 = cost("mvitv2-t")
print(" → ".join(f"({stage['grid'][0]}×{stage['grid'][1]}, {stage['width']})" for stage in mvit2.by_stage()))

# %% [markdown]
# **Claim** (18.7.3). Relative positions are decomposed into axes, linear in each; the pooled queries are added back at
# negligible cost; windows (Hwin) save at detection's sizes.

# %%
rows = mvit2.by("operation")
print(f"{rows['tables'][0].title}: {rows['tables'][0].params:,} parameters, jointly {(2 * 56 - 1) ** 2 * 96:,}")
share = mvit2.part(rows["add_queries"]).total("flops") / mvit2.total("flops")
print(f"{rows['add_queries'][0].title}: {share:.2%} of all FLOPs")
for name in ("mvitv2-b", "mvitv2-b-hwin"):
    large = xfcost.analyze(name, size=896, trace=False)
    memory = large.attention_memory()["all_layers"] / 2**20
    print(f"{name} at 896: {large.total('macs') / 1e9:.0f} G MACs, matrices {memory:,.0f} MiB")

# %% [markdown]
# ## 18.8: MLP-Mixer
#
# **Claim** (18.8.1). The channel-mixing MLP comes first, the token-mixing MLP second.
#
# **Error.** Tokens come first in the published model, and in the chapter's own formulas, where U of (2) enters (1).

# %%
mixer = cost("mixer-b16")
for row in mixer.by("stage")["stage 1"]:
    if row.macs:
        print(f"{row.title:24} {row.mixing:9} {row.order:10} {row.params:>9,} parameters")

# %% [markdown]
# **Claim.** The token-mixing weights are N×N; they are static, global, and tied to the resolution.
#
# **Error.** They are not N×N: the maps are 196×384 and 384×196, so the cost is linear in N. They still depend on N.

# %%
growth = xfcost.compare("vit-b16", "mixer-b16").growth
print({name: f"mixing ~ N^{power['mixing_macs']:.2f}" for name, power in growth.items()})
print(f"{mixer.bound_params:,} of {mixer.total('params'):,} parameters depend on N")

# %% [markdown]
# All of their MACs, and those of a Swin, on an image of 224×224:

# %%
xfcost.compare("vit-b16", "mixer-b16", "swin-b", size=224, thorough=False)

# %% [markdown]
# **Claim** (18.8.2). ViTs attend to any sequence length, as CNNs slide.
#
# This is true except for the position table: 151,296 of ViT-B/16's parameters depend on N too (above), and are
# interpolated.

# %% [markdown]
# ## Where to go next
#
# [Vision](../vision.md); [presets and published figures](../gallery.md).
