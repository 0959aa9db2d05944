"""Small specs with every kind of residual connection, for the tests of `xfcost stream`."""

from pathlib import Path

IMAGE = "input: {kind: image, size: 32, channels: 3}\nembed: [{kind: patch, size: 8}]"
WORDS = "input: {kind: tokens, vocabulary: 50, length: 24}\nembed: [{kind: token}]"
VECTORS = "input: {kind: vectors, channels: 8, length: 12}"


def stage(*sublayers: str, dim: int = 16, depth: int = 1) -> str:
    return f"stages: [{{dim: {dim}, depth: {depth}, block: [{', '.join(sublayers)}]}}]"


MLP, FULL, CAUSAL = "{kind: mlp, ratio: 2}", "{kind: full, heads: 2}", "{kind: full, heads: 2, causal: true}"
ATTENDS = f"{IMAGE}\n{stage(FULL, MLP)}"
PRE, POST = ([("ΔA", place, 16), ("ΔF", place, 1)] for place in ("pre", "post"))

# name -> (the spec; of each sub-layer of the first block: its Δ, how it joins, rows of Δ that change with one token)
BLOCKS: dict[str, tuple[str, list[tuple[str, str, int]]]] = {
    "pre-norm": (f"{IMAGE}\n{stage(FULL, MLP, depth=2)}", PRE),
    "post-norm": (f"residual: {{place: post}}\n{ATTENDS}", POST),
    "post-norm of roots": (f"residual: {{place: post, norm: rms_norm}}\n{ATTENDS}", POST),
    "post-norm over all tokens": (f"residual: {{place: post, norm: group_norm}}\n{ATTENDS}", POST),
    "batch norm behind the sum": (f"residual: {{place: post, norm: batch_norm}}\n{ATTENDS}", POST),
    "sum without a norm": (f"residual: {{place: post, norm: none}}\n{ATTENDS}", POST),
    "SwinV2": (
        f"residual: {{place: res_post}}\n{IMAGE}\n"
        + stage("{kind: window, size: 2, heads: 2, score: cosine, bias: log_cpb, key_bias: false}", MLP),
        [("ΔA", "res_post", 4), ("ΔF", "res_post", 1)],
    ),
    "LayerScale": (f"residual: {{layer_scale: 1.0e-5}}\n{ATTENDS}", PRE),
    "reversible": (
        f"residual: {{form: reversible}}\n{WORDS}\n" + stage(CAUSAL, MLP, depth=2),
        [("ΔA", "reversible", 12), ("ΔF", "reversible", 1)],
    ),
    "Conformer": (
        f"{VECTORS}\n"
        + stage(
            "{kind: mlp, act: silu, residual: {factor: 0.5}}", "{kind: relative, heads: 2, projection_bias: true}",
            "{kind: conv_module, size: 5}", "{kind: mlp, act: silu, residual: {factor: 0.5}}", "{kind: norm}", dim=8,
        ),
        [("ΔF₁", "pre", 1), ("ΔA₁", "pre", 12), ("ΔA₂", "pre", 5), ("ΔF₂", "pre", 1), ("", "none", 1)],
    ),
    "causal": (f"{WORDS}\n{stage(CAUSAL, MLP)}", [("ΔA", "pre", 12), ("ΔF", "pre", 1)]),
    "Mamba": (
        f"residual: {{norm: rms_norm}}\n{WORDS}\n{stage('{kind: mamba, state: 4, conv: 4, expand: 2}', depth=2)}",
        [("ΔA", "pre", 12)],
    ),
    "no residual": (f"residual: none\n{WORDS}\n{stage('{kind: lstm}')}", [("", "none", 12)]),
    "MLP-Mixer": (f"{IMAGE}\n{stage('{kind: token_mlp, hidden: 8}', MLP)}", PRE),
    # 3×3 neighbours, and the norm over all tokens
    "PoolFormer": (
        f"residual: {{norm: group_norm}}\n{IMAGE}\n{stage('{kind: average_pool, size: 3}', MLP)}",
        [("ΔA", "pre", 16), ("ΔF", "pre", 16)],
    ),
    "ConvNeXt": (
        f"residual: {{norm: none, layer_scale: 1.0e-6}}\n{IMAGE}\n{stage('{kind: convnext, size: 3}')}",
        [("ΔA", "pre", 9)],
    ),
    "ResNet": (f"{IMAGE}\n{stage('{kind: bottleneck, width: 8}')}", [("ΔA", "inside", 9)]),
    "ResNet of basic blocks": (f"{IMAGE}\n{stage('{kind: basic}')}", [("ΔA", "inside", 16)]),
    "squeeze and excitation": (
        f"{IMAGE}\n{stage('{kind: bottleneck, width: 16, squeeze: 0.5}')}", [("ΔA", "inside", 16)],
    ),
    "shortcut": (f"{IMAGE}\nstages: [{{dim: 16, blocks: [[{{kind: basic, stride: 2}}]]}}]", [("ΔA", "inside", 4)]),
    "MobileNet": (f"{IMAGE}\n{stage('{kind: inverted_residual, ratio: 2}')}", [("ΔA", "inside", 9)]),
    "Fourier": (f"{WORDS}\n{stage('{kind: fourier_mixing}', MLP)}", [("ΔA", "pre", 24), ("ΔF", "pre", 1)]),
    "Hyena": (f"{WORDS}\n{stage('{kind: hyena}')}", [("ΔA", "pre", 12)]),
    "experts": (
        f"{WORDS}\n{stage(CAUSAL, '{kind: moe, experts: 4, active: 2, expert: {kind: mlp, hidden: 16}}')}",
        [("ΔA", "pre", 12), ("ΔF", "pre", 1)],
    ),
}  # fmt: skip


def spec_file(folder: Path, text: str) -> Path:
    file = folder / "spec.yaml"
    file.write_text(f"name: toy\n{text}\n", encoding="utf-8")
    return file
