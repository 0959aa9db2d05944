"""Recurrent layers, state-space models and long convolutions under the contract."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import strategies as st

from cases.base import IN_CHUNKS, ON_SEQUENCES, Letters, MechanismCase, Rows, Theirs, any_of, ceil_div, doubled, whole
from xfcost.formulas.component import Place
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.gated_delta import GatedDelta
from xfcost.mechanisms.hyena import Hyena
from xfcost.mechanisms.mamba import Mamba, Mamba2
from xfcost.mechanisms.recurrent import Additive, Gru, Lstm, Maxout, Recurrent, Rnn, Sum
from xfcost.mechanisms.retention import Retention, RwkvChannel, RwkvTime
from xfcost.program.residual import component_rows


def _recurrent(gates: int, states: int = 1) -> Callable[[Any, Place], Letters]:
    def letters(component: Any, place: Place) -> Letters:
        units = component.hidden or place.out_dim // (2 if component.bidirectional else 1)
        attend = (
            {"k": component.attend.hidden, "E": place.memory_dim, "β'": int(component.attend.bias)}
            if component.attend
            else {}
        )
        readout = getattr(component.readout, "hidden", 0)
        return {"g": gates, "h": units, "s": states * units, "l": readout} | attend

    return letters


def _retention(component: Any, place: Place) -> Letters:
    n = place.grid.total
    chunk = min(component.chunk or 64, n)
    return {"v": component.value_dim or 2 * place.dim, "c": chunk, "P'": whole(n, chunk)}


OPTIONS = {"hidden": st.none() | st.integers(1, 64), "bidirectional": st.booleans(), "bias": st.booleans()}
ATTENTION = Additive(hidden=5)
READING = {
    "hidden": st.integers(1, 64),
    "bias": st.booleans(),
    "attend": st.builds(Additive, hidden=st.integers(1, 64), bias=st.booleans(), gate=st.booleans()),
    "start": st.sampled_from(["zeros", "backwards", "mean"]),
    "readout": st.none() | st.builds(Maxout, hidden=st.integers(1, 64)) | st.builds(Sum),
}


def recurrent_case(component: type[Recurrent], examples: tuple[Recurrent, ...], **more: Any) -> MechanismCase:
    """`more`: strategies of the options that this one alone has."""
    return MechanismCase(
        examples=examples,
        components=st.builds(component, **OPTIONS, **more) | st.builds(component, **READING, **more),
        # Recurrent layers see a sequence, a grid in raster order. A longer one forgets its first token to the last bit.
        grids=(*(Grid((n,)) for n in (1, 2, 5, 13)), Grid((3, 4)), Grid((1, 1), 1), Grid((2, 2), 1)),
        # few: where shapes are all that counts the steps are walked all the same
        growth=lambda component: doubled(2),
        fused=False,
        memory=True,
        # its input map alone is per token; the state's is the recurrence
        per_token=False,
        # it asks with the state of the step before: what it reads is counted for that step's token, and not for its own
        followed_otherwise=lambda component: (
            {"add_context", "recurrence", "readout_add"} if component.attend else set()
        ),
    )


RNN = recurrent_case(
    Rnn,
    (Rnn(), Rnn(act="relu", bias=False), Rnn(bidirectional=True), Rnn(attend=ATTENTION)),
    act=st.sampled_from(["tanh", "relu"]),
)._replace(
    letters=_recurrent(1),
    flags={
        "hidden": "context input join query recurrence",
        "bias": "input recurrence",
        "attend": "all but input recurrence",
        "act": "recurrence",
        "readout": "nothing (only with `attend` is it taken)",
    },
    cached=((Rnn(hidden=4), 0, 4),),
)


LSTM = recurrent_case(
    Lstm,
    (
        Lstm(),
        Lstm(bidirectional=True, bias=False),
        Lstm(hidden=4, residual="none"),
        Lstm(hidden=4, attend=Additive(hidden=3, bias=True, gate=True), start="mean", readout=Sum()),
    ),
)._replace(
    letters=_recurrent(4, 2),
    flags={
        "hidden": "^context add_context input join linear query recurrence start_tanh state",
        "bias": "input readout_context recurrence start_linear state",
        "readout": "join readout_add readout_context readout_tanh state",
        "attend": "^add ^tanh energies gate_linear keys multiply query sigmoid",
    },
    cached=((Lstm(hidden=4), 0, 2 * 4),),
)


GRU = recurrent_case(
    Gru,
    (
        Gru(),
        Gru(reset="before"),
        Gru(reset="before", bias=False),
        Gru(bidirectional=True),
        Gru(attend=ATTENTION, start="mean"),
        Gru(
            hidden=4,
            bias=False,
            reset="before",
            attend=ATTENTION,
            start="backwards",
            readout=Maxout(hidden=3),
            residual="none",
        ),
    ),
    reset=st.sampled_from(["after", "before"]),
)._replace(
    letters=_recurrent(3),
    flags={
        "hidden": (
            "^context ^input add_context backwards_input forwards_input join linear query recurrence start_tanh state"
        ),
        "bidirectional": "^input backwards_input forwards_input join recurrence",
        "bias": "^input backwards_input forwards_input linear recurrence state",
        "attend": "^add ^tanh energies gate_linear keys multiply query sigmoid",
        "readout": "join maxout readout_add readout_context readout_input state",
        "reset": "nothing (the gate's place)",
    },
    cached=(
        (Gru(hidden=4, attend=Additive(hidden=5)), 0, 4 + 7 * (5 + 8)),  # keys, and the memory itself
    ),
)


HYENA = MechanismCase(
    rows=Rows(grids=lambda component: doubled(12)),
    letters=lambda component, place: {
        "o": component.order,
        "W": component.conv,
        "K": component.features,
        "F": component.filter_hidden,
        "L": component.filter_layers,
    },
    flags={
        "order": "conv fft gate in_proj out skip window",
        "conv": "short_conv",
        "features": "in positions",
        "filter_hidden": "hidden in out sin",
        "filter_layers": "hidden sin",
        "positions": "positions",
    },
    examples=(
        Hyena(features=5, filter_hidden=7),
        Hyena(order=3, conv=1, features=3, filter_hidden=4, filter_layers=1, positions="fixed"),
        Hyena(order=4, conv=9, features=9, filter_hidden=5, filter_layers=3),
    ),
    **ON_SEQUENCES,
    growth=lambda component: doubled(4),
    channels_first=lambda leaf: leaf == "short_conv",
    rounding=1e-13,
)


# Of a block with a short convolution and decays, ours by name in theirs.
BLOCK = {
    "conv.weight": "conv1d.weight", "conv.bias": "conv1d.bias", "decay.log": "A_log", "skip.weight": "D",
    "step.bias": "dt_bias", "rates.bias": "dt_bias",
}  # fmt: skip


def of_block(module: Any) -> dict[str, Any]:
    weights = dict(module.named_parameters())
    return {ours: weights[theirs] for ours, theirs in BLOCK.items() if theirs in weights}


def theirs_mamba(component: Any, place: Place) -> Theirs:
    modeling = pytest.importorskip("transformers.models.mamba.modeling_mamba")
    sizes = {"state_size": component.state, "conv_kernel": component.conv, "expand": component.expand}
    rank = component.rank or "auto"
    config = modeling.MambaConfig(hidden_size=place.dim, time_step_rank=rank, use_mambapy=False, **sizes)
    return Theirs(modeling.MambaMixer(config, layer_idx=0), of_block)


MAMBA = MechanismCase(
    theirs=theirs_mamba,
    rows=Rows(grids=lambda component: doubled(12)),
    letters=lambda component, place: {
        "E": component.expand,
        "S": component.state,
        "W": component.conv,
        "R": component.rank or ceil_div(place.dim, 16),
    },
    flags={"state": "decay scan x_proj", "rank": "dt_proj x_proj"},
    cached=((Mamba(state=3, conv=4, expand=2), 0, 12 * 3 + 3 * 12),),
    # a kernel without padding has its home in the middle of its taps
    followed_otherwise=lambda component: {"scan", "gate"} if component.conv > 1 else set(),
    examples=(Mamba(state=3), Mamba(state=2, conv=1, expand=1, rank=3), Mamba(state=4, conv=9)),
    **ON_SEQUENCES,
    growth=lambda component: doubled(2),
    per_token=False,
    channels_first=lambda leaf: leaf == "conv",
)


def theirs_mamba2(component: Any, place: Place) -> Theirs:
    modeling = pytest.importorskip("transformers.models.mamba2.modeling_mamba2")
    sizes = {"state_size": component.state, "conv_kernel": component.conv, "expand": component.expand}
    heads = {"num_heads": component.head_count(place.dim), "head_dim": component.head_dim, "n_groups": component.groups}
    config = modeling.Mamba2Config(hidden_size=place.dim, chunk_size=component.chunk, **sizes, **heads)
    theirs = modeling.Mamba2Mixer(config, layer_idx=0)
    if component.groups > 1 and not hasattr(theirs.norm, "group_size"):
        pytest.skip("this version of transformers normalises all groups at once; the paper's model each alone")
    return Theirs(theirs, of_block)


MAMBA2 = MechanismCase(
    theirs=theirs_mamba2,
    letters=lambda component, place: {
        "E": component.expand,
        "S": component.state,
        "W": component.conv,
        "G": component.groups,
        "h": component.expand * place.dim // component.head_dim,
        "Q": component.chunk,
        "C": ceil_div(place.grid.total, component.chunk),
        "P'": whole(place.grid.total, component.chunk),
        "b": component.chunk,
    },
    flags={
        "state": "act carry conv fade in_proj pad read scores state",
        "groups": "act conv in_proj norm pad",
        "head_dim": "decay decays fade in_proj pad rates reach scores skip spans step sums weigh",
        "chunk": "all but act conv decay gate norm proj skip step",
    },
    cached=((Mamba2(state=2, head_dim=2, groups=2, conv=4), 0, 12 * 2 + 3 * (12 + 2 * 2 * 2)),),
    followed_otherwise=lambda component: {"read"} if component.conv == 1 else {"read", "inputs", "state", "gate"},
    examples=(
        Mamba2(state=3, head_dim=3, chunk=4),
        Mamba2(state=2, head_dim=2, groups=2, conv=1, expand=2, chunk=5),
        Mamba2(state=4, head_dim=2, expand=1, conv=9, chunk=8),
    ),
    components=any_of(Mamba2, expand=st.integers(1, 3)),  # of many heads the last ones forget within a chunk
    **IN_CHUNKS,
    channels_first=lambda leaf: leaf == "conv",
)


def gated_delta_letters(component: Any, place: Place) -> Letters:
    wide, chunk, key_heads = component.head_dim or place.dim // component.heads, component.chunk, component.key_heads
    value, key_heads = component.value_dim or wide, key_heads or component.heads
    letters = {"h_k": key_heads, "d_v": value, "W": component.conv, "Q": chunk, "b": chunk}
    return letters | {"C": 2 * key_heads * wide + component.heads * value, "P'": whole(place.grid.total, chunk)}


def theirs_gated_delta(component: Any, place: Place) -> Theirs:
    modeling = pytest.importorskip("transformers.models.qwen3_next.modeling_qwen3_next")
    h, (key_heads, keys, values) = component.heads, component.widths(place.dim)
    config = modeling.Qwen3NextConfig(
        hidden_size=place.dim, linear_num_key_heads=key_heads, linear_num_value_heads=h, linear_key_head_dim=keys,
        linear_value_head_dim=values, linear_conv_kernel_dim=component.conv, num_hidden_layers=1,
    )  # fmt: skip
    theirs = modeling.Qwen3NextGatedDeltaNet(config, layer_idx=0)
    in_their_chunks = component_rows(msgspec.structs.replace(component, chunk=64), place)

    def weights(module: Any) -> dict[str, Any]:
        """Their projections are in the order of key heads."""
        each = h // key_heads
        maps = {"in_proj": (module.in_proj_qkvz, [keys, keys, each * values, each * values])}
        maps["gates_proj"] = module.in_proj_ba, [each, each]
        return of_block(module) | {
            f"{name}.weight": torch.cat(
                [part.flatten(0, 1) for part in whole.weight.unflatten(0, (key_heads, -1)).split(widths, 1)]
            )
            for name, (whole, widths) in maps.items()
        }

    return Theirs(theirs, weights, macs=sum(row.macs for row in in_their_chunks if row.path != "solve"))


GATED_DELTA = MechanismCase(
    theirs=theirs_gated_delta,
    examples=(
        GatedDelta(heads=2, chunk=4),
        GatedDelta(heads=6, key_heads=3, head_dim=2, value_dim=5, conv=1, chunk=5),
        GatedDelta(heads=3, key_heads=1, conv=9, chunk=8),
    ),
    letters=gated_delta_letters,
    flags={
        "heads": "all but add gate out_proj weigh_keys weigh_values weighted_sum",
        "key_heads": "in_proj conv act pad normalize scale",
        "head_dim": "all but decay decays gates_proj rates sums weigh write",
        "chunk": "all but act conv decay gate gates_proj in_proj norm out_proj rates write",
        "value_dim": "in_proj conv act pad weigh_values solve carry weighted_sum add norm gate out_proj",
    },
    followed_otherwise=lambda component: {"read"} if component.conv == 1 else {"read", "recall", "correct", "gate"},
    cached=((GatedDelta(heads=6, key_heads=3, head_dim=2, value_dim=5), 0, 6 * 2 * 5 + 3 * (2 * 3 * 2 + 6 * 5)),),
    **IN_CHUNKS,
    channels_first=lambda leaf: leaf == "conv",
    missed_by_torch=lambda component, place: sum(
        row.macs for row in component_rows(component, place) if row.path == "solve"
    ),
)


RETENTION = MechanismCase(
    letters=lambda component, place: _retention(component, place) | {"b": component.chunk or 0},
    flags={
        "heads": "carry decays read scan scores state weigh",
        "form": "all but gate norm out proj qkv rotary scale",
        "value_dim": "all but decays rotary scale scan scores weigh",
        "chunk": "add carry decays fade local_scores local_weigh local_weighted_sum pad reach read state",
    },
    cached=((Retention(heads=3, value_dim=15), 0, 3 * 4 * 5),),
    examples=(
        Retention(heads=2),
        Retention(heads=3, value_dim=15, norm="rms_norm", form="chunkwise", chunk=4),
        Retention(heads=2, form="chunkwise", chunk=5),
        Retention(heads=6, form="recurrent"),
    ),
    **IN_CHUNKS,
    dim=12,
)


COMMON = ON_SEQUENCES | {
    "growth": lambda component: doubled(4),
    "per_token": False,
    # wide: a square behind a ReLU may be off in many channels
    "dim": 12,
}


def theirs_rwkv(component: Any, place: Place) -> Theirs:
    modeling = pytest.importorskip("transformers.models.rwkv.modeling_rwkv")
    sizes = {"attention_hidden_size": place.dim, "intermediate_size": getattr(component, "hidden", None)}
    config = modeling.RwkvConfig(hidden_size=place.dim, num_hidden_layers=1, **sizes)
    time = isinstance(component, RwkvTime)

    def weights(module: Any) -> dict[str, Any]:
        uses = ("key", "value", "receptance") if time else ("key", "receptance")
        mix = torch.cat([getattr(module, f"time_mix_{use}").flatten(0, 1) for use in uses])
        own = {"decay.weight": module.time_decay, "wkv.first": module.time_first} if time else {}
        return {"mix.weight": mix, **own}

    return Theirs((modeling.RwkvSelfAttention if time else modeling.RwkvFeedForward)(config), weights)


RWKV_TIME = MechanismCase(
    theirs=theirs_rwkv,
    cached=(
        (RwkvTime(), 0, 12 + 3 * 12),  # the token before; numerator, denominator, largest exponent
    ),
    examples=(RwkvTime(),),
    **COMMON,
)


RWKV_CHANNEL = MechanismCase(
    theirs=theirs_rwkv,
    letters=lambda component, place: {"H": component.hidden or 4 * place.dim},
    flags={"hidden": "act key square value"},
    cached=((RwkvChannel(), 0, 12),),
    examples=(RwkvChannel(), RwkvChannel(hidden=40)),
    **COMMON,
)
