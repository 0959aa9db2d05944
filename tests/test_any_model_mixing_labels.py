"""Kinds of modules of published families, labelled by hand: what each operation reads when it runs."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

import xfcost
from modules import Module
from test_any_model_mixing import kinds

D = 8


def attended(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return (query @ key.transpose(-2, -1)).softmax(-1) @ value


def channel_attention(self: Any, x: Tensor) -> Tensor:
    """XCiT: channels read each other over all tokens, then a convolution along the tokens."""
    query, key, value = self.qkv(x).transpose(1, 2).chunk(3, 1)
    return self.along(attended(query, key, value))


def normalised_by_hand(self: Any, image: Tensor) -> Tensor:
    """NesT: patches of 4 × 4 pixels lie on the channels, and are normalised by their own mean and variance."""
    patches = F.pixel_unshuffle(image, 4)
    patches = (patches - patches.mean(1, keepdim=True)) / (patches.var(1, keepdim=True) + 1e-5).sqrt()
    return self.map(patches)


def conditioned(self: Any, image: Tensor, condition: Tensor) -> Tensor:
    tokens = self.patches(image).flatten(2).transpose(1, 2)
    return self.linear(tokens * self.scale(condition)[:, None])


def pooled_query(self: Any, x: Tensor, condition: Tensor) -> Tensor:
    return attended(self.query(condition)[:, None], x, x)


def delta_rule(self: Any, x: Tensor) -> Tensor:
    """Gated DeltaNet in chunks of 8 tokens, the last padded: a triangle is solved in each, and a state handed on."""
    chunks = F.pad(self.parts(x), (0, 0, 0, -x.shape[1] % 8)).unflatten(1, (-1, 8))
    query, key, value, decay = chunks.split([D, D, D, 1], -1)
    value, read = (
        torch.linalg.solve_triangular(key @ key.mT, one, upper=False, unitriangular=True) for one in (value, key)
    )
    state, outputs = x.new_zeros(len(x), D, D), []
    for at in range(chunks.shape[1]):
        new = value[:, at] - read[:, at] @ state
        outputs.append(query[:, at] @ state + (query[:, at] @ key[:, at].mT).tril() @ new)
        state = state * decay[:, at, -1:].sigmoid() + key[:, at].mT @ new
    return self.out(torch.cat(outputs, 1)[:, : x.shape[1]])


class Block(nn.Module):
    """A transformer's block of one head, normalised first."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm, self.qkv, self.second = nn.LayerNorm(dim), nn.Linear(dim, 3 * dim), nn.LayerNorm(dim)
        self.up, self.down = nn.Linear(dim, D), nn.Linear(D, dim)

    def forward(self, x: Tensor) -> Tensor:
        x = x + attended(*self.qkv(self.norm(x)).chunk(3, -1))
        return x + self.down(F.gelu(self.up(self.second(x))))


def unfolded(self: Any, image: Tensor) -> Tensor:
    """T2T: vectors put together of nine overlapping tokens, and blocks over them."""
    return self.blocks(F.unfold(self.patches(image), 3, padding=1, stride=2).transpose(1, 2))


def detr(self: Any, image: Tensor) -> Tensor:
    """Five learned queries read each other and the image, twice."""
    return self.decoder(self.queries[0][None], self.patches(image).flatten(2).transpose(1, 2))


class Neighbourhood(nn.Module):
    """Keys and values of the tokens around each, gathered by an index buffer: 8 × 8 tokens, and no other size."""

    index: Tensor

    def __init__(self, far: int = 1) -> None:
        super().__init__()
        self.qkv = nn.Linear(D, 3 * D)
        near = torch.arange(8).clamp(far, 7 - far)[:, None] + torch.arange(-far, far + 1)
        self.register_buffer("index", (near[:, None, :, None] * 8 + near[None, :, None, :]).reshape(64, -1))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (one.unflatten(-1, (2, 4)).transpose(1, 2) for one in self.qkv(x).chunk(3, -1))
        return attended(query.unsqueeze(3), key[:, :, self.index], value[:, :, self.index])


class Windows(nn.Module):
    """Attention in windows of 4 × 4 tokens on a grid of `side` × `side`."""

    def __init__(self, side: int) -> None:
        super().__init__()
        self.qkv, self.side, self.window_size = nn.Linear(D, 3 * D), side, 4

    def forward(self, x: Tensor) -> Tensor:
        windows = x.unflatten(1, (self.side // 4, 4, self.side // 4, 4)).transpose(2, 3).reshape(-1, 16, D)
        return attended(*self.qkv(windows).chunk(3, -1))


def shrinking(self: Any, image: Tensor) -> Tensor:
    """Windows on 16 × 16 tokens, and a single one on the 4 × 4 that are left."""
    x = self.patches(image).flatten(2).transpose(1, 2) + self.positions[0]
    x = self.many(x).unflatten(0, (4, 4)).unflatten(2, (4, 4)).transpose(1, 2).reshape(1, 16, 16, D)
    return self.one(self.merge(x.permute(0, 3, 1, 2)).flatten(2).transpose(1, 2))


def finer_and_coarser(self: Any, image: Tensor) -> Tensor:
    return self.along(torch.cat([F.interpolate(self.down(image), scale_factor=2), image], 1))


def over_edges(self: Any, x: Tensor, edges: Tensor) -> Tensor:
    messages = self.first(x)
    return self.second(torch.zeros_like(messages).index_add(0, edges[1], messages[edges[0]]))


def pointwise_net(self: Any, x: Tensor) -> Tensor:
    """PointNet: the maximum over all tokens, beside each of them."""
    x = self.first(x)
    return self.joined(torch.cat([x, x.amax(1, keepdim=True).expand_as(x)], -1))


def heads(**options: Any) -> nn.MultiheadAttention:
    return nn.MultiheadAttention(D, 2, batch_first=True, **options)


def edge_convolution(self: Any, x: Tensor) -> Tensor:
    """DGCNN: each token beside its differences to the four nearest ones."""
    nearest = torch.cdist(x, x, 1).topk(4, largest=False).indices
    near = x[:, nearest[0]]
    own = x[:, :, None].expand_as(near)
    return F.relu(self.map(torch.cat([own, near - own], -1))).amax(2)


def scan(self: Any, x: Tensor) -> Tensor:
    state, states = torch.zeros_like(x[:, 0]), []
    for token in range(x.shape[1]):
        state = self.a[0].sigmoid() * state + x[:, token]
        states.append(state)
    return torch.stack(states, 1)


IMAGE, TOKENS = torch.randn(1, 3, 64, 64), torch.randn(1, 64, D)
Label = tuple[str, str, int | None, bool]


def core(kind: str, reads: int, *modules: str) -> list[Label]:
    """The rows of attention written out, of the modules or of the network itself."""
    return [(f"{at}{name}", kind, reads, True) for at in modules or [""] for name in ("bmm", "_softmax", "bmm_2")]


EDGES = torch.stack([torch.arange(29), torch.arange(1, 30)]).repeat(1, 2)


def windows_of_heads(self: Any, x: Tensor) -> Tensor:
    """Four heads of windows of four tokens, all in one batch of products."""
    heads = x.unflatten(1, (-1, 4)).unflatten(-1, (4, D // 4)).transpose(2, 3).flatten(0, 2)  # windows × heads
    out = attended(heads, heads, heads).unflatten(0, (-1, 4)).transpose(1, 2).flatten(2)
    return self.out(x + out.flatten(0, 1)[None])


def resampled(self: Any, x: Tensor) -> Tensor:
    """Flamingo's resampler: queries that read the tokens, and themselves beside them."""
    latents = self.latents[0]
    for layer in self.layers:
        latents = latents + layer(latents, torch.cat([x, latents], 1), torch.cat([x, latents], 1))[0]
    return latents


def in_buckets(self: Any, x: Tensor) -> Tensor:
    """Causal linear attention: a token reads the sums of all buckets before its own, which has 8 tokens."""
    query, key, value = self.qkv(x).unflatten(1, (-1, 8)).chunk(3, -1)
    key = key.exp()
    keys, state = key.sum(2).cumsum(1), torch.einsum("bund,bune->bude", key, value).cumsum(1)
    keys, state = F.pad(keys, (0, 0, 1, 0))[:, :-1], F.pad(state, (0, 0, 0, 0, 1, 0))[:, :-1]
    scale = 1 / (torch.einsum("bud,bund->bun", keys, query) + 1e-3)
    return self.out(torch.einsum("bund,bude,bun->bune", query, state, scale).flatten(1, 2))


def gated_chunks(self: Any, x: Tensor) -> Tensor:
    """Gated linear attention in chunks of 8 tokens: every row of the state decays by a number of its own."""
    parts = self.parts(x).unflatten(1, (-1, 8)).split([D, D, D, D], -1)
    state, outputs = x.new_zeros(len(x), D, D), []
    for query, key, value, decay in zip(*(part.unbind(1) for part in parts), strict=True):
        outputs.append(query @ state)
        outputs[-1] = outputs[-1] + (query @ key.mT).tril() @ value
        state = state * decay[:, -1].sigmoid()[:, :, None]
        state = state + key.mT @ value
    return self.out(torch.cat(outputs, 1))


def time_mixing(self: Any, x: Tensor) -> Tensor:
    """RWKV: a token and the one before it, and sums over all before."""
    shifted = x + F.pad(x, (0, 0, 1, -1))
    key, value, state, outputs = self.key(shifted).exp(), self.value(shifted), x.new_zeros(len(x), D), []
    for token in range(x.shape[1]):
        state = 0.9 * state + key[:, token] * value[:, token]
        outputs.append(state)
    return self.out(torch.stack(outputs, 1))


def induced(self: Any, x: Tensor, y: Tensor) -> Tensor:
    """Set Transformer: queries read the keys, heads lying in the batch."""
    query, key = (torch.cat(one.split(D // 2, -1), 0) for one in (self.query(x), self.key(y)))
    return torch.cat((query + attended(query, key, key)).split(len(x), 0), -1)


def perceiver(attend: Callable[..., Tensor]) -> Module:
    """Perceiver: five learned queries, as they are, read the tokens, and then each other."""

    def perceived(self: Any, x: Tensor) -> Tensor:
        latents = self.cross(self.latents[0].expand(len(x), -1, -1), self.key(x))
        return self.own(latents, latents)

    cross, own = (Module(lambda self, query, key: attend(query, key, key)) for _ in range(2))
    return Module(perceived, latents=nn.ParameterList([torch.randn(5, D)]), key=nn.Linear(D, D), cross=cross, own=own)


def modulated(self: Any, image: Tensor, condition: Tensor) -> Tensor:
    """StyleGAN2: every sample has a kernel of its own; its channels lie beside those of the other samples."""
    batch, channels, *sides = image.shape
    kernels = self.kernel.weight * self.style(condition)[:, None, :, None, None]
    together = image.reshape(1, batch * channels, *sides)
    return F.conv2d(together, kernels.flatten(0, 1), padding=1, groups=batch).reshape(image.shape)


def dynamic(self: Any, image: Tensor) -> Tensor:
    """CondConv: the kernel is a mixture, chosen by the mean of the image."""
    kernel = self.bank(self.route(image.mean((2, 3))).softmax(-1)).reshape(-1, 4, 3, 3)
    return F.conv2d(image.flatten(0, 1)[None], kernel, padding=1, groups=len(image)).reshape(image.shape)


def position_encoded(self: Any, image: Tensor) -> Tensor:
    """YOLO11: attention over all pixels of a map of 1/8 of the size, and a convolution of its values."""
    x = self.stem(image)
    query, key, value = self.qkv(x).view(1, 2, 16, -1).split([4, 4, 8], 2)
    weights = (query.mT @ key).softmax(-1)
    return (value @ weights.mT).view(x.shape) + self.along(value.reshape(x.shape))


# Module, inputs; name, kind, reads and content-dependence of the rows that are not per-token.
LABELLED: dict[str, tuple[nn.Module, Any, list[Label]]] = {
    "convolutions of (B, C, N)": (
        nn.Sequential(nn.Conv1d(D, 6, 3, padding=1), nn.ReLU(), nn.ConvTranspose1d(6, D, 4, 2, 1)),
        torch.randn(1, D, 40), [("0.convolution", "local", 3, False), ("2.convolution", "local", 2, False)],
    ),
    "convolutions of an image, and their mean": (
        nn.Sequential(nn.Conv2d(3, 8, 4, 4), nn.Conv2d(8, 8, 3, padding=1), nn.AdaptiveAvgPool2d(1)), IMAGE,
        [("1.convolution", "local", 9, False)],
    ),
    "one tensor as queries, keys and values": (
        heads(), (TOKENS, TOKENS, TOKENS), [*core("global", 64), ("mean", "global", 64, False)],  # a mean over heads
    ),
    "a convolution along tokens after channel attention": (
        Module(channel_attention, qkv=nn.Linear(D, 3 * D, bias=False), along=nn.Conv1d(D, D, 5, padding=2)), TOKENS,
        [("bmm", "global", 64, True), ("bmm_2", "global", 64, True), ("along.convolution", "local", 5, False)],
    ),
    "a vector that conditions tokens": (
        Module(conditioned, patches=nn.Conv2d(3, D, 8, 8), scale=nn.Linear(8, D), linear=nn.Linear(D, D)),
        (IMAGE, torch.randn(1, 8)), [],
    ),
    "a query out of a vector that conditions": (
        Module(pooled_query, query=nn.Linear(8, D)), (TOKENS, torch.randn(1, 8)), core("global", 64),
    ),
    "a convolution over tokens that a linear map has mixed": (
        Module(
            lambda self, x: self.c(self.l(x.transpose(1, 2))), l=nn.Linear(64, 64), c=nn.Conv1d(16, 16, 3, padding=1)
        ),
        torch.randn(1, 64, 16), [("l.mm", "global", 64, False), ("c.convolution", "local", 3, False)],
    ),
    "blocks over vectors of overlapping tokens": (
        Module(unfolded, patches=nn.Conv2d(3, D, 4, 4), blocks=nn.Sequential(Block(9 * D), Block(9 * D))), IMAGE,
        [  # 16 × 16 patches become 8 × 8 tokens; what reads nine patches first makes them tokens
            ("blocks.0.norm.native_layer_norm", "local", 9, True), ("blocks.0.qkv.addmm", "local", 9, False),
            *core("global", 64, "blocks.0.", "blocks.1."),
        ],
    ),
    "learned queries that read each other": (
        Module(
            detr, patches=nn.Conv2d(3, D, 8, 8), queries=nn.ParameterList([torch.randn(5, D)]),
            decoder=nn.TransformerDecoder(nn.TransformerDecoderLayer(D, 2, 16, dropout=0.0, batch_first=True), 2),
        ),
        IMAGE,
        [
            (f"decoder.layers.{layer}.{part}.scaled_dot_product_attention", kind, reads, True)
            for layer in (0, 1)
            for part, kind, reads in (("self_attn", "local", 5), ("multihead_attn", "global", 64))
        ],
    ),
    "keys gathered by an index buffer": (Neighbourhood(), TOKENS, core("local", 9)),
    "a window that holds all tokens that are left, of a module of one size": (
        Module(
            shrinking, patches=nn.Conv2d(3, D, 4, 4), many=Windows(16), merge=nn.Conv2d(D, D, 4, 4), one=Windows(4),
            positions=nn.ParameterList([torch.randn(1, 256, D)]),
        ),
        IMAGE, core("local", 16, "many.", "one."),
    ),
    "a convolution over a finer and a coarser map": (  # nine pixels, and four of the map of half the size
        Module(finer_and_coarser, down=nn.Conv2d(3, 3, 2, 2), along=nn.Conv2d(6, 8, 3, padding=1)),
        torch.randn(1, 3, 32, 32), [("along.convolution", "local", 13, False)],
    ),
    "a map of a pixel beside the patch that holds it": (
        Module(finer_and_coarser, down=nn.Conv2d(3, 3, 2, 2), along=nn.Conv2d(6, 8, 1)), torch.randn(1, 3, 32, 32),
        [("along.convolution", "local", 2, False)],
    ),
    "a convolution over pixels of patches": (  # 3 × 3 patches of 2 × 2 pixels
        Module(lambda self, x: self.c(F.pixel_unshuffle(x, 2)), c=nn.Conv2d(12, 8, 3, padding=1)),
        torch.randn(1, 3, 32, 32), [("c.convolution", "local", 36, False)],
    ),
    "patches whose statistics are taken by hand": (Module(normalised_by_hand, map=nn.Conv2d(48, D, 1)), IMAGE, []),
    "heads of windows in one batch, and the tokens again": (
        Module(windows_of_heads, out=nn.Linear(D, D)), TOKENS, core("local", 4),
    ),
    "a summary beside each token": (
        Module(pointwise_net, first=nn.Linear(D, D), joined=nn.Linear(2 * D, D)), TOKENS,
        [("amax", "global", 64, True), ("joined.addmm", "global", 64, False)],
    ),
    "vectors of the edges to the nearest tokens": (
        Module(edge_convolution, map=nn.Linear(2 * D, D)), TOKENS,
        [
            ("_cdist_forward", "global", 64, True), ("topk", "global", 64, True), ("sub", "local", 4, True),
            ("cat", "local", 4, False), ("map.addmm", "local", 4, False), ("relu", "local", 4, True),
            ("amax", "local", 4, True),
        ],
    ),
    "two maps along the tokens, over 24 hidden units": (
        Module(
            lambda self, x: x + self.b(F.gelu(self.a(x.mT))).mT, a=nn.Linear(64, 24, bias=False),
            b=nn.Linear(24, 64, bias=False),
        ),
        TOKENS, [("a.mm", "global", 64, False), ("b.mm", "global", 64, False)],
    ),
    "keys that are learned, or zeros": (
        Module(lambda self, x: self.it(x, x, x, need_weights=False)[0], it=heads(add_bias_kv=True, add_zero_attn=True)),
        TOKENS, [("it.scaled_dot_product_attention", "global", 64, True)],
    ),
    "learned queries that read the tokens and themselves": (
        Module(resampled, latents=nn.ParameterList([torch.randn(1, 5, D)]), layers=nn.ModuleList([heads(), heads()])),
        TOKENS,
        core("global", 64, "layers.0.", "layers.1.")
        + [(f"layers.{layer}.mean", "global", 64, False) for layer in (0, 1)],
    ),
    "attention of a smaller map, and a convolution of its values": (
        Module(
            position_encoded, stem=nn.Sequential(*(nn.Conv2d(3 if not at else 16, 16, 3, 2, 1) for at in range(3))),
            qkv=nn.Conv2d(16, 32, 1), along=nn.Conv2d(16, 16, 3, padding=1, groups=16),
        ),
        torch.randn(1, 3, 160, 160),
        [
            *((f"stem.{at}.convolution", "local", 9, False) for at in range(3)),
            *core("global", 400), ("along.convolution", "local", 9, False),
        ],
    ),
    "linear attention by sums of buckets": (
        Module(in_buckets, qkv=nn.Linear(D, 3 * D), out=nn.Linear(D, D)), TOKENS,
        [
            ("sum", "local", 8, False),
            *((name, "global", 64, False) for name in ("cumsum", "cumsum_2")),
            ("bmm", "global", 56, True),  # all products of `einsum`
        ],
    ),
    "chunks of gated linear attention": (
        Module(gated_chunks, parts=nn.Linear(D, 4 * D), out=nn.Linear(D, D)), TOKENS,
        [
            *((name, "global", 56, True) for name in ("bmm", "mul")),
            ("add_2", "global", 56, False),
            *((name, "local", 8, True) for name in ("bmm_2", "bmm_3", "bmm_4")),
        ],
    ),
    "a shift by a token, and a recurrence": (
        Module(time_mixing, key=nn.Linear(D, D), value=nn.Linear(D, D), out=nn.Linear(D, D)), TOKENS[:, :20],
        [("add", "local", 2, False), ("add_2", "global", 20, False)],
    ),
    "tokens that read few learned ones, which read them": (
        Module(
            lambda self, x: self.down(x, self.up(self.points[0], x)), points=nn.ParameterList([torch.randn(1, 5, D)]),
            **{name: Module(induced, query=nn.Linear(D, D), key=nn.Linear(D, D)) for name in ("up", "down")},
        ),
        TOKENS, core("global", 64, "up.") + core("global", 5, "down."),
    ),
    "learned queries that are not projected, in one kernel": (
        perceiver(F.scaled_dot_product_attention), TOKENS,
        [
            ("cross.scaled_dot_product_attention", "global", 64, True),
            ("own.scaled_dot_product_attention", "local", 5, True),
        ],
    ),
    "learned queries that are not projected, product by product": (  # their scores are a linear map of each token
        perceiver(attended), TOKENS,
        [("cross._softmax", "global", 64, True), ("cross.bmm_2", "global", 64, True), *core("local", 5, "own.")],
    ),
    "kernels out of a vector that conditions": (
        Module(modulated, kernel=nn.Conv2d(4, 4, 3), style=nn.Linear(6, 4)),
        (torch.randn(2, 4, 32, 32), torch.randn(2, 6)), [("convolution", "local", 9, True)],
    ),
    "kernels out of the mean of all tokens": (
        Module(dynamic, route=nn.Linear(4, 3), bank=nn.Linear(3, 4 * 4 * 9)), torch.randn(2, 4, 16, 16),
        [("mean", "global", 256, False), ("convolution", "global", 256, True)],
    ),
    "a recurrence by learned weights": (
        Module(scan, a=nn.ParameterList([torch.rand(D)])), TOKENS, [("add", "global", 64, False)],
    ),
    "sums over the edges of a graph": (
        Module(over_edges, first=nn.Linear(D, D), second=nn.Linear(D, D)),
        (torch.randn(30, D), torch.cat([EDGES, EDGES.flip(0)], 1)), [("index_add", "local", 2, False)],
    ),
}  # fmt: skip


def found(module: nn.Module, inputs: Any, **options: Any) -> xfcost.Ledger:
    return xfcost.analyze(module.eval(), example_inputs=inputs, mixing=True, trace=False, **options)


@pytest.mark.parametrize("name", LABELLED)
def test_operations_have_the_kinds_worked_out_by_hand(name: str) -> None:
    module, inputs, expected = LABELLED[name]
    torch.manual_seed(0)
    assert sorted(kinds(found(module, inputs))) == sorted(expected)


def test_chunks_of_the_delta_rule_read_their_own_tokens_and_the_state_all_before() -> None:
    module = Module(delta_rule, parts=nn.Linear(D, 3 * D + 1), out=nn.Linear(D, D))
    rows = found(module, TOKENS).rows
    labels = {row.path: (row.mixing, row.reads_tokens, row.content_dependent) for row in rows}
    chunk, state = ("local", 8, True), ("global", None, True)
    of_chunks = {"bmm": chunk, "linalg_solve_triangular": chunk, "bmm_4": chunk}  # key · key, its system, query · key
    of_states = {"bmm_2": state, "bmm_3": state, "mul": state}  # what they read of the state, and that it decays
    maps = dict.fromkeys(("parts.addmm", "sub", "add", "out.addmm"), ("per-token", None, False))
    expected = of_chunks | of_states | maps
    assert {path: labels[path] for path in expected} == expected


def decaying(self: Any, x: Tensor) -> Tensor:
    """A matrix of keys and values, weighed by one number of each token, that queries read."""
    (query, key, value), weight = self.parts(x).chunk(3, -1), self.gate(self.weight(x))
    state, outputs = x.new_zeros(len(x), D, D), []
    for at in range(x.shape[1]):
        state = state * weight[:, at, None] + key[:, at, :, None] * value[:, at, None]
        outputs.append(query[:, at, None] @ state)
    return torch.cat(outputs, 1)


@pytest.mark.parametrize("gate", [torch.sigmoid, F.softplus, torch.tanh])
def test_what_a_recurrence_keeps_of_its_state_reads_all_tokens_before(gate: Callable[[Tensor], Tensor]) -> None:
    module = Module(decaying, parts=nn.Linear(D, 3 * D), weight=nn.Linear(D, 1))
    module.gate = gate
    rows = {row.path: row for row in found(module, torch.randn(2, 12, D)).rows}
    assert (rows["mul"].mixing, rows["mul"].reads_tokens) == ("global", 12)
    assert rows["bmm"].mixing == rows["add"].mixing == "per-token"


def one_after_the_other(
    step: Callable[[Any, Tensor, Tensor], tuple[Tensor, Tensor]],
) -> Callable[[Any, Tensor], Tensor]:
    """A loop over tokens (B, N, D) that hands on a state; `step` gives it, and the output of the token."""

    def loop(self: Any, x: Tensor) -> Tensor:
        state, outputs = torch.zeros(2, len(x), D, device=x.device), []
        for token in self.before(x).unbind(1):
            state, output = step(self, token, state)
            outputs.append(self.after(output))
        return torch.stack(outputs, 1)

    return loop


def elman(self: Any, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    h = torch.tanh(self.of_token(x) + self.of_state(state[0]))
    return (h,), h


def elman_of_a_network(self: Any, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    h = torch.tanh(self.of_token(x) + self.of_state(self.inner(state[0]).relu()))
    return (h,), h


def linear(self: Any, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    h = self.of_token(x) + self.of_state(state[0])
    return (h,), h


def side_by_side(self: Any, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    h = torch.tanh(self.of_both(torch.cat([x, state[0]], -1)))
    return (h,), x + h


def two_layers(self: Any, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    (h,), _ = elman(self, x, state)
    g = self.gru(h, state[1])
    return (h, g), g


def of_a_deep_input(self: Any, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    h, c, g, d = state if len(state) > 2 else (*state, *state)
    h, c = self.lstm(x, (h, c))
    g, d = self.second_lstm(self.inner(h).relu(), (g, d))  # more is behind its input than behind its state
    return (h, c, g, d), g


def gated(self: Any, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    gate = self.of_token(x).sigmoid()
    h = gate * state[0] + (1 - gate) * self.inner(x)
    return (h,), h


@pytest.mark.parametrize(
    ("step", "products"),
    [
        (elman, {"of_token": "per-token", "of_state": "global"}),
        (elman_of_a_network, {"of_token": "per-token", "inner": "global", "of_state": "global"}),
        (linear, {"of_token": "per-token", "of_state": "global"}),
        (side_by_side, {"of_both": "global"}),
        (two_layers, {"of_token": "per-token", "of_state": "global", "gru": "global"}),
        (of_a_deep_input, {"lstm": "global", "inner": "per-token", "second_lstm": "global"}),
        (gated, {"of_token": "per-token", "inner": "per-token"}),  # its state meets no weights
    ],
)
def test_a_product_of_the_state_of_a_recurrence_reads_all_tokens_before(step: Any, products: dict[str, str]) -> None:
    parts = {name: nn.Linear(D, D) for name in ("before", "after", "of_token", "of_state", "inner")}
    cells = {"lstm": nn.LSTMCell(D, D), "gru": nn.GRUCell(D, D), "second_lstm": nn.LSTMCell(D, D)}
    cells["of_both"] = nn.Linear(2 * D, D)
    rows = found(Module(one_after_the_other(step), **parts, **cells), torch.randn(2, 32, D)).rows
    expected = {"before": "per-token", "after": "per-token"} | products
    assert {row.path.partition(".")[0]: row.mixing for row in rows if row.macs} == expected
    reading = [row for row in rows if row.mixes]
    assert {(row.mixing, row.reads_tokens) for row in reading} == {("global", 32)}
    assert all(row.content_dependent == (step is not linear) for row in reading if row.macs)


def read_back(self: Any, x: Tensor) -> Tensor:
    outputs = torch.zeros_like(x)
    for at in range(x.shape[1]):
        outputs[:, at] = torch.tanh(self.of_token(x[:, at]) + self.of_state(outputs[:, at - 1]))
    return self.after(outputs)


def test_a_state_that_is_read_out_of_the_outputs_reads_all_tokens_before() -> None:
    parts = {name: nn.Linear(D, D) for name in ("of_token", "of_state", "after")}
    rows = found(Module(read_back, **parts), torch.randn(1, 24, D)).rows
    products = {row.path.partition(".")[0]: (row.mixing, row.reads_tokens) for row in rows if row.macs}
    assert products == {"of_token": ("per-token", None), "of_state": ("global", 24), "after": ("per-token", None)}


def shifted(self: Any, x: Tensor) -> Tensor:
    """As in RWKV-4: keys and values of tokens mixed with the token before, then a weighted mean by a loop."""
    x = x * self.share + F.pad(x, (0, 0, 1, -1)) * (1 - self.share)
    total, weight, outputs = torch.zeros_like(x[:, 0]), torch.zeros_like(x[:, 0]), []
    for key, value in zip(self.key(x).unbind(1), self.value(x).unbind(1), strict=True):
        least = torch.maximum(weight, key)
        total = (weight - least).exp() * total + (key - least).exp() * value
        weight = least
        outputs.append(total)
    return torch.stack(outputs, 1)


def test_products_of_shifted_tokens_are_no_products_of_a_state() -> None:
    module = Module(shifted, key=nn.Linear(D, D), value=nn.Linear(D, D))
    module.share = nn.Parameter(torch.rand(D))
    rows = found(module, torch.randn(2, 32, D)).rows
    assert {row.path: row.mixing for row in rows if row.macs} == {"key.addmm": "per-token", "value.addmm": "per-token"}


def test_attention_over_a_smaller_map_reads_as_many_tokens_as_that_has() -> None:
    def attends(self: Any, image: Tensor) -> Tensor:
        return attended(*self.qkv(self.map(image).flatten(2).mT).chunk(3, -1))

    module = Module(attends, map=nn.Conv2d(3, D, 3, stride=3, padding=1), qkv=nn.Linear(D, 3 * D))
    ledger = found(module, torch.randn(1, 3, 50, 50))
    # ⌊(50 + 2 - 3)/3⌋ + 1 = 17 places on a side, of which no smaller image has a fixed share
    assert {row.reads_tokens for row in ledger.rows if row.operation == "bmm"} == {17 * 17}


def test_a_recurrence_in_both_directions_is_global() -> None:
    layer = nn.LSTM(D, D, batch_first=True, bidirectional=True, proj_size=4)
    (row,) = found(layer, torch.randn(1, 20, D)).rows
    assert (row.mixing, row.reads_tokens) == ("global", 20)


def test_a_set_of_more_than_a_quarter_may_grow_with_the_tokens() -> None:
    labels = kinds(found(Neighbourhood(far=2), TOKENS))
    assert labels == [(name, "unknown", None, False) for name in ("bmm", "_softmax", "bmm_2")]  # 25 of 64


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.parametrize("layout", ["to_sparse", "to_sparse_csr"])
def test_a_product_of_a_sparse_matrix_leaves_linear_maps_per_token(layout: str) -> None:
    graph = getattr(torch.eye(30).roll(1, 0), layout)()
    module = Module(lambda self, x: self.second(graph @ self.first(x)), first=nn.Linear(D, D), second=nn.Linear(D, D))
    assert [row.mixing for row in found(module, torch.randn(30, D)).rows] == ["per-token", "unknown", "per-token"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_what_follows_an_int8_map_has_its_kind() -> None:
    quantised = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(D, 20)), {nn.Linear}, dtype=torch.qint8)
    module = nn.Sequential(quantised, nn.LayerNorm(20), nn.Linear(20, D)).eval()
    assert [row.mixing for row in found(module, TOKENS).rows] == ["unknown", "per-token", "per-token"]


@torch.library.custom_op("labels::reversed", mutates_args=())
def reversed_tokens(x: Tensor) -> Tensor:
    """An operation without a rule, and that takes no float64: the tokens in the other order."""
    if x.dtype == torch.float64:
        raise TypeError("float32 alone")
    return x.flip(1).clone()


reversed_tokens.register_fake(torch.empty_like)


def after_a_stranger(self: Any, x: Tensor) -> Tensor:
    """Its last product pairs each token with what is at its place since: whose tokens those are is not known."""
    y = self.block(self.first(reversed_tokens(x)))
    return self.both(torch.cat([x, y], -1)) + ((x + y)[:, :, None] @ self.first(y)[..., None]).squeeze(-1)


def test_what_follows_an_operation_of_unknown_kind_has_the_kinds_of_new_tokens() -> None:
    module = Module(after_a_stranger, first=nn.Linear(D, D), block=Block(D), both=nn.Linear(2 * D, D))
    by_path = {row.path: row.mixing for row in found(module, TOKENS).rows}
    unknown = {path for path, kind in by_path.items() if kind == "unknown"}
    assert unknown == {"labels::reversed", "both.addmm", "add", "bmm", "add_2"}
    assert {path: kind for path, kind in by_path.items() if kind not in {"per-token", "unknown"}} == {
        f"block.{name}": "global" for name in ("bmm", "_softmax", "bmm_2")
    }


def test_distances_are_read_as_products_are() -> None:
    for power, inputs in ((1.0, TOKENS), (2.0, TOKENS), (2.0, TOKENS[:, :12])):  # of few vectors in another kernel
        module = Module(lambda self, x, power=power: torch.cdist(self.map(x), x, power), map=nn.Linear(D, D))
        (row,) = [one for one in found(module, inputs).rows if one.mixing != "per-token"]
        assert (row.mixing, row.content_dependent) == ("global", True)
    codes = Module(lambda self, x: torch.cdist(x, self.codes[0]), codes=nn.ParameterList([torch.randn(5, D)]))
    assert {row.mixing for row in found(codes, TOKENS).rows} == {"per-token"}


def over_rows(self: Any, x: Tensor) -> Tensor:
    is_jagged, heads = x.layout is torch.jagged, [2, D // 2]
    q = self.qkv(x)
    q = (q.unflatten(-1, heads) if is_jagged else q.view(x.size(0), -1, *heads)).transpose(1, 2)
    q = q if is_jagged else q.contiguous()
    y = F.scaled_dot_product_attention(q, q, q).transpose(1, 2)
    return self.out(y.flatten(2) if is_jagged else y.contiguous().reshape(x.size(0), -1, D))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
def test_attention_over_nested_tensors_costs_as_its_rows_do(layout: torch.layout) -> None:
    rows = [torch.randn(5, D), torch.randn(7, D)]
    nested = torch.nested.nested_tensor(rows, layout=layout)
    model = nn.Sequential(Module(over_rows, qkv=nn.Linear(D, D), out=nn.Linear(D, D)), nn.LayerNorm(D), nn.GELU())
    model(nested)  # torch runs it
    options = {"trace": False, "mixing": False, "strict": True}
    whole, *apart = (xfcost.analyze(model, example_inputs=one, **options) for one in (nested, *(r[None] for r in rows)))
    assert whole.total("macs") == 12 * 2 * D * D + 2 * (5 * 5 + 7 * 7) * D
    assert whole.total("flops") == sum(one.total("flops") for one in apart)


def test_a_jagged_tensor_is_counted_and_its_kinds_are_left_out_with_a_reason() -> None:
    rows = torch.nested.nested_tensor([torch.randn(5, D), torch.randn(7, D)], layout=torch.jagged)
    ledger = found(nn.Linear(D, D), rows)
    assert ledger.total("macs") == 12 * D * D
    assert any("a nested tensor have lengths of their own" in note for note in ledger.metadata.notes)


class Flexible(nn.Module):
    """FlexAttention whose mask keeps the last three tokens."""

    def __init__(self, length: int | None = None) -> None:
        super().__init__()
        self.map = nn.Linear(D, 3 * D)
        self.mask = None if length is None else self.of(length)

    @staticmethod
    def of(length: int) -> BlockMask:
        return create_block_mask(lambda b, h, q, k: (q >= k) & (q - k < 3), None, None, length, length, device="cpu")

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (2, D // 2)).transpose(1, 2) for part in self.map(x).chunk(3, -1))
        return flex_attention(q, k, v, block_mask=self.mask or self.of(x.shape[1])).transpose(1, 2).flatten(2)


@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_flex_attention_reads_what_its_mask_keeps_and_says_that_all_pairs_are_counted() -> None:
    ledger = found(Flexible(), TOKENS)
    (row,) = [one for one in ledger.rows if one.operation == "flex_attention"]
    assert (row.mixing, row.reads_tokens, row.content_dependent) == ("local", 3, True)
    assert any("all pairs" in note for note in ledger.metadata.notes)
    fixed = found(Flexible(64), TOKENS)
    assert {one.mixing for one in fixed.rows if one.operation == "flex_attention"} == {"unknown"}  # one size alone


class Modulated(nn.Module):
    """MMDiT (Esser et al. 2024, arXiv:2403.03206, §4): one attention over text and image, modulated by a vector."""

    def __init__(self) -> None:
        super().__init__()
        self.of_text, self.of_image, self.modulation, self.out = (nn.Linear(D, D) for _ in range(4))

    def forward(self, image: Tensor, text: Tensor, condition: Tensor) -> Tensor:
        both = torch.cat([self.of_text(text), self.of_image(image)], 1)
        h = both * self.modulation(condition)[:, None]
        return self.out(attended(h, h, h))[:, text.shape[1] :]


class Crossed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.map, self.out = nn.Linear(D, D), nn.Linear(D, D)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        return self.out(attended(x, self.map(context), self.map(context)))


STREAMS = {  # 64 tokens, and 20 of another stream
    "MMDiT": (Modulated(), (torch.randn(1, 64, D), torch.randn(1, 20, D), torch.randn(1, D))),
    "cross-attention": (Crossed(), (torch.randn(1, 64, D), torch.randn(1, 20, D))),
}


@pytest.mark.parametrize(
    ("name", "said", "reads", "along"),
    [
        ("MMDiT", (), "global", "axis 1 of image, axis 1 of text"),
        ("MMDiT", ("text:none",), "global", "axis 1 of image"),
        ("MMDiT", ("text:1", "condition:none"), "global", "axis 1 of image, axis 1 of text"),
        ("cross-attention", (), "global", "axis 1 of x, axis 1 of context"),
        ("cross-attention", ("context:none",), "per-token", "axis 1 of x"),  # a context that is no token conditions x
    ],
)
def test_which_inputs_hold_tokens_is_found_or_said(name: str, said: tuple[str, ...], reads: str, along: str) -> None:
    module, inputs = STREAMS[name]
    ledger = found(module, inputs, tokens_of=said)
    for row in ledger.rows:
        kind = reads if row.operation in {"bmm", "_softmax", "bmm_2"} else "per-token"
        assert (row.path, row.mixing) == (row.path, kind)
    assert any(f"tokens lie along {along};" in note for note in ledger.metadata.notes)


class Deep(nn.Module):
    """A recurrent layer inside, whose input has the batch second."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0]


def test_tokens_may_lie_before_the_batch() -> None:
    layer, many = nn.TransformerEncoderLayer(16, 2, 32).eval(), (lambda N: torch.randn(N, 2, 16), {"N": 24})
    for model in (layer, nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).eval()):
        for inputs, more in (many, (torch.randn(24, 2, 16), {})):
            ledger = xfcost.analyze(model, example_inputs=inputs, trace=False, **more)
            (core,) = (row for row in ledger.rows if row.operation == "scaled_dot_product_attention")
            assert (core.mixing, core.reads_tokens) == ("global", 24)
    for inputs, more in ((lambda N: torch.randn(N, 3, 8), {"N": 24}), (torch.randn(24, 3, 8), {})):
        (row,) = xfcost.analyze(nn.LSTM(8, 8), example_inputs=inputs, trace=False, **more).rows
        assert (row.mixing, row.reads_tokens) == ("global", 24)


def test_a_note_says_how_to_name_tokens_where_nothing_tells_them_from_the_batch() -> None:
    ledger = xfcost.analyze(Deep(), example_inputs=torch.randn(24, 3, 8), trace=False)
    assert any("lstm: each token reads only itself" in note for note in ledger.metadata.notes)
    (row,) = xfcost.analyze(Deep(), example_inputs=torch.randn(24, 3, 8), tokens_of=["x:0"], trace=False).rows
    assert row.mixing == "global"
